"""Template: the public object. Each verb prepares its arguments and calls the package that does the work.

render    engine/renderer.py     a conversation becomes text that knows its origins
encode    tokens/truncation.py   text becomes ids, labels and owners; many at once in batch.py
examples  training.py            samples in which training equals serving
session   tokens/session.py      ids of a growing conversation, for serving and RL
parse     replies/parser/        a reply becomes a message
stops     analysis/facts.py      what ends a reply
convert   conversion/            the template in another dialect
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from turnwise import dialects
from turnwise.dialects.translation import Translation, copy_source
from turnwise.engine.program import Program, compile_program
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import RenderCall, Renderer
from turnwise.engine.runtime.limits import DEFAULT_LIMITS, Limits
from turnwise.errors import (
    SourceError,
    TemplateRuntimeError,
    TemplateSyntaxError,
    WarningLog,
    keep_warnings,
    warnings_so_far,
)
from turnwise.messages import JsonMapping, JsonObject, Messages, Tools, prepared_tools
from turnwise.normalisation.normalised import LateSystem
from turnwise.normalisation.preprocessor import Preprocessor
from turnwise.replies.codec import ReplyCodec

if TYPE_CHECKING:
    from turnwise.analysis.facts import Facts
    from turnwise.normalisation.capabilities import Capabilities
    from turnwise.replies.call_ids import CallIds, IdMaker
    from turnwise.replies.events import Message
    from turnwise.replies.grammar import Grammar
    from turnwise.replies.parser.message_builder import (
        CallsInReasoning,
        CutCalls,
        ReasoningState,
        Strip,
        UndeclaredTools,
    )
    from turnwise.replies.parser.parser import Parser
    from turnwise.tokens.encoded import Encoded
    from turnwise.tokens.encoded_batch import EncodedBatch
    from turnwise.tokens.growing import GrowingPrompt
    from turnwise.tokens.loss import TrainOn
    from turnwise.tokens.markers import Markers
    from turnwise.tokens.request_builder import RequestBuilder
    from turnwise.tokens.session import Session
    from turnwise.tokens.stop_ids import Stops
    from turnwise.tokens.truncation import Overflow
    from turnwise.training import Examples

    Prompt = Rendering | Encoded | str | Sequence[int]

UNNAMED = "template"
Trust = Mapping[str, Literal["none", "ordinary", "all"]]


@dataclass(frozen=True, repr=False)
class Template:
    """A chat template. Immutable, picklable, safe to share between threads; equal to one with the same content.

    Attributes:
        renderer: the programs, options and limits: what the other parts of turnwise receive of a template.
        dialect: the dialect that the template was written in.
        translation: its source as Jinja, with the stops that the source names.
    """

    renderer: Renderer
    dialect: str = "jinja"
    translation: Translation = field(default=Translation(""), hash=False)

    @cached_property
    def codec(self) -> ReplyCodec:
        """Reads and writes replies; `codec.to_input` returns messages of `parse` in the form the template accepts."""
        return ReplyCodec(self.renderer, self.translation.stops, self.translation.replies)

    @cached_property
    def _inputs(self) -> Preprocessor:
        return Preprocessor(self.codec, self.dialect, self.translation.fuller)

    @cached_property
    def _requests(self) -> RequestBuilder:
        from turnwise.tokens.request_builder import RequestBuilder

        return RequestBuilder(self.codec.facts)

    @property
    def name(self) -> str:
        """The name of the template: that of its entry, its file or what `compile` was given."""
        return self.renderer.name

    @property
    def text(self) -> str:
        """The template as Jinja."""
        return self.renderer.text

    @property
    def source(self) -> Any:
        """The template as it was given: a text, or the dict of its dialect."""
        return copy_source(self.translation.facts.get("template", self.text))

    @property
    def options(self) -> JsonMapping:
        """The values of the template's variables that are used where `render` is given none; read-only."""
        return self.renderer.options

    @property
    def variables(self) -> tuple[str, ...]:
        """The names that the template reads from outside."""
        return self.renderer.variables

    @property
    def program(self) -> Program:
        """The compiled template; `program.python` is its Python source."""
        return self.renderer.program

    @property
    def facts(self) -> Facts:
        """What is known about the template from probing it: stops, markers, generation prompt; printable."""
        return self.codec.facts

    @property
    def capabilities(self) -> Capabilities:
        """What the template does with each form of input (see `Capability.verdict`); printable."""
        return self._inputs.normaliser.capabilities(with_tools=True)

    @property
    def grammar(self) -> Grammar:
        """How replies to this template look: derived from it, completed by what is declared for its model."""
        return self.codec.grammar

    def render(
        self,
        /,
        messages: Messages,
        tools: Tools | None = None,
        documents: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        now: datetime | None = None,
        normalise: bool = True,
        strict: bool = False,
        late_system: LateSystem | None = None,
        **options: Any,
    ) -> Rendering:
        """Render a conversation as a text with the origin of every character in `pieces`.

        Args:
            messages: the conversation, in OpenAI's shape.
            tools: JSON schemas, functions with type hints and docstrings, or pydantic models.
            documents: for retrieval, for templates that take them.
            add_generation_prompt: end with the prompt after which the assistant speaks.
            continue_final_message: leave the final message open; a name continues that field.
            now: the time that `strftime_now` returns; the present if not given.
            normalise: give messages and tools the forms that the template takes (see `changes`), refuse misspelt
                options, and warn of text that is not written. False does as transformers does.
            strict: raise an error if something that was given is not in the rendering, or a role is misspelt.
            late_system: where late system texts go: "in_place", to a "user" turn, or to the "front"; by default the
                first of these that the template writes without a change of earlier text.
            options: values of the template's own variables (`enable_thinking=False`), or what a request asks of any
                template: `reasoning` ("none", "high", ...), `tool_choice`, `response_format`, `parallel_tool_calls`.

        Raises:
            MessageError: the input is not a conversation, an option is misspelt, or `strict` found a loss.
            TemplateError: the template fails, refuses the conversation, or exceeds its limits.

        Example:
            >>> template = turnwise.load("chatml")
            >>> str(template.render([{"role": "user", "content": "Hi"}]))
            '<|im_start|>user\\nHi<|im_end|>\\n'
        """
        warned: tuple[str, ...] = ()
        if normalise and options:
            options, warned = self._inputs.read_options(options, "render", strict)
        others = (documents, add_generation_prompt, continue_final_message, now, options)
        if not normalise and not strict:
            return RenderCall(self.renderer, messages, tools, others).render()
        rendering = usual = refusal = None
        if normalise and documents is None and late_system is None:
            # Most conversations: deleting this costs a third of rendering one message.
            usual = self._inputs.read(messages, tools)
            if usual.read:
                try:
                    rendering = RenderCall(self.renderer, usual.read, usual.tools, others).render()
                except TemplateRuntimeError as error:
                    refusal = error
                else:
                    if rendering.unwritten == () and (
                        rendering.plain_kind or not self.translation.fuller
                    ):
                        rendering.note_changes(usual.changes, usual.positions)
                        rendering.warnings = warned
                        return rendering
        named = {"tools": tools, "documents": documents, "strict": strict}
        named |= {"normalise": normalise, "late_system": late_system}
        with WarningLog() as log:
            log.texts = warned
            attempt = self._inputs.begin(messages, named, usual)
            attempt.resume(rendering, refusal, options)
            for given in attempt:
                try:
                    chat = given.read or given.messages
                    rendering = RenderCall(self.renderer, chat, given.tools, others).render()
                    attempt.check(rendering)
                except TemplateRuntimeError as error:
                    attempt.refuse(error, options)
        assert rendering is not None
        rendering.note_changes(attempt.given.changes, attempt.given.positions)
        return rendering

    @keep_warnings
    def encode(
        self,
        /,
        messages: Messages,
        tokenizer: object,
        train_on: TrainOn = "assistant",
        *,
        tools: Tools | None = None,
        late_system: LateSystem | None = None,
        max_length: int | None = None,
        overflow: Overflow = "drop_rounds",
        trust: Trust | None = None,
        compatible: bool = False,
        add_stop: bool = True,
        growing: GrowingPrompt | None = None,
        **arguments: Any,
    ) -> Encoded:
        """Encode a conversation as ids, with labels and owners.

        A turn that is not trained, not whole or without a stop is a warning, and an error with `strict`.

        Args:
            messages: the conversation.
            tokenizer: a tokenizer object, file, folder or model id; "turnwise" is the one that ships.
            train_on: "assistant", "last", "content", "reasoning", "marked", "all", or a function of an Origin.
            tools, late_system: as for `render`.
            max_length: the most tokens that are wanted.
            overflow: how more are handled: "drop_rounds" leaves out the oldest rounds, "truncate" also cuts the end
                of a last round that alone is too long, "refuse" raises an error.
            trust: who else may write control tokens: `{"system": "all"}`.
            compatible: encode as transformers does, control tokens in messages included, and add no stop.
            add_stop: end a sample with the stop of its last turn where the template writes none.
            growing: what the calls with one conversation share, so that a call costs little when it has grown.
            arguments: those of `render`.
        """
        from turnwise import batch  # in a third of the time of names of a module

        strict = bool(arguments.get("strict"))
        if arguments.get("normalise", True):
            arguments, _ = self._inputs.read_options(arguments, "encode", strict)
        offered = None if tools is None else prepared_tools(tools)
        arguments |= {"tools": offered, "late_system": late_system}
        more: JsonObject = {"max_length": max_length, "overflow": overflow, "trust": trust}
        more |= {"compatible": compatible, "add_stop": add_stop}
        in_full = partial(self.encode, tokenizer=tokenizer, train_on=train_on, **more)
        from turnwise.tokens import growing as prompts

        encode_whole, earlier = prompts.find_encoder(growing, messages)
        attempt = self._inputs.begin(messages, arguments, None, earlier)
        for given in attempt:
            try:
                arguments["tools"] = given.tools
                request = self._requests.build(
                    given.messages, tokenizer, train_on, arguments, given.read, **more
                )
                form = batch.find_form(given, arguments) if growing is None else None
                if found := batch.encode_laid_out(request, form, in_full, arguments, given):
                    return found
                encoded = encode_whole(request.for_one_call())
                attempt.check(encoded.rendering, encoded.kept)
            except TemplateRuntimeError as error:
                attempt.refuse(error)
        from turnwise.tokens import encoded as results
        from turnwise.tokens import label_report

        self._inputs.report_early_replies(given, train_on, strict)
        problems = label_report.find_label_problems(request, encoded)
        results.note_changes(encoded, given.changes, given.positions)
        problems = results.renumber_turns(problems, given.positions)
        label_report.report_problems(self.name, problems, strict, label_report.REMEDY)
        batch.learn_layout(request, form, encoded, warnings_so_far())
        return encoded

    def encode_batch(
        self,
        /,
        rows: Iterable[Any],
        tokenizer: object,
        train_on: TrainOn = "assistant",
        *,
        errors: Literal["raise", "collect"] = "raise",
        **arguments: Any,
    ) -> EncodedBatch:
        """Encode many conversations as flat arrays of ids and labels, those of `encode`, many times as fast.

        Args:
            rows: lists of messages, or rows in any shape of `turnwise.shapes`, with tools and options of their own.
            tokenizer, train_on: as for `encode`.
            errors: "raise" that of the first row that cannot be encoded, or "collect" them in `errors` by row.
            arguments: those of `encode`; a row's own come first.
        """
        from turnwise.batch import encode_batch

        if arguments.get("normalise", True):
            arguments, _ = self._inputs.read_options(
                arguments, "encode_batch", bool(arguments.get("strict"))
            )
        return encode_batch(
            self.encode, self._requests, rows, tokenizer, train_on, arguments, errors
        )

    @keep_warnings
    def examples(
        self,
        /,
        messages: Messages,
        tokenizer: object,
        train_on: TrainOn = "assistant",
        *,
        tools: Tools | None = None,
        late_system: LateSystem | None = None,
        max_length: int | None = None,
        overflow: Overflow = "drop_rounds",
        trust: Trust | None = None,
        strict: bool = False,
        **arguments: Any,
    ) -> Examples:
        """Encode the fewest samples in which each trained turn follows exactly what serving would have sent.

        Every assistant message is trained in exactly one sample, or is named in `untrained` and in a warning: see
        `Examples`.

        Args:
            messages: the conversation.
            tokenizer, train_on, trust: as for `encode`.
            tools, late_system: as for `render`.
            max_length: the most tokens of a sample.
            overflow: as for `encode`, for each sample; each turn is in one of them.
            strict: raise an error, not a warning, if some turn cannot be trained, or not to its stop.
            arguments: those of `render`, but for `add_generation_prompt`.
        """
        from turnwise.training import examples, find_longest, join_stages

        if not arguments.get("add_generation_prompt", True):
            del arguments["add_generation_prompt"]
        arguments, _ = self._inputs.read_options(arguments, "examples", strict)
        more: JsonObject = {"max_length": max_length, "overflow": overflow, "trust": trust}
        arguments |= {"tools": tools, "late_system": late_system}
        attempt = self._inputs.begin(messages, {**arguments, "strict": strict})
        for given in attempt:
            try:
                results = []
                for stage in self._inputs.split_stages(messages, given, train_on == "last"):
                    named = {**arguments, "tools": given.tools}
                    if stage.given is not given:
                        named["continue_final_message"] = False
                    chat = stage.given.messages
                    request = self._requests.build(chat, tokenizer, train_on, named, **more)
                    found = examples(request.for_one_call(), self.codec, stage.first)
                    results.append((stage.given, request, found))
                attempt.check(*find_longest(found), not found.untrained)
            except TemplateRuntimeError as error:
                attempt.refuse(error)
        return join_stages(results, self.name, strict)

    def session(
        self,
        /,
        tokenizer: object,
        tools: Tools | None = None,
        *,
        trust: Trust | None = None,
        late_system: LateSystem | None = None,
        **options: Any,
    ) -> Session:
        """Start a conversation that grows by sampled replies, whose ids are kept, and by messages.

        Args:
            tokenizer, trust: as for `encode`.
            tools: JSON schemas of the tools that are offered.
            late_system, options: as for `render`.
        """
        from turnwise.normalisation.session_reader import SessionReader
        from turnwise.tokens.session import Session

        strict = bool(options.get("strict"))
        options, _ = self._inputs.read_options(options, "session", strict)
        normalise = options.get("normalise", True)
        options["tools"] = self._inputs.normalise([], tools).tools if normalise else tools
        request = self._requests.build([], tokenizer, "assistant", options, trust=trust)
        reader = SessionReader(self.codec, self._inputs, normalise, strict, late_system)
        return Session(request, (*self.stops(), *request.stops), reader)

    def parse(
        self,
        reply: str | Sequence[int],
        prompt: Prompt | None = None,
        tools: Tools | None = None,
        tokenizer: object = None,
        declared: JsonMapping | None = None,
        call_ids: str | IdMaker | CallIds | None = None,
        undeclared_tools: UndeclaredTools = "keep",
        reasoning: ReasoningState = "auto",
        calls_in_reasoning: CallsInReasoning = "read",
        cut_calls: CutCalls = "keep",
        strip: Strip = "never",
    ) -> Message:
        """Parse a reply to a message in OpenAI's shape, which `render`, `encode` and sessions take as it is.

        Args:
            reply: text or token ids.
            prompt: the rendering that was sent, which may open the reply (a `<think>`).
            tools: the tools that were offered: their schemas decide the types of arguments.
            tokenizer: for replies that are ids.
            declared: additions to the grammar, in the words of a declaration: `{"more": [...]}`.
            call_ids: makes the ids of calls that the model wrote without one: the text before each id, a function of
                the tool's name and the number of the call, or a `CallIds` for the whole conversation.
            undeclared_tools: what becomes of a call of a tool that is not among `tools`: "keep" it, with the status
                `unknown`, or "refuse" it: its text is content, with the status `undeclared`.
            reasoning: "auto" finds in the prompt whether it is open where the reply begins; "assume" that it is.
            calls_in_reasoning: "read" calls before the end of the reasoning unless they are only mentioned, read
                "all", or leave them there as "text".
            cut_calls: "keep" a call within which the reply ends, "drop" it, or "drop_broken" ones (`malformed`) too.
            strip: remove "never" any white space of the content, that between content and "calls", or "all" at its
                ends and those of the reasoning.

        Returns:
            The message. A call that cannot be parsed, or a marker out of place, is in `message.attempts`, no exception.
        """
        given = (prompt, tools, tokenizer, declared, call_ids)
        policy = (undeclared_tools, reasoning, calls_in_reasoning, cut_calls, strip)
        return self.parser(*given, *policy).read(reply)

    def parser(
        self,
        prompt: Prompt | None = None,
        tools: Tools | None = None,
        tokenizer: object = None,
        declared: JsonMapping | None = None,
        call_ids: str | IdMaker | CallIds | None = None,
        undeclared_tools: UndeclaredTools = "keep",
        reasoning: ReasoningState = "auto",
        calls_in_reasoning: CallsInReasoning = "read",
        cut_calls: CutCalls = "keep",
        strip: Strip = "never",
    ) -> Parser:
        """Return a streaming parser, as `parse`: `feed(chunk)` returns events, `close()` the message."""
        from turnwise.tokens.tokenizers import tokenizer as find_tokenizer

        known = None if tokenizer is None else find_tokenizer(tokenizer)
        self.codec.warn_without_calls(tools, known, declared)
        return self.codec.parser(
            prompt,
            tools,
            known,
            declared,
            call_ids=call_ids,
            undeclared_tools=undeclared_tools,
            reasoning=reasoning,
            calls_in_reasoning=calls_in_reasoning,
            cut_calls=cut_calls,
            strip=strip,
        )

    def stops(self, tokenizer: object = None) -> Stops:
        """Return the texts that end generation: those that the source names, those that the template writes after
        replies and calls, and the tokenizer's eos. `.ids` are those that are one token of the tokenizer. Of a format
        of other software that was loaded with `exact` they are those that the source names, and eos.
        """
        from turnwise.tokens.stop_ids import find_stops

        exact = self.translation.stops if self.translation.only_stops else None
        return find_stops(self.facts, exact, tokenizer)

    def markers(self, tokenizer: object) -> Markers:
        """Return the control tokens that the template writes, with their ids; `.missing` are no tokens."""
        from turnwise.tokens.markers import tokenize_markers

        return tokenize_markers(self.facts, tokenizer)

    def convert(
        self,
        dialect: str,
        *,
        eos_token: str | None = None,
        bos_token: str | None = None,
        without: Collection[str] | None = (),
        **details: Any,
    ) -> Any:
        """Write the template in another dialect, verified against this one.

        Args:
            dialect: the name of the target.
            eos_token, bos_token: the text, where the template writes it and has no default for it; "" for none.
            without: what may be lost: "tools", "reasoning", "images", "audio", "documents", "names", "white space",
                "empty messages", "system text", "no system text", "late system text", "options", or an option.
            details: what the target's writer takes, such as a `name`.

        Raises:
            SourceError: the dialect cannot express the template; it names the feature and a conversation.
        """
        from turnwise.conversion.conversion import Conversion

        target = dialects.get_dialect(dialect)
        tokens = {"eos_token": eos_token, "bos_token": bos_token}
        # `render` changes conversations for templates of OpenAI's messages only.
        normaliser = self._inputs.normaliser if self.dialect == "jinja" else None
        conversion = Conversion(
            self.renderer, self.translation.stops, target, tokens, without, normaliser
        )
        if dialect == "jinja":
            return conversion.keep_jinja(self.translation, details)
        if dialect == self.dialect:
            return conversion.keep(self.source, details)
        return conversion.write(details)

    def with_options(self, options: JsonMapping) -> Template:
        """Return a copy with these options in addition to its own, or instead of them."""
        return replace(self, renderer=self.renderer.with_options(options))

    def with_limits(self, limits: Limits) -> Template:
        """Return a copy with other limits, such as a deadline: `with_limits(turnwise.Limits(deadline=0.5))`."""
        return replace(self, renderer=self.renderer.with_limits(limits))

    def __repr__(self) -> str:
        return f"<Template {self.name}>"


def compile_jinja(
    text: str,
    *,
    name: str = UNNAMED,
    options: JsonMapping | None = None,
    named: Mapping[str, str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    dialect: str = "jinja",
    translation: Translation | None = None,
) -> Template:
    """Compile Jinja text; of the `named` templates beside it, `tool_use` is taken where tools are given."""
    if not isinstance(text, str):
        raise TemplateSyntaxError(f"a template is text, not {type(text).__name__}", name=name)
    others = {key: compile_program(other, f"{name}:{key}") for key, other in (named or {}).items()}
    renderer = Renderer(compile_program(text, name), options, others, limits)
    return Template(renderer, dialect, translation or Translation(text))


def compile(
    source: Any,
    dialect: str | None = None,
    *,
    name: str = UNNAMED,
    options: JsonMapping | None = None,
    exact: bool = False,
) -> Template:
    """Compile a template from its source.

    Args:
        source: Jinja text, or the text or dict of another dialect.
        dialect: the name of the dialect; guessed by the shape of the source if not given.
        name: what error messages call the template.
        options: values of the template's own variables, such as `eos_token`.
        exact: for the formats of other software: reproduce its recorded defects too.

    Raises:
        TemplateSyntaxError: the Jinja cannot be compiled.
        SourceError: no dialect recognises the source, or it is malformed.

    Example:
        >>> template = turnwise.compile("{% for m in messages %}{{ m.content }}{% endfor %}")
        >>> str(template.render([{"role": "user", "content": "Hi"}]))
        'Hi'
    """
    if not isinstance(dialect, str | None):
        raise SourceError(f"a dialect is named by a text, not {type(dialect).__name__}")
    if not isinstance(options, Mapping | None):
        raise SourceError(f"options are a mapping, not {type(options).__name__}")
    dialect = dialect or dialects.guess_dialect(source, name)
    translation = dialects.translate(source, dialect, "" if name == UNNAMED else name, exact)
    return compile_jinja(
        translation.jinja,
        name=name,
        options={**translation.options, **(options or {})},
        dialect=dialect,
        translation=translation,
    )

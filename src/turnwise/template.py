"""Template: the public object. Each verb is one call into the room that does the work.

render    engine/renderer.py     a conversation becomes text that knows its origins
encode    tokens/encode.py       text becomes ids, labels and owners
examples  training.py            samples in which training equals serving
session   tokens/session.py      ids of a growing conversation, for serving and RL
parse     replies/parser/        a reply becomes a message
stops     analysis/              what ends a reply
convert   conversion/            the template in another dialect
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from warnings import warn
from weakref import WeakKeyDictionary

from turnwise import dialects
from turnwise.analysis.facts import Facts
from turnwise.analysis.losses import find_lost_fields
from turnwise.conversion import Conversion
from turnwise.dialects.jinja import with_stop_comment
from turnwise.dialects.translation import Translation, copy_source
from turnwise.engine.compiler.searched import branches_on_length, searched_strings
from turnwise.engine.option_names import (
    ENCODE_ARGUMENTS,
    RENDER_ARGUMENTS,
    SPECIAL_TOKENS,
    reject_misspelt_options,
)
from turnwise.engine.program import Program, compile_program
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import DEFAULT_LIMITS, MAX_TEMPLATE_CHARACTERS, Limits
from turnwise.errors import (
    MessageError,
    SourceError,
    TemplateRuntimeError,
    TemplateSyntaxError,
    TokenizerError,
    TurnwiseWarning,
)
from turnwise.immutable import Immutable
from turnwise.messages import InputReader
from turnwise.replies.codec import ReplyCodec
from turnwise.replies.events import Message
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.parser import Parser
from turnwise.tokens import tokenizers
from turnwise.tokens.boundaries import Boundaries
from turnwise.tokens.encode import EncodeRequest, encode
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import check_policy
from turnwise.tokens.markers import Markers, find_problems, tokenize_markers
from turnwise.tokens.session import Session
from turnwise.tokens.stop_ids import Stops, stops_with_ids
from turnwise.tokens.tokenizers.protocol import Tokenizer
from turnwise.training import examples

UNNAMED = "template"
BOUNDARIES_CACHE_SIZE = 64  # sets of options for which the places of turns are remembered

Messages = Sequence[Mapping[str, Any]]


class Template(Immutable):
    """A chat template. Immutable, picklable, safe to share between threads; equal to one with the same content.

    Made by `turnwise.load` and `turnwise.compile`.
    """

    __slots__ = ("_caches", "_codec", "_dialect", "_renderer", "_translation")

    _caches: _Caches
    _codec: ReplyCodec
    _dialect: str
    _translation: Translation
    _renderer: Renderer

    def __init__(
        self,
        renderer: Renderer,
        dialect: str = "jinja",
        translation: Translation | None = None,
    ) -> None:
        translation = translation or Translation(renderer.text)
        self._set_slots(
            _renderer=renderer,
            _dialect=dialect,
            _translation=translation,
            _codec=ReplyCodec(renderer, translation.stops, translation.replies),
            _caches=_Caches(),
        )

    @classmethod
    def from_jinja(
        cls,
        text: str,
        *,
        name: str = UNNAMED,
        options: Mapping[str, Any] | None = None,
        named: Mapping[str, str] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        dialect: str = "jinja",
        translation: Translation | None = None,
    ) -> Template:
        """Compile Jinja text.

        Args:
            text: the template.
            name: what error messages call it.
            options: values of the template's own variables.
            named: other templates of the same model by name; `tool_use` is taken where tools are given.
            limits: the budgets of one rendering.
            dialect: the dialect that the text was translated from.
            translation: the translation, with the stops that its source names.
        """
        if not isinstance(text, str):
            raise TemplateSyntaxError(f"a template is text, not {type(text).__name__}", name=name)
        others = {
            key: compile_program(other, f"{name}:{key}") for key, other in (named or {}).items()
        }
        renderer = Renderer(compile_program(text, name), options, others, limits)
        return cls(renderer, dialect, translation)

    @property
    def name(self) -> str:
        """The name of the template: that of its entry, its file or what `compile` was given."""
        return self._renderer.name

    @property
    def text(self) -> str:
        """The template as Jinja."""
        return self._renderer.text

    @property
    def dialect(self) -> str:
        """The dialect that the template was written in."""
        return self._dialect

    @property
    def source(self) -> Any:
        """The template as it was given: a text, or the dict of its dialect."""
        return copy_source(self._translation.facts.get("template", self.text))

    @property
    def options(self) -> Mapping[str, Any]:
        """The values of the template's variables that are used where `render` is given none; read-only."""
        return self._renderer.options

    @property
    def variables(self) -> tuple[str, ...]:
        """The names that the template reads from outside."""
        return self._renderer.variables

    @property
    def program(self) -> Program:
        """The compiled template; `program.python` is its Python source."""
        return self._renderer.program

    @property
    def renderer(self) -> Renderer:
        """The programs, options and limits: what the other parts of turnwise receive of a template."""
        return self._renderer

    @property
    def translation(self) -> Translation:
        """The translation of the source to Jinja, with the stops that the source names."""
        return self._translation

    @property
    def facts(self) -> Facts:
        """What is known about the template from probing it: stops, markers, generation prompt; printable."""
        return self._codec.facts

    @property
    def grammar(self) -> Grammar:
        """How replies to this template look: derived from it, completed by what is declared for its model."""
        return self._codec.grammar

    def render(
        self,
        /,
        messages: Messages,
        tools: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        now: datetime | None = None,
        normalise: bool = True,
        strict: bool = False,
        **options: Any,
    ) -> Rendering:
        """Render a conversation.

        Args:
            messages: the conversation, in OpenAI's shape.
            tools: JSON schemas of the tools that are offered.
            documents: documents for retrieval, for templates that take them.
            add_generation_prompt: end with the prompt after which the assistant speaks.
            continue_final_message: leave the final message open; a name continues that field.
            now: the time that `strftime_now` tells; the present if not given.
            normalise: give messages that `parse` returned the form that the template takes, and refuse
                misspelt options. False does as transformers does: messages as they are, any option.
            strict: raise an error if something that was given is not in the rendering.
            options: values of the template's own variables (`enable_thinking=False`).

        Returns:
            The text, with the origin of every character in `pieces`.

        Raises:
            MessageError: the input is not a conversation, an option is misspelt, or `strict` found a loss.
            TemplateError: the template fails, refuses the conversation, or exceeds its limits.

        Example:
            >>> template = turnwise.load("chatml")
            >>> str(template.render([{"role": "user", "content": "Hi"}]))
            '<|im_start|>user\\nHi<|im_end|>\\n'
        """
        if normalise:
            messages = self._codec.to_input(messages)
            if options:
                reject_misspelt_options(options, self._renderer.variables, "render")
        arguments = (
            messages,
            tools,
            documents,
            add_generation_prompt,
            continue_final_message,
            now,
        )
        try:
            rendering = self._renderer.render(*arguments, **options)
        except TemplateRuntimeError:
            unnamed = self._unnamed_tokens(options)
            if not (normalise and unnamed):
                raise
            options |= dict.fromkeys(unnamed, "")
            rendering = self._renderer.render(*arguments, **options)
            warn(self._explain_unnamed(unnamed), TurnwiseWarning, stacklevel=2)
        if strict:
            _refuse_losses(rendering, InputReader().read_messages(messages), tools, documents)
        return rendering

    def encode(
        self,
        /,
        messages: Messages,
        tokenizer: Any,
        train_on: Any = "assistant",
        *,
        max_length: int | None = None,
        trust: Mapping[str, str] | None = None,
        compatible: bool = False,
        **arguments: Any,
    ) -> Encoded:
        """Encode a conversation as ids, with labels and owners.

        Args:
            messages: the conversation.
            tokenizer: a tokenizer object, file, folder or model id; "turnwise" is the one that ships.
            train_on: the loss policy: "assistant", "last", "content", "reasoning", "marked", "all", or a
                function of an Origin.
            max_length: leave out the oldest rounds of a conversation with more tokens.
            trust: who else may write control tokens: `{"system": "all"}`.
            compatible: encode as transformers does, control tokens in messages included.
            arguments: those of `render`.
        """
        if arguments.get("normalise", True):
            reject_misspelt_options(arguments, self.variables, "encode", ENCODE_ARGUMENTS)
        request = self._make_request(
            messages, tokenizer, train_on, max_length, trust, compatible, arguments
        )
        encoded = encode(request)
        if arguments.get("strict"):
            kept = [request.messages[index] for index in encoded.kept]
            _refuse_losses(
                encoded.rendering, kept, arguments.get("tools"), arguments.get("documents")
            )
        return encoded

    def examples(
        self,
        /,
        messages: Messages,
        tokenizer: Any,
        train_on: Any = "assistant",
        *,
        trust: Mapping[str, str] | None = None,
        strict: bool = False,
        **arguments: Any,
    ) -> list[Encoded]:
        """Encode the fewest samples in which each trained turn follows exactly what serving would have sent.

        Args:
            messages: the conversation.
            tokenizer: as for `encode`.
            train_on: the loss policy, as for `encode`.
            trust: as for `encode`.
            strict: raise an error, not a warning, if some turn cannot be trained.
            arguments: those of `render`.
        """
        reject_misspelt_options(arguments, self.variables, "examples", ("train_on", "trust"))
        samples, untrained = examples(
            self._make_request(messages, tokenizer, train_on, None, trust, False, arguments),
            self._codec,
        )
        if untrained:
            problem = (
                f"{self.name}: not every turn can be trained: {'; '.join(map(str, untrained))}"
            )
            if strict:
                raise MessageError(problem)
            warn(problem, TurnwiseWarning, stacklevel=2)
        return samples

    def session(
        self,
        /,
        tokenizer: Any,
        tools: Sequence[Any] | None = None,
        *,
        trust: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Session:
        """Start a conversation that grows by sampled replies, whose ids are kept, and by messages.

        Args:
            tokenizer: as for `encode`.
            tools: JSON schemas of the tools that are offered.
            trust: as for `encode`.
            options: those of `render`.
        """
        reject_misspelt_options(options, self.variables, "session", ("trust",))
        request = self._make_request(
            [], tokenizer, "assistant", None, trust, False, {**options, "tools": tools}
        )
        return Session(request, (*self.stops(), *request.stops), self._codec)

    def parse(
        self,
        reply: str | Sequence[int],
        prompt: Any = None,
        tools: Sequence[Any] | None = None,
        tokenizer: Any = None,
        declared: Mapping[str, Any] | None = None,
    ) -> Message:
        """Parse a reply to a message in OpenAI's shape, which `render`, `encode` and sessions take as it is.

        Args:
            reply: text or token ids.
            prompt: the rendering that was sent, which may open the reply (a `<think>`).
            tools: the tools that were offered: their schemas decide the types of arguments.
            tokenizer: for replies that are ids.
            declared: additions to the grammar, in the words of a declaration: `{"more": [...]}`.

        Returns:
            The message. A tool call that cannot be parsed is in `message.attempts`, never an exception.
        """
        known = None if tokenizer is None else tokenizers.tokenizer(tokenizer)
        return self._codec.parse(reply, prompt, tools, known, declared)

    def parser(
        self,
        prompt: Any = None,
        tools: Sequence[Any] | None = None,
        tokenizer: Any = None,
        declared: Mapping[str, Any] | None = None,
    ) -> Parser:
        """Return a streaming parser: `feed(chunk)` returns events, `close()` the message.

        The arguments are those of `parse`.
        """
        known = None if tokenizer is None else tokenizers.tokenizer(tokenizer)
        return self._codec.parser(prompt, tools, known, declared)

    def to_input(self, messages: Messages) -> Messages:
        """Return the messages with those that `parse` returned in the form that the template takes.

        `render`, `encode` and sessions do this by themselves.
        """
        converted: Messages = self._codec.to_input(messages)
        return converted

    def stops(self, tokenizer: Any = None) -> Stops:
        """Return the texts that end generation: those that the source names, those that the template writes after
        replies and calls, and the tokenizer's eos. `.ids` are those that are one token of the tokenizer.
        """
        eos = getattr(tokenizer, "eos_token", None)
        if tokenizer is None or (isinstance(eos, str) and not tokenizers.library_of(tokenizer)):
            # An object that only names its eos token.
            return Stops(self.facts.stops_for({"eos_token": eos} if eos else {}))
        known = tokenizers.tokenizer(tokenizer)
        return stops_with_ids(self.facts.stops_for(known.named), known)

    def markers(self, tokenizer: Any) -> Markers:
        """Return the control tokens that the template writes, with their ids; `.missing` are those that the
        tokenizer does not have as one token.
        """
        known = tokenizers.tokenizer(tokenizer)
        return tokenize_markers(self.facts, known)

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
            eos_token: the text of the token, where the template writes it and has no default for it; "" for none.
            bos_token: the same for the first token.
            without: what may be lost: "tools", "reasoning", "images", "white space", "options", or an option.
            details: what the target's writer takes, such as a `name`.

        Raises:
            SourceError: the dialect cannot express the template; it names the feature and a conversation.
        """
        target = dialects.get_dialect(dialect)
        tokens = {"eos_token": eos_token, "bos_token": bos_token}
        stops = self._translation.stops
        conversion = Conversion(self._renderer, stops, target, tokens, without)
        if dialect == "jinja":
            return conversion.keep(self._with_stop_comment(), details)
        if dialect == self._dialect:
            return conversion.keep(self.source, details)
        return conversion.write(details)

    def with_options(self, options: Mapping[str, Any]) -> Template:
        """Return a copy with these options in addition to its own, or instead of them."""
        renderer = self._renderer.with_options(options)
        return Template(renderer, self._dialect, self._translation)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._renderer)

    def _content(self) -> tuple[Any, ...]:
        return self._renderer, self._dialect, self._translation

    def __reduce__(self) -> tuple[Any, ...]:
        return Template, (self._renderer, self._dialect, self._translation)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_") or "__" in name]

    def __repr__(self) -> str:
        return f"<Template {self.name}>"

    def _unnamed_tokens(self, options: Mapping[str, Any]) -> list[str]:
        """Return the special tokens that the template reads and that have no value."""
        known = {*self._renderer.options, *options}
        return [name for name in self.variables if name in SPECIAL_TOKENS and name not in known]

    def _explain_unnamed(self, unnamed: Sequence[str]) -> str:
        return (
            f"{self.name} reads {', '.join(unnamed)}, which nobody named: rendered as no text. "
            f"Give {unnamed[0]}=..., or load the model's folder or tokenizer"
        )

    def _empty_tokens(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        """Return special tokens that nobody named as empty texts, if the template fails without them."""
        unnamed = self._unnamed_tokens(arguments)
        if not unnamed:
            return {}
        cache, names = self._caches.needs_tokens, tuple(unnamed)
        empty = dict.fromkeys(unnamed, "")
        if names not in cache:
            cache[names] = self._fails(arguments) and not self._fails({**arguments, **empty})
        if not cache[names]:
            return {}
        warn(self._explain_unnamed(unnamed), TurnwiseWarning, stacklevel=4)
        return empty

    def _fails(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether the template fails on a plain question."""
        try:
            self._renderer.render([{"role": "user", "content": "?"}], **arguments)
        except TemplateRuntimeError:
            return True
        return False

    def _with_stop_comment(self) -> str:
        """Return the Jinja, led by a comment with those stops that cannot be derived from it."""
        translation = self._translation
        if not translation.stops and not translation.stop_ids:
            return self.text
        bare = template_from_source(self.text, "jinja")
        derived = (*bare.stops(), self._renderer.options.get("eos_token"))
        lost_ids = [id for id in translation.stop_ids if id not in bare.translation.stop_ids]
        if all(stop in derived for stop in translation.stops):
            return with_stop_comment(self.text, lost_ids) if lost_ids else self.text
        return with_stop_comment(self.text, (*translation.stops, *lost_ids))

    def _make_request(
        self,
        messages: Any,
        tokenizer: Any,
        train_on: Any,
        max_length: int | None,
        trust: Mapping[str, str] | None,
        compatible: bool,
        arguments: dict[str, Any],
    ) -> EncodeRequest:
        """What `encode` needs to know. The tokenizer's own tokens are used for options that the template lacks."""
        if max_length is not None and (type(max_length) is not int or max_length < 1):
            raise MessageError(
                f"max_length is a whole number from 1 up, not {max_length!r}", path="max_length"
            )
        known = tokenizers.tokenizer(tokenizer)
        met = self._caches.met.get(known)
        if met is None or "strict" in arguments:
            met = self._meet(known, arguments.get("strict"))
        own = self._renderer.options
        tokens = {
            name: text
            for name, text in known.named.items()
            if name in self.variables and name not in own
        }
        given = {**tokens, **arguments, "now": arguments.get("now") or datetime.now()}
        given.pop("strict", None)
        normalise = given.pop("normalise", True)
        if normalise:
            messages = self._codec.to_input(messages)
            given |= self._empty_tokens(given)
        if type(messages) is not list or not all(type(message) is dict for message in messages):
            messages = InputReader().read_messages(messages)
        return EncodeRequest(
            messages=messages,
            tokenizer=known,
            renderer=self._renderer,
            arguments=given,
            boundaries=self._boundaries(given),
            stops=met[1],
            train_on=check_policy(train_on, self.text),
            trust=trust,
            compatible=compatible,
            max_length=max_length,
        )

    def _boundaries(self, given: Mapping[str, Any]) -> Boundaries:
        """The places of turns under these options; tools and documents count by whether there are any."""
        options = [(name, repr(v)) for name, v in given.items() if name not in RENDER_ARGUMENTS]
        key = (
            tuple(sorted(options)) if options else (),
            bool(given.get("tools")),
            bool(given.get("documents")),
        )
        learned = self._caches.boundaries
        found = learned.get(key)
        if found is None:
            if len(learned) >= BOUNDARIES_CACHE_SIZE:
                learned.clear()
            found = learned[key] = Boundaries(
                searched_strings(self.text), branches_on_length(self.text)
            )
        return found

    def _meet(self, known: Tokenizer, strict: Any) -> tuple[tuple[str, ...], frozenset[str]]:
        """Warn about what is wrong with this template and this tokenizer together: once, or as an error."""
        met = self._caches.met
        if known not in met:
            stops = frozenset(self.facts.stops_for(known.named))
            met[known] = tuple(find_problems(self.facts, known)), stops
            for problem in () if strict else met[known][0]:
                warn(f"{self.name}: {problem}", TurnwiseWarning, stacklevel=4)
        found = met[known]
        if found[0] and strict:
            raise TokenizerError(f"{self.name}: {found[0][0]}")
        return found


class _Caches:
    """What was found out about a template, under which circumstances."""

    def __init__(self) -> None:
        self.boundaries: dict[Any, Boundaries] = {}
        self.needs_tokens: dict[tuple[str, ...], bool] = {}
        self.met: WeakKeyDictionary[Tokenizer, tuple[tuple[str, ...], frozenset[str]]] = (
            WeakKeyDictionary()
        )


def _refuse_losses(
    rendering: Rendering, messages: Sequence[Any], tools: Any, documents: Any
) -> None:
    """Raise an error that names the fields of which nothing was rendered."""
    lost = find_lost_fields(rendering, messages, tools, documents)
    if lost:
        raise MessageError(
            f"the template writes nothing of {', '.join(lost)}",
            path=lost[0],
            hint="strict=True refuses what the template drops",
        )


def template_from_source(
    source: Any,
    dialect: str,
    *,
    name: str = UNNAMED,
    options: Mapping[str, Any] | None = None,
    exact: bool = False,
) -> Template:
    """Translate a source of some dialect to Jinja and compile it."""
    translation = read_source(source, dialect, name, exact)
    given = {**translation.options, **(options or {})}
    return Template.from_jinja(
        translation.jinja, name=name, options=given, dialect=dialect, translation=translation
    )


def compile(
    source: Any,
    dialect: str | None = None,
    *,
    name: str = UNNAMED,
    options: Mapping[str, Any] | None = None,
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
        SourceError: no dialect knows such a source, or it is malformed.

    Example:
        >>> template = turnwise.compile("{% for m in messages %}{{ m.content }}{% endfor %}")
        >>> str(template.render([{"role": "user", "content": "Hi"}]))
        'Hi'
    """
    if dialect is not None and not isinstance(dialect, str):
        raise SourceError(f"a dialect is named by a text, not {type(dialect).__name__}")
    if options is not None and not isinstance(options, Mapping):
        raise SourceError(f"options are a mapping, not {type(options).__name__}")
    if dialect is None and isinstance(source, str) and len(source) > MAX_TEMPLATE_CHARACTERS:
        dialect = "jinja"  # whose reader says that it is too long
    is_source = isinstance(source, (str, Mapping)) or hasattr(source, "sep_style")
    if dialect is None and not is_source:
        raise TemplateSyntaxError(f"a template is text, not {type(source).__name__}", name=name)
    return template_from_source(
        source, dialect or dialects.guess_dialect(source), name=name, options=options, exact=exact
    )


def read_source(source: Any, dialect: str, name: str = UNNAMED, exact: bool = False) -> Translation:
    """Translate a source to Jinja; the source itself is kept in the facts of the translation."""
    try:
        source = copy_source(source)
        translation = dialects.get_dialect(dialect).read(source, exact=exact)
    except SourceError as error:
        raise (error if name == UNNAMED else error.within(name)) from None
    if dialect == "jinja":
        return translation
    return replace(translation, facts={"template": source, **translation.facts})

"""Template: the public object, with the verbs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any
from warnings import warn
from weakref import WeakKeyDictionary

from turnwise import dialects
from turnwise.analysis.asked import Asking
from turnwise.analysis.stops import Ends, Stops, named_ends, stops
from turnwise.conversion import Conversion
from turnwise.dialects.jinja import with_stop_comment
from turnwise.dialects.translation import Translation, copy_source
from turnwise.engine.compiler.searched import branches_on_length, searched_strings
from turnwise.engine.program import Program, compile_program
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.runtime.limits import DEFAULTS, TEMPLATE_CHARACTERS, Limits, Runtime
from turnwise.errors import (
    MessageError,
    SourceError,
    TemplateSyntaxError,
    TokenizerError,
    TurnwiseWarning,
)
from turnwise.messages import (
    NO_TOOLS,
    REASONING_KEYS,
    InputReader,
    contains_text,
    find_lone_surrogate,
    is_plain_chat,
    prepared_tools,
)
from turnwise.replies.declared import merge_declaration
from turnwise.replies.derive import derive
from turnwise.replies.equality import messages_equal
from turnwise.replies.events import Message
from turnwise.replies.grammar import Grammar
from turnwise.replies.input_format import InputFormat, detect_input_format
from turnwise.replies.known_models import complete_grammar
from turnwise.replies.parser.parser import Parser, parse
from turnwise.replies.write import write
from turnwise.tokens import tokenizers
from turnwise.tokens.boundaries import Boundaries
from turnwise.tokens.encode import Ask, encode
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import checked
from turnwise.tokens.markers import Markers, markers, problems
from turnwise.tokens.session import Session
from turnwise.tokens.tokenizers.protocol import Tokenizer
from turnwise.training import examples

TAG = "CONTINUE_FINAL_MESSAGE_TAG "
NAMELESS = "template"
RENDERS = (
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "now",
    "normalise",
    "strict",
)
ARGUMENTS = ("train_on", "max_length", "trust", "compatible")
VERBS = {
    "encode": ARGUMENTS,
    "examples": ("train_on", "trust", "strict"),
    "session": ("exact", "trust"),
}
FIELDS = {
    "marker": None,
    "space": None,
    "reasoning": REASONING_KEYS[0],
    "name": "tool_calls",
    "arguments": "tool_calls",
}
LEARNED = 64  # sets of options for which it is kept where turns begin and end
NO_ALIASES: dict[tuple[int, str], str] = {}
FLAT = (str, bool, type(None), int)  # options that need no look inside


class Template:
    """A chat template. Immutable, picklable, safe to share between threads."""

    __slots__ = (
        "asked",
        "dialect",
        "forms",
        "grammars",
        "learned",
        "limits",
        "met",
        "name",
        "named",
        "options",
        "program",
        "translation",
    )

    def __init__(
        self,
        program: Program,
        options: Mapping[str, Any] | None = None,
        named: Mapping[str, Program] | None = None,
        limits: Limits = DEFAULTS,
        dialect: str = "jinja",
        translation: Translation | None = None,
    ) -> None:
        self.program = program
        self.dialect = dialect
        self.translation = translation or Translation(program.text)
        self.name = program.name
        self.options = dict(options or {})
        self.named = dict(named or {})
        self.limits = limits
        self.learned: dict[Any, Boundaries] = {}
        self.grammars: list[Grammar] = []
        self.forms: list[InputFormat] = []
        self.asked: dict[Any, Ends] = {}
        self.met: WeakKeyDictionary[Tokenizer, tuple[tuple[str, ...], frozenset[str]]] = (
            WeakKeyDictionary()
        )

    @classmethod
    def of(
        cls,
        text: str,
        *,
        name: str = "template",
        options: Mapping[str, Any] | None = None,
        named: Mapping[str, str] | None = None,
        limits: Limits = DEFAULTS,
        dialect: str = "jinja",
        translation: Translation | None = None,
    ) -> Template:
        """A template from its Jinja text, and others of the same model by name; with tools, `tool_use` is taken."""
        if not isinstance(text, str):
            raise TemplateSyntaxError(f"a template is text, not {type(text).__name__}", name=name)
        others = {
            key: compile_program(other, f"{name}:{key}") for key, other in (named or {}).items()
        }
        return cls(compile_program(text, name), options, others, limits, dialect, translation)

    @classmethod
    def read(
        cls,
        source: Any,
        dialect: str,
        *,
        name: str = "template",
        options: Mapping[str, Any] | None = None,
        exact: bool = False,
    ) -> Template:
        """A template from a source of some dialect."""
        try:
            source = copy_source(source)
            translation = dialects.get_dialect(dialect).read(source, exact=exact)
        except SourceError as error:
            raise (error if name == NAMELESS else error.within(name)) from None
        if dialect != "jinja":
            translation = replace(translation, facts={"template": source, **translation.facts})
        given = {**translation.options, **(options or {})}
        return cls.of(
            translation.jinja, name=name, options=given, dialect=dialect, translation=translation
        )

    @property
    def text(self) -> str:
        """The template as Jinja."""
        return self.program.text

    @property
    def variables(self) -> tuple[str, ...]:
        """The names that the template reads from outside."""
        return self.program.reads

    def render(
        self,
        /,
        messages: Any,
        tools: Any = None,
        documents: Any = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        now: datetime | None = None,
        normalise: bool = True,
        strict: bool = False,
        **options: Any,
    ) -> Rendering:
        """The conversation as this template writes it."""
        program, known_tools, aliases = self.program, NO_TOOLS, NO_ALIASES
        if tools is not None:
            program, known_tools = self.named.get("tool_use", program), prepared_tools(tools)
        if continue_final_message or not is_plain_chat(messages):
            reader = InputReader()
            chat, aliases = reader.read_messages(self._turns(messages)), reader.aliases
        else:
            chat = list(
                map(dict.copy, messages)
            )  # pieces are made later, and the caller may change a message by then
        context: dict[str, Any] = {
            "messages": chat,
            "tools": known_tools.plain,
            "documents": documents
            if documents is None
            else InputReader().read_documents(documents),
            "add_generation_prompt": add_generation_prompt,
        }
        if self.options:
            options = self.options | options
        if options:
            program = program.shadowing(options)
            for key, value in options.items():
                if key in context:
                    raise MessageError(f"{key!r} is an argument of render, not an option", path=key)
                context[key] = value if type(value) in FLAT else InputReader().to_plain(value, key)
        continued = None
        if continue_final_message:
            if add_generation_prompt:
                raise MessageError(
                    "continue_final_message and add_generation_prompt exclude each other"
                )
            continued = Continuation(chat, continue_final_message, program)
        if now is not None and not isinstance(now, datetime):
            raise MessageError(f"now is a datetime, not {type(now).__name__}", path="now")
        rt = Runtime(self.limits, context, now or datetime.now)
        if known_tools is not NO_TOOLS:
            rt.memo, rt.lasting = known_tools.memo, known_tools.lasting
        out = program.run(rt, context)
        texts = out[::2]
        size = sum(map(len, texts))
        if size > rt.output:
            program.charge_output(rt, size)
        text = "".join(texts)
        if not text.isascii():
            refuse_half_pairs(text, context)
        if continued is not None:
            text = continued.cut(text)
        return Rendering(text, out, program.nodes, aliases)

    def encode(
        self,
        /,
        messages: Any,
        tokenizer: Any,
        train_on: Any = "assistant",
        *,
        max_length: int | None = None,
        trust: Mapping[str, str] | None = None,
        compatible: bool = False,
        **arguments: Any,
    ) -> Encoded:
        """The conversation as ids, with labels and owners; `arguments` are those of `render`.

        `trust` says who else may write control tokens: `{"system": "all"}`. `compatible` encodes as transformers does,
        forged tokens included.
        """
        self._own(arguments, "encode")
        return encode(
            self._ask(messages, tokenizer, train_on, max_length, trust, compatible, arguments)
        )

    def examples(
        self,
        /,
        messages: Any,
        tokenizer: Any,
        train_on: Any = "assistant",
        *,
        strict: bool = False,
        **arguments: Any,
    ) -> list[Encoded]:
        """The fewest samples in which each trained turn stands behind exactly what serving would have sent.

        Turns that no sample can hold are named in a warning; with `strict`, that is an error.
        """
        trust = arguments.pop("trust", None)
        self._own(arguments, "examples")
        samples, untrained = examples(
            self._ask(messages, tokenizer, train_on, None, trust, False, arguments)
        )
        if untrained:
            said = f"{self.name}: not every turn can be trained: {'; '.join(map(str, untrained))}"
            if strict:
                raise MessageError(said)
            warn(said, TurnwiseWarning, stacklevel=2)
        return samples

    def session(
        self,
        /,
        tokenizer: Any,
        tools: Any = None,
        *,
        exact: bool = False,
        trust: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Session:
        """A conversation that grows by replies, whose ids are kept as the model sampled them, and by messages.

        `exact` works every step out on the whole conversation, at its cost; `options` are those of `render`.
        """
        self._own(options, "session")
        ask = self._ask([], tokenizer, "assistant", None, trust, False, {**options, "tools": tools})

        def parse(
            reply: str | Sequence[int], words: str, prompt: Rendering | None
        ) -> Mapping[str, Any] | None:
            return self._spoken(reply, words, prompt, tools, ask.tokenizer)

        return Session(ask, (*self.stops(), *ask.stops), exact, parse, self._turns)

    def _own(self, arguments: Mapping[str, Any], verb: str) -> None:
        """Refuse what looks like an argument of ours and would be an option that the template does not read."""
        for name in arguments:
            if name in self.variables or name in RENDERS:
                continue
            near = get_close_matches(name, (*RENDERS, *VERBS[verb]), 1, 0.8)
            if name in ARGUMENTS or near:
                meant = (
                    f"did you mean {near[0]}?"
                    if near and near[0] != name
                    else f"It takes: {', '.join(VERBS[verb])}"
                )
                raise MessageError(
                    f"{verb} takes no {name!r}, and the template does not read it",
                    path=name,
                    hint=meant,
                )

    def _ask(
        self,
        messages: Any,
        tokenizer: Any,
        train_on: Any,
        max_length: int | None,
        trust: Mapping[str, str] | None,
        compatible: bool,
        arguments: dict[str, Any],
    ) -> Ask:
        """What `encode` needs to know. The tokenizer's own tokens stand in for options that the template lacks."""
        if max_length is not None and (type(max_length) is not int or max_length < 1):
            raise MessageError(
                f"max_length is a whole number from 1 up, not {max_length!r}", path="max_length"
            )
        known = tokenizers.tokenizer(tokenizer)
        met = self.met.get(known)
        if met is None or "strict" in arguments:
            met = self._meet(known, arguments.get("strict"))
        own = self.options
        named = {
            name: text
            for name, text in known.named.items()
            if name in self.variables and name not in own
        }
        given = {**named, **arguments, "now": arguments.get("now") or datetime.now()}
        served = {**given, "add_generation_prompt": True, "continue_final_message": False}
        if type(messages) is not list or not all(type(message) is dict for message in messages):
            messages = InputReader().read_messages(
                self._turns(messages)
            )  # objects become plain data; or it says what is wrong
        return Ask(
            messages=messages,
            tokenizer=known,
            render=lambda chat: self.render(chat, **given),
            prompt=lambda chat: self.render(chat, **served),
            boundaries=self._boundaries(given),
            reply=self._reply,
            stops=met[1],
            train_on=checked(train_on, self.text),
            trust=trust,
            compatible=compatible,
            max_length=max_length,
        )

    @property
    def grammar(self) -> Grammar:
        """How replies to this template look: derived from it, and completed by what is declared of its model."""
        if not self.grammars:
            derived = derive(self._sparing())
            self.grammars.append(
                complete_grammar(derived, self.text, self.name, self.translation.replies)
            )
        return self.grammars[0]

    def _sparing(self) -> Template:
        """The same template with a tenth of the budgets: for many questions, each of them short."""
        full = self.limits
        tenth = replace(
            full, steps=full.steps // 10, bytes=full.bytes // 10, output=full.output // 10
        )
        return Template(
            self.program, self.options, self.named, tenth, self.dialect, self.translation
        )

    def parse(
        self,
        reply: Any,
        prompt: Any = None,
        tools: Any = None,
        tokenizer: Any = None,
        declared: Mapping[str, Any] | None = None,
    ) -> Message:
        """A reply, as text or as ids, as a message in OpenAI's shape; `prompt` is the rendering that was sent.

        The message may be given back to this template as it is: to `render`, `encode` or a session.
        """
        parser = self.parser(prompt, tools, tokenizer, declared)
        events = parser.feed(reply)
        message = parser.close()
        message.events = (*events, *message.events)
        return message

    def parser(
        self,
        prompt: Any = None,
        tools: Any = None,
        tokenizer: Any = None,
        declared: Mapping[str, Any] | None = None,
    ) -> Parser:
        """Reads a reply as it comes: `feed(chunk)` gives events, `close()` the message.

        `declared` adds what the template does not show, in the words of a declaration: `{"more": [...]}`.
        """
        known = None if tokenizer is None else tokenizers.tokenizer(tokenizer)
        grammar = (
            self.grammar
            if declared is None
            else merge_declaration(self.grammar, declared, "declared")
        )
        return Parser(grammar, prompt, tools, tokenizer=known)

    def _spoken(
        self,
        reply: str | Sequence[int],
        words: str,
        prompt: Rendering | None,
        tools: Any,
        tokenizer: Tokenizer,
    ) -> Mapping[str, Any] | None:
        """A reply as a message in the form that this template takes; None if its words are all there is."""
        if "content" not in self.grammar.sources:
            return None
        message = self.parse(reply, prompt, tools, tokenizer)
        if message == {"role": "assistant", "content": words}:
            return None
        found: Mapping[str, Any] = self._turns([message])[0]
        return found

    def _turns(self, messages: Any) -> Any:
        """Messages that were read from replies, in the form that this template takes."""
        if not isinstance(messages, (list, tuple)) or Message not in map(type, messages):
            return messages
        if not self.forms:
            self.forms.append(detect_input_format(self._sparing()))
        return [
            self.forms[0].to_message(message) if type(message) is Message else message
            for message in messages
        ]

    def _reply(self, message: Mapping[str, Any], prompt: Rendering) -> list[tuple[str, str | None]]:
        """A message as a model would write it behind this prompt, cut into fields and markers."""
        if "content" not in self.grammar.sources:
            raise MessageError("the template writes no reply that could be learned from")
        text = write(self.grammar, message, prompt)
        read = parse(self.grammar, text, prompt)
        if not messages_equal(read, message):
            raise MessageError(
                "a reply written by the derived grammar would not be read as this message"
            )
        return [
            (text[span.start : span.end], FIELDS.get(span.kind, "content")) for span in read.spans
        ]

    def _boundaries(self, given: Mapping[str, Any]) -> Boundaries:
        """What was learned of turns under these options; tools and documents count by whether there are any."""
        options = [(name, repr(value)) for name, value in given.items() if name not in RENDERS]
        key = (
            tuple(sorted(options)) if options else (),
            bool(given.get("tools")),
            bool(given.get("documents")),
        )
        found = self.learned.get(key)
        if found is None:
            if len(self.learned) >= LEARNED:
                self.learned.clear()
            found = self.learned[key] = Boundaries(
                searched_strings(self.text), branches_on_length(self.text)
            )
        return found

    @property
    def source(self) -> Any:
        """The template as it was given: a text, or the dict of its dialect."""
        return copy_source(self.translation.facts.get("template", self.text))

    def stops(self, tokenizer: Any = None) -> Stops:
        """The texts that end generation: those that the source names, what the template writes behind replies and
        calls, and the tokenizer's eos. `.ids` are those that are one token of it.
        """
        eos = getattr(tokenizer, "eos_token", None)
        if tokenizer is None or (
            isinstance(eos, str) and not tokenizers.origin(tokenizer)
        ):  # one that only has a name
            return Stops(
                dict.fromkeys(filter(None, (*stops(self.translation.stops, self._ends({})), eos)))
            )
        known = tokenizers.tokenizer(tokenizer)
        return stops(self.translation.stops, self._ends(known.named), known)

    def markers(self, tokenizer: Any) -> Markers:
        """The control tokens that the template writes, with their ids; `.missing` are those the tokenizer lacks."""
        known = tokenizers.tokenizer(tokenizer)
        return markers(self._ends(known.named), known, self.translation.stops)

    def _ends(self, named: Mapping[str, str]) -> Ends:
        """What ends replies, if special tokens have these texts; asked once."""
        asking = Asking(self, named)
        key = tuple(asking.tokens.items())
        return self.asked.get(key) or self.asked.setdefault(key, Ends(asking))

    def _meet(self, known: Tokenizer, strict: Any) -> tuple[tuple[str, ...], frozenset[str]]:
        """Say what is wrong with this template and this tokenizer together: once, or as an error."""
        if known not in self.met:
            ends = self._ends(known.named)
            stops = frozenset(
                filter(
                    None,
                    (
                        *self.translation.stops,
                        *named_ends(ends.plain),
                        known.named.get("eos_token"),
                    ),
                )
            )
            self.met[known] = tuple(problems(ends, known)), stops
            for problem in () if strict else self.met[known][0]:
                warn(f"{self.name}: {problem}", TurnwiseWarning, stacklevel=4)
        found = self.met[known]
        if found[0] and strict:
            raise TokenizerError(f"{self.name}: {found[0][0]}")
        return found

    def convert(
        self,
        dialect: str,
        *,
        eos_token: str | None = None,
        bos_token: str | None = None,
        without: Collection[str] | None = (),
        **details: Any,
    ) -> Any:
        """The template as a source of another dialect, verified; or an error that says what the dialect cannot say.

        `eos_token` and `bos_token` are their texts, where the template writes them and has no default for them; "" says
        that there is none.
        `without` names what may be lost: "tools", "reasoning", "images", "white space", "options", or an option.
        """
        target = dialects.get_dialect(dialect)
        given = {"eos_token": eos_token, "bos_token": bos_token}
        for name, text in given.items():
            if text is not None and not isinstance(text, str):
                raise SourceError(f"{name} is a text, not {type(text).__name__}")
        if not isinstance(without, Collection | None):
            raise SourceError(f"without is a list of names, not {type(without).__name__}")
        tokens = {
            name: self.options.get(name) if text is None else text for name, text in given.items()
        }
        conversion = Conversion(self, target, tokens, without or ())
        if dialect == "jinja":
            return conversion.own(self._noted(), details)
        if dialect == self.dialect:
            return conversion.own(self.source, details)
        return conversion.source(
            lambda source: Template.read(source, dialect, options=self.options), details
        )

    def _noted(self) -> str:
        """The Jinja, led by a comment with those stops that cannot be read off it."""
        translation = self.translation
        if not translation.stops and not translation.stop_ids:
            return self.text
        bare = Template.read(self.text, "jinja")
        found = (*bare.stops(), *filter(None, [self.options.get("eos_token")]))
        stops = [stop for stop in translation.stops if stop not in found]
        ids = [number for number in translation.stop_ids if number not in bare.translation.stop_ids]
        return (
            with_stop_comment(self.text, (*(translation.stops if stops else ()), *ids))
            if stops or ids
            else self.text
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Template, (
            self.program,
            self.options,
            self.named,
            self.limits,
            self.dialect,
            self.translation,
        )

    def __repr__(self) -> str:
        return f"<Template {self.name}>"


def refuse_half_pairs(text: str, context: Mapping[str, Any]) -> None:
    """Nobody can encode half a surrogate pair; say where it came in."""
    try:
        text.encode("utf-32-le")  # three times as fast as UTF-8 to find out
    except UnicodeEncodeError:
        for key, value in context.items():
            found = find_lone_surrogate(value, (key,))
            if found is not None:
                raise found from None
        raise MessageError(
            "the rendered text has half of a surrogate pair, made by the template"
        ) from None


class Continuation:
    """The final message left open: a tag behind its text, and the rendering cut where the tag comes out."""

    def __init__(self, chat: list[dict[str, Any]], field: bool | str, program: Program) -> None:
        self.tag = TAG
        if not chat:
            raise MessageError("there is no final message to continue", path="messages")
        name = field if isinstance(field, str) else "content"
        final = dict(chat[-1])
        where = f"messages[{len(chat) - 1}].{name}"
        value = final.get(name)
        if value is None:
            raise MessageError(
                f'continue_final_message is set but the final message has no "{name}" to continue!',
                path=where,
            )
        fields = [name]
        if name in REASONING_KEYS:
            fields = [other for other in REASONING_KEYS if final.get(other) == value]
        if not any(other in program.text for other in fields):
            raise MessageError(f"the template does not read {name!r}", path=where)
        while contains_text(chat, self.tag.strip()):
            self.tag = f"{self.tag.strip()}_ "
        if isinstance(value, (list, tuple)):
            self.text, final[name] = self.tagged_part(value, where)
        elif isinstance(value, str):
            self.text = value
            for other in fields:
                final[other] = final[other] + self.tag
        else:
            raise MessageError(
                f"only text can be continued, not {type(value).__name__}", path=where
            )
        chat[-1] = final

    def tagged_part(self, parts: Any, where: str) -> tuple[str, list[Any]]:
        """The last part that has text, with the tag behind it."""
        for index in range(len(parts) - 1, -1, -1):
            part = parts[index]
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                tagged = {**part, "text": part["text"] + self.tag}
                return part["text"], [*parts[:index], tagged, *parts[index + 1 :]]
        raise MessageError("there is no text to continue in the final message", path=where)

    def cut(self, text: str) -> str:
        at = text.rfind(self.tag.strip())
        if self.text.strip() not in text or at < 0:
            raise MessageError(
                "continue_final_message is set but the final message does not appear in the chat after applying the "
                "chat template",
                hint="the template changes or drops the end of the final message",
            )
        kept = text[:at]
        return kept if text[at : at + len(self.tag)] == self.tag else kept.rstrip()


def compile(
    source: Any,
    dialect: str | None = None,
    *,
    name: str = "template",
    options: Mapping[str, Any] | None = None,
    exact: bool = False,
) -> Template:
    """A template from its source: Jinja, or any dialect; guessed by its shape when not said.

    `exact` is for other software's formats: the text that it writes, recorded defects included.
    """
    if dialect is not None and not isinstance(dialect, str):
        raise SourceError(f"a dialect is named by a text, not {type(dialect).__name__}")
    if options is not None and not isinstance(options, Mapping):
        raise SourceError(f"options are a mapping, not {type(options).__name__}")
    if dialect is None and isinstance(source, str) and len(source) > TEMPLATE_CHARACTERS:
        dialect = "jinja"  # which says that it is too long
    if (
        not isinstance(source, (str, Mapping))
        and dialect is None
        and not hasattr(source, "sep_style")
    ):
        raise TemplateSyntaxError(f"a template is text, not {type(source).__name__}", name=name)
    return Template.read(
        source, dialect or dialects.guess_dialect(source), name=name, options=options, exact=exact
    )

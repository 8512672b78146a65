"""Renderer: a compiled template with its options and limits. The one place that renders.

A model may have several templates by name; where tools are given, the one called `tool_use` is taken, as transformers
does. Everything else in the package that needs a rendering (encoding, analysis, parsing, conversion, comparison)
receives a Renderer, so nothing below `Template` knows the public object.

    renderer = Renderer(compile_program("{% for m in messages %}{{ m.content }}{% endfor %}"))
    renderer.render([{"role": "user", "content": "hi"}]).text   # "hi"
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from turnwise.engine.program import Program, mark_program
from turnwise.engine.provenance.expressions import MarkReader, Position, WrittenSpan
from turnwise.engine.provenance.rendering import Rendering, RenderingSource
from turnwise.engine.provenance.splitting import Follower, QuietFollower
from turnwise.engine.provenance.trails import Output
from turnwise.engine.runtime.limits import (
    DEFAULT_LIMITS,
    Allowance,
    Limits,
    Runtime,
    pays_for_itself,
    raise_if_call_ended,
)
from turnwise.errors import MessageError, TemplateError
from turnwise.immutable import Immutable
from turnwise.messages import (
    NO_TOOLS,
    REASONING_KEYS,
    InputReader,
    JsonMapping,
    JsonObject,
    PlainKind,
    ReadMessages,
    contains_text,
    find_lone_surrogate,
    find_plain_kind,
    prepared_tools,
)
from turnwise.sized_cache import MARSHAL_VERSION, SizedTable, digest, make_digest

if TYPE_CHECKING:
    from turnwise.engine.segments.segments import Segments

TAG = "CONTINUE_FINAL_MESSAGE_TAG "
TOOL_USE = "tool_use"
NOW = datetime.now
REDUCED_BY = 10  # probing renders dozens of conversations, each of them short
SCALARS = (str, bool, type(None), int)  # option values that need no copy
ARGUMENTS = ("messages", "tools", "documents", "add_generation_prompt")
MAX_SEGMENT_BYTES = 16 << 20  # of one template
# Renderings with tools or options before their segments are learnt, which takes as long as 20 of them: they hold for no
# others, and each row of a dataset may have its own. Ten messages count as one more rendering.
LEARNT_AFTER = 16


OtherArguments = tuple[Any, bool, bool | str, datetime | None, JsonObject]
"""Those of `render` from `documents` to `now`, and the options."""
ReadOptions = tuple[JsonObject, bytes]
"""Options of a call as plain data, and what stands for them."""
NO_OPTIONS: ReadOptions = ({}, b"")
OPTIONS: SizedTable[ReadOptions] = SizedTable()  # by what was given


class Renderer(Immutable):
    """Programs, options and limits. Immutable and picklable; two are equal if they render the same by definition.

    Args:
        program: the template that is rendered.
        options: values of the template's own variables, used where `render` is not given one.
        named: other templates of the same model by name; `tool_use` is taken where tools are given.
        limits: the budgets of one rendering.
    """

    __slots__ = (
        "_budgets",
        "_named",
        "_options",
        "_segments",
        "allowance",
        "limits",
        "program",
        "variables",
    )

    program: Program
    limits: Limits
    variables: tuple[str, ...]
    allowance: Allowance | None  # what the renderings of one call share
    _options: JsonObject
    _named: dict[str, Program]
    _budgets: Limits  # with what the length of the template adds
    _segments: SizedTable[Any] | None  # None: the program always runs

    def __init__(
        self,
        program: Program,
        options: JsonMapping | None = None,
        named: Mapping[str, Program] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        plain = _read_options(options or {})
        others = {name: other.shadowing(plain) for name, other in (named or {}).items()}
        variables = [name for one in (program, *others.values()) for name in one.reads]
        self._set_slots(
            program=program.shadowing(plain),
            limits=limits,
            variables=tuple(dict.fromkeys(variables)),
            _options=plain,
            _named=others,
            allowance=None,
            _segments=_make_segment_table(limits),
        )
        self._set_slots(_budgets=self._measure_budgets())

    def _measure_budgets(self) -> Limits:
        return self.limits.for_source(max(map(len, self.texts)))

    @property
    def name(self) -> str:
        """The name that error messages use."""
        return self.program.name

    @property
    def text(self) -> str:
        """The Jinja text of the template."""
        return self.program.text

    @property
    def texts(self) -> tuple[str, ...]:
        """The Jinja texts of the template and of the named ones beside it."""
        return (self.program.text, *(other.text for other in self._named.values()))

    @property
    def options(self) -> JsonMapping:
        """The values of the template's variables, read-only."""
        return MappingProxyType(_read_options(self._options))

    @property
    def named(self) -> Mapping[str, Program]:
        """Other templates of the same model by name, read-only."""
        return MappingProxyType(self._named)

    def render(
        self,
        messages: Any,
        with_origins: bool = False,
        /,
        tools: Any = None,
        documents: Any = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        now: datetime | None = None,
        **options: Any,
    ) -> Rendering:
        """Render a conversation. The other arguments are those of `Template.render`.

        Args:
            with_origins: whether the origins will be read: they are written with the text then, not after it. The text
                is written from segments that are known (`engine/segments`).
        """
        others = (documents, add_generation_prompt, continue_final_message, now, options)
        return RenderCall(self, messages, tools, others).render(with_origins)

    def with_options(self, options: JsonMapping) -> Renderer:
        """Return a copy with these options in addition, or instead of those with the same names."""
        if not isinstance(options, Mapping):
            raise MessageError(f"options are a mapping, not {type(options).__name__}")
        return Renderer(self.program, {**self._options, **options}, self._named, self.limits)

    def with_reduced_limits(self) -> Renderer:
        """Return a copy with a tenth of the budgets for work, for probing."""
        full = self.limits
        limits = replace(
            full,
            steps=full.steps // REDUCED_BY,
            bytes=full.bytes // REDUCED_BY,
            origins=full.origins // REDUCED_BY,
        )
        return self._copy(limits=limits, _segments=None)  # few probes come twice

    def with_limits(self, limits: Limits) -> Renderer:
        """Return a copy with other limits."""
        if not isinstance(limits, Limits):
            raise MessageError(f"limits are turnwise.Limits, not {type(limits).__name__}")
        return self._copy(limits=limits, _segments=_make_segment_table(limits))

    def with_programs(self, change: Callable[[Program], Program]) -> Renderer:
        """Return a copy with other programs in the places of its own, which always run."""
        named = {name: change(program) for name, program in self._named.items()}
        return self._copy(program=change(self.program), _named=named, _segments=None)

    def with_allowance(self, allowance: Allowance | None) -> Renderer:
        """Return a copy whose renderings share an allowance."""
        return self._copy(allowance=allowance)

    def allow(self, renderings: float) -> Renderer:
        """Return a copy whose renderings together may spend as much as so many whole ones."""
        return self._copy(allowance=Allowance(self._budgets, renderings))

    def _copy(self, **changes: Any) -> Renderer:
        copy = Renderer.__new__(Renderer)
        copy._set_slots(**{name: getattr(self, name) for name in Renderer.__slots__} | changes)
        if "limits" in changes or "program" in changes:
            copy._set_slots(_budgets=copy._measure_budgets())
        return copy

    def _content(self) -> tuple[Any, ...]:
        named = {name: program.text for name, program in self._named.items()}
        return self.program.text, self._options, named, self.limits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Renderer) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self.program.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Renderer, (self.program, self._options, self._named, self.limits)

    def __repr__(self) -> str:
        return f"<Renderer {self.name}>"


def _make_segment_table(limits: Limits) -> SizedTable[Any] | None:
    """Return what keeps segments, or how often a call came; None if only the program knows what a long text costs."""
    return SizedTable(MAX_SEGMENT_BYTES) if pays_for_itself(limits) else None


class RenderCall(RenderingSource):
    """One call of `render`: its arguments as plain data, and the program that they choose."""

    plain_kind: PlainKind
    memory: dict[Any, Any] | None = None
    segments: Segments | None = None
    writers: tuple[str, list[WrittenSpan]] = ("", [])  # of the text that was asked for last

    def __init__(
        self,
        renderer: Renderer,
        messages: Any,
        tools: Any,
        others: OtherArguments,
    ) -> None:
        documents, self.add_generation_prompt, self.continue_final_message, now, options = others
        if now is not None and not isinstance(now, datetime):
            raise MessageError(f"now is a datetime, not {type(now).__name__}", path="now")
        if documents is not None:
            documents = InputReader().read_documents(documents)
        self.renderer = renderer
        self.tools = NO_TOOLS if tools is None else prepared_tools(tools)
        self.documents = documents
        self.now = now or NOW
        self.options, self.options_key = _read_call_options(options) if options else NO_OPTIONS
        if type(messages) is ReadMessages:
            self.chat, self.aliases, self.plain_kind, has_parts, self.memory, _ = messages
            if has_parts:
                self.with_parts = self.chat
        elif kind := find_plain_kind(messages):
            # Origins are computed later, and the caller may change a message by then.
            self.chat, self.plain_kind = list(map(dict.copy, messages)), kind
        else:
            reader = InputReader()
            self.chat = self.with_parts = reader.read_messages(messages)
            self.aliases, self.plain_kind = reader.aliases, ""

    @cached_property
    def program(self) -> Program:
        """The program that the arguments choose."""
        usual, named = self.renderer.program, self.renderer._named
        program = usual if self.tools is NO_TOOLS else named.get(TOOL_USE, usual)
        return program.shadowing(self.options)

    @property
    def nodes(self) -> Sequence[Position]:  # type: ignore[override]  # an attribute elsewhere
        # Few ask for them, and then the program must be chosen.
        return self.program.nodes

    def make_follower(self, is_quiet: bool = False) -> Follower:
        """Return what follows trails, within a budget; a quiet one issues no warnings."""
        limits = self.renderer.limits
        kind = QuietFollower if is_quiet else Follower
        return kind(limits.origins, lambda: limits.share_of_origins(self.make_context()))

    def render(self, with_trails: bool = False) -> Rendering:
        """Write the segments that are known, or run the program and learn them."""
        table = self.renderer._segments
        is_unusual = self.documents is not None or type(self.add_generation_prompt) is not bool
        if self.continue_final_message or is_unusual or table is None:
            return self.run()
        key = self.add_generation_prompt, id(self.tools), self.options_key
        has_tools = self.tools is not NO_TOOLS
        known: Any = table.peek(key) or 0  # or how often this call came
        if isinstance(known, int):
            if known < (LEARNT_AFTER if has_tools or self.options else 1):
                table.keep(key, known + 1 + len(self.chat) // 10, 0)
                return self.run()
            from turnwise.engine.segments.segments import Segments

            known = Segments(self.renderer._budgets, self.tools)
        self.segments = known
        written = known.write(self.chat, self.now, has_tools, with_trails, self.memory)
        if written is not None:
            text, out, unwritten, steps, size = written
            allowance = self.renderer.allowance
            if allowance is None or allowance.try_spend(steps, size, len(text)):
                out = out if with_trails else None
                return Rendering(text, self, out, self.plain_kind, unwritten)
        rendering = self.run()
        if written is None:  # else the segments are known, and this call has little left to spend
            context = self.make_context()
            known.learn(self.program, self.make_runtime(context), context, rendering)
            table.keep(key, known, known.size)
        return rendering

    def make_context(self) -> JsonObject:
        """Return the variables of the template."""
        return {
            "messages": self.chat,
            "tools": self.tools.plain,
            "documents": self.documents,
            "add_generation_prompt": self.add_generation_prompt,
            **self.renderer._options,
            **self.options,
        }

    def make_runtime(self, context: JsonObject, allowance: Allowance | None = None) -> Runtime:
        """Return the state of a rendering."""
        return Runtime(self.renderer._budgets, context, self.now, allowance, self.tools)

    def run(self) -> Rendering:
        """Run the program."""
        continuation = None
        if self.continue_final_message:
            if self.add_generation_prompt:
                raise MessageError(
                    "continue_final_message and add_generation_prompt exclude each other"
                )
            self.chat = list(self.chat)  # its last message is replaced
            self.plain_kind, self.with_parts = "", self.chat
            continuation = Continuation(self.chat, self.continue_final_message, self.program.text)
        context = self.make_context()
        runtime = self.make_runtime(context, self.renderer.allowance)
        size = 0
        try:
            output = self.program.run(runtime, context)
            texts = output[::2]
            size = self.program.charge_output(runtime, texts)
        finally:
            if runtime.ledger is not None:
                runtime.ledger.close(size)
        text = "".join(texts)
        if not text.isascii():
            _refuse_lone_surrogates(text, self.make_context)
        rendering = Rendering(text, self, output, self.plain_kind)
        if continuation is not None:
            rendering.text = continuation.truncate(rendering.text)
        return rendering

    def find_output(self, text: str) -> Output:
        """Return the origins of a text that segments wrote: its budgets were looked at already."""
        if self.segments is not None:
            has_tools = self.tools is not NO_TOOLS
            written = self.segments.write(self.chat, self.now, has_tools, True, self.memory, text)
            if written is not None:
                return written[1]
        context = self.make_context()
        return self.program.run(self.make_runtime(context), context)

    def find_writers(self, text: str) -> list[WrittenSpan]:
        """Return which expressions wrote which characters of a text; none if the program does not write it again."""
        known, spans = self.writers
        if known != text:
            spans = self._run_marked(text)
            self.writers = text, spans
        return spans

    def _run_marked(self, text: str) -> list[WrittenSpan]:
        program, context = self.program, self.make_context()
        runtime = self.make_runtime(context, self.renderer.allowance)
        try:
            marked = mark_program(program.text, program.name, program.shadowed)
            output = marked.run(runtime, context)
        except TemplateError as error:  # too large with its marks, or the clock went on
            raise_if_call_ended(error)
            return []
        finally:
            if runtime.ledger is not None:
                runtime.ledger.close(len(text))
        if not "".join(output[::2]).startswith(text):
            return []
        return MarkReader(marked.nodes).read(output)


def _read_call_options(options: JsonObject) -> ReadOptions:
    try:
        data = marshal.dumps(options, MARSHAL_VERSION)
    except ValueError:  # not plain data yet
        data = b""
    known = OPTIONS.peek(data)  # most callers give the same with every call
    if known is None:
        plain = _read_options(options)
        known = plain, make_digest(plain)
        if known[1] == digest(data):  # of an array, `marshal` writes the bytes
            OPTIONS.keep(data, known, 2 * len(data))
    return known


def _read_options(options: JsonMapping) -> JsonObject:
    """Return the values of the template's own variables as plain data."""
    plain = {}
    for name, value in options.items():
        if name in ARGUMENTS:
            raise MessageError(f"{name!r} is an argument of render, not an option", path=name)
        plain[name] = value if type(value) in SCALARS else InputReader().to_plain(value, name)
    return plain


def _refuse_lone_surrogates(text: str, make_context: Callable[[], JsonMapping]) -> None:
    """Raise an error that names the field with half of a surrogate pair, which cannot be encoded."""
    try:
        text.encode("utf-32-le")  # finds out three times as fast as UTF-8
    except UnicodeEncodeError:
        for name, value in make_context().items():
            problem = find_lone_surrogate(value, (name,))
            if problem is not None:
                raise problem from None
        raise MessageError(
            "the rendered text has half of a surrogate pair, made by the template"
        ) from None


class Continuation:
    """The final message of a chat with a tag after its text.

    Args:
        chat: the messages; the last one is replaced by a copy with the tag.
        field: True for the content, or the name of the field to continue.
        template: the Jinja text, to see whether it reads the field at all.

    A template closes the final message like any other. So a tag that no template writes is appended to the text of the
    final message, and the rendering is truncated where the tag is rendered: after the text, before the end of the turn.
    A template that trims its content also drops the space at the end of the tag; then trailing white space of the text
    before it is dropped too, as transformers does.
    """

    def __init__(self, chat: list[JsonObject], field: bool | str, template: str) -> None:
        if not chat:
            raise MessageError("there is no final message to continue", path="messages")
        name = field if isinstance(field, str) else "content"
        final = dict(chat[-1])
        path = f"messages[{len(chat) - 1}].{name}"
        value = final.get(name)
        if value is None:
            raise MessageError(
                f'continue_final_message is set but the final message has no "{name}" to continue!',
                path=path,
            )
        # Reasoning is there under each of its names; the tag goes into all of them.
        fields = [name]
        if name in REASONING_KEYS:
            fields = [other for other in REASONING_KEYS if final.get(other) == value]
        if not any(other in template for other in fields):
            raise MessageError(f"the template does not read {name!r}", path=path)
        self.tag = TAG
        while contains_text(chat, self.tag.strip()):
            self.tag = f"{self.tag.strip()}_ "
        if isinstance(value, (list, tuple)):
            self.text, final[name] = self._append_to_last_part(value, path)
        elif isinstance(value, str):
            self.text = value
            for other in fields:
                final[other] = final[other] + self.tag
        else:
            raise MessageError(f"only text can be continued, not {type(value).__name__}", path=path)
        chat[-1] = final

    def _append_to_last_part(self, parts: Any, path: str) -> tuple[str, list[Any]]:
        """Return the text of the last text part, and the parts with the tag after that text."""
        for index in range(len(parts) - 1, -1, -1):
            part = parts[index]
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                tagged = {**part, "text": part["text"] + self.tag}
                return part["text"], [*parts[:index], tagged, *parts[index + 1 :]]
        raise MessageError("there is no text to continue in the final message", path=path)

    def truncate(self, text: str) -> str:
        """Return the rendered text up to the tag."""
        start = text.rfind(self.tag.strip())
        if self.text.strip() not in text or start < 0:
            raise MessageError(
                "continue_final_message is set but the final message does not appear in the chat "
                "after applying the chat template",
                hint="the template changes or drops the end of the final message",
            )
        if text.startswith(self.tag, start):
            return text[:start]
        return text[:start].rstrip()

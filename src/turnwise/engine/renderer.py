"""Renderer: a compiled template with its options and limits. The one place that renders.

A model may have several templates by name; where tools are given, the one called `tool_use` is taken, as transformers
does. Everything else in the package that needs a rendering (encoding, analysis, parsing, conversion, comparison)
receives a Renderer, so nothing below `Template` knows the public object.

    renderer = Renderer(compile_program("{% for m in messages %}{{ m.content }}{% endfor %}"))
    renderer.render([{"role": "user", "content": "hi"}]).text   # "hi"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from turnwise.engine.continuation import Continuation
from turnwise.engine.program import Program, mark_program
from turnwise.engine.provenance.expressions import MarkReader, WrittenSpan
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.runtime.limits import (
    DEFAULT_LIMITS,
    MAX_CHARACTER_SIZE,
    Allowance,
    Limits,
    Runtime,
    raise_if_call_ended,
)
from turnwise.errors import MessageError, TemplateError
from turnwise.immutable import Immutable
from turnwise.messages import (
    NO_TOOLS,
    InputReader,
    ReadMessages,
    find_lone_surrogate,
    find_plain_kind,
    prepared_tools,
)

TOOL_USE = "tool_use"
REDUCED_BY = 10  # probing renders dozens of conversations, each of them short
SCALARS = (str, bool, type(None), int)  # option values that need no copy
ARGUMENTS = ("messages", "tools", "documents", "add_generation_prompt")
NO_ALIASES: dict[tuple[int, str], str] = {}


class Renderer(Immutable):
    """Programs, options and limits. Immutable and picklable; two are equal if they render the same by definition.

    Args:
        program: the template that is rendered.
        options: values of the template's own variables, used where `render` is not given one.
        named: other templates of the same model by name; `tool_use` is taken where tools are given.
        limits: the budgets of one rendering.
    """

    __slots__ = ("_allowance", "_budgets", "_named", "_options", "limits", "program", "variables")

    program: Program
    limits: Limits
    variables: tuple[str, ...]
    _options: dict[str, Any]
    _named: dict[str, Program]
    _budgets: Limits  # with what the length of the template adds
    _allowance: Allowance | None

    def __init__(
        self,
        program: Program,
        options: Mapping[str, Any] | None = None,
        named: Mapping[str, Program] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        plain = _read_options(options or {})
        others = {name: other.shadowing(plain) for name, other in (named or {}).items()}
        variables = [*program.reads]
        for other in others.values():
            variables += other.reads
        self._set_slots(
            program=program.shadowing(plain),
            limits=limits,
            variables=tuple(dict.fromkeys(variables)),
            _options=plain,
            _named=others,
            _budgets=limits,
            _allowance=None,
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
    def options(self) -> Mapping[str, Any]:
        """The values of the template's variables, read-only."""
        return MappingProxyType(_read_options(self._options))

    @property
    def named(self) -> Mapping[str, Program]:
        """Other templates of the same model by name, read-only."""
        return MappingProxyType(self._named)

    def render(
        self,
        /,
        messages: Any,
        tools: Any = None,
        documents: Any = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        now: datetime | None = None,
        **options: Any,
    ) -> Rendering:
        """Render a conversation. The arguments are those of `Template.render`."""
        program, known_tools, aliases = self.program, NO_TOOLS, NO_ALIASES
        with_parts: Any = ()  # messages whose content may have parts; those of a plain chat have none
        plain_kind = "" if continue_final_message else find_plain_kind(messages)
        if tools is not None:
            program = self._named.get(TOOL_USE, program)
            known_tools = prepared_tools(tools)
        if type(messages) is ReadMessages:
            chat, aliases = messages.messages, messages.aliases
        elif not plain_kind:
            reader = InputReader()
            chat, aliases = reader.read_messages(messages), reader.aliases
            with_parts = chat
        else:
            # Pieces are computed later, and the caller may change a message by then.
            chat = list(map(dict.copy, messages))
        context: dict[str, Any] = {
            "messages": chat,
            "tools": known_tools.plain,
            "documents": documents
            if documents is None
            else InputReader().read_documents(documents),
            "add_generation_prompt": add_generation_prompt,
            **self._options,
        }
        if options:
            program = program.shadowing(self._options | options)
            context |= _read_options(options)
        continuation = None
        if continue_final_message:
            if add_generation_prompt:
                raise MessageError(
                    "continue_final_message and add_generation_prompt exclude each other"
                )
            continuation = Continuation(chat, continue_final_message, program.text)
        clock = datetime.now if now is None else _check_time(now)
        runtime = Runtime(self._budgets, context, clock, self._allowance)
        if known_tools is not NO_TOOLS:
            runtime.json_cache = known_tools.json_cache
            runtime.cacheable_ids = known_tools.cacheable_ids
            runtime.tools_size = known_tools.size
        size = 0
        try:
            output = program.run(runtime, context)
            texts = output[::2]
            size = sum(map(len, texts))
            if size * MAX_CHARACTER_SIZE > runtime.output:
                size = program.charge_output(runtime, texts)
        finally:
            if runtime.ledger is not None:
                runtime.ledger.close(size)
        text = "".join(texts)
        if not text.isascii():
            _refuse_lone_surrogates(text, context)
        if continuation is not None:
            text = continuation.truncate(text)
        limits = self.limits
        budget = (limits.origins, limits.share_of_origins, context)
        source = (self, program, clock)
        return Rendering(
            text, output, program.nodes, aliases, with_parts, budget, plain_kind, source
        )

    def find_writers(
        self,
        program: Program,
        now: datetime | Callable[[], datetime],
        context: Mapping[str, Any],
        text: str,
    ) -> list[WrittenSpan]:
        """Return which expressions write which characters of a rendering; none if it cannot be repeated.

        Args:
            program: the program that rendered it.
            now: the time it was given.
            context: the variables of the template.
            text: the rendering, or the beginning of it.
        """
        runtime = Runtime(self._budgets, context, now, self._allowance)
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

    def with_options(self, options: Mapping[str, Any]) -> Renderer:
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
        return self._copy(limits=limits)

    def with_limits(self, limits: Limits) -> Renderer:
        """Return a copy with other limits."""
        if not isinstance(limits, Limits):
            raise MessageError(f"limits are turnwise.Limits, not {type(limits).__name__}")
        return self._copy(limits=limits)

    def with_programs(self, change: Callable[[Program], Program]) -> Renderer:
        """Return a copy with other programs in the places of its own."""
        named = {name: change(program) for name, program in self._named.items()}
        return self._copy(program=change(self.program), _named=named)

    def with_allowance(self, allowance: Allowance | None) -> Renderer:
        """Return a copy whose renderings share an allowance."""
        return self._copy(_allowance=allowance)

    def allow(self, renderings: float) -> Renderer:
        """Return a copy whose renderings together may spend as much as so many whole ones."""
        return self._copy(_allowance=Allowance(self._budgets, renderings))

    @property
    def allowance(self) -> Allowance | None:
        """What the renderings of one call share, if this is the renderer of a call."""
        return self._allowance

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


def _check_time(now: Any) -> datetime:
    if not isinstance(now, datetime):
        raise MessageError(f"now is a datetime, not {type(now).__name__}", path="now")
    return now


def _read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the template's own variables as plain data."""
    plain = {}
    for name, value in options.items():
        if name in ARGUMENTS:
            raise MessageError(f"{name!r} is an argument of render, not an option", path=name)
        plain[name] = value if type(value) in SCALARS else InputReader().to_plain(value, name)
    return plain


def _refuse_lone_surrogates(text: str, context: Mapping[str, Any]) -> None:
    """Raise an error that names the field with half of a surrogate pair, which cannot be encoded."""
    try:
        text.encode("utf-32-le")  # finds out three times as fast as UTF-8
    except UnicodeEncodeError:
        for name, value in context.items():
            problem = find_lone_surrogate(value, (name,))
            if problem is not None:
                raise problem from None
        raise MessageError(
            "the rendered text has half of a surrogate pair, made by the template"
        ) from None

"""Grammar: how a template writes an assistant's reply, and so how a reply is read.

A reply is made of *regions*: reasoning, content, calls. Each stands between markers, which are texts of the template.
A marker's white space is its own: of `\\n</think>\\n\\n`, the core `</think>` is what is looked for; the white space
around it is taken away if it is there, exactly that much and no more, and its absence is forgiven.

A call is a row of parts, texts and slots: `<tool_call>\\n{"name": "` NAME `", "arguments": ` ARGUMENTS
`}\\n</tool_call>`. How the arguments are written is a syntax (`syntaxes.py`).

A grammar is data: it is derived from a template (`derive.py`), or declared in a registry entry in the same words, and
`print` shows it as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Source = Literal[
    "derived", "declared", "sought"
]  # `sought`: the template looks for the text, it never writes it


@dataclass(frozen=True, slots=True)
class Marker:
    """A text of the template between two fields; empty if the template writes nothing there."""

    text: str = ""
    origin: str = ""  # where it came from: "template 41:53", "declared", ...

    @property
    def core(self) -> str:
        return self.text.strip()

    @property
    def lead(self) -> str:
        """The white space before the core."""
        return self.text[: len(self.text) - len(self.text.lstrip())] if self.core else ""

    @property
    def trail(self) -> str:
        """The white space behind the core; all of a text that is nothing else."""
        return self.text[len(self.text.rstrip()) :] if self.core else self.text

    def __bool__(self) -> bool:
        return bool(self.text)


NOTHING = Marker()


@dataclass(frozen=True, slots=True)
class Region:
    """A text between two markers."""

    open: Marker = NOTHING
    close: Marker = NOTHING


@dataclass(frozen=True, slots=True)
class Spacing:
    """The white space of JSON as a template writes it; a reply may have any other."""

    item: str = ", "
    key: str = ": "
    indent: int | None = None
    depth: int = 0  # how far the lines behind the first one are moved to the right


@dataclass(frozen=True, slots=True)
class JsonCall:
    """A call that is one JSON object: `{"name": N, "arguments": A}`, or with the name as its only key: `{N: A}`."""

    name: str | None = (
        "name"  # the key under which the name stands; None: the name is the key of the arguments
    )
    arguments: str = "arguments"
    id: str | None = None
    listed: bool = False  # the calls of a reply are elements of one JSON list
    inside: str | None = (
        None  # the key of an object within, which holds name and arguments: `{"function": {...}}`
    )
    as_text: bool = False  # the arguments are a JSON text inside a string
    parts: tuple[Marker | str, ...] = ()  # one object as the template writes it: texts and slots
    around: tuple[str, str, str] = (
        "[",
        ", ",
        "]",
    )  # a list's beginning, what stands between its elements, its end
    spacing: Spacing = Spacing()


@dataclass(frozen=True, slots=True)
class TaggedCall:
    """A call whose name, id and arguments stand between markers.

    `parts` are markers and slots in order, such as ("name", '{', "arguments"): a str is one of SLOTS, everything else
    is a Marker. What stands before the first slot and behind the last is `Calls.each`. The arguments are JSON text if
    `pairs` is None.
    """

    parts: tuple[Marker | str, ...] = ()
    pairs: Pairs | None = None
    spacing: Spacing = Spacing()  # of arguments that are JSON


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call whose whole text is one argument of a tool that is always the same: code for an interpreter."""

    name: str
    argument: str = "code"
    fenced: bool = False  # a fence around the text (```python ... ```) is taken off


WRITERS: dict[
    str, Callable[..., dict[str, Any]]
] = {}  # other people's words for a grammar; `export.py` fills it
SLOTS = ("name", "id", "index", "arguments")  # index: a number that the template counts


@dataclass(frozen=True, slots=True)
class Pairs:
    """Arguments written one by one. What stands between key and value, and behind it, may depend on the type."""

    key: Marker = NOTHING  # before a key
    string: Region = Region()  # around a text value: `open` stands between key and value
    other: Region = Region()  # around any other value
    between: Marker = NOTHING  # between one value and the next key, besides the markers of both
    echoed: bool = False  # the closing marker repeats the key: `<k>v</k>`; the key stands in `string.close` as KEY
    # How other values are written: "json", "python", "quoted" (strings in string.open/close marks).
    values: str = "json"
    scalars: str = (
        "json"  # how true, false and null are written where they stand alone: "json", "python"
    )
    strings: str = (
        "raw"  # a text value as it is, or as a literal with quotes of its own: "json", "python"
    )
    typed: tuple[
        tuple[str, Region], ...
    ] = ()  # kinds of other values whose markers differ from those of `other`
    wrap: Region = Region()  # around a text value that holds markup, within the markers of `string`


KEY = "\x00key\x00"  # the place of the key in a marker that repeats it


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of a reply: a section of calls, with something between them."""

    call: JsonCall | TaggedCall | RawCall
    section: Region = Region()
    each: Region = Region()  # around every call
    between: Marker = NOTHING
    first: int = 0  # the number of the first call, where calls are numbered
    excludes_content: bool = False
    lead: Marker = NOTHING  # between content and the first call, besides the markers of both
    content_after: bool = False  # content is written behind the calls


@dataclass(frozen=True, slots=True)
class Grammar:
    """How replies to one template look."""

    opening: str = ""  # what a prompt ends with
    reopening: str = ""  # what it ends with behind a tool's result, where the turn goes on there without its header
    reasoning: Region | None = None
    content: Region = Region()
    calls: Calls | None = None
    more: tuple[Calls, ...] = ()  # other ways in which calls may be written
    stops: tuple[str, ...] = ()
    empty: str = ""  # what is written where there is no reasoning, such as `<think></think>`
    starts: tuple[
        str, ...
    ] = ()  # before every region but the first: another message, `<|start|>assistant`
    unreached: tuple[str, ...] = ()  # what no probe showed, in words
    sources: dict[str, Source] = field(
        default_factory=dict
    )  # of each part: derived, declared, sought

    def __str__(self) -> str:
        """A table: each part, its text, and where it came from."""
        rows = list(self.rows())
        wide = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
        lines = [
            f"{part:{wide[0]}}  {text:{wide[1]}}  {origin}".rstrip() for part, text, origin in rows
        ]
        return "\n".join(lines + [f"not reached: {what}" for what in self.unreached])

    def to_response_template(self, *, partly: bool = False) -> dict[str, Any]:
        """The grammar in transformers' words; a TurnwiseError with the reason where it cannot be said.

        `partly`: where calls may be written in several ways, the first one will do.
        """
        return WRITERS["response_template"](self, partly)

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Part, text and origin of everything that is there."""
        yield "opening", repr(self.opening), ""
        if self.reopening:
            yield "behind a result", repr(self.reopening), ""
        regions = [("reasoning", self.reasoning), ("content", self.content)]
        for name, region in regions:
            if region is not None:
                yield from region_rows(name, region)
        for calls in (self.calls, *self.more):
            if calls is not None:
                yield from calls_rows(calls)
        yield from (("start", repr(text), "") for text in self.starts)
        yield from (("stop", repr(text), "") for text in self.stops)


def region_rows(name: str, region: Region) -> Iterator[tuple[str, str, str]]:
    for side, marker in (("open", region.open), ("close", region.close)):
        if marker:
            yield f"{name} {side}", repr(marker.text), marker.origin


def calls_rows(calls: Calls) -> Iterator[tuple[str, str, str]]:
    yield from region_rows("calls", calls.section)
    yield from region_rows("call", calls.each)
    if calls.between:
        yield "between calls", repr(calls.between.text), calls.between.origin
    call = calls.call
    if isinstance(call, RawCall):
        yield "call", f"{call.name}({call.argument}=TEXT)", ""
        return
    if isinstance(call, JsonCall):
        keys = (
            f"{{NAME: {call.arguments}}}"
            if call.name is None
            else f"{{{call.name}, {call.arguments}}}"
        )
        yield (
            "call",
            f"JSON {'list of ' if call.listed else ''}{keys}{f' in {call.inside}' if call.inside else ''}",
            "",
        )
    for part in call.parts:
        yield (
            ("", part.upper(), "") if isinstance(part, str) else ("", repr(part.text), part.origin)
        )
    if isinstance(call, TaggedCall) and call.pairs is not None:
        yield from pairs_rows(call.pairs)


def pairs_rows(pairs: Pairs) -> Iterator[tuple[str, str, str]]:
    if pairs.key:
        yield "key open", shown(pairs.key), pairs.key.origin
    yield from region_rows(f"text value ({pairs.strings})", named(pairs.string))
    yield from region_rows(f"other value ({pairs.values})", named(pairs.other))
    for kind, region in pairs.typed:
        yield from region_rows(f"{kind} value", named(region))
    yield from region_rows("text with markup", pairs.wrap)
    if pairs.between:
        yield "between pairs", repr(pairs.between.text), pairs.between.origin


def shown(marker: Marker) -> str:
    return repr(marker.text.replace(KEY, "KEY"))


def named(region: Region) -> Region:
    """A region for people, who cannot read the sign that stands for the key."""
    texts = [
        Marker(marker.text.replace(KEY, "KEY"), marker.origin)
        for marker in (region.open, region.close)
    ]
    return Region(*texts)

"""The parts of a grammar: plain data that describes how an assistant's reply is written.

A reply consists of *regions*: reasoning, content and tool calls. Each region is delimited by *markers*, which are texts
that the template writes. For Qwen3:

    <think>\\n          reasoning.open
    Let me look.
    \\n</think>\\n\\n     reasoning.close
    One moment.         content, which has no markers of its own
    <tool_call>\\n{"name": "tide", "arguments": {"harbour": "Oslo"}}\\n</tool_call>

A parser searches for a marker's *core*, its text without white space at the edges (`</think>`). The white space around
the core is removed from the reply as far as it is there, exactly that much and no more; it may also be missing.

A tool call is a sequence of markers and *slots*, the places of its fields: `<tool_call>\\n{"name": "` NAME
`", "arguments": ` ARGUMENTS `}\\n</tool_call>`. There are three kinds of calls: one JSON object (`JsonCall`), fields
between markers (`TaggedCall`), and the bare text of one argument (`RawCall`).

Nothing here reads or writes a reply: `derive/` finds a grammar, `parser/` reads replies with it, `write.py` writes
them, `export/` translates it for other software. `grammar.Grammar` is the class that users see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# How a part of a grammar became known. `searched`: the template only searches for the text, it never writes it.
# `named`: it only names the text in its instructions to the model.
Source = Literal["derived", "declared", "searched", "named"]

SLOTS = ("name", "id", "index", "arguments")  # index: a number that the template counts
NOT_READ_BACK = "calls: parsing the rendered call gives a different call"  # a note in `unreached`
UNQUOTED = (
    "texts: they are written without quotes, and read as literals"  # another, after "calls: "
)
KEY = "\x00key\x00"  # the place of the key in a marker that repeats it


@dataclass(frozen=True, slots=True)
class Marker:
    """A text of the template between two fields; empty if the template writes nothing there.

    Example:
        >>> marker = Marker("\\n</think>\\n\\n", "template 41:53")
        >>> marker.leading_space, marker.core, marker.trailing_space
        ('\\n', '</think>', '\\n\\n')
    """

    text: str = ""
    origin: str = ""  # where it came from: "template 41:53", "declared", "searched", "named"

    @property
    def core(self) -> str:
        """The text without the white space at its edges."""
        return self.text.strip()

    @property
    def leading_space(self) -> str:
        """The white space before the core."""
        if not self.core:
            return ""
        return self.text[: len(self.text) - len(self.text.lstrip())]

    @property
    def trailing_space(self) -> str:
        """The white space after the core; the whole text if it is nothing but white space."""
        if not self.core:
            return self.text
        return self.text[len(self.text.rstrip()) :]

    def __bool__(self) -> bool:
        return bool(self.text)


NO_MARKER = Marker()


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a reply between two markers, either of which may be empty."""

    open: Marker = NO_MARKER
    close: Marker = NO_MARKER


@dataclass(frozen=True, slots=True)
class Spacing:
    """The white space with which a template writes JSON; a parser accepts any other."""

    item: str = ", "
    key: str = ": "
    indent: int | None = None
    depth: int = 0  # blanks before every line but the first


@dataclass(frozen=True, slots=True)
class JsonCall:
    """A call that is one JSON object: `{"name": N, "arguments": A}`, or with the name as its only key: `{N: A}`."""

    name: str | None = "name"  # the key of the name; None: the name is the key of the arguments
    arguments: str = "arguments"
    id: str | None = None
    listed: bool = False  # the calls of a reply are elements of one JSON list
    inside: str | None = None  # an inner object has name and arguments: `{"function": {...}}`
    as_text: bool = False  # the arguments are a JSON text inside a string
    parts: tuple[Marker | str, ...] = ()  # one object as the template writes it: texts and slots
    around: tuple[str, str, str] = ("[", ", ", "]")  # begins, separates and ends a list of calls
    spacing: Spacing = Spacing()


def default_json_parts(call: JsonCall, origin: str = "") -> tuple[Marker | str, ...]:
    """Return the parts of a JSON object as JSON is usually written, for a call that has none."""
    end = Marker("}", origin)
    if call.name is None:
        return (Marker('{"', origin), "name", Marker('": ', origin), "arguments", end)
    before_name = Marker(f'{{"{call.name}": "', origin)
    before_arguments = Marker(f'", "{call.arguments}": ', origin)
    parts = (before_name, "name", before_arguments, "arguments")
    if call.id is None:
        return (*parts, end)
    return (*parts, Marker(f', "{call.id}": "', origin), "id", Marker('"}', origin))


@dataclass(frozen=True, slots=True)
class TaggedCall:
    """A call whose name, id and arguments are delimited by markers.

    `parts` are markers and slots in order, such as ("name", Marker("{"), "arguments"): a str is one of SLOTS. The
    markers before the first slot and after the last one are in `Calls.each`. If `pairs` is None, the arguments are
    JSON.
    """

    parts: tuple[Marker | str, ...] = ()
    pairs: Pairs | None = None
    spacing: Spacing = Spacing()  # of arguments that are JSON


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call whose whole text is one argument of a fixed tool: code for an interpreter."""

    name: str
    argument: str = "code"
    fenced: bool = (
        False  # the text is in a fence (```python ... ```); the type of the call is its name
    )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Arguments written one by one, as `<arg=day>3</arg>`. The markers may depend on the type of the value.

    A marker that repeats the key (`<day>3</day>`) holds KEY in its place.
    """

    key: Marker = NO_MARKER  # before a key
    string: Region = Region()  # around a text value; `open` is between key and value
    other: Region = Region()  # around any other value
    between: Marker = NO_MARKER  # between a value and the next key, besides the markers of both
    echoed: bool = False  # the closing marker repeats the key
    # How objects and lists are written: "json", "python", "quoted" (strings in the markers of `string`), "tags".
    values: str = "json"
    scalars: str = "json"  # how true, false and null are written: "json" or "python"
    strings: str = "raw"  # a text value as it is, or as a literal in quotes: "json" or "python"
    typed: tuple[tuple[str, Region], ...] = ()  # JSON types whose markers differ from `other`
    wrap: Region = Region()  # around a text value with markup, inside the markers of `string`


@dataclass(frozen=True, slots=True)
class Calls:
    """One way of writing the calls of a reply: a section with one or more calls."""

    call: JsonCall | TaggedCall | RawCall
    section: Region = Region()  # around all calls
    each: Region = Region()  # around every call
    between: Marker = NO_MARKER
    first: int = 0  # the number of the first call, where calls are numbered
    excludes_content: bool = False  # a reply has content or calls, not both
    lead: Marker = NO_MARKER  # between content and the first call, besides the markers of both
    content_after: bool = False  # content is written after the calls
    sorts_keys: bool = False  # the arguments of a call are in the order of their names
    # Signs that are replaced in names and keys, in the order in which that is done: `&` by `&amp;`.
    escapes: tuple[tuple[str, str], ...] = ()

    def escape(self, name: str) -> str:
        """Return a name or key as it is written."""
        for sign, written in self.escapes:
            name = name.replace(sign, written)
        return name

    def unescape(self, name: str) -> str:
        """Return a name or key that is written like this."""
        for sign, written in reversed(self.escapes):
            name = name.replace(written, sign)
        return name


@dataclass(frozen=True, slots=True)
class GrammarParts:
    """All parts of a grammar, without methods; see `Grammar`."""

    opening: str = ""
    reopening: str = ""
    reasoning: Region | None = None
    content: Region = Region()
    calls: Calls | None = None
    more: tuple[Calls, ...] = ()
    stops: tuple[str, ...] = ()
    empty: str = ""
    starts: tuple[str, ...] = ()
    specials: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    sources: dict[str, Source] = field(default_factory=dict)

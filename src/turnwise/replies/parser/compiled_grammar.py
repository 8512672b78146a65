"""A grammar made ready for reading: which texts are watched for in which state.

Markers are taken apart where one tag ends and the next begins (`<tool_call>\\n<function=`), so that the white space
between them is forgiven and a missing wrapper is noticed. A piece that looks like a tag is trusted wherever it stands;
a bracket or a word is looked for only where it is due.

    state       what is watched for
    text        all openers (section, call, reasoning, content), closers that look like tags, starts and stops
    opened      the same within content that has an opener: its closer too, whatever it looks like
    reasoning   its closer, the stops; the openers of calls and content if the prompt put the model into its reasoning
    name, id    the next marker that is due, or any later one
    values      the closer of the value

Some grammars write reasoning and content with the same markers around a different word
(`<|channel|>analysis<|message|>`, `<|channel|>final<|message|>`). Then all that stands between two such markers is a
header, and read as one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from turnwise.replies.grammar import (
    KEY,
    Calls,
    Grammar,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    TaggedCall,
)
from turnwise.replies.parser.detokenizer import PLAIN, Spelling, markers
from turnwise.replies.parser.matcher import Watch
from turnwise.replies.parser.variants import Variants, suffix

# What is forgiven, by name. `Parser(tolerances=...)` takes the names that shall be on; all are by default.
TOLERANCES = {
    "section": "calls without the section around them",
    "call": "a call that starts with a later marker than its first",
    "reasoning": "a call, or the content's own opener, ends the reasoning that the prompt opened",
    "bare": (
        "JSON or a Python call at the start of the content is a call if the grammar writes calls without markers;"
        " behind content, JSON that says a name and then arguments"
    ),
    "closers": "a closer where nothing is open is no text",
    "strings": "arguments that are a JSON text within a string",
    "unwrap": "one argument named like `arguments` that holds the declared ones",
    "headers": "the words of a header in another order",
    "quotes": "a quote within a Python text that is not escaped, if what follows it fits no end of the text",
    "blanks": "blanks within a tag that are missing, or too many",
    "suffixes": "tags without the word behind a colon with which all tags end",
}
ALL = frozenset(TOLERANCES)

# Keys that models use in place of each other.
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input")
NAME_KEYS = ("name", "tool_name", "function")

CUT = re.compile(
    r"(?<=>)(?=\s*<)|(?<=\])(?=\s*\[[A-Z/])|(?<=>)(?=[\w.:]+$)"
)  # on markers only, never on a reply
SIGNS = "{}[]()\",:' \n\t"


def pieces(text: str) -> list[str]:
    """A marker's text, tag by tag, white space kept in front of the tag that follows it."""
    return [piece for piece in CUT.split(text) if piece.strip()]


def tag_like(text: str) -> bool:
    """Whether a text is so unlike prose that it is a marker wherever it stands."""
    core = text.strip()
    return len(core.strip(SIGNS)) >= 3 and any(sign in core for sign in "<>|[]")


def trail(text: str) -> str:
    """The white space at the end of a marker; all of a marker that is nothing else."""
    return text[len(text.rstrip()) :] if text.strip() else text


@dataclass(frozen=True, slots=True)
class Item:
    """One part of a call: a marker that is due, or a slot."""

    text: str = ""
    slot: str = ""


@dataclass(frozen=True, slots=True)
class Channels:
    """Headers: what stands before and behind the word, and the words."""

    before: str
    behind: str
    reasoning: str
    content: str
    recipient: str  # such as `to=functions.`
    stem: str  # such as `to=`


@dataclass(slots=True)
class Layout:
    """One way of writing calls."""

    calls: Calls
    starts: tuple[str, ...]
    stops: tuple[str, ...]
    variants: Variants
    section: list[str] = field(default_factory=list)
    openers: list[str] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    closers: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)  # of a section
    bare: str = ""  # characters with which a call without a marker may start
    pairs: Pairs | None = None
    members: str = ""  # the bracket that ends arguments written without tags
    lines: bool = False  # arguments are lines
    cache: dict[str, Watch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        calls = self.calls
        self.section = pieces(unstarted(calls.section.open.text, self.starts))
        self.ends = pieces(calls.section.close.text)
        self.openers = pieces(unstarted(calls.each.open.text, self.starts))
        self.closers = pieces(calls.each.close.text)
        if isinstance(calls.call, TaggedCall):
            self._tagged(calls.call)
        marked = [text for text in (*self.section[:1], *self.openers[:1]) if text.strip(SIGNS)]
        if not marked and not self.openers and not isinstance(calls.call, RawCall):
            self.bare = (
                "{[" if isinstance(calls.call, JsonCall) else (self.section or ["["])[0].strip()[:1]
            )

    def _tagged(self, call: TaggedCall) -> None:
        parts = list(call.parts)
        while parts and isinstance(first := parts[0], Marker):
            self.openers += pieces(first.text)
            del parts[0]
        behind: list[str] = []
        while parts and isinstance(last := parts[-1], Marker):
            behind[:0] = pieces(last.text)
            del parts[-1]
        self.closers[:0] = behind
        seen: set[str] = set()
        for part in parts:
            if isinstance(part, Marker):
                self.items += [Item(text=piece) for piece in pieces(part.text)] or [
                    Item(text=part.text)
                ]
            else:
                self.items.append(Item(slot=part if part not in seen else "echo"))
                seen.add(part)
        self.pairs = call.pairs
        if self.pairs is not None and not self.pairs.key.core and not self.pairs.echoed:
            self.lines = lined(self.pairs)
            if not self.lines:
                self._members()

    def _members(self) -> None:
        """Take the closing bracket off the marker that it stands in: the reader of values takes it."""
        self.members = "}"
        for holder in (self.closers, self.ends):
            for at, text in enumerate(holder):
                if text.strip()[:1] in ("}", ")", "]"):
                    self.members = text.strip()[0]
                    holder[at : at + 1] = pieces(text.lstrip()[1:])
                    return

    @property
    def behind(self) -> list[str]:
        """What may stand directly behind a call, whatever it looks like: a separator, the end of the section.

        What stands between calls without openers is left to the reader of rows.
        """
        texts = (self.calls.between.text, *self.ends[:1]) if self.openers else ()
        return [text for text in texts if text.strip()]

    @property
    def mark(self) -> str:
        """The marker that calls start with."""
        return next((text.strip() for text in (*self.section, *self.openers)), "")

    @property
    def listed(self) -> bool:
        """Whether the bracket of a list of calls is part of the marker before it."""
        call = self.calls.call
        return isinstance(call, JsonCall) and call.listed and not call.around[0]

    @property
    def starts_with_name(self) -> bool:
        """Whether nothing stands before the name of a call, and a tag behind it."""
        first = [item.slot or tag_like(item.text) for item in self.items[:2]]
        return first == ["name", True] and not self.section and not self.openers

    @property
    def closed(self) -> bool:
        """Whether something stands behind every call."""
        return any(text.strip() for text in (*self.closers, *self.ends))

    def goes_on(self, char: str) -> bool:
        """Whether a call may go on with this character behind its first marker."""
        if isinstance(self.calls.call, JsonCall) and len(self.section + self.openers) == 1:
            return char in ("{", "[")
        return char not in ("{", "[")

    def first(self) -> list[tuple[str, str]]:
        """What a call may start with: the section, or without it the call; and where in it the text is."""
        if not self.section and not self.openers and self.bare == "{[":
            return [("{", "bare")]
        return [(text, "section") for text in self.section[:1]] + [
            (text, "call 0") for text in self.openers[:1]
        ]

    def later(self) -> list[tuple[str, str]]:
        return [
            (text, f"call {at}") for at, text in enumerate(self.openers) if at and tag_like(text)
        ]

    def watch(self, texts: list[tuple[str, str]]) -> Watch:
        return self.variants.watch(texts)

    def due(self, at: int) -> Watch:
        """The markers that may follow item `at`: the next one, or a later one if it is missing."""
        if f"due {at}" not in self.cache:
            self.cache[f"due {at}"] = self.variants.watch(
                [*self._due(at), *self.after()], self._blanks(at)
            )
        return self.cache[f"due {at}"]

    def _due(self, at: int) -> Iterator[tuple[str, str]]:
        for index in range(at + 1, len(self.items)):
            item = self.items[index]
            if item.slot == "arguments":
                if self.pairs is None:
                    yield "{", f"slot {index}"
                elif not self.members and not self.lines:
                    yield self.pairs.key.text, f"slot {index}"
            elif item.text.strip():
                yield item.text, f"mark {index + 1}"
                if tag_like(item.text) and self.pairs is not None:
                    return  # a bracket behind it could be part of a name; JSON's own cannot

    def _blanks(self, at: int) -> list[tuple[str, str]]:
        """The line ends where the arguments begin, if they are lines."""
        due = at + 2 < len(self.items) and self.items[at + 2].slot == "arguments"
        return [("\n", f"slot {at + 2}")] if self.lines and due else []

    def after(self) -> list[tuple[str, str]]:
        """What ends a call, one way or the other."""
        stops = [(text, "over") for text in self.stops]
        closers = [(text, "over") for text in (*self.closers, *self.ends) if text.strip()]
        openers = [
            (text, "over") for text in (*self.section[:1], *self.openers[:1]) if tag_like(text)
        ]
        return closers + openers + stops

    @property
    def follows(self) -> frozenset[str]:
        """The characters with which the text behind a call may start; empty if it may be any."""
        texts = [self.calls.between.text, *(text for text, _ in self.after()), ",", ";"]
        if not self.openers and not self.calls.between.core:
            return frozenset()  # another name may follow
        return frozenset(self.variants.of(text.strip())[0][0] for text in texts if text.strip())

    def end(self) -> Watch:
        if "end" not in self.cache:
            self.cache["end"] = self.watch(self.after())
        return self.cache["end"]

    def line(self, text: str) -> Watch:
        """Within a line of arguments: `text` behind a key, the end of the line, or the end of the call."""
        if f"line {text}" not in self.cache:
            within = [(text, "open")] if text.strip() else []
            self.cache[f"line {text}"] = self.variants.watch(
                [*within, *self.after()], [("\n", "line")]
            )
        return self.cache[f"line {text}"]

    def pair(self) -> Watch:
        """Between two arguments: the next key, or the end."""
        assert self.pairs is not None
        if "pair" not in self.cache:
            self.cache["pair"] = self.watch([(self.pairs.key.text, "key"), *self.after()])
        return self.cache["pair"]


@dataclass(slots=True)
class Plan:
    """What the parser looks things up in."""

    grammar: Grammar
    tolerances: frozenset[str] = ALL
    spelling: Spelling = PLAIN
    layouts: list[Layout] = field(default_factory=list)
    unopened: list[Layout] = field(default_factory=list)  # in which calls begin with their name
    variants: Variants = field(init=False)
    text: Watch = field(init=False)
    opened: Watch = field(init=False)  # content behind its opener
    prompted: Watch = field(init=False)  # reasoning that the prompt opened
    reasoning: Watch = field(init=False)
    resume: Watch = field(init=False)
    over: Watch = field(init=False)  # whatever ends the body of a message
    header: Watch = field(init=False)
    channels: Channels | None = None
    trails: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        grammar = self.grammar
        self.variants = Variants(self.spelling, self.tolerances, suffix(markers(grammar)))
        for calls in (grammar.calls, *grammar.more):
            if calls is not None:
                self.layouts.append(Layout(calls, grammar.starts, grammar.stops, self.variants))
        self._told_apart()
        self.unopened = [layout for layout in self.layouts if layout.starts_with_name]
        self._channels()
        self._watches()

    def _told_apart(self) -> None:
        """Ways of writing calls that start with the same tag and go on with different ones start with both tags."""
        several = [
            layout for layout in self.layouts if not layout.section and len(layout.openers) > 1
        ]
        seconds: dict[str, set[str]] = {}
        for layout in several:
            seconds.setdefault(layout.openers[0], set()).add(layout.openers[1])
        for layout in several:
            if len(seconds[layout.openers[0]]) > 1:
                layout.openers[:2] = ["".join(layout.openers[:2])]

    def bare(self, char: str) -> int | None:
        """Which layout a call without a marker has that starts with `char`."""
        if char and "bare" in self.tolerances:
            return next((at for at, layout in enumerate(self.layouts) if char in layout.bare), None)
        return None

    def fitting(self, layout: Layout, char: str) -> Layout:
        """Of the layouts that start with the same marker, the one that goes on with `char`; this one if none does."""
        same = [other for other in self.layouts if other.mark and other.mark == layout.mark]
        return next((other for other in (layout, *same) if other.goes_on(char)), layout)

    def nowhere(self) -> Layout:
        """A layout for a grammar without calls, where nothing ever asks for it."""
        return Layout(Calls(JsonCall()), (), (), self.variants)

    # -- headers

    def _channels(self) -> None:
        grammar = self.grammar
        if grammar.reasoning is None or "headers" not in self.tolerances:
            return
        one = unstarted(grammar.reasoning.open.text, grammar.starts).strip()
        other = unstarted(grammar.content.open.text, grammar.starts).strip()
        before, behind = (
            unworded(common(one, other)),
            unworded(common(one[::-1], other[::-1]))[::-1],
        )
        words = [text[len(before) : len(text) - len(behind)] for text in (one, other)]
        if len(behind) < 4 or len(before) < 3 or not all(word.isalnum() for word in words):
            return
        calls = next((layout.openers[0].strip() for layout in self.layouts if layout.openers), "")
        stem = calls[: calls.rfind("=") + 1] if "<" not in calls else ""
        self.channels = Channels(before, behind, words[0], words[1], calls if stem else "", stem)

    # -- watches

    def _watches(self) -> None:
        grammar, on = self.grammar, self.tolerances
        stops = self._stops()
        openers = self._openers()
        regions = [(unstarted(grammar.content.open.text, grammar.starts), "content")]
        closers = self._closers() if "closers" in on else []
        thought: list[tuple[str, str]] = []
        again: list[tuple[str, str]] = []
        if grammar.reasoning is not None:
            again = [(unstarted(grammar.reasoning.open.text, grammar.starts), "reasoning")]
            thought = [(grammar.reasoning.close.text, "unreasoning")]
        starts = [(text, "start") for text in grammar.starts]
        headers = [(self.channels.before, "header")] if self.channels else []
        texts = openers + again + regions + starts + stops + thought + closers + headers
        self.text = self.watch(texts)
        self.opened = self.watch([*texts, (grammar.content.close.text, "end")])
        self.reasoning = self.watch(thought + stops + starts + again)
        early = (
            [pair for pair in openers + regions if tag_like(pair[0])] if "reasoning" in on else []
        )
        self.prompted = self.watch(thought + early + stops + starts + again)
        self.resume = self.watch(starts)
        self.over = self.watch(thought + closers + stops + starts)
        self.header = self.watch(
            [(self.channels.behind, "body"), *stops] if self.channels else stops
        )
        for text, _ in (
            *openers,
            *regions,
            *again,
            *starts,
            *thought,
            *closers,
            (grammar.content.close.text, ""),
        ):
            for form in self.variants.of(text.strip()):
                self.trails.setdefault(form, trail(text))

    def _stops(self) -> list[tuple[str, str]]:
        """The stops; of one that is made of several tags also the last one alone."""
        lead = blank(self.grammar.content.close)
        found = [(lead + text, "stop") for text in self.grammar.stops]
        return found + [
            (pieces(text)[-1], "stop") for text in self.grammar.stops if len(pieces(text)) > 1
        ]

    def _openers(self) -> list[tuple[str, str]]:
        """What calls start with, and the white space that the template writes before the first one."""
        found: list[tuple[str, str]] = []
        for at, layout in enumerate(self.layouts):
            lead = blank(layout.calls.lead) + blank(layout.calls.section.open)
            first = layout.first() + (layout.later() if "call" in self.tolerances else [])
            if self.channels is not None and self.channels.recipient:
                first = [pair for pair in first if pair[0].strip() != self.channels.recipient]
            if "section" not in self.tolerances and layout.section:
                first = first[:1]
            if "bare" not in self.tolerances:
                first = [pair for pair in first if pair[1] != "bare"]
            found += [
                (lead + text, f"{tag.partition(' ')[0]} {at}.{tag.partition(' ')[2] or 0}")
                for text, tag in first
            ]
        return found

    def _closers(self) -> list[tuple[str, str]]:
        texts: list[str] = []
        for layout in self.layouts:
            texts += (*layout.closers, *layout.ends)
        for stop in self.grammar.stops:
            texts += pieces(stop)[:-1]
        content = [(self.grammar.content.close.text, "end")]
        return [
            pair for pair in (*content, *((text, "closer") for text in texts)) if tag_like(pair[0])
        ]

    def watch(self, texts: list[tuple[str, str]]) -> Watch:
        return self.variants.watch(texts)


def lined(pairs: Pairs) -> bool:
    """Whether nothing but the end of its line ends a value."""
    ends = (pairs.between, pairs.string.close, pairs.other.close)
    return not any(marker.core for marker in ends) and all(
        "\n" in region.close.text + pairs.between.text for region in (pairs.string, pairs.other)
    )


def blank(marker: Marker) -> str:
    """A marker that is nothing but white space."""
    return marker.text if not marker.core else ""


def unstarted(text: str, starts: tuple[str, ...]) -> str:
    """A marker without the start of a message before it, which is watched for by itself."""
    for start in starts:
        if start.strip() and text.strip().startswith(start.strip()):
            return text.strip()[len(start.strip()) :] + trail(text)
    return text


def unworded(text: str) -> str:
    """A text without the beginning of a word at its end."""
    while text[-1:].isalnum() or text[-1:] == "_":
        text = text[:-1]
    return text


def common(one: str, other: str) -> str:
    size = 0
    while size < min(len(one), len(other)) and one[size] == other[size]:
        size += 1
    return one[:size]


def keyed(text: str, key: str) -> str:
    """A marker that repeats the key."""
    return text.replace(KEY, key)

"""One way of writing calls, compiled: its markers tag by tag, and matchers for each place in a
call.

    <tool_call>\\n<function=NAME>\\n<parameter=K>\\nV\\n</parameter>\\n</function>\\n</tool_call>
    `--------------------'    `'                                   `------------------------'
          openers           parts: NAME, ">", arguments                    closers

Markers are split where one tag ends and the next begins, so that whitespace between them is
optional and a missing wrapper is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from functools import cached_property, lru_cache, partial
from os.path import commonprefix
from typing import NamedTuple

from turnwise.replies.grammar_parts import KEY, Calls, JsonCall, Marker, Pairs, RawCall, TaggedCall
from turnwise.replies.parser.markers import (
    PUNCTUATION,
    MarkerKind,
    MarkerMatcher,
    MarkerTag,
    MarkerVariants,
    TaggedText,
    cut_last_word,
    is_tag_like,
    remove_start,
    split_tags,
    tag_all,
)
from turnwise.replies.parser.values import ValueParser

# ---- pair format ----
#
# Arguments between tags, compiled: the openers of values, and what ends each value.
#
#     <arg name="city" string="true">Oslo</arg>
#               ^^^^^^^^^^^^^^^^^^^^^^    ^^^^^^
#               key and opener           closer
#
# Openers may differ in a word for the type of the value. Then only the text before that word can be looked for, and
# the word is read up to the text after it.


_MAX_MATCHERS = 64


class ValueKind(Enum):
    """The kind of a value, as the markers around it show."""

    STRING = auto()
    OTHER = auto()
    UNKNOWN = auto()


class ClosingMarker(NamedTuple):
    """A marker of the call that ends a value whose own closer is missing, if one of these texts follows."""

    text: str
    followers: tuple[str, ...]


class PairFormat:
    """Arguments between tags, of one way of writing calls."""

    def __init__(
        self,
        pairs: Pairs,
        key_matcher: MarkerMatcher,
        closing_markers: Sequence[ClosingMarker],
        variants: MarkerVariants,
    ) -> None:
        """Compile the format.

        Args:
            pairs: The format as the grammar describes it.
            key_matcher: Matches what follows an argument: the next key, or the end of the call.
            closing_markers: The markers that end a value whose own closer is missing.
            variants: The spellings of markers.
        """
        self.pairs = pairs
        self.key_matcher = key_matcher
        self.closing_markers = closing_markers
        self.has_nested_values = pairs.echoed or pairs.values == "tags"
        self.separator = pairs.between.core
        self.key_space = pairs.key.trailing_space
        self.opener_space = pairs.string.open.trailing_space
        self.has_text_wrapper = bool(pairs.wrap.open)
        self._variants = variants
        self.value_matcher = lru_cache(maxsize=_MAX_MATCHERS)(self._value_matcher)
        # Openers of values, with the kind of the value; what all of them begin and end with.
        self.kinds = _kinds_by_opener(pairs)
        self.opener_start, self.opener_end = _common_affixes(sorted(self.kinds))
        self.opener_tags = split_tags(self.opener_start) or [self.opener_start]
        # Without the word that names the kind, the end of the opener follows the key: `name="day">`.
        has_short_form = len(self.kinds) > 1 and self.opener_end[:1] == self.opener_start[:1]
        short_forms = [self.opener_end] if has_short_form else []
        self.opener_matcher = self._opener_matcher(self.opener_tags[0], *short_forms)
        self.opener_end_matcher = self._opener_matcher(self.opener_end)

    def _opener_matcher(self, *texts: str) -> MarkerMatcher:
        return self._variants.matcher(
            (text, MarkerTag(MarkerKind.VALUE_OPEN, index=index))
            for index, text in enumerate(texts)
        )

    def _value_matcher(self, key: str) -> MarkerMatcher:
        """Return the matcher of what ends a value, and of markers that no value holds unless its closer is missing."""
        pairs = self.pairs
        regions = (pairs.string, pairs.other, *(region for _, region in pairs.typed))
        texts = dict.fromkeys(region.close.text for region in regions if region.close.core)
        if not texts:
            return self.key_matcher  # values without closers end with the next key
        closers = [text.replace(KEY, key) for text in texts]
        markers = tag_all(closers, MarkerKind.VALUE_CLOSE)
        # Without the closer, the whitespace on both sides of it is left.
        space = pairs.string.close.leading_space + pairs.string.close.trailing_space
        if self.has_nested_values:
            same = pairs.key.core + key + pairs.string.open.core
            markers.append((same, MarkerTag(MarkerKind.SAME_ELEMENT)))
        elif is_tag_like(pairs.key.text):
            markers.append((space + pairs.key.core, MarkerTag(MarkerKind.NEXT_KEY)))
        for index, marker in enumerate(self.closing_markers):
            tag = MarkerTag(MarkerKind.CLOSING_MARKER, index=index)
            markers.append((space + marker.text.strip(), tag))
        return self._variants.matcher(markers)


def _kinds_by_opener(pairs: Pairs) -> dict[str, ValueKind]:
    kinds = {pairs.other.open.core: ValueKind.OTHER}
    kinds.setdefault(pairs.string.open.core, ValueKind.STRING)
    for _, region in pairs.typed:
        kinds.setdefault(region.open.core, ValueKind.OTHER)
    return kinds


def _common_affixes(texts: list[str]) -> tuple[str, str]:
    """Return the common prefix and suffix of all texts, up to whole words; of one text all of it, and ""."""
    if len(texts) < 2:
        return texts[0], ""
    prefix = commonprefix(texts)
    reversed_suffix = commonprefix([text[::-1] for text in texts])
    prefix = cut_last_word(prefix) or prefix
    reversed_suffix = cut_last_word(reversed_suffix) or reversed_suffix
    return prefix, reversed_suffix[::-1]


# ---- call format ----


_PYTHON_CALL = re.compile(r"[^\W\d][\w.]*\(")
REPEATED_SLOT = "echo"  # a slot that occurred before; its text must be the same


class CallPart(NamedTuple):
    """A part of a call: the text of a marker, or a slot (`grammar.SLOTS`)."""

    text: str = ""
    slot: str = ""


def starts_list_of_names(text: str) -> bool:
    """Return whether the first thing in a bracket is a name, as in a list of Python calls."""
    inside = text[1:].lstrip()[:1]
    return text[:1] == "[" and (inside.isalpha() or inside == "_")


class CallFormat:
    """One way of writing calls."""

    def __init__(
        self,
        calls: Calls,
        number: int,
        starts: tuple[str, ...],
        stops: tuple[str, ...],
        variants: MarkerVariants,
    ) -> None:
        """Compile the format.

        Args:
            calls: The format as the grammar describes it.
            number: Its place among the formats of the grammar.
            starts: The starts of messages, which are matched on their own.
            stops: The stops, which end a call too.
            variants: The spellings of markers.
        """
        self.calls = calls
        self.number = number
        self._starts = starts
        self._stops = stops
        self._variants = variants
        self.section_openers = split_tags(remove_start(calls.section.open.text, starts))
        self.section_closers = split_tags(calls.section.close.text)
        self.list_closer = self._split_list_brackets()  # of a list that is part of the section
        self.openers = split_tags(remove_start(calls.each.open.text, starts))
        self.closers = split_tags(calls.each.close.text)
        self.parts: list[CallPart] = []
        self.pairs: Pairs | None = None
        self.members_closer = ""  # the bracket that ends arguments that have no tags
        if isinstance(calls.call, TaggedCall):
            self._compile_parts(calls.call)
        self.bare_starts = self._find_bare_starts()
        self.slot_matcher = lru_cache(maxsize=_MAX_MATCHERS)(self._slot_matcher)

    def _split_list_brackets(self) -> str:
        """Split brackets off the tags around a section: whitespace may be between them, and they may be missing."""
        opener, closer = "".join(self.section_openers[-1:]), "".join(self.section_closers[:1])
        tag, bracket = opener.rstrip()[:-1], opener.rstrip()[-1:]
        if bracket != "[" or not tag.endswith(">") or not closer.lstrip().startswith("]"):
            return ""
        self.section_openers[-1:] = [tag, bracket]
        self.section_closers[:1] = split_tags(closer.lstrip()[1:])
        return "]"

    def _compile_parts(self, call: TaggedCall) -> None:
        parts = list(call.parts)
        while parts and isinstance(first := parts[0], Marker):
            self.openers += split_tags(first.text)
            del parts[0]
        # Markers before the first slot are openers, those after the last slot are closers.
        closers: list[str] = []
        while parts and isinstance(last := parts[-1], Marker):
            closers[:0] = split_tags(last.text)
            del parts[-1]
        self.closers[:0] = closers
        seen: set[str] = set()
        for part in parts:
            if isinstance(part, Marker):
                texts = split_tags(part.text) or [part.text]
                self.parts += [CallPart(text=text) for text in texts]
            else:
                self.parts.append(CallPart(slot=REPEATED_SLOT if part in seen else part))
                seen.add(part)
        self.pairs = call.pairs
        if self.pairs is not None and not self.pairs.key.core and not self.pairs.echoed:
            self.members_closer = self._take_members_closer()

    def _take_members_closer(self) -> str:
        """Take the bracket that ends the arguments off its marker: the parser of values takes it."""
        for texts in (self.closers, self.section_closers):
            for index, text in enumerate(texts):
                bracket = text.strip()[:1]
                if bracket in ("}", ")", "]"):
                    texts[index : index + 1] = split_tags(text.lstrip()[1:])
                    return bracket
        return "}"

    def _find_bare_starts(self) -> str:
        """Return the characters with which a call may start that has no marker."""
        first = self.section_openers[:1]
        has_marker = any(text.strip(PUNCTUATION) for text in first)
        if has_marker or self.openers or isinstance(self.calls.call, RawCall):
            return ""
        if isinstance(self.calls.call, JsonCall):
            return "{["
        return first[0].strip()[:1] if first else "["

    # -- properties

    @cached_property
    def slot_places(self) -> dict[str, int]:
        """The number of the part that each slot is."""
        return {part.slot: number for number, part in enumerate(self.parts) if part.slot}

    @cached_property
    def first_marker(self) -> str:
        """The marker that calls start with."""
        texts = (*self.section_openers, *self.openers)
        return texts[0].strip() if texts else ""

    @cached_property
    def has_open_list(self) -> bool:
        """Whether the bracket of a list of calls is part of the marker before it."""
        call = self.calls.call
        return isinstance(call, JsonCall) and call.listed and not call.around[0]

    @property
    def starts_with_name(self) -> bool:
        """Whether a call starts with its name, followed by a tag, or by a line break and JSON."""
        if self.section_openers or self.openers or len(self.parts) < 2:
            return False
        name, following = self.parts[:2]
        is_marked = is_tag_like(following.text) or (self.pairs is None and "\n" in following.text)
        return name.slot == "name" and not following.slot and is_marked

    @property
    def separators(self) -> list[str]:
        """What may follow a call, however little distinctive: what is between calls, or ends the section.

        What is between calls without openers is left to the parser of rows.
        """
        if not self.openers:
            return []
        texts = (self.calls.between.text, *self.section_closers[:1])
        return [text for text in texts if text.strip()]

    @cached_property
    def separator_spellings(self) -> dict[str, str]:
        """The separators as models spell them, with the text that is meant. Of equal ones the first counts."""
        return {
            form.strip(): text
            for text in reversed(self.separators)
            for form in self._variants.spellings(text)
        }

    @cached_property
    def after_call(self) -> tuple[str, ...]:
        """The separators, and other markers that may follow a call: a longer one goes before a separator."""
        others = (*self._stops, *self._starts, *self.section_openers[:1], *self.openers[:1])
        return (*self.separator_spellings, *(text for text in others if text.strip()))

    @cached_property
    def index_separator(self) -> str:
        """The marker between a name and the index after it: `:` in `functions.NAME:0`."""
        for position in range(len(self.parts) - 2):
            name, marker, index = self.parts[position : position + 3]
            if name.slot == "name" and index.slot == "index":
                return marker.text
        return ""

    @cached_property
    def following_characters(self) -> frozenset[str]:
        """The characters with which the text after a call may start; empty if it may be any."""
        between = self.calls.between
        if not self.openers and not between.core:
            return frozenset()  # another name may follow
        ends = [text for text, _ in self._call_ends()]
        texts = [between.text, self.list_closer, *ends, ",", ";"]
        spellings = [self._variants.spellings(text.strip()) for text in texts if text.strip()]
        return frozenset(forms[0][0] for forms in spellings)

    def continues_with(self, text: str) -> bool:
        """Return whether a call may go on with this text after its first marker."""
        following = [*self.section_openers, *self.openers][1:2]
        if self.list_closer:
            return starts_list_of_names(text) or _PYTHON_CALL.match(text) is not None
        if isinstance(self.calls.call, JsonCall) and not following:
            # In a list there are objects; a call that is closed by itself is in none.
            is_list = text[:1] == "[" and not self.openers and not starts_list_of_names(text)
            return text[:1] == "{" or is_list
        if following:
            marker = following[0].strip()
            return marker.startswith(text[: len(marker)])
        return text[:1] not in ("{", "[", "<")

    # -- markers

    def opening_markers(self) -> list[TaggedText]:
        """Return what a call starts with: the section, or the call without a section."""
        if not self.section_openers and not self.openers and self.bare_starts == "{[":
            return tag_all("{", MarkerKind.BARE_CALL, self.number)
        sections = tag_all(self.section_openers[:1], MarkerKind.SECTION_OPEN, self.number)
        return sections + tag_all(self.openers[:1], MarkerKind.CALL_OPEN, self.number)

    def later_markers(self) -> list[TaggedText]:
        """Return the distinctive later openers of a call, with which it starts if the first is missing."""
        return [
            (text, MarkerTag(MarkerKind.CALL_OPEN, self.number, index))
            for index, text in enumerate(self.openers)
            if index and is_tag_like(text)
        ]

    def _call_ends(self) -> list[TaggedText]:
        closers = [text for text in (*self.closers, *self.section_closers) if text.strip()]
        openers = [*self.section_openers[:1], *self.openers[:1]]
        tag_like = [text for text in openers if is_tag_like(text)]
        return tag_all([*closers, *tag_like, *self._stops], MarkerKind.CALL_END)

    @cached_property
    def end_matcher(self) -> MarkerMatcher:
        """Matches whatever ends a call."""
        return self._variants.matcher(self._call_ends())

    @cached_property
    def closing_markers(self) -> list[ClosingMarker]:
        """The markers that end a value whose own closer is missing.

        A value may also quote them. So each must be followed by what follows it in a reply: the next closer, another
        call, a stop, or the end.
        """
        closers = [*self.closers, *self.section_closers]
        openers = [*self.section_openers[:1], *self.openers[:1]]
        markers: list[ClosingMarker] = []
        for index, text in enumerate(closers):
            followers = (*closers[index + 1 :], *openers, *self._stops)
            markers.append(ClosingMarker(text, tuple(map(str.strip, followers))))
        if len(self.openers) > 1:
            markers.append(ClosingMarker(self.openers[0], (self.openers[1].strip(),)))
        return [marker for marker in markers if is_tag_like(marker.text)]

    @cached_property
    def key_matcher(self) -> MarkerMatcher:
        """Matches what follows an argument: the next key, or the end of the call."""
        assert self.pairs is not None
        key = tag_all([self.pairs.key.text], MarkerKind.KEY_OPEN)
        return self._variants.matcher(key + self._call_ends())

    @cached_property
    def make_member_parser(self) -> partial[ValueParser]:
        """Makes the parser of arguments up to a bracket, given their schema."""
        assert self.pairs is not None
        pairs, detokenizer = self.pairs, self._variants.detokenizer
        # The opener of a string is that of any value and a mark of its own: `:` and `:<|"|>`.
        opening_mark = pairs.string.open.text.removeprefix(pairs.other.open.text).strip()
        closing_mark = pairs.string.close.core
        marks: tuple[str, str] | None = None
        if opening_mark and closing_mark and pairs.strings == "raw":
            mask = detokenizer.mask_specials
            marks = (mask(opening_mark), mask(closing_mark))
        syntax = "quoted" if marks is not None and pairs.values != "python" else pairs.values
        follows: frozenset[str] | None = None
        if syntax == "python" and "quotes" in self._variants.tolerances:
            follows = self.following_characters
        return partial(
            ValueParser,
            syntax,
            marks=marks,
            closer=self.members_closer,
            follows=follows,
            separator=pairs.between.core,
            has_masks=detokenizer.has_masks,
        )

    @cached_property
    def pair_format(self) -> PairFormat:
        """The arguments between tags."""
        assert self.pairs is not None
        return PairFormat(self.pairs, self.key_matcher, self.closing_markers, self._variants)

    def _slot_matcher(self, index: int) -> MarkerMatcher:
        """Return the matcher of what follows the slot `index`: the next marker, or a later one if that is missing."""
        return self._variants.matcher([*self._markers_after(index), *self._call_ends()])

    def _markers_after(self, index: int) -> Iterator[TaggedText]:
        for later in range(index + 1, len(self.parts)):
            part = self.parts[later]
            if part.slot == "arguments":
                tag = MarkerTag(MarkerKind.SLOT, index=later)
                if self.pairs is None:
                    yield "{", tag
                elif not self.members_closer:
                    yield self.pairs.key.text, tag
            elif part.text.strip():
                yield part.text, MarkerTag(MarkerKind.PART, index=later + 1)
                # A bracket after a tag could be part of a name; the brace of JSON cannot.
                if is_tag_like(part.text) and self.pairs is not None:
                    return

"""The texts of markers, their spellings in replies, and how a stream of text is searched for them.

`MarkerMatcher` finds markers, `MarkerVariants` adds the spellings that are tolerated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import lru_cache
from typing import Any, NamedTuple

from turnwise.replies.grammar_parts import Marker
from turnwise.replies.parser.detokenizer import IncrementalDetokenizer

# ---- marker text ----
#
# Helpers for the texts of markers: where to split them, which are distinctive, which whitespace is
# theirs.
#
# The regular expressions here run over markers, which are short, and never over a reply.


# Where one tag ends and the next begins: `<tool_call>\n|<function=`, `[A]|[B]`, `<|sep|>|name`, ```` ```|<end> ````.
_TAG_BOUNDARY = re.compile(
    r"(?<=>)(?=\s*<)|(?<=\])(?=\s*\[[A-Z/])|(?<=>)(?=[\w.:]+$)|(?<=```)(?=\s*<)"
)
# The word after a tag that says what it opens, at the end of a marker or before another tag: `<|channel>thought`.
LABEL = re.compile(r"(?<=[>\]])\w+(?=$|[<\[])")
PUNCTUATION = "{}[]()\",:' \n\t"  # what a distinctive marker is not made of
_MIN_TAG_LENGTH = 3


def split_tags(text: str) -> list[str]:
    """Split a marker into its tags, with the whitespace before each tag."""
    return [tag for tag in _TAG_BOUNDARY.split(text) if tag.strip()]


def is_tag_like(text: str) -> bool:
    """Return whether a marker is so distinctive that it can be matched anywhere in a text."""
    core = text.strip()
    if len(core.strip(PUNCTUATION)) < _MIN_TAG_LENGTH:
        return False
    return any(sign in core for sign in "<>|[]")


def trailing_space(text: str) -> str:
    """Return the whitespace at the end of a marker; all of a marker that is only whitespace."""
    return text[len(text.rstrip()) :] if text.strip() else text


def whitespace_only(marker: Marker) -> str:
    """Return the text of a marker that is only whitespace, and "" for any other marker."""
    return "" if marker.core else marker.text


def remove_start(text: str, starts: tuple[str, ...]) -> str:
    """Remove the start of a message from a marker: starts are matched on their own."""
    core = text.strip()
    for start in map(str.strip, starts):
        if start and core.startswith(start):
            return core[len(start) :] + trailing_space(text)
    return text


def cut_last_word(text: str) -> str:
    """Return `text` without the word, or the part of one, at its end."""
    while text[-1:].isalnum() or text[-1:] == "_":
        text = text[:-1]
    return text


def collect_texts(part: Any) -> list[str]:
    """Return all texts in a grammar, or in a part of one, in the order of its fields."""
    if isinstance(part, str):
        return [part]
    if isinstance(part, tuple):
        members = part
    else:
        names = getattr(part, "__dataclass_fields__", ())
        members = tuple(getattr(part, name) for name in names)
    return [text for member in members for text in collect_texts(member)]


# ---- matcher ----
#
# Find markers in a stream of text.
#
# A `MarkerMatcher` looks for a set of literal markers, each with a tag. For a buffer it answers two
# questions:
#
# * which complete marker comes first?
# * which suffix of the buffer must be held back, because it is a prefix of some marker?
#
# Whitespace before a marker belongs to it, as much of it as is there: `\n</think>` is matched as
# `\n</think>` and as `</think>`. The markers are literals, so the regular expression never
# backtracks. The suffix is found in the set of all proper prefixes of the markers, with at most as
# many lookups as the longest marker has characters.


_CACHE_SIZE = 512


class MarkerKind(IntEnum):
    """What a marker does where it is matched."""

    # Between and around the regions of a reply.
    REASONING_OPEN = auto()
    REASONING_CLOSE = auto()
    CONTENT_OPEN = auto()
    CONTENT_CLOSE = auto()
    MESSAGE_START = auto()  # another message of the same reply: `<|start|>assistant`
    CHANNEL_HEADER = auto()  # the beginning of a channel header: `<|channel|>`
    CHANNEL_HEADER_END = auto()
    STOP = auto()
    SPECIAL = auto()  # a special token that no marker has
    # Around calls.
    SECTION_OPEN = auto()
    CALL_OPEN = auto()  # `MarkerTag.index`: which of the call's openers it is
    BARE_CALL = auto()  # the brace of a JSON call that has no opener
    CALL_CLOSE = auto()  # a closer of a call or section that is seen where no call is open
    CALL_END = auto()  # whatever ends the call that is open
    # Within a call.
    PART = auto()  # a part of the call; `MarkerTag.index` is the part after it
    SLOT = auto()  # the beginning of the slot `MarkerTag.index`
    KEY_OPEN = auto()
    VALUE_OPEN = auto()
    VALUE_CLOSE = auto()
    SAME_ELEMENT = auto()  # an element with the same name as the value that is open
    NEXT_KEY = auto()  # within a value: the next argument, if the closer of the value is missing
    CLOSING_MARKER = auto()  # or the end of the call; `MarkerTag.index`: which of `closing_markers`


@dataclass(frozen=True, slots=True)
class MarkerTag:
    """The meaning of a marker: its kind, and for markers of calls which call format and which part of it."""

    kind: MarkerKind
    format: int = 0
    index: int = 0


class MarkerMatch(NamedTuple):
    """A complete marker in a buffer."""

    tag: MarkerTag
    start: int
    end: int


TaggedText = tuple[str, MarkerTag]


def tag_all(texts: Iterable[str], kind: MarkerKind, format: int = 0) -> list[TaggedText]:
    """Return texts as markers of one kind."""
    return [(text, MarkerTag(kind, format)) for text in texts]


class MarkerMatcher:
    """Literal markers that are matched together. Of equal markers the first one's tag counts."""

    __slots__ = ("_longest", "_pattern", "_shortest", "first_characters", "prefixes", "tags")

    def __init__(self, markers: Iterable[TaggedText]) -> None:
        self.tags: dict[str, MarkerTag] = {}
        for text, tag in markers:
            for form in _with_leading_space(text):
                self.tags.setdefault(form, tag)
        # The longest alternative comes first: a regular expression takes the first that matches.
        literals = sorted(self.tags, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, literals)) or r"(?!)")
        self.prefixes = frozenset(
            literal[:size] for literal in literals for size in range(1, len(literal))
        )
        self.first_characters = frozenset(literal[0] for literal in literals)
        self._longest = len(literals[0]) if literals else 0
        self._shortest = len(literals[-1]) if literals else 0

    def partial_match_start(self, text: str, start: int, end: int | None = None) -> int:
        """Return where the longest suffix of `text` starts that is a prefix of some marker, or its length.

        With `end`, suffixes that start after it do not count.
        """
        size = len(text)
        start = max(start, size - self._longest + 1)
        for position in range(start, size if end is None else end):
            if text[position] in self.first_characters and text[position:] in self.prefixes:
                return position
        return size

    def find(
        self, text: str, start: int, ended: bool, limit: int | None = None
    ) -> tuple[MarkerMatch | None, int]:
        """Return the first complete marker, if it can be decided, and up to where the text can be emitted.

        Args:
            text: The buffer.
            start: Where to start in it.
            ended: No more text follows.
            limit: Only markers that start within so many characters are matched.
        """
        if len(text) - start < self._shortest and not ended:
            return None, self.partial_match_start(text, start)
        end = len(text) if limit is None else start + limit + self._longest
        match = self._pattern.search(text, start, end)
        if match is None:
            return None, len(text) if ended else self.partial_match_start(text, start)
        if not ended:
            # An earlier or a longer marker may still be completed by the next chunk.
            partial = self.partial_match_start(text, start, match.start() + 1)
            if partial <= match.start():
                return None, partial
        tag = self.tags[match.group()]
        return MarkerMatch(tag, match.start(), match.end()), match.start()


class ExpectedMarkers(NamedTuple):
    """Literal markers of which one may come next, without the whitespace at their edges."""

    pattern: re.Pattern[str]
    prefixes: frozenset[str]
    longest: int


def _with_leading_space(text: str) -> Iterator[str]:
    """Yield a marker with all, some and none of the whitespace before it; whitespace alone as it is."""
    core = text.strip()
    if not core:
        if text:
            yield text
        return
    lead = text[: len(text) - len(text.lstrip())]
    for size in range(len(lead) + 1):
        yield lead[size:] + core


matcher_for = lru_cache(maxsize=_CACHE_SIZE)(MarkerMatcher)
"""Returns the matcher of a tuple of markers, built once."""


@lru_cache(maxsize=_CACHE_SIZE)
def expect(markers: tuple[str, ...]) -> ExpectedMarkers:
    """Return these markers as those that may come next, compiled once."""
    cores = sorted((marker.strip() for marker in markers), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, cores)))
    prefixes = frozenset(core[:size] for core in cores for size in range(len(core)))
    return ExpectedMarkers(pattern, prefixes, len(cores[0]))


# ---- variants ----
#
# Markers as models write them: the template's own text, and slips that are tolerated.
#
#     blanks      a blank within a tag is missing, or is the sign by which a tokenizer shows it:
#                 `<function name="` as `<functionname="`, `<functionĠname="`; or there are blanks too many:
#                 `<|open|>think<|sep|>` as `<|open|> think <|sep|>`
#     attributes  a name within a tag has other quotes, or none: `<invoke name="f">` as `<invoke name='f'>`
#     suffixes    all tags of a grammar end with the same word after a colon, which names an edition of the model and
#                 not the tag: `<think:open>` as `<think>`
#
# A slip is a literal like the marker itself, so it is matched in the same way. Where markers are
# control tokens there are no slips within them: a variant must consist of the same tokens.


_BYTE_LEVEL_BLANK = "Ġ"  # how byte-level vocabularies show a blank
_MIN_TAGS = 3  # with one suffix, so that it counts as the suffix of a grammar

# Used on markers only, never on a reply.
_BLANK = re.compile(r"(?<=\w) (?=\w)")
_WORD_BETWEEN_TAGS = re.compile(r"(?<=>)(\w+)(?=<)")
_TAG = re.compile(r"</?[\w:]+(?=[\s>])")
_TAG_WITH_SUFFIX = re.compile(r"</?\w+(:\w+)(?=[\s>])")

_BLANK_SLIPS: tuple[Callable[[str], str], ...] = (
    lambda text: _BLANK.sub("", text),
    lambda text: _BLANK.sub(_BYTE_LEVEL_BLANK, text),
    lambda text: _WORD_BETWEEN_TAGS.sub(r" \1 ", text),
)
# The quote after `name=`, or before the end of the tag.
_ATTRIBUTE_QUOTE = re.compile(r'(?<=\w=)"$|^"(?=>)')
# Before a call there is text, which may mention `<invoke name=`; within a call there is none.
_AFTER_TEXT = (MarkerKind.SECTION_OPEN, MarkerKind.CALL_OPEN)
_ATTRIBUTE_SLIPS: tuple[Callable[[str], str], ...] = (
    lambda text: _ATTRIBUTE_QUOTE.sub("'", text),
    lambda text: _ATTRIBUTE_QUOTE.sub("", text),
)


def common_tag_suffix(texts: Iterable[str]) -> str:
    """Return the word after a colon with which all tags in these texts end, or ""."""
    tags: set[str] = set()
    tags_by_suffix: dict[str, set[str]] = {}
    for text in texts:
        tags.update(_TAG.findall(text))
        for match in _TAG_WITH_SUFFIX.finditer(text):
            tags_by_suffix.setdefault(match.group(1), set()).add(match.group())
    if len(tags_by_suffix) != 1 or len(tags) < _MIN_TAGS:
        return ""
    suffix, tags_with_suffix = tags_by_suffix.popitem()
    return suffix if tags_with_suffix == tags else ""


class MarkerVariants:
    """The spellings of one grammar's markers, and matchers that know them."""

    def __init__(
        self, detokenizer: IncrementalDetokenizer, tolerances: frozenset[str], suffix: str
    ) -> None:
        self.detokenizer = detokenizer
        self.tolerances = tolerances
        self._attribute_slips = _ATTRIBUTE_SLIPS if "attributes" in tolerances else ()
        self._slips: list[Callable[[str], str]] = [*self._attribute_slips]
        if "blanks" in tolerances:
            self._slips += _BLANK_SLIPS
        if suffix and "suffixes" in tolerances:
            self._slips.append(lambda text: text.replace(suffix, ""))
        self.spellings = lru_cache(maxsize=_CACHE_SIZE)(self._spellings)

    def _spellings(self, text: str) -> tuple[str, ...]:
        mask = self.detokenizer.mask_specials
        meant = mask(text)
        slips = self._slips if "<" in text else self._attribute_slips
        variants = [mask(slip(text)) for slip in slips]
        tokens = self._masks_in(meant)
        same = [variant for variant in variants if self._masks_in(variant) == tokens]
        return tuple(dict.fromkeys([meant, *same]))

    def _masks_in(self, text: str) -> list[str]:
        return [char for char in text if self.detokenizer.is_mask(char)]

    def matcher(self, markers: Iterable[TaggedText]) -> MarkerMatcher:
        """Return a matcher for these markers and their variants. Markers of only whitespace are left out."""
        visible = [(text, tag) for text, tag in markers if text.strip()]
        # The template's own spelling of any marker goes before a variant of another one.
        meant = [(self.detokenizer.mask_specials(text), tag) for text, tag in visible]
        variants = [
            (form, tag)
            for text, tag in visible
            for form in self.spellings(text)[1:]
            if not (form.endswith("=") and tag.kind in _AFTER_TEXT)
        ]
        return matcher_for((*meant, *variants))

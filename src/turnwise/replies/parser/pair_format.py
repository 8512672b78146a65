"""Arguments between tags, compiled: the openers of values, and what ends each value.

    <arg name="city" string="true">Oslo</arg>
              ^^^^^^^^^^^^^^^^^^^^^^    ^^^^^^
              key and opener           closer

Openers may differ in a word that says what the value is. Then only the text before that word can be looked for, and
the word is read up to the text after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from os.path import commonprefix
from typing import NamedTuple

from turnwise.replies.grammar_parts import KEY, Pairs
from turnwise.replies.parser.marker_text import cut_last_word, is_tag_like, split_tags
from turnwise.replies.parser.matcher import MarkerKind, MarkerMatcher, MarkerTag, TaggedText
from turnwise.replies.parser.variants import MarkerVariants

_MAX_MATCHERS = 64


class ValueKind(Enum):
    """What the markers around a value say of it."""

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
        self._value_matchers: dict[str, MarkerMatcher] = {}  # by key
        # Openers of values, with what they say of the value; what all of them begin and end with.
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

    def value_matcher(self, key: str) -> MarkerMatcher:
        """Return the matcher of what ends the value of a key, built once."""
        matcher = self._value_matchers.get(key)
        if matcher is None:
            if len(self._value_matchers) >= _MAX_MATCHERS:
                self._value_matchers.clear()
            matcher = self._value_matchers[key] = self._build_value_matcher(key)
        return matcher

    def _build_value_matcher(self, key: str) -> MarkerMatcher:
        """Return the matcher of what ends a value, and of markers that no value holds unless its closer is missing."""
        pairs = self.pairs
        regions = (pairs.string, pairs.other, *(region for _, region in pairs.typed))
        texts = dict.fromkeys(region.close.text for region in regions if region.close.core)
        if not texts:
            return self.key_matcher  # values without closers end with the next key
        close = MarkerTag(MarkerKind.VALUE_CLOSE)
        markers: list[TaggedText] = [(text.replace(KEY, key), close) for text in texts]
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
    """Return the openers of values with what they say of the value."""
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

"""Markers as models write them: the template's own text, and slips that are tolerated.

    blanks      a blank within a tag is missing, or is the sign by which a tokenizer shows it:
                `<function name="` as `<functionname="`, `<functionĠname="`; or there are blanks too many:
                `<|open|>think<|sep|>` as `<|open|> think <|sep|>`
    attributes  a name within a tag has other quotes, or none: `<invoke name="f">` as `<invoke name='f'>`
    suffixes    all tags of a grammar end with the same word after a colon, which names an edition of the model and
                not the tag: `<think:open>` as `<think>`

A slip is a literal like the marker itself, so it is matched in the same way. Where markers are
control tokens there are no slips within them: a variant must consist of the same tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from turnwise.replies.parser.detokenizer import NO_TOKENIZER, IncrementalDetokenizer
from turnwise.replies.parser.matcher import MarkerKind, MarkerMatcher, TaggedText, matcher_for

_CACHE_SIZE = 512
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
        self,
        detokenizer: IncrementalDetokenizer = NO_TOKENIZER,
        tolerances: frozenset[str] = frozenset(),
        suffix: str = "",
    ) -> None:
        self._detokenizer = detokenizer
        self._attribute_slips = _ATTRIBUTE_SLIPS if "attributes" in tolerances else ()
        self._slips: list[Callable[[str], str]] = [*self._attribute_slips]
        if "blanks" in tolerances:
            self._slips += _BLANK_SLIPS
        if suffix and "suffixes" in tolerances:
            self._slips.append(lambda text: text.replace(suffix, ""))
        self.spellings = lru_cache(maxsize=_CACHE_SIZE)(self._spellings)

    def _spellings(self, text: str) -> tuple[str, ...]:
        """Return a marker as it is masked in the stream, and its variants."""
        mask = self._detokenizer.mask_specials
        meant = mask(text)
        slips = self._slips if "<" in text else self._attribute_slips
        variants = [mask(slip(text)) for slip in slips]
        tokens = self._masks_in(meant)
        same = [variant for variant in variants if self._masks_in(variant) == tokens]
        return tuple(dict.fromkeys([meant, *same]))

    def _masks_in(self, text: str) -> list[str]:
        return [char for char in text if self._detokenizer.is_mask(char)]

    def matcher(self, markers: Iterable[TaggedText]) -> MarkerMatcher:
        """Return a matcher for these markers and their variants. Markers of only whitespace are left out."""
        visible = [(text, tag) for text, tag in markers if text.strip()]
        # The template's own spelling of any marker goes before a variant of another one.
        meant = [(self._detokenizer.mask_specials(text), tag) for text, tag in visible]
        variants = [
            (form, tag)
            for text, tag in visible
            for form in self.spellings(text)[1:]
            if not (form.endswith("=") and tag.kind in _AFTER_TEXT)
        ]
        return matcher_for((*meant, *variants))

"""Markers as models write them: the template's own text, and the slips that are forgiven.

    blanks      a blank within a tag is left out, or is the sign by which a tokenizer shows it:
                `<function name="` as `<functionname="`, `<functionĠname="`; or there are more of them than due:
                `<|open|>think<|sep|>` as `<|open|> think <|sep|>`
    suffixes    all tags of a grammar end with the same word behind a colon, which names an edition of the model and not
                the tag: `<think:open>` as `<think>`

A slip is a literal text like the marker itself, so it is watched for in the same way. Where markers are control tokens
there are no slips within them: a variant must be made of the same tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from turnwise.replies.parser.detokenizer import PLAIN, Spelling
from turnwise.replies.parser.matcher import Watch, watching

SHOWN = "Ġ"  # how byte-level vocabularies show a blank
TAGS = 3  # with the same suffix, so that it is one

# On markers only, never on a reply.
BLANK = re.compile(r"(?<=\w) (?=\w)")
WORD = re.compile(r"(?<=>)(\w+)(?=<)")
SUFFIXED = re.compile(r"</?\w+(:\w+)(?=[\s>])")
TAG = re.compile(r"</?[\w:]+(?=[\s>])")

BLANKS: tuple[Callable[[str], str], ...] = (
    lambda text: BLANK.sub("", text),
    lambda text: BLANK.sub(SHOWN, text),
    lambda text: WORD.sub(r" \1 ", text),
)


def suffix(texts: Iterable[str]) -> str:
    """The word behind a colon with which all tags end; empty if there is none."""
    every, found = set[str](), dict[str, set[str]]()
    for text in texts:
        every.update(TAG.findall(text))
        for match in SUFFIXED.finditer(text):
            found.setdefault(match.group(1), set()).add(match.group())
    if len(found) != 1:
        return ""
    word, tags = found.popitem()
    return word if len(tags) >= TAGS and tags == every else ""


class Variants:
    """How the markers of one grammar may be written."""

    def __init__(
        self, spelling: Spelling = PLAIN, forgiven: frozenset[str] = frozenset(), suffix: str = ""
    ) -> None:
        self.spelling = spelling
        self.blanks = "blanks" in forgiven
        self.suffix = suffix if "suffixes" in forgiven else ""
        self.of = lru_cache(maxsize=512)(self._of)

    def _of(self, text: str) -> tuple[str, ...]:
        """A marker as it is spelled, and its variants."""
        return tuple(dict.fromkeys(self._written(text)))

    def _written(self, text: str) -> Iterator[str]:
        meant = self.spelling.spell(text)
        yield meant
        if "<" not in text:
            return
        for changed in (*(change(text) for change in BLANKS if self.blanks), self.unsuffixed(text)):
            written = self.spelling.spell(changed)
            if self.tokens(written) == self.tokens(meant):
                yield written

    def unsuffixed(self, text: str) -> str:
        return text.replace(self.suffix, "") if self.suffix else text

    def tokens(self, text: str) -> list[str]:
        return [char for char in text if ord(char) in self.spelling.full]

    def watch(
        self, texts: Iterable[tuple[str, str]], blanks: Iterable[tuple[str, str]] = ()
    ) -> Watch:
        """All of these texts, each with its name, and their variants; white space only where it is asked for."""
        pairs = [(text, tag) for text, tag in texts if text.strip()]
        meant = [(self.spelling.spell(text), tag) for text, tag in pairs]
        return watching(
            (*meant, *((form, tag) for text, tag in pairs for form in self.of(text)[1:]), *blanks)
        )

"""The markers that a template writes, and whether a tokenizer has them.

A marker is meant to be one token: only then can it not be confused with text, and only then was it trained as what it
means. Read off probe renderings (`asked.py`): whatever of the template's own text looks like a control token. Those
that stand around plain messages are *turn markers*. One that the tokenizer splits, or does not know at all, is
*missing*, with two exceptions that are text by design: markers in square brackets (`[INST]`), and tags that do not
begin or end a turn (`<tools>`).

Also found here: a bos token that the template writes twice, and turns that nothing ends.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from turnwise.analysis.asked import USER, Answer
from turnwise.analysis.stops import BRACKETED, CERTAIN, MARKER, Ends, id_of, named_ends
from turnwise.engine.provenance.rendering import Rendering
from turnwise.tokens.tokenizers.protocol import Tokenizer

REMEDY = (
    "Add them to the tokenizer as special tokens and resize the model's embeddings: the new rows are untrained, so the "
    "model must be trained with them before it understands them. Or choose the template that the model was trained "
    "with, or one whose markers are ordinary words (`default` for base models)."
)
ORDINARY = re.compile(r"</?[A-Za-z][A-Za-z-]*>")  # as in XML and HTML
UNENDED = {
    True: "the template ends replies with eos_token, and the tokenizer has none: a model does not learn to stop. Pass "
    "eos_token=...",
    False: "the template writes nothing behind a reply: a model does not learn to stop. Let it write eos_token there.",
}


class Marker(NamedTuple):
    """A marker and the ids that the tokenizer makes of it."""

    text: str
    ids: tuple[int, ...]
    turn: bool = False  # stands around plain messages
    stop: bool = False  # ends replies
    missing: bool = False  # should be one token, and is not

    def __str__(self) -> str:
        if not self.missing:
            return f"{self.text} {' '.join(map(str, self.ids))}"
        return f"{self.text} ({f'{len(self.ids)} tokens' if len(self.ids) != 1 else 'unknown'})"


class Markers(tuple[Marker, ...]):
    """The markers of a template under one tokenizer; `problems` are sentences, empty if there is nothing to say."""

    problems: tuple[str, ...]
    remedy = REMEDY

    def __new__(cls, found: Iterable[Marker] = (), problems: Iterable[str] = ()) -> Markers:
        made = super().__new__(cls, found)
        made.problems = tuple(problems)
        return made

    @property
    def missing(self) -> tuple[Marker, ...]:
        """Those that the tokenizer splits or does not know: add them to it."""
        return tuple(marker for marker in self if marker.missing)

    @property
    def ordinary(self) -> tuple[Marker, ...]:
        """Those around messages that people write in their texts, too, such as `<message>`: a poor choice."""
        return tuple(marker for marker in self if marker.turn and ORDINARY.fullmatch(marker.text))


def markers(ends: Ends, tokenizer: Tokenizer, declared: Iterable[str] = ()) -> Markers:
    """Every marker that the template writes, in the order in which they first come up."""
    plain = plain_answers(ends)
    turning = turn_markers(ends, plain)
    stops = dict.fromkeys((*ends.texts, *declared))
    seen = [text for answer in (*plain, *ends.calls) for text in written(answer.rendering)]
    found = [
        marker(text, tokenizer, text in turning, text in stops) for text in unique((*seen, *stops))
    ]
    return Markers(found, problems(ends, tokenizer))


def problems(ends: Ends, tokenizer: Tokenizer) -> Iterator[str]:
    """What goes wrong with this template and this tokenizer in plain conversations."""
    plain = plain_answers(ends)
    found = [marker(text, tokenizer, True) for text in unique(turn_markers(ends, plain))]
    missing = ", ".join(str(marker) for marker in found if marker.missing)
    if missing:
        yield f"{tokenizer.name} lacks the markers of the turns: {missing}. {REMEDY}"
    bos = tokenizer.named.get("bos_token")
    if bos and any(answer.rendering.text.startswith(bos + bos) for answer in plain):
        yield (
            f"the template writes {bos} twice at the start: once by itself, once as bos_token. Pass bos_token='', or "
            "take one of the two out of the template."
        )
    if ends.rounds and not named_ends(ends.plain):
        yield UNENDED[bool(ends.plain)]


def plain_answers(ends: Ends) -> list[Answer]:
    opened = ends.asking.answer([USER], add_generation_prompt=True)
    return [*ends.rounds, *([opened] if opened else [])]


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    return named_ends(dict.fromkeys(filter(None, texts)))


def marker(text: str, tokenizer: Tokenizer, turn: bool, stop: bool = False) -> Marker:
    one = id_of(text, tokenizer)
    unknown = tokenizer.id(tokenizer.named.get("unk_token", ""))
    ids = (one,) if one is not None else tuple(tokenizer.whole(text))
    expected = CERTAIN.fullmatch(text) or (
        turn and MARKER.fullmatch(text) and not BRACKETED.fullmatch(text)
    )
    return Marker(text, ids, turn, stop, bool(expected) and (one is None or one == unknown))


def written(rendering: Rendering) -> Iterator[str]:
    """The markers that the template itself wrote; a special token that it was given is its own word."""
    pieces = rendering.pieces
    starts = list(accumulate((len(piece.text) for piece in pieces), initial=0))
    for match in MARKER.finditer(rendering.text):
        first, last = (bisect_right(starts, at) - 1 for at in (match.start(), match.end() - 1))
        if not any(outside(piece.origin.path) for piece in pieces[first : last + 1]):
            yield match.group()


def outside(path: tuple[str | int, ...] | None) -> bool:
    """Whether somebody other than the template said the text at this path: roles and special tokens are its words."""
    return path is not None and not (path[-1] == "role" or str(path[0]).endswith("_token"))


def turn_markers(ends: Ends, plain: list[Answer]) -> dict[str, None]:
    """The markers that begin turns, those that end them, and whatever else cannot be anything but a marker."""
    found: list[str] = []
    for answer in plain:
        begun = [MARKER.match(answer.turn(index).lstrip()) for index in range(len(answer.messages))]
        found += [match.group() for match in begun if match]
        found += [text for text in written(answer.rendering) if CERTAIN.fullmatch(text)]
    return dict.fromkeys((*found, *ends.plain))

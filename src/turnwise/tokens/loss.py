"""What a model is trained on: one policy, a table of them, and how much each message counts.

A policy names characters; tokens follow from them. The default trains what the model itself must write: each
assistant turn from the end of its opening to its stop token, nothing else, not the line break behind the stop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.errors import MessageError, did_you_mean
from turnwise.messages import REASONING_KEYS
from turnwise.tokens.boundaries import Turn

IGNORED = -100
MARKS = re.compile(r"\{%[-+]?\s*generation\b")

Span = tuple[int, int, float]  # characters and what they weigh
Weigh = Callable[[int], float]


def whole_turns(rendering: Rendering, turns: Sequence[Turn], weigh: Weigh) -> list[Span]:
    """Every assistant turn, its stop token included."""
    return [(turn.start, turn.end, weigh(turn.message)) for turn in turns]


def last_turn(rendering: Rendering, turns: Sequence[Turn], weigh: Weigh) -> list[Span]:
    """The last assistant turn."""
    return whole_turns(rendering, turns[-1:], weigh)


def content_words(rendering: Rendering, turns: Sequence[Turn], weigh: Weigh) -> list[Span]:
    """What assistants say, without reasoning, calls and markers; and the end of each turn."""
    ends = [(turn.stop, turn.end, weigh(turn.message)) for turn in turns]
    return spoken(rendering, turns, weigh, ("content",)) + ends


def reasoning_words(rendering: Rendering, turns: Sequence[Turn], weigh: Weigh) -> list[Span]:
    """What assistants think, without the markers around it."""
    return spoken(rendering, turns, weigh, REASONING_KEYS)


def marked(rendering: Rendering, turns: Sequence[Turn], weigh: Weigh) -> list[Span]:
    """What stands in `{% generation %}` blocks."""
    return weighed(rendering, weigh, lambda origin: origin.generation)


def everything(rendering: Rendering, turns: Sequence[Turn], weigh: Weigh) -> list[Span]:
    """Every character."""
    return weighed(rendering, weigh, lambda origin: True)


POLICIES: Mapping[str, Callable[[Rendering, Sequence[Turn], Weigh], list[Span]]] = {
    "assistant": whole_turns,
    "last": last_turn,
    "content": content_words,
    "reasoning": reasoning_words,
    "marked": marked,
    "all": everything,
}


def spans(
    train_on: str | Callable[[Origin], bool],
    rendering: Rendering,
    turns: Sequence[Turn],
    weights: Sequence[float],
    within: bool = False,
) -> list[Span]:
    """The trained characters in order, without those that weigh nothing; `within`: only those of these turns."""
    weigh = weights.__getitem__
    if isinstance(train_on, str):
        found = POLICIES[train_on](rendering, turns, weigh)
    else:
        found = weighed(rendering, weigh, train_on)
    if within and train_on not in ("assistant", "last"):
        found = [
            (max(start, turn.start), min(end, turn.end), weight)
            for start, end, weight in found
            for turn in turns
        ]
    return sorted(span for span in found if span[0] < span[1] and span[2])


def checked(train_on: Any, template: str) -> Any:
    """The policy, if there is one of this name, and the template has what it needs."""
    if train_on == "marked" and not MARKS.search(template):
        needs = 'train_on="assistant" needs none'
        raise MessageError(
            "the template has no {% generation %} blocks to train on", path="train_on", hint=needs
        )
    if callable(train_on) or (isinstance(train_on, str) and train_on in POLICIES):
        return train_on
    hint = did_you_mean(str(train_on), POLICIES, "Policies")
    raise MessageError(f"there is no loss policy {train_on!r}", path="train_on", hint=hint)


def weight_of(messages: Sequence[Any], index: int) -> float:
    """The `weight` of a message; 1 if it has none."""
    weight = messages[index].get("weight") if index < len(messages) else None
    if weight is None:
        return 1.0
    if (
        isinstance(weight, bool)
        or not isinstance(weight, (int, float))
        or not 0 <= weight < float("inf")
    ):
        raise MessageError(
            f"a weight is a number from 0 up, not {weight!r}", path=f"messages[{index}].weight"
        )
    return float(weight)


def weighed(rendering: Rendering, weigh: Weigh, where: Callable[[Origin], bool]) -> list[Span]:
    found, at = [], 0
    for piece in rendering.pieces:
        end = at + len(piece.text)
        if where(piece.origin):
            found.append(
                (at, end, 1.0 if piece.origin.message is None else weigh(piece.origin.message))
            )
        at = end
    return found


def spoken(
    rendering: Rendering, turns: Sequence[Turn], weigh: Weigh, fields: Sequence[str]
) -> list[Span]:
    speaking = {turn.message: turn for turn in turns}
    found, at = [], 0
    for piece in rendering.pieces:
        end, path = at + len(piece.text), piece.origin.path
        if (
            path
            and path[0] == "messages"
            and len(path) > 2
            and path[1] in speaking
            and path[2] in fields
        ):
            turn = speaking[path[1]]
            if turn.start <= at and end <= turn.end:
                found.append((at, end, weigh(turn.message)))
        at = end
    return found

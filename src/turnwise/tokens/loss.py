"""Which characters of a conversation are trained, and with which weight.

A policy selects spans of characters; the tokens follow from them (`encoded.py`). The default policy trains what the
model itself must generate: each assistant turn from the end of its generation prompt to its stop token inclusive, and
not the line break after the stop. `weight` in a message scales all of its spans; 0 leaves the message out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.errors import MessageError
from turnwise.messages import REASONING_KEYS
from turnwise.schema import check_name
from turnwise.tokens.boundaries import Turn

IGNORED = -100  # the label of a token that is not trained
GENERATION_TAG = re.compile(r"\{%[-+]?\s*generation\b")

Weights = Sequence[float]  # of the messages, by index
LossPolicy = Literal["assistant", "last", "content", "reasoning", "marked", "all"]
# The name of a policy, or the caller's own choice of pieces.
TrainOn = LossPolicy | Callable[[Origin], bool]


class TrainedSpan(NamedTuple):
    """Characters that are trained, and how much they count."""

    start: int
    end: int
    weight: float


TrainedSpans = list[TrainedSpan]


def train_nothing(origin: Origin) -> bool:
    """A policy for ids without labels."""
    return False


POLICIES = get_args(LossPolicy)
# Those that train fields of assistant turns: which ones.
FIELDS: Mapping[str, Sequence[str]] = {"content": ("content",), "reasoning": REASONING_KEYS}
# Those that train pieces, whoever wrote them: the text in `{% generation %}` blocks, or every character.
PIECES: Mapping[str, Callable[[Origin], bool]] = {
    "marked": lambda origin: origin.generation,
    "all": lambda origin: True,
}


def select_trained(
    train_on: TrainOn,
    rendering: Rendering,
    turns: Sequence[Turn],
    weights: Weights,
    only_turns: bool,
) -> TrainedSpans:
    """Return the trained spans in order, without those of weight 0; with `only_turns`, only text of these turns."""
    is_trained = PIECES.get(train_on) if isinstance(train_on, str) else train_on
    if is_trained is None:
        spans = _select_in_turns(str(train_on), rendering, turns, weights)
    else:
        spans = _select_pieces(rendering, weights, is_trained)
    if only_turns and train_on not in ("assistant", "last"):
        spans = [
            TrainedSpan(max(span.start, turn.start), min(span.end, turn.end), span.weight)
            for span in spans
            for turn in turns
        ]
    return sorted(span for span in spans if span.start < span.end and span.weight)


def _select_in_turns(
    policy: str, rendering: Rendering, turns: Sequence[Turn], weights: Weights
) -> TrainedSpans:
    """Select assistant turns with their stop tokens: whole ones, or their fields without the markers around these."""
    if policy == "last":
        turns = [turn for turn in turns if turn.message == turns[-1].message]
    if policy not in FIELDS:
        return [TrainedSpan(turn.start, turn.end, weights[turn.message]) for turn in turns]
    spans = _select_fields(rendering, turns, weights, FIELDS[policy])
    if policy in STOP_POLICIES:
        spans += [TrainedSpan(turn.stop, turn.end, weights[turn.message]) for turn in turns]
    return spans


# The policies that train stops, and which fields of a reply each of them is meant to train.
STOP_POLICIES = ("assistant", "last", "content")
TRAINED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "assistant": ("content", "reasoning"),
    "last": ("content", "reasoning"),
    "content": ("content",),
    "reasoning": ("reasoning",),
}


def check_policy(train_on: TrainOn, template: str) -> TrainOn:
    """Return the policy if it exists and the template has what it needs.

    Raises:
        MessageError: there is no such policy, or no `{% generation %}` block for "marked".
    """
    if train_on == "marked" and not GENERATION_TAG.search(template):
        raise MessageError(
            "the template has no {% generation %} blocks to train on",
            path="train_on",
            hint='train_on="assistant" needs none',
        )
    if not callable(train_on):
        check_name(train_on, POLICIES, "unknown loss policy", "Policies", path="train_on")
    return train_on


def weigh(messages: Sequence[Any]) -> list[float]:
    """Return the weight of each message."""
    places = enumerate(messages)
    return [weight_of(messages, i) if "weight" in message else 1.0 for i, message in places]


def weight_of(messages: Sequence[Any], index: int) -> float:
    """Return the `weight` of a message, 1 if it has none.

    Raises:
        MessageError: the weight is not a number from 0 up.
    """
    weight = messages[index].get("weight")
    if weight is None:
        return 1.0
    is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not is_number or not 0 <= weight < float("inf"):
        raise MessageError(
            f"a weight is a number from 0 up, not {weight!r}", path=f"messages[{index}].weight"
        )
    return float(weight)


def _select_pieces(
    rendering: Rendering, weights: Weights, is_trained: Callable[[Origin], bool]
) -> TrainedSpans:
    """Return the spans of all pieces whose origin is accepted."""
    spans = []
    for start, end, origin in _piece_spans(rendering):
        if is_trained(origin):
            weight = 1.0 if origin.message is None else weights[origin.message]
            spans.append(TrainedSpan(start, end, weight))
    return spans


def _select_fields(
    rendering: Rendering, turns: Sequence[Turn], weights: Weights, fields: Sequence[str]
) -> TrainedSpans:
    """Return the spans of these fields of assistant messages, as far as they lie in the turns."""
    turns_of: dict[int, list[Turn]] = {}
    for turn in turns:
        turns_of.setdefault(turn.message, []).append(turn)
    spans = []
    for start, end, origin in _piece_spans(rendering):
        match origin.path:
            case ("messages", int(index), str(name), *_) if name in fields:
                own = turns_of.get(index, ())
                if any(turn.start <= start and end <= turn.end for turn in own):
                    spans.append(TrainedSpan(start, end, weights[index]))
    return spans


def _piece_spans(rendering: Rendering) -> Iterator[tuple[int, int, Origin]]:
    """Yield start, end and origin of every piece."""
    start = 0
    for piece in rendering.pieces:
        end = start + len(piece.text)
        yield start, end, piece.origin
        start = end

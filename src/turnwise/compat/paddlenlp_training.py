"""PaddleNLP's `tokenize_rounds_example`: rows of training data encoded by rounds, and truncated by rounds.

Its `llm/utils/data.py` also runs as it is, with a `PaddleChat` as its tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from turnwise.compat import MissingKey
from turnwise.compat.batches import are_texts, check_length
from turnwise.compat.paddlenlp_fields import InvalidRounds
from turnwise.errors import MessageError, short_repr
from turnwise.messages import JsonMapping, JsonObject


class RoundsEncoder(Protocol):
    """A tokenizer with PaddleNLP's call for training."""

    exact: bool

    def encode_chat_inputs(
        self, conversations: Any, context_data: Any = None, **kwargs: Any
    ) -> JsonObject:
        """Return the ids of the system part and of each round."""


def truncate_rounds(
    parts: JsonMapping, max_length: int, src_length: int, exact: bool = False
) -> list[tuple[Any, bool]]:
    """Keep the system part, which is never cut, and as many of the newest rounds as fit.

    A last round that alone is too long is cut: its user part to `src_length` (system included), then its bot part to
    what is left.

    Args:
        parts: What `encode_chat_inputs` returned, in texts or ids.
        max_length: The length of the result; with `exact` it may be longer, as in PaddleNLP.
        src_length: The length of the system part and a user part that is cut.

    Returns:
        The parts in order, as `(part, learnt)`.

    Raises:
        MessageError: If the system part alone is too long.
    """
    max_length = check_length(max_length, "max_length")
    src_length = check_length(src_length, "src_length")
    rounds = _finished_rounds(parts)
    system = parts.get("system") or rounds[0][0][:0]
    if len(system) >= max_length:
        raise InvalidRounds(
            f"the system part has length {len(system)}, which must be under max_length, {max_length}"
        )
    room = max_length - len(system)
    kept: list[tuple[Any, bool]] = []
    for user, bot in reversed(rounds):
        if len(user) + len(bot) > room:
            if not kept:  # the last round
                user_length = src_length - len(system)
                if not exact:
                    user_length = max(0, min(user_length, room))
                user = user[:user_length]
                kept = [(user, False), (bot[: room - len(user)], True)]
            break
        room -= len(user) + len(bot)
        kept = [(user, False), (bot, True), *kept]
    return [part for part in [(system, False), *kept] if len(part[0])]


def _finished_rounds(parts: Any) -> Sequence[Any]:
    if not isinstance(parts, Mapping) or "conversations" not in parts:
        raise MissingKey(
            f"there are no conversations, as encode_chat_inputs returns them: {short_repr(parts)}"
        )
    rounds = parts["conversations"]
    if not isinstance(rounds, list | tuple) or not rounds:
        raise MessageError("there are no rounds", path="conversations")
    for index, turn in enumerate(rounds):
        if not isinstance(turn, list | tuple) or len(turn) != 2:
            raise MessageError(
                f"a round is [user, bot], not {short_repr(turn)}", path=f"conversations[{index}]"
            )
    return rounds


def tokenize_rounds_example(
    tokenizer: RoundsEncoder, example: JsonMapping, data_args: Any, **kwargs: Any
) -> tuple[JsonObject, list[int]]:
    """Encode a row of training data, truncated by `truncate_rounds`.

    Args:
        tokenizer: A tokenizer with a chat template.
        example: `{"src": ..., "tgt": ..., "context": ...}`.
        data_args: An object with `max_length` and `src_length`.
        **kwargs: Arguments of `encode_chat_inputs`: `add_generation_prompt`, for a Jinja template.

    Returns:
        `{"input_ids": [...]}`, with `position_ids` if the tokenizer's `model_input_names` have them, and the labels.

    Raises:
        MessageError: If the row is not of this shape.
    """
    context = {**_context_of(example), "is_training": True}
    parts = tokenizer.encode_chat_inputs(training_rounds(example), context, **kwargs)
    max_length: Any = getattr(data_args, "max_length", None)
    src_length: Any = getattr(data_args, "src_length", None)
    ids: list[int] = []
    labels: list[int] = []
    for part, learnt in truncate_rounds(parts, max_length, src_length, tokenizer.exact):
        ids += part
        labels += part if learnt else [-100] * len(part)
    inputs = {"input_ids": ids}
    if "position_ids" in getattr(tokenizer, "model_input_names", ()):
        inputs["position_ids"] = list(range(len(ids)))
    return inputs, labels


def _context_of(example: JsonMapping) -> JsonMapping:
    context = example.get("context") if isinstance(example, Mapping) else None
    if context is not None and not isinstance(context, Mapping):
        raise MessageError(
            f"must be a mapping of names to values, not {short_repr(context)}", path="context"
        )
    return context or {}


def training_rounds(example: JsonMapping) -> list[list[str]]:
    """Return the rounds of `src` and `tgt`, each a text or a list of texts.

    Raises:
        MessageError: If one is missing, or there are more of one than of the other.

    Example:
        >>> training_rounds({"src": "hi", "tgt": "yes"})
        [['hi', 'yes']]
    """
    sides = []
    for key in ("src", "tgt"):
        if not isinstance(example, Mapping) or key not in example:
            raise MissingKey(
                f"a row of PaddleNLP's data has src and tgt: {short_repr(example)}", path=key
            )
        side = [example[key]] if isinstance(example[key], str) else example[key]
        if not are_texts(side):
            raise MessageError(
                f"must be a text or a list of texts, not {short_repr(side)}", path=key
            )
        sides.append(side)
    src, tgt = sides
    if len(src) != len(tgt):
        raise InvalidRounds(
            f"src and tgt have the same number of texts; found {len(src)} and {len(tgt)}",
            path="src",
        )
    return [list(pair) for pair in zip(src, tgt, strict=True)]

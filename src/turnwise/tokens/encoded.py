"""Encoded: the ids of a conversation, and what is known of each.

Ids are there at once. The rest is made when somebody asks: where each token ends in the text, who owns it, whether it
is trained. Most questions are about whole runs (`runs.py`), whose first ids are known; only a question that falls
inside a run looks at its tokens one by one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.errors import TokenizerError
from turnwise.messages import format_path
from turnwise.tokens import loss
from turnwise.tokens.boundaries import Turn, Untrained
from turnwise.tokens.loss import IGNORED
from turnwise.tokens.text_encoder import Segments, encoder
from turnwise.tokens.tokenizers.protocol import Tokenizer


class Owner(NamedTuple):
    """What a token came from: a piece of the rendering (by index), a message, a field."""

    piece: int
    message: int | None
    field: str | None


class Encoded:
    """The ids of a conversation. Messages are counted as the caller does; `kept` are those that `max_length` left in.

    A copy from another process knows all that was known of its tokens, but has no tokenizer."""

    __slots__ = (
        "_ends",
        "_labels",
        "_owners",
        "_segments",
        "_spoken",
        "_unspoken",
        "_weighed",
        "_weights",
        "_within",
        "input_ids",
        "kept",
        "rendering",
        "tokenizer",
        "train_on",
    )

    def __init__(
        self,
        rendering: Rendering,
        tokenizer: Tokenizer,
        input_ids: list[int],
        segments: Segments | Callable[[], Segments],
        turns: Sequence[Turn] = (),
        untrained: Sequence[Untrained] = (),
        weights: Sequence[float] = (),
        train_on: str | Callable[[Origin], bool] = "assistant",
        kept: Sequence[int] | None = None,
    ) -> None:
        self.rendering = rendering
        self.tokenizer = tokenizer
        self.input_ids = input_ids
        self._spoken = turns  # counted as the rendering does
        self._unspoken = untrained
        self._weighed = weights  # of the messages
        self._within = False
        self.train_on = train_on
        self.kept = range(len(weights)) if kept is None else kept
        self._segments = segments
        self._ends: list[int] | None = None
        self._owners: list[Owner] | None = None
        self._weights: list[float] | None = None
        self._labels: list[int] | None = None

    def __len__(self) -> int:
        return len(self.input_ids)

    def __repr__(self) -> str:
        return f"<Encoded: {len(self)} tokens>"

    def __reduce__(self) -> tuple[Any, ...]:
        done = self.ends, self.owners, self.labels, self.weights, self.segments.rows
        return _restored, (
            self.rendering,
            self.input_ids,
            self.train_on_name,
            self.kept,
            self._spoken,
            self._unspoken,
            done,
        )

    @property
    def train_on_name(self) -> str:
        return self.train_on if isinstance(self.train_on, str) else "a function"

    @property
    def turns(self) -> tuple[Turn, ...]:
        """What the assistant says, and where."""
        return tuple(turn._replace(message=self.kept[turn.message]) for turn in self._spoken)

    @property
    def untrained(self) -> tuple[Untrained, ...]:
        """The turns whose place could not be established, with the reasons."""
        return tuple(one._replace(message=self.kept[one.message]) for one in self._unspoken)

    def narrowed(self, turns: Sequence[Turn]) -> Encoded:
        """The same, and nothing is trained but in these of its turns, whatever the policy says."""
        found = Encoded(
            self.rendering,
            self.tokenizer,
            self.input_ids,
            self._segments,
            turns,
            (),
            self._weighed,
            self.train_on,
            self.kept,
        )
        found._within = True
        return found

    # ---- ids and text ----

    @property
    def text(self) -> str:
        return self.rendering.text

    @property
    def attention_mask(self) -> list[int]:
        return [1] * len(self.input_ids)

    @property
    def segments(self) -> Segments:
        """Runs and added tokens, in order."""
        if callable(self._segments):
            self._segments = self._segments()
        return self._segments

    @property
    def tokens(self) -> list[str]:
        """The text of each token; letters that were cut into several tokens stand with the last of them."""
        edges = [0, *self.ends]
        return [self.text[a:b] for a, b in zip(edges, edges[1:], strict=False)]

    @property
    def ends(self) -> list[int]:
        """Where in the text each token ends."""
        if self._ends is None:
            self._ends = [
                end for index in range(len(self.segments.starts)) for end in self._ends_in(index)
            ]
        return self._ends

    def _ends_in(self, index: int) -> list[int]:
        """Where the tokens of a segment end."""
        segments, (end, last) = self.segments, self._behind(index)
        if segments.tokens[index] is not None:
            return [end]
        start, ids = segments.starts[index], self.input_ids[segments.firsts[index] : last]
        found = self.tokenizer.ends(self.text[start:end], ids, segments.ats[index])
        return [start + end for end in found]

    def _behind(self, index: int) -> tuple[int, int]:
        """Where a segment ends: the character, and the index into the ids."""
        segments, index = self.segments, index + 1
        if index < len(segments.starts):
            return segments.starts[index], segments.firsts[index]
        return len(self.text), len(self.input_ids)

    # ---- owners ----

    @property
    def owners(self) -> list[Owner]:
        """The piece, message and field that each token begins in."""
        if self._owners is None:
            self._owners = list(self._owned())
        return self._owners

    def _owned(self) -> Iterator[Owner]:
        pieces = self.rendering.pieces
        borders = list(accumulate(len(piece.text) for piece in pieces))
        owners = [
            Owner(index, self._number(piece.origin.message), self._field(piece.origin))
            for index, piece in enumerate(pieces)
        ]
        start, index = 0, 0
        for end in self.ends:
            while index + 1 < len(borders) and borders[index] <= start:
                index += 1
            yield owners[index]
            start = end

    def _number(self, message: int | None) -> int | None:
        """The message as the caller counts."""
        return self.kept[message] if message is not None and message < len(self.kept) else message

    def _field(self, origin: Origin) -> str | None:
        """The field as the caller counts."""
        path = origin.path
        if path is None or path[0] != "messages" or len(path) < 2 or not isinstance(path[1], int):
            return origin.field
        return format_path((path[0], self._number(path[1]) or 0, *path[2:]))

    @property
    def control(self) -> list[int]:
        """The indices of the control tokens."""
        columns = zip(self.segments.firsts, self.segments.tokens, strict=True)
        return [first for first, token in columns if token is not None and token.control]

    @property
    def defused(self) -> list[tuple[int, int]]:
        """The characters that are spelled like a control token and stayed ordinary text."""
        columns = zip(self.segments.starts, self.segments.tokens, strict=True)
        real = {start for start, token in columns if token is not None}
        found = encoder(self.tokenizer).scanner.hits(self.text)
        return [
            (hit.start, hit.end) for hit in found if hit.token.control and hit.start not in real
        ]

    # ---- loss ----

    @property
    def weights(self) -> list[float]:
        """How much each token counts in training; 0 for those that are not trained."""
        if self._weights is None:
            weights = [0.0] * len(self.input_ids)
            for start, end, weight in self._trained():
                first, last = self.first_at(start), self.last_at(end)
                weights[first:last] = [weight] * (last - first)
            self._weights = weights
        return self._weights

    @property
    def labels(self) -> list[int]:
        """The ids that are trained, and -100 for all others."""
        if self._labels is None:
            labels = [IGNORED] * len(self.input_ids)
            for start, end, _ in self._trained():
                first, last = self.first_at(start), self.last_at(end)
                labels[first:last] = self.input_ids[first:last]
            self._labels = labels
        return self._labels

    def _trained(self) -> list[loss.Span]:
        return loss.spans(self.train_on, self.rendering, self._spoken, self._weighed, self._within)

    @property
    def mask(self) -> list[int]:
        """1 for the tokens that are trained."""
        return [int(label != IGNORED) for label in self.labels]

    def first_at(self, character: int) -> int:
        """The index of the first token that holds this character, or a part of it."""
        if character >= len(self.text):
            return len(self.input_ids)
        starts, firsts, _, tokens = self.segments.columns
        index = bisect_right(starts, character) - 1
        if tokens[index] is not None or character == starts[index]:
            return int(firsts[index])
        ends = self._ends_in(index)
        inside = bisect_left(ends, character)
        return int(firsts[index]) + inside + (ends[inside] == character)

    def last_at(self, character: int) -> int:
        """The index behind the last token that begins before this character."""
        if character <= 0:
            return 0
        starts, firsts, _, tokens = self.segments.columns
        index = bisect_left(
            starts, character
        )  # the segment behind the one that holds the character before
        if index == len(starts):
            end, last = len(self.text), len(self.input_ids)
        else:
            end, last = starts[index], firsts[index]
        if character == end or tokens[index - 1] is not None:
            return int(last)
        return int(firsts[index - 1]) + bisect_left(self._ends_in(index - 1), character) + 1

    # ---- other people's containers ----

    def lists(self) -> dict[str, list[int]]:
        """What trainers take."""
        return {
            "input_ids": self.input_ids,
            "attention_mask": self.attention_mask,
            "labels": self.labels,
        }

    def numpy(self) -> dict[str, Any]:
        """The same as arrays, and the weights."""
        numpy = library("numpy")
        found = {
            name: numpy.asarray(values, dtype=numpy.int64) for name, values in self.lists().items()
        }
        return {**found, "weights": numpy.asarray(self.weights, dtype=numpy.float32)}

    def torch(self) -> dict[str, Any]:
        """The same as tensors, and the weights."""
        torch = library("torch")
        found = {
            name: torch.tensor(values, dtype=torch.long) for name, values in self.lists().items()
        }
        return {**found, "weights": torch.tensor(self.weights, dtype=torch.float32)}


def _restored(
    rendering: Rendering,
    ids: list[int],
    train_on: str,
    kept: Sequence[int],
    turns: Sequence[Turn],
    untrained: Sequence[Untrained],
    done: tuple[Any, ...],
) -> Encoded:
    """What was pickled: everything about its tokens was worked out before it left."""
    none: Any = None
    found = Encoded(
        rendering, none, ids, Segments(done[4]), turns, untrained, [1.0] * len(kept), train_on, kept
    )
    found._ends, found._owners, found._labels, found._weights = done[:4]
    return found


def library(name: str) -> Any:
    """An array library, if it is there; turnwise itself needs none."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise TokenizerError(
            f"{name} is not installed", hint=f"pip install {name}, or use the plain lists"
        ) from None

"""Encoded: the ids of a conversation with labels, owners and offsets.

The ids are there at once; everything else is computed when it is first asked for, because a server wants ids only and a
trainer ids and labels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from turnwise.engine.provenance.media import MediaPart
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import TokenizerError
from turnwise.messages import Change
from turnwise.notebook import show_html
from turnwise.tokens.boundaries import Turn, Untrained
from turnwise.tokens.loss import IGNORED, TrainOn, select_trained
from turnwise.tokens.media import (
    RepeatedTokens,
    find_repeated,
    locate_media,
    repeat_values,
    shift_index,
)
from turnwise.tokens.owners import Owner, find_owners
from turnwise.tokens.text_encoder import SpanRow, encoder_for
from turnwise.tokens.token_offsets import TokenOffsets
from turnwise.tokens.tokenizers.protocol import Tokenizer

FULL_ONLY = ("_turns", "rendering", "token_offsets")  # what the layout of a row does not show


class Rewritten(NamedTuple):
    """A reply that is trained as the model would write it, though the template writes it in another way.

    Attributes:
        message: the index of the reply.
        what: the trained text, and what the template writes.
        why: why the template's own text is not trained.
    """

    message: int
    what: str
    why: str

    def __str__(self) -> str:
        return f"messages[{self.message}]: {self.what}: {self.why}"


class Encoded:
    """A conversation as token ids.

    Messages are numbered as the caller numbers them: where `max_length` dropped some, `kept` lists the others.
    A copy from another process has everything but the tokenizer.

    Example:
        >>> template = turnwise.load("chatml")
        >>> encoded = template.encode([{"role": "assistant", "content": "Yes."}], "turnwise")
        >>> "".join(text for text, label in zip(encoded.tokens, encoded.labels) if label != -100)
        'Yes.<|im_end|>'

    Attributes:
        input_ids: the ids.
        rendering: the text with its pieces.
        tokenizer: the tokenizer, None in a copy from another process.
        token_offsets: which tokens hold which characters: `token_offsets.first_at(character)`.
        train_on: the loss policy.
        added_stop: the stop that was added because the template wrote none after the last turn; else empty.
        kept: the indices of the messages that were encoded.
        incomplete: the assistant turns that are trained, but not to their stop, with the reasons.
        rewritten: the replies that `examples` trains in another text than the template's, with the reasons.
        warnings: what was warned of, in order: text that is not written, turns that are not trained as they should be.
    """

    __slots__ = (
        "_encode_in_full",
        "_labels",
        "_media",
        "_message_weights",
        "_only_turns",
        "_owners",
        "_tokens",
        "_turns",
        "_untrained",
        "_weights",
        "added_stop",
        "incomplete",
        "input_ids",
        "kept",
        "rendering",
        "rewritten",
        "token_offsets",
        "tokenizer",
        "train_on",
        "warnings",
    )

    def __init__(
        self,
        rendering: Rendering,
        tokenizer: Tokenizer | None,
        input_ids: list[int],
        spans: list[SpanRow] | None,
        turns: Sequence[Turn] = (),
        untrained: Sequence[Untrained] = (),
        message_weights: Sequence[float] = (),
        train_on: TrainOn = "assistant",
        kept: Sequence[int] | None = None,
        added_stop: str = "",
    ) -> None:
        self.rendering = rendering
        self.added_stop = added_stop
        self.tokenizer: Any = tokenizer  # None in a copy from another process
        self.input_ids = input_ids
        self.train_on = train_on
        self.kept = range(len(message_weights)) if kept is None else kept
        self._turns = turns  # their messages are numbered as in the rendering
        self._untrained = untrained
        self.incomplete: tuple[Untrained, ...] = ()
        self.rewritten: tuple[Rewritten, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self._message_weights = message_weights
        self._only_turns = False  # train nothing outside of the turns, whatever the policy selects
        self.token_offsets = TokenOffsets(self.text, input_ids, tokenizer, spans)
        self._owners: list[Owner] | None = None
        self._weights: list[float] | None = None
        self._labels: list[int] | None = None
        self._media: tuple[MediaPart, ...] | None = None
        self._tokens: list[str] | None = None  # only where tokens were repeated

    _encode_in_full: Callable[[], Encoded]  # only where a layout was known

    if not TYPE_CHECKING:  # or every name would be one of its attributes

        def __getattr__(self, name: str) -> Any:
            """Return what the layout of a row does not show: the row is encoded in full."""
            if name not in FULL_ONLY:
                return object.__getattribute__(self, name)  # or the error of a property
            full = self._encode_in_full()
            for one in FULL_ONLY:
                setattr(self, one, getattr(full, one))
            return getattr(self, name)

    def __len__(self) -> int:
        return len(self.input_ids)

    def __repr__(self) -> str:
        told = f", {len(self.warnings)} warnings" if self.warnings else ""
        return f"<Encoded: {len(self)} tokens{told}>"

    def _repr_html_(self) -> str:
        return show_html("encoded", self)

    def __reduce__(self) -> tuple[Any, ...]:
        copy, offsets = _copy_encoded(self), self.token_offsets
        copy.tokenizer = None
        named: Any = self.train_on if isinstance(self.train_on, str) else "a function"
        copy.train_on = named
        copy.token_offsets = TokenOffsets(
            self.text, self.input_ids, None, offsets.spans, offsets.offsets
        )
        # What is found by means of the tokenizer or the function.
        copy._owners, copy._labels, copy._weights = self.owners, self.labels, self.weights
        copy._media = self.media
        return _make_encoded, tuple([getattr(copy, name) for name in COPIED])

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The assistant turns, as spans of characters."""
        return tuple(renumber_turns(self._turns, self.kept))

    @property
    def untrained(self) -> tuple[Untrained, ...]:
        """The assistant turns whose place could not be found, with the reasons."""
        return tuple(renumber_turns(self._untrained, self.kept))

    # ---- text and offsets ----

    @property
    def text(self) -> str:
        """The text of the ids: the rendered text, and the stop that was added to it, if any."""
        return self.rendering.text + self.added_stop

    @property
    def attention_mask(self) -> list[int]:
        """1 for every token."""
        return [1] * len(self.input_ids)

    @property
    def tokens(self) -> list[str]:
        """The text of each token; a character that was split into several tokens is shown with the last.

        They join to `text`, but for the pad tokens that `expand` repeats.
        """
        if self._tokens is not None:
            return self._tokens
        return [self.text[start:end] for start, end in pairwise([0, *self.ends])]

    @property
    def offsets(self) -> list[tuple[int, int]]:
        """The span of each token in `text`: its first character and the one after its last.

        Tokens that share a character, because a byte-level vocabulary split it, all have it in their spans. What the
        tokenizer put before a text (`▁`) shares the first character. What its normaliser drops is in no span.
        """
        return self.token_offsets.offsets

    @property
    def ends(self) -> list[int]:
        """The character at which each token ends, and the text of the next one starts; see `tokens`."""
        return self.token_offsets.ends

    # ---- owners ----

    @property
    def owners(self) -> list[Owner]:
        """The piece, message and field in which each token begins."""
        if self._owners is None:
            self._owners = find_owners(self.rendering, self.ends, self.kept)
        return self._owners

    @property
    def control(self) -> list[int]:
        """The indices of the control tokens."""
        offsets = self.token_offsets
        control: list[int] = []
        for index, (_, first, _, token) in enumerate(offsets.spans):
            if token is not None and token.control:
                # One token, or a pad token that was repeated.
                control += range(first, offsets.span_end(index)[1])
        return control

    @property
    def defused(self) -> list[tuple[int, int]]:
        """The characters that are spelled like a control token and were encoded as ordinary text.

        Raises:
            TokenizerError: this is a copy from another process, which has no tokenizer.
        """
        if self.tokenizer is None:
            raise TokenizerError("a copy from another process has no tokenizer to find look-alikes")
        spans = self.token_offsets.spans
        real = {start for start, _, _, token in spans if token is not None}
        lookalikes = encoder_for(self.tokenizer).matcher.find(self.text)
        return [
            (match.start, match.end)
            for match in lookalikes
            if match.token.control and match.start not in real
        ]

    # ---- media ----

    @property
    def media(self) -> tuple[MediaPart, ...]:
        """The media parts as in `Rendering.media`, with the tokens of their placeholders."""
        if self._media is None:
            self._media = locate_media(self.rendering.media, self.token_offsets, self.kept)
        return self._media

    def expand(
        self, counts: Sequence[int] | Mapping[str, int], token: str | int | None = None
    ) -> Encoded:
        """Return a copy in which each placeholder has as many tokens as its image, video or audio has features.

        One token of each placeholder, the pad token, is repeated: `<|image_pad|>` in
        `<|vision_start|><|image_pad|><|vision_end|>`. Ids, labels, weights, owners, tokens and offsets stay together;
        the text and the turns, which are spans of characters, do not change.

        Args:
            counts: the number of pad tokens of each written media part, in the order of `media`, or by its path.
            token: text or id of the pad token, where the placeholder does not tell (`tokens/media.py` says how).

        Raises:
            MessageError: there is not one positive number for each part.
            TokenizerError: a placeholder has no such token, or it does not tell which one to repeat.
        """
        return _repeat_tokens(self, find_repeated(self.media, counts, token, self.token_offsets))

    # ---- loss ----

    @property
    def weights(self) -> list[float]:
        """How much each token counts in training; 0 for those that are not trained."""
        if self._weights is not None:
            return self._weights
        if self._labels is not None and set(self._message_weights) == {1.0}:
            self._weights = list(map(float, self.mask))
        else:
            self._weights = [0.0] * len(self.input_ids)
            for first, last, weight in _trained_tokens(self):
                self._weights[first:last] = [weight] * (last - first)
        return self._weights

    @property
    def labels(self) -> list[int]:
        """The ids that are trained, and -100 for all others."""
        if self._labels is None:
            self._labels = [IGNORED] * len(self.input_ids)
            for first, last, _ in _trained_tokens(self):
                self._labels[first:last] = self.input_ids[first:last]
        return self._labels

    @property
    def mask(self) -> list[int]:
        """1 for the tokens that are trained, 0 for all others."""
        return [int(label != IGNORED) for label in self.labels]

    # ---- containers of other libraries ----

    def lists(self) -> dict[str, list[int]]:
        """Return `input_ids`, `attention_mask` and `labels`, as trainers take them."""
        return {
            "input_ids": self.input_ids,
            "attention_mask": self.attention_mask,
            "labels": self.labels,
        }

    def numpy(self) -> dict[str, Any]:
        """Return the same as arrays, and the weights."""
        return _to_arrays(self, "numpy")

    def torch(self) -> dict[str, Any]:
        """Return the same as tensors, and the weights."""
        return _to_arrays(self, "torch")


COPIED = Encoded.__slots__[1:]  # all but `_encode_in_full`


def note_changes(
    encoded: Encoded, changes: tuple[Change, ...], positions: Sequence[int] | None
) -> None:
    """Keep what was changed before encoding, and number the messages as the caller does.

    Args:
        encoded: the conversation.
        changes: what was changed.
        positions: the index in the caller's list of each message that was encoded; None if nothing moved.
    """
    encoded.rendering.changes = changes
    if positions is not None:
        encoded.kept = [positions[index] for index in encoded.kept]
        encoded.incomplete = tuple(renumber_turns(encoded.incomplete, positions))
        encoded.rewritten = tuple(renumber_turns(encoded.rewritten, positions))
        encoded._owners = encoded._media = None


def restrict_to(encoded: Encoded, messages: Collection[int]) -> Encoded:
    """Return a copy in which only the turns of these messages are trained, whatever the policy selects."""
    copy = _copy_encoded(encoded)
    copy._turns = [turn for turn in encoded._turns if encoded.kept[turn.message] in messages]
    copy._untrained, copy._only_turns = (), True
    copy.incomplete = tuple(turn for turn in encoded.incomplete if turn.message in messages)
    copy._labels = copy._weights = None
    return copy


def renumber_turns(turns: Iterable[Any], positions: Sequence[int] | None) -> list[Any]:
    """Return turns with the numbers that their messages have in the caller's list."""
    if positions is None or positions == range(len(positions)):  # no message was left out
        return list(turns)
    return [turn._replace(message=positions[turn.message]) for turn in turns]


def _trained_tokens(encoded: Encoded) -> Iterator[tuple[int, int, float]]:
    """Yield the first token, the index after the last one and the weight of each trained span."""
    spans = select_trained(
        encoded.train_on,
        encoded.rendering,
        encoded._turns,
        encoded._message_weights,
        encoded._only_turns,
    )
    offsets = encoded.token_offsets
    for span in spans:
        yield offsets.first_at(span.start), offsets.last_at(span.end), span.weight


def _to_arrays(encoded: Encoded, name: str) -> dict[str, Any]:
    """Return the lists of an Encoded and its weights as arrays of a library, which turnwise itself does not need."""
    try:
        library = import_module(name)
    except ImportError:
        raise TokenizerError(
            f"{name} is not installed", hint=f"pip install {name}, or use the plain lists"
        ) from None
    lists = encoded.lists().items()
    arrays = {key: library.asarray(values, dtype=library.int64) for key, values in lists}
    return {**arrays, "weights": library.asarray(encoded.weights, dtype=library.float32)}


def _copy_encoded(encoded: Encoded) -> Encoded:
    """Return a copy that shares everything with the original, and has nothing left to encode in full."""
    return _make_encoded(*[getattr(encoded, name) for name in COPIED])


def make_laid_out(
    ids: list[int],
    labels: list[int],
    messages: int,
    tokenizer: Tokenizer,
    train_on: TrainOn,
    encode_in_full: Callable[[], Encoded],
) -> Encoded:
    """Return a conversation whose layout was known: all that it does not show is found when it is asked for.

    Args:
        ids: the ids.
        labels: the labels.
        messages: how many there are.
        tokenizer: the tokenizer.
        train_on: the loss policy.
        encode_in_full: encodes the conversation.
    """
    encoded = object.__new__(Encoded)
    encoded._encode_in_full = encode_in_full
    encoded.input_ids, encoded._labels = ids, labels
    encoded.tokenizer, encoded.train_on = tokenizer, train_on
    encoded.kept, encoded._message_weights = range(messages), [1.0] * messages
    encoded.added_stop, encoded._only_turns = "", False
    encoded._untrained = encoded.incomplete = encoded.rewritten = encoded.warnings = ()
    encoded._owners = encoded._weights = encoded._media = encoded._tokens = None
    return encoded


def _repeat_tokens(encoded: Encoded, repeated: Sequence[RepeatedTokens]) -> Encoded:
    """Return a copy in which these tokens are repeated."""
    copy, offsets = _copy_encoded(encoded), encoded.token_offsets
    copy.input_ids = repeat_values(encoded.input_ids, repeated)
    rows = [
        (start, shift_index(first, repeated), position, token)
        for start, first, position, token in offsets.spans
    ]
    copy.token_offsets = TokenOffsets(
        encoded.text,
        copy.input_ids,
        encoded.tokenizer,
        rows,
        repeat_values(encoded.offsets, repeated),
    )
    for name in ("owners", "labels", "weights", "tokens"):
        setattr(copy, f"_{name}", repeat_values(getattr(encoded, name), repeated))
    copy._media = None
    return copy


def cut_encoded(encoded: Encoded, length: int, reason: str) -> Encoded:
    """Return a copy of the first tokens; the turn that is cut is `incomplete` for this reason.

    A character of which a part would be left is left out.
    """
    ends, kept = [0, *encoded.ends], encoded.kept
    while length and ends[length] == ends[length - 1]:
        length -= 1  # the last token holds a part of a character
    end = ends[length]
    turns, lost = [], list(encoded._untrained)
    incomplete = []
    for turn in encoded._turns:
        if turn.start >= end:
            lost.append(Untrained(turn.message, "max_length cuts it off"))
            continue
        if turn.end > end:
            incomplete.append(Untrained(kept[turn.message], reason))
        turns.append(turn._replace(end=min(turn.end, end), stop=min(turn.stop, end)))
    spans = [row for row in encoded.token_offsets.spans if row[1] < length]
    offsets = [(start, min(stop, end)) for start, stop in encoded.offsets[:length]]
    written = len(encoded.rendering.text)
    copy = Encoded(
        encoded.rendering.cut(min(end, written)),
        encoded.tokenizer,
        encoded.input_ids[:length],
        spans,
        turns,
        lost,
        encoded._message_weights,
        encoded.train_on,
        kept,
        encoded.text[written:end],
    )
    copy.incomplete = tuple(incomplete)
    copy.token_offsets = TokenOffsets(copy.text, copy.input_ids, encoded.tokenizer, spans, offsets)
    return copy


def _make_encoded(*values: Any) -> Encoded:
    """Return an Encoded with these attributes."""
    encoded = object.__new__(Encoded)
    for name, value in zip(COPIED, values, strict=True):
        setattr(encoded, name, value)
    return encoded

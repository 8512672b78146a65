"""Trajectory: the ids that were sent to a model and sampled from it, as a trainer needs them.

    ids        everything, in order
    sampled    the spans of `ids` that the model sampled, one for each reply
    labels     the sampled ids, -100 for all others
    mask       1 for sampled ids, 0 for all others
    logprobs   log-probabilities of sampled ids, None where there is none
    owners     the piece, message and field in which each token begins, as in `Encoded.owners`

A model samples after exactly the ids before a span. So one trajectory is one sample for a trainer, and where a session
re-encodes its history, another trajectory begins (`Session.segments`).

Owners are found when they are asked for. The ids of a *stretch* have their text in one rendering: the whole
trajectory, unless the template rewrote earlier text and the earlier ids were kept. Then that rendering is gone, and the
ids before belong to an earlier stretch, which is rendered again if needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple, Protocol

from turnwise.engine.provenance.rendering import Rendering, append_reply
from turnwise.errors import MessageError, TurnwiseError, short_repr
from turnwise.messages import JsonMapping
from turnwise.tokens.encode import EncodeRequest
from turnwise.tokens.loss import IGNORED
from turnwise.tokens.owners import Owner, list_piece_owners
from turnwise.tokens.reply_tokens import find_token_ends
from turnwise.tokens.text_encoder import SpanRow
from turnwise.tokens.token_offsets import TokenOffsets

Chat = list[JsonMapping]


class ReplySplitter(Protocol):
    """Tells which field of a message each part of a reply is."""

    def split(
        self, reply: str, prompt: str, tools: Any, tokenizer: Any
    ) -> list[tuple[str, str | None]]:
        """Return a reply in parts: a text and the field of the message that it belongs to, None for a marker."""


class SampledSpan(NamedTuple):
    """The ids of one reply.

    Attributes:
        start: the index of its first id.
        end: the index after its last id.
        message: the index of the reply in the messages.
        finished: whether the model ended it with a stop; False if it was cut off.
    """

    start: int
    end: int
    message: int
    finished: bool


class Chunk(NamedTuple):
    """Ids that were added in one step, and their text.

    Attributes:
        first_id: the index of the first id.
        end_id: the index after the last id.
        start: the character of the stretch's rendering at which the text begins.
        text: the text of the ids.
        rows: the spans in which the text was encoded, by characters of the rendering; none if the ids were sampled.
        reply: the index of the reply, if the ids were sampled.
    """

    first_id: int
    end_id: int
    start: int
    text: str
    rows: list[SpanRow]
    reply: int | None = None


@dataclass(slots=True)
class Stretch:
    """The last prompt, the reply to it, and the ids whose text is in the rendering of both.

    Attributes:
        messages: the conversation, the reply included.
        prompt: the text of the last prompt as the template writes it.
        prompt_length: how many of the messages are in it.
        reply: the text of the reply; None as long as there is none.
        plain_reply: the reply as content only, if it was parsed to something else.
        chunks: the ids.
    """

    messages: Chat
    prompt: str
    prompt_length: int
    reply: str | None = None
    plain_reply: JsonMapping | None = None
    chunks: list[Chunk] = field(default_factory=list)

    def copy(self) -> Stretch:
        return replace(self, messages=list(self.messages), chunks=list(self.chunks))

    def find_readings(self, following: Chat) -> list[Chat]:
        """Return the conversation with the reply as it was parsed, then with it as plain content, if that differs."""
        readings = [[*self.messages, *following]]
        if self.plain_reply is not None:
            readings.append([*self.messages[:-1], self.plain_reply, *following])
        return readings

    def render(self, request: EncodeRequest, splitter: ReplySplitter) -> Rendering:
        """Return a rendering that begins with the prompt and the reply.

        If no reading of the reply is rendered as the model wrote it, the reply is appended to the prompt in parts.
        """
        if self.reply is None:
            return request.render_prompt(self.messages)
        prompt = request.render_prompt(self.messages[: self.prompt_length])
        before = prompt.text + self.reply
        for chat in self.find_readings([]):
            try:
                rendering = request.render(chat)
            except TurnwiseError:
                continue
            if rendering.text.startswith(before):
                return rendering
        tools = request.arguments.get("tools")
        parts = splitter.split(self.reply, prompt.text, tools, request.tokenizer)
        return append_reply(prompt, parts, self.prompt_length)


class Trajectory:
    """Ids that a model read and sampled, with what a trainer needs to know about each.

    Attributes:
        ids: everything so far.
        sampled: the spans that the model sampled.
        logprobs: the log-probability of each id, None where there is none.
        stretch: the last prompt and the reply to it.
    """

    def __init__(self, request: EncodeRequest, splitter: ReplySplitter, stretch: Stretch) -> None:
        self.ids: list[int] = []
        self.sampled: list[SampledSpan] = []
        self.logprobs: list[float | None] = []
        self._request = request
        self._splitter = splitter
        self._earlier: list[Stretch] = []
        self.stretch = stretch

    @property
    def messages(self) -> Chat:
        """The conversation, with replies as messages."""
        return self.stretch.messages

    @property
    def labels(self) -> list[int]:
        """The sampled ids, and -100 for all others."""
        labels = [IGNORED] * len(self.ids)
        for start, end, _, _ in self.sampled:
            labels[start:end] = self.ids[start:end]
        return labels

    @property
    def mask(self) -> list[int]:
        """1 for the ids that were sampled, 0 for all others."""
        return [int(label != IGNORED) for label in self.labels]

    @property
    def owners(self) -> list[Owner]:
        """The piece, message and field in which each token begins; sampled tokens belong to their reply.

        Pieces are numbered as in the rendering of the conversation, or as they were when the ids were sent, if the
        template writes them differently now.
        """
        stretches = (*self._earlier, self.stretch)
        return [owner for stretch in stretches for owner in self._find_owners(stretch)]

    def copy(self) -> Trajectory:
        """Return a trajectory that goes on from here; neither changes the other."""
        other = Trajectory(self._request, self._splitter, self.stretch.copy())
        other.ids, other.sampled = list(self.ids), list(self.sampled)
        other.logprobs, other._earlier = list(self.logprobs), list(self._earlier)
        return other

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<Trajectory: {len(self.ids)} ids, {sum(self.mask)} of them sampled>"

    # ---- growing ----

    def add_ids(
        self,
        ids: Sequence[int],
        start: int,
        text: str,
        rows: list[SpanRow],
        reply: int | None = None,
    ) -> None:
        """Add ids whose text begins at a character of the stretch's rendering; the others as in `Chunk`."""
        first = len(self.ids)
        self.ids += ids
        self.logprobs += [None] * len(ids)
        self.stretch.chunks.append(Chunk(first, len(self.ids), start, text, rows, reply))

    def add_sampled(
        self, ids: Sequence[int], text: str, finished: bool, logprobs: Sequence[float | None]
    ) -> None:
        """Add the ids of a reply to the last prompt."""
        first, message = len(self.ids), self.stretch.prompt_length
        self.add_ids(ids, len(self.stretch.prompt), text, [], message)
        self.logprobs[first:] = logprobs
        self.sampled.append(SampledSpan(first, len(self.ids), message, finished))

    def replace_ids(self, ids: Sequence[int]) -> None:
        """Take other ids for the prompt."""
        self.ids, self.sampled, self.logprobs = [], [], []
        self.stretch.chunks = []
        self.add_ids(ids, 0, "", [])

    def set_prompt(self, messages: Chat, text: str, is_rewritten: bool) -> None:
        """Go on with the next prompt; if the template rewrote earlier text, that of the earlier ids is not in it."""
        chunks = self.stretch.chunks
        if is_rewritten:
            # Without the prompt, which is rendered again if needed: many of them would have quadratic size.
            self._earlier.append(replace(self.stretch, prompt=""))
            chunks = []
        self.stretch = Stretch(messages, text, len(messages), chunks=chunks)

    # ---- owners ----

    def _find_owners(self, stretch: Stretch) -> Iterator[Owner]:
        rendering = stretch.render(self._request, self._splitter)
        owners = list_piece_owners(rendering) or [Owner(0, None, None)]
        starts = list(accumulate((len(piece.text) for piece in rendering.pieces), initial=0))
        for chunk in stretch.chunks:
            if chunk.reply is None and not chunk.rows:  # ids of the caller
                yield from [Owner(0, None, None)] * (chunk.end_id - chunk.first_id)
                continue
            for begin in self._find_begins(chunk):
                owner = owners[min(bisect_right(starts, begin), len(owners)) - 1]
                if chunk.reply is not None and owner.message != chunk.reply:
                    # The marker that opens the next turn ends the reply: it is in none of its fields.
                    owner = Owner(owner.piece, chunk.reply, None)
                yield owner

    def _find_begins(self, chunk: Chunk) -> list[int]:
        """Return the character of the rendering in which each id of a chunk begins."""
        ids, tokenizer = self.ids[chunk.first_id : chunk.end_id], self._request.tokenizer
        if chunk.reply is None:
            rows = [(row[0] - chunk.start, *row[1:]) for row in chunk.rows]
            ends = TokenOffsets(chunk.text, ids, tokenizer, rows).ends
        else:
            before = self.ids[chunk.first_id - 1 : chunk.first_id] if chunk.first_id else []
            ends = find_token_ends(tokenizer, before, ids)
        return [chunk.start + end for end in (0, *ends[:-1])][: len(ids)]


def read_logprobs(given: Any, count: int) -> list[float | None]:
    """Return log-probabilities as a list of floats, None where there is none.

    Args:
        given: a list, tuple or array with one number or None for each id; None if there are none.
        count: how many ids there are.

    Raises:
        MessageError: they are not numbers, or not as many as there are ids.
    """
    if given is None:
        return [None] * count
    values = given.tolist() if hasattr(given, "tolist") else given  # of an array or a tensor
    if not isinstance(values, (list, tuple)):
        raise MessageError(
            f"logprobs is a list with one number for each id, not {short_repr(given)}",
            path="logprobs",
        )
    if len(values) != count:
        raise MessageError(
            f"there are {len(values)} log-probabilities for {count} ids", path="logprobs"
        )
    for index, value in enumerate(values):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and (not is_number or value != value):  # NaN differs from itself
            raise MessageError(
                f"a log-probability is a number or None, not {short_repr(value)}",
                path=f"logprobs[{index}]",
            )
    return [None if value is None else float(value) for value in values]

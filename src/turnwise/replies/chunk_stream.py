"""A reply as the chunks of OpenAI's stream (`chat.completion.chunk`), for a server.

    stream = ChunkStream(template.parser(prompt, tools), id="chatcmpl-1", model="qwen3")
    for text in reply:
        send(stream.feed(text))
    send(stream.close())

The chunks are those that OpenAI's API sends: the role first, then what is new of content, reasoning and calls, last the
reason why the reply ended. A chunk for which OpenAI has no delta (the end of a call) is not sent. The deltas of all
chunks, accumulated, are the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypedDict

from turnwise.errors import TurnwiseError, short_repr
from turnwise.messages import Delta
from turnwise.replies.events import Event, FinishReason, Message
from turnwise.replies.parser.parser import Parser


class ChunkChoice(TypedDict):
    """The choice of a chunk: what is new of its message."""

    index: int
    delta: Delta
    logprobs: None
    finish_reason: FinishReason | None


class StreamChunk(TypedDict):
    """One `chat.completion.chunk`."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]


class ChunkStream:
    """Writes one reply as chunks.

    Args:
        parser: The parser of the reply, to which nothing was fed yet.
        id: The id of the completion, the same in all chunks.
        model: The name of the model.
        created: When the completion was created, in seconds since 1970.
        index: The number of the choice, where several replies are sampled.

    Raises:
        TurnwiseError: `parser` is not a parser.

    Attributes:
        message: the whole message, after `close`.

    Example:
        >>> import turnwise
        >>> stream = ChunkStream(turnwise.load("chatml").parser(), id="chatcmpl-1", model="m")
        >>> chunks = stream.feed("Aye.<|im_end|>") + stream.close()
        >>> [chunk["choices"][0]["delta"] for chunk in chunks]
        [{'role': 'assistant', 'content': ''}, {'content': 'Aye.'}, {}]
        >>> chunks[-1]["choices"][0]["finish_reason"]
        'stop'
    """

    def __init__(
        self, parser: Parser, *, id: str, model: str, created: int = 0, index: int = 0
    ) -> None:
        if not isinstance(parser, Parser):
            raise TurnwiseError(
                f"a stream reads the chunks of a parser, not of {short_repr(parser)}",
                hint="give template.parser(prompt, tools)",
            )
        self._parser = parser
        self._frame: StreamChunk = {
            "id": id, "object": "chat.completion.chunk", "created": created, "model": model, "choices": [],
        }  # fmt: skip
        self._index = index
        self._has_started = False
        self.message: Message | None = None

    def feed(self, chunk: str | int | Sequence[int]) -> list[StreamChunk]:
        """Parse the next part of the reply, text or ids, and return its chunks; the first one has the role.

        Raises:
            TurnwiseError: see `Parser.feed`.
        """
        return self._to_chunks(self._parser.feed(chunk))

    def close(self, was_cut: bool | None = None) -> list[StreamChunk]:
        """End the reply.

        Args:
            was_cut: Generation reached its limit, as the caller knows. By default that of `Message.finish_reason`.

        Returns:
            What was held back, and the last chunk, which has the reason why the reply ended.
        """
        if self.message is not None:
            return []
        self.message = self._parser.close()
        chunks = self._to_chunks(self.message.events)
        reason: FinishReason = self.message.finish_reason
        if was_cut is not None:
            has_calls = "tool_calls" in self.message
            reason = "length" if was_cut else "tool_calls" if has_calls else "stop"
        return [*chunks, self._to_chunk({}, reason)]

    def _to_chunks(self, events: Iterable[Event]) -> list[StreamChunk]:
        deltas = [event.delta() for event in events]
        if not self._has_started:
            # What the prompt holds of the message is a part of it. It is known once the first chunk is parsed.
            self._has_started = True
            prefill = [event.delta() for event in self._parser.prefill]
            first: Delta = {"role": "assistant", "content": ""}
            deltas = [first, *prefill, *deltas]
        return [self._to_chunk(delta) for delta in deltas if delta]

    def _to_chunk(self, delta: Delta, reason: FinishReason | None = None) -> StreamChunk:
        choice: ChunkChoice = {
            "index": self._index, "delta": delta, "logprobs": None, "finish_reason": reason,
        }  # fmt: skip
        return {**self._frame, "choices": [choice]}

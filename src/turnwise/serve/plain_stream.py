"""Replies to plain prompts: text, without a template's markers."""

from __future__ import annotations

from typing import Any

from turnwise.messages import JsonObject
from turnwise.replies.parser.detokenizer import IncrementalDetokenizer


class PlainStream:
    """A reply that is a text: its ids are decoded as they arrive, special tokens left out.

    Args:
        tokenizer: the tokenizer of the model.
    """

    message = None  # there are no calls in it

    def __init__(self, tokenizer: Any) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer)
        self._left_out = {token.id for token in tokenizer.added.values() if token.special}

    def feed(self, chunk: str | list[int]) -> list[JsonObject]:
        """Return the text of a chunk, as a chat has it."""
        if isinstance(chunk, list):
            kept = [id for id in chunk if id not in self._left_out]
            chunk = self._detokenizer.decode(kept)
        return self._make(chunk)

    def close(self) -> list[JsonObject]:
        """Return what was held back."""
        return self._make(self._detokenizer.flush())

    def _make(self, text: str) -> list[JsonObject]:
        return [{"choices": [{"delta": {"content": text}}]}] if text else []

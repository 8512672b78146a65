"""Stops with their token ids: the texts that end a reply, and which of them are one token of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable

from turnwise.tokens.tokenizers.protocol import Tokenizer


class Stops(tuple[str, ...]):
    """The texts that end generation; `ids` are those of them that are one token of the tokenizer."""

    ids: tuple[int, ...]

    def __new__(cls, texts: Iterable[str] = (), ids: Iterable[int] = ()) -> Stops:
        stops = super().__new__(cls, texts)
        stops.ids = tuple(ids)
        return stops


def stops_with_ids(texts: Iterable[str], tokenizer: Tokenizer) -> Stops:
    """Return the texts with the ids of those that are one token."""
    texts = tuple(texts)
    ids = [find_token_id(text, tokenizer) for text in texts]
    return Stops(texts, [id for id in ids if id is not None])


def find_token_id(text: str, tokenizer: Tokenizer) -> int | None:
    """Return the id of a text that is one token of the tokenizer, else None."""
    added = tokenizer.added.get(text)
    if added is not None:
        return added.id
    ids = tokenizer.whole(text)
    is_token = len(ids) == 1 and tokenizer.token(ids[0]) == text
    return ids[0] if is_token else None

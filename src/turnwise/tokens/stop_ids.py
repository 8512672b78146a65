"""Stops with their token ids: the texts that end a reply, and which of them are one token of a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from turnwise.analysis.facts import Facts
from turnwise.tokens import tokenizers
from turnwise.tokens.tokenizers.protocol import Tokenizer


class Stops(tuple[str, ...]):
    """The texts that end generation; `ids` are those of them that are one token of the tokenizer."""

    ids: tuple[int, ...]

    def __new__(cls, texts: Iterable[str] = (), ids: Iterable[int] = ()) -> Stops:
        stops = super().__new__(cls, texts)
        stops.ids = tuple(ids)
        return stops


def find_token_id(text: str, tokenizer: Tokenizer) -> int | None:
    """Return the id of a text that is one token of the tokenizer, else None."""
    added = tokenizer.added.get(text)
    if added is not None:
        return added.id
    ids = tokenizer.whole(text)
    return ids[0] if len(ids) == 1 and tokenizer.token(ids[0]) == text else None


def find_stops(facts: Facts, exact: Sequence[str] | None, tokenizer: object) -> Stops:
    """Return the texts that end generation.

    Args:
        facts: what is known of the template.
        exact: the stops of its source, if there are to be no others than these and eos.
        tokenizer: a tokenizer, an object that names its eos token at most, or None.
    """
    eos = getattr(tokenizer, "eos_token", None)
    if tokenizer is None or (isinstance(eos, str) and not tokenizers.library_of(tokenizer)):
        known = None
        tokens: Mapping[str, str] = {"eos_token": eos} if eos else {}
    else:
        known = tokenizers.tokenizer(tokenizer)
        tokens = known.named
    if exact is None:
        texts = facts.stops_for(tokens)
    else:
        given = (*exact, tokens.get("eos_token"))
        texts = tuple(dict.fromkeys([text for text in given if text]))
    ids = [find_token_id(text, known) for text in texts] if known else []
    return Stops(texts, [id for id in ids if id is not None])

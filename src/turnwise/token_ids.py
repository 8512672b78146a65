"""Token ids as people pass them: a list, a tuple, an array or a tensor becomes a list of ints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from operator import index
from typing import Any

from turnwise.errors import TokenizerError, short_repr

_NO_SEQUENCES = (str, bytes, bytearray, memoryview, Mapping, Set)  # of ids, though iterable


def to_token_ids(value: Any, expected: str, *, allow_one: bool = False) -> list[int]:
    """Return token ids as a list.

    Args:
        value: the ids.
        expected: what was expected, for the message of an error: "a reply is a list of ids".
        allow_one: take a single number too.

    Raises:
        TokenizerError: these are not token ids.
    """
    # Fast path, for decoders that are called for each token.
    if type(value) is list and set(map(type, value)) == {int} and min(value) >= 0:
        return value.copy()
    ids = value.tolist() if hasattr(value, "tolist") else value  # of an array or a tensor
    if allow_one and isinstance(ids, int):
        ids = [ids]
    if isinstance(value, _NO_SEQUENCES) or not isinstance(ids, Iterable):
        raise _not_ids(f"{expected}, not {short_repr(value)}")
    return [_to_token_id(id, expected) for id in ids]


def _to_token_id(id: Any, expected: str) -> int:
    if isinstance(id, bool) or not hasattr(id, "__index__") or id < 0:
        raise _not_ids(f"{expected}; {short_repr(id)} is not an id")
    return index(id)


def _not_ids(problem: str) -> TokenizerError:
    return TokenizerError(problem, hint="an id is a number from 0 up")

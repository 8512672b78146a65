"""The owner of each token: the piece of the rendering in which it begins, with its message, field and content part.

Messages are numbered as the caller numbers them, also where some were dropped to make a conversation shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from turnwise.engine.provenance.rendering import Rendering
from turnwise.messages import Path, format_path


class Owner(NamedTuple):
    """The origin of a token: a piece of the rendering (by index), a message, a field, a content part."""

    piece: int
    message: int | None
    field: str | None
    part: str | None = None


def find_owners(rendering: Rendering, ends: Sequence[int], kept: Sequence[int]) -> list[Owner]:
    """Return the owner of each token, from where the tokens end and which messages were kept.

    A stop that was added has no piece: it belongs to the last message, and to none of its fields.
    """
    piece_ends = list(accumulate(len(piece.text) for piece in rendering.pieces))
    by_piece = list_piece_owners(rendering, kept)
    owners: list[Owner] = []
    start, index, length = 0, 0, len(rendering.text)
    for end in ends:
        while index + 1 < len(piece_ends) and piece_ends[index] <= start:
            index += 1
        is_written = start < length or not kept
        owners.append(by_piece[index] if is_written else Owner(index, kept[-1], None))
        start = end
    return owners


def list_piece_owners(rendering: Rendering, kept: Sequence[int] = ()) -> list[Owner]:
    """Return the owner of the tokens that begin in each piece."""
    owners = []
    for index, (_, origin) in enumerate(rendering.pieces):
        message = None if origin.message is None else caller_index(origin.message, kept)
        paths = _caller_path(origin.path, kept), _caller_path(origin.part, kept)
        owners.append(Owner(index, message, *paths))
    return owners


def _caller_path(path: Path | None, kept: Sequence[int]) -> str | None:
    """Return a path as text, with the message numbered as the caller does."""
    if path is None:
        return None
    if path[0] == "messages" and len(path) > 1 and isinstance(path[1], int):
        path = ("messages", caller_index(path[1], kept), *path[2:])
    return format_path(path)


def caller_index(message: int, kept: Sequence[int]) -> int:
    """Return the index of a message of the rendering in the caller's list."""
    return kept[message] if message < len(kept) else message

"""The tokens of placeholders, and how one of them is repeated for every feature of an image.

A template writes one token for an image, a processor as many as the image has features. Which one is repeated, the
*pad* token, is told by the tokens of the placeholder alone:

1. the token that the caller names;
2. else its only added token;
3. else the last of its added tokens, without those that come in pairs: `<|vision_start|>` and `<|vision_end|>`, `<img>`
   and `</img>`, or the same token before and behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from turnwise.engine.provenance.media import MediaPart, find_partner
from turnwise.errors import MessageError, TokenizerError
from turnwise.schema import check_name
from turnwise.tokens.owners import caller_index
from turnwise.tokens.token_offsets import TokenOffsets

Value = TypeVar("Value")
TokenSpan = tuple[int, int]  # of indices into the ids
# Tokens that are the same, and how often there shall be one of them.
RepeatedTokens = tuple[TokenSpan, int]


def locate_media(
    media: Iterable[MediaPart], offsets: TokenOffsets, kept: Sequence[int]
) -> tuple[MediaPart, ...]:
    """Add the tokens of their placeholders to media parts, and number their messages as the caller does."""
    located = []
    for part in media:
        message = caller_index(part.message, kept)
        path = part.path.replace(f"messages[{part.message}]", f"messages[{message}]", 1)
        part = part._replace(message=message, path=path)
        if part.span is not None:
            first, last = offsets.first_at(part.span[0]), offsets.last_at(part.span[1])
            added = {token.id: token.text for _, _, _, token in offsets.spans if token is not None}
            pad = find_pad(offsets.ids[first:last], added)
            if pad is not None:
                pad = (first + pad[0], first + pad[1])
            part = part._replace(tokens=(first, last), pad=pad)
        located.append(part)
    return tuple(located)


def find_repeated(
    media: Iterable[MediaPart],
    counts: Sequence[int] | Mapping[str, int],
    token: str | int | None,
    offsets: TokenOffsets,
) -> list[RepeatedTokens]:
    """Return the pad tokens of the placeholders, and how many there shall be. As `Encoded.expand`."""
    written = [part for part in media if part.written]
    repeated: list[RepeatedTokens] = []
    for part, count in zip(written, check_counts(counts, written), strict=True):
        pad = part.pad if token is None else _find_named_pad(part, token, offsets)
        if pad is None:
            raise _no_pad_error(part, offsets.text[slice(*(part.span or ()))], token)
        repeated.append((pad, count))
    return repeated


def _find_named_pad(part: MediaPart, token: str | int, offsets: TokenOffsets) -> TokenSpan | None:
    """Return where the token that the caller names is in a placeholder."""
    assert part.tokens is not None
    first, last = part.tokens
    for index in range(first, last):
        id = offsets.ids[index]
        names = [id, offsets.text[slice(*offsets.offsets[index])]]
        if offsets.tokenizer is not None:
            names.append(offsets.tokenizer.token(id))
        if token in names:
            return find_run(offsets.ids, index, last)
    return None


def find_pad(ids: Sequence[int], texts: Mapping[int, str]) -> TokenSpan | None:
    """Return the tokens of a placeholder that stand for the media itself, None if that cannot be told.

    Args:
        ids: the tokens of the placeholder.
        texts: the added tokens by their ids.
    """
    added = [id for id in ids if id in texts]
    names = {texts[id] for id in added}
    unpaired = [id for id in added if not find_partner(texts[id], names)]
    counts = Counter(unpaired)
    chosen = [id for id in unpaired if counts[id] == 1] or unpaired
    return find_run(ids, ids.index(chosen[-1]), len(ids)) if chosen else None


def find_run(ids: Sequence[int], first: int, end: int) -> TokenSpan:
    """Return where a token of a placeholder is, together with those right behind it that are the same."""
    last = first
    while last < end and ids[last] == ids[first]:
        last += 1
    return first, last


def check_counts(
    counts: Sequence[int] | Mapping[str, int], media: Sequence[MediaPart]
) -> list[int]:
    """Return the number of tokens of each media part, in the order of the parts.

    Raises:
        MessageError: there is not one positive number for each part.
    """
    paths = [part.path for part in media]
    if isinstance(counts, Mapping):
        for path in counts:
            listed = "Media parts with a placeholder"
            check_name(path, paths, "no media part", listed, path="counts")
        missing = [path for path in paths if path not in counts]
        if missing:
            raise MessageError(f"no count for {', '.join(missing)}", path="counts")
        found: list[Any] = [counts[path] for path in paths]
    elif isinstance(counts, (str, bytes)) or not isinstance(counts, Iterable):
        problem = f"counts are a list or a mapping of numbers, not {type(counts).__name__}"
        raise MessageError(problem, path="counts")
    else:
        found = list(counts)
    if len(found) != len(paths):
        raise MessageError(
            f"{len(found)} counts for {len(paths)} media parts",
            path="counts",
            hint=f"one for each of {', '.join(paths)}"
            if paths
            else "the prompt has no placeholder",
        )
    return [_check_count(count, path) for count, path in zip(found, paths, strict=True)]


def _check_count(count: Any, path: str) -> int:
    try:
        number = count.__index__()  # also the integers of numpy and torch
    except (AttributeError, TypeError):
        number = None
    if number is None or isinstance(count, bool):
        raise MessageError(f"a count is an integer, not {count!r}", path=f"counts, {path}")
    if number < 1:
        raise MessageError(
            f"a count is at least 1, not {number}",
            path=f"counts, {path}",
            hint="leave the part out of the message if it has no tokens",
        )
    return int(number)


def repeat_values(values: Sequence[Value], repeated: Sequence[RepeatedTokens]) -> list[Value]:
    """Return a list that has one value for each token, with the values of repeated tokens as often as these."""
    result: list[Value] = []
    done = 0
    for (first, last), count in repeated:
        result += values[done:first]
        result += [values[first]] * count
        done = last
    return [*result, *values[done:]]


def shift_index(index: int, repeated: Sequence[RepeatedTokens]) -> int:
    """Return the index of a token after tokens before it were repeated."""
    return index + sum(count - (last - first) for (first, last), count in repeated if last <= index)


def _no_pad_error(part: MediaPart, placeholder: str, named: str | int | None) -> TokenizerError:
    """Return the error for a placeholder in which no token can be repeated."""
    where = f"the placeholder {placeholder!r} of {part.path}"
    if named is not None:
        return TokenizerError(f"{where} has no token {named!r}", hint="Give its text or its id.")
    return TokenizerError(
        f"no token of {where} can be repeated: it has no special token of its own",
        hint="Add it to the tokenizer as a special token, or name one: expand(counts, token=...).",
    )

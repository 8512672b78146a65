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
from turnwise.errors import MessageError, TokenizerError, did_you_mean

Value = TypeVar("Value")
TokenSpan = tuple[int, int]  # of indices into the ids


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
    single = [id for id in unpaired if counts[id] == 1]
    chosen = single or unpaired
    return find_run(ids, chosen[-1]) if chosen else None


def find_run(ids: Sequence[int], token: int) -> TokenSpan | None:
    """Return where a token is in a placeholder, together with those right behind it that are the same."""
    if token not in ids:
        return None
    first = last = ids.index(token)
    while last < len(ids) and ids[last] == token:
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
            if path not in paths:
                hint = did_you_mean(str(path), paths, "Media parts with a placeholder")
                raise MessageError(f"no media part {path!r}", path="counts", hint=hint)
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


def repeat_values(values: Sequence[Value], spans: Sequence[tuple[TokenSpan, int]]) -> list[Value]:
    """Return a list with one value for each token in which each span has its first value `count` times."""
    result: list[Value] = []
    done = 0
    for (first, last), count in spans:
        result += values[done:first]
        result += [values[first]] * count
        done = last
    return [*result, *values[done:]]


def shift_index(index: int, spans: Sequence[tuple[TokenSpan, int]]) -> int:
    """Return the index of a token after the spans before it were widened."""
    return index + sum(count - (last - first) for (first, last), count in spans if last <= index)


def no_pad_error(part: MediaPart, placeholder: str, named: str | int | None) -> TokenizerError:
    """Return the error for a placeholder in which no token can be repeated."""
    where = f"the placeholder {placeholder!r} of {part.path}"
    if named is not None:
        return TokenizerError(f"{where} has no token {named!r}", hint="Give its text or its id.")
    return TokenizerError(
        f"no token of {where} can be repeated: it has no special token of its own",
        hint="Add it to the tokenizer as a special token, or name one: expand(counts, token=...).",
    )

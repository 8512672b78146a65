"""Where something ends: a turn, with its stop; reasoning, where content follows it.

A stop is the first word behind a turn if there is a tag in it, else the first line: a word such as `###` ends nothing.
Between reasoning and content stand the end of the one and the beginning of the other, and only a turn that has one
without the other tells them apart.
"""

from __future__ import annotations

from turnwise.analysis.segment import NONE, Stretch, shared_start
from turnwise.replies.derive.calls import digits_in


def split_close(
    open_: Stretch, close: Stretch, plain: Stretch, called: Stretch
) -> tuple[Stretch, Stretch]:
    """What stands between reasoning and content, as the end of the one and the beginning of the other.

    `plain` stands before content where there is no reasoning: the beginning of content alone, or behind the markers of
    reasoning that is empty, or behind its end alone. `called` stands before a call: the end of empty reasoning is in it
    too, the beginning of content is not.
    """
    if (
        plain.text
        and close.text.endswith(plain.text)
        and close.text[: len(close) - len(plain)].strip()
    ):
        at = len(close) - len(plain)
        return close.part(0, at), close.part(at)
    if not plain.core or not open_.core or not plain.core.startswith(open_.core):
        return close, NONE
    rest = called.part(len(open_)) if called.text.startswith(open_.text) else NONE
    at = shared_start(close, rest)
    if close.part(0, at).core and close.part(at).core:
        return close.part(0, at), close.part(at)
    tags = close.tags
    count = max(len(open_.tags), 1)  # a marker is closed by as many tags as it was opened with
    if len(tags) > count:
        at = tags[count][0]
        return close.part(0, at), close.part(at)
    return close, NONE


def uncounted(stretch: Stretch) -> str:
    """The text up to the first number that is computed, such as that of a turn."""
    return stretch.text[
        : next((at for at, _, kind in digits_in(stretch) if kind == "computed"), None)
    ]


def stops_of(stop: str) -> tuple[str, ...]:
    """A stop of several tags (`<|close|>message<|sep|><|end|>`) in two: the last may be missing, or be all there is."""
    tags = Stretch(stop).tags
    return (stop[: tags[-1][0]], stop[tags[-1][0] :]) if len(tags) > 1 else (stop,)


def stop_of(text: str) -> str:
    """The text that ends a turn: the first word if there is a tag in it, else the first line.

    Where a word begins with two tags, it is the first of them.
    """
    lines = text.strip().splitlines()
    if not lines:
        return ""
    word = lines[0].split()[0]
    tags = Stretch(word).tags
    if not tags:
        return lines[0].rstrip()
    (start, end), joined = tags[0], len(tags) > 1 and tags[0][1] == tags[1][0]
    if start:  # a sign before a tag may stand behind it too: `|<end>|`
        return word[: end + start] if word[end : end + start] == word[:start][::-1] else word[:end]
    return word[:end] if joined else word

"""Texts that make a careless regular expression slow: runs of one class of characters, and runs of its own parts.

A pattern goes back when two neighbouring repetitions match the same character and what follows does not fit. So each
part of a pattern is repeated after a text that the parts before it match: `<|startstartstart...` for
`<\\|\\w*start\\w*>`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from pattern_sites import SCANS

CLASSES = (
    *(
        " ",
        "\n",
        "\r\n",
        "\t \n",
        "a",
        "aB9_",
        "A_",
        "1",
        "0",
        '"',
        "'",
        "\\",
        '\\"',
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
    ),
    *("<", ">", "<|", "|>", "</", "{{", "{%", "{#", ",", ".", "-", "=", ":", "/", "`", "#", "\x00"),
    *("\u00e9", "\u4e2d", "\u3000", "\U0001f600"),
)
CANDIDATES = "a1A_ \n\"'<[{(.-=\\\u4e2d\x00"
REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}
FLOOR = 0.03  # seconds, below which a ratio says nothing
RATIO = 2.5

Part = tuple[str, str]  # a text up to a part of the pattern, and one that the part matches


def list_texts(pattern: re.Pattern[Any]) -> Iterator[Part]:
    """Yield openings and units: the opening, and then the unit again and again, is a text to try."""
    parts = list(_list_parts(re._parser.parse(pattern.pattern, pattern.flags), ""))  # type: ignore[attr-defined]
    tried = set()
    following = [*(unit for _, unit in parts[1:]), ""]
    for (opening, unit), after in zip(parts, following, strict=False):
        texts = [(opening, repeated) for repeated in (unit, unit + after, " ", "a", "1")]
        for text in [*texts, ("", opening + unit)]:
            if text[1] and text not in tried:
                tried.add(text)
                yield text


def _list_parts(tree: Any, opening: str) -> Iterator[Part]:
    for is_word, items in groupby(tree, lambda item: str(item[0]) == "LITERAL"):
        for unit, inner in _list_units(list(items), is_word, tree.state):
            for one in inner:
                yield from _list_parts(one, opening)
            yield opening, unit
            opening += unit


def _list_units(items: list[Any], is_word: bool, state: Any) -> list[tuple[str, list[Any]]]:
    """Return what items of a pattern match, and the patterns in them; letters that follow each other are one unit."""
    units = [_sample(item, state) for item in items]
    if is_word:
        return [("".join(units), [])]
    inner = (_list_inner(str(kind), value) for kind, value in items)
    return list(zip(units, inner, strict=True))


def _list_inner(kind: str, value: Any) -> list[Any]:
    if kind in REPEATS:
        return [value[2]]
    if kind == "SUBPATTERN":
        return [value[3]]
    if kind == "BRANCH":
        return list(value[1])
    return [value] if kind == "ATOMIC_GROUP" else []


def _sample(item: Any, state: Any) -> str:
    """Return a text that a part of a pattern matches."""
    kind, value = str(item[0]), item[1]
    if kind == "LITERAL":
        return chr(value)
    if inner := _list_inner(kind, value):
        text = "".join(_sample(one, state) for one in inner[0])
        return text * max(1, value[0]) if kind in REPEATS else text
    if kind in ("IN", "ANY", "NOT_LITERAL"):
        single = re._compiler.compile(re._parser.SubPattern(state, [item]))  # type: ignore[attr-defined]
        members = (
            [chr(one) for name, one in value if str(name) == "LITERAL"] if kind == "IN" else []
        )
        fits = (one for one in [*members, *CANDIDATES] if single.fullmatch(one))
        return next(fits, "")
    return ""


def find_slowness(
    pattern: re.Pattern[Any], methods: frozenset[str], opening: str, unit: str, size: int
) -> str | None:
    """Return how a pattern takes more than in proportion to a text of up to so many characters; None if it does not."""
    for name in sorted({"finditer" if method in SCANS else method for method in methods}):
        work = _make_work(pattern, name)
        small = size
        while small > 3_000:
            small //= 2
        while small <= size:
            half, whole = (_make_text(pattern, opening, unit, size) for size in (small // 2, small))
            # Most are linear, so one measurement is enough for them.
            if _measure(work, whole) > FLOOR and _is_slow(work, half, whole):
                return f"{name} of {pattern.pattern!r} on {opening!r} + {small} x {unit!r}"
            small *= 2
    return None


def _is_slow(work: Callable[[Any], object], half: Any, whole: Any) -> bool:
    for _ in range(3):
        first, second = (min(_measure(work, text) for _ in range(2)) for text in (half, whole))
        if second <= max(RATIO * first, FLOOR):
            return False
    return True


def _make_text(pattern: re.Pattern[Any], opening: str, unit: str, size: int) -> str | bytes:
    text = opening + unit * (size // len(unit))
    return text.encode() if isinstance(pattern.pattern, bytes) else text


def _make_work(pattern: re.Pattern[Any], name: str) -> Callable[[Any], object]:
    if name == "finditer":
        return lambda text: sum(1 for _ in pattern.finditer(text))
    return getattr(pattern, name)  # type: ignore[no-any-return]


def _measure(work: Callable[[Any], object], text: Any) -> float:
    start = time.process_time()
    work(text)
    return time.process_time() - start

"""Values within values, written with the same markers again: `<a><b>1</b><c>x</c></a>`; a row of `item` is a list.

One pass over the text. An element holds elements or a text; where it holds both, or tags do not fit each other, there
is no such value, and all of it is text. A name that is there twice keeps both values, and the call is not whole.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from turnwise.replies.grammar import KEY, Pairs
from turnwise.replies.parser.values import DEPTH, NO_TYPES, typed

NAME = r"[\w.:\-]{1,256}"
LIST_ONLY, OBJECT_ONLY = frozenset({"array"}), frozenset({"object"})


class Strange(ValueError):
    """Too deep to be read."""


class Frame:
    """An element that is open."""

    __slots__ = ("children", "name", "says", "start")

    def __init__(self, name: str, start: int) -> None:
        self.name, self.start = name, start
        self.children: list[tuple[str, Any]] = []
        self.says = False  # there is text in it


def nesting(pairs: Pairs) -> bool:
    """Whether values within values are written with the same markers again."""
    return pairs.echoed or pairs.values == "tags"


@lru_cache(maxsize=64)
def tags(key: str, opened: str, close: str) -> re.Pattern[str]:
    before, _, behind = close.partition(KEY)
    end = (
        f"{re.escape(before)}(?P<end>{NAME}){re.escape(behind)}"
        if KEY in close
        else re.escape(close)
    )
    return re.compile(f"{end}|{re.escape(key)}(?P<start>{NAME}){re.escape(opened)}")


def elements(text: str, pairs: Pairs, types: frozenset[str] = NO_TYPES) -> tuple[Any, bool]:
    """The value, and whether all of it is in there; None if the text is no such value."""
    root = Frame("", 0)
    stack, last, whole = [root], 0, True
    for match in tags(pairs.key.core, pairs.string.open.core, pairs.string.close.core).finditer(
        text
    ):
        frame = stack[-1]
        frame.says = frame.says or bool(text[last : match.start()].strip())
        last = match.end()
        if match.lastgroup == "start" and not frame.says:
            stack.append(Frame(match.group("start"), last))
            if len(stack) > DEPTH:
                raise Strange("too deep")
        elif (
            match.lastgroup != "start"
            and frame is not root
            and match.groupdict().get("end") in (None, frame.name)
        ):
            if frame.children and frame.says:
                return None, True
            stack.pop()
            said = text[frame.start : match.start()]
            value, fits = grouped(frame.children) if frame.children else (plain(said), True)
            stack[-1].children.append((frame.name, value))
            whole = whole and fits
        else:
            frame.says = True  # a tag within a text
    if len(stack) > 1 or not root.children or root.says or text[last:].strip():
        return None, True
    value, fits = grouped(root.children, types)
    return value, whole and fits


def plain(text: str) -> Any:
    return json.loads(typed(text, NO_TYPES))


def grouped(children: list[tuple[str, Any]], types: frozenset[str] = NO_TYPES) -> tuple[Any, bool]:
    """A list of items, or an object; and whether every name is there once."""
    if types == LIST_ONLY or (types != OBJECT_ONLY and all(name == "item" for name, _ in children)):
        return [value for _, value in children], True
    found: dict[str, Any] = {}
    twice: dict[str, list[Any]] = {}
    for name, value in children:
        if name in found:
            twice.setdefault(name, [found[name]]).append(value)
        else:
            found[name] = value
    return found | twice, not twice

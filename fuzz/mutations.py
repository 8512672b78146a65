"""Change an input that a reader accepts into one that nobody expects.

`mutate_tree` changes JSON data where its structure is: a value of another type in any place, keys renamed, parts
removed, swapped, repeated, wrapped. `mutate_bytes` changes the bytes of a file. Values that once broke a reader (huge
integers, digits that are not ASCII, deep nesting, half of a surrogate pair) are in the tables. Everything is drawn from
one `random.Random`, so that a seed is an input.
"""

from __future__ import annotations

import copy
import json
import struct
from random import Random
from typing import Any

# JSON text that stands for a value, since `json.dumps` would not write it so.
RAW = (
    "[" * 1_500 + "]" * 1_500,
    '{"a":' * 1_500 + "1" + "}" * 1_500,
    "[" * 300 + "]" * 300,
    "[" * 20_000,
    "9" * 5_000,
    "-" + "9" * 400,
    "1e308",
    "1e999",
    "-0.0",
    "NaN",
    "-Infinity",
    '"\\ud800"',
    '"\\udc80a"',
    '"\\u0000"',
    "1" + "0" * 30,
)
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7, 0.5, 1e308),
    *(2**22, 2**31 - 1, 2**31, 2**32, 2**53, 2**63, 2**64, -(2**63)),
    *("", " ", "\x00", "²", "٣", "-1", "1.5", "9" * 5_000, "\ufeff", "\u202e", "é" * 3, "😀"),
    *(
        "{",
        "}",
        "{{",
        "}}",
        "{%",
        "{{ x }}",
        "{input}",
        "{system}",
        "{{content}}",
        "%s",
        "{0}",
        "\\",
    ),
    *("<|im_end|>", "</s>", "user", "assistant", "tool", "a.b.c", "../../etc/passwd", "\n", "\r\n"),
    *(
        "a" * 1_000,
        "<" * 3_000,
        "{" * 3_000,
        "(" * 3_000,
        "\\" * 3_000,
        " " * 20_000,
        "ab" * 20_000,
    ),
    *(
        [],
        {},
        [[]],
        [{}],
        [None],
        [1, "a", None],
        {"a": 1},
        {"": ""},
        {"content": 1},
        {"content": "a"},
    ),
    *(
        ["a", "b"],
        ["a"] * 300,
        {"type": "text", "text": "a"},
        {"name": []},
        {"id": -1, "content": ""},
    ),
)
MAGIC_BYTES = (
    *(
        b"\x00",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\xf0\x9f",
        b"\r",
        b"\n",
        b"\t",
        b" ",
    ),
    *(
        b'"',
        b"'",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"=",
        b"#",
        b"{{",
        b"}}",
        b"{%",
        b"%}",
        b"|",
        b"(",
    ),
    *(
        b"null",
        b"true",
        b"1e999",
        b"NaN",
        b"\\ud800",
        b"\\u0000",
        b"[[",
        b"{}",
        b"9" * 400,
        b"[" * 2_000,
    ),
)
NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    9,
    13,
    255,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
MAX_GROWTH = 150_000  # characters: an input is at most about so large

Path = tuple[Any, ...]


class RawJson:
    """A value that is written as this JSON text."""

    def __init__(self, index: int) -> None:
        self.mark = f"\ue000raw{index}\ue000"

    def __deepcopy__(self, memo: object) -> RawJson:
        return self


RAW_VALUES = tuple(map(RawJson, range(len(RAW))))


def write_json(tree: Any, chance: Random) -> bytes:
    """Return the tree as JSON, in one of the ways in which people write it."""
    indent = chance.choice((None, None, 2))
    text = json.dumps(tree, ensure_ascii=False, indent=indent, default=lambda raw: raw.mark)
    if "\ue000raw" in text:
        for value, raw in zip(RAW_VALUES, RAW, strict=True):
            text = text.replace(f'"{value.mark}"', raw)
    return text[: 2 * MAX_GROWTH].encode("utf-8", "surrogatepass")


def odd_value(chance: Random) -> Any:
    """Return a value that no reader expects, or one of another type than it expects."""
    if chance.random() < 0.2:
        return chance.choice(RAW_VALUES)
    return copy.deepcopy(chance.choice(ODD_VALUES))


def mutate_tree(tree: Any, chance: Random) -> Any:
    """Return a changed copy of JSON data; most are changed in one or two places."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5, 9))):
        paths = list_paths(tree)
        path = chance.choice(paths)
        if not path:
            if chance.random() < 0.1:
                tree = chance.choice((odd_value(chance), [tree], {"a": tree}))
            continue
        chance.choice(CHANGES)(tree, path, paths, chance)
    return tree


def list_paths(tree: Any) -> list[Path]:
    """Return the paths of all values; those of a long list or table stop after some."""
    found: list[Path] = [()]
    waiting: list[tuple[Path, Any]] = [((), tree)]
    while waiting and len(found) < 2_000:
        path, value = waiting.pop()
        steps: list[Any] = []
        if isinstance(value, dict):
            steps = list(value)[:200]
        elif isinstance(value, list):
            steps = list(range(min(len(value), 200)))
        for step in steps:
            found.append((*path, step))
            waiting.append(((*path, step), value[step]))
    return found


def look_up(tree: Any, path: Path) -> Any:
    """Return the value at a path; None if a change took it away."""
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


def _replace(tree: Any, path: Path, paths: list[Path], chance: Random) -> None:
    _put(tree, path, odd_value(chance))


def _put(tree: Any, path: Path, value: Any) -> None:
    holder = look_up(tree, path[:-1])
    if isinstance(holder, dict) or (isinstance(holder, list) and path[-1] < len(holder)):
        holder[path[-1]] = value


def _remove(tree: Any, path: Path, paths: list[Path], chance: Random) -> None:
    holder = look_up(tree, path[:-1])
    if look_up(tree, path) is not None:
        del holder[path[-1]]


def _rename(tree: Any, path: Path, paths: list[Path], chance: Random) -> None:
    holder = look_up(tree, path[:-1])
    if isinstance(holder, dict) and path[-1] in holder:
        key = chance.choice(
            (
                path[-1][:-1],
                path[-1] + "s",
                path[-1].upper(),
                "",
                "\ud800",
                "²",
                "a" * 5_000,
                "name",
            )
        )
        holder[key] = holder.pop(path[-1])


def _swap(tree: Any, path: Path, paths: list[Path], chance: Random) -> None:
    other = chance.choice(paths)
    shorter, longer = sorted((path, other), key=len)
    if longer[: len(shorter)] == shorter:  # one inside of the other: the tree would contain itself
        return
    first, second = copy.deepcopy((look_up(tree, path), look_up(tree, other)))
    _put(tree, path, second)
    _put(tree, other, first)


def _copy_from(tree: Any, path: Path, paths: list[Path], chance: Random) -> None:
    _put(tree, path, copy.deepcopy(look_up(tree, chance.choice(paths))))


def _wrap(tree: Any, path: Path, paths: list[Path], chance: Random) -> None:
    value = copy.deepcopy(look_up(tree, path))
    _put(
        tree,
        path,
        chance.choice(([value], {"a": value}, [value, copy.deepcopy(value)], {"content": value})),
    )


def _repeat(tree: Any, path: Path, paths: list[Path], chance: Random) -> None:
    value = look_up(tree, path)
    size = len(json.dumps(value, default=str)) + 1
    times = min(chance.choice((2, 2, 30, 30, 1_000, 20_000)), MAX_GROWTH // size)
    if isinstance(value, str):
        _put(tree, path, value * times)
    elif isinstance(value, list):
        _put(tree, path, [copy.deepcopy(item) for _ in range(times) for item in value])
    elif isinstance(value, dict) and value:
        key, item = next(iter(value.items()))
        value.update({f"{key}{i}": copy.deepcopy(item) for i in range(min(times, 2_000))})


def _edit_text(tree: Any, path: Path, paths: list[Path], chance: Random) -> None:
    value = look_up(tree, path)
    if isinstance(value, str):
        at = chance.randrange(len(value) + 1)
        cut = at + chance.choice((0, 0, 1, 5))
        insert = chance.choice([text for text in ODD_VALUES if isinstance(text, str)])
        _put(tree, path, value[:at] + insert + value[cut:])


def _tweak(tree: Any, path: Path, paths: list[Path], chance: Random) -> None:
    """Put another value of the same type there, so that the reader gets further."""
    value = look_up(tree, path)
    if isinstance(value, bool):
        _put(tree, path, not value)
    elif isinstance(value, int | float):
        _put(tree, path, chance.choice(NUMBERS) * chance.choice((1, 1, 1, -1, 0.5)))
    elif isinstance(value, str):
        _edit_text(tree, path, paths, chance)
    elif isinstance(value, list) and value:
        chance.shuffle(value)


CHANGES = (
    *(_replace, _replace, _remove, _rename, _swap, _copy_from, _wrap, _repeat),
    *(_edit_text, _edit_text, _tweak, _tweak, _tweak, _tweak),
)


def mutate_bytes(data: bytes, chance: Random) -> bytes:
    """Return changed bytes of a file."""
    for _ in range(chance.choice((1, 1, 2, 3, 6, 20))):
        at = chance.randrange(len(data) + 1)
        end = min(len(data), at + chance.choice((1, 1, 2, 4, 8, 50, 1_000)))
        part = data[at:end]
        change = chance.randrange(8)
        if change == 0:
            part = bytes((chance.randrange(256),))
        elif change == 1:
            part = b""
        elif change == 2:
            part = chance.choice(MAGIC_BYTES) + part
        elif change == 3:
            part = chance.choice(MAGIC_BYTES)
        elif change == 4:
            part = part * chance.choice((2, 3, 50))
        elif change == 5:
            part = struct.pack(
                chance.choice(("<I", "<Q", ">Q")), chance.choice(NUMBERS) & 0xFFFFFFFF
            )
        elif change == 6:
            start = chance.randrange(len(data) + 1)
            part = data[start : start + chance.choice((1, 8, 100))]
        else:
            end = len(data) if chance.random() < 0.3 else end
            part = b""
        data = (data[:at] + part + data[end:])[:MAX_GROWTH]
    return data

"""Every regular expression of the package takes time in proportion to the text, whatever the text is.

Patterns meet data that others wrote: rows, templates, replies, names of models. One that goes back hangs the process in
C, where nothing can interrupt it. So each is run on long runs of every class of characters, and on runs of its own
parts; twice the text may take 2.5 times as long.
"""

from __future__ import annotations

import gc
import random
import re
import time
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache
from itertools import groupby
from typing import Any

import pytest

import turnwise
from pattern_sites import SCANS, Site, find_sites, record_patterns
from turnwise.cli.conform import HEADER
from turnwise.cli.inputs import parse_options, split_pairs
from turnwise.cli.prepare import COLUMNS
from turnwise.compat.fastchat import get_conversation_template
from turnwise.compat.fastchat_conversation import _make_skeleton
from turnwise.languages import translate
from turnwise.registry.fastchat import ModelPattern
from turnwise.registry.match import tables
from turnwise.replies.export.constraint_tree import CharacterNode
from turnwise.replies.export.value_check import _compile_run
from turnwise.replies.grammar_parts import KEY
from turnwise.replies.parser.text_values import _tag_pattern
from turnwise.replies.parser.values import _quote_style
from turnwise.shapes.transcript import parse_transcript
from turnwise.tokens.token_matcher import TokenMatcher
from turnwise.tokens.tokenizers import tokenizer

# Texts that make a careless regular expression slow: runs of one class of characters, and runs of its own parts.
#
# A pattern goes back when two neighbouring repetitions match the same character and what follows does not fit. So each
# part of a pattern is repeated after a text that the parts before it match: `<|startstartstart...` for
# `<\|\w*start\w*>`.

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


# The tests

pytestmark = pytest.mark.once

SIZE = 100_000
OWN_SIZE = 6_000  # of texts of the pattern's own parts, in the quick run: enough for what is not linear to show
SAMPLE = 2  # classes for each pattern in the quick run
OWN_SAMPLE = 8


def make_parts() -> None:
    """Make patterns of names, tokens, quotes, tags and schemas; most makers keep what they made."""
    _make_skeleton.cache_clear()
    get_conversation_template("vicuna-7b").get_prompt()
    for known in gc.get_objects():
        if isinstance(known, ModelPattern):
            ModelPattern(known.text)._compile()
    for table in tables().values():
        for letter in [*table.first_letters, ""]:
            fresh = copy(table)
            fresh.compiled = {}
            fresh._patterns_for(letter)
    TokenMatcher(tokenizer("turnwise").added)
    _quote_style.__wrapped__('"', True)
    _tag_pattern.__wrapped__("<", ">", f"</{KEY}>")
    for negated in (True, False):
        _compile_run.__wrapped__(CharacterNode((("a", "z"), ("]", "]")), negated))


def read_sources() -> None:
    for text in ("{% if %}", "{% for %}", "{{ a b }}"):
        with pytest.raises(turnwise.TurnwiseError):
            turnwise.compile(text)
    slots = {
        f"format_{role}": [f"<{role}>\n{{{{content}}}}\n</{role}>"]
        for role in ("user", "observation")
    }
    turnwise.compile(slots, dialect="llamafactory")
    call = "<|action_start|><|plugin|>\n{}<|action_end|>"
    parse_transcript(f"<|im_start|>assistant\nHi{call}<|im_end|>").messages()
    for text in ("x cannot be read: y; z", "T1 error: there is no filter 'x' (also y)"):
        translate(text, "zh")


def read_flags() -> None:
    parse_options(["key=value"])
    split_pairs(["name: value"], "name:value", HEADER, "--header")
    split_pairs(["column=name"], *COLUMNS)


def check_headers() -> None:
    turnwise.check(turnwise.load("chatml"))


SCENES: tuple[Callable[[], None], ...] = (make_parts, read_sources, read_flags, check_headers)


@cache
def list_patterns() -> tuple[list[tuple[Site, re.Pattern[Any]]], list[str]]:
    """Return the patterns of all sites, and the sites of which none is known."""
    with record_patterns() as recorded:
        for scene in SCENES:
            scene()
    patterns: list[tuple[Site, re.Pattern[Any]]] = []
    unknown = []
    for site in find_sites():
        lines = range(site.line, site.last_line + 1)
        made = {site.pattern} if site.pattern else set()
        made = made or set().union(*(recorded.get((site.path, line), ()) for line in lines))
        patterns += [(site, pattern) for pattern in made]
        if not made:
            unknown.append(site.place)
    return patterns, unknown


def test_every_pattern_is_looked_at() -> None:
    patterns, unknown = list_patterns()
    assert len(patterns) > 180
    assert not unknown, "no scene of this file reaches " + ", ".join(unknown)


def find_slow_patterns(
    choose: Callable[[re.Pattern[Any]], list[tuple[str, str, int]]],
) -> list[str]:
    """Return what is slow of each pattern, one text of each; `choose` returns openings, units and sizes."""
    slow = []
    for site, pattern in list_patterns()[0]:
        found = (find_slowness(pattern, site.methods, *text) for text in choose(pattern))
        problem = next(filter(None, found), None)
        if problem:
            slow.append(f"{site.place}: {problem}")
    return slow


def test_patterns_take_time_in_proportion_to_the_text() -> None:
    chance = random.Random(7)

    def choose(pattern: re.Pattern[Any]) -> list[tuple[str, str, int]]:
        own = list(list_texts(pattern))
        own = chance.sample(own, min(len(own), OWN_SAMPLE))
        classes = chance.sample(CLASSES, SAMPLE)
        return [*((*text, OWN_SIZE) for text in own), *(("", unit, SIZE) for unit in classes)]

    assert not find_slow_patterns(choose)


@pytest.mark.slow
def test_patterns_take_time_in_proportion_to_any_text() -> None:
    assert not find_slow_patterns(
        lambda pattern: [
            *((*text, SIZE) for text in list_texts(pattern)),
            *(("", unit, SIZE) for unit in CLASSES),
        ]
    )

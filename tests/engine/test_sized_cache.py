"""What is cached of templates is bounded by bytes, and a template that is used again is compiled once."""

from __future__ import annotations

import pytest

import turnwise
from containment import Bounds, find_problems
from turnwise.engine.program import MAX_CACHED_BYTES, PROGRAMS
from turnwise.sized_cache import SizedCache

CHAT = [{"role": "user", "content": "hello"}]


def test_the_least_recently_used_is_dropped() -> None:
    made: list[str] = []

    def make(text: str) -> str:
        made.append(text)
        return text

    cache = SizedCache(make, lambda _: 1_000, max_bytes=20_000)
    for text in "abcabc":
        assert cache.get(text) == text
    assert made == ["a", "b", "c"]
    for number in range(20):
        cache.get("a")
        cache.get(str(number))
    assert made.count("a") == 1 and cache.bytes <= 20_000
    cache.get("b")
    assert made.count("b") == 2


def test_what_is_large_is_not_kept() -> None:
    cache = SizedCache(len, max_bytes=8_000)
    cache.get("x" * 5_000)
    assert cache.bytes == 0


def test_programs_are_cached() -> None:
    text = "{{ messages[0].content }} only here"
    assert turnwise.compile(text).program is turnwise.compile(text).program


def test_many_large_templates_leave_little() -> None:
    """The peak holds a few templates, not all; the letters differ, so that no text is shared."""

    def compile_many(_: object) -> None:
        for number in range(150):
            text = f"{number}" + chr(0x1F600 + number % 60) * 250_000 + "{{ messages }}"
            turnwise.compile(text)
        assert PROGRAMS.bytes <= MAX_CACHED_BYTES

    bounds = {"compile": Bounds(ms=20_000, mb=100)}
    assert not find_problems({"compile": compile_many}, bounds)


@pytest.mark.law
def test_many_programs_leave_little() -> None:
    def compile_many(_: object) -> None:
        for number in range(150):
            turnwise.compile(f"{{{{ {number} }}}}" + "{{ messages[0].role }}{{ x.y }}" * 80)
        assert PROGRAMS.bytes <= MAX_CACHED_BYTES

    bounds = {"compile": Bounds(ms=20_000, mb=100)}
    assert not find_problems({"compile": compile_many}, bounds)

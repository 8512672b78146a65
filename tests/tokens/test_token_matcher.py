"""Added tokens in a text: the matcher against a slow and obvious one, and the time that it takes."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timing import assert_linear, assert_quick
from turnwise.tokens.attribution import Trust
from turnwise.tokens.token_matcher import MAX_NESTING, MAX_PATTERN_LENGTH, TokenMatcher
from turnwise.tokens.tokenizers.protocol import Added
from vocabularies import law

pytestmark = pytest.mark.once

SHORT = st.text("ab< ", min_size=1, max_size=5)
# Deep and long families too: their patterns are not exact.
FAMILIES = st.sampled_from(
    [(), tuple("a" * n for n in range(1, MAX_NESTING + 9)), ("b" * MAX_PATTERN_LENGTH + "ab",)]
)
LEVELS = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(Trust)), min_size=1, max_size=9)
TEXTS = st.lists(
    st.one_of(SHORT, st.sampled_from(["a" * 60, "b" * MAX_PATTERN_LENGTH, "  "])), max_size=12
).map("".join)


def make_tokens(texts: list[str], special: list[bool]) -> dict[str, Added]:
    flags = special or [True]
    return {
        text: Added(text, number, flags[number % len(flags)]) for number, text in enumerate(texts)
    }


class Authors:
    """Runs of text with a trust level each; the last one goes on to the end."""

    def __init__(self, runs: list[tuple[int, Trust]]) -> None:
        self.starts = [sum(length for length, _ in runs[:number]) for number in range(len(runs))]
        self.levels = [level for _, level in runs]

    def run_at(self, place: int) -> int:
        return bisect_right(self.starts, place) - 1

    def is_allowed(self, token: Added, start: int, end: int) -> bool:
        if not token.control:
            return True
        level = self.levels[self.run_at(start)]
        if self.run_at(start) != self.run_at(end - 1):
            return False
        return level == Trust.ALL or (level == Trust.ORDINARY and not token.special)

    def narrow(
        self, matcher: TokenMatcher, text: str, start: int
    ) -> tuple[TokenMatcher, int] | None:
        run = self.run_at(start)
        end = self.starts[run + 1] if run + 1 < len(self.starts) else len(text)
        level = self.levels[run]
        if level == Trust.ALL:
            return None
        return (matcher.ordinary if level == Trust.ORDINARY else matcher.blank), end


def find_slowly(added: dict[str, Added], text: str, authors: Authors) -> list[tuple[int, str]]:
    """Return the longest token that is allowed at each place, from left to right."""
    found, place = [], 0
    while place < len(text):
        fitting = [known for known in added if text.startswith(known, place)]
        allowed = [
            known
            for known in fitting
            if authors.is_allowed(added[known], place, place + len(known))
        ]
        if allowed:
            found.append((place, max(allowed, key=len)))
        place += len(max(allowed, key=len)) if allowed else 1
    return found


@given(st.lists(SHORT, max_size=8), FAMILIES, st.lists(st.booleans()), TEXTS, LEVELS)
@law(300)
def test_the_longest_token_that_its_author_may_write(texts, family, special, text, runs) -> None:
    added = make_tokens([*dict.fromkeys([*texts, *family])], special)
    matcher, authors = TokenMatcher(added), Authors(runs)
    expected = find_slowly(added, text, authors)
    asked = matcher.find(text, authors.is_allowed)
    assert [(match.start, match.token.text) for match in asked] == expected
    narrowed = matcher.find(
        text, authors.is_allowed, lambda start: authors.narrow(matcher, text, start)
    )
    assert narrowed == asked


def test_an_author_is_asked_once_about_many_lookalikes() -> None:
    matcher = TokenMatcher(make_tokens(["<s>", "</s>"], [True]))
    asked: list[int] = []

    def refuse(token: Added, start: int, end: int) -> bool:
        asked.append(start)
        return False

    text = "<s></s>" * 1000
    assert matcher.find(text, refuse, lambda start: (matcher.blank, len(text))) == []
    assert asked == [0]


def test_tokens_that_begin_with_each_other_take_little_time() -> None:
    """A file of 1.1 MB, and a text of 60 kB that spells nothing but such tokens."""
    added = make_tokens(["a" * (size + 1) for size in range(1500)], [True])
    assert_quick(lambda: TokenMatcher(added), 0.5)
    matcher = TokenMatcher(added)
    assert len(matcher.find("a" * 60_000)) == 40
    assert_linear(lambda size: matcher.find("a" * size), 60_000)


def test_long_tokens_take_little_time() -> None:
    added = make_tokens(["x" * 500_000 + end for end in "ab"], [True])
    assert_quick(lambda: TokenMatcher(added), 0.5)
    found = TokenMatcher(added).find("y" + "x" * 500_000 + "b" + "x" * 9)
    assert [(match.start, match.end) for match in found] == [(1, 500_002)]


@pytest.mark.parametrize(
    ("texts", "is_separable"),
    [
        (["<a>", "<b>"], True),
        (["<a>", "<a>b"], False),  # one begins with the other
        (["ab", "bc"], False),  # one may end where the other begins
        (["abc", "b"], False),  # one is inside of the other
        (["aa"], False),  # two of it may overlap
        ([], True),
    ],
)
def test_tokens_that_never_overlap(texts: list[str], is_separable: bool) -> None:
    matcher = TokenMatcher({text: Added(text, id) for id, text in enumerate(texts)})
    assert matcher.is_separable == is_separable


def test_texts_that_may_be_joined_to_a_token() -> None:
    matcher = TokenMatcher({"<end>": Added("<end>", 0)})
    assert (
        matcher.can_join("x <en", "")
        and matcher.can_join("", "d> x")
        and matcher.can_join("<", ">")
    )
    assert not matcher.can_join("user\n", "\nend")


@given(st.lists(SHORT, max_size=6, unique=True), TEXTS, st.integers(0, 3))
@law(100)
def test_whether_a_token_is_in_a_text(texts: list[str], text: str, times: int) -> None:
    """Also in a long text, with tokens that all begin with one character."""
    for tokens in (texts, [f"<{each}" for each in texts]):
        matcher = TokenMatcher(make_tokens(tokens, []))
        long = "c" * 3000 * times + text + "d" * 200 * times
        assert matcher.is_in(long) is any(token in long for token in tokens)

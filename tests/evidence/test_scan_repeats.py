"""`scan`: rows that repeat another, word by word or nearly."""

from __future__ import annotations

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from turnwise.cli import app
from turnwise.data.records import Record
from turnwise.errors import SourceError
from turnwise.evidence import row_repeats, scan
from turnwise.evidence.row_repeats import (
    MIN_SHARED,
    RepeatFinder,
    estimate_shared,
    sketch_text,
)

RUN = CliRunner()
WORDS = [f"word{number}" for number in range(4_000)]
CHINESE = "潮汐由月球和太阳的引力引起海水每天涨落两次港口的引水员必须知道它们何时到来"


def make_text(seed: int, size: int = 120) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=size))


def talk(question: str, answer: str = "Yes.", system: str = "") -> dict[str, Any]:
    turns = [("system", system)] if system else []
    turns += [("user", question), ("assistant", answer)]
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


def record(text: str) -> Record:
    return Record(talk(text, "")["messages"], {})


def find(rows: list[Any], **settings: Any) -> list[tuple[int, str, str]]:
    given = {"repeats": "near", **settings}
    return [(one.row, one.kind, one.text) for one in scan(rows, **given)]


def test_nearly_equal_rows_are_looked_for_only_if_asked() -> None:
    rows = [talk(make_text(1)), talk(make_text(1) + " more")]
    assert not list(scan(rows))
    assert [one.kind for one in scan(rows, repeats="near")] == ["nearly repeated"]


def test_a_repeated_row_names_the_first() -> None:
    rows = [talk("a b"), talk("c d"), talk("a b"), talk("a b")]
    assert find(rows) == [
        (2, "repeated", "the same as row 0"),
        (3, "repeated", "the same as row 0"),
    ]


def test_rows_are_compared_as_conversations() -> None:
    turns = [{"from": "human", "value": "How high?"}, {"from": "gpt", "value": "6 m"}]
    swapped = [dict(reversed(one.items())) for one in talk("How high?", "6 m")["messages"]]
    rows = [
        talk("How high?", "6 m"),
        {"id": 2, "conversations": turns},
        {"prompt": "How high?", "completion": "6 m"},
        swapped,
    ]
    assert find(rows) == [(number, "repeated", "the same as row 0") for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("row", "other"),
    [
        (talk("q", "a"), talk("q", "b")),
        (talk("q", "a"), {"messages": talk("q", "a")["messages"] * 2}),
        ({**talk("q", "a"), "tools": []}, {**talk("q", "a"), "tools": [{"name": "tide"}]}),
        (
            {"prompt": "q", "chosen": "a", "rejected": "b"},
            {"prompt": "q", "chosen": "a", "rejected": "c"},
        ),
    ],
)
def test_other_conversations_are_no_repeats(row: Any, other: Any) -> None:
    assert not [one for one in find([row, other]) if one[1] == "repeated"]


@pytest.mark.parametrize(
    "text", [make_text(1), " ".join(map(str.upper, make_text(2).split())), CHINESE * 3]
)
def test_a_text_with_a_word_changed_is_a_near_repeat(text: str) -> None:
    size = len(text)
    other = f"{text[: size // 2]}變{text[size // 2 + 1 :]}"
    rows = [talk(make_text(8)), talk(text, CHINESE), talk(make_text(9)), talk(other, CHINESE)]
    ((number, kind, said),) = find(rows)
    assert (number, kind) == (3, "nearly repeated") and "row 1" in said


def test_case_and_white_space_do_not_matter() -> None:
    rows = [talk("How high is the tide at Brest?"), talk("how high is the\n tide at Brest?")]
    assert find(rows) == [(1, "nearly repeated", "100% the same as row 0")]


@pytest.mark.parametrize("value", [{1: 2, "a": 3}, b"x", "\ud800", "🌊 \ud800"])
def test_rows_of_python_are_compared(value: Any) -> None:
    row = {"messages": [*talk("q")["messages"], {"role": "user", "content": "?", "x": value}]}
    assert find([row, row]) == [(1, "repeated", "the same as row 0")]
    row = talk(str(value))
    assert find([row, row]) == [(1, "repeated", "the same as row 0")]


def test_a_common_system_text_makes_no_near_repeats() -> None:
    system = make_text(3, 500)
    assert not find([talk(make_text(seed, 12), system=system) for seed in range(20)])


def test_of_a_chain_the_first_is_named() -> None:
    words = make_text(4).split()
    rows = [talk(" ".join([*words, *["more"] * number])) for number in range(4)]
    assert {said.rpartition(" ")[2] for _, _, said in find(rows)} == {"0"}


def test_the_estimate_is_near_the_truth() -> None:
    """Of 200 pairs with 500 words and from none to all of them changed; one in a million is off by five deviations."""
    source = random.Random(7)
    for _ in range(200):
        words = source.choices(WORDS, k=500)
        other = [source.choice(WORDS) if source.random() < 0.08 else word for word in words]
        grams = [{tuple(one[n : n + 5]) for n in range(496)} for one in (words, other)]
        truth = len(grams[0] & grams[1]) / len(grams[0] | grams[1])
        sketches = [sketch_text(" ".join(one)) for one in (words, other)]
        assert abs(estimate_shared(*sketches) - truth) < 0.32


def test_near_repeats_among_many_rows_are_found() -> None:
    source, texts = random.Random(5), [make_text(seed, 60) for seed in range(3_000)]
    finder, found = RepeatFinder("near"), 0
    for number, text in enumerate(texts):
        assert not list(finder.find(number, record(text)))
    for number in range(300):
        words = texts[number].split()
        words[source.randrange(60)] = "other"
        for kind, _, said in finder.find(3_000 + number, record(" ".join(words))):
            found += kind == "nearly repeated" and said.endswith(f" {number}")
    # One word of 60 changes at most 5 of 56 groups: 51 of 61 are shared.
    assert found >= 295 and MIN_SHARED < 51 / 61


def test_repeats_are_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [talk("a b c d e"), talk("a b c d  e"), talk("a b c d e")]
    assert [kind for _, kind, _ in find(rows)] == ["nearly repeated", "repeated"]
    assert find(rows, repeats="exact") == [(2, "repeated", "the same as row 0")]
    assert not find(rows, repeats="none")
    with pytest.raises(SourceError, match="repeats"):
        find(rows, repeats="nearly")
    monkeypatch.setattr(row_repeats, "MAX_SKETCHES", 1)
    others = [talk("x y z x y"), talk("x y z x  y"), *rows[:2]]
    assert [row for row, _, _ in find(others)] == [1]  # later rows have none to be compared with


def test_what_is_kept_of_a_row_is_small() -> None:
    tracemalloc.start()
    try:
        finder = RepeatFinder("near")
        for number in range(300):
            text = make_text(number, 200)
            list(finder.find(number, record(text)))
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < row_repeats.SLOTS * 4 + 300 * 700, kept


def test_the_command(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, [talk("a b"), talk("c d"), talk("a b")])))
    shown = RUN.invoke(app, ["scan", str(data), "-t", "chatml"])
    assert shown.exit_code == 1 and "row 3: the same as row 1" in shown.stdout, shown.output
    assert RUN.invoke(app, ["scan", str(data), "--repeats", "none"]).exit_code == 0

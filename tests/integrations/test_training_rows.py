"""`integrations.training_rows`, and the strategy of axolotl: rows become samples, and bad ones are named."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

import turnwise
from host_chats import BAD_ROWS, KINDS, conversations, rows
from turnwise.errors import TurnwiseWarning
from turnwise.integrations import axolotl
from turnwise.integrations.training_rows import RowEncoder, describe_problems


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_those_of_the_template(kind: str) -> None:
    template = turnwise.load(kind)
    encoder = pickle.loads(pickle.dumps(RowEncoder("turnwise", template)))
    given = conversations()
    samples, problems = encoder.encode_all(given)
    assert not [problem for problem in problems if problem.is_dropped]
    for row, made in list(zip(given, samples, strict=True))[::4]:
        expected = template.examples(row["messages"], "turnwise", tools=row["tools"])
        assert [one.labels for one in made] == [one.labels for one in expected]


def test_bad_rows_are_named() -> None:
    encoder = RowEncoder("turnwise", turnwise.load("chatml"), split=False)
    given = [*BAD_ROWS, *rows()[:1]]
    samples, problems = encoder.encode_all(given, first=100)
    assert [len(made) for made in samples] == [0] * len(BAD_ROWS) + [1]
    assert [problem.row for problem in problems] == list(range(100, 100 + len(BAD_ROWS)))
    assert all(problem.is_dropped and problem.reason for problem in problems)
    text = describe_problems(problems * 2, 12)
    assert text.startswith("10 of 12 rows give no sample") and "and 5 more" in text


def test_a_turn_that_is_not_written_is_a_flaw() -> None:
    template = turnwise.compile("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    row = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
    calls = [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]
    row["messages"].append({"role": "assistant", "content": "x", "tool_calls": calls})
    (made,), (problem,) = RowEncoder("turnwise", template).encode_all([row])
    assert made and not problem.is_dropped and "not write its calls" in problem.reason


def test_the_strategy_of_axolotl_maps_batches() -> None:
    tokenizer = SimpleNamespace(chat_template=turnwise.load("chatml").text)
    strategy = axolotl.load(tokenizer, {"sequence_len": 4096}, ds_cfg={"field_messages": "turns"})
    strategy.encoder = RowEncoder("turnwise", strategy.encoder.template)
    good = conversations()[:3]
    turns: list[Any] = [*(row["messages"] for row in good), "hi"]
    with pytest.warns(TurnwiseWarning, match="a row is left out: .*'hi'"):
        made = strategy.tokenize_prompt({"turns": turns, "tools": [None] * 4})
    expected = [turnwise.load("chatml").encode(row["messages"], "turnwise") for row in good]
    assert made["labels"] == [one.labels for one in expected]
    assert made["input_ids"] == [one.input_ids for one in expected]
    assert [len(row) for row in made["attention_mask"]] == [len(one) for one in expected]


def test_settings_without_effect_are_refused() -> None:
    tokenizer = SimpleNamespace(chat_template="{{ messages[0].content }}")
    for settings in ({"roles_to_train": ["human"]}, {"train_on_eos": "all"}):
        with pytest.raises(turnwise.MessageError, match="would have no effect"):
            axolotl.load(tokenizer, {}, ds_cfg=settings)
    with pytest.raises(turnwise.MessageError, match="processor"):
        axolotl.load(tokenizer, {}, processor=object())
    with pytest.raises(turnwise.SourceError, match="no chat template"):
        axolotl.load(SimpleNamespace(), {})

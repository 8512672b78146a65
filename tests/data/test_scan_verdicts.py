"""The law of verdicts: `scan` finds the rows that `prepare` rejects, all and no others, for the same reasons."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import turnwise
from turnwise.cli import app
from turnwise.data import Recipe, prepare
from turnwise.data.reasons import KINDS
from turnwise.data.record_encoder import RecordEncoder
from turnwise.evidence import scan
from turnwise.evidence.scan import RowScanner

RUN = CliRunner()
TEXTS = ("Noon.", "我需要先查一下潮汐表。", "Прилив в полдень.", "मुझे देखना है।", "🌊", "a\n\nb")


class Messy:
    """Rows of 30 kinds, as data sets have them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def text(self) -> str:
        return f"{self._random.choice(TEXTS)} {self._random.randrange(100)}"

    def ask(self, **keys: Any) -> dict[str, Any]:
        return {"role": "user", "content": self.text(), **keys}

    def reply(self, content: Any = ..., **keys: Any) -> dict[str, Any]:
        return {"role": "assistant", "content": self.text() if content is ... else content, **keys}

    def call(self, name: str = "c1", arguments: Any = None) -> dict[str, Any]:
        function = {"name": "tide", "arguments": arguments or {"at": "Brest"}}
        return {"id": name, "type": "function", "function": function}

    def result(self, name: str | None = "c1") -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": name, "content": self.text()}

    def talk(self, rounds: int = 1) -> list[dict[str, Any]]:
        return [one for _ in range(rounds) for one in (self.ask(), self.reply())]

    def kinds(self) -> dict[str, Callable[[], Any]]:
        called = self.reply(None, tool_calls=[self.call()])
        thought = f"<think>\n{self.text()}\n</think>\n\n{self.text()}"
        turns = [{"from": "human", "value": self.text()}, {"from": "gpt", "value": self.text()}]
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
        return {
            "plain": lambda: {"messages": self.talk()},
            "rounds": lambda: {"messages": self.talk(3), "id": 7},
            "list": self.talk,
            "sharegpt": lambda: {"conversations": turns, "source": "x"},
            "alpaca": lambda: {"instruction": self.text(), "input": "", "output": self.text()},
            "prompt": lambda: {"prompt": self.text(), "completion": self.text()},
            "preference": lambda: {"prompt": "q", "chosen": self.text(), "rejected": "no"},
            "kto": lambda: {"prompt": "q", "completion": self.text(), "label": False},
            "score": lambda: {"messages": self.talk(), "score": 3},
            "split": lambda: {"messages": self.talk(), "split": "test"},
            "empty": lambda: {"messages": [self.ask(), self.reply("")]},
            "null": lambda: {"messages": [self.ask(), self.reply(None)]},
            "no reply": lambda: {"messages": [self.ask()]},
            "no message": lambda: {"messages": []},
            "role": lambda: {"messages": [self.ask(), {"role": "asistant", "content": "Hi"}]},
            "reasoning": lambda: {
                "messages": [
                    *(self.ask(), self.reply(reasoning_content=self.text())),
                    *(self.ask(), self.reply(reasoning_content=self.text())),
                ]
            },
            "thinking": lambda: {"messages": [self.ask(), self.reply(thought)]},
            "unclosed": lambda: {"messages": [self.ask(), self.reply(thought[:12])]},
            "unopened": lambda: {"messages": [self.ask(), self.reply(thought[8:])]},
            "calls": lambda: {"messages": [self.ask(), called, self.result(), self.reply()]},
            "orphan": lambda: {"messages": [self.ask(), called, self.result("c9"), self.reply()]},
            "bad arguments": lambda: {
                "messages": [self.ask(), self.reply("", tool_calls=[self.call(arguments="{oops")])]
            },
            "image": lambda: {"messages": [self.ask(content=[image]), self.reply()]},
            "images": lambda: {"messages": self.talk(), "images": ["a.png"]},
            "forged": lambda: {"messages": [self.ask(content="Hi<|im_end|>"), self.reply()]},
            "weight": lambda: {"messages": [self.ask(), self.reply(weight=0.5)]},
            "not trained": lambda: {"messages": [self.ask(), self.reply(weight=0)]},
            "number": lambda: {"messages": [self.ask(content=7), self.reply()]},
            "no JSON": lambda: b'{"messages": [{"role": "us',
            "twice": lambda: b'{"messages": [], "messages": []}',
            "no UTF-8": lambda: b'{"prompt": "\xff", "completion": "x"}',
            "rendered": lambda: {"text": "<|im_start|>user\nHi<|im_end|>"},
        }

    def rows(self, of_each: int) -> list[bytes]:
        kinds = self.kinds()
        rows = [make() for make in kinds.values() for _ in range(of_each)]
        self._random.shuffle(rows)
        return [one if isinstance(one, bytes) else json.dumps(one).encode() for one in rows]


@pytest.mark.law(4)
@pytest.mark.parametrize("template", ["qwen3", "chatml", "qwen2.5"])
@pytest.mark.parametrize(
    "values",
    [{}, {"samples": "turns"}, {"preferences": "unpaired"}, {"preferences": "pairs"}],
    ids=str,
)
def test_scan_rejects_what_prepare_rejects(
    template: str, values: dict[str, Any], tmp_path: Path
) -> None:
    rows = Messy(7).rows(3)
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(rows))
    recipe = Recipe(tmp_path / "rows.jsonl", template, "turnwise", tmp_path / "out", **values)
    report = prepare(recipe, workers=1)
    lines = report.rejected.read_bytes().splitlines()
    rejected = {(one["row"], one["kind"], one["reason"]) for one in map(json.loads, lines)}
    found = [one for one in scan(rows, "turnwise", turnwise.load(template), **values)]
    assert {(one.row + 1, one.kind, one.text) for one in found if one.rejects} == rejected
    assert len(rejected) == report.rows["rejected"] > 10
    assert {kind for _, kind, _ in rejected} <= set(KINDS)


@pytest.mark.parametrize("template", ["qwen3", "chatml"])
def test_rows_are_judged_without_a_tokenizer(template: str) -> None:
    rows = Messy(8).rows(1)
    judged = [
        {one.row for one in scan(rows, tokenizer, turnwise.load(template)) if one.rejects}
        for tokenizer in ("turnwise", None)
    ]
    assert judged[1] <= judged[0] and len(judged[1]) > len(judged[0]) - 4  # which need labels


@pytest.mark.parametrize("template", ["qwen3", "chatml", "gemma-2", "llama-3.1"])
def test_repaired_rows_are_encoded_as_those_they_come_from(template: str) -> None:
    loaded = turnwise.load(template)
    rows = Messy(10).rows(1)
    scanner = RowScanner("turnwise", loaded, "none", repair=True)
    encoder = RecordEncoder(Recipe("rows", loaded, "turnwise"))
    for found, row in zip(scanner.scan(enumerate(rows)), rows, strict=True):
        if found.repaired is not None and not found.problems:
            given, repaired = (encoder.encode_rows([one]).encoded for one in (row, found.repaired))
            assert (given.input_ids, given.labels) == (repaired.input_ids, repaired.labels)
            assert len(given.input_ids)


def test_what_each_kind_becomes() -> None:
    messy = Messy(9)
    kinds = messy.kinds()
    rows = [kinds[kind]() for kind in kinds]
    found = {}
    for one in scan(rows, "turnwise", turnwise.load("qwen3")):
        if one.rejects:
            found[list(kinds)[one.row]] = one.kind
    assert found == {
        "kto": "unread-column",
        "split": "unread-column",
        "images": "unread-column",
        "empty": "empty-reply",
        "null": "empty-reply",
        "no reply": "nothing-trained",
        "not trained": "nothing-trained",
        "no message": "bad-message",
        "role": "nothing-trained",
        "reasoning": "loses-text",
        "unclosed": "unbalanced-reasoning",
        "unopened": "unbalanced-reasoning",
        "orphan": "orphan-result",
        "bad arguments": "loses-text",
        "image": "loses-text",
        "weight": "bad-message",
        "number": "bad-message",
        "no JSON": "bad-json",
        "twice": "bad-json",
        "no UTF-8": "bad-encoding",
        "rendered": "unknown-shape",
    }


def test_scan_has_one_sentence_for_a_row_without_a_message() -> None:
    (found,) = scan([{"messages": []}], "turnwise", turnwise.load("qwen3"))
    assert "the conversation is empty" in found.text


def test_correct_reasoning_is_no_control_token() -> None:
    messy = Messy(1)
    template = turnwise.load("qwen3")
    good = {"messages": [messy.ask(), messy.reply("<think>\nx\n</think>\n\ny")]}
    assert not list(scan([good], "turnwise", template))
    forged = {"messages": [messy.ask(content="</think>"), messy.reply("a<|im_end|>b")]}
    found = {(one.kind, one.field, one.text) for one in scan([forged], None, template)}
    assert ("control token", "messages[1].content", "<|im_end|>") in found


@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
def test_rows_keep_their_numbers(count: int) -> None:
    rows = [{"messages": [{"role": "user", "content": "q"}]}] * count
    found = scan(rows, "turnwise", turnwise.load("chatml"), repeats="none")
    assert [one.row for one in found] == [*range(count)]


def test_the_command_lists_columns_and_takes_what_prepare_takes(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "completion": "a", "verdict": n % 2, "id": n} for n in range(4)]
    data = tmp_path / "rows.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    arguments = ["scan", str(data), "-t", "chatml", "-k", "turnwise", "--repeats", "none"]
    refused = RUN.invoke(app, arguments)
    assert refused.exit_code == 1 and "4 would be rejected" in refused.stdout
    assert "columns that were not read: verdict (4 rows), id (4 rows)" in refused.stdout
    flags = ["--preferences", "unpaired", "--columns", "label=verdict", "--json"]
    read = RUN.invoke(app, [*arguments, *flags])
    assert read.exit_code == 0, read.output
    assert json.loads(read.stdout) == {
        **{"rows": 4, "affected": 0, "rejected": 0, "problems": [], "unread": {"id": 4}}
    }
    assert RUN.invoke(app, [*arguments, "--drop-columns", "verdict"]).exit_code == 0
    assert RUN.invoke(app, [*arguments, "--preferences", "none"]).exit_code == 2

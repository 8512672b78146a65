"""`scan`: what is wrong with the rows of a dataset."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import turnwise
from loaded import load_entry
from turnwise.cli import app
from turnwise.cli.json_lines import read_json_lines
from turnwise.data.reasons import KINDS
from turnwise.data.records import UnusableRow
from turnwise.evidence import scan

RUN = CliRunner()
GOOD = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
TOOL = {
    "type": "function",
    "function": {"name": "tide", "parameters": {"type": "object", "properties": {}}},
}


def calling(arguments: Any) -> dict[str, Any]:
    function = {"name": "tide", "arguments": arguments}
    call = {"id": "c1", "type": "function", "function": function}
    messages = [GOOD["messages"][0], {"role": "assistant", "content": "", "tool_calls": [call]}]
    return {"messages": messages}


def pad_tools(value: Any) -> dict[str, Any]:
    function = {**TOOL["function"], "parameters": {"type": "object", "properties": value}}
    return {**GOOD, "tools": [{"type": "function", "function": function}]}


CASES: list[tuple[str, Any, str]] = [
    ("control token", [{"role": "user", "content": "a<|im_end|>b"}], "messages[0].content"),
    ("role", [{"role": "usr", "content": "Hi"}], "messages[0].role"),
    ("role", [{"role": "Assistant", "content": "Hi"}], "messages[0].role"),
    ("arguments", calling("{oops"), "messages[1].tool_calls[0].function.arguments"),
    ("arguments", calling("[1]"), "messages[1].tool_calls[0].function.arguments"),
    (
        "null padding",
        calling({"at": "Brest", "city": None}),
        "messages[1].tool_calls[0].function.arguments.city",
    ),
    (
        "null padding",
        pad_tools({"at": {"type": "string"}, "x": None}),
        "tools[0].function.parameters.properties.x",
    ),
    ("unknown-shape", {"text": "rendered"}, ""),
    ("row-too-large", UnusableRow("row-too-large", "longer than a row may be"), ""),
    ("bad-json", b"{oops", ""),
    ("unknown-shape", 7, ""),
    ("unread-column", {**GOOD, "label": False}, "label"),
    ("empty-reply", [*GOOD["messages"], {"role": "assistant", "content": ""}], "messages[2]"),
    ("nothing-trained", GOOD["messages"][:1], ""),
    ("bad-message", [], "messages"),
]


@pytest.mark.parametrize(("kind", "row", "field"), CASES)
def test_each_problem_is_found_in_its_place(kind: str, row: Any, field: str) -> None:
    found = list(scan([GOOD, row, GOOD], "turnwise", repeats="none"))
    assert {problem.row for problem in found} == {1}
    assert kind in {problem.kind for problem in found}
    (first, *_) = [problem for problem in found if problem.kind == kind]
    assert first.field == field and first.text


@pytest.mark.parametrize(
    "row",
    [
        GOOD,
        calling({"at": "Brest"}),
        calling('{"at": "Brest"}'),
        pad_tools({"at": {"type": "string", "default": None, "enum": ["a", None]}}),
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
        {"instruction": "Say hi.", "output": "Hi"},
    ],
)
def test_good_rows_have_no_problem(row: Any) -> None:
    assert not list(scan([row], "turnwise"))
    assert not list(scan([row], "turnwise", load_entry("qwen2.5")))


def test_a_template_tells_what_vanishes_and_what_it_refuses() -> None:
    template = turnwise.compile(
        "{% for m in messages %}{% if m.role == 'user' and loop.index0 % 2 %}{{ raise_exception('order') }}{% endif %}"
        "{% if m.role != 'tool' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    lost = {
        "messages": [*GOOD["messages"], {"role": "tool", "content": "lost"}, GOOD["messages"][1]]
    }
    refused = {"messages": [*([GOOD["messages"][0]] * 2), GOOD["messages"][1]]}
    unlabelled = {"messages": GOOD["messages"][:1]}
    found = list(scan([GOOD, lost, refused, unlabelled], "turnwise", template))
    kinds = {(problem.row, problem.kind) for problem in found}
    assert {(1, "loses-text"), (2, "refused"), (3, "nothing-trained")} <= kinds
    assert not any(problem.row == 0 for problem in found)
    assert next(p for p in found if p.kind == "loses-text").field == "messages[2].content"
    assert "order" in next(p for p in found if p.kind == "refused").text
    without = {
        (one.row, one.kind) for one in scan([GOOD, lost, refused, unlabelled], None, template)
    }
    assert {one for one in without if one[1] in KINDS} == {one for one in kinds if one[1] in KINDS}


def test_a_role_of_the_template_is_known() -> None:
    template = turnwise.compile(
        "{% for m in messages %}{% if m.role == 'wizard' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    row = [{"role": "wizard", "content": "Abracadabra"}]
    assert [problem.kind for problem in scan([row])] == ["role"]
    assert not list(scan([row], template=template))


def test_the_command(tmp_path: Path) -> None:
    data = tmp_path / "train.jsonl"
    rows = [json.dumps(GOOD), "{oops", "", json.dumps(calling("{oops"))]
    data.write_text("\n".join([*rows, *([json.dumps([{"role": "usr", "content": "Hi"}])] * 9)]))
    shown = RUN.invoke(app, ["scan", str(data), "-k", "turnwise"])
    assert shown.exit_code == 1 and "12 rows, 11 with a problem" in shown.stdout, shown.output
    assert "row 2: is not JSON" in shown.stdout and "row 4 messages[1].tool_calls" in shown.stdout
    found = json.loads(RUN.invoke(app, ["scan", str(data), "--json"]).stdout)
    roles = next(problem for problem in found["problems"] if problem["kind"] == "role")
    assert roles["count"] == 9 and len(roles["first"]) == 5 and roles["first"][0]["line"] == 5
    fine = tmp_path / "fine.jsonl"
    fine.write_text(json.dumps(GOOD) + "\n")
    assert RUN.invoke(app, ["scan", str(fine), "-t", "qwen2.5", "-k", "turnwise"]).exit_code == 0
    assert RUN.invoke(app, ["scan", str(tmp_path / "none")]).exit_code == 2
    assert RUN.invoke(app, ["scan", str(tmp_path)]).exit_code == 2


def test_json_lines_are_read_one_at_a_time(tmp_path: Path) -> None:
    data = tmp_path / "large.jsonl"
    line = json.dumps({"messages": [{"role": "user", "content": "x" * 10_000}]}) + "\n"
    data.write_text(line * 1_000)
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_json_lines(str(data)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 1_000 and peak < 1_000_000, peak


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"prompt": "a"}, {"prompt": "b"}]', [(1, {"prompt": "a"}), (2, {"prompt": "b"})]),
        ('[\n{"prompt": "a"},\n {"prompt": "b"}]', [(1, {"prompt": "a"}), (2, {"prompt": "b"})]),
        ('{\n"prompt": "a"\n}', [(1, {"prompt": "a"})]),
        (
            '\ufeff{"prompt": "a"}\n\n{"prompt": "b"}',
            [(1, b'{"prompt": "a"}'), (3, b'{"prompt": "b"}')],
        ),
        ('{"a"\n{"prompt": "b"}', [(1, b'{"a"'), (2, b'{"prompt": "b"}')]),
        ("", []),
    ],
)
def test_documents_and_lines(text: str, expected: list[Any], tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    data.write_text(text, encoding="utf-8")
    assert [(line.number, line.row) for line in read_json_lines(str(data))] == expected


def test_lines_that_are_not_text_or_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.cli.json_lines.MAX_LINE", 30)
    data = tmp_path / "data.jsonl"
    data.write_bytes(b'{"a": 1}\n"\xff"\n' + b'"' + b"x" * 100 + b'"\n[1]\n')
    found = list(read_json_lines(str(data)))
    assert [line.number for line in found] == [1, 2, 3, 4]
    assert (
        found[1].row == b'"\xff"'
        and "longer than" in found[2].row.reason
        and found[2].row.kind == "row-too-large"
    )
    assert found[3].row == b"[1]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", "data.json is empty"), ("[]", "the conversation is empty"), ("7", "not int: 7")],
)
def test_a_file_without_a_conversation(text: str, problem: str, tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    data.write_text(text, encoding="utf-8")
    result = RUN.invoke(app, ["scan", str(data)])
    assert result.exit_code == 2 and problem in " ".join(result.stderr.split()), result.output


def test_collisions_of_a_dataset_are_listed() -> None:
    """Row, field and token of every text that is spelled like a control token."""
    turns = [{"from": "human", "value": "a<|im_end|>b"}, {"from": "gpt", "value": "ok<|im_start|>"}]
    fine = [{"role": "user", "content": "fine"}, {"role": "assistant", "content": "too"}]
    rows = [{"messages": fine}, {"conversations": turns}]
    assert [tuple(one) for one in scan(rows, "turnwise")] == [
        (1, "control token", "messages[0].content", "<|im_end|>"),
        (1, "control token", "messages[1].content", "<|im_start|>"),
    ]

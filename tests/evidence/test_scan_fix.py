"""`scan --fix`: the rows that can be repaired, with their changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from loaded import load_entry
from turnwise.cli import app
from turnwise.evidence import scan

RUN = CliRunner()
ASK = {"role": "user", "content": "How high?"}
REPLY = {"role": "assistant", "content": "6 m"}
TOOL = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "Heights.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}


def call(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": "tide", "arguments": arguments}
    calls = [{"id": "c1", "type": "function", "function": function}]
    result = {"role": "tool", "tool_call_id": "c1", "content": "6"}
    return [ASK, {"role": "assistant", "content": "", "tool_calls": calls}, result, REPLY]


def pad(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "function": {**tool["function"], "strict": None}}


def fix(rows: list[Any], folder: Path, *flags: str) -> tuple[Any, list[dict[str, Any]], list[str]]:
    """Return what is reported, the rows that were written, and what a scan of these prints."""
    data, fixed = folder / "rows.jsonl", folder / "fixed.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    given = RUN.invoke(app, ["scan", str(data), *flags, "--fix", str(fixed), "--json"])
    written = [json.loads(line) for line in fixed.read_text().splitlines()]
    again = RUN.invoke(app, ["scan", str(fixed), *flags, "--repeats", "none"])
    return json.loads(given.stdout), written, again.stdout.splitlines() if written else []


@pytest.mark.parametrize("template", [None, "qwen3", "llama-3.1"])
def test_padding_is_removed(template: str | None, tmp_path: Path) -> None:
    flags = () if template is None else ("-t", template, "-k", "turnwise")
    rows = [
        {"messages": [ASK, REPLY]},
        {"messages": call({"at": "Brest", "day": None}), "tools": [pad(TOOL)], "id": 7},
        {"messages": call({"at": "Oslo"})[:2], "tools": [TOOL]},
        {"messages": [{"role": "usr", "content": "Hi"}, REPLY]},
    ]
    report, (fixed,), again = fix(rows, tmp_path, *flags)
    assert (report["repaired"], report["unrepaired"]) == (1, 1)
    assert fixed["messages"] == call({"at": "Brest"}) and fixed["tools"] == [TOOL]
    assert (fixed["line"], fixed["id"]) == (2, 7)
    paths = [change["path"] for change in fixed["changes"]]
    assert "tools[0].function.strict" in paths
    assert "messages[1].tool_calls[0].function.arguments.day" in paths
    assert again[0] == "1 row, 0 with a problem; 0 would be rejected"


def test_rows_get_the_forms_that_the_template_takes(tmp_path: Path) -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "How high?"}]}
    rows = [
        {"messages": call('{"at": "Brest"}'), "tools": [TOOL], "score": 0.5},
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Yes"}]},
        {"messages": [parts, {**REPLY, "weight": 1}]},
    ]
    template = load_entry("qwen2.5")
    report, fixed, again = fix(rows, tmp_path, "-t", "qwen2.5", "-k", "turnwise")
    assert report["affected"] == report["unrepaired"] == 0 and report["repaired"] == len(fixed) > 0
    assert again[0].endswith("0 with a problem; 0 would be rejected")
    for one in fixed:
        assert one["changes"] and set(one["changes"][0]) == {"path", "what", "why"}
        given = rows[one["line"] - 1]
        ids = [
            template.encode(row["messages"], "turnwise", tools=row.get("tools"))
            for row in (given, one)
        ]
        assert (ids[0].input_ids, ids[0].labels) == (ids[1].input_ids, ids[1].labels)
        assert one.get("score") == given.get("score")
        assert not template.render(one["messages"], tools=one.get("tools")).changes


def test_both_sides_of_a_preference_are_written(tmp_path: Path) -> None:
    row = {"prompt": call({"at": "Brest", "day": None})[:3], "tools": [TOOL]}
    row |= {"chosen": [REPLY], "rejected": [{**REPLY, "content": "9 m"}]}
    flags = ("-t", "qwen3", "-k", "turnwise", "--preferences", "pairs")
    _, (fixed,), again = fix([row], tmp_path, *flags)
    sides = [fixed[side][1]["tool_calls"][0]["function"] for side in ("chosen", "rejected")]
    assert sides == [{"name": "tide", "arguments": {"at": "Brest"}}] * 2
    assert [fixed[side][-1]["content"] for side in ("chosen", "rejected")] == ["6 m", "9 m"]
    assert again[0] == "1 row, 0 with a problem; 0 would be rejected"


def test_a_label_is_kept(tmp_path: Path) -> None:
    row = {"messages": call({"at": "Brest", "day": None})[:2], "label": False}
    flags = ("-t", "qwen3", "-k", "turnwise", "--preferences", "unpaired")
    _, (fixed,), again = fix([row], tmp_path, *flags)
    assert fixed["label"] is False and "0 with a problem" in again[0]


def test_a_row_that_stays_bad_is_not_written(tmp_path: Path) -> None:
    forged = [{**ASK, "content": "<|im_end|>"}, *call({"at": "Brest", "day": None})[1:]]
    rows = [{"messages": forged}, {"messages": [ASK]}, {"text": "rendered"}]
    report, fixed, _ = fix(rows, tmp_path, "-t", "qwen3", "-k", "turnwise")
    assert (fixed, report["repaired"], report["unrepaired"]) == ([], 0, 3)


def test_the_report_has_the_counts(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"messages": call({"at": "Brest", "day": None})}))
    shown = RUN.invoke(app, ["scan", str(data), "--fix", str(tmp_path / "fixed.jsonl")])
    assert shown.exit_code == 1 and "1 row was repaired, 0 could not be" in shown.stdout
    assert "repaired" not in RUN.invoke(app, ["scan", str(data)]).stdout


def test_the_data_is_not_overwritten(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"messages": [ASK, REPLY]}))
    shown = RUN.invoke(app, ["scan", str(data), "--fix", str(data)])
    assert shown.exit_code == 2 and "another file" in shown.stderr and data.read_text()
    shown = RUN.invoke(app, ["scan", str(data), "--fix", str(tmp_path / "no" / "fixed.jsonl")])
    assert shown.exit_code == 2 and "cannot be written" in shown.stderr


def test_required_nulls_are_no_padding() -> None:
    schema = {"type": "object", "properties": {"at": {}}, "required": ["at"]}
    tool = {**TOOL, "function": {**TOOL["function"], "parameters": schema}}
    assert not list(scan([{"messages": call({"at": None}), "tools": [tool]}]))

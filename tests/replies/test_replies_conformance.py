"""The script behind `make replies-conformance`: its table, and fixtures in the form of ai-dynamo/frontend-crates."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import replies_conformance as conformance

CALL = (
    "<tool_call>\n<function=tide>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
)
TIDE = {
    "name": "tide",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def fixture(reply: str, *parts: dict[str, Any], mode: str = "Native") -> dict[str, Any]:
    return {
        "lifecycle": "active",
        "display_id": "OWN.1",
        "request": {
            "input": reply,
            "init": {"starting_state": "None", "tool_output_mode": mode},
            "tools": [TIDE],
            "chunks": [{"delta_text": reply}, {"delta_text": "‹finish›"}],
        },
        "golden": {"assembled": list(parts)},
    }


CALLED = {"kind": "tool_call", "name": "tide", "arguments": {"city": "Oslo"}}
CASES = {
    "call": fixture(f"<think>Hm.</think>{CALL}", {"kind": "reasoning", "text": "Hm."}, CALLED),
    "interleaved": fixture(
        f"Aye. {CALL} and <think>so</think>{CALL}",
        {"kind": "text", "text": "Aye. "},
        CALLED,
        {"kind": "text", "text": " and "},
        {"kind": "reasoning", "text": "so"},
        CALLED,
    ),
    "cut": fixture(f"Aye. {CALL[:60]}", {"kind": "text", "text": "Aye. "}),
    "wrong": fixture("Aye.", {"kind": "text", "text": "No."}),
    "guided": fixture("[]", mode="GuidedJson"),
}


def test_fixtures(tmp_path: Path) -> None:
    folder = tmp_path / "conformance" / "fixtures-unified-v2" / "families"
    for family in ("qwen3", "unheard"):
        (folder / family).mkdir(parents=True)
        text = json.dumps({"cases": CASES})  # JSON is YAML
        (folder / family / "inputs_and_golden.yaml").write_text(text, encoding="utf-8")
    (known, outcomes, differing), (unknown, missing, _) = conformance.run_fixtures(tmp_path)
    assert known == "qwen3" and differing == ["OWN.1"]
    assert outcomes == Counter({"equal": 3, "differs": 1, "left out": 1})
    assert unknown == "unheard" and missing["no template"] == 1


def test_the_table_has_all_invariants() -> None:
    rows = {"qwen": conformance.Row(2, Counter({"order": 1})), "glm": conformance.Row(1, Counter())}
    lines = conformance.write_table(rows).splitlines()
    assert len(lines) == 5 and lines[2].startswith("| glm | 1 | 0")
    assert lines[-1] == "| **all** | 3 | 1" + " | 0" * 7 + " |"


@pytest.mark.parametrize("family", sorted(conformance.FAMILIES))
def test_families_of_fixtures_have_a_template(family: str) -> None:
    name = conformance.FAMILIES[family]
    known = conformance.corpus.load_published()
    assert not known or name in known or name in conformance.turnwise.entries()

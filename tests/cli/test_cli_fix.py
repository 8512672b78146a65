"""`turnwise fix`: the diff, the file, JSON, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_runner import run

pytestmark = pytest.mark.once

TURNS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content + '' }}</s>{% endfor %}"
TEXT = TURNS + "{% if add_generation_prompt %}<|assistant|>{% endif %}"
FIXED = TEXT.replace("m.content", "(m.content or '')")
ONLY = ("--only", "null-content")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "chat_template.jinja"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_diff_is_shown(path: Path) -> None:
    result = run("fix", path, *ONLY)
    assert result.exit_code == 1
    assert result.stdout.startswith("null-content: ") and f"+{FIXED}" in result.stdout
    diff = run("fix", path, *ONLY, "--diff")
    assert diff.exit_code == 1 and diff.stdout.startswith("--- a/")
    assert path.read_text(encoding="utf-8") == TEXT


def test_the_file_is_written(path: Path) -> None:
    assert run("fix", path, *ONLY, "--write").exit_code == 0
    assert path.read_text(encoding="utf-8") == FIXED
    again = run("fix", path, *ONLY, "--write")
    assert again.exit_code == 0 and again.stdout.startswith("nothing to fix on ")


def test_json(path: Path) -> None:
    result = run("fix", path, *ONLY, "--json")
    data = json.loads(result.stdout)
    assert (
        result.exit_code == 1 and data["text"] == FIXED and data["changed"] and not data["written"]
    )
    assert [patch["name"] for patch in data["patches"]] == ["null-content"]


def test_blocks(path: Path) -> None:
    result = run("fix", path, *ONLY, "--generation", "--json")
    assert "{% generation %}" in json.loads(result.stdout)["text"]


def test_misuse(path: Path) -> None:
    assert run("fix", path, "--only", "nul-content").exit_code == 2
    assert run("fix", "no-such-file.jinja").exit_code == 2
    refused = run("fix", "chatml", "--write")
    assert refused.exit_code == 2 and "not a file" in refused.stderr


def test_the_repaired_text_is_written_to_another_file(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "fixed.jinja"
    assert run("fix", path, *ONLY, "-o", target).exit_code == 0
    assert path.read_text(encoding="utf-8") == TEXT
    assert target.read_text(encoding="utf-8") == FIXED
    assert run("fix", path, *ONLY, "--write", "-o", target).exit_code == 2
    assert "cannot be written" in run("fix", path, *ONLY, "-o", tmp_path).stderr

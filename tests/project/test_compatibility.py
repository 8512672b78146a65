"""docs/compatibility.md: every difference from the other formats is one line, and names the test that holds it.

The tables of the page are run by `test_conformance`; the lines after them are checked here. That a test shows what its
line says is for a reader to judge.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from named_tests import expected_to_fail, names

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
SECTION = re.compile(
    r"^# The other formats$(.*?)^## Writing other formats$", re.DOTALL | re.MULTILINE
)
ENDING = re.compile(r" `(test_\w+\.py)::(test_\w+)`$")
FORMATS = ["FastChat", "XTuner", "PaddleNLP", "LLaMA-Factory", "InternLM2", "LMDeploy", "Ollama"]


def section() -> list[str]:
    found = SECTION.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    return found[1].splitlines()


BULLETS = [line for line in section() if line.startswith("* ")]


def test_every_format_has_its_lines() -> None:
    assert [line.removeprefix("## ") for line in section() if line.startswith("## ")] == FORMATS
    assert not [line for line in section() if line.startswith("  ")], "a difference is one line"
    assert len(set(BULLETS)) == len(BULLETS) > 50


@pytest.mark.parametrize("line", BULLETS, ids=lambda line: line[2:40])
def test_a_difference_is_held(line: str) -> None:
    ending = ENDING.search(line)
    assert ending is not None, "it ends with `test_file.py::test_name`"
    file, name = path_of(ending[1]), ending[2]
    assert name in names(file), f"there is no {file}::{name}"
    assert name not in expected_to_fail(file)


def path_of(name: str) -> str:
    """Return the path of a test file from the root of the project; its name is unique."""
    (found,) = (ROOT / "tests").rglob(name)
    return found.relative_to(ROOT).as_posix()

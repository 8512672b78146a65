"""The recipes of CONTRIBUTING.md work: a copy of the package gets a filter, a check and a model, and uses them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = "{# my-model #}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
HI = '[{"role": "user", "content": "hi"}]'


def read_blocks(heading: str, language: str) -> list[str]:
    """Return the code blocks of one section."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    indented = re.findall(rf"^( *)```{language}\n(.*?)^ *```", section, re.M | re.S)
    return [re.sub(rf"(?m)^{indent}", "", text) for indent, text in indented]


@pytest.fixture
def project_copy(tmp_path: Path) -> Path:
    copy = tmp_path / "turnwise"
    shutil.copytree(
        ROOT / "src" / "turnwise", copy, ignore=shutil.ignore_patterns("__pycache__", "static")
    )
    return copy


def run(project_copy: Path, code: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(project_copy.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    found = subprocess.run(
        [sys.executable, "-c", f"import turnwise\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        cwd=project_copy.parent,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_a_filter_is_one_function(project_copy: Path) -> None:
    (function,) = read_blocks("Add a filter", "python")
    with (project_copy / "engine/runtime/filters.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\n{function}")
    code = f"""
template = turnwise.compile("{{{{ messages[0].content | shout }}}}")
rendering = template.render({HI})
print(rendering, template.program.python.count("filter_shout"), rendering.pieces[0].origin.message)
"""
    assert run(project_copy, code) == "HI! 1 0\n"


def test_a_check_is_a_function_and_a_row(project_copy: Path) -> None:
    (function,) = read_blocks("Add a check", "python")
    (row,) = read_blocks("Add a check", "text")
    path = project_copy / "evidence/checks/source.py"
    before, _, after = path.read_text(encoding="utf-8").partition("\nCHECKS = (\n")
    path.write_text(f"{before}\n{function}\n\nCHECKS = (\n    {row}{after}", encoding="utf-8")
    code = """
template = turnwise.compile("{% for m in messages %}!!!{{ m.content }}{% endfor %}")
print([finding.message for finding in turnwise.check(template) if finding.code == "T699"])
"""
    assert run(project_copy, code) == "['the template shouts']\n"


def test_a_model_is_two_data_files(project_copy: Path) -> None:
    (entry,) = read_blocks("Add a model", "toml")
    folder = project_copy / "registry/entries"
    (folder / "my-model.jinja").write_text(TEMPLATE, encoding="utf-8")
    (folder / "my-model.toml").write_text(entry, encoding="utf-8")
    code = f"""
for name in ("my-model", "my-org/My-Model-70B-v2"):
    template = turnwise.load(name)
    print(template.render({HI}), list(template.stops()))
"""
    assert run(project_copy, code) == "<|user|>hi<|end|> ['<|end|>']\n" * 2

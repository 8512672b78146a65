"""The pages of the documentation site: those made from data are there, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import build_docs
import pytest

from turnwise import dialects, entries
from turnwise.cli import COMMANDS
from turnwise.evidence.checks import CHECKS

LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "docs"
    build_docs.write_pages(folder)
    return folder


def test_there_is_a_page_for_each_entry_dialect_check_and_command(site: Path) -> None:
    own = [name for name, entry in entries().items() if not entry.file and ":" not in name]
    assert len(own) > 200
    assert all((site / "entries" / f"{name}.md").exists() for name in own if "/" not in name)
    assert all((site / "dialects" / f"{name}.md").exists() for name in dialects.DIALECTS)
    assert all((site / "commands" / f"{name}.md").exists() for name in COMMANDS)
    assert all((site / "checks" / f"{check.code}-{check.name}.md").exists() for check in CHECKS)


def test_links_lead_somewhere(site: Path) -> None:
    broken = []
    for page in sorted(site.rglob("*.md")):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in LINK.findall(text):
            path = target.partition("#")[0]
            if path and "://" not in path and not (page.parent / path).exists():
                broken.append(f"{page.relative_to(site)}: {target}")
    assert not broken, "\n".join(broken)


def test_links_of_the_project_lead_somewhere() -> None:
    """On a page that is read in the repository."""
    root, broken = build_docs.ROOT, []
    for page in (root / "README.md", root / "README.zh-CN.md", *(root / "docs").rglob("*.md")):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            path = target.partition("#")[0]
            if path and "://" not in path and not (page.parent / path).exists():
                broken.append(f"{page.relative_to(root)}: {target}")
    assert not broken, "\n".join(broken)

"""The pages of the documentation site: those made from data are there, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import build_docs
import docs_pictures
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


def test_pictures_show_what_turnwise_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the first page are drawn again; the screencast changes with every sentence, so it is not compared."""
    drawn = docs_pictures.IMAGES
    (tmp_path / "growth.json").write_bytes((drawn / "growth.json").read_bytes())
    monkeypatch.setattr(docs_pictures, "IMAGES", tmp_path)
    docs_pictures.draw_origins()
    docs_pictures.draw_attack()
    docs_pictures.draw_growth()
    for name in ("origins.svg", "attack.svg", "growth.svg"):
        assert (tmp_path / name).read_bytes() == (drawn / name).read_bytes(), "run `make pictures`"


def test_drawings_stand_in_the_first_pages(site: Path) -> None:
    for name in build_docs.FRONT:
        text = (site / name).read_text(encoding="utf-8")
        assert text.count("<svg ") == 4 and "images/origins.svg" not in text
        assert not re.search(r"(?:src|href)=.https?:|@import|url\(", text)  # nothing is loaded

"""Build the documentation site: `python scripts/build_docs.py`, which `make docs` calls.

The pages of docs/ are copied to build/docs, and those that are made from data are written beside them: one for each
entry, dialect and check, and the help of each command. Then mkdocs makes build/site-docs of them; a link that leads
nowhere is an error.
"""

from __future__ import annotations

import argparse
import inspect
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from click.testing import CliRunner

import turnwise
from turnwise import dialects
from turnwise.cli import app
from turnwise.cli.options import read_table
from turnwise.evidence.checks import CHECKS

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "docs"
OUTSIDE = (
    "README.md",
    "README.zh-CN.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
)
"""Pages that do not stand in docs/; the README is the first page."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", action="store_true", help="write the pages, build no site")
    wanted = parser.parse_args()
    write_pages(PAGES)
    if wanted.pages:
        return 0
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict"], cwd=ROOT
    ).returncode


def write_pages(folder: Path) -> None:
    """Write all pages of the site."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for name in OUTSIDE:
        text = (ROOT / name).read_text(encoding="utf-8")
        write(folder / place_of(name), relink(text))
    for page in folder.rglob("*.md"):
        page.write_text(relink_up(page.read_text(encoding="utf-8"), folder, page), encoding="utf-8")
    write_all(folder / "entries", "Models", entry_pages())
    write_all(folder / "dialects", "Dialects", dialect_pages())
    write_all(folder / "checks", "Checks", check_pages())
    write_all(folder / "commands", "Commands", command_pages())


def place_of(name: str) -> str:
    """Return where a page from outside of docs/ stands on the site."""
    return name.replace("/README", "").replace("README", "index").lower()


def relink(text: str) -> str:
    """Let the links of a page from outside of docs/ lead to the places of the site."""
    for other in OUTSIDE:
        text = text.replace(f"]({other}", f"]({place_of(other)}")
    return text.replace("](docs/", "](").replace("](../docs/", "](")


def relink_up(text: str, folder: Path, page: Path) -> str:
    """Let links out of docs/ lead to the pages that were put in, and those to files of the project be plain text."""

    def change(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        if "://" in target or target.startswith("#"):
            return found[0]
        path, hash_sign, anchor = target.partition("#")
        for other in OUTSIDE:
            if (page.parent / path).resolve() == (folder.parent / other).resolve():
                up = "../" * len(page.parent.relative_to(folder).parts)
                return f"[{label}]({up}{place_of(other)}{hash_sign}{anchor})"
        return found[0] if (page.parent / path).exists() else label

    return re.sub(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)", change, text)


def entry_pages() -> dict[str, tuple[str, str]]:
    """Return a page for each entry that is written by us, by name: what it is for, and how to use it."""
    pages = {}
    for name, entry in turnwise.entries().items():
        if ":" in name or "/" in name:
            continue
        rows = {
            "family": entry.family,
            "dialect": entry.dialect,
            "other names": ", ".join(entry.aliases),
            "models": ", ".join(f"`{model}`" for model in entry.models),
            "stops": ", ".join(f"`{stop}`" for stop in entry.stops),
            "equal to": ", ".join(f"`{text}`" for text in entry.verified),
        }
        table = "".join(f"| {key} | {value} |\n" for key, value in rows.items() if value)
        source = str(entry.load_source())
        text = (
            f"# {name}\n\n{entry.notes}\n\n| | |\n|---|---|\n{table}\n"
            f'```python\nimport turnwise\n\ntemplate = turnwise.load("{name}")\n```\n\n'
            f"```jinja\n{source.replace('```', '` ` `')}\n```\n"
        )
        pages[name] = (entry.notes.partition(".")[0], text)
    return pages


def dialect_pages() -> dict[str, tuple[str, str]]:
    """Return a page for each dialect: what its module says about it."""
    pages = {}
    for name in sorted(dialects.DIALECTS):
        module = import_module(f"turnwise.dialects.{name}")
        head = inspect.getdoc(module) or ""
        pages[name] = (head.partition("\n")[0], f"# {name}\n\n```text\n{head}\n```\n")
    return pages


def check_pages() -> dict[str, tuple[str, str]]:
    """Return a page for each check."""
    return {f"{check.code}-{check.name}": (check.title, check.page) for check in CHECKS}


def command_pages() -> dict[str, tuple[str, str]]:
    """Return the help of each command."""
    pages = {}
    for name, row in read_table().items():
        shown = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(app, [name, "--help"])
        lines = "\n".join(line.rstrip() for line in shown.output.strip().splitlines())
        pages[name] = (row["help"][0], f"# turnwise {name}\n\n```text\n{lines}\n```\n")
    return pages


def write_all(folder: Path, title: str, pages: dict[str, tuple[str, str]]) -> None:
    """Write pages and the list of them."""
    for name, (_, text) in pages.items():
        write(folder / f"{name}.md", text)
    if (folder / "README.md").exists():
        return
    rows = "".join(f"| [{name}]({name}.md) | {line} |\n" for name, (line, _) in pages.items())
    write(folder / "index.md", f"# {title}\n\n| | |\n|---|---|\n{rows}")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

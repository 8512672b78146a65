"""The rooms of the package and their order, and the table of docs/architecture.md that is written from them.

    python scripts/architecture.py          rewrite the table
    python scripts/architecture.py --check  exit with 1 if the page is not up to date

A room is a package or module of `src/turnwise`. What it is for is the first paragraph of its docstring, so the page
says what the code says. `tests/project/test_layers.py` holds the imports to the order.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "turnwise"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: written by scripts/architecture.py -->\n", "<!-- end of rooms -->\n"

# A room may import from the rows above its own, never from its own row or below. `turnwise` is the front door,
# `__init__.py`.
LAYERS = (
    ("errors", "immutable", "languages", "sized_cache", "processes"),
    ("schema", "token_ids", "local_files", "notebook"),
    ("messages", "hub_cache"),
    ("shapes",),
    ("engine",),
    ("analysis",),
    ("dialects", "tokens", "replies"),
    ("normalisation",),
    ("conversion",),
    ("training", "batch"),
    ("template",),
    ("registry",),
    ("data",),
    ("evidence", "isolation"),
    ("oracles",),
    ("repair",),
    ("publishing",),
    ("turnwise",),
    ("compat",),
    ("integrations",),
    ("serve",),
    ("cli",),
    ("__main__",),
)


def write_table() -> str:
    """Return the table of rooms: those of one row do not import each other."""
    lines = ["| room | what it is for |\n|---|---|\n"]
    for rooms in LAYERS:
        for room in rooms:
            for name, file in list_packages(room):
                lines.append(f"| `{name}` | {read_purpose(file)} |\n")
    return "".join(lines)


def list_packages(room: str) -> list[tuple[str, Path]]:
    """Return a room and the packages in it, each with the file whose docstring says what it is for."""
    if room == "turnwise":
        return [("__init__.py", PACKAGE / "__init__.py")]
    folder = PACKAGE / room
    if not folder.is_dir():
        return [(f"{room}.py", PACKAGE / f"{room}.py")]
    found = sorted(folder.rglob("__init__.py"), key=lambda file: file.parts[:-1])
    return [(f"{file.parent.relative_to(PACKAGE).as_posix()}/", file) for file in found]


def read_purpose(file: Path) -> str:
    """Return the first paragraph of a docstring as one line."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    purpose = " ".join(text.partition("\n\n")[0].split())
    if not purpose:
        raise SystemExit(
            f"{file.relative_to(ROOT)} has no docstring, so the page cannot say what it is for"
        )
    return purpose


def write_page() -> str:
    """Return the page with the table as the code has it."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + write_table() + END + after


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    wanted = parser.parse_args()
    page = write_page()
    if wanted.check:
        return int(page != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Write docs/api.md from the docstrings of the public names.

    python scripts/api_reference.py          rewrite the page
    python scripts/api_reference.py --check  exit with 1 if the page is not up to date

The docstring is the documentation; this page only collects them.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
HEAD = """\
# API

Every public name of `turnwise` and `turnwise.data`, with its docstring. Written by `make api`; a test holds that it
is up to date.
"""


def write_page() -> str:
    """Return the text of the page."""
    import turnwise
    import turnwise.data

    lines = [HEAD]
    for module in (turnwise, turnwise.data):
        for name in sorted(module.__all__, key=lambda name: (name[0].isupper(), name.lower())):
            lines += describe(f"{module.__name__}.{name}", getattr(module, name))
    return "\n".join(lines).rstrip() + "\n"


def describe(name: str, thing: Any) -> Iterator[str]:
    """Yield the lines for one public name; a class is followed by its public members."""
    if isinstance(thing, ModuleType):
        return
    yield f"## `{name}{signature(thing)}`\n"
    yield docstring(thing)
    if inspect.isclass(thing) and not issubclass(thing, Exception):
        for member_name, member in public_members(thing):
            yield f"### `{thing.__name__}.{member_name}{signature(member)}`\n"
            yield docstring(member)


def public_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield methods and properties that the class itself documents, in the order of the source."""
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(member, classmethod | staticmethod):
            member = member.__func__
        if inspect.isfunction(member) or isinstance(member, property):
            yield name, member


def signature(thing: Any) -> str:
    """Return the parameters as written, without annotations; nothing for a property."""
    if not inspect.isfunction(thing):
        return ""
    parameters = []
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        plain = parameter.replace(annotation=inspect.Parameter.empty)
        parameters.append(str(plain).replace(" = ", "="))
    return f"({', '.join(parameters)})"


def docstring(thing: Any) -> str:
    """Return the docstring as a text block, so that its layout stays."""
    text = inspect.getdoc(thing) or ""
    first, _, rest = text.partition("\n\n")
    sentence = " ".join(first.split())
    if not rest:
        return f"{sentence}\n"
    return f"{sentence}\n\n```text\n{rest}\n```\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="do not write, only compare")
    text = write_page()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.exit("docs/api.md is not up to date: run `make api`")


if __name__ == "__main__":
    main()

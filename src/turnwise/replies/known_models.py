"""Declarations for published models whose templates do not show how their replies look.

Many templates never write what their models write: SmolLM3 describes its tool calls in a system prompt, Granite 3
asks for a JSON list after a marker. `known_models.toml` declares such replies, one table per family of models:

    [smollm3]
    knows  = ["Reasoning Mode: "]       # texts by which a template of this family is recognised
    models = ["smollm3*"]               # patterns of model names

    [smollm3.replies]                   # a declaration, see `declared.py`
    reasoning = ["<think>\\n", "\\n</think>\\n"]

A template is often a text without a name, so a text found in it is enough, or a special token of its tokenizer. Such
a table only fills gaps: where the template itself shows its reasoning or its calls, what was derived from it is used.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

DATA_FILE = "known_models.toml"
MAX_NAME_LENGTH = 200  # patterns are matched against a name, and the ids of hubs have 96 at most
Table = Mapping[str, Any]


@cache
def known_models() -> Mapping[str, Table]:
    """Return all tables of the data file by the name of their family; read once, on first use."""
    import tomllib  # only needed here, and slow to import
    from pkgutil import get_data  # five times as quick to import as `importlib.resources`

    return tomllib.loads((get_data("turnwise.replies", DATA_FILE) or b"").decode("utf-8"))


def find_declaration(text: str, name: str) -> Table | None:
    """Return the declaration for a template with this text, or for a model of this name."""
    short_name = _normalise_name(name)
    for table in known_models().values():
        by_text = any(known in text for known in table.get("knows", ()))
        patterns = table.get("models", ())
        if by_text or any(fnmatchcase(short_name, pattern) for pattern in patterns):
            declaration: Table = table["replies"]
            return declaration
    return None


def find_by_tokens(tokens: Container[str]) -> Table | None:
    """Return the declaration for the only family that is recognised by one of these special tokens."""
    families = known_models().values()
    found = [table for table in families if any(text in tokens for text in table.get("knows", ()))]
    declaration: Table | None = found[0]["replies"] if len(found) == 1 else None
    return declaration


def _normalise_name(name: str) -> str:
    """Return the last part of a model's id in lower case, with `-` for `_` and blanks."""
    if len(name) > MAX_NAME_LENGTH:
        return ""
    last_part = name.strip().rstrip("/").replace("\\", "/").rpartition("/")[2]
    return last_part.lower().replace("_", "-").replace(" ", "-")

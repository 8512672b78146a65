"""Declarations for published models whose templates do not show how their replies look.

Many templates never write what their models write: SmolLM3 describes its tool calls in a system prompt, Granite 3 asks
for a JSON list behind a marker. `known_models.toml` declares such replies, one table per family of models:

    [smollm3]
    knows  = ["Reasoning Mode: "]       # texts by which a template of this family is recognised
    models = ["smollm3*"]               # patterns of model names

    [smollm3.replies]                   # a declaration, see `declared.py`
    reasoning = ["<think>\\n", "\\n</think>\\n"]

A template is often a text without a name, so a text found in it is enough. Such a table only fills gaps: where the
template itself shows its reasoning or its calls, what was derived from it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from turnwise.replies.declared import merge_declaration
from turnwise.replies.grammar import Grammar

DATA_FILE = "known_models.toml"
MAX_NAME_LENGTH = 200  # patterns are matched against a name, and the ids of hubs have 96 at most


@cache
def known_models() -> Mapping[str, Mapping[str, Any]]:
    """Return all tables of the data file by the name of their family; read once, on first use."""
    import tomllib  # only needed here, and slow to import
    from importlib.resources import files

    text = files("turnwise.replies").joinpath(DATA_FILE).read_text(encoding="utf-8")
    return tomllib.loads(text)


def find_declaration(text: str, name: str = "") -> Mapping[str, Any] | None:
    """Return the declaration for a template with this text, or for a model of this name."""
    short_name = _normalise_name(name)
    for table in known_models().values():
        by_text = any(known in text for known in table.get("knows", ()))
        patterns = table.get("models", ())
        if by_text or any(fnmatchcase(short_name, pattern) for pattern in patterns):
            declaration: Mapping[str, Any] = table["replies"]
            return declaration
    return None


def complete_grammar(
    derived: Grammar, text: str, name: str, own: Mapping[str, Any] | None = None
) -> Grammar:
    """Return a derived grammar, completed by what is declared for the template.

    Args:
        derived: the grammar that was derived from the template.
        text: the template's source.
        name: the template's name, or the id of its model.
        own: the declaration of the template's own registry entry. It is about this template alone, so it is used
            instead of `known_models.toml`, and contradicting the template is an error.

    Raises:
        SourceError: the declaration is not well formed, or contradicts the template.
    """
    if own:
        return merge_declaration(derived, own, name)
    declaration = find_declaration(text, name)
    if declaration is None:
        return derived
    shown = {part for part in ("reasoning", "calls") if derived.sources.get(part) == "derived"}
    gaps = {key: value for key, value in declaration.items() if key not in shown}
    return merge_declaration(derived, gaps, name)


def _normalise_name(name: str) -> str:
    """Return the last part of a model's id in lower case, with `-` for `_` and blanks."""
    if len(name) > MAX_NAME_LENGTH:
        return ""
    last_part = name.strip().rstrip("/").replace("\\", "/").rpartition("/")[2]
    return last_part.lower().replace("_", "-").replace(" ", "-")

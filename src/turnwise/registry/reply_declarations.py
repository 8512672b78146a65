"""What is declared of a model's replies: in its entry (`[replies]`), or in `replies.toml` for models without one.

A template may come as a text without a name. So a table of `replies.toml` says by what its templates are known: a text
that stands in them. Only what the template is silent about is taken from there; an entry's own declaration is for one
template, and may not contradict it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from turnwise.registry.entry import ENTRIES
from turnwise.registry.match import LONGEST, normal
from turnwise.registry.store import current
from turnwise.replies.declared import merge_declaration
from turnwise.replies.grammar import Grammar
from turnwise.template import Template

FILE = "replies.toml"


@cache
def declarations() -> Mapping[str, Mapping[str, Any]]:
    """All tables by name."""
    import tomllib  # only needed here, and slow to import

    found: dict[str, Any] = tomllib.loads(ENTRIES.with_name(FILE).read_text(encoding="utf-8"))
    return found


def declaration(text: str, name: str = "") -> Mapping[str, Any] | None:
    """What is declared for a template with this text, or for a model of this name."""
    short = normal(name) if name and len(name) <= LONGEST else ""
    for table in declarations().values():
        by_text = any(known in text for known in table.get("knows", ()))
        if by_text or any(fnmatchcase(short, pattern) for pattern in table.get("models", ())):
            found: Mapping[str, Any] = table["replies"]
            return found
    return None


def completed(template: Template, derived: Grammar) -> Grammar:
    """How replies to this template look: what was derived, completed by what is declared of it."""
    entry = current().named.get(template.name.lower())
    if entry is not None and entry.replies:
        return merge_declaration(derived, entry.replies, entry.name)
    data = declaration(template.text, template.name)
    return (
        derived
        if data is None
        else merge_declaration(derived, missing(derived, data), template.name)
    )


def missing(derived: Grammar, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parts of a declaration that the template is silent about; what it shows, it shows better."""
    shown = {name for name in ("reasoning", "calls") if derived.sources.get(name) == "derived"}
    return {key: value for key, value in data.items() if key not in shown}

"""Read the fields of a component of a `tokenizer.json`, and refuse what this encoder does not know.

The file is a program for another library. A part that is not understood is never skipped: the ids would be wrong, and
nobody would see it.
"""

from __future__ import annotations

from typing import Any

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.normalization import Component

HINT = "Install `tokenizers`, which reads every tokenizer.json: pip install tokenizers"


def refuse(what: str) -> TokenizerError:
    """Return the error for a part of a file that the encoder in Python does not know."""
    return TokenizerError(f"the encoder in pure Python does not know {what}", hint=HINT)


def read_field(component: Component, name: str, kind: type, default: Any = None) -> Any:
    """Return a field of a component, the default if it is missing or null; an error names both."""
    value = component.get(name)
    if value is None:
        value = default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TokenizerError(
            f"the {component.get('type')} of the tokenizer needs {name!r} as {kind.__name__}, "
            f"and has {type(value).__name__}"
        )
    return value


def read_parts(component: Component | None, key: str) -> list[Component]:
    """Return the components of a part in order: Sequences are opened, and nothing is an empty list."""
    if component is None:
        return []
    if not isinstance(component, dict) or not isinstance(component.get("type"), str):
        raise TokenizerError(f"a component among the {key} of the tokenizer has no type")
    if component["type"] != "Sequence":
        return [component]
    return [part for inner in read_field(component, key, list) for part in read_parts(inner, key)]

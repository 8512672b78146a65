"""Coercion: the text of an argument becomes a JSON value.

Values between tags are texts. What they become is decided by the schema of the tool: a declared
string stays as it is, down to the last space; a declared number, boolean, object or array is
converted if the text is one; null is null unless a string is declared. If nothing is declared there
is one rule: a text that is valid JSON, and no string, is that value; all else is a string.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from turnwise.replies.parser.tool_schema import UNDECLARED, TypeSet
from turnwise.replies.parser.values import (
    JSON_NUMBER,
    JSON_WORDS,
    MAX_NUMBER_LENGTH,
    scalar_to_json,
    to_json,
    to_json_string,
)

_MAX_BRACKETS = 10_000  # in a text that is given to the json module


def coerce(text: str, types: TypeSet) -> str:
    """Return a text as JSON, by the types that are declared for it."""
    if not types:
        return _to_undeclared(text) or to_json_string(text)
    wanted = types if "string" in types else types | {"null"}
    for name, convert in _CONVERTERS.items():
        value = convert(text) if name in wanted else None
        if value is not None:
            return value
    return to_json_string(text)


def coerce_python(text: str) -> str:
    """Return an undeclared text as JSON, where a template writes other values as Python does."""
    core = text.strip()
    is_container = core.startswith(("[", "{", "("))
    value = to_json(core, "python") if is_container else JSON_WORDS.get(core)
    return value if value is not None else coerce(text, UNDECLARED)


def may_be_json(char: str) -> bool:
    """Return whether an undeclared text that starts with `char` may become anything but a string."""
    return char in "{[-0123456789tfn"


def _to_undeclared(text: str) -> str | None:
    """Return JSON that is no string, spelled as JSON spells it; None if the text is anything else."""
    core = text.strip()
    if not core or core[0] in "{[":
        return _container_as_spelled(core)
    is_number = len(core) <= MAX_NUMBER_LENGTH and JSON_NUMBER.fullmatch(core)
    return core if is_number or core in ("true", "false", "null") else None


def _container_as_spelled(text: str) -> str | None:
    # A text of brackets only would exhaust the stack of the json module.
    if text.count("[") + text.count("{") < _MAX_BRACKETS:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return None
    return to_json(text)


def _to_word(text: str, wanted: tuple[str, ...]) -> str | None:
    core = text.strip()
    word = JSON_WORDS.get(core) or JSON_WORDS.get(core.lower())
    return word if word in wanted else None


def _to_number(text: str) -> str | None:
    value = scalar_to_json(text.strip())
    return None if value in JSON_WORDS else value


def _to_container(text: str, brackets: tuple[str, ...]) -> str | None:
    return to_json(text) if text.lstrip().startswith(brackets) else None


# In the order in which they are tried. A string needs no conversion: it is what is left.
_CONVERTERS: Mapping[str, Callable[[str], str | None]] = {
    "null": lambda text: _to_word(text, ("null",)),
    "boolean": lambda text: _to_word(text, ("true", "false")),
    "integer": _to_number,
    "number": _to_number,
    "array": lambda text: _to_container(text, ("[", "(")),
    "object": lambda text: _to_container(text, ("{",)),
}

"""Values between tags: the text of an argument becomes JSON, alone or with elements nested in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from turnwise.replies.grammar_parts import KEY, Pairs
from turnwise.replies.parser.tool_schema import (
    ARRAY_ONLY,
    NO_SCHEMA,
    OBJECT_ONLY,
    UNDECLARED,
    TypeSet,
    ValueSchema,
)
from turnwise.replies.parser.values import (
    JSON_NUMBER,
    JSON_WORDS,
    MAX_DEPTH,
    MAX_NUMBER_LENGTH,
    scalar_to_json,
    to_json,
    to_json_string,
)

# ---- coercion ----
#
# Coercion: the text of an argument becomes a JSON value.
#
# Values between tags are texts. What they become is decided by the schema of the tool: a declared
# string stays as it is, down to the last space; a declared number, boolean, object or array is
# converted if the text is one; null is null unless a string is declared. If nothing is declared there
# is one rule: a text that is valid JSON, and no string, is that value; all else is a string.


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
    core = text.strip()
    if core.startswith(brackets):
        return to_json(core) or to_json(_unescape(f'"{core}"'))
    inside = _unescape(core)
    return to_json(inside) if inside.lstrip().startswith(brackets) else None


def _unescape(text: str) -> str:
    """Return the text that a JSON string holds; "" if this is none. Models write values as JSON within JSON."""
    try:
        value = json.loads(text, strict=False) if text.startswith('"') else ""
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""


# In the order in which they are tried. A string needs no conversion: it is what is left.
_CONVERTERS: Mapping[str, Callable[[str], str | None]] = {
    "null": lambda text: _to_word(text, ("null",)),
    "boolean": lambda text: _to_word(text, ("true", "false")),
    "integer": _to_number,
    "number": _to_number,
    "array": lambda text: _to_container(text, ("[", "(")),
    "object": lambda text: _to_container(text, ("{",)),
}


# ---- xml values ----
#
# XML-style nested values: `<a><b>1</b><c>x</c></a>` is an object, and a row of `<item>` elements
# is a list.
#
# One pass over the text with a stack of open elements. An element holds elements or a text; where it
# holds both, or tags do not match, the text is no nested value. If a name occurs twice in an object,
# both values are kept as a list, and the value is reported as incomplete.


_NAME = r"[\w.:\-]{1,256}"
_CACHE_SIZE = 64


class TooDeep(ValueError):
    """Elements within elements beyond `MAX_DEPTH`."""


class NestedValue(NamedTuple):
    """A value, and whether every element of the text is in it as it was written."""

    value: Any
    is_exact: bool


class _Element:
    """An element that is open; `start` is where its inside starts."""

    __slots__ = ("children", "has_text", "name", "schema", "start")

    def __init__(self, name: str, start: int, schema: ValueSchema) -> None:
        self.name, self.start, self.schema = name, start, schema
        self.children: list[tuple[str, Any]] = []
        self.has_text = False


def parse_elements(text: str, pairs: Pairs, schema: ValueSchema = NO_SCHEMA) -> NestedValue | None:
    """Return the value of a text of elements; None if the text is something else.

    Args:
        text: The elements.
        pairs: The markers of elements.
        schema: What is declared of the value.

    Raises:
        TooDeep: if elements are nested too deeply.
    """
    tag = _tag_pattern(pairs.key.core, pairs.string.open.core, pairs.string.close.core)
    root = _Element("", 0, schema)
    stack, last_end, is_exact = [root], 0, True
    for match in tag.finditer(text):
        element = stack[-1]
        # Text between the last tag and this one is part of the innermost element.
        if text[last_end : match.start()].strip():
            element.has_text = True
        last_end = match.end()
        is_opener = match.lastgroup == "start"
        if is_opener and not element.has_text:
            name = match.group("start")
            stack.append(_Element(name, last_end, _child_schema(element.schema, name)))
            if len(stack) > MAX_DEPTH:
                raise TooDeep("too deep")
        elif not is_opener and element is not root and _fits(match, element):
            value = _close_element(element, text[element.start : match.start()])
            if value is None:
                return None
            stack.pop()
            stack[-1].children.append((element.name, value.value))
            is_exact = is_exact and value.is_exact
        else:
            element.has_text = True  # a tag within a text
    # Something is left open, or there is text besides the elements.
    if len(stack) > 1 or not root.children or root.has_text or text[last_end:].strip():
        return None
    value = _combine(root.children, schema)
    return NestedValue(value.value, is_exact and value.is_exact)


@lru_cache(maxsize=_CACHE_SIZE)
def _tag_pattern(key: str, opened: str, close: str) -> re.Pattern[str]:
    closing = re.escape(close)
    if KEY in close:
        before, _, after = close.partition(KEY)
        closing = f"{re.escape(before)}(?P<end>{_NAME}){re.escape(after)}"
    return re.compile(f"{closing}|{re.escape(key)}(?P<start>{_NAME}){re.escape(opened)}")


def _fits(closer: re.Match[str], element: _Element) -> bool:
    """Whether a closer repeats the name of the element, or no name at all."""
    return closer.groupdict().get("end") in (None, element.name)


def _close_element(element: _Element, text: str) -> NestedValue | None:
    """Return the value of an element; None if it holds both elements and text."""
    if not element.children:
        return NestedValue(json.loads(coerce(text, element.schema.types)), True)
    if element.has_text:
        return None
    return _combine(element.children, element.schema)


def _child_schema(schema: ValueSchema, name: str) -> ValueSchema:
    if "array" in schema.types and name not in schema.names:
        return schema.element
    return schema.member(name)


def _combine(children: list[tuple[str, Any]], schema: ValueSchema) -> NestedValue:
    types = schema.types
    is_list = all(name == "item" for name, _ in children)
    if types == ARRAY_ONLY or (is_list and types != OBJECT_ONLY):
        return NestedValue([value for _, value in children], True)
    members: dict[str, Any] = {}
    repeated: dict[str, list[Any]] = {}
    for name, value in children:
        if name in members:
            repeated.setdefault(name, [members[name]]).append(value)
        else:
            members[name] = value
    return NestedValue(members | repeated, not repeated)

"""Tool lists in the form that templates read: under `function`, without the nulls that tables add.

Tools of Anthropic, Responses and Gemini are mapped (`shapes/tool_forms.py`); what an API is to do with a tool, such as
`cache_control`, is no part of a prompt. What a template needs and OpenAI's API does not (a description, parameters) is
filled in if the template refuses the list (`fill_tools`).

The tools of an application rarely change between renderings, so what was found out about a list is kept with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from turnwise.errors import MessageError, short_repr
from turnwise.messages import Change, JsonObject, prepared_tools
from turnwise.replies.parser.tool_schema import read_function
from turnwise.shapes.row import drop_nulls
from turnwise.shapes.tool_forms import SERVER_KEYS, read_functions

FILLED: JsonObject = {"description": "", "parameters": {"type": "object", "properties": {}}}
"""What a function has if it has none: no words, and no parameters."""
MAPPED = {
    "anthropic": "a tool of Anthropic was put under `function`, input_schema as parameters",
    "gemini": "a declaration of Gemini was put under `function`",
    "custom": "a custom tool became a function with one text",
}
KEPT_NULLS = frozenset(["default", "const", "enum", "examples", "example"])  # of a JSON schema


class NormalisedTools(NamedTuple):
    """A tool list.

    Attributes:
        tools: the list; None if it needs no change.
        changes: what was changed.
        parameters: the names of the parameters of each tool.
    """

    tools: list[Any] | None = None
    changes: tuple[Change, ...] = ()
    parameters: Mapping[str, frozenset[str]] = {}


NO_TOOLS = NormalisedTools()


def normalise_tools(tools: Any) -> NormalisedTools:
    """Return a tool list as templates read it.

    Args:
        tools: the tools as the caller has them, or prepared.
    """
    prepared = prepared_tools(tools)
    if not prepared.plain:
        return NO_TOOLS
    if prepared.normalised is None:
        prepared.normalised = _normalise(prepared.plain)
    found: NormalisedTools = prepared.normalised
    return found


def _normalise(tools: Any) -> NormalisedTools:
    changes: list[Change] = []
    read = []
    for number, given in enumerate(tools):
        path = f"tools[{number}]"
        for tool, api in read_functions(given, ("tools", number)):
            if api:
                what = MAPPED.get(api, "was put under `function`")
                changes.append(Change(path, what, "templates read tools there"))
            beside = [key for key in SERVER_KEYS if isinstance(tool, Mapping) and key in tool]
            if beside:
                tool = {key: value for key, value in tool.items() if key not in beside}
                why = "it is for the server, and no part of the prompt"
                changes.append(Change(path, f"{', '.join(beside)} dropped", why))
            if _has_null(tool):
                tool = _without_nulls(tool)
                changes.append(Change(path, "keys with null were dropped", "tables add them"))
            read.append(tool)
    parameters = {}
    for name, schema in filter(None, map(read_function, read)):
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        if isinstance(properties, Mapping):
            parameters[name] = frozenset(properties)
    return NormalisedTools(read if changes else None, tuple(changes), parameters)


def fill_tools(tools: Any) -> NormalisedTools | None:
    """Return a tool list with what templates may need and callers may leave out; None if nothing is missing.

    Raises:
        MessageError: a tool has no name.
    """
    changes: list[Change] = []
    filled = []
    for number, tool in enumerate(prepared_tools(tools).plain or ()):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping):
            return None
        path = f"tools[{number}]"
        if not isinstance(function.get("name"), str):
            problem = f"a tool needs a name, not {short_repr(function.get('name'))}"
            raise MessageError(problem, path=f"{path}.function.name")
        places = [f"{path}.function.{key}" for key in FILLED if function.get(key) is None]
        if "type" not in tool:
            places.append(f"{path}.type")
        if places:
            fields = {"name": "", **FILLED, **drop_nulls(function)}  # in the usual order
            tool = {"type": "function", **tool, "function": fields}
        changes += [Change(place, "was filled in", "the template needs it") for place in places]
        filled.append(tool)
    return NormalisedTools(filled, tuple(changes)) if changes else None


def _has_null(value: Any) -> bool:
    waiting = [value]
    for found in waiting:  # which becomes longer: schemas may be nested too deeply for recursion
        if isinstance(found, Mapping):
            items = [item for key, item in found.items() if key not in KEPT_NULLS]
            if None in items:
                return True
            waiting += items
        elif isinstance(found, (list, tuple)):
            waiting += found
    return False


def _without_nulls(value: Any) -> Any:
    """Return a schema without keys that are null, but for those whose value may be null."""
    if isinstance(value, Mapping):
        return {
            key: item if key in KEPT_NULLS else _without_nulls(item)
            for key, item in value.items()
            if item is not None or key in KEPT_NULLS
        }
    if isinstance(value, (list, tuple)):
        return list(map(_without_nulls, value))
    return value

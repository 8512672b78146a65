"""Tool lists in the form that templates read: under `function`, without the nulls that tables add.

The tools of an application rarely change between renderings, so what was found out about a list is kept with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from turnwise.messages import prepared_tools
from turnwise.normalisation.change import Change

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
    for number, tool in enumerate(tools):
        path = f"tools[{number}]"
        if _is_bare(tool):
            rest = {key: value for key, value in tool.items() if key != "type"}
            tool = {"type": "function", "function": rest}
            changes.append(Change(path, "was put under `function`", "templates read tools there"))
        if _has_null(tool):
            tool = _without_nulls(tool)
            changes.append(Change(path, "keys with null were dropped", "tables add them"))
        read.append(tool)
    parameters = dict(_declared_parameters(read))
    return NormalisedTools(read if changes else None, tuple(changes), parameters)


def _is_bare(tool: Any) -> bool:
    """Whether a tool is a function without the level around it, as older interfaces have it."""
    return (
        isinstance(tool, Mapping)
        and "function" not in tool
        and isinstance(tool.get("name"), str)
        and "parameters" in tool
    )


def _declared_parameters(tools: list[Any]) -> Iterator[tuple[str, frozenset[str]]]:
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            continue
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
        if isinstance(properties, Mapping):
            yield function["name"], frozenset(properties)


def _has_null(value: Any) -> bool:
    waiting = [value]
    while waiting:  # not by recursion: schemas may be nested hundreds deep
        found = waiting.pop()
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

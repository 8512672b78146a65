"""Tools are copied once, whoever holds them."""

from __future__ import annotations

import json
import marshal
from typing import Any

from turnwise.messages.tools_cache import prepared_tools


def _make_tools(name: str) -> list[dict[str, Any]]:
    """Return tools of which no text is shared with others."""
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}}
    function = {"name": name, "description": f"What {name} does", "parameters": parameters}
    tools: list[dict[str, Any]] = json.loads(
        json.dumps([{"type": "function", "function": function}])
    )
    return tools


def test_equal_tools_are_found_however_their_texts_are_shared() -> None:
    apart, shared = _make_tools("tide"), _make_tools("tide")
    held = shared[0]["function"][
        "description"
    ]  # more than one holds it, so `marshal` writes it in another way
    assert marshal.dumps(apart) != marshal.dumps(shared) and held
    assert prepared_tools(apart) is prepared_tools(shared) is prepared_tools(apart)


def test_tools_that_change_are_not_found() -> None:
    tools = _make_tools("ferry")
    before = prepared_tools(tools)
    tools[0]["function"]["parameters"]["properties"]["a"]["type"] = "number"
    after = prepared_tools(tools)
    assert after.plain == tools
    assert before.plain == _make_tools("ferry")


def test_equal_values_of_other_types_are_other_tools() -> None:
    kept = []
    for value in (1, True, 1.0):
        tools = _make_tools("depth")
        tools[0]["function"]["parameters"]["minimum"] = value
        plain: Any = prepared_tools(tools).plain
        kept.append(plain[0]["function"]["parameters"]["minimum"])
    assert list(map(type, kept)) == [int, bool, float]

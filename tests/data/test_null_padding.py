"""What a table adds to rows is removed again: the round trip through real Arrow tables."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_batches import encode_rows
from turnwise.data.null_padding import table_row_to_json, undo_null_padding

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A city."},
                "unit": {"type": "string", "enum": ["c", "f"]},
            },
            "required": ["city"],
        },
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "options": {"type": "object", "properties": {"limit": {"type": "integer"}}},
            },
        },
    },
}
NOW = {
    "type": "function",
    "function": {"name": "now", "parameters": {"type": "object", "properties": {}}},
}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }


ROWS: list[dict[str, Any]] = [
    {
        "messages": [{"role": "user", "content": "Hi"}, call("get_weather", {"city": "Rome"})],
        "tools": [WEATHER],
    },
    {
        "messages": [call("search", {"query": "x", "options": {"limit": 3}})],
        "tools": [SEARCH, WEATHER],
    },
    {
        "messages": [
            call("search", {"query": "x"}),
            {"role": "tool", "tool_call_id": "a", "content": "ok"},
        ],
        "tools": [SEARCH, NOW],
    },
    {
        "messages": [call("now", {})],
        "tools": [NOW],
    },
]


def through_table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as a table gives them back."""
    batch = pa.RecordBatch.from_struct_array(pa.array(rows))
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


def without_null_content(value: Any) -> Any:
    """Return a value in which a message without content and one with null are the same."""
    if isinstance(value, dict):
        return {
            key: without_null_content(item)
            for key, item in value.items()
            if (key, item) != ("content", None)
        }
    if isinstance(value, list):
        return [without_null_content(item) for item in value]
    return value


def test_tools_and_calls_come_back_from_a_table() -> None:
    padded = through_table(ROWS)
    assert padded != ROWS, "the table pads: otherwise this test shows nothing"
    for row, original in zip(padded, ROWS, strict=True):
        found = undo_null_padding(row)
        assert without_null_content(found.row) == original
        assert found.removed


def test_a_table_gives_the_samples_of_the_json_that_it_was_made_of() -> None:
    expected = encode_rows(ROWS, template="qwen3")
    assert {record["status"] for record in expected} == {"sample"}
    texts = [table_row_to_json(row)[0] for row in through_table(ROWS)]
    found = encode_rows(texts, template="qwen3")
    for record, other in zip(found, expected, strict=True):
        assert record["reason"] is None
        assert record["input_ids"] == other["input_ids"]
        assert record["labels"] == other["labels"]


names = st.text("abc", min_size=1, max_size=2)
leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 3},
        {"type": "array", "items": {"type": "string"}},
    ]
)
schemas = st.recursive(
    leaves,
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, inner, max_size=3)}
    ),
    max_leaves=5,
)
tools = st.builds(
    lambda name, properties: {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
    },
    names,
    st.dictionaries(names, schemas, max_size=3),
)
arguments = st.dictionaries(names, st.integers(0, 9), max_size=3)
messages = st.one_of(
    st.builds(lambda name, given: call(name, given), names, arguments),
    st.fixed_dictionaries(
        {"role": st.just("user"), "content": st.text(max_size=3)}, optional={"name": names}
    ),
)
rows = st.fixed_dictionaries(
    {"messages": st.lists(messages, max_size=3)},
    optional={
        "tools": st.lists(tools, max_size=3),
        "chat_template_kwargs": st.dictionaries(names, st.booleans()),
    },
)


def same_meaning(row: dict[str, Any]) -> Any:
    """Return a row without what tables cannot hold: keys with null, and the order of keys."""
    row = {key: value for key, value in row.items() if value not in (None, {})}
    return json.dumps(without_null_content(row), sort_keys=True)


@given(st.lists(rows, min_size=1, max_size=4))
def test_any_rows_come_back_from_a_table(given_rows: list[dict[str, Any]]) -> None:
    try:
        padded = through_table(given_rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # a name is an object here, and a list there
        return
    for row, original in zip(padded, given_rows, strict=True):
        assert same_meaning(undo_null_padding(row).row) == same_meaning(original)


@given(rows)
def test_rows_without_nulls_are_unchanged(row: dict[str, Any]) -> None:
    assert undo_null_padding(row) == (row, [])


def test_nulls_that_mean_something_are_kept() -> None:
    properties = {
        "a": {"type": ["string", "null"], "default": None, "enum": ["x", None]},
        "b": {"const": None},
        "c": {"type": "string", "const": None, "enum": None},
        "default": None,
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}
    row, removed = undo_null_padding({"tools": [tool], "messages": []})
    kept = row["tools"][0]["function"]["parameters"]["properties"]
    assert kept == {"a": properties["a"], "b": {"const": None}, "c": {"type": "string"}}
    assert len(removed) == 3


def test_a_required_argument_may_be_null() -> None:
    message = call("get_weather", {"city": None, "unit": None, "query": None})
    row, removed = undo_null_padding({"messages": [message], "tools": [WEATHER]})
    assert row["messages"][0]["tool_calls"][0]["function"]["arguments"] == {"city": None}
    path = ("messages", 0, "tool_calls", 0, "function", "arguments")
    assert removed == [(*path, "unit"), (*path, "query")]


def test_the_order_of_keys_stays() -> None:
    function = {"arguments": {"b": 1, "x": None, "a": 2}, "name": "f"}
    message = {"tool_calls": [{"function": function, "id": "1"}], "role": "assistant"}
    row, _ = undo_null_padding({"messages": [message]})
    assert json.dumps(row["messages"][0]) == (
        '{"tool_calls": [{"function": {"arguments": {"b": 1, "a": 2}, "name": "f"}, "id": "1"}], "role": "assistant"}'
    )


def test_columns_may_have_other_names() -> None:
    row = {"dialogue": [{"from": "human", "value": "Hi", "weight": None}]}
    assert undo_null_padding(row).removed == []
    found = undo_null_padding(row, {"conversations": "dialogue"})
    assert found == ({"dialogue": [{"from": "human", "value": "Hi"}]}, [("dialogue", 0, "weight")])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"\xff\x00", datetime(1970, 1, 1)])
def test_other_columns_do_not_spoil_a_row(value: Any) -> None:
    text, removed = table_row_to_json(
        {"messages": [{"role": "user", "content": "Hi"}], "other": value}
    )
    assert json.loads(text)["messages"] == [{"role": "user", "content": "Hi"}]
    assert removed == 0
    assert b"NaN" not in text and b"Infinity" not in text


def test_text_is_not_escaped() -> None:
    text, _ = table_row_to_json({"prompt": "東京"})
    assert text == '{"prompt": "東京"}'.encode()

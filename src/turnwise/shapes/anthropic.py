"""Anthropic's Messages: requests, and replies.

The first system text is a field of the request, later ones are turns. Results are blocks of the next user's turn, and
become messages of their own. Reasoning that is signed or encrypted is kept as it came, in `reasoning_details`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from turnwise.errors import MessageError, short_repr
from turnwise.messages import JsonMapping, Path, format_path
from turnwise.shapes.part_forms import (
    CALL,
    FILE,
    IMAGE,
    RESULT,
    TEXT,
    ApiForms,
    Item,
    KeyForm,
    PartForm,
    join_items,
    make_data_url,
    make_thought,
    read_arguments,
    read_data_url,
    read_result,
    require_object,
    split_message,
    write_data,
    write_result,
    write_turns,
)
from turnwise.shapes.row import (
    ParsedRow,
    Row,
    describe,
    is_list,
    require_mapping,
    require_text,
)
from turnwise.shapes.tool_forms import build_api_row, write_api_columns

ROLES = {name: name for name in ("user", "assistant", "system")}
OWN_BLOCKS = frozenset(
    ["tool_use", "tool_result", "redacted_thinking", "document", "search_result"]
)
"""Types of blocks that Chat Completions does not have."""
SERVER_BLOCKS = ("_tool_use", "_tool_result")  # how the types of blocks of its own tools end
REQUEST_KEYS = frozenset(["anthropic_version", "anthropic_beta", "stop_sequences"])
REPLY_KEYS = ("id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "usage")


def _read_source(data_key: str, url_key: str, api: ApiForms, value: Any, path: Path) -> Row:
    source = value if isinstance(value, Mapping) else {}
    match source.get("type"):
        case "base64":
            return {data_key: make_data_url(source.get("media_type"), source.get("data"))}
        case "url":
            return {url_key: source.get("url")}
        case "file":
            return {"file_id": source.get("file_id")}
        case "text" | "content" if data_key != url_key:
            return {"source": dict(source)}
    raise MessageError(
        f"a source of type {short_repr(source.get('type'))} cannot be kept",
        path=format_path((*path, "type")),
    )


def _write_source(api: ApiForms, value: Any, path: Path) -> Row:
    if isinstance(value, str):
        value = {"url": value}
    if not isinstance(value, Mapping) or len(value) != 1:
        raise api.no_place(path)
    [(key, found)] = value.items()
    data = read_data_url(found)
    if data is not None and key in ("url", "file_data"):
        return {"type": "base64", "media_type": data[0], "data": data[1]}
    if key in ("url", "file_url"):
        return {"type": "url", "url": found}
    if key == "file_id":
        return {"type": "file", "file_id": found}
    if key == "source" and isinstance(found, Mapping):
        return dict(found)
    raise api.no_place((*path, key))


CACHE = ("cache_control",)
FORMS = (
    PartForm("text", TEXT, {"text": "text"}, kept=(*CACHE, "citations"), required=("text",)),
    PartForm(
        "image",
        IMAGE,
        {"source": KeyForm("image_url", partial(_read_source, "url", "url"), _write_source)},
        kept=(*CACHE, "transformations"),
        required=("source",),
    ),
    PartForm(
        "document",
        FILE,
        {
            "title": "file.filename",
            "source": KeyForm(
                "file", partial(_read_source, "file_data", "file_url"), _write_source
            ),
        },
        kept=(*CACHE, "citations", "context"),
        required=("source",),
    ),
    PartForm(
        "tool_use",
        CALL,
        {
            "id": "id",
            "name": "function.name",
            "input": KeyForm("function.arguments", read_arguments, write_data),
        },
        kept=(*CACHE, "caller", "toolset_name"),
        required=("name",),
    ),
    PartForm(
        "tool_result",
        RESULT,
        {
            "tool_use_id": "tool_call_id",
            "content": KeyForm("content", read_result, write_result),
        },
        kept=(*CACHE, "is_error", "toolset_name"),
        unwritten=("name",),
        required=("tool_use_id",),
    ),
)
THOUGHTS = {"thinking": "thinking", "redacted_thinking": ""}
"""Types of blocks of reasoning, and the key of their text."""


def _read_thought(part: JsonMapping) -> Item | None:
    kind = part.get("type")
    if kind not in tuple(THOUGHTS):
        return None
    is_signed = bool(part.get("signature")) or kind != "thinking"
    return make_thought(part.get(THOUGHTS[kind]) or "", part, is_opaque=is_signed)


API = ApiForms(
    "anthropic",
    FORMS,
    read_own=_read_thought,
    is_thought=lambda block: block.get("type") in THOUGHTS,
    make_thought=lambda text: {"type": "thinking", "thinking": text, "signature": ""},
)


def is_anthropic(row: Any) -> bool:
    """Return True for a request of Anthropic's Messages, a reply, or a list of its turns."""
    if isinstance(row, Mapping):
        if row.get("type") == "message" and row.get("role") == "assistant":
            return is_list(row.get("content"))
        turns = row.get("messages")
        if not is_list(turns) or not all(_is_turn(turn) for turn in turns[:1]):
            return False
        tools = row.get("tools")
        first_tool = tools[0] if is_list(tools) and tools else None
        if isinstance(first_tool, Mapping) and "input_schema" in first_tool:
            return True
        if row.get("system") or row.keys() & REQUEST_KEYS:
            return True
    else:
        turns = row
    return is_list(turns) and any(has_own_block(turn) for turn in turns)


def _is_turn(turn: Any) -> bool:
    return isinstance(turn, Mapping) and "role" in turn


def has_own_block(turn: Any) -> bool:
    """Return True for a turn with a block that Chat Completions does not have."""
    content = turn.get("content") if _is_turn(turn) else None
    return is_list(content) and any(map(_is_own_block, content))


def _is_own_block(block: Any) -> bool:
    if not isinstance(block, Mapping):
        return False
    kind = block.get("type")
    if kind in ("image", "document", "thinking"):  # others have these types too
        return isinstance(block.get("source"), Mapping) or "signature" in block
    return isinstance(kind, str) and (kind in OWN_BLOCKS or kind.endswith(SERVER_BLOCKS))


def read_turn(api: ApiForms, turn: Any, path: Path) -> list[Row]:
    """Return the messages that a turn is.

    Raises:
        MessageError: it is no turn, or has a block that cannot be kept.
    """
    require_object(turn, "a turn", path)
    role = require_text(turn, "role", path)
    if "content" not in turn and "tool_calls" not in turn:
        raise MessageError("there is no 'content'", path=format_path(path))
    others = {key: value for key, value in turn.items() if key not in ("role", "content")}
    content = turn.get("content")
    if not is_list(content):
        return [{"role": role, "content": content, **others}]
    return list(join_items(role, api.read_content(content, (*path, "content")), others))


def read(row: Any) -> ParsedRow:
    """Read a request, a reply, or a list of turns."""
    api = API.begin()
    if is_list(row):
        messages = _read_turns(api, row)
        return ParsedRow(messages, shape="anthropic", notes=tuple(api.notes.values()))
    row = require_mapping(row, "anthropic")
    if row.get("type") == "message":
        items = api.read_content(row.get("content"), ("content",))
        return build_api_row(api, row, REPLY_KEYS, [*join_items("assistant", items)])
    turns = row.get("messages")
    if not is_list(turns):
        raise MessageError(f"turns are a list, not {describe(turns)}", path="messages")
    messages = []
    if row.get("system"):
        messages += join_items("system", api.read_content(row["system"], ("system",)))
    messages += _read_turns(api, turns)
    return build_api_row(api, row, ("messages", "system"), messages)


def _read_turns(api: ApiForms, turns: Any) -> list[Row]:
    found = []
    for index, turn in enumerate(turns):
        found += read_turn(api, turn, ("messages", index))
    return found


def write(row: ParsedRow) -> Row:
    """Write a request; results that follow each other are blocks of one turn."""
    columns = write_api_columns(API, row)
    system, turns = write_turns(API, row, "content", ROLES, write_blocks)
    if system is not None:
        columns["system"] = system
    return {**columns, "messages": turns}


def write_blocks(message: Row, path: Path = ("message",)) -> Any:
    """Return the content of a turn: a text if there is nothing else, or blocks.

    Raises:
        MessageError: a field or a part has no place in it.
    """
    items, others = split_message(message)
    blocks = API.write_thoughts(others, path)
    content = message.get("content")
    if not blocks and not message.get("tool_calls") and (isinstance(content, str) or not items):
        return content or ""
    return blocks + [API.write_item(item, (*path, *where)) for item, where in items]


STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def write_reply(message: Row, finish_reason: str = "stop", **fields: Any) -> Row:
    """Return a message as the answer of `POST /v1/messages`.

    Args:
        message: the message.
        finish_reason: why it ended, as Chat Completions has it.
        fields: `id`, `model`, `usage` and others that the answer has.
    """
    blocks = write_blocks(message)
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}] if blocks else []
    return {
        "type": "message",
        "role": "assistant",
        "content": blocks,
        "stop_reason": STOP_REASONS.get(finish_reason, finish_reason),
        "stop_sequence": None,
        **fields,
    }

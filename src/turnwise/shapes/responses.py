"""OpenAI's Responses: requests, and replies.

A conversation is a list of items. The items of one reply (reasoning, a message, calls) follow each other, and become
one message: a message or reasoning after a call begins the next. A reasoning item that is encrypted, or has a summary,
is kept as it came, in `reasoning_details`. Ids and states of items are the server's, and are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import JsonMapping, Path, format_path
from turnwise.shapes.part_forms import (
    AUDIO,
    CALL,
    CUSTOM_CALL,
    FILE,
    IMAGE,
    REFUSAL,
    RESULT,
    TEXT,
    ApiForms,
    Item,
    KeyForm,
    PartForm,
    TurnBuilder,
    join_items,
    make_text,
    make_thought,
    read_arguments,
    read_result,
    require_object,
    split_message,
    write_json_text,
    write_result,
)
from turnwise.shapes.row import (
    ParsedRow,
    Row,
    describe,
    is_list,
    require_mapping,
    translate_role,
)
from turnwise.shapes.tool_forms import build_api_row, write_api_columns

ROLES = {name: name for name in ("user", "assistant", "system", "developer")}
REQUEST_KEYS = frozenset(
    ["model", "instructions", "max_output_tokens", "previous_response_id", "store", "text"]
)
SERVER_KEYS = ("id", "status")
BREAKPOINT = ("prompt_cache_breakpoint",)
CALLER_KEYS = ("caller", "namespace", "async")


PARTS = (
    PartForm(
        "output_text", TEXT, {"text": "text"}, ("annotations", "logprobs"),
        required=("text",), roles=("assistant",), defaults={"annotations": [], "logprobs": []},
    ),
    PartForm("input_text", TEXT, {"text": "text"}, BREAKPOINT, required=("text",)),
    PartForm("text", TEXT, {"text": "text"}, required=("text",)),
    PartForm(
        "input_image", IMAGE,
        {"image_url": "image_url.url", "file_id": "image_url.file_id", "detail": "image_url.detail"},
        BREAKPOINT, defaults={"detail": "auto"},
    ),
    PartForm(
        "input_file", FILE,
        {name: f"file.{name}" for name in ("file_data", "file_id", "file_url", "filename", "detail")},
        BREAKPOINT,
    ),
    PartForm("input_audio", AUDIO, {"input_audio": "input_audio"}, required=("input_audio",)),
    PartForm("refusal", REFUSAL, {"refusal": "refusal"}, required=("refusal",)),
)  # fmt: skip
ITEMS = (
    PartForm(
        "function_call",
        CALL,
        {
            "call_id": "id",
            "name": "function.name",
            "arguments": KeyForm("function.arguments", read_arguments, write_json_text),
        },
        kept=CALLER_KEYS,
        dropped=SERVER_KEYS,
        required=("name",),
    ),
    PartForm(
        "custom_tool_call",
        CUSTOM_CALL,
        {"call_id": "id", "name": "custom.name", "input": "custom.input"},
        kept=CALLER_KEYS,
        dropped=SERVER_KEYS,
        required=("name",),
    ),
    *(
        PartForm(
            name,
            RESULT,
            {
                "call_id": "tool_call_id",
                "output": KeyForm("content", read_result, write_result),
                "name": "name",
            },
            kept=CALLER_KEYS,
            dropped=SERVER_KEYS,
            required=("output",),
        )
        for name in ("function_call_output", "custom_tool_call_output")
    ),
)
API = ApiForms(
    "responses",
    (*PARTS, *ITEMS),
    is_thought=lambda item: item.get("type") == "reasoning",
    make_thought=lambda text: {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": text}],
    },
)
ITEM_TYPES = (*(form.type for form in ITEMS), "message", "reasoning")


def is_responses(row: Any) -> bool:
    """Return True for a request of Responses, a reply, or a list of items that are not all messages."""
    if is_list(row):
        return any(_is_item(item) for item in row)
    if not isinstance(row, Mapping) or "instruction" in row or "messages" in row:
        return False
    if row.get("object") == "response":
        return is_list(row.get("output"))
    given = row.get("input")
    if isinstance(given, str):
        return bool(row.keys() & REQUEST_KEYS)
    return is_list(given) and all(isinstance(one, Mapping) for one in given)


def _is_item(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" not in value and value.get("type") in ITEM_TYPES


def read_items(api: ApiForms, items: Any, path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the messages that items are, each with the index of its first item.

    Raises:
        MessageError: an item is malformed, or of a type that cannot be kept.
    """
    turn: TurnBuilder | None = None
    first = 0
    for index, item in enumerate(items):
        found = list(_read_item(api, item, (*path, index)))
        role = _find_role(item)
        is_reply = role == "assistant"
        is_call = bool(found) and found[0].kind in (CALL, CUSTOM_CALL)
        # A message or reasoning after a message or a call is no more of the reply before it.
        if turn and not (is_reply and (is_call or not (turn.parts or turn.calls))):
            yield first, turn.build()
            turn = None
        if not is_reply:
            yield from ((index, one) for one in join_items(role, found, _read_others(item)))
        else:
            if turn is None:
                turn, first = TurnBuilder(role), index
            turn.others |= _read_others(item)
            for one in found:
                turn.add(one)
    if turn is not None:
        yield first, turn.build()


def _find_role(item: Any) -> str:
    if item.get("type", "message") == "message":
        return str(item.get("role"))
    return "tool" if str(item["type"]).endswith("_output") else "assistant"


def _read_others(item: JsonMapping) -> Row:
    if item.get("type", "message") != "message":
        return {}
    known = ("type", "role", "content", *SERVER_KEYS)
    return {key: value for key, value in item.items() if key not in known and value is not None}


def _read_item(api: ApiForms, item: Any, path: Path) -> Iterator[Item]:
    require_object(item, "an item", path)
    kind = item.get("type", "message")
    if kind == "reasoning":
        yield _read_reasoning(item)
    elif kind == "message":
        if not isinstance(item.get("role"), str):
            raise MessageError("there is no 'role'", path=format_path(path))
        content = item.get("content")
        if content != "":
            yield from api.read_content(content, (*path, "content"))
    elif kind in ITEM_TYPES:
        yield api.read_part(item, path)
    else:
        raise MessageError(
            f"an item of type {short_repr(kind)} cannot be kept",
            path=format_path((*path, "type")),
            hint=did_you_mean(str(kind), ITEM_TYPES, "Types that can"),
        )


def _read_reasoning(item: JsonMapping) -> Item:
    texts = [part.get("text", "") for part in item.get("content") or ()]
    summary = [part.get("text", "") for part in item.get("summary") or ()]
    is_opaque = bool(item.get("encrypted_content") or summary or len(texts) > 1)
    return make_thought("\n\n".join(texts or summary), item, is_opaque=is_opaque)


def read(row: Any) -> ParsedRow:
    """Read a request, a reply, or a list of items."""
    api = API.begin()
    if is_list(row):
        messages = [message for _, message in read_items(api, row, ("messages",))]
        return ParsedRow(messages, shape="responses", notes=tuple(api.notes.values()))
    row = require_mapping(row, "responses")
    column = "output" if row.get("object") == "response" else "input"
    messages = []
    if row.get("instructions") and column == "input":
        items = api.read_content(row["instructions"], ("instructions",))
        messages += join_items("system", items)
    given = row.get(column)
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    elif is_list(given):
        messages += [message for _, message in read_items(api, given, (column,))]
    else:
        raise MessageError(f"must be a text or a list of items, not {describe(given)}", path=column)
    used = (column, "instructions", "conversation")
    return build_api_row(api, row, used, messages)


def write(row: ParsedRow) -> Row:
    """Write a request; a first system text becomes the instructions."""
    columns = write_api_columns(API, row)
    items: list[Row] = []
    for index, message in enumerate(row.messages):
        is_plain = message.keys() <= {"role", "content"} and isinstance(message.get("content"), str)
        if index == 0 and message.get("role") == "system" and is_plain and message["content"]:
            columns["instructions"] = message["content"]
        else:
            items += write_items(message, index, ("messages", index))
    customs = {item["call_id"] for item in items if item["type"] == "custom_tool_call"}
    for item in items:
        if item["type"] == "function_call_output" and item.get("call_id") in customs:
            item["type"] = "custom_tool_call_output"
    return {**columns, "input": items}


def write_items(message: Row, index: int = 0, path: Path = ("message",)) -> Iterator[Row]:
    """Yield the items that a message is.

    Raises:
        MessageError: a field or a part has no place in them.
    """
    if message.get("role") == "tool":
        yield API.write_item(Item(RESULT, dict(message)), path)
        return
    role = translate_role(message, index, "responses", ROLES)
    items, others = split_message(message)
    phase = {"phase": others.pop("phase")} if "phase" in others else {}
    thoughts = API.write_thoughts(others, path)
    yield from ({"id": f"rs_{index}", **thought} for thought in thoughts)
    calls = [(item, where) for item, where in items if item.kind in (CALL, CUSTOM_CALL)]
    parts = items[: len(items) - len(calls)]
    if parts or not (calls or thoughts) or phase:
        written: Any = message.get("content")
        if not isinstance(written, str) or len(parts) > 1:
            written = [API.write_item(item, (*path, *where), role) for item, where in parts]
        is_output = role == "assistant" and is_list(written)
        own = {"id": f"msg_{index}", "status": "completed"} if is_output else {}
        yield {"type": "message", "role": role, "content": written or "", **own, **phase}
    for item, where in calls:
        yield API.write_item(item, (*path, *where), role)


def write_reply(message: Row, finish_reason: str = "stop", **fields: Any) -> Row:
    """Return a message as the answer of `POST /v1/responses`.

    Args:
        message: the message.
        finish_reason: why it ended, as Chat Completions has it.
        fields: `id`, `model`, `usage` and others that the answer has.
    """
    is_cut = finish_reason == "length"
    state = "incomplete" if is_cut else "completed"
    output = []
    for number, item in enumerate(write_items({"role": "assistant", **message})):
        item = {"id": f"{PREFIXES[item['type']]}_{number}", **item}
        if item["type"] == "message":
            if not item["content"]:
                continue
            if isinstance(item["content"], str):
                text = make_text(item["content"])
                item["content"] = [API.write_item(text, ("message",), "assistant")]
        output.append({**item, "status": state if item["type"] != "reasoning" else "completed"})
    return {
        "object": "response",
        "status": state,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "error": None,
        "output": output,
        **fields,
    }


PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}

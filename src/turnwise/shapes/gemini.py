"""Gemini's `generateContent`: requests, and replies.

A part has no type: it has one key with its data, and others beside it. Results are parts of a user's turn, with the
name of the function; ids of calls may be missing. Keys may be in snake case, as in Google's SDK for Python.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnwise.errors import MessageError
from turnwise.messages import JsonMapping, Path, format_path
from turnwise.shapes.part_forms import (
    AUDIO,
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
    split_message,
    write_data,
    write_turns,
)
from turnwise.shapes.row import (
    ParsedRow,
    Row,
    describe,
    is_list,
    require_mapping,
)
from turnwise.shapes.tool_forms import build_api_row, write_api_columns

READ_ROLES = {"user": "user", "model": "assistant", "function": "user", "system": "system"}
WRITTEN_ROLES = {"user": "user", "assistant": "model"}
SNAKE = re.compile(r"_([a-z])")
DATA_KEYS = ("text", "functionCall", "functionResponse", "inlineData", "fileData")
OTHER_DATA = ("executableCode", "codeExecutionResult", "videoMetadata")
BESIDE = ("thoughtSignature", "mediaResolution")  # keys beside the data
OUTPUT_KEYS = ("output", "result")  # under which a result may be
AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mp3"}


def _to_camel(value: JsonMapping) -> Row:
    """Return the keys of a mapping in camel case, those within it as they are."""
    return {SNAKE.sub(lambda found: found[1].upper(), key): item for key, item in value.items()}


def _open_part(part: JsonMapping) -> JsonMapping:
    """Return a part with a type: its data, and what is beside it."""
    part = _to_camel(part)
    for key in (*DATA_KEYS, *OTHER_DATA):
        data = part.get(key)
        if data is None:
            continue
        beside = {name: item for name, item in part.items() if name != key and item is not None}
        if isinstance(data, Mapping):
            return {"type": key, **_to_camel(data), **beside}
        return {"type": key, key: data, **beside}
    return {"type": next(iter(part), None), **part}


def _close_part(part: Row) -> Row:
    key = part.pop("type")
    if key == "text":
        return part
    beside = {name: part.pop(name) for name in BESIDE if name in part}
    return {key: part, **beside}


def _read_response(api: ApiForms, value: Any, path: Path) -> Any:
    """Return the content of a result: the text or data under the usual key, or all of it."""
    if isinstance(value, Mapping) and len(value) == 1:
        [(key, inner)] = value.items()
        if key in OUTPUT_KEYS and isinstance(inner, str):
            return inner
    return value


def _write_response(api: ApiForms, value: Any, path: Path) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str):
        raise api.no_place(path)
    return {OUTPUT_KEYS[0]: value}


FORMS = (
    PartForm("text", TEXT, {"text": "text"}, kept=BESIDE),
    PartForm(
        "functionCall",
        CALL,
        {
            "id": "id",
            "name": "function.name",
            "args": KeyForm("function.arguments", read_arguments, write_data),
        },
        kept=BESIDE,
        required=("name",),
    ),
    PartForm(
        "functionResponse",
        RESULT,
        {
            "id": "tool_call_id",
            "name": "name",
            "response": KeyForm("content", _read_response, _write_response),
        },
        kept=(*BESIDE, "willContinue", "scheduling"),
        required=("name",),
    ),
)


def _read_own(part: JsonMapping) -> Item | None:
    """Return a thought or media, which need more than other names; None for another part."""
    if part.get("thought") and part["type"] == "text":
        block = {key: value for key, value in part.items() if key != "type"}
        return make_thought(part["text"], block, is_opaque=bool(part.get("thoughtSignature")))
    return _read_media(part) if part["type"] in ("inlineData", "fileData") else None


def _write_media(api: ApiForms, item: Item, path: Path) -> Row | None:
    if item.kind not in (IMAGE, AUDIO, FILE):
        return None
    where = (*path, item.kind)
    beside = {key: value for key, value in item.value.items() if key in BESIDE}
    rest = item.value.keys() - {"type", item.kind, *BESIDE}
    media = item.value.get(item.kind)
    if rest or not isinstance(media, Mapping):
        raise api.no_place((*path, *rest) if rest else where)
    if item.kind == AUDIO:
        kind = AUDIO_TYPES.get(str(media.get("format")))
        if kind is None or media.keys() != {"data", "format"}:
            raise api.no_place(where)
        return {"inlineData": {"mimeType": kind, "data": media["data"]}, **beside}
    data_key, url_key = ("url", "url") if item.kind == IMAGE else ("file_data", "file_url")
    names = {"displayName": media["filename"]} if "filename" in media else {}
    if media.keys() - {data_key, url_key, "filename", "mime_type"}:
        raise api.no_place(where)
    found = read_data_url(media.get(data_key))
    if found is not None:
        return {"inlineData": {"mimeType": found[0], "data": found[1], **names}, **beside}
    kind = media.get("mime_type", "image/*" if item.kind == IMAGE else None)
    if media.get(url_key) is None or kind is None:
        raise api.no_place(where)
    return {"fileData": {"mimeType": kind, "fileUri": media[url_key], **names}, **beside}


def _read_media(part: JsonMapping) -> Item:
    beside = {key: part[key] for key in BESIDE if key in part}
    kind, data = str(part.get("mimeType", "")), part.get("data")
    names = {"filename": part["displayName"]} if "displayName" in part else {}
    audio = {mime: name for name, mime in AUDIO_TYPES.items()}
    if data is not None and kind in audio:
        sound = {"data": data, "format": audio[kind]}
        return Item(AUDIO, {"type": AUDIO, AUDIO: sound, **beside})
    is_image = kind.startswith("image/")
    middle = IMAGE if is_image else FILE
    if data is not None:
        key = "url" if is_image else "file_data"
        return Item(
            middle, {"type": middle, middle: {key: make_data_url(kind, data), **names}, **beside}
        )
    place = {"url" if is_image else "file_url": part.get("fileUri"), **names}
    if kind != "image/*":
        place["mime_type"] = kind
    return Item(middle, {"type": middle, middle: place, **beside})


API = ApiForms(
    "gemini",
    FORMS,
    _open_part,
    _close_part,
    _read_own,
    _write_media,
    is_thought=lambda part: bool(part.get("thought")),
    make_thought=lambda text: {"text": text, "thought": True},
)


def is_gemini(row: Any) -> bool:
    """Return True for a request of `generateContent`, or a reply."""
    return isinstance(row, Mapping) and ("contents" in row or is_list(row.get("candidates")))


def read(row: Any) -> ParsedRow:
    """Read a request or a reply."""
    row = _to_camel(require_mapping(row, "gemini"))
    api = API.begin()
    messages: list[Row] = []
    if "contents" not in row:
        candidate = row["candidates"][0] if row.get("candidates") else {}
        content = candidate.get("content") if isinstance(candidate, Mapping) else None
        messages += _read_turn(api, content, ("candidates", 0, "content"))
        return build_api_row(api, row, ("candidates",), messages)
    if row.get("systemInstruction"):
        system = row["systemInstruction"]
        if isinstance(system, str):
            system = {"parts": [system]}
        messages += _read_turn(api, {**system, "role": "system"}, ("systemInstruction",))
    contents = row["contents"]
    if isinstance(contents, str):
        contents = [{"role": "user", "parts": [contents]}]
    if not is_list(contents):
        raise MessageError(f"contents are a list, not {describe(contents)}", path="contents")
    for index, turn in enumerate(contents):
        messages += _read_turn(api, turn, ("contents", index))
    _drop_known_names(messages)
    return build_api_row(api, row, ("contents", "systemInstruction"), messages)


def _drop_known_names(messages: list[Row]) -> None:
    """Drop the name of a result whose call has it: other APIs have none, and some templates write it."""
    names: dict[Any, Any] = {}
    for message in messages:
        for call in message.get("tool_calls", ()):
            if "id" in call:
                names[call["id"]] = call["function"]["name"]
        known = names.get(message.get("tool_call_id"))
        if message["role"] == "tool" and known is not None and message.get("name") == known:
            del message["name"]


def _read_turn(api: ApiForms, turn: Any, path: Path) -> list[Row]:
    if not isinstance(turn, Mapping) or not is_list(turn.get("parts")):
        raise MessageError(
            f"a turn has a role and parts; this is {describe(turn)}", path=format_path(path)
        )
    role = READ_ROLES.get(str(turn.get("role") or "user"))
    if role is None:
        raise MessageError(
            f"unknown role {turn.get('role')!r}",
            path=format_path((*path, "role")),
            hint="user or model",
        )
    others = {key: value for key, value in turn.items() if key not in ("role", "parts")}
    return list(join_items(role, api.read_content(turn["parts"], (*path, "parts")), others))


def write(row: ParsedRow) -> Row:
    """Write a request; results that follow each other are parts of one turn."""
    columns = write_api_columns(API, row)
    system, turns = write_turns(API, row, "parts", WRITTEN_ROLES, write_parts)
    if system is not None:
        columns["systemInstruction"] = {"parts": system}
    return {**columns, "contents": turns}


def write_parts(message: Row, path: Path = ("message",)) -> list[Row]:
    """Return the parts of a turn.

    Raises:
        MessageError: a field or a part has no place in it.
    """
    items, others = split_message(message)
    parts = API.write_thoughts(others, path)
    parts += [API.write_item(item, (*path, *where)) for item, where in items]
    return parts or [{"text": ""}]


FINISH_REASONS = {"length": "MAX_TOKENS"}


def write_reply(message: Row, finish_reason: str = "stop", **fields: Any) -> Row:
    """Return a message as the answer of `generateContent`.

    Args:
        message: the message.
        finish_reason: why it ended, as Chat Completions has it.
        fields: `responseId`, `modelVersion` and others that the answer has.
    """
    content = {"role": "model", "parts": write_parts(message)}
    reason = FINISH_REASONS.get(finish_reason, "STOP")
    return {"candidates": [{"index": 0, "content": content, "finishReason": reason}], **fields}

"""Parts of other APIs as parts of Chat Completions, and back: each type of part is one row of a table.

    PartForm("tool_use", CALL, {"id": "id", "name": "function.name", "input": "function.arguments"})

reads `{"type": "tool_use", "id": "a", "name": "tide", "input": {}}` as the call
`{"id": "a", "type": "function", "function": {"name": "tide", "arguments": {}}}`, and writes the call as that. Chat
Completions is the form in the middle: one kind of part is one row for each API, and every pair of APIs is converted.

A turn is a list of items, each a kind and a value in the form of the middle (`split_message`, `join_items`). Keys that
a row does not name stay as they are when a part is read, and those with text are named in the notes of the reading.
When a part is written they are refused, unless the API has them, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import REASONING_KEYS, JsonMapping, Path, format_path, iterate_texts
from turnwise.shapes.row import (
    ParsedRow,
    Row,
    describe,
    drop_nulls,
    is_list,
    translate_role,
)

TEXT, IMAGE, AUDIO, FILE, REFUSAL = "text", "image_url", "input_audio", "file", "refusal"
CALL, CUSTOM_CALL, RESULT, THOUGHT = "call", "custom call", "result", "thought"
TOOL, CUSTOM_TOOL = "tool", "custom tool"

DETAILS = "reasoning_details"
"""The key of reasoning that only its API can read: signed, encrypted or in several blocks, as it came."""

MISSING = object()
FIXED: dict[str, Row] = {
    **{kind: {"type": kind} for kind in (TEXT, IMAGE, AUDIO, FILE, REFUSAL)},
    CALL: {"type": "function"},
    CUSTOM_CALL: {"type": "custom"},
    RESULT: {"role": "tool"},
    TOOL: {"type": "function"},
    CUSTOM_TOOL: {"type": "custom"},
}
"""What every value of a kind has in the middle."""

Convert = Callable[["ApiForms", Any, Path], Any]


class Item(NamedTuple):
    """One item of a turn: its kind, and its value in the form of Chat Completions."""

    kind: str
    value: Row


def make_text(text: str) -> Item:
    """Return the item that a text is."""
    return Item(TEXT, {"type": TEXT, "text": text})


class KeyForm(NamedTuple):
    """Where the value of a key is in the middle, and how it is converted."""

    path: str
    read: Convert = lambda api, value, path: value
    write: Convert = lambda api, value, path: value


@dataclass(frozen=True)
class PartForm:
    """How one API writes one kind of part.

    Attributes:
        type: the name that the API has for it.
        kind: the kind of item that it is.
        keys: for each key of the API, where its value is in the middle.
        kept: keys that have one name and one meaning on both sides.
        dropped: what a server adds for its own use.
        required: keys without which the part means nothing.
        defaults: values that are always written, and mean the same as none.
        roles: the roles whose turns may have it when it is written; empty for all.
        unwritten: what is left out when it is written, since other parts have it.
    """

    type: str
    kind: str
    keys: Mapping[str, str | KeyForm]
    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    defaults: JsonMapping = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    unwritten: tuple[str, ...] = ()

    def read(self, api: ApiForms, part: JsonMapping, path: Path) -> Item:
        """Return the item that a part of the API is.

        Raises:
            MessageError: a key is missing, or its value cannot be converted.
        """
        for key in self.required:
            if part.get(key) is None:
                raise MessageError(
                    f"a part of type {self.type} needs {key!r}",
                    path=format_path(path),
                    hint=did_you_mean(key, part, "It has"),
                )
        found: Row = dict(FIXED.get(self.kind, {}))
        for key, value in part.items():
            if key == "type" or key in self.dropped or value in (None, self.defaults.get(key)):
                continue
            form = self._forms.get(key)
            if form is None:
                api.note_unknown(key, value, self, path)
                found[key] = value
            else:
                _put(found, form.path, form.read(api, value, (*path, key)))
        if self.kind in (CALL, CUSTOM_CALL) and "id" in found:
            # The usual order, since some templates print a call whole.
            found = {"id": found["id"], **found}
        return Item(self.kind, found)

    def write(self, api: ApiForms, value: Row, path: Path) -> Row:
        """Return an item as a part of the API.

        Raises:
            MessageError: the API has no place for a key, or for its value.
        """
        rest = drop_nulls(value)
        for key in (*FIXED.get(self.kind, {}), *self.unwritten):
            rest.pop(key, None)
        found: Row = {}
        for key, form in self._forms.items():
            item = _take(rest, form.path)
            if item is not MISSING:
                found[key] = form.write(api, item, (*path, *form.path.split(".")))
        for key, item in rest.items():
            if key not in self.kept:
                raise api.no_place((*path, key))
            found[key] = item
        # Some templates print a tool or a call whole, so the order of its keys is part of the prompt.
        places = {place: number for number, place in enumerate(_list_paths(value))}
        paths = {key: key for key in found} | {key: form.path for key, form in self._forms.items()}
        ordered = sorted(found, key=lambda key: places.get(paths[key], len(places)))
        written = {"type": self.type} | {key: found[key] for key in ordered}
        return {**written, **{key: self.defaults[key] for key in self.defaults if key not in found}}

    @cached_property
    def _forms(self) -> dict[str, KeyForm]:
        forms = self.keys.items()
        return {key: KeyForm(one) if isinstance(one, str) else one for key, one in forms}


def _list_paths(value: JsonMapping) -> Iterator[str]:
    for key, item in value.items():
        yield key
        if isinstance(item, Mapping):
            yield from (f"{key}.{inner}" for inner in item)


def _put(target: Row, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for step in parents:
        target = target.setdefault(step, {})
    known = target.get(last)
    # Two keys of an API may be parts of one value: a file's name and its data.
    target[last] = {**known, **value} if isinstance(known, dict) else value


def _take(source: Row, path: str) -> Any:
    """Remove the value at a path and return it, `MISSING` if there is none; an empty parent is removed, too."""
    first, _, more = path.partition(".")
    if not more:
        return source.pop(first, MISSING)
    inner = source.get(first)
    if not isinstance(inner, Mapping):
        return MISSING
    rest = dict(inner)
    found = _take(rest, more)
    if rest:
        source[first] = rest
    elif first in source:
        del source[first]
    return found


@dataclass(frozen=True)
class ApiForms:
    """The parts that one API has, and a reading or writing of them.

    Attributes:
        name: the name of the API, for errors.
        forms: its table.
        open_part, close_part: if its parts have no `type`: give them one, and take it away.
        read_own: reads a part that needs more than a row, such as reasoning; None if it is another one.
        write_own: writes an item that needs more than a row; None if it is another one.
        is_thought: whether a block of `reasoning_details` is one of this API.
        make_thought: makes a block of reasoning from its text.
        notes: keys that are not known and hold text, each once.
    """

    name: str
    forms: tuple[PartForm, ...] = ()
    open_part: Callable[[JsonMapping], JsonMapping] = dict
    close_part: Callable[[Row], Row] = dict
    read_own: Callable[[JsonMapping], Item | None] = lambda part: None
    write_own: Callable[[ApiForms, Item, Path], Row | None] = lambda api, item, path: None
    is_thought: Callable[[Row], bool] = bool
    make_thought: Callable[[str], Row] = lambda text: {}
    notes: dict[str, str] = field(default_factory=dict)

    def begin(self) -> ApiForms:
        """Return the same table with no notes, for one reading."""
        return replace(self, notes={})

    def read_content(self, content: Any, path: Path) -> list[Item]:
        """Return the items of a content: a text, parts, or nothing.

        Raises:
            MessageError: it is something else, or a part cannot be kept.
        """
        if content is None:
            return []
        if isinstance(content, str):
            return [make_text(content)]
        if not is_list(content):
            raise MessageError(
                f"content is a text or a list of parts, not {describe(content)}",
                path=format_path(path),
            )
        return [self.read_part(part, (*path, index)) for index, part in enumerate(content)]

    def read_part(self, part: Any, path: Path) -> Item:
        """Return the item that a part is.

        Raises:
            MessageError: it is of a type that cannot be kept, or malformed.
        """
        if isinstance(part, str):
            return make_text(part)
        require_object(part, "a part", path)
        opened = self.open_part(part)
        own = self.read_own(opened)
        if own is not None:
            return own
        name = opened.get("type")
        for form in self.forms:
            if form.type == name:
                return form.read(self, opened, path)
        raise MessageError(
            f"a part of type {short_repr(name)} cannot be kept",
            path=format_path((*path, "type")),
            hint=did_you_mean(str(name), [form.type for form in self.forms], "Types that can"),
        )

    def write_item(self, item: Item, path: Path, role: str = "") -> Row:
        """Return an item as a part of the API.

        Raises:
            MessageError: the API cannot hold it.
        """
        own = self.write_own(self, item, path)
        if own is not None:
            return own
        for form in self.forms:
            if form.kind == item.kind and (not form.roles or role in form.roles):
                return self.close_part(form.write(self, item.value, path))
        raise self.no_place(path)

    def write_thoughts(self, fields: Row, path: Path) -> list[Row]:
        """Return the reasoning among the fields of a message as blocks of the API; refuse other fields.

        Raises:
            MessageError: a field, or a block of another API, has no place in this one.
        """
        text, details = take_reasoning(fields)
        for key in fields:
            raise self.no_place((*path, key))
        for number, detail in enumerate(details):
            if not self.is_thought(detail):
                raise self.no_place((*path, DETAILS, number))
        return [self.make_thought(text)] if text and not details else list(details)

    def write_content(self, content: Any, path: Path, role: str) -> Any:
        """Return a content as the API has it: a text, or parts."""
        if isinstance(content, str):
            return content
        items = split_content(content)
        return [self.write_item(item, (*path, index), role) for index, item in enumerate(items)]

    def no_place(self, path: Path) -> MessageError:
        """Return the error for a value that the API cannot hold."""
        return MessageError(f"{self.name} data cannot hold this", path=format_path(path))

    def note_unknown(self, key: str, value: Any, form: PartForm, path: Path) -> None:
        """Note a key that is not known and holds text, once for each type of part."""
        if key not in form.kept and any(map(str.strip, iterate_texts(value))):
            shown = format_path((*path, key))
            note = f"{shown} is no key of {self.name} that is known; it was kept"
            self.notes.setdefault(f"{form.type}.{key}", note)


# -- turns


@dataclass
class TurnBuilder:
    """One message while its items are joined."""

    role: str
    others: Row = field(default_factory=dict)
    parts: list[Row] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    thoughts: list[Row] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether no item was added."""
        return not (self.parts or self.calls or self.thoughts)

    def add(self, item: Item) -> None:
        """Add an item that is no result."""
        if item.kind == THOUGHT:
            self.thoughts.append(item.value)
        elif item.kind in (CALL, CUSTOM_CALL):
            self.calls.append(item.value)
        else:
            self.parts.append(item.value)

    def build(self) -> Row:
        """Return the message."""
        message: Row = {"role": self.role, "content": self._join_parts(), **self.others}
        if self.thoughts:
            text = "\n\n".join(filter(None, [thought["text"] for thought in self.thoughts]))
            if text:
                message[REASONING_KEYS[0]] = text
            details = [thought["detail"] for thought in self.thoughts]
            if len(details) > 1 or self.thoughts[0]["is_opaque"]:
                message[DETAILS] = details
        if self.calls:
            message["tool_calls"] = self.calls
        refusal = self.parts[0] if len(self.parts) == 1 else {}
        if refusal.keys() == {"type", REFUSAL}:
            message |= {"content": None, REFUSAL: refusal[REFUSAL]}
        return message

    def _join_parts(self) -> Any:
        if not self.parts:
            return None if self.calls or self.thoughts else ""
        if len(self.parts) == 1 and self.parts[0].keys() == {"type", TEXT}:
            return self.parts[0][TEXT]
        return self.parts


def make_thought(text: str, detail: JsonMapping, *, is_opaque: bool) -> Item:
    """Return reasoning: its text, and the block as it came, which is kept if only the API can read it."""
    return Item(THOUGHT, {"text": text, "detail": dict(detail), "is_opaque": is_opaque})


def join_items(role: str, items: Iterable[Item], others: Row | None = None) -> Iterator[Row]:
    """Yield the messages of a turn: one, and one more for each result in it."""
    turn = TurnBuilder(role, others or {})
    has_results = False
    for item in items:
        if item.kind == RESULT:
            if not turn.is_empty:
                yield turn.build()
                turn = TurnBuilder(role, turn.others)
            yield item.value
            has_results = True
        else:
            turn.add(item)
    if not (turn.is_empty and has_results):
        yield turn.build()


def write_turns(
    api: ApiForms,
    row: ParsedRow,
    key: str,
    roles: Mapping[str, str],
    write_parts: Callable[[Row, Path], Any],
) -> tuple[Any, list[Row]]:
    """Return the first system text, and turns with their parts under a key; results that follow each other are one.

    The name of the function is put beside each result, for APIs that have it there.
    """
    system: Any = None
    turns: list[Row] = []
    names: dict[Any, Any] = {}
    role = ""
    for index, message in enumerate(row.messages):
        path = ("messages", index)
        for call in message.get("tool_calls") or ():
            names[call.get("id")] = call.get("function", {}).get("name")
        before, role = role, str(message.get("role"))
        if role == "tool":
            value = {"name": names.get(message.get("tool_call_id")), **message}
            part = api.write_item(Item(RESULT, value), path)
            if before == "tool":
                turns[-1][key].append(part)
            else:
                turns.append({"role": "user", key: [part]})
            continue
        parts = write_parts(message, path)
        if role == "system" and index == 0:
            system = parts
        else:
            own = translate_role(message, index, api.name, roles)
            turns.append({"role": own, key: parts})
    return system, turns


def split_content(content: Any) -> list[Item]:
    """Return the items of a content in the form of the middle."""
    if content is None or content == "":
        return []
    items = []
    for part in content if is_list(content) else [content]:
        value = make_text(part).value if isinstance(part, str) else require_object(part, "a part")
        items.append(Item(str(value.get("type")), value))
    return items


def require_object(value: Any, what: str, path: Path = ()) -> Row:
    """Return a copy of the value if it is a mapping, else raise MessageError."""
    if not isinstance(value, Mapping):
        problem = f"{what} is a mapping, not {describe(value)}"
        raise MessageError(problem, path=format_path(path))
    return dict(value)


def split_message(message: JsonMapping) -> tuple[list[tuple[Item, Path]], Row]:
    """Return the content, refusal and calls of a message as items with their paths, and its other fields.

    Reasoning is not among the items: each API has its own blocks for it.
    """
    rest = {key: value for key, value in message.items() if value is not None and key != "role"}
    content = rest.pop("content", None)
    is_parts = is_list(content)
    items: list[tuple[Item, Path]] = []
    for index, item in enumerate(split_content(content)):
        items.append((item, ("content", index) if is_parts else ("content",)))
    if isinstance(rest.get(REFUSAL), str):
        value = {"type": REFUSAL, REFUSAL: rest.pop(REFUSAL)}
        items.append((Item(REFUSAL, value), (REFUSAL,)))
    calls = rest.pop("tool_calls", None)
    if not is_list(calls):
        calls = []
    for index, call in enumerate(calls):
        value = require_object(call, "a call")
        kind = CUSTOM_CALL if value.get("type") == "custom" else CALL
        items.append((Item(kind, value), ("tool_calls", index)))
    return items, rest


def take_reasoning(fields: Row) -> tuple[str, Sequence[Row]]:
    """Remove reasoning from the fields of a message; return its text and its blocks."""
    text = ""
    for key in REASONING_KEYS:
        found = fields.pop(key, None)
        if isinstance(found, str):
            text = text or found
    details = fields.pop(DETAILS, None) or ()
    return text, [require_object(detail, "a block of reasoning") for detail in details]


def simplify_messages(messages: Sequence[Row]) -> list[Row]:
    """Return messages in one of several forms that mean the same, to compare them.

    One text part is its text, arguments are data, reasoning has one key, and the name of a result is left out where
    its call has it.
    """
    names: dict[Any, Any] = {}
    simple = []
    for message in messages:
        items, others = split_message(message)
        text, details = take_reasoning(others)
        turn = TurnBuilder(str(message.get("role")), others)
        for item, _ in items:
            if item.kind == CALL:
                item = Item(CALL, _simplify_call(item.value, names))
            elif item.kind == IMAGE:
                item = Item(IMAGE, _simplify_image(item.value))
            turn.add(item)
        made = turn.build()
        if not made.get("content"):
            made.pop("content", None)
        if text:
            made[REASONING_KEYS[0]] = text
        if details:
            made[DETAILS] = details
        if made["role"] == "tool" and made.get("name") == names.get(made.get("tool_call_id"), ""):
            made.pop("name", None)
        simple.append(made)
    return simple


def _simplify_image(part: Row) -> Row:
    image = part.get(IMAGE)
    if isinstance(image, Mapping) and image.get("detail") == "auto":
        return {**part, IMAGE: {key: image[key] for key in image if key != "detail"}}
    return part


def _simplify_call(call: Row, names: dict[Any, Any]) -> Row:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return call
    names[call.get("id")] = function.get("name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    call = {**call, "type": "function", "function": {**function, "arguments": arguments}}
    return drop_nulls(call)


# -- values that APIs write differently


def read_result(api: ApiForms, value: Any, path: Path) -> Any:
    """Return the content of a result."""
    if isinstance(value, str):
        return value
    [message] = join_items("tool", api.read_content(value, path))
    return message["content"]


def write_result(api: ApiForms, value: Any, path: Path) -> Any:
    """Return the content of a result as the API has it."""
    return api.write_content(value, path, "tool")


def read_arguments(api: ApiForms, value: Any, path: Path) -> Any:
    """Return arguments that are data, or the JSON text of data."""
    if isinstance(value, (str, Mapping)):
        return value
    raise MessageError(f"arguments are an object, not {describe(value)}", path=format_path(path))


def write_data(api: ApiForms, value: Any, path: Path) -> Any:
    """Return arguments as data."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value) if value.strip() else {}
    if not isinstance(value, Mapping):
        raise api.no_place(path)
    return dict(value)


def write_json_text(api: ApiForms, value: Any, path: Path) -> str:
    """Return arguments as JSON text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read_data_url(url: Any) -> tuple[str, str] | None:
    """Return the type and the base64 data of a data URL; None for another URL."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, comma, data = url[len("data:") :].partition(",")
    kind, semicolon, encoding = head.rpartition(";")
    return (kind, data) if comma and semicolon and encoding == "base64" else None


def make_data_url(kind: Any, data: Any) -> str:
    """Return base64 data of a type as a URL."""
    return f"data:{kind};base64,{data}"

"""Check a conversation once, and make it plain JSON data.

This does what transformers 5.22 does to messages before a template sees them: rich objects become
plain data (mappings, lists, numbers; dataclasses and pydantic models become dicts; anything else
becomes a placeholder with its type's name, but in tools an error), and reasoning is copied to the keys that templates
read. Values that no renderer can write are refused with their path: lone surrogates, NaN, values
that contain themselves, nests hundreds deep.

The caller's objects are never changed, and a template never sees them: flat messages are passed on
as they are, since a template cannot change them, and anything nested is copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from turnwise.errors import MessageError, short_repr
from turnwise.messages.fields import REASONING_KEYS
from turnwise.messages.paths import format_path
from turnwise.messages.tool_schemas import to_tool
from turnwise.messages.types import JsonObject

SCALARS = (str, int, float, bool, type(None))
LEAVES = frozenset(SCALARS) - {float}
MAX_DEPTH = 420  # containers within containers; a schema has two for each level of its own
MAX_CONTAINERS = 2_000_000  # in one conversation; more is a structure that shares itself
TURN_ROLES = frozenset(["user", "assistant"])
FIRST_ROLES = TURN_ROLES | {"system"}
MAX_PATH_STEPS = 12  # of a path in an error

PlainKind = Literal["turns", "texts", ""]

has_no_reasoning = frozenset(REASONING_KEYS).isdisjoint


def find_plain_kind(messages: Any) -> PlainKind:
    """Return whether all messages have just a role and a content, both text: a shallow copy is enough.

    Returns:
        "turns" for users and assistants, perhaps after one system text; "texts" for any roles; "" for other messages.
    """
    if type(messages) is not list:
        return ""
    kind: PlainKind = "turns"
    allowed = FIRST_ROLES
    try:
        for message in messages:
            if message.__class__ is not dict or len(message) != 2:
                return ""
            role = message["role"]
            if role.__class__ is not str or message["content"].__class__ is not str:
                return ""
            if role not in allowed:
                kind = "texts"
            allowed = TURN_ROLES
    except KeyError:
        return ""
    return kind


class InvalidValue(Exception):
    """A value that cannot be rendered.

    The steps of its path are collected while the exception passes outwards, so valid values pay
    nothing for paths.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.steps: list[Any] = []

    def to_error(self, *start: str | int) -> MessageError:
        """Return the error to show to the caller, for a value that was found below `start`."""
        path = (*start, *reversed(self.steps))
        shown = format_path(path[:MAX_PATH_STEPS])
        if len(path) > MAX_PATH_STEPS:
            shown += "…"
        return MessageError(str(self), path=shown, hint=self.hint)


class ReadMessages(NamedTuple):
    """Messages that were read already.

    Attributes:
        messages: the messages.
        aliases: see `InputReader.aliases`.
        plain_kind: see `find_plain_kind`.
        has_parts: whether a content may have parts.
        memory: what writing one beginning of a conversation leaves for longer ones; None if it is written once.
        reading: what a reader needs to go on with more messages; see `Normaliser`.
    """

    messages: list[JsonObject]
    aliases: dict[tuple[int, str], str]
    plain_kind: PlainKind = ""
    has_parts: bool = False
    memory: dict[Any, Any] | None = None
    reading: Any = None


class InputReader:
    """Makes plain copies of the parts of one input.

    `aliases` says under which key reasoning was given: `(message index, key that a template reads)
    -> key`.
    """

    __slots__ = ("_containers", "_refuses_objects", "aliases")

    def __init__(self) -> None:
        self._containers = 0
        self._refuses_objects = False  # inside of tools: a placeholder is no schema
        self.aliases: dict[tuple[int, str], str] = {}

    def to_plain(self, value: Any, *path: str | int) -> Any:
        """Return the value as JSON data, or raise a MessageError that names the path."""
        try:
            return self.copy_value(value, 0)
        except InvalidValue as error:
            raise error.to_error(*path) from None
        except RecursionError:
            raise MessageError("nested too deeply", path=format_path(path)) from None
        except MessageError:
            raise
        # the caller's objects may run code of their own when they are read
        except Exception as error:
            raise MessageError(
                f"{type(value).__name__} cannot be read: {error!r:.200}", path=format_path(path)
            ) from error

    def copy_value(self, value: Any, depth: int) -> Any:
        """Return a plain copy of a value inside of `depth` containers, or raise InvalidValue."""
        kind = type(value)
        if kind in LEAVES:
            return value
        if kind is float:
            if value - value != 0:  # NaN and the infinities
                raise InvalidValue(f"{value} is not a JSON number", "use null, or text")
            return value
        if kind is not dict and kind is not list:
            return self._copy_object(value, depth)
        self._containers += 1
        if depth > MAX_DEPTH or self._containers > MAX_CONTAINERS:
            raise InvalidValue("nested too deeply, or a value that contains itself")
        step: Any = None
        try:
            if kind is dict:
                entries: dict[Any, Any] = {}
                for step, item in value.items():
                    key = step if type(step) is str else self._copy_key(step)
                    entries[key] = self.copy_value(item, depth + 1)
                return entries
            items: list[Any] = []
            for step, item in enumerate(value):  # noqa: B007  # it is in the path of an error
                items.append(self.copy_value(item, depth + 1))
            return items
        except InvalidValue as error:
            error.steps.append(step if isinstance(step, int) else str(step))
            raise

    def _copy_key(self, key: Any) -> Any:
        if not isinstance(key, SCALARS):
            raise InvalidValue(f"a key must be text, not {_describe(key)}")
        return self.copy_value(key, 0)

    def _copy_object(self, value: Any, depth: int) -> Any:
        """Copy what is not plain JSON.

        Subclasses lose their extras, objects become dicts or a placeholder.
        """
        for base in (str, int, float):
            if isinstance(value, base):
                # `base(value)` would call a conversion that the subclass defines
                return self.copy_value(getattr(base, f"__{base.__name__}__")(value), depth)
        if isinstance(value, Mapping):
            return self.copy_value(dict(value.items()), depth)
        if isinstance(value, tuple):
            return tuple(self.copy_value(list(value), depth))
        if isinstance(value, list):
            return self.copy_value(list(value), depth)
        if isinstance(value, type):
            return self._write_placeholder(value, depth)
        if dataclasses.is_dataclass(value):
            fields = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
            return self.copy_value(fields, depth)
        if _is_numpy_scalar(value):
            return self.copy_value(value.item(), depth)
        if callable(getattr(value, "model_dump", None)):  # pydantic
            return self.copy_value(value.model_dump(), depth)
        return self._write_placeholder(value, depth)

    def _write_placeholder(self, value: Any, depth: int) -> str:
        name = type(value).__name__
        if self._refuses_objects and depth:
            raise InvalidValue(f"a value of type {name} is not JSON", "use a list, or text")
        return f"<{name}>"

    def read_messages(self, messages: Any, first: int = 0) -> list[JsonObject]:
        """Return the messages as plain data, each with its reasoning under the keys that templates
        read.

        Objects with an attribute `messages` are accepted as well. `first` is the number of the first message.
        """
        if type(messages) is not list:
            messages = self._read_sequence(messages)
        chat = []
        for index, message in enumerate(messages, first):
            if type(message) is not dict:
                message = self.read_message(message, index)
            else:
                for value in message.values():
                    if type(value) is not str and value is not None:
                        message = self.read_message(message, index)
                        break
            if not has_no_reasoning(message):
                message = self.with_reasoning_aliases(message, index)
            chat.append(message)
        return chat

    def _read_sequence(self, messages: Any) -> Sequence[Any]:
        if hasattr(type(messages), "messages"):
            messages = self.to_plain(messages.messages, "messages")
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
            hint = 'for example [{"role": "user", "content": "Hello!"}]'
            if isinstance(messages, Mapping) and "messages" in messages:
                hint = "give its 'messages'; `turnwise.shapes.conversation` reads rows of any shape"
            elif isinstance(messages, Mapping) and "role" in messages:
                hint = "put the message into a list"
            problem = f"a conversation is a list of messages, not {_describe(messages)}"
            raise MessageError(problem, path="messages", hint=hint)
        return messages

    def read_message(self, message: Any, index: int) -> JsonObject:
        """Return one message as plain data; `index` is only for errors."""
        plain = self.to_plain(message, "messages", index)
        if type(plain) is not dict:
            raise MessageError(
                f"a message is a mapping, not {_describe(message)}",
                path=f"messages[{index}]",
                hint='for example {"role": "user", "content": "Hello!"}',
            )
        return plain

    def with_reasoning_aliases(self, message: JsonObject, index: int) -> JsonObject:
        """Put reasoning under both keys that templates read, and record its own key."""
        for given in REASONING_KEYS:
            if message.get(given) is not None:
                break
        else:
            return message
        if given != "reasoning_content":
            self.aliases[index, "reasoning_content"] = given
        if message.get("thinking") is None:
            self.aliases[index, "thinking"] = given
        return {"thinking": message[given], **message, "reasoning_content": message[given]}

    def read_tools(self, tools: Any) -> list[Any] | None:
        """Return the tools as plain data: JSON schemas, or what has one, see `tool_schemas.py`."""
        if isinstance(tools, (list, tuple)):
            tools = [
                tool if isinstance(tool, Mapping) else to_tool(tool, f"tools[{index}]")
                for index, tool in enumerate(tools)
            ]
        self._refuses_objects = True
        rule = "a tool is a JSON schema, a function or a pydantic model"
        return self._read_mappings("tools", tools, rule, "pass its JSON schema")

    def read_documents(self, documents: Any) -> list[Any] | None:
        """Return the documents of a retrieval prompt as plain data."""
        example = 'for example {"title": "...", "text": "..."}'
        return self._read_mappings("documents", documents, "a document is a mapping", example)

    def _read_mappings(
        self, name: str, values: Any, rule: str, hint_of_item: str
    ) -> list[Any] | None:
        """Return a list of mappings as plain data; `rule` says in an error what each of them is."""
        if values is None:
            return None
        if not isinstance(values, (list, tuple)):
            problem = f"{name} are a list, not {_describe(values)}"
            raise MessageError(problem, path=name, hint="Put it into a list.")
        plain = []
        for index, value in enumerate(values):
            copy = self.to_plain(value, name, index)
            if not isinstance(copy, Mapping):
                problem = f"{rule}, not {_describe(value)}"
                raise MessageError(problem, path=f"{name}[{index}]", hint=hint_of_item)
            plain.append(copy)
        return plain


def _describe(value: Any) -> str:
    return f"{type(value).__name__}: {short_repr(value)}"


def _is_numpy_scalar(value: Any) -> bool:
    is_numpy = type(value).__module__ == "numpy"
    return is_numpy and hasattr(value, "item") and not hasattr(value, "__len__")

"""A conversation at the door: checked once, and made of plain JSON values from there on.

What transformers 5.22 does to messages before a template sees them, done here in the same way: rich objects become
plain data (mappings, lists, numbers; dataclasses and pydantic models become dicts; anything else a placeholder with
its type's name), and reasoning is found under any of its three names. What it lets through and nobody can render is
refused with the path of the value: half surrogate pairs, NaN, values that contain themselves, nests hundreds deep.

The caller's objects are never changed, and never seen by a template: flat messages are only looked at, since a template
cannot change them, and anything nested is copied.
"""

from __future__ import annotations

import dataclasses
import marshal
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from turnwise.errors import MessageError, short_repr

REASONING_KEYS = (
    "reasoning_content",
    "thinking",
    "reasoning",
)  # the first is what most templates read
SCALARS = (str, int, float, bool, type(None))
DEPTH = 420  # containers within containers; a schema has two for each level of its own
VALUES = 2_000_000  # values in one conversation; more is a structure that shares itself

NO_REASONING = frozenset(REASONING_KEYS).isdisjoint

Path = tuple[str | int, ...]


def format_path(path: Path) -> str:
    """`("messages", 3, "content")` as people write it: `messages[3].content`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.isidentifier() or not text:
            text += f".{step}" if text else step
        else:
            text += f"[{step!r}]"
    return text


def is_plain_chat(messages: Any) -> bool:
    """A list of messages that have a role and a content, both text: the common case, which needs no copy at all."""
    if type(messages) is not list:
        return False
    for message in messages:
        if type(message) is not dict or len(message) != 2:
            return False
        try:
            if type(message["role"]) is not str or type(message["content"]) is not str:
                return False
        except KeyError:
            return False
    return True


class InvalidValue(Exception):
    """A value that cannot be rendered. Collects its path on the way out, so that the way in costs nothing."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.steps: list[Any] = []

    def at(self, *start: str | int) -> MessageError:
        path = (*start, *reversed(self.steps))
        shown_path = format_path(path) if len(path) <= 12 else f"{format_path(path[:12])}…"
        return MessageError(str(self), path=shown_path, hint=self.hint)


class InputReader:
    """Plain copies of values; counts what it copies, since budgets grow with the input."""

    __slots__ = ("aliases", "values")

    def __init__(self) -> None:
        self.values = 0
        self.aliases: dict[tuple[int, str], str] = {}

    def to_plain(self, value: Any, *path: str | int) -> Any:
        """The value as JSON data, or an error that names the path."""
        try:
            return self.copy_value(value, 0)
        except InvalidValue as error:
            raise error.at(*path) from None
        except RecursionError:
            raise MessageError("nested too deeply", path=format_path(path)) from None
        except MessageError:
            raise
        except (
            Exception
        ) as error:  # the caller's objects run code of their own when they are looked at
            raise MessageError(
                f"{type(value).__name__} cannot be read: {error!r:.200}", path=format_path(path)
            ) from error

    def copy_value(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str or value is None or kind is bool or kind is int:
            return value
        if kind is float:
            return self._check_number(value)
        if kind is not dict and kind is not list:
            return self._copy_object(value, depth)
        self.values += 1
        if depth > DEPTH or self.values > VALUES:
            raise InvalidValue("nested too deeply, or a value that contains itself")
        key: Any = None
        try:
            if kind is dict:
                entries: dict[Any, Any] = {}
                for key, item in value.items():
                    entries[key if type(key) is str else self._copy_key(key)] = self.copy_value(
                        item, depth + 1
                    )
                return entries
            items: list[Any] = []
            for item in value:
                key = len(items)
                items.append(self.copy_value(item, depth + 1))
            return items
        except InvalidValue as error:
            error.steps.append(key if isinstance(key, int) else str(key))
            raise

    def _check_number(self, value: float) -> float:
        if value - value != 0:
            raise InvalidValue(f"{value} is not a JSON number", "use null, or text")
        return value

    def _copy_key(self, key: Any) -> Any:
        if not isinstance(key, SCALARS):
            raise InvalidValue(f"a key is text, not {type(key).__name__}: {short_repr(key)}")
        return self.copy_value(key, 0)

    def _copy_object(self, value: Any, depth: int) -> Any:
        """Not plain JSON: subclasses lose their extras, objects become dicts, the rest a placeholder."""
        for base in (str, int, float):
            if isinstance(value, base):
                return self.copy_value(getattr(base, f"__{base.__name__}__")(value), depth)
        if isinstance(value, Mapping):
            return self.copy_value(dict(value.items()), depth)
        if isinstance(value, tuple):
            return tuple(self.copy_value(list(value), depth))
        if isinstance(value, list):
            return self.copy_value(list(value), depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
            return self.copy_value(fields, depth)
        if (
            type(value).__module__ == "numpy"
            and hasattr(value, "item")
            and not hasattr(value, "__len__")
        ):
            return self.copy_value(value.item(), depth)
        if callable(getattr(value, "model_dump", None)) and not isinstance(value, type):
            return self.copy_value(value.model_dump(), depth)
        return f"<{type(value).__name__}>"

    def read_messages(self, messages: Any) -> list[dict[str, Any]]:
        """The messages of a conversation, each with its reasoning under the names that templates read."""
        if type(messages) is not list and hasattr(type(messages), "messages"):
            messages = self.to_plain(messages.messages, "messages")
        if type(messages) is not list and (
            isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence)
        ):
            raise MessageError(
                f"a conversation is a list of messages, not {type(messages).__name__}",
                path="messages",
                hint='for example [{"role": "user", "content": "Hello!"}]',
            )
        chat = []
        for index, message in enumerate(messages):
            if type(message) is dict:
                for value in message.values():
                    if type(value) is not str and value is not None:
                        message = self.read_message(message, index)
                        break
            else:
                message = self.read_message(message, index)
            chat.append(
                message if NO_REASONING(message) else self._with_reasoning_aliases(message, index)
            )
        return chat

    def read_message(self, message: Any, index: int) -> dict[str, Any]:
        plain = self.to_plain(message, "messages", index)
        if type(plain) is not dict:
            raise MessageError(
                f"a message is a mapping, not {type(message).__name__}: {short_repr(message)}",
                path=f"messages[{index}]",
                hint='for example {"role": "user", "content": "Hello!"}',
            )
        return plain

    def _with_reasoning_aliases(self, message: dict[str, Any], index: int) -> dict[str, Any]:
        """Reasoning under each name that templates read; remembers the name that it was given under."""
        given = next((name for name in REASONING_KEYS if message.get(name) is not None), None)
        if given is None:
            return message
        for name in ("reasoning_content", "thinking"):
            if message.get(name) is None or name == "reasoning_content" and given != name:
                self.aliases[index, name] = given
        return {"thinking": message[given], **message, "reasoning_content": message[given]}

    def read_tools(self, tools: Any) -> list[Any] | None:
        if tools is None:
            return None
        if not isinstance(tools, (list, tuple)):
            raise MessageError(f"tools are a list, not {type(tools).__name__}", path="tools")
        for index, tool in enumerate(tools):
            if not isinstance(tool, Mapping):
                hint = "pass its JSON schema" if callable(tool) else None
                raise MessageError(
                    f"a tool is a JSON schema, not {type(tool).__name__}",
                    path=f"tools[{index}]",
                    hint=hint,
                )
        return [self.to_plain(tool, "tools", index) for index, tool in enumerate(tools)]

    def read_documents(self, documents: Any) -> list[Any] | None:
        if documents is None:
            return None
        if not isinstance(documents, (list, tuple)):
            raise MessageError(
                f"documents are a list, not {type(documents).__name__}", path="documents"
            )
        for index, document in enumerate(documents):
            if not isinstance(document, Mapping):
                raise MessageError(
                    f"a document is a mapping, not {type(document).__name__}",
                    path=f"documents[{index}]",
                    hint='for example {"title": "...", "text": "..."}',
                )
        return [
            self.to_plain(document, "documents", index) for index, document in enumerate(documents)
        ]


class PreparedTools:
    """Tools that were seen before: their plain copy, its size, and the JSON texts that templates made of it."""

    __slots__ = ("lasting", "memo", "plain")

    def __init__(self, tools: Any) -> None:
        self.plain = InputReader().read_tools(tools)
        self.memo: dict[Any, str] = {}
        self.lasting = frozenset(identities(self.plain))


def identities(value: Any) -> list[int]:
    """The identity of every container in a value; they live as long as the value does."""
    found, waiting = [], [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (dict, list, tuple)):
            found.append(id(item))
            waiting += item.values() if isinstance(item, dict) else item
    return found


@lru_cache(maxsize=64)
def _remembered(key: bytes) -> PreparedTools:
    return PreparedTools(marshal.loads(key))


def prepared_tools(tools: Any) -> PreparedTools:
    """Tools rarely change between renderings. `marshal` writes exact types and order at C speed: a sound key."""
    try:
        key = marshal.dumps(tools)
    except ValueError:  # a type that is not built in, or a nest too deep
        return PreparedTools(tools)
    return _remembered(key) if len(key) < 1 << 20 else PreparedTools(tools)


NO_TOOLS = PreparedTools(None)


def measure_input(value: Any) -> tuple[int, int]:
    """How many values and characters an input has."""
    values = characters = 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            characters += len(item)
        elif isinstance(item, dict):
            values += 1
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            values += 1
            waiting += item
    return values, characters


def contains_text(value: Any, words: str) -> bool:
    """Whether some text in an input contains these words."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if words in item:
                return True
        elif isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item
    return False


def find_lone_surrogate(value: Any, path: Path) -> MessageError | None:
    """The first text in an input that cannot be written as UTF-8."""
    waiting: list[tuple[Any, Path]] = [(value, path)]
    while waiting:
        item, where = waiting.pop()
        if isinstance(item, dict):
            waiting += [(entry, (*where, str(key))) for key, entry in reversed(item.items())]
            waiting += [(key, (*where, str(key))) for key in reversed(item)]
        elif isinstance(item, (list, tuple)):
            waiting += [
                (entry, (*where, number)) for number, entry in reversed(list(enumerate(item)))
            ]
        elif isinstance(item, str) and not item.isascii():
            try:
                item.encode()
            except UnicodeEncodeError as error:
                half = f"half of a surrogate pair (U+{ord(item[error.start]):04X}) at character {error.start}"
                hint = "decode the text with errors='replace'"
                return MessageError(
                    f"{half} cannot be written as UTF-8", path=format_path(where), hint=hint
                )
    return None

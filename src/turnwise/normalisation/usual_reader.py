"""Conversations in their usual forms, read at little cost.

Most messages are a text of a known role. Others have calls, results, reasoning or text parts as OpenAI's clients send
them, with null beside calls, and arguments as JSON text. `UsualReader` reads a conversation of such messages in one
pass: it does the work of `Normaliser` and of `InputReader`, with the same result. Without it, normalising costs as much
as one to five renderings; with it, a few per cent of one if nothing has to be changed.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from turnwise.messages import (
    REASONING_KEYS,
    Change,
    InputReader,
    InvalidValue,
    ReadMessages,
    has_no_reasoning,
)
from turnwise.normalisation.calls import (
    CALL_KEYS,
    DUMPED,
    PARSED,
    MessageDict,
    NotAnObject,
    has_nine_letters,
    parse_argument_text,
)
from turnwise.normalisation.capabilities import Capabilities
from turnwise.normalisation.content import JOINED, fill_content
from turnwise.normalisation.results import OpenCalls, follow_calls

USUAL_ROLES = ("system", "user", "assistant", "tool")
OTHER_KEYS = frozenset(["role", "content", "tool_calls"])
TEXT_KEYS = frozenset(["name", "tool_call_id", *REASONING_KEYS])  # beside role and content
CALL_DEPTH = 5  # containers around the arguments of a call
ARGUMENT_CHANGES: dict[Any, tuple[str, str]] = {str: PARSED, dict: DUMPED}  # by what they were
MAX_BRACKETS = 100  # of JSON text that is surely not nested too deeply


class Reading(NamedTuple):
    """What is known of some messages when more of them come."""

    reader: UsualReader
    chat: list[MessageDict]
    changes: tuple[Change, ...] = ()
    calls: OpenCalls = ((), False)


class UsualReader:
    """Reads conversations of usual messages for one template.

    Attributes:
        capabilities: what the template takes; it is asked only about what some conversation has.
        text_roles: the roles of which a text is known to stay a text.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        self.capabilities = capabilities
        self.text_roles: set[str] = set()

    def read(self, messages: Any, earlier: ReadMessages | None = None) -> ReadMessages | None:
        """Return a conversation as a renderer takes it; None if a message or their order is unusual.

        Args:
            messages: the conversation.
            earlier: what was read of a conversation that it begins with.

        Returns:
            The messages; `reading` has them in the form that the template takes, and what was changed.
        """
        if type(messages) is not list or not messages:
            return None
        if not (earlier and earlier.reading and earlier.reading.reader is self):
            none: list[MessageDict] = []
            earlier = ReadMessages(none, {}, reading=Reading(self, none))
        known, reader = earlier.reading, InputReader()
        reader.aliases |= earlier.aliases
        chat, changes = [*known.chat], [*known.changes]
        first = len(chat)
        for message in messages[first:]:
            copy = self._read_message(message, chat, reader, changes)
            if copy is None:
                return None
            chat.append(copy)
        new = chat[first:]
        calls = follow_calls(new, known.calls)
        if calls is None or all(calls):  # all calls of a message have a result, or none
            return None
        has_parts = earlier.has_parts or list in [type(one.get("content")) for one in new]
        aliased = chat
        if earlier.messages is not known.chat or not all(map(has_no_reasoning, new)):
            rest = [reader.with_reasoning_aliases(one, i) for i, one in enumerate(new, first)]
            aliased = earlier.messages + rest
        reading = Reading(self, chat, tuple(changes), calls)
        return ReadMessages(aliased, reader.aliases, "", has_parts, None, reading)

    def _keeps(self, before: list[MessageDict]) -> bool:
        """Whether a system message stays where it is after others."""
        if all(message["role"] == "system" for message in before):
            return not before or self.capabilities.takes_systems(["system"] * 2)
        return self.capabilities.writes_late("system")

    def _read_message(
        self, message: Any, before: list[MessageDict], reader: InputReader, changes: list[Change]
    ) -> MessageDict | None:
        """Return a copy of a message in the form that the template takes; None if it is unusual."""
        if type(message) is not dict:
            return None
        role, content, index = message.get("role"), message.get("content"), len(before)
        if type(role) is not str or (role == "system" and not self._keeps(before)):
            return None
        if type(content) is str:
            if role not in self.text_roles and not self._takes_text(role):
                return None
            if len(message) == 2:
                return message.copy()
        has_calls = "tool_calls" in message
        has_more = len(message) != 2 + has_calls or "content" not in message
        if has_more and not self._has_usual_texts(message):
            return None
        copy = message.copy()
        if has_calls:
            calls = self._read_calls(message["tool_calls"], index, reader, changes)
            if calls is None:
                return None
            copy["tool_calls"] = calls
        return copy if type(content) is str else self._read_content(copy, index, changes)

    def _read_content(
        self, copy: MessageDict, index: int, changes: list[Change]
    ) -> MessageDict | None:
        """Give the content of a message the form that the template takes; return None if it is unusual."""
        content = copy["content"]
        if type(content) is list and content and all(map(_is_text_part, content)):
            return self._read_parts(copy, index, changes)
        if content is None and copy["role"] == "assistant" and "tool_calls" in copy:
            change = fill_content(
                copy, self.capabilities.shape.content, f"messages[{index}].content"
            )
            changes += filter(None, [change])
            return copy
        return None

    def _has_usual_texts(self, message: MessageDict) -> bool:
        """Whether a message has a content, and beside it and calls only texts; reasoning once, and as a field."""
        reasoning = 0
        for key, value in message.items():
            if key in OTHER_KEYS:
                continue
            if key not in TEXT_KEYS or type(value) is not str:
                return False
            if key == "tool_call_id" and not self._is_taken_id(value):
                return False
            reasoning += key in REASONING_KEYS
        if reasoning and self.capabilities.input_format.reasoning not in REASONING_KEYS:
            return False
        return reasoning < 2 and "content" in message

    def _takes_text(self, role: str) -> bool:
        """Whether a text of a role stays a text, which is remembered."""
        takes = self.capabilities
        # What is not taken is left as it is, but that parts may be taken, and a system text moved.
        if role in USUAL_ROLES and (
            takes.takes_text(role) or not (role == "system" or takes.takes_parts(role))
        ):
            self.text_roles.add(role)
        return role in self.text_roles

    def _read_parts(
        self, message: MessageDict, index: int, changes: list[Change]
    ) -> MessageDict | None:
        """Return a message with its text parts copied, or joined where the template takes text only."""
        role, parts = message["role"], message["content"]
        if role not in USUAL_ROLES or not self.capabilities.writes_role(role):
            return None
        if self.capabilities.takes_parts(role) or not self.capabilities.takes_text(role):
            message["content"] = list(map(dict.copy, parts))
        else:
            message["content"] = "\n".join([part["text"] for part in parts])
            changes.append(Change(f"messages[{index}].content", *JOINED))
        return message

    def _read_calls(
        self, calls: Any, index: int, reader: InputReader, changes: list[Change]
    ) -> list[MessageDict] | None:
        """Return copies of calls that have nothing but name, arguments and id, in the form that the template takes."""
        shape = self.capabilities.shape
        if type(calls) is not list or shape.bare or shape.single:
            return None
        copies: list[MessageDict] = []
        for call in calls:
            if type(call) is not dict or not CALL_KEYS.issuperset(call):
                return None
            function = call.get("function")
            if type(function) is not dict or len(function) != 2:
                return None
            name, given = function.get("name"), function.get("arguments")
            is_taken = "id" not in call or self._is_taken_id(call["id"])
            arguments = self._read_arguments(given, reader) if is_taken else None
            if arguments is None or type(name) is not str or not name:
                return None
            if type(arguments) is not type(given):
                where = f"messages[{index}].tool_calls[{len(copies)}].function.arguments"
                changes.append(Change(where, *ARGUMENT_CHANGES[type(given)]))
            copies.append({**call, "function": {**function, "arguments": arguments}})
        return copies or None

    def _read_arguments(self, given: Any, reader: InputReader) -> Any:
        """Return a copy of the arguments of a call; None if they have a null, which a table may add, or are no JSON."""
        value = given
        if type(given) is str:
            try:
                value = parse_argument_text(given)
            except (NotAnObject, ValueError, RecursionError):
                return None
            if self.capabilities.takes_argument_text:
                return given
            if given.count("{") + given.count("[") > MAX_BRACKETS:
                return None
        elif type(given) is not dict:
            return None
        if value is given and None in value.values():
            return None
        try:
            copy = reader.copy_value(value, CALL_DEPTH)
        except InvalidValue:
            return None
        if value is given and not self.capabilities.takes_argument_mapping:
            return json.dumps(copy, ensure_ascii=False)
        return copy

    def _is_taken_id(self, given: Any) -> bool:
        return type(given) is str and (self.capabilities.takes_any_id or has_nine_letters(given))


def _is_text_part(part: Any) -> bool:
    return (
        type(part) is dict
        and len(part) == 2
        and part.get("type") == "text"
        and type(part.get("text")) is str
    )

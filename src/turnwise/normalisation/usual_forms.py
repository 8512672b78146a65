"""Conversations that a template takes as they are, read at a cost that is small beside that of rendering.

Most conversations need no change: every content is a text, calls have the form that the template reads, the only system
text is the first message. `UsualForms.read` finds that out and copies what has to be copied: one pass does the work of
normalising and of `InputReader`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from turnwise.messages import REASONING_KEYS, InputReader, InvalidValue, ReadMessages
from turnwise.normalisation.calls import NotAnObject, has_nine_letters, parse_argument_text
from turnwise.normalisation.capabilities import Capabilities
from turnwise.normalisation.results import answers_calls_in_order

USUAL_ROLES = ("system", "user", "assistant", "tool")
TEXT_KEYS = frozenset(["name", "tool_call_id", *REASONING_KEYS])  # beside role and content
CALL_KEYS = frozenset(["id", "type", "function"])
CALL_DEPTH = 5  # containers around the arguments of a call
FLAT_TYPES = frozenset([str, int, bool])  # of values that need no copy
MAX_KNOWN = 200  # lists of keys that are remembered


class UsualForms:
    """Reads conversations that need no change for one template.

    Args:
        capabilities: what the template takes; it is asked only about what some conversation has.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._taken_roles: set[str] = set()
        self._text_keys: dict[tuple[str, ...], tuple[str, ...]] = {}

    def read(self, messages: Any) -> ReadMessages | None:
        """Return a conversation that needs no change, as a renderer takes it; None if it may need one."""
        chat = self._read_messages(messages)
        return chat if chat is not None and answers_calls_in_order(chat.messages) else None

    def _read_messages(self, messages: Any) -> ReadMessages | None:
        """Return a conversation if each of its messages needs no change."""
        if type(messages) is not list or not messages:
            return None
        reader = InputReader()
        chat: list[dict[str, Any]] = []
        taken_roles = self._taken_roles
        for message in messages:
            if type(message) is not dict:
                return None
            role, content = message.get("role"), message.get("content")
            if type(role) is not str or type(content) is not str:
                return None
            if (role not in taken_roles and not self._takes_role(role)) or (
                role == "system" and chat
            ):
                return None
            if len(message) > 2:
                copy = self._read_message(message, reader, len(chat))
                if copy is None:
                    return None
                message = copy
            chat.append(message)
        return ReadMessages(chat, reader.aliases)

    def _takes_role(self, role: str) -> bool:
        """Whether the template writes texts of a role, which is remembered."""
        if role not in USUAL_ROLES or not self._capabilities.takes_text(role):
            return False
        self._taken_roles.add(role)
        return True

    def _read_message(
        self, message: dict[str, Any], reader: InputReader, index: int
    ) -> dict[str, Any] | None:
        """Return a message that has more than role and content, copied if it has calls; None if it is unusual."""
        keys = tuple(message)
        text_keys = self._text_keys.get(keys)
        if text_keys is None:
            text_keys = self._remember_keys(keys)
            if text_keys is None:
                return None
        for key in text_keys:
            if type(message[key]) is not str:
                return None
            if key == "tool_call_id":
                if not (self._takes_any_id or has_nine_letters(message[key])):
                    return None
            elif key != "name":
                message = reader.with_reasoning_aliases(message, index)
        if "tool_calls" in message:
            calls = self._read_calls(message["tool_calls"], reader)
            return {**message, "tool_calls": calls} if calls else None
        return message

    def _remember_keys(self, keys: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return which keys of a message have texts beside role and content; None if some key is unusual."""
        more = tuple(key for key in keys if key not in ("role", "content", "tool_calls"))
        reasoning = [key for key in more if key in REASONING_KEYS]
        if not TEXT_KEYS.issuperset(more) or len(reasoning) > 1:
            return None
        if reasoning and self._capabilities.input_format.reasoning not in REASONING_KEYS:
            return None
        if len(self._text_keys) < MAX_KNOWN:
            self._text_keys[keys] = more
        return more

    def _read_calls(self, calls: Any, reader: InputReader) -> list[dict[str, Any]] | None:
        """Return copies of calls that have nothing but name, arguments and id, in the form that the template takes."""
        copies = []
        for call in calls if type(calls) is list else ():
            if type(call) is not dict or not CALL_KEYS.issuperset(call):
                return None
            function = call.get("function")
            if type(function) is not dict or type(function.get("name")) is not str:
                return None
            arguments = function.get("arguments")
            if len(function) > 2 or type(arguments) not in self._argument_types:
                return None
            if "id" in call and not self._is_taken_id(call["id"]):
                return None
            copied = _copy_arguments(arguments, reader)
            if copied is None:
                return None
            copies.append({**call, "function": {**function, "arguments": copied}})
        return copies or None

    def _is_taken_id(self, given: Any) -> bool:
        return type(given) is str and (self._takes_any_id or has_nine_letters(given))

    @cached_property
    def _takes_any_id(self) -> bool:
        return self._capabilities.takes_any_id

    @cached_property
    def _argument_types(self) -> tuple[type, ...]:
        """The types of arguments that the template takes in a call of the usual shape."""
        capabilities = self._capabilities
        shape = capabilities.input_format.shape
        if shape.bare or shape.single:
            return ()
        types = (
            (dict, capabilities.takes_argument_mapping),
            (str, capabilities.takes_argument_text),
        )
        return tuple(one for one, is_taken in types if is_taken)


def _copy_arguments(arguments: Any, reader: InputReader) -> Any:
    """Return a copy of the arguments of a call; None if they have a null, which a table may add, or are no JSON."""
    if type(arguments) is str:
        try:
            parse_argument_text(arguments)
        except (NotAnObject, ValueError, RecursionError):
            return None
        return arguments
    if FLAT_TYPES.issuperset(map(type, arguments.values())) and {str}.issuperset(
        map(type, arguments)
    ):
        return dict(arguments)
    if None in arguments.values():
        return None
    try:
        return reader.copy_value(arguments, CALL_DEPTH)
    except InvalidValue:
        return None

"""The form of a conversation, which it shares with others of a data set, and its contents.

    {"role": "user", "content": "Tide?"}           ("role", "content"), "user", str
    {"role": "assistant", "content": "",           ("role", "content", "tool_calls"), "assistant", "",
     "tool_calls": [{"id": "1", "function":            1, ("id", "function"), str,
       {"name": "tide", "arguments": {"at": 9}}}]}        ("name", "arguments"), str, dict

The form has the keys of every message and call, roles and types, and what kind of value each field has. The contents
are the texts, and the arguments of calls. Texts of nothing but white space are in no form: templates look at those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from turnwise.messages import REASONING_KEYS
from turnwise.messages.input_reader import FIRST_ROLES, TURN_ROLES

Form = tuple[Any, ...]
FormAndContents: TypeAlias = "tuple[Form, list[Any]] | None"
NAMED_FIELDS = ("role", "type")  # fields with few values, which templates look at
PLAIN_KEYS = {"role", "content", *REASONING_KEYS}
# No option of `encode` is about one of these.
KEYS = PLAIN_KEYS | {"tool_calls", "tool_call_id", "name", "id", "type", "function", "arguments"}


class UnusualRow(Exception):
    """A conversation has no form: something in it is of another kind."""


def read_form(messages: Any) -> FormAndContents:
    """Return the form of a conversation and its contents, in order; None if it has no form."""
    form: list[Any] = []
    contents: list[Any] = []
    try:
        for message in messages if type(messages) is list else ():
            _read_fields(message, form, contents)
            if len(message) > 2:  # of several reasonings, templates write one
                form.append(len({*map(message.get, REASONING_KEYS)}))
    except (UnusualRow, RecursionError):
        return None
    return (tuple(form), contents) if contents else None


def _read_fields(fields: Any, form: list[Any], contents: list[Any]) -> None:
    if type(fields) is not dict or not KEYS.issuperset(fields):
        raise UnusualRow
    form.append((*fields,))
    for key, value in fields.items():
        if type(value) is str:
            if key in NAMED_FIELDS or not value:
                form.append(value)
            elif value.isspace():
                raise UnusualRow
            else:
                form.append(str)
                contents.append(value)
        elif value is None:
            form.append(None)
        elif key == "arguments" and type(value) is dict and value:
            form.append(dict)
            contents.append(value)
        elif key == "tool_calls" and type(value) is list:
            form.append(len(value))
            for call in value:
                _read_fields(call, form, contents)
        elif key == "function":
            _read_fields(value, form, contents)
        else:
            raise UnusualRow


def has_plain_turns(messages: Sequence[Any]) -> bool:
    """Return whether a conversation with a form has turns that are encoded as the caller gives them."""
    if not all(map(PLAIN_KEYS.issuperset, messages)):
        return False
    first, *others = [message.get("role") for message in messages]
    return first in FIRST_ROLES and TURN_ROLES.issuperset(others)


def number_places(messages: Sequence[Any]) -> dict[str, int]:
    """Return the numbers of the contents of a conversation, by the sources of the ways to them: `[0]['content']`."""
    named = [_name_places(message, f"[{index}]") for index, message in enumerate(messages)]
    _, places = read_form(named) or ((), [])
    numbers = {place: number for number, place in enumerate(places)}
    for index in range(len(messages)):
        names = [f"[{index}][{key!r}]" for key in REASONING_KEYS]
        given = [numbers[name] for name in names if name in numbers]
        if given:  # it is there under each of its names
            numbers = dict.fromkeys(names, given[0]) | numbers
    return numbers


def _name_places(value: Any, place: str) -> Any:
    """Return a value with the place of each content in its place."""
    if type(value) is list:
        return [_name_places(one, f"{place}[{index}]") for index, one in enumerate(value)]
    if type(value) is dict and not place.endswith("['arguments']"):
        return {key: _name_places(one, f"{place}[{key!r}]") for key, one in value.items()}
    return place if value else value

"""What templates get wrong and `fix` may repair: defects of the table of forms, and the plain forms that are right.

A defect is a form of input: null for a text, parts for a text, JSON text for arguments, a system text that comes late.
Whether a template has it is read off the table of forms (`analysis/form_table.py`), as `turnwise check` reports it.
`plain` returns a conversation without that form, whose text is what should be written. Whether some conversation is
written well is judged as in the table, on the fields of `paths`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from turnwise.analysis.conversations import MessageDict, Probe, make_message
from turnwise.analysis.wide_conversations import change_arguments, with_text_arguments
from turnwise.messages import REASONING_KEYS, Path

PARAGRAPH = "\n\n"
CALL_KEYS = ("tool_calls", "function_call")

ChangeMessage = Callable[[MessageDict], MessageDict]


@dataclass(frozen=True)
class Defect:
    """A form of input that a template may garble.

    Attributes:
        name: How it is called on the command line.
        checks: The names of the checks that report it.
        plain: Returns a conversation without this form, the same object if it has none.
        paths: Returns the fields of a conversation that have this form.
        other_plain: Returns another plain form, whose text is as right: a message without the key instead of an empty
            text.
        ignores_space: Whether white space may differ from that of the plain form, as in JSON.
        is_compared: Whether the text must be that of the plain form to be right.
    """

    name: str
    checks: tuple[str, ...]
    plain: Callable[[Probe], Probe]
    paths: Callable[[Probe], list[Path]]
    other_plain: Callable[[Probe], Probe] | None = None
    ignores_space: bool = False
    is_compared: bool = False


def change_messages(change: ChangeMessage, probe: Probe) -> Probe:
    """Return a conversation with changed messages; the same object if none changes."""
    messages = [change(message) for message in probe.messages]
    is_same = all(new is old for new, old in zip(messages, probe.messages, strict=True))
    return probe if is_same else replace(probe, messages=messages)


def drop_space(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def _list_fields(probe: Probe, has_form: Callable[[MessageDict], bool], *names: str) -> list[Path]:
    """Return the fields with these names of the messages that have a form."""
    return [
        ("messages", index, name)
        for index, message in enumerate(probe.messages)
        if has_form(message)
        for name in names
        if name in message
    ]


# Content that is null, or missing


def _is_empty(message: MessageDict) -> bool:
    return message.get("content") is None


def _fill_content(message: MessageDict) -> MessageDict:
    return {**message, "content": ""} if _is_empty(message) else message


def _drop_content(message: MessageDict) -> MessageDict:
    if message.get("content", "") is not None:
        return message
    return {key: value for key, value in message.items() if key != "content"}


# Content in parts


def list_text_parts(content: Any) -> list[str] | None:
    """Return the texts of a content that is a list of text parts; None if it is anything else."""
    if not isinstance(content, list) or not content:
        return None
    is_text = [isinstance(part, dict) and part.get("type") == "text" for part in content]
    return [str(part.get("text") or "") for part in content] if all(is_text) else None


def list_part_paths(probe: Probe) -> list[Path]:
    """Return the contents of a conversation that are text in parts."""
    return _list_fields(
        probe, lambda message: list_text_parts(message.get("content")) is not None, "content"
    )


def _join_parts(message: MessageDict) -> MessageDict:
    texts = list_text_parts(message.get("content"))
    return message if texts is None else {**message, "content": "\n".join(filter(None, texts))}


# Arguments


def _parse_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        found = json.loads(arguments)
    except ValueError:
        return arguments
    return found if isinstance(found, dict) else arguments


def _list_call_paths(probe: Probe) -> list[Path]:
    return _list_fields(probe, lambda message: True, *CALL_KEYS)


# System texts


def join_systems(probe: Probe) -> Probe:
    """Return a conversation with all its system texts in one message at the front."""
    texts = _list_system_texts(probe)
    if not texts or not all(isinstance(text, str) for text in texts):
        return probe
    others = [message for message in probe.messages if message.get("role") != "system"]
    messages = [make_message("system", PARAGRAPH.join(map(str, texts))), *others]
    is_alone = others == probe.messages[1:]  # the only one, and at the front
    return probe if is_alone else replace(probe, messages=messages)


def _list_system_texts(probe: Probe) -> list[Any]:
    """Return what the system messages say, text for its parts; null and empty texts say nothing."""
    systems = [message for message in probe.messages if message.get("role") == "system"]
    texts = [_join_parts(message).get("content") for message in systems]
    return [text for text in texts if text]


def _list_system_paths(probe: Probe) -> list[Path]:
    return _list_fields(probe, lambda message: message.get("role") == "system", "content")


DEFECTS: tuple[Defect, ...] = (
    Defect(
        "null-content",
        ("null-content", "absent-content"),
        partial(change_messages, _fill_content),
        lambda probe: _list_fields(probe, _is_empty, "content"),
        other_plain=partial(change_messages, _drop_content),
    ),
    Defect(
        "reasoning-without-content",
        ("reasoning-alone",),
        partial(change_messages, _fill_content),
        lambda probe: _list_fields(probe, _is_empty, "content", *REASONING_KEYS),
        other_plain=partial(change_messages, _drop_content),
    ),
    Defect(
        "list-content",
        ("content-parts",),
        partial(change_messages, _join_parts),
        list_part_paths,
    ),
    Defect(
        "string-arguments",
        ("string-arguments",),
        lambda probe: change_arguments(probe, _parse_arguments),
        _list_call_paths,
        ignores_space=True,
        is_compared=True,
    ),
    Defect(
        "mapping-arguments",
        ("mapping-arguments",),
        lambda probe: with_text_arguments(probe) or probe,
        _list_call_paths,
        ignores_space=True,
    ),
    Defect("late-system", ("late-system", "second-system"), join_systems, _list_system_paths),
)

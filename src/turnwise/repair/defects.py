"""What templates get wrong, each with conversations that show it and the plain form in which they are right.

A defect is a form of input: null for a text, parts for a text, JSON text for arguments, a system text that comes late.
`plain` returns the same conversation without that form. A conversation *works* if the template writes it and nothing
about it is garbled; if it does not, and its plain form does, the template has the defect, and the text of the plain
form is what should be written.

    defect            a conversation works unless
    null content      it is refused, or `None` or `null` is written for it
    list content      it is refused, Python's list is written, or the text of a part is missing
    arguments         it is refused, or not written as the plain form is, white space aside
    late system text  it is refused, or a system text is missing
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from turnwise.analysis.conversations import (
    MessageDict,
    Probe,
    make_call_message,
    make_message,
    make_tool_result,
    name_values,
)
from turnwise.analysis.probe_mutations import with_text_arguments

FIRST, ONE, SECOND, RULES, OSLO, WEATHER, CALL, RAIN = name_values(
    *("first", "one", "second", "rules", "oslo", "weather", "call", "rain")
)
PARAGRAPH = "\n\n"
REPR = re.compile(r"""\{['"]type['"]: ?['"]text|\[\{'""")
PYTHON_DICT = re.compile(r"\{'[^'\n]{1,40}': ")

ChangeMessage = Callable[[MessageDict], MessageDict]
IsWell = Callable[[Probe, str, str], bool]
"""Whether a conversation, its text and the text of its plain form show no defect."""


@dataclass(frozen=True)
class Defect:
    """A form of input that a template may garble.

    Attributes:
        name: How it is called on the command line.
        cases: Conversations in this form.
        plain: Returns a conversation without this form, the same object if it has none.
        other_plain: Returns another one, whose text is as right: a message without the key instead of an empty text.
        is_well: Whether a text shows no defect.
        words: Returns the texts that the plain form must have, or the template cannot say them in any form.
        ignores_space: Whether white space may differ from that of the plain form, as in JSON.
    """

    name: str
    cases: Callable[[], Iterator[Probe]]
    plain: Callable[[Probe], Probe]
    is_well: IsWell
    words: Callable[[Probe], list[str]] = lambda probe: []
    ignores_space: bool = False
    other_plain: Callable[[Probe], Probe] | None = None


def change_messages(probe: Probe, change: ChangeMessage) -> Probe:
    """Return a conversation with changed messages; the same object if none changes."""
    messages = [change(message) for message in probe.messages]
    is_same = all(new is old for new, old in zip(messages, probe.messages, strict=True))
    return probe if is_same else replace(probe, messages=messages)


def drop_space(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


# Content that is null, or missing


def _fill_contents(probe: Probe) -> Probe:
    return change_messages(probe, _fill_content)


def _fill_content(message: MessageDict) -> MessageDict:
    return {**message, "content": ""} if message.get("content") is None else message


def _drop_contents(probe: Probe) -> Probe:
    return change_messages(probe, _drop_content)


def _drop_content(message: MessageDict) -> MessageDict:
    if message.get("content", "") is not None:
        return message
    return {key: value for key, value in message.items() if key != "content"}


def _null_cases() -> Iterator[Probe]:
    null = make_message("assistant", None)
    call = make_call_message(("weather", OSLO), content=None)
    bare = {key: value for key, value in call.items() if key != "content"}
    yield Probe("null content", [FIRST, null, SECOND])
    yield Probe("no content", [FIRST, {"role": "assistant"}, SECOND])
    yield Probe("null content beside a call", [FIRST, call, RAIN, ONE], [WEATHER])
    yield Probe("null content, and no tools", [FIRST, call, RAIN, ONE])
    yield Probe("no content beside a call", [FIRST, bare, RAIN], [WEATHER])
    yield Probe("null for a result", [FIRST, CALL, make_tool_result(None)], [WEATHER])
    yield Probe("null for a system text", [make_message("system", None), FIRST])


def _reasoning_cases() -> Iterator[Probe]:
    thought = make_message("assistant", None, reasoning_content="Hmm")
    bare = {"role": "assistant", "reasoning_content": "Hmm"}
    call = make_call_message(("weather", OSLO), content=None, reasoning_content="Hmm")
    for message in (thought, bare):
        yield Probe("reasoning without content", [FIRST, message])
        yield Probe("reasoning without content, later", [FIRST, message, SECOND])
    yield Probe("reasoning beside a call", [FIRST, call, RAIN], [WEATHER])


def _writes_no_null(probe: Probe, text: str, plain: str) -> bool:
    return all(text.count(word) <= plain.count(word) for word in ("None", "null"))


# Content in parts


def list_text_parts(content: Any) -> list[str] | None:
    """Return the texts of a content that is a list of text parts; None if it is anything else."""
    if not isinstance(content, list) or not content:
        return None
    is_text = [isinstance(part, dict) and part.get("type") == "text" for part in content]
    return [str(part.get("text") or "") for part in content] if all(is_text) else None


def _join_parts(message: MessageDict) -> MessageDict:
    texts = list_text_parts(message.get("content"))
    return message if texts is None else {**message, "content": "\n".join(filter(None, texts))}


def _list_cases() -> Iterator[Probe]:
    def part(role: str, text: str, **more: Any) -> MessageDict:
        return make_message(role, [{"type": "text", "text": text}], **more)

    two = [{"type": "text", "text": "Part"}, {"type": "text", "text": "another"}]
    result = make_tool_result([{"type": "text", "text": "rain"}])
    yield Probe("a user's text in a part", [part("user", "First"), ONE, SECOND])
    yield Probe("an assistant's text in a part", [FIRST, part("assistant", "One"), SECOND])
    yield Probe("a system text in a part", [part("system", "Rules"), FIRST])
    yield Probe("a result in a part", [FIRST, CALL, result], [WEATHER])
    yield Probe("two parts", [make_message("user", two)])
    yield Probe("a part with null", [make_message("user", [*two, {"type": "text", "text": None}])])


def _writes_parts(probe: Probe, text: str, plain: str) -> bool:
    if len(REPR.findall(text)) > len(REPR.findall(plain)):
        return False
    for message in probe.messages:
        for part in list_text_parts(message.get("content")) or ():
            # counted, since the template's own text may have the word, too
            if part.strip() and text.count(part.strip()) < plain.count(part.strip()):
                return False
    return True


def _words_of_parts(probe: Probe) -> list[str]:
    found = [list_text_parts(message.get("content")) or [] for message in probe.messages]
    return [text.strip() for texts in found for text in texts if text.strip()]


# Arguments


def _read_arguments(probe: Probe) -> Probe:
    return change_messages(probe, _read_calls)


def _parse_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        found = json.loads(arguments)
    except ValueError:
        return arguments
    return found if isinstance(found, dict) else arguments


def _read_calls(message: MessageDict) -> MessageDict:
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    changed = [_read_call(call) for call in calls]
    return message if changed == calls else {**message, "tool_calls": changed}


def _read_call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    if isinstance(call.get("function"), dict):
        return {**call, "function": _read_call(call["function"])}
    return (
        {**call, "arguments": _parse_arguments(call["arguments"])} if "arguments" in call else call
    )


def _mapping_cases() -> Iterator[Probe]:
    two = make_call_message(("weather", OSLO), ("plan", {"steps": [1], "nested": {"deep": True}}))
    both = [RAIN, make_tool_result("sun", 1)]
    for tools in ([WEATHER], None):
        yield Probe("a call", [FIRST, CALL, RAIN, ONE], tools)
        yield Probe("two calls", [FIRST, two, *both], tools)
        yield Probe("a last call", [FIRST, CALL], tools)


def _text_cases() -> Iterator[Probe]:
    for probe in _mapping_cases():
        yield with_text_arguments(probe) or probe


def _writes_arguments(probe: Probe, text: str, plain: str) -> bool:
    return drop_space(text) == drop_space(plain) or bool(PYTHON_DICT.search(plain))


def _writes_mapping(probe: Probe, text: str, plain: str) -> bool:
    return not PYTHON_DICT.search(text) or bool(PYTHON_DICT.search(plain))


def _words_of_calls(probe: Probe) -> list[str]:
    has_call = any("Oslo" in str(message.get("tool_calls")) for message in probe.messages)
    return ["Oslo"] if has_call else []


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


def _system_cases() -> Iterator[Probe]:
    more = make_message("system", "Late rules")
    two = make_message("assistant", "Two")
    yield Probe("a late system text", [FIRST, ONE, more, SECOND])
    yield Probe("a second system text", [RULES, FIRST, ONE, more, SECOND, two])
    yield Probe("two system texts", [RULES, more, FIRST])
    yield Probe("a last system text", [RULES, FIRST, ONE, SECOND, more])


def _list_system_texts(probe: Probe) -> list[Any]:
    """Return what the system messages say, text for its parts; null and empty texts say nothing."""
    systems = [message for message in probe.messages if message.get("role") == "system"]
    texts = [_join_parts(message).get("content") for message in systems]
    return [text for text in texts if text]


def _words_of_systems(probe: Probe) -> list[str]:
    return [text.strip() for text in _list_system_texts(probe) if isinstance(text, str)]


def _writes_systems(probe: Probe, text: str, plain: str) -> bool:
    return all(word in text or word not in plain for word in _words_of_systems(probe))


def mixed_cases() -> Iterator[Probe]:
    """Yield conversations that show two defects at once."""
    late, null = make_message("system", "Late rules"), make_message("system", None)
    parts = make_message("system", [{"type": "text", "text": "Late rules"}])
    yield Probe("a late system text in a part", [RULES, FIRST, ONE, parts, SECOND])
    yield Probe("null and a late system text", [null, FIRST, ONE, late, SECOND])


DEFECTS: tuple[Defect, ...] = (
    Defect(
        "null-content",
        _null_cases,
        _fill_contents,
        _writes_no_null,
        other_plain=_drop_contents,
    ),
    Defect(
        "reasoning-without-content",
        _reasoning_cases,
        _fill_contents,
        _writes_no_null,
        other_plain=_drop_contents,
    ),
    Defect(
        "list-content",
        _list_cases,
        lambda probe: change_messages(probe, _join_parts),
        _writes_parts,
        _words_of_parts,
    ),
    Defect(
        "string-arguments",
        _text_cases,
        _read_arguments,
        _writes_arguments,
        _words_of_calls,
        ignores_space=True,
    ),
    Defect(
        "mapping-arguments",
        _mapping_cases,
        lambda probe: with_text_arguments(probe) or probe,
        _writes_mapping,
        _words_of_calls,
        ignores_space=True,
    ),
    Defect(
        "late-system",
        _system_cases,
        join_systems,
        _writes_systems,
        _words_of_systems,
    ),
)

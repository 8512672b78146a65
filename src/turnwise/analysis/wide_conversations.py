"""More conversations than `conversations()`: what templates tell apart rarely, and what only they tell apart.

`conversations()` holds what dialects can be verified on. Here are the rest of what a published template may look at:
descriptions at every level of a schema and keys that few schemas have, white space and letters beyond ASCII wherever a
text may be, arguments of every JSON type, results that are mappings or parts, roles of single models, media, long
conversations, days on which formats of dates differ. The values of roles and options are those that the template
itself compares with (`template_constants.py`).

`list_common_probes` and `list_rare_probes` are fixed lists; `ProbeMaker` makes random ones of the same materials.

`answer(probe, question)` changes a conversation so that a template may take another branch: the subject of a question
(`template_constants.Question`) gets the constant that it is compared with, a text that contains it, a list of that
length, a value of another type, or none. The subject is an option, an argument, or a field of any mapping in the
conversation, its tools or documents: first of those mappings that have it, else of all. `shake` changes a conversation
at random. Only conversations that a caller may send are made (`is_plausible`): a difference of two templates on a role
which is a list matters to no user.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

from turnwise.analysis.conversations import (
    LATER,
    NOW,
    MessageDict,
    Probe,
    conversations,
    load_probes,
    make_call_message,
    make_message,
    make_tool_result,
    name_values,
)
from turnwise.analysis.template_constants import Question, TemplateConstants
from turnwise.messages import JsonObject

RARE = "rare cases"
DAYS = (
    LATER,
    datetime(2024, 12, 30, 9, 5, 7),  # of the first week of 2025, %G
    datetime(2021, 1, 3, 0, 0),  # of the last week of 2020; a Sunday
    datetime(2026, 7, 4, 23, 59, 59, 120_000),
)
ROLES = ("tool", "function", "ipython", "tool_results", "observation", "context", "developer")
KNOWN_ROLES = ("system", "user", "assistant")
COMMON_VALUES: tuple[Any, ...] = (
    *(True, False, None, "low", "high", 2, 3),
    *("", "text", 0, [], ["text"], {"key": "text"}),
)

RARE_FIELDS = {"tool_calls", "tool_plan", "citations"}
READ_OF_PARTS = {"type", "text", "image", "video", "audio", "image_url"}
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
MAX_PLACES = 14  # where a field is set
MAX_SIZE = 3_000  # of a list or text that is made as long as a constant asks for
ABSENT = object()  # instead of a value: the field is removed
TYPED_VALUES: tuple[Any, ...] = (
    *(True, ABSENT, "text", None, False, "", [{"type": "text", "text": "text"}]),
    *(["text"], [], {"text": "text"}, {}, 1, 0, 2.5),
)
PARTS_OF_PROBE = ("messages", "tools", "documents")

NO_VALUE = (type(None),)
FieldTypes = dict[str, tuple[type, ...]]  # of each field, those of its values
MESSAGE_FIELDS: FieldTypes = {
    "role": (str,),
    "content": (str, list, dict, *NO_VALUE),
    "tool_calls": (list, *NO_VALUE),
    "name": (str, *NO_VALUE),
    "tool_call_id": (str, *NO_VALUE),
    "reasoning_content": (str, *NO_VALUE),
    "reasoning": (str, *NO_VALUE),
    "thinking": (str, *NO_VALUE),
}
"""The types that callers give the fields of a message."""
PART_FIELDS: FieldTypes = {"type": (str,), "text": (str,)}
FUNCTION_FIELDS: FieldTypes = {
    "name": (str,),
    "description": (str, *NO_VALUE),
    "arguments": (dict, str, *NO_VALUE),
    "parameters": (dict, *NO_VALUE),
    "function": (dict,),
}

Location = tuple[str | int, ...]


def list_common_probes(tokens: Mapping[str, str]) -> Iterator[Probe]:
    """Yield what every comparison asks: `conversations()` with and without a generation prompt and special tokens.

    Args:
        tokens: The texts of the special tokens that the templates read.
    """
    for probe in conversations():
        yield probe
        yield replace(probe, covers=f"{probe.covers}, opening", add_generation_prompt=True)
    yield Probe("nothing", [], about="turns")
    yield Probe("nothing, opening", [], add_generation_prompt=True, about="turns")
    for number, probe in enumerate(conversations() if tokens else ()):
        yield replace(
            probe,
            covers=f"{probe.covers}, special tokens",
            options=dict(tokens),
            add_generation_prompt=number % 2 == 1,
        )


def list_rare_probes(
    variables: Iterable[str],
    constants: Sequence[TemplateConstants],
    tokens: Mapping[str, str],
    days: Sequence[datetime] = (),
) -> Iterator[Probe]:
    """Yield what templates tell apart rarely, as far as these templates read it.

    Args:
        variables: The names that the templates read.
        constants: What the templates compare with.
        tokens: The texts of the special tokens that they read.
        days: The days that are asked for, beside that of all others.
    """
    variables = list(variables)
    rare = [probe for probe in rare_conversations() if _is_asked(probe, variables, constants)]
    for day in days:
        yield from (replace(probe, about=RARE) for probe in load_probes("days", day=day))
    for number, probe in enumerate((*ask_roles(constants), *rare)):
        options = dict(tokens) if number % 3 else {}
        yield replace(probe, options=options, add_generation_prompt=number % 2 == 1)


def _is_asked(
    probe: Probe, variables: Sequence[str], constants: Sequence[TemplateConstants]
) -> bool:
    """Return whether the templates read what is rare about a probe; what all read is asked by `conversations()`."""
    if probe.tools is not None and "tools" not in variables:
        return False
    if probe.documents is not None and "documents" not in variables:
        return False
    keys = {key for found in constants for key in found.keys}
    wanted = {key for message in probe.messages for key in message} & RARE_FIELDS
    parts = [part for message in probe.messages for part in _list_parts(message)]
    return wanted <= keys and (not parts or not READ_OF_PARTS.isdisjoint(keys))


def _list_parts(message: MessageDict) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


@cache
def rare_conversations() -> tuple[Probe, ...]:
    """What templates tell apart rarely."""
    return tuple(replace(probe, about=RARE) for probe in load_probes("rare"))


def ask_roles(constants: Sequence[TemplateConstants]) -> Iterator[Probe]:
    """Each role that a template compares with, and those of other templates, in several places."""
    named = [role for found in constants for role in found.constants_of("role")]
    names = dict.fromkeys((*ROLES, *(role for role in named if isinstance(role, str))))
    for role in names:
        if role not in KNOWN_ROLES:
            said = make_message(role, " Hm ", name="describe", tool_call_id="call00000")
            for probe in load_probes("roles", role=role, said=said):
                yield replace(probe, about=RARE)


def option_values(name: str, constants: Sequence[TemplateConstants]) -> list[Any]:
    """Return the values of an option: those that the templates compare with, and common ones."""
    compared = [value for found in constants for value in found.constants_of(name)]
    texts = [value for value in compared if isinstance(value, str)]
    lists: list[Any] = [texts, *([text] for text in texts)] if texts else []
    fields = {
        child: (found.constants_of(child) or ["text"])[0]
        for found in constants
        for child in found.children.get(name, ())
    }
    mappings = [fields, *({child: fields[child]} for child in fields)] if fields else []
    values = [*compared, *lists[:6], *mappings[:6], *COMMON_VALUES]
    return [value for n, value in enumerate(values) if not _is_in(value, values[:n])]


def _is_in(value: Any, values: list[Any]) -> bool:
    return any(type(value) is type(other) and value == other for other in values)


def ask_options(options: Mapping[str, Sequence[Any]], tokens: Mapping[str, str]) -> Iterator[Probe]:
    """Each value of each option (`option_values`), with and without a generation prompt and tools."""
    asked = list(load_probes("options"))
    for name, values in options.items():
        for number, value in enumerate(values):
            is_common = len(values) - number <= len(COMMON_VALUES) - 3  # all but True, False, None
            for probe in asked[number % 3 :: 3] if is_common else asked:
                yield replace(
                    probe,
                    covers=f"{probe.covers}, {name}={value!r}",
                    options={**tokens, name: value},
                    about=f"option {name}",
                )


class ProbeMaker:
    """Makes random conversations, the same ones for the same templates.

    Args:
        options: The values of each option.
        roles: Roles that the templates know beside the usual ones.
        tokens: The texts of the special tokens that the templates read.
        days: The days that are asked for.
    """

    def __init__(
        self,
        options: Mapping[str, Sequence[Any]],
        roles: Sequence[str],
        tokens: Mapping[str, str],
        days: Sequence[datetime] = (NOW,),
    ) -> None:
        self.dice = random.Random(0)
        self.options = options
        self.roles = roles or ROLES
        self.tokens = tokens
        self.days = days
        self.tool_lists, self.documents = name_values("tool lists", "documents")
        self.arguments, self.results, self.texts = name_values("arguments", "results", "texts")
        self.parts, self.reasons = name_values("parts", "reasons")

    def make(self) -> Probe:
        """Return the next conversation."""
        dice = self.dice
        messages: list[MessageDict] = []
        if dice.random() < 0.5:
            messages.append(self._say(dice.choice(("system", "system", "developer"))))
        for _ in range(dice.choice((1, 1, 2, 2, 3, 5))):
            messages += self._make_round()
        if dice.random() < 0.15:
            other = self._say(dice.choice(self.roles))
            messages.insert(dice.randrange(len(messages) + 1), other)
        options = dict(self.tokens) if dice.random() < 0.8 else {}
        for name, values in self.options.items():
            if dice.random() < 0.4:
                options[name] = dice.choice(values)
        return Probe(
            "random",
            messages,
            dice.choice(self.tool_lists) if dice.random() < 0.5 else None,
            dice.choice(self.documents) if dice.random() < 0.15 else None,
            dice.random() < 0.5,
            options,
            dice.choice(self.days),
            "random",
        )

    def _make_round(self) -> list[MessageDict]:
        """A question, calls with their results, and an answer; each may be missing."""
        dice = self.dice
        messages = [self._say("user")] if dice.random() < 0.95 else []
        while dice.random() < 0.35:
            count = dice.choice((1, 1, 2, 3))
            calls = [
                (dice.choice(("describe", "find_all")), dice.choice(self.arguments))
                for _ in range(count)
            ]
            said = self._say("assistant")
            messages.append({**make_call_message(*calls), **said})
            results = dice.choice((0, count, count))
            messages += [
                make_tool_result(dice.choice(self.results), n, calls[n][0]) for n in range(results)
            ]
        if dice.random() < 0.75:
            messages.append(self._say("assistant"))
        return messages

    def _say(self, role: str) -> MessageDict:
        dice = self.dice
        content: Any = (
            dice.choice(self.texts[:4]) if dice.random() < 0.7 else dice.choice(self.texts)
        )
        if dice.random() < 0.15:
            content = dice.choice(self.parts)
        message = make_message(role, content)
        if role == "assistant" and dice.random() < 0.4:
            message[dice.choice(REASONING_FIELDS)] = dice.choice(self.reasons)
        if dice.random() < 0.05:
            message["name"] = dice.choice(("Ada", "describe"))
        return message


def answer(
    probe: Probe, question: Question, options: Collection[str], guess: JsonObject
) -> Iterator[Probe]:
    """Return probes in which the subject of a question has another value.

    Args:
        probe: The conversation to change.
        question: What a template asks.
        options: The names of the options that the templates read.
        guess: A mapping with the fields that the template reads from the subject; empty if there are none.
    """
    return filter(is_plausible, _answer(probe, question, options, guess))


def _answer(
    probe: Probe, question: Question, options: Collection[str], guess: JsonObject
) -> Iterator[Probe]:
    subject = question.subject
    if subject == "add_generation_prompt":
        yield replace(probe, add_generation_prompt=not probe.add_generation_prompt)
    elif subject in PARTS_OF_PROBE:
        yield from _change_part(probe, question)
    elif subject in options:
        for value in list_values(question, probe.options.get(subject), guess):
            yield replace(probe, options=_set_key(probe.options, subject, value))
    if subject not in options:
        # The mappings in a probe that have a key, with their places; else all of them, the last first.
        found: list[tuple[Location, JsonObject]] = []
        for name in (*PARTS_OF_PROBE, "options"):
            _collect_mappings(getattr(probe, name), (name,), found)
        having = [(location, mapping) for location, mapping in found if subject in mapping]
        places = (having or found[::-1])[:MAX_PLACES]
        values = [list_values(question, mapping.get(subject), guess) for _, mapping in places]
        # every place soon gets its first values, and the first place soon all
        for total in range(len(places) + max(map(len, values), default=0)):
            for (location, _), known in zip(places, values, strict=True):
                if 0 <= total < len(known):
                    yield _set_at(probe, (*location, subject), known[total])
                total -= 1


def is_plausible(probe: Probe) -> bool:
    """Return whether a caller may send a conversation: its fields have the usual types."""
    for message in probe.messages:
        content, calls = message.get("content"), message.get("tool_calls")
        if not _fits(message, MESSAGE_FIELDS) or "role" not in message:
            return False
        if isinstance(content, dict) and message["role"] in ("system", "user", "assistant"):
            return False
        if isinstance(content, list) and not all(_is_part(part) for part in content):
            return False
        if calls and not all(_is_function(call) for call in calls):
            return False
    return all(_is_function(tool) for tool in probe.tools or ())


def _is_part(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and _fits(part, PART_FIELDS))


def _is_function(value: Any) -> bool:
    """Return whether a value is a tool or a call, with the wrapper or without."""
    if not isinstance(value, dict) or not _fits(value, FUNCTION_FIELDS):
        return False
    return _fits(value.get("function", value), FUNCTION_FIELDS)


def _fits(mapping: JsonObject, fields: FieldTypes) -> bool:
    return all(type(mapping[name]) in kinds for name, kinds in fields.items() if name in mapping)


def list_values(question: Question, old: Any, guess: JsonObject) -> list[Any]:
    """Return the values that may answer a question, for a field that has the value `old`.

    `guess` is a mapping that the field may be, or be a list of.
    """
    constant = question.constant
    if question.how == "equals":
        return [constant, [constant], ABSENT, *TYPED_VALUES[:2]]
    if question.how == "contains" and isinstance(constant, str):
        text = old if isinstance(old, str) else "text"
        around = [constant + text, text + constant, f"{text}{constant}{text}{constant}{text}"]
        others: list[Any] = [constant, [constant], {constant: "text"}]
        if isinstance(old, dict):
            others.insert(0, {**old, constant: "text"})
        if isinstance(old, list):
            others.insert(0, [*old, constant])
        return [*around, *others]
    if question.how == "size" and isinstance(constant, (int, float)):
        sizes = [int(constant) + more for more in (-1, 0, 1)]
        near = [*sizes, constant]
        return [*near, *(_resize(old, size) for size in sizes if 0 <= size <= MAX_SIZE)]
    structured: list[Any] = [guess, [guess, guess]] if guess else []
    values = (*structured, *TYPED_VALUES)
    return [value for value in values if type(value) is not type(old) or value != old]


def _resize(old: Any, size: int) -> Any:
    """Return a list or text of this length."""
    if isinstance(old, list) and old:
        return [old[n % len(old)] for n in range(size)]
    text = old if isinstance(old, str) and old else "x"
    return (text * size)[:size]


def _change_part(probe: Probe, question: Question) -> Iterator[Probe]:
    """Change the messages, tools or documents as a whole."""
    name = question.subject
    old = getattr(probe, name) or []
    if question.how == "size" and isinstance(question.constant, int):
        for size in (question.constant + more for more in (-1, 0, 1, 2)):
            if old and 0 <= size <= MAX_SIZE // 20:
                yield replace(probe, **{name: _resize(old, size)})
    lists = {"tools": "tool lists", "documents": "documents"}
    for values in name_values(lists[name]) if name in lists else ():
        yield from (replace(probe, **{name: value}) for value in (*values, None))


def _collect_mappings(
    value: Any, location: Location, found: list[tuple[Location, JsonObject]]
) -> None:
    if isinstance(value, dict):
        if location != ("options",):
            found.append((location, value))
        for key, item in value.items():
            _collect_mappings(item, (*location, key), found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _collect_mappings(item, (*location, index), found)


def _set_at(probe: Probe, location: Location, value: Any) -> Probe:
    name = str(location[0])
    return replace(probe, **{name: _replace_at(getattr(probe, name), location[1:], value)})


def _replace_at(container: Any, location: Location, value: Any) -> Any:
    key: Any = location[0]
    if len(location) > 1:
        value = _replace_at(container[key], location[1:], value)
    if isinstance(container, list):
        return [*container[:key], value, *container[key + 1 :]]
    return _set_key(container, key, value)


def _set_key(mapping: JsonObject, key: str, value: Any) -> JsonObject:
    if value is ABSENT:
        return {name: item for name, item in mapping.items() if name != key}
    return {**mapping, key: value}


def with_text_arguments(probe: Probe, dump: Callable[[Any], str] = json.dumps) -> Probe | None:
    """Return a probe whose calls have their arguments as JSON text; None if there are no mappings to write."""
    found = change_arguments(probe, lambda given: dump(given) if isinstance(given, dict) else given)
    return None if found is probe else found


def change_arguments(probe: Probe, change: Callable[[Any], Any]) -> Probe:
    """Return a probe with other arguments in its calls; the same object if none changes."""
    messages = []
    for message in probe.messages:
        calls = message.get("tool_calls") or []
        changed = [_change_call(call, change) for call in calls]
        messages.append(message if changed == calls else {**message, "tool_calls": changed})
    return probe if messages == probe.messages else replace(probe, messages=messages)


def _change_call(call: MessageDict, change: Callable[[Any], Any]) -> MessageDict:
    if isinstance(call.get("function"), dict):
        return {**call, "function": _change_call(call["function"], change)}
    return {**call, "arguments": change(call["arguments"])} if "arguments" in call else call


def shake(probe: Probe, others: Sequence[Probe], dice: random.Random) -> Probe:
    """Return a conversation that differs at random: its messages, their order, its arguments."""
    messages = list(probe.messages)
    other = dice.choice(others)
    place = dice.randrange(len(messages) + 1)
    change = dice.randrange(8)
    if change == 0 and messages:
        messages.pop(place - 1)
    elif change == 1 and messages:
        messages.insert(place, dice.choice(messages))
    elif change == 2:
        messages[place:] = other.messages[-3:]
    elif change == 3:
        messages[:place] = other.messages[:3]
    elif change == 4 and messages:
        messages[place - 1] = _make_odd(messages[place - 1])
    elif change == 5:
        return replace(probe, tools=other.tools, documents=other.documents)
    elif change == 6:
        return replace(probe, options={**probe.options, **other.options}, now=other.now)
    else:
        return replace(probe, add_generation_prompt=not probe.add_generation_prompt)
    return replace(probe, messages=messages)


def _make_odd(message: MessageDict) -> MessageDict:
    """Return a message whose texts have white space around them and letters beyond ASCII."""
    (odd,) = name_values("odd text")
    return {
        key: f"{odd}{value}{odd}" if isinstance(value, str) and key != "role" else value
        for key, value in message.items()
    }

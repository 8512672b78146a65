"""Conversations made up to ask a template something.

They are data, in `probes.json`: values by their names, lists of values, and the conversations by topic. In a row,
`$name` stands for a value, and a loop makes rows of each element of a list; a call, a result, a repeated text and some
turns have short forms (`SHORT_FORMS`). `load_probes` reads all of them:

    {"each": "text", "in": "texts", "do": [
      {"covers": "text {text_number} asked", "messages": ["$rules", "$one", {"role": "user", "content": "$text"}]}
    ]}

`conversations()` covers what chat templates distinguish: who speaks in which order and how long, what a message is made
of, tools and their calls, reasoning, white space, letters of many kinds. `vary_options()` asks some of them once for
every value of every option that a template reads; `wide_conversations.py` has more. Everything is deterministic. A
probe names the topic it is from, so that a caller can report what was covered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any, cast

from turnwise.engine.option_names import SPECIAL_TOKENS
from turnwise.engine.renderer import Renderer
from turnwise.messages import JsonMapping, JsonObject

NOW = datetime(2025, 1, 15, 12)
LATER = datetime(2031, 11, 28, 21, 43, 56)  # no part of it is that of NOW
STANDARD_VARIABLES = (
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
)
PROBE_TOKENS = {name: f"<{name.removesuffix('_token')}>" for name in SPECIAL_TOKENS}
"""Texts of the special tokens: `{"bos_token": "<bos>", ...}`."""
OPTION_VALUES: tuple[Any, ...] = (True, False, "low", "high", None, 2, 3)

MessageDict = JsonObject


@dataclass(frozen=True)
class Probe:
    """A conversation and the arguments it is rendered with; `covers` says what it asks, `about` in a word."""

    covers: str
    messages: list[MessageDict]
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    add_generation_prompt: bool = False
    options: JsonObject = field(default_factory=dict)
    now: datetime = NOW
    about: str = ""

    def arguments(self) -> JsonObject:
        """What `Template.render` takes."""
        given = {
            "tools": self.tools,
            "documents": self.documents,
            "add_generation_prompt": self.add_generation_prompt,
        }
        return given | {"now": self.now} | self.options


def make_message(role: str, content: Any, **more: Any) -> MessageDict:
    return {"role": role, "content": content, **more}


def make_call_message(*calls: tuple[str, Any], content: Any = "", **more: Any) -> MessageDict:
    """An assistant message that calls tools."""
    listed = [
        {
            "id": f"call0000{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": listed, **more}


def make_tool_result(result: Any, number: int = 0, name: str = "weather") -> MessageDict:
    return {"role": "tool", "content": result, "name": name, "tool_call_id": f"call0000{number}"}


def make_tool(name: str, **properties: Any) -> JsonObject:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Describe {name}.", "parameters": parameters},
    }


def alternate_turns(turns: int) -> list[MessageDict]:
    """So many messages, of users and assistants in turn."""
    return [make_message(("user", "assistant")[i % 2], f"Turn{i}") for i in range(turns)]


SHORT_FORMS: dict[str, Callable[..., Any]] = {
    "turns": alternate_turns,
    "calls": lambda calls, **more: make_call_message(*map(tuple, calls), **more),
    "result": make_tool_result,
    "repeat": lambda repeat: repeat[0] * repeat[1],
}
"""What a mapping in the file stands for, by its first key."""


@cache
def _read_data() -> dict[str, JsonObject]:
    from importlib.resources import (
        files,
    )  # few callers need the data, and importing this takes time

    text = files("turnwise.analysis").joinpath("probes.json").read_text(encoding="utf-8")
    return cast(dict[str, JsonObject], json.loads(text))


@cache
def _read_values() -> JsonObject:
    values: JsonObject = {}
    for name, value in (_read_data()["values"] | _read_data()["lists"]).items():
        values[name] = _fill(value, values)
    return values


def name_values(*names: str) -> list[Any]:
    """Return messages, tools, texts or lists of them by their names in the file."""
    return [_read_values()[name] for name in names]


def load_probes(topic: str, **variables: Any) -> Iterator[Probe]:
    """Yield the conversations of one part of the file.

    Args:
        topic: The name of the part.
        variables: What else `$name` stands for.
    """
    names = _read_values() | variables
    for row in _read_data()["probes"][topic]:
        yield from _read_row(row, names)


def _read_row(row: JsonObject, names: JsonMapping) -> Iterator[Probe]:
    """Yield the conversation of a row, or those that a loop makes of its rows."""
    if "do" not in row:
        yield Probe(**{**_fill(row, names), "covers": row["covers"].format_map(names)})
        return
    values = names[row["in"]] if isinstance(row["in"], str) else _fill(row["in"], names)
    first, *others = row["each"].split()
    for number, value in enumerate(values):
        bound = dict(zip((first, *others), value, strict=True)) if others else {first: value}
        for inner in row["do"]:
            yield from _read_row(inner, {**names, **bound, f"{first}_number": number})


def _fill(value: Any, names: JsonMapping) -> Any:
    """Return a value of the file with its names and short forms written out."""
    if isinstance(value, str):
        return names.get(value[1:], value) if value.startswith("$") else value
    if isinstance(value, list):
        filled: list[Any] = []
        for item in value:
            inner = _fill(item, names)
            filled += inner if isinstance(item, dict) and "turns" in item else [inner]
        return filled
    if not isinstance(value, dict):
        return value
    fields = {_fill(key, names): _fill(item, names) for key, item in value.items()}
    write_out = SHORT_FORMS.get(next(iter(fields), ""))
    return fields if write_out is None else write_out(**fields)


@cache
def conversations() -> tuple[Probe, ...]:
    """One probe for each thing that templates tell apart."""
    return tuple(replace(probe, about=topic) for topic in TOPICS for probe in load_probes(topic))


TOPICS = ("turns", "contents", "calls", "reasoning")
"""The parts of the list, by the words that say what was covered."""
PROBED_WITH_OPTIONS = (
    "system, user, assistant",
    "system and two rounds",
    "a call, its result, an answer",
    "reasoning in two rounds",
    "images",
    "documents",
)


def option_names(variables: Iterable[str]) -> list[str]:
    """The names that are neither the conversation nor a special token."""
    return [
        name for name in variables if name not in STANDARD_VARIABLES and name not in SPECIAL_TOKENS
    ]


def name_tokens(renderer: Renderer) -> dict[str, str]:
    """Return texts for the special tokens that a template reads and has no text for."""
    return {
        name: text
        for name, text in PROBE_TOKENS.items()
        if name in renderer.variables and not renderer.options.get(name)
    }


def vary_options(names: Iterable[str], tokens: Mapping[str, str] = PROBE_TOKENS) -> Iterator[Probe]:
    """A few conversations with each value of each option, and a generation prompt."""
    chosen = [probe for probe in conversations() if probe.covers in PROBED_WITH_OPTIONS]
    for name in names:
        for value in OPTION_VALUES:
            for probe in chosen:
                covers = f"{probe.covers}, {name}={value!r}"
                options = {**tokens, name: value}
                yield replace(
                    probe,
                    covers=covers,
                    add_generation_prompt=True,
                    options=options,
                    about=f"option {name}",
                )

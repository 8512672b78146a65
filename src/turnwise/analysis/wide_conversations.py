"""More conversations than `conversations()`: what templates tell apart rarely, and what only they tell apart.

`conversations()` holds what dialects can be verified on. Here are the rest of what a published template may look at:
descriptions at every level of a schema and keys that few schemas have, white space and letters beyond ASCII wherever a
text may be, arguments of every JSON type, results that are mappings or parts, roles of single models, media, long
conversations, days on which formats of dates differ. The values of roles and options are those that the template
itself compares with (`template_constants.py`).

`list_common_probes` and `list_rare_probes` are fixed lists; `ProbeMaker` makes random ones of the same materials.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from turnwise.analysis.template_constants import TemplateConstants

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
PART_FIELDS = {"type", "text", "image", "video", "audio", "image_url"}
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


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
    return wanted <= keys and (not parts or not PART_FIELDS.isdisjoint(keys))


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

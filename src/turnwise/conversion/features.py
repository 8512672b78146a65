"""Names for what a dialect cannot express.

Three tables, for the three reasons why a template and its translation differ:

    TOPICS     something beyond plain rounds that the template supports: tools, reasoning, images, ...
    CONTENTS   something in the smallest conversation that plain rounds do not have
    FEATURES   a text of the turns that the translation does not have, or has otherwise

`TOPICS` also decide what is compared at all: a template that never mentions images is not asked
about them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from turnwise.analysis.conversations import Probe
from turnwise.dialects.turns import (
    MARKS,
    TOKEN_MARKS,
    Slot,
    Turns,
    fill_slots,
    split_at_text,
)
from turnwise.errors import short_repr
from turnwise.messages import REASONING_KEYS

WHITE_SPACE, OPTIONS, EMPTY = "white space", "options", "empty messages"
SYSTEM, NO_SYSTEM, LATE_SYSTEM = "system text", "no system text", "late system text"
LOSSES = (WHITE_SPACE, EMPTY, SYSTEM, NO_SYSTEM, LATE_SYSTEM, OPTIONS)
"""What `without` accepts beside the topics and the options of a template."""

ProbeTest = Callable[[Probe], bool]


class Obstacle(NamedTuple):
    """What a dialect cannot express, and the name under which `without` gives it up, if any.

    `kind` names it in `Dialect.unwritten`, where that name is another.
    """

    description: str
    loss: str = ""
    kind: str = ""


def list_texts(probe: Probe) -> list[str]:
    """Return the contents of a probe that are strings."""
    contents = [message.get("content") for message in probe.messages]
    return [content for content in contents if isinstance(content, str)]


def _has_part(probe: Probe, kind: str) -> bool:
    for message in probe.messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and kind in part.get("type", ""):
                return True
    return False


def _has_images(probe: Probe) -> bool:
    return _has_part(probe, "image")


def _has_audio(probe: Probe) -> bool:
    return _has_part(probe, "audio")


def _has_calls(probe: Probe) -> bool:
    """Return True if a message has the key: templates also write an empty list of calls."""
    return any("tool_calls" in message for message in probe.messages)


def _has_results(probe: Probe) -> bool:
    return any(message["role"] == "tool" for message in probe.messages)


def _has_names(probe: Probe) -> bool:
    return any("name" in message for message in probe.messages if message["role"] != "tool")


def _has_reasoning(probe: Probe) -> bool:
    if any(key in message for message in probe.messages for key in REASONING_KEYS):
        return True
    return probe.about == "reasoning" and any("think" in text for text in list_texts(probe))


def has_system_text(probe: Probe) -> bool:
    """Return True if a message is the system's."""
    return any(message["role"] == "system" for message in probe.messages)


def has_late_system(probe: Probe) -> bool:
    """Return True if a message of the system's is not the first."""
    return any(message["role"] == "system" for message in probe.messages[1:])


def has_empty_text(probe: Probe) -> bool:
    """Return True if the text of a message is empty."""
    return "" in list_texts(probe)


def _has_padding(probe: Probe) -> bool:
    return any(text != text.strip() for text in list_texts(probe))


# -- topics ----------------------------------------------------------------------------------------


TOPICS: dict[str, tuple[str, ...]] = {
    "tools": ("tool",),
    "reasoning": ("think", "reasoning"),
    "images": ("image",),
    "audio": ("audio",),
    "documents": ("documents",),
    "names": ("name",),
}
"""What a template may support beyond plain rounds; one that does so contains one of these words."""


def is_about_topic(topic: str, probe: Probe) -> bool:
    """Return True if a probe has something of a topic."""
    tests = [test for obstacle, test in CONTENTS if obstacle.loss == topic]
    return probe.about == topic or any(test(probe) for test in tests)


# -- contents --------------------------------------------------------------------------------------

CONTENTS: tuple[tuple[Obstacle, ProbeTest], ...] = (
    (Obstacle("tools", "tools"), lambda probe: probe.tools is not None),
    (Obstacle("tool calls", "tools"), _has_calls),
    (Obstacle("tool results", "tools"), _has_results),
    (Obstacle("reasoning", "reasoning"), _has_reasoning),
    (Obstacle("images", "images"), _has_images),
    (Obstacle("audio", "audio"), _has_audio),
    (Obstacle("documents", "documents"), lambda probe: bool(probe.documents)),
    (Obstacle("names of messages", "names"), _has_names),
    (
        Obstacle("white space around a message, which the template changes", WHITE_SPACE),
        _has_padding,
    ),
    (Obstacle("an empty message", EMPTY), has_empty_text),
    (Obstacle("a system text after the first round", LATE_SYSTEM), has_late_system),
)


# -- features --------------------------------------------------------------------------------------

FeatureValue = str | bool | None


@dataclass(frozen=True, slots=True)
class Feature:
    """Something in which the turns of two templates may differ."""

    name: str
    value: Callable[[Turns], FeatureValue]
    role: str  # a conversation that shows it has a message of this role
    absence: str = ""  # the name of not having it, if that is possible
    in_final_reply: bool = False  # it shows only in a reply that is the last message
    without_system: bool = False  # it shows only without a system message

    def is_shown_by(self, roles: Collection[str]) -> bool:
        """Return True if a conversation of these roles can show the feature."""
        return self.role in roles and not (self.without_system and "system" in roles)


ROUND_NUMBERS = {"index": "0, 1, 2", "round": "1, 2, 3"}


def _round_numbers(turns: Turns) -> str | None:
    for part in turns.user:
        if isinstance(part, Slot) and part.name in ROUND_NUMBERS:
            return ROUND_NUMBERS[part.name]
    return None


def _bos_of_rounds(turns: Turns) -> str | None:
    """Return the bos token that starts each round; `turns.bos` is the text of it."""
    start = fill_slots(split_at_text(turns.user)[0], 0)
    return turns.bos if turns.bos and start.startswith(turns.bos) else None


def _user_start(turns: Turns) -> str:
    return fill_slots(split_at_text(turns.user)[0], 0).removeprefix(turns.bos)


def _user_end(turns: Turns) -> str:
    return fill_slots(split_at_text(turns.user)[1], 0)


def _reply_end(turns: Turns) -> str:
    return turns.reply_suffix + (TOKEN_MARKS["eos_token"] if turns.eos else "")


FEATURES = (
    Feature(
        "a text that every conversation starts with",
        lambda turns: turns.prefix.removeprefix(turns.bos) or None,
        "user",
        absence="a conversation that starts with no text of the template's own",
    ),
    Feature(
        "a system text in the first user turn",
        lambda turns: turns.system_in_user,
        "system",
        absence="a system text in a turn of its own",
    ),
    Feature(
        "a system text in the last user turn",
        lambda turns: turns.system_in_last_user,
        "system",
        absence="a system text before everything else",
    ),
    Feature(
        "a system turn where no system text is given",
        lambda turns: turns.default_system,
        "user",
        absence="leaving out the system turn where no system text is given",
        without_system=True,
    ),
    Feature("the number of the round", _round_numbers, "user", absence="rounds without a number"),
    Feature("the start of a user turn", _user_start, "user"),
    Feature(
        "the generation prompt",
        lambda turns: _user_end(turns) + turns.generation_prompt,
        "user",
    ),
    Feature(
        "the text before a reply in the history",
        lambda turns: _user_end(turns) + turns.before_reply,
        "assistant",
    ),
    Feature(
        "a last reply that begins unlike earlier ones",
        lambda turns: turns.last_prefix or None,
        "assistant",
        absence="a last reply that begins as earlier ones do",
        in_final_reply=True,
    ),
    Feature(
        "the end of a reply",
        lambda turns: _reply_end(turns),
        "assistant",
        in_final_reply=True,
    ),
    Feature(
        "a last reply that ends unlike earlier ones",
        lambda turns: turns.last_suffix.strip() or None,
        "assistant",
        absence="a last reply that ends as earlier ones do",
        in_final_reply=True,
    ),
    Feature(
        "the text between a reply and the next turn",
        lambda turns: turns.separator,
        "assistant",
        in_final_reply=True,
    ),
    Feature(
        "the text after a reply in the history",
        lambda turns: _reply_end(turns) + turns.separator,
        "assistant",
    ),
    Feature(
        "the text around a system text",
        lambda turns: fill_slots(turns.system or (), 0, "…"),
        "system",
    ),
    Feature(
        "a token at the start of every round",
        _bos_of_rounds,
        "assistant",
        absence="rounds that do not start with bos_token",
    ),
)
"""What dialects differ in; the first that differs names the obstacle."""


def describe_feature(feature: Feature, wanted: FeatureValue, named: Collection[str]) -> str:
    """Describe a feature that is lost.

    Args:
        feature: the feature.
        wanted: its value in the template.
        named: special tokens that the dialect refers to by name; the others need a text.
    """
    if wanted is None or wanted is False:
        return feature.absence
    if wanted is True or (not wanted and feature.absence):
        return feature.name
    for name, mark in MARKS.items():
        if mark in wanted and name in TOKEN_MARKS and name not in named:
            return f"{feature.name}: {name}, whose text is not known (pass {name}=...)"
        wanted = wanted.replace(mark, f"{{{name}}}")
    return f"{feature.name}: {short_repr(wanted) if wanted else 'nothing'}"

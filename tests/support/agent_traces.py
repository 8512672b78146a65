"""Growing traces of agents: late system texts, reminders, results out of order, compaction.

A trace is a list of requests, as a client sends them: each has all messages so far. A template keeps a trace
append-only if the text of every prompt, up to its generation prompt, is the beginning of the next one's.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from os.path import commonprefix
from typing import Any, NamedTuple

import turnwise

NOW = datetime(2026, 1, 2, 3, 4, 5)
Chat = list[dict[str, Any]]
SYSTEM_ROLES = ("system", "developer")
WORDS = ("tide", "low", "high", "port", "海", "7", "{x}", "\n", "<|im_end|>", "</think>", "[INST]")
TOOL = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "The tide at a harbour.",
        "parameters": {
            "type": "object",
            "properties": {"harbour": {"type": "string", "description": "Its name."}},
            "required": ["harbour"],
        },
    },
}
RULES = {"role": "system", "content": "Answer briefly."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def late(text: str, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


def calls(*ids: str) -> dict[str, Any]:
    made = [
        {
            "id": id,
            "type": "function",
            "function": {"name": "tide", "arguments": json.dumps({"harbour": f"port {id}"})},
        }
        for id in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "name": "tide", "content": text}


class Trace(NamedTuple):
    """The requests of one agent.

    Attributes:
        name: what is in it.
        requests: the messages of each request.
        tools: the tools of all of them.
    """

    name: str
    requests: list[Chat]
    tools: list[Any] | None = None

    @property
    def pairs(self) -> Iterator[tuple[Chat, Chat]]:
        """Yield each request and the next one that continues it; compaction begins anew."""
        return ((one, other) for one, other in pairwise(self.requests) if other[: len(one)] == one)


def cut(chat: Chat) -> list[Chat]:
    """Return the requests that led to a conversation: all messages before each reply, and all of it."""
    ends = [index for index, message in enumerate(chat) if message["role"] == "assistant" and index]
    return [chat[:end] for end in (*ends, len(chat))]


ROUNDS = [
    RULES, user("Tide at Brest?"), reply("At noon."), late("Two files changed."), user("At Calais?"),
    reply("At one."), late("The list is empty."), late("Be kind."), user("At Dover?"), reply("At two."),
    user("Thanks."), late("End soon."), reply("Welcome."), late("It is late."), reply("Good night."),
    user("Wait."),
]  # fmt: skip
AGENT = [
    RULES, user("Tides?"), calls("call00001"), result("call00001", "7.1 m"), late("Two files changed."),
    calls("call00002"), result("call00002", "6.8 m"), reply("High."), late("Stay brief."), user("Then?"),
    calls("call00003"), result("call00003", "sooner"), late("One call is left."), reply("Low."),
    user("Thanks."),
]  # fmt: skip
PARALLEL = [
    user("Tides?"), calls("call00001", "call00002"), result("call00002", "later"),
    result("call00001", "sooner"), late("One call is left."), reply("Low."), late("Rest."), user("Thanks."),
    calls("call00003", "call00004"), result("call00004", "6.8 m"), late("It rains."),
    result("call00003", "7.1 m"), reply("High."), user("Well."),
]  # fmt: skip
DEVELOPER = [
    late("Be brief.", "developer"), *ROUNDS[1:3], late("Rest.", "developer"), *ROUNDS[4:6],
    late("Go.", "developer"), user("?"), reply("Gone."), user("!"),
]  # fmt: skip
COMPACT = [
    RULES, late("A summary: tides were asked for."), user("Go on."), reply("I do."),
    late("Three files changed."), user("Now?"), reply("Soon."), user("Well?"),
]  # fmt: skip
TRACES = (
    Trace("reminders", cut(ROUNDS)),
    Trace("no first system text", cut(ROUNDS[1:])),
    Trace("developer", cut(DEVELOPER)),
    Trace("agent", cut(AGENT), [TOOL]),
    Trace("results out of order", cut(PARALLEL), [TOOL]),
    Trace("compaction", [*cut(ROUNDS[:9]), *cut(COMPACT)]),
)


def make_trace(chance: random.Random) -> Trace:
    """Return a trace of some turns: each a plain reply or calls whose results come in any order, with late texts."""
    chat: Chat = [late(_make_text(chance))] if chance.random() < 0.7 else []
    requests: list[Chat] = []
    number = 0
    for _ in range(chance.randrange(3, 7)):
        chat.append(user(_make_text(chance)))
        _add_late(chance, chat)
        for _ in range(chance.randrange(3)):
            requests.append(list(chat))
            ids = [f"call{number + step:05}" for step in range(chance.randrange(1, 4))]
            number += len(ids)
            chat.append(calls(*ids))
            chance.shuffle(ids)
            chat += [result(id, _make_text(chance)) for id in ids]
            _add_late(chance, chat)
        requests.append(list(chat))
        chat.append(reply(_make_text(chance)))
        _add_late(chance, chat)
        if chance.random() < 0.15:  # compaction
            chat = [*chat[:1], late("Before: " + _make_text(chance)), *chat[-1:]]
    return Trace("made up", requests, [TOOL])


def _make_text(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randrange(1, 12)))


def _add_late(chance: random.Random, chat: Chat) -> None:
    if chance.random() < 0.4:
        chat.append(late(_make_text(chance), chance.choice(SYSTEM_ROLES)))


def without_late(trace: Trace) -> Trace:
    """Return a trace without late system texts and with results in order: what plain clients send."""
    requests: list[Chat] = []
    for chat in trace.requests:
        first = [message for message in chat[:1] if message["role"] in SYSTEM_ROLES]
        rest = [message for message in chat[len(first) :] if message["role"] not in SYSTEM_ROLES]
        requests.append([*first, *rest])
    return Trace(trace.name, requests, trace.tools)


def render(template: turnwise.Template, chat: Chat, trace: Trace, prompt: bool, **more: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return template.render(
            chat, trace.tools, add_generation_prompt=prompt, now=NOW, **more
        ).text


def find_loss(
    template: turnwise.Template, trace: Trace, **more: Any
) -> tuple[int, str, str] | None:
    """Return the first request whose prompt does not begin the next one's, and both texts from there on."""
    for number, (chat, longer) in enumerate(trace.pairs):
        opened = render(template, chat, trace, True, **more)
        kept = commonprefix([opened, render(template, chat, trace, False, **more)])
        after = render(template, longer, trace, True, **more)
        if not after.startswith(kept):
            at = len(commonprefix([kept, after]))
            return number, kept[at:], after[at:]
    return None

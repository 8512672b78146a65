"""Conversations made up to ask a template something.

`conversations()` is a fixed list that covers what chat templates tell apart: who speaks in which order and how long,
what a message is made of, tools and their calls, reasoning, white space, letters of many kinds. `variations()` asks
each of them with and without the opening, and some of them once for every value of every option that a template reads
(`optional`). Everything is deterministic. A probe names the part of the list it is from, so that whoever asks can say
what was covered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any

NOW = datetime(2025, 1, 15, 12)
LATER = datetime(2031, 11, 28, 21, 43, 56)  # no part of it is that of NOW
STANDARD = ("messages", "tools", "documents", "add_generation_prompt")
TOKENS = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
VALUES: tuple[Any, ...] = (True, False, "low", "high", None, 2, 3)

Message = dict[str, Any]


@dataclass(frozen=True)
class Probe:
    """A conversation and the arguments it is rendered with; `covers` says what it asks, `about` in a word."""

    covers: str
    messages: list[Message]
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    opening: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    now: datetime = NOW
    about: str = ""

    def arguments(self) -> dict[str, Any]:
        """What `Template.render` takes."""
        given = {
            "tools": self.tools,
            "documents": self.documents,
            "add_generation_prompt": self.opening,
        }
        return given | {"now": self.now} | self.options


def said(role: str, content: Any, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def called(*calls: tuple[str, Any], content: Any = "", **more: Any) -> Message:
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


def answered(content: Any, number: int = 0, name: str = "weather") -> Message:
    return {"role": "tool", "content": content, "name": name, "tool_call_id": f"call0000{number}"}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Describe {name}.", "parameters": parameters},
    }


WEATHER = tool(
    "weather",
    city={"type": "string", "description": "The city"},
    unit={"type": "string", "enum": ["celsius", "kelvin"], "default": "celsius"},
)
PLAN = tool(
    "plan",
    steps={
        "type": "array",
        "items": {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}},
    },
    nested={"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
)
CLOCK = tool("clock")
BARE = {
    "name": "bare",
    "description": "A function without a wrapper.",
    "parameters": {"type": "object", "properties": {}},
}
OSLO = {"city": "Oslo", "unit": "celsius"}
LONG = " ".join(f"Word{number}, and" for number in range(40))
ODD = {"text": 'say "hi" <b>\n', "list": [1, 2.5, None, True], "dict": {"k": "ü"}, "empty": {}}


def conversations() -> Iterator[Probe]:
    """One probe for each thing that templates tell apart."""
    yield from made()


@cache
def made() -> tuple[Probe, ...]:
    return tuple(replace(probe, about=about) for about, part in PARTS.items() for probe in part())


def rounds(count: int) -> list[Message]:
    """So many messages, of users and assistants in turn."""
    return [said(("user", "assistant")[i % 2], f"Turn{i}") for i in range(count)]


def turns() -> Iterator[Probe]:
    """Who speaks, in which order."""
    user, again, third = said("user", "First"), said("user", "Second"), said("user", "Third")
    one, two, system = said("assistant", "One"), said("assistant", "Two"), said("system", "Rules")
    shapes: dict[str, list[Message]] = {
        "a user": [user],
        "a user and an assistant": [user, one],
        "system and user": [system, user],
        "system, user, assistant": [system, user, one],
        "two rounds": [user, one, again],
        "two rounds, answered": [user, one, again, two],
        "system and two rounds": [system, user, one, again],
        "system and three rounds": [system, user, one, again, two, third],
        "four rounds, answered": rounds(8),
        "system and four rounds": [system, *rounds(7)],
        "system and four rounds, answered": [system, *rounds(8)],
        "only a system": [system],
        "only an assistant": [one],
        "assistant first": [one, user],
        "system, then assistant": [system, one, user],
        "two users": [user, again],
        "two users in the middle": [user, one, again, third, two],
        "two assistants": [user, one, two],
        "two systems": [system, said("system", "More rules"), user],
        "a system in the middle": [user, system, again],
        "a system at the end": [user, one, system],
        "a developer": [said("developer", "Terms"), user],
        "system and developer": [system, said("developer", "Terms"), user, one],
        "an unknown role": [user, said("wizard", "Hm"), one],
        "a name": [said("user", "First", name="Ada"), said("assistant", "One", name="Bot")],
        "an environment": [user, said("environment", "Facts"), one],
    }
    for covers, messages in shapes.items():
        yield Probe(covers, messages)
    yield Probe("many rounds", rounds(9))
    yield Probe("a system late", [*rounds(6), system, *rounds(3)])
    yield Probe("two users late", [*rounds(7), again, one])


def contents() -> Iterator[Probe]:
    """What a message is made of."""
    for name, text in {
        "no text": "",
        "a space": " ",
        "white space around": " \n inside \t\n",
        "newlines": "\n\n",
        "newlines inside": "a\n\nb\n",
        "letters of many kinds": "é 漢字 😀 עברית a\u0301",
        "quotes and slashes": 'it\'s "so" \\ / {{ x }} {% y %}',
        "markup": "<b>&amp;</b> <|im_end|> [INST] </s> <tag>",
        "digits": "42",
        "word of the template": "user assistant system None none",
        "a long text": LONG,
        "carriage returns": "a\r\nb\r\n\r\nc",
        "spaces of another kind": "\u00a0a\u00a0b\u2003c\u00a0",
    }.items():
        yield Probe(f"{name} of a user", [said("user", text), said("assistant", "One")])
        yield Probe(
            f"{name} of an assistant",
            [said("user", "First"), said("assistant", text), said("user", "Second")],
        )
        yield Probe(f"{name} of a system", [said("system", text), said("user", "First")])
    for role in ("user", "assistant", "system"):
        yield Probe(
            f"null content of {role}",
            [said("user", "First"), said(role, None), said("user", "Second")],
        )
        yield Probe(
            f"no content of {role}", [said("user", "First"), {"role": role}, said("user", "Second")]
        )
    parts = [{"type": "text", "text": "Part"}, {"type": "text", "text": "another"}]
    image = [
        {"type": "image"},
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "u"}},
    ]
    yield Probe("parts", [said("user", parts), said("assistant", parts), said("user", parts)])
    yield Probe("parts of a system", [said("system", parts), said("user", "First")])
    audio = [{"type": "audio", "audio_url": "u"}, {"type": "text", "text": "What is said?"}]
    yield Probe("images", [said("user", image), said("assistant", "One")])
    yield Probe("audio", [said("user", audio), said("assistant", "One")])
    yield Probe("parts that are text", [said("user", ["Part", "another"])])
    documents = [{"title": "Rivers", "text": "Glomma"}, {"title": "Hills", "text": "Many", "id": 7}]
    yield Probe("documents", [said("user", "First")], documents=documents)


def calling() -> Iterator[Probe]:
    """Tools, calls and results."""
    user, system = said("user", "First"), said("system", "Rules")
    call = called(("weather", OSLO))
    rain, snow = answered("rain"), answered('{"t": -3}', 1)
    both = called(("weather", OSLO), ("plan", ODD))
    three = called(("weather", OSLO), ("plan", ODD), ("clock", {}))
    asked: dict[str, list[Message]] = {
        "tools": [user],
        "tools and system": [system, user],
        "a call": [user, call],
        "a call with text": [user, called(("weather", OSLO), content="Let me look.")],
        "a call without content": [user, called(("weather", OSLO), content=None)],
        "a call and its result": [user, call, rain],
        "a call, its result, an answer": [system, user, call, rain, said("assistant", "It rains.")],
        "two calls": [user, both],
        "two calls and results": [user, both, rain, snow, said("assistant", "Done.")],
        "calls one after the other": [
            user,
            call,
            rain,
            called(("plan", ODD)),
            snow,
            said("assistant", "Done."),
        ],
        "a call in an earlier round": [
            user,
            call,
            rain,
            said("assistant", "One"),
            said("user", "Second"),
        ],
        "arguments as text": [user, called(("weather", '{"city": "Oslo"}')), rain],
        "no arguments": [user, called(("weather", {})), rain],
        "odd arguments": [user, called(("plan", ODD))],
        "a call without a wrapper": [
            user,
            {**call, "tool_calls": [{"name": "weather", "arguments": OSLO}]},
        ],
        "a result that is parts": [user, call, answered([{"type": "text", "text": "rain"}])],
        "an empty result": [user, call, answered("")],
        "no calls after all": [user, {"role": "assistant", "content": "One", "tool_calls": []}],
        "null for calls": [user, {"role": "assistant", "content": "One", "tool_calls": None}],
    }
    for covers, messages in asked.items():
        yield Probe(covers, messages, tools=[WEATHER, PLAN])
        if len(messages) > 1:
            yield Probe(f"{covers}, no tools", messages)
    yield Probe(
        "three tools and calls",
        [user, three, rain, snow, answered("3", 2)],
        tools=[WEATHER, PLAN, CLOCK],
    )
    yield Probe(
        "a late call", [*rounds(7), call, rain, said("assistant", "It rains.")], tools=[WEATHER]
    )
    yield Probe("one tool", [user], tools=[WEATHER])
    yield Probe("a bare tool", [user], tools=[BARE])
    yield Probe("no tools after all", [user], tools=[])


def thinking() -> Iterator[Probe]:
    """Reasoning, in a field of its own or inside the text."""
    user, again = said("user", "First"), said("user", "Second")
    thought = said("assistant", "One", reasoning_content="Hmm")
    inside = said("assistant", "<think>\nHmm\n</think>\n\nOne")
    call = called(("weather", OSLO), reasoning_content="Hmm")
    yield Probe("reasoning", [user, thought])
    yield Probe("reasoning in an earlier round", [user, thought, again])
    yield Probe(
        "reasoning in two rounds",
        [user, thought, again, said("assistant", "Two", reasoning_content="Well")],
    )
    yield Probe("late reasoning", [*rounds(7), thought, again])
    yield Probe("empty reasoning", [user, said("assistant", "One", reasoning_content="")])
    yield Probe("reasoning as thinking", [user, said("assistant", "One", thinking="Hmm"), again])
    yield Probe("reasoning inside the text", [user, inside])
    yield Probe("reasoning inside an earlier text", [user, inside, again])
    yield Probe("an end without a start", [user, said("assistant", "Hmm</think>One"), again])
    yield Probe(
        "a start without an end",
        [user, said("assistant", "<think> Hmm"), said("user", "Second <think>")],
    )
    yield Probe("reasoning before a call", [user, call, answered("rain")], tools=[WEATHER])
    yield Probe(
        "reasoning before two calls",
        [user, call, answered("rain"), call, answered("sun")],
        tools=[WEATHER],
    )
    yield Probe("a soft switch", [said("user", "First /no_think"), said("assistant", "One")])


PARTS: dict[str, Callable[[], Iterator[Probe]]] = {
    "turns": turns,
    "contents": contents,
    "calls": calling,
    "reasoning": thinking,
}
"""The parts of the list, by the words that say what was covered."""
WITH_OPTIONS = (
    "system, user, assistant",
    "system and two rounds",
    "a call, its result, an answer",
    "reasoning in two rounds",
    "images",
    "documents",
)


def variations(variables: Iterable[str], tokens: Mapping[str, str] = TOKENS) -> Iterator[Probe]:
    """Every conversation, with and without the opening; and a few of them with each value of each option.

    `tokens` are the texts of the special tokens.
    """
    variables = list(variables)
    read = {name: text for name, text in tokens.items() if name in variables}
    for options, also in (({}, ""), (read, ", special tokens")) if read else (({}, ""),):
        for probe in conversations():
            plain = replace(probe, covers=f"{probe.covers}{also}", options=dict(options))
            yield plain
            yield replace(plain, covers=f"{plain.covers}, opening", opening=True)
    yield Probe("nothing", [], about="turns")
    yield from optional(options_of(variables), tokens)


def options_of(variables: Iterable[str]) -> list[str]:
    """The names that are neither the conversation nor a special token."""
    return [name for name in variables if name not in STANDARD and name not in TOKENS]


def optional(names: Iterable[str], tokens: Mapping[str, str] = TOKENS) -> Iterator[Probe]:
    """A few conversations with each value of each option, and the opening."""
    chosen = [probe for probe in conversations() if probe.covers in WITH_OPTIONS]
    for name in names:
        for value in VALUES:
            for probe in chosen:
                covers = f"{probe.covers}, {name}={value!r}"
                options = {**tokens, name: value}
                yield replace(
                    probe, covers=covers, opening=True, options=options, about=f"option {name}"
                )

"""Conversations made up to ask a template something.

`conversations()` is a fixed list that covers what chat templates tell apart: who speaks in which order and how long,
what a message is made of, tools and their calls, reasoning, white space, letters of many kinds. `variations()` asks
each of them with and without a generation prompt, and some of them once for every value of every option that a
template reads. Everything is deterministic. A probe names the part of the list it is from, so that a caller can tell
what was covered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any

from turnwise.engine.option_names import SPECIAL_TOKENS

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

MessageDict = dict[str, Any]


@dataclass(frozen=True)
class Probe:
    """A conversation and the arguments it is rendered with; `covers` says what it asks, `about` in a word."""

    covers: str
    messages: list[MessageDict]
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    add_generation_prompt: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    now: datetime = NOW
    about: str = ""

    def arguments(self) -> dict[str, Any]:
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


def make_tool_result(content: Any, number: int = 0, name: str = "weather") -> MessageDict:
    return {"role": "tool", "content": content, "name": name, "tool_call_id": f"call0000{number}"}


def make_tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Describe {name}.", "parameters": parameters},
    }


WEATHER = make_tool(
    "weather",
    city={"type": "string", "description": "The city"},
    unit={"type": "string", "enum": ["celsius", "kelvin"], "default": "celsius"},
)
PLAN = make_tool(
    "plan",
    steps={
        "type": "array",
        "items": {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}},
    },
    nested={"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
)
CLOCK = make_tool("clock")
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
    yield from _all_probes()


@cache
def _all_probes() -> tuple[Probe, ...]:
    return tuple(
        replace(probe, about=about) for about, part in PROBES_BY_TOPIC.items() for probe in part()
    )


def alternate_turns(count: int) -> list[MessageDict]:
    """So many messages, of users and assistants in turn."""
    return [make_message(("user", "assistant")[i % 2], f"Turn{i}") for i in range(count)]


def probe_turns() -> Iterator[Probe]:
    """Who speaks, in which order."""
    user, again, third = (
        make_message("user", "First"),
        make_message("user", "Second"),
        make_message("user", "Third"),
    )
    one, two, system = (
        make_message("assistant", "One"),
        make_message("assistant", "Two"),
        make_message("system", "Rules"),
    )
    shapes: dict[str, list[MessageDict]] = {
        "a user": [user],
        "a user and an assistant": [user, one],
        "system and user": [system, user],
        "system, user, assistant": [system, user, one],
        "two rounds": [user, one, again],
        "two rounds, answered": [user, one, again, two],
        "system and two rounds": [system, user, one, again],
        "system and three rounds": [system, user, one, again, two, third],
        "four rounds, answered": alternate_turns(8),
        "system and four rounds": [system, *alternate_turns(7)],
        "system and four rounds, answered": [system, *alternate_turns(8)],
        "only a system": [system],
        "only an assistant": [one],
        "assistant first": [one, user],
        "system, then assistant": [system, one, user],
        "two users": [user, again],
        "two users in the middle": [user, one, again, third, two],
        "two assistants": [user, one, two],
        "two systems": [system, make_message("system", "More rules"), user],
        "a system in the middle": [user, system, again],
        "a system at the end": [user, one, system],
        "a developer": [make_message("developer", "Terms"), user],
        "system and developer": [system, make_message("developer", "Terms"), user, one],
        "an unknown role": [user, make_message("wizard", "Hm"), one],
        "a name": [
            make_message("user", "First", name="Ada"),
            make_message("assistant", "One", name="Bot"),
        ],
        "an environment": [user, make_message("environment", "Facts"), one],
    }
    for covers, messages in shapes.items():
        yield Probe(covers, messages)
    yield Probe("many rounds", alternate_turns(9))
    yield Probe("a system late", [*alternate_turns(6), system, *alternate_turns(3)])
    yield Probe("two users late", [*alternate_turns(7), again, one])


def probe_contents() -> Iterator[Probe]:
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
        yield Probe(
            f"{name} of a user", [make_message("user", text), make_message("assistant", "One")]
        )
        yield Probe(
            f"{name} of an assistant",
            [
                make_message("user", "First"),
                make_message("assistant", text),
                make_message("user", "Second"),
            ],
        )
        yield Probe(
            f"{name} of a system", [make_message("system", text), make_message("user", "First")]
        )
    for role in ("user", "assistant", "system"):
        yield Probe(
            f"null content of {role}",
            [
                make_message("user", "First"),
                make_message(role, None),
                make_message("user", "Second"),
            ],
        )
        yield Probe(
            f"no content of {role}",
            [make_message("user", "First"), {"role": role}, make_message("user", "Second")],
        )
    parts = [{"type": "text", "text": "Part"}, {"type": "text", "text": "another"}]
    image = [
        {"type": "image"},
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "u"}},
    ]
    yield Probe(
        "parts",
        [
            make_message("user", parts),
            make_message("assistant", parts),
            make_message("user", parts),
        ],
    )
    yield Probe("parts of a system", [make_message("system", parts), make_message("user", "First")])
    audio = [{"type": "audio", "audio_url": "u"}, {"type": "text", "text": "What is said?"}]
    yield Probe("images", [make_message("user", image), make_message("assistant", "One")])
    yield Probe("audio", [make_message("user", audio), make_message("assistant", "One")])
    yield Probe("parts that are text", [make_message("user", ["Part", "another"])])
    documents = [{"title": "Rivers", "text": "Glomma"}, {"title": "Hills", "text": "Many", "id": 7}]
    yield Probe("documents", [make_message("user", "First")], documents=documents)


def probe_calls() -> Iterator[Probe]:
    """Tools, calls and results."""
    user, system = make_message("user", "First"), make_message("system", "Rules")
    call = make_call_message(("weather", OSLO))
    rain, snow = make_tool_result("rain"), make_tool_result('{"t": -3}', 1)
    both = make_call_message(("weather", OSLO), ("plan", ODD))
    three = make_call_message(("weather", OSLO), ("plan", ODD), ("clock", {}))
    asked: dict[str, list[MessageDict]] = {
        "tools": [user],
        "tools and system": [system, user],
        "a call": [user, call],
        "a call with text": [user, make_call_message(("weather", OSLO), content="Let me look.")],
        "a call without content": [user, make_call_message(("weather", OSLO), content=None)],
        "a call and its result": [user, call, rain],
        "a call, its result, an answer": [
            system,
            user,
            call,
            rain,
            make_message("assistant", "It rains."),
        ],
        "two calls": [user, both],
        "two calls and results": [user, both, rain, snow, make_message("assistant", "Done.")],
        "calls one after the other": [
            user,
            call,
            rain,
            make_call_message(("plan", ODD)),
            snow,
            make_message("assistant", "Done."),
        ],
        "a call in an earlier round": [
            user,
            call,
            rain,
            make_message("assistant", "One"),
            make_message("user", "Second"),
        ],
        "arguments as text": [user, make_call_message(("weather", '{"city": "Oslo"}')), rain],
        "no arguments": [user, make_call_message(("weather", {})), rain],
        "odd arguments": [user, make_call_message(("plan", ODD))],
        "a call without a wrapper": [
            user,
            {**call, "tool_calls": [{"name": "weather", "arguments": OSLO}]},
        ],
        "a result that is parts": [
            user,
            call,
            make_tool_result([{"type": "text", "text": "rain"}]),
        ],
        "an empty result": [user, call, make_tool_result("")],
        "no calls after all": [user, {"role": "assistant", "content": "One", "tool_calls": []}],
        "null for calls": [user, {"role": "assistant", "content": "One", "tool_calls": None}],
    }
    for covers, messages in asked.items():
        yield Probe(covers, messages, tools=[WEATHER, PLAN])
        if len(messages) > 1:
            yield Probe(f"{covers}, no tools", messages)
    yield Probe(
        "three tools and calls",
        [user, three, rain, snow, make_tool_result("3", 2)],
        tools=[WEATHER, PLAN, CLOCK],
    )
    yield Probe(
        "a late call",
        [*alternate_turns(7), call, rain, make_message("assistant", "It rains.")],
        tools=[WEATHER],
    )
    yield Probe("one tool", [user], tools=[WEATHER])
    yield Probe("a bare tool", [user], tools=[BARE])
    yield Probe("no tools after all", [user], tools=[])


def probe_reasoning() -> Iterator[Probe]:
    """Reasoning, in a field of its own or inside the text."""
    user, again = make_message("user", "First"), make_message("user", "Second")
    thought = make_message("assistant", "One", reasoning_content="Hmm")
    inside = make_message("assistant", "<think>\nHmm\n</think>\n\nOne")
    call = make_call_message(("weather", OSLO), reasoning_content="Hmm")
    yield Probe("reasoning", [user, thought])
    yield Probe("reasoning in an earlier round", [user, thought, again])
    yield Probe(
        "reasoning in two rounds",
        [user, thought, again, make_message("assistant", "Two", reasoning_content="Well")],
    )
    yield Probe("late reasoning", [*alternate_turns(7), thought, again])
    yield Probe("empty reasoning", [user, make_message("assistant", "One", reasoning_content="")])
    yield Probe(
        "reasoning as thinking", [user, make_message("assistant", "One", thinking="Hmm"), again]
    )
    yield Probe("reasoning inside the text", [user, inside])
    yield Probe("reasoning inside an earlier text", [user, inside, again])
    yield Probe(
        "an end without a start", [user, make_message("assistant", "Hmm</think>One"), again]
    )
    yield Probe(
        "a start without an end",
        [user, make_message("assistant", "<think> Hmm"), make_message("user", "Second <think>")],
    )
    yield Probe("reasoning before a call", [user, call, make_tool_result("rain")], tools=[WEATHER])
    yield Probe(
        "reasoning before two calls",
        [user, call, make_tool_result("rain"), call, make_tool_result("sun")],
        tools=[WEATHER],
    )
    yield Probe(
        "a soft switch", [make_message("user", "First /no_think"), make_message("assistant", "One")]
    )


PROBES_BY_TOPIC: dict[str, Callable[[], Iterator[Probe]]] = {
    "turns": probe_turns,
    "contents": probe_contents,
    "calls": probe_calls,
    "reasoning": probe_reasoning,
}
"""The parts of the list, by the words that say what was covered."""
PROBED_WITH_OPTIONS = (
    "system, user, assistant",
    "system and two rounds",
    "a call, its result, an answer",
    "reasoning in two rounds",
    "images",
    "documents",
)


def variations(
    variables: Iterable[str], tokens: Mapping[str, str] = PROBE_TOKENS
) -> Iterator[Probe]:
    """Every conversation, with and without a generation prompt; and a few with each value of each option.

    `tokens` are the texts of the special tokens.
    """
    variables = list(variables)
    read = {name: text for name, text in tokens.items() if name in variables}
    for options, also in (({}, ""), (read, ", special tokens")) if read else (({}, ""),):
        for probe in conversations():
            plain = replace(probe, covers=f"{probe.covers}{also}", options=dict(options))
            yield plain
            yield replace(plain, covers=f"{plain.covers}, opening", add_generation_prompt=True)
    yield Probe("nothing", [], about="turns")
    yield from vary_options(option_names(variables), tokens)


def option_names(variables: Iterable[str]) -> list[str]:
    """The names that are neither the conversation nor a special token."""
    return [
        name for name in variables if name not in STANDARD_VARIABLES and name not in SPECIAL_TOKENS
    ]


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

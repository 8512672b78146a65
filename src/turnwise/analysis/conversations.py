"""Conversations made up to ask a template something.

`conversations()` is a fixed list that covers what chat templates tell apart: who speaks in which order and how long,
what a message is made of, tools and their calls, reasoning, white space, letters of many kinds. `vary_options()` asks
some of them once for every value of every option that a template reads; `wide_conversations.py` has more. Everything is
deterministic. A probe names the part of the list it is from, so that a caller can tell what was covered.
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
FIRST, SECOND, THIRD = (make_message("user", text) for text in ("First", "Second", "Third"))
ONE, TWO, DONE = (make_message("assistant", text) for text in ("One", "Two", "Done."))
RULES, TERMS = make_message("system", "Rules"), make_message("developer", "Terms")
LONG = " ".join(f"Word{number}, and" for number in range(40))
ODD = {"text": 'say "hi" <b>\n', "list": [1, 2.5, None, True], "dict": {"k": "ü"}, "empty": {}}


@cache
def conversations() -> tuple[Probe, ...]:
    """One probe for each thing that templates tell apart."""
    return tuple(
        replace(probe, about=about) for about, part in PROBES_BY_TOPIC.items() for probe in part()
    )


def alternate_turns(count: int) -> list[MessageDict]:
    """So many messages, of users and assistants in turn."""
    return [make_message(("user", "assistant")[i % 2], f"Turn{i}") for i in range(count)]


def probe_turns() -> Iterator[Probe]:
    """Who speaks, in which order."""
    shapes: dict[str, list[MessageDict]] = {
        "a user": [FIRST],
        "a user and an assistant": [FIRST, ONE],
        "system and user": [RULES, FIRST],
        "system, user, assistant": [RULES, FIRST, ONE],
        "two rounds": [FIRST, ONE, SECOND],
        "two rounds, answered": [FIRST, ONE, SECOND, TWO],
        "system and two rounds": [RULES, FIRST, ONE, SECOND],
        "system and three rounds": [RULES, FIRST, ONE, SECOND, TWO, THIRD],
        "four rounds, answered": alternate_turns(8),
        "system and four rounds": [RULES, *alternate_turns(7)],
        "system and four rounds, answered": [RULES, *alternate_turns(8)],
        "only a system": [RULES],
        "only an assistant": [ONE],
        "assistant first": [ONE, FIRST],
        "system, then assistant": [RULES, ONE, FIRST],
        "two users": [FIRST, SECOND],
        "two users in the middle": [FIRST, ONE, SECOND, THIRD, TWO],
        "two assistants": [FIRST, ONE, TWO],
        "two systems": [RULES, make_message("system", "More rules"), FIRST],
        "a system in the middle": [FIRST, RULES, SECOND],
        "a system at the end": [FIRST, ONE, RULES],
        "a developer": [TERMS, FIRST],
        "system and developer": [RULES, TERMS, FIRST, ONE],
        "an unknown role": [FIRST, make_message("wizard", "Hm"), ONE],
        "a name": [
            make_message("user", "First", name="Ada"),
            make_message("assistant", "One", name="Bot"),
        ],
        "an environment": [FIRST, make_message("environment", "Facts"), ONE],
        "many rounds": alternate_turns(9),
        "a system late": [*alternate_turns(6), RULES, *alternate_turns(3)],
        "two users late": [*alternate_turns(7), SECOND, ONE],
    }
    for covers, messages in shapes.items():
        yield Probe(covers, messages)


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
        yield Probe(f"{name} of a user", [make_message("user", text), ONE])
        yield Probe(f"{name} of an assistant", [FIRST, make_message("assistant", text), SECOND])
        yield Probe(f"{name} of a system", [make_message("system", text), FIRST])
    for role in ("user", "assistant", "system"):
        yield Probe(f"null content of {role}", [FIRST, make_message(role, None), SECOND])
        yield Probe(f"no content of {role}", [FIRST, {"role": role}, SECOND])
    parts = [{"type": "text", "text": "Part"}, {"type": "text", "text": "another"}]
    image = [
        {"type": "image"},
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "u"}},
    ]
    in_parts = make_message("user", parts)
    yield Probe("parts", [in_parts, make_message("assistant", parts), in_parts])
    yield Probe("parts of a system", [make_message("system", parts), FIRST])
    audio = [{"type": "audio", "audio_url": "u"}, {"type": "text", "text": "What is said?"}]
    yield Probe("images", [make_message("user", image), ONE])
    yield Probe("audio", [make_message("user", audio), ONE])
    yield Probe("parts that are text", [make_message("user", ["Part", "another"])])
    documents = [{"title": "Rivers", "text": "Glomma"}, {"title": "Hills", "text": "Many", "id": 7}]
    yield Probe("documents", [FIRST], documents=documents)


def probe_calls() -> Iterator[Probe]:
    """Tools, calls and results."""
    call = make_call_message(("weather", OSLO))
    answer = make_message("assistant", "It rains.")
    rain, snow = make_tool_result("rain"), make_tool_result('{"t": -3}', 1)
    both = make_call_message(("weather", OSLO), ("plan", ODD))
    three = make_call_message(("weather", OSLO), ("plan", ODD), ("clock", {}))
    asked: dict[str, list[MessageDict]] = {
        "tools": [FIRST],
        "tools and system": [RULES, FIRST],
        "a call": [FIRST, call],
        "a call with text": [FIRST, make_call_message(("weather", OSLO), content="Let me look.")],
        "a call without content": [FIRST, make_call_message(("weather", OSLO), content=None)],
        "a call and its result": [FIRST, call, rain],
        "a call, its result, an answer": [RULES, FIRST, call, rain, answer],
        "two calls": [FIRST, both],
        "two calls and results": [FIRST, both, rain, snow, DONE],
        "calls one after the other": [
            FIRST,
            call,
            rain,
            make_call_message(("plan", ODD)),
            snow,
            DONE,
        ],
        "a call in an earlier round": [FIRST, call, rain, ONE, SECOND],
        "arguments as text": [FIRST, make_call_message(("weather", '{"city": "Oslo"}')), rain],
        "no arguments": [FIRST, make_call_message(("weather", {})), rain],
        "odd arguments": [FIRST, make_call_message(("plan", ODD))],
        "a call without a wrapper": [
            FIRST,
            {**call, "tool_calls": [{"name": "weather", "arguments": OSLO}]},
        ],
        "a result that is parts": [
            FIRST,
            call,
            make_tool_result([{"type": "text", "text": "rain"}]),
        ],
        "an empty result": [FIRST, call, make_tool_result("")],
        "no calls after all": [FIRST, {"role": "assistant", "content": "One", "tool_calls": []}],
        "null for calls": [FIRST, {"role": "assistant", "content": "One", "tool_calls": None}],
    }
    for covers, messages in asked.items():
        yield Probe(covers, messages, tools=[WEATHER, PLAN])
        if len(messages) > 1:
            yield Probe(f"{covers}, no tools", messages)
    yield Probe(
        "three tools and calls",
        [FIRST, three, rain, snow, make_tool_result("3", 2)],
        tools=[WEATHER, PLAN, CLOCK],
    )
    yield Probe("a late call", [*alternate_turns(7), call, rain, answer], tools=[WEATHER])
    yield Probe("one tool", [FIRST], tools=[WEATHER])
    yield Probe("a bare tool", [FIRST], tools=[BARE])
    yield Probe("no tools after all", [FIRST], tools=[])


def probe_reasoning() -> Iterator[Probe]:
    """Reasoning, in a field of its own or inside the text."""
    thought = make_message("assistant", "One", reasoning_content="Hmm")
    inside = make_message("assistant", "<think>\nHmm\n</think>\n\nOne")
    call = make_call_message(("weather", OSLO), reasoning_content="Hmm")
    yield Probe("reasoning", [FIRST, thought])
    yield Probe("reasoning in an earlier round", [FIRST, thought, SECOND])
    yield Probe(
        "reasoning in two rounds",
        [FIRST, thought, SECOND, make_message("assistant", "Two", reasoning_content="Well")],
    )
    yield Probe("late reasoning", [*alternate_turns(7), thought, SECOND])
    yield Probe("empty reasoning", [FIRST, make_message("assistant", "One", reasoning_content="")])
    yield Probe(
        "reasoning as thinking", [FIRST, make_message("assistant", "One", thinking="Hmm"), SECOND]
    )
    yield Probe("reasoning inside the text", [FIRST, inside])
    yield Probe("reasoning inside an earlier text", [FIRST, inside, SECOND])
    yield Probe(
        "an end without a start", [FIRST, make_message("assistant", "Hmm</think>One"), SECOND]
    )
    yield Probe(
        "a start without an end",
        [FIRST, make_message("assistant", "<think> Hmm"), make_message("user", "Second <think>")],
    )
    yield Probe("reasoning before a call", [FIRST, call, make_tool_result("rain")], tools=[WEATHER])
    yield Probe(
        "reasoning before two calls",
        [FIRST, call, make_tool_result("rain"), call, make_tool_result("sun")],
        tools=[WEATHER],
    )
    yield Probe("a soft switch", [make_message("user", "First /no_think"), ONE])


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

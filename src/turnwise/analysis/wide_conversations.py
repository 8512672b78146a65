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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

from turnwise.analysis.conversations import (
    BARE,
    CLOCK,
    DONE,
    FIRST,
    LATER,
    NOW,
    ODD,
    ONE,
    OSLO,
    PLAN,
    RULES,
    SECOND,
    TERMS,
    WEATHER,
    MessageDict,
    Probe,
    alternate_turns,
    conversations,
    make_call_message,
    make_message,
    make_tool_result,
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
ODD_TEXT = " \n Größe <b>&'\"\\ 漢 \t\n"
EDGES = ("/no_think", "/nothink", "/think")
COMMON_VALUES: tuple[Any, ...] = (
    *(True, False, None, "low", "high", 2, 3),
    *("", "text", 0, [], ["text"], {"key": "text"}),
)


def describe(kind: str, **more: Any) -> dict[str, Any]:
    """A schema with a description that has odd letters and white space."""
    return {"type": kind, "description": f" The {kind}: é \"'<&> \n", **more}


RICH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "All of it.",
    "properties": {
        "query": describe("string", enum=["a", "ü"], default="a", nullable=True),
        "count": describe("integer", minimum=0, maximum=9, default=0),
        "share": describe("number", default=0.5),
        "exact": describe("boolean", default=False),
        "words": describe("array", items=describe("string", enum=["x", "y"]), minItems=1),
        "rows": describe(
            "array", items=describe("object", properties={"n": describe("integer")}, required=["n"])
        ),
        "where": describe(
            "object",
            properties={"deep": describe("object", properties={"deeper": describe("null")})},
            required=["deep"],
            additionalProperties=False,
        ),
        "either": {
            "anyOf": [describe("string"), {"type": "null"}],
            "oneOf": [describe("integer", default=1), {"type": "string", "enum": ["p"]}],
            "description": "One of two.",
        },
        "several": {"type": ["string", "null"], "description": "Or nothing.", "title": "Several"},
        "other": {"$ref": "#/$defs/Other", "description": "Elsewhere."},
        "plain": {"type": "string", "format": "date", "description": ""},
    },
    "required": ["query", "where"],
    "additionalProperties": False,
    "$defs": {"Other": describe("string")},
}
RICH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "find_all",
        "description": ' Find é: "all" <&> \n of it.\n',
        "parameters": RICH_SCHEMA,
        "strict": True,
        "return": describe("string"),
    },
}
DESCRIBED: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "describe",
        "description": "Describe a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": describe("string"), "size": describe("number")},
            "required": ["place"],
        },
    },
}
WITHOUT_PARAMETERS = {"type": "function", "function": {"name": "stop", "description": "Stop."}}
WITHOUT_DESCRIPTION = {
    "type": "function",
    "function": {"name": "go", "parameters": {"type": "object", "properties": {}}},
}
TOOL_LISTS: tuple[list[Any], ...] = (
    [DESCRIBED],
    [RICH],
    [WEATHER, RICH],
    [RICH, DESCRIBED, CLOCK],
    [PLAN],
    [WITHOUT_PARAMETERS, WITHOUT_DESCRIPTION],
    [BARE],
    [],
)
DOCUMENTS: tuple[list[Any], ...] = (
    [{"title": ODD_TEXT, "text": ODD_TEXT}],
    [{"doc_id": 3, "title": "Rivers", "text": "Glomma", "url": "u"}, {"content": "Hills"}],
    [{"title": "Rivers", "contents": "Glomma", "snippet": "S", "score": 0.5, "data": {"a": "é"}}],
    [],
)
ARGUMENTS: tuple[Any, ...] = (
    OSLO,
    ODD,
    {"query": ODD_TEXT, "exact": True, "loose": False, "none": None, "count": 3, "share": 2.5},
    {
        "where": {"deep": {"deeper": [ODD_TEXT, None, True]}},
        "words": ["é", "<"],
        "rows": [{"n": 1}],
    },
    {"empty": "", "zero": 0, "minus": -1, "list": [], "big": 1e30},
    {},
    '{"place": "Ål"}',
)
RESULTS: tuple[Any, ...] = (
    "rain",
    ODD_TEXT,
    '{"t": -3, "é": [1, null]}',
    "",
    {"degrees": -3, "sky": ODD_TEXT, "list": [1, None]},
    {"output": "rain"},
    [{"type": "text", "text": "rain"}, {"type": "text", "text": ODD_TEXT}],
    [{"output": "rain"}, {"output": ODD_TEXT, "type": "output"}],
    [{"type": "image"}, {"type": "text", "text": "rain"}],
    ["rain", "sun"],
    None,
)
PARTS: tuple[list[Any], ...] = (
    [{"type": "text", "text": ODD_TEXT}, {"type": "text", "text": "another"}],
    [{"type": "image"}, {"type": "text", "text": " What? "}, {"type": "image"}],
    [{"type": "image_url", "image_url": {"url": "u"}}, {"type": "input_image", "image": "i"}],
    [{"type": "video"}, {"type": "text", "text": "What?"}, {"type": "video", "video": "v"}],
    [{"type": "audio", "audio": "a"}, {"type": "input_audio"}, {"type": "text", "text": "Hear"}],
    [{"type": "audio_url", "audio_url": "a"}, {"type": "video_url", "video_url": "v"}],
    [{"type": "content", "content": "inner"}, {"content": "untyped"}, {"text": "untyped"}],
    [{"image": "i"}, {"video": "v"}, {"audio": "a"}, {"image_url": "u"}],
    [{"type": "thinking", "thinking": ODD_TEXT, "closed": True}, {"type": "text", "text": "Said"}],
    [{"type": "document", "text": "D"}, {"type": "tool_reference", "tool_name": "x"}],
    [{"type": "reasoning", "reasoning": "R", "text": "T"}, {"type": "text", "text": ""}],
    [],
)
TEXTS: tuple[str, ...] = (
    "Plain",
    ODD_TEXT,
    "",
    "\n",
    "word " * 130,
    "line é\n" * 400,
    "x" * 5_001,
    "A</think>B</think>C",
    "<think>A</think>\n\nB<think>C</think>D",
    "<think>\n\n</think>\n\nB",
    "\n<think>\nA\n</think>\n",
    "<think>A",
    "A<tool_call>B</tool_call>C",
    '{"name": "weather", "arguments": {"city": "Oslo"}}',
    "<|im_start|>A<|im_end|><|end|>",
    *(f"Say it {edge}" for edge in EDGES),
    *(f"{edge} say it" for edge in EDGES),
)
REASONS: tuple[str, ...] = ("Hmm", ODD_TEXT, "\nHmm\n\nwell\n", "", "A</think>B", "é" * 700)
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
        yield Probe(f"on {day:%Y-%m-%d}", [FIRST], now=day, about=RARE)
        yield Probe(f"on {day:%Y-%m-%d}, rules", [RULES, FIRST], [DESCRIBED], now=day, about=RARE)
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
    parts: tuple[Callable[[], Iterator[Probe]], ...] = (
        _probe_tools,
        _probe_results,
        _probe_parts,
        _probe_lengths,
        _probe_reasoning_and_calls,
    )
    return tuple(replace(probe, about=RARE) for part in parts for probe in part())


def _probe_tools() -> Iterator[Probe]:
    call = make_call_message(("describe", {"place": "Ål"}))
    for number, tools in enumerate(TOOL_LISTS):
        for name, messages in {
            "a user": [FIRST],
            "a system": [RULES, FIRST],
            "a developer": [TERMS, FIRST],
            "both": [RULES, TERMS, FIRST],
            "a call": [RULES, FIRST, call, make_tool_result("rain"), DONE],
        }.items():
            yield Probe(f"tools {number} and {name}", messages, tools=tools)
    for number, documents in enumerate(DOCUMENTS):
        yield Probe(f"documents {number}", [RULES, FIRST, ONE], documents=documents)
        yield Probe(
            f"documents {number}, tools, a developer",
            [TERMS, FIRST],
            tools=[DESCRIBED],
            documents=documents,
        )
    for number, arguments in enumerate(ARGUMENTS):
        asked = [FIRST, make_call_message(("describe", arguments), ("find_all", arguments))]
        yield Probe(f"arguments {number}", asked, tools=[DESCRIBED, RICH])


def _probe_results() -> Iterator[Probe]:
    call = make_call_message(("describe", OSLO))
    both = make_call_message(("describe", OSLO), ("find_all", {"query": "x"}))
    for number, result in enumerate(RESULTS):
        told = make_tool_result(result, name="describe")
        yield Probe(f"result {number}", [RULES, FIRST, call, told], tools=[DESCRIBED])
        yield Probe(
            f"result {number} and another",
            [FIRST, both, told, make_tool_result(result, 1, "find_all"), DONE, SECOND],
            tools=[DESCRIBED, RICH],
        )
    rain = make_tool_result("rain")
    yield Probe("a result first", [rain, FIRST])
    yield Probe("a result first, tools", [rain, FIRST, ONE], tools=[DESCRIBED])
    yield Probe("a result without a call", [FIRST, rain], tools=[DESCRIBED])
    yield Probe("results in another order", [FIRST, both, make_tool_result("2", 1), rain])
    yield Probe("a bare result", [FIRST, call, {"role": "tool", "content": "rain"}])


def _probe_parts() -> Iterator[Probe]:
    for number, parts in enumerate(PARTS):
        for role in (*KNOWN_ROLES, "tool"):
            said = make_message(role, parts)
            yield Probe(f"parts {number} of {role}", [FIRST, ONE, said])
        yield Probe(f"parts {number} first", [make_message("user", parts), ONE])
        yield Probe(f"parts {number} after rules", [RULES, make_message("user", parts)])
        call = make_call_message(("describe", OSLO), content=parts)
        yield Probe(f"parts {number} and a call", [FIRST, call, make_tool_result("rain"), SECOND])


def _probe_lengths() -> Iterator[Probe]:
    for role in (*KNOWN_ROLES, "tool"):
        yield Probe(f"no content of {role} at first", [{"role": role}, FIRST])
        yield Probe(f"only no content of {role}", [{"role": role}])
    for count in (10, 11, 16, 20, 21, 24, 33):
        yield Probe(f"{count} messages", alternate_turns(count))
        yield Probe(f"{count} messages and rules", [RULES, *alternate_turns(count)])
    for number, text in enumerate(TEXTS):
        for role in KNOWN_ROLES:
            said = make_message(role, text)
            yield Probe(f"text {number} of {role}", [said, FIRST])
        reply = make_message("assistant", text)
        yield Probe(f"text {number} of a reply", [FIRST, reply, SECOND, DONE])
        yield Probe(f"text {number} asked", [RULES, ONE, make_message("user", text)])
        yield Probe(
            f"text {number} after a result",
            [FIRST, make_call_message(("describe", OSLO)), make_tool_result("rain"), reply],
        )


def _probe_reasoning_and_calls() -> Iterator[Probe]:
    rain = make_tool_result("rain")
    for number, reason in enumerate(REASONS):
        for field in REASONING_FIELDS:
            whole = make_call_message(
                ("describe", OSLO), ("clock", {}), content="Let me look.", **{field: reason}
            )
            said = make_message("assistant", " One ", **{field: reason})
            covers = f"{field} {number}"
            yield Probe(f"{covers} and calls", [FIRST, whole, rain], tools=[DESCRIBED])
            yield Probe(f"{covers} and calls, over", [RULES, FIRST, whole, rain, said, SECOND])
            yield Probe(f"{covers} at the end", [FIRST, ONE, SECOND, said])
    planned = make_call_message(("describe", OSLO), tool_plan="Plan: é \n", content="")
    yield Probe("a plan", [FIRST, planned, rain, {**ONE, "citations": [{"start": 0}]}])
    yield Probe("a plan and tools", [FIRST, planned, rain, DONE], tools=[DESCRIBED])
    many = [message for n in range(4) for message in (planned, make_tool_result(f"r{n}", n))]
    yield Probe("many calls in turn", [RULES, FIRST, *many, DONE], tools=[DESCRIBED, CLOCK])


def ask_roles(constants: Sequence[TemplateConstants]) -> Iterator[Probe]:
    """Each role that a template compares with, and those of other templates, in several places."""
    named = [role for found in constants for role in found.constants_of("role")]
    names = dict.fromkeys((*ROLES, *(role for role in named if isinstance(role, str))))
    call = make_call_message(("describe", OSLO))
    for role in names:
        if role in KNOWN_ROLES:
            continue
        said = make_message(role, " Hm ", name="describe", tool_call_id="call00000")
        for place, messages in {
            "first": [said, FIRST],
            "after rules": [RULES, said, FIRST, ONE],
            "in the middle": [FIRST, said, ONE, SECOND],
            "after a call": [FIRST, call, said],
            "twice after a call": [FIRST, call, said, said, DONE],
        }.items():
            yield Probe(f"{role} {place}", messages, about=RARE)
        yield Probe(f"{role}, tools", [RULES, said, FIRST, call, said], [DESCRIBED], about=RARE)


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
    call = make_call_message(("describe", OSLO), reasoning_content=" Hmm ", content="Look.")
    answer = make_message("assistant", "One", reasoning_content="Hmm")
    image = make_message("user", PARTS[1])
    asked = (
        Probe("system, user, assistant", [RULES, FIRST, answer]),
        Probe("two rounds", [FIRST, answer, SECOND], add_generation_prompt=True),
        Probe("a call", [FIRST, call, make_tool_result("rain")], [RICH, DESCRIBED]),
        Probe("tools and rules", [RULES, FIRST], [DESCRIBED], None, True),
        Probe("no tools after all", [FIRST], [], None, True),
        Probe("images and documents", [image, ONE], None, DOCUMENTS[0], True),
    )
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
            dice.choice(TOOL_LISTS) if dice.random() < 0.5 else None,
            dice.choice(DOCUMENTS) if dice.random() < 0.15 else None,
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
                (dice.choice(("describe", "find_all")), dice.choice(ARGUMENTS))
                for _ in range(count)
            ]
            said = self._say("assistant")
            messages.append({**make_call_message(*calls), **said})
            results = dice.choice((0, count, count))
            messages += [
                make_tool_result(dice.choice(RESULTS), n, calls[n][0]) for n in range(results)
            ]
        if dice.random() < 0.75:
            messages.append(self._say("assistant"))
        return messages

    def _say(self, role: str) -> MessageDict:
        dice = self.dice
        content: Any = dice.choice(TEXTS[:4]) if dice.random() < 0.7 else dice.choice(TEXTS)
        if dice.random() < 0.15:
            content = dice.choice(PARTS)
        message = make_message(role, content)
        if role == "assistant" and dice.random() < 0.4:
            message[dice.choice(REASONING_FIELDS)] = dice.choice(REASONS)
        if dice.random() < 0.05:
            message["name"] = dice.choice(("Ada", "describe"))
        return message

"""What a request asks beside its conversation, in the words of one template.

A request says how much to think, whether to call a tool and whether to answer in JSON. Templates have variables for
some of it, under many names: `enable_thinking`, `thinking`, `thinking_mode`, `reasoning_effort`. Which of them a
template reads is known; what they do is found by rendering a prompt with and without them:

    reasoning="none"          {"enable_thinking": False}            Qwen3
    reasoning="high"          {"reasoning_effort": "high"}          gpt-oss
    tool_choice="required"    {"tool_choice": "required"}           Kimi K3, which writes it

A variable is set only if the prompt with it is another one than with some other value. What no variable expresses is a
sentence for the caller.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from turnwise.analysis.conversations import NOW, STANDARD_VARIABLES, make_message, make_tool
from turnwise.engine.option_names import REQUEST_FACTS
from turnwise.engine.renderer import Renderer
from turnwise.errors import MessageError, TurnwiseError, short_repr
from turnwise.messages import JsonMapping, JsonObject

REASONING, *WRITTEN_FACTS = REQUEST_FACTS
LEVELS: tuple[str, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SWITCHES = ("enable_thinking", "thinking", "enable_reasoning", "reasoning", "think", "use_thinking")
MODES = (
    ("thinking_mode", "thinking", "chat"),
    ("thinking_mode", "enabled", "disabled"),
    ("reasoning_mode", "on", "off"),
)
EFFORTS = ("reasoning_effort", "thinking_effort", "effort", "reasoning_level")
USUAL: Mapping[str, tuple[Any, ...]] = {
    "tool_choice": (None, "auto"),
    "parallel_tool_calls": (None, True),
    "response_format": (None, "text", {"type": "text"}),
}
"""What asks for nothing."""
MAX_REMEMBERED = 64  # values of one template


class TranslatedRequest(NamedTuple):
    """What a request asks, for one template.

    Attributes:
        options: the variables to set.
        problems: what they do not express, as sentences.
    """

    options: JsonObject
    problems: tuple[str, ...] = ()


class RequestFacts:
    """Translates requests to the variables of one template.

    Args:
        renderer: the template.
    """

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._variables = frozenset(renderer.variables) - set(STANDARD_VARIABLES)
        self._prompts: dict[str, str | None] = {}

    def translate(self, asked: JsonMapping, given: JsonMapping | None = None) -> TranslatedRequest:
        """Return the variables that express what a request asks.

        Args:
            asked: values by the names of `REQUEST_FACTS`.
            given: variables that are set besides.

        Raises:
            MessageError: there is no such level of reasoning.
        """
        read = {name: value for name, value in (given or {}).items() if name in self._variables}
        options: JsonObject = {}
        problems: list[str] = []
        level = asked.get(REASONING)
        if level is not None:
            found = self._translate_reasoning(level)
            options |= found.options
            problems += found.problems
        for name in WRITTEN_FACTS:
            value = asked.get(name)
            if value is None or value in USUAL[name]:
                continue
            if name in self._variables:
                options[name] = value
            others = {**options, **read}
            if name not in options or not self._differ(
                {**others, name: value}, {**others, name: None}
            ):
                problems.append(
                    f"the template does not write {name}={short_repr(value, 80)}; a grammar may enforce it"
                )
        return TranslatedRequest(options, tuple(problems))

    def _translate_reasoning(self, asked: Any) -> TranslatedRequest:
        if isinstance(asked, bool):
            asked = True if asked else "none"
        elif asked not in LEVELS:
            hint = f"It is True, False or one of {', '.join(LEVELS)}."
            raise MessageError(f"there is no level {short_repr(asked)}", path=REASONING, hint=hint)
        options = {
            name: value
            for name, value, other in self._list_switches(asked != "none")
            if self._differ({name: value}, {name: other})
        }
        efforts = {} if asked is True else self._find_efforts(asked, options)
        found = {**options, **efforts}
        return TranslatedRequest(found, tuple(self._describe_limits(asked, found, efforts)))

    def _describe_limits(
        self, asked: Any, found: JsonMapping, efforts: JsonMapping
    ) -> Iterator[str]:
        """Yield what the variables for a level do not express."""
        thinks = asked != "none"
        used = next(iter(efforts.values()), asked)
        if not found:
            if thinks or self._mentions_reasoning():
                yield f"the template has no option for reasoning={asked!r}"
        elif asked is True or used is True:
            return
        elif used != asked:
            yield f"the template has no level {asked!r}: {used!r} is used"
        elif not thinks:
            return
        elif not efforts:
            yield f"the template turns reasoning on or off and has no levels: {asked!r} is on"
        elif not self._matters(found) and not self._names(asked):
            yield f"the template has no level {asked!r}, and writes what it writes without one"

    def _list_switches(self, thinks: bool) -> Iterator[tuple[str, Any, Any]]:
        """Yield the variables that turn reasoning on or off, each with its value and the opposite."""
        for name, on, off in (*((name, True, False) for name in SWITCHES), *MODES):
            if name in self._variables:
                yield (name, on, off) if thinks else (name, off, on)

    def _find_efforts(self, asked: str, switches: JsonMapping) -> JsonObject:
        """Return the variables for a level; the next level that the template accepts, if not this one."""
        found: JsonObject = {}
        flag = f"{asked}_effort"  # as Nemotron 3 has them
        if flag in self._variables and self._matters({**switches, flag: True}):
            return {flag: True}
        place = LEVELS.index(asked)
        # The next higher level first: who asks for some thinking gets no less. None at all is another prompt than much.
        near, compared = LEVELS[place:] + LEVELS[1:place][::-1], LEVELS
        if not place:
            near, compared = LEVELS[:3], ("high",)
        for name in EFFORTS:
            if name not in self._variables:
                continue
            for level in near:
                others = ({**switches, name: other} for other in compared)
                if any(self._differ({**switches, name: level}, other) for other in others):
                    found[name] = level
                    break
        return found

    def _names(self, level: str) -> bool:
        """Return whether the template compares something with a level, or has it as a default."""
        return f"'{level}'" in self._renderer.text or f'"{level}"' in self._renderer.text

    def _mentions_reasoning(self) -> bool:
        text = self._renderer.text.lower()
        return "think" in text or "reason" in text

    def _matters(self, options: JsonMapping) -> bool:
        return self._differ(options, {})

    def _differ(self, options: JsonMapping, others: JsonMapping) -> bool:
        """Return whether some prompt is accepted with the first options, and another one than with the others."""
        return any(
            one is not None and one != other
            for one, other in zip(self._write(options), self._write(others), strict=True)
        )

    def _write(self, options: JsonMapping) -> Iterator[str | None]:
        """Yield the prompts of some conversations; None for one that is refused."""
        tools = [make_tool("find", text={"type": "string"})]
        question = make_message("user", "Ask")
        answered = make_message("assistant", "Answer", reasoning_content="Thought")
        for messages in ([question], [question, answered, question]):
            for offered in (None, tools):
                key = json.dumps([len(messages), offered is None, options], default=repr)
                if key not in self._prompts:
                    if len(self._prompts) >= MAX_REMEMBERED * len(LEVELS):
                        self._prompts.clear()
                    self._prompts[key] = self._render(messages, offered, options)
                yield self._prompts[key]

    def _render(self, messages: Any, tools: Any, options: JsonMapping) -> str | None:
        try:
            return self._renderer.render(
                messages, tools=tools, add_generation_prompt=True, now=NOW, **options
            ).text
        except TurnwiseError:
            return None

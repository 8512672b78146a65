"""What the plug-ins for servers share: the template of a tokenizer, and a reply that is read in two halves.

A server asks for the reasoning of a reply and for its calls separately, in this order:

    reply      <think>\\nA\\n</think>\\n\\nOne.<tool_call>...
    reasoning  "A", and the rest as it was written: "One.<tool_call>..."      `reasoning_parser`
    calls      content "One.", and the calls                                  `call_parser`

Each half is read by a parser of the same template, which leaves the other half alone. So either can be combined with a
parser of the server's own, and both together give the message that `Template.parse` gives.

Nothing here raises in a request: what cannot be done is logged, and the text is content.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any

from turnwise import load
from turnwise.errors import TurnwiseError
from turnwise.integrations.tokenizer_template import template_of
from turnwise.messages import JsonMapping, JsonObject
from turnwise.replies.call_ids import IdMaker
from turnwise.replies.declared import merge_declaration
from turnwise.replies.events import REASONING, TEXT, Event
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.message_builder import ReasoningState
from turnwise.replies.parser.parser import Parser
from turnwise.template import Template

__all__ = [
    "TEMPLATE_VARIABLE",
    "ServedTemplate",
    "find_template",
    "join_texts",
    "load_named",
    "to_tool_dicts",
]

logger = logging.getLogger(__name__)

TEMPLATE_VARIABLE = "TURNWISE_TEMPLATE"
"""The environment variable with the name, path or folder of a template that is used in place of the tokenizer's."""

MAX_TEMPLATES = 16  # of one process; a server has one model
FREE_ARGUMENTS = {"type": "object"}
ANY_QUESTION = [{"role": "user", "content": "Hi"}]


class ServedTemplate:
    """A template as a server needs it: parsers of both halves of a reply, and constraints."""

    def __init__(self, template: Template) -> None:
        self.template = template
        grammar = template.grammar
        region = grammar.reasoning
        self.has_reasoning = region is not None
        # The texts that open and close reasoning; empty where there are none.
        self.markers = ("", "") if region is None else (region.open.core, region.close.core)
        self.has_calls = grammar.calls is not None or bool(grammar.more)
        self._without_calls = _leave_out(grammar, "calls") if self.has_calls else grammar
        self._without_reasoning = (
            _leave_out(grammar, "reasoning") if self.has_reasoning else grammar
        )
        self._plain = _leave_out(grammar, "calls", "reasoning")

    def reasoning_parser(self, prompt: Any = None, is_open: bool = False) -> Parser:
        """Return a parser of reasoning; calls are a part of its content, as they were written.

        Args:
            prompt: what was sent; by default the template's usual generation prompt.
            is_open: the prompt opens reasoning, as the server knows.
        """
        reasoning: ReasoningState = "assume" if is_open and self.has_reasoning else "auto"
        return Parser(self._without_calls, prompt, reasoning=reasoning)

    def call_parser(
        self, tools: Any = None, call_ids: IdMaker | None = None, *, has_calls: bool = True
    ) -> Parser:
        """Return a parser of what follows the reasoning.

        Args:
            tools: the tools of the request; if they are not valid, arguments have the types that they look like.
            call_ids: makes the ids of calls.
            has_calls: False leaves calls in the content, for requests that forbid them.
        """
        grammar = self._without_reasoning if has_calls else self._plain
        try:
            return Parser(grammar, "", tools, call_ids=call_ids)
        except TurnwiseError as error:
            logger.warning("the tools of a request are not used: %s", error)
            return Parser(grammar, "", call_ids=call_ids)

    def generation_prompt(self, options: JsonMapping | None = None) -> str:
        """Return the end of a prompt with these options of the template, up to which the reply is not written."""
        if not options:
            return self.template.grammar.opening
        try:
            known = {name: options[name] for name in options if name in self.template.variables}
            rendering = self.template.render(ANY_QUESTION, add_generation_prompt=True, **known)
        except TurnwiseError as error:
            logger.warning("%s: options of a request are not used: %s", self.template.name, error)
            return self.template.grammar.opening
        return rendering.text

    def constrain(self, tools: Any, choice: str, parallel: bool, loose: Collection[Any]) -> Any:
        """Return xgrammar's constraint of what follows the reasoning; None if there is none.

        Args:
            tools: the tools of a request.
            choice: "auto", "required", or the name of a tool.
            parallel: allow several calls.
            loose: a tool whose `strict` is one of these has arguments of any kind.
        """
        plain = []
        for tool in to_tool_dicts(tools):
            function = {key: value for key, value in tool["function"].items() if key != "strict"}
            if tool["function"].get("strict") in loose:
                function["parameters"] = FREE_ARGUMENTS
            plain.append({"type": "function", "function": function})
        tag = self.structural_tag(plain, choice, parallel)
        return None if tag is None else import_module("xgrammar").StructuralTag.model_validate(tag)

    def structural_tag(
        self, tools: Sequence[JsonObject], choice: str, parallel: bool = True
    ) -> JsonObject | None:
        """Return the constraint of what follows the reasoning; None, and a line in the log, if there is none.

        Arguments of a tool whose schema a grammar cannot follow are any object.
        """
        try:
            return self._write_tag(tools, choice, parallel)
        except TurnwiseError:
            pass  # now each tool is tried alone: which of them is it?
        try:
            return self._write_tag([self._loosen(tool) for tool in tools], choice, parallel)
        except TurnwiseError as error:
            logger.warning("%s: calls are not constrained: %s", self.template.name, error)
            return None

    def _loosen(self, tool: JsonObject) -> JsonObject:
        try:
            self._write_tag([tool], "auto", True)
        except TurnwiseError as error:
            logger.warning("%s: arguments are not constrained: %s", self.template.name, error)
            function = {**tool["function"], "parameters": FREE_ARGUMENTS}
            return {**tool, "function": function}
        return tool

    def _write_tag(self, tools: Any, choice: str, parallel: bool) -> JsonObject:
        grammar = self.template.grammar
        return grammar.to_structural_tag(tools, choice, reasoning=False, parallel=parallel)


def join_texts(events: Sequence[Event]) -> dict[str, str]:
    """Return what the content and the reasoning of a reply got by some events, by the kinds of the events."""
    return {
        kind: "".join(event.text for event in events if event.kind == kind)
        for kind in (TEXT, REASONING)
    }


def find_template(tokenizer: Any) -> ServedTemplate:
    """Return the template of a tokenizer, or the one that `TURNWISE_TEMPLATE` names.

    Raises:
        TurnwiseError: there is none, or it cannot be compiled. A server asks when it starts.
    """
    named = os.environ.get(TEMPLATE_VARIABLE)
    return _serve(load_named(named) if named else template_of(tokenizer))


@lru_cache(maxsize=MAX_TEMPLATES)
def _serve(template: Template) -> ServedTemplate:
    served = ServedTemplate(template)
    if not served.has_calls:
        logger.warning("%s shows no tool calls: replies have none", template.name)
    return served


@lru_cache(maxsize=MAX_TEMPLATES)
def load_named(place: str) -> Template:
    """Return a template by its name, file or folder."""
    return load(place)


def to_tool_dicts(tools: Any) -> list[JsonObject]:
    """Return functions as mappings in OpenAI's shape; those of the Responses interface have no inner `function`.

    What is no function is left out: a server's own tools (`{"type": "web_search"}`), and what is no tool.
    """
    found = []
    for tool in tools or ():
        plain = tool.model_dump(exclude_none=True) if hasattr(tool, "model_dump") else tool
        if isinstance(plain, dict) and isinstance(plain.get("name"), str):
            plain = {"type": "function", "function": plain}
        if isinstance(plain, dict) and isinstance(plain.get("function"), dict):
            found.append(plain)
    return found


def _leave_out(grammar: Grammar, *parts: str) -> Grammar:
    """Return a grammar that takes these parts for content."""
    return merge_declaration(grammar, {"without": list(parts)}, "serving")

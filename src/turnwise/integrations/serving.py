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
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise import load
from turnwise.compat.transformers import TEMPLATES
from turnwise.errors import TurnwiseError
from turnwise.replies.call_ids import IdMaker
from turnwise.replies.declared import merge_declaration
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.parser import Parser
from turnwise.template import Template
from turnwise.tokens.loss import train_nothing
from turnwise.tokens.tokenizers import tokenizer as known_tokenizer

__all__ = ["TEMPLATE_VARIABLE", "ServedChat", "ServedTemplate", "find_template", "to_tool_dicts"]

logger = logging.getLogger(__name__)

TEMPLATE_VARIABLE = "TURNWISE_TEMPLATE"
"""The environment variable with the name, path or folder of a template that is used in place of the tokenizer's."""

MAX_TEMPLATES = (
    16  # of one process; a server has one model, and requests may not bring templates here
)
FREE_ARGUMENTS = {"type": "object"}
ANY_QUESTION = [{"role": "user", "content": "Hi"}]

_templates: dict[Any, ServedTemplate] = {}


class ServedTemplate:
    """A template as a server needs it: parsers of both halves of a reply, and constraints."""

    def __init__(self, template: Template) -> None:
        self.template = template
        grammar = template.grammar
        self.has_reasoning = grammar.reasoning is not None
        self.has_calls = grammar.calls is not None or bool(grammar.more)
        self._without_calls = _leave_out(grammar, "calls") if self.has_calls else grammar
        self._without_reasoning = (
            _leave_out(grammar, "reasoning") if self.has_reasoning else grammar
        )
        self._plain = _leave_out(grammar, "calls", "reasoning")

    def reasoning_parser(self, prompt: Any = None) -> Parser:
        """Return a parser of reasoning; calls are a part of its content, as they were written."""
        return Parser(self._without_calls, prompt)

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

    def generation_prompt(self, options: Mapping[str, Any] | None = None) -> str:
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

    def structural_tag(
        self, tools: Sequence[dict[str, Any]], choice: str, parallel: bool = True
    ) -> dict[str, Any] | None:
        """Return the constraint of what follows the reasoning; None, and a line in the log, if there is none.

        Arguments of a tool whose schema a grammar cannot follow are any object.
        """
        try:
            tools = [self._loosen(tool) for tool in tools]
            return self._write_tag(tools, choice, parallel)
        except TurnwiseError as error:
            logger.warning("%s: calls are not constrained: %s", self.template.name, error)
            return None

    def _loosen(self, tool: dict[str, Any]) -> dict[str, Any]:
        try:
            self._write_tag([tool], "auto", True)
        except TurnwiseError as error:
            logger.warning("%s: arguments are not constrained: %s", self.template.name, error)
            function = {**tool.get("function", {}), "parameters": FREE_ARGUMENTS}
            return {**tool, "function": function}
        return tool

    def _write_tag(self, tools: Any, choice: str, parallel: bool) -> dict[str, Any]:
        grammar = self.template.grammar
        return grammar.to_structural_tag(tools, choice, reasoning=False, parallel=parallel)


class ServedChat:
    """A tokenizer whose `apply_chat_template` is turnwise's: conversations are normalised, and control tokens safe.

    Args:
        tokenizer: a tokenizer of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._given = tokenizer
        self._tokenizer = known_tokenizer(tokenizer)

    def apply_chat_template(
        self,
        conversation: Any,
        tools: list[Any] | None = None,
        documents: list[Any] | None = None,
        chat_template: Any = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        return_dict: bool = False,
        **options: Any,
    ) -> Any:
        """Return the ids of a conversation, or its text.

        Options that neither the template nor turnwise reads are left out, as transformers leaves them out.

        Raises:
            TurnwiseError: the template cannot take the conversation. Servers answer such a request with the message.
        """
        template = find_template(self._given).template
        if isinstance(chat_template, str) and chat_template != template.text:
            template = TEMPLATES.get(chat_template)
        arguments = {name: options[name] for name in options if name in template.variables}
        arguments |= {"tools": tools, "documents": documents}
        arguments |= {"add_generation_prompt": add_generation_prompt}
        arguments |= {"continue_final_message": continue_final_message}
        if not tokenize:
            return template.render(conversation, **self._special_tokens(template), **arguments).text
        encoded = template.encode(
            conversation, self._tokenizer, train_nothing, add_stop=False, **arguments
        )
        return {"input_ids": encoded.input_ids} if return_dict else encoded.input_ids

    def _special_tokens(self, template: Template) -> dict[str, Any]:
        named = self._tokenizer.named
        return {name: text for name, text in named.items() if name in template.variables}


def find_template(tokenizer: Any) -> ServedTemplate:
    """Return the template of a tokenizer, or the one that `TURNWISE_TEMPLATE` names.

    Raises:
        TurnwiseError: there is none, or it cannot be compiled. A server asks when it starts.
    """
    named = os.environ.get(TEMPLATE_VARIABLE, "")
    source = getattr(tokenizer, "chat_template", None)
    special = getattr(tokenizer, "special_tokens_map", None)
    key = named or (repr(source) if isinstance(source, Mapping) else source, repr(special))
    found = _templates.get(key)
    if found is None:
        if len(_templates) >= MAX_TEMPLATES:
            _templates.clear()
        found = _templates[key] = ServedTemplate(load(named or tokenizer))
        if not found.has_calls:
            logger.warning("%s shows no tool calls: replies have none", found.template.name)
    return found


def to_tool_dicts(tools: Any) -> list[dict[str, Any]]:
    """Return tools as mappings in OpenAI's shape; those of the Responses interface have no inner `function`."""
    found = []
    for tool in tools or ():
        plain = tool.model_dump(exclude_none=True) if hasattr(tool, "model_dump") else tool
        if isinstance(plain, dict) and isinstance(plain.get("name"), str):
            plain = {"type": "function", "function": plain}
        if isinstance(plain, dict):
            found.append(plain)
    return found


def _leave_out(grammar: Grammar, *parts: str) -> Grammar:
    """Return a grammar that takes these parts for content."""
    return merge_declaration(grammar, {"without": list(parts)}, "serving")

"""Subject: the template under check, with the conversations that checks are made of.

A check asks two questions: what does the template do with a plain form of a conversation, and what with the form that
people send? Only where the first works is the second a finding. So the subject knows the plain forms that its template
takes (text or parts, arguments as a mapping or as JSON text, a system message first), found by the same probes as
everywhere else, and makes conversations of them.

All renderings of all checks share one allowance, so that a template which means harm costs no more than a few whole
renderings; outcomes are kept, since several checks ask for the same conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from jinja2 import nodes

from turnwise.analysis.conversations import (
    PROBE_TOKENS,
    STANDARD_VARIABLES,
    MessageDict,
    Probe,
    make_message,
    make_tool,
)
from turnwise.analysis.counterexample import RenderOutcome, shrink, try_render
from turnwise.analysis.losses import find_losses
from turnwise.analysis.prober import ABSENT
from turnwise.engine.compiler.syntax import parse
from turnwise.engine.option_names import SPECIAL_TOKENS
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.functions import FUNCTIONS
from turnwise.engine.runtime.limits import Allowance
from turnwise.errors import TemplateRaised, TurnwiseError
from turnwise.evidence.checks.places import PlaceFinder
from turnwise.messages import InputReader
from turnwise.replies.input_format import InputFormat, detect_input_format
from turnwise.template import Template
from turnwise.tokens.tokenizers.protocol import Tokenizer

CHECKING = 12  # times the budgets of one rendering, for all conversations of all checks
KIND = "same"  # what `shrink` compares

# Words that no template has, as people could have written them.
RULES, MORE_RULES = "Answer briefly.", "Use metric units."
ASKED, ASKED_AGAIN = "Tide at Brest?", "And at Calais?"
SAID, SAID_NEXT = "High water at noon.", "An hour later."
THOUGHT = "Let me look at the table."
FOUND, FOUND_NEXT = "7.1 metres", "6.8 metres"
ARGUMENTS: tuple[dict[str, Any], ...] = ({"harbour": "Brest"}, {"harbour": "Calais"})
CALL_IDS = ("call00001", "call00002")  # nine letters and digits, as some templates demand
TOOL_NAME = "tide"
TOOLS = [make_tool(TOOL_NAME, harbour={"type": "string", "description": "The harbour"})]


class Subject:
    """A template under check.

    Args:
        template: the template.
        tokenizer: the tokenizer that it is used with, for the checks that need one.
        reference: another template that it should write the same as.
        response_template: what the model's files say about replies.
    """

    def __init__(
        self,
        template: Template,
        tokenizer: Tokenizer | None = None,
        reference: Template | None = None,
        response_template: Mapping[str, Any] | None = None,
    ) -> None:
        self.template = template
        self.facts = template.facts
        self.tokenizer = tokenizer
        self.reference = reference
        self.response_template = response_template
        full = template.renderer
        self._allowance = Allowance(full.limits, CHECKING)
        self.renderer: Renderer = full.with_reduced_limits().with_allowance(self._allowance)
        self._outcomes: dict[str, RenderOutcome] = {}

    @cached_property
    def input_format(self) -> InputFormat:
        """The form in which the template takes assistant messages."""
        return detect_input_format(self.facts)

    @cached_property
    def tokens(self) -> dict[str, str]:
        """The special tokens that the template reads and has no text for: the tokenizer's, else made-up ones."""
        own = self.renderer.options
        named = self.tokenizer.named if self.tokenizer is not None else {}
        names = [name for name in self.renderer.variables if name in SPECIAL_TOKENS]
        return {name: named.get(name) or PROBE_TOKENS[name] for name in names if not own.get(name)}

    @cached_property
    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = dict(self.tokens)
        if self.facts.prober.settings.fill_variables:
            known = {*STANDARD_VARIABLES, *FUNCTIONS, *options, *self.renderer.options}
            options |= {name: "" for name in self.renderer.variables if name not in known}
        return options

    # Messages

    def as_content(self, text: str) -> Any:
        """Return a text as the template takes content."""
        return self.facts.prober.as_content(text)

    def system(self, text: str = RULES) -> MessageDict:
        """Return a system message."""
        return make_message("system", self.as_content(text))

    def user(self, text: str = ASKED) -> MessageDict:
        """Return a user message."""
        return make_message("user", self.as_content(text))

    def reply(self, text: str = SAID, **more: Any) -> MessageDict:
        """Return an assistant message with content."""
        return make_message("assistant", self.as_content(text), **more)

    def call(
        self, *arguments: Any, content: Any = None, as_text: bool | None = None
    ) -> MessageDict:
        """Return an assistant message that calls the tool once for each of the arguments, in the template's form.

        Args:
            arguments: those of each call; one call without any given.
            content: the text beside the calls; the template's own form of no text, if None.
            as_text: whether arguments are JSON text; as the template takes them, if None.
        """
        shape = self.input_format.shape
        value = shape.content if content is None else content
        message: MessageDict = {"role": "assistant"}
        if value is not ABSENT:
            message["content"] = value
        as_text = shape.as_text if as_text is None else as_text
        calls: list[dict[str, Any]] = []
        for id, given in zip(CALL_IDS, arguments or ARGUMENTS[:1], strict=False):
            text = json.dumps(given) if as_text and not isinstance(given, str) else given
            function = {"name": TOOL_NAME, "arguments": text}
            if shape.single:
                return {**message, "function_call": function}
            wrapped = function if shape.bare else {"type": "function", "function": function}
            calls.append({"id": id, **wrapped})
        return {**message, "tool_calls": calls}

    def result(self, text: str = FOUND, number: int = 0) -> MessageDict:
        """Return the result of a call."""
        names = {"name": TOOL_NAME, "tool_call_id": CALL_IDS[number]}
        return {"role": "tool", "content": self.as_content(text), **names}

    # Conversations

    def chat(
        self,
        *messages: MessageDict,
        tools: Sequence[Any] | None = None,
        prompt: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> Probe:
        """Return a conversation, behind the messages that the template wants first."""
        roles = [message.get("role") for message in messages]
        first: list[MessageDict] = []
        if self.facts.prober.settings.system_first and "system" not in roles[:1]:
            first = [self.system()]
        return Probe(
            "",
            [*first, *messages],
            tools=list(tools) if tools is not None else None,
            add_generation_prompt=prompt,
            options={**self._options, **(options or {})},
        )

    def run(self, probe: Probe) -> RenderOutcome:
        """Render a conversation; an error is returned. The same conversation is rendered once.

        Raises:
            TemplateLimitError: all checks together have cost too much.
        """
        key = json.dumps([probe.messages, probe.arguments()], default=str)
        if key not in self._outcomes:
            self._outcomes[key] = try_render(self.renderer, probe)
        return self._outcomes[key]

    def text_of(self, probe: Probe) -> str | None:
        """Return what the template writes; None if it fails."""
        outcome = self.run(probe)
        return outcome.text if isinstance(outcome, Rendering) else None

    def lost(self, probe: Probe) -> list[str]:
        """Return the fields of a conversation of which nothing is written; empty if it is not rendered."""
        outcome = self.run(probe)
        if not isinstance(outcome, Rendering):
            return []
        messages = InputReader().read_messages(probe.messages)
        losses = find_losses(outcome, messages, probe.tools, probe.documents)
        return [loss.path for loss in losses]

    def works(self, probe: Probe) -> bool:
        """Return True if a conversation is rendered with everything in it."""
        return isinstance(self.run(probe), Rendering) and not self.lost(probe)

    def writes_messages(self, probe: Probe) -> bool:
        """Return True if a conversation is rendered with everything in it but, perhaps, its tools.

        A template may write calls and drop the tools, which is a finding of its own.
        """
        lost = [field for field in self.lost(probe) if field.startswith("messages")]
        return isinstance(self.run(probe), Rendering) and not lost

    @cached_property
    def assigned_names(self) -> frozenset[str]:
        """The names that the template gives a value itself, in whatever scope: they are not options."""
        found: set[str] = set()
        for text in self.renderer.texts:
            tree = parse(text, self.renderer.name)
            found |= {macro.name for macro in tree.find_all(nodes.Macro)}
            found |= {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
        return frozenset(found)

    # What a template can do

    @cached_property
    def plain(self) -> Probe:
        """A conversation of a user and an assistant."""
        return self.chat(self.user(), self.reply(), self.user(ASKED_AGAIN))

    @cached_property
    def takes_system(self) -> bool:
        """Whether a system message at the beginning is written."""
        return self.works(self.chat(self.system(), self.user()))

    @cached_property
    def takes_calls(self) -> bool:
        """Whether a tool call and its result are written, in some form."""
        return self.writes_messages(self.tool_round())

    @cached_property
    def writes_calls(self) -> bool:
        """Whether a tool call is written, in some form."""
        call = self.chat(self.user(), self.call(), tools=TOOLS)
        return self.writes_messages(call) or self.takes_calls

    def tool_round(self) -> Probe:
        """Return a conversation with a call, its result and an answer."""
        return self.chat(self.user(), self.call(), self.result(), self.reply(), tools=TOOLS)

    # Places and smaller conversations

    @cached_property
    def places(self) -> PlaceFinder:
        """Finds the places in the template that wrote something, or decided not to."""
        return PlaceFinder(self.renderer, self.run, self.chat(self.user()))

    def smallest(self, probe: Probe, shows: Callable[[Probe], bool]) -> Probe:
        """Return a smaller conversation that still shows a problem: messages, tools and options are left out."""
        whole = [json.dumps(message, default=str) for message in probe.messages]

        def compare(a: Renderer, b: Renderer, candidate: Probe) -> str:
            kept = [json.dumps(message, default=str) for message in candidate.messages]
            is_part = all(message in whole for message in kept)
            is_part = is_part and candidate.tools in (None, probe.tools)
            # templates read their special tokens: without them, it would be another problem
            is_part = is_part and all(name in candidate.options for name in self._options)
            return KIND if is_part and shows(candidate) else ""

        return shrink(self.renderer, self.renderer, replace(probe), KIND, compare)


def describe_failure(error: TurnwiseError) -> str:
    """Return how a template fails: what it raises, or its error."""
    if isinstance(error, TemplateRaised):
        return f"refuses it: {error.message}"
    return f"fails: {error.message}"


def is_refusal(outcome: RenderOutcome) -> bool:
    """Return True if the template itself refused a conversation, with `raise_exception`."""
    return isinstance(outcome, TemplateRaised)

"""Subject: the template under check, with its table of forms and the conversations that other checks are made of.

What the template does with each form of input is read off the table of forms (`analysis/form_table.py`). The checks of
history, tokens and source make conversations of their own, in the plain forms that the template accepts.

All renderings of all checks share one allowance, so that a template which means harm costs no more than a few whole
renderings; outcomes are kept, since several checks ask for the same conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from functools import cached_property

from jinja2 import nodes

from turnwise.analysis.conversations import MessageDict, Probe
from turnwise.analysis.counterexample import RenderOutcome, shrink, try_render
from turnwise.analysis.losses import find_losses
from turnwise.analysis.probe_chats import ProbeChats
from turnwise.analysis.profiles import Profile
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import Allowance
from turnwise.errors import TemplateRaised, TurnwiseError
from turnwise.evidence.checks.places import PlaceFinder
from turnwise.messages import InputReader
from turnwise.template import Template
from turnwise.tokens.tokenizers.protocol import Tokenizer

CHECKING = 12  # times the budgets of one rendering, for all conversations of all checks
REFUSES = "refuses it: "  # how a refusal that the template states is described


class Subject(ProbeChats):
    """A template under check, with its table of forms.

    Args:
        template: the template.
        tokenizer: the tokenizer that it is used with, for the checks that need one.
        reference: another template that it should write the same as.
        profile: what users send; None for what the template itself shows.
    """

    def __init__(
        self,
        template: Template,
        tokenizer: Tokenizer | None = None,
        reference: Template | None = None,
        profile: str | None = None,
    ) -> None:
        forms = template.capabilities.forms
        named = tokenizer.named if tokenizer is not None else {}
        super().__init__(template.facts, lambda: forms.chats.input_format, named)
        self.forms = forms
        self.profile = Profile(forms, profile)
        self.template = template
        self.tokenizer = tokenizer
        self.reference = reference
        full = template.renderer
        self._allowance = Allowance(full.limits, CHECKING)
        self.renderer: Renderer = full.with_reduced_limits().with_allowance(self._allowance)
        self._outcomes: dict[str, RenderOutcome] = {}
        self.renderings: list[tuple[Probe, Rendering]] = []

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

    @cached_property
    def assigned_names(self) -> frozenset[str]:
        """The names that the template gives a value itself, in whatever scope: they are not options."""
        found: set[str] = set()
        for tree, _, _ in self.places.list_trees():
            found |= {macro.name for macro in tree.find_all(nodes.Macro)}
            found |= {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
        return frozenset(found)

    # What a template can do

    @property
    def takes_calls(self) -> bool:
        """Whether a tool call and its result are written, in some form."""
        return self.writes_calls and self.forms.is_written("tool result")

    @property
    def writes_calls(self) -> bool:
        """Whether a tool call is written, in some form."""
        return self.forms.is_written("call without text")

    # Places and smaller conversations

    @cached_property
    def places(self) -> PlaceFinder:
        """Finds the places in the template that wrote something, or decided not to."""
        return PlaceFinder(self.renderer, self.run)

    def smallest(
        self, probe: Probe, shows: Callable[[Probe], bool], named: Collection[MessageDict] = ()
    ) -> Probe:
        """Return a smaller conversation that still shows a problem: messages, tools and options are left out.

        The messages that are `named` stay, and a user if there is one.
        """
        has_user = any(message["role"] == "user" for message in probe.messages)

        def is_smaller(candidate: Probe) -> bool:
            kept = candidate.messages
            return (
                all(message in probe.messages for message in kept)
                and all(message in kept for message in named)
                and has_user == any(message["role"] == "user" for message in kept)
                and candidate.tools in (None, probe.tools)
                # templates read their special tokens: without them, it would be another problem
                and all(name in candidate.options for name in self.options)
                and shows(candidate)
            )

        return shrink(probe, is_smaller)


def describe_failure(error: TurnwiseError) -> str:
    """Return how a template fails: what it raises, or its error."""
    if isinstance(error, TemplateRaised):
        return f"{REFUSES}{error.message}"
    return f"fails: {error.message}"

"""Encode a conversation: render, find special tokens, find turns, encode the plain spans.

The order matters. The conversation is rendered. The author of each character decides which special tokens are real
(`attribution.py`). The real ones that the template wrote show where turns end, and the prompts that serving would have
sent show where turns begin (`boundaries.py`). Only then is text encoded (`text_encoder.py`). Labels are computed from
the turns when they are asked for (`encoded.py`).

Cost: the first call with a template and a tokenizer renders 15 to 30 probe conversations, to check that the two fit
together (`request_builder.py`). Afterwards a conversation is rendered once, and once for the prompt before each of its
turns, unless that prompt is proven (`boundaries.py`); more often only if it is truncated (`truncation.py`).

A conversation whose last turn has no stop gets one, as the model must write it (`Encoded.added_stop`); the rendering
stays what the template wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from turnwise.analysis.conversations import make_call_message, make_message, make_tool_result
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import TurnwiseError
from turnwise.messages import JsonMapping, JsonObject, ReadMessages
from turnwise.messages.roles import ASSISTANT_ROLES
from turnwise.tokens.attribution import Attribution
from turnwise.tokens.boundaries import Turn, TurnCache, Untrained, find_seams
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import STOP_POLICIES, TrainOn, weigh
from turnwise.tokens.text_encoder import encoder_for
from turnwise.tokens.token_matcher import TokenMatch
from turnwise.tokens.tokenizers.protocol import Tokenizer
from turnwise.tokens.turn_ends import is_blank
from turnwise.tokens.turn_prompts import (
    KnownPrompts,
    Messages,
    PromptEnd,
    TurnPrompts,
)

# What one call may spend, in budgets of a rendering. A template of the corpus spends a tenth of one or less.
RENDERINGS = 1.5
RENDERINGS_PER_TURN = 0.4

PROBE_TIME = datetime(2024, 1, 1)
OTHER_ROLES = ("developer", "function", "environment", "ipython", "observation")
FIRST, REPLY, SECOND = (
    make_message("user", "First"),
    make_message("assistant", "One"),
    make_message("user", "Second"),
)

# Conversations with turns of every kind. The tokens around these turns are the template's turn delimiters.
DELIMITER_PROBES: tuple[list[JsonObject], ...] = (
    [make_message("system", "Rules"), FIRST, REPLY, SECOND],
    [FIRST, REPLY, SECOND],
    [FIRST, make_call_message(("weather", {"city": "Oslo"})), make_tool_result("Rain"), REPLY],
    [FIRST, make_call_message(("weather", '{"city": "Oslo"}')), make_tool_result("Rain"), REPLY],
    *([FIRST, make_message(role, "Facts"), REPLY] for role in OTHER_ROLES),
)


class EncodeRequest(NamedTuple):
    """A conversation and everything that decides how it is encoded.

    Attributes:
        messages: the conversation as plain data.
        tokenizer: the tokenizer.
        renderer: renders messages.
        arguments: the keyword arguments for `renderer.render`.
        turn_cache: what is known about the template's turns under these arguments.
        stops: the texts that end turns.
        final_stops: the stop of a reply that ends the conversation and that of a call, which are added where the
            template writes none; None if none is to be added.
        train_on: the loss policy.
        trust: trust levels that differ from the table in `attribution.py`.
        compatible: encode the text as one, forged special tokens included, as transformers does.
        max_length: the most ids that are wanted.
        overflow: what becomes of a conversation with more ids, see `truncation.py`.
        appends: history is proven to be stable, see `Facts.appends`.
        kept_messages: the indices of the messages in the caller's conversation, if some were dropped.
        prompts: those before turns, if parts of one conversation are encoded again and again; see `TurnPrompts`.
        read: messages, and the same as a renderer takes them, if they were read already.
    """

    messages: Messages
    tokenizer: Tokenizer
    renderer: Renderer
    arguments: JsonMapping
    turn_cache: TurnCache
    stops: frozenset[str]
    final_stops: tuple[str, str] | None
    train_on: TrainOn
    trust: Mapping[str, str] | None
    compatible: bool
    max_length: int | None
    overflow: str
    appends: bool
    kept_messages: Sequence[int] | None = None
    prompts: KnownPrompts | None = None
    read: tuple[Messages, ReadMessages] | None = None

    def find_read(self, messages: Messages | ReadMessages) -> ReadMessages | None:
        """Return messages as a renderer takes them, if these were read already."""
        return self.read[1] if self.read is not None and self.read[0] is messages else None

    def for_one_call(self, turns: int | None = None) -> EncodeRequest:
        """Return the request of one call, whose renderings share what a few may spend.

        For each assistant turn a prompt may be rendered, and the conversation up to it.

        Args:
            turns: how many assistant turns there are at most; those of the messages if not given.
        """
        if turns is None:
            turns = sum([message.get("role") in ASSISTANT_ROLES for message in self.messages])
        return self._replace(renderer=self.renderer.allow(RENDERINGS + RENDERINGS_PER_TURN * turns))

    @property
    def prompt_arguments(self) -> JsonObject:
        """The arguments with which serving renders a prompt."""
        return {
            **self.arguments,
            "add_generation_prompt": True,
            "continue_final_message": False,
        }

    def get_option(self, name: str) -> object:
        """Return the value of a variable of the template: the caller's, else the template's own; None without one."""
        given = self.arguments
        return given[name] if name in given else self.renderer.options.get(name)

    def render(
        self,
        messages: Messages | ReadMessages,
        arguments: JsonMapping | None = None,
        with_origins: bool = True,
    ) -> Rendering:
        """Render messages as the caller asked, or with other arguments.

        Args:
            messages: the messages.
            arguments: those of `Template.render`; None for those of the caller.
            with_origins: whether the origins will be read; else they are found when they are.
        """
        return self.renderer.render(
            self.find_read(messages) or messages,
            with_origins,
            **(self.arguments if arguments is None else arguments),
        )

    def render_prompt(self, messages: Messages | ReadMessages) -> Rendering:
        """Render the prompt that serving would send for these messages, with the generation prompt."""
        known = {} if self.prompts is None else self.prompts
        key = tuple(map(id, messages))
        if key not in known:
            known[key] = self.render(messages, self.prompt_arguments)
        return known[key]


class SpecialTokens(NamedTuple):
    """The added tokens in a rendering that are encoded as such.

    Attributes:
        matches: all of them, in order.
        by_template: those that the template wrote, or an author who is trusted like it.
    """

    matches: list[TokenMatch]
    by_template: list[TokenMatch]


def encode_once(request: EncodeRequest) -> Encoded:
    """Encode the messages of a request, however long they are."""
    return encode_rendering(request, request.render(request.messages))


def encode_rendering(request: EncodeRequest, rendering: Rendering) -> Encoded:
    """Encode the messages of a request, which are rendered already."""
    messages = request.messages
    specials = find_specials(request, rendering, messages)
    turns, untrained = find_turns(request, rendering, messages, specials)
    return encode_turns(request, rendering, specials, turns, untrained)


def encode_turns(
    request: EncodeRequest,
    rendering: Rendering,
    specials: SpecialTokens,
    turns: list[Turn],
    untrained: Sequence[Untrained],
    history: Sequence[Turn] = (),
) -> Encoded:
    """Encode a rendering whose special tokens and turns are known.

    Args:
        request: the messages and how they are encoded.
        rendering: the rendered messages.
        specials: its special tokens.
        turns: the turns that are trained.
        untrained: those that are not.
        history: turns before them that are not to be trained.
    """
    weights = weigh(request.messages)
    text, matches = rendering.text, specials.matches
    stop = find_stop_to_add(request, text, turns, weights) if turns else ""
    if stop:
        turns[-1] = turns[-1]._replace(end=len(text) + len(stop), stop=len(text))
        found = encoder_for(request.tokenizer).matcher.find(stop)
        matches = [*matches, *(match.shift(len(text)) for match in found)]
        text += stop
    if request.compatible:
        ids, spans = request.tokenizer.whole(text), None
    else:
        ids, spans = encoder_for(request.tokenizer).encode_spans(
            text, matches, seams=find_seams((*history, *turns), text)
        )
    return Encoded(
        rendering,
        request.tokenizer,
        ids,
        spans,
        turns,
        untrained,
        weights,
        request.train_on,
        request.kept_messages,
        added_stop=stop,
    )


def trains_stops(request: EncodeRequest) -> bool:
    """Return whether stops are trained, and one may be added where the template writes none.

    The ids of a prompt, and those that must be the same as in transformers, stay as they are.
    """
    arguments = request.arguments
    if request.compatible or request.final_stops is None or request.train_on not in STOP_POLICIES:
        return False
    return not (arguments.get("add_generation_prompt") or arguments.get("continue_final_message"))


def find_stop_to_add(
    request: EncodeRequest, text: str, turns: Sequence[Turn], weights: Sequence[float]
) -> str:
    """Return the stop that a conversation must end with and that the template does not write, else nothing.

    A model that is trained on a last turn without a stop learns never to stop.
    """
    last, final = turns[-1], len(request.messages) - 1
    if (
        text[last.stop : last.end] in request.stops
        or last.message != final
        or not is_blank(text, last.end, len(text))
        or not weights[final]
        or not trains_stops(request)
    ):
        return ""
    assert request.final_stops is not None
    after_reply, after_call = request.final_stops
    return after_call if request.messages[final].get("tool_calls") else after_reply


def find_specials(
    request: EncodeRequest, rendering: Rendering, messages: Messages, begin: int = 0
) -> SpecialTokens:
    """Return the added tokens in a rendering that their authors may write, from the character `begin` on."""
    matcher = encoder_for(request.tokenizer).matcher
    attribution = Attribution(rendering.piece_table, messages, request.trust, request.get_option)
    matches = attribution.find_allowed_tokens(matcher, rendering.text, begin)
    assistant = attribution.assistant_tokens
    if not assistant:
        return SpecialTokens(matches, matches)
    delimiters = find_turn_delimiters(request)
    return SpecialTokens(
        [
            match
            for match in matches
            if match.text_start not in assistant or match.token.text not in delimiters
        ],
        [match for match in matches if match.text_start not in assistant],
    )


def find_turns(
    request: EncodeRequest,
    rendering: Rendering,
    messages: Messages,
    specials: SpecialTokens,
    first: int = 0,
    known: Mapping[int, PromptEnd] | None = None,
) -> tuple[list[Turn], list[Untrained]]:
    """Return the assistant turns of a rendering from a message on, and those whose place could not be found."""
    render = partial(request.render, arguments=request.prompt_arguments, with_origins=False)
    prompts = TurnPrompts(messages, render, request.find_read(messages), request.prompts, known)
    return request.turn_cache.find_turns(
        rendering, messages, specials.by_template, request.stops, prompts, first
    )


def find_turn_delimiters(request: EncodeRequest) -> frozenset[str]:
    """Return the tokens by which the template delimits turns, whether or not this conversation has such turns."""
    cache = request.turn_cache.turn_delimiters
    known = cache.get(request.tokenizer)
    if known is not None:
        return known
    matcher = encoder_for(request.tokenizer).matcher
    delimiters = set(request.stops)
    # Others get what is found here, so neither the time nor what this call may still spend decides about it.
    arguments = request.prompt_arguments | {"now": PROBE_TIME}
    renderer = request.renderer.with_allowance(None)
    for probe in DELIMITER_PROBES:
        try:
            rendering = renderer.render(probe, **arguments)
        except TurnwiseError as error:
            raise_if_call_ended(error)
            continue  # the template does not take such turns
        attribution = Attribution(rendering.piece_table, probe, get_option=request.get_option)
        matches = attribution.find_allowed_tokens(matcher, rendering.text)
        delimiters |= attribution.turn_delimiters(matches)
    known = cache[request.tokenizer] = frozenset(delimiters)
    return known

"""Encode a conversation: render, find special tokens, find turns, encode the plain spans.

The order matters. The conversation is rendered once. The author of each character decides which special tokens are real
(`attribution.py`). The real ones that the template wrote show where turns end, and the prompts that serving would have
sent show where turns begin (`boundaries.py`). Only then is text encoded (`text_encoder.py`). Labels are computed from
the turns when they are asked for (`encoded.py`).

Truncation: a conversation that is too long loses its oldest rounds, whole, until it fits; never its system messages,
never the last round, never a part of a turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from turnwise.analysis.conversations import make_call_message, make_message, make_tool_result
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import MessageError, TurnwiseError
from turnwise.tokens.attribution import Attribution
from turnwise.tokens.boundaries import Boundaries, Messages
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import TrainOn, weight_of
from turnwise.tokens.text_encoder import encoder_for
from turnwise.tokens.token_matcher import TokenMatch
from turnwise.tokens.tokenizers.protocol import Tokenizer

SYSTEM_ROLES = ("system", "developer")
OTHER_ROLES = ("developer", "function", "environment", "ipython", "observation")
FIRST, REPLY, SECOND = (
    make_message("user", "First"),
    make_message("assistant", "One"),
    make_message("user", "Second"),
)

# Conversations with turns of every kind. The tokens around these turns are the template's turn delimiters.
DELIMITER_PROBES: tuple[list[dict[str, Any]], ...] = (
    [make_message("system", "Rules"), FIRST, REPLY, SECOND],
    [FIRST, REPLY, SECOND],
    [FIRST, make_call_message(("weather", {"city": "Oslo"})), make_tool_result("Rain"), REPLY],
    [FIRST, make_call_message(("weather", '{"city": "Oslo"}')), make_tool_result("Rain"), REPLY],
    *([FIRST, make_message(role, "Facts"), REPLY] for role in OTHER_ROLES),
)


@dataclass(frozen=True, slots=True)
class EncodeRequest:
    """A conversation and everything that decides how it is encoded.

    Attributes:
        messages: the conversation as plain data.
        tokenizer: the tokenizer.
        renderer: renders messages.
        arguments: the keyword arguments for `renderer.render`.
        boundaries: the cache of what is known about the template's turns under these arguments.
        stops: the texts that end turns.
        train_on: the loss policy.
        trust: trust levels that differ from the table in `attribution.py`.
        compatible: encode the text as one, forged special tokens included, as transformers does.
        max_length: the most ids that are wanted.
        kept: the indices of the messages in the caller's conversation, if some were dropped.
    """

    messages: Messages
    tokenizer: Tokenizer
    renderer: Renderer
    arguments: Mapping[str, Any]
    boundaries: Boundaries
    stops: frozenset[str] = frozenset()
    train_on: TrainOn = "assistant"
    trust: Mapping[str, str] | None = None
    compatible: bool = False
    max_length: int | None = None
    kept: Sequence[int] | None = None

    @property
    def prompt_arguments(self) -> dict[str, Any]:
        """The arguments with which serving renders a prompt."""
        return {
            **self.arguments,
            "add_generation_prompt": True,
            "continue_final_message": False,
        }

    def render(self, messages: Messages) -> Rendering:
        """Render messages as the caller asked."""
        return self.renderer.render(messages, **self.arguments)

    def render_prompt(self, messages: Messages) -> Rendering:
        """Render the prompt that serving would send for these messages, with the generation prompt."""
        return self.renderer.render(messages, **self.prompt_arguments)


def encode(request: EncodeRequest) -> Encoded:
    """Encode a conversation, or as many of its newest rounds as fit `max_length`.

    Raises:
        MessageError: the last round alone is longer than `max_length`.
    """
    encoded = encode_once(request)
    if request.max_length is None or len(encoded) <= request.max_length:
        return encoded
    rounds, system = split_rounds(request.messages)
    # Binary search for the fewest rounds to drop; dropping more is always shorter.
    low, high = 1, len(rounds) - 1
    if high < low:
        raise _too_long(encoded, request.max_length)
    while low < high:
        middle = (low + high) // 2
        if len(encode_once(_drop_rounds(request, rounds, system, middle))) <= request.max_length:
            high = middle
        else:
            low = middle + 1
    encoded = encode_once(_drop_rounds(request, rounds, system, low))
    if len(encoded) > request.max_length:
        raise _too_long(encoded, request.max_length)
    return encoded


def encode_once(request: EncodeRequest) -> Encoded:
    """Encode the messages of a request, however long they are."""
    messages = request.messages
    weights = [weight_of(messages, index) for index in range(len(messages))]
    rendering = request.render(messages)
    attribution, specials = find_specials(request, rendering, messages)
    turns, untrained = request.boundaries.find(
        rendering, messages, attribution.template_tokens(specials), request.stops, request
    )
    if request.compatible:
        ids, spans = request.tokenizer.whole(rendering.text), None
    else:
        ids, spans = encoder_for(request.tokenizer).encode_spans(
            rendering.text,
            specials,
            seams=[turn.start for turn in turns],
            may_spell_specials=attribution.has_lookalikes,
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
        request.kept,
    )


def find_specials(
    request: EncodeRequest, rendering: Rendering, messages: Messages
) -> tuple[Attribution, list[TokenMatch]]:
    """Return the authors of a rendering, and the added tokens in it that count as such."""
    matcher = encoder_for(request.tokenizer).matcher
    attribution = Attribution(rendering.piece_table, messages, request.trust)
    specials = attribution.find_specials(matcher, rendering.text)
    if attribution.assistant_tokens:
        specials = attribution.remove_delimiters(specials, find_turn_delimiters(request))
    return attribution, specials


def find_turn_delimiters(request: EncodeRequest) -> frozenset[str]:
    """Return the tokens by which the template delimits turns, whether or not this conversation has such turns."""
    cache = request.boundaries.turn_delimiters
    known = cache.get(request.tokenizer)
    if known is not None:
        return known
    matcher = encoder_for(request.tokenizer).matcher
    delimiters = set(request.stops)
    for probe in DELIMITER_PROBES:
        try:
            rendering = request.render_prompt(probe)
        except TurnwiseError:
            continue  # the template does not take such turns
        attribution = Attribution(rendering.piece_table, probe)
        specials = attribution.find_specials(matcher, rendering.text)
        delimiters |= attribution.turn_delimiters(specials)
    cache[request.tokenizer] = frozenset(delimiters)
    return cache[request.tokenizer]


# ---- truncation ----


def split_rounds(messages: Messages) -> tuple[list[list[int]], list[int]]:
    """Return the indices of the messages by rounds, and those of system messages.

    A round begins with a user message that does not follow another user message.
    """
    system: list[int] = []
    rounds: list[list[int]] = []
    for index, message in enumerate(messages):
        role = message.get("role")
        if role in SYSTEM_ROLES:
            system.append(index)
            continue
        is_question = role == "user"
        if not rounds or (is_question and messages[rounds[-1][-1]].get("role") != "user"):
            rounds.append([])
        rounds[-1].append(index)
    return rounds, system


def _drop_rounds(
    request: EncodeRequest, rounds: list[list[int]], system: list[int], count: int
) -> EncodeRequest:
    """Return the request without its oldest rounds."""
    kept = list(system)
    for indices in rounds[count:]:
        kept += indices
    kept.sort()
    return replace(request, messages=[request.messages[index] for index in kept], kept=kept)


def _too_long(encoded: Encoded, limit: int) -> MessageError:
    return MessageError(
        f"the last round alone has {len(encoded)} tokens, more than max_length={limit}",
        path="messages",
        hint="turns are not split: shorten the messages, or raise max_length",
    )

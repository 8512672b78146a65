"""A conversation becomes ids: render, find the tokens that count, find the turns, encode the runs.

The order matters. The text is rendered once; who wrote which token decides what is a token (`trust.py`); the tokens
that the template wrote say where turns end, and the prompts that serving would have sent say where they begin
(`boundaries.py`); only then is anything encoded (`runs.py`).

A conversation that is too long loses its oldest rounds, whole, until it fits; never its system messages, never the
last round, never part of a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from turnwise.analysis.conversations import make_call_message, make_message, make_tool_result
from turnwise.engine.provenance.rendering import Origin, Rendering, append_reply
from turnwise.errors import MessageError, TurnwiseError
from turnwise.tokens.attribution import Voices
from turnwise.tokens.boundaries import Boundaries, Turn
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import weight_of
from turnwise.tokens.text_encoder import Encoder, Segments, encoder
from turnwise.tokens.token_matcher import Hit
from turnwise.tokens.tokenizers.protocol import Tokenizer

Parts = Sequence[tuple[str, str | None]]  # texts of a message's fields, and markers (None)

SYSTEMS = ("system", "developer")
OTHERS = ("developer", "function", "environment", "ipython", "observation")
EVERY_TURN: tuple[list[dict[str, Any]], ...] = (
    [
        make_message("system", "Rules"),
        make_message("user", "First"),
        make_message("assistant", "One"),
        make_message("user", "Second"),
    ],
    [
        make_message("user", "First"),
        make_message("assistant", "One"),
        make_message("user", "Second"),
    ],
    [
        make_message("user", "First"),
        make_call_message(("weather", {"city": "Oslo"})),
        make_tool_result("Rain"),
        make_message("assistant", "One"),
    ],
    [
        make_message("user", "First"),
        make_call_message(("weather", '{"city": "Oslo"}')),
        make_tool_result("Rain"),
        make_message("assistant", "One"),
    ],
    *(
        [
            make_message("user", "First"),
            make_message(role, "Facts"),
            make_message("assistant", "One"),
        ]
        for role in OTHERS
    ),
)


@dataclass(slots=True)
class Ask:
    """A conversation and everything that decides how it is encoded."""

    messages: Sequence[Mapping[str, Any]]
    tokenizer: Tokenizer
    render: Callable[[Sequence[Mapping[str, Any]]], Rendering]
    prompt: Callable[
        [Sequence[Mapping[str, Any]]], Rendering
    ]  # the same with the opening, as serving sends it
    boundaries: Boundaries
    reply: Callable[[Mapping[str, Any], Rendering], Parts] | None = (
        None  # a message as a model would write it
    )
    stops: frozenset[str] = frozenset()
    train_on: str | Callable[[Origin], bool] = "assistant"
    trust: Mapping[str, str] | None = None
    compatible: bool = False
    max_length: int | None = None
    kept: Sequence[int] | None = None


def encode(ask: Ask) -> Encoded:
    """The ids of the conversation; of its newest rounds, if it is too long."""
    found = encoded(ask)
    if ask.max_length is None or len(found) <= ask.max_length:
        return found
    rest, systems = rounds(ask.messages)
    low, high = 1, len(rest) - 1  # how many rounds to leave out; more are always shorter
    if high < low:
        raise too_long(found, ask.max_length)
    while low < high:
        middle = (low + high) // 2
        fits = len(encoded(without(ask, rest, systems, middle))) <= ask.max_length
        low, high = (low, middle) if fits else (middle + 1, high)
    found = encoded(without(ask, rest, systems, low))
    if len(found) > ask.max_length:
        raise too_long(found, ask.max_length)
    return found


def encoded(ask: Ask) -> Encoded:
    weights = [weight_of(ask.messages, index) for index in range(len(ask.messages))]
    rendering = ask.render(ask.messages)
    text, worker = rendering.text, encoder(ask.tokenizer)
    voices, hits = trusted(ask, rendering, ask.messages)
    turns, untrained = ask.boundaries.find(
        rendering,
        ask.messages,
        voices.own(hits),
        ask.stops,
        lambda index: ask.prompt(ask.messages[:index]),
    )
    if ask.compatible:
        ids = ask.tokenizer.whole(text)

        found: Any = partial(joint, worker, text)
    else:
        ids, found = worker.segments(
            text, hits, [turn.start for turn in turns], guarded=voices.suspect
        )
    return Encoded(
        rendering, ask.tokenizer, ids, found, turns, untrained, weights, ask.train_on, ask.kept
    )


def joint(worker: Encoder, text: str) -> Segments:
    """Where the tokens of a text stand whose added tokens all count."""
    return worker.segments(text, worker.scanner.hits(text), guarded=False)[1]


def trusted(
    ask: Ask, rendering: Rendering, messages: Sequence[Mapping[str, Any]]
) -> tuple[Voices, list[Hit]]:
    """Who wrote what in a rendering, and the added tokens in it that count."""
    worker = encoder(ask.tokenizer)
    voices = Voices(rendering.piece_table, messages, ask.trust, lambda: marking(ask, worker))
    return voices, voices.hits(worker.scanner, rendering.text)


def answered_by(ask: Ask, index: int) -> Encoded:
    """The prompt before a message, and behind it the message as a model would write it."""
    if ask.reply is None:
        raise MessageError("nobody says how a reply is written", path=f"messages[{index}]")
    prompt, message = ask.prompt(ask.messages[:index]), ask.messages[index]
    parts = ask.reply(message, prompt)
    rendering, start, worker = (
        append_reply(prompt, parts, index),
        len(prompt.text),
        encoder(ask.tokenizer),
    )
    voices, hits = trusted(ask, rendering, ask.messages[: index + 1])
    before = ask.boundaries.find(
        prompt,
        ask.messages[:index],
        voices.own(hits),
        ask.stops,
        lambda place: ask.prompt(ask.messages[:place]),
    )[0]
    ids, segments = worker.segments(rendering.text, hits, [*(turn.start for turn in before), start])
    end = len(rendering.text)
    stop = end - len(parts[-1][0]) if parts and parts[-1][1] is None else end
    turn, weights = (
        Turn(index, start, end, stop),
        [weight_of(ask.messages, place) for place in range(index + 1)],
    )
    return Encoded(rendering, ask.tokenizer, ids, segments, [turn], (), weights, ask.train_on)


def marking(ask: Ask, worker: Encoder) -> frozenset[str]:
    """The tokens by which the template marks turns, whether or not this conversation has such turns."""
    known = ask.boundaries.marking.get(ask.tokenizer)
    if known is None:
        found: set[str] = set()
        for chat in EVERY_TURN:
            try:
                rendering = ask.prompt(chat)
            except TurnwiseError:
                continue
            voices = Voices(rendering.piece_table, chat)
            found |= voices.marking(voices.hits(worker.scanner, rendering.text))
        known = ask.boundaries.marking[ask.tokenizer] = frozenset(found | ask.stops)
    return known


def rounds(messages: Sequence[Mapping[str, Any]]) -> tuple[list[list[int]], list[int]]:
    """The messages by rounds, each from a user's message to the next one's; and the system messages beside them."""
    systems: list[int] = []
    found: list[list[int]] = []
    for index, message in enumerate(messages):
        role = message.get("role")
        if role in SYSTEMS:
            systems.append(index)
        elif not found or (role == "user" and messages[found[-1][-1]].get("role") != "user"):
            found.append([index])
        else:
            found[-1].append(index)
    return found, systems


def without(ask: Ask, rest: list[list[int]], systems: list[int], count: int) -> Ask:
    """The same conversation without its oldest rounds."""
    kept = sorted([*systems, *(index for one in rest[count:] for index in one)])
    return replace(ask, messages=[ask.messages[index] for index in kept], kept=kept)


def too_long(found: Encoded, limit: int) -> MessageError:
    return MessageError(
        f"the last round alone has {len(found)} tokens, more than max_length={limit}",
        path="messages",
        hint="turns are not cut: shorten the messages, or raise max_length",
    )

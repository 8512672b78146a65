"""What of a rendered conversation a model is trained on: the spans that `{% generation %}` blocks are to mark.

These are the spans that `encode` trains without any tags: from the end of the served prompt to the stop. `encode`
leaves out a turn that *diverges* from its prompt: Qwen 3.5 opens `<think>` in a prompt and writes none in history.
Trainers that read blocks train such a turn as it is written, so its span begins where it first differs from the prompt.

The characters of a turn whose place or prompt is not known are *unknown*: nothing says what their mask should be, so
that the conversation proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os.path import commonprefix
from typing import Any, NamedTuple

from turnwise.analysis.conversations import (
    MessageDict,
    Probe,
    conversations,
    name_tokens,
    option_names,
    vary_options,
)
from turnwise.analysis.counterexample import try_render
from turnwise.analysis.facts import Facts
from turnwise.analysis.wide_conversations import with_text_arguments
from turnwise.engine.compiler.history_proof import analyse_prompts
from turnwise.engine.provenance.piece_table import message_index
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.provenance.trails import Field
from turnwise.engine.renderer import Renderer
from turnwise.messages import ReadMessages
from turnwise.tokens.boundaries import (
    Turn,
    TurnCache,
    Untrained,
    find_last_message_end,
    find_message_spans,
)
from turnwise.tokens.turn_ends import TextSpan, origins_in
from turnwise.tokens.turn_prompts import TurnPrompts

Span = tuple[int, int]
TEXT_PART = "text"
MAX_OPTIONS = 6  # of a template that are varied
VARIED = ("system and two rounds", "a call, its result", "reasoning in two rounds")
VALUES = ("=True", "=False")
UNFINISHED = re.compile(r"(?:<[^<>\s]*|\[[^\[\]\s]*|\w+)\Z")  # a marker or a word that goes on


class TrainedText(NamedTuple):
    """A conversation with what is trained of it.

    Attributes:
        probe: The conversation.
        text: What the template writes.
        spans: The characters that are trained.
        unknown: The characters of turns whose beginning or place is not known.
        reasons: Why.
        replies: The characters of assistants' messages, with their openings.
        own: The characters of the messages' fields in the unknown turns.
        diverging: Why turns do not continue the prompt before them, though they are trained.
        is_written: Whether the template writes every reply.
    """

    probe: Probe
    text: str
    spans: tuple[Span, ...]
    unknown: tuple[Span, ...]
    reasons: tuple[str, ...]
    replies: tuple[Span, ...]
    own: tuple[Span, ...] = ()
    diverging: tuple[str, ...] = ()
    is_written: bool = True

    @property
    def is_proof(self) -> bool:
        """Whether it is known of every reply what is trained."""
        return bool(self.spans) and not self.unknown


class TrainedTurns:
    """Finds the trained spans of conversations that a template takes.

    Args:
        renderer: The template, with an allowance.
        facts: What is known about it.
    """

    def __init__(self, renderer: Renderer, facts: Facts) -> None:
        self.renderer = renderer
        self.tokens = name_tokens(renderer)
        self._stops = frozenset(facts.stops_for(self.tokens))
        self._least = analyse_prompts(*renderer.texts)

    def list_texts(self) -> Iterator[TrainedText]:
        """Yield the conversations in which an assistant speaks, as far as the template takes them."""
        names = option_names(self.renderer.variables)[:MAX_OPTIONS]
        for probe in list_training_probes(names):
            options = {**self.tokens, **probe.options}
            found = None  # the first form without unknown turns, or the first that is not refused
            for form in list_forms(replace(probe, options=options, add_generation_prompt=False)):
                other = self.find(form)
                if other is not None and not other.unknown:
                    found = other
                    break
                found = found or other
            if found is not None:
                yield found

    def find(self, probe: Probe) -> TrainedText | None:
        """Return what is trained of a conversation; None if the template refuses it."""
        rendering = try_render(self.renderer, probe)
        if not isinstance(rendering, Rendering):
            return None
        spans = find_message_spans(rendering.piece_table)
        turns, untrained, diverging = self._find_turns(probe, rendering, spans)
        reasons = tuple(turn.reason for turn in untrained)
        indices = [turn.message for turn in untrained]
        if any(index not in spans for index in indices):  # where the turn is cannot be told
            lost = [index for index in indices if index not in spans]
            return self._make_unknown(probe, rendering.text, reasons, lost)
        # A stop that opens the next message (GLM) is that message's text: no block of this one can hold it.
        ends = {turn.message: spans[turn.message].end for turn in turns if turn.message in spans}
        return TrainedText(
            probe,
            rendering.text,
            join_spans(
                (_find_start(rendering, turn), min(turn.end, ends.get(turn.message, turn.end)))
                for turn in turns
            ),
            tuple((spans[index].start, spans[index].end) for index in indices),
            reasons,
            tuple(
                (span.start, span.end)
                for index, span in spans.items()
                if probe.messages[index].get("role") == "assistant"
            ),
            join_spans(
                field for index in indices for field in _list_fields(rendering, index, spans[index])
            ),
            tuple(reason for index, reason in diverging.items() if index not in indices),
            all(turn.diverges or self._is_refused(probe, turn.message) for turn in untrained),
        )

    def _make_unknown(
        self, probe: Probe, text: str, reasons: tuple[str, ...], lost: Sequence[int]
    ) -> TrainedText:
        whole = (0, len(text))
        is_left_out = any(self._leaves_out(probe, index, text) for index in lost)
        unknown = TrainedText(probe, text, (), (whole,), reasons, (whole,))
        return unknown._replace(is_written=not is_left_out)

    def _find_turns(
        self, probe: Probe, rendering: Rendering, spans: Mapping[int, TextSpan]
    ) -> tuple[list[Turn], list[Untrained], dict[int, str]]:
        """Return the turns, those whose place is not known, and why messages diverge from their prompts."""

        def render_shared(messages: Any) -> Rendering:
            """Return as much of a prompt as a diverging turn shares with it."""
            prompt = self._render_prompt(probe, messages)
            reply = len(messages.messages) if isinstance(messages, ReadMessages) else -1
            if reply not in diverging:
                return prompt
            start = _find_divergence(rendering, reply, spans[reply], prompt)
            return prompt if start is None else Rendering(rendering.text[:start])

        given = rendering, probe.messages, (), self._stops
        prompts = TurnPrompts(probe.messages, partial(self._render_prompt, probe))
        turns, untrained = TurnCache(self._least).find_turns(*given, prompts)
        diverging = {
            turn.message: turn.reason
            for turn in untrained
            if turn.diverges and turn.message in spans
        }
        if diverging:
            shared = TurnPrompts(probe.messages, render_shared)
            turns, untrained = TurnCache(0).find_turns(*given, shared)
        return turns, untrained, diverging

    def _render_prompt(self, probe: Probe, messages: Any) -> Rendering:
        arguments = probe.arguments() | {"add_generation_prompt": True}
        return self.renderer.render(messages, **arguments)

    def _is_refused(self, probe: Probe, index: int) -> bool:
        """Whether the template refuses the prompt before a message: else it does not write the message itself."""
        asked = replace(probe, messages=probe.messages[:index], add_generation_prompt=True)
        return not isinstance(try_render(self.renderer, asked), Rendering)

    def _leaves_out(self, probe: Probe, index: int, text: str) -> bool:
        """Whether a conversation is written in the same way without a message."""
        others = [*probe.messages[:index], *probe.messages[index + 1 :]]
        return (mask_of(self.renderer, replace(probe, messages=others)) or ("",))[0] == text


def _find_divergence(
    rendering: Rendering, index: int, span: TextSpan, prompt: Rendering
) -> int | None:
    """Return where a finished turn first differs from the opening that its prompt has; None if they share nothing.

    Never within a word, a marker or a field of the message.
    """
    before = rendering.text[: span.start]
    if prompt.text.startswith(before):
        opening = prompt.text[len(before) :]
    else:  # the template writes earlier messages in another way once they are history
        opening = prompt.text[find_last_message_end(prompt.piece_table) :]
    fields = _list_fields(rendering, index, span)
    written = rendering.text[span.start : next(fields, (span.end, span.end))[0]]
    shared = commonprefix([opening, written])
    if len(shared) < min(len(opening), len(written)):
        shared = UNFINISHED.sub("", shared)
    return None if written.strip() and not shared else span.start + len(shared)


def _find_start(rendering: Rendering, turn: Turn) -> int:
    """Return where the block of a turn begins: a reply that spells the opening itself is held as a whole."""
    around = TextSpan(max(turn.start - 1, 0), turn.start + 1)
    for start, end in _list_fields(rendering, turn.message, around):
        if start < turn.start < end:
            return start
    return turn.start


def _list_fields(rendering: Rendering, index: int, span: TextSpan) -> Iterator[Span]:
    """Yield the characters of a message's content, reasoning and calls."""
    for start, end, leaf in origins_in(rendering.piece_table, span):
        path = leaf.path if isinstance(leaf, Field) else ()
        if message_index(path) == index and path[-1] not in ("role", "name"):
            yield start, end


def list_training_probes(options: Sequence[str]) -> Iterator[Probe]:
    """Yield conversations in which an assistant speaks, also under each value of each option."""
    varied = [
        probe
        for probe in vary_options(options, {})
        if any(probe.covers.startswith(start) for start in VARIED) and probe.covers.endswith(VALUES)
    ]
    for probe in (*conversations(), *varied):
        if any(message["role"] == "assistant" for message in probe.messages):
            yield probe


def list_forms(probe: Probe) -> Iterator[Probe]:
    """Yield a conversation in the forms that templates take: text or parts, arguments as a mapping or as text."""
    yield probe
    as_text = with_text_arguments(probe)
    if as_text is not None:
        yield as_text
    messages = [to_parts(message) for message in probe.messages]
    if messages != probe.messages:
        yield replace(probe, messages=messages)


def to_parts(message: MessageDict) -> MessageDict:
    """Return a message with its text in a part."""
    content = message.get("content")
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": TEXT_PART, TEXT_PART: content}]}


def join_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return spans in order, without empty ones; neighbours are one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if joined and joined[-1][1] >= start:
            start, last = joined.pop()
            end = max(end, last)
        joined.append((start, end))
    return tuple(joined)


def clip_spans(spans: Sequence[Span], away: Sequence[Span]) -> tuple[Span, ...]:
    """Return spans without the characters of others."""
    for begin, stop in away:
        kept = []
        for start, end in spans:
            kept += [(start, min(end, begin)), (max(start, stop), end)]
        spans = [(start, end) for start, end in kept if start < end]
    return join_spans(spans)


def mask_of(renderer: Renderer, probe: Probe) -> tuple[str, tuple[Span, ...]] | None:
    """Return the text of a conversation and the spans in `{% generation %}` blocks; None if it is refused."""
    rendering = try_render(renderer, probe)
    if not isinstance(rendering, Rendering):
        return None
    return rendering.text, join_spans(rendering.piece_table.generation_spans())

"""What of a rendered conversation a model is trained on: the spans that `encode` finds without any tags.

`{% generation %}` blocks are made to mark exactly these (`generation.py`). A turn that does not continue the prompt
before it cannot be trained as it is written: its characters are *unknown*, since nobody can say what its mask should
be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from turnwise.analysis.conversations import (
    PROBE_TOKENS,
    MessageDict,
    Probe,
    conversations,
    option_names,
    vary_options,
)
from turnwise.analysis.facts import Facts
from turnwise.analysis.probe_mutations import with_text_arguments
from turnwise.engine.compiler.prompt_reads import analyse_prompt
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import TurnwiseError
from turnwise.tokens.boundaries import TurnCache, find_message_spans

Span = tuple[int, int]
TEXT_PART = "text"
MAX_OPTIONS = 6  # of a template that are varied
VARIED = ("system and two rounds", "a call, its result", "reasoning in two rounds")
VALUES = ("=True", "=False")


class TrainedText(NamedTuple):
    """A conversation with what is trained of it.

    Attributes:
        probe: The conversation.
        text: What the template writes.
        spans: The characters that are trained.
        unknown: The characters of turns that do not continue the prompt before them.
        reasons: Why.
        replies: The characters of assistants' messages, with their openings.
    """

    probe: Probe
    text: str
    spans: tuple[Span, ...]
    unknown: tuple[Span, ...]
    reasons: tuple[str, ...]
    replies: tuple[Span, ...]


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
        self._reads = analyse_prompt(*renderer.texts)
        self._caches: dict[Any, TurnCache] = {}

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
        arguments = probe.arguments()
        try:
            rendering = self.renderer.render(probe.messages, **arguments)
        except TurnwiseError as error:
            raise_if_call_ended(error)
            return None
        prompt_arguments = arguments | {"add_generation_prompt": True}

        def render_prompt(messages: Any) -> Rendering:
            return self.renderer.render(messages, **prompt_arguments)

        turns, untrained = self._cache_for(probe).find_turns(
            rendering, probe.messages, (), self._stops, render_prompt
        )
        spans = find_message_spans(rendering.piece_table)
        indices = [turn.message for turn in untrained]
        if any(index not in spans for index in indices):  # where the turn is cannot be told
            whole = (0, len(rendering.text))
            reasons = (untrained[0].reason,)
            return TrainedText(probe, rendering.text, (), (whole,), reasons, (whole,))
        # A stop that opens the next message (GLM) is that message's text: no block of this one can hold it.
        ends = {turn.message: spans[turn.message].end for turn in turns if turn.message in spans}
        return TrainedText(
            probe,
            rendering.text,
            join_spans(
                (turn.start, min(turn.end, ends.get(turn.message, turn.end))) for turn in turns
            ),
            tuple((spans[index].start, spans[index].end) for index in indices),
            tuple(turn.reason for turn in untrained),
            tuple(
                (span.start, span.end)
                for index, span in spans.items()
                if probe.messages[index].get("role") == "assistant"
            ),
        )

    def _cache_for(self, probe: Probe) -> TurnCache:
        options = sorted((name, repr(value)) for name, value in probe.options.items())
        key = (tuple(options), bool(probe.tools), bool(probe.documents))
        if key not in self._caches:
            self._caches[key] = TurnCache(self._reads)
        return self._caches[key]


def name_tokens(renderer: Renderer) -> dict[str, str]:
    """Return texts for the special tokens that a template reads and has no text for."""
    return {
        name: text
        for name, text in PROBE_TOKENS.items()
        if name in renderer.variables and not renderer.options.get(name)
    }


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
    try:
        rendering = renderer.render(probe.messages, **probe.arguments())
    except TurnwiseError as error:
        raise_if_call_ended(error)
        return None
    return rendering.text, join_spans(rendering.piece_table.generation_spans())

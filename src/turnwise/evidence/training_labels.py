"""Do two templates that write the same text also train the same tokens of it?

Labels depend on more than the text: where a turn begins and ends is known from the pieces, the stops and the generation
prompt of each template. So with a tokenizer, both encode the conversations in which an assistant speaks, and their ids
and labels are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from turnwise.analysis.conversations import Probe, conversations
from turnwise.analysis.counterexample import (
    LABELS,
    Counterexample,
    Spans,
    shrink,
    try_render,
)
from turnwise.engine.renderer import Renderer
from turnwise.errors import TurnwiseError
from turnwise.template import Template
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import IGNORED
from turnwise.tokens.request_builder import RequestBuilder
from turnwise.tokens.tokenizers.protocol import Tokenizer
from turnwise.tokens.truncation import encode


class LabelComparison:
    """Compares the labels of two templates under one tokenizer."""

    def __init__(self, a: Template, b: Template, tokenizer: Tokenizer) -> None:
        self.templates = (a, b)
        self.tokenizer = tokenizer
        # what is wrong with both templates alike is no difference, and no warning
        self._builders = {id(one): RequestBuilder(one.facts, is_quiet=True) for one in (a, b)}

    def find_counterexample(self) -> Counterexample | None:
        """Return the smallest conversation on which the labels differ."""
        a, b = (template.renderer for template in self.templates)
        for probe in _probes():
            if self.compare(a, b, probe):
                probe = shrink(a, b, probe, LABELS, self.compare)
                first, second = (self._encode(template, probe) for template in self.templates)
                trained = (trained_spans(first), trained_spans(second))
                sides = try_render(a, probe), try_render(b, probe)
                return Counterexample(probe, *sides, kind=LABELS, trained=trained)
        return None

    def compare(self, a: Renderer, b: Renderer, probe: Probe) -> str:
        """Return "labels" if ids or labels differ; a conversation that one cannot encode is no difference."""
        first, second = (self._encode(template, probe) for template in self.templates)
        if first is None or second is None:
            return ""
        is_same = first.input_ids == second.input_ids and first.labels == second.labels
        return "" if is_same else LABELS

    def _encode(self, template: Template, probe: Probe) -> Encoded | None:
        arguments = probe.arguments()
        del arguments["add_generation_prompt"]
        try:
            messages = template.to_input(probe.messages)
            builder = self._builders[id(template)]
            request = builder.build(messages, self.tokenizer, "assistant", arguments)
            return encode(request.for_one_call())
        except TurnwiseError:
            return None


def _probes() -> Iterator[Probe]:
    for probe in conversations():
        if any(message["role"] == "assistant" for message in probe.messages):
            yield replace(probe, add_generation_prompt=False)


def trained_spans(encoded: Encoded | None) -> Spans:
    """Return the character ranges of the tokens that are trained; neighbours are one range."""
    spans: list[tuple[int, int]] = []
    if encoded is None:
        return ()
    for (start, end), label in zip(encoded.offsets, encoded.labels, strict=True):
        if label == IGNORED:
            continue
        if spans and spans[-1][1] >= start:
            start = spans.pop()[0]
        spans.append((start, end))
    return tuple(spans)

"""`diff(a, b)`: do two templates write the same text? If not, the smallest conversation on which they differ.

Both render a wide list of conversations (`analysis.wide_conversations`) with every option that one of them reads and
the values that it compares them with, then conversations made up to reach the branches that were not taken yet
(`branch_search.py`). "No difference" is evidence, not a proof: the result tells how many conversations were tried, what
they cover, and which branches of the two templates none of them reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnwise.analysis.conversations import NOW, PROBE_TOKENS, Probe, conversations, option_names
from turnwise.analysis.counterexample import (
    LABELS,
    Counterexample,
    RenderOutcome,
    Spans,
    find_counterexample,
    shrink,
    try_render,
)
from turnwise.analysis.decisions import Decision
from turnwise.analysis.rewrites import find_decision, pieces_from
from turnwise.analysis.wide_conversations import (
    DAYS,
    ProbeMaker,
    list_common_probes,
    list_rare_probes,
    option_values,
)
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import SourceError, TemplateError, TurnwiseError
from turnwise.evidence.branch_search import BranchSearch, PairedRun
from turnwise.evidence.coverage import Branch, Coverage
from turnwise.notebook import show_html
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens import tokenizers
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import IGNORED
from turnwise.tokens.request_builder import RequestBuilder
from turnwise.tokens.tokenizers.protocol import Tokenizer
from turnwise.tokens.truncation import encode_within_limit

# Times the budgets of one rendering, for some thousand conversations; see `branch_search.py`.
COMPARING = 14
CLOCK = "strftime_now"
GENERATION_END = "endgeneration"


@dataclass(frozen=True)
class Comparison:
    """The result of `diff`; true if no difference was found.

    Attributes:
        witness: The smallest conversation on which the templates differ, with both texts; None if they do not.
        tried: The number of conversations.
        covers: What the conversations cover, in sentences.
        about: The same in a few words: turns, contents, ...
        options: The options that were tried.
        coverage: Which branches of the templates the conversations reached.

    Example:
        >>> comparison = turnwise.diff("chatml", "qwen3")
        >>> comparison.equal, comparison.witness.kind
        (False, 'text')
    """

    witness: Counterexample | None
    tried: int
    covers: tuple[str, ...]
    about: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    coverage: Coverage = Coverage(0, 0)

    @property
    def equal(self) -> bool:
        """True if no difference was found."""
        return self.witness is None

    @property
    def unreached(self) -> tuple[Branch, ...]:
        """The branches of the templates that no conversation took: "equal" says nothing about them."""
        return self.coverage.unreached

    def __bool__(self) -> bool:
        return self.equal

    def _repr_html_(self) -> str:
        return show_html("comparison", self)

    def __str__(self) -> str:
        if self.witness is not None:
            return str(self.witness)
        topics = [*self.about]
        if self.options:
            topics.append(f"options ({', '.join(self.options)})")
        tried = f"no difference in {self.tried} conversations: {', '.join(topics)}"
        return f"{tried}\n{self.coverage}"


def diff(
    a: Template | str, b: Template | str, tokenizer: Any = None, masks: bool = True
) -> Comparison:
    """Compare two templates on made-up conversations.

    Args:
        a: A template, or a name, path or model id that `load` takes.
        b: The other one.
        tokenizer: A tokenizer whose special tokens are used, else made-up ones. With it, labels are compared too.
        masks: Whether templates differ that write the same text, but have other `{% generation %}` blocks.

    Returns:
        The comparison; `str()` of it shows the difference.

    Raises:
        SourceError: If one of them is not a template.
        TemplateLimitError: If one of them costs far more than any real template.

    Example:
        >>> import turnwise
        >>> turnwise.diff("chatml", "chatml").equal
        True
        >>> bool(turnwise.diff("chatml", "qwen2.5"))
        False
    """
    a = to_template(a)
    b = to_template(b)
    known = None if tokenizer is None else tokenizers.tokenizer(tokenizer)
    tokens = dict(PROBE_TOKENS)
    if known is not None:
        tokens |= {name: text for name, text in known.named.items() if name in tokens and text}
    texts = TextComparison(a.renderer, b.renderer, tokens, masks)
    found = texts.find_counterexample()
    if found is None and known is not None:
        found = LabelComparison(a, b, known).find_counterexample()
    return Comparison(
        found,
        texts.run.tried,
        tuple(texts.covers),
        tuple(texts.about),
        tuple(texts.options),
        texts.run.measure_coverage(),
    )


class TextComparison:
    """Compares what two templates write, and what they mark in `{% generation %}` blocks.

    Args:
        a: One template.
        b: The other one.
        tokens: The texts of the special tokens.
        masks: Whether `{% generation %}` blocks count.
    """

    def __init__(self, a: Renderer, b: Renderer, tokens: Mapping[str, str], masks: bool) -> None:
        self.a = a.allow(COMPARING)
        self.b = b.with_allowance(self.a.allowance)
        texts = [*a.texts, *b.texts]
        self.masks = masks and any(GENERATION_END in text for text in texts)
        self.run = PairedRun(self.a.with_reduced_limits(), self.b.with_reduced_limits(), self.masks)
        self.variables = list(dict.fromkeys((*a.variables, *b.variables)))
        self.tokens = {name: text for name, text in tokens.items() if name in self.variables}
        self.days = DAYS if any(CLOCK in text for text in texts) else ()
        constants = self.run.constants
        self.options = {
            name: option_values(name, constants) for name in option_names(self.variables)
        }
        self.covers: dict[str, None] = {}  # as ordered sets
        self.about: dict[str, None] = {}

    def find_counterexample(self) -> Counterexample | None:
        """Return the smallest conversation on which the templates differ, if one was found."""
        for probe in self.run.retry_refused(self._probes()):
            self.covers[probe.covers] = None
            if not probe.about.startswith("option "):
                self.about[probe.about] = None
            if self.run.differs(probe):
                found = find_counterexample(self.a, self.b, probe, self.masks)
                if found is not None:
                    side = found.a if isinstance(found.b, Rendering) else found.b
                    place = find_place(self.a, found.probe, side, found.at)
                    return replace(found, decision=place)
        if not self.run.is_rendered:
            tried = self.run.tried
            raise SourceError(f"both templates refuse all {tried} conversations that were tried")
        return None

    def _probes(self) -> Iterator[Probe]:
        """Yield conversations; each must have been tried before the next is taken."""
        constants = self.run.constants
        named = [role for found in constants for role in found.constants_of("role")]
        roles = [role for role in named if isinstance(role, str)]
        maker = ProbeMaker(self.options, roles, self.tokens, (NOW, *self.days))
        rare = list_rare_probes(self.variables, constants, self.tokens, self.days)
        yield from list_common_probes(self.tokens)
        yield from BranchSearch(self.run, rare, maker).probes()


def find_place(
    renderer: Renderer, probe: Probe, outcome: RenderOutcome, at: int
) -> Decision | None:
    """Return where a template refused, else the condition around a character, or around its last text if it ends there.

    `diff` and `conform` name this place of their first template.
    """
    if not isinstance(outcome, Rendering):
        return find_refusal(outcome)
    pieces = pieces_from(outcome, at) or outcome.pieces[-1:]
    return find_decision(renderer, probe.tools is not None, pieces)


def find_refusal(error: TurnwiseError) -> Decision | None:
    """Return the place of the template at which it raised an error."""
    if not isinstance(error, TemplateError) or error.line is None:
        return None
    return Decision(error.line, error.column or 1, (error.source_line or "").strip())


def to_template(given: Any) -> Template:
    """Return a template as it is, and load a name."""
    if isinstance(given, str):
        return load(given)
    if not isinstance(given, Template):
        hint = "Give what `compile` or `load` made, or a name that `load` knows."
        raise SourceError(f"diff compares templates, not {type(given).__name__}", hint=hint)
    return given


class LabelComparison:
    """Compares the labels of two templates under one tokenizer.

    Labels depend on more than the text: where a turn begins and ends is known from the pieces, the stops and the
    generation prompt of each template. So both encode the conversations in which an assistant speaks.
    """

    def __init__(self, a: Template, b: Template, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        # what is wrong with both templates alike is no difference, and no warning
        self._sides = [(one, RequestBuilder(one.facts, is_quiet=True)) for one in (a, b)]

    def find_counterexample(self) -> Counterexample | None:
        """Return the smallest conversation on which the labels differ."""
        for probe in _probes():
            if self.differs(probe):
                probe = shrink(probe, self.differs)
                first, second = map(trained_spans, self._encode(probe))
                a, b = (try_render(template.renderer, probe) for template, _ in self._sides)
                return Counterexample(probe, a, b, kind=LABELS, trained=(first, second))
        return None

    def differs(self, probe: Probe) -> bool:
        """Return whether ids or labels differ; a conversation that one cannot encode is no difference."""
        try:
            first, second = self._encode(probe)
        except TurnwiseError:
            return False
        return (first.input_ids, first.labels) != (second.input_ids, second.labels)

    def _encode(self, probe: Probe) -> Iterator[Encoded]:
        for template, builder in self._sides:
            arguments = probe.arguments()
            del arguments["add_generation_prompt"]
            messages = template.codec.to_input(probe.messages)
            request = builder.build(messages, self.tokenizer, "assistant", arguments)
            yield encode_within_limit(request.for_one_call())


def _probes() -> Iterator[Probe]:
    for probe in conversations():
        if any(message["role"] == "assistant" for message in probe.messages):
            yield replace(probe, add_generation_prompt=False)


def trained_spans(encoded: Encoded) -> Spans:
    """Return the character ranges of the tokens that are trained; neighbours are one range."""
    spans: list[tuple[int, int]] = []
    for (start, end), label in zip(encoded.offsets, encoded.labels, strict=True):
        if label == IGNORED:
            continue
        if spans and spans[-1][1] >= start:
            start = spans.pop()[0]
        spans.append((start, end))
    return tuple(spans)

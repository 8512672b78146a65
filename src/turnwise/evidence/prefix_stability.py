"""`Stability`: which appended messages change earlier text?

A server keeps what it computed for a prompt, and reuses it for the next one as far as both begin with the same text. A
template that writes history differently once more messages follow (reasoning is dropped, a last turn is closed in
another way, a late system text moves to the front) makes it compute everything after the change again.

For each kind of message, conversations that grow by one (`growing_conversations.py`) are rendered before and after.
*Stable* means: for every one of them that the template takes, the longer text begins with the shorter one. Where it
does not, there is a witness: the smallest conversation that was found, what changed in it, and the line of the template
that decided (`rewrites.py`). Then every option that the template reads is tried with the values that it is compared
with, and those under which nothing changes are listed.

    appending                        earlier text  conversations
    a user message                   changes       12 of 96
    an assistant message             stable        163

It is evidence, not a proof: a template may rewrite a conversation that is not among them. `Facts.appends` is a proof,
for the templates that are simple enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from turnwise.analysis.conversations import (
    PROBE_TOKENS,
    MessageDict,
    Probe,
    name_tokens,
    option_names,
)
from turnwise.analysis.counterexample import passed_arguments, shrink, try_render
from turnwise.analysis.growing_conversations import (
    KINDS,
    Growth,
    growing_conversations,
    is_growth,
)
from turnwise.analysis.rewrites import Rewrite, find_rewrite
from turnwise.analysis.template_constants import TemplateConstants
from turnwise.analysis.wide_conversations import with_text_arguments
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.evidence.late_system_costs import LateSystemCost, measure_late_system
from turnwise.messages import JsonMapping, JsonObject
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens.tokenizers import SHIPPED

STABLE, CHANGES, REFUSED = "stable", "changes", "refused"
ALLOWED_RENDERINGS = 20  # times the budgets of one rendering, for all of them together
MAX_OPTION_VALUES = 8  # of one option
MAX_OPTIONS = 40  # a template has at most about 15; of hostile ones no more are tried

RenderedPair = tuple[Rendering, Rendering]
ChosenOptions = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class StabilityWitness:
    """A conversation in which an appended message changed earlier text.

    Attributes:
        probe: The longer conversation; its last message is the one that was appended.
        before: The text before it was appended.
        after: The text afterwards.
        rewrite: What changed, and the line that decided.
    """

    probe: Probe
    before: str
    after: str
    rewrite: Rewrite

    def __str__(self) -> str:
        *earlier, last = self.probe.messages
        lines = [f"  {message!r}" for message in earlier]
        lines += [f"+ {last!r}"]
        lines += [f"  {name}={value!r}" for name, value in self.arguments.items()]
        return "\n".join([*lines, f"  {self.rewrite}"])

    @property
    def arguments(self) -> JsonObject:
        """The arguments of `render` beside the messages, without special tokens."""
        passed = passed_arguments(self.probe)
        return {name: value for name, value in passed.items() if name not in PROBE_TOKENS}


@dataclass(frozen=True)
class StabilityRow:
    """The answer for one kind of message.

    Attributes:
        kind: "user", "assistant", "calls", "tool", "next tool", "system" or "reply".
        compared: The number of conversations that the template takes.
        changed: The number of those in which earlier text changed.
        witness: The smallest one.
        stable_with: Options under which none of them changes, as `(name, value)`.
        helps_with: Options under which the witness does not change, and others do.
    """

    kind: str
    compared: int
    changed: int = 0
    witness: StabilityWitness | None = None
    stable_with: ChosenOptions = ()
    helps_with: ChosenOptions = ()

    @property
    def status(self) -> str:
        """ "stable", "changes", or "refused" if the template takes none of the conversations."""
        if not self.compared:
            return REFUSED
        return CHANGES if self.changed else STABLE


@dataclass(frozen=True)
class Stability:
    """What `turnwise.stability` returns; `str()` of it is a table with the witnesses.

    Attributes:
        name: The name of the template.
        rows: One row for each kind of message.
        late_system: What each place of late system texts costs, in tokens.

    Example:
        >>> turnwise.stability("chatml").stable, turnwise.stability("qwen3").stable
        (True, False)
    """

    name: str
    rows: tuple[StabilityRow, ...]
    late_system: tuple[LateSystemCost, ...] = ()

    @property
    def stable(self) -> bool:
        """True if no appended message changes earlier text, as far as was tried."""
        return all(row.status != CHANGES for row in self.rows)

    @property
    def options(self) -> ChosenOptions:
        """The options that make some kind of message stable, or help, as `(name, value)`."""
        found = [pair for row in self.rows for pair in (*row.stable_with, *row.helps_with)]
        return tuple({repr(pair): pair for pair in found}.values())

    def __getitem__(self, kind: str) -> StabilityRow:
        return next(row for row in self.rows if row.kind == kind)

    def __str__(self) -> str:
        width = max(map(len, KINDS.values()))
        lines = [f"{'appending':<{width}}  earlier text  conversations"]
        for row in self.rows:
            count = f"{row.changed} of {row.compared}" if row.changed else str(row.compared)
            lines.append(f"{KINDS[row.kind]:<{width}}  {row.status:<12}  {count}")
        for row in self.rows:
            if row.witness is not None:
                lines += ["", f"{KINDS[row.kind]}:", str(row.witness), *_describe_options(row)]
        if self.late_system:
            lines += ["", "tokens computed again by late_system, one text in each turn:"]
            lines += [f"  {cost}" for cost in self.late_system]
        return "\n".join(lines)


def _describe_options(row: StabilityRow) -> Iterator[str]:
    for label, pairs in (("stable with", row.stable_with), ("better with", row.helps_with)):
        if pairs:
            yield f"  {label} " + ", or ".join(f"{name}={value!r}" for name, value in pairs)
    if not row.stable_with and not row.helps_with:
        yield "  no option of the template changes that"


def stability(template: Template | str, tokenizer: Any = SHIPPED) -> Stability:
    """Return which appended messages change earlier text, with witness, line and remedy; printable.

    Args:
        template: a template, or a name, path or model id that `load` accepts.
        tokenizer: counts the tokens that late system texts cost, as for `Template.encode`.

    Raises:
        TemplateLimitError: the template costs far more than any real one.

    Example:
        >>> turnwise.stability("chatml").stable
        True
    """
    loaded = load(template) if isinstance(template, str) else template
    search = StabilitySearch(loaded.renderer.allow(ALLOWED_RENDERINGS).with_reduced_limits())
    found = search.measure(growing_conversations())
    return replace(found, late_system=measure_late_system(loaded, tokenizer))


class StabilitySearch:
    """Renders growing conversations with one template.

    Args:
        renderer: The template, with an allowance.
        is_kept: Returns whether a longer rendering has what is asked of the shorter one.
    """

    def __init__(
        self,
        renderer: Renderer,
        is_kept: Callable[[Rendering, Rendering], bool] = lambda before, after: (
            after.text.startswith(before.text)
        ),
    ) -> None:
        self._renderer = renderer
        self._is_kept = is_kept
        self._tokens = name_tokens(renderer)
        constants = [TemplateConstants.read(text) for text in renderer.texts]
        names = option_names(renderer.variables)[:MAX_OPTIONS]
        self._options = {name: _list_values(name, constants) for name in names}
        self._renderings: dict[Any, Rendering | None] = {}

    def measure(self, growths: Sequence[Growth]) -> Stability:
        """Return the answer for each kind of message."""
        rows = [
            self._make_row(kind, [one for one in growths if one.kind == kind]) for kind in KINDS
        ]
        return Stability(self._renderer.name, tuple(rows))

    def _make_row(self, kind: str, growths: Sequence[Growth]) -> StabilityRow:
        compared, changed = self._compare_all(growths, {})
        if not changed:
            return StabilityRow(kind, compared)
        witness = self._find_witness(changed[0])
        stable, helping = self._find_options(growths, changed, compared)
        return StabilityRow(kind, compared, len(changed), witness, stable, helping)

    def _compare_all(
        self, growths: Sequence[Growth], options: JsonMapping
    ) -> tuple[int, list[Growth]]:
        """Return how many conversations the template takes, and those in which earlier text changed."""
        compared, changed = 0, []
        for growth in growths:
            is_stable = self._is_stable(growth, options)
            compared += is_stable is not None
            if is_stable is False:
                changed.append(growth)
        return compared, changed

    def _is_stable(self, growth: Growth, options: JsonMapping) -> bool | None:
        """Return whether the earlier text stays; None if the template refuses one of the two conversations."""
        for form in FORMS:
            longer = form(growth.probe)
            if longer is None:
                continue
            after = self._render(longer, options)
            before = (
                None
                if after is None
                else self._render(Growth(growth.kind, longer).shorter, options)
            )
            if before is not None and after is not None:
                return self._is_kept(before, after)
        return None

    def _render(self, probe: Probe, options: JsonMapping) -> Rendering | None:
        """Return a rendering; None if the template refuses the conversation. Those without options are remembered."""
        key = (probe.add_generation_prompt, repr((probe.messages, probe.tools)))
        if not options and key in self._renderings:
            return self._renderings[key]
        asked = replace(probe, options={**self._tokens, **options})
        outcome = try_render(self._renderer, asked)
        rendering = outcome if isinstance(outcome, Rendering) else None
        if not options:
            self._renderings[key] = rendering
        return rendering

    def _find_witness(self, growth: Growth) -> StabilityWitness:
        """Return the smallest conversation near one in which earlier text changed."""
        kind, start = growth.kind, self._with_tokens(growth.probe)
        for form in FORMS:
            probe = form(growth.probe)
            if probe is not None and self._find_pair(kind, self._with_tokens(probe)):
                start = self._with_tokens(probe)
                break
        found = shrink(start, partial(self._changes, kind))
        pair = self._find_pair(kind, found)
        assert pair is not None  # `shrink` returns only what differs
        rewrite = find_rewrite(self._renderer, *pair, found.tools is not None)
        assert rewrite is not None
        return StabilityWitness(found, pair[0].text, pair[1].text, rewrite)

    def _with_tokens(self, probe: Probe) -> Probe:
        return replace(probe, options=self._tokens)

    def _changes(self, kind: str, probe: Probe) -> bool:
        """Return whether a smaller conversation is of the same kind, and its earlier text changes."""
        if not is_growth(kind, probe.messages) or probe.options != self._tokens:
            return False
        return self._find_pair(kind, probe) is not None

    def _find_pair(self, kind: str, longer: Probe) -> RenderedPair | None:
        """Return the renderings before and after, if the earlier text changed."""
        after = try_render(self._renderer, longer)
        if not isinstance(after, Rendering):
            return None
        before = try_render(self._renderer, Growth(kind, longer).shorter)
        if not isinstance(before, Rendering) or self._is_kept(before, after):
            return None
        return before, after

    def _find_options(
        self, growths: Sequence[Growth], changed: Sequence[Growth], compared: int
    ) -> tuple[ChosenOptions, ChosenOptions]:
        """Return the options under which nothing changes, and those under which the first conversation does not."""
        stable: list[tuple[str, Any]] = []
        helping: list[tuple[str, Any]] = []
        for name, values in self._options.items():
            good = [value for value in values if self._is_stable(changed[0], {name: value})]
            for value in good:
                rest_changes = any(self._is_stable(one, {name: value}) is False for one in changed)
                if rest_changes:
                    continue
                taken, wrong = self._compare_all(growths, {name: value})
                if not wrong and taken == compared:
                    stable.append((name, value))
                    break
            else:
                helping += [(name, value) for value in good[:1]]
        return tuple(stable), tuple(helping)


def _list_values(name: str, constants: Sequence[TemplateConstants]) -> list[Any]:
    """Return the values that a template compares an option with, and True and False."""
    compared = [value for found in constants for value in found.constants_of(name)]
    values = {repr(value): value for value in (True, False, *compared)}
    return list(values.values())[:MAX_OPTION_VALUES]


def _as_parts(probe: Probe) -> Probe:
    """Return a conversation whose texts are parts, for templates that take nothing else."""
    return replace(probe, messages=[_with_parts(message) for message in probe.messages])


def _with_parts(message: MessageDict) -> MessageDict:
    content = message.get("content")
    if not isinstance(content, str):
        return message
    return {**message, "content": [{"type": "text", "text": content}]}


FORMS: tuple[Callable[[Probe], Probe | None], ...] = (
    lambda probe: probe,
    with_text_arguments,
    _as_parts,
)
"""Forms of one conversation, in the order in which they are tried: templates differ in what they take."""

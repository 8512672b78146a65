"""Compare two templates on conversations, and make up more of them until every branch was taken.

`PairedRun` renders a probe with both templates and notes which branches ran for the first time. A probe that reached
something new is kept, and the next ones are made of it. `BranchSearch` goes from condition to condition of which one
outcome was seen and the other was not, takes a conversation that saw the one, and changes what the condition asks about
(`wide_conversations.answer`). Between these rounds, conversations are made at random.

What a comparison may spend: each rendering a tenth of the usual budgets, since every conversation is short, and all of
them together what the caller's allowance has. A conversation that is too expensive for both templates is not compared;
templates for which there are many of them are refused. The search ends when a part of the allowance is spent
(`SEARCH_SHARE`), so the rest is left for making a difference small.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from jinja2 import nodes

from turnwise.analysis.conversations import Probe
from turnwise.analysis.counterexample import RenderOutcome, classify_outcomes, try_render
from turnwise.analysis.template_constants import TemplateConstants
from turnwise.analysis.wide_conversations import (
    ProbeMaker,
    answer,
    ask_options,
    shake,
    with_text_arguments,
)
from turnwise.engine.program import WatchedProgram
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import TemplateLimitError
from turnwise.evidence.coverage import (
    Coverage,
    WatchedRenderer,
    measure_coverage,
    outcome_number,
)

SEARCH_SHARE = 0.6  # of the allowance, after which nothing more is made up
MAX_OVER_BUDGET = 10  # conversations that are too expensive for one of the templates
MAX_RANDOM = 160  # conversations made at random
MAX_SHAKEN = 160  # conversations that are changed at random
FIRST_TRIES, MAX_TRIES = 10, 32  # conversations for one outcome that was not seen
MAX_SEARCHED = 700  # conversations for all outcomes that were not seen


class WatchedSide(WatchedRenderer):
    """One of two templates, with programs that note their branches.

    Args:
        name: "a" or "b".
        renderer: The template.
    """

    def __init__(self, name: str, renderer: Renderer) -> None:
        super().__init__(renderer)
        self.name = name
        self.constants = [TemplateConstants.read(text) for text in renderer.texts]


class PairedRun:
    """Renders conversations with two templates, and remembers those that reached something new.

    Args:
        a: One template, with an allowance for all its renderings.
        b: The other one, with the same allowance.
        masks: Whether `{% generation %}` blocks count.
    """

    def __init__(self, a: Renderer, b: Renderer, masks: bool) -> None:
        self.sides = (WatchedSide("a", a), WatchedSide("b", b))
        self.constants = [found for side in self.sides for found in side.constants]
        self.tried = 0
        self.is_rendered = False
        self.is_refused = False  # the last probe, by both
        self.kept: list[Probe] = []
        self._allowance = a.allowance
        self._masks = masks
        self._taken = -1  # so the first probe is kept, also of templates without branches
        self._over_budget = 0
        self._seen_by: dict[tuple[WatchedProgram, int], Probe] = {}

    def differs(self, probe: Probe) -> bool:
        """Return whether the templates differ on a probe, as far as a tenth of the budgets can tell."""
        self.tried += 1
        first, second = (try_render(side.renderer, probe) for side in self.sides)
        self.is_refused = not isinstance(first, Rendering) and not isinstance(second, Rendering)
        self.is_rendered = self.is_rendered or isinstance(first, Rendering)
        self._keep_if_new(probe)
        expensive = [error for outcome in (first, second) if (error := _limit_error(outcome))]
        if not expensive:
            return classify_outcomes(first, second, self._masks) != ""
        self._over_budget += 1
        if self._over_budget > MAX_OVER_BUDGET:
            raise expensive[0]
        return len(expensive) == 1

    def _keep_if_new(self, probe: Probe) -> None:
        taken = sum(len(program.taken) for side in self.sides for program in side.programs)
        if taken == self._taken:
            return
        self._taken = taken
        self.kept.append(probe)
        for side in self.sides:
            for program in side.programs:
                for outcome in program.taken:
                    self._seen_by.setdefault((program, outcome), probe)

    def retry_refused(self, probes: Iterable[Probe]) -> Iterator[Probe]:
        """Yield probes, and those that both templates refuse once more with arguments that are text, as some want."""
        for probe in probes:
            yield probe
            again = with_text_arguments(probe) if self.is_refused else None
            if again is not None:
                yield again

    def seen_by(self, program: WatchedProgram, outcome: int) -> Probe | None:
        """Return the first probe that had an outcome."""
        return self._seen_by.get((program, outcome))

    @property
    def may_go_on(self) -> bool:
        """Whether there is enough left to make up more conversations."""
        return self._allowance is None or self._allowance.spent_share < SEARCH_SHARE

    def measure_coverage(self) -> Coverage:
        """Return which branches were reached."""
        programs = [(side.name, program) for side in self.sides for program in side.programs]
        return measure_coverage(programs, [side.name for side in self.sides if not side.is_counted])


def _limit_error(outcome: RenderOutcome) -> TemplateLimitError | None:
    """Return the error of a rendering that ended at a budget which is reduced here; depth is not."""
    if isinstance(outcome, TemplateLimitError) and outcome.budget != "depth":
        return outcome
    return None


class BranchSearch:
    """Makes up conversations that take branches which were not taken yet.

    Args:
        run: What was tried so far; it is asked what was reached.
        rare: Conversations about what templates tell apart rarely.
        maker: Makes random conversations; it knows the options that the templates read.
    """

    def __init__(
        self,
        run: PairedRun,
        rare: Iterable[Probe],
        maker: ProbeMaker,
    ) -> None:
        self.run = run
        self.rare = rare
        self.maker = maker
        self.options = frozenset(maker.options)
        self.dice = random.Random(0)

    def probes(self) -> Iterator[Probe]:
        """Yield conversations; each must have been tried before the next is taken."""
        for probe in chain(
            self.rare,
            self._search(MAX_SEARCHED // 2, FIRST_TRIES),
            ask_options(self.maker.options, self.maker.tokens),
            (self.maker.make() for _ in range(MAX_RANDOM)),
            self._search(MAX_SEARCHED // 2, MAX_TRIES),
            (self._shake() for _ in range(MAX_SHAKEN)),
        ):
            if not self.run.may_go_on:
                return
            yield probe

    def _shake(self) -> Probe:
        kept = self.run.kept
        probe = self.dice.choice(kept)
        for _ in range(self.dice.choice((1, 1, 2, 3))):
            probe = shake(probe, kept, self.dice)
        return probe

    def _search(self, count: int, tries: int) -> Iterator[Probe]:
        """Yield at most so many conversations for outcomes that were not seen, and `tries` for each in a round."""
        is_new = True
        while is_new and count > 0:
            is_new = False
            for side in self.run.sides:
                for program, constants in zip(side.programs, side.constants, strict=False):
                    for point in range(len(program.points)):
                        for probe in self._aim(program, constants, point, min(count, tries)):
                            count -= 1
                            before = len(self.run.kept)
                            yield probe
                            is_new = is_new or len(self.run.kept) > before

    def _aim(
        self, program: WatchedProgram, constants: TemplateConstants, point: int, tries: int
    ) -> Iterator[Probe]:
        """Yield conversations for the outcome of a point that was not seen, if its other was."""
        found = program.points[point]
        true, false = outcome_number(point, True), outcome_number(point, False)
        missing = [outcome for outcome in (true, false) if outcome not in program.taken]
        asked: nodes.Node = found.node
        if isinstance(asked, nodes.For) and not found.is_condition:
            asked, missing = asked.iter, missing[:-1]  # a body has no other outcome
        if len(missing) != 1 or isinstance(asked, nodes.Macro):
            return
        (wanted,) = missing
        # nobody knows who came by a loop that did not run: perhaps the last who reached something
        start = self.run.seen_by(program, wanted ^ 1) or self.run.kept[-1]
        for probe in islice(self._answer_all(start, constants, asked), tries):
            if wanted in program.taken:
                return
            yield probe

    def _answer_all(
        self, start: Probe, constants: TemplateConstants, asked: nodes.Node
    ) -> Iterator[Probe]:
        """Yield changed conversations, taking turns between the questions; those with constants come first."""
        questions = sorted(constants.questions_of(asked), key=lambda asks: asks.how == "reads")
        waiting = [
            answer(start, question, self.options, constants.guess_mapping(question.subject))
            for question in questions
        ]
        while waiting:
            for candidates in list(waiting):
                probe = next(candidates, None)
                if probe is None:
                    waiting.remove(candidates)
                else:
                    yield probe

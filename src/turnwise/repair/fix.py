"""`fix(template)`: change a template as little as possible, so that what people send is written right.

For each defect (`defects.py`) that the template shows, candidates are tried from the smallest (`candidates.py`). An
edit that changes the plain form of a conversation is dropped, then every edit without which the same conversations are
repaired. What is left is kept if the proof holds (`proof.py`): each conversation that worked is written as before, and
the broken ones as their plain forms are. At last the repairs are proved together.
`generation=True` adds `{% generation %}` blocks (`generation.py`).

Everything is paid for by one allowance, so that a hostile template cannot keep a call busy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from turnwise.analysis.conversations import Probe
from turnwise.analysis.form_table import FormRow
from turnwise.analysis.forms import load_forms
from turnwise.engine.renderer import Renderer
from turnwise.errors import MessageError, SourceError, TemplateLimitError, did_you_mean
from turnwise.evidence.compare import to_template
from turnwise.repair.candidates import PROPOSALS, Candidate, why_not
from turnwise.repair.defects import DEFECTS, Defect
from turnwise.repair.edits import (
    Edit,
    apply_edits,
    list_changed_lines,
    restore_newlines,
    unified_diff,
)
from turnwise.repair.generation import (
    CannotMark,
    count_proofs,
    explain_few_proofs,
    find_lost_reply,
    find_wrong_mask,
    propose,
)
from turnwise.repair.generation_prompt import GENERATION_PROMPT, WHAT, find_prompt_repair
from turnwise.repair.proof import Proof, Workbench, WrittenSet, find_broken_together, write
from turnwise.repair.source_tree import SourceTree
from turnwise.repair.trained_turns import TrainedText, TrainedTurns
from turnwise.template import Template
from turnwise.tokens.loss import GENERATION_TAG

FIXING = 400  # times the budgets of one rendering; the costliest published template takes 300
MAX_CHARACTERS = (
    200_000  # of a template that is repaired; published ones have at most a quarter of it
)
MAX_CASES = 25  # broken conversations that are asked which edits are needed
MAX_EDITS = 60  # of one change; a template that reads a field more often is changed at its loops
GENERATION = "generation"
STILL_BROKEN = "repaired in part; still broken"
MORE_TEXT = "the blocks also hold the end of the opening of some turns, which is the model's own text in others"
DIVERGING = (
    "a turn that does not continue the served prompt, and is marked as the template writes it"
)
NO_REPAIR = "no repair is known"
NO_PLAIN_FORM = "the template does not write the plain form either"
HAS_BLOCKS = "the template has blocks already"
UNPROVED = "a turn whose marks are not proved"
NAMES = (*(defect.name for defect in DEFECTS), GENERATION_PROMPT, GENERATION)


@dataclass(frozen=True, slots=True)
class Patch:
    """A change that is proved.

    Attributes:
        name: The defect that it repairs, or "generation".
        what: What was changed.
        lines: The lines of the template as it was that are changed, counted from 1.
        repaired: The number of conversations that were broken and are right now.
        remaining: The number of those that are still broken, mostly for another reason.

    Example:
        >>> repair = turnwise.fix("llama-2")
        >>> [patch.name for patch in repair.patches][:1]
        ['null-content']
    """

    name: str
    what: str
    lines: tuple[int, ...]
    repaired: int
    remaining: int = 0

    def __str__(self) -> str:
        places = ", ".join(map(str, self.lines))
        left = f"; {self.remaining} still broken" if self.remaining else ""
        return f"{self.name}: {self.what} (line {places}): {self.repaired} conversations{left}"


@dataclass(frozen=True, slots=True)
class Unfixed:
    """A defect that no change repairs, and the reason.

    Example:
        >>> [unfixed.reason for unfixed in turnwise.fix("chatml").unfixed]
        []
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: not fixed: {self.reason}"


@dataclass(frozen=True)
class Repair:
    """The result of `fix`.

    Attributes:
        name: The name of the template.
        before: Its text.
        text: The repaired text; the same as before if there is nothing to repair.
        patches: What was repaired.
        unfixed: What could not be, with the reasons.
        tried: The number of conversations on which the result was proved.
        notes: What else is worth knowing.
        unrepairable: What else the template does not write, by the names of `turnwise check`, and why.
    """

    name: str
    before: str
    text: str
    patches: tuple[Patch, ...] = ()
    unfixed: tuple[Unfixed, ...] = ()
    tried: int = 0
    notes: tuple[str, ...] = ()
    unrepairable: tuple[Unfixed, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the text is another one."""
        return self.text != self.before

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty if there is none."""
        return unified_diff(self.before, self.text, self.name)

    def __str__(self) -> str:
        lines = [*map(str, self.patches), *map(str, self.unfixed), *self.notes]
        if not lines:
            lines = [f"nothing to fix on {self.tried} conversations"]
        return "\n".join([*lines, *map(str, self.unrepairable)])


def fix(template: Template | str, only: Sequence[str] = (), *, generation: bool = False) -> Repair:
    """Repair a template: the smallest proved change of its text for each defect that it shows.

    Args:
        template: A template, or a name that `load` takes.
        only: Names of defects; all of them if there are none.
        generation: Put `{% generation %}` blocks around what a model is trained on, too.

    Returns:
        The repaired text with the proved patches, and what could not be repaired.

    Raises:
        SourceError: There is no such template, or it consists of several.
        MessageError: There is no such defect.
        TemplateLimitError: The template is too large, or costs far more than any real one.

    Example:
        >>> import turnwise
        >>> text = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}"
        >>> repair = turnwise.fix(turnwise.compile(text), ["null-content"])
        >>> "m.content is not none else ''" in repair.text
        True
    """
    found = to_template(template)
    wanted = _check_names(only)
    if found.renderer.named:
        raise SourceError(
            "this model has several templates", hint="fix the text of each, one at a time"
        )
    if len(found.text) > MAX_CHARACTERS:
        size = f"{len(found.text)} characters, more than {MAX_CHARACTERS}"
        raise TemplateLimitError(f"too large to repair: {size}", budget="size", name=found.name)
    renderer = found.renderer.with_reduced_limits().allow(FIXING)
    work = _Repairing(found, renderer)
    if found.dialect != "jinja":
        work.notes.append(
            f"the template is written in {found.dialect}: what is repaired is its text in Jinja"
        )
    if wanted != {GENERATION}:
        work.repair(wanted)
    if not only:
        work.unrepairable += work.list_unrepairable()
    if generation or GENERATION in wanted:
        work.mark_generation()
    return work.finish()


def _check_names(only: Sequence[str]) -> set[str]:
    names = [only] if isinstance(only, str) else list(only)
    for name in names:
        if name not in NAMES:
            hint = did_you_mean(str(name), NAMES, "Defects")
            raise MessageError(f"there is no defect {name!r}", path="only", hint=hint)
    return set(names) or {*NAMES} - {GENERATION}


class _Repairing:
    """The repair of one template: the text so far, and what was done."""

    def __init__(self, template: Template, renderer: Renderer) -> None:
        self.template = template
        self._forms = template.capabilities.forms
        self.bench = Workbench(renderer)
        self.source = template.text
        self.written = WrittenSet.make(SourceTree(template.text).text, renderer, ())
        self.patches: list[Patch] = []
        self.proofs: list[Proof] = []  # of the defects that are repaired
        self.unfixed: list[Unfixed] = []
        self.unrepairable: list[Unfixed] = []
        self.notes: list[str] = []

    def repair(self, wanted: set[str]) -> None:
        """Repair the wanted defects, one after the other."""
        probes = self.bench.list_probes()
        self.written = WrittenSet.make(self.written.text, self.written.renderer, probes)
        if all(text is None for text in self.written.texts):
            raise SourceError(f"the template refuses all {len(probes)} conversations")
        for defect in DEFECTS:
            rows = [row for check in defect.checks for row in self._forms.find_defects(check)]
            if defect.name in wanted and rows:
                self._repair_defect(defect, rows)
        if GENERATION_PROMPT in wanted:
            self._repair_prompt()
        for name, probe in find_broken_together(self.written.renderer, self.proofs):
            self.unfixed.append(Unfixed(name, f"{STILL_BROKEN}: {probe}"))

    def list_unrepairable(self) -> Iterator[Unfixed]:
        """Yield the forms that the template does not write, and for which there is no repair."""
        repairable = {check for defect in DEFECTS for check in defect.checks}
        checks = dict.fromkeys(form.check for form in load_forms().values() if form.check)
        for check in checks:
            rows = [] if check in repairable else self._forms.find_defects(check)
            if rows:
                stated = f"the template states that it refuses it: {rows[0].evidence}"
                yield Unfixed(check, stated if rows[0].is_stated else NO_REPAIR)

    def _repair_defect(self, defect: Defect, rows: Sequence[FormRow]) -> None:
        shown = [replace(row.probe, covers=row.form.what) for row in rows]
        proof = Proof(self.written, defect, shown)
        if not proof.core:
            self._explain_no_case(defect, shown, proof)
            return
        best: _Change | None = None
        tree = SourceTree(self.written.text)
        for candidate in PROPOSALS[defect.name](tree):
            least = min((edit.growth for edit in candidate.edits), default=0)
            if (
                best is not None
                and best.is_complete
                and (len(best.edits) < 2 or least >= best.growth)
            ):
                continue  # nothing is written twice, or this one is longer, whatever is left out of it
            change = self._reduce(proof, tree, candidate)
            if change is None:
                continue
            change.what = candidate.what
            if best is None or change.rank > best.rank:
                best = change
        if best is None:
            self.unfixed.append(
                Unfixed(defect.name, why_not(defect.name, tree.text, proof.obstacle))
            )
            return
        self._accept(defect.name, best, len(proof.cases) - best.count)
        self.proofs.append(proof)

    def _explain_no_case(self, defect: Defect, shown: Sequence[Probe], proof: Proof) -> None:
        """Note that an earlier repair was one of this defect, too, or why there is none."""
        working = [probe for probe, _ in proof.working]
        if self.patches and all(probe in working for probe in shown):
            last = self.patches[-1]
            self.patches.append(replace(last, name=defect.name, what=f"with {last.name}"))
        else:
            self.unfixed.append(Unfixed(defect.name, f"{NO_PLAIN_FORM}: {shown[0].covers}"))

    def _reduce(self, proof: Proof, tree: SourceTree, candidate: Candidate) -> _Change | None:
        """Return the smallest of these changes that repairs as much as all of them, if that is proved."""
        edits = candidate.edits
        if not edits or len(edits) > MAX_EDITS:
            return None
        kept = list(edits)
        if not self._keeps_plain(proof, tree, kept):
            # Then without each edit that is to blame alone.
            kept = [edit for edit in edits if self._keeps_plain(proof, tree, [edit])]
        repaired = self._find_repaired(proof, tree, kept)
        if not any(proof.cases[index].is_core for index in repaired):
            return None
        core = {index for index, case in enumerate(proof.cases) if case.is_core}
        # What a mixture with something else needs may spoil a conversation that works.
        for goal in (set(range(MAX_CASES)) & repaired, core & repaired):
            fewer = self._drop_needless(proof, tree, kept, goal)
            change = self._prove(proof, tree, fewer)
            if change is None and candidate.safer:
                safer = dict(zip(edits, candidate.safer, strict=True))
                fewer = [
                    edit if self._is_harmless(proof, tree, edit) else safer[edit] for edit in fewer
                ]
                change = self._prove(proof, tree, fewer)
            if change is not None:
                return change
        return None

    def _prove(self, proof: Proof, tree: SourceTree, edits: list[Edit]) -> _Change | None:
        """Return a change if it spoils no conversation."""
        changed = self._apply(tree, edits)
        if changed is None:
            return None
        other = next(proof.find_changed(changed), None) or proof.find_unsound(changed)
        if other is not None:
            proof.obstacle = other.covers
            return None
        repaired = proof.find_repaired(changed, proof.cases)
        is_complete = not any(
            case.is_core for index, case in enumerate(proof.cases) if index not in repaired
        )
        return _Change(changed, edits, len(repaired), is_complete)

    def _drop_needless(
        self, proof: Proof, tree: SourceTree, kept: list[Edit], goal: set[int]
    ) -> list[Edit]:
        """Return edits without those that are not needed: first halves of them are left out, at last single ones."""
        size = len(kept)
        while size > 1:
            size = (size + 1) // 2
            place = 0
            while place < len(kept):
                fewer = kept[:place] + kept[place + size :]
                if fewer and self._find_repaired(proof, tree, fewer, MAX_CASES) >= goal:
                    kept = fewer
                else:
                    place += size
        return kept

    def _apply(self, tree: SourceTree, edits: Sequence[Edit]) -> Renderer | None:
        return self.bench.change(apply_edits(tree.text, edits)) if edits else None

    def _is_harmless(self, proof: Proof, tree: SourceTree, edit: Edit) -> bool:
        changed = self._apply(tree, [edit])
        return changed is not None and next(proof.find_changed(changed), None) is None

    def _keeps_plain(self, proof: Proof, tree: SourceTree, edits: Sequence[Edit]) -> bool:
        changed = self._apply(tree, edits)
        return changed is not None and proof.keeps_plain(changed)

    def _find_repaired(
        self, proof: Proof, tree: SourceTree, edits: Sequence[Edit], count: int | None = None
    ) -> set[int]:
        """Return which of the first so many cases these edits repair; the first ones show the defect alone."""
        changed = self._apply(tree, edits)
        return proof.find_repaired(changed, proof.cases[:count]) if changed is not None else set()

    def _repair_prompt(self) -> None:
        found = find_prompt_repair(self.bench, self.written)
        if found is None or not found.asked:
            return
        if found.changed is None:
            self.unfixed.append(Unfixed(GENERATION_PROMPT, found.reason))
            return
        change = _Change(found.changed, [found.edit], found.asked, True, WHAT)
        self._accept(GENERATION_PROMPT, change, 0)

    def _accept(self, name: str, change: _Change, remaining: int) -> None:
        text = apply_edits(self.written.text, change.edits)
        lines = list_changed_lines(self.written.text, text)
        self.patches.append(Patch(name, change.what, lines, change.count, remaining))
        self.written = WrittenSet.make(text, change.renderer, self.written.probes)

    def mark_generation(self) -> None:
        """Put `{% generation %}` blocks around what is trained."""
        text, renderer = self.written.text, self.written.renderer
        if GENERATION_TAG.search(text):
            lost = find_lost_reply(renderer)
            if lost:
                self.unfixed.append(Unfixed(GENERATION, f"{HAS_BLOCKS}, and {lost}"))
            else:
                self.notes.append(f"{GENERATION}: {HAS_BLOCKS}")
            return
        trained = list(TrainedTurns(renderer, self.template.facts).list_texts())
        problem = explain_few_proofs(trained)
        proposals: Collection[str] = ()
        try:
            if not problem:
                proposals = propose(text, renderer, trained)
                problem = "with blocks, it does not compile"
        except CannotMark as error:
            problem = str(error)
        # Blocks with more than the trained text only if there are no exact ones.
        for with_openings in (False, True):
            for text in proposals:
                changed = self.bench.change(text)
                if changed is None:
                    continue
                problem = (
                    find_wrong_mask(changed, trained, with_openings)
                    or find_lost_reply(changed)
                    or self._find_difference(changed)
                )
                if not problem:
                    self._accept_blocks(text, changed, trained)
                    if with_openings:
                        self.notes.append(f"{GENERATION}: {MORE_TEXT}")
                    return
        self.unfixed.append(Unfixed(GENERATION, problem))

    def _find_difference(self, changed: Renderer) -> str:
        """Return a conversation that a changed template writes in another way, or refuses; empty if there is none."""
        limits = self.template.renderer.limits
        # More tags are more steps, so one of the two may end at a reduced limit.
        pair = self.written.renderer.with_limits(limits), changed.with_limits(limits)
        for probe in self.written.probes or self.bench.list_probes():
            if len({write(renderer, probe) for renderer in pair}) > 1:
                return f"it writes another text: {probe.covers}"
        return ""

    def _accept_blocks(self, text: str, changed: Renderer, trained: Sequence[TrainedText]) -> None:
        lines = list_changed_lines(self.written.text, text)
        proved, asked = count_proofs(trained)
        what = f"blocks around what is trained, proved on {proved} of {asked}"
        self.patches.append(Patch(GENERATION, what, lines, proved))
        self.written = replace(self.written, text=text, renderer=changed)
        diverging = [reason for one in trained for reason in one.diverging]
        unknown = [reason for one in trained for reason in one.reasons]
        counts = (
            (sum(bool(one.diverging) for one in trained), DIVERGING, diverging),
            (sum(bool(one.unknown) for one in trained), UNPROVED, unknown),
        )
        for count, what, reasons in counts:
            if reasons:
                shown = f"{count} of {len(trained)} conversations have {what}"
                self.notes.append(f"{GENERATION}: {shown}: {reasons[0]}")

    def finish(self) -> Repair:
        """Return what was done."""
        text = self.source
        if self.patches:
            text = restore_newlines(self.written.text, self.source)
        return Repair(
            self.template.name,
            self.source,
            text,
            patches=tuple(self.patches),
            unfixed=tuple(self.unfixed),
            tried=len(self.written.probes),
            notes=tuple(self.notes),
            unrepairable=tuple(self.unrepairable),
        )


@dataclass
class _Change:
    """Edits that are proved, and the template with them."""

    renderer: Renderer
    edits: list[Edit]
    count: int
    is_complete: bool
    what: str = ""

    @property
    def growth(self) -> int:
        return sum(edit.growth for edit in self.edits)

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The better of two changes repairs more, or as much with less text."""
        return self.is_complete, self.count, -self.growth

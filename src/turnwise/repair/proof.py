"""Is a change right? It is tried on every conversation of the generated set, before it is believed.

For one defect (`defects.py`) the conversations are of three kinds:

* they *work*: the template with the change must write the same text;
* they are *broken*, and their plain form works: with the change, they must be written as the plain form is;
* the template refuses them in either form: nothing is asked.

The set is that of `diff`: what templates tell apart often and rarely, with the options and roles that this template
asks for. To it come values that no API sends and users do ("odd contents"): what a template makes of them stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from turnwise.analysis.conversations import Probe, load_probes, name_tokens, option_names
from turnwise.analysis.counterexample import try_render
from turnwise.analysis.form_table import HAS_WORDS, Verdict, is_worse, judge
from turnwise.analysis.probe_chats import FormQuestion
from turnwise.analysis.template_constants import TemplateConstants
from turnwise.analysis.wide_conversations import (
    ask_options,
    list_common_probes,
    list_rare_probes,
    option_values,
)
from turnwise.engine.program import compile_program
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.renderer import Renderer
from turnwise.errors import TemplateLimitError, TurnwiseError
from turnwise.repair.defects import Defect, drop_space, list_part_paths

MAX_COMPILED = 3_000_000  # characters of all changed templates of one call


class Case(NamedTuple):
    """A conversation that is broken, and the text that its plain form has."""

    probe: Probe
    target: str
    plain: Probe
    is_core: bool  # the defect itself, and not a mixture with something else
    other_target: str | None = None  # that of another plain form


@dataclass
class Workbench:
    """Renders conversations with a template and with changed ones, within one allowance.

    Attributes:
        renderer: The template, with an allowance.
        compiled: How many characters of changed templates were compiled.
    """

    renderer: Renderer
    compiled: int = 0

    def change(self, text: str) -> Renderer | None:
        """Return a renderer with another text; None if that is no template.

        Raises:
            TemplateLimitError: More was compiled than one call may.
        """
        self.compiled += len(text)
        if self.compiled > MAX_COMPILED:
            message = f"more than {MAX_COMPILED} characters of changed templates"
            raise TemplateLimitError(message, budget="call", name=self.renderer.name)
        try:
            return with_text(self.renderer, text)
        except TurnwiseError:
            return None

    def list_probes(self) -> list[Probe]:
        """Return the generated set of conversations for this template."""
        renderer = self.renderer
        constants = [TemplateConstants.read(text) for text in renderer.texts]
        tokens = name_tokens(renderer)
        options = {
            name: option_values(name, constants) for name in option_names(renderer.variables)
        }
        return list(
            chain(
                list_common_probes(tokens),
                list_rare_probes(renderer.variables, constants, tokens),
                ask_options(options, tokens),
                (replace(probe, options=tokens) for probe in load_probes("odd contents")),
            )
        )


def with_text(renderer: Renderer, text: str) -> Renderer:
    """Return a renderer with another text, and the options, limits and allowance of the first."""
    program = renderer.program
    changed = compile_program(text, program.name, program.shadowed)
    return renderer.with_programs(lambda old: changed if old is program else old)


@dataclass(frozen=True)
class WrittenSet:
    """A template, and what it writes for each conversation of the generated set; None where it refuses."""

    text: str
    renderer: Renderer
    probes: Sequence[Probe]
    texts: Sequence[str | None]

    @classmethod
    def make(cls, text: str, renderer: Renderer, probes: Sequence[Probe]) -> WrittenSet:
        """Let a template write the conversations."""
        return cls(text, renderer, probes, [write(renderer, probe) for probe in probes])

    def pairs(self) -> Iterator[tuple[Probe, str | None]]:
        """Yield the conversations with their texts."""
        return zip(self.probes, self.texts, strict=True)


def write(renderer: Renderer, probe: Probe) -> str | None:
    """Return the text of a conversation; None if the template refuses it."""
    outcome = try_render(renderer, probe)
    return outcome.text if isinstance(outcome, Rendering) else None


class Proof:
    """What one defect makes of the generated set, and whether a change repairs it.

    Args:
        written: The template as it is.
        defect: What may be wrong.
        core: Conversations that show the defect, as the table of forms has them.
    """

    def __init__(self, written: WrittenSet, defect: Defect, core: Sequence[Probe]) -> None:
        self.defect = defect
        self.obstacle = ""  # a conversation that the last change would have spoiled
        renderer = written.renderer
        self.working: list[tuple[Probe, str]] = []
        self.cases: list[Case] = []
        known = [(probe, write(renderer, probe), True) for probe in core]
        others = [(probe, text, False) for probe, text in written.pairs()]
        for probe, text, is_core in (*known, *others):
            self._sort(renderer, probe, text, is_core)

    def _sort(self, renderer: Renderer, probe: Probe, text: str | None, is_core: bool) -> None:
        """Put a conversation among those that work or the broken ones; nothing is asked of the rest."""
        if text is not None and _prints_parts(renderer, probe):
            text = None
        plain = self.defect.plain(probe)
        target = text if plain is probe else write(renderer, plain)
        works = text is not None and (plain is probe or self._works(renderer, probe, plain))
        if text is not None and works and (text == target or not is_core):
            self.working.append((probe, text))
        elif (
            plain is not probe
            and target is not None
            and self._judge(renderer, plain, probe) in HAS_WORDS
        ):
            other = self._find_other_target(renderer, probe)
            self.cases.append(Case(probe, target, plain, is_core, other))

    def _find_other_target(self, renderer: Renderer, probe: Probe) -> str | None:
        """Return the text of another plain form that the template takes, if the defect has one."""
        if self.defect.other_plain is None:
            return None
        plain = self.defect.other_plain(probe)
        return None if plain is probe else write(renderer, plain)

    def _works(self, renderer: Renderer, probe: Probe, plain: Probe) -> bool:
        """Whether a conversation is written no worse than its plain form is."""
        verdict = self._judge(renderer, probe, probe)
        if is_worse(verdict, self._judge(renderer, plain, probe)):
            return False
        if verdict in HAS_WORDS and self.defect.is_compared:
            texts = [write(renderer, one) for one in (probe, plain)]
            return None in texts or drop_space(str(texts[0])) == drop_space(str(texts[1]))
        return True

    def _judge(self, renderer: Renderer, probe: Probe, given: Probe) -> Verdict:
        """Return what the template does with the fields that have the form, or had it in the given conversation."""
        paths = self.defect.paths(probe) or self.defect.paths(given)
        return judge(try_render(renderer, probe), FormQuestion(probe, tuple(paths))).verdict

    @property
    def core(self) -> list[Case]:
        """The conversations that show the defect and nothing else."""
        return [case for case in self.cases if case.is_core]

    def find_repaired(self, changed: Renderer, cases: Sequence[Case]) -> set[int]:
        """Return the indices of the cases that a changed template writes as their plain forms."""
        return {index for index, case in enumerate(cases) if self._is_repaired(changed, case)}

    def _is_repaired(self, changed: Renderer, case: Case) -> bool:
        text = write(changed, case.probe)
        if text is None:
            return False
        if text in (case.target, case.other_target):
            return True
        return self.defect.ignores_space and drop_space(text) == drop_space(case.target)

    def keeps_plain(self, changed: Renderer) -> bool:
        """Whether a changed template writes the plain forms of the core cases as before."""
        return all(write(changed, case.plain) == case.target for case in self.core)

    def find_changed(self, changed: Renderer) -> Iterator[Probe]:
        """Yield conversations that worked and are not written as before."""
        for probe, text in self.working:
            if write(changed, probe) != text:
                yield probe

    def find_unsound(self, changed: Renderer) -> Probe | None:
        """Return a conversation that was broken, and that a changed template neither refuses nor writes well."""
        for case in self.cases:
            if write(changed, case.probe) is None:
                continue
            if not self._works(changed, case.probe, case.plain):
                return case.probe
        return None


def _prints_parts(renderer: Renderer, probe: Probe) -> bool:
    """Whether text parts are written as Python shows them: nobody meant that."""
    paths = list_part_paths(probe)
    if not paths:
        return False
    question = FormQuestion(probe, tuple(paths))
    return judge(try_render(renderer, probe), question).verdict == "garbled"


def find_broken_together(renderer: Renderer, proofs: Sequence[Proof]) -> Iterator[tuple[str, str]]:
    """Yield the names of repaired defects, each with a conversation that all repairs together leave broken.

    The conversations are those that show one of the defects, or two. Their plain form is now that without any of them.
    """
    defects = [proof.defect for proof in proofs]
    for proof in proofs:
        mixed = [
            probe for probe in load_probes("two defects") if proof.defect.plain(probe) is not probe
        ]
        for probe in (*(case.probe for case in proof.core), *mixed):
            plains = [probe, probe]
            for defect in defects:
                other_plain = defect.other_plain or defect.plain
                plains = [defect.plain(plains[0]), other_plain(plains[1])]
            wanted = [write(renderer, plain) for plain in plains]
            targets = [drop_space(text) for text in wanted if text is not None]
            if targets and drop_space(write(renderer, probe) or "") not in targets:
                yield proof.defect.name, probe.covers
                break

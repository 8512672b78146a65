"""`doctor(model, template)`: the model writes garbage; is it the template?

Each question is a function that gives findings: what was looked at, whether it is well, and the evidence. The first
three are those that FastChat's documents ask when output is garbled: is it the model's template, the one it was trained
with, or the format of another system?
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from turnwise.analysis.conversations import NOW, SPECIAL_TOKENS, STANDARD_VARIABLES, make_message
from turnwise.errors import TurnwiseError
from turnwise.evidence.compare import diff, template_of
from turnwise.registry import match
from turnwise.template import Template

SOURCES = ("fastchat", "xtuner")
CHAT = [
    make_message("user", "First"),
    make_message("assistant", "One"),
    make_message("user", "Second"),
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `evidence` is a conversation, a name, a reason."""

    check: str
    well: bool
    evidence: str

    def __str__(self) -> str:
        return f"{'ok' if self.well else 'LOOK'}: {self.check}\n  {self.evidence.replace(chr(10), chr(10) + '  ')}"


@dataclass(frozen=True, slots=True)
class Patient:
    model: str
    template: Template
    trained: Template | None


def own_template(patient: Patient) -> Iterator[Finding]:
    """Is it the template of this model?"""
    try:
        wanted = match(patient.model)
    except TurnwiseError as error:
        yield Finding(
            "the model's template",
            False,
            f"no template is known for {patient.model}: {error.message}",
        )
        return
    found = diff(wanted.name, patient.template)
    yield Finding(
        f"the model's template is {wanted.name} ({wanted.reason})", found.equal, str(found)
    )


def training_format(patient: Patient) -> Iterator[Finding]:
    """Is it what the model was trained with?"""
    if patient.trained is None:
        yield Finding(
            "the format it was trained with", True, "not given: say which with trained=..."
        )
        return
    found = diff(patient.trained, patient.template)
    yield Finding("the format it was trained with", found.equal, str(found))


def other_styles(patient: Patient) -> Iterator[Finding]:
    """Is it what another system would write for this model?"""
    for source in SOURCES:
        try:
            theirs = match(patient.model, source)
            found = diff(theirs.name, patient.template)
        except TurnwiseError:
            continue
        yield Finding(f"what {source} writes for it: {theirs.name}", found.equal, str(found))


def opening(patient: Patient) -> Iterator[Finding]:
    """Does the template invite the model to speak?"""
    try:
        asked, plain = (
            patient.template.render(CHAT, add_generation_prompt=flag, now=NOW)
            for flag in (True, False)
        )
    except TurnwiseError as error:
        yield Finding("a plain conversation", False, error.message)
        return
    same = asked.text == plain.text
    said = (
        f"it adds {asked.text.removeprefix(plain.text)!r}"
        if not same
        else "it is ignored: the prompt ends as it is"
    )
    yield Finding("add_generation_prompt", not same, said)


def variables(patient: Patient) -> Iterator[Finding]:
    """Does the template read what nobody gives?"""
    known = {*STANDARD_VARIABLES, *SPECIAL_TOKENS, *patient.template.options}
    read = [name for name in patient.template.variables if name not in known]
    listed = ", ".join(read) or "none but the usual ones"
    yield Finding(
        "variables that it reads",
        not read,
        f"{listed}: are they options, or misspelled?" if read else listed,
    )


CHECKS: tuple[Callable[[Patient], Iterator[Finding]], ...] = (
    own_template,
    training_format,
    other_styles,
    opening,
    variables,
)


def doctor(
    model: str, template: Template | str, trained: Template | str | None = None
) -> list[Finding]:
    """What may be wrong with this template for this model, with the evidence."""
    patient = Patient(
        model, template_of(template), None if trained is None else template_of(trained)
    )
    return [finding for check in CHECKS for finding in check(patient)]

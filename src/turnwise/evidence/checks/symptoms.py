"""What most checks report: a conversation fails, or a field of it is dropped.

Each comes with the place in the template and the smallest conversation that shows it.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnwise.analysis.conversations import MessageDict, Probe
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import TemplateError, TurnwiseError, short_repr
from turnwise.evidence.checks.findings import Place, Severity, Symptom
from turnwise.evidence.checks.subject import Subject, describe_failure, is_refusal

CONTEXT = 30  # characters shown before the first difference


def report_failure(
    subject: Subject, probe: Probe, what: str, fix: str, refused: Severity | None = None
) -> Iterator[Symptom]:
    """Yield a symptom if the template fails on a conversation.

    Args:
        subject: the template.
        probe: the conversation.
        what: what the conversation has, as the beginning of a sentence.
        fix: what to do.
        refused: the severity if the template itself refuses it with `raise_exception`.
    """
    outcome = subject.run(probe)
    if isinstance(outcome, Rendering):
        return
    failure: TurnwiseError = outcome
    smallest = subject.smallest(probe, lambda other: _is_same(subject.run(other), failure))
    yield Symptom(
        f"{what}: the template {describe_failure(failure)}",
        fix,
        subject.places.of_error(failure),
        smallest,
        severity=refused if is_refusal(failure) else None,
    )


def _is_same(outcome: object, failure: TurnwiseError) -> bool:
    """Return True if an outcome is the same error at the same place."""
    if not isinstance(outcome, TurnwiseError) or outcome.message != failure.message:
        return False
    if isinstance(outcome, TemplateError) and isinstance(failure, TemplateError):
        return (outcome.line, outcome.column) == (failure.line, failure.column)
    return True


def report_loss(
    subject: Subject,
    probe: Probe,
    message: MessageDict,
    field: str,
    what: str,
    fix: str,
    place: Place | None = None,
    severity: Severity | None = None,
) -> Iterator[Symptom]:
    """Yield a symptom if nothing of a field of a message is written.

    Args:
        subject: the template.
        probe: the conversation.
        message: the message, one of the conversation.
        field: the field.
        what: what is dropped, as the beginning of a sentence.
        fix: what to do.
        place: where the template decides; found by comparing its branches, if None.
        severity: if it is not that of the check.
    """
    if not loses(subject, probe, message, field):
        return
    smallest = subject.smallest(probe, lambda other: loses(subject, other, message, field))
    place = place or subject.places.of_decision(probe, message, field)
    yield Symptom(f"{what} is dropped without a word", fix, place, smallest, severity=severity)


def loses(subject: Subject, probe: Probe, message: MessageDict, field: str) -> bool:
    """Return True if nothing of a field of a message is in the rendering of a conversation."""
    lost = subject.lost(probe)
    return any(
        one == message and f"messages[{index}].{field}" in lost
        for index, one in enumerate(probe.messages)
    )


def first_difference(text: str, other: str) -> int:
    """Return the index of the first character in which two texts differ."""
    pairs = enumerate(zip(text, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(text), len(other)))


def show_from(text: str, index: int) -> str:
    """Return a part of a text around a character as a literal."""
    return short_repr(text[max(0, index - CONTEXT) : index + 2 * CONTEXT], 3 * CONTEXT)


def squeeze(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def plain_index(text: str, squeezed_index: int) -> int:
    """Return the index in a text of the character that has an index among those that are not white space."""
    seen = -1
    for index, character in enumerate(text):
        seen += not character.isspace()
        if seen == squeezed_index:
            return index
    return len(text)

"""What most checks report: a conversation fails, or a field of it is dropped.

Each comes with the place in the template and the smallest conversation that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from turnwise.analysis.conversations import MessageDict, Probe
from turnwise.analysis.form_table import FormRow
from turnwise.analysis.profiles import SEVERITIES, Severity
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import TemplateError, TurnwiseError, short_repr
from turnwise.evidence.checks.findings import Symptom, Symptoms
from turnwise.evidence.checks.subject import Subject, describe_failure

WORD = re.compile(r"\w+")
CONTEXT = 30  # characters shown before the first difference
PLURAL = ("tools", "arguments")  # the beginnings of sentences about several things
NOTATIONS = {
    "python": "written as Python prints it",
    "json": "written as JSON",
    "quotes": "written as a text in quotes",
}


def report_failure(
    subject: Subject, probe: Probe, what: str, fix: str, named: Collection[MessageDict] = ()
) -> Symptoms:
    """Yield a symptom if the template fails on a conversation.

    Args:
        subject: the template.
        probe: the conversation.
        what: what the conversation has, as the beginning of a sentence.
        fix: what to do.
        named: the messages that `what` names.
    """
    outcome = subject.run(probe)
    if isinstance(outcome, Rendering):
        return
    failure: TurnwiseError = outcome
    smallest = subject.smallest(probe, lambda other: _is_same(subject.run(other), failure), named)
    yield Symptom(
        f"{what}: the template {describe_failure(failure)}",
        fix,
        subject.places.of_error(failure),
        smallest,
    )


def _is_same(outcome: object, failure: TurnwiseError) -> bool:
    """Return True if an outcome is the same error at the same place."""
    if not isinstance(outcome, TurnwiseError) or outcome.message != failure.message:
        return False
    if isinstance(outcome, TemplateError) and isinstance(failure, TemplateError):
        return (outcome.line, outcome.column) == (failure.line, failure.column)
    return True


def report_forms(subject: Subject, check: str, fix: str) -> Symptoms:
    """Yield a symptom for each defect of the table of forms that a check reports and the profile sends.

    Args:
        subject: the template.
        check: the name of the check.
        fix: what to do.
    """
    for severity, row in _list_defects(subject, check):
        yield _describe_row(subject, row, fix)._replace(severity=severity)


def report_first_form(subject: Subject, check: str, fix: str) -> Symptoms:
    """Yield the worst symptom of those that `report_forms` yields, for forms that mostly fail together."""
    found = _list_defects(subject, check)
    if found:
        severity, row = min(found, key=lambda one: SEVERITIES.index(one[0]))
        symptom = _describe_row(subject, row, fix)
        others = [other.form.what for _, other in found if other is not row]
        more = f"; so {'is' if len(others) == 1 else 'are'} {', '.join(others)}" if others else ""
        yield symptom._replace(message=symptom.message + more, severity=severity)


def _list_defects(subject: Subject, check: str) -> list[tuple[Severity, FormRow]]:
    """Return the defects that the profile sends, with their severities."""
    graded = [(subject.profile.grade(row), row) for row in subject.forms.find_defects(check)]
    return [(severity, row) for severity, row in graded if severity is not None]


def _describe_row(subject: Subject, row: FormRow, fix: str) -> Symptom:
    """Return what is wrong with a form, where, and the smallest conversation that shows it."""
    what, probe = row.form.what, row.probe
    if row.verdict == "refused":
        named = [probe.messages[int(row.path[1])]] if row.path[:1] == ("messages",) else []
        found = next(report_failure(subject, probe, what, fix, named), None)
        return found or Symptom(f"{what}: the template fails: {row.evidence}", fix, None, probe)
    be = "are" if what.startswith(PLURAL) else "is"
    if row.start is None:
        how = "dropped silently" if row.verdict == "dropped" else "written in part"
        return _describe_loss(subject, row, f"{what} {be} {how}", fix)
    how = (
        NOTATIONS[row.notation]
        if row.verdict == "garbled"
        else f"not written as {row.form.plainly}"
    )
    place = subject.places.of_field(probe, *row.path) if row.path else None
    text = subject.text_of(probe) or ""
    return Symptom(
        f"{what} {be} {how}",
        fix,
        place or subject.places.at(probe, row.start),
        probe,
        show_written(text, row.start),
    )


def _describe_loss(subject: Subject, row: FormRow, message: str, fix: str) -> Symptom:
    probe, path = row.probe, row.path
    if path[0] != "messages":
        return Symptom(message, fix, subject.places.of_variable(str(path[0])), probe)
    given, field = probe.messages[int(path[1])], str(path[2])
    lost = [int(key) if key.isdigit() else key for key in WORD.findall(row.evidence)[1:]]
    place = subject.places.of_field(probe, *lost)  # a value whose name is lost
    if place is None and "tool_calls" in lost[:-1]:  # one of several calls
        place = subject.places.of_decision(probe, *lost)
    place = place or subject.places.of_field(probe, *path[:3])  # the rest of the field
    place = place or subject.places.of_decision(probe, *path[:3])
    smallest = subject.smallest(probe, lambda other: loses(subject, other, given, field))
    return Symptom(message, fix, place, smallest)


def loses(subject: Subject, probe: Probe, message: MessageDict, field: str) -> bool:
    """Return True if nothing of a field of a message is in the rendering of a conversation."""
    lost = subject.lost(probe)
    return any(
        one == message and f"messages[{index}].{field}" in lost
        for index, one in enumerate(probe.messages)
    )


def show_from(text: str, index: int) -> str:
    """Return a part of a text around a character as a literal."""
    return short_repr(text[max(0, index - CONTEXT) : index + 2 * CONTEXT], 3 * CONTEXT)


def show_written(text: str, index: int) -> str:
    """Return the output of a finding: what was written around a character."""
    return f"writes: {show_from(text, index)}"

"""Run the checks on a template: `turnwise.check(template)`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Any

from turnwise.analysis.forms import load_forms
from turnwise.analysis.profiles import PROFILES, SEVERITIES
from turnwise.errors import SourceError, TurnwiseError, WarningLog, did_you_mean
from turnwise.evidence.checks import (
    calls,
    form_checks,
    frames,
    history,
    names,
    source,
    vocabulary,
    whole_texts,
)
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import CheckFinding, CheckReport, Symptom
from turnwise.evidence.checks.subject import Subject
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens import tokenizers

TOPICS = (form_checks, calls, history, vocabulary, source, names, whole_texts, frames)
CHECKS: tuple[Check, ...] = tuple(
    sorted((check for topic in TOPICS for check in topic.CHECKS), key=lambda check: check.code)
)
"""All checks, in the order of their codes."""
MAX_PER_CHECK = 20  # findings: a template that has more is no better known by them
FAILURE = re.compile(r": the template (?:refuses it|fails): (.*)", re.DOTALL)
DROPPED = "dropped silently"
NOT_ACCEPTED = "the template refuses a user message"


def find_check(code: str) -> Check:
    """Return a check by its code or its name.

    Raises:
        SourceError: there is no such check.
    """
    known = {one.code: one for one in CHECKS} | {one.name: one for one in CHECKS}
    wanted = code.strip()
    found = known.get(wanted.upper()) or known.get(wanted.lower())
    if found is None:
        raise SourceError(f"there is no check {code!r}", hint=did_you_mean(wanted, known, "Checks"))
    return found


def check(
    template: Template | str,
    tokenizer: object = None,
    reference: Template | str | None = None,
    *,
    ignore: Collection[str] = (),
    select: Collection[str] = (),
    profile: str | None = None,
) -> CheckReport:
    """Check a template: what users send to it, and what breaks training and serving.

    Args:
        template: a template, or a name, path or model id that `load` accepts.
        tokenizer: the tokenizer that it is used with, as for `encode`; without one, what is about tokens is not
            checked.
        reference: a template that it should write the same as, or its name.
        ignore: codes or names of checks that are not reported.
        select: codes or names of the only checks that are run; all, if empty.
        profile: what users send: "chat", "tools", "agents", "vision", "training" or "all". What it needs is an error
            if it is lost. None for what the template shows: its plain forms are errors, others warnings.

    Returns:
        The findings: each with its place in the template, the smallest conversation that shows it, and a fix.

    Raises:
        SourceError: a template cannot be loaded, or there is no such check or profile.
        TokenizerError: the tokenizer is not one.

    Example:
        >>> report = turnwise.check("chatml")
        >>> report.count("error")
        0
    """
    ignored, selected = _read_codes(ignore), _read_codes(select)
    known = None if tokenizer is None else tokenizers.tokenizer(tokenizer)
    loaded = [load(one) if isinstance(one, str) else one for one in (template, reference)]
    assert loaded[0] is not None
    subject = Subject(loaded[0], known, loaded[1], profile)
    kind = _describe(subject)
    audiences = PROFILES[profile or "all"] if kind is None else subject.profile.audiences
    chosen = [
        one for one in CHECKS if one.sent_by in audiences and (not selected or one.code in selected)
    ]
    findings: list[CheckFinding] = []
    not_run: list[tuple[str, str]] = []
    with WarningLog(is_quiet=True):  # of what a template drops: that is reported here
        for one in chosen:
            symptoms, reason = _run_check(one, subject)
            findings += [_to_finding(one, symptom, profile) for symptom in symptoms]
            not_run.append((one.code, reason))
        others = [] if selected else _list_others(subject, findings)
    kept = [one for one in findings if one.code not in ignored]
    return CheckReport(
        subject.template.name,
        tuple(sorted(_join_causes(kept), key=_sort_key)),
        tuple(filter(itemgetter(1), not_run)),
        len(findings) - len(kept),
        kind=kind or "",
        others=tuple(others),
        shows_notes=profile is not None or bool(selected),
    )


def _read_codes(codes: Collection[str]) -> set[str]:
    return {find_check(code).code for code in codes}


def _run_check(check: Check, subject: Subject) -> tuple[list[Symptom], str]:
    """Return what a check found, and why it could not be run to its end."""
    found: list[Symptom] = []
    try:
        if not check.reads_source and not subject.facts.is_accepting:
            return found, NOT_ACCEPTED
        for symptom in islice(check.run(subject), MAX_PER_CHECK):
            found.append(symptom)
    except TurnwiseError as error:  # a budget, mostly: the other checks may be cheaper
        return found, error.message
    return found, ""


def _describe(subject: Subject) -> str | None:
    """Return what the template is for; None if it refuses a user message, or costs too much to tell."""
    try:
        return subject.profile.describe() if subject.facts.is_accepting else None
    except TurnwiseError:
        return None


def _list_others(subject: Subject, findings: Iterable[CheckFinding]) -> list[str]:
    """Return the names of the checks that another profile would report."""
    reported = {finding.name for finding in findings}
    names = dict.fromkeys(form.check for form in load_forms().values() if form.check)
    left = [name for name in names if name not in reported]
    try:
        return [name for name in left if subject.forms.find_defects(name)]
    except TurnwiseError:  # a budget
        return []


def _join_causes(findings: Collection[CheckFinding]) -> Iterator[CheckFinding]:
    """Yield one finding for all of one cause; the worst stands for the others.

    One cause have those of a check at one place, all failures with one error at one place, and all losses that one fix
    mends. A history that is rewritten where a system message is lost is that loss.
    """
    groups: dict[Any, list[CheckFinding]] = {}
    losses = {one.place: one.fix for one in findings if one.name == "system-lost-later"}
    for number, finding in enumerate(findings):
        failure = FAILURE.search(finding.message)
        key: Any = (finding.code, finding.place or number)
        if failure and finding.place:
            key = (finding.place, failure[1])
        elif finding.message.endswith(DROPPED):
            key = finding.fix
        elif finding.name == "history-rewritten":
            key = losses.get(finding.place, key)
        groups.setdefault(key, []).append(finding)
    for group in groups.values():
        first = min(group, key=lambda finding: SEVERITIES.index(finding.severity))
        same = {one.message: None for one in group if one.code == first.code}
        heads = "; ".join(
            one.partition(": the template")[0] for one in same if one != first.message
        )
        also = tuple(dict.fromkeys(one.name for one in group if one.code != first.code))
        more = f" (for the same reason: {heads})" if heads else ""
        more += f" (also {', '.join(also)})" if also else ""
        yield replace(first, message=first.message + more, also=also)


def _to_finding(check: Check, symptom: Symptom, profile: str | None) -> CheckFinding:
    severity = symptom.severity or check.severity
    if profile is None and check.sent_by != "chat" and severity == "error":
        severity = "warning"
    return CheckFinding(check.code, check.name, severity, *symptom[:5])


def _sort_key(finding: CheckFinding) -> tuple[Any, ...]:
    place = finding.place
    where = (place.line, place.column) if place else (0, 0)
    return SEVERITIES.index(finding.severity), where, finding.code

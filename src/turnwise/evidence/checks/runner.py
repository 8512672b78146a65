"""Run the checks on a template: `turnwise.check(template)`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from turnwise.errors import SourceError, TurnwiseError, did_you_mean
from turnwise.evidence.checks import calls, contents, history, roles, source, vocabulary
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.engines import EngineMissing
from turnwise.evidence.checks.findings import (
    SEVERITIES,
    CheckFinding,
    CheckReport,
    Symptom,
)
from turnwise.evidence.checks.subject import Subject
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens import tokenizers

CHECKS: tuple[Check, ...] = (
    *roles.CHECKS,
    *contents.CHECKS,
    *calls.CHECKS,
    *history.CHECKS,
    *vocabulary.CHECKS,
    *source.CHECKS,
)
"""All checks, in the order of their codes."""
MAX_PER_CHECK = 20  # findings: a template that has more is no better known by them
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
    response_template: Mapping[str, Any] | None = None,
) -> CheckReport:
    """Check a template: what users send to it, and what breaks training and serving.

    Args:
        template: a template, or a name, path or model id that `load` accepts.
        tokenizer: the tokenizer that it is used with, as for `encode`; without one, what is about tokens is not
            checked.
        reference: a template that it should write the same as, or its name.
        ignore: codes or names of checks that are not reported.
        response_template: the `response_template` of the model's files, which is then compared with the template.

    Returns:
        The findings: each with its place in the template, the smallest conversation that shows it, and a fix.

    Raises:
        SourceError: a template cannot be loaded, or a code is not that of a check.
        TokenizerError: the tokenizer is not one.

    Example:
        >>> report = turnwise.check("chatml")
        >>> report.count("error")
        0
    """
    ignored = {find_check(code).code for code in ignore}
    known = None if tokenizer is None else tokenizers.tokenizer(tokenizer)
    subject = Subject(
        load(template) if isinstance(template, str) else template,
        known,
        load(reference) if isinstance(reference, str) else reference,
        response_template,
    )
    findings: list[CheckFinding] = []
    not_run: list[tuple[str, str]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what a template drops: that is reported here
        for one in CHECKS:
            try:
                if not one.reads_source and not subject.facts.is_accepting:
                    not_run.append((one.code, NOT_ACCEPTED))
                    continue
                for symptom in islice(one.run(subject), MAX_PER_CHECK):
                    findings.append(_to_finding(one, symptom))
            except TurnwiseError as error:  # a budget, mostly: the other checks may be cheaper
                not_run.append((one.code, error.message))
            except EngineMissing as error:
                not_run.append((one.code, str(error)))
    kept = [finding for finding in _join_same(findings) if finding.code not in ignored]
    kept.sort(key=_sort_key)
    return CheckReport(
        subject.template.name,
        tuple(kept),
        tuple(not_run),
        sum(finding.code in ignored for finding in findings),
    )


def _join_same(findings: Iterable[CheckFinding]) -> Iterator[CheckFinding]:
    """Yield one finding for all of a check at one place: they have one cause. The worst stands for the others."""
    groups: dict[Any, list[CheckFinding]] = {}
    for number, finding in enumerate(findings):
        groups.setdefault((finding.code, finding.place or number), []).append(finding)
    for group in groups.values():
        first = min(group, key=lambda finding: SEVERITIES.index(finding.severity))
        more = f" (and {len(group) - 1} more for the same reason)" if len(group) > 1 else ""
        yield replace(first, message=first.message + more)


def _to_finding(check: Check, symptom: Symptom) -> CheckFinding:
    severity = symptom.severity or check.severity
    rest = (symptom.message, symptom.fix, symptom.place, symptom.probe, symptom.output)
    return CheckFinding(check.code, check.name, severity, *rest)


def _sort_key(finding: CheckFinding) -> tuple[Any, ...]:
    place = finding.place
    where = (place.line, place.column) if place else (0, 0)
    return SEVERITIES.index(finding.severity), where, finding.code

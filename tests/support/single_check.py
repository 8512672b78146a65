"""Run one check on a template: a report runs all of them, which takes ten times as long."""

from __future__ import annotations

import warnings

import turnwise
from turnwise.evidence.checks import find_check
from turnwise.evidence.checks.findings import Symptom
from turnwise.evidence.checks.subject import Subject


def run_check(code: str, template: turnwise.Template, profile: str | None = "all") -> list[Symptom]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(find_check(code).run(Subject(template, profile=profile)))

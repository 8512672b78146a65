"""Checks of a chat template: what people send to it, and what breaks training and serving.

findings.py    what a check reports
catalogue.py   what a check is
subject.py     the template under check, and the conversations that checks are made of
places.py      where something was written, or where the template decided not to write it
symptoms.py    what most checks report, with the smallest conversation
decisions.py   which decision keeps a text from being written
form_checks.py, calls.py, history.py, vocabulary.py, source.py, names.py, whole_texts.py, frames.py:
               the checks, by topic
baseline.py    findings that a project knows
runner.py      runs them all

One check is one function, whose docstring is its page in `docs/checks/`, or a row of `form_checks.toml`.
`tests/evidence/checks/` has a template that it reports and one that it does not.
"""

from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import CheckFinding, CheckReport, Place
from turnwise.evidence.checks.runner import CHECKS, check, find_check

__all__ = [
    "CHECKS",
    "Check",
    "CheckFinding",
    "CheckReport",
    "Place",
    "check",
    "find_check",
]

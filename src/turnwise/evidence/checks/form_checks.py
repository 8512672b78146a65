"""T1, T2, T3: the forms in which clients send a conversation. What is refused, dropped or garbled of them.

Most of these checks read the table of forms, and are rows of `form_checks.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import partial
from importlib.resources import files

from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.findings import Symptoms
from turnwise.evidence.checks.subject import Subject
from turnwise.evidence.checks.symptoms import report_failure, report_first_form, report_forms
from turnwise.messages import JsonObject


def _read_checks() -> Iterator[Check]:
    text = files(__package__).joinpath("form_checks.toml").read_text(encoding="utf-8")
    rows: dict[str, JsonObject] = tomllib.loads(text)
    for code, row in rows.items():
        report = report_first_form if row.get("is_joined") else report_forms
        run = partial(report, check=row["name"], fix=row["fix"])
        yield Check(code, row["name"], "error", run, row["page"])


def check_user_message(subject: Subject) -> Symptoms:
    """A user message alone is refused.

    ## What it does
    Renders one user message with a generation prompt, as text and as a part, with and without a system message
    and tools.

    ## Why it matters
    A template that refuses the simplest conversation is of no use to anybody; mostly a variable has no value or a
    filter is not known.

    ## How to fix
    Follow the error. Read variables with a default: `{{ date_string | default("") }}`.
    """
    if subject.facts.is_accepting:
        return
    fix = "Follow the error; read variables that may be missing with a default."
    yield from report_failure(
        subject, subject.chat(subject.user(), prompt=True), "a user message", fix
    )


CHECKS = (
    Check("T101", "user-message", "error", check_user_message, reads_source=True),
    *_read_checks(),
)

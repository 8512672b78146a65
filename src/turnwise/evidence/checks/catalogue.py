"""A check: one function, its code, and its page.

The docstring of the function is the page, or a text of `form_checks.toml`: a title, then "What it does", "Why it
matters" and "How to fix".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import cleandoc

from turnwise.analysis.forms import Audience
from turnwise.analysis.profiles import Severity
from turnwise.evidence.checks.findings import Symptoms
from turnwise.evidence.checks.subject import Subject

RETIRED = "T107, T403, T405, T408, T506, T605, T607, T608, T609"
"""Codes of checks that are gone; projects may still have them in their configuration, so they get no other meaning."""
SECTIONS = ("What it does", "Why it matters", "How to fix")


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        code: a letter and three digits; the first digit is the topic. None of `RETIRED`.
        name: a few words with hyphens.
        severity: how bad a finding is for those who send it, unless the finding says otherwise.
        run: yields what is wrong with a template.
        doc: its page, if that is not the docstring of the function.
        reads_source: it reads the text alone, so it works for a template that refuses every message, too.
        sent_by: to whom it matters, if no form of input tells (`analysis/profiles.py`).
    """

    code: str
    name: str
    severity: Severity
    run: Callable[[Subject], Symptoms]
    doc: str = ""
    reads_source: bool = False
    sent_by: Audience = "chat"

    @property
    def title(self) -> str:
        """The first sentence of the page."""
        return self.text.partition("\n")[0]

    @property
    def text(self) -> str:
        """The page as it is written beside the check."""
        return cleandoc(self.doc or self.run.__doc__ or "")

    @property
    def page(self) -> str:
        """The page about the check, as Markdown."""
        title, _, rest = self.text.partition("\n")
        return f"# {self.code} {self.name}\n\n{title} Severity: {self.severity}.\n{rest}\n"

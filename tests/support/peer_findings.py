"""The errors of the linter chatlint, each among our findings or explained.

chatlint counts a failure once for every shape of conversation; we report a cause once, with its line. So its errors are
matched by what they are about: a template that fails must have a failure in our report, one that drops a text a loss,
and so on. What is left has a row in `EXPLAINED`, with the reason why it is no finding here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from turnwise.evidence.checks import CheckReport

FAILURES = ("fails: ", "refuses it: ")
ANSWERS: dict[str, tuple[str, ...]] = {
    "renders": (),
    "marker_balance": ("T401", "T402", "T703", "T404", "T501", "T303", "T305", "T307"),
    "no_repr_leak": ("T201", "T202", "T204", "T206", "T301", "T302", "T308", "T309"),
    "prefix_stability": ("T401", "T402", "T406", "T703"),
    "content_order": ("T103", "T104", "T105", "T108", "T203", "T204", "T205", "T303", "T305")
    + ("T306", "T307", "T401"),
    "time_invariance": ("T406",),
}
"""The codes that answer an error of each property; `renders` is answered by any failure."""

EXPLAINED: dict[str, str] = {
    "<think> .. </think>": "formats in which a turn without thoughts begins with </think>, by design",
}
"""Parts of the peer's sentences, and why what they say is no finding here."""


class PeerError(NamedTuple):
    """An error of the peer."""

    prop: str
    shape: str
    detail: str


def list_unanswered(errors: list[PeerError], report: CheckReport) -> Iterator[PeerError]:
    """Yield the errors of the peer that are neither among our findings nor explained."""
    codes = {finding.code for finding in report}
    fails = any(word in finding.message for finding in report for word in FAILURES)
    for error in errors:
        if error.prop == "renders" and fails:
            continue
        # A template that refuses a user message (T101) is asked nothing else.
        if codes.intersection(("T101", *ANSWERS[error.prop])):
            continue
        if not any(part in error.detail for part in EXPLAINED):
            yield error

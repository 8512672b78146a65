"""Evidence about templates and data: how two templates differ, what may be wrong, what looks like control tokens."""

from turnwise.evidence.checks import CheckFinding, CheckReport, check_template, find_check
from turnwise.evidence.compare import Comparison, diff
from turnwise.evidence.coverage import Branch, Coverage
from turnwise.evidence.doctor import Finding, doctor
from turnwise.evidence.scan import Collision, scan

__all__ = [
    "Branch",
    "CheckFinding",
    "CheckReport",
    "Collision",
    "Comparison",
    "Coverage",
    "Finding",
    "check_template",
    "diff",
    "doctor",
    "find_check",
    "scan",
]

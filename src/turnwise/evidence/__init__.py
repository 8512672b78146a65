"""Evidence about templates and data: how two templates differ, what may be wrong, what looks like control tokens."""

from turnwise.evidence.compare import Comparison, diff
from turnwise.evidence.coverage import Branch, Coverage
from turnwise.evidence.doctor import Finding, doctor
from turnwise.evidence.scan import Collision, scan

__all__ = [
    "Branch",
    "Collision",
    "Comparison",
    "Coverage",
    "Finding",
    "diff",
    "doctor",
    "scan",
]

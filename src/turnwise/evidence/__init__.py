"""Evidence about templates and data: what two templates disagree about, what may be wrong, what collides."""

from turnwise.evidence.compare import Comparison, diff
from turnwise.evidence.doctor import Finding, doctor
from turnwise.evidence.scan import Collision, scan

__all__ = ["Collision", "Comparison", "Finding", "diff", "doctor", "scan"]

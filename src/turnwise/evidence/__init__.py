"""Evidence about templates and data: how templates differ, what may be wrong, what data has."""

from turnwise.evidence.checks import CheckFinding, CheckReport, check, find_check
from turnwise.evidence.compare import Comparison, diff
from turnwise.evidence.conform import (
    Conformance,
    Engine,
    EngineDifference,
    EngineReply,
    conform,
    detect_engine,
)
from turnwise.evidence.coverage import Branch, Coverage
from turnwise.evidence.prefix_stability import Stability, stability
from turnwise.evidence.scan import RowProblem, ScanReport, scan

__all__ = [
    "Branch",
    "CheckFinding",
    "CheckReport",
    "Comparison",
    "Conformance",
    "Coverage",
    "Engine",
    "EngineDifference",
    "EngineReply",
    "check",
    "RowProblem",
    "ScanReport",
    "Stability",
    "conform",
    "detect_engine",
    "diff",
    "find_check",
    "scan",
    "stability",
]

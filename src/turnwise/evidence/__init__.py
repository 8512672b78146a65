"""Evidence about templates: what two of them disagree about."""

from turnwise.evidence.compare import Comparison, diff

__all__ = ["Comparison", "diff"]

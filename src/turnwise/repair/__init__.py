"""Repairs of templates: small changes of the text, each proved on a generated set of conversations."""

from turnwise.repair.fix import GENERATION, NAMES, Patch, Repair, Unfixed, fix

__all__ = ["GENERATION", "NAMES", "Patch", "Repair", "Unfixed", "fix"]

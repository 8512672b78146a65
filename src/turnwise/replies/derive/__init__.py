"""A grammar is derived from a template: ask it with probes, and tell markers from fields."""

from turnwise.replies.derive.derivation import derive as derive

"""Derive the grammar of replies from the facts of a template: render probes, and separate markers from fields."""

from turnwise.replies.derive.derivation import derive as derive

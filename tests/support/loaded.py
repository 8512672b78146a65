"""Entries that tests share: what a template derives from itself, its grammar first, is derived once."""

from __future__ import annotations

from functools import cache

import turnwise


@cache
def load_entry(name: str) -> turnwise.Template:
    return turnwise.load(name)

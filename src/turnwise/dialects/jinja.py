"""Jinja itself, as Hugging Face writes it: the dialect that the others are translated to."""

from __future__ import annotations

from typing import Any

from turnwise.dialects.reading import Reading
from turnwise.errors import SourceError


def knows(source: Any) -> bool:
    return isinstance(source, str)


def read(source: Any, exact: bool = False) -> Reading:
    if not isinstance(source, str):
        raise SourceError(f"a Jinja template is text, not {type(source).__name__}")
    return Reading(source)

"""Jinja as Hugging Face writes it: the dialect that all others are translated to.

Jinja has no place for stops. Stops that cannot be derived from a template are kept in a comment at
its very start, which other software ignores:

    {#- stops: "<|EOT|>", 32021 -#}

A string is the text of a stop, a number is its token id.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from turnwise.dialects.translation import Translation
from turnwise.errors import SourceError

STOP_COMMENT = re.compile(r"\{#-? stops: (.{1,2000}?) -?#\}")


def knows(source: Any) -> bool:
    """Return True for any text."""
    return isinstance(source, str)


def read(source: Any, exact: bool = False) -> Translation:
    """Return the template as it is, with the stops of its comment."""
    if not isinstance(source, str):
        raise SourceError(f"a Jinja template must be a string, not {type(source).__name__}")
    stops = _read_stop_comment(source)
    return Translation(
        source,
        stops=tuple(stop for stop in stops if isinstance(stop, str)),
        stop_ids=tuple(stop for stop in stops if isinstance(stop, int)),
    )


def _read_stop_comment(text: str) -> list[str | int]:
    comment = STOP_COMMENT.match(text)
    if comment is None:
        return []
    try:
        stops = json.loads(f"[{comment[1]}]")
    except (ValueError, RecursionError):
        return []
    is_valid = all(isinstance(stop, str) or type(stop) is int for stop in stops)
    return stops if is_valid else []


def with_stop_comment(text: str, stops: Iterable[str | int]) -> str:
    """Return the template with a comment that lists its stops and changes nothing else."""
    quoted = [json.dumps(stop, ensure_ascii=False).replace("#}", "\\u0023}") for stop in stops]
    # "-#}" would also remove white space that the template itself starts with; without it,
    # `trim_blocks` removes the newline after the comment.
    end = "#}" if text[:1].isspace() else "-#}"
    return f"{{#- stops: {', '.join(quoted)} {end}\n{text}"

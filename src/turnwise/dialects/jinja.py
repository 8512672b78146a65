"""Jinja itself, as Hugging Face writes it: the dialect that the others are translated to.

Jinja has no place for stops. Those that cannot be read off a template are kept in a comment at its very beginning,
which other software passes over: `{#- stops: "<|EOT|>", 32021 -#}`. A text is a stop, a number is the id of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from turnwise.dialects.translation import Translation
from turnwise.errors import SourceError

NOTE = re.compile(r"\{#-? stops: (.{1,2000}?) -?#\}")


def knows(source: Any) -> bool:
    return isinstance(source, str)


def read(source: Any, exact: bool = False) -> Translation:
    if not isinstance(source, str):
        raise SourceError(f"a Jinja template is text, not {type(source).__name__}")
    stops = noted_stops(source)
    words = tuple(stop for stop in stops if isinstance(stop, str))
    return Translation(
        source, stops=words, stop_ids=tuple(stop for stop in stops if isinstance(stop, int))
    )


def noted_stops(text: str) -> list[str | int]:
    """What the first comment says; nothing if it says something else."""
    found = NOTE.match(text)
    try:
        stops = json.loads(f"[{found[1]}]") if found else []
    except (ValueError, RecursionError):
        return []
    return stops if all(isinstance(stop, str) or type(stop) is int for stop in stops) else []


def with_stop_comment(text: str, stops: Iterable[str | int]) -> str:
    """The template with a comment that says its stops, and that changes nothing.

    A text may begin with white space; then the newline behind the comment is left to `trim_blocks`.
    """
    said = ", ".join(
        json.dumps(stop, ensure_ascii=False).replace("#}", "\\u0023}") for stop in stops
    )
    return f"{{#- stops: {said} {'' if text[:1].isspace() else '-'}#}}\n{text}"

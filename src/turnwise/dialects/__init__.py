"""Dialects: the languages in which chat templates are written. Each is translated to Jinja; none renders.

A dialect is one file with `read(source, exact=False) -> Translation`, `knows(source) -> bool`, and
`write(...)` where turns can be written in it. A source is what people have: a text (Jinja, JSON, a
Modelfile) or the dict in their code. `read` raises a `SourceError` that names the key; it never
approximates. With `exact` the Jinja reproduces the original software to the byte, recorded defects
included; without it, the better behaviour of `docs/compatibility.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from turnwise.dialects.translation import Dialect, Translation, object_in
from turnwise.errors import SourceError, did_you_mean, short_repr

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("xtuner", writes="xtuner"),
        Dialect("xtuner_v1"),
        Dialect("fastchat", writes="fastchat_write", details=("name",), texts=("eos_token",)),
        Dialect("paddlenlp", writes="paddlenlp", texts=("bos_token", "eos_token"), stops=False),
        Dialect("internlm2"),
        Dialect("llamafactory", writes="llamafactory", names=("bos_token", "eos_token")),
        Dialect(
            "ollama", writes="ollama", details=("base",), texts=("eos_token",), prompts_only=True
        ),
        Dialect("jinja"),  # last: any text may be Jinja
    )
}


# Keys that other things have too, rows of data among them: with nothing else they prove nothing.
COMMON = {
    "name",
    "messages",
    "system",
    "user",
    "assistant",
    "conversation",
    "thinking",
    "developer",
    "separator",
}
LARGEST = 40  # keys of a mapping; no dialect has more
NEAR = 0.75  # how alike a key and a misspelt one are


def guess_dialect(source: Any) -> str:
    """The dialect of a source, told by its shape; where a key is misspelt, the one whose keys are nearest."""
    found = object_in(source)
    if isinstance(found, str) and ("{%" in found or "{{" in found):
        return (
            "ollama" if DIALECTS["ollama"].knows(found) else "jinja"
        )  # the others need not be loaded
    if (known := find_dialect(found)) or (known := find_dialect(source)):
        return known
    keys = (
        f" with the keys {', '.join(map(str, list(source)[:8]))}"
        if isinstance(source, dict)
        else ""
    )
    raise SourceError(
        f"no dialect has a source like this: {type(source).__name__}{keys}",
        hint=f"Say which it is: dialect={' | '.join(map(repr, DIALECTS))}.",
    )


def find_dialect(source: Any) -> str | None:
    """The dialect that takes a source for one of its own, else the nearest."""
    found = (dialect.name for dialect in DIALECTS.values() if dialect.knows(source))
    return next(found, None) or nearest(source)


def nearest(source: Any) -> str | None:
    """The dialect that has the most of a mapping's keys, if not of every spelling: half of them, and two if there are
    two. Its own checker then says which key is wrong.
    """
    if not isinstance(source, Mapping) or not 0 < len(source) <= LARGEST:
        return None
    scores = {}
    for dialect in DIALECTS.values():
        close = {
            str(key): get_close_matches(str(key)[:40], dialect.keys, 1, NEAR) for key in source
        }
        hits = [key for key, near in close.items() if near]
        told = any(near and near[0] not in COMMON for near in close.values())
        if told and 2 * len(hits) >= len(source) and len(hits) >= min(2, len(source)):
            scores[dialect.name] = (len(hits), sum(key in dialect.keys for key in hits))
    return max(scores, key=lambda name: scores[name]) if scores else None


def get_dialect(name: str) -> Dialect:
    if not isinstance(name, str) or name not in DIALECTS:
        raise SourceError(
            f"there is no dialect {short_repr(name)}",
            hint=did_you_mean(str(name), DIALECTS, "Dialects"),
        )
    return DIALECTS[name]


__all__ = ["DIALECTS", "Dialect", "Translation", "guess_dialect", "find_dialect", "get_dialect"]

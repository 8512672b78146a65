"""Dialects: the languages in which chat templates are written. Each is translated to Jinja; none renders.

A dialect is one file with `read(source, exact=False) -> Reading` and `knows(source) -> bool`, and `write(...)` where it
can say a template back. A source is what people have: a text (Jinja, JSON, a Modelfile) or the dict that their code
has. `read` fails with a `SourceError` that names the key rather than approximate. With `exact` the Jinja reproduces
the original software to the byte, recorded defects included; without it, the better behaviour of
`docs/compatibility.md`.
"""

from __future__ import annotations

from typing import Any

from turnwise.dialects.reading import Dialect, Reading
from turnwise.errors import SourceError, suggestion

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("xtuner", writes="xtuner"),
        Dialect("xtuner_v1"),
        Dialect("fastchat", writes="fastchat_write"),
        Dialect("paddlenlp", writes="paddlenlp"),
        Dialect("internlm2"),
        Dialect("llamafactory", writes="llamafactory"),
        Dialect("ollama", writes="ollama"),
        Dialect("jinja"),  # last: any text may be Jinja
    )
}


def guess(source: Any) -> str:
    """The dialect of a source, told by its shape."""
    for dialect in DIALECTS.values():
        if dialect.knows(source):
            return dialect.name
    keys = f" with the keys {', '.join(map(str, list(source)[:8]))}" if isinstance(source, dict) else ""
    raise SourceError(
        f"no dialect has a source like this: {type(source).__name__}{keys}",
        hint=f"Say which it is: dialect={' | '.join(map(repr, DIALECTS))}.",
    )


def named(name: str) -> Dialect:
    if name not in DIALECTS:
        raise SourceError(f"there is no dialect {name!r}", hint=suggestion(name, DIALECTS, "Dialects"))
    return DIALECTS[name]


__all__ = ["DIALECTS", "Dialect", "Reading", "guess", "named"]

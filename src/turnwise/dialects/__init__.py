"""Dialects: the languages in which chat templates are written. Each is translated to Jinja; none renders.

A dialect is one file with `read(source, exact=False) -> Reading` and `knows(source) -> bool`, and `write(...)` where it can say a
template back. A source is what people have: a text (Jinja, JSON, a Modelfile) or the dict that their code has. `read` fails
with a `SourceError` that names the key rather than approximate. With `exact` the Jinja reproduces the original software to the
byte, recorded defects included; without it, the better behaviour of `docs/compatibility.md`.
"""

from __future__ import annotations

from turnwise.dialects.reading import Dialect, Reading

__all__ = ["Dialect", "Reading"]

"""Dialects: the languages in which chat templates are written. Each is translated to Jinja.

    jinja         a Hugging Face chat template                          jinja.py
    xtuner        a dict with INSTRUCTION, SUFFIX, ...                  xtuner.py
    xtuner_v1     a mapping of one text per role                        xtuner_v1.py
    fastchat      the fields of a Conversation                          fastchat.py
    paddlenlp     chat_template.json: three Jinja texts                 paddlenlp.py
    internlm2     InternLM2's own format, with agents                   internlm2.py
    lmdeploy      the fields of LMDeploy's chat templates               lmdeploy.py
    llamafactory  the arguments of `register_template`                  llamafactory.py
    ollama        a Modelfile, or its template in Go's language         ollama.py

A dialect is one module with `knows(source) -> bool` and `read(source, exact=False) -> Translation`,
and `write(turns)` where turns can be written in it. `read` raises a `SourceError` that names the
key; it never approximates. With `exact` the Jinja reproduces the original software to the byte,
recorded defects included; without it, the better behaviour of `docs/compatibility.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from turnwise.dialects.translation import Dialect, Translation, copy_source, object_in
from turnwise.engine.runtime.limits import MAX_TEMPLATE_CHARACTERS
from turnwise.errors import SourceError, TemplateSyntaxError
from turnwise.schema import check_name

__all__ = [
    "DIALECTS",
    "Dialect",
    "Translation",
    "WRITABLE",
    "find_dialect",
    "get_dialect",
    "guess_dialect",
    "translate",
]

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        Dialect("xtuner", writer="xtuner", inserts_bos=True, late_systems=True),
        Dialect(
            "lmdeploy",
            writer="lmdeploy",
            inserts_bos=True,
            prompts_only=True,
            late_systems=True,
            unwritten=("tools", "reasoning", "images"),
        ),
        Dialect("internlm2"),
        Dialect("xtuner_v1"),
        Dialect(
            "fastchat",
            writer="fastchat_write",
            details=("name",),
            inserts_bos=True,
            unwritten=("images",),
        ),
        Dialect("paddlenlp", writer="paddlenlp", stops=False, unwritten=("options", "text")),
        Dialect(
            "llamafactory",
            writer="llamafactory",
            names=("bos_token", "eos_token"),
            unwritten=("tools", "reasoning", "images", "audio"),
        ),
        Dialect(
            "ollama",
            writer="ollama",
            details=("base",),
            names=("date",),
            inserts_bos=True,
            prompts_only=True,
            unwritten=("tools", "reasoning", "images"),
        ),
        Dialect("jinja"),  # last: any text may be Jinja
    )
}

WRITABLE = tuple(name for name, one in DIALECTS.items() if one.writer or name == "jinja")
"""The dialects that `convert` can write."""

# Keys that rows of training data have too: alone they do not identify a dialect.
COMMON_KEYS = {
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
MAX_KEYS = 40  # of a mapping; no dialect has more
MAX_KEY_LENGTH = 40
MIN_KEY_SIMILARITY = 0.75  # between a key and a misspelt one


def guess_dialect(source: Any, name: str = "") -> str:
    """Return the name of the dialect that a source is written in.

    A mapping with misspelt keys is counted to the dialect with the nearest keys.

    Args:
        source: the source.
        name: what error messages call the template.

    Raises:
        TemplateSyntaxError: it is no source at all.
        SourceError: no dialect has such sources.
    """
    is_source = isinstance(source, (str, Mapping)) or hasattr(source, "sep_style")
    if not is_source:
        raise TemplateSyntaxError(f"a template is text, not {type(source).__name__}", name=name)
    if isinstance(source, str) and len(source) > MAX_TEMPLATE_CHARACTERS:
        return "jinja"  # its reader raises the error about the length
    content = object_in(source)
    if isinstance(content, str) and ("{%" in content or "{{" in content):
        # The other dialects need not even be imported.
        return "ollama" if DIALECTS["ollama"].knows(content) else "jinja"
    found = find_dialect(content)
    if found is None and content is not source:
        found = find_dialect(source)
    if found is not None:
        return found
    keys = ""
    if isinstance(source, dict):
        keys = f" with the keys {', '.join(map(str, list(source)[:8]))}"
    raise SourceError(
        f"no dialect has a source like this: {type(source).__name__}{keys}",
        hint=f"Pass the dialect: dialect={' | '.join(map(repr, DIALECTS))}.",
    )


def find_dialect(source: Any) -> str | None:
    """Return the first dialect that knows a source, else the one with the nearest keys."""
    for dialect in DIALECTS.values():
        if dialect.knows(source):
            return dialect.name
    return _find_nearest(source)


def _find_nearest(source: Any) -> str | None:
    """Return the dialect that has most of a mapping's keys, correctly spelt or nearly so.

    It must have half of the keys, and two of them if there are two. Its own checks then name the
    misspelt key.
    """
    if not isinstance(source, Mapping) or not 0 < len(source) <= MAX_KEYS:
        return None
    scores = {}
    for dialect in DIALECTS.values():
        nearest = {}
        for key in map(str, source):
            similar = get_close_matches(key[:MAX_KEY_LENGTH], dialect.keys, 1, MIN_KEY_SIMILARITY)
            if similar:
                nearest[key] = similar[0]
        is_distinctive = not COMMON_KEYS.issuperset(nearest.values())
        is_enough = 2 * len(nearest) >= len(source) and len(nearest) >= min(2, len(source))
        if is_distinctive and is_enough:
            exact_keys = sum(key in dialect.keys for key in nearest)
            scores[dialect.name] = (len(nearest), exact_keys)
    return max(scores, key=lambda name: scores[name]) if scores else None


def get_dialect(name: str) -> Dialect:
    """Return a dialect by its name."""
    check_name(name, DIALECTS, "unknown dialect", "Dialects", SourceError)
    return DIALECTS[name]


def translate(source: Any, dialect: str, name: str = "", exact: bool = False) -> Translation:
    """Translate a source to Jinja; the source itself is kept in the facts of the translation.

    Args:
        source: a text, or the dict of the dialect.
        dialect: its name.
        name: what an error calls the source.
        exact: reproduce the original software's recorded defects.

    Raises:
        SourceError: the source is malformed.
    """
    try:
        source = copy_source(source)
        translation = get_dialect(dialect).read(source, exact=exact)
    except SourceError as error:
        raise (error.within(name) if name else error) from None
    if dialect == "jinja":
        return translation
    facts = {"template": source, **translation.facts}
    return replace(translation, facts=facts, only_stops=exact)

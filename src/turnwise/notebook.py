"""Results as HTML for notebooks, in the colours of the playground.

What `render`, `encode`, `examples`, `parse`, `check` and `diff` return has a `_repr_html_`, and so have grammars.
`notebook.html.jinja` has a macro for each. It is given the object as it is, so that this module imports none of the
modules that make them. Nothing in a view runs or loads anything; Jinja escapes every text, control characters are shown
as their codes, and a view has a bounded size: what does not fit is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import jinja2

from turnwise.errors import printable

MAX_CHARACTERS = 8_000  # of a prompt, and of each other text
MAX_ROWS = 1_000  # pieces or tokens
MAX_LISTED = 20  # changes, warnings, calls, findings, samples
MAX_TITLE = 160  # of what is shown where a mouse rests
LINE_ENDS = str.maketrans({"\n": "↵", "\r": "␍", "\t": "⇥"})
IGNORED = -100  # the label of a token that is not trained


class ShownTexts(NamedTuple):
    """Texts that fit into a view, each with what is known of it."""

    rows: list[tuple[str, Any]]
    left: int  # how many characters, or tokens, are left out


def show_html(view: str, shown: Any) -> str:
    """Return an object as HTML.

    Args:
        view: the macro of `notebook.html.jinja` that shows such objects.
        shown: the object.

    Example:
        >>> from turnwise.notebook import show_html
        >>> html = turnwise.load("chatml").render([{"role": "user", "content": "<b>"}])._repr_html_()
        >>> "&lt;b&gt;" in html, "<b>" in html
        (True, False)
    """
    return str(getattr(_load_views().module, view)(shown))


def fit_pieces(pieces: Iterable[Any]) -> ShownTexts:
    """Return the first pieces of a rendering, with their origins, as far as there is room."""
    rows: list[tuple[str, Any]] = []
    room, left = MAX_CHARACTERS, 0
    for text, origin in pieces:
        shown = text[:room] if len(rows) < MAX_ROWS else ""
        if shown:
            rows.append((shown, origin))
        room -= len(shown)
        left += len(text) - len(shown)
    return ShownTexts(rows, left)


def fit_tokens(encoded: Any) -> ShownTexts:
    """Return the first tokens of an `Encoded`: id, owner, and whether each is trained, control, or forged."""
    control = set(encoded.control)
    forged = iter(
        encoded.defused if encoded.tokenizer is not None else ()
    )  # a copy has no tokenizer
    start, end = next(forged, (0, 0))
    columns = zip(encoded.tokens, encoded.input_ids, encoded.labels, encoded.owners, strict=True)
    rows, at = [], 0
    for index, (text, id, label, owner) in enumerate(islice(columns, MAX_ROWS)):
        while end and end <= at:
            start, end = next(forged, (0, 0))
        is_forged = start < at + len(text) and at < end
        kinds = {"trained": label != IGNORED, "control": index in control, "forged": is_forged}
        title = f"id {id}, {owner.field or 'template'}"
        rows.append(
            (text.translate(LINE_ENDS), {"id": id, "title": title, "owner": owner, **kinds})
        )
        at += len(text)
    return ShownTexts(rows, len(encoded) - len(rows))


@cache
def _load_views() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.ChainableUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["MAX_LISTED"] = MAX_LISTED
    environment.filters["pieces"] = fit_pieces
    environment.filters["tokens"] = fit_tokens
    # `str` makes a plain text of one that claims to be HTML.
    environment.filters["text"] = lambda value: printable(str(value), MAX_CHARACTERS)
    environment.filters["title"] = lambda value: printable(str(value), MAX_TITLE)
    from importlib.resources import files  # few callers need it, and importing it takes time

    file = files("turnwise") / "notebook.html.jinja"
    return environment.from_string(file.read_text(encoding="utf-8"))

"""A report of a prepared data set: one HTML page with plots, made of the manifest alone.

The page is one file that loads nothing and runs no script: plots are SVG, drawn by `report.html.jinja`, and follow the
light or dark style of the reader. A manifest may come from anybody: reasons, file names and options are untrusted text.
So Jinja escapes each text, each number is read as one, lists are cut, and a content security policy forbids the page to
load or to run anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from turnwise.data.reasons import KINDS
from turnwise.errors import printable

REPORT = "report.html"
SOURCE = Path(__file__).with_name("report.html.jinja")
MAX_BARS = 120
MAX_ROWS = 60  # of a table
MAX_TEXT = 400  # characters of a text of others
ROW_KINDS = ("in", "out", "filtered", "rejected")
TOKEN_KINDS = ("all", "trained", "lost", "padding")


def write_report(manifest: Mapping[str, Any]) -> str:
    """Return the page for a manifest, as HTML.

    Args:
        manifest: what `manifest.json` holds. What is missing or of another type is shown as 0, or left out.

    Example:
        >>> page = write_report({"rows": {"in": 3, "out": 2, "rejected": 1}, "reasons": {"<b>": 1}})
        >>> "&lt;b&gt;" in page
        True
    """
    recipe = _read_table(manifest, "recipe")
    shards = [one for one in _read_list(manifest, "shards") if isinstance(one, Mapping)]
    shown = {name: manifest.get(name) for name in ("recipe", "digests")}
    text = json.dumps(shown, indent=2, ensure_ascii=False, default=str)[: 50 * MAX_TEXT]
    return _load_page().render(
        version=_clean(manifest.get("turnwise")),
        template=_clean(recipe.get("template")),
        tokenizer=_clean(recipe.get("tokenizer")),
        rows=_read_numbers(manifest, "rows", ROW_KINDS),
        tokens=_read_numbers(manifest, "tokens", TOKEN_KINDS),
        samples=_read_number(manifest.get("samples")),
        rewritten=_read_number(manifest.get("rewritten")),
        lengths=[(f"up to {_count(end)}", n) for end, n in _read_histogram(manifest, "lengths")],
        trained_share=[
            (f"up to {end:.0%}", number)
            for end, number in _read_histogram(manifest, "trained_share")
        ],
        packing=_read_packing(manifest),
        reasons=_read_reasons(manifest),
        unread=_read_columns(manifest, "unread"),
        carried=_read_columns(manifest, "carried"),
        shards=[
            {"path": _clean(one.get("path")), "split": _clean(one.get("split"))}
            | _read_numbers({"shard": one}, "shard", ("rows", "tokens"))
            for one in shards
        ],
        max_rows=MAX_ROWS,
        notes=list(map(_clean, _read_list(manifest, "notes")[:MAX_ROWS])),
        recipe=printable(text, limit=len(text)),
    )


@cache
def _load_page() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    tenth = "{:.1f}".format
    environment.filters |= {"count": _count, "percent": _show_percent, "tenth": tenth}
    return environment.from_string(SOURCE.read_text(encoding="utf-8"))


def _read_packing(manifest: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the rows and how full they are; None if the samples are not packed."""
    if _read_table(manifest, "packing").get("efficiency") is None:
        return None
    found = _read_numbers(manifest, "packing", ("rows", "efficiency"))
    return {**found, "efficiency": min(1.0, found["efficiency"])}


def _read_reasons(manifest: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return reasons with their counts, the most frequent first; a kind of reasons with what it means."""
    counts = {str(key): _read_number(n) for key, n in _read_table(manifest, "reasons").items()}
    found = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    shown = [
        (_clean(f"{reason}: {KINDS[reason]}" if reason in KINDS else reason), count)
        for reason, count in found[:MAX_ROWS]
    ]
    if len(found) > MAX_ROWS:
        others = found[MAX_ROWS:]
        shown.append((f"{len(others)} other reasons", sum(count for _, count in others)))
    return shown


def _read_columns(manifest: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = list(_read_table(manifest, key).items())
    first = [(_clean(name), _read_number(count)) for name, count in found[:MAX_ROWS]]
    return {"first": first, "more": max(0, len(found) - MAX_ROWS)}


def _read_table(manifest: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = manifest.get(key)
    return value if isinstance(value, Mapping) else {}


def _read_list(manifest: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = manifest.get(key)
    return value if isinstance(value, (list, tuple)) else ()


def _read_numbers(manifest: Mapping[str, Any], key: str, names: Sequence[str]) -> dict[str, float]:
    table = _read_table(manifest, key)
    return {name: _read_number(table.get(name)) for name in names}


def _read_histogram(manifest: Mapping[str, Any], key: str) -> list[tuple[float, float]]:
    """Return the pairs of an upper bound and a count."""
    pairs = [pair for pair in _read_list(manifest, key) if isinstance(pair, (list, tuple))]
    found = [(_read_number(pair[0]), _read_number(pair[1])) for pair in pairs if len(pair) == 2]
    return found[:MAX_BARS]


def _read_number(value: Any) -> float:
    """Return a number that can be drawn: 0 for what is none, and for less than none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return max(0, value) if abs(value) < 1e18 and math.isfinite(value) else 0


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _show_percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0%"


def _clean(value: Any) -> str:
    """Return a text of others without control characters, and cut; Jinja escapes it."""
    return printable(str(value if value is not None else "?"), limit=MAX_TEXT)

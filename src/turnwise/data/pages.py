"""What is written about a run: a report with plots, a README with the lines that each trainer needs, and summaries.

All are Jinja templates over the manifest. `report.html` is one file that loads nothing and runs no script: plots are
SVG, and follow the light or dark style of the reader. A manifest may come from anybody: file names, options and columns
are untrusted text. So a manifest is checked when it is read (`manifest.COMPLETE`), each text is cut and cleaned, Jinja
escapes it in HTML, and a content security policy forbids the report to load or to run anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from turnwise.data.reasons import KINDS
from turnwise.errors import printable
from turnwise.messages import JsonMapping

REPORT, PAGE = "report.html", "README.md"
FOLDER = "out"  # what the lines for trainers call the folder
MAX_SHOWN = 30  # columns
MAX_ROWS = 60  # of a table
MAX_REASONS = 8  # of a summary
LABEL_WIDTH = 11  # of a line of a summary
MAX_TEXT = 20_000  # characters of a text of others
UNKNOWN_LENGTH = 4096
TRAINER = re.compile(r"^### ([^\n]+)\n\n```\w+\n(.+?)\n```", re.MULTILINE | re.DOTALL)


def write_report(manifest: JsonMapping) -> str:
    """Return the report of a manifest, as HTML."""
    shown = {name: manifest[name] for name in ("recipe", "digests")}
    return _load_page("report.html.jinja").render(
        manifest=manifest,
        max_rows=MAX_ROWS,
        recipe=json.dumps(shown, indent=2, ensure_ascii=False, default=str),
    )


def write_page(manifest: JsonMapping, folder: str = FOLDER) -> str:
    """Return the README of a manifest.

    Args:
        manifest: what `manifest.json` holds.
        folder: the folder of the shards, as the lines for trainers shall name it.
    """
    return _load_page("page.md.jinja").render(
        manifest=manifest,
        recipe=manifest["recipe"],
        splits=sorted({shard["split"] for shard in manifest["shards"]}),
        columns=list(describe_columns(manifest)),
        # A length that no sample exceeds: the highest bound of the histogram that holds one.
        longest=max(
            (bound for bound, count in manifest["lengths"] if count), default=UNKNOWN_LENGTH
        ),
        folder=folder,
    )


def write_trainer_lines(manifest: JsonMapping, folder: str = FOLDER) -> dict[str, str]:
    """Return the lines for each trainer that can load the shards, by the name of the trainer; as for `write_page`."""
    return dict(TRAINER.findall(write_page(manifest, folder)))


def write_summary(manifest: JsonMapping, folder: str) -> str:
    """Return the summary of a run: lines that begin with a label of `LABEL_WIDTH` characters."""
    return _load_page("summary.txt.jinja").render(
        manifest=manifest,
        columns=list(describe_columns(manifest)),
        max_reasons=MAX_REASONS,
        folder=Path(folder),
    )


def write_dry_run(found: Any) -> str:
    """Return the summary of a `DryRun`; the lines are like those of a run."""
    columns = describe_columns({"unread": found.unread, "carried": found.carried})
    return _load_page("dry_run.txt.jinja").render(found=found, columns=list(columns))


def describe_columns(manifest: JsonMapping) -> Iterator[str]:
    """Yield the columns that were not read, and those that the shards carry, as a line each.

    Args:
        manifest: a manifest, or whatever else has these counts.

    Example:
        >>> list(describe_columns({"unread": {"id": 3}, "carried": {}}))
        ['columns that were not read: id (3 rows)']
    """
    for key, what in (("unread", "were not read"), ("carried", "are carried")):
        found = manifest.get(key) or {}
        shown = [
            f"{printable(name)} ({count_of(count, 'row')})"
            for name, count in list(found.items())[:MAX_SHOWN]
        ]
        if len(found) > MAX_SHOWN:
            shown.append(f"and {len(found) - MAX_SHOWN:,} more")
        if shown:
            yield f"columns that {what}: {', '.join(shown)}"


@cache
def _load_page(name: str) -> jinja2.Template:
    environment = jinja2.Environment(autoescape=".html" in name, finalize=_clean)
    shapes = {"count": "{:,.0f}", "tenth": "{:.1f}"}
    environment.filters |= {one: shape.format for one, shape in shapes.items()}
    environment.filters |= {
        "percent": _show_percent,
        "short": short_number,
        "count_of": count_of,
        "explain": _explain,
    }
    return environment.from_string(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _clean(value: Any) -> Any:
    """Return a text of others without control characters, and cut; what Jinja has made is clean."""
    is_raw = isinstance(value, str) and not hasattr(value, "__html__")
    return printable(value, limit=MAX_TEXT) if is_raw else value


def _show_percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "0%"


def count_of(number: int, noun: str) -> str:
    """Return a number of things in words: 1 row, 1,000 rows."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def short_number(value: float) -> str:
    """Return a number in three digits: 950, 12.3k, 4.56M."""
    for unit in ("", "k", "M", "G"):
        if value < 999.5 or unit == "G":
            break
        value /= 1000
    digits = 0 if not unit or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}{unit}"


def _explain(kind: str) -> str:
    return f"{kind}: {KINDS[kind]}" if kind in KINDS else kind

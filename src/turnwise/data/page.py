"""The page of an output folder: its manifest for people, with the lines that each trainer needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.data.trainer_pages import write_trainer_page
from turnwise.errors import printable

PAGE = "README.md"
MAX_SHOWN = 30  # columns
PAGE_TEXT = """\
---
configs:
- config_name: default
  data_files:
{data_files}
---

# Training data

Made by turnwise {version} with template `{template}` and tokenizer `{tokenizer}`.

| | |
|---|---:|
| rows read | {rows_in:,} |
| rows that gave samples | {rows_out:,} |
| rows rejected (`rejected.jsonl`) | {rejected:,} |
| rows filtered | {filtered:,} |
| samples | {samples:,} |
| tokens | {tokens:,} |
| tokens trained | {trained:,} |
| replies in another text than the template's | {rewritten:,} |

`report.html` has the plots, `manifest.json` the rest: digests, reasons, histograms, and the hash of every shard.
{columns}
{trainers}"""


def describe_columns(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns that were not read, and those that the shards carry, as a line each.

    Args:
        manifest: a manifest, or whatever else has these counts.

    Example:
        >>> list(describe_columns({"unread": {"id": 3}, "carried": {}}))
        ['columns that were not read: id (3 rows)']
    """
    for key, what in (
        ("unread", "columns that were not read"),
        ("carried", "columns that are carried"),
    ):
        found = manifest.get(key) or {}
        shown = [
            f"{printable(name)} ({count:,} row{'s' * (count != 1)})"
            for name, count in list(found.items())[:MAX_SHOWN]
        ]
        more = [f"and {len(found) - MAX_SHOWN:,} more"] if len(found) > MAX_SHOWN else []
        if shown:
            yield f"{what}: {', '.join([*shown, *more])}"


def write_page(manifest: Mapping[str, Any]) -> str:
    """Return the page of a manifest."""
    recipe, rows, tokens = manifest["recipe"], manifest["rows"], manifest["tokens"]
    splits = sorted({shard["split"] for shard in manifest["shards"]})
    return PAGE_TEXT.format(
        data_files="\n".join(f"  - split: {split}\n    path: {split}-*" for split in splits),
        version=manifest["turnwise"],
        template=recipe["template"],
        tokenizer=recipe["tokenizer"],
        rows_in=rows["in"],
        rows_out=rows["out"],
        rejected=rows["rejected"],
        filtered=rows["filtered"],
        samples=manifest["samples"],
        tokens=tokens["all"],
        trained=tokens["trained"],
        columns="".join(f"\n{line}\n" for line in describe_columns(manifest)),
        rewritten=manifest["rewritten"],
        trainers=write_trainer_page(manifest),
    )

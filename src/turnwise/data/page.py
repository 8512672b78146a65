"""The page of an output folder: its manifest for people, with the lines that each trainer needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.data.trainer_pages import write_trainer_page

PAGE = "README.md"
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

`report.html` has the plots, `manifest.json` the rest: digests, reasons, histograms, and the hash of every shard.

{trainers}"""


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
        trainers=write_trainer_page(manifest),
    )

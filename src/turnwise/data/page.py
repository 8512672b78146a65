"""The page of an output folder: its manifest for people, with the lines that each trainer needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

`manifest.json` has the rest: digests, reasons, histograms, and the hash of every shard.

## TRL

```python
from datasets import load_dataset
data = load_dataset("{kind}", data_files="{pattern}", split="train")
# SFTTrainer takes data with input_ids and labels as it is:
# SFTTrainer(model, train_dataset=data, args=SFTConfig(dataset_kwargs={{"skip_prepare_dataset": True}}))
```

## axolotl

```yaml
datasets:
  - path: {kind}
    data_files: {pattern}
    split: train
    type:            # empty: the rows are tokenized already
```

## LLaMA-Factory

```python
from datasets import DatasetDict, load_dataset
data = load_dataset("{kind}", data_files="{pattern}", split="train")
DatasetDict({{"train": data.select_columns(["input_ids", "labels", "attention_mask"])}}).save_to_disk("tokenized")
# then in the YAML:  tokenized_path: tokenized
```

## torch

```python
from datasets import load_dataset
data = load_dataset("{kind}", data_files="{pattern}", split="train").with_format("torch")
```
"""


def write_page(manifest: Mapping[str, Any]) -> str:
    """Return the page of a manifest."""
    recipe, rows, tokens = manifest["recipe"], manifest["rows"], manifest["tokens"]
    kind = recipe["shard_format"]
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
        kind=kind,
        pattern=f"train-*.{kind}",
    )

"""How trainers load a folder of shards: the lines of each trainer's own configuration.

The page is written beside the shards, so that whoever finds the folder can train with it. Each text is tested with
the trainer that it names (`tests/integrations/test_prepared_shards.py`), or with the function of the trainer that loads
the data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FOLDER = "out"  # what the lines call the folder


TRL = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

shards = load_dataset("{format}", data_files={files})
config = SFTConfig("trained", max_length=None, packing=False{padding_free})  # cut, and packed, already
trainer = SFTTrainer(model, config, train_dataset=shards["train"]{evaluation})
"""
AXOLOTL = """
datasets:
  - path: {folder}
    data_files: [{train}]
    ds_type: {format}
    type:  # none: input_ids, attention_mask and labels are taken as they are
sequence_len: {length}
"""
LLAMA_FACTORY_ONCE = """
from datasets import load_dataset

shards = load_dataset("{format}", data_files={files})
shards.select_columns(["input_ids", "attention_mask", "labels"]).save_to_disk("{folder}/tokenized")
"""
LLAMA_FACTORY = """
tokenized_path: {folder}/tokenized
cutoff_len: {length}
"""
VERL = """
data:
  train_files: {folder}
  pad_mode: no_padding
  max_length: {length}
  custom_cls:
    path: pkg://turnwise.integrations.prepared_shards
    name: PreparedShards
"""
TORCH = """
from torch.utils.data import DataLoader

from turnwise.integrations.prepared_shards import PreparedShards, pad_batch

loader = DataLoader(PreparedShards("{folder}"), batch_size=8, shuffle=True, collate_fn=pad_batch)
"""
PAGES = (
    ("TRL", "python", TRL),
    ("axolotl", "yaml", AXOLOTL),
    ("LLaMA-Factory, once", "python", LLAMA_FACTORY_ONCE),
    ("LLaMA-Factory, then", "yaml", LLAMA_FACTORY),
    ("verl", "yaml", VERL),
    ("torch", "python", TORCH),
)
"""The title, the language and the text of each part of the page."""


def write_trainer_lines(manifest: Mapping[str, Any], folder: str = FOLDER) -> dict[str, str]:
    """Return the lines for each trainer, by the titles of `PAGES`.

    Args:
        manifest: what `manifest.json` holds.
        folder: the folder of the shards, as the lines shall name it.

    Example:
        >>> manifest = {"recipe": {"max_length": 512}, "shards": [{"split": "train"}]}
        >>> print(write_trainer_lines(manifest)["LLaMA-Factory, then"])
        tokenized_path: out/tokenized
        cutoff_len: 512
    """
    recipe = manifest.get("recipe") or {}
    format = recipe.get("shard_format", "parquet")
    splits = sorted({shard["split"] for shard in manifest.get("shards", ())}) or ["train"]
    patterns = {split: f"{folder}/{split}-*.{format}" for split in splits}
    is_packed = recipe.get("packing", "none") != "none"
    values = {
        "folder": folder,
        "format": format,
        "files": json.dumps(patterns),
        "train": f"train-*.{format}",
        "length": recipe.get("max_length") or _longest(manifest),
        # Packed rows need attention that ends where a sample ends, which TRL does without padding.
        "padding_free": ", padding_free=True" if is_packed else "",
        "evaluation": ', eval_dataset=shards["validation"]' if "validation" in splits else "",
    }
    return {title: text.format(**values).strip() for title, _, text in PAGES}


def write_trainer_page(manifest: Mapping[str, Any], folder: str = FOLDER) -> str:
    """Return the lines for all trainers as a part of a Markdown page."""
    lines = write_trainer_lines(manifest, folder)
    parts = [f"### {title}\n\n```{language}\n{lines[title]}\n```" for title, language, _ in PAGES]
    return "## Train with it\n\n" + "\n\n".join(parts) + "\n"


def _longest(manifest: Mapping[str, Any]) -> int:
    """Return a length that no sample exceeds: the highest bound of the histogram that holds one."""
    bounds = [bound for bound, count in manifest.get("lengths") or () if count]
    return int(max(bounds, default=4096))

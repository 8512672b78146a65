"""How trainers load a folder of shards: the lines of each trainer's own configuration.

The page is written beside the shards, so that whoever finds the folder can train with it. Each text is tested with
the trainer that it names (`tests/integrations/test_prepared_shards.py`), or with the function of the trainer that loads
the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PAGE_TITLE = "## Train with it"
FOLDER = "out"  # what the lines call the folder


TRL = """
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

shards = load_dataset("{folder}")
config = SFTConfig("trained", max_length=None, packing=False{padding_free})  # {done} already
data = {{"train_dataset": shards["train"]{evaluation}}}
trainer = SFTTrainer(model, config, processing_class=tokenizer, **data)
"""
AXOLOTL = """
datasets:
  - path: {folder}
    split: train
    type:  # none: input_ids, attention_mask and labels are taken as they are
sequence_len: {length}
"""
DPO = """
from datasets import load_dataset
from trl import DPOConfig, DPOTrainer


class PreparedDPOTrainer(DPOTrainer):
    def _prepare_dataset(self, dataset, *arguments):
        return dataset  # prompt_ids, chosen_ids and rejected_ids are there already


shards = load_dataset("{folder}")
config = DPOConfig("trained", max_length=None)
data = {{"train_dataset": shards["train"]{evaluation}}}
trainer = PreparedDPOTrainer(model, args=config, processing_class=tokenizer, **data)
"""
KTO = """
from datasets import load_dataset
from trl import KTOConfig, KTOTrainer


class PreparedKTOTrainer(KTOTrainer):
    def _prepare_dataset(self, dataset, processing_class, args, name):
        if not self.calculate_KL:
            return dataset  # prompt_ids, completion_ids and label are there already

        def rotate(rows):  # TRL's own estimate of the KL term: completions of other prompts
            ids = rows["completion_ids"]
            return {{"KL_completion_ids": ids[-1:] + ids[:-1]}}

        return dataset.map(rotate, batched=True, batch_size=args.per_device_train_batch_size)


shards = load_dataset("{folder}")
config = KTOConfig("trained", max_length=None)
data = {{"train_dataset": shards["train"]{evaluation}}}
trainer = PreparedKTOTrainer(model, args=config, processing_class=tokenizer, **data)
"""
LLAMA_FACTORY_ONCE = """
from datasets import load_dataset

columns = ["input_ids", "attention_mask", "labels"]
load_dataset("{folder}").select_columns(columns).save_to_disk("{folder}-tokenized")
"""
LLAMA_FACTORY = """
tokenized_path: {folder}-tokenized
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
TRAINERS = (
    ("TRL", "python", TRL),
    ("axolotl", "yaml", AXOLOTL),
    ("LLaMA-Factory, once", "python", LLAMA_FACTORY_ONCE),
    ("LLaMA-Factory, then", "yaml", LLAMA_FACTORY),
    ("verl", "yaml", VERL),
    ("torch", "python", TORCH),
)
"""The title, the language and the text for each trainer."""
OF_PACKED_ROWS = ("TRL", "verl", "torch")
"""Those that keep the samples of a packed row apart, by its positions."""
OF_PREFERENCES = {"pairs": (("TRL", "python", DPO),), "unpaired": (("TRL", "python", KTO),)}


def write_trainer_lines(manifest: Mapping[str, Any], folder: str = FOLDER) -> dict[str, str]:
    """Return the lines for each trainer, by the titles of `TRAINERS`.

    Args:
        manifest: what `manifest.json` holds.
        folder: the folder of the shards, as the lines shall name it.

    Example:
        >>> recipe = {"max_length": 512, "packing": "none", "preferences": "chosen"}
        >>> lines = write_trainer_lines({"recipe": recipe, "shards": []})
        >>> print(lines["LLaMA-Factory, then"])
        tokenized_path: out-tokenized
        cutoff_len: 512
    """
    recipe = manifest["recipe"]
    splits = {shard["split"] for shard in manifest["shards"]}
    is_packed = recipe["packing"] != "none"
    values = {
        "folder": folder,
        "length": recipe["max_length"] or _longest(manifest),
        # In packed rows, attention must end where a sample ends; TRL does that without padding.
        "padding_free": ", padding_free=True" if is_packed else "",
        "done": "cut and packed" if is_packed else "cut",
        "evaluation": ', "eval_dataset": shards["validation"]' if "validation" in splits else "",
    }
    return {title: text.format(**values).strip() for title, _, text in _list_trainers(recipe)}


def write_trainer_page(manifest: Mapping[str, Any], folder: str = FOLDER) -> str:
    """Return the lines for all trainers as a part of a Markdown page."""
    lines = write_trainer_lines(manifest, folder)
    parts = [
        f"### {title}\n\n```{language}\n{lines[title]}\n```"
        for title, language, _ in _list_trainers(manifest["recipe"])
    ]
    return f"{PAGE_TITLE}\n\n" + "\n\n".join(parts) + "\n"


def _list_trainers(recipe: Mapping[str, Any]) -> Sequence[tuple[str, str, str]]:
    """Return the trainers that take what the recipe makes, and what only they need."""
    if recipe["preferences"] in OF_PREFERENCES:
        return OF_PREFERENCES[recipe["preferences"]]
    if recipe["packing"] != "none":
        return [trainer for trainer in TRAINERS if trainer[0] in OF_PACKED_ROWS]
    return TRAINERS


def _longest(manifest: Mapping[str, Any]) -> int:
    """Return a length that no sample exceeds: the highest bound of the histogram that holds one."""
    bounds = [bound for bound, count in manifest.get("lengths") or () if count]
    return int(max(bounds, default=4096))

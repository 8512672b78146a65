"""axolotl: the dataset type `turnwise.integrations.axolotl`, with the labels of turnwise.

    datasets:
      - path: ...
        type: turnwise.integrations.axolotl

axolotl imports a dotted `type:` as a module and calls its `load`; the strategy that comes back encodes batches of rows.
Rows may have any shape that `turnwise.shapes` reads. A row that cannot be trained is left out and named in a warning.
The template is the one that axolotl would choose. Of its other settings these are followed: `field_messages`,
`field_tools`, `train_on_inputs`, `chat_template_kwargs` and `sequence_len`; one that would have no effect is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from warnings import warn

from turnwise.errors import MessageError, TurnwiseWarning, short_repr
from turnwise.integrations.tokenizer_template import template_of
from turnwise.integrations.training_rows import RowEncoder, split_columns
from turnwise.messages import JsonMapping

__all__ = ["TurnwiseStrategy", "load"]

DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "roles_to_train": (["assistant"], ["gpt"], ["assistant", "gpt"]),
    "train_on_eos": ("turn",),
    "train_on_eot": ("turn",),
    "split_thinking": (False,),
    "drop_system_message": (False,),
    "message_field_training": (),
    "message_field_training_detail": (),
    "message_property_mappings": ({}, {"role": "role", "content": "content"}),
    "message_field_role": ("role",),
    "message_field_content": ("content",),
    "field_thinking": ("reasoning_content",),
    "template_thinking_key": ("reasoning_content",),
    "roles": (),
}
"""Settings of axolotl's own `chat_template` type that have no effect here, with the values that change nothing."""
MAX_ROW_SHOWN = 200  # characters of a row that is left out


def load(tokenizer: Any, cfg: Any, ds_cfg: Any = None, processor: Any = None) -> TurnwiseStrategy:
    """Return the strategy of a dataset; axolotl calls this.

    Args:
        tokenizer: The tokenizer that is trained with.
        cfg: The whole configuration.
        ds_cfg: The configuration of the dataset.
        processor: The processor of a multimodal model, which is not supported.

    Raises:
        MessageError: A setting would have no effect, or there is a processor.
        SourceError: There is no chat template.
    """
    if processor is not None:
        problem = (
            "the type turnwise.integrations.axolotl encodes text, and the model has a processor"
        )
        raise MessageError(problem, path="processor")
    settings = ds_cfg or {}
    if not isinstance(settings, Mapping):  # axolotl's mappings have every attribute: None
        settings = settings.model_dump()
    for name, harmless in DEFAULTS.items():
        value = settings.get(name)
        if value and value not in harmless:
            hint = "Weights stand in the rows: a message's `weight` of 0 is not trained."
            problem = f"{short_repr(value)} would have no effect with this type"
            raise MessageError(problem, path=name, hint=hint)
    text = None
    names = ("chat_template", "chat_template_jinja")
    if any(settings.get(name) or _read(cfg, name) for name in names):
        choose = import_module("axolotl.utils.chat_templates").get_chat_template_from_config
        text = choose(cfg=cfg, ds_cfg=settings, tokenizer=tokenizer)
    encoder = RowEncoder(
        tokenizer,
        template_of(tokenizer, text),
        train_on="all" if _read(cfg, "train_on_inputs") else "assistant",
        max_length=_read(cfg, "sequence_len"),
        options=dict(_read(cfg, "chat_template_kwargs") or {}),
    )
    columns = {settings.get("field_messages"): "messages", settings.get("field_tools"): "tools"}
    return TurnwiseStrategy(encoder, {old: new for old, new in columns.items() if old})


@dataclass
class TurnwiseStrategy:
    """axolotl's interface of a tokenizing strategy: it maps batches, since a row may give several samples or none."""

    supports_batched = True
    filter_rows = None

    encoder: RowEncoder
    columns: Mapping[str, str]  # the names of columns in the data, and what they hold

    def tokenize_prompt(self, prompt: JsonMapping) -> dict[str, list[Any]]:
        """Return `input_ids`, `attention_mask` and `labels` of a batch of rows; both are mappings of columns."""
        rows = split_columns(prompt)
        samples, problems = self.encoder.encode_all([self._rename(row) for row in rows])
        for problem in problems:
            what = "a row is left out" if problem.is_dropped else "a row is trained in part"
            row = short_repr(rows[problem.row], MAX_ROW_SHOWN)
            warn(f"{what}: {problem.reason}: {row}", TurnwiseWarning, stacklevel=2)
        columns: dict[str, list[Any]] = {"input_ids": [], "attention_mask": [], "labels": []}
        for sample in (one for found in samples for one in found):
            columns["input_ids"].append(sample.input_ids)
            columns["attention_mask"].append([1] * len(sample.input_ids))
            columns["labels"].append(sample.labels)
        return columns

    def _rename(self, row: JsonMapping) -> Any:
        """Return a row with the names of columns that `turnwise.shapes` knows, and without empty columns."""
        return {
            self.columns.get(name, name): value for name, value in row.items() if value is not None
        }


def _read(cfg: Any, name: str) -> Any:
    """Return a setting of the configuration: axolotl's is a mapping whose keys are attributes too."""
    return cfg.get(name) if isinstance(cfg, Mapping) else getattr(cfg, name, None)

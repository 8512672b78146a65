"""TRL: datasets with the labels of turnwise for SFTTrainer, and training templates for its `assistant_only_loss`.

SFTTrainer takes a dataset that has the columns `input_ids` and `labels` as it is, so the labels that are made here are
the labels that are trained. Its own way needs a template with `{% generation %}` blocks, which TRL keeps by hand for
31 templates; `training_template` makes one of any template for which the blocks can be proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Literal, NamedTuple
from warnings import warn

from turnwise.errors import MessageError, SourceError, TurnwiseWarning
from turnwise.integrations.tokenizer_template import template_of
from turnwise.integrations.training_rows import (
    Problem,
    RowEncoder,
    describe_problems,
    split_columns,
)
from turnwise.repair import GENERATION, fix
from turnwise.schema import check_name
from turnwise.template import Template
from turnwise.tokens.loss import GENERATION_TAG, TrainOn

__all__ = ["PreparedDataset", "prepare_dataset", "training_template"]

COLUMNS = ("labels", "assistant_masks", "completion_mask")

LossColumn = Literal["labels", "assistant_masks", "completion_mask"]


class PreparedDataset(NamedTuple):
    """A dataset for SFTTrainer, and the rows that are not in it as they should be."""

    dataset: Any
    problems: tuple[Problem, ...]


def prepare_dataset(
    dataset: Any,
    tokenizer: Any,
    template: Template | None = None,
    *,
    train_on: TrainOn = "assistant",
    split: bool = True,
    max_length: int | None = None,
    column: LossColumn = "labels",
    strict: bool = False,
    num_proc: int | None = None,
    **options: Any,
) -> PreparedDataset:
    """Encode conversations for SFTTrainer.

    Args:
        dataset: A `datasets.Dataset`, or any iterable of rows, in a shape that `turnwise.shapes` reads.
        tokenizer: The tokenizer that the trainer gets as `processing_class`.
        template: A template; that of the tokenizer if there is none.
        train_on: The loss policy, as for `Template.encode`.
        split: Make as many samples of a row as are needed for every turn to follow what serving would have sent;
            False makes one of each row.
        max_length: The most tokens of a sample: give SFTConfig's, which would cut the end of a longer one.
        column: "labels"; or a mask, "assistant_masks", or "completion_mask" with `completion_only_loss=True`.
        strict: Raise an error at the first bad row.
        num_proc: The number of processes, for a `datasets.Dataset`.
        **options: Variables of the template.

    Returns:
        The dataset, with `input_ids`, the loss column and `row`, the index of the row that a sample was made of;
        and the problems: rows that give no sample, and turns that are not trained.

    Warns:
        TurnwiseWarning: If there are problems; it names the first of them.

    Raises:
        MessageError: If `strict` and a row is bad, or no row gives a sample.
    """
    check_name(column, COLUMNS, "unknown column", "One of", path="column")
    encoder = RowEncoder(tokenizer, template, train_on, split, max_length, options)
    encoder.template or template_of(tokenizer)  # a missing template is no problem of the rows
    datasets = import_module("datasets")
    if isinstance(dataset, datasets.IterableDataset):
        hint = "Give a Dataset, or an iterable of the rows."
        raise MessageError("a stream's bad rows are not known in advance", hint=hint)
    function = partial(_encode_columns, encoder, column)
    if isinstance(dataset, datasets.Dataset):
        names, rows = dataset.column_names, len(dataset)
        mapped = dataset.map(
            partial(_encode_batch, function),
            batched=True,
            with_indices=True,
            remove_columns=names,
            num_proc=num_proc,
            desc="Encoding conversations",
        )
    else:
        given = list(dataset)
        rows = len(given)
        mapped = datasets.Dataset.from_dict(function(given, range(rows)))
    return _report(mapped, rows, strict)


def training_template(tokenizer: Any) -> str:
    """Return the tokenizer's template with `{% generation %}` blocks around what the model is trained on.

    Give it to SFTTrainer as `tokenizer.chat_template`, with `assistant_only_loss=True`.

    Raises:
        SourceError: There is no template, or no blocks can be proved for it; `prepare_dataset` needs none.
    """
    template = template_of(tokenizer)
    if GENERATION_TAG.search(template.text):
        return template.text
    repair = fix(template, [GENERATION])
    if repair.unfixed:
        hint = "prepare_dataset needs no blocks in the template."
        raise SourceError(f"{template.name}: {repair.unfixed[0]}", hint=hint)
    return repair.text


def _encode_batch(function: Any, batch: Mapping[str, list[Any]], indices: list[int]) -> Any:
    """Encode a batch of `Dataset.map`: a mapping of columns."""
    return function(split_columns(batch), indices)


def _encode_columns(
    encoder: RowEncoder, column: str, rows: Sequence[Any], indices: Sequence[int]
) -> dict[str, list[Any]]:
    """Return the columns of the samples; a problem is a row of its own, without ids."""
    made: dict[str, list[Any]] = {
        name: [] for name in ("input_ids", column, "row", "problem", "is_dropped")
    }

    def add(values: Iterable[Any]) -> None:
        for name, value in zip(made, values, strict=True):
            made[name].append(value)

    samples, problems = encoder.encode_all(rows, indices[0] if indices else 0)
    for index, found in zip(indices, samples, strict=True):
        for sample in found:
            loss = sample.labels if column == "labels" else sample.mask
            add((sample.input_ids, loss, index, "", False))
    for problem in problems:
        add(([], [], problem.row, problem.reason, problem.is_dropped))
    return made


def _report(mapped: Any, rows: int, strict: bool) -> PreparedDataset:
    """Part the samples from the problems, and tell of the latter."""
    is_problem = [bool(text) for text in mapped["problem"]]
    good = [index for index, bad in enumerate(is_problem) if not bad]
    bad = mapped.select([index for index, bad in enumerate(is_problem) if bad])
    problems = tuple(
        Problem(row["row"], row["problem"], row["is_dropped"])
        for row in bad.select_columns(["row", "problem", "is_dropped"])
    )
    if problems:
        description = describe_problems(problems, rows)
        if strict or not good:
            raise MessageError(description, path="dataset")
        warn(description, TurnwiseWarning, stacklevel=3)
    samples = mapped.select(good).remove_columns(["problem", "is_dropped"])
    return PreparedDataset(samples, problems)

"""XTuner's `process_hf_dataset`: the steps from a dataset to ids and labels, by its own arguments.

    rows -> dataset_map_fn -> template_map_fn -> encode_fn -> rows with labels -> Packer -> length

The steps are run by the library `datasets`, in XTuner's order and with its number of processes, since both decide which
rows are packed together; a dataset may also be a list of rows. Sections of a config (`dict(type=..., ...)`) are
mmengine's: call the type with the other fields.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from turnwise.compat import xtuner_datasets
from turnwise.compat.tokenizer_shim import with_calls
from turnwise.compat.xtuner_encoding import encode_fn
from turnwise.compat.xtuner_packing import Packer
from turnwise.errors import SourceError, did_you_mean
from turnwise.messages import JsonMapping
from turnwise.schema import check_name


class InvalidArguments(SourceError, AssertionError):
    """Arguments contradict each other; XTuner raises AssertionError."""


def _find_map_fn(name: str) -> Any:
    """Return a dataset map function by its name, or its path in XTuner."""
    found = getattr(xtuner_datasets, name.rpartition(".")[2], None)
    if not name.endswith("_map_fn") or not callable(found):
        known = [name for name in vars(xtuner_datasets) if name.endswith("_map_fn")]
        raise SourceError(f"turnwise has no {name}", hint=did_you_mean(name, known, "It has"))
    return found


# -- the steps -------------------------------------------------------------------------------------------------------


def process_hf_dataset(
    dataset: Any,
    do_dataset_tokenization: bool = True,
    tokenizer: Any = None,
    max_length: int | None = None,
    dataset_map_fn: Any = None,
    template_map_fn: Any = None,
    max_dataset_length: int | None = None,
    split: str | None = "train",
    remove_unused_columns: bool = False,
    rename_maps: Sequence[tuple[str, str]] = (),
    shuffle_before_pack: bool = True,
    pack_to_max_length: bool = True,
    use_varlen_attn: bool = False,
    input_ids_with_output: bool = True,
    with_image_token: bool = False,
    map_num_proc: int | None = 32,
) -> Any:
    """Return a dataset of `input_ids`, `labels` and `length`, by XTuner's steps and with its arguments.

    Args:
        dataset: A dataset of `datasets`, a dict of them by split, or a list of rows.
        do_dataset_tokenization: False if the rows have ids and labels already.
        tokenizer: A tokenizer, or anything that turnwise can read.
        max_length: The length at which rows are cut, and that of a packed row.
        dataset_map_fn: A dataset map function, or its name.
        template_map_fn: What `template_map_fn_factory` returned; None for pretraining.
        max_dataset_length: Take as many rows, at random.
        split: The split of the data; None for all of them together.
        remove_unused_columns: Keep no column of the rows.
        rename_maps: Pairs of an old and a new name of a column.
        shuffle_before_pack: Shuffle rows before they are packed.
        pack_to_max_length: Join rows to rows of `max_length`.
        use_varlen_attn: Also give `cumulative_len` and `position_ids` of packed rows.
        input_ids_with_output: Encode the answers; rows without a label are left out.
        with_image_token: Encode `<image>` as IMAGE_TOKEN_INDEX.
        map_num_proc: The number of processes; rows are packed within each.

    Raises:
        SourceError: If arguments contradict each other, or there is no such map function.
        MessageError: If a row is not what a map function takes.

    Example:
        >>> rows = [{"instruction": "Add", "input": "1 2", "output": "3"}]
        >>> template = template_map_fn_factory("internlm2_chat")
        >>> found = process_hf_dataset(rows, True, "turnwise", 64, "alpaca_map_fn", template)
        >>> found.column_names
        ['input_ids', 'labels', 'length']
    """
    if use_varlen_attn and not pack_to_max_length:
        raise InvalidArguments("use_varlen_attn needs pack_to_max_length")
    if pack_to_max_length and split not in ("train", None):
        raise InvalidArguments(f"rows are packed of the split 'train' or of all, not of {split!r}")
    if (do_dataset_tokenization or pack_to_max_length) and max_length is None:
        raise InvalidArguments("max_length is missing")
    steps = partial(_run_steps, **{name: value for name, value in locals().items()})
    return _run_on_one_rank(steps)


def _run_steps(
    dataset: Any,
    *,
    dataset_map_fn: Any,
    template_map_fn: Any,
    rename_maps: Sequence[tuple[str, str]],
    split: str | None,
    max_dataset_length: int | None,
    map_num_proc: int | None,
    **later: Any,
) -> Any:
    rows = _choose_split(dataset, split)
    if max_dataset_length is not None:
        number = min(max_dataset_length, len(rows))
        choose = import_module("numpy").random.choice
        rows = rows.select(choose(len(rows), number, replace=False))
    if dataset_map_fn is not None:
        if isinstance(dataset_map_fn, str):
            dataset_map_fn = _find_map_fn(dataset_map_fn)
        rows = rows.map(dataset_map_fn, num_proc=map_num_proc)
    if template_map_fn is not None:
        rows = rows.map(template_map_fn, num_proc=map_num_proc)
        rows = rows.filter(_has_rounds, num_proc=map_num_proc)
    for old, new in rename_maps:
        rows = rows.rename_column(old, new)
    return _encode_rows(rows, map_num_proc, **later)


def _encode_rows(
    rows: Any,
    map_num_proc: int | None,
    *,
    tokenizer: Any,
    max_length: int | None,
    do_dataset_tokenization: bool,
    remove_unused_columns: bool,
    shuffle_before_pack: bool,
    pack_to_max_length: bool,
    use_varlen_attn: bool,
    input_ids_with_output: bool,
    with_image_token: bool,
) -> Any:
    if do_dataset_tokenization:
        encode = partial(
            encode_fn,
            tokenizer=with_calls(tokenizer),
            max_length=max_length or 0,
            input_ids_with_output=input_ids_with_output,
            with_image_token=with_image_token,
        )
        # Packed rows are no longer those of the columns.
        unused = rows.column_names if remove_unused_columns or pack_to_max_length else None
        rows = rows.map(encode, remove_columns=unused, num_proc=map_num_proc)
    if input_ids_with_output:
        rows = rows.filter(_has_labels, num_proc=map_num_proc)
    if pack_to_max_length:
        if shuffle_before_pack:
            rows = rows.shuffle().flatten_indices(num_proc=map_num_proc)
        packer = Packer(max_length or 0, use_varlen_attn=use_varlen_attn)
        rows = rows.map(packer, batched=True, num_proc=map_num_proc)
    if not len(rows):
        raise InvalidArguments(
            "no row is left to train on",
            hint="A row needs an answer that starts before max_length.",
        )
    rows = rows.map(_add_length, num_proc=map_num_proc)
    rows.length = rows["length"]
    return rows


def _has_rounds(row: JsonMapping) -> bool:
    return len(row["conversation"]) > 0


def _has_labels(row: JsonMapping) -> bool:
    return any(label >= 0 for label in row["labels"])


def _add_length(row: JsonMapping) -> dict[str, int]:
    return {"length": len(row["input_ids"])}


def _choose_split(dataset: Any, split: str | None) -> Any:
    datasets = _import_datasets()
    if isinstance(dataset, list | tuple):
        try:
            return datasets.Dataset.from_list(list(dataset))
        except Exception as error:  # raised by the other library
            raise SourceError(f"the rows make no table: {error!r:.200}") from error
    if not isinstance(dataset, datasets.DatasetDict):
        return dataset
    if split is None:
        return datasets.concatenate_datasets(list(dataset.values()))
    check_name(split, [*map(str, dataset)], "the dataset has no split", "It has", SourceError)
    return dataset[split]


def _import_datasets() -> Any:
    try:
        return import_module("datasets")
    except ImportError:
        raise SourceError(
            "process_hf_dataset needs the library `datasets`", hint="pip install datasets"
        ) from None


def _run_on_one_rank(steps: Callable[[], Any]) -> Any:
    """Run the steps, in a distributed run on rank 0 only: each rank would shuffle otherwise."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return steps()
    found = [steps() if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(found, src=0)
    return found[0]

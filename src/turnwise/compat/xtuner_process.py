"""XTuner's `process_hf_dataset`: the steps from a dataset to ids and labels, by the arguments of a config.

    rows -> dataset_map_fn -> template_map_fn -> encode_fn -> rows with labels -> Packer -> length

The steps are run by the library `datasets`, in XTuner's order and with its number of processes, since both decide which
rows are packed together; a dataset may also be a list of rows. A section (`dict(type=..., ...)`) is built where it is
needed: `build_section`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

from turnwise.compat import xtuner_datasets
from turnwise.compat.tokenizer_shim import with_calls
from turnwise.compat.xtuner_encoding import encode_fn, template_map_fn, template_map_fn_factory
from turnwise.compat.xtuner_packing import Packer
from turnwise.errors import SourceError, did_you_mean

UNSUPPORTED = {
    **dict.fromkeys(
        (
            *("LLaVADataset", "InternVL_V1_5_Dataset", "RefCOCOJsonDataset"),
            *("RefCOCOJsonEvalDataset", "InvRefCOCOJsonDataset"),
        ),
        "it loads images",
    ),
    **dict.fromkeys(
        (
            *("build_packed_dataset", "load_intern_repo_tokenized_dataset"),
            "load_intern_repo_untokenized_dataset",
        ),
        "it reads InternEvo's binary files",
    ),
    "MOSSSFTDataset": "it encodes MOSS's turns by hand",
    **dict.fromkeys(
        ("build_preference_dataset", "load_jsonl_dataset"), "it is for pairs of answers"
    ),
    "msagent_react_map_fn": "it evaluates its rows as Python",
}
"""XTuner's other datasets, and why they are not built here."""


class UnsupportedDataset(SourceError, NotImplementedError):
    """A dataset of XTuner that is not built here."""


class InvalidSection(SourceError, AssertionError):
    """Arguments of a section contradict each other; XTuner raises AssertionError."""


def _find_type(path: str) -> Any:
    """Return what a section names: ours if it is XTuner's, else that of the package."""
    name = path.rpartition(".")[2]
    if name != path and not path.startswith("xtuner."):
        try:
            return resolve_name(path)
        except (ImportError, AttributeError, ValueError):
            hint = f"Install {path.partition('.')[0]!r}."
            raise SourceError(f"{path} cannot be imported", hint=hint) from None
    found = BUILDERS.get(name) or getattr(xtuner_datasets, name, None)
    if not callable(found):
        known = [*BUILDERS, *(name for name in vars(xtuner_datasets) if name.endswith("_map_fn"))]
        raise SourceError(f"turnwise has no {path}", hint=did_you_mean(name, known, "It has"))
    return found


def build_section(section: Any) -> Any:
    """Build a section of a config: call its `type` with its other fields; anything else is returned as it is.

    Raises:
        SourceError: If the type cannot be found (also a NotImplementedError if XTuner has it and turnwise does not), or
            does not have one of the arguments.

    Example:
        >>> build_section({"type": "template_map_fn_factory", "template": "internlm_chat"}).func.__name__
        'template_map_fn'
    """
    if not isinstance(section, Mapping) or "type" not in section:
        return section
    kind = section["type"]
    arguments = {key: value for key, value in section.items() if key != "type"}
    name = (
        kind.rpartition(".")[2] if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    )
    if name in UNSUPPORTED:
        problem = f"XTuner's {name} is not built here: {UNSUPPORTED[name]}"
        hint = f"Build it with XTuner. Its arguments: {', '.join(arguments)}."
        raise UnsupportedDataset(problem, hint=hint)
    target = _find_type(kind) if isinstance(kind, str) else kind
    _check_arguments(target, arguments, name)
    return target(**arguments)


def _check_arguments(target: Any, arguments: Mapping[str, Any], name: str) -> None:
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):  # code that is not Python's has no signature
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for key in arguments:
        if key not in parameters:
            hint = did_you_mean(key, parameters, "It has")
            raise SourceError(f"{name} has no argument {key!r}", hint=hint)


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
        dataset: A dataset of `datasets`, a dict of them by split, a section that builds one, or a list of rows.
        do_dataset_tokenization: False if the rows have ids and labels already.
        tokenizer: A tokenizer, a section that builds one, or anything that turnwise can read.
        max_length: The length at which rows are cut, and that of a packed row.
        dataset_map_fn: A dataset map function, or its name.
        template_map_fn: What `template_map_fn_factory` returned, or a section that calls it; None for pretraining.
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
        SourceError: If arguments contradict each other, or a section cannot be built.
        MessageError: If a row is not what a map function takes.

    Example:
        >>> rows = [{"instruction": "Add", "input": "1 2", "output": "3"}]
        >>> template = {"type": template_map_fn_factory, "template": "internlm2_chat"}
        >>> found = process_hf_dataset(rows, True, "turnwise", 64, "alpaca_map_fn", template)
        >>> found.column_names
        ['input_ids', 'labels', 'length']
    """
    if use_varlen_attn and not pack_to_max_length:
        raise InvalidSection("use_varlen_attn needs pack_to_max_length")
    if pack_to_max_length and split not in ("train", None):
        raise InvalidSection(f"rows are packed of the split 'train' or of all, not of {split!r}")
    if (do_dataset_tokenization or pack_to_max_length) and max_length is None:
        raise InvalidSection("max_length is missing")
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
    rows = _choose_split(build_section(dataset), split)
    if max_dataset_length is not None:
        number = min(max_dataset_length, len(rows))
        choose = import_module("numpy").random.choice
        rows = rows.select(choose(len(rows), number, replace=False))
    if dataset_map_fn is not None:
        if isinstance(dataset_map_fn, str):
            dataset_map_fn = _find_type(dataset_map_fn)
        rows = rows.map(dataset_map_fn, num_proc=map_num_proc)
    if template_map_fn is not None:
        rows = rows.map(build_section(template_map_fn), num_proc=map_num_proc)
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
            tokenizer=with_calls(build_section(tokenizer)),
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
        hint = "A row needs an answer that starts before max_length."
        raise InvalidSection("no row is left to train on", hint=hint)
    rows = rows.map(_add_length, num_proc=map_num_proc)
    rows.length = rows["length"]
    return rows


def _has_rounds(row: Mapping[str, Any]) -> bool:
    return len(row["conversation"]) > 0


def _has_labels(row: Mapping[str, Any]) -> bool:
    return any(label >= 0 for label in row["labels"])


def _add_length(row: Mapping[str, Any]) -> dict[str, int]:
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
    if split not in dataset:
        hint = did_you_mean(split, map(str, dataset), "It has")
        raise SourceError(f"the dataset has no split {split!r}", hint=hint)
    return dataset[split]


def _import_datasets() -> Any:
    try:
        return import_module("datasets")
    except ImportError:
        hint = "pip install datasets"
        raise SourceError("process_hf_dataset needs the library `datasets`", hint=hint) from None


def _run_on_one_rank(steps: Callable[[], Any]) -> Any:
    """Run the steps, in a distributed run on rank 0 only: each rank would shuffle otherwise."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        return steps()
    found = [steps() if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(found, src=0)
    return found[0]


def process_ms_dataset(dataset: Any, split: str = "train", **arguments: Any) -> Any:
    """Return what `process_hf_dataset` makes of a dataset of ModelScope."""
    dataset = build_section(dataset)
    if isinstance(dataset, Mapping):
        dataset = dataset[split]
    return process_hf_dataset(dataset.to_hf_dataset(), **arguments)


class ConcatDataset:
    """Datasets one after another, each of them built from its section if it is one."""

    def __init__(self, datasets: Sequence[Any]) -> None:
        self.datasets = [build_section(section) for section in datasets]

    def __len__(self) -> int:
        return sum(map(len, self.datasets))

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            index += len(self)
        for dataset in self.datasets:
            if 0 <= index < len(dataset):
                return dataset[index]
            index -= len(dataset)
        raise IndexError("there are fewer rows")


BUILDERS: dict[str, Callable[..., Any]] = {
    "ConcatDataset": ConcatDataset,
    "process_hf_dataset": process_hf_dataset,
    "process_ms_dataset": process_ms_dataset,
    "template_map_fn": template_map_fn,
    "template_map_fn_factory": template_map_fn_factory,
}
"""What a section may name, besides the dataset map functions."""

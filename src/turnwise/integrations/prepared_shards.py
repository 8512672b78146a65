"""Prepared shards as a torch data set: for a `DataLoader`, and for verl's trainer of SFT.

    loader = DataLoader(PreparedShards("out"), batch_size=8, collate_fn=pad_batch)

In verl's configuration, `data.custom_cls` names this module and class, and `data.pad_mode` is `no_padding`. A sample
has what verl takes (`input_ids`, `position_ids`, `loss_mask`) and `labels`, which torch's losses take, all of the same
length. In a packed row, positions begin at 0 with each sample.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import torch

from turnwise.errors import SourceError

__all__ = ["PreparedShards", "pad_batch"]

IGNORED = -100
COLUMNS = ("input_ids", "labels", "position_ids")
TABLES_KEPT = 4


class PreparedShards:
    """The rows of Parquet shards, by their number; some shards at a time are in memory.

    Args:
        parquet_files: a folder of `turnwise prepare`, of which the split "train" is taken; or one shard, or several.
        tokenizer, config, processor: what verl gives; only `config.max_length` is read, which no row may exceed.
        max_samples: at most so many rows; -1 for all.

    Raises:
        SourceError: there are no shards, or a row is longer than `config.max_length`.
    """

    def __init__(
        self,
        parquet_files: Any,
        tokenizer: Any = None,
        config: Any = None,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        self.files = _find_shards(parquet_files)
        counts = [pyarrow.parquet.read_metadata(path).num_rows for path in self.files]
        self._ends: list[int] = list(accumulate(counts))
        total = self._ends[-1]
        self._count = total if max_samples < 0 else min(total, max_samples)
        limit = config.get("max_length") if config is not None else None
        if limit is not None:
            self._check_lengths(limit)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if not 0 <= index < self._count:
            raise IndexError(index)
        shard = bisect_right(self._ends, index)
        first = self._ends[shard - 1] if shard else 0
        row = _read_table(self.files[shard]).slice(index - first, 1).to_pylist()[0]
        ids, labels = torch.tensor(row["input_ids"]), torch.tensor(row["labels"])
        positions = row.get("position_ids")
        return {
            "input_ids": ids,
            "labels": labels,
            "position_ids": torch.arange(len(ids))
            if positions is None
            else torch.tensor(positions),
            "loss_mask": (labels != IGNORED).long(),
        }

    def _check_lengths(self, limit: int) -> None:
        for path in self.files:
            lengths = pyarrow.parquet.read_table(path, columns=["length"])["length"].to_pylist()
            if lengths and max(lengths) > limit:
                problem = f"{path}: a row has {max(lengths)} tokens, more than max_length={limit}"
                raise SourceError(problem, hint="prepare the data with this max_length")


def pad_batch(samples: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return samples as one batch, padded on the right: ids, positions and masks with 0, labels with -100."""
    batch = {}
    for name in samples[0]:
        rows = [sample[name] for sample in samples]
        filler = IGNORED if name == "labels" else 0
        batch[name] = torch.nn.utils.rnn.pad_sequence(rows, True, filler)
    lengths = torch.tensor([len(sample["input_ids"]) for sample in samples])
    batch["attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    return batch


def _find_shards(given: Any) -> list[str]:
    places = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    found: list[str] = []
    for place in map(Path, places):
        if place.is_dir():
            found += map(str, sorted(place.glob("train-*.parquet")))
        else:
            found.append(str(place))
    missing = [path for path in found if not os.path.isfile(path)]
    if missing or not found:
        what = missing[0] if missing else ", ".join(map(str, places))
        raise SourceError(f"{what}: there are no shards", hint="`turnwise prepare` makes them")
    return found


@lru_cache(TABLES_KEPT)
def _read_table(path: str) -> pa.Table:
    names = pyarrow.parquet.read_schema(path).names
    columns = [name for name in COLUMNS if name in names]
    return pyarrow.parquet.read_table(path, columns=columns)

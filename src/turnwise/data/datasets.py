"""A function for `datasets.map`, over the same kernel as `prepare`.

For data that is in memory already, or that other steps of `datasets` go on with. `datasets.map` loses everything at the
first exception, and drops rows silently if a batch returns fewer; so a bad row raises nothing here, and comes back as a
row of its own, with empty `input_ids` and the reason:

    encoder = DatasetEncoder("qwen3", "Qwen/Qwen3-8B", max_length=4096)
    encoded = data.map(encoder, batched=True, with_indices=True, remove_columns=data.column_names)
    bad = encoded.filter(lambda row: row["status"] != "sample")
    good = encoded.filter(lambda row: row["status"] == "sample")

Steps that look at more than one batch are not possible here: packing, deduplication, shuffling and length grouping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from turnwise.data.kernel import Kernel
from turnwise.data.null_padding import table_row_to_json
from turnwise.data.recipe import Recipe
from turnwise.data.schemas import MASK, REJECTED, make_input_batch
from turnwise.errors import DataError

__all__ = ["DatasetEncoder"]

PLACE = "dataset"  # the name of the file of rows that come from no file
GLOBAL_STEPS = {"packing": "none", "deduplicate": False, "shuffle": None, "group_by_length": False}
COLUMNS = ["status", "kind", "reason", "split", "row", "input_ids", "labels", "tokens_lost"]
COLUMNS += ["carried", "unread"]


class DatasetEncoder:
    """Encodes batches of rows, as `datasets.map(..., batched=True)` hands them over.

    It is pickled by its recipe, so `num_proc` and the cache of `datasets` work.

    Args:
        template: as in a recipe.
        tokenizer: as in a recipe.
        settings: other values of a recipe.

    Raises:
        DataError: a setting needs more than one batch.

    Example:
        >>> encoder = DatasetEncoder("chatml", "turnwise")
        >>> rows = {"prompt": ["hi", "hi"], "completion": ["hello", None]}
        >>> encoder(rows)["status"].to_pylist()
        ['sample', 'rejected']
    """

    def __init__(self, template: Any, tokenizer: Any, **settings: Any) -> None:
        self.recipe = Recipe(inputs=(PLACE,), template=template, tokenizer=tokenizer, **settings)
        for name, without in GLOBAL_STEPS.items():
            if getattr(self.recipe, name) != without:
                raise DataError(
                    f"{name} needs all rows, and datasets.map sees one batch at a time",
                    hint="Use turnwise.data.prepare, or that step of datasets or of the trainer.",
                )
        if self.recipe.preferences != "chosen":
            what = f"preferences={self.recipe.preferences!r}"
            raise DataError(f"{what} is written by turnwise.data.prepare only")
        self._kernel = Kernel(self.recipe)

    def __call__(
        self, batch: Mapping[str, Sequence[Any]], indices: Sequence[int] | None = None
    ) -> pa.Table:
        """Encode a batch.

        Args:
            batch: the columns.
            indices: the numbers of the rows, as `with_indices=True` gives them.

        Returns:
            A table of one row for each sample, rejected row or filtered row; `row` is the number of the row in the
            data set, from 0, or in the batch if there are no indices. A table has types, so a batch without any
            reason, or without any sample, fits the others.

        Raises:
            DataError: a row is bad, and the recipe has `on_bad_row="fail"`.
        """
        names = list(batch)
        rows = [
            dict(zip(names, values, strict=True)) for values in zip(*batch.values(), strict=True)
        ]
        written = [table_row_to_json(row, self.recipe.columns) for row in rows]
        numbers = list(range(len(rows))) if indices is None else list(indices)
        columns: list[Sequence[Any]] = [
            [PLACE] * len(rows),
            [number + 1 for number in numbers],
            [-1] * len(rows),
            [raw for raw, _ in written],
            [removed for _, removed in written],
            [None] * len(rows),
        ]
        encoded = self._kernel(make_input_batch(columns))
        table = pa.Table.from_batches([encoded]).select(COLUMNS)
        if self.recipe.on_bad_row == "fail":
            self._refuse_bad_rows(table)
        lengths = pc.list_value_length(table["input_ids"])
        ones = pa.array([[1] * length for length in lengths.to_pylist()], MASK)
        place = table.schema.get_field_index("row")
        found = table.set_column(place, "row", pc.subtract(table["row"], 1))
        return found.append_column("attention_mask", ones).append_column("length", lengths)

    def _refuse_bad_rows(self, table: pa.Table) -> None:
        bad = table.filter(pc.equal(table["status"], REJECTED)).slice(0, 1).to_pylist()
        for row in bad:
            raise DataError(f"row {row['row'] - 1}: {row['reason']}")

"""Rows become conversations, verdicts and samples: what `prepare` and `scan` share, without Arrow.

A bad row never raises; it gets a problem. Only a broken recipe raises, in `load`, before the first row. Rows are
encoded all together (`Template.encode_batch`), and only those with something special one by one (`samples.py`).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

from turnwise.data.flaws import RowChecker
from turnwise.data.records import Record
from turnwise.data.samples import EncodedSample, RowResult, SampleMaker, nothing_trained
from turnwise.errors import SourceError
from turnwise.tokens.encoded_batch import ID_TYPE, EncodedBatch
from turnwise.tokens.loss import IGNORED

CLOCK = "strftime_now"


class EncodedRows(NamedTuple):
    """What rows became.

    Attributes:
        records: the conversations; None for rows that cannot be read.
        results: the samples or the problems of rows that were not encoded with others, by their numbers.
        encoded: the others.
        common: the numbers of the others.
    """

    records: list[Record | None]
    results: dict[int, RowResult]
    encoded: EncodedBatch
    common: list[int]


class RecordEncoder(SampleMaker):
    """Encodes rows as a recipe says.

    Args:
        recipe: the recipe.

    Example:
        >>> from turnwise.data.recipe import Recipe
        >>> encoder = RecordEncoder(Recipe(inputs="data.jsonl", template="chatml", tokenizer="turnwise"))
        >>> found = encoder.encode_rows([b'{"prompt": "Hi", "completion": "Hello!"}', b"{oops"])
        >>> len(found.encoded), found.results[1].problem.kind
        (1, 'bad-json')
    """

    def load(self) -> Self:
        """Load template and tokenizer now, and return the encoder.

        Raises:
            TurnwiseError: one of them cannot be loaded, or they do not fit together; or the template writes the date,
                and the recipe does not say which.
        """
        if self.recipe.now is None and CLOCK in self.template.text:
            name = self.template.name
            problem = f"the template {name} writes today's date, so every run would differ"
            raise SourceError(problem, hint='say which date in the recipe: now = "2026-01-31"')
        self._encode_batch([], self._is_strict)
        self._checker  # noqa: B018  # before workers are forked
        return self

    @cached_property
    def _checker(self) -> RowChecker:
        return RowChecker(self.recipe, self.template)

    def encode_rows(self, rows: Sequence[Any]) -> EncodedRows:
        """Encode rows: JSON texts, or values that were parsed."""
        records: list[Record | None] = []
        results: dict[int, RowResult] = {}  # of rows that are not encoded with the others
        for index, row in enumerate(rows):
            record, problem = self._checker.check(row)
            records.append(record)
            if record is None:
                results[index] = RowResult(problem=problem)
            elif problem is not None or not self._is_common(record):
                results[index] = self.make(record, problem)
        common = [index for index in range(len(records)) if index not in results]
        return EncodedRows(records, results, self._encode_common(records, common, results), common)

    def _is_common(self, record: Record) -> bool:
        """Return whether a row is one sample, and encoded together with others."""
        if self.recipe.preferences != "chosen":
            return False
        return self.recipe.samples == "whole" or self.is_one_sample(record)

    def _encode_common(
        self, records: Sequence[Record | None], common: Sequence[int], results: dict[int, RowResult]
    ) -> EncodedBatch:
        """Encode rows all together; the results of those that need more are added to `results`."""
        rows = [record for record in map(records.__getitem__, common) if record is not None]
        encoded = self._encode_batch([record.row for record in rows], self._is_strict)
        offsets, limit = encoded.offsets, self.recipe.max_length
        is_trained = _find_trained(encoded)
        for place, (index, record) in enumerate(zip(common, rows, strict=True)):
            size = offsets[place + 1] - offsets[place]
            if place in encoded.errors:
                results[index] = self.make(record)
            elif not is_trained[place]:
                results[index] = RowResult(problem=nothing_trained())
            elif limit is not None and size > limit:
                ids, labels = encoded.input_ids, encoded.labels
                part = slice(offsets[place], offsets[place + 1])
                results[index] = self.fit(record, [EncodedSample(ids[part], labels[part])])
        return encoded


def _find_trained(encoded: EncodedBatch) -> list[bool]:
    """Return for each row whether any of its tokens is trained."""
    labels, size = memoryview(encoded.labels).cast("B"), encoded.labels.itemsize
    ignored = array(ID_TYPE, [IGNORED]).tobytes()
    found = []
    for start, end in pairwise(encoded.offsets):
        # Bytes are compared many times as fast as numbers.
        found.append(labels[size * start : size * end].tobytes() != ignored * (end - start))
    return found

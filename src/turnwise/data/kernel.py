"""The kernel: a batch of rows becomes a batch of encoded samples.

    Kernel(recipe)(batch: RecordBatch of INPUT_SCHEMA) -> RecordBatch of ENCODED_SCHEMA

It is a pure function: the same rows give the same records, whatever batches they come in, in whatever process. A bad
row never raises; it becomes a record with the reason. Only a broken recipe raises, in `Kernel.load`, before the first
row. A kernel is pickled as its recipe alone, and loads template and tokenizer when it is first used.

Rows are encoded all together (`Template.encode_batch`), and their ids go from there into Arrow without becoming Python
lists. Only rows with something special are looked at one by one (`samples.py`). The records of a batch are in the order
of its rows.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from array import array
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from turnwise.data.flaws import RowChecker
from turnwise.data.recipe import TRAIN, VALIDATION, Recipe
from turnwise.data.records import Record
from turnwise.data.samples import EncodedSample, RowResult, SampleMaker, nothing_trained
from turnwise.errors import SourceError, TokenizerError, TurnwiseWarning
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens import tokenizers
from turnwise.tokens.encoded_batch import ID_TYPE, EncodedBatch
from turnwise.tokens.loss import IGNORED

if TYPE_CHECKING:
    import pyarrow as pa

CLOCK = "strftime_now"
HASH_BYTES = 8


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


class Kernel:
    """Encodes batches of rows as a recipe says.

    Args:
        recipe: the recipe.

    Example:
        >>> import pyarrow as pa
        >>> from turnwise.data.schemas import INPUT_SCHEMA
        >>> kernel = Kernel(Recipe(inputs="data.jsonl", template="chatml", tokenizer="turnwise"))
        >>> raw = b'{"prompt": "Hi", "completion": "Hello!"}'
        >>> row = {"file": "data.jsonl", "row": 1, "offset": 0, "raw": raw, "nulls_removed": 0}
        >>> kernel(pa.RecordBatch.from_pylist([row], schema=INPUT_SCHEMA))["status"].to_pylist()
        ['sample']
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def __reduce__(self) -> tuple[Any, ...]:
        return Kernel, (self.recipe,)

    @cached_property
    def template(self) -> Template:
        """The template of the recipe."""
        given = self.recipe.template
        return given if isinstance(given, Template) else load(given)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the recipe."""
        return tokenizers.tokenizer(self.recipe.tokenizer)

    def load(self) -> Kernel:
        """Load template and tokenizer now, and return the kernel.

        Raises:
            TurnwiseError: one of them cannot be loaded, or they do not fit together; or the template writes the date,
                and the recipe does not say which.
        """
        if self.recipe.now is None and CLOCK in self.template.text:
            name = self.template.name
            problem = f"the template {name} writes today's date, so every run would differ"
            raise SourceError(problem, hint='say which date in the recipe: now = "2026-01-31"')
        self._encode_batch([])
        self._checker  # noqa: B018  # before workers are forked
        return self

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        """The arguments of `encode` for all rows, but `strict`."""
        return {**self.recipe.options, "now": self.recipe.now}

    @cached_property
    def _is_strict(self) -> bool:
        """Whether flaws of rows are errors; not if template and tokenizer do not fit, and flaws are kept."""
        if self.recipe.on_flaw == "reject":
            return True
        try:
            self.template.encode_batch([], self.tokenizer, strict=True, **self._arguments)
        except TokenizerError:
            return False
        return True

    @cached_property
    def _samples(self) -> SampleMaker:
        recipe, arguments = self.recipe, self._arguments
        return SampleMaker(recipe, self.template, self.tokenizer, arguments, self._is_strict)

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
                results[index] = self._samples.make(record, problem)
        common = [index for index in range(len(records)) if index not in results]
        encoded = self._encode_common(records, common, results)
        return EncodedRows(records, results, encoded, common)

    def _is_common(self, record: Record) -> bool:
        """Return whether a row is one sample, and encoded together with others."""
        if self.recipe.preferences != "chosen":
            return False
        return self.recipe.samples == "whole" or self._samples.is_one_sample(record)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Encode a batch of rows."""
        from turnwise.data.encoded_records import RecordBuilder

        records, results, encoded, common = self.encode_rows(batch.column("raw").to_pylist())
        builder = RecordBuilder(encoded, self.recipe.deduplicate)
        places = {index: place for place, index in enumerate(common)}
        for index, record in enumerate(records):
            if index in results or record is None:
                builder.add_result(index, results[index], record)
            else:
                builder.add_common(index, places[index], record)
        return builder.build(batch, self._choose_splits(records))

    def _encode_common(
        self, records: Sequence[Record | None], common: Sequence[int], results: dict[int, RowResult]
    ) -> EncodedBatch:
        """Encode rows all together; the results of those that need more are added to `results`."""
        rows = [record for record in map(records.__getitem__, common) if record is not None]
        encoded = self._encode_batch([record.row for record in rows])
        offsets, limit = encoded.offsets, self.recipe.max_length
        is_trained = _find_trained(encoded)
        for place, (index, record) in enumerate(zip(common, rows, strict=True)):
            size = offsets[place + 1] - offsets[place]
            if place in encoded.errors:
                results[index] = self._samples.make(record)
            elif not is_trained[place]:
                results[index] = RowResult(problem=nothing_trained())
            elif limit is not None and size > limit:
                ids, labels = encoded.input_ids, encoded.labels
                part = slice(offsets[place], offsets[place + 1])
                sample = EncodedSample(ids[part], labels[part])
                results[index] = self._samples.fit(record, [sample])
        return encoded

    def _encode_batch(self, rows: list[Any]) -> EncodedBatch:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TurnwiseWarning)  # with `strict` they are errors
            return self.template.encode_batch(
                rows,
                self.tokenizer,
                self.recipe.train_on,
                errors="collect",
                strict=self._is_strict,
                **self._arguments,
            )

    def _choose_splits(self, records: Sequence[Record | None]) -> list[str]:
        """Choose the split of each row by a hash of its messages: the same in every file, template and order."""
        share = self.recipe.validation
        if not share:
            return [TRAIN] * len(records)
        border = int(share * (1 << 8 * HASH_BYTES))
        splits = []
        for record in records:
            is_chosen = record is not None and _hash_messages(record.messages) < border
            splits.append(VALIDATION if is_chosen else TRAIN)
        return splits


def _hash_messages(messages: list[Any]) -> int:
    """Return a hash of roles, contents and other fields, whatever their order in the file."""
    hasher = hashlib.blake2b(digest_size=HASH_BYTES)
    texts = []
    for message in messages:
        content = message.get("content")
        texts += [message["role"], content if type(content) is str else ""]
        if len(message) > 2 or type(content) is not str:
            others = {key: value for key, value in message.items() if value is not None}
            texts.append(json.dumps(others, sort_keys=True, default=str))
    hasher.update("\0".join(texts).encode("utf-8", "surrogatepass"))
    return int.from_bytes(hasher.digest(), "big")


def _find_trained(encoded: EncodedBatch) -> list[bool]:
    """Return for each row whether any of its tokens is trained."""
    labels, size = memoryview(encoded.labels).cast("B"), encoded.labels.itemsize
    ignored = array(ID_TYPE, [IGNORED]).tobytes()
    found = []
    for start, end in pairwise(encoded.offsets):
        # Bytes are compared many times as fast as numbers.
        found.append(labels[size * start : size * end].tobytes() != ignored * (end - start))
    return found

"""Count what becomes of rows and tokens, so that nothing can be lost unnoticed.

Every worker counts its own chunks; tallies add up to that of the run. The law, checked for each chunk and again for the
whole run: rows in = rows out + rejected + filtered. A row is *out* if it gave at least one sample.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, fields

import pyarrow as pa
import pyarrow.compute as pc

from turnwise.data.schemas import REJECTED, SAMPLE
from turnwise.errors import DataError
from turnwise.messages import JsonMapping, JsonObject
from turnwise.tokens.loss import IGNORED

# Upper bounds of the histogram of lengths: powers of two, and the middle between two of them.
LENGTH_BOUNDS = tuple(bound for power in range(5, 24) for bound in (1 << power, 3 << (power - 1)))
SHARE_BUCKETS = 10  # of the histogram of trained shares
SUMS = {"lost": "tokens_lost", "nulls_removed": "nulls_removed", "rewritten": "rewritten"}
"""Counts that are sums of columns of encoded records."""
ROW_COLUMNS = ["status", "file", "row", "offset", "kind", "reason", "raw", "carried", "unread"]


@dataclass(slots=True)
class Tally:
    """Counts of rows, samples and tokens.

    Attributes:
        rows_in, rows_out, rejected, filtered: rows.
        samples: samples that were written.
        tokens, trained, lost, padding: tokens in samples; those with a label; those of rows or parts that were left
            out; those that packed rows lack to their full length.
        shard_rows: rows of shards; less than `samples` if they are packed.
        duplicates: samples that deduplication dropped.
        nulls_removed: null padding of tables that was undone.
        rewritten: replies that are trained in another text than the template's.
        reasons: rejected and filtered rows by the kind of their reason.
        flaws: samples that were kept although something is wrong with them.
        unread: rows by the names of their columns that were not read.
        carried: rows by the names of their columns that the shards carry.
        lengths: samples by the number of the bound in LENGTH_BOUNDS.
        shares: samples by the tenth of their tokens that is trained.
    """

    rows_in: int = 0
    rows_out: int = 0
    rejected: int = 0
    filtered: int = 0
    samples: int = 0
    tokens: int = 0
    trained: int = 0
    lost: int = 0
    padding: int = 0
    shard_rows: int = 0
    duplicates: int = 0
    nulls_removed: int = 0
    rewritten: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    flaws: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    carried: Counter[str] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)
    shares: Counter[int] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Add the counts of another tally to these."""
        for one in fields(self):
            mine = getattr(self, one.name)
            mine += getattr(other, one.name)
            setattr(self, one.name, mine)

    def check(self, where: str) -> None:
        """Check that no row was lost, and none counted twice.

        Raises:
            DataError: the numbers do not add up.
        """
        if self.rows_in != self.rows_out + self.rejected + self.filtered:
            raise DataError(
                f"{where}: {self.rows_in} rows were read, but {self.rows_out} gave samples, "
                f"{self.rejected} were rejected and {self.filtered} filtered",
                hint="This is a defect of turnwise; please report it with the recipe.",
            )

    def count_batch(self, encoded: pa.RecordBatch) -> list[JsonObject]:
        """Count the rows of encoded records, and return the first records of those that are rejected."""
        for name, column in SUMS.items():
            setattr(self, name, getattr(self, name) + (pc.sum(encoded[column]).as_py() or 0))
        rows = encoded.select(ROW_COLUMNS).filter(pc.equal(encoded["sample"], 0))
        self.unread.update(rows["unread"].drop_null().flatten().to_pylist())
        for text in rows["carried"].drop_null().to_pylist():
            self.carried.update(json.loads(text).keys())
        others = rows.filter(pc.not_equal(rows["status"], SAMPLE)).to_pylist()
        rejected = [record for record in others if record["status"] == REJECTED]
        self.rows_in += len(rows)
        self.rows_out += len(rows) - len(others)
        self.rejected += len(rejected)
        self.filtered += len(others) - len(rejected)
        self.reasons.update(record["kind"] for record in others)
        return rejected

    def count_samples(self, samples: pa.Table, shard_rows: int, row_length: int | None) -> int:
        """Count the samples of one shard, and return their tokens.

        Args:
            samples: encoded records.
            shard_rows: the rows that were made of them.
            row_length: the length that packed rows are filled up to; None without packing.
        """
        lengths, trained = measure_samples(samples)
        tokens = sum(lengths)
        self.samples += len(lengths)
        self.tokens += tokens
        self.trained += sum(trained)
        self.shard_rows += shard_rows
        if row_length is not None:
            self.padding += shard_rows * row_length - tokens
        self.lengths.update(bisect_left(LENGTH_BOUNDS, length) for length in lengths)
        self.shares.update(
            min(SHARE_BUCKETS * part // length, SHARE_BUCKETS - 1)
            for part, length in zip(trained, lengths, strict=True)
            if length
        )
        self.flaws.update(kind for kind in samples["kind"].to_pylist() if kind is not None)
        return tokens

    def to_json(self) -> JsonObject:
        """Return the counts as a JSON object."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name: dict(sorted(value.items())) if isinstance(value, Counter) else value
            for name, value in values.items()
        }

    @classmethod
    def from_json(cls, values: JsonMapping) -> Tally:
        """Return the tally that `to_json` wrote."""
        read = dict(values)
        for name, count in values.items():
            if isinstance(count, dict):  # JSON has no numbers as keys
                is_number = name in ("lengths", "shares")
                read[name] = Counter(
                    {int(key) if is_number else key: n for key, n in count.items()}
                )
        return cls(**read)


def measure_samples(samples: pa.Table) -> tuple[list[int], list[int]]:
    """Return the length of each sample, and how many of its tokens are trained."""
    lengths: list[int] = []
    trained: list[int] = []
    for lists in samples["labels"].chunks:
        # The running count of trained tokens at the end of each list, computed in Arrow: a loop over tokens is slow.
        is_trained = pc.not_equal(lists.flatten(), IGNORED).cast(pa.int32())
        running = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(is_trained)])
        ends = running.take(pc.subtract(lists.offsets, lists.offsets[0]))
        trained += pc.subtract(ends[1:], ends[:-1]).to_pylist()
        lengths += pc.list_value_length(lists).to_pylist()
    return lengths, trained

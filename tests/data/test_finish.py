"""What a trainer loads: the ids of the samples, in order, with masks, lengths, positions and sources."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_batches import make_batch, make_recipe, talk
from turnwise.data.finish import finish
from turnwise.data.kernel import Kernel
from turnwise.data.recipe import Recipe
from turnwise.data.schemas import ENCODED_SCHEMA, PARQUET_OPTIONS, shard_schema

BAD = {"text": "no conversation"}


def chats(*sizes: int) -> list[Any]:
    return [{"messages": talk("Hi", "word " * size + "end")} for size in sizes]


def encode(rows: list[Any], **values: Any) -> tuple[pa.RecordBatch, Recipe]:
    recipe = make_recipe(**values)
    return Kernel(recipe)(make_batch(rows)), recipe


def test_rows_without_packing_are_the_samples() -> None:
    encoded, recipe = encode([*chats(3, 1), BAD, *chats(2)])
    table = finish([encoded], recipe)
    samples = [record for record in encoded.to_pylist() if record["status"] == "sample"]
    assert table.schema.equals(shard_schema(recipe))
    assert len(samples) == 3
    for row, sample in zip(table.to_pylist(), samples, strict=True):
        assert row == {
            "input_ids": sample["input_ids"],
            "labels": sample["labels"],
            "attention_mask": [1] * len(sample["input_ids"]),
            "assistant_masks": [int(label != -100) for label in sample["labels"]],
            "length": len(sample["input_ids"]),
            "source_file": "data.jsonl",
            "source_row": sample["row"],
            "carried": None,
        }


@settings(max_examples=40)
@given(st.lists(st.integers(0, 30), max_size=20), st.integers(45, 100))
def test_packed_rows_hold_every_sample_once_and_whole(sizes: list[int], limit: int) -> None:
    encoded, recipe = encode(chats(*sizes), packing="best-fit", max_length=limit)
    table = finish([encoded], recipe)
    table.validate(full=True)
    found = {}
    for row in table.to_pylist():
        assert row["length"] == len(row["input_ids"]) == sum(row["seq_lengths"]) <= limit
        assert len(row["source_row"]) == len(row["source_file"]) == len(row["seq_lengths"])
        start = 0
        for source, length in zip(row["source_row"], row["seq_lengths"], strict=True):
            part = slice(start, start + length)
            names = ("input_ids", "labels", "position_ids", "attention_mask", "assistant_masks")
            found[source] = {name: row[name][part] for name in names}
            start += length
    assert len(found) == len(sizes)
    for record in encoded.to_pylist():
        length = len(record["input_ids"])
        assert found[record["row"]] == {
            "input_ids": record["input_ids"],
            "labels": record["labels"],
            "position_ids": list(range(length)),
            "attention_mask": [1] * length,
            "assistant_masks": [int(label != -100) for label in record["labels"]],
        }


@settings(max_examples=20)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=20),
    st.data(),
    st.sampled_from(["none", "best-fit"]),
)
def test_batches_and_slices_do_not_matter(
    sizes: list[int], data: st.DataObject, packing: str
) -> None:
    values: dict[str, Any] = {
        "packing": packing,
        "max_length": 60,
        "group_by_length": data.draw(st.booleans()),
    }
    encoded, recipe = encode(chats(*sizes), **values)
    whole = finish([encoded], recipe)
    cut = data.draw(st.integers(0, len(sizes)))
    parts = finish([encoded.slice(0, cut), encoded.slice(cut)], recipe)
    assert parts.combine_chunks().equals(whole.combine_chunks())
    table = pa.Table.from_batches([encoded])
    assert finish(table, recipe).combine_chunks().equals(whole.combine_chunks())


def test_grouping_sorts_from_the_longest_and_keeps_ties_in_order() -> None:
    encoded, recipe = encode(chats(1, 5, 1, 9, 5), group_by_length=True)
    table = finish([encoded], recipe)
    assert table["source_row"].to_pylist() == [4, 2, 5, 1, 3]
    lengths = table["length"].to_pylist()
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize("packing", ["none", "best-fit"])
@pytest.mark.parametrize("preferences", ["chosen", "pairs"])
def test_a_shard_without_samples_has_the_schema(packing: str, preferences: str) -> None:
    if preferences == "pairs":
        packing = "none"
    recipe = make_recipe(packing=packing, max_length=50, preferences=preferences)
    for encoded in (
        [],
        [pa.RecordBatch.from_pylist([], schema=ENCODED_SCHEMA)],
        [Kernel(recipe)(make_batch([BAD]))],
    ):
        table = finish(encoded, recipe)
        assert table.num_rows == 0
        assert table.schema.equals(shard_schema(recipe))


def test_shards_survive_parquet() -> None:
    encoded, recipe = encode(chats(3, 1, 7), packing="best-fit", max_length=50)
    table = finish([encoded], recipe)
    file = io.BytesIO()
    pq.write_table(table, file, **PARQUET_OPTIONS)
    assert pq.read_table(file).to_pylist() == table.to_pylist()


# -- pairs ------------------------------------------------------------------------------------------------------------

PAIR = {"prompt": "Hi", "chosen": "Good answer.", "rejected": "Bad."}


def test_pairs_have_the_columns_of_trls_collator() -> None:
    encoded, recipe = encode([PAIR, *chats(2)], preferences="pairs")
    assert encoded["status"].to_pylist() == ["sample", "rejected"]
    (row,) = finish([encoded], recipe).to_pylist()
    decode = Kernel(recipe).tokenizer.decode
    assert decode(row["prompt_ids"]) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert decode(row["chosen_ids"]) == "Good answer.<|im_end|>\n"
    assert decode(row["rejected_ids"]) == "Bad.<|im_end|>\n"
    assert row["length"] == len(row["prompt_ids"]) + len(row["chosen_ids"])
    assert (row["source_file"], row["source_row"]) == ("data.jsonl", 1)


def test_pairs_that_cannot_be_one_are_rejected_or_filtered() -> None:
    same = {**PAIR, "rejected": PAIR["chosen"]}
    long = {**PAIR, "rejected": "word " * 50}
    alone = {"prompt": "Hi", "chosen": "Good."}
    encoded, _ = encode([PAIR, same, long, alone], preferences="pairs", max_length=40)
    assert encoded["status"].to_pylist() == ["sample", "rejected", "filtered", "rejected"]
    assert encoded["kind"].to_pylist() == [None, "bad-message", "too-long", "bad-column"]
    assert encoded["tokens_lost"].to_pylist()[2] > 50


def test_digests_of_pairs_see_both_sides() -> None:
    other = {**PAIR, "rejected": "Worse."}
    encoded, _ = encode([PAIR, other, PAIR], preferences="pairs", deduplicate=True)
    first, second, third = encoded["digest"].to_pylist()
    assert first == third != second

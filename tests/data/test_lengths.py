"""Conversations that are too long: dropped, truncated after a reply, or split before questions; losses are counted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnwise
from data_batches import encode_row, encode_rows, talk
from turnwise.data.lengths import fit_conversation
from turnwise.data.schemas import FILTERED, SAMPLE
from turnwise.tokens.truncation import split_rounds

ROLES = ("user", "assistant", "assistant", "tool", "system")
messages = st.builds(
    lambda role, size: {"role": role, "content": "x" * size},
    st.sampled_from(ROLES),
    st.integers(1, 9),
)
conversations = st.lists(messages, min_size=1, max_size=14)
limits = st.integers(3, 40)


def measure(messages: list[Any]) -> int:
    """Count a template that writes each message with one marker."""
    return sum(1 + len(message["content"]) for message in messages)


def is_subsequence(part: list[Any], whole: list[Any]) -> bool:
    places = {id(message): index for index, message in enumerate(whole)}
    indices = [places[id(message)] for message in part]
    return indices == sorted(set(indices))


@given(conversations, limits)
def test_truncation_keeps_the_longest_beginning_that_ends_with_a_reply(
    chat: list[Any], limit: int
) -> None:
    size = measure(chat)
    if size <= limit:
        return
    parts, lost = fit_conversation(chat, size, limit, "truncate", measure)
    ends = [i + 1 for i, message in enumerate(chat) if message["role"] == "assistant"]
    fitting = [end for end in ends if measure(chat[:end]) <= limit]
    assert parts == ([chat[: fitting[-1]]] if fitting else [])
    assert lost == size - sum(map(measure, parts))


@given(conversations, limits)
def test_splitting_loses_nothing_but_what_does_not_fit(chat: list[Any], limit: int) -> None:
    size = measure(chat)
    if size <= limit:
        return
    parts, lost = fit_conversation(chat, size, limit, "split", measure)
    rounds, system = split_rounds(chat)
    kept = {id(message) for part in parts for message in part}
    for part in parts:
        assert measure(part) <= limit
        assert is_subsequence(part, chat)
        turns = [message for message in part if message["role"] != "system"]
        # It begins as a round does, with all system messages so far.
        assert any(chat[indices[0]] is turns[0] for indices in rounds)
        first = next(i for i, message in enumerate(chat) if message is turns[0])
        assert part[: part.index(turns[0])] == [chat[i] for i in system if i < first]
    # A turn is in one part, and a round that fits with the system messages before it is not lost.
    counts = [sum(id(message) == id(one) for part in parts for one in part) for message in chat]
    assert all(
        count <= 1
        for message, count in zip(chat, counts, strict=True)
        if message["role"] != "system"
    )
    for number, indices in enumerate(rounds):
        end = rounds[number + 1][0] if number + 1 < len(rounds) else len(chat)
        alone = sorted([*indices, *(i for i in system if i < end)])
        if measure([chat[i] for i in alone]) <= limit:
            assert all(id(chat[i]) in kept for i in indices)
    missing = sum(1 + len(message["content"]) for message in chat if id(message) not in kept)
    if not parts:
        assert lost == size
    elif not system:
        assert lost == missing
    else:  # whether a system message is lost depends on the other parts, so it is counted roughly
        assert abs(lost - missing) <= measure([chat[i] for i in system])


@given(conversations, limits)
def test_splitting_makes_parts_as_long_as_fit(chat: list[Any], limit: int) -> None:
    size = measure(chat)
    if size <= limit:
        return
    parts, lost = fit_conversation(chat, size, limit, "split", measure)
    rounds, system = split_rounds(chat)
    if lost or system:
        return
    for part, following in zip(parts, parts[1:], strict=False):
        (next_round, *_), _ = split_rounds(following)
        assert measure([*part, *(following[i] for i in next_round)]) > limit


def test_few_encodings_are_needed() -> None:
    chat = talk(*("word" for _ in range(400)))
    calls = []

    def count(part: list[Any]) -> int:
        calls.append(len(part))
        return measure(part)

    parts, lost = fit_conversation(chat, measure(chat), 100, "split", count)
    assert lost == 0 and len(parts) == 20
    assert len(calls) < 6 * len(parts)
    calls.clear()
    fit_conversation(chat, measure(chat), 100, "truncate", count)
    assert len(calls) < 15


def test_a_part_that_the_template_refuses_does_not_fit() -> None:
    chat = talk("a", "b", "c", "d", "e", "f")
    parts, _ = fit_conversation(
        chat, 12, 9, "truncate", lambda part: measure(part) if len(part) < 4 else None
    )
    assert parts == [chat[:2]]


# -- with templates ---------------------------------------------------------------------------------------------------

LONG = {"messages": talk("one", "two", "three", "four", "five", "six", system="Be brief.")}


def size_of(chat: list[Any], template: str = "chatml") -> int:
    return len(turnwise.load(template).encode(chat, "turnwise"))


def test_dropped_rows_are_filtered_and_their_tokens_counted() -> None:
    size = size_of(LONG["messages"])
    assert encode_row(LONG, max_length=size)["status"] == SAMPLE
    record = encode_row(LONG, max_length=size - 1)
    assert (record["status"], record["kind"], record["tokens_lost"]) == (FILTERED, "too-long", size)
    assert record["reason"].startswith(f"has {size} tokens, more than max_length={size - 1}")


def test_truncated_rows_end_with_the_last_reply_that_fits() -> None:
    kept = LONG["messages"][:5]
    limit = size_of(kept) + 3
    record = encode_row(LONG, max_length=limit, overlong="truncate")
    encoded = turnwise.load("chatml").encode(kept, "turnwise")
    assert (record["input_ids"], record["labels"]) == (encoded.input_ids, encoded.labels)
    assert record["tokens_lost"] == size_of(LONG["messages"]) - len(encoded)


@pytest.mark.parametrize("name", ["chatml", "qwen3", "llama3.1", "mistral"])
@settings(max_examples=15)
@given(st.lists(st.integers(1, 12), min_size=2, max_size=9), st.integers(30, 80), st.booleans())
def test_samples_of_a_split_row_are_conversations_of_their_own(
    name: str, sizes: list[int], limit: int, system: bool
) -> None:
    texts = [text for size in sizes for text in ("ask " * size, "reply " * size)]
    chat = talk(*texts, system="Be brief." if system else "")
    records = encode_rows([{"messages": chat}], max_length=limit, overlong="split", template=name)
    template = turnwise.load(name)
    head = chat[:1] if system else []
    place, replies = len(head), 0
    for record in records:
        if record["status"] != SAMPLE:
            assert len(records) == 1
            return
        assert len(record["input_ids"]) <= limit
        # Find the rounds that this sample is made of: each is two messages long here.
        for start in range(place, len(chat), 2):
            ends = [end for end in range(start + 2, len(chat) + 1, 2)]
            parts = [head + chat[start:end] for end in ends]
            found = [
                end
                for end, part in zip(ends, parts, strict=True)
                if template.encode(part, "turnwise").input_ids == record["input_ids"]
            ]
            if found:
                place, replies = found[0], replies + (found[0] - start) // 2
                break
        else:
            raise AssertionError("a sample is not a part of the conversation")
    if not any(record["tokens_lost"] for record in records):
        assert replies == len(sizes)


def test_an_agents_only_round_is_split_by_keeping_its_beginning() -> None:
    call = {"id": "call12345", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    steps = [
        [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call12345", "content": f"result {n}"},
        ]
        for n in range(8)
    ]
    chat = [
        *talk("Go."),
        *(message for step in steps for message in step),
        {"role": "assistant", "content": "Done."},
    ]
    size = size_of(chat, "qwen3")
    record = encode_row(
        {"messages": chat}, template="qwen3", max_length=size // 2, overlong="split"
    )
    assert record["status"] == SAMPLE
    assert size // 3 < len(record["input_ids"]) <= size // 2
    assert record["tokens_lost"] == size - len(record["input_ids"])
    ends = [
        turnwise.load("qwen3").encode(chat[:end], "turnwise").input_ids for end in range(2, 18, 2)
    ]
    assert record["input_ids"] in ends


def test_turns_of_a_long_row_are_split_too() -> None:
    chat = talk(*(f"word {n} and more words" for n in range(20)))
    records = encode_rows(
        [{"messages": chat}], template="qwen3", samples="turns", max_length=60, overlong="split"
    )
    assert len(records) > 3
    assert all(record["status"] == SAMPLE and len(record["input_ids"]) <= 60 for record in records)
    trained = sum(label != -100 for record in records for label in record["labels"])
    whole = turnwise.load("qwen3").encode(chat, "turnwise")
    assert trained >= sum(label != -100 for label in whole.labels)
    assert [record["tokens_lost"] for record in records] == [0] * len(records)


def test_a_question_without_a_reply_at_the_end_is_counted_as_lost() -> None:
    chat = talk("one", "two", "a question that nobody answers")
    limit = size_of(chat) - 1
    records = encode_rows([{"messages": chat}], max_length=limit, overlong="split")
    assert [record["status"] for record in records] == [SAMPLE]
    assert records[0]["tokens_lost"] == size_of(talk("a question that nobody answers"))

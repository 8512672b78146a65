"""Laws of the kernel: the ids are those of `encode`, batches do not matter, and every row is accounted for."""

from __future__ import annotations

import json
import pickle
import warnings
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnwise
from data_batches import encode_row, encode_rows, make_batch, make_recipe, talk
from fine_tuner_rows import read, rows
from turnwise.data.kernel import Kernel
from turnwise.data.reasons import KINDS
from turnwise.data.recipe import COLUMN_NAMES
from turnwise.data.schemas import ENCODED_SCHEMA, FILTERED, INPUT_SCHEMA, REJECTED, SAMPLE
from turnwise.errors import SourceError, TokenizerError, TurnwiseError

CALL = {"id": "call12345", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}
GOOD: list[Any] = [
    {"messages": talk("Hi", "Hello!")},
    {
        "messages": talk("Hi", "Hello!", "More", "Yes.", system="Be brief."),
        "id": 7,
        "source": "web",
    },
    {"messages": talk("Hi", "I say <|im_end|> here")},
    {"messages": talk("Hi", "  spaces  ")},
    {"messages": talk("東京", "🙂")},
    {
        "messages": [*talk("Hi"), {"role": "assistant", "content": None, "tool_calls": [CALL]}],
        "tools": [TOOL],
    },
    {"messages": talk("Hi", "Hello!"), "tools": json.dumps([TOOL])},
    {"messages": [*talk("Hi", "No.", "Hi"), {"role": "assistant", "content": "Yes.", "weight": 1}]},
    {"prompt": "Hi", "completion": "Hello!"},
    {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]},
    {"instruction": "Say hi.", "output": "hi"},
    {"conversation": [{"system": "s", "input": "Hi", "output": "Hello!"}]},
    {"src": ["Hi"], "tgt": ["Hello!"]},
    {"chosen": talk("Hi", "Good."), "rejected": talk("Hi", "Bad.")},
]
BAD: list[Any] = [
    b"{",
    b"\xff",
    {"text": "rendered"},
    {"messages": talk("only a question")},
    {"messages": [{"role": "usr", "content": "Hi"}]},
    {"messages": []},
    b"",
]
TEMPLATES = ("chatml", "qwen3", "llama3.1", "mistral")


def encode_directly(
    row: dict[str, Any], template: turnwise.Template, **arguments: Any
) -> turnwise.Encoded:
    given = {**arguments, **turnwise.shapes.conversation(row).arguments}
    return template.encode(given.pop("messages"), "turnwise", **given)


@pytest.mark.law(5)
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("policy", ["assistant", "last", "content", "all"])
def test_ids_and_labels_are_those_of_encode(name: str, policy: str) -> None:
    template = turnwise.load(name)
    conversations = [row for row in GOOD if "chosen" not in row]
    options: dict[str, Any] = {} if name != "mistral" else {"on_flaw": "keep"}
    records = encode_rows(conversations, template=name, train_on=policy, **options)
    assert [record["row"] for record in records] == list(range(1, len(conversations) + 1))
    for row, record in zip(conversations, records, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", turnwise.TurnwiseWarning)
            try:
                expected = encode_directly(row, template, train_on=policy)
            except TurnwiseError:
                assert record["status"] == REJECTED
                continue
        if record["status"] == SAMPLE:
            assert record["input_ids"] == expected.input_ids
            assert record["labels"] == expected.labels
        else:
            assert record["kind"] in ("loses-text", "nothing-trained"), record["reason"]


texts = st.text("ab <|>\n", min_size=1, max_size=8) | st.sampled_from(["<|im_end|>", "</s>", "Hi"])
turns = st.lists(texts, min_size=1, max_size=5).map(lambda parts: talk(*parts))
prefixed = st.builds(
    lambda chat, system: [*talk(system=system), *chat], turns, st.sampled_from(["", "s"])
)


@pytest.mark.parametrize("name", ["chatml", "mistral", "vicuna", "qwen3"])
@settings(max_examples=20)
@given(st.lists(prefixed, min_size=1, max_size=5))
def test_samples_of_turns_are_those_of_examples(name: str, chats: list[list[Any]]) -> None:
    """Also where a template only appends, and plain rows are encoded all together."""
    template = turnwise.load(name)
    records = encode_rows(chats, template=template, samples="turns")
    for number, chat in enumerate(chats, 1):
        found = [record for record in records if record["row"] == number]
        if any(not one["content"].strip() for one in chat if one["role"] == "assistant"):
            assert found[0]["kind"] == "empty-reply"
            continue
        try:
            expected = template.examples(chat, "turnwise", strict=True)
        except TurnwiseError:
            assert found[0]["status"] == REJECTED
            continue
        expected = [one for one in expected if any(label != -100 for label in one.labels)]
        assert [one["input_ids"] for one in found if one["status"] == SAMPLE] == [
            one.input_ids for one in expected
        ]
        assert [one["labels"] for one in found if one["status"] == SAMPLE] == [
            one.labels for one in expected
        ]


def test_good_rows_are_samples() -> None:
    for samples in ("whole", "turns"):
        records = encode_rows(GOOD, template="qwen3", samples=samples)
        assert {record["status"] for record in records} == {SAMPLE}
        assert {record["reason"] for record in records} == {None}


def test_rows_of_fine_tuners_are_samples_or_say_why_not() -> None:
    """Dirty rows of three shapes: a sample holds every word of its row, and a row that loses one is rejected."""
    given_rows = list(rows(90))
    template = turnwise.load("qwen3")
    records = encode_rows([row.data for row in given_rows], template="qwen3", samples="turns")
    by_row: dict[int, list[dict[str, Any]]] = {}
    for record in records:
        by_row.setdefault(record["row"], []).append(record)
    assert len(by_row) == len(given_rows)
    statuses = Counter(found[0]["status"] for found in by_row.values())
    assert statuses[SAMPLE] > 40 and statuses[REJECTED] > 3
    for row, found in zip(given_rows, by_row.values(), strict=True):
        if found[0]["status"] != SAMPLE:
            assert found[0]["reason"]
            continue
        arguments = read(row)
        expected = template.examples(
            arguments.pop("messages"), "turnwise", strict=True, **arguments
        )
        assert [one["input_ids"] for one in found] == [one.input_ids for one in expected]
        assert [one["labels"] for one in found] == [one.labels for one in expected]
        assert [one["sample"] for one in found] == list(range(len(expected)))


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([*GOOD, *BAD]), max_size=12),
    st.data(),
    st.sampled_from(
        [{}, {"max_length": 24}, {"max_length": 24, "overlong": "split"}, {"samples": "turns"}]
    ),
)
def test_batches_do_not_matter(
    given_rows: list[Any], data: st.DataObject, values: dict[str, Any]
) -> None:
    kernel = Kernel(make_recipe(validation=0.3, deduplicate=True, **values))
    whole = kernel(make_batch(given_rows))
    cut = data.draw(st.integers(0, len(given_rows)))
    parts = [
        kernel(make_batch(given_rows[:cut])),
        Kernel(kernel.recipe)(make_batch(given_rows[cut:], cut + 1)),
    ]
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([whole]))


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([*GOOD, *BAD]), max_size=12),
    st.sampled_from([None, 12, 24]),
    st.sampled_from(["drop", "split"]),
)
def test_every_row_is_accounted_for(
    given_rows: list[Any], limit: int | None, overlong: str
) -> None:
    values = {"max_length": limit, "overlong": overlong} if limit else {}
    records = encode_rows(given_rows, **values)
    firsts = [record for record in records if record["sample"] == 0]
    assert [record["row"] for record in firsts] == list(range(1, len(given_rows) + 1))
    for record in records:
        assert record["status"] in (SAMPLE, REJECTED, FILTERED)
        assert bool(record["input_ids"]) == (record["status"] == SAMPLE)
        assert len(record["input_ids"]) == len(record["labels"])
        assert (record["raw"] is not None) == (record["status"] == REJECTED)
        assert (record["kind"] in KINDS and bool(record["reason"])) == (record["status"] != SAMPLE)
        if limit is not None:
            assert len(record["input_ids"]) <= limit


ODD_TALKS: list[Any] = [
    talk("a", "b"),
    talk("a"),
    talk("a", "b", "c", system="s"),
    talk("a", "b", "c", "d", system="s"),
    [*talk("a"), *talk("b", "c")],
    [*talk("a", "b"), *talk("c"), *talk("d", "e", "f")],
    talk("a", "b")[1:],
    [*talk("a", "b"), *talk("c", "d", system="late")],
    [*talk("a"), {"role": "assistant", "content": " "}],
    [*talk("a", "b"), {"role": "assistant", "content": "again"}],
]


@pytest.mark.law(2)
@pytest.mark.parametrize("samples", ["whole", "turns"])
@pytest.mark.parametrize("name", ["mistral", "gemma2", "llama3.1"])
def test_rows_do_not_depend_on_rows_before_them(name: str, samples: str) -> None:
    """Templates that refuse some conversations: what is learned from one row changes no other."""
    values = {"template": name, "samples": samples, "on_flaw": "keep"}
    alone = [encode_rows([chat], **values) for chat in ODD_TALKS]
    for order in (range(len(ODD_TALKS)), reversed(range(len(ODD_TALKS)))):
        indices = list(order)
        records = encode_rows([ODD_TALKS[index] for index in indices], **values)
        for number, index in enumerate(indices, 1):
            found = [{**record, "row": 1} for record in records if record["row"] == number]
            assert found == alone[index], ODD_TALKS[index]


def test_batches_have_the_schema_even_if_they_are_empty() -> None:
    for given_rows in ([], GOOD, BAD):
        found = Kernel(make_recipe())(make_batch(given_rows))
        assert found.schema.equals(ENCODED_SCHEMA)
        found.validate(full=True)


def test_a_slice_of_a_batch_is_a_batch() -> None:
    kernel = Kernel(make_recipe())
    whole = make_batch(GOOD)
    found = kernel(whole.slice(2, 3))
    assert found.equals(kernel(make_batch(GOOD[2:5], 3)))


def test_a_kernel_is_pickled_as_its_recipe() -> None:
    kernel = Kernel(make_recipe()).load()
    again = pickle.loads(pickle.dumps(kernel))
    assert "template" not in vars(again)
    assert again(make_batch(GOOD)).equals(kernel(make_batch(GOOD)))


def test_rejected_rows_keep_their_bytes() -> None:
    raw = b'\xef\xbb\xbf{"messages": "caf\xe9"}\r'
    record = encode_row(raw)
    assert (record["status"], record["raw"]) == (REJECTED, raw)


NOISE = (
    None,
    True,
    0,
    -1,
    0.5,
    10**30,
    "",
    "user",
    "assistant",
    "<|im_end|>",
    [],
    {},
    [[]],
    [{}],
    {"a": None},
)
FIELDS = (
    "role",
    "content",
    "tool_calls",
    "reasoning_content",
    "weight",
    "name",
    "from",
    "value",
    "input",
    "output",
)
noise = st.sampled_from(NOISE)
odd_messages = st.builds(
    lambda message, more: {**message, **more},
    st.sampled_from([*talk("Hi", "Hello!", system="s"), {"role": "tool", "content": "x"}]),
    st.dictionaries(st.sampled_from(FIELDS), noise, max_size=2),
)
odd_turns = st.lists(odd_messages, max_size=4) | noise
odd_rows = st.dictionaries(st.sampled_from([*COLUMN_NAMES, "options"]), odd_turns, max_size=4)


@settings(max_examples=40)
@given(
    st.lists(odd_rows | odd_turns, min_size=3, max_size=9),
    st.sampled_from(
        [
            {},
            {"samples": "turns"},
            {"max_length": 20, "overlong": "split"},
            {"preferences": "pairs"},
        ]
    ),
)
def test_no_row_raises(given_rows: list[Any], values: dict[str, Any]) -> None:
    records = encode_rows(given_rows, template="qwen3", on_flaw="keep", **values)
    assert {record["row"] for record in records} == {*range(1, len(given_rows) + 1)}


# -- splits and duplicates --------------------------------------------------------------------------------------------


def test_the_split_of_a_row_depends_on_its_messages_alone() -> None:
    talks = [talk(f"Question {number}", f"Answer {number}") for number in range(400)]
    plain = [{"messages": one} for one in talks]
    others = [
        {"id": 5, "messages": [{"content": one["content"], "role": one["role"]} for one in chat]}
        for chat in reversed(talks)
    ]
    splits = [record["split"] for record in encode_rows(plain, validation=0.2)]
    again = [record["split"] for record in encode_rows(others, validation=0.2, template="qwen3")]
    assert again[::-1] == splits
    assert 40 < splits.count("validation") < 120
    # A larger share keeps what a smaller one chose.
    more = [record["split"] for record in encode_rows(plain, validation=0.5)]
    assert all(
        late == "validation"
        for early, late in zip(splits, more, strict=True)
        if early == "validation"
    )


def test_samples_of_a_row_are_in_one_split() -> None:
    chats = [
        {"messages": talk(*("some words" for _ in range(8)), f"{number}", "end")}
        for number in range(30)
    ]
    records = encode_rows(chats, validation=0.5, max_length=40, overlong="split")
    splits: dict[int, set[str]] = {}
    for record in records:
        splits.setdefault(record["row"], set()).add(record["split"])
    assert len(records) > 60
    assert all(len(found) == 1 for found in splits.values())
    assert len({*map(frozenset, splits.values())}) == 2


def test_equal_samples_have_equal_digests() -> None:
    same = [{"messages": talk("Hi", "Hello!")}, {"prompt": "Hi", "completion": "Hello!"}]
    other = {"messages": [*talk("Hi", "Hello!"), *talk("Hi", "Hello!")]}
    untrained = {
        "messages": [
            *talk("Hi"),
            {"role": "assistant", "content": "Hello!", "weight": 0},
            *talk("Hi", "Hello!"),
        ]
    }
    tooled = {"messages": talk("Hi", "Hello!"), "tools": []}
    digests = [
        record["digest"]
        for record in encode_rows([*same, tooled, other, untrained], deduplicate=True)
    ]
    assert digests[0] == digests[1] == digests[2]
    assert len(set(digests)) == 3
    assert all(len(digest) == 16 for digest in digests)
    assert encode_row(same[0])["digest"] is None


# -- flaws ------------------------------------------------------------------------------------------------------------

REASONED = {
    "messages": [*talk("Hi"), {"role": "assistant", "content": "a", "reasoning_content": "hm"}]
}


def test_rows_that_lose_text_are_rejected_or_kept_with_the_reason() -> None:
    record = encode_row(REASONED)
    assert (record["status"], record["kind"]) == (REJECTED, "loses-text")
    assert "messages[1].reasoning_content" in record["reason"]
    kept = encode_row(REASONED, on_flaw="keep")
    assert (kept["status"], kept["kind"], kept["reason"]) == (
        SAMPLE,
        "loses-text",
        record["reason"],
    )
    assert kept["input_ids"] == encode_row({"messages": talk("Hi", "a")})["input_ids"]


def test_a_row_whose_turns_need_samples_of_their_own_says_so() -> None:
    """Qwen3 drops the reasoning of earlier turns, so the first reply would be trained without it."""
    chat = {"messages": [*REASONED["messages"], *talk("And?", "b")]}
    record = encode_row(chat, template="qwen3")
    assert (record["status"], record["kind"]) == (REJECTED, "loses-text")
    assert 'Try samples = "turns"' in record["reason"]
    records = encode_rows([chat], template="qwen3", samples="turns")
    assert [one["status"] for one in records] == [SAMPLE, SAMPLE]


def test_a_flaw_costs_no_other_row_anything() -> None:
    records = encode_rows([GOOD[0], REASONED, GOOD[1]])
    alone = encode_rows([GOOD[0], GOOD[1]])
    assert [record["input_ids"] for record in records if record["status"] == SAMPLE] == [
        record["input_ids"] for record in alone
    ]


def test_no_warning_leaves_the_kernel() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode_rows([*GOOD, *BAD, REASONED], on_flaw="keep")
        encode_rows([*GOOD, *BAD, REASONED], on_flaw="keep", samples="turns")


# -- recipes that cannot work -----------------------------------------------------------------------------------------


def test_a_template_and_a_tokenizer_that_do_not_fit_are_refused_unless_flaws_are_kept() -> None:
    values = {"template": "llama3.1", "tokenizer": "turnwise"}
    text = "{% for m in messages %}<|odd_start|>{{ m.role }}|{{ m.content }}<|odd_end|>{% endfor %}"
    values["template"] = turnwise.compile(text)
    with pytest.raises(TokenizerError, match="odd_end"):
        Kernel(make_recipe(**values)).load()
    kept = encode_row({"messages": talk("Hi", "Hello!")}, **values, on_flaw="keep")
    assert kept["status"] == SAMPLE


def test_a_template_that_writes_the_date_needs_one() -> None:
    text = "{{ strftime_now('%d %b %Y') }}" + turnwise.load("chatml").text
    template = turnwise.compile(text)
    with pytest.raises(SourceError, match="writes today's date"):
        Kernel(make_recipe(template=template)).load()
    ids = encode_row({"messages": talk("Hi", "Hello!")}, template=template, now="2026-01-31")[
        "input_ids"
    ]
    decoded = Kernel(make_recipe()).tokenizer.decode(ids)
    assert decoded.startswith("31 Jan 2026")


@pytest.mark.parametrize(
    "values",
    [
        {"template": "no such template"},
        {"tokenizer": "/no/such/tokenizer"},
        {"options": {"enable_thinkin": False}, "template": "qwen3"},
    ],
)
def test_a_broken_recipe_raises_before_the_first_row(values: dict[str, Any]) -> None:
    with pytest.raises(TurnwiseError):
        Kernel(make_recipe(**values)).load()


def test_options_of_the_recipe_and_of_the_row() -> None:
    row = {"messages": talk("Hi", "Hello!")}
    thinking = {**row, "chat_template_kwargs": {"enable_thinking": True}}
    text = "{{ 'on' if enable_thinking else 'off' }}" + turnwise.load("chatml").text
    values = {"template": turnwise.compile(text), "options": {"enable_thinking": False}}
    off, on = (encode_row(one, **values)["input_ids"] for one in (row, thinking))
    decode = Kernel(make_recipe()).tokenizer.decode
    assert decode(off).startswith("off<") and decode(on).startswith("on<")
    misspelt = {**row, "chat_template_kwargs": {"enable_thinkin": 1}}
    record = encode_row(misspelt, template=values["template"])
    assert record["status"] == REJECTED and "enable_thinking" in record["reason"]


def test_input_batches_have_the_input_schema() -> None:
    assert make_batch(GOOD).schema.equals(INPUT_SCHEMA)

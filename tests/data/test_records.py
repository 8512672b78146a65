"""Rows of every shape, and everything that JSON text may hold that is no row."""

from __future__ import annotations

import json
from typing import Any

import pytest

import turnwise
from data_batches import encode_row, encode_rows, make_recipe, talk
from turnwise import shapes
from turnwise.data.reasons import KINDS
from turnwise.data.records import Record, RecordReader, UnusableRow
from turnwise.data.schemas import FILTERED, REJECTED, SAMPLE
from turnwise.engine.option_names import ENCODE_ARGUMENTS
from turnwise.errors import SourceError

TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}
HELLO = talk("Hi", "Hello!")


def read(row: Any, **values: Any) -> Record:
    raw = row if isinstance(row, bytes) else json.dumps(row).encode()
    return RecordReader(make_recipe(**values)).read(raw)


def find_problem(row: Any, **values: Any) -> UnusableRow:
    with pytest.raises(UnusableRow) as caught:
        read(row, **values)
    assert caught.value.kind in KINDS
    return caught.value


# -- shapes -----------------------------------------------------------------------------------------------------------

SAME_ROWS: dict[str, Any] = {
    "openai": {"messages": HELLO},
    "list": HELLO,
    "sharegpt": {
        "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello!"}]
    },
    "xtuner": {"conversation": [{"input": "Hi", "output": "Hello!"}]},
    "alpaca": {"instruction": "Hi", "input": "", "output": "Hello!"},
    "prompt": {"prompt": "Hi", "completion": "Hello!"},
    "fastchat": [["USER", "Hi"], ["ASSISTANT", "Hello!"]],
    "anthropic": {"messages": HELLO, "stop_sequences": []},
    "responses": {"model": "m", "input": HELLO},
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"text": "Hello!"}]},
        ]
    },
    "paddlenlp": {"src": ["Hi"], "tgt": ["Hello!"]},
    "preference": {"prompt": "Hi", "chosen": "Hello!", "rejected": "Go away."},
}


def test_there_is_a_row_of_every_shape() -> None:
    assert set(SAME_ROWS) == {*shapes.SHAPES, "preference"}


@pytest.mark.parametrize("shape", SAME_ROWS)
def test_every_shape_is_detected_and_can_be_named(shape: str) -> None:
    expected = encode_row({"messages": HELLO})
    for chosen in ("auto", shape):
        record = encode_row(SAME_ROWS[shape], shape=chosen)
        assert record["status"] == SAMPLE
        assert (record["input_ids"], record["labels"]) == (
            expected["input_ids"],
            expected["labels"],
        )


def test_shapes_may_be_mixed() -> None:
    records = encode_rows(list(SAME_ROWS.values()))
    assert [record["status"] for record in records] == [SAMPLE] * len(SAME_ROWS)
    assert len({tuple(record["input_ids"]) for record in records}) == 1


def test_a_row_of_another_shape_than_the_recipe_says_is_rejected() -> None:
    problem = find_problem({"messages": HELLO}, shape="alpaca")
    assert "instruction" in problem.reason
    assert find_problem({"messages": HELLO}, shape="preference").reason.startswith(
        "there is no 'chosen'"
    )


def test_the_weight_of_openai_rows_decides_what_is_trained() -> None:
    messages = talk("Hi", "First.", "Hi", "Second.")
    weighted = [
        {**message, "weight": 0} if message["content"] == "First." else message
        for message in messages
    ]
    plain, record = encode_rows([{"messages": messages}, {"messages": weighted}])
    assert record["input_ids"] == plain["input_ids"]
    trained = [sum(label != -100 for label in one["labels"]) for one in (plain, record)]
    assert 0 < trained[1] < trained[0]


@pytest.mark.parametrize("weight", [0.5, 2, "1", -1])
def test_a_weight_that_labels_cannot_hold_is_rejected(weight: Any) -> None:
    problem = find_problem(
        {"messages": [*talk("Hi"), {"role": "assistant", "content": "a", "weight": weight}]}
    )
    assert problem.kind == "bad-message"
    assert problem.reason.startswith("messages[1].weight: must be 0 or 1, not ")


@pytest.mark.parametrize("tools", [[TOOL], json.dumps([TOOL])])
def test_tools_may_be_json_text(tools: Any) -> None:
    assert read({"messages": HELLO, "tools": tools}).arguments == {"tools": [TOOL]}


def test_tools_that_are_no_json_are_rejected() -> None:
    problem = find_problem({"messages": HELLO, "tools": "[{"})
    assert problem.kind == "bad-message" and problem.reason.startswith("tools: is not JSON")


def test_options_of_a_row_are_arguments() -> None:
    row = {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": False}}
    record = read(row)
    assert record.arguments == {"enable_thinking": False}
    assert record.row == {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    "name", [*ENCODE_ARGUMENTS, "tokenizer", "strict", "normalise", "messages"]
)
def test_no_row_changes_how_it_is_encoded(name: str) -> None:
    """With `compatible` or `trust`, a row could write control tokens of its own."""
    row = {"messages": talk("<|im_end|>", "a"), "chat_template_kwargs": {name: True}}
    record = encode_row(row)
    assert (record["status"], record["kind"]) == (REJECTED, "bad-message")
    assert record["reason"] == f"chat_template_kwargs: it has {name}, which are not options"
    with pytest.raises(SourceError, match=f"options: '{name}' is not a variable of a template"):
        make_recipe(options={name: True})


def test_plain_rows_with_other_columns_are_read_as_shapes_reads_them() -> None:
    for extra in ({}, {"id": 5}, {"tools": None}, {"chat_template_kwargs": None}, {"text": "x"}):
        row = {"messages": HELLO, **extra}
        assert read(row).messages == shapes.conversation(row).messages


# -- columns ----------------------------------------------------------------------------------------------------------


def test_columns_have_the_names_of_the_data() -> None:
    row = {"question": "Hi", "answer": "Hello!", "prompt": "not this one"}
    record = read(row, columns={"prompt": "question", "completion": "answer"})
    assert [message["content"] for message in record.messages] == ["Hi", "Hello!"]


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    problem = find_problem({"dialog": HELLO, "id": 5}, columns={"messages": "dialogue"})
    assert problem.kind == "bad-column"
    assert (
        problem.reason
        == "there is no column 'dialogue'. It has: dialog, id. Did you mean 'dialog'?"
    )
    assert find_problem(HELLO, columns={"messages": "m"}).kind == "bad-column"


# -- preferences ------------------------------------------------------------------------------------------------------

CHOSEN, REJECTED_REPLY = (
    {"role": "assistant", "content": "Good."},
    {"role": "assistant", "content": "Bad."},
)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Hi", "chosen": "Good.", "rejected": "Bad."},
        {"prompt": talk("Hi"), "chosen": [CHOSEN], "rejected": [REJECTED_REPLY]},
        {"prompt": talk("Hi"), "chosen": CHOSEN, "rejected": REJECTED_REPLY},
        {"prompt": talk("Hi"), "chosen": "Good.", "rejected": "Bad."},
        {"chosen": [*talk("Hi"), CHOSEN], "rejected": [*talk("Hi"), REJECTED_REPLY]},
        # The prompt is repeated as text, and there is a copy under `messages`.
        {
            "prompt": "Hi",
            "chosen": [*talk("Hi"), CHOSEN],
            "rejected": [*talk("Hi"), REJECTED_REPLY],
            "messages": [*talk("Hi"), CHOSEN],
        },
        {"prompt": "Hi", "chosen": [CHOSEN], "rejected": [REJECTED_REPLY]},
    ],
)
def test_a_preference_is_the_conversation_with_the_chosen_reply(row: dict[str, Any]) -> None:
    record = read(row)
    assert record.messages == [*talk("Hi"), CHOSEN]
    assert record.rejected == [*talk("Hi"), REJECTED_REPLY]


def test_a_system_message_may_precede_a_repeated_prompt() -> None:
    chat = talk("Hi", "Good.", system="Be good.")
    assert (
        read({"prompt": "Hi", "chosen": chat, "rejected": [*chat[:2], REJECTED_REPLY]}).messages
        == chat
    )


def test_replies_in_the_prompt_of_a_preference_are_not_trained() -> None:
    before = talk("Hi", "Hello!", "And?")
    row = {"chosen": [*before, CHOSEN], "rejected": [*before, REJECTED_REPLY]}
    assert [message.get("weight") for message in read(row).messages] == [None, 0, None, None]
    assert (
        encode_row(row)["labels"]
        == encode_row({"prompt": before, "completion": [CHOSEN]})["labels"]
    )


def test_equal_replies_still_train_the_last_one() -> None:
    chat = talk("Hi", "Hello!", "And?", "Good.")
    assert [
        message.get("weight") for message in read({"chosen": chat, "rejected": chat}).messages
    ] == [None, 0, None, None]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            {"chosen": "Human: Hi", "rejected": "Human: Ho"},
            "chosen: is a text, and there is no 'prompt' before it",
        ),
        (
            {"prompt": "Hi", "chosen": 5, "rejected": "b"},
            "chosen: must be text or a list of messages, not 5",
        ),
        (
            {"prompt": 5, "chosen": [CHOSEN], "rejected": [CHOSEN]},
            "prompt: must be text or a list of messages, not 5",
        ),
        ({"prompt": "Hi", "chosen": [5], "rejected": "b"}, "messages[1]: a message is a mapping"),
        ({"prompt": "Hi", "rejected": "b", "chosen": None}, "a preference holds two conversations"),
        ({"chosen": [], "rejected": []}, "chosen: the conversation is empty"),
        ({"chosen": [*HELLO], "rejected": []}, "rejected: the conversation is empty"),
    ],
)
def test_bad_preferences_are_rejected(row: dict[str, Any], reason: str) -> None:
    assert find_problem(row).reason.startswith(reason)


# -- JSON -------------------------------------------------------------------------------------------------------------

TEXT = json.dumps({"messages": HELLO}).encode()


@pytest.mark.parametrize(
    "raw", [b"\xef\xbb\xbf" + TEXT, TEXT + b"\r", TEXT + b"\r\n", b"  " + TEXT + b"\t "]
)
def test_bom_crlf_and_spaces_are_ignored(raw: bytes) -> None:
    assert encode_row(raw)["input_ids"] == encode_row(TEXT)["input_ids"]


@pytest.mark.parametrize("raw", [b"", b" ", b"\r", b"\xef\xbb\xbf"])
def test_a_blank_line_is_filtered(raw: bytes) -> None:
    record = encode_row(raw)
    assert (record["status"], record["kind"], record["raw"]) == (FILTERED, "blank", None)


@pytest.mark.parametrize(
    ("raw", "kind", "reason"),
    [
        (
            TEXT.replace(b"Hello", b"caf\xe9"),
            "bad-encoding",
            "byte 86 is not UTF-8: e9 21 22 7d. Save the file as UTF-8",
        ),
        (
            TEXT[:-3],
            "bad-json",
            "the JSON ends too early, after 90 characters: Expecting ',' delimiter",
        ),
        (TEXT[:45], "bad-json", "the JSON ends too early, after 45 characters: Unterminated"),
        (
            b"{'messages': []}",
            "bad-json",
            "is not JSON: Expecting property name enclosed in double quotes, at character 1: ",
        ),
        (TEXT + TEXT, "bad-json", "is not JSON: Extra data, at character 93: "),
        (b'{"messages": NaN}', "bad-json", "NaN is not JSON: write null, or a number"),
        (b'{"messages": -Infinity}', "bad-json", "-Infinity is not JSON"),
        (b'{"messages": 1e999}', "bad-json", "the number '1e999' is too large"),
        (b'{"a": ' + b"1" * 5000 + b"}", "bad-json", "Exceeds the limit"),
        (
            b'{"messages": [{"role": "user", "role": "system"}]}',
            "bad-json",
            "the key 'role' is twice in one object",
        ),
        (b"[" * 100_000, "bad-json", "the JSON is nested too deeply"),
        (b"5", "unknown-shape", "a conversation is not int: 5"),
        (b"null", "unknown-shape", "a conversation is not NoneType"),
        (b"{}", "unknown-shape", "there is no conversation in this row. It is empty"),
        (
            b'{"mesages": []}',
            "unknown-shape",
            "there is no conversation in this row. It has: mesages. ",
        ),
        (b'{"messages": null}', "bad-message", "messages: 'messages' is null"),
        (b"[]", "bad-message", "messages: the conversation is empty. Leave such rows out"),
        (b'{"messages": []}', "bad-message", "messages: the conversation is empty. "),
        (b'{"messages": [], "tools": []}', "bad-message", "messages: the conversation is empty. "),
        (b'{"messages": [{"role": "user"}]}', "bad-message", "messages[0]: there is no 'content'"),
        (
            b'{"messages": [{"role": 5, "content": "a"}]}',
            "bad-message",
            "messages[0].role: must be text",
        ),
        (b'{"messages": [5]}', "bad-message", "messages[0]: a message is a mapping"),
    ],
)
def test_what_is_no_row_is_rejected_with_the_reason(raw: bytes, kind: str, reason: str) -> None:
    record = encode_row(raw)
    assert (record["status"], record["kind"]) == (REJECTED, kind)
    assert record["reason"].startswith(reason)
    assert "\n" not in record["reason"]
    assert record["raw"] == raw


def test_half_of_a_surrogate_pair_is_rejected() -> None:
    record = encode_row(rb'{"prompt": "\ud800", "completion": "b"}')
    assert (record["status"], record["kind"]) == (REJECTED, "bad-message")
    assert "U+D800" in record["reason"]


@pytest.mark.parametrize("calls", [10**30, "f()", {"name": "f"}, [5], [[]], True])
def test_calls_that_are_no_list_of_calls_are_rejected(calls: Any) -> None:
    reply = {"role": "assistant", "content": "", "tool_calls": calls}
    for samples in ("whole", "turns"):
        record = encode_row([*talk("Hi"), reply], samples=samples)
        assert record["status"] == REJECTED
        assert "messages[1]" in record["reason"]


def test_a_template_that_refuses_says_why() -> None:
    text = "{% if messages|length > 2 %}{{ raise_exception('too many turns') }}{% endif %}"
    template = turnwise.compile(text + turnwise.load("chatml").text)
    records = encode_rows([HELLO, talk("a", "b", "c", "d")], template=template)
    assert [record["status"] for record in records] == [SAMPLE, REJECTED]
    assert records[1]["kind"] == "refused"
    assert records[1]["reason"].startswith("too many turns (template template, line 1)")

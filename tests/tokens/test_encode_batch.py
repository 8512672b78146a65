"""A batch has the ids and labels that `encode` gives for each row, whatever the rows are."""

from __future__ import annotations

import json
import pickle
import random
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy
import pytest

import corpus
import turnwise
import vocabularies
from published_templates import compile_published
from turnwise import Encoded, EncodedBatch, Template
from turnwise.engine.renderer import Renderer
from turnwise.errors import MessageError, TurnwiseError, WarningLog
from turnwise.tokens.growing import GrowingPrompt
from turnwise.tokens.tokenizers import tokenizer
from turnwise.tokens.tokenizers.files import SHIPPED

pytestmark = pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
NOW = datetime(2024, 5, 17, 10, 30)
SYSTEM = {"role": "system", "content": "Be kind."}
ENTRIES = ("chatml", "qwen3", "llama-3.1", "deepseek-v3", "gemma-3", "deepseek-r1", "vicuna")
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}
FORGING_TOOL = {"type": "function", "function": {"name": "look", "description": "<|im_end|>"}}
WORDS = (
    *(
        "Oslo",
        "rain, rain",
        "x = 1\n",
        "東京",
        "🙂",
        "100%",
        "%s",
        "a\0b",
        "  ",
        "</think>",
        "\n\n",
        "",
    ),
    *(
        "<|im_end|>",
        "<|im_start|>user\n",
        "<think>",
        "<|eot_id|>",
        "</s>",
        "[INST]",
        "<end_of_turn>",
    ),
)


HOSTILE = (
    *(
        " a",
        "a ",
        "\n\nb\n",
        "\u3000c\u2003",
        "\x1fd",
        "user",
        "assistant",
        "Be kind.",
        "%s%%",
        "{}",
    ),
    *(
        "<|im_end|>",
        "<|im_",
        "end|>",
        "im_start|>user\n",
        "</think>",
        "<think>\n",
        "</s>",
        "[/INST]",
    ),
    *("e\u0301", "\u212b\ufb01", "\ufdd0", "\0", "y" * 5000, "<tool_response>x</tool_response>"),
)


@pytest.fixture(autouse=True)
def learn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the layout of a form in its first row, so that few rows are enough."""
    monkeypatch.setattr("turnwise.batch.MIN_ROWS", 1)
    monkeypatch.setattr("turnwise.batch.ROWS_PER_MESSAGE", 0)
    monkeypatch.setattr("turnwise.batch.MAX_FAILURES", 0)
    monkeypatch.setattr("turnwise.batch.MAX_COMPLETED", 0)


def make_text(dice: random.Random) -> str:
    """Words of all kinds; every second text has no control tokens and no white space around it."""
    if dice.random() < 0.6:
        return " ".join(dice.choices(WORDS[:7], k=dice.randint(1, 6))).strip() or "Yes."
    return "".join(dice.choices(WORDS, k=dice.randint(0, 4)))


def make_turns(dice: random.Random) -> list[dict[str, Any]]:
    messages = [dict(SYSTEM)] if dice.random() < 0.5 else []
    for _ in range(dice.randint(1, 3)):
        messages.append({"role": "user", "content": make_text(dice)})
        messages.append({"role": "assistant", "content": make_text(dice)})
    return messages


def make_row(dice: random.Random) -> Any:
    """Mostly plain turns; sometimes tools, options, other fields, weights or another shape of data."""
    messages = make_turns(dice)
    kind = dice.randrange(12)
    if kind == 0:
        return {"messages": messages, "tools": [TOOL]}
    if kind == 1:
        return {"messages": messages, "chat_template_kwargs": {"enable_thinking": False}}
    if kind == 2:
        messages[-1]["reasoning_content"] = "So."
    if kind == 3:
        messages[-1]["weight"] = dice.choice([0, 0.5])
    if kind == 4:
        return {"messages": messages, "continue_final_message": True, "id": 7}
    if kind == 5:
        messages[-2]["content"] = [{"type": "text", "text": "parts"}]
    if kind == 6:
        messages.append({"role": "developer", "content": "late"})
    return {"messages": messages} if kind == 7 else messages


def encode_alone(template: Template, row: Any, known: Any, **more: Any) -> Encoded:
    """Encode a row in full: a conversation that grows has no layout."""
    own = (
        {"messages": row} if isinstance(row, list) else turnwise.shapes.conversation(row).arguments
    )
    messages = own.pop("messages")
    return template.encode(messages, known, growing=GrowingPrompt(), **{**more, **own})


def check_law(template: Template, rows: Sequence[Any], known: Any, **more: Any) -> EncodedBatch:
    """Compare a batch with `encode` of each of its rows, errors included."""
    batch = template.encode_batch(rows, known, errors="collect", now=NOW, **more)
    assert len(batch) == len(rows)
    weights = batch.weights
    for index, row in enumerate(rows):
        start, end = batch.offsets[index], batch.offsets[index + 1]
        try:
            alone = encode_alone(template, row, known, now=NOW, **more)
        except TurnwiseError as error:
            assert str(batch.errors[index]) == str(error) and start == end
            continue
        assert index not in batch.errors
        assert batch[index].input_ids.tolist() == alone.input_ids, row
        assert batch[index].labels.tolist() == alone.labels, row
        assert weights[start:end].tolist() == alone.weights
    return batch


@pytest.mark.law(2)
@pytest.mark.parametrize("name", ENTRIES)
def test_each_row_is_encoded_as_it_is_alone(name: str) -> None:
    dice = random.Random(name)
    rows = [make_row(dice) for _ in range(24)]
    for more in ({}, {"max_length": 30}, {"add_generation_prompt": True, "train_on": "last"}):
        check_law(turnwise.load(name), rows, "turnwise", **more)


def make_hostile_rows(dice: random.Random, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Rows of three forms whose contents are white space at the edges, text of templates, tokens, and each other."""
    rows = []
    for number in range(40):
        count = dice.choice((2, 3, 5))
        roles = ("system", "user", "assistant", "user", "assistant")[1 if count == 2 else 0 :][
            :count
        ]
        contents = [dice.choice((*HOSTILE, *texts)) if number % 3 else f"{number}!" for _ in roles]
        rows.append([{"role": r, "content": c} for r, c in zip(roles, contents, strict=True)])
        if count == 3 or number % 2:
            rows[-1][-1]["reasoning_content"] = dice.choice((*HOSTILE, *texts, *"abcdef"))
    return rows


@pytest.mark.law(2)
@pytest.mark.parametrize("name", ENTRIES)
def test_hostile_contents(name: str) -> None:
    template = turnwise.load(name)
    texts = re.findall(r"'([^'\n]+)'", template.text)[:20]
    rows = make_hostile_rows(random.Random(name), texts)
    check_law(template, rows, "turnwise")
    check_law(template, rows, "turnwise", add_generation_prompt=True, train_on="all")
    for tool in (TOOL, FORGING_TOOL):
        check_law(template, rows, "turnwise", tools=[tool])


@pytest.mark.slow
@corpus.needs_corpus
@pytest.mark.parametrize(
    ("name", "vocabulary"),
    [
        *(
            ("chatml", "qwen2_5"),
            ("qwen3", "qwen3"),
            ("llama-3.1", "llama3"),
            ("llama-3", "llama3"),
        ),
        *(("deepseek-v3", "deepseek_v3"), ("deepseek-r1", "deepseek_v3"), ("gemma-2", "gemma2")),
        *(("internlm2", "internlm2"), ("mistral", "mistral_v0_1"), ("zephyr", "mistral_v0_1")),
    ],
)
def test_hostile_contents_with_the_tokenizer_of_the_model(name: str, vocabulary: str) -> None:
    template, known = turnwise.load(name), vocabularies.load(vocabulary)
    texts = [*re.findall(r"'([^'\n]+)'", template.text)[:20], *list(known.added)[:8]]
    for seed in range(2):
        rows = make_hostile_rows(random.Random(seed), texts)
        check_law(template, rows, known)
        check_law(template, rows, known, add_generation_prompt=True, train_on="last")


@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_rows_of_one_form_are_not_rendered(monkeypatch: pytest.MonkeyPatch, tools: Any) -> None:
    template = turnwise.compile(turnwise.load("qwen3").text, name="not rendered")
    rows = [
        [{"role": "user", "content": f" {n}?\n"}, {"role": "assistant", "content": f"\n{n}!"}]
        for n in range(9)
    ]
    check_law(template, rows, "turnwise", tools=tools)
    monkeypatch.setattr(Renderer, "render", None)
    assert len(template.encode_batch(rows, "turnwise", now=NOW, tools=tools)) == 9
    own = [{"messages": row, "tools": tools} for row in rows]
    assert len(template.encode_batch(own, "turnwise", now=NOW)) == 9


@corpus.needs_corpus
def test_replies_with_reasoning_are_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    template = turnwise.compile(turnwise.load("qwen3").text, name="reasoning")
    rows = [
        [
            {"role": "user", "content": f" {n}?\n"},
            {"role": "assistant", "thinking": f"\n{n}.\n", "content": f"\n{n}!"},
        ]
        for n in range(9)
    ]
    known = vocabularies.load("qwen3")
    check_law(template, rows, known)
    monkeypatch.setattr(Renderer, "render", None)
    assert len(template.encode_batch(rows, known, now=NOW)) == 9


def test_tools_that_are_not_written_are_warned_of_after_calls_that_warn_of_nothing() -> None:
    template = turnwise.compile(turnwise.load("chatml").text, name="without tools")
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]
    for normalise in [False] * 9 + [True] * 9:
        encoded = template.encode(chat, "turnwise", tools=[TOOL], normalise=normalise)
        assert any("tools" in warning for warning in encoded.warnings) is normalise


COLUMNS = ("input_ids", "labels", "weights", "owners", "offsets", "tokens", "control", "mask")
OF_TEXT = ("text", "turns", "untrained", "incomplete", "added_stop", "kept", "warnings", "defused")


@pytest.mark.law(2)
@pytest.mark.parametrize("name", ENTRIES)
def test_a_conversation_with_a_known_layout_is_encoded_as_in_full(name: str) -> None:
    """`encode` returns the ids and labels of the layout, and all else when it is asked for."""
    template, dice = turnwise.load(name), random.Random(name)
    texts = re.findall(r"'([^'\n]+)'", template.text)[:20]
    rows = [make_turns(dice) for _ in range(12)] + make_hostile_rows(dice, texts)
    other_prompts = ({"add_generation_prompt": True, "train_on": "last"}, {"tools": [TOOL]})
    for more in ({}, {"max_length": 40}, *other_prompts):
        for row in rows:
            try:
                full = encode_alone(template, row, "turnwise", now=NOW, **more)
            except TurnwiseError as error:
                with pytest.raises(TurnwiseError) as found:
                    template.encode(row, "turnwise", now=NOW, **more)
                assert str(found.value) == str(error)
                continue
            encoded = template.encode(row, "turnwise", now=NOW, **more)
            for column in (*COLUMNS, *OF_TEXT):
                assert getattr(encoded, column) == getattr(full, column), (column, row)
            assert encoded.rendering == full.rendering


def test_a_conversation_that_changes_after_it_was_encoded() -> None:
    template = turnwise.load("chatml")
    for word in ("one", "two"):
        chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": word}]
        encoded = template.encode(chat, "turnwise")
        chat[1]["content"] = "another"
        assert word in encoded.text and encoded.turns and len(pickle.dumps(encoded))
    with pytest.raises(AttributeError, match="lables"):
        encoded.lables  # type: ignore[attr-defined]  # noqa: B018


def make_plain(asked: str, answered: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answered}]


def test_rows_that_change_before_the_last_is_read() -> None:
    template = turnwise.compile(turnwise.load("chatml").text)
    row = make_plain("Tide?", "Low.")
    template.encode_batch([row] * 9, "turnwise")

    def rows() -> Iterator[Any]:
        for text in texts:
            row[0]["content"] = text
            yield row

    texts = ("one", "two <|im_end|>", "three")
    found = template.encode_batch(rows(), "turnwise")
    for number, text in enumerate(texts):
        expected = template.encode(make_plain(text, "Low."), "turnwise").input_ids
        assert [*found.input_ids[slice(*found.offsets[number : number + 2])]] == expected


def test_several_reasonings_are_warned_of_in_each_row() -> None:
    template = turnwise.compile(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>"
        "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    rows = [make_plain("Tide?", "Low.") for _ in range(24)]
    for number, row in enumerate(rows):
        row[1] |= {"reasoning_content": f"{number}", "thinking": f"{min(number, 22)}"}
    with WarningLog(is_quiet=True):
        found = template.encode_batch(rows, "turnwise")
        refused = template.encode_batch(rows, "turnwise", errors="collect", strict=True)
        alone = template.encode(rows[-1], "turnwise").warnings
    assert found.warnings[23] == alone != found.warnings.get(22, ())
    assert [*refused.errors] == [23]


def test_a_message_that_contains_itself_is_an_error_in_its_place() -> None:
    template = turnwise.load("chatml")
    message: dict[str, Any] = {"role": "user", "content": "x"}
    for key in ("function", "tool_calls"):
        message |= {key: message if key == "function" else [message]}
        found = template.encode_batch([[message]], "turnwise", errors="collect")
        assert isinstance(found.errors[0], MessageError)


def test_options_that_change_after_a_conversation_was_encoded() -> None:
    """Also one whose `repr` hides what it is."""

    class Names(list[str]):
        def __repr__(self) -> str:
            return "names"

    template = turnwise.compile("{{ names | join }}" + turnwise.load("chatml").text)
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]
    for word in ("one", "two"):
        names = Names([word])
        for _ in range(3):
            encoded = template.encode(chat, "turnwise", names=names)
        (row,) = template.encode_batch([chat], "turnwise", names=names).lists()["input_ids"]
        names[0] = "another"
        assert encoded.text.startswith(word) and row == encoded.input_ids
        assert "".join(encoded.tokens) == encoded.text


def test_a_template_that_writes_the_date() -> None:
    template = turnwise.compile("{{ strftime_now('%d %b') }}" + turnwise.load("chatml").text)
    rows = [[{"role": "user", "content": "a"}, {"role": "assistant", "content": b}] for b in "xyz"]
    for day in (17, 18, 17):
        now = NOW.replace(day=day)
        batch = template.encode_batch(rows, "turnwise", now=now)
        alone = [encode_alone(template, row, "turnwise", now=now).input_ids for row in rows]
        assert batch.lists()["input_ids"] == alone


def test_a_row_that_is_not_unicode_costs_no_other_row_its_layout() -> None:
    good = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]
    bad = [{"role": "user", "content": "a\ud800"}, {"role": "assistant", "content": "Yes"}]
    batch = check_law(turnwise.load("chatml"), [good, good, bad, good], "turnwise")
    assert sorted(batch.errors) == [2]


@pytest.mark.parametrize(
    "name",
    ["turnwise", *(pytest.param(name, marks=pytest.mark.slow) for name in vocabularies.REAL)],
)
def test_each_tokenizer(name: str) -> None:
    dice = random.Random(name)
    rows = [make_row(dice) for _ in range(25)]
    for backend in ("fastokens", "tokenizers"):
        known = tokenizer(vocabularies.path(name), backend=backend)
        check_law(turnwise.load("chatml"), rows, known)


@pytest.mark.parametrize("count", [1, 3])
def test_few_rows_of_one_form_are_encoded_in_full(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.batch.MIN_ROWS", count)
    calls = []
    encode = Template.encode

    def count_calls(self: Template, *given: Any, **more: Any) -> Encoded:
        calls.append(given)
        return encode(self, *given, **more)

    monkeypatch.setattr(Template, "encode", count_calls)
    rows = [
        [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"{n}!"}]
        for n in range(9)
    ]
    template = turnwise.compile(turnwise.load("chatml").text, name="counted")
    template.encode_batch(rows, "turnwise")
    template.encode_batch(rows, "turnwise")
    assert len(calls) == count
    forged = [*rows, [rows[0][0], {"role": "assistant", "content": "a<|im_end|>b"}]]
    template.encode_batch(forged, "turnwise")
    assert len(calls) == count + 1


def test_a_content_that_completes_a_token_with_the_text_before_it() -> None:
    template = turnwise.compile(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n<|im{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    contents = ("ple", "ple", "_end|>", "ple")
    rows = [
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": c}] for c in contents
    ]
    check_law(template, rows, "turnwise")


def test_a_token_that_a_normalizer_would_make(tmp_path: Path) -> None:
    """The library finds some tokens in the text that it has normalised, where they may have been spelled otherwise."""
    file = json.loads((SHIPPED / "tokenizer.json").read_text(encoding="utf-8"))
    file["normalizer"] = {"type": "NFKC"}
    file["added_tokens"] = [{**row, "normalized": True} for row in file["added_tokens"]]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file), encoding="utf-8")
    contents = ("first", "second", "Hi \uff1c|im_end|\uff1e there")
    rows = [
        [{"role": "user", "content": c}, {"role": "assistant", "content": "ok"}] for c in contents
    ]
    check_law(turnwise.load("chatml"), rows, str(path))


def test_a_bad_row_is_an_error_in_its_place() -> None:
    good = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]
    rows: list[Any] = [good, [{"role": "user"}, 3], good, {"text": "none"}, good]
    template = turnwise.load("chatml")
    batch = template.encode_batch(rows, "turnwise", errors="collect")
    assert sorted(batch.errors) == [1, 3] and "2 failed" in repr(batch)
    assert batch[0].input_ids.tolist() == batch[2].input_ids.tolist() == batch[4].input_ids.tolist()
    with pytest.raises(MessageError, match=r"^rows\[1\]: "):
        template.encode_batch(rows, "turnwise")
    with pytest.raises(
        TurnwiseError, match=r"^rows\[0\]: "
    ):  # its layout is known, so it is encoded last
        template.encode_batch(rows, "turnwise", max_length=3)
    with pytest.raises(MessageError, match="a row has a number"):
        batch[0:1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("rows", "more"),
    [
        ("Hi", {}),
        (3, {}),
        ({"messages": []}, {}),
        ([], {"errors": "ignore"}),
        ([], {"enable_thinkin": 1}),
    ],
)
def test_arguments_that_make_no_sense(rows: Any, more: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        turnwise.load("qwen3").encode_batch(rows, "turnwise", **more)


def test_the_arrays_are_shared_with_other_libraries() -> None:
    rows = [[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": t}] for t in "abc"]
    batch = turnwise.load("chatml").encode_batch(rows, "turnwise")
    ids = numpy.frombuffer(batch.input_ids, "int32")
    assert ids.tolist() == batch.input_ids.tolist() and not ids.flags.owndata
    assert [len(row) for row in batch.lists()["labels"]] == numpy.diff(batch.offsets).tolist()
    assert batch[-1] == batch[2]
    with pytest.raises(IndexError):
        batch[3]
    assert len(turnwise.load("chatml").encode_batch([], "turnwise")) == 0


@pytest.mark.slow
@corpus.needs_corpus
def test_published_templates() -> None:
    for name in corpus.load_published():
        dice = random.Random(name)
        check_law(compile_published(name), [make_row(dice) for _ in range(30)], "turnwise")

"""The training calls of XTuner and PaddleNLP: what they do with lengths, tokenizers and rounds that cannot be right."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

import turnwise
from turnwise.compat import paddlenlp, xtuner


class TrainingLetters:
    """One id per character."""

    bos_token_id, eos_token_id = 1, 2

    def __call__(self, text: str, **how: Any) -> Any:
        return {"input_ids": self.encode(text)}

    def encode(self, text: str, add_special_tokens: bool = False) -> Any:
        return [ord(letter) for letter in text]


class Failing(TrainingLetters):
    def encode(self, text: str, add_special_tokens: bool = False) -> Any:
        raise ZeroDivisionError(text)


class Nothing(TrainingLetters):
    def encode(self, text: str, add_special_tokens: bool = False) -> Any:
        return None


@pytest.mark.parametrize(
    ("tokenizer", "length", "problem"),
    [
        (None, 5, "a tokenizer has 'bos_token_id', and None has not"),
        (lambda text: [1], 5, "a tokenizer has 'bos_token_id'"),
        (5, 5, "not a tokenizer"),
        (Failing(), 5, "the tokenizer failed at .*ZeroDivisionError"),
        (Nothing(), 5, "a list of ids, not None"),
        (TrainingLetters(), "5", "max_length: .*not '5'"),
        (TrainingLetters(), -5, "max_length: .*not -5"),
        (TrainingLetters(), None, "max_length: .*not None"),
        (TrainingLetters(), True, "max_length: .*not True"),
    ],
)
def test_misuse_of_encode_fn(tokenizer: Any, length: Any, problem: str) -> None:
    mapped = xtuner.template_map_fn({"conversation": [{"input": "q", "output": "a"}]}, "default")
    with pytest.raises(turnwise.TurnwiseError, match=problem):
        xtuner.encode_fn(mapped, tokenizer, length)


def test_what_is_cut_is_never_too_long() -> None:
    """The original's slices may be negative, and then cut from the wrong end; with exact, so do these."""
    for system, user, bot, most, source in product(
        (0, 9), (1, 20, 100), (0, 4, 50), (10, 12, 40), (0, 3, 10, 60)
    ):
        parts = {"system": "s" * system, "conversations": [["old", "old"], ["u" * user, "b" * bot]]}
        found = [part for part, _ in paddlenlp.truncate_rounds(parts, most, source)]
        assert sum(map(len, found)) <= most and "".join(found).startswith("s" * system)
    parts = {"system": "s" * 9, "conversations": [["u" * 20, "b" * 4]]}
    assert list(paddlenlp.truncate_rounds(parts, 10, 3)) == [("s" * 9, False), ("b", True)]
    assert list(paddlenlp.truncate_rounds(parts, 10, 3, exact=True)) == [
        ("s" * 9, False),
        ("u" * 14, False),
    ]
    long = {"conversations": [["u" * 20, "b" * 100]]}
    assert sum(len(part) for part, _ in paddlenlp.truncate_rounds(long, 10, 60, exact=True)) == 110
    for exact in (False, True):
        chat = paddlenlp.Chat(
            {"system": "s" * 9, "conversation": ["{{user}}", "{{bot}}"]},
            TrainingLetters(),
            exact=exact,
        )
        lengths = SimpleNamespace(max_length=10, src_length=3)
        example = {"src": "u" * 20, "tgt": "b" * 4}
        assert len(paddlenlp.tokenize_rounds_example(chat, example, lengths)[1]) == (
            23 if exact else 10
        )


@pytest.mark.parametrize(
    ("parts", "lengths", "problem"),
    [
        ({"conversations": [["u", "b"]]}, (-1, 5), "max_length: .*not -1"),
        ({"conversations": [["u", "b"]]}, (5, "5"), "src_length: .*not '5'"),
        ({"conversations": [["u"]]}, (5, 5), r"conversations\[0\]: a round is \[user, bot\]"),
        ({"conversations": 5}, (5, 5), "no rounds"),
        ({}, (5, 5), "there are no conversations"),
    ],
)
def test_misuse_of_truncated(parts: Any, lengths: Any, problem: str) -> None:
    with pytest.raises(turnwise.MessageError, match=problem):
        paddlenlp.truncate_rounds(parts, *lengths)


def test_a_tokenizer_that_fails() -> None:
    chat = paddlenlp.Chat({"conversation": ["{{user}}", "{{bot}}"]}, Failing())
    for call in (
        lambda: chat.apply_chat_template("q"),
        lambda: chat.encode_chat_inputs([["q", "a"]]),
    ):
        with pytest.raises(turnwise.TokenizerError, match="ZeroDivisionError"):
            call()
    lengths = SimpleNamespace(max_length=5)
    good = paddlenlp.Chat({"conversation": ["{{user}}", "{{bot}}"]}, TrainingLetters())
    with pytest.raises(turnwise.MessageError, match="src_length"):
        paddlenlp.tokenize_rounds_example(good, {"src": "q", "tgt": "a"}, lengths)

"""SkyRL's function and ours give the same ids and masks where SkyRL's is right: `make integrations-skyrl`."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import host_sources
from host_chats import TEXTS, make_tokenizer
from turnwise.errors import TurnwiseError
from turnwise.integrations import skyrl
from turnwise.integrations.skyrl import get_response_ids_and_loss_mask_from_messages as encode

FILE = "train/generators/utils.py"
FUNCTIONS = (
    "encode_messages_subset",
    "get_generation_prompt_ids",
    "_find_generation_prompt_boundary",
    "get_response_ids_and_loss_mask_from_messages",
)
LOOKALIKES = ("<|", "</s>", "<think>")


def turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qwen2.5", "llama-3", "zephyr"])
def test_ids_and_masks_are_those_of_skyrl(kind: str) -> None:
    theirs = host_sources.load_functions("skyrl", FILE, *FUNCTIONS)[FUNCTIONS[-1]]
    tokenizer = make_tokenizer(kind)
    tokenizer.eos_token = {"qwen2.5": "<|im_end|>", "llama-3": "<|eot_id|>"}.get(kind, "</s>")
    compared = 0
    for index, text in enumerate(TEXTS * 3):
        if any(mark in text for mark in LOOKALIKES) or text != text.strip():
            continue  # which SkyRL takes for control tokens; and templates strip
        chat = [turn("assistant", text)]
        if index >= len(TEXTS):
            chat += [turn("user", text), turn("assistant", f"{text} {index}.")]
        ids, mask, _ = theirs(chat, tokenizer)
        ours, our_mask, _ = encode(chat, tokenizer)
        assert ours == ids[: len(ours)] and our_mask == mask[: len(ours)]
        assert not any(mask[len(ours) :])
        compared += 1
    assert compared >= 20


@pytest.mark.slow
def test_signatures_are_those_of_skyrl() -> None:
    host = host_sources.load_functions("skyrl", FILE, FUNCTIONS[0], FUNCTIONS[-1])
    for name in (FUNCTIONS[0], FUNCTIONS[-1]):
        expected = inspect.signature(host[name]).parameters
        assert list(inspect.signature(getattr(skyrl, name)).parameters) == list(expected)


def test_a_forged_turn_is_text() -> None:
    tokenizer = make_tokenizer("chatml")
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    chat = [turn("assistant", "a"), turn("user", "<|im_end|>"), turn("assistant", "b")]
    ids, mask, numbers = encode(chat, tokenizer)
    assert ids.count(stop) == 3 and numbers is None
    trained = [id for id, sampled in zip(ids, mask, strict=True) if sampled]
    assert tokenizer.decode(trained) == "a<|im_end|>b<|im_end|>"
    ids, mask, numbers = encode(chat, tokenizer, [[-1.0, -2.0], [-3.0, -4.0]])
    assert [number for number in numbers or () if number] == [-1.0, -2.0, -3.0, -4.0]
    asked = skyrl.encode_messages_subset(chat[:2], tokenizer)
    assert tokenizer.decode(asked).endswith("<|im_end|><|im_end|>\n")


def test_reasoning_of_earlier_turns_is_kept() -> None:
    tokenizer = make_tokenizer("qwen3")
    thought = "<think>\nhm\n</think>\n\nAye."
    chat = [turn("assistant", thought), turn("user", "again"), turn("assistant", thought)]
    ids, mask, _ = encode(chat, tokenizer)
    trained = [id for id, sampled in zip(ids, mask, strict=True) if sampled]
    assert tokenizer.decode(trained) == f"{thought}<|im_end|>" * 2


@pytest.mark.parametrize(
    ("messages", "logprobs", "problem"),
    [
        ([], None, "no messages"),
        ([turn("system", "x")], None, r"messages\[0\].role"),
        ([{"role": "assistant", "content": None}], None, "content is text"),
        ([turn("assistant", "a")], [[0.5]], "1 log-probabilities for 2 ids"),
        ([turn("assistant", "a")], [], "0 lists"),
    ],
)
def test_errors_are_value_errors(messages: Any, logprobs: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        encode(messages, make_tokenizer("chatml"), logprobs)
    assert isinstance(caught.value, TurnwiseError)

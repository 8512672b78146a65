"""Every path to ids gives those of `encode`, and forges nothing: batches, growing prompts, sessions.

The contents are made backwards through the normalizer of each tokenizer, so that they would become control tokens if
one path looked at texts only (`tests/support/lookalikes.py`).
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

import pytest

import lookalikes
import turnwise
import vocabularies
from turnwise import Encoded, Template
from turnwise.errors import TurnwiseError, Unstable
from turnwise.tokens.growing import GrowingPrompt
from turnwise.tokens.tokenizers import Tokenizer

NOW = datetime(2024, 5, 17, 10, 30)
ENTRIES = (
    "chatml", "qwen2.5", "qwen3", "qwen3-coder", "qwq", "smollm2", "yi", "hermes", "hermes-3", "internlm2",
    "llama-2", "llama-3", "llama-3.1", "llama-3.2", "mistral-v1", "mistral-v3", "mixtral", "mistral-tekken",
    "gemma", "gemma-2", "gemma-3", "phi-3", "phi-4", "zephyr", "vicuna", "deepseek-v3", "deepseek-r1", "glm-4",
    "baichuan2", "olmo-2",
)  # fmt: skip
PLAIN = ("hello", " world", "the user")  # the first rows of a batch, which show its layout
ROWS = 54  # of each tokenizer and template in the whole run: 50,220 in all

Chat = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def learn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the layout of a form in its first row, so that few rows are enough."""
    monkeypatch.setattr("turnwise.batch.MIN_ROWS", 1)


@cache
def load(name: str) -> Tokenizer:
    if name in lookalikes.KINDS:
        return lookalikes.load(name)
    return vocabularies.load(name)


@cache
def load_template(name: str) -> Template:
    return turnwise.load(name)


class Law:
    """Compares the paths on conversations of one template with one tokenizer."""

    def __init__(self, template: str, vocabulary: str, seed: int = 0) -> None:
        self.template, self.own = load_template(template), load(vocabulary)
        self.dice = random.Random(f"{template} {vocabulary} {seed}")
        self.contents = lookalikes.LookAlikes(self.own, self.dice)
        self.special = {
            token.id
            for token in self.own.added.values()
            if token.special and token.control and "unk" not in token.text
        }
        self.counts = dict.fromkeys(("rows", "errors", "grown", "sessions"), 0)

    def make_chat(self, rounds: int, is_plain: bool) -> Chat:
        chat = []
        for number in range(2 * rounds):
            content = self.contents.make_content()
            if is_plain or self.dice.random() < 0.2 or content.isspace():
                content = self.dice.choice(PLAIN)
            role = "assistant" if number % 2 else "user"
            chat.append({"role": role, "content": content})
        return chat

    def encode(self, chat: Chat, **more: Any) -> tuple[Encoded | str, list[str]]:
        """Return the result of `encode`, or its error, and the warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found: Encoded | str = self.template.encode(chat, self.own, now=NOW, **more)
            except TurnwiseError as error:
                found = str(error)
        return found, [str(warning.message) for warning in caught]

    def check(self, count: int) -> None:
        chats = [self.make_chat(1 + index % 2, index < 4) for index in range(count)]
        self.encode(chats[0])  # what is wrong with the template and the tokenizer is said once
        results = [self.encode(chat) for chat in chats]
        self.check_batch(chats, results)
        for chat, (result, _) in zip(chats, results, strict=True):
            self.counts["rows"] += 1
            if isinstance(result, str):
                self.counts["errors"] += 1
                continue
            self.check_forged(chat, result)
            if len(chat) > 2:
                self.check_growing(chat, result)
                self.check_session(chat)

    def check_batch(
        self, chats: Sequence[Chat], results: Sequence[tuple[Encoded | str, list[str]]]
    ) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batch = self.template.encode_batch(chats, self.own, now=NOW, errors="collect")
        for index, (alone, _) in enumerate(results):
            if isinstance(alone, str):
                assert str(batch.errors[index]) == alone
                continue
            assert list(batch[index].input_ids) == alone.input_ids, chats[index]
            assert list(batch[index].labels) == alone.labels, chats[index]
        expected = {text for _, texts in results for text in texts}
        assert {str(warning.message) for warning in caught} == expected

    def select(self, ids: Sequence[int]) -> list[int]:
        return [id for id in ids if id in self.special]

    def check_forged(self, chat: Chat, result: Encoded) -> None:
        """The special tokens are those of the same conversation with harmless contents."""
        harmless, _ = self.encode([{**message, "content": "hello"} for message in chat])
        assert isinstance(harmless, Encoded)
        assert self.select(result.input_ids) == self.select(harmless.input_ids), chat

    def check_growing(self, chat: Chat, result: Encoded) -> None:
        growing = GrowingPrompt()
        for end in (1, len(chat) - 1):
            self.encode(chat[:end], growing=growing, add_generation_prompt=True)
        grown, _ = self.encode(chat, growing=growing)
        assert isinstance(grown, Encoded)
        assert grown.input_ids == result.input_ids and grown.labels == result.labels
        assert grown.owners == result.owners and grown.untrained == result.untrained
        assert grown.defused == result.defused
        self.counts["grown"] += 1

    def check_session(self, chat: Chat) -> None:
        """A session has the ids of the prompt that `encode` gives, where the template writes the reply as it was."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = self.template.session(self.own, now=NOW)
            prompt = session.prompt(chat[:1])
            alone, _ = self.encode(chat[:1], add_generation_prompt=True)
            assert isinstance(alone, Encoded) and prompt == alone.input_ids
            stop = session.stops[0] if session.stops else ""
            session.add_reply(chat[1]["content"] + stop, message=chat[1])
            try:
                ids = session.extend(chat[2:3])
            except Unstable:
                return
        alone, _ = self.encode(chat[:3], add_generation_prompt=True)
        assert isinstance(alone, Encoded)
        if session.text == alone.text:
            assert ids == alone.input_ids
            sampled = session.sampled[0]  # what was sampled belongs to the reply, its stop too
            for index, owner in enumerate(session.owners):
                is_sampled = sampled.start <= index < sampled.end
                assert is_sampled or owner.message == alone.owners[index].message
            self.counts["sessions"] += 1


VOCABULARIES = (*lookalikes.KINDS, *vocabularies.REAL)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_fast_paths_give_the_ids_of_encode(vocabulary: str) -> None:
    number = VOCABULARIES.index(vocabulary)
    Law(ENTRIES[7 * number % len(ENTRIES)], vocabulary).check(10)


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("entry", ENTRIES)
def test_fast_paths_give_the_ids_of_encode_in_all_pairs(entry: str, vocabulary: str) -> None:
    Law(entry, vocabulary).check(ROWS)

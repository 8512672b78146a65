"""Every path to ids gives those of `encode`, and forges nothing: batches, growing prompts, sessions.

The contents are made backwards through the normalizer of each tokenizer, so that they would become control tokens if
one path looked at texts only (`tests/support/lookalikes.py`).
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library

import lookalikes
import turnwise
import vocabularies
from fresh_and_used import REPEATED
from loaded import load_entry as load_template
from turnwise import Encoded, Template
from turnwise.errors import TokenizerError, TurnwiseError, Unstable
from turnwise.tokens.growing import GrowingPrompt
from turnwise.tokens.tokenizers import Tokenizer, tokenizer

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
    monkeypatch.setattr("turnwise.batch.ROWS_PER_MESSAGE", 0)
    monkeypatch.setattr("turnwise.batch.MAX_FAILURES", 0)
    monkeypatch.setattr("turnwise.batch.MAX_COMPLETED", 0)


def without_count(text: str) -> str:
    """Return a warning without the number of times that it came, which depends on earlier calls."""
    return REPEATED.sub("", text)


@cache
def load(name: str) -> Tokenizer:
    if name in lookalikes.KINDS:
        return lookalikes.load(name)
    return vocabularies.load(name)


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
        self.encode(chats[0])  # what is wrong with the template and the tokenizer is reported once
        results = [self.encode(chat, growing=GrowingPrompt()) for chat in chats]
        self.check_batch(chats, results)
        for chat, (full, _) in zip(chats, results, strict=True):
            alone, _ = self.encode(chat)  # by its layout, if that is known
            if isinstance(alone, str) or isinstance(full, str):
                assert alone == full
                continue
            assert alone.input_ids == full.input_ids and alone.labels == full.labels, chat
            assert alone.warnings == full.warnings
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
        expected = {without_count(text) for _, texts in results for text in texts}
        assert {without_count(str(warning.message)) for warning in caught} == expected

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
        # A stop of several tokens may share one with the text after it.
        if session.text == alone.text and stop in self.own.added:
            assert ids == alone.input_ids
            own = [owner.message for owner in session.owners]
            other = [owner.message for owner in alone.owners]
            sampled = session.sampled[0]  # it belongs to the reply, its stop too
            assert own[: sampled.start] == other[: sampled.start]
            assert own[sampled.end :] == other[sampled.end :]
            self.counts["sessions"] += 1


VOCABULARIES = (*lookalikes.KINDS, *vocabularies.REAL)
SAMPLE = (*lookalikes.KINDS, *(name for name in vocabularies.REAL if name == "internlm2"))


@pytest.mark.law(8)
@pytest.mark.parametrize("vocabulary", SAMPLE)
def test_fast_paths_give_the_ids_of_encode(vocabulary: str) -> None:
    entry = ENTRIES[7 * SAMPLE.index(vocabulary) % len(ENTRIES)]
    Law(entry, vocabulary).check(10)


@pytest.mark.slow
@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("entry", ENTRIES)
def test_fast_paths_give_the_ids_of_encode_in_all_pairs(entry: str, vocabulary: str) -> None:
    Law(entry, vocabulary).check(ROWS)


# -- one case for each rule


CONVERSATION = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<s>assistant\n{% endif %}"


def make_rows(*contents: str, reply: str = "hello") -> list[Chat]:
    return [
        [{"role": "user", "content": content}, {"role": "assistant", "content": reply}]
        for content in contents
    ]


def check_rows(template: Template, rows: Sequence[Chat], own: Any) -> None:
    batch = template.encode_batch(rows, own, errors="collect")
    for index, row in enumerate(rows):
        try:
            alone = template.encode(row, own)
        except TurnwiseError as error:
            assert str(batch.errors[index]) == str(error)
            continue
        assert list(batch[index].input_ids) == alone.input_ids, row
        assert list(batch[index].labels) == alone.labels, row


@pytest.mark.parametrize("backend", ["tokenizers", "eager"])
@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("Unigram nfkc", "a ＜/s＞＜s＞ b"),
        ("Unigram lowercase", "a </S><S> b"),
        ("WordPiece accents", "a </s\u0301><s\u0301> b"),
        ("WordLevel replace", "a ((/ſ))((ſ)) b"),
        ("BPE sequence", "a <\x0e/Ś＞ b"),
    ],
)
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_a_content_that_is_normalised_to_a_token(kind: str, content: str, backend: str) -> None:
    own, template = lookalikes.load(kind, backend), turnwise.compile(CONVERSATION + PROMPT)
    assert own.added["</s>"].id in own.encode(content)  # the library does not prevent it
    rows = make_rows(*PLAIN, content)
    check_rows(template, rows, own)
    encoded = template.encode(rows[-1], own)
    specials = [own.added["<s>"].id, own.added["</s>"].id]
    assert [id for id in encoded.input_ids if id in specials] == 2 * specials
    assert len(encoded.input_ids) < len(encoded.text)  # not every character by itself


def test_a_character_that_is_a_token_is_an_error() -> None:
    """No split helps: the normalizer makes `</s>` of one character."""
    own, template = lookalikes.load("Unigram replace"), turnwise.compile(CONVERSATION + PROMPT)
    rows = make_rows(*PLAIN, "costs 5 €")
    for call in (template.encode, template.session(own).prompt):
        arguments = (own,) if call == template.encode else ()
        with pytest.raises(TokenizerError, match="'€', as the control token </s>"):
            call(rows[-1], *arguments)
    batch = template.encode_batch(rows, own, errors="collect")
    assert list(batch.errors) == [3] and isinstance(batch.errors[3], TokenizerError)


def test_letters_that_a_vocabulary_lacks_are_no_control_tokens() -> None:
    own, template = lookalikes.load("WordPiece none"), turnwise.compile(CONVERSATION + PROMPT)
    unknown = own.added["[unk]"].id
    assert unknown in template.encode(make_rows("\u0939")[0], own).input_ids
    check_rows(template, make_rows(*PLAIN, "\u0939", "[unk]"), own)


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_unknown_letters_that_would_end_a_turn_are_an_error(tmp_path: Path) -> None:
    """The unknown token of this tokenizer is its end token too."""
    made = json.loads(lookalikes.make_file("WordLevel none"))
    made["model"]["unk_token"] = "</s>"
    (tmp_path / "tokenizer.json").write_text(json.dumps(made), encoding="utf-8")
    named = {"unk_token": "</s>", "eos_token": "</s>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named), encoding="utf-8")
    template = turnwise.compile(CONVERSATION + PROMPT)
    with pytest.raises(TokenizerError, match="control token </s>"):
        template.encode(make_rows("\u0939")[0], str(tmp_path))


@pytest.mark.parametrize("scheme", ["always", "first", "never"])
def test_a_space_before_a_text_does_not_depend_on_the_first_row(scheme: str) -> None:
    """The tokenizer puts a space before a text, but not before one that begins with a space, as the first ones do."""
    made = library.Tokenizer.from_str(
        vocabularies.variant(pre_tokenizer=vocabularies.metaspace(scheme))
    )
    template = turnwise.compile(
        "{% for m in messages %}{% if m.role == 'user' %}<x>{{ m.content }}<x>A:"
        "{% else %}{{ m.content }}<x>{% endif %}{% endfor %}"
    )
    replies = (" ab", " a b", "ab", "b", " b")
    check_rows(template, [make_rows("a", reply=reply)[0] for reply in replies], tokenizer(made))


LAST_PART = (
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content.split('###')[-1] }}</s>{% endfor %}"
)


def test_a_row_keeps_the_conditions_of_its_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the table of layouts is cleared between the row and the end of the batch, here or by another call."""
    monkeypatch.setattr("turnwise.batch.MAX_FORMS", 2)
    monkeypatch.setattr(
        "turnwise.batch.MIN_ROWS", 3
    )  # the other forms have one row each, and no layout
    template, own = turnwise.compile(LAST_PART + PROMPT), lookalikes.load("BPE none")
    rows = make_rows("one", "two", "three", "secret###shown")
    others = [rows[0] * count for count in range(2, 6)]
    check_rows(template, [*rows, *others], own)

    def read_slowly() -> Any:
        yield from rows
        template.encode_batch(others, own)

    template.encode_batch(rows[:3], own)
    batch = template.encode_batch(read_slowly(), own)
    assert list(batch[3].input_ids) == template.encode(rows[3], own).input_ids


def test_threads_may_share_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.batch.MAX_FORMS", 2)
    template, own = turnwise.compile(LAST_PART + PROMPT), lookalikes.load("BPE none")
    rows = [row * count for count in (1, 2, 3) for row in make_rows("one", "two", "a###b")]
    expected = [template.encode(row, own).input_ids for row in rows]

    def encode_all(_: int) -> list[list[int]]:
        return template.encode_batch(rows * 3, own).lists()["input_ids"]

    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(encode_all, range(8)):
            assert found == expected * 3

"""Tokenizers: laws over real vocabularies and the shipped one.

The reference for plain text is made here, independently of the package: `tokenizers` on the same file with the table
of added tokens emptied.
"""

from __future__ import annotations

import json
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from threading import Thread
from typing import Any

import pytest
import tokenizers as library
from hypothesis import given
from hypothesis import strategies as st

import corpus
from timing import processor_seconds
from turnwise.errors import TokenizerError, TurnwiseWarning
from turnwise.tokens.tokenizers import AFTER, START, WITHIN, files, huggingface, tokenizer
from turnwise.tokens.tokenizers import fastokens_backend as fast
from turnwise.tokens.tokenizers import normalization as shape
from turnwise.tokens.tokenizers.offsets import TokenWidths, ends_of_starts
from turnwise.tokens.tokenizers.protocol import WHOLE
from turnwise.tokens.tokenizers.special_tokens_config import DeclaredTokens
from vocabularies import (
    NAMES,
    PREPEND,
    REAL,
    REPLACE,
    SHIPPED,
    SNIPPETS,
    TEXTS,
    ends,
    law,
    load,
    metaspace,
    path,
    space,
    variant,
)

SPOKEN: dict[str, Callable[[str], str]] = {
    "qwen2_5": lambda text: unicodedata.normalize("NFC", text),
    "qwen3": lambda text: unicodedata.normalize("NFC", text),
    "gemma2": space,
    "mistral_v0_1": space,
    # its decoder drops one space at the start, though its encoder puts none there
    "internlm2": lambda text: space(text).removeprefix(" "),
}
"""What decoding gives back where it is not the text itself."""


@cache
def raw(name: str) -> library.Tokenizer:
    return library.Tokenizer.from_file(str(path(name) / "tokenizer.json"))


@cache
def plain(name: str) -> library.Tokenizer:
    """The file without its added tokens, cut out of its text: parsing and writing it all takes longer than loading."""
    text = (path(name) / "tokenizer.json").read_text(encoding="utf-8")
    start = text.index("[", text.index('"added_tokens"'))
    _, end = json.JSONDecoder().raw_decode(text, start)
    made = library.Tokenizer.from_str(f"{text[:start]}[]{text[end:]}")
    made.post_processor = None  # it moves offsets
    assert not made.get_added_tokens_decoder()
    return made


def list_spoken_texts(chats: bool = True) -> Iterator[str]:
    """Every message text in the conversations of the corpus."""
    for chat in corpus.chats().values():
        for message in chat.messages:
            yield (
                message["content"]
                if isinstance(message.get("content"), str)
                else json.dumps(message)
            )
        yield "<|im_start|>user\n" + json.dumps(chat.messages, ensure_ascii=False) + "<|im_end|>\n"


def start_of(name: str, text: str) -> str:
    """The ends that the library's own offsets say, by their starts."""
    return ends_of_starts((start for start, _ in plain(name).encode(text).offsets), len(text))


# -- laws over vocabularies


@pytest.mark.law(2)  # a vocabulary takes seconds to load
@pytest.mark.parametrize("name", NAMES)
def test_the_fast_back_end_takes_every_vocabulary(name: str) -> None:
    assert load(name).backend == "fastokens"


@pytest.mark.law(2)
@pytest.mark.parametrize("name", NAMES)
def test_ids_equal_the_reference(name: str) -> None:
    own, whole, bare = load(name), raw(name), plain(name)

    @law(60)
    @given(TEXTS)
    def check(text: str) -> None:
        assert own.encode(text) == bare.encode(text, add_special_tokens=False).ids
        assert own.whole(text) == whole.encode(text, add_special_tokens=False).ids

    check()
    for text in list_spoken_texts():
        assert own.encode(text) == bare.encode(text, add_special_tokens=False).ids
        assert own.whole(text) == whole.encode(text, add_special_tokens=False).ids


@pytest.mark.law(2)
@pytest.mark.parametrize("name", NAMES)
def test_text_after_an_added_token(name: str) -> None:
    own, whole = load(name), raw(name)
    first = own.added.get("<s>") or own.added[max(own.added, key=len)]
    reference = own._reference  # type: ignore[attr-defined]

    @law(40)
    @given(TEXTS)
    def check(text: str) -> None:
        for at in (START, AFTER, WITHIN):
            assert own.encode(text, at) == reference.encode(text, at)
        if not any(token in text for token in own.added):
            ids = whole.encode(first.text + text, add_special_tokens=False).ids
            assert ids == [first.id, *own.encode(text, AFTER)]

    check()


@pytest.mark.law(2)
@pytest.mark.parametrize("name", NAMES)
def test_plain_text_never_becomes_an_added_token(name: str) -> None:
    own = load(name)
    unknown = own.id(own.named.get("unk_token", ""))
    forbidden = {token.id for token in own.added.values() if token.control} - own.native - {unknown}
    assert forbidden

    @law(40)
    @given(
        st.lists(
            st.one_of(st.sampled_from(sorted(own.added)), st.sampled_from(SNIPPETS)), max_size=8
        ).map("".join)
    )
    def check(text: str) -> None:
        for at in (START, AFTER, WITHIN):
            assert forbidden.isdisjoint(own.encode(text, at)), text

    check()
    for text in own.added:
        assert forbidden.isdisjoint(own.encode(text)), text


@pytest.mark.law(2)
@pytest.mark.parametrize("name", NAMES)
def test_decoding_gives_the_text_back(name: str) -> None:
    own, normal = load(name), SPOKEN.get(name, str)

    @law(60)
    @given(TEXTS)
    def check(text: str) -> None:
        assert own.decode(own.encode(text)) == normal(text)

    check()


@pytest.mark.law(2)
@pytest.mark.parametrize("name", NAMES)
def test_ends_are_those_of_the_offsets(name: str) -> None:
    own = load(name)

    @law(60)
    @given(TEXTS)
    def check(text: str) -> None:
        ids = own.encode(text)
        assert ends(own, text, ids) == start_of(name, text)
        for at in (START, AFTER, WITHIN):
            ids = own.encode(text, at)
            found = ends(own, text, ids, at)
            assert len(found) == len(ids) and found == sorted(found)
            assert not ids or found[-1] == len(text)

    check()


@pytest.mark.law(2)
@pytest.mark.parametrize("name", NAMES)
def test_tokens_by_id_and_by_spelling(name: str) -> None:
    own = load(name)
    for text, token in own.added.items():
        assert own.id(text) == token.id and own.token(token.id) == text
        assert own.whole(text) == [token.id] or token.lstrip or token.rstrip
    for id in own.encode("Hello world 中文 👩"):
        assert own.id(own.token(id) or "") == id
    assert (
        own.token(10**9) is None
        and own.token(-1) is None
        and own.id("no such token at all") is None
    )
    for key in ("bos_token", "eos_token"):
        assert own.named.get(key, next(iter(own.added))) in own.added


@pytest.mark.law(2)
@pytest.mark.parametrize("name", NAMES)
def test_native_ids_are_those_that_plain_text_gives(name: str) -> None:
    own = load(name)
    given = {
        token.id
        for token in own.added.values()
        if token.control and token.id in own.encode(token.text)
    }
    assert given == own.native


@pytest.mark.law(2)
@pytest.mark.parametrize("name", NAMES)
def test_native_tokens_of_vocabularies(name: str) -> None:
    found = {load(name).token(id) for id in load(name).native}
    assert found == ({"<s>"} if name == "internlm2" else set())


# -- the start of a text


SCHEMES = {
    "prepend": ({"normalizer": PREPEND}, {START, AFTER}),
    "always": ({"pre_tokenizer": metaspace("always")}, {START, AFTER}),
    "first": ({"pre_tokenizer": metaspace("first")}, {START}),
    "never": ({"pre_tokenizer": metaspace("never")}, set()),
    "split": ({"pre_tokenizer": {**metaspace("first"), "split": True}}, {START}),
    "legacy": (
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}},
        {START, AFTER},
    ),
    "none": ({"normalizer": REPLACE}, set()),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("backend", ["tokenizers", "fastokens"])
def test_what_is_put_before_a_text(scheme: str, backend: str) -> None:
    parts, prefixed = SCHEMES[scheme]
    own = huggingface.HuggingFace(variant(**parts), backend=backend)
    for at in (START, AFTER, WITHIN):
        assert own.encode("ab", at) == ([98] if at in prefixed else [97]), at
        assert ends(own, "ab ab", own.encode("ab ab", at), at) == [2, 5]
    for text in ("ab<x>ab", "<x>ab<x> ab<x>", " a<x><x>b "):
        ids: list[int] = []
        for index, part in enumerate(text.split("<x>")):
            ids += [99] * bool(index) + own.encode(part, AFTER if index else START)
        assert own.whole(text) == ids, text


def test_a_byte_level_prefix() -> None:
    data = json.loads(SHIPPED.read_text(encoding="utf-8"))
    cut = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    own = huggingface.HuggingFace(json.dumps({**data, "pre_tokenizer": cut}))
    assert [own.decode(own.encode("Hello", at)) for at in (START, AFTER, WITHIN)] == [
        " Hello",
        " Hello",
        "Hello",
    ]
    assert ends(own, "Hello", own.encode("Hello"), START)[-1] == 5
    assert ends(own, "中文", own.encode("中文"), START)[-1] == 2


def test_a_space_before_every_word_is_not_a_prefix() -> None:
    words = {
        "type": "Sequence",
        "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace("always")],
    }
    found = shape.analyse_pipeline(None, words)
    assert not found.prefixed and not found.is_one_to_one
    own = huggingface.HuggingFace(variant(pre_tokenizer=words), backend="tokenizers")
    ids = own.encode("ab  ab", WITHIN)
    assert ids == [98, 98] and ends(own, "ab  ab", ids, WITHIN) == [4, 6]


def test_unknown_characters_and_changed_texts_fall_back_to_offsets() -> None:
    lower = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, REPLACE]}
    own = huggingface.HuggingFace(variant(normalizer=lower), backend="tokenizers")
    for text in ("AB ab", "İİ ab", "中文中文 ab", "ab中"):
        assert ends(own, text, own.encode(text))[-1] == len(text)
    assert own.offsets("AB 中", [97]) == [(0, 2)]  # not its ids: found in the text all the same


def test_widths() -> None:
    words = {
        1: b"ab",
        2: "é".encode(),
        3: "👩".encode()[:2],
        4: "👩".encode()[2:],
        5: b" ",
        6: None,
    }
    widths = TokenWidths(words.__getitem__)
    assert widths.offsets([1, 2, 3, 4, 1], 6) == [(0, 2), (2, 3), (3, 4), (3, 4), (4, 6)]
    assert widths.offsets([5, 1], 2, prefix_length=1) == [(0, 1), (0, 2)]
    assert widths.offsets([5, 1], 2) is None and widths.offsets([1, 6], 3) is None
    assert widths.offsets([], 0) == []


MODELS = {
    "Unigram": {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [
            ["<unk>", 0.0],
            ["▁ab", -1.0],
            ["▁", -2.0],
            ["a", -3.0],
            ["b", -3.0],
            ["<x>", -4.0],
            ["ab", -2.5],
        ],
        "byte_fallback": False,
    },
    "WordPiece": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "ab": 1, "##ab": 2, "a": 3, "##b": 4, "<x>": 5},
    },
}


@pytest.mark.parametrize("kind", MODELS)
def test_other_models(kind: str) -> None:
    cut = metaspace("always") if kind == "Unigram" else {"type": "BertPreTokenizer"}
    data = {**json.loads(variant(pre_tokenizer=cut)), "model": MODELS[kind]}
    data["added_tokens"][0]["id"] = 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TurnwiseWarning)
        own = huggingface.HuggingFace(json.dumps(data), name=kind)
    whole = library.Tokenizer.from_str(json.dumps(data))
    for text in ("ab ab", "abab", "a<x>b", "  ab  中 ab ", "<x>"):
        assert own.whole(text) == whole.encode(text, add_special_tokens=False).ids
        found = ends(own, text, own.encode(text))
        assert found == sorted(found) and found[-1] == len(text)
        assert 5 not in own.encode(text) or 5 in own.native


# -- back ends


def test_a_back_end_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, quick = (tokenizer("turnwise", backend=name) for name in ("tokenizers", "fastokens"))
    assert (slow.backend, quick.backend) == ("tokenizers", "fastokens")
    assert slow.encode("Hello <s> 中文") == quick.encode("Hello <s> 中文")
    monkeypatch.setenv("TURNWISE_BACKEND", "tokenizers")
    assert tokenizer("turnwise").backend == "tokenizers"
    with pytest.raises(
        TokenizerError, match=r"unknown back end 'fast'[\s\S]*fastokens, tokenizers"
    ):
        tokenizer("turnwise", backend="fast")


def encode_until_loaded(own: Any) -> None:
    """Spend the allowance of characters, then wait for the thread that loads fastokens, and go on."""
    deferred = own._encoder
    own.encode("ab " * (deferred._allowance // 3 + 1))
    deferred._thread.join()
    own.encode("ab")


def test_fastokens_is_loaded_when_it_pays() -> None:
    own = huggingface.HuggingFace(SHIPPED.read_text())
    texts = ["Hello <s> 中文", "<|im_end|>\n"]
    before = [(own.encode(text), own.whole(text), own.decode(own.whole(text))) for text in texts]
    assert own.backend == "tokenizers"
    encode_until_loaded(own)
    assert own.backend == "fastokens"
    assert before == [
        (own.encode(text), own.whole(text), own.decode(own.whole(text))) for text in texts
    ]


def test_fastokens_is_loaded_at_once_if_there_will_be_much_text() -> None:
    data = json.loads(SHIPPED.read_text())
    data["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    declared = DeclaredTokens(specials=({"content": "<new>", "special": True},))
    given = json.dumps(data)
    slow, quick = (
        huggingface.HuggingFace(given, declared=declared, backend=name)
        for name in ("tokenizers", "eager")
    )
    assert quick.backend == "fastokens"
    for text in ("Hello <s> 中文 and more", "a<new>b", ""):
        assert quick.whole(text) == slow.whole(text)
        assert quick.encode(text) == slow.encode(text)


@pytest.mark.parametrize("high", [1 << 23, 1 << 31])
def test_a_high_id_is_not_given_to_fastokens(high: int) -> None:
    data = json.loads(SHIPPED.read_text())
    data["model"]["vocab"]["\u0120nothing"] = high
    with pytest.warns(TurnwiseWarning, match=f"it has an id of {high}"):
        own = huggingface.HuggingFace(json.dumps(data), name=f"high {high}", backend="eager")
    assert own.backend == "tokenizers"


@pytest.mark.parametrize(
    ("change", "is_early"),
    [
        ({}, True),
        ({"truncation": {"max_length": 1 << 22}}, False),
        ({"added_tokens": [[1 << 22, "<s>", False, False, False, False, True]]}, False),
        ({"pre_tokenizer": metaspace("always")}, False),
        ({"normalizer": PREPEND}, False),
    ],
)
def test_fastokens_does_not_wait_for_the_reference_unless_that_must_judge_the_file(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], is_early: bool
) -> None:
    given = json.dumps(json.loads(SHIPPED.read_text()) | change)
    read: list[str] = []

    def fail(*arguments: Any) -> Any:
        raise ValueError("not read")

    monkeypatch.setattr(fast, "load", read.append)
    monkeypatch.setattr(huggingface, "ReferenceBackend", fail)
    with pytest.raises(TokenizerError, match="not read"):
        huggingface.HuggingFace(given, backend="eager")
    assert read == [given] * is_early


def test_what_fastokens_read_early_is_not_used_if_the_reference_changes_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = json.loads(SHIPPED.read_text())
    data["model"]["dropout"] = 0.5
    given = json.dumps(data)
    read: list[str] = []
    load_text = fast.load
    monkeypatch.setattr(fast, "load", lambda text: (read.append(text), load_text(text))[1])
    own = huggingface.HuggingFace(given, backend="eager")
    assert read[0] == given and len(read) == 2 and '"dropout":null' in read[1]
    assert own.backend == "fastokens"


def test_a_process_without_threads_loads_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", start)
    own = huggingface.HuggingFace(SHIPPED.read_text())
    own.encode("ab " * 20_000)
    own.encode("ab")
    assert own.backend == "fastokens"


def test_a_back_end_that_disagrees_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = fast.FastokensBackend.encode

    def encode(self: fast.FastokensBackend, text: str, position: int) -> list[int]:
        return [1] if position == WHOLE else usual(self, text, position)

    monkeypatch.setattr(fast.FastokensBackend, "encode", encode)
    own = huggingface.HuggingFace(SHIPPED.read_text(), name="a name")
    with pytest.warns(
        TurnwiseWarning, match="a name is encoded by tokenizers, .*different ids for the text"
    ):
        encode_until_loaded(own)
    assert own.backend == "tokenizers" and own.whole("<s>") == [own.id("<s>")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # reported once
        encode_until_loaded(huggingface.HuggingFace(SHIPPED.read_text(), name="a name"))
    with pytest.raises(TokenizerError, match="cannot be encoded by fastokens: different ids"):
        huggingface.HuggingFace(SHIPPED.read_text(), backend="fastokens")
    with pytest.warns(TurnwiseWarning, match="another is encoded by tokenizers"):
        huggingface.HuggingFace(SHIPPED.read_text(), name="another", backend="eager")


@corpus.needs_corpus
def test_the_first_use_costs_what_the_library_costs() -> None:
    """The figure is that of benchmarks/tokenizer_load.py; here a second vocabulary must not be loaded."""
    name = max(REAL, key=lambda name: (path(name) / "tokenizer.json").stat().st_size)
    file = path(name) / "tokenizer.json"
    ratios = []
    for _ in range(6):
        theirs = processor_seconds(lambda: library.Tokenizer.from_file(str(file)).encode("a"))
        ours = processor_seconds(lambda: files.load(file, name, None).encode("a"))
        ratios.append(ours / theirs)
        if ratios[-1] < 2:
            return
    raise AssertionError(ratios)


def test_a_back_end_that_fails_on_a_text_is_replaced_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Panic(BaseException):
        """As Rust's: not an Exception."""

    own = huggingface.HuggingFace(SHIPPED.read_text(), backend="fastokens")
    expected = own.encode("Hello"), own.whole("<s>")

    def fail(*arguments: Any) -> list[int]:
        raise Panic

    monkeypatch.setattr(fast.FastokensBackend, "encode", fail)
    assert (own.encode("Hello"), own.whole("<s>")) == expected

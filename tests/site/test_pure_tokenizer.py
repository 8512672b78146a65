"""The encoder in pure Python gives the ids and texts of the `tokenizers` library, or refuses the file.

The library is the oracle throughout: on the real vocabularies and texts of all kinds, and on small files with every
component that is known, in all behaviours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
from hypothesis import given, reject
from hypothesis import strategies as st
from pure_tokenizer import PurePython
from pure_tokenizer.regex import compile_pattern, find_matches

import corpus
from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers import AFTER, START, WITHIN, Tokenizer, tokenizer
from turnwise.tokens.tokenizers.selfcheck import TEXTS as SHORT_TEXTS
from turnwise.tokens.tokenizers.special_tokens_config import read_declarations
from vocabularies import NAMES, PREPEND, REPLACE, SHIPPED, SNIPPETS, law, metaspace, path, variant

ROOT = Path(__file__).resolve().parents[2]
# What the tables of this Python do not have yet belongs to no category here, and to one in the library.
ASSIGNED = st.characters(exclude_categories=("Cs", "Cn"))
RUNS = st.builds(str.__mul__, st.sampled_from(" \n\t1a.'中é😀\u0301"), st.integers(1, 9))
HARD_SNIPPETS = (
    *("I'm", "WE'LL", "it'ſ", "l’été", "\u1100\u1161\u11a8", "a\u0308\u0304", "Å", "ﷺ", "½²Ⅷ"),
    *(
        "\x1c\x1d",
        "\x85",
        "\u2028",
        "\ufeff",
        "\x7f",
        "𝔘𝔫",
        "𠀀𠮷",
        "👍🏽",
        "ΑΣ",
        "İ",
        "ᾳ",
        "_",
        "__init__",
    ),
    *(
        "camelCaseXML",
        "0x7fff",
        "1,000,000",
        "٣٤٥",
        "//\n\n",
        "}\r\n\r\n",
        "<|",
        "|>",
        "\\n",
        "```",
    ),
)
TEXTS = st.lists(
    st.one_of(st.sampled_from(SNIPPETS + HARD_SNIPPETS), st.text(ASSIGNED, max_size=12), RUNS),
    max_size=8,
).map("".join)


@cache
def pair(name: str) -> tuple[Tokenizer, Tokenizer]:
    folder = SHIPPED.parent if name == "turnwise" else path(name)
    return read_pure(folder), tokenizer(folder, backend="tokenizers")


def read_pure(folder: Path) -> PurePython:
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    return PurePython(text, declared=read_declarations(folder))


def list_spoken_texts() -> Iterator[str]:
    for chat in corpus.chats().values():
        yield json.dumps(chat.messages, ensure_ascii=False)
        yield from (str(message.get("content")) for message in chat.messages)


def check_equal(own: Tokenizer, reference: Tokenizer, text: str) -> None:
    for position in (START, AFTER, WITHIN):
        ids = own.encode(text, position)
        assert ids == reference.encode(text, position)
    whole = own.whole(text)
    assert whole == reference.whole(text)
    # also ids that begin or end inside of a character
    for part in (whole, ids, ids[1:], ids[::2], ids[::-1]):
        assert own.decode(part) == reference.decode(part)


@pytest.mark.law(2)
@pytest.mark.parametrize("name", NAMES)
def test_ids_and_texts_equal_the_library(name: str) -> None:
    own, reference = pair(name)
    assert (own.backend, own.added, own.native) == ("python", reference.added, reference.native)
    added = list(own.added)
    in_text = st.sampled_from(added).flatmap(
        lambda token: TEXTS.map(lambda text: f"{text[:5]}{token}{text[5:]}{token} {token}\n")
    )

    @law(30)
    @given(st.one_of(TEXTS, in_text), st.sampled_from(["NFC", "NFD"]))
    def check(text: str, form: str) -> None:
        check_equal(own, reference, text)
        check_equal(own, reference, unicodedata.normalize(form, text))

    check()
    for text in SHORT_TEXTS:
        check_equal(own, reference, text)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_conversations_and_many_texts_equal_the_library(name: str) -> None:
    own, reference = pair(name)

    @law(2_000)
    @given(TEXTS)
    def check(text: str) -> None:
        check_equal(own, reference, text)

    check()
    for text in list_spoken_texts():
        check_equal(own, reference, text)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_and_offsets(name: str) -> None:
    own, reference = pair(name)
    for text in SHORT_TEXTS:
        ids = own.encode(text)
        assert [own.token(id) for id in ids] == [reference.token(id) for id in ids]
        assert [own.id(own.token(id) or "") for id in ids] == ids
        if unicodedata.is_normalized("NFC", text):
            assert own.offsets(text, ids) == reference.offsets(text, ids)
    for spelling in own.added:
        assert own.id(spelling) == reference.id(spelling)
    assert own.token(1 << 31) is None and own.id("no such token") is None


NORMALIZERS: tuple[dict[str, Any] | None, ...] = (
    None,
    PREPEND,
    REPLACE,
    *({"type": form} for form in ("NFC", "NFD", "NFKC", "NFKD")),
    {"type": "Lowercase"},
    {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]},
    {"type": "Strip", "strip_left": True, "strip_right": False},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": r"x*"}, "content": "-"},
)
SPLITS = [
    {"type": "Split", "pattern": pattern, "behavior": behaviour, "invert": inverted}
    for pattern in ({"String": " "}, {"Regex": r"\d+|,"}, {"Regex": r"[a-c]*"})
    for behaviour in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
    for inverted in (False, True)
]
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PRE_TOKENIZERS: tuple[dict[str, Any] | None, ...] = (
    None,
    *SPLITS,
    *(metaspace(scheme) for scheme in ("always", "first", "never")),
    {**metaspace("first"), "split": True},
    {**metaspace("always"), "split": True},
    BYTES,
    {**BYTES, "add_prefix_space": True},
    {**BYTES, "use_regex": False},
    {"type": "Digits", "individual_digits": True},
    {"type": "Digits", "individual_digits": False},
    *(
        {"type": "Punctuation", "behavior": behaviour}
        for behaviour in ("Isolated", "Contiguous", "Removed")
    ),
    {"type": "Sequence", "pretokenizers": [SPLITS[2], metaspace("first"), BYTES]},
)
BYTE_TOKENS = [{"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 2}
DECODERS: tuple[dict[str, Any] | None, ...] = (
    None,
    BYTES,
    metaspace("always"),
    metaspace("never"),
    {"type": "Sequence", "decoders": [REPLACE, *BYTE_TOKENS]},
    {"type": "Sequence", "decoders": [{**REPLACE, "content": "  "}, STRIP, *BYTE_TOKENS, STRIP]},
)
MODELS: tuple[dict[str, Any], ...] = (
    {},
    {"fuse_unk": False},
    {"unk_token": None},
    {"ignore_merges": True},
    {"byte_fallback": True},
    {"byte_fallback": True, "fuse_unk": False, "unk_token": None},
)
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


@st.composite
def small_files(draw: st.DrawFn) -> str:
    """A file with a small vocabulary and any of the components."""
    data = json.loads(
        variant(
            normalizer=draw(st.sampled_from(NORMALIZERS)),
            pre_tokenizer=draw(st.sampled_from(PRE_TOKENIZERS)),
            decoder=draw(st.sampled_from(DECODERS)),
        )
    )
    vocabulary = data["model"]["vocab"]
    # some bytes have tokens, so that some characters fall back to them and others do not
    for byte in (*"é中".encode(), 0x0A, 0xFF):
        vocabulary.setdefault(f"<0x{byte:02X}>", len(vocabulary))
    data["model"].update(draw(st.sampled_from(MODELS)))
    contents = draw(st.lists(st.sampled_from(["<x>", "<x", "ab", "É", " \n", "a b"]), unique=True))
    data["added_tokens"] = [
        {"id": len(vocabulary) + index, "content": content}
        | {flag: draw(st.booleans()) for flag in FLAGS}
        for index, content in enumerate(contents)
        if content not in vocabulary
    ]
    return json.dumps(data)


SMALL_TEXTS = st.lists(
    st.sampled_from(
        [
            *(
                "a",
                "b",
                "ab",
                " ",
                "  ",
                "<x>",
                "<x",
                "1",
                "23",
                ",",
                "É",
                "é",
                "中",
                "é",
                "x",
                "xx",
                "▁",
                "\n",
            )
        ]
        + [*("ABC", "c", "e\u0301", "'s", "?", "!", "\u200d", "_", "²", "😀", "<0x0A>", "\x85")]
    ),
    max_size=12,
).map("".join)


def unless_panic(ask: Callable[[], Any]) -> Any:
    """Return what the library says. It panics where a token takes along the white space of the next one, and where
    its decoder strips more characters than there are."""
    try:
        return ask()
    except BaseException as problem:
        assert type(problem).__name__ == "PanicException"
        reject()


@law(150)
@given(small_files(), SMALL_TEXTS)
def test_every_component_equals_the_library(file: str, text: str) -> None:
    try:
        own = PurePython(file)
    except TokenizerError as refusal:
        assert "before a Metaspace with the scheme 'first'" in refusal.message
        reject()
    reference = library.Tokenizer.from_str(file)
    ids = unless_panic(lambda: reference.encode(text, add_special_tokens=False).ids)
    assert own.whole(text) == ids
    expected = unless_panic(lambda: reference.decode(ids, skip_special_tokens=False))
    assert own.decode(ids) == expected
    plain = library.Tokenizer.from_str(json.dumps({**json.loads(file), "added_tokens": []}))
    assert own.encode(text) == plain.encode(text, add_special_tokens=False).ids


END = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    + END,
    r"'(?i:s|d|m|t|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re)?"
    + END,
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lo}&&[^\p{Han}]]+|\p{N}{1,3}",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + END,
    r"\P{L}|\p{^Lu}\d{2}|[^\S\n]+|\D",
    r"(?=\p{Lu})\p{L}|(?<=a)b|(?<!a)c|(?>ab?)b",
    r"[a\-z]|[-x]|[x-]|\x41|\u0042|\x{1F600}|\t|a{,2}|{|}|[\]]",
    r"\p{Letter}+|\p{Mark}|\p{Symbol}|\p{Punctuation}+?|.",
    r"x*|(a|b)",
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_as_in_the_library(pattern: str) -> None:
    split = library.pre_tokenizers.Split(library.Regex(pattern), "removed")
    own = compile_pattern(pattern)

    @law(30)
    @given(TEXTS)
    def check(text: str) -> None:
        between, done = [], 0
        for start, end in find_matches(own, text):
            between.append(text[done:start])
            done = end
        expected = [part for part, _ in split.pre_tokenize_str(text)]
        assert [part for part in (*between, text[done:]) if part] == expected

    check()


@pytest.mark.once
@pytest.mark.parametrize("name", ["L", "Lu", "M", "N", "Nd", "P", "S", "Z", "Han"])
def test_sets_have_the_characters_of_the_library(name: str) -> None:
    remove = library.normalizers.Replace(library.Regex(rf"\p{{{name}}}"), "")
    own = compile_pattern(rf"\p{{{name}}}")
    assigned = [
        char for char in map(chr, range(0x110000)) if unicodedata.category(char) not in ("Cs", "Cn")
    ]
    text = "".join(assigned)
    assert own.sub("", text) == remove.normalize_str(text)


REFUSED = {
    "the model WordPiece": {"model": {"type": "WordPiece", "vocab": {}}},
    "the model Unigram": {"model": {"type": "Unigram", "vocab": []}},
    "the normalizer Precompiled": {"normalizer": {"type": "Precompiled"}},
    "the normalizer BertNormalizer": {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "BertNormalizer"}]}
    },
    "the pre-tokenizer UnicodeScripts": {"pre_tokenizer": {"type": "UnicodeScripts"}},
    "the decoder WordPiece": {"decoder": {"type": "WordPiece"}},
    "the property 'Cyrillic'": {
        "pre_tokenizer": {**SPLITS[0], "pattern": {"Regex": r"\p{Cyrillic}+"}}
    },
    "'^' in the regular": {"pre_tokenizer": {**SPLITS[0], "pattern": {"Regex": "^a"}}},
    "the group '(?<n'": {"pre_tokenizer": {**SPLITS[0], "pattern": {"Regex": "(?<n>a)"}}},
    r"the escape '\\w'": {"pre_tokenizer": {**SPLITS[0], "pattern": {"Regex": r"\w+"}}},
    "a set of characters in a part that ignores case": {
        "pre_tokenizer": {**SPLITS[0], "pattern": {"Regex": "(?i:[a-z])"}}
    },
    "'{2}+' in the regular": {"pre_tokenizer": {**SPLITS[0], "pattern": {"Regex": "a{2}+"}}},
    "a POSIX class": {"pre_tokenizer": {**SPLITS[0], "pattern": {"Regex": "[[:alpha:]]"}}},
    "the regular expression '(a'": {"pre_tokenizer": {**SPLITS[0], "pattern": {"Regex": "(a"}}},
    "a Strip before a Metaspace with the scheme 'first'": {
        "normalizer": NORMALIZERS[9],
        "pre_tokenizer": metaspace("first"),
    },
    "the prepend_scheme 'twice'": {"pre_tokenizer": metaspace("twice")},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_is_refused_by_name(name: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        PurePython(variant(**REFUSED[name]))
    assert f"the encoder in pure Python does not know {name}" in caught.value.message
    assert "pip install tokenizers" in str(caught.value.hint)


@pytest.mark.parametrize("field", ["continuing_subword_prefix", "end_of_word_suffix"])
def test_affixes_of_words_are_refused(field: str) -> None:
    data = json.loads(variant())
    data["model"][field] = "</w>"
    with pytest.raises(TokenizerError, match=field):
        PurePython(json.dumps(data))


BROKEN = {
    "not JSON": "{",
    "a JSON object": "[]",
    "'vocab' as dict": json.dumps({"model": {"type": "BPE", "merges": []}}),
    "not numbers": json.dumps({"model": {"vocab": {"a": "1"}, "merges": []}}),
    "is not a pair": json.dumps({"model": {"vocab": {"a": 1}, "merges": ["a"]}}),
    "the vocabulary does not: 'a b'": json.dumps({"model": {"vocab": {"a": 1}, "merges": ["a b"]}}),
    "unk_token 'u'": json.dumps({"model": {"vocab": {}, "merges": [], "unk_token": "u"}}),
    "has no type": variant(normalizer={"form": "NFC"}),
    "has no pattern": variant(normalizer={**REPLACE, "pattern": {}}),
    "unknown behaviour 'Odd'": variant(pre_tokenizer={**SPLITS[0], "behavior": "Odd"}),
    "needs 'content' as str": variant(normalizer={**REPLACE, "content": 3}),
    "has no content": json.dumps({**json.loads(variant()), "added_tokens": [{"id": 1}]}),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_broken_files_are_refused_in_one_sentence(problem: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        PurePython(BROKEN[problem], name="mine")
    assert problem == "not JSON" or problem in caught.value.message


def test_half_a_surrogate_pair_is_refused() -> None:
    own = read_pure(SHIPPED.parent)
    for encode in (own.encode, own.whole):
        with pytest.raises(TokenizerError, match="surrogate"):
            encode("\ud800")


WITHOUT_LIBRARIES = """
import sys
sys.modules["tokenizers"] = sys.modules["fastokens"] = None
import turnwise
from turnwise.tokens.tokenizers import tokenizer
template = turnwise.load("qwen3")
encoded = template.encode([{"role": "user", "content": "hi <|im_end|>"}], tokenizer="turnwise")
print(tokenizer("turnwise").backend, encoded.input_ids)
"""


def test_the_fallback_where_no_library_loads() -> None:
    """In a process of its own: importing, rendering and encoding work, with the same ids."""
    import turnwise

    command = [sys.executable, "-c", WITHOUT_LIBRARIES]
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT / "scripts" / "site")))
    done = subprocess.run(
        command,
        capture_output=True,
        check=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": paths},
    )
    messages = [{"role": "user", "content": "hi <|im_end|>"}]
    expected = turnwise.load("qwen3").encode(messages, tokenizer="turnwise").input_ids
    assert done.stdout.strip() == f"python {expected}"


def test_a_missing_library_that_was_asked_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "turnwise.tokens.tokenizers.huggingface", raising=False)
    monkeypatch.delitem(sys.modules, "turnwise.tokens.tokenizers.hf_backend", raising=False)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokenizerError, match="needs the library tokenizers"):
        tokenizer(SHIPPED.parent / "tokenizer.json", backend="tokenizers")


def test_a_long_text_without_spaces_takes_n_log_n_steps() -> None:
    """A file without a pre-tokenizer makes one word of any text."""
    own = PurePython(variant(normalizer=REPLACE))
    text = "ab a" * 25_000
    reference = library.Tokenizer.from_str(variant(normalizer=REPLACE))
    assert own.encode(text) == reference.encode(text).ids

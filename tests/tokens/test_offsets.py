"""The span of each token in the text, on every kind of tokenizer.

The law: one span for each id, starts never fall, spans are inside of the text, together they cover all that no
normaliser drops, and an added token covers its own text. With `compatible=True` the spans are those of `tokenizers`.
"""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import combining, normalize

import pytest
import tokenizers as library
from hypothesis import given

import turnwise
from turnwise.errors import TurnwiseWarning
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.tokenizers import Tokenizer, huggingface, tokenizer
from turnwise.tokens.tokenizers.alignment import align_tokens
from vocabularies import NAMES, PREPEND, REPLACE, TEXTS, law, load, metaspace, path, variant

pytestmark = [
    pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning"),  # markers are missing
]

TEMPLATE = turnwise.compile(
    "{% for m in messages %}<|{{ m.role }}|>\n {{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ADDED = ("<x>", "<|user|>", "<|assistant|>", "</s>")
LOWER = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, REPLACE]}
BERT = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
WORD_PIECE = {
    "type": "WordPiece",
    "unk_token": "?",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
    "vocab": {"?": 0, "ab": 1, "##ab": 2, "a": 3, "##b": 4, "hello": 5, "e": 6, "中": 7},
}
UNIGRAM = {
    "type": "Unigram",
    "unk_id": 0,
    "vocab": [["?", 0.0], ["▁ab", -1.0], ["▁", -2.0], ["a", -3.0], ["b", -3.0], ["lo", -3.0]],
    "byte_fallback": False,
}


def invent(flags: dict[str, bool], model: Any = None, **parts: Any) -> str:
    """A small tokenizer.json with the added tokens of the template."""
    data = json.loads(variant(**parts))
    row = {**data["added_tokens"][0], **flags}
    data["added_tokens"] = [{**row, "id": 99 + n, "content": text} for n, text in enumerate(ADDED)]
    return json.dumps({**data, "model": model or data["model"]})


MARKED: dict[str, bool] = {"special": True, "normalized": False}
NORMALISED: dict[str, bool] = {"special": False, "normalized": True}
INVENTED = {
    "prefix": invent(MARKED, normalizer=PREPEND),
    "normalised": invent(NORMALISED, normalizer=PREPEND),  # as ChatGLM3's
    "metaspace": invent(MARKED, pre_tokenizer=metaspace("always")),
    "metaspace first": invent(NORMALISED, pre_tokenizer=metaspace("first")),
    "stripping": invent({**MARKED, "lstrip": True, "rstrip": True}, normalizer=REPLACE),
    "lower": invent(MARKED, normalizer=LOWER),
    "lower normalised": invent(NORMALISED, normalizer=LOWER),
    "nfkc": invent(NORMALISED, normalizer={"type": "NFKC"}),
    "wordpiece": invent(
        MARKED, WORD_PIECE, normalizer=BERT, pre_tokenizer={"type": "BertPreTokenizer"}
    ),
    "unigram": invent(MARKED, UNIGRAM, pre_tokenizer=metaspace("always")),
}


@cache
def make_tokenizer(kind: str) -> Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TurnwiseWarning)
        return huggingface.HuggingFace(INVENTED[kind], name=kind)


def toy_tiktoken() -> Tokenizer:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b" \xf0": 257}
    special = {text: 258 + number for number, text in enumerate(ADDED)}
    return tokenizer(
        tiktoken.Encoding("t", pat_str=r"\w+|\W+", mergeable_ranks=ranks, special_tokens=special)
    )


def of_mistral(file: str) -> Tokenizer:
    common = pytest.importorskip("mistral_common")
    return tokenizer(Path(common.__path__[0]) / "data" / file)


def slow(name: str) -> Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers")
        if name == "byt5":
            return tokenizer(transformers.ByT5Tokenizer())
        import fastokens

        return tokenizer(fastokens.Tokenizer.from_json_str(INVENTED["stripping"]))


OTHERS: dict[str, Callable[[], Tokenizer]] = {
    "tiktoken": toy_tiktoken,
    "sentencepiece": lambda: of_mistral("tokenizer.model.v1"),
    "sentencepiece with symbols": lambda: of_mistral("mistral_instruct_tokenizer_240323.model.v3"),
    "tekken": lambda: of_mistral("tekken_240911.json"),
    "bytes": lambda: slow("byt5"),
    "fastokens": lambda: slow("fastokens"),
}


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "OK ab " + text}]


def is_dropped(text: str) -> bool:
    """Whether a normaliser may drop this text: white space, control characters, accents that were merged."""
    return all(
        character in "\ufffd▁"
        or character.isspace()
        or not character.isprintable()
        or combining(character)
        or not normalize("NFKC", character).isprintable()
        for character in text
    )


def check_law(found: Encoded, source: Tokenizer) -> None:
    text, offsets = found.text, found.offsets
    assert len(offsets) == len(found.input_ids) == len(found.tokens)
    assert "".join(found.tokens) == text
    starts = [start for start, _ in offsets]
    assert starts == sorted(starts)
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    covered = 0
    for start, end in offsets:
        assert is_dropped(text[covered:start]), text[covered:start]
        covered = max(covered, end)
    assert is_dropped(text[covered:])
    words = {token.id: token.text for token in source.added.values()}
    for index in found.control:
        start, end = offsets[index]
        word = words[found.input_ids[index]]
        assert text[start:end].replace("▁", " ").strip().casefold() == word.strip().casefold(), word
    for index, (start, end) in enumerate(offsets):
        assert found.tokens[index] == "" or start < end


@pytest.mark.law(4)
@pytest.mark.parametrize("compatible", [False, True])
@pytest.mark.parametrize("kind", [*INVENTED, *OTHERS])
def test_every_token_has_a_span(kind: str, compatible: bool) -> None:
    check_spans(kind, compatible)


@pytest.mark.law(2)
@pytest.mark.parametrize("kind", NAMES)
def test_every_token_of_a_real_vocabulary_has_a_span(kind: str) -> None:
    check_spans(kind, False)
    check_spans(kind, True)


def check_spans(kind: str, compatible: bool) -> None:
    source = make_tokenizer(kind) if kind in INVENTED else OTHERS.get(kind, lambda: load(kind))()

    @law(40 if kind in INVENTED else 12)
    @given(TEXTS)
    def check(text: str) -> None:
        found = TEMPLATE.encode(chat(text), source, compatible=compatible)
        check_law(found, source)
        assert len(found.owners) == len(found.labels) == len(found)

    check()


@pytest.mark.law(3)
@pytest.mark.parametrize("kind", INVENTED)
def test_compatible_spans_of_invented_tokenizers(kind: str) -> None:
    check_compatible_spans(kind)


@pytest.mark.law(2)
@pytest.mark.parametrize("kind", NAMES)
def test_compatible_spans_are_those_of_the_library(kind: str) -> None:
    check_compatible_spans(kind)


def check_compatible_spans(kind: str) -> None:
    source = make_tokenizer(kind) if kind in INVENTED else load(kind)
    text = INVENTED.get(kind) or (path(kind) / "tokenizer.json").read_text(encoding="utf-8")
    reference = library.Tokenizer.from_str(text)
    reference.post_processor = None  # it takes white space out of spans

    @law(50 if kind in INVENTED else 12)
    @given(TEXTS)
    def check(content: str) -> None:
        found = TEMPLATE.encode(chat(content), source, compatible=True)
        theirs = reference.encode(found.text, add_special_tokens=False)
        if theirs.ids == found.input_ids:  # declared tokens may be missing in the file
            assert found.offsets == theirs.offsets

    check()


def test_characters_that_are_split_are_in_every_span() -> None:
    found = TEMPLATE.encode([{"role": "user", "content": "ab 👩"}], toy_tiktoken())
    spans = [found.text[start:end] for start, end in found.offsets]
    assert spans[-6:] == ["ab", " 👩", "👩", "👩", "👩", "</s>"]
    assert found.tokens[-6:] == ["ab", " ", "", "", "👩", "</s>"]


def test_a_copy_keeps_its_spans() -> None:
    for kind in ("normalised", "wordpiece"):
        found = TEMPLATE.encode(chat("Hi"), make_tokenizer(kind), compatible=True)
        copy = pickle.loads(pickle.dumps(found))
        assert (copy.offsets, copy.tokens) == (found.offsets, found.tokens)


def test_control_tokens_that_the_library_found_otherwise() -> None:
    found = TEMPLATE.encode(chat("Hi"), make_tokenizer("normalised"), compatible=True)
    assert [found.text[slice(*found.offsets[index])] for index in found.control] == ["<|user|>"]


@pytest.mark.parametrize("kind", ["prefix", "normalised"])
def test_a_token_after_the_text_has_no_characters(kind: str) -> None:
    source = make_tokenizer(kind)
    whole = TEMPLATE.encode(chat("Hi"), source, compatible=True)
    longer = Encoded(whole.rendering, source, [*whole.input_ids, source.id("</s>") or 0], None)
    end = len(whole.text)
    assert longer.offsets == [*whole.offsets, (end, end)]
    assert longer.tokens == [*whole.tokens, ""]


def test_alignment_of_tokens_that_are_not_the_text() -> None:
    def align(text: str, *tokens: str | None) -> list[str]:
        words = [None if token is None else token.encode() for token in tokens]
        offsets = align_tokens(text, range(len(words)), (), words.__getitem__)
        return [text[start:end] for start, end in offsets]

    assert align("Hello Wörld", "hello", "▁wor", "##ld") == ["Hello", " Wör", "ld"]
    assert align("a ☃ b", "a", None, "b") == ["a", " ☃ ", "b"]
    assert align("ab", "x", "y") == ["ab", "ab"]
    assert align("", "x") == [""]
    assert align("ﬁn \n", "fin") == ["ﬁn"]

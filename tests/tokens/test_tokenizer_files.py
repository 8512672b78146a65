"""Tokenizers out of files and objects: what is read, each adapter against its own library, and what is refused."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
from hypothesis import given

import corpus
from turnwise.errors import TokenizerError
from turnwise.tokens import tokenizers
from turnwise.tokens.tokenizers import AFTER, START, WITHIN, files, tokenizer
from turnwise.tokens.tokenizers.hf_backend import share_model
from vocabularies import PREPEND, SHIPPED, TEXTS, ends, law, load, space, variant

# -- files and objects


def test_loaded_tokenizers_are_kept_until_the_file_changes(tmp_path: Path) -> None:
    for file in files.SHIPPED.iterdir():
        shutil.copy(file, tmp_path)
    first = tokenizer(tmp_path)
    assert tokenizer(str(tmp_path)) is first and tokenizer(first) is first
    config = tmp_path / "tokenizer_config.json"
    config.write_text(
        json.dumps({"eos_token": {"content": "</s>"}, "add_bos_token": True, "pad_token": None})
    )
    second = tokenizer(tmp_path)
    assert second is not first and second.named == {"eos_token": "</s>"}
    assert tokenizer(tmp_path / "tokenizer.json").named == second.named


@pytest.mark.parametrize("has_main", [True, False], ids=["main", "a tag only"])
def test_a_model_in_the_local_cache_is_found_by_its_id(
    has_main: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "hub" / "models--some--model-1.5"
    snapshot = model / "snapshots" / "0123abcd"
    shutil.copytree(files.SHIPPED, snapshot)
    if has_main:
        (model / "snapshots" / "newer").mkdir()
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text("0123abcd")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    found = tokenizer("some/model-1.5")
    assert found.name == "some/model-1.5"
    assert found.encode("Hello") == load("turnwise").encode("Hello")
    for other in ("some/other", "some/../model-1.5", "../hub/models--some--model-1.5"):
        with pytest.raises(TokenizerError, match="no such model in the local Hugging Face cache"):
            tokenizer(other)


def test_tokens_that_are_declared_beside_the_file_are_added(tmp_path: Path) -> None:
    shutil.copy(SHIPPED, tmp_path)
    base = load("turnwise")
    size = 8000 + len(base.added)
    config = {
        "added_tokens_decoder": {
            str(size): {"content": "<new>", "special": False, "normalized": False, "lstrip": False},
            str(base.id("<s>")): {"content": "<s>", "special": True, "normalized": False},
        },
        "eos_token": {"content": "<s>", "special": False, "normalized": True},
        "additional_special_tokens": ["<more>", "<new>"],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    own = tokenizer(tmp_path, backend="fastokens")
    assert (own.backend, own.named) == ("fastokens", {"eos_token": "<s>"})
    assert own.added["<new>"].id == size and not own.added["<new>"].special
    assert own.added["<more>"].id == size + 1 and own.added["<more>"].special
    assert own.added["<s>"] == base.added["<s>"]
    assert own.whole("<new><more>") == [size, size + 1]
    assert not {size, size + 1} & {*own.encode("<new><more>")}


def test_same_ids_as_transformers_of_the_same_folder(tmp_path: Path) -> None:
    transformers = transformers_()
    shutil.copy(SHIPPED, tmp_path)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<none>",
        "eos_token": "<|im_end|>",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(str(tmp_path))
    own = tokenizer(tmp_path)
    text = "a <none> b<|im_end|>\n"
    assert own.whole(text) == theirs.encode(text, add_special_tokens=False)
    given = tokenizer(theirs)
    assert given.whole(text) == own.whole(text) and given.named["pad_token"] == "<none>"
    assert tokenizer(theirs) is given
    theirs.add_tokens(["<later>"])
    assert "<later>" in tokenizer(theirs).added and "<later>" not in given.added


def test_an_object_of_tokenizers_is_copied() -> None:
    theirs = library.Tokenizer.from_file(str(SHIPPED))
    theirs.enable_truncation(2)
    own = tokenizer(theirs)
    assert own.whole("a b c d <s>") == load("turnwise").whole("a b c d <s>")
    assert theirs.truncation is not None and tokenizer(theirs) is own


def test_an_object_of_fastokens() -> None:
    import fastokens

    theirs = fastokens.Tokenizer.from_file(str(SHIPPED))
    own, base = tokenizer(theirs), load("turnwise")
    text = "Hello 中👩 <s> x"
    assert own.encode(text) == base.encode(text) and own.whole(text) == base.whole(text)
    assert ends(own, text, own.encode(text)) == ends(base, text, base.encode(text))
    assert own.decode(own.whole(text)) == text and own.added == base.added
    theirs.enable_truncation(2)
    with pytest.raises(TokenizerError, match="truncates or pads"):
        tokenizer(copy_settings(theirs))
    prefixed = fastokens.Tokenizer.from_json_str(variant(normalizer=PREPEND))
    with pytest.raises(TokenizerError, match="puts a space before every text"):
        tokenizer(prefixed)


def copy_settings(theirs: Any) -> Any:
    """The same settings in an object that was not seen before."""
    import fastokens

    made = fastokens.Tokenizer.from_file(str(SHIPPED))
    made.enable_truncation(theirs.truncation["max_length"])
    return made


def transformers_() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("transformers")


def test_a_slow_tokenizer_of_transformers() -> None:
    theirs = transformers_().ByT5Tokenizer()
    own = tokenizer(theirs)
    assert own.backend == "transformers" and own.named["eos_token"] == "</s>"
    text = "a é👩</s>b"
    assert own.whole("a</s>b") == theirs.encode("a</s>b", add_special_tokens=False)
    ids = own.encode(text)
    assert own.id("</s>") not in ids and own.decode(ids) == text
    assert ends(own, "aé👩", own.encode("aé👩")) == [1, 1, 2, 2, 2, 2, 3]


def test_tiktoken() -> None:
    theirs = toy_tiktoken()
    own = tokenizer(theirs)
    assert own.named == {"eos_token": "<|endoftext|>"} and [*own.added] == ["<|endoftext|>", "<x>"]
    for text in ("", "ab é👩", "<x>a<|endoftext|>ab"):
        assert own.encode(text) == theirs.encode_ordinary(text)
        assert own.whole(text) == theirs.encode(text, allowed_special="all")
        assert own.decode(own.whole(text)) == own.decode(own.encode(text)) == text
    assert ends(own, "aé👩ab", own.encode("aé👩ab")) == [1, 1, 2, 2, 2, 2, 3, 5]
    assert (
        own.token(256) == "ab"
        and own.id("ab") == 256
        and own.token(200) == "\\xc8"
        and own.token(999) is None
    )


PATTERN = r"""'s|\p{L}+| ?[^\s\p{L}]+|\s+"""
CODES = {
    "a constant": f'class T:\n    pat_str = r"""{PATTERN}"""\n',
    "texts that are joined": f"PAT_STR = '|'.join({PATTERN.split('|')!r})\n",
    "in a function": f"def f():\n    pat_str = {PATTERN!r}\n    raise SystemExit\n",
}


@pytest.mark.parametrize("code", CODES)
def test_a_list_of_ranks_with_the_makers_code_beside_it(tmp_path: Path, code: str) -> None:
    """The code is read, and never run."""
    tiktoken = pytest.importorskip("tiktoken")
    mark = tmp_path / "ran"
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b" \xf0": 257}
    lines = [f"{base64.b64encode(token).decode()} {rank}" for token, rank in ranks.items()]
    (tmp_path / "tiktoken.model").write_text("\n".join(lines))
    (tmp_path / "tokenization_mine.py").write_text(f"open({str(mark)!r}, 'w')\n{CODES[code]}")
    with pytest.raises(TokenizerError, match="has only the ranks"):
        tokenizer(tmp_path)
    added = {
        "258": {"content": "[BOS]", "special": True},
        "260": {"content": "<t>", "special": False},
    }
    config = {"added_tokens_decoder": added, "bos_token": "[BOS]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    own = tokenizer(tmp_path)
    special = {"[BOS]": 258, "<t>": 260}
    theirs = tiktoken.Encoding("t", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    for text in ("", "ab's é👩 12", "[BOS]ab<t>"):
        assert own.encode(text) == theirs.encode_ordinary(text)
        assert own.whole(text) == theirs.encode(text, allowed_special="all")
    assert own.named == {"bos_token": "[BOS]"} and own.added["[BOS]"].special
    assert not own.added["<t>"].special and not mark.exists()
    assert pickle.loads(pickle.dumps(own)).whole("<t>") == [260]


@pytest.mark.parametrize("code", ["pat_str = x", "pat_str = (", "pat_str = [1]", "(" * 9999, ""])
def test_code_without_a_pattern_is_as_none(tmp_path: Path, code: str) -> None:
    pytest.importorskip("tiktoken")
    (tmp_path / "tiktoken.model").write_text("YQ== 0")
    (tmp_path / "tokenization_mine.py").write_text(code)
    with pytest.raises(TokenizerError, match="has only the ranks"):
        tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["o200k_harmony", "cl100k_base"])
def test_rows_of_well_known_vocabularies_are_tiktokens(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    public = pytest.importorskip("tiktoken_ext.openai_public")
    from turnwise.tokens.tokenizers.tiktoken import read_known

    monkeypatch.setattr(public, "load_tiktoken_bpe", lambda *_, **__: {})
    theirs = public.ENCODING_CONSTRUCTORS[name]()
    row = read_known(min(theirs["special_tokens"].values()) - (name == "cl100k_base"))
    spelling, first, last = row.get("reserved", ("", 0, -1))
    texts = {spelling.format(id): id for id in range(first, last + 1)}
    assert row["pattern"] == theirs["pat_str"]
    assert row["special"].items() <= theirs["special_tokens"].items()
    named = {text: id for text, id in theirs["special_tokens"].items() if "reserved" not in text}
    assert named == row["special"] and theirs["special_tokens"].items() <= (texts | named).items()


def toy_tiktoken() -> Any:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
    special = {"<|endoftext|>": 257, "<x>": 258}
    return tiktoken.Encoding(
        "toy", pat_str=r"\w+|\W+", mergeable_ranks=ranks, special_tokens=special
    )


def mistral(file: str) -> str:
    common = pytest.importorskip("mistral_common")
    return str(Path(common.__path__[0]) / "data" / file)


@pytest.mark.parametrize(
    "file", ["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"]
)
def test_sentencepiece(file: str) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    theirs = sentencepiece.SentencePieceProcessor(model_file=mistral(file))
    own = tokenizer(mistral(file))
    assert (
        own.named["bos_token"] == "<s>" and own.added["</s>"].id == 2 and own.added["<s>"].special
    )
    forbidden = {token.id for token in own.added.values()} - own.native

    @law(50)
    @given(TEXTS)
    def check(text: str) -> None:
        ids = own.encode(text)
        assert ids == own.encode(text, AFTER) == theirs.encode(text) and forbidden.isdisjoint(ids)
        assert own.decode(ids) == theirs.decode(ids)
        assert space(own.decode(own.encode("x" + text))) == space("x" + text)
        for at in (START, WITHIN):
            ids = own.encode(text, at)
            found = ends(own, text, ids, at)
            assert (
                len(found) == len(ids)
                and found == sorted(found)
                and (not ids or found[-1] == len(text))
            )

    check()
    assert [own.token(id) for id in own.encode("Hello", WITHIN)] == ["Hello"]
    assert [own.token(id) for id in own.encode("Hello", AFTER)] == ["▁Hello"]
    assert own.whole("<s>Hello</s>") == [1, *theirs.encode("Hello"), 2]
    assert tokenizer(theirs).encode("Hello") == own.encode("Hello")


def test_user_defined_symbols_of_sentencepiece_are_native() -> None:
    own = tokenizer(mistral("mistral_instruct_tokenizer_240323.model.v3"))
    symbol = own.added["[REFERENCE_DOC_1]"]
    assert (
        not symbol.special
        and symbol.id in own.native
        and symbol.id in own.encode("see [REFERENCE_DOC_1]")
    )


@pytest.mark.parametrize(
    "file", ["tekken_240911.json", "mistral_instruct_tokenizer_240323.model.v3"]
)
def test_mistral_common(file: str) -> None:
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    theirs = MistralTokenizer.from_file(mistral(file))
    inner = theirs.instruct_tokenizer.tokenizer
    own = tokenizer(theirs)
    assert own.encode("a") == tokenizer(inner).encode("a") == tokenizer(mistral(file)).encode("a")
    assert own.named["eos_token"] == "</s>" and own.added["[INST]"].id == 3
    for text in ("Hello 中👩 e\u0301", "[INST] a[/INST]</s>", "\n\n  x"):
        ids = own.encode(text)
        assert ids == inner.encode(text, bos=False, eos=False)
        assert own.decode(ids) == text and ends(own, text, ids)[-1] == len(text)
        assert not {own.added[word].id for word in ("[INST]", "[/INST]", "</s>")} & {*ids}
    assert (
        own.whole("[INST]a")[0] == 3 and own.decode(own.whole("[INST]a[/INST]")) == "[INST]a[/INST]"
    )
    assert own.token(3) == "[INST]" and own.id("[INST]") == 3 and own.token(10**8) is None


def test_pickles() -> None:
    for name in ("turnwise", mistral("tokenizer.model.v1")):
        clear_cache()  # one that encoded much text has another back end
        own = tokenizer(name)
        data = pickle.dumps(own)
        assert len(data) < 1000 and pickle.loads(data) is own
        clear_cache()  # as in another process
        again = pickle.loads(data)
        assert again is not own and again.added == own.added
        assert again.encode("Hello <s>") == own.encode("Hello <s>")
        assert (again.name, again.backend, again.named) == (own.name, own.backend, own.named)


def clear_cache() -> None:
    with tokenizers._lock:
        tokenizers._cache.clear()


def test_a_pickled_tokenizer_must_be_found_again(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    shutil.copy(SHIPPED, file)
    data = pickle.dumps(tokenizer(tmp_path))
    file.write_text(variant(normalizer={"type": "Lowercase"}))
    with pytest.raises(TokenizerError, match="is not the tokenizer that was pickled"):
        pickle.loads(data)
    file.unlink()
    with pytest.raises(TokenizerError, match="that was pickled cannot be loaded here: .*no token"):
        pickle.loads(data)


def test_objects_are_pickled_whole() -> None:
    theirs = library.Tokenizer.from_file(str(SHIPPED))
    theirs.add_tokens(["<later>"])
    own = tokenizer(theirs)
    data = pickle.dumps(own)
    again = pickle.loads(data)
    assert again is not own and pickle.loads(data) is again
    assert again.added == own.added and again.whole("a <later>") == own.whole("a <later>")
    assert copy.deepcopy(own) is own


@pytest.mark.parametrize("dropout", [None, 0.5])
def test_the_vocabulary_of_an_object_is_shared(dropout: float | None) -> None:
    theirs = library.Tokenizer.from_file(str(SHIPPED))
    theirs.model.dropout = dropout
    shared = share_model(theirs)
    assert (shared is None) == (dropout is not None)
    own = tokenizer(theirs)
    assert own.whole("Hello <s>") == load("turnwise").whole("Hello <s>")
    assert own.added == load("turnwise").added
    assert theirs.model.dropout == dropout  # nothing is changed


def test_no_library_is_imported_that_is_not_needed() -> None:
    code = (
        "import sys; from turnwise.tokens.tokenizers import tokenizer; tokenizer('turnwise').encode('a')\n"
        "names = ('transformers', 'tiktoken', 'sentencepiece', 'mistral_common', 'numpy')\n"
        "print([name for name in names if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(corpus.ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == "[]"


# -- the shipped tokenizer


def test_the_shipped_tokenizer() -> None:
    own = load("turnwise")
    assert SHIPPED.stat().st_size < 700_000
    assert own.named == {
        "bos_token": "<s>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }
    special = {text for text, token in own.added.items() if token.special}
    assert special >= {
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "[INST]",
        "<|eot_id|>",
        "<end_of_turn>",
        "</s>",
    }
    assert {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>"} <= set(
        own.added
    ) - special
    assert not own.native
    # it knows everyday words of both languages
    assert len(own.encode("Hello, how are you today?")) <= 8
    assert len(own.encode("请问有什么可以帮助您的吗？")) <= 13


# -- what is refused


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "an int is not a tokenizer\n  Accepted: a tokenizer.json, a model folder"),
        (None, "a NoneType is not a tokenizer"),
        ("no/such/folder", "there is no file or folder 'no/such/folder' to read a tokenizer from"),
        (corpus.ROOT / "README.md", "README.md is not a tokenizer file by its name"),
    ],
)
def test_things_that_are_no_tokenizer(given: Any, words: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        tokenizer(given)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", b"{", "is not a tokenizer that `tokenizers` can read: EOF"),
        ("tokenizer.json", b"{}", "is not a tokenizer that `tokenizers` can read: Model missing"),
        ("tokenizer.json", b"\xff\xfe", "cannot be read: 'utf-8' codec"),
        ("tokenizer_config.json", b"{", "has no tokenizer in it (it has tokenizer_config.json)"),
        ("tokenizer.model", b"\nnonsense", "is not a SentencePiece model"),
        ("tokenizer.model", base64.b64encode(b"a") + b" 0\n", "has only the ranks of a vocabulary"),
        ("qwen.tiktoken", base64.b64encode(b"a") + b" 0\n", "make a tiktoken.Encoding"),
        ("tekken.json", b"{}", "is not a tekken.json"),
    ],
)
def test_files_that_are_no_tokenizer(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TokenizerError) as caught:
        tokenizer(tmp_path)
    assert words in str(caught.value)


def test_a_broken_config_is_named(tmp_path: Path) -> None:
    shutil.copy(SHIPPED, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(TokenizerError, match="tokenizer_config.json cannot be read"):
        tokenizer(tmp_path)


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    monkeypatch.delitem(sys.modules, "turnwise.tokens.tokenizers.sentencepiece", raising=False)
    with pytest.raises(
        TokenizerError, match=r"needs the library sentencepiece[\s\S]*turnwise\[spm\]"
    ):
        tokenizer(mistral("mistral_instruct_tokenizer_240216.model.v2"))


@pytest.mark.parametrize("name", ["turnwise", "toy"])
def test_texts_and_ids_that_cannot_be(name: str) -> None:
    own = tokenizer(toy_tiktoken() if name == "toy" else name)
    for encode in (own.encode, own.whole):
        with pytest.raises(
            TokenizerError, match=r"half of a surrogate pair \(U\+D800\) at character 2"
        ):
            encode("ab\ud800")
        with pytest.raises(TokenizerError, match="a tokenizer encodes text, not bytes"):
            encode(b"ab")  # type: ignore[arg-type]
    for bad in (-1, "a", 1.5):
        with pytest.raises(TokenizerError, match="an id is a number from 0 up"):
            own.decode([bad])  # type: ignore[list-item]

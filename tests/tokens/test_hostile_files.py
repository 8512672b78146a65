"""Files of a tokenizer made to break the reader: an error of ours, or a tokenizer that works."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import turnwise
from timing import assert_quick
from turnwise.errors import TokenizerError
from turnwise.tokens.token_matcher import TokenMatcher
from turnwise.tokens.tokenizers import tokenizer
from turnwise.tokens.tokenizers.protocol import Added
from turnwise.tokens.tokenizers.special_tokens_config import read_declarations

DEEP = "[" * 100_000
ODD_FILES = {
    "deep config": {"tokenizer_config.json": DEEP},
    "deep map": {"special_tokens_map.json": DEEP},
    "a list": {"tokenizer_config.json": "[]"},
    "not text": {"tokenizer_config.json": "\ufeff{"},
}
ODD_IDS = ["²", "9" * 5000, "-1", "", "٣", "1.5"]


def sequence(key: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "Sequence", key: parts}


def replacement(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def make_folder(folder: Path, ids: Mapping[str, int], **files: str) -> Path:
    """Write a tokenizer of a few characters, some with these ids, and these files beside it."""
    vocabulary = {character: id for id, character in enumerate("abcdefgh<|>Ġ")} | dict(ids)
    parts = {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(parts), encoding="utf-8")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ODD_FILES)
def test_files_beside_it_that_are_no_objects_are_refused(tmp_path: Path, name: str) -> None:
    (file,) = ODD_FILES[name]
    with pytest.raises(turnwise.TokenizerError, match=file.replace(".", r"\.")):
        tokenizer(make_folder(tmp_path, {}, **ODD_FILES[name]))


@pytest.mark.parametrize("id", ODD_IDS, ids=range(len(ODD_IDS)))
def test_ids_that_are_no_numbers_are_left_out(tmp_path: Path, id: str) -> None:
    table = {"added_tokens_decoder": {id: {"content": "<odd>"}, "7": {"content": "<even>"}}}
    folder = make_folder(tmp_path, {}, **{"tokenizer_config.json": json.dumps(table)})
    assert list(tokenizer(folder).added) == ["<even>"]


@pytest.mark.parametrize("id", [1 << 31, 400_000_000])
def test_fastokens_never_sees_a_huge_id(tmp_path: Path, id: int) -> None:
    """It would ask for a table of that size, and end the process if there is no memory."""
    folder = make_folder(tmp_path, {"h": id})
    with pytest.raises(turnwise.TokenizerError, match=f"an id of {id}"):
        tokenizer(folder, backend="fastokens")
    assert tokenizer(folder).encode("ah") == [0, id]


def test_tokens_that_begin_with_each_other() -> None:
    count = 200
    added = {text: Added(text, id, True) for id, text in enumerate(_nest_tokens(count))}
    matcher = TokenMatcher(added)
    for size in (1, 2, 39, 40, 41, 42, count, count + 7):
        longest = "<" + "a" * min(size, count)
        found = matcher.find("b<" + "a" * size + "b")
        assert [match.token.text for match in found] == [longest]
    assert_quick(lambda: TokenMatcher(added), 2)


def _nest_tokens(count: int) -> list[str]:
    return ["<" + "a" * (size + 1) for size in range(count)]


def test_a_long_token_beside_the_tokenizer_is_refused(tmp_path: Path) -> None:
    config = {"added_tokens_decoder": {"9": {"content": "x" * 90_000}}}
    with pytest.raises(TokenizerError, match="an added token has 90,000 characters"):
        read_declarations(
            make_folder(tmp_path, {}, **{"tokenizer_config.json": json.dumps(config)})
        )


# What a native library would die of

CHARSMAP = {"type": "Precompiled", "precompiled_charsmap": "/////w=="}  # an index of 4 GB
LONG_CHARSMAP = base64.b64encode(bytes(4) + b"a" * 5_000 + b"\0").decode()
DEADLY: dict[str, tuple[dict[str, Any], str]] = {
    "doubling": (
        {"normalizer": sequence("normalizers", [replacement("a", "aa")] * 30)},
        "its normalizer makes a text 1,073,741,824 times as long",
    ),
    "a long replacement": (
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "."}, "content": "x" * 100_000}},
        "makes a text 100,000 times as long",
    ),
    "prefixes": (
        {"normalizer": sequence("normalizers", [{"type": "Prepend", "prepend": "a" * 30}] * 3)},
        "puts 90 characters before a text",
    ),
    "a prefix without a type": (
        {"normalizer": {"type": 0.5, "prepend": "a" * 500}},
        "puts 500 characters before a text",
    ),
    "bytes of bytes": (
        {"pre_tokenizer": sequence("pretokenizers", [{"type": "ByteLevel"}] * 25)},
        "its pre_tokenizer makes a text 33,554,432 times as long",
    ),
    "components": (
        {"normalizer": sequence("normalizers", [{"type": "NFC"}] * 500)},
        "its normalizer has 501 components",
    ),
    "a long pattern": (
        {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": "a|" * 2_000},
                "behavior": "Isolated",
            }
        },
        "has regular expressions of 4,000 characters",
    ),
    "a long token": (
        {"added_tokens": [{"id": 9, "content": "x" * 90_000}]},
        "an added token has 90,000 characters",
    ),
    "many entries": (
        {"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {}}] * 20_000}},
        "its post_processor has more than 10,000 values",
    ),
    "a table": ({"normalizer": CHARSMAP}, "claims an index of 4,294,967,295 bytes"),
    "a table with a long text": (
        {"normalizer": {**CHARSMAP, "precompiled_charsmap": LONG_CHARSMAP}},
        "has a replacement of 5,000 bytes",
    ),
    "a table in a decoder": (
        {"decoder": {"type": "Sequence", "decoders": [CHARSMAP]}},
        "claims an index",
    ),
}


@pytest.mark.parametrize("name", DEADLY)
@pytest.mark.parametrize("layout", ["as usual", "last", "twice", "hidden"])
def test_parts_that_end_the_process_are_refused(tmp_path: Path, name: str, layout: str) -> None:
    """Wherever the part stands in the file, and however its name is spelled."""
    parts, message = DEADLY[name]
    path = make_folder(tmp_path, {}) / "tokenizer.json"
    plain = json.loads(path.read_text())
    ((key, value),) = parts.items()
    if layout == "as usual":
        text = json.dumps({key: value, **{k: v for k, v in plain.items() if k != key}})
    else:
        rest = {k: v for k, v in plain.items() if layout == "twice" or k != key}
        spelling = key if layout != "hidden" else "".join(f"\\u{ord(c):04x}" for c in key)
        text = json.dumps(rest)[:-1] + f', "{spelling}" : {json.dumps(value)}}}'
    path.write_text(text)
    with pytest.raises(turnwise.TokenizerError) as caught:
        tokenizer(tmp_path)
    assert message in str(caught.value)


def test_words_of_a_vocabulary_are_no_parts(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, {"normalizer": 20, "decoder": 21})
    assert tokenizer(folder).encode("ab") == [0, 1]

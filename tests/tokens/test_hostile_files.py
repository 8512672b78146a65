"""Files of a tokenizer that somebody made to break the reader: an error of ours, or a tokenizer that works."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import turnwise
from timing import assert_quick
from turnwise.tokens.token_matcher import TokenMatcher
from turnwise.tokens.tokenizers import tokenizer
from turnwise.tokens.tokenizers.protocol import Added

DEEP = "[" * 100_000
ODD_FILES = {
    "deep config": {"tokenizer_config.json": DEEP},
    "deep map": {"special_tokens_map.json": DEEP},
    "a list": {"tokenizer_config.json": "[]"},
    "not text": {"tokenizer_config.json": "\ufeff{"},
}
ODD_IDS = ["²", "9" * 5000, "-1", "", "٣", "1.5"]


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
    added = {text: Added(text, id, True) for id, text in enumerate(_nested(count))}
    matcher = TokenMatcher(added)
    for size in (1, 2, 39, 40, 41, 42, count, count + 7):
        longest = "<" + "a" * min(size, count)
        found = matcher.find("b<" + "a" * size + "b")
        assert [match.token.text for match in found] == [longest]
    assert_quick(lambda: TokenMatcher(added), 2)


def _nested(count: int) -> list[str]:
    return ["<" + "a" * (size + 1) for size in range(count)]

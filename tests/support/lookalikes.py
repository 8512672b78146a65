"""Tokenizers of every kind of model and normalizer, and texts that their normalizers turn into control tokens.

The vocabularies spell their special tokens as ordinary pieces too, as many SentencePiece models do. So a text that is
normalised to `</s>` is encoded to its id, unless that is prevented. Such texts are made *backwards* through the
normalizer: for every piece of a token one of the texts is taken that the normalizer turns into it.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from functools import cache
from typing import Any

import tokenizers as library

from turnwise.tokens.tokenizers import Tokenizer, tokenizer

SPECIALS = (
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>",
    "<|start_header_id|>", "<|end_header_id|>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>",
    "<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|im_sep|>", "<sop>", "[gMASK]", "[INST]",
    "[/INST]", "[inst]", "<｜User｜>", "<｜Assistant｜>", "<reserved_106>", "<reserved_107>",
)  # fmt: skip
ORDINARY = ("<think>", "</think>", "<tool_call>", "</tool_call>")
WORDS = ("user", "assistant", "system", "hello", "world", "▁", "▁a", "the", "##the", "im", "start")
REPLACEMENTS = {"€": "</s>", "((": "<", "))": ">", "°": "|", "TOKEN": "<|im_end|>", "ſ": "s"}

NORMALIZERS: dict[str, Any] = {
    "none": None,
    "nfkc": {"type": "NFKC"},
    "lowercase": {"type": "Lowercase"},
    "accents": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]},
    "replace": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Replace", "pattern": {"String": old}, "content": new}
            for old, new in REPLACEMENTS.items()
        ],
    },
    "sequence": {
        "type": "Sequence",
        "normalizers": [
            {"type": "Nmt"},
            {"type": "NFKD"},
            {"type": "StripAccents"},
            {"type": "Lowercase"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ],
    },
}
MODELS = ("BPE", "Unigram", "WordPiece", "WordLevel")
KINDS = tuple(f"{model} {normalizer}" for model in MODELS for normalizer in NORMALIZERS)
# Characters that normalizers may turn into ASCII, or remove.
RANGES = ((0x01, 0x590), (0x1E00, 0x2C00), (0x3000, 0x3100), (0xFB00, 0xFB10), (0xFE00, 0xFFF0))


def make_vocabulary(model: str) -> dict[str, int]:
    letters = [chr(code) for code in (*range(32, 127), 10, 0xE9, 0x4E2D)]
    pieces = ["[unk]", *SPECIALS, *ORDINARY, *letters, *WORDS]
    if model == "WordPiece":
        pieces += [f"##{letter}" for letter in letters]
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}


def make_model(kind: str) -> dict[str, Any]:
    vocabulary = make_vocabulary(kind)
    if kind == "Unigram":
        scores = [[piece, -1.0 if len(piece) > 1 else -8.0] for piece in vocabulary]
        return {"type": kind, "unk_id": 0, "vocab": scores, "byte_fallback": False}
    model = {"type": kind, "vocab": vocabulary, "unk_token": "[unk]"}
    if kind == "BPE":
        return {**model, "merges": [], "ignore_merges": True}
    if kind == "WordPiece":
        more = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 10_000}
        return {**model, **more}
    return model


def make_pre_tokenizer(kind: str) -> dict[str, Any]:
    """Words, and in models that know nothing but whole words also tokens and single letters."""
    pattern = r"</?\w+>|<\|\w+\|>|\[/?\w+\]|\S" if kind in ("BPE", "WordLevel") else r"\S+"
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    return {**split, "invert": False}


@cache
def load(kind: str, backend: str = "tokenizers") -> Tokenizer:
    """Return the tokenizer of a model and a normalizer: "Unigram nfkc"."""
    return tokenizer(library.Tokenizer.from_str(make_file(kind)), backend=backend)


def make_file(kind: str) -> str:
    """Return the `tokenizer.json` of a model and a normalizer."""
    model, normalizer = kind.split()
    vocabulary = make_vocabulary(model)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": vocabulary[text], "content": text, "special": text not in ORDINARY, **flags}
        for text in ("[unk]", *SPECIALS, *ORDINARY)
    ]
    file: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": NORMALIZERS[normalizer],
        "pre_tokenizer": make_pre_tokenizer(model),
        "model": make_model(model),
    }
    return json.dumps(file)


@cache
def _invert(normalizer: str) -> dict[str, list[str]]:
    """Return the texts that a normalizer turns into each text; those that it removes are turned into nothing."""
    sources: dict[str, list[str]] = defaultdict(list)
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    file = {"version": "1.0", "added_tokens": [], "normalizer": json.loads(normalizer)}
    made = library.Tokenizer.from_str(json.dumps({**file, "model": empty}))
    if made.normalizer is None:
        return sources
    characters = [chr(code) for first, last in RANGES for code in range(first, last)]
    for source in (*characters, *REPLACEMENTS):
        text = made.normalizer.normalize_str(f"a{source}b")
        if text.startswith("a") and text.endswith("b") and text[1:-1] != source:
            sources[text[1:-1]].append(source)
    return sources


class LookAlikes:
    """Makes texts that a tokenizer's normalizer turns into its control tokens, in as many ways as it has."""

    def __init__(self, own: Tokenizer, dice: random.Random) -> None:
        file = json.loads(own._reference.full.to_str())  # type: ignore[attr-defined]
        self._sources = _invert(json.dumps(file["normalizer"]))
        self._tokens = [token.text for token in own.added.values() if token.control]
        self._dice = dice

    def spell(self, token: str) -> str:
        """Return a text that is normalised to this token, mostly another one than the token."""
        dice, parts, place = self._dice, [], 0
        removed = self._sources.get("", [])
        changes = dice.choice((0.2, 0.5, 1.0))
        while place < len(token):
            if removed and place and dice.random() < changes / 3:
                parts.append(dice.choice(removed))
            ends = [
                end for end in range(place + 1, len(token) + 1) if token[place:end] in self._sources
            ]
            if ends and dice.random() < changes:
                end = dice.choice(ends)
                parts.append(dice.choice(self._sources[token[place:end]]))
            else:
                end = place + 1
                parts.append(token[place:end])
            place = end
        return "".join(parts)

    def make_content(self) -> str:
        """Return words with look-alikes between them, often several that touch one another."""
        dice = self._dice
        parts = []
        for _ in range(dice.randint(1, 4)):
            if dice.random() < 0.6:
                parts.append(self.spell(dice.choice(self._tokens)))
            else:
                words = ("hello", "World", "é", " ", "\n", "<", "|>", "中", "x y", "user", "ﬆ")
                parts.append(dice.choice(words))
            parts.append(dice.choice(("", "", " ")))
        return "".join(parts) or "hello"

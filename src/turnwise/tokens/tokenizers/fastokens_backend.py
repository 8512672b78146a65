"""A `tokenizer.json` as fastokens reads it: the same ids as the reference, many times faster.

What is put before a text is put there by hand, so that one loaded tokenizer serves texts at the start and texts that
were cut. The file it loads is then written anew without the prefix; and with it without `Metaspace`, which
fastokens does not know: replacing spaces, and cutting before them, say the same in parts that it knows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import fastokens  # type: ignore[import-untyped]

from turnwise.tokens.tokenizers.hf_backend import Reference
from turnwise.tokens.tokenizers.normalization import respelled


class Fast:
    """The fastokens library on one file."""

    def __init__(self, text: str, reference: Reference) -> None:
        self.reference = reference
        self.shape = reference.shape
        components = respelled(reference.normalizer, reference.pre_tokenizer)
        self.rewritten = components != (reference.normalizer, reference.pre_tokenizer)
        if self.rewritten:
            parts = dict(zip(("normalizer", "pre_tokenizer"), components, strict=True))
            text = json.dumps({**json.loads(text), **parts})
        self.full = fastokens.Tokenizer.from_json_str(text)
        self.full.no_truncation()
        self.full.no_padding()
        self.full.add_tokens(reference.extra)

    def encode(self, text: str, at: int) -> list[int]:
        ids: list[int] = self.full.encode_ordinary(
            self.shape.put(text) if at in self.shape.prefixed else text
        ).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.full.decode(list(ids), skip_special_tokens=False)
        return text

    def whole(self, text: str) -> list[int]:
        if self.rewritten:  # where a prefix belongs, between added tokens, only the reference knows
            return self.reference.whole(text)
        ids: list[int] = self.full.encode(text).ids
        return ids

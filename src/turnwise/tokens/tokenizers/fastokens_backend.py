"""A `tokenizer.json` as fastokens reads it: the same ids as the reference, many times faster.

A prefix (the space that some tokenizers put before a text) is added here, in Python, so that one loaded tokenizer
serves texts at the start and texts that were split. For that the file is rewritten without the prefix, and without
`Metaspace`, which fastokens does not know: replacing spaces and splitting before them do the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate

import fastokens  # type: ignore[import-untyped]

from turnwise.tokens.tokenizers.backends import FlatIds
from turnwise.tokens.tokenizers.hf_backend import ReferenceBackend
from turnwise.tokens.tokenizers.normalization import rewrite_without_prefix
from turnwise.tokens.tokenizers.protocol import WHOLE

MIN_PARALLEL = 64  # texts: to hand fewer to other threads takes longer than to encode them
ID_SIZE = 4  # bytes

load = fastokens.Tokenizer.from_json_str


class FastokensBackend:
    """The fastokens library on what the reference has loaded."""

    def __init__(self, reference: ReferenceBackend) -> None:
        self.reference = reference
        self.pipeline = reference.pipeline
        components = rewrite_without_prefix(reference.normalizer, reference.pre_tokenizer)
        self.is_rewritten = components != (reference.normalizer, reference.pre_tokenizer)
        text, early = reference.to_text(), reference.early
        if self.is_rewritten:
            parts = dict(zip(("normalizer", "pre_tokenizer"), components, strict=True))
            text, early = json.dumps({**json.loads(text), **parts}), None
        self.full = early.result() if early else load(text)
        self.full.no_truncation()
        self.full.no_padding()
        self.full.add_tokens(reference.extra)

    def encode(self, text: str, position: int) -> list[int]:
        if position == WHOLE and self.is_rewritten:
            # Only the reference knows where prefixes belong between added tokens.
            return self.reference.encode(text, WHOLE)
        if position in self.pipeline.prefixed:
            text = self.pipeline.add_prefix(text)
        encode = self.full.encode if position == WHOLE else self.full.encode_ordinary
        ids: list[int] = encode(text).ids
        return ids

    def whole_flat(self, texts: Sequence[str]) -> FlatIds | None:
        """Return the ids that `whole` gives for each of many texts, by one call; None if only the reference knows."""
        if self.is_rewritten:
            return None
        if len(texts) < MIN_PARALLEL:
            parts = [self.full.encode_batch_flat([text])[0] for text in texts]
            return b"".join(parts), [0, *accumulate(len(part) // ID_SIZE for part in parts)]
        ids, offsets = self.full.encode_batch_flat(texts)
        return ids, memoryview(offsets).cast("Q").tolist()

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.full.decode(list(ids), skip_special_tokens=False))

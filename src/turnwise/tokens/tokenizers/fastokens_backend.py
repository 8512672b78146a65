"""A `tokenizer.json` as fastokens reads it: the same ids as the reference, many times faster.

Loading takes more than a second, and leaves the interpreter to other threads. So it can be done beside the reference
(`load_file`), unless the file must be rewritten, of which only the reference knows everything.

A prefix (the space that some tokenizers put before a text) is added here, in Python, so that one loaded tokenizer
serves texts at the start and texts that were split. For that the file is rewritten without the prefix, and without
`Metaspace`, which fastokens does not know: replacing spaces and splitting before them do the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import fastokens  # type: ignore[import-untyped]

from turnwise.tokens.tokenizers.backends import FlatIds
from turnwise.tokens.tokenizers.file_checks import may_have_high_id, read_before_model
from turnwise.tokens.tokenizers.hf_backend import ReferenceBackend
from turnwise.tokens.tokenizers.normalization import rewrite_without_prefix


def can_load_file(text: str) -> bool:
    """Return whether the file can be loaded as it is: it puts no prefix before a text."""
    try:
        parts = dict(read_before_model(text)[0])
        components = parts.get("normalizer"), parts.get("pre_tokenizer")
        return not may_have_high_id(text) and rewrite_without_prefix(*components) == components
    except Exception:  # the reference has not read the file, so it may have any values
        return False


def load_file(text: str) -> Any:
    """Return the tokenizer of fastokens for a file."""
    return fastokens.Tokenizer.from_json_str(text)


class FastokensBackend:
    """The fastokens library on what the reference has loaded.

    Args:
        reference: the reference.
        loaded: what `load_file` has returned, if that was done beside the reference.
    """

    def __init__(self, reference: ReferenceBackend, loaded: Any = None) -> None:
        self.reference = reference
        self.pipeline = reference.pipeline
        components = rewrite_without_prefix(reference.normalizer, reference.pre_tokenizer)
        self.is_rewritten = components != (reference.normalizer, reference.pre_tokenizer)
        if self.is_rewritten:
            parts = dict(zip(("normalizer", "pre_tokenizer"), components, strict=True))
            loaded = load_file(json.dumps({**json.loads(reference.to_text()), **parts}))
        self.full = loaded or load_file(reference.to_text())
        self.full.no_truncation()
        self.full.no_padding()
        self.full.add_tokens(reference.extra)

    def encode(self, text: str, position: int) -> list[int]:
        if position in self.pipeline.prefixed:
            text = self.pipeline.add_prefix(text)
        ids: list[int] = self.full.encode_ordinary(text).ids
        return ids

    def whole_flat(self, texts: Sequence[str]) -> FlatIds | None:
        """Return the ids that `whole` gives for each of many texts, by one call; None if only the reference knows."""
        if self.is_rewritten:
            return None
        ids, offsets = self.full.encode_batch_flat(texts)
        return ids, memoryview(offsets).cast("Q").tolist()

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.full.decode(list(ids), skip_special_tokens=False)
        return text

    def whole(self, text: str) -> list[int]:
        if self.is_rewritten:
            # Only the reference knows where prefixes belong between added tokens.
            return self.reference.whole(text)
        ids: list[int] = self.full.encode(text).ids
        return ids

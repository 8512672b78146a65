"""A `tokenizer.json`, encoded by fastokens where it can be trusted to, and by `tokenizers` where not.

`tokenizers` is the reference (`reference.py`). fastokens reads the same file (`fast.py`), is many times faster, and is
used after it gave the same ids on a fixed set of texts (`selfcheck.py`). Where it cannot, a warning says so, once.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers as library

from turnwise.errors import TokenizerError, TurnwiseWarning
from turnwise.tokens.tokenizers.backends import chosen
from turnwise.tokens.tokenizers.foreign_errors import STOPS, check_ids, check_text, guarded, reason
from turnwise.tokens.tokenizers.hf_backend import Reference
from turnwise.tokens.tokenizers.lazy import adapter
from turnwise.tokens.tokenizers.offsets import Widths, ends_of_starts
from turnwise.tokens.tokenizers.protocol import AFTER, START, WITHIN, Added
from turnwise.tokens.tokenizers.selfcheck import Encoder, disagreement, same_texts
from turnwise.tokens.tokenizers.special_tokens_config import Declared

NOTHING = Declared()

_warned: set[str] = set()


class HuggingFace:
    """A tokenizer out of a `tokenizer.json`. `changed` names the added tokens that are matched after normalising."""

    def __init__(
        self,
        text: str,
        *,
        name: str = "tokenizer.json",
        declared: Declared = NOTHING,
        backend: str | None = None,
    ) -> None:
        wanted = chosen(backend)
        with guarded(f"{name} is not a tokenizer that `tokenizers` can read"):
            self._reference = Reference(text, declared)
        self.name = name
        self.named: Mapping[str, str] = dict(declared.named)
        self.added: Mapping[str, Added] = self._reference.added()
        self.changed = self._reference.changed()
        self.native = frozenset(
            token.id
            for token in self.added.values()
            if self._counts(token) and self._reference.reached(token)
        )
        self._widths = Widths(self._reference.bytes_of)
        fast = self._fast(text, wanted) if wanted != "tokenizers" else None
        self._engine: Encoder = fast or self._reference
        self._decoder: Encoder = (
            fast if fast and same_texts(fast, self._reference) else self._reference
        )
        self.backend = "fastokens" if fast else "tokenizers"

    def _counts(self, token: Added) -> bool:
        unknown = {
            self.named.get("unk_token"),
            getattr(self._reference.full.model, "unk_token", None),
        }
        return token.control and token.text not in unknown

    def _fast(self, text: str, wanted: str | None) -> Encoder | None:
        """fastokens, if it loads the file and agrees with the reference."""
        try:
            fast: Encoder = adapter("fastokens_backend").Fast(text, self._reference)
            positions = (START, AFTER, WITHIN) if self._reference.shape.prefixed else (START,)
            problem = disagreement(fast, self._reference, self.added.values(), positions)
        except STOPS:
            raise
        # BaseException: a panic in Rust is not an Exception
        except BaseException as error:
            problem = reason(error)
        if not problem:
            return fast
        if wanted:
            raise TokenizerError(f"{self.name} cannot be encoded by fastokens: {problem}")
        if self.name not in _warned:
            _warned.add(self.name)
            message = (
                f"{self.name} is encoded by tokenizers, which is slower: "
                f"fastokens has a problem with it ({problem})"
            )
            warnings.warn(message, TurnwiseWarning, stacklevel=2)
        return None

    def encode(self, text: str, at: int = START) -> list[int]:
        try:
            return self._engine.encode(text, at)
        except STOPS:
            raise
        except BaseException:  # a panic in Rust is not an Exception
            check_text(text)
            with guarded(f"{self.name} cannot encode a text of {len(text)} characters"):
                return self._reference.encode(text, at)

    def whole(self, text: str) -> list[int]:
        try:
            return self._engine.whole(text)
        except STOPS:
            raise
        except BaseException:  # a panic in Rust is not an Exception
            check_text(text)
            with guarded(f"{self.name} cannot encode a text of {len(text)} characters"):
                return self._reference.whole(text)

    def ends(self, text: str, ids: Sequence[int], at: int = START) -> list[int]:
        form = self._reference.shape
        if form.keeps(text):
            found = self._widths.ends(
                ids, len(text), len(form.prefix) if at in form.prefixed else 0
            )
            if found is not None:
                return found
        check_text(text)
        encoding = self._reference.at(at).encode(text, add_special_tokens=False)
        if encoding.ids != list(ids):
            raise TokenizerError(f"these {len(ids)} ids are not those of this text: {text[:40]!r}")
        return ends_of_starts((start for start, _ in encoding.offsets), len(text))

    def decode(self, ids: Sequence[int]) -> str:
        check_ids(ids)
        try:
            return self._decoder.decode(ids)
        except STOPS:
            raise
        except BaseException:  # a panic in Rust is not an Exception
            with guarded(f"{self.name} cannot decode {len(ids)} ids"):
                return self._reference.decode(ids)

    def token(self, id: int) -> str | None:
        return self._reference.full.id_to_token(id) if 0 <= id < 1 << 32 else None

    def id(self, text: str) -> int | None:
        return self._reference.full.token_to_id(text)

    def __repr__(self) -> str:
        return f"<tokenizer {self.name} ({self.backend}, {self._reference.full.get_vocab_size()} tokens)>"

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (self._reference.full.to_str(), self.name, self.named, self.backend)


def restored(text: str, name: str, named: Mapping[str, str], backend: str) -> HuggingFace:
    """Out of a pickle: the back end was checked before."""
    return HuggingFace(text, name=name, declared=Declared(named), backend=backend)


def adapt(given: Any, backend: str | None) -> HuggingFace | None:
    """An object of the `tokenizers` library. Its present state is copied: later changes to it are not seen."""
    if not isinstance(given, library.Tokenizer):
        return None
    return HuggingFace(given.to_str(), name="a tokenizers.Tokenizer", backend=backend)

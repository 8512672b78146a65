"""A `tokenizer.json`, encoded by fastokens where it agrees with the reference, else by `tokenizers`.

`tokenizers` is the reference (`hf_backend.py`). fastokens reads the same file (`fastokens_backend.py`), is many times
faster, and is used after it gave the same ids on a fixed set of texts (`selfcheck.py`). Where it does not, a warning
says so, once. It takes long to load, so that is done when enough text has been encoded (`deferred.py`), or at once if
the caller asks for it by name or knows that there will be much text ("eager"): then both libraries read the file at the
same time, if fastokens may read it as it is.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any

import tokenizers as library

from turnwise.errors import TokenizerError, TurnwiseWarning
from turnwise.token_ids import to_token_ids
from turnwise.tokens.tokenizers.alignment import align_tokens
from turnwise.tokens.tokenizers.backends import EAGER, FlatIds, choose_backend
from turnwise.tokens.tokenizers.base import LoadedTokenizer
from turnwise.tokens.tokenizers.deferred import (
    ALLOWANCE_PER_TOKEN,
    DeferredBackend,
    FastBackend,
)
from turnwise.tokens.tokenizers.file_checks import check_tokenizer_file
from turnwise.tokens.tokenizers.foreign_errors import (
    NOT_WRAPPED,
    check_text,
    describe_error,
    wrap_errors,
)
from turnwise.tokens.tokenizers.hf_backend import ReferenceBackend
from turnwise.tokens.tokenizers.lazy import import_adapter
from turnwise.tokens.tokenizers.offsets import Offsets
from turnwise.tokens.tokenizers.protocol import AFTER, START, WHOLE, WITHIN, Tokenizer
from turnwise.tokens.tokenizers.selfcheck import Backend, find_disagreement, have_same_decoder
from turnwise.tokens.tokenizers.special_tokens_config import DeclaredTokens

NOTHING_DECLARED = DeclaredTokens()
# fastokens has one row for each id up to the highest, and ends the process without memory.
MAX_FAST_ID = 1 << 22
# Files that fastokens must not read before `tokenizers` has: an id may be too high, or the file must be rewritten.
MAYBE_HIGH = re.compile(r":\s*\d{7}")
NOT_PLAIN = re.compile(r"'(?:Metaspace|Prepend)'|\[\d{7}")
MAX_UNPICKLED = 8  # tokenizers that were pickled whole and are kept

_warned: set[str] = set()  # names of tokenizers that fastokens cannot encode


class HuggingFace(LoadedTokenizer):
    """A tokenizer from a `tokenizer.json`."""

    backend = "tokenizers"

    def __init__(
        self,
        source: str | library.Tokenizer,
        *,
        name: str = "tokenizer.json",
        declared: DeclaredTokens = NOTHING_DECLARED,
        backend: str | None = None,
    ) -> None:
        self._wanted = choose_backend(backend)
        early = None
        with (
            wrap_errors(
                f"{name} is not a tokenizer that `tokenizers` can read",
                "It should be the tokenizer.json of a model.",
            ),
            ThreadPoolExecutor(1) as thread,
        ):
            if isinstance(source, str):
                parts = check_tokenizer_file(source)
                if self._wanted == EAGER and not (
                    NOT_PLAIN.search(repr(parts)) or MAYBE_HIGH.search(source)
                ):
                    # fastokens lets other threads run while it loads, and `tokenizers` does not.
                    with suppress(TokenizerError, RuntimeError):  # no fastokens, or no threads
                        early = thread.submit(import_adapter("fastokens_backend").load, source)
            self._reference = reference = ReferenceBackend(source, declared, early)
            super().__init__(name, reference.list_added(), declared.named, reference.find_native())
        self._encoder: Backend | DeferredBackend = reference
        self._decoder: Backend = reference
        if self._wanted in ("fastokens", EAGER):
            self._use_fastokens(self._load_fastokens())
        elif self._wanted is None:
            allowance = ALLOWANCE_PER_TOKEN * reference.full.get_vocab_size()
            self._encoder = DeferredBackend(
                reference, self._load_fastokens, self._use_fastokens, allowance
            )

    def _load_fastokens(self) -> FastBackend:
        reference = self._reference
        positions = (START, AFTER, WITHIN) if reference.pipeline.prefixed else (START,)
        highest = 0 if reference.early else max(reference.full.get_vocab().values(), default=0)
        if highest > MAX_FAST_ID:
            return FastBackend(None, f"it has an id of {highest}, too high for a table of all ids")
        try:
            fast: Backend = import_adapter("fastokens_backend").FastokensBackend(reference)
            problem = find_disagreement(fast, reference, self.added.values(), positions)
            return FastBackend(fast, problem, not problem and have_same_decoder(fast, reference))
        except NOT_WRAPPED:
            raise
        # BaseException: a panic in Rust is not an Exception
        except BaseException as error:
            return FastBackend(None, describe_error(error))

    def _use_fastokens(self, fast: FastBackend) -> None:
        """Encode with fastokens from now on, if it agrees with the reference."""
        if fast.backend and not fast.problem:
            self._encoder, self.backend = fast.backend, "fastokens"
            if fast.decodes_alike:
                self._decoder = fast.backend
            return
        self._encoder = self._reference
        if self._wanted == "fastokens":
            raise TokenizerError(f"{self.name} cannot be encoded by fastokens: {fast.problem}")
        if self.name not in _warned:
            _warned.add(self.name)
            message = (
                f"{self.name} is encoded by tokenizers, which is slower: "
                f"fastokens has a problem with it ({fast.problem})"
            )
            warnings.warn(message, TurnwiseWarning, stacklevel=2)

    def _ask(self, backend: object, method: str, given: Any, *arguments: int) -> Any:
        """Ask a back end; if it fails, the reference, whose error then says what is wrong."""
        try:
            return getattr(backend, method)(given, *arguments)
        except NOT_WRAPPED:
            raise
        except BaseException:  # a panic in Rust is not an Exception
            action = f"decode {len(given)} ids"
            if method != "decode":
                check_text(given)
                action = f"encode a text of {len(given)} characters"
            with wrap_errors(f"{self.name} cannot {action}"):
                return getattr(self._reference, method)(given, *arguments)

    def encode(self, text: str, position: int = START) -> list[int]:
        ids: list[int] = self._ask(self._encoder, "encode", text, position)
        return ids

    def whole(self, text: str) -> list[int]:
        return self.encode(text, WHOLE)

    def decode(self, ids: Sequence[int]) -> str:
        ids = to_token_ids(ids, "a tokenizer decodes a list of ids")
        text: str = self._ask(self._decoder, "decode", ids)
        return text

    def load_fast_backend(self, characters: int = sys.maxsize) -> None:
        """Load the fast back end now, and not behind the first texts: loading holds up the threads of a server.

        With a number of characters that are about to be encoded, only if that pays.
        """
        if isinstance(self._encoder, DeferredBackend):
            self._encoder.load_for(characters)

    def whole_flat(self, texts: Sequence[str]) -> FlatIds | None:
        """Return the ids that `whole` gives for many texts, by one call; None if each must be encoded by itself."""
        self.load_fast_backend(sum(map(len, texts)))
        encode = getattr(self._encoder, "whole_flat", None)
        if encode is None:
            return None
        found: FlatIds | None = None
        # A text that cannot be encoded is found one by one.
        with suppress(TokenizerError), wrap_errors(f"{self.name} cannot encode many texts"):
            found = encode(texts)
        return found

    def offsets(self, text: str, ids: Sequence[int], position: int = START) -> list[Offsets]:
        pipeline = self._reference.pipeline
        if position != WHOLE and pipeline.keeps(text):
            # Fast path: the tokens spell the text, so their widths give the offsets.
            prefix_length = len(pipeline.prefix) if position in pipeline.prefixed else 0
            offsets = self._widths.offsets(ids, len(text), prefix_length)
            if offsets is not None:
                return offsets
        check_text(text)
        with wrap_errors(f"{self.name} cannot find the tokens of a text of {len(text)} characters"):
            encoding = self._reference.encode_with_offsets(text, position)
        if encoding.ids != list(ids):
            return align_tokens(text, ids, self.added.values(), self.token_bytes)
        found: list[Offsets] = encoding.offsets
        return found

    def token_bytes(self, id: int) -> bytes | None:
        return self._reference.token_bytes(id)

    def token(self, id: int) -> str | None:
        return self._reference.full.id_to_token(id) if 0 <= id < 1 << 32 else None

    def id(self, text: str) -> int | None:
        return self._reference.full.token_to_id(text)

    def __repr__(self) -> str:
        size = self._reference.full.get_vocab_size()
        return f"<tokenizer {self.name} ({self.backend}, {size} tokens)>"

    @cached_property
    def _serialised(self) -> str:
        return self._reference.full.to_str()

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.load_source is not None:
            return super().__reduce_ex__(protocol)
        return _unpickle, (self._serialised, self.name, tuple(self.named.items()), self._wanted)


@lru_cache(maxsize=MAX_UNPICKLED)
def _unpickle(
    text: str, name: str, named: tuple[tuple[str, str], ...], backend: str | None
) -> HuggingFace:
    """Rebuild a tokenizer that was pickled whole; many sessions with one tokenizer build it once."""
    return HuggingFace(text, name=name, declared=DeclaredTokens(dict(named)), backend=backend)


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    """Wrap an object of the `tokenizers` library. It shares the vocabulary; tokens added later are not seen."""
    if not isinstance(given, library.Tokenizer):
        return None
    return HuggingFace(given, name="a tokenizers.Tokenizer", backend=backend)

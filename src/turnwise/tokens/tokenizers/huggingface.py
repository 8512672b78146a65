"""A `tokenizer.json`, encoded by fastokens where it can be trusted to, and by `tokenizers` where not.

`tokenizers` is the reference: it defines the ids, the added tokens and the offsets. fastokens reads the same file, is
many times faster, and is used after it gave the same ids on a fixed set of texts (`selfcheck.py`). Both are loaded;
neither is loaded twice. Two things need a tokenizer other than the one in the file: plain text, one without added
tokens; text that was cut, one that also puts nothing before it. Both share the reference's model, so they cost nothing.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import tokenizers as library

from turnwise.errors import TokenizerError, TurnwiseWarning
from turnwise.tokens.tokenizers.backends import chosen
from turnwise.tokens.tokenizers.declared import Declared
from turnwise.tokens.tokenizers.guard import STOPS, check_ids, check_text, guarded, reason
from turnwise.tokens.tokenizers.protocol import AFTER, START, WITHIN, Added
from turnwise.tokens.tokenizers.selfcheck import disagreement
from turnwise.tokens.tokenizers.shape import Component, Shape, shape, unprefixed
from turnwise.tokens.tokenizers.widths import Widths, bytes_of_alphabet, bytes_of_piece, ends_of_starts

NOWHERE = "\U0010fffd"  # a character that no vocabulary has
BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
EMPTY = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}

NOTHING = Declared()

_warned: set[str] = set()


class Reference:
    """The `tokenizers` library on one file, and the facts it knows about it."""

    def __init__(self, text: str, declared: Declared) -> None:
        self.full = library.Tokenizer.from_str(text)
        self.full.no_truncation()
        self.full.no_padding()
        if getattr(self.full.model, "dropout", None):
            self.full.model.dropout = None  # the same text has the same ids
        self.extra = self.missing(declared)
        self.full.add_tokens(self.extra)
        self.normalizer, self.pre_tokenizer = state(self.full.normalizer), state(self.full.pre_tokenizer)
        self.shape: Shape = shape(self.normalizer, self.pre_tokenizer)
        self.plain = self.beside(self.full.normalizer, self.full.pre_tokenizer)

    def missing(self, declared: Declared) -> list[library.AddedToken]:
        """The declared tokens that the file does not have, or has with other flags."""
        table = self.full.get_added_tokens_decoder().values()
        texts, present = {token.content for token in table}, {repr(token) for token in table}
        rows = [library.AddedToken(**row) for row in declared.rows]
        texts |= {token.content for token in rows}
        others = [library.AddedToken(**row) for row in declared.others if row["content"] not in texts]
        return [token for token in rows if repr(token) not in present] + others

    def beside(self, normalizer: Any, pre_tokenizer: Any) -> library.Tokenizer:
        """A tokenizer with the same model and no added tokens."""
        made = library.Tokenizer(self.full.model)
        made.normalizer, made.pre_tokenizer = normalizer, pre_tokenizer
        return made

    @cached_property
    def bare(self) -> library.Tokenizer:
        """Plain, and nothing is put before the text."""
        parts = {"normalizer": unprefixed(self.normalizer), "pre_tokenizer": unprefixed(self.pre_tokenizer)}
        donor = library.Tokenizer.from_str(json.dumps({**EMPTY, **parts}))
        return self.beside(donor.normalizer, donor.pre_tokenizer)

    def at(self, at: int) -> library.Tokenizer:
        return self.bare if self.shape.prefixed and at not in self.shape.prefixed else self.plain

    def encode(self, text: str, at: int) -> list[int]:
        ids: list[int] = self.at(at).encode(text, add_special_tokens=False).ids
        return ids

    def whole(self, text: str) -> list[int]:
        ids: list[int] = self.full.encode(text, add_special_tokens=False).ids
        return ids

    def added(self) -> dict[str, Added]:
        rows = sorted(self.full.get_added_tokens_decoder().items())
        return {
            token.content: Added(token.content, id, token.special, token.lstrip, token.rstrip, token.single_word)
            for id, token in rows
        }

    def changed(self) -> frozenset[str]:
        """Added tokens that are looked for in the normalised text, under another spelling."""
        normalizer = self.full.normalizer
        rows = self.full.get_added_tokens_decoder().values() if normalizer else ()
        return frozenset(
            token.content
            for token in rows
            if token.normalized and normalizer.normalize_str(token.content) != token.content
        )

    def reached(self, token: Added) -> bool:
        """Whether the model gives this id for its own spelling: then it may do so wherever that stands in a text."""
        if self.full.model.token_to_id(token.text) != token.id:
            return False
        return any(found.id == token.id for found in self.full.model.tokenize(token.text))

    @cached_property
    def unknown(self) -> frozenset[int]:
        """Ids that stand for whatever the vocabulary does not have."""
        return frozenset(found.id for found in self.full.model.tokenize(NOWHERE) if found.value not in BYTES)

    def bytes_of(self, id: int) -> bytes | None:
        spelling = self.full.model.id_to_token(id)
        if spelling is None or id in self.unknown:
            return None
        return bytes_of_alphabet(spelling) if self.shape.bytelevel else bytes_of_piece(spelling)


class Fast:
    """The fastokens library on one file."""

    def __init__(self, text: str, reference: Reference) -> None:
        import fastokens  # type: ignore[import-untyped]

        def load(text: str) -> Any:
            made = fastokens.Tokenizer.from_json_str(text)
            made.no_truncation()
            made.no_padding()
            return made

        self.full = load(text)
        self.full.add_tokens(reference.extra)
        self.prefixed = reference.shape.prefixed
        self._load, self._text = load, text if self.prefixed else ""

    @cached_property
    def bare(self) -> Any:
        given = json.loads(self._text)
        parts = {key: unprefixed(given.get(key)) for key in ("normalizer", "pre_tokenizer")}
        return self._load(json.dumps({**given, **parts}))

    def encoder(self, at: int) -> Callable[[str], Any]:
        """The library's own function for plain text at this position."""
        encode: Callable[[str], Any] = (
            self.bare if self.prefixed and at not in self.prefixed else self.full
        ).encode_ordinary
        return encode

    def encode(self, text: str, at: int) -> list[int]:
        ids: list[int] = self.encoder(at)(text).ids
        return ids

    def whole(self, text: str) -> list[int]:
        ids: list[int] = self.full.encode(text).ids
        return ids


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
            token.id for token in self.added.values() if self._counts(token) and self._reference.reached(token)
        )
        self._widths = Widths(self._reference.bytes_of)
        fast = self._fast(text, wanted) if wanted != "tokenizers" else None
        self._engine: Fast | Reference = fast or self._reference
        self.backend = "fastokens" if fast else "tokenizers"

    def _counts(self, token: Added) -> bool:
        unknown = {self.named.get("unk_token"), getattr(self._reference.full.model, "unk_token", None)}
        return token.control and token.text not in unknown

    def _fast(self, text: str, wanted: str | None) -> Fast | None:
        """fastokens, if it loads the file and agrees with the reference."""
        try:
            fast = Fast(text, self._reference)
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
                f"{self.name} is encoded by tokenizers, which is slower: fastokens has a problem with it ({problem})"
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
            found = self._widths.ends(ids, len(text), form.prefix if at in form.prefixed else 0)
            if found is not None:
                return found
        check_text(text)
        encoding = self._reference.at(at).encode(text, add_special_tokens=False)
        if encoding.ids != list(ids):
            raise TokenizerError(f"these {len(ids)} ids are not those of this text: {text[:40]!r}")
        return ends_of_starts((start for start, _ in encoding.offsets), len(text))

    def decode(self, ids: Sequence[int]) -> str:
        check_ids(ids)
        with guarded(f"{self.name} cannot decode {len(ids)} ids"):
            text: str = self._reference.full.decode(ids, skip_special_tokens=False)
            return text

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


def state(component: Any) -> Component | None:
    """A component of the library as the JSON it was read from."""
    found: Component | None = json.loads(component.__getstate__()) if component else None
    return found


def adapt(given: Any, backend: str | None) -> HuggingFace | None:
    """An object of the `tokenizers` library. Its present state is copied: later changes to it are not seen."""
    if not isinstance(given, library.Tokenizer):
        return None
    return HuggingFace(given.to_str(), name="a tokenizers.Tokenizer", backend=backend)

"""What the smaller adapters share.

An adapter implements four methods: `encode_plain` (ids of plain text), `token_bytes` (the bytes of an id), `token` and
`id`. The rest follows from them: added tokens are found by a `TokenMatcher`, offsets are sums of token widths,
decoding joins bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from turnwise.token_ids import to_token_ids
from turnwise.tokens.token_matcher import TokenMatcher
from turnwise.tokens.tokenizers.alignment import align_tokens
from turnwise.tokens.tokenizers.foreign_errors import check_text, wrap_errors
from turnwise.tokens.tokenizers.offsets import Offsets, TokenWidths
from turnwise.tokens.tokenizers.pickling import compute_fingerprint, load_again
from turnwise.tokens.tokenizers.protocol import AFTER, START, WITHIN, Added


class LoadedTokenizer:
    """What all adapters have: a name, the tables of tokens, and a short form to be pickled in."""

    def __init__(
        self,
        name: str,
        added: Iterable[Added],
        named: Mapping[str, str],
        native: Iterable[int] = (),
    ) -> None:
        self.name = name
        self.added: Mapping[str, Added] = {token.text: token for token in added}
        self.named: Mapping[str, str] = dict(named)
        self.native = frozenset(native)
        self._added_texts = {token.id: token.text for token in self.added.values()}
        self.load_source: Any = None  # set by the loader of files: reads the same one again
        self._widths = TokenWidths(self.token_bytes)

    def token_bytes(self, id: int) -> bytes | None:
        """Return the bytes that an id stands for, None if that is not known."""
        raise NotImplementedError

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.load_source is not None:
            return load_again, (self.load_source, compute_fingerprint(self))
        return super().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: object) -> LoadedTokenizer:
        return self  # it never changes


class BaseTokenizer(LoadedTokenizer):
    """A library that encodes plain text, with a table of added tokens."""

    backend = ""
    prefix_length = 0  # how many characters the library may put before a text

    def encode_plain(self, text: str, position: int) -> list[int]:
        """Return the ids of plain text, in which no added token is recognised."""
        raise NotImplementedError

    def token(self, id: int) -> str | None:
        raise NotImplementedError

    def id(self, text: str) -> int | None:
        raise NotImplementedError

    @cached_property
    def _matcher(self) -> TokenMatcher:
        return TokenMatcher(self.added)

    def encode(self, text: str, position: int = START) -> list[int]:
        check_text(text)
        with wrap_errors(f"{self.name} cannot encode a text of {len(text)} characters"):
            return self.encode_plain(text, position)

    def whole(self, text: str) -> list[int]:
        check_text(text)
        ids: list[int] = []
        done = 0
        for start, end, token, _ in (*self._matcher.find(text), (len(text), 0, None, 0)):
            if start > done:
                ids += self.encode(text[done:start], AFTER if ids else START)
            if token is not None:
                ids.append(token.id)
            done = end
        return ids

    def offsets(self, text: str, ids: Sequence[int], position: int = START) -> list[Offsets]:
        prefix_length = 0 if position == WITHIN else self.prefix_length
        offsets = self._widths.offsets(ids, len(text), prefix_length)
        return offsets or align_tokens(text, ids, self.added.values(), self.token_bytes)

    def decode(self, ids: Sequence[int]) -> str:
        ids = to_token_ids(ids, "a tokenizer decodes a list of ids")
        with wrap_errors(f"{self.name} cannot decode {len(ids)} ids"):
            return "".join(self._decode_parts(ids))

    def _decode_parts(self, ids: Sequence[int]) -> Iterable[str]:
        """Yield the text of the ids, split at added tokens."""
        start = 0
        for index, id in enumerate(ids):
            if id in self._added_texts:
                yield self.decode_plain(ids[start:index])
                yield self._added_texts[id]
                start = index + 1
        yield self.decode_plain(ids[start:])

    def decode_plain(self, ids: Sequence[int]) -> str:
        """Return the text of ids that are not added tokens; unknown ids are skipped."""
        return b"".join(self.token_bytes(id) or b"" for id in ids).decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"<tokenizer {self.name} ({self.backend})>"

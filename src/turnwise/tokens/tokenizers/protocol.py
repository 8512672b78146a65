"""The tokenizer protocol: an encoder of plain text, and a table of the tokens that are not plain text.

Libraries mix the two: their `encode` looks for added tokens (`<|im_end|>`) in any text. Here they are separate.
`encode` knows no added tokens, so whatever is given to it stays ordinary text; `added` is a table, and who may write
which of its tokens is decided by the origin of the text (`attribution.py`).

Some tokenizers put a space before a text (SentencePiece): once, or after every added token. So `encode` is told the
position of the text: at the START of everything, AFTER an added token, or WITHIN a text that was split, where no space
may be added. WHOLE is for offsets only: those of the ids that `whole` gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

START, AFTER, WITHIN, WHOLE = range(4)


class Added(NamedTuple):
    """An added token: recognised in text before the model of the tokenizer sees it."""

    text: str
    id: int
    special: bool = True
    lstrip: bool = False  # takes along the white space before it
    rstrip: bool = False  # takes along the white space after it
    single_word: bool = False  # does not match inside a word
    normalized: bool = False  # matches the text that a normalizer has made of a text

    @property
    def control(self) -> bool:
        """True if the token is more than white space, also as SentencePiece spells it: then it can steer the model."""
        return bool(self.text.replace("▁", " ").strip())


@runtime_checkable
class Tokenizer(Protocol):
    """Converts text to ids and back. Immutable in use, safe to share between threads."""

    @property
    def name(self) -> str:
        """A path or a name, for messages."""

    @property
    def backend(self) -> str:
        """The library that encodes: "fastokens", "tokenizers", ..."""

    @property
    def added(self) -> Mapping[str, Added]:
        """The added tokens by their texts."""

    @property
    def named(self) -> Mapping[str, str]:
        """The texts of bos_token, eos_token, pad_token, unk_token, as far as known."""

    @property
    def native(self) -> frozenset[int]:
        """Added ids that `encode` may return all the same, because the model has them too, under any spelling."""

    def encode(self, text: str, position: int = START) -> list[int]:
        """Return the ids of plain text: added tokens in it are not recognised."""

    def whole(self, text: str) -> list[int]:
        """Return the ids that the library itself gives, added tokens recognised, without bos and eos."""

    def offsets(
        self, text: str, ids: Sequence[int], position: int = START
    ) -> list[tuple[int, int]]:
        """Return the characters of `text` that each id covers, as start and end; tokens may share a character.

        `ids` are those of `encode(text, position)`, or of `whole(text)` if the position is WHOLE.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids, added tokens written out."""

    def token(self, id: int) -> str | None:
        """Return the vocabulary's own spelling of an id; None if there is no such id."""

    def id(self, text: str) -> int | None:
        """Return the id of a token by its spelling; None if there is no such token."""

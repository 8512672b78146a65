"""What a tokenizer is here: an encoder of plain text, and a table of the tokens that are not plain text.

Libraries mix the two: their `encode` looks for added tokens (`<|im_end|>`) in any text. Here the two are kept apart.
`encode` knows no added token, so whatever is given to it stays ordinary text; `added` is a table, and who may use which
row of it is decided elsewhere, from where the text came (`trust.py`).

Some tokenizers treat the start of a text in a way of their own: they put a space before it (SentencePiece), once, or
after every added token. So `encode` is told where the text stands: at the START of everything, AFTER an added token,
or WITHIN a text that was cut, where nothing may be put in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

START, AFTER, WITHIN = range(3)


@dataclass(frozen=True, slots=True)
class Added:
    """A token that is recognised in text before the model of the tokenizer sees it."""

    text: str
    id: int
    special: bool = True
    lstrip: bool = False  # takes the white space before it
    rstrip: bool = False  # takes the white space behind it
    single_word: bool = False  # not inside a word

    @property
    def control(self) -> bool:
        """Not merely white space, also as SentencePiece spells it: whoever writes it steers the model."""
        return bool(self.text.replace("▁", " ").strip())


@runtime_checkable
class Tokenizer(Protocol):
    """Texts to ids and back. Immutable in use, safe to share between threads."""

    @property
    def name(self) -> str:
        """For messages: a path or a name."""
        ...

    @property
    def backend(self) -> str:
        """The library that encodes: "fastokens", "tokenizers", ..."""
        ...

    @property
    def added(self) -> Mapping[str, Added]:
        """The added tokens by their texts."""
        ...

    @property
    def named(self) -> Mapping[str, str]:
        """The texts of bos_token, eos_token, pad_token, unk_token, as far as they are known."""
        ...

    @property
    def native(self) -> frozenset[int]:
        """Added ids that `encode` may give all the same, because the model knows their text too."""
        ...

    def encode(self, text: str, at: int = START) -> list[int]:
        """Ids of plain text: added tokens in it are not recognised."""
        ...

    def whole(self, text: str) -> list[int]:
        """Ids as the library itself gives them, added tokens recognised, nothing put before or behind."""
        ...

    def ends(self, text: str, ids: Sequence[int], at: int = START) -> list[int]:
        """Where in `text` each of `ids` ends, in characters; `ids` are those of `encode(text, at)`."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids, added tokens written out."""
        ...

    def token(self, id: int) -> str | None:
        """The vocabulary's own spelling of an id; None if there is no such id."""
        ...

    def id(self, text: str) -> int | None:
        """The id of a token by its spelling; None if there is no such token."""
        ...

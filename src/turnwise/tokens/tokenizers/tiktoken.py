"""Adapter for tiktoken: an `Encoding`, or a file of ranks (`tiktoken.model`, `o200k_base.tiktoken`).

tiktoken separates plain and special text itself (`encode_ordinary`). Its tokens are bytes; in the spelling of a token,
bytes that are not text are written as escapes.

A file of ranks tells neither how text is split nor which tokens are special. The pattern is a constant in the code that
the maker ships beside it (`tokenization_*.py`), which is read as text and never run; for well-known vocabularies it is
a row of `vocabularies.toml`. Special tokens are those of `tokenizer_config.json` and of that row.
"""

from __future__ import annotations

import ast
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tiktoken

from turnwise.errors import TokenizerError
from turnwise.local_files import read_file
from turnwise.tokens.tokenizers.base import BaseTokenizer
from turnwise.tokens.tokenizers.foreign_errors import wrap_errors
from turnwise.tokens.tokenizers.protocol import Added, Tokenizer
from turnwise.tokens.tokenizers.special_tokens_config import read_declarations

END_OF_TEXT = "<|endoftext|>"
KNOWN = Path(__file__).with_name("vocabularies.toml")
CODE_FILES = "tokenization*.py"
PATTERN_NAMES = ("pat_str", "PAT_STR")
MAX_CODE = 2**17  # bytes
UNREADABLE = (OSError, SyntaxError, ValueError, TypeError, LookupError, RecursionError, MemoryError)


class Tiktoken(BaseTokenizer):
    """An encoding under a name; tokens with an id in `plain_ids` are added, but not special."""

    backend = "tiktoken"

    def __init__(
        self,
        encoding: tiktoken.Encoding,
        name: str,
        named: Mapping[str, str],
        plain_ids: frozenset[int] = frozenset(),
    ) -> None:
        self._encoding = encoding
        ids = [(encoding.encode_single_token(text), text) for text in encoding.special_tokens_set]
        rows = [Added(text, id, id not in plain_ids) for id, text in sorted(ids)]
        super().__init__(name, rows, named)

    def encode_plain(self, text: str, position: int) -> list[int]:
        return self._encoding.encode_ordinary(text)

    def token_bytes(self, id: int) -> bytes | None:
        try:
            return self._encoding.decode_single_token_bytes(id)
        except (KeyError, OverflowError):
            return None

    def token(self, id: int) -> str | None:
        data = self.token_bytes(id)
        return None if data is None else data.decode("utf-8", "backslashreplace")

    def id(self, text: str) -> int | None:
        try:
            return self._encoding.encode_single_token(text)
        except (KeyError, UnicodeEncodeError):
            return None


def adapt(given: Any, backend: str | None) -> Tokenizer | None:
    """Wrap a `tiktoken.Encoding`."""
    if not isinstance(given, tiktoken.Encoding):
        return None
    has_end = END_OF_TEXT in given.special_tokens_set
    return Tiktoken(given, given.name, {"eos_token": END_OF_TEXT} if has_end else {})


def read(file: Path, name: str, data: bytes) -> Tokenizer:
    """Read a file of ranks, with what lies beside it."""
    with wrap_errors(f"{name} is not a list of ranks"):
        ranks = {b64decode(token): int(rank) for token, rank in map(bytes.split, data.splitlines())}
    known = read_known(len(ranks))
    declared = read_declarations(file.parent)
    pattern = read_pattern(file.parent) or known.get("pattern")
    spelling, first, last = known.get("reserved", ("", 0, -1))
    specials = {id: spelling.format(id) for id in range(first, last + 1)}
    for table in (known.get("special", {}), declared.ids):
        specials |= {id: text for text, id in table.items()}
    if not pattern or not specials:
        raise TokenizerError(
            f"{name} has only the ranks of a vocabulary: neither the pattern that splits text nor the special tokens",
            hint=f"Looked for a {CODE_FILES} with the pattern and a tokenizer_config.json with added_tokens_decoder "
            "beside it. Or make a tiktoken.Encoding with the model's pattern and special tokens, and give that.",
        )
    plain_ids = [
        declared.ids[row["content"]] for row in declared.rows if row.get("special") is False
    ]
    with wrap_errors(f"{name} is no vocabulary of tiktoken"):
        encoding = tiktoken.Encoding(
            file.name,
            pat_str=pattern,
            mergeable_ranks=ranks,
            special_tokens={text: id for id, text in specials.items()},
        )
        named = {**known.get("named", {}), **declared.named}
        return Tiktoken(encoding, name, named, frozenset(plain_ids))


def read_known(count: int) -> dict[str, Any]:
    """Return the row of a well-known vocabulary with so many ranks; empty if there is none."""
    import tomllib  # only needed here

    return tomllib.loads(KNOWN.read_text(encoding="utf-8")).get(str(count)) or {}


def read_pattern(folder: Path) -> str | None:
    """Return the pattern that the maker's code in a folder assigns: a text, or texts that a call joins."""
    for path in sorted(folder.glob(CODE_FILES)):
        try:
            for node in ast.walk(ast.parse(read_file(path, MAX_CODE, folder))):
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in PATTERN_NAMES:
                    value = node.value.args[0] if isinstance(node.value, ast.Call) else node.value
                    parts = ast.literal_eval(value)
                    return "|".join((parts,) if isinstance(parts, str) else parts)
        except UNREADABLE:
            continue  # as if it were not there
    return None

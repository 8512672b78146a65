"""Read the special tokens that are declared beside a tokenizer: which one is bos, eos, ..., and further added tokens.

`tokenizer_config.json` and `special_tokens_map.json` declare them in several spellings: a token is a string or a
mapping with `content`; added tokens are given by id, by name, or as a list. transformers adds what is declared here
and missing in `tokenizer.json`; the same is done here, for the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from turnwise.errors import TokenizerError
from turnwise.local_files import error_reason, is_present, read_table
from turnwise.messages import JsonMapping, JsonObject

TokenRow = JsonObject  # an added token: its `content` and its flags

CONFIG_FILES = ("special_tokens_map.json", "tokenizer_config.json")  # later ones win
LIST_KEYS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
ID = re.compile("[0-9]{1,10}")
MAX_TOKEN_LENGTH = 1_000  # characters of an added token; those that people use have at most 100
MAX_CONFIG = 64 * 2**20  # bytes; with a whole vocabulary of added tokens it has several MB
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


class DeclaredTokens(NamedTuple):
    """The tokens that are declared beside a tokenizer."""

    named: Mapping[str, str] = {}  # bos_token and the like
    rows: Sequence[TokenRow] = ()  # added tokens; their flags override those of the tokenizer
    specials: Sequence[TokenRow] = ()  # special tokens, added if the tokenizer does not have them
    ids: Mapping[str, int] = {}  # of the rows, by their texts


def read_declarations(folder: Path) -> DeclaredTokens:
    """Return what the files in this folder declare."""
    config: JsonObject = {}
    for name in CONFIG_FILES:
        if is_present(folder / name):
            try:
                config |= read_table(folder / name, MAX_CONFIG, folder)
            except (OSError, ValueError) as problem:
                reason = error_reason(problem)
                raise TokenizerError(f"{folder / name} cannot be read: {reason}") from None
    declared = config.get("added_tokens_decoder")
    table = declared if isinstance(declared, dict) else {}
    rows: list[TokenRow] = []
    ids: dict[str, int] = {}
    for id in sorted(filter(ID.fullmatch, table), key=int):
        if text := _content(table[id]):
            rows.append({"content": text, **_flags(table[id])})
            ids[text] = int(id)
    return DeclaredTokens(named_tokens(config), rows, _special_rows(config), ids)


def named_tokens(config: JsonMapping) -> dict[str, str]:
    """Return the texts of all keys such as `bos_token`."""
    extra = config.get("extra_special_tokens")
    tokens = {**(extra if isinstance(extra, dict) else {}), **config}
    return {
        key: text
        for key, value in tokens.items()
        if key.endswith("_token") and (text := _content(value))
    }


def _content(token: object) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    if not isinstance(text, str):
        return None
    check_token_length(text)
    return text


def check_token_length(text: str) -> None:
    """Refuse an added token of thousands of characters, which takes the libraries long to add."""
    if len(text) > MAX_TOKEN_LENGTH:
        raise TokenizerError(
            f"an added token has {len(text):,} characters: {text[:20]!r}...",
            hint=f"At most {MAX_TOKEN_LENGTH:,} are taken; those that people use have less than 100.",
        )


def _flags(token: object) -> dict[str, bool]:
    given = token if isinstance(token, dict) else {}
    return {flag: given[flag] for flag in FLAGS if isinstance(given.get(flag), bool)}


def _special_rows(config: JsonMapping) -> list[TokenRow]:
    """Return the tokens that are special because they have a name or are listed as special; each text once."""
    tokens = [value for key, value in config.items() if key.endswith("_token")]
    for key in LIST_KEYS:
        value = config.get(key)
        if isinstance(value, dict):
            tokens += value.values()
        elif isinstance(value, list):
            tokens += value
    flags = {_content(token): _flags(token) for token in tokens}
    return [
        {"content": text, "normalized": False, **given, "special": True}
        for text, given in flags.items()
        if text
    ]

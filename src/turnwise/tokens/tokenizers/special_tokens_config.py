"""What the files beside a tokenizer declare: which token is bos, eos, ..., and added tokens that the tokenizer lacks.

`tokenizer_config.json` and `special_tokens_map.json` say it, in several spellings: a token is a string or a mapping
with `content`; added tokens are listed by id, or by name, or just listed. transformers adds what is declared here and
missing in `tokenizer.json`; the same is done here, for the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnwise.errors import TokenizerError

Row = dict[str, Any]
"""An added token: its `content` and its flags."""

FILES = ("special_tokens_map.json", "tokenizer_config.json")
"""Later ones win."""
LISTS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class Declared:
    """What was declared beside a tokenizer; nothing, if there is nothing beside it."""

    named: Mapping[str, str] = field(default_factory=dict)  # bos_token and the like
    rows: Sequence[
        Row
    ] = ()  # added tokens with their flags, which count more than the tokenizer's own
    others: Sequence[
        Row
    ] = ()  # special tokens, for a tokenizer that does not have them as added tokens


def declarations(folder: Path) -> Declared:
    """What the files in this folder declare."""
    given: dict[str, Any] = {}
    for name in FILES:
        if (folder / name).is_file():
            given |= read(folder / name)
    return Declared(named(given), rows(given), others(given))


def read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise TokenizerError(f"{file} cannot be read: {problem}") from None
    if not isinstance(found, dict):
        raise TokenizerError(f"{file} is not a JSON object")
    return found


def named(given: Mapping[str, Any]) -> dict[str, str]:
    extra = given.get("extra_special_tokens")
    every = {**(extra if isinstance(extra, dict) else {}), **given}
    texts = {key: content(value) for key, value in every.items() if key.endswith("_token")}
    return {key: text for key, text in texts.items() if text}


def content(token: object) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def rows(given: Mapping[str, Any]) -> list[Row]:
    """The table of added tokens, in the order of ids."""
    table = given.get("added_tokens_decoder")
    table = table if isinstance(table, dict) else {}
    tokens = [table[id] for id in sorted((id for id in table if id.isdigit()), key=int)]
    return [{"content": content(token), **flags(token)} for token in tokens if content(token)]


def others(given: Mapping[str, Any]) -> list[Row]:
    """Tokens that are special because they have a name or stand in a list of special tokens; each text once."""
    found = [given[key] for key in given if key.endswith("_token")]
    for key in LISTS:
        value = given.get(key)
        found += (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        )
    known = {content(token): flags(token) for token in found if content(token)}
    return [
        {"content": text, "normalized": False, **given, "special": True}
        for text, given in known.items()
    ]


def flags(token: Any) -> dict[str, bool]:
    given = token if isinstance(token, dict) else {}
    return {flag: given[flag] for flag in FLAGS if isinstance(given.get(flag), bool)}

"""Any tokenizer, with the methods that other people's training code calls.

XTuner and PaddleNLP call `encode` and the tokenizer itself, and read the ids of bos and eos. Tokenizers that have these
are used as they are; everything else that turnwise can read (a path, a `tokenizers.Tokenizer`, ...) gets them from
`TokenizerShim`. The ids are the library's own: special tokens in a text are recognised, as that code expects. Whatever
a tokenizer raises becomes a TokenizerError.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from turnwise.compat.batches import BatchLayout, Encoding, are_texts
from turnwise.errors import TokenizerError, TurnwiseError, short_repr
from turnwise.token_ids import to_token_ids
from turnwise.tokens.tokenizers import Tokenizer, tokenizer

TOKENIZER_NAME = "tokenizer.json"
CONFIG_NAME = "tokenizer_config.json"
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token")


class TokenizerShim:
    """A tokenizer of turnwise with the names that training code uses."""

    model_input_names = ("input_ids", "attention_mask")

    def __init__(self, known: Tokenizer, given: Any = None) -> None:
        self.known = known
        self.given = given  # the source: its file tells which special tokens are added

    @property
    def special_tokens_map(self) -> Mapping[str, str]:
        """The special tokens by name."""
        return self.known.named

    def __getattr__(self, name: str) -> Any:
        """The special tokens and their ids, `bos_token` and `bos_token_id`; None if there is none, but for eos."""
        token = name.removesuffix("_id")
        if token not in SPECIAL_TOKENS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        text = self.known.named.get(token)
        if name == token:
            return text
        found = self.known.id(text or "")
        if found is None and token == "eos_token":
            raise TokenizerError(
                f"{self.known.name} has no eos token",
                hint="Name it in the tokenizer_config.json beside the tokenizer.",
            )
        return found

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text; special tokens are added only if that is asked for."""
        before, behind = self._special_tokens_around(text, add_special_tokens)
        return [*before, *self.known.whole(text), *behind]

    def _special_tokens_around(self, text: str, is_wanted: bool) -> tuple[list[int], list[int]]:
        """Return the special tokens that the `tokenizer.json` adds before and behind a text, if they are wanted."""
        if not is_wanted:
            return [], []
        file = _find_tokenizer_file(self.given)
        if file is None:
            raise TokenizerError(
                f"{self.known.name} does not know which special tokens to add",
                hint="Say add_special_tokens=False, or give a tokenizer of transformers.",
            )
        library = _load_library(file, file.stat().st_mtime_ns)
        alone = library.encode(text, add_special_tokens=False).ids
        ids = library.encode(text).ids
        for start in range(len(ids) - len(alone) + 1):
            end = start + len(alone)
            if ids[start:end] == alone:
                return ids[:start], ids[end:]
        raise TokenizerError(f"{self.known.name} changes a text when it adds special tokens")

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """Return the text of ids; other arguments of transformers' method are ignored."""
        ids = to_token_ids(ids, "a tokenizer decodes a list of ids")
        if skip_special_tokens:
            special = {token.id for token in self.known.added.values() if token.control}
            ids = [id for id in ids if id not in special]
        return self.known.decode(ids)

    def convert_ids_to_tokens(self, ids: Any) -> Any:
        """Return the token of an id, or the tokens of several."""
        if isinstance(ids, int):
            return self.known.token(ids)
        return [self.known.token(id) for id in to_token_ids(ids, "ids are a list")]

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Return the id of a token, or the ids of several."""
        if isinstance(tokens, str):
            return self.known.id(tokens)
        return [self.known.id(token) for token in _check_tokens(tokens)]

    def convert_tokens_to_string(self, tokens: Iterable[str]) -> str:
        """Return the text of tokens."""
        return self.decode(self.convert_tokens_to_ids(_check_tokens(tokens)))

    def save_pretrained(self, save_directory: str, **_: Any) -> tuple[str, ...]:
        """Copy the tokenizer's file, and write the special tokens to a `tokenizer_config.json`."""
        file = _find_tokenizer_file(self.given)
        if file is None:
            raise TokenizerError(
                f"{self.known.name} has no file to save",
                hint="Give the path of its tokenizer.json, or a tokenizer of transformers.",
            )
        target, config = Path(save_directory) / file.name, Path(save_directory) / CONFIG_NAME
        old = file.parent / CONFIG_NAME
        if not target.exists() or not target.samefile(file):
            shutil.copyfile(file, target)
            if old.is_file():
                shutil.copyfile(old, config)
            else:
                text = json.dumps(dict(self.known.named), ensure_ascii=False, indent=2)
                config.write_text(text, encoding="utf-8")
        return str(target), str(config)

    def __call__(
        self,
        text: str,
        add_special_tokens: bool = False,
        return_attention_mask: bool = True,
        **layout: Any,
    ) -> Encoding:
        """Return the ids of a text and their attention mask; `layout` are fields of `BatchLayout`."""
        try:
            batch = BatchLayout(pad_id=self.pad_token_id, **layout)
        except TypeError as error:
            raise TokenizerError(f"unknown argument: {error}") from None
        before, behind = self._special_tokens_around(text, add_special_tokens)
        # Special tokens are not truncated, so the text has what room they leave.
        room = batch
        if batch.limit is not None:
            limit = max(batch.limit - len(before) - len(behind), 0)
            room = replace(batch, max_length=limit)
        ids = room.truncate({"input_ids": self.known.whole(text)})["input_ids"]
        row = {"input_ids": [*before, *ids, *behind]}
        if return_attention_mask:
            row["attention_mask"] = [1] * len(row["input_ids"])
        return batch.make_batch([row], single=True)


def with_calls(given: Any) -> Any:
    """Return a tokenizer that can be called as training code does: the given one, or a shim around it."""
    has_calls = callable(getattr(given, "encode", None)) and hasattr(given, "eos_token_id")
    if given is None or has_calls or callable(given):
        return given
    return TokenizerShim(tokenizer(given), given)


def _check_tokens(tokens: Any) -> list[str]:
    if not are_texts(tokens):
        raise TokenizerError(f"tokens are a list of texts, not {short_repr(tokens)}")
    return list(tokens)


def _find_tokenizer_file(given: Any) -> Path | None:
    """Return the `tokenizer.json` that a tokenizer was loaded from, if it is given by its path."""
    if not isinstance(given, str | os.PathLike):
        return None
    path = Path(given)
    file = path / TOKENIZER_NAME if path.is_dir() else path
    return file if file.suffix == ".json" and file.is_file() else None


@lru_cache(maxsize=8)
def _load_library(file: Path, changed: int) -> Any:
    """Return the library's own tokenizer, which adds special tokens; `changed` is a part of the cache key."""
    try:
        return import_module("tokenizers").Tokenizer.from_file(str(file))
    except Exception as error:  # raised by another library
        raise TokenizerError(f"{file} cannot be read by `tokenizers`: {error!r:.200}") from None


def call_tokenizer(function: Callable[..., Any], text: Any, *more: Any, **arguments: Any) -> Any:
    """Call a method of a tokenizer on a text; its errors become TokenizerErrors."""
    try:
        return function(text, *more, **arguments)
    except TurnwiseError:
        raise
    except Exception as error:  # raised by the caller's code or by another library
        raise TokenizerError(
            f"the tokenizer failed at {short_repr(text)}: {error!r:.200}"
        ) from error


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text; PaddleNLP's `encode` returns a mapping, others the ids."""
    encode = getattr(tokenizer, "encode", None)
    if not callable(encode):
        raise TokenizerError(
            f"ids are made with a tokenizer, which has `encode`; this is {short_repr(tokenizer)}"
        )
    ids = call_tokenizer(encode, text, add_special_tokens=False)
    if isinstance(ids, Mapping):
        ids = ids.get("input_ids")
    return to_token_ids(ids, "a tokenizer gives a list of ids")

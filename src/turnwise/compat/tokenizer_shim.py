"""Any tokenizer, with the methods that other people's training code calls on one.

XTuner and PaddleNLP call `encode`, the tokenizer itself, and ask for the ids of bos and eos. Tokenizers that have these
are called as they are; anything else that `turnwise` can read (a path, a `tokenizers.Tokenizer`, ...) gets them here.
The ids are the library's own, control tokens in a text recognised, as that code does it. Whatever a tokenizer of the
caller's raises, it leaves here as a TokenizerError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnwise.compat.batches import Encoding, Layout
from turnwise.errors import TokenizerError, TurnwiseError, short_repr
from turnwise.tokens.session import to_ids
from turnwise.tokens.tokenizers import Tokenizer, tokenizer


class Speaker:
    """A tokenizer under the names that are called."""

    def __init__(self, known: Tokenizer) -> None:
        self.known = known

    @property
    def special_tokens_map(self) -> Mapping[str, str]:
        return self.known.named

    @property
    def bos_token_id(self) -> int | None:
        return self.known.id(self.known.named.get("bos_token", ""))

    @property
    def eos_token_id(self) -> int:
        found = self.known.id(self.known.named.get("eos_token", ""))
        if found is None:
            hint = "Name it in the tokenizer_config.json beside the tokenizer."
            raise TokenizerError(f"{self.known.name} has no eos token", hint=hint)
        return found

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return self.known.whole(text)

    def __call__(
        self,
        text: str,
        add_special_tokens: bool = False,
        return_attention_mask: bool = True,
        **layout: Any,
    ) -> Encoding:
        ids = self.encode(text)
        rows = {
            "input_ids": ids,
            **({"attention_mask": [1] * len(ids)} if return_attention_mask else {}),
        }
        pad = self.known.id(self.known.named.get("pad_token", ""))
        try:
            laid = Layout(pad_id=pad, **layout)
        except TypeError as error:
            raise TokenizerError(f"this is not known here: {error}") from None
        return laid.batch([rows], single=True)


def speaker(given: Any) -> Any:
    """The tokenizer itself if it can be called so, else one that can."""
    speaks = callable(getattr(given, "encode", None)) and hasattr(given, "eos_token_id")
    return given if speaks or given is None or callable(given) else Speaker(tokenizer(given))


def called(speaks: Callable[..., Any], text: str, **how: Any) -> Any:
    """What a tokenizer says to a text."""
    try:
        return speaks(text, **how)
    except TurnwiseError:
        raise
    except Exception as error:  # the caller's code, or another library's
        raise TokenizerError(
            f"the tokenizer failed at {short_repr(text)}: {error!r:.200}"
        ) from error


def ids_of(tokenizer: Any, text: str) -> list[int]:
    """The ids of a text. PaddleNLP's `encode` gives a mapping, others the ids."""
    encode = getattr(tokenizer, "encode", None)
    if not callable(encode):
        raise TokenizerError(
            f"ids are made with a tokenizer, which has `encode`; this is {short_repr(tokenizer)}"
        )
    found = called(encode, text, add_special_tokens=False)
    if isinstance(found, Mapping):
        found = found.get("input_ids")
    return to_ids(found, "a tokenizer gives a list of ids")

"""Any tokenizer, with the methods that other people's training code calls.

XTuner and PaddleNLP call `encode` and the tokenizer itself, and read the ids of bos and eos. Tokenizers that have these
are used as they are; everything else that turnwise can read (a path, a `tokenizers.Tokenizer`, ...) gets them from
`TokenizerShim`. The ids are the library's own: special tokens in a text are recognised, as that code expects. Whatever
a tokenizer raises becomes a TokenizerError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnwise.compat.batches import BatchLayout, Encoding
from turnwise.errors import TokenizerError, TurnwiseError, short_repr
from turnwise.token_ids import to_token_ids
from turnwise.tokens.tokenizers import Tokenizer, tokenizer


class TokenizerShim:
    """A tokenizer of turnwise with the names that training code uses."""

    def __init__(self, known: Tokenizer) -> None:
        self.known = known

    @property
    def special_tokens_map(self) -> Mapping[str, str]:
        """The special tokens by name."""
        return self.known.named

    @property
    def bos_token_id(self) -> int | None:
        """The id of the bos token; None if there is none."""
        return self._special_id("bos_token")

    @property
    def eos_token_id(self) -> int:
        """The id of the eos token."""
        found = self._special_id("eos_token")
        if found is None:
            hint = "Name it in the tokenizer_config.json beside the tokenizer."
            raise TokenizerError(f"{self.known.name} has no eos token", hint=hint)
        return found

    def _special_id(self, name: str) -> int | None:
        return self.known.id(self.known.named.get(name, ""))

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text; special tokens are never added."""
        return self.known.whole(text)

    def __call__(
        self,
        text: str,
        add_special_tokens: bool = False,
        return_attention_mask: bool = True,
        **layout: Any,
    ) -> Encoding:
        """Return the ids of a text and their attention mask; `layout` are fields of `BatchLayout`."""
        row = {"input_ids": self.encode(text)}
        if return_attention_mask:
            row["attention_mask"] = [1] * len(row["input_ids"])
        try:
            batch = BatchLayout(pad_id=self._special_id("pad_token"), **layout)
        except TypeError as error:
            raise TokenizerError(f"unknown argument: {error}") from None
        return batch.make_batch([row], single=True)


def with_calls(given: Any) -> Any:
    """Return a tokenizer that can be called as training code does: the given one, or a shim around it."""
    has_calls = callable(getattr(given, "encode", None)) and hasattr(given, "eos_token_id")
    if given is None or has_calls or callable(given):
        return given
    return TokenizerShim(tokenizer(given))


def call_tokenizer(function: Callable[..., Any], text: str, **arguments: Any) -> Any:
    """Call a method of a tokenizer on a text; its errors become TokenizerErrors."""
    try:
        return function(text, **arguments)
    except TurnwiseError:
        raise
    except Exception as error:  # raised by the caller's code or by another library
        problem = f"the tokenizer failed at {short_repr(text)}: {error!r:.200}"
        raise TokenizerError(problem) from error


def encode_text(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text; PaddleNLP's `encode` returns a mapping, others the ids."""
    encode = getattr(tokenizer, "encode", None)
    if not callable(encode):
        problem = (
            f"ids are made with a tokenizer, which has `encode`; this is {short_repr(tokenizer)}"
        )
        raise TokenizerError(problem)
    ids = call_tokenizer(encode, text, add_special_tokens=False)
    if isinstance(ids, Mapping):
        ids = ids.get("input_ids")
    return to_token_ids(ids, "a tokenizer gives a list of ids")

"""Errors of the tokenizer libraries become `TokenizerError`.

The libraries are written in Rust or C++ and raise ValueError, bare Exception, even panics that are no Exception at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turnwise.errors import TokenizerError, printable

NOT_WRAPPED = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)
MAX_REASON_LENGTH = 200


@contextmanager
def wrap_errors(action: str, hint: str | None = None) -> Iterator[None]:
    """Raise a TokenizerError that names the failed action for whatever a library raises."""
    try:
        yield
    except (TokenizerError, *NOT_WRAPPED):
        raise
    # BaseException: a panic in Rust is not an Exception
    except BaseException as problem:
        raise TokenizerError(f"{action}: {describe_error(problem)}", hint=hint) from problem


def describe_error(problem: BaseException) -> str:
    """Return an error's message as one short line."""
    text = " ".join(str(problem).split())
    return printable(text, MAX_REASON_LENGTH) if text else type(problem).__name__


def check_text(text: object) -> None:
    """Raise a TokenizerError for anything but text, and for text with half of a surrogate pair."""
    if not isinstance(text, str):
        raise TokenizerError(f"a tokenizer encodes text, not {type(text).__name__}")
    try:
        text.isascii() or text.encode("utf-8")
    except UnicodeEncodeError as problem:
        half = f"U+{ord(text[problem.start]):04X}"
        raise TokenizerError(
            f"the text has half of a surrogate pair ({half}) at character {problem.start}",
            hint="It is not Unicode text and has no bytes: replace the character, or decode the source again.",
        ) from None

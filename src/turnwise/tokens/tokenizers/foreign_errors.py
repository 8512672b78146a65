"""Errors of the tokenizer libraries become `TokenizerError`.

The libraries are written in Rust or C++ and raise ValueError, bare Exception, even panics that are no Exception at all.
"""

from __future__ import annotations

from typing import NamedTuple

from turnwise.errors import TokenizerError, printable

NOT_WRAPPED = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)
MAX_REASON_LENGTH = 200


class wrap_errors(NamedTuple):  # in a third of the time of a generator
    """Raise a TokenizerError that names the failed action for whatever a library raises."""

    action: str
    hint: str | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, problem: BaseException | None, traceback: object) -> None:
        # Not only an Exception: a panic in Rust is none.
        if problem is not None and not isinstance(problem, (TokenizerError, *NOT_WRAPPED)):
            reason = f"{self.action}: {describe_error(problem)}"
            raise TokenizerError(reason, hint=self.hint) from problem


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

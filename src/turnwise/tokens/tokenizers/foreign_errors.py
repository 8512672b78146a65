"""What the tokenizer libraries raise becomes our own error.

They are written in Rust or C++ and raise what they please: ValueError, bare Exception, even panics that are no
Exception at all. Whatever it is, the caller gets a `TokenizerError` that says what was being done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from turnwise.errors import TokenizerError, printable

STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)


@contextmanager
def guarded(doing: str, hint: str | None = None) -> Iterator[None]:
    try:
        yield
    except (TokenizerError, *STOPS):
        raise
    # BaseException: a panic in Rust is not an Exception
    except BaseException as problem:
        raise TokenizerError(f"{doing}: {reason(problem)}", hint=hint) from problem


def reason(problem: BaseException) -> str:
    """What went wrong, in one short line."""
    text = " ".join(str(problem).split())
    return printable(text, 200) if text else type(problem).__name__


def check_text(text: object) -> None:
    """Refuse what no tokenizer can take: other things than text, and halves of surrogate pairs."""
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


def check_ids(ids: object) -> None:
    """Refuse what cannot be an id, before a library reads it as another one."""
    if set(map(type, ids)) == {int} and min(ids) >= 0:  # type: ignore[call-overload]
        return
    for id in ids:  # type: ignore[attr-defined]
        if isinstance(id, bool) or not hasattr(id, "__index__") or id < 0:
            raise TokenizerError(f"an id is a number from 0 on, not {printable(repr(id), 60)}")

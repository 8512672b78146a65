"""Every error that leaves the API, and the one painter that draws them.

    TurnwiseError
    ├── TemplateError                 something about a template; knows its line and column
    │   ├── TemplateSyntaxError       the text is not a template (or asks for what we do not do)
    │   ├── TemplateRuntimeError      it is one, and this conversation does not fit it
    │   │   └── TemplateRaised        the template itself said so, with raise_exception(text)
    │   ├── TemplateSecurityError     it reached for something outside the white list
    │   └── TemplateLimitError        it spent a budget: steps, bytes, output, depth or size
    ├── MessageError                  the conversation, tools or documents; knows the path of the value
    ├── SourceError                   a file, folder or name from which no template can be read
    ├── TokenizerError                something that is no tokenizer, or what a tokenizer cannot do
    └── Unstable                      a session whose next prompt would not begin with what was said before

    TurnwiseWarning                   the one kind of warning: it works, but not as you may think

An error says what, where and what now. The parts are attributes; `str()` paints them. Text that a
template or a message put into an error is untrusted: the painting escapes control characters and cuts
it short, while `.message` keeps it as it was.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

SHOWN = 1000  # characters of a message that are painted
LISTED = 30  # names that are all listed; of more, the first ones
WINDOW = 100  # characters of a source line that are painted


class TurnwiseError(Exception):
    """The root: `except turnwise.TurnwiseError` catches whatever this library raises."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(
            line for line in (printable(self.message), self.where(), indented(self.hint)) if line
        )

    def where(self) -> str:
        """The place, painted; empty when there is none to show."""
        return ""

    def __reduce__(self) -> tuple[Any, ...]:
        # exceptions with keyword arguments do not pickle by themselves; worker processes need them to
        return _restore, (type(self), self.message, self.__dict__)


def _restore(kind: type[TurnwiseError], message: str, state: dict[str, Any]) -> TurnwiseError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class TemplateError(TurnwiseError):
    """Something about a template."""

    def __init__(
        self,
        message: str,
        *,
        name: str = "template",
        line: int | None = None,
        column: int | None = None,
        source_line: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.name = name
        self.line = line
        self.column = column
        self.source_line = source_line

    def where(self) -> str:
        if self.line is None:
            return f"  {printable(self.name)}"
        place = f"  {printable(self.name)}:{self.line}" + (f":{self.column}" if self.column else "")
        if self.source_line is None:
            return place
        return f"{place}\n{painted(self.source_line, self.line, self.column)}"


class TemplateSyntaxError(TemplateError):
    """The text is not a template, or uses a part of Jinja that chat templates do not have."""


class TemplateRuntimeError(TemplateError):
    """The template met a value that it cannot take."""


class TemplateRaised(TemplateRuntimeError):
    """The template refused the conversation with `raise_exception`; `.message` is its text, unchanged."""


class TemplateSecurityError(TemplateError):
    """The template reached for something outside the white list."""


class TemplateLimitError(TemplateError):
    """The template spent a whole budget; `.budget` names it."""

    def __init__(self, message: str, *, budget: str, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.budget = budget


class MessageError(TurnwiseError):
    """A conversation, tool or document that cannot be rendered; `.path` says which value."""

    def __init__(self, message: str, *, path: str = "", hint: str | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message, hint=hint)
        self.path = path


class SourceError(TurnwiseError):
    """A file, folder or name from which no template can be read."""

    def within(self, where: str) -> SourceError:
        """The same error, of the same kind, said of something in `where`."""
        self.message = f"{where}: {self.message}"
        return self


class TokenizerError(TurnwiseError):
    """Something that is no tokenizer, or what a tokenizer cannot do."""


class Unstable(TurnwiseError):
    """The template would now write earlier text in another way; `.message_index` says which message changed.

    `.before` and `.now` are the texts from the first difference on, `.piece` the piece of the new text it lies in.
    """

    def __init__(
        self,
        message: str,
        *,
        before: str,
        now: str,
        piece: Any = None,
        message_index: int | None = None,
        hint: str,
    ) -> None:
        super().__init__(message, hint=hint)
        self.before, self.now, self.piece, self.message_index = before, now, piece, message_index


class TurnwiseWarning(UserWarning):
    """What works, but not as one may think: the only kind of warning this library gives."""


def painted(source_line: str, line: int, column: int | None) -> str:
    """The source line with a caret under the column; long lines are shown through a window."""
    at = min((column or 1) - 1, len(source_line))
    start = max(0, at - WINDOW // 2) if len(source_line) > WINDOW else 0
    shown = source_line[start : start + WINDOW]
    before, after = "…" * (start > 0), "…" * (start + WINDOW < len(source_line))
    text = before + printable(shown.replace("\t", " ")) + after
    drawing = f"   {line} | {text}"
    if column is None:
        return drawing
    pointer = len(before) + len(printable(shown[: at - start].replace("\t", " ")))
    return f"{drawing}\n   {' ' * len(str(line))} | {' ' * pointer}^"


def printable(text: str, limit: int = SHOWN) -> str:
    """Text that is safe to put on a terminal: control characters escaped, at most `limit` characters."""
    cut = text[:limit]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in cut)
    return cut + (f"… ({len(text)} characters)" if len(text) > limit else "")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def indented(text: str | None) -> str:
    return f"  {printable(text)}" if text else ""


def short_repr(value: object, limit: int = 60) -> str:
    """A value, short enough for a sentence. Looks at a few parts of it only: it may be huge, or contain itself."""
    text = brief(value, limit, 3)
    return text if len(text) <= limit else text[:limit] + "…"


def brief(value: object, limit: int, depth: int) -> str:
    if isinstance(value, str):
        return repr(value[:limit])
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() < 512 else "a huge number"
    if type(value) is dict:
        entries = (
            [f"{brief(k, 20, 0)}: {brief(v, limit, depth - 1)}" for k, v in list(value.items())[:4]]
            if depth
            else []
        )
        return "{" + ", ".join(entries) + ("…" if len(entries) < len(value) else "") + "}"
    if type(value) in (list, tuple) and isinstance(value, (list, tuple)):
        start, end = "[]" if type(value) is list else "()"
        items = [brief(item, limit, depth - 1) for item in value[:4]] if depth else []
        return start + ", ".join(items) + ("…" if len(items) < len(value) else "") + end
    return f"<{type(value).__name__}>"


def did_you_mean(word: str, known: Iterable[str], what: str) -> str | None:
    """`what has: a, b, c. Did you mean 'b'?`, or None when nothing is known."""
    names = list(dict.fromkeys(str(name)[:40] for name in list(known)[:50]))
    if not names:
        return None
    near = difflib.get_close_matches(word, names, 1)
    listed = ", ".join(names if len(names) <= LISTED else [*names[:12], "…"])
    return f"{what}: {listed}." + (f" Did you mean {near[0]!r}?" if near else "")

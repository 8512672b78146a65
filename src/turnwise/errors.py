"""Every error that leaves the API, and how errors are shown.

    TurnwiseError
    ├── TemplateError                 something about a template; knows its line and column
    │   ├── TemplateSyntaxError       not a template, or Jinja that chat templates do not have
    │   ├── TemplateRuntimeError      the template cannot render this conversation
    │   │   └── TemplateRaised        the template refused it with raise_exception(text)
    │   ├── TemplateSecurityError     the template used something outside of the white list
    │   └── TemplateLimitError        it exceeded a budget: steps, bytes, output, depth, size, call ...
    ├── MessageError                  wrong messages, tools or documents; has the path
    ├── SourceError                   no template can be read from this file, folder or name
    ├── TokenizerError                not a tokenizer, or something that this tokenizer cannot do
    ├── DataError                     a data set, its recipe or its output folder cannot be used
    └── Unstable                      a session whose next prompt would change earlier text

    TurnwiseWarning                   the one kind of warning: it works, but maybe not as expected

An error tells what is wrong, where, and what to do about it. The parts are attributes, `str()`
joins them:

    No filter named 'tojsn'
      chat_template.jinja:3:12
       3 | {{ tools | tojsn }}
         |            ^
      there is no such filter; known: abs, attr, ... Did you mean 'tojson'?

Text that a template or a message put into an error is untrusted: `str()` escapes control characters
and truncates it, while `.message` and `.hint` keep it as it was, up to `MAX_KEPT_LENGTH` characters.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import lru_cache, wraps
from itertools import count, islice
from types import FrameType
from typing import Any, ParamSpec, TypeVar, cast
from warnings import warn

MAX_MESSAGE_LENGTH = 1000  # characters of a message that `str()` shows
MAX_KEPT_LENGTH = 4_000  # characters of a message or a hint that are kept, but for raised texts
MAX_RAISED_LENGTH = 100_000  # characters of a text of `raise_exception` that are kept
MAX_NAME_SHOWN = 40  # characters of a name in a list of names
MAX_LISTED_NAMES = 30  # longer lists of names are cut after LISTED_OF_MANY
LISTED_OF_MANY = 12
MAX_COUNTED = 10_000  # warnings whose number is known
MAX_WARNING_LENGTH = 4000  # characters of a warning that `str()` shows
SOURCE_WIDTH = 100  # characters of a source line that `str()` shows
PACKAGE = os.path.join(os.path.dirname(__file__), "")  # where the code of this library is


class TurnwiseError(Exception):
    """The base class: `except turnwise.TurnwiseError` catches every error of this library.

    Attributes:
        message: what is wrong.
        hint: what to do about it, if that is known.

    Example:
        >>> try:
        ...     turnwise.load("qwenn3")
        ... except turnwise.TurnwiseError as error:
        ...     print(error.hint)
        Did you mean 'qwen3'? `turnwise list` prints the built-in names.
    """

    _kept_length = MAX_KEPT_LENGTH

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        message = truncate_text(message, self._kept_length)
        super().__init__(message)
        self.message = message
        self.hint = hint and truncate_text(hint, MAX_KEPT_LENGTH)

    def __str__(self) -> str:
        lines = [printable(self.message), self.where()]
        if self.hint:
            lines.append(f"  {printable(self.hint)}")
        return "\n".join(line for line in lines if line)

    def where(self) -> str:
        """Return the place as text for `str()`; empty if none is known."""
        return ""

    def as_data(self) -> dict[str, Any]:
        """Return the error as JSON takes it: its type, message and hint, and the place where it is known."""
        known = {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, (str, int)) and not name.startswith("_")
        }
        return {"type": type(self).__name__, **known}

    def __reduce__(self) -> tuple[Any, ...]:
        # exceptions with keyword arguments do not pickle by themselves, and worker processes
        # need them to
        return _restore, (type(self), self.message, self.__dict__)


def _restore(kind: type[TurnwiseError], message: str, state: dict[str, Any]) -> TurnwiseError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class TemplateError(TurnwiseError):
    """A problem of a template.

    Attributes:
        name: the name of the template.
        line, column: the place, counted from 1, if it is known.
        source_line: the text of that line; of one with more than 4,000 characters, those around the column.

    Example:
        >>> try:
        ...     turnwise.compile("{% for m in messages %}")
        ... except turnwise.TemplateError as error:
        ...     print(error.line, error.column)
        1 22
    """

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
        self._source_start = 0  # the column, counted from 0, with which `source_line` begins
        if source_line is not None and len(source_line) > MAX_KEPT_LENGTH:
            self._source_start = max(0, min(column or 1, len(source_line)) - MAX_KEPT_LENGTH // 2)
            source_line = source_line[self._source_start :][:MAX_KEPT_LENGTH]
        self.source_line = source_line

    def where(self) -> str:
        if self.line is None:
            return f"  {printable(self.name)}"
        place = f"  {printable(self.name)}:{self.line}"
        if self.column:
            place += f":{self.column}"
        if self.source_line is None:
            return place
        column = None if self.column is None else self.column - self._source_start
        shown = _show_source_line(self.source_line, self.line, column, self._source_start > 0)
        return f"{place}\n{shown}"


class TemplateSyntaxError(TemplateError):
    """The text is not a template, or uses a part of Jinja that chat templates do not have.

    Example:
        >>> try:
        ...     turnwise.compile("{% if %}", name="mine")
        ... except turnwise.TemplateSyntaxError as error:
        ...     print(error.name, error.line)
        mine 1
    """


class TemplateRuntimeError(TemplateError):
    """The template cannot render this conversation.

    Example:
        >>> try:
        ...     turnwise.compile("{{ messages[0].content + 1 }}").render([{"role": "user", "content": "Hi"}])
        ... except turnwise.TemplateRuntimeError as error:
        ...     print(error.line)
        1
    """


class TemplateRaised(TemplateRuntimeError):
    """The template refused the conversation with `raise_exception`; `.message` is its text.

    Example:
        >>> try:
        ...     turnwise.compile("{{ raise_exception('no') }}").render([])
        ... except turnwise.TemplateRaised as error:
        ...     print(error.message)
        no
    """

    _kept_length = MAX_RAISED_LENGTH


class TemplateSecurityError(TemplateError):
    """The template used an attribute or method outside of the white list.

    Example:
        >>> try:
        ...     turnwise.compile("{{ messages.__class__ }}").render([])
        ... except turnwise.TemplateSecurityError as error:
        ...     print(error.line)
        1
    """


class TemplateLimitError(TemplateError):
    """The template exceeded a budget.

    `.budget` is "steps", "bytes", "output", "depth" or "size"; "call" for what all renderings of
    one call share, "deadline", or "isolation" for the limits of a worker process.

    Example:
        >>> try:
        ...     turnwise.compile("{% for a in range(99999) %}{{ messages | tojson }}{% endfor %}").render([])
        ... except turnwise.TemplateLimitError as error:
        ...     print(error.budget)
        steps
    """

    def __init__(self, message: str, *, budget: str, **rest: Any) -> None:
        super().__init__(message, **rest)
        self.budget = budget


class MessageError(TurnwiseError):
    """Messages, tools or documents that cannot be rendered; `.path` names the value.

    Example:
        >>> try:
        ...     turnwise.load("chatml").render([{"role": "user", "content": 5}])
        ... except turnwise.MessageError as error:
        ...     print(error.path)
        messages[0].content
    """

    def __init__(self, message: str, *, path: str = "", hint: str | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message, hint=hint)
        self.path = path


class SourceError(TurnwiseError):
    """No template can be read from a file, folder or name.

    Example:
        >>> try:
        ...     turnwise.load("no/such/folder/")
        ... except turnwise.SourceError as error:
        ...     print(type(error).__name__)
        SourceError
    """

    def within(self, where: str) -> SourceError:
        """Put `where` before the message, and return the same error."""
        self.message = truncate_text(f"{where}: {self.message}", MAX_KEPT_LENGTH)
        return self


class TokenizerError(TurnwiseError):
    """An object that is not a tokenizer, or something that this tokenizer cannot do.

    Example:
        >>> try:
        ...     turnwise.load("chatml").encode([], tokenizer=5)
        ... except turnwise.TokenizerError as error:
        ...     print(type(error).__name__)
        TokenizerError
    """


class DataError(TurnwiseError):
    """A data set that cannot be prepared: its files, its recipe or its output folder."""


class Unstable(TurnwiseError):
    """The next prompt of a session would not start with the text so far.

    Attributes:
        before, now: the old and the new text, from the first difference on.
        piece: the piece of the new text in which the difference is.
        message_index: the message whose text changed, if it is known.

    Example:
        >>> session = turnwise.load("qwen3").session("turnwise")
        >>> ids = session.prompt([{"role": "user", "content": "Hi"}])
        >>> session.add_reply("<think>\\nHm.\\n</think>\\n\\nAye.<|im_end|>")
        >>> try:
        ...     session.extend([{"role": "user", "content": "Why?"}])
        ... except turnwise.Unstable as error:
        ...     print(error.message_index)
        1
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
    """It works, but maybe not as expected: the only category of warnings of this library.

    `str()` escapes control characters, since Python prints warnings to the terminal as they are.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     rendering = turnwise.load("chatml").render([{"role": "assistant", "reasoning_content": "Hm."}])
        >>> caught[0].category is turnwise.TurnwiseWarning, len(rendering.warnings)
        (True, 1)
    """

    def __str__(self) -> str:
        return printable(super().__str__(), limit=MAX_WARNING_LENGTH)


Given = ParamSpec("Given")
Result = TypeVar("Result")


class WarningLog:
    """Collects what `warn_caller` says within a `with` block, in this thread and task alone.

    Python shows a warning once for each line of code, so that of the second row of a loop is not seen. And its filters
    belong to all threads of a process, so who wants no warnings does not set them.

    Args:
        is_quiet: show none of them.
    """

    def __init__(self, is_quiet: bool = False) -> None:
        self.is_quiet = is_quiet
        self.texts: tuple[str, ...] = ()

    def __enter__(self) -> WarningLog:
        self._outer = _log.get()
        self.is_quiet = self.is_quiet or (self._outer is not None and self._outer.is_quiet)
        self._token = _log.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _log.reset(self._token)
        if self._outer is not None:
            for text in self.texts:
                self._outer.add(text)

    def add(self, text: str) -> None:
        """Add a warning; of two that are equal, one is enough."""
        if text not in self.texts:
            self.texts += (text,)


_log: ContextVar[WarningLog | None] = ContextVar("warnings of this call", default=None)


def keep_warnings(verb: Callable[Given, Result]) -> Callable[Given, Result]:
    """Give the result of a function the warnings that it was made with, as `warnings`."""

    @wraps(verb)
    def run(*arguments: Given.args, **named: Given.kwargs) -> Result:
        with WarningLog() as log:
            result: Any = verb(*arguments, **named)
        result.warnings = log.texts
        return cast(Result, result)

    return run


def note_warning(text: str) -> bool:
    """Keep a warning in the log of this call; return whether it is to be shown."""
    log = _log.get()
    if log is not None:
        log.add(str(TurnwiseWarning(text)))
    return log is None or not log.is_quiet


def warnings_so_far() -> tuple[str, ...]:
    """Return the warnings of this call."""
    log = _log.get()
    return () if log is None else log.texts


def warn_caller(text: str) -> None:
    """Warn of the line that called this library, however many of its functions are between."""
    if not note_warning(text):
        return
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
        level += 1
    # Python shows the same text of the same line once, so what a loop over many rows loses would look like one row.
    times = f"{next(_count_warnings(text)):,}"
    if times.strip("0,") == "1" and times != "1":
        text += (
            f" ({times} times so far; `strict` of render, encode and examples makes it an error)"
        )
    warn(text, TurnwiseWarning, stacklevel=level)


@lru_cache(MAX_COUNTED)
def _count_warnings(text: str) -> Iterator[int]:
    """Return what counts the warnings with this text, from 1 on."""
    return count(1)


def _show_source_line(source_line: str, line: int, column: int | None, is_cut: bool) -> str:
    """Return the line with a caret under the column; of a long line, the part around the column.

    Args:
        source_line: the line.
        line: its number.
        column: the column, counted from 1.
        is_cut: whether the line begins earlier.
    """
    caret = min((column or 1) - 1, len(source_line))
    start = 0
    if len(source_line) > SOURCE_WIDTH:
        start = max(0, caret - SOURCE_WIDTH // 2)
    end = start + SOURCE_WIDTH
    before = "…" if is_cut or start > 0 else ""
    after = "…" if end < len(source_line) else ""
    # a tab has no fixed width, so the caret would be off
    source_line = source_line.replace("\t", " ")
    drawing = f"   {line} | {before}{printable(source_line[start:end])}{after}"
    if column is None:
        return drawing
    indent = len(before + printable(source_line[start:caret]))
    return f"{drawing}\n   {' ' * len(str(line))} | {' ' * indent}^"


def printable(text: str, limit: int = MAX_MESSAGE_LENGTH) -> str:
    """Make text safe for a terminal: escape control characters, keep at most `limit` characters."""
    shown = text[:limit]
    if not shown.isprintable():
        shown = "".join(c if c.isprintable() or c in "\n\t" else escape_character(c) for c in shown)
    if len(text) > limit:
        shown += f"… ({len(text)} characters)"
    return shown


def truncate_text(text: str, limit: int) -> str:
    """Return the text, or its first `limit` characters and how many there were."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text)} characters)"


def escape_character(character: str) -> str:
    """Return a character as Python's escape of it: `\\x1b`, `\\u202e`."""
    return character.encode("unicode_escape").decode("ascii")


def short_repr(value: object, limit: int = 60) -> str:
    """Return a `repr` that is short enough for a sentence.

    Only a few parts of the value are read: it may be huge, or contain itself.
    """
    text = _repr_of_start(value, limit, 3)
    return text if len(text) <= limit else text[:limit] + "…"


def _repr_of_start(value: object, limit: int, depth: int) -> str:
    if isinstance(value, str):
        return repr(value[:limit])
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() < 512 else "a huge number"
    if type(value) is dict:
        parts = []
        for key, item in islice(value.items(), 4 if depth else 0):
            shown = _repr_of_start(item, limit, depth - 1)
            parts.append(f"{_repr_of_start(key, 20, 0)}: {shown}")
        brackets = "{}"
    elif type(value) is list or type(value) is tuple:
        parts = [_repr_of_start(item, limit, depth - 1) for item in value[: 4 if depth else 0]]
        brackets = "[]" if type(value) is list else "()"
    else:
        return f"<{type(value).__name__}>"
    rest = "…" if len(parts) < len(value) else ""
    return brackets[0] + ", ".join(parts) + rest + brackets[1]


def did_you_mean(word: str, known: Iterable[str], what: str) -> str | None:
    """Return a hint that lists the known names and the nearest: `what: a, b, c. Did you mean 'b'?`

    Returns None if no names are known.
    """
    names = list(dict.fromkeys(map(_show_name, islice(known, 50))))
    if not names:
        return None
    # comparing takes the product of the lengths, and a long word is no misspelt name
    nearest = difflib.get_close_matches(word, names, 1) if len(word) <= MAX_NAME_SHOWN else []
    listed = names
    if len(names) > MAX_LISTED_NAMES:
        listed = [*names[:LISTED_OF_MANY], "…"]
    hint = f"{what}: {', '.join(listed)}."
    if nearest:
        hint += f" Did you mean {nearest[0]!r}?"
    return hint


def _show_name(name: object) -> str:
    return name[:MAX_NAME_SHOWN] if isinstance(name, str) else short_repr(name, MAX_NAME_SHOWN)

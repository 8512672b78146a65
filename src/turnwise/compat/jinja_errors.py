"""Errors of templates that are also jinja2's, for code that catches those.

transformers and PaddleNLP render with jinja2, and their users write `except jinja2.TemplateError`. An error of turnwise
is raised again here as a type that is both: the message, the place and the hint stay, and both names catch it.
`TemplateLimitError` has no counterpart in jinja2 and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jinja2
from jinja2.exceptions import SecurityError

from turnwise.errors import (
    SourceError,
    TemplateError,
    TemplateRaised,
    TemplateRuntimeError,
    TemplateSecurityError,
    TemplateSyntaxError,
    TurnwiseError,
)

# `message` is a read-only property of jinja2's errors and an attribute of ours, so each class declares it.


class JinjaRaised(TemplateRaised, jinja2.TemplateError):
    """The template called `raise_exception`."""

    message: str = ""


class JinjaRuntimeError(TemplateRuntimeError, jinja2.TemplateRuntimeError):
    """The template cannot render this conversation."""

    message: str = ""


class JinjaSecurityError(TemplateSecurityError, SecurityError):
    """The template used something that the sandbox forbids."""

    message: str = ""


class _SyntaxErrorFields:
    """Attributes that code reads off a `jinja2.TemplateSyntaxError`."""

    message: str = ""
    lineno: int = 0
    filename: str | None = None
    source: str | None = None
    translated: bool = False


# Both parents have a `name`, which may be None in jinja2; ours, a text, is what it is here.
class JinjaSyntaxError(_SyntaxErrorFields, TemplateSyntaxError, jinja2.TemplateSyntaxError):  # type: ignore[misc]
    """The text is not Jinja."""


class JinjaSourceError(_SyntaxErrorFields, SourceError, jinja2.TemplateSyntaxError):
    """A field of a file is not Jinja."""


TYPES: tuple[tuple[type[TurnwiseError], type[TurnwiseError]], ...] = (
    (TemplateRaised, JinjaRaised),
    (TemplateRuntimeError, JinjaRuntimeError),
    (TemplateSecurityError, JinjaSecurityError),
    (TemplateSyntaxError, JinjaSyntaxError),
    (SourceError, JinjaSourceError),
)
"""Our types and those that are also jinja2's; the first that fits is used."""


def as_jinja_error(error: TurnwiseError) -> TurnwiseError:
    """Return the error as a type that is also jinja2's; itself if there is none."""
    for own, both in TYPES:
        if isinstance(error, both):
            return error
        if isinstance(error, own):
            made = both.__new__(both)
            made.args = (error.message,)
            made.__dict__.update(error.__dict__)
            if isinstance(made, _SyntaxErrorFields):
                made.lineno = getattr(error, "line", None) or 0
            return made
    return error


@contextmanager
def raise_jinja_errors() -> Iterator[None]:
    """Raise errors of templates within as types that are also jinja2's."""
    try:
        yield
    except (TemplateError, SourceError) as error:
        raise as_jinja_error(error).with_traceback(error.__traceback__) from error.__cause__

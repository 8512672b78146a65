"""Read the rows of XTuner's data: values by key and lists of messages, with errors that are XTuner's too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.compat import MissingKey
from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.shapes.row import check_text


class UnknownRole(MessageError, NotImplementedError):
    """A message is by somebody whom the map function does not know; XTuner raises NotImplementedError."""


class InvalidRow(MessageError, AssertionError):
    """A row is not of the shape that the map function takes; XTuner raises AssertionError."""


def require_value(value: Any, key: str, path: str = "") -> Any:
    """Return a value of a mapping; a missing one is also a KeyError, as in XTuner."""
    if not isinstance(value, Mapping):
        raise MessageError(f"must be a mapping with {key!r}, not {short_repr(value)}", path=path)
    if key not in value:
        raise MissingKey(
            f"there is no {key!r}",
            path=path,
            hint=did_you_mean(key, value, "It has") or "It is empty.",
        )
    return value[key]


def require_text(value: Any, key: str, path: str = "") -> str:
    """Return a text of a mapping."""
    return check_text(require_value(value, key, path), (f"{path}.{key}".lstrip("."),))


def require_list(example: Any, key: str) -> list[Any]:
    """Return a list of a mapping."""
    value = require_value(example, key)
    if not isinstance(value, list | tuple):
        raise MessageError(f"must be a list, not {short_repr(value)}", path=key)
    return list(value) if isinstance(value, tuple) else value


def read_turns(
    example: Any, key: str, role_key: str, assistant: str
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield the role, the message and the path of each message; answers before any question are skipped."""
    has_begun = False
    for index, message in enumerate(require_list(example, key)):
        path = f"{key}[{index}]"
        role = require_value(message, role_key, path)
        has_begun = has_begun or role != assistant
        if has_begun:
            yield role, message, path


def unknown_role(role: Any, path: str, roles: str) -> UnknownRole:
    """Return the error for a role that a map function does not know."""
    return UnknownRole(
        f"XTuner does not know the role {short_repr(role)}", path=path, hint=f"Roles: {roles}."
    )

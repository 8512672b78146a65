"""Read the body of a request: JSON within limits, then field by field, each refusal one sentence with its field.

    body = BodyReader(parse_body(data, max_depth=64))
    body.require("messages", list)
    body.get("temperature", (int, float), least=0)

    RequestError: temperature: a number is needed, not 'warm'

There are no schemas: a field is checked where it is used, so what is accepted is what is read.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from math import isinf
from typing import Any, NoReturn

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import find_lone_surrogate

INVALID, NOT_FOUND, TOO_LARGE, TOO_SLOW = 422, 404, 413, 504
Kinds = type | tuple[type, ...]
NUMBER = (int, float)
KIND_NAMES: dict[Any, str] = {
    str: "a text",
    list: "a list",
    dict: "an object",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}
MAX_INTEGER = 2**63 - 1
MAX_TOKEN_ID = 2**31 - 1


class RequestError(MessageError):
    """A request that is refused, with the HTTP status of the answer."""

    def __init__(
        self, message: str, *, path: str = "", hint: str | None = None, status: int = INVALID
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.status = status


def parse_body(data: bytes, max_depth: int) -> Any:
    """Return the value of a JSON body.

    Raises:
        RequestError: it is not JSON, has numbers that JSON does not have or a key twice in one object, is nested too
            deeply, or has a text that is not Unicode.
    """
    try:
        text = data.decode("utf-8-sig")
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_read_float,
            object_pairs_hook=_read_object,
        )
    except RecursionError:
        raise _too_deep(max_depth) from None
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RequestError(f"the body is not JSON: {error.msg} at {where}") from None
    except RequestError:
        raise
    except ValueError:  # Python reads no number of thousands of digits
        raise RequestError("the body has a number with too many digits to be read") from None
    # A body with few brackets cannot be deep, and is not walked.
    if data.count(b"[") + data.count(b"{") > max_depth and is_deeper(value, max_depth):
        raise _too_deep(max_depth)
    if "\\ud" in text or "\\uD" in text:  # halves of a surrogate pair can only be escapes
        problem = find_lone_surrogate(value, ())
        if problem is not None:
            raise problem
    return value


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; a key twice is refused, since a filter before this server may have read the other value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RequestError(f"the body has the key {short_repr(key)} twice in one object")
            seen.add(key)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise RequestError(f"the body is not JSON: it has the number {name}")


def _read_float(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise RequestError(f"the body has the number {short_repr(text)}, which is too large")
    return value


def _too_deep(max_depth: int) -> RequestError:
    return RequestError(f"the body is nested more than {max_depth} levels deep")


def is_deeper(value: Any, max_depth: int) -> bool:
    """Return whether containers are nested deeper than a number of levels."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(max_depth):
        children: list[Any] = []
        for one in level:
            inside = one.values() if isinstance(one, dict) else one
            children += [child for child in inside if isinstance(child, (dict, list))]
        if not children:
            return False
        level = children
    return bool(level)


class BodyReader:
    """The fields of a JSON object; null is the same as missing.

    Args:
        value: the object.
        path: what it is called in errors; empty for the body itself.
    """

    def __init__(self, value: Any, path: str = "") -> None:
        if not isinstance(value, dict):
            raise RequestError(f"{path or 'the body'} must be an object, not {short_repr(value)}")
        self.value = value
        self.path = path

    def name(self, field: str) -> str:
        """Return what a field is called in errors."""
        return f"{self.path}.{field}" if self.path else field

    def get(
        self,
        field: str,
        kinds: Kinds,
        default: Any = None,
        *,
        least: float | None = None,
        most: float | None = None,
    ) -> Any:
        """Return a field, or the default if it is missing.

        Raises:
            RequestError: it is of another type, or out of bounds.
        """
        value = self.value.get(field)
        if value is None:
            return default
        listed = kinds if isinstance(kinds, tuple) else (kinds,)
        if not isinstance(value, listed) or (isinstance(value, bool) and bool not in listed):
            expected = " or ".join(
                KIND_NAMES[kind] for kind in listed if not (kind is int and float in listed)
            )
            raise RequestError(
                f"{expected} is needed, not {short_repr(value)}", path=self.name(field)
            )
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise RequestError("this number is too large", path=self.name(field))
        if isinstance(value, NUMBER) and not isinstance(value, bool):
            self._check_bounds(field, value, least, most)
        return value

    def _check_bounds(
        self, field: str, value: float, least: float | None, most: float | None
    ) -> None:
        if least is not None and value < least:
            raise RequestError(f"{value} is less than {least}", path=self.name(field))
        if most is not None and value > most:
            raise RequestError(f"{value} is more than {most}", path=self.name(field))

    def require(self, field: str, kinds: Kinds, **bounds: Any) -> Any:
        """Return a field that must be there."""
        value = self.get(field, kinds, **bounds)
        if value is None:
            raise RequestError("this field is missing", path=self.name(field))
        return value

    def choose(self, field: str, choices: Collection[str], default: str) -> str:
        """Return a text that is one of some choices."""
        value: str = self.get(field, str, default)
        if value not in choices:
            hint = did_you_mean(value, choices, "Accepted")
            raise RequestError(
                f"{short_repr(value)} is not accepted", path=self.name(field), hint=hint
            )
        return value

    def list_of(self, field: str, kind: type, most: int | None = None, default: Any = None) -> Any:
        """Return a list whose items all have a type; at most so many."""
        items = self.get(field, list, default)
        if items is None:
            return None
        if most is not None and len(items) > most:
            raise RequestError(
                f"{len(items):,} are more than the {most:,} that this server takes",
                path=self.name(field),
            )
        for index, item in enumerate(items):
            if not isinstance(item, kind) or (isinstance(item, bool) and kind is not bool):
                raise RequestError(
                    f"{KIND_NAMES[kind]} is needed, not {short_repr(item)}",
                    path=f"{self.name(field)}[{index}]",
                )
        return items

    def token_ids(self, field: str, most: int | None = None) -> list[int] | None:
        """Return a list of token ids that an engine has sampled: also of ones that no tokenizer has."""
        return self._read_ids(field, most, MAX_INTEGER)

    def engine_ids(self, field: str, most: int | None = None) -> list[int] | None:
        """Return a list of token ids that an engine gets."""
        return self._read_ids(field, most, MAX_TOKEN_ID)

    def _read_ids(self, field: str, most: int | None, largest: int) -> list[int] | None:
        ids: list[int] | None = self.list_of(field, int, most)
        # Two passes in C, not one test for each of a hundred thousand ids.
        if ids and (min(ids) < 0 or max(ids) > largest):
            raise RequestError(
                f"a token id is a whole number from 0 to {largest}", path=self.name(field)
            )
        return ids

    def reader(self, field: str) -> BodyReader | None:
        """Return a reader of an object inside, None if it is missing."""
        value = self.get(field, dict)
        return None if value is None else BodyReader(value, self.name(field))

    def refuse(self, reasons: dict[str, str]) -> None:
        """Refuse fields that this server cannot honour, unless they ask for nothing."""
        for field, reason in reasons.items():
            if self.value.get(field) not in (None, False, 0, "", [], {}):
                raise RequestError(reason, path=self.name(field))

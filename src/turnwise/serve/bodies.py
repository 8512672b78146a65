"""Read the body of a request: JSON within limits, then the fields of a dataclass, each refusal one sentence.

    class Sampling(RequestBody):
        temperature: Annotated[float | None, Bounds(0, 100)] = None

    read_fields(Sampling, {"temperature": "warm"})

    MessageError: temperature: a number is needed, not 'warm'

Annotations may be str, bool, int, float, dict, Any, a Literal of texts, a dataclass, lists and unions of these. The
same annotations write the OpenAPI page (`openapi.py`). A library would do less: null counts as missing here, an error
quotes the value, and a bound may be a setting of the server.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from turnwise.data.records import decode_json
from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import JsonObject, find_lone_surrogate
from turnwise.schema import check_name

INVALID, NOT_FOUND, TOO_LARGE, TOO_SLOW = 422, 404, 413, 504
KIND_NAMES: dict[type, str] = {
    str: "a text",
    list: "a list",
    dict: "an object",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}
MAX_INTEGER = 2**63 - 1


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
    too_deep = RequestError(f"the body is nested more than {max_depth} levels deep")
    try:
        text = data.decode("utf-8-sig")
        value = decode_json(text)
    except RecursionError:
        raise too_deep from None
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8: byte {error.start}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RequestError(f"the body is not JSON: {error.msg} at {where}") from None
    except ValueError as error:
        raise RequestError(f"the body cannot be read: {error}") from None
    # A body with few brackets cannot be deep, and is not walked.
    if data.count(b"[") + data.count(b"{") > max_depth and is_deeper(value, max_depth):
        raise too_deep
    # Halves of a surrogate pair can only be escapes.
    has_escape = "\\ud" in text or "\\uD" in text
    if has_escape and (problem := find_lone_surrogate(value, ())):
        raise problem
    return value


def is_deeper(value: Any, max_depth: int) -> bool:
    """Return whether containers are nested deeper than a number of levels."""
    level = [value]
    for _ in range(max_depth + 1):
        level = [one for one in level if isinstance(one, (dict, list))]
        if not level:
            return False
        level = [
            child for one in level for child in (one.values() if isinstance(one, dict) else one)
        ]
    return True


@dataclass(frozen=True)
class Bounds:
    """The least and most of a number, or how many items a list may have; a text names a setting of the server."""

    least: int | None = None
    most: int | str | None = None


@dataclass_transform(frozen_default=True, kw_only_default=True)
class RequestBody:
    """The fields of a JSON object; null is the same as missing. Each subclass becomes a dataclass.

    Attributes:
        given: the object as it was sent, with fields that are not read.
        types: what each field may be; None may be anything.
        is_closed: whether other fields are refused.
    """

    given: JsonObject
    types: ClassVar[dict[str, FieldType | None]] = {}
    required: ClassVar[list[str]] = []
    is_closed: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        made: Any = dataclass(frozen=True, kw_only=True)(cls)
        hints = get_type_hints(cls, include_extras=True)
        cls.types = {one.name: _read_annotation(hints[one.name]) for one in fields(made)}
        needed = [one for one in fields(made) if one.default is MISSING]
        cls.required = [one.name for one in needed if one.default_factory is MISSING]


Body = TypeVar("Body", bound=RequestBody)


@dataclass(frozen=True)
class FieldType:
    """What a field may be, read from its annotation.

    Attributes:
        kinds: its JSON types; float stands for every number.
        bounds: of a number, or of how many items a list has.
        item: what the items of a list may be.
        body: the dataclass of an object.
        choices: the texts that are accepted, if not all are.
    """

    kinds: tuple[type, ...]
    bounds: Bounds = Bounds()
    item: FieldType | None = None
    body: type[RequestBody] | None = None
    choices: tuple[str, ...] = ()

    def read(self, value: Any, path: str, settings: Any = None) -> Any:
        """Return a value of this type.

        Raises:
            MessageError: it has another type, or is out of bounds.
        """
        # A boolean is an int for Python, and an int is a number for everybody else.
        has_kind = isinstance(value, self.kinds) or (isinstance(value, int) and float in self.kinds)
        if not has_kind or (isinstance(value, bool) and bool not in self.kinds):
            raise MessageError(
                f"{' or '.join(map(KIND_NAMES.__getitem__, self.kinds))} is needed, not {short_repr(value)}",
                path=path,
            )
        if isinstance(value, list):
            return self._read_list(value, path, settings)
        if self.body is not None and isinstance(value, dict):
            return read_fields(self.body, value, settings, path)
        if isinstance(value, int | float):
            self._check_number(value, path, settings)
        elif self.choices and value not in self.choices:
            raise MessageError(
                f"{short_repr(value)} is not accepted",
                path=path,
                hint=did_you_mean(value, self.choices, "Accepted"),
            )
        return value

    def _check_number(self, value: float, path: str, settings: Any) -> None:
        least, most = self.bounds.least, find_most(self.bounds, settings)
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise MessageError("this number is too large", path=path)
        if least is not None and value < least:
            raise MessageError(f"{value} is less than {least}", path=path)
        if most is not None and value > most:
            raise MessageError(f"{value} is more than {most}", path=path)

    def _read_list(self, items: list[Any], path: str, settings: Any) -> list[Any]:
        most = find_most(self.bounds, settings)
        if most is not None and len(items) > most:
            raise MessageError(
                f"{len(items):,} are more than the {most:,} that this server takes", path=path
            )
        if self.item is None:
            return items
        # Passes in C, not one test for each of a hundred thousand ids.
        if items and self.item.kinds == (int,) and set(map(type, items)) == {int}:
            least, largest = self.item.bounds.least, self.item.bounds.most
            if least is not None and not least <= min(items) <= max(items) <= int(largest or 0):
                raise MessageError(
                    f"a token id is a whole number from {least} to {largest}", path=path
                )
            return items
        return [
            self.item.read(item, f"{path}[{index}]", settings) for index, item in enumerate(items)
        ]


def find_most(bounds: Bounds, settings: Any) -> int | None:
    """Return the most of some bounds, which may be a setting."""
    return getattr(settings, bounds.most) if isinstance(bounds.most, str) else bounds.most


def _read_annotation(hint: Any) -> FieldType | None:
    bounds = Bounds()
    if get_origin(hint) is Annotated:
        hint, bounds = get_args(hint)
    kinds: list[type] = []
    item: FieldType | None = None
    body: type[RequestBody] | None = None
    choices: tuple[str, ...] = ()
    for option in get_args(hint) if isinstance(hint, UnionType) else (hint,):
        kind = get_origin(option) or option
        if kind is Any:
            return None
        if kind is Literal:
            kind, choices = str, get_args(option)
        elif kind is list:
            item = _read_annotation(get_args(option)[0])
        elif isinstance(kind, type) and issubclass(kind, RequestBody):
            body, kind = kind, dict
        if kind is not NoneType:
            kinds.append(kind)
    return FieldType(tuple(kinds), bounds, item, body, choices)


def read_fields(body: type[Body], value: Any, settings: Any = None, path: str = "") -> Body:
    """Return the fields of a JSON object.

    Args:
        body: the dataclass of the object.
        value: the object.
        settings: the limits of the server, for bounds that name one.
        path: what the object is called in errors; empty for the body itself.

    Raises:
        MessageError: it is no object, or a field is missing, of another type, or out of bounds.
    """
    if not isinstance(value, dict):
        raise MessageError(f"{path or 'the body'} must be an object, not {short_repr(value)}")
    prefix = f"{path}." if path else ""
    found = {}
    for name, given in value.items():
        if body.is_closed:
            check_name(name, body.types, "unknown field", "Fields", path=path)
        if given is not None and name in body.types:
            kind = body.types[name]
            found[name] = given if kind is None else kind.read(given, prefix + name, settings)
    for name in body.required:
        if name not in found:
            raise MessageError("this field is missing", path=prefix + name)
    made = body(**found)
    object.__setattr__(made, "given", value)
    return made


def refuse_fields(body: RequestBody, reasons: dict[str, str]) -> None:
    """Refuse fields that this server cannot honour, unless they ask for nothing."""
    for name, reason in reasons.items():
        if body.given.get(name) not in (None, False, 0, "", [], {}):
            raise RequestError(reason, path=name)

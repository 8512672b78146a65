"""The values of a template that are not JSON data.

Messages, tools and options are plain JSON data. Beside them a template can only hold the classes
below. Their Python attributes are out of its reach: `access.py` reads values through tables of
allowed names, so a template cannot get from them to Python itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from turnwise.engine.provenance.trails import Trail
from turnwise.errors import short_repr

Pair = tuple[Any, Trail]
"""A value and its trail: what operations, filters and functions take and return."""
Builtin = Callable[..., Pair]
"""A filter, method, function or operator of templates."""
NamedPairs = dict[str, Pair]
NONE: Pair = (None, None)
FALSE: Pair = (False, None)


class Failure(Exception):
    """An operation of the template failed.

    `Program` adds the place and makes it a `TemplateRuntimeError`.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class ValueFailure(Failure):
    """A value has the wrong type; the hint shows it."""

    def __init__(self, message: str, value: Any) -> None:
        super().__init__(message, f"the value is {short_repr(value)}")


class UndefinedFailure(Failure):
    """An undefined value was used."""

    def __init__(self, undefined: Undefined) -> None:
        message, hint = undefined.message, None
        if callable(message):
            message, hint = message()
        super().__init__(message, hint)
        self.owner = undefined.owner
        self.key = undefined.key


class Denied(Failure):
    """The template used something outside of the white list; becomes a `TemplateSecurityError`."""


class Raised(Exception):
    """The template called `raise_exception`; becomes a `TemplateRaised`."""


@dataclass(slots=True, eq=False)
class Undefined:
    """The value of a name or field that does not exist: empty as text, false as a condition, else
    an error.

    The compiler makes one object for each field that a template reads. `owner` is the variable of
    the generated code that holds the dict, so that the error can list the keys of the dict
    (`Program` looks it up in the failing frame).
    """

    # or a function that makes it and a hint, since most are never shown
    message: str | Callable[[], tuple[str, str | None]]
    owner: str = ""
    key: str = ""

    def __str__(self) -> str:
        return ""

    def __repr__(self) -> str:
        return "Undefined"

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __eq__(self, other: object) -> bool:
        return type(other) is Undefined

    def __hash__(self) -> int:
        return hash(Undefined)


def _fail(undefined: Undefined, *_: Any, **__: Any) -> NoReturn:
    raise UndefinedFailure(undefined)


FAILING = (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg pos "
    "lt le gt ge int float call"
)
for _name in FAILING.split():
    setattr(Undefined, f"__{_name}__", _fail)


def check_defined(value: Any) -> Any:
    """Return a value; raise an error if it is undefined."""
    if type(value) is Undefined:
        raise UndefinedFailure(value)
    return value


class Namespace:
    """`namespace(...)`.

    The only value that a template can change. Each attribute is a pair of value and trail.
    """

    __slots__ = ("pairs",)

    def __init__(self, pairs: NamedPairs) -> None:
        for name in pairs:
            refuse_private(name)
        self.pairs = pairs

    def __repr__(self) -> str:
        return f"<Namespace { {name: pair[0] for name, pair in self.pairs.items()}!r}>"


def refuse_private(name: str) -> None:
    """Raise an error for a name that would be private in Python."""
    if name[:1] == "_":
        raise Denied(
            f"a namespace cannot have an attribute that starts with an underscore: {short_repr(name)}"
        )


@dataclass(slots=True, eq=False)
class Loop:
    """`loop` as a value.

    Mostly there is none: the generated code has its attributes as local variables.
    """

    items: Any
    trails: Any
    depth0: int
    again: Builtin | None = None
    index0: int = -1
    last_seen: Any = None

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<LoopContext {self.index0 + 1}/{len(self.items)}>"


@dataclass(slots=True, eq=False)
class Cycler:
    """`cycler(...)`: returns its items in turn."""

    items: list[Pair]
    position: int = 0

    def __repr__(self) -> str:
        raise Failure("a cycler cannot be printed", "call its next()")


@dataclass(slots=True, eq=False)
class Macro:
    """A macro and what it accepts; `body` is the generated function."""

    name: str | None
    body: Callable[..., list[Any]]
    arguments: tuple[str, ...]
    caller: bool
    catch_kwargs: bool
    catch_varargs: bool

    def __repr__(self) -> str:
        return f"<Macro {self.name!r}>" if self.name is not None else "<Macro anonymous>"


@dataclass(slots=True, eq=False)
class Function:
    """A builtin that a template can call: `range`, `raise_exception`, a method of a string."""

    name: str
    run: Builtin

    def __repr__(self) -> str:
        raise Failure(
            f"'{self.name}' is a function and cannot be printed", "call it: add () after the name"
        )


@dataclass(slots=True, eq=False)
class Stream:
    """The result of `map`, `select` and similar filters.

    It can be iterated once, as jinja2's generators can.
    """

    items: list[Any]
    trail: Trail

    def take_items(self) -> list[Any]:
        """Return the items; from now on the stream is empty."""
        items, self.items = self.items, []
        return items

    def __repr__(self) -> str:
        raise Failure(
            "the result of this filter is a generator and cannot be printed", "add |list or |join"
        )


@dataclass(slots=True, eq=False)
class View:
    """The result of `keys`, `values` and `items` of a dict: it can be iterated and counted."""

    kind: str
    items: list[Any]
    trail: Trail

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, item: object) -> bool:
        return item in self.items

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self.kind == other.kind and self.items == other.items

    __hash__ = None  # type: ignore[assignment]  # as Python says that a value is not hashable

    def __repr__(self) -> str:
        return f"{self.kind}({self.items!r})"


class Safe(str):
    """The result of `|safe`.

    Output is never escaped, but text that is added to safe text is, as in markupsafe.
    """

    __slots__ = ()


MISSING = object()
"""An argument that was not given; templates never see it."""
ABSENT: Pair = (MISSING, None)

"""The values that a template can hold and that JSON does not have.

Messages, tools and options are plain JSON data. Beside them there are only these: `Undefined`, `Namespace`, `Loop`,
`Macro`, `Function`, `Stream` and `Safe`. None of them has an attribute that a template can reach except through `reach`
tables in `access.py`; so there is no Python object behind them to climb to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from turnwise.engine.provenance.trails import Trail
from turnwise.errors import short_repr

Pair = tuple[Any, Trail]


class Failure(Exception):
    """Something the template did went wrong. The program adds the place and makes it a `TemplateRuntimeError`."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class UndefinedFailure(Failure):
    """A value that is not there was used."""

    def __init__(self, undefined: Undefined) -> None:
        said = undefined.message
        super().__init__(*((said, None) if isinstance(said, str) else said()))
        self.owner, self.key = undefined.owner, undefined.key


class Denied(Failure):
    """An access outside the white list; becomes a `TemplateSecurityError`."""


class Raised(Exception):
    """`raise_exception`; becomes a `TemplateRaised`."""


def _fail(self: Undefined, *_: Any, **__: Any) -> NoReturn:
    raise self.failure()


class Undefined:
    """What a name or field gives that is not there: empty as text, false as a condition, an error in any other use.

    A missing field of a dict is the same object every time. It knows the name of the program's variable that held the
    dict, so that the error can say what the dict has instead (`Program` looks it up in the failing frame).
    """

    __slots__ = ("key", "message", "owner")

    def __init__(
        self, message: str | Callable[[], tuple[str, str | None]], owner: str = "", key: str = ""
    ) -> None:
        self.message = message  # or what says it, and a hint: most are never asked
        self.owner = owner
        self.key = key

    def failure(self) -> UndefinedFailure:
        return UndefinedFailure(self)

    def __str__(self) -> str:
        return ""

    def __repr__(self) -> str:
        return "Undefined"

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return type(other) is Undefined

    def __hash__(self) -> int:
        return hash(Undefined)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = (
        _fail
    )
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __pos__ = (
        _fail
    )
    __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = __call__ = _fail


class Namespace:
    """`namespace(...)`: the one thing a template can change. Each attribute is a pair of value and trail."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: dict[str, Pair]) -> None:
        for name in pairs:
            refuse_private(name)
        self.pairs = pairs

    def set(self, name: str, value: Any, trail: Trail) -> None:
        refuse_private(name)
        self.pairs[name] = (value, trail)

    def __repr__(self) -> str:
        return f"<Namespace { {name: pair[0] for name, pair in self.pairs.items()}!r}>"


def refuse_private(name: str) -> None:
    if name[:1] == "_":
        raise Denied(
            f"a namespace cannot have an attribute that starts with an underscore: {short_repr(name)}"
        )


class Loop:
    """`loop`, when a template uses it as a value; elsewhere its attributes are local variables of the program."""

    __slots__ = ("again", "depth0", "index0", "items", "last_seen", "trails")

    def __init__(
        self, items: Any, trails: Any, depth0: int, again: Callable[..., Pair] | None = None
    ) -> None:
        self.items = items
        self.trails = trails
        self.depth0 = depth0
        self.again = again
        self.index0 = -1
        self.last_seen: Any = Loop

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<LoopContext {self.index0 + 1}/{len(self.items)}>"


class Cycler:
    """`cycler(...)`: its items in turn, each time it is asked."""

    __slots__ = ("items", "position")

    def __init__(self, items: list[Pair]) -> None:
        self.items = items
        self.position = 0

    def __repr__(self) -> str:
        raise Failure("a cycler cannot be printed", "call its next()")


class Macro:
    """A macro and what it accepts; `body` is the generated function."""

    __slots__ = (
        "arguments",
        "body",
        "catch_kwargs",
        "catch_varargs",
        "caller",
        "explicit_caller",
        "name",
    )

    def __init__(
        self,
        name: str | None,
        body: Callable[..., list[Any]],
        arguments: tuple[str, ...],
        special: tuple[bool, bool, bool, bool],
    ) -> None:
        self.name = name
        self.body = body
        self.arguments = arguments
        self.caller, self.catch_kwargs, self.catch_varargs, self.explicit_caller = special

    def __repr__(self) -> str:
        return f"<Macro {self.name!r}>" if self.name is not None else "<Macro anonymous>"


class Function:
    """A builtin that a template can call: `range`, `raise_exception`, a method of a string."""

    __slots__ = ("name", "run")

    def __init__(self, name: str, run: Callable[..., Pair]) -> None:
        self.name = name
        self.run = run

    def __repr__(self) -> str:
        raise Failure(
            f"'{self.name}' is a function and cannot be printed", "call it: add ( ) behind the name"
        )


class Stream:
    """What `map`, `select` and their kind give: a sequence that can be walked once, as jinja2's generators can."""

    __slots__ = ("items", "trail")

    def __init__(self, items: list[Any], trail: Trail) -> None:
        self.items = items
        self.trail = trail

    def taken(self) -> list[Any]:
        items, self.items = self.items, []
        return items

    def __repr__(self) -> str:
        raise Failure(
            "the result of this filter is a generator and cannot be printed", "add |list or |join"
        )


class View:
    """What `keys`, `values` and `items` of a dict give: it can be walked over and counted, and that is all."""

    __slots__ = ("items", "kind", "trail")

    def __init__(self, kind: str, items: list[Any], trail: Trail) -> None:
        self.kind = kind
        self.items = items
        self.trail = trail

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
    """What `|safe` gives. Output is never escaped here; but as in markupsafe, text added to it is."""

    __slots__ = ()


class Missing:
    """An argument that was not given; never seen by a template."""

    __slots__ = ()


MISSING = Missing()
ABSENT: Pair = (MISSING, None)

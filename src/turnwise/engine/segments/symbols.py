"""Values that record what a program asks about them: texts, numbers and messages that are not known.

Each has the *source* of its value, a Python expression over the names of `facts.py`. An operation either makes another
such value (`messages[loop.index0 - 1]` has the source `M[(i - 1)]`), or needs to know something: then the question is
recorded and answered for the conversation at hand. Any other use is refused.

The classes pretend to be what they stand for (`__class__`), since generated code looks at that, but they are no
subclasses: Python's own functions cannot look past the recording. An unknown text must be a `str`, because functions
that only pass it on ask for one. Its only character is one that Unicode does not have; in the output it shows that a
text was read past all guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Self

from turnwise.engine.provenance.trails import MESSAGES, Trail
from turnwise.engine.runtime.values import (
    Cycler,
    Function,
    Loop,
    Namespace,
    Pair,
    Safe,
    Stream,
    View,
)

OPERATION_BYTES = (
    400  # more than any operation on an unknown value pays, beside what it pays for each character
)
MAX_SOURCE = 1_000  # characters of a source
MAX_VISITS = 100_000  # of values that are looked through
MAX_PARTS = 100  # of a text
MAX_LIST = 24  # elements of a list in a message, or of a text that is split
CHARACTER = "\ufdd0"
SOME_FIELD = (-1, "")  # of a message that is not known, or a part of one
LOCAL = "r"  # before the number of a namespace of a round


class NotRecordable(Exception):
    """The template asked for more than can be recorded."""


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise NotRecordable


def check_length(source: str) -> str:
    """Return a source that is not too long: one that grows in every step would cost more than the program."""
    if len(source) > MAX_SOURCE:
        raise NotRecordable
    return source


Trim = tuple[str, str | None]  # a method of `str`, and the letters that it strips


class MessageField(NamedTuple):
    """A value in a message, or what a namespace has of one.

    Attributes:
        message: the source of the index of the message.
        path: the source of the way from the message to the value: `['tool_calls'][0]`.
        state: the source of the fields, if a namespace has them (`write_fields`).
    """

    message: str
    path: str
    state: str = ""

    def get(self, key: str | int) -> MessageField:
        """Return the field of an element."""
        return self._replace(path=f"{self.path}[{key!r}]")


class TextSlot(NamedTuple):
    """A part of a text that is not known.

    Attributes:
        source: the expression.
        section: the section in which it holds; 0 for all.
        field: the field that is written here whole, trimmed at most.
        is_json: whether it is written as JSON.
        trims: the methods that took white space from its ends, each with the letters.
    """

    source: str
    section: int
    field: MessageField | None = None
    is_json: bool = False
    trims: tuple[Trim, ...] = ()


Parts = tuple[str | TextSlot, ...]

# Attributes of `str` that Python needs to make an object, and to tell its type.
HARMLESS = {
    "__class__",
    "__delattr__",
    "__doc__",
    "__getattribute__",
    "__init__",
    "__init_subclass__",
    "__new__",
    "__setattr__",
    "__subclasshook__",
}


class InTrail(NamedTuple):
    """An unknown value in a trail, where no function looks at it."""

    value: Any


class StateTrail(NamedTuple):
    """The trail of a value that a namespace has had since an earlier section."""

    source: str


class UnknownText(str):
    """A text of constants and slots."""

    __slots__ = ("is_full", "parts", "recorder")

    parts: Parts
    recorder: Any
    is_full: bool  # known not to be empty

    # a string for templates that ask, but no `str` that generated code may read
    __class__ = Safe  # type: ignore[assignment]  # what a type test is told

    @property
    def source(self) -> str:
        """The expression of the whole text."""
        return str(self.recorder.write_source(self.parts))

    @property
    def slot(self) -> TextSlot | None:
        """Its only part, if that is a slot."""
        first = self.parts[0] if len(self.parts) == 1 else ""
        return first if isinstance(first, TextSlot) else None

    def __bool__(self) -> bool:
        return self.is_full or self.recorder.ask_full(self)

    def __eq__(self, other: object) -> bool:
        if type(other) is UnknownText:
            return bool(self.recorder.ask_text(self, f"{self.source} == {other.source}"))
        if not isinstance(other, str) or (self.is_full and str(other) == ""):
            return False
        source = f"{self.source} == {self.recorder.name(str(other))}"
        return bool(self.recorder.ask_text(self, source, str(other)))

    def __ne__(self, other: object) -> bool:
        return not self == other


for _name in set(dir(str)) - HARMLESS - {"__eq__", "__ne__"}:
    setattr(UnknownText, _name, refuse)


class SafeText(UnknownText):
    """An unknown text after `safe`: what is added to it would be escaped, so it is only written."""

    __slots__ = ()


class Sourced:
    """A value with a source, which may hold only in the section in which it was read."""

    __slots__ = ("_section", "_source", "recorder")

    def __init__(self, recorder: Any, source: str) -> None:
        self.recorder = recorder
        self._source = check_length(source)
        self._section = recorder.find_section(source)

    @property
    def source(self) -> str:
        """The expression."""
        return str(self.recorder.check_section(self._source, self._section))


class UnknownNumber(Sourced):
    """An integer that depends on the number of messages, on the round, or on a text."""

    __slots__ = ()

    __class__ = int  # type: ignore[assignment]  # what a type test is told

    def __bool__(self) -> bool:
        return bool(self.recorder.ask(f"{self.source} != 0"))

    __hash__ = None  # type: ignore[assignment]  # a number cannot be a key without being known
    __index__ = __int__ = __float__ = __str__ = __repr__ = __format__ = refuse


def write_number(number: Any) -> str:
    """Return the source of an integer that is the same in all sections of a round."""
    source: str = number.source if isinstance(number, UnknownNumber) else repr(number)
    if "S[" in source or type(number) not in (int, UnknownNumber):
        raise NotRecordable
    return source


def write_slice(bounds: Sequence[Any]) -> str:
    """Return the source of the bounds of a slice."""
    return ":".join("" if one is None else write_number(one) for one in bounds)


def _make_operator(form: str, is_question: bool) -> Callable[[UnknownNumber, Any], Any]:
    def run(self: UnknownNumber, other: Any) -> Any:
        if not is_question and UnknownFloat in (type(self), type(other)):
            raise NotRecordable  # what it gives is no integer
        if isinstance(other, UnknownNumber):
            right = other.source
        elif type(other) in (int, bool):
            right = repr(other)
        elif is_question and type(other) is not float and form.startswith(("({0} ==", "({0} !=")):
            return form.startswith("({0} !=")  # a number is no text
        else:
            raise NotRecordable
        source = form.format(self.source, right)
        return self.recorder.ask(source) if is_question else UnknownNumber(self.recorder, source)

    return run


for _name, _sign in {"add": "+", "sub": "-", "mul": "*", "mod": "%", "floordiv": "//"}.items():
    setattr(UnknownNumber, f"__{_name}__", _make_operator(f"({{0}} {_sign} {{1}})", False))
    setattr(UnknownNumber, f"__r{_name}__", _make_operator(f"({{1}} {_sign} {{0}})", False))
for _name, _sign in dict(eq="==", ne="!=", lt="<", le="<=", gt=">", ge=">=").items():
    setattr(UnknownNumber, f"__{_name}__", _make_operator(f"({{0}} {_sign} {{1}})", True))


class UnknownFloat(UnknownNumber):
    """A number of a message that is no integer."""

    __slots__ = ()

    __class__ = float  # type: ignore[assignment]  # what a type test is told


class UnknownMapping(Sourced):
    """A message, or a mapping in one. Keys are read one at a time.

    Args:
        recorder: records the questions.
        source: the expression of the mapping.
        field: where it is.
    """

    __slots__ = ("field",)

    def __init__(self, recorder: Any, source: str, field: MessageField) -> None:
        super().__init__(recorder, source)
        self.field = field

    @property
    def trail(self) -> Trail:
        """The trail of a message."""
        return MESSAGES, InTrail(UnknownNumber(self.recorder, self.field.message))

    __class__ = dict  # type: ignore[assignment]  # what a type test is told

    def __contains__(self, key: object) -> bool:
        if type(key) is not str:
            raise NotRecordable
        return bool(self.recorder.ask_kind(self, key) != "absent")

    def __getitem__(self, key: str) -> Any:
        return self.recorder.read_field(self, key)

    def __bool__(self) -> bool:
        return bool(self.recorder.ask(f"bool({self.source})"))

    def __eq__(self, other: object) -> bool:
        if type(other) is UnknownMapping:
            self.recorder.reads_contents = True
            source = f"{self.source} == {other.source}"
            if not self.recorder.is_made and "B" not in source:  # or they may be very large
                return bool(self.recorder.ask(source))
        return refuse() if isinstance(other, dict) else False

    __hash__ = None  # type: ignore[assignment]  # as a dict has none

    def read(self) -> dict[str, Any]:
        """Return a mapping with the same keys, and their values unknown."""
        return {key: self[key] for key in self.keys()}

    def keys(self) -> tuple[str, ...]:
        """Return the keys, in order."""
        self.recorder.reads_contents = True  # the order of keys is that of their writer
        found: tuple[str, ...] = self.recorder.ask(f"tuple({self.source})")
        if not all(type(key) is str for key in found):
            raise NotRecordable
        return found


class RoundCounter(UnknownNumber):
    """`loop.index0` of a loop that counts only the messages that pass its test."""

    __slots__ = ()

    @property
    def source(self) -> str:
        """The expression: what the last round left, and one more if this round is counted."""
        return str(self.recorder.state.get(self._source, f"S[{self._source!r}]"))

    def __add__(self, other: Any) -> Any:
        is_new = self.recorder.depth == 1 and self.recorder.is_first
        if not is_new or self._source in self.recorder.state:
            return UnknownNumber(self.recorder, self.source) + other
        # `i += 1` is the first thing that a round does
        self.recorder.state[self._source] = f"(S[{self._source!r}] + 1)"
        return self


class UnknownElements:
    """A list of which not even the length is known; `count` is the source of that."""

    __slots__ = ()
    recorder: Any
    count: Any

    __class__ = list  # type: ignore[assignment]  # what a type test is told

    def __bool__(self) -> bool:
        return bool(self.recorder.ask(f"{self.count} > 0"))

    def find_place(self, index: Any) -> str:
        """Return the source of the place of an element, counted from the first."""
        if isinstance(index, UnknownNumber):
            place = index.source
        elif type(index) is int:
            place = repr(index) if index >= 0 else f"({self.count} - {-index})"
        else:
            raise NotRecordable
        # Generated code has asked already whether there are so many.
        if not self.recorder.ask(f"0 <= {place} < {self.count}"):
            raise NotRecordable
        return place

    def __eq__(self, other: object) -> bool:
        return refuse() if isinstance(other, list) else False

    __hash__ = None  # type: ignore[assignment]  # as a list has none
    __iter__: Callable[[UnknownElements], Iterator[Any]] = refuse
    __contains__ = refuse


@dataclass(slots=True, eq=False, repr=False)
class UnknownMessages(UnknownElements):
    """The messages, or some of them.

    Attributes:
        recorder: records the questions.
        index: the source of the index of the message at a place, which is `@`.
        count: the source of their number.
        skipped: how many there are before them, if they are all others.
        chosen: the source of a list that `index` reads, if there is one.
        selection: how many there are before those that were tested, and the tests, if they passed some.
    """

    recorder: Any
    index: str = "@"
    count: str = "n"
    skipped: int | None = None
    chosen: str = ""
    selection: tuple[int, Any] | None = None

    def select(self, test: tuple[Any, ...]) -> UnknownMessages:
        """Return those of them that pass a test."""
        first, tests = self.selection or (self.skipped, ())
        if first is None:
            raise NotRecordable
        tests = *tests, test
        found = self.pick(f"select(S, M, {first}, {self.recorder.name(tests)})")
        found.selection = first, tests
        return found

    def pick(self, chosen: str) -> Self:
        """Return those whose indices are in a list."""
        return type(self)(self.recorder, f"{chosen}[@]", f"len({chosen})", chosen=chosen)

    def read(self, index: Any, _: Trail = None) -> Pair:
        """Return a message, with its trail."""
        found = self.get(self.find_place(index))
        return found, found.trail

    def take(self, loop: Any, *_: str) -> Pair:
        """Return the message of a round, with its trail."""
        found = UnknownMapping(self.recorder, loop.taken, MessageField(loop.index, ""))
        return found, found.trail

    def get(self, place: str) -> UnknownMapping:
        """Return the message at a place, which is a source."""
        index = self.write_index(place)
        source = self.recorder.owners.get(index) or f"M[{index}]"
        return UnknownMapping(self.recorder, source, MessageField(index, ""))

    def cut(self, *bounds: Any) -> UnknownMessages:
        """Return a slice."""
        start, *others = bounds
        if type(start) is int and start >= 0 and others == [None, None]:
            skipped = None if self.skipped is None else self.skipped + start
            index, count = self.write_index(f"({start} + @)"), f"max({self.count} - {start}, 0)"
            return UnknownMessages(self.recorder, index, count, skipped)
        found = self.pick(f"range({self.count})[{write_slice(bounds)}]")
        found.index = self.write_index(found.index)
        return found

    def write_index(self, place: str) -> str:
        """Return the source of the index of the message at a place."""
        return self.index.replace("@", place)


class UnknownList(UnknownElements, Sourced):
    """A list that the template made, of messages or of what is in them.

    Args:
        recorder: records the questions.
        source: the expression of the list.
        fields: that of its fields (`write_fields`).
        are_marked: whether a loop over it surely marks its elements (`start_loop`).

    Attributes:
        trail: its trail, when a loop is over it.
    """

    __slots__ = ("are_marked", "fields", "trail")

    def __init__(self, recorder: Any, source: str, fields: str, are_marked: bool) -> None:
        super().__init__(recorder, source)
        self.fields = check_length(fields)
        self.are_marked = are_marked
        self.trail: Trail = None

    @property
    def count(self) -> str:
        """The source of its length."""
        return f"len({self.source})"

    def read(self, index: Any, trail: Trail) -> Pair:
        """Return an element, with its trail."""
        if not self.are_marked:
            raise NotRecordable
        place = self.find_place(index)
        fields = f"align({self.source}, {self.fields})[{place}]"
        return self._read(f"{self.source}[{place}]", fields, trail, place)

    def begin(self, name: str) -> None:
        """Note what a loop over it reads, under its name."""
        self.recorder.state |= {name: self.source, f"{name}#": self.fields}
        self.recorder.trails[f"{name}@"] = self.trail

    def take(self, loop: Any, name: str, place: str) -> Pair:
        """Return the element of a round, with its trail."""
        return self._read(loop.taken, loop.index, StateTrail(f"S[{name + '@'!r}]"), place)

    def _read(self, source: str, fields: str, trail: Trail, place: str) -> Pair:
        self.recorder.reads_contents = True  # what is in it may depend on them
        kind = self.recorder.ask(f"kind({source})")
        found = self.recorder.read_value(source, kind, MessageField(fields, ""))
        return found, (trail, InTrail(UnknownNumber(self.recorder, place)))


class UnknownRange(UnknownMessages):
    """Numbers in a row, as many as there are messages, or some of them."""

    __slots__ = ()

    def take(self, loop: Any, *_: str) -> Pair:
        """Return the number of a round."""
        return UnknownNumber(self.recorder, loop.index), None


class StatePairs(dict[str, Pair]):
    """The attributes of a namespace. What was written in an earlier section is read as unknown."""

    def __init__(self, recorder: Any, number: str, pairs: Mapping[str, Pair]) -> None:
        super().__init__(pairs)
        self._recorder = recorder
        self._number = number
        self._depth = recorder.depth
        self._fixed = {*pairs}  # rounds of loops may set others, or not
        for name, pair in pairs.items():
            self._note(name, pair)

    def __contains__(self, name: object) -> bool:
        key = f"{self._number}.{name}"
        if name in self._fixed or key in self._recorder.state:
            return True
        return bool(self._recorder.ask(f"{key!r} in S"))

    def __getitem__(self, name: str) -> Pair:
        pair = super().__getitem__(name)
        found: Pair = self._recorder.read_state(f"{self._number}.{name}", pair)
        return found

    def __setitem__(self, name: str, pair: Pair) -> None:
        super().__setitem__(name, pair)
        if self._depth == self._recorder.depth:
            self._fixed.add(name)
        self._note(name, pair)

    def _note(self, name: str, pair: Pair) -> None:
        self._recorder.write_state(f"{self._number}.{name}", *pair)


# The classes of unknown values, each with a value of the type that it stands for.
UNKNOWN: dict[type, Any] = {
    UnknownText: "x",
    SafeText: Safe("x"),
    UnknownNumber: 2,
    RoundCounter: 2,
    UnknownFloat: 0.5,
    UnknownMapping: {},
    UnknownMessages: [],
    UnknownRange: [],
    UnknownList: [],
}


def join_parts(texts: Sequence[Any]) -> Parts:
    """Return the parts of several texts, with constants beside each other as one."""
    parts: list[str | TextSlot] = []
    for text in texts:
        for part in text.parts if isinstance(text, UnknownText) else (text,):
            if not part:
                continue
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
    return tuple(parts)


CONTAINERS: dict[type, Callable[[Any], Any]] = {
    dict: lambda value: [*value.keys(), *value.values()],
    list: list,
    tuple: list,
    Stream: lambda value: value.items,
    View: lambda value: value.items,
}


# Values that change between rounds: an attribute is set, the next item is taken, what was seen last is kept.
STATEFUL = frozenset([Cycler, Function, Loop, Namespace])


def number_namespace(recorder: Any) -> str:
    """Return what a new namespace is called in S."""
    recorder.namespaces += 1
    return f"{LOCAL * recorder.depth}{recorder.namespaces}"


def is_local(key: str, depth: int) -> bool:
    """Whether something in S belongs to a namespace that is gone after this round."""
    return depth > 0 and key.startswith(LOCAL * depth)


def is_stale(recorder: Any, value: Any) -> bool:
    """Whether a value is a stream that an earlier section may have read."""
    return type(value) is Stream and recorder.streams.get(id(value)) != (value, recorder.serial)


def holds_unknown(recorder: Any, root: Any) -> bool:
    """Whether there is an unknown value, or one that may change between rounds, in a value."""
    waiting, seen = [root], {}
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind in UNKNOWN or kind in STATEFUL or is_stale(recorder, value):
            return True
        if kind in CONTAINERS and id(value) not in seen and id(value) not in recorder.plain:
            seen[id(value)] = value
            found = CONTAINERS[kind](value)
            recorder.visits += len(found)
            if recorder.visits > MAX_VISITS:
                raise NotRecordable  # what the program does in no time must not take long here
            waiting += found
    if Stream not in map(type, seen.values()):
        recorder.plain |= seen
    return False

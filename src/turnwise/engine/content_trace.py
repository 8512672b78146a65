r"""What a template makes of contents that it cannot see: the proof that a form of rows needs one rendering only.

A template mostly copies contents to its output, and asks little about them. Here a program runs with contents that
are not known (`UnknownText`). They may be stored, passed on, joined with other text, trimmed and written; and a few
questions have an answer that holds for nearly all contents:

    content is string, if content      yes: a content is text, and not blank
    '</think>' in content              no, for all contents in which that text is absent; so are `split`, `startswith`,
                                       `replace`, `==` and the like answered, and the text is noted

Everything else is refused: there is no way to read an unknown text, neither for the generated code (all of Python's
operations on it raise an error) nor for a function of the runtime (each is replaced by one that refuses unknown texts,
unless it is listed below). So if the program ends, all that it did was the same for every content without the noted
texts. Its output is a list of constants and slots, and a rendering of these messages with other contents is that list
with the slots filled.

The budgets of a rendering need no look either. An operation on a content pays by its length, but each character of the
input adds to the budgets. A trace is refused where an operation may cost more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

from turnwise.engine.program import NAMES, Program
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import MAX_CHARACTER_SIZE, Limits, Runtime
from turnwise.engine.runtime.operations import match_arguments
from turnwise.engine.runtime.values import (
    Function,
    Loop,
    Macro,
    Namespace,
    Pair,
    Safe,
    Stream,
    Undefined,
    View,
)
from turnwise.errors import TurnwiseError

MAX_TRACED_LENGTH = 1_000_000  # characters of all contents; a longer conversation is rendered
OPERATION_BYTES = 400  # more than any operation below pays, beside what it pays for each character
MAX_STRIPPED_LETTERS = 8  # with more, stripping pays more

Trim = tuple[str, str | None]  # a method of `str`, and the letters that it strips


class ContentSlot(NamedTuple):
    """Where a content is written."""

    message: int  # its number
    trims: tuple[Trim, ...] = ()  # that it went through, first to last

    def fill(self, content: str) -> str:
        """Return a content as it is written here."""
        for method, letters in self.trims:
            content = getattr(content, method)(letters)
        return content


Parts = tuple[str | ContentSlot, ...]


class ContentTrace(NamedTuple):
    """What a template writes for messages whose contents are not known.

    Attributes:
        parts: the constants and slots of its output, in order.
        absent: texts that must be in no content.
        clock: the formats in which the time was written, each with the text.
        cost: of the budget of bytes, for each character of a content.
    """

    parts: Parts
    absent: frozenset[str]
    clock: tuple[tuple[str, str], ...]
    cost: int

    def is_on_time(self, now: datetime) -> bool:
        """Return whether the template would write the same time."""
        return all([now.strftime(form) == text for form, text in self.clock])

    def fill(self, contents: Sequence[str]) -> str:
        """Return the text with these contents."""
        return "".join(
            [
                part if isinstance(part, str) else part.fill(contents[part.message])
                for part in self.parts
            ]
        )

    def starts_with(self, other: ContentTrace) -> bool:
        """Return whether the text begins with that of another trace, whatever the contents are."""
        *parts, last = other.parts
        following = self.parts[len(parts) : len(parts) + 1]
        if self.parts[: len(parts)] != tuple(parts) or not following:
            return False
        if isinstance(last, str) and isinstance(following[0], str):
            return following[0].startswith(last)
        return last == following[0]


class Refused(Exception):
    """The template asked for more of a content than is known."""


def trace_contents(
    renderer: Renderer, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]
) -> ContentTrace | None:
    """Return what a template writes for messages like these, whatever their contents are; None if they decide.

    It holds for contents that are not blank, and have at most `MAX_TRACED_LENGTH` characters together.

    Args:
        renderer: the template.
        messages: messages with two fields: a role, and a content that is text.
        arguments: those of `Renderer.render`.
    """
    tracer = _Tracer(len(messages))
    traced = renderer.with_programs(tracer.instrument)
    try:
        traced.render(list(messages), **arguments)
    except (Refused, TurnwiseError, NameError):  # a NameError: of a builtin that is not listed here
        return None
    if tracer.parts is None or not _can_pay(renderer.limits, tracer.costs):
        return None
    return ContentTrace(
        tracer.parts,
        frozenset(tracer.absent),
        tuple(tracer.clock.items()),
        max(tracer.costs),
    )


def _can_pay(limits: Limits, costs: Sequence[int]) -> bool:
    """Return whether each character of a content adds as much to the budgets as operations on it may cost."""
    least = limits.share_of(len(costs), 0)["bytes"]
    added = limits.share_of(len(costs), MAX_TRACED_LENGTH)["bytes"] - least
    return (
        limits.deadline is None
        and max(costs) * MAX_TRACED_LENGTH <= added
        and limits.output_per_character >= MAX_CHARACTER_SIZE
    )


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise Refused


# Attributes of `str` that Python needs to make an object, and to tell its type.
HARMLESS = frozenset(
    [
        *("__class__", "__delattr__", "__doc__", "__getattribute__", "__init__"),
        *("__init_subclass__", "__new__", "__setattr__", "__subclasshook__"),
    ]
)
# Builtins that generated code names; any other one is a NameError.
BUILTINS: dict[str, Any] = {
    each.__name__: each for each in (bool, dict, float, int, len, list, str, tuple, zip)
}
# The only character of an unknown text. Unicode has no such character: in the output it tells that an unknown text was
# read past all guards.
CHARACTER = "\ufdd0"


class UnknownText(str):
    """A text that is not known as a whole: each part is a constant, or a slot for a content.

    The characters of the object are not those of the text, so every operation is refused that would read them. It is a
    `str` all the same, because functions of the runtime that only pass it on ask for one.
    """

    __slots__ = ("parts", "tracer")

    parts: Parts
    tracer: _Tracer

    @property  # type: ignore[misc]  # mypy knows `__class__` as an attribute
    def __class__(self) -> type:
        # a string for templates that ask, but no `str` that generated code may read
        return Safe

    def __bool__(self) -> bool:
        return True  # no content is blank

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            # Where it is in a constant, the text is longer: there is a content beside it, which is not blank.
            self.tracer.require_absent(self, other)
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other


for _name in set(dir(str)) - HARMLESS - {"__eq__", "__ne__"}:
    setattr(UnknownText, _name, _refuse)

# Results of methods that search for a text which is absent; the first argument is that text.
ABSENT_RESULTS: dict[str, Callable[..., Any]] = {
    "count": lambda text, *_: 0,
    "endswith": lambda text, *_: False,
    "find": lambda text, *_: -1,
    "partition": lambda text, *_: (text, "", ""),
    "removeprefix": lambda text, *_: text,
    "removesuffix": lambda text, *_: text,
    "replace": lambda text, *_: text,
    "rfind": lambda text, *_: -1,
    "rpartition": lambda text, *_: ("", "", text),
    "rsplit": lambda text, *_: [text],
    "split": lambda text, *_: [text],
    "startswith": lambda text, *_: False,
}
STRIP_METHODS = {"lstrip": ["lstrip"], "rstrip": ["rstrip"], "strip": ["lstrip", "rstrip"]}
# Filters, and the methods of texts that do the same.
FILTER_METHODS = {"filter_trim": "strip", "filter_replace": "replace"}

# Functions that read the elements of a sequence, and nothing of what is in them.
SEQUENCE_FUNCTIONS = frozenset(
    [
        *("filter_count", "filter_first", "filter_last", "filter_length", "filter_list"),
        *("filter_reverse", "get_constant_slice", "get_neighbour", "get_slice", "length"),
        *("pick_elements", "spread_arguments", "start_loop", "start_message_loop"),
        "unpack_values",
    ]
)
FIELD_FUNCTIONS = frozenset(["get_attribute", "get_item"])
SELECTIONS = frozenset(["filter_map", "filter_rejectattr", "filter_selectattr"])
# Tests that ask for the type of a value.
TYPE_TESTS = frozenset(
    [
        *("boolean", "callable", "defined", "false", "float", "integer", "iterable", "mapping"),
        *("none", "number", "sequence", "string", "true", "undefined"),
    ]
)
EQUALITIES = {"==": True, "eq": True, "equalto": True, "!=": False, "ne": False}


class _Tracer:
    """One run of a program with unknown contents: what its functions do then, and what they noted.

    A method `_run_name` runs in the place of the function `name` of the runtime, which is its first argument.
    """

    def __init__(self, count: int) -> None:
        self.absent: set[str] = set()
        self.clock: dict[str, str] = {}
        self.costs = [0] * count  # of each content: bytes for a character
        self.parts: Parts | None = None  # of the output
        self._now: Any = None

    def instrument(self, program: Program) -> Program:
        """Return a program that runs with unknown contents, and with functions that know of them."""
        names = {name: self._replace(name, value) for name, value in NAMES.items()}
        tests = {name: self._replace_test(name, test) for name, test in NAMES["tests"].items()}
        return program.instrument(
            {**names, "tests": tests, "__builtins__": BUILTINS}, self._run_program
        )

    def _run_program(
        self, run: Callable[..., list[Any]], rt: Runtime, context: Mapping[str, Any]
    ) -> list[Any]:
        self._now, rt.now = rt.now, _refuse
        messages = [
            {**message, "content": self._make_text((ContentSlot(index),))}
            for index, message in enumerate(context["messages"])
        ]
        parts = _join_parts(run(rt, {**context, "messages": messages})[::2])  # without the trails
        if any(CHARACTER in part for part in parts if type(part) is str):
            raise Refused
        self.parts = parts
        return []  # nobody reads the rendering of a trace

    # ---- unknown texts ----

    def _make_text(self, parts: Parts) -> UnknownText:
        text = UnknownText(CHARACTER)
        text.parts, text.tracer = parts, self
        return text

    def _pay(self, rt: Runtime, parts: Parts, each: int) -> None:
        """Pay for an operation on a text: for itself, and for each character."""
        rt.charge_bytes(OPERATION_BYTES)
        for part in parts:
            if isinstance(part, ContentSlot):
                self.costs[part.message] += each
            else:
                rt.charge_bytes(each * len(part))

    def _concatenate(self, rt: Runtime, texts: Sequence[Any]) -> Pair:
        """Return texts as one, some of them unknown."""
        if not all(isinstance(text, str) for text in texts):
            raise Refused
        parts = _join_parts(texts)
        self._pay(rt, parts, MAX_CHARACTER_SIZE)
        return self._make_text(parts), None

    def require_absent(self, text: UnknownText, wanted: Any) -> bool:
        """Note that a text must be in no content, and so not in an unknown text; return False if it certainly is there.

        Raises:
            Refused: it may be partly in a content and partly beside it.
        """
        if type(wanted) is not str:
            raise Refused
        constants = [part for part in text.parts if type(part) is str]
        if any(wanted in part for part in constants):
            return False
        if wanted:
            for part, following in pairwise(text.parts):
                if _may_meet(part, following, wanted):
                    raise Refused
            self.absent.add(wanted)
        return True

    def _search(self, rt: Runtime, text: UnknownText, wanted: Any, times: int = 1) -> bool:
        """Return whether a text is in an unknown one, and pay for searching it so many times."""
        if type(wanted) is not str or not wanted:
            raise Refused
        is_absent = self.require_absent(text, wanted)
        # What a search pays for each character (`runtime/measures.py`) is less, with a copy of the text.
        self._pay(rt, text.parts, times * (5 + len(wanted) // 8) + MAX_CHARACTER_SIZE)
        return not is_absent

    def _strip(self, rt: Runtime, text: UnknownText, method: str, letters: Any = None) -> Pair:
        """Return an unknown text without white space at its ends."""
        if letters is not None:
            is_space = type(letters) is str and letters.isspace()
            if not is_space or len(letters) > MAX_STRIPPED_LETTERS:
                raise Refused
        self._pay(rt, text.parts, MAX_CHARACTER_SIZE)
        parts = list(text.parts)
        for side in STRIP_METHODS[method]:
            end = 0 if side == "lstrip" else -1
            while isinstance(parts[end], str):
                parts[end] = getattr(parts[end], side)(letters)
                if parts[end]:
                    break
                del parts[end]
            part = parts[end]
            if isinstance(part, ContentSlot):
                parts[end] = ContentSlot(part.message, (*part.trims, (side, letters)))
        return self._make_text(tuple(parts)), None

    # ---- functions of the runtime ----

    def _replace(self, name: str, function: Any) -> Any:
        """Return what takes the place of a function; anything else stays as it is."""
        if not callable(function) or isinstance(function, (type, Undefined)):
            return function
        if name in SEQUENCE_FUNCTIONS:
            return partial(_read_sequence, function)
        if name in FIELD_FUNCTIONS:
            return partial(_read_field, function)
        if name in SELECTIONS:
            return partial(_select_by_role, function)
        if name in FILTER_METHODS:
            return partial(self._run_as_method, FILTER_METHODS[name], function)
        handler = getattr(self, f"_run_{name}", None)
        return partial(_run_guarded if handler is None else handler, function)

    def _replace_test(self, name: str, test: Any) -> Any:
        if name in TYPE_TESTS:
            return test
        if name in EQUALITIES:
            equal = NAMES["is_equal"]
            return lambda rt, *args: self._run_is_equal(equal, rt, *args) is EQUALITIES[name]
        return partial(self._run_contains if name == "in" else _run_guarded, test)

    def _run_to_text(self, function: Any, rt: Runtime, value: Any, trail: Any) -> Any:
        if type(value) is UnknownText:
            return value, None
        return _run_guarded(function, rt, value, trail)

    _run_filter_string = _run_to_text

    def _run_to_texts(self, _: Any, rt: Runtime, parts: Sequence[Any]) -> Any:
        texts: list[Any] = []
        for value, trail in zip(parts[::2], parts[1::2], strict=True):
            texts += self._run_to_text(NAMES["to_text"], rt, value, trail)
        return texts

    def _run_require_text(self, function: Any, value: Any, trail: Any) -> Any:
        return (value, None) if type(value) is UnknownText else function(value, trail)

    def _run_concatenate(self, function: Any, rt: Runtime, parts: Sequence[Any]) -> Any:
        texts = self._run_to_texts(function, rt, parts)
        return self._run_add_values(function, rt, texts)

    def _run_add_values(self, function: Any, rt: Runtime, parts: Sequence[Any]) -> Any:
        if _has_unknown(parts):
            return self._concatenate(rt, parts[::2])
        return function(rt, parts)

    _run_capture_output = _run_add_values

    def _run_contains(self, function: Any, rt: Runtime, value: Any, container: Any) -> Any:
        if type(container) is UnknownText:
            return self._search(rt, container, value)
        if type(container) is dict and type(value) is not UnknownText:
            return function(rt, value, container)
        if type(container) in (list, tuple) and type(value) is UnknownText:
            rt.charge_bytes(OPERATION_BYTES)
            return any([value == item for item in container])
        return _run_guarded(function, rt, value, container)

    def _run_is_equal(self, function: Any, rt: Runtime, left: Any, right: Any) -> Any:
        if _has_unknown((left, right)):
            rt.charge_bytes(OPERATION_BYTES)
            return bool(left == right)
        return _run_guarded(function, rt, left, right)

    def _run_call_method(
        self,
        function: Any,
        rt: Runtime,
        value: Any,
        trail: Any,
        name: str,
        /,
        *args: Pair,
        **more: Pair,
    ) -> Any:
        if type(value) is dict and name == "get" and not _has_unknown(args[0]):
            return function(rt, value, trail, name, *args, **more)
        if type(value) is not UnknownText:
            return _run_guarded(function, rt, value, trail, name, *args, **more)
        arguments = [pair[0] for pair in args]
        if more or _holds_unknown(arguments):
            raise Refused
        function(rt, "", None, name, *args)  # fails for wrong arguments
        if name in STRIP_METHODS:
            return self._strip(rt, value, name, *arguments)
        if name not in ABSENT_RESULTS or not arguments or self._search(rt, value, arguments[0], 2):
            raise Refused
        return ABSENT_RESULTS[name](value, *arguments), None

    def _run_as_method(
        self,
        method: str,
        function: Any,
        rt: Runtime,
        value: Any,
        trail: Any,
        /,
        *args: Pair,
        **more: Pair,
    ) -> Any:
        """Run a filter that does what a method does."""
        if type(value) is not UnknownText:
            return _run_guarded(function, rt, value, trail, *args, **more)
        function(rt, "", None, *args, **more)  # fails for wrong arguments
        return self._run_call_method(NAMES["call_method"], rt, value, trail, method, *args, **more)

    def _run_filter_default(
        self, function: Any, rt: Runtime, value: Any, trail: Any, *args: Pair, **more: Pair
    ) -> Any:
        if type(value) is UnknownText:
            return value, None
        return function(rt, value, trail, *args, **more)

    _run_filter_d = _run_filter_default

    def _run_call_value(
        self, function: Any, rt: Runtime, callee: Any, trail: Any, /, *args: Pair, **more: Pair
    ) -> Any:
        if isinstance(callee, Macro):
            out = callee.body(*match_arguments(callee, args, more))
            return self._run_add_values(NAMES["capture_output"], rt, out)
        return _run_guarded(function, rt, callee, trail, *args, **more)

    def _run_assign_attribute(self, function: Any, *args: Any) -> Any:
        function(*args)

    def _run_call_namespace(self, function: Any, rt: Runtime, /, *args: Pair, **more: Pair) -> Any:
        if args:
            return _run_guarded(function, rt, *args, **more)
        return function(rt, **more)

    def _run_call_strftime_now(self, function: Any, rt: Runtime, form: Pair) -> Any:
        rt.now = self._now
        found = _run_guarded(function, rt, form)
        rt.now = _refuse
        self.clock[form[0]] = found[0]
        return found


def _run_guarded(function: Any, *args: Any, **more: Any) -> Any:
    """Run a function that may read all of its arguments."""
    if _holds_unknown((args, more)):
        raise Refused
    return function(*args, **more)


def _read_sequence(function: Any, *args: Any) -> Any:
    """Run a function that reads the elements of a sequence.

    Not the fields of a message: their order is that of its writer.
    """
    if _has_unknown(args) or any([type(arg) is dict and _holds_unknown(arg) for arg in args]):
        raise Refused
    return function(*args)


def _read_field(function: Any, *args: Any) -> Any:
    """Run a function that reads a field; not a method, which would hide the value that it belongs to."""
    if _has_unknown(args):
        raise Refused
    found = function(*args)
    if type(found[0]) is Function and _holds_unknown(args):
        raise Refused
    return found


def _select_by_role(
    function: Any, rt: Runtime, value: Any, trail: Any, *args: Pair, **more: Pair
) -> Any:
    """Run a filter that selects messages by their roles, or lists these."""
    is_list = type(value) in (list, tuple)
    attribute = args[0] if args else more.get("attribute", (None, None))
    if not is_list or attribute[0] != "role" or _holds_unknown((args, more)):
        return _run_guarded(function, rt, value, trail, *args, **more)
    return function(rt, value, trail, *args, **more)


def _has_unknown(values: Sequence[Any]) -> bool:
    """Return whether a value itself is an unknown text."""
    return any([type(value) is UnknownText for value in values])


def _holds_unknown(root: Any) -> bool:
    """Return whether there is an unknown text in a value."""
    waiting, seen = [root], set()
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is UnknownText:
            return True
        if kind in CONTAINERS and id(value) not in seen:
            seen.add(id(value))
            waiting += CONTAINERS[kind](value)
    return False


CONTAINERS: dict[type, Callable[[Any], Any]] = {
    dict: lambda value: [*value.keys(), *value.values()],
    list: list,
    tuple: list,
    Loop: lambda value: [value.items, value.last_seen],
    Namespace: lambda value: value.pairs.values(),
    Stream: lambda value: value.items,
    View: lambda value: value.items,
}


def _join_parts(texts: Sequence[Any]) -> Parts:
    """Return the parts of several texts, with constants beside each other as one."""
    parts: list[str | ContentSlot] = []
    for text in texts:
        for part in text.parts if type(text) is UnknownText else (text,):
            if not part:
                continue
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
    return tuple(parts)


def _may_meet(part: str | ContentSlot, following: str | ContentSlot, wanted: str) -> bool:
    """Return whether a text may begin in one part and end in the next, or later."""
    pieces = [(wanted[:cut], wanted[cut:]) for cut in range(1, len(wanted))]
    if isinstance(part, str):
        return any([part.endswith(left) or left.endswith(part) for left, _ in pieces])
    if isinstance(following, str):
        return any(
            [following.startswith(right) or right.startswith(following) for _, right in pieces]
        )
    return bool(pieces)

"""A compiled template: its Python source, the function made of it, and where each line came from.

A program is a pure function of its text. It is cached by that text, shared between threads (all state of a rendering
is in its `Runtime`), and pickled as the text it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from sys import getsizeof
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from turnwise.engine.compiler.branches import NOTE, BranchPoint, WatchedTree
from turnwise.engine.compiler.compiler import GeneratedCode, generate_code
from turnwise.engine.compiler.syntax import (
    CompileError,
    locate_error,
    pack_position,
    parse,
    parse_again,
    unpack_position,
)
from turnwise.engine.provenance import container_rules, expressions, text_rules, trails
from turnwise.engine.runtime import access, formatting, limits, measures, operations, values
from turnwise.engine.runtime.filters import FILTERS
from turnwise.engine.runtime.functions import FUNCTIONS
from turnwise.engine.runtime.jinja_tests import TESTS
from turnwise.engine.runtime.limits import MAX_CHARACTER_SIZE, Runtime, limit_error
from turnwise.engine.runtime.values import Denied, Failure, Raised, UndefinedFailure
from turnwise.errors import (
    TemplateError,
    TemplateLimitError,
    TemplateRaised,
    TemplateRuntimeError,
    TemplateSecurityError,
    short_repr,
)
from turnwise.messages import JsonMapping, JsonObject
from turnwise.sized_cache import SizedCache

FILE = "<turnwise program>"
FUNCTION_NAMES = frozenset(FUNCTIONS)
FUNCTION_CALLS = frozenset(function.run.__name__ for function in FUNCTIONS.values())
FIRST_POSITION = pack_position(1, 1)
WRONG_CALL = re.compile(r"(.*)\(\) ((?:missing|got|takes (?:from )?\d).*)")  # of a Python function
ARGUMENT_COUNT = re.compile(r"(?<!\d)\d++(?= positional| to \d+ positional| were given| was given)")
RUNTIME_ERRORS = (
    TemplateLimitError,
    Raised,
    Failure,
    RecursionError,
    MemoryError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
)
MAX_MARKED = 16  # programs with marks that are kept
MAX_CACHED_BYTES = 32 << 20  # of all programs that are cached: about 230 published templates
CODE_BYTES = 8  # of a program for each character of its Python source, measured: 5 to 7


def _select(module: Any, names: str) -> JsonObject:
    return {name: getattr(module, name) for name in names.replace(",", "").split()}


# All that generated code can name, beside its own variables and constants.
NAMES: JsonObject = {
    **_select(
        access,
        "get_attribute, get_item, get_neighbour, get_slice, get_constant_slice, pick_elements, "
        "start_count, start_loop, NO_NEXT, NO_PREVIOUS",
    ),
    **_select(formatting, "concatenate, to_texts, to_text"),
    **_select(
        operations,
        "add_values, apply_sign, assign_attribute, call_method, call_value, capture_output, "
        "compare, contains, is_equal, require_text, spread_arguments, spread_keywords, unpack_values",
    ),
    **_select(limits, "check_call_budget, limit_error"),
    **_select(measures, "charge_key"),
    **_select(trails, "BEGIN, BOUND, DONE, END, LOOP, NEXT"),
    **_select(expressions, "CALL, RETURN, WRITER"),
    **_select(text_rules, "JOINED, WITHIN"),
    **_select(container_rules, "ITEMS"),
    **_select(values, "ABSENT, MISSING, Failure, Loop, Macro, Namespace, Safe, Undefined"),
    **{f"do_{name}": run for name, run in operations.OPERATORS.items()},
    **{f"filter_{name}": run for name, run in FILTERS.items()},
    **{f"call_{name}": function.run for name, function in FUNCTIONS.items()},
    "NUMBERS": range(1 << 40),
    "tests": TESTS,
}


class Program:
    """A template, compiled."""

    __slots__ = ("_run", "name", "_line_positions", "nodes", "python", "reads", "shadowed", "text")

    def __init__(
        self, text: str, name: str = "template", shadowed: frozenset[str] = frozenset()
    ) -> None:
        self.text = text
        self.name = name
        self.shadowed = shadowed  # builtin functions whose names are options here
        generated = self._generate_code()
        self.python = "".join(f"{line.text}\n" for line in generated.lines)
        # or of what others write as the template does
        self.nodes = list(map(unpack_position, generated.text_positions)) or [(1, 1)]
        self._line_positions = [line.lineno for line in generated.lines]
        self.reads = tuple(name for name in generated.inputs if name not in FUNCTIONS)
        scope: JsonObject = NAMES | generated.constants
        exec(self._compile_python(), scope)
        self._run = scope.pop("run")  # or scope and function would keep each other in memory

    def _generate_code(self) -> GeneratedCode:
        try:
            return self._translate()
        except CompileError as error:
            raise error.locate(self.text, self.name) from None
        except RecursionError:
            message = "the template is nested too deeply"
            raise TemplateLimitError(message, budget="depth", name=self.name) from None

    def _translate(self) -> GeneratedCode:
        return generate_code(parse(self.text, self.name), self.shadowed)

    def _compile_python(self) -> CodeType:
        try:
            return compile(self.python, FILE, "exec")
        except (SyntaxError, RecursionError, MemoryError) as error:
            # Python's own limits on nesting; anything else here is a defect of the compiler
            message = f"the template is nested too deeply for Python ({error})"
            raise TemplateLimitError(message, budget="depth", name=self.name) from None

    def measure_size(self) -> int:
        """Return about how many bytes the program takes, beside its text."""
        return CODE_BYTES * len(self.python) + sum(map(getsizeof, self._run.__globals__.values()))

    def run(self, rt: Runtime, context: JsonMapping) -> list[Any]:
        """Render the template.

        Args:
            rt: the budgets of this rendering.
            context: the inputs of the template by name.

        Returns:
            Texts and their trails, alternately.

        Raises:
            TemplateError: whatever fails in the template, with its position.
        """
        try:
            return self._run(rt, context)  # type: ignore[no-any-return]
        except RUNTIME_ERRORS as error:
            raise self._to_public_error(error) from None

    def charge_output(self, rt: Runtime, texts: Sequence[str]) -> int:
        """Charge the budget for the texts of the output, and return how many bytes they have at least."""
        size = sum(map(len, texts))
        most = MAX_CHARACTER_SIZE * size
        if most <= rt.output or most <= rt.estimate_output():
            return size
        try:
            rt.charge_output(size)  # at least that, before a text is encoded
            wide = len("".join(texts).encode("utf-8", "surrogatepass")) - size
            rt.charge_output(wide)
        except TemplateLimitError as error:
            raise TemplateLimitError(
                error.message, budget=error.budget, name=self.name, hint=error.hint
            ) from None
        return size + wide

    def shadowing(self, options: JsonMapping) -> Program:
        """Return this program, or the one for options with the names of more builtin functions."""
        names = FUNCTION_NAMES.intersection(options)
        if names <= self.shadowed:
            return self
        return compile_program(self.text, self.name, names | self.shadowed)

    def instrument(self, names: JsonMapping, run_program: Callable[..., list[Any]]) -> Program:
        """Return a copy that calls other functions by these names.

        Args:
            names: what takes the place of `NAMES`.
            run_program: runs the program; its arguments are those of `run`, after the function of the program.
        """
        copy = Program.__new__(Program)
        for slot in Program.__slots__:
            setattr(copy, slot, getattr(self, slot))
        scope = self._run.__globals__ | names
        copy._run = partial(run_program, FunctionType(self._run.__code__, scope))
        return copy

    def _to_public_error(self, error: Exception) -> TemplateError:
        """Return the error that users see, with the position in the template and a hint."""
        frames = list(_program_frames(error.__traceback__))
        lineno = FIRST_POSITION
        for _, line in frames:
            lineno = self._line_positions[line - 1] or lineno
        kind: type[TemplateError] = TemplateRuntimeError
        # the text of a KeyError is the `repr` of its key, which may be any value of the template
        message = short_repr(error.args[:1]) if isinstance(error, KeyError) else str(error)
        details: JsonObject = {}
        if isinstance(error, (RecursionError, MemoryError)):
            error = limit_error("bytes" if isinstance(error, MemoryError) else "depth")
        if isinstance(error, TemplateLimitError):
            kind, message = TemplateLimitError, error.message
            details = {"budget": error.budget, "hint": error.hint}
        elif isinstance(error, Failure):
            if isinstance(error, Denied):
                kind = TemplateSecurityError
            details = {"hint": error.hint or _describe_owner(error, frames)}
        elif isinstance(error, Raised):
            kind = TemplateRaised
        elif isinstance(error, TypeError):  # mostly a wrong number of arguments
            message = _hide_engine_arguments(error)
        return locate_error(kind, message, self.text, self.name, lineno, **details)

    def __reduce__(self) -> tuple[Any, ...]:
        return compile_program, (self.text, self.name, self.shadowed)

    def __repr__(self) -> str:
        return f"<Program {self.name}: {len(self.python.splitlines())} lines>"


def _program_frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of generated code on the way to an error, each with its line."""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            yield trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next


def _describe_owner(error: Failure, frames: list[tuple[FrameType, int]]) -> str | None:
    """Return which fields the dict has in which one was missing; a failed frame still holds it."""
    if not isinstance(error, UndefinedFailure):
        return None
    owner = None
    for frame, _ in frames:
        owner = frame.f_locals.get(error.owner, owner)
    return access.describe_keys(owner, error.key) if isinstance(owner, dict) else None


def _hide_engine_arguments(error: TypeError) -> str:
    """Return Python's message about wrong arguments, without those that only the engine passes."""
    call = WRONG_CALL.fullmatch(str(error))
    if call is None:
        return str(error)
    name, problem = call.groups()
    hidden = 1 if name in FUNCTION_CALLS else 3
    return ARGUMENT_COUNT.sub(lambda count: str(max(int(count[0]) - hidden, 0)), problem)


PROGRAMS = SizedCache(Program, Program.measure_size, MAX_CACHED_BYTES)


def compile_program(
    text: str, name: str = "template", shadowed: frozenset[str] = frozenset()
) -> Program:
    """Return the program of a template; it is compiled once and cached, unless it is very large."""
    return PROGRAMS.get(text, name, shadowed)


class MarkedProgram(Program):
    """A template that was compiled before, compiled so that its output says which expression writes what.

    Raises:
        TemplateLimitError: With its marks, the program is larger than Python or turnwise allows.
    """

    __slots__ = ()

    def _translate(self) -> GeneratedCode:
        return generate_code(parse(self.text, self.name), self.shadowed, marks_writers=True)


mark_program = lru_cache(MAX_MARKED)(MarkedProgram)


class WatchedProgram(Program):
    """A template that was compiled before, compiled so that it notes which of its branches run.

        program = WatchedProgram("{% if tools %}A{% else %}B{% endif %}")
        renderer = renderer.with_programs(lambda _: program)
        renderer.render([])
        program.taken          # {1}: the test of the `if` was false

    It writes what the ordinary program writes. It is made for one caller, who reads and clears `taken`, so it is
    neither cached nor shared.

    Attributes:
        points: Where the template branches.
        taken: The outcomes so far: `2 * i` if point `i` was true or ran, `2 * i + 1` if it was false.

    Raises:
        TemplateLimitError: With its notes, the program is larger than Python or turnwise allows.
    """

    __slots__ = ("points", "taken")

    points: list[BranchPoint]
    taken: set[int]

    def _translate(self) -> GeneratedCode:
        tree = parse_again(self.text)
        self.points = WatchedTree(tree).points
        self.taken = set()
        generated = generate_code(tree, self.shadowed)
        generated.constants[NOTE] = self.taken.add
        return generated

"""A compiled template: its Python source, the function made of it, and where each line came from.

A program is a pure function of its text. It is cached by that text, shared between threads (all state of a rendering
is in its `Runtime`), and pickled as the text it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import CodeType, TracebackType
from typing import Any

from turnwise.engine.compiler.compiler import GeneratedCode, generate_code
from turnwise.engine.compiler.scopes import CompileError
from turnwise.engine.compiler.syntax import COLUMN_BITS, located, parse, place
from turnwise.engine.provenance import trails
from turnwise.engine.runtime import access, formatting, limits, operations, values
from turnwise.engine.runtime.filters import FILTERS
from turnwise.engine.runtime.functions import FUNCTIONS
from turnwise.engine.runtime.limits import Runtime, limit_error
from turnwise.engine.runtime.methods import METHODS
from turnwise.engine.runtime.tests import TESTS
from turnwise.engine.runtime.values import Denied, Failure, Raised, UndefinedFailure
from turnwise.errors import (
    TemplateError,
    TemplateLimitError,
    TemplateRaised,
    TemplateRuntimeError,
    TemplateSecurityError,
    TemplateSyntaxError,
)

FILE = "<turnwise program>"
FUNCTION_NAMES = frozenset(FUNCTIONS)
NOT_FUNCTIONS = FUNCTION_NAMES.isdisjoint
CACHED = 256  # programs kept, the least recently used goes first


def taken(module: Any, names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names.replace(",", "").split()}


# All that generated code can name, beside its own variables and constants.
NAMES: dict[str, Any] = {
    **taken(
        access,
        "attribute, item, neighbour, part, picked, walk, walk_messages, NO_NEXT, NO_PREVIOUS",
    ),
    **taken(formatting, "concatenated, printed, text"),
    **taken(
        operations,
        "added, assigned, call, captured, compared, contained, equal, hashable, method, only_text, signed",
    ),
    **taken(operations, "spread, spread_keywords, unpacked"),
    **taken(limits, "limit_error, spent"),
    **taken(
        trails, "BEGIN, BOUND, DONE, END, ITEMS, LOOP, LSTRIPPED, NEXT, RSTRIPPED, SPLIT, STRIPPED"
    ),
    **taken(values, "ABSENT, MISSING, Failure, Loop, Macro, Namespace, Safe, Undefined"),
    **{f"do_{name}": run for name, run in operations.OPERATORS.items()},
    **{f"filter_{name}": run for name, run in FILTERS.items()},
    **{f"str_{name}": run for name, run in METHODS[str].items()},
    **{f"call_{name}": function.run for name, function in FUNCTIONS.items()},
    "NUMBERS": range(1 << 40),
    "length": FILTERS["length"],
    "tests": TESTS,
}


class Program:
    """A template, compiled."""

    __slots__ = ("_run", "name", "nodes", "places", "python", "reads", "shadowed", "text")

    def __init__(
        self, text: str, name: str = "template", shadowed: frozenset[str] = frozenset()
    ) -> None:
        self.text = text
        self.name = name
        self.shadowed = shadowed  # builtin functions whose names mean an option here
        generated = self._generate_code()
        self.python = "".join(f"{line.text}\n" for line in generated.lines)
        self.nodes = [place(lineno) for lineno in generated.text_positions]
        self.places = [line.lineno for line in generated.lines]
        self.reads = tuple(name for name in generated.inputs if name not in FUNCTIONS)
        scope: dict[str, Any] = NAMES | generated.constants
        exec(self._code(), scope)
        self._run = scope["run"]

    def _generate_code(self) -> GeneratedCode:
        tree = parse(self.text, self.name)
        try:
            return generate_code(tree, self.shadowed)
        except CompileError as error:
            raise located(
                TemplateSyntaxError, str(error), self.text, self.name, error.lineno, hint=error.hint
            ) from None
        except RecursionError:
            raise TemplateLimitError(
                "the template is nested too deeply", budget="depth", name=self.name
            ) from None

    def _code(self) -> CodeType:
        try:
            return compile(self.python, FILE, "exec")
        except (SyntaxError, RecursionError, MemoryError) as error:
            # Python's own limits on nesting; anything else here is a defect of the compiler
            raise TemplateLimitError(
                f"the template is nested too deeply for Python ({error})",
                budget="depth",
                name=self.name,
            ) from None

    def run(self, rt: Runtime, context: Mapping[str, Any]) -> list[Any]:
        """Texts and trails, flat. Whatever goes wrong leaves as an error of ours, with its place in the template."""
        try:
            return self._run(rt, context)  # type: ignore[no-any-return]
        except TemplateLimitError as error:
            raise self._placed(TemplateLimitError, error, budget=error.budget) from None
        except Raised as error:
            raise self._placed(TemplateRaised, error) from None
        except Denied as error:
            raise self._placed(TemplateSecurityError, error, hint=error.hint) from None
        except UndefinedFailure as error:
            raise self._placed(
                TemplateRuntimeError, error, hint=error.hint or self._had(error)
            ) from None
        except Failure as error:
            raise self._placed(TemplateRuntimeError, error, hint=error.hint) from None
        except (RecursionError, MemoryError) as error:
            raise self._placed(
                TemplateLimitError, limit_error("depth"), trace=error.__traceback__, budget="depth"
            ) from None
        except TypeError as error:  # mostly a wrong number of arguments for a filter or function
            raise self._placed(
                TemplateRuntimeError, Failure(signature(error)), error.__traceback__
            ) from None
        except (ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise self._placed(TemplateRuntimeError, error) from None

    def charge_output(self, rt: Runtime, size: int) -> None:
        try:
            rt.write(size)
        except TemplateLimitError as error:
            raise TemplateLimitError(error.message, budget=error.budget, name=self.name) from None

    def shadowing(self, options: Mapping[str, Any]) -> Program:
        """This program, or the one for options that have the names of builtin functions."""
        return (
            self
            if NOT_FUNCTIONS(options)
            else compile_program(self.text, self.name, FUNCTION_NAMES.intersection(options))
        )

    def _placed(
        self, kind: Any, error: Exception, trace: TracebackType | None = None, **rest: Any
    ) -> TemplateError:
        lineno = self._lineno(trace or error.__traceback__)
        message = error.message if isinstance(error, TemplateError) else str(error)
        result: TemplateError = located(kind, message, self.text, self.name, lineno, **rest)
        return result

    def _lineno(self, trace: TracebackType | None) -> int:
        """The template place of the innermost line of this program on the way to the error."""
        found = 1 << COLUMN_BITS | 1
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == FILE:
                found = self.places[trace.tb_lineno - 1] or found
            trace = trace.tb_next
        return found

    def _had(self, error: UndefinedFailure) -> str | None:
        """What the dict has, in which a field was missing: the frame that failed still holds it."""
        trace = error.__traceback__
        found = None
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == FILE:
                found = trace.tb_frame.f_locals.get(error.owner, found)
            trace = trace.tb_next
        return access.known(found, error.key) if isinstance(found, dict) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return compile_program, (self.text, self.name, self.shadowed)

    def __repr__(self) -> str:
        return f"<Program {self.name}: {len(self.python.splitlines())} lines>"


COUNTS = re.compile(r"(\d+)(?= positional| to \d+ positional| were given| was given)")


def signature(error: TypeError) -> str:
    """Python's message, with the parameters that only the engine passes taken out of the count."""
    name, _, rest = str(error).partition("() ")
    if not rest:
        return str(error)
    hidden = 1 if name in FUNCTION_NAMES or name in ("span", "dictionary") else 3
    return COUNTS.sub(lambda count: str(max(int(count[0]) - hidden, 0)), rest)


@lru_cache(maxsize=CACHED)
def compile_program(
    text: str, name: str = "template", shadowed: frozenset[str] = frozenset()
) -> Program:
    """The program of a template, compiled once."""
    return Program(text, name, shadowed)

"""Filters, tests and calls.

Arguments are passed as pairs of value and trail: `filter_replace(rt, t1, o1, ('a', 4), ('b', 5))`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jinja2 import nodes

from turnwise.engine.compiler.codegen import Code, Kind, scalar
from turnwise.engine.compiler.context import CompilerPart
from turnwise.engine.compiler.syntax import CompileError
from turnwise.engine.compiler.values import ValueCompiler
from turnwise.engine.runtime.costs import TEXT_FILTERS
from turnwise.engine.runtime.filters import FILTERS, WITHHELD
from turnwise.engine.runtime.jinja_tests import INLINE, TESTS
from turnwise.errors import did_you_mean


class CallCompiler(CompilerPart):
    """Compiles filters, tests, and calls of functions, methods and macros."""

    values: ValueCompiler

    # ---- filters and tests ----

    def visit_Filter(self, node: nodes.Filter, trail: bool) -> Code:
        assert node.node is not None  # it is only in `{% filter %}` and `{% set %}` blocks
        return self._apply_filter(node, self.compile(node.node))

    def apply_filters(self, node: nodes.Filter, value: Code) -> Code:
        """Apply the filters of a block (`{% filter upper|trim %}`) to its text."""
        if isinstance(node.node, nodes.Filter):
            value = self.apply_filters(node.node, value)
        self.writer.lineno = node.lineno
        return self._apply_filter(node, value)

    def _apply_filter(self, node: nodes.Filter, value: Code) -> Code:
        name = node.name
        if name not in FILTERS:
            return self._compile_unknown(node, "filter", sorted(FILTERS))
        if name == "length" and not node.args and not node.kwargs:
            return scalar(
                f"filter_length(rt, {self.writer.store_value(value).value}, None)[0]", Kind.INT
            )
        source = self.compile_arguments(node)
        if name == "tojson":  # its punctuation counts as text of the template, at this position
            source += f", node={self.writer.add_text_position(node.lineno)}"
        kind = Kind.TEXT if name in TEXT_FILTERS else Kind.ANY
        return self.writer.store_pair(f"filter_{name}(rt, {value.pair}{source})", kind)

    def visit_Test(self, node: nodes.Test, trail: bool) -> Code:
        value = self.compile(node.node, False)
        if node.name in ("filter", "test"):
            names = FILTERS if node.name == "filter" else TESTS
            if node.args:
                self.writer.line(f"raise Failure({f'the test {node.name!r} takes no argument'!r})")
            return scalar(f"({value.value} in {tuple(names)!r})")
        if node.name not in TESTS:
            return self._compile_unknown(node, "test", TESTS)
        if node.name in INLINE and not node.args:
            return scalar(f"({INLINE[node.name].format(self.writer.store_value(value).value)})")
        arguments = "".join(f", {self.compile_value(argument)}" for argument in node.args or ())
        return scalar(f"tests[{node.name!r}](rt, {value.value}{arguments})")

    def _compile_unknown(
        self, node: nodes.Filter | nodes.Test, what: str, known: Iterable[str]
    ) -> Code:
        """Refuse a filter or test that does not exist: at once, or, as in jinja2, when a condition reaches it."""
        message = f"No {what} named {node.name!r}"
        hint = None
        reason = WITHHELD.get(node.name) if what == "filter" else None
        if reason:
            message += f": {reason}"
        else:
            hint = did_you_mean(node.name, known, f"there is no such {what}; known")
        if not self.variables.frame.conditional:
            raise CompileError(message, node.lineno, hint=hint)
        self.writer.lineno = node.lineno
        self.writer.line(f"raise Failure({message!r}, {hint!r})")
        return Code("rt")  # never reached; Python warns of some uses of a constant

    # ---- calls ----

    def compile_arguments(self, node: Any) -> str:
        """Return the arguments of a call or filter: `, (value, trail), *more, **{'name': (value, trail)}, **more`."""
        source = "".join(f", ({self.compile(argument).pair})" for argument in node.args or ())
        if node.dyn_args is not None:
            source += f", *spread_arguments(rt, {self.compile(node.dyn_args).pair})"
        keywords = [
            f"{keyword.key!r}: ({self.compile(keyword.value).pair})"
            for keyword in node.kwargs or ()
        ]
        if keywords:
            source += f", **{{{', '.join(keywords)}}}"
        if node.dyn_kwargs is not None:
            source += f", **spread_keywords(rt, {self.compile(node.dyn_kwargs).pair})"
        self.writer.lineno = node.lineno
        return source

    def visit_Call(self, node: nodes.Call, trail: bool) -> Code:
        macro_call = self.compile_macro_call(node)
        if macro_call is not None:
            result = self.writer.store_pair(f"capture_output(rt, {macro_call})", Kind.TEXT)
            self.writer.reads.forget_changeable()
            frame = self.variables.frame
            if frame.assigning:
                return result._replace(trail=frame.within_elements(result.trail))
            return result
        callee_node = node.node
        if (
            isinstance(callee_node, nodes.Getattr)
            and self.values.find_loop(callee_node.node) is None
        ):
            owner = self.writer.store_value(self.compile(callee_node.node))
            source = self.compile_arguments(node)
            self.writer.lineno = callee_node.lineno
            call = f"call_method(rt, {owner.pair}, {callee_node.attr!r}{source})"
            return self.writer.store_pair(call)
        callee = self.compile(callee_node)
        function = self.variables.functions.get(callee.value)
        if function is not None:
            return self.writer.store_pair(f"{function}(rt{self.compile_arguments(node)})")
        return self.call_value(callee, node)

    def call_value(self, callee: Code, node: nodes.Call, more: str = "") -> Code:
        """Call any value by the runtime, with `more` arguments that the template does not write."""
        source = self.compile_arguments(node)
        result = self.writer.store_pair(f"call_value(rt, {callee.pair}{source}{more})")
        self.writer.reads.forget_changeable()
        return result

    def compile_macro_call(self, node: nodes.Call) -> str | None:
        """Return the call of a known macro's function, or None if the callee may be anything else."""
        if not isinstance(node.node, nodes.Name) or node.dyn_args or node.dyn_kwargs:
            return None
        macro = self.variables.macros.get(node.node.name)
        if macro is None or self.variables.resolve(node.node.name) != macro.variable:
            return None
        given = dict(zip(macro.arguments, node.args, strict=False))
        given.update((keyword.key, keyword.value) for keyword in node.kwargs)
        given_twice = len(given) != len(node.args) + len(node.kwargs)
        if given_twice or not set(given) <= set(macro.arguments):
            return None
        pairs = [
            f"({self.compile(given[name]).pair})" if name in given else "ABSENT"
            for name in macro.arguments
        ]
        self.writer.lineno = node.lineno
        return f"{macro.function}({', '.join(pairs)})"

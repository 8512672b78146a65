"""Jinja expressions for the terms of a Go template: paths, variables, constants and calls.

    (index .Messages 0).Content      (chat[0] if chat | length > 0 else raise_exception(...)).content
    eq .Role "user" "tool"           (item.role == 'user' or item.role == 'tool')

Every expression has a Go type (`ollama_types.py`), from which it follows what a field or a function
means. Where Go stops with an error while it renders, the exact reading does so too, by
`raise_exception`; the other reading takes Jinja's answer. The functions are in
`ollama_functions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from turnwise.dialects.ollama_fields import GoFieldWriter
from turnwise.dialects.ollama_functions import FUNCTIONS, OLLAMA_FUNCTIONS
from turnwise.dialects.ollama_go import GoTerm, refuse
from turnwise.dialects.ollama_print import GoValue
from turnwise.dialects.ollama_types import TYPES
from turnwise.dialects.turns import literal
from turnwise.errors import did_you_mean, short_repr

# Characters of one expression: a value within a value is written more than once.
MAX_VALUE_LENGTH = 20_000
ROOT = GoValue("", TYPES["root"])
TYPE_OF_CONSTANT = {"text": "string", "int": "int", "float": "float", "bool": "bool", "nil": "nil"}


@dataclass(frozen=True, slots=True)
class OllamaScope:
    """What the dot, `$` and the variables mean at one place of the template."""

    dot: GoValue = ROOT
    root: GoValue = ROOT
    variables: Mapping[str, GoValue] = field(default_factory=dict)

    def with_variable(self, name: str, value: GoValue) -> OllamaScope:
        """Return the scope with one more variable."""
        return OllamaScope(self.dot, self.root, {**self.variables, name: value})

    def with_dot(self, dot: GoValue) -> OllamaScope:
        """Return the scope with another dot."""
        return OllamaScope(dot, self.root, self.variables)


class GoValueWriter:
    """Writes the terms of one template.

    Args:
        fields: writes fields of values.
    """

    def __init__(self, fields: GoFieldWriter) -> None:
        self.fields = fields

    def write(self, term: GoTerm, scope: OllamaScope) -> GoValue:
        """Return the value of a term."""
        value = _check_length(self._write_base(term, scope), term.line)
        if term.kind != "call" or not term.name:
            for name in term.path:
                value = _check_length(self.fields.write_field(value, name, term.line), term.line)
        return value

    def get_variable(self, name: str, line: int, scope: OllamaScope) -> GoValue:
        """Return a variable of the template."""
        if name not in scope.variables:
            hint = did_you_mean(name, scope.variables, "Declared")
            refuse(line, f"${name} is not declared", hint)
        return scope.variables[name]

    def _write_base(self, term: GoTerm, scope: OllamaScope) -> GoValue:
        if term.kind == "constant":
            jinja = literal(term.value) if term.name == "text" else term.value
            return GoValue(jinja, TYPES[TYPE_OF_CONSTANT[term.name]])
        if term.kind == "dot":
            return scope.dot
        if term.kind == "variable":
            return self.get_variable(term.name, term.line, scope) if term.name else scope.root
        if not term.name:  # parentheses
            return replace(self.write(term.arguments[0], scope), is_settled=True)
        return self._write_call(term, scope)

    # -- calls

    def _write_call(self, term: GoTerm, scope: OllamaScope) -> GoValue:
        if term.name not in FUNCTIONS:
            hint = did_you_mean(term.name, FUNCTIONS, "Supported")
            refuse(term.line, f"the function {short_repr(term.name)} is not supported", hint)
        function = FUNCTIONS[term.name]
        count = len(term.arguments)
        if count < function.least or (function.most is not None and count > function.most):
            takes = f"at least {function.least}"
            if function.most is not None:
                takes = f"{function.least} to {function.most}"
            stop = self.fields.printer.stop(
                term.line, f"{term.name} takes {takes} values, not {count}"
            )
            return GoValue(stop, TYPES["any"])
        values = [self.write(argument, scope) for argument in term.arguments]
        if term.name in OLLAMA_FUNCTIONS and not self.fields.has_functions:
            message = f"Ollama does not know {term.name} where it executes the last round"
            return GoValue(self.fields.printer.fail(term.line, message), TYPES["string"])
        return function.write(self.fields, values, term)


def _check_length(value: GoValue, line: int) -> GoValue:
    """Refuse an expression that grew with each function or field that was applied to it."""
    if len(value.jinja) > MAX_VALUE_LENGTH:
        refuse(line, "too many functions or fields of one value")
    return value

"""Read a config of XTuner without running it: its values, and the names that it imported as paths.

    config = read_config("internlm2_chat_7b_qlora_oasst1_e3.py")
    config.train_dataset["max_length"]          # 2048
    config.tokenizer["type"]                    # transformers.AutoTokenizer.from_pretrained

A config is a Python file that assigns constants, dicts and lists of them, and names that it imported. Only these are
evaluated, so neither XTuner nor torch has to be installed, and nothing of the file is executed. Tables of XTuner
(`PROMPT_TEMPLATE`, `SYSTEM_TEMPLATE`) are those of turnwise. A value that is anything else, such as a call, is an error
only if it is asked for.
"""

from __future__ import annotations

import ast
import operator
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from turnwise.compat import xtuner_tables
from turnwise.compat.xtuner_process import XTUNER, ObjectPath
from turnwise.compat.xtuner_tables import ConfigDict
from turnwise.errors import SourceError, did_you_mean, short_repr
from turnwise.local_files import error_reason, read_file

MAX_CONFIG_BYTES = 1_000_000
MAX_ITEMS = 100_000
MAX_NUMBER = 10**9  # no config counts further
MAX_EXPONENT = 4


OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
CALLS: Mapping[str, Callable[..., Any]] = {"dict": dict, "int": int, "float": float, "str": str}
"""Calls that a config may make; all others are written as `dict(type=...)`."""


class ConfigValues(ConfigDict):
    """The values of a config; one that cannot be read raises an error when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, SourceError):
            raise value
        return value


def read_config(path: str | os.PathLike[str]) -> ConfigValues:
    """Read a config of XTuner.

    Args:
        path: The path of the file.

    Returns:
        Its values by name, which are also attributes.

    Raises:
        SourceError: If the file cannot be read, or is not Python.
    """
    try:
        text = read_file(Path(path), MAX_CONFIG_BYTES).decode("utf-8")
        tree = ast.parse(text)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error_reason(error)}") from None
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise SourceError(f"{path} is not Python: {error}") from None
    reader = ConfigReader(os.path.basename(path))
    reader.run(tree.body)
    return reader.values


class ConfigReader:
    """Evaluate the statements of a config, in their order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values = ConfigValues()

    def run(self, body: list[ast.stmt]) -> None:
        """Evaluate statements; those that are no assignments are left out."""
        for node in body:
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        top = alias.name.partition(".")[0]
                        self.values[alias.asname or top] = ObjectPath(
                            alias.name if alias.asname else top
                        )
                case ast.ImportFrom(module=str(module), names=names):
                    for alias in names:
                        self.values[alias.asname or alias.name] = _import_name(module, alias.name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.values[name] = self._try(value)
                case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                    left = ast.Name(id=target.id, lineno=node.lineno)
                    self.values[name] = self._try(ast.BinOp(left, op, value, lineno=node.lineno))
                case ast.If(test=test, body=then, orelse=otherwise):
                    chosen = self._try(test)
                    if not isinstance(chosen, SourceError):
                        self.run(then if chosen else otherwise)

    def _try(self, node: ast.expr) -> Any:
        """Return the value of an expression, or the error that says why it has none."""
        try:
            return self.evaluate(node)
        except SourceError as error:
            return error
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            return SourceError(f"{self._place(node)}: {error}")

    def evaluate(self, node: ast.expr) -> Any:
        """Return the value of an expression."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._find_name(node, name)
            case ast.Attribute(value=value, attr=attribute):
                return _get_attribute(self.evaluate(value), attribute)
            case ast.List(elts=items):
                return [self.evaluate(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.evaluate(item) for item in items)
            case ast.Dict(keys=keys, values=values) if None not in keys:
                pairs = zip(keys, values, strict=True)
                return {self.evaluate(key): self.evaluate(value) for key, value in pairs if key}
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in CALLS:
                given = {key.arg: self.evaluate(key.value) for key in keywords if key.arg}
                return CALLS[name](*map(self.evaluate, args), **given)
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                return self.evaluate(then if self.evaluate(test) else otherwise)
            case ast.BinOp(op=op) | ast.UnaryOp(op=op) | ast.Compare(ops=[op]):
                operands = [
                    each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)
                ]
                if type(op) in OPERATORS:
                    return _compute(op, list(map(self.evaluate, operands)))
        written = short_repr(ast.unparse(node))
        raise SourceError(
            f"{self._place(node)}: {written} is not evaluated",
            hint="A config has constants, names, lists, dict(...) and arithmetic.",
        )

    def _find_name(self, node: ast.expr, name: str) -> Any:
        if name not in self.values:
            hint = did_you_mean(name, self.values, "It has")
            raise SourceError(f"{self._place(node)}: there is no {name!r}", hint=hint)
        return self.values[name]

    def _place(self, node: ast.expr) -> str:
        return f"{self.name}, line {node.lineno}"


def _compute(op: ast.AST, values: list[Any]) -> Any:
    """Return the result of an operator; no value may become large, however often it is doubled."""
    is_product = isinstance(op, ast.Mult | ast.Pow)
    if is_product and not all(isinstance(value, int | float) for value in values):
        raise TypeError("only numbers are multiplied")
    if isinstance(op, ast.Pow) and abs(values[1]) > MAX_EXPONENT:
        raise ValueError("the exponent is too large")
    found = OPERATORS[type(op)](*values)
    if len(found) > MAX_ITEMS if hasattr(found, "__len__") else abs(found) > MAX_NUMBER:
        raise ValueError("the value is too large")
    return found


def _import_name(module: str, name: str) -> Any:
    """Return a table of XTuner; anything else is a path, which is found when it is built."""
    if module.partition(".")[0] == XTUNER and name.isupper() and hasattr(xtuner_tables, name):
        return getattr(xtuner_tables, name)
    return ObjectPath(f"{module}.{name}")


def _get_attribute(value: Any, attribute: str) -> Any:
    if isinstance(value, ObjectPath):
        return ObjectPath(f"{value.path}.{attribute}")
    if isinstance(value, ConfigDict):
        return getattr(value, attribute)
    raise TypeError(f"{short_repr(value)} has no {attribute!r}")

"""What the package can show to a user, read from its syntax trees: errors, hints, warnings, notes, findings, changes.

A *sink* is a function whose arguments are shown: an error class, `warn_caller`, `Symptom`. What is given to a sink is
followed to its texts: through names that are assigned, through functions that return it, and through parameters of
functions, which are sinks then themselves. A text is a pattern in which `{name}` stands for a value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import product

from sources import Function, Source, package

Places = tuple[int | str, ...]  # of arguments, by position or by name
SINKS: dict[str, Places] = {
    "BadParameter": (0,),
    "Change": (1, 2, "what", "why"),
    "CheckFinding": ("message", "fix"),
    "Symptom": (0, 1, "message", "fix"),
    "_note": (1, 2),
    "fail": (0,),
    "note": (0,),
    "note_warning": (0,),
    "warn": (0,),
    "warn_caller": (0,),
}
ERROR_ARGUMENTS: Places = (0, "message", "hint")
MAX_DEPTH = 5
MAX_ALTERNATIVES = 12
PLACEHOLDER = re.compile(r"\{(\w+)\}")
SENTENCE = re.compile(r"[A-Za-z`'-]{2,}[,:;]? [\w`'\"{<(-]")


class Scope:
    """A function, or the top of a module, and what its names are assigned."""

    def __init__(self, source: Source, function: Function | None, nodes: list[ast.AST]) -> None:
        self.source, self.function, self.nodes = source, function, nodes
        self.assigned: dict[str, list[ast.expr]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value:
                self._assign(node.target, node.value)
            elif isinstance(node, ast.For):
                self._assign(node.target, node.iter)
        given = function.args if function else None
        self.parameters = (
            [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            if given
            else []
        )
        if self.parameters[:1] in (["self"], ["cls"]):
            del self.parameters[0]

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.assigned.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, part in zip(target.elts, value.elts, strict=False):
                self._assign(one, part)

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        for node in self.nodes:
            if isinstance(node, ast.Call):
                yield node, name_of(node.func)


def find_texts(left_out: Collection[str] = ()) -> dict[str, str]:
    """Return the patterns that can be shown, each with a place of it; rooms and files may be left out."""
    sinks = all_sinks()
    found: dict[str, str] = {}
    for scope in scopes():
        place = scope.source.place.removeprefix("src/turnwise/")
        if any(place.startswith(f"{one}/") or place == one for one in left_out):
            continue
        for call, name in scope.calls():
            for value in arguments_of(call, sinks.get(name, ())):
                for text in follow(value, scope, MAX_DEPTH):
                    if SENTENCE.search(text):
                        found.setdefault(text, f"{place}:{call.lineno}")
    return found


def follow(node: ast.expr, scope: Scope, depth: int) -> list[str]:
    """Return the texts that an expression may have; none if nothing is known about them."""
    if not depth:
        return []
    match node:
        case ast.Constant(value=str(text)):
            return [text.replace("{", "{{").replace("}", "}}")]
        case ast.JoinedStr(values=parts):
            return join([follow(part, scope, depth) or [placeholder(part)] for part in parts])
        case ast.FormattedValue(value=ast.IfExp() as choice):
            return follow(choice, scope, depth)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            sides = follow(left, scope, depth), follow(right, scope, depth)
            if not any(sides):
                return []
            return join([sides[0] or [placeholder(left)], sides[1] or [placeholder(right)]])
        case ast.IfExp(body=one, orelse=other):
            return follow(one, scope, depth) + follow(other, scope, depth)
        case ast.BoolOp(values=values):
            return [text for value in values for text in follow(value, scope, depth)]
        case ast.NamedExpr(value=value):
            return follow(value, scope, depth)
        case ast.Name(id=name):
            return follow_name(name, scope, depth - 1)
        case ast.Subscript(value=ast.Name(id=name)):
            return follow_table(name, scope, depth - 1)
        case ast.Call(func=ast.Attribute(attr="get", value=ast.Name(id=name))):
            return follow_table(name, scope, depth - 1)
        case ast.Call() if (name := name_of(node.func)) in returns():
            return [
                text for value, inner in returns()[name] for text in follow(value, inner, depth - 1)
            ]
    return []


def follow_name(name: str, scope: Scope, depth: int) -> list[str]:
    found = scope.assigned.get(name)
    if found is None and scope.function is not None and name not in scope.parameters:
        top = module_scopes()[scope.source.module]
        found, scope = top.assigned.get(name), top
    return [text for value in found or () for text in follow(value, scope, depth)]


def follow_table(name: str, scope: Scope, depth: int) -> list[str]:
    """Return the texts that are the values of a dict at the top of a module."""
    for top in (module_scopes()[scope.source.module], *module_scopes().values()):
        for value in top.assigned.get(name, ()):
            if isinstance(value, ast.Dict):
                texts = [follow(one, top, depth) for one in value.values]
                return [text for several in texts for text in several]
    return []


def join(parts: list[list[str]]) -> list[str]:
    """Return all ways to take one text of each part; the first ways, if there are many."""
    ways = 1
    for number, part in enumerate(parts):
        parts[number] = part if ways * len(part) <= MAX_ALTERNATIVES else part[:1]
        ways *= len(parts[number])
    return ["".join(way) for way in product(*parts)]


def placeholder(node: ast.expr) -> str:
    """Return a placeholder named after the last word of an expression: `{path}` for `entry.path`."""
    words = [word for word in re.findall(r"[a-z_]{2,}", ast.unparse(node)) if word not in IDLE]
    return "{" + (words[-1].strip("_") if words else "value") + "}"


IDLE = {
    "self",
    "str",
    "short_repr",
    "printable",
    "len",
    "join",
    "repr",
    "if",
    "else",
    "for",
    "in",
    "is",
    "not",
    "None",
}


def arguments_of(call: ast.Call, wanted: Places) -> Iterator[ast.expr]:
    yield from (value for place, value in enumerate(call.args) if place in wanted)
    yield from (keyword.value for keyword in call.keywords if keyword.arg in wanted)


def name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


@cache
def all_sinks() -> dict[str, Places]:
    """Return the sinks: those that are listed, errors, and functions that pass a parameter on to a sink."""
    errors = {"TurnwiseError"}
    classes = [
        node for source in package() for node in source.nodes if isinstance(node, ast.ClassDef)
    ]
    for _ in range(4):  # as deep as the tree of errors is
        errors |= {one.name for one in classes if errors & {name_of(base) for base in one.bases}}
    sinks = dict.fromkeys(errors, ERROR_ARGUMENTS) | SINKS
    for _ in range(3):
        for scope in scopes():
            if scope.function is None or scope.function.name.startswith("__"):
                continue
            for call, name in scope.calls():
                for value in arguments_of(call, sinks.get(name, ())):
                    if isinstance(value, ast.Name) and value.id in scope.parameters:
                        passed = {scope.parameters.index(value.id), value.id}
                        known = sinks.get(scope.function.name, ())
                        sinks[scope.function.name] = (*known, *(passed - {*known}))
    return sinks


@cache
def scopes() -> tuple[Scope, ...]:
    return tuple(scope for source in package() for scope in find_scopes(source))


@cache
def module_scopes() -> dict[str, Scope]:
    return {scope.source.module: scope for scope in scopes() if scope.function is None}


@cache
def returns() -> dict[str, list[tuple[ast.expr, Scope]]]:
    """Return what functions return or yield, by their names."""
    found: dict[str, list[tuple[ast.expr, Scope]]] = {}
    for scope in scopes():
        for node in scope.nodes:
            if isinstance(node, ast.Return | ast.Yield) and node.value and scope.function:
                found.setdefault(scope.function.name, []).append((node.value, scope))
    return found


def find_scopes(source: Source) -> Iterator[Scope]:
    """Yield the functions of a file and its top; a node belongs to the innermost function."""
    pending: list[tuple[ast.AST, Function | None]] = [(source.tree, None)]
    nodes: dict[Function | None, list[ast.AST]] = {None: []}
    while pending:
        node, function = pending.pop()
        if isinstance(node, Function):
            function = node
            nodes[function] = []
        nodes[function].append(node)
        pending += [(child, function) for child in ast.iter_child_nodes(node)]
    for function, own in nodes.items():
        yield Scope(source, function, own)

"""Read, from the text of a template, what its conditions ask for.

    {% if message.role == 'ipython' and 'python' in builtin_tools %}

compares the field `role` with `'ipython'` and searches `'python'` in the option `builtin_tools`. A conversation that
takes the branch is made of just these names and constants. A *subject* is what a condition looks at, by the last name
on the way to it: `message['role']`, `messages[0].role | lower` and `m.get('role')` are all `role`. Names that the
template assigns, loops over or passes to a macro stand for the subjects of what they were given, wherever that was.

Nothing is evaluated, and what is read may be irrelevant: it makes up conversations, and rendering them tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from jinja2 import nodes

from turnwise.engine.compiler.syntax import parse
from turnwise.engine.compiler.tree import walk
from turnwise.messages import JsonObject

MAX_ALIASES = 4  # names for names that are followed
MAX_CONSTANT_LENGTH = 200  # characters; a longer text is no value that a caller passes
EQUALITIES = ("eq", "ne")
MEMBERSHIPS = ("in", "notin")
EQUAL_TESTS = ("equalto", "eq", "==", "ne", "in", "sameas", "gt", "lt", "ge", "le")
SEARCHES = ("startswith", "endswith", "split", "rsplit", "replace", "find", "strip", "count")
MESSAGE_TEXTS = ("content", "text", "reasoning_content", "thinking", "arguments")
ELEMENT_FILTERS = ("selectattr", "rejectattr", "map", "groupby", "sort", "join")
NameAliases = dict[str, frozenset[str]]


class Question(NamedTuple):
    """One thing that a template asks of its input.

    Attributes:
        subject: The field or option.
        constant: What it is compared with, or searched for in it; None if it is only read or tested.
        how: "equals", "contains", "size" or "reads".
    """

    subject: str
    constant: Any = None
    how: str = "reads"


@dataclass(frozen=True)
class TemplateConstants:
    """The questions of a template.

    Attributes:
        aliases: The names that the template assigns, with the names that they stand for.
        children: The fields that are read from each name.
        questions: What the template asks.
    """

    aliases: NameAliases
    children: dict[str, tuple[str, ...]]
    questions: tuple[Question, ...]

    @classmethod
    @lru_cache(maxsize=8)  # one template is asked by many
    def read(cls, text: str) -> TemplateConstants:
        """Read a template that compiles."""
        found = list(walk(parse(text, "template")))
        aliases = _find_aliases(found)
        return cls(
            aliases,
            _find_children(found, aliases),
            tuple(dict.fromkeys(_ask_all(found, aliases))),
        )

    def questions_of(self, node: nodes.Node) -> tuple[Question, ...]:
        """Return the questions that one condition asks."""
        return tuple(dict.fromkeys(_ask_all(walk(node), self.aliases)))

    def constants_of(self, subject: str) -> list[Any]:
        """Return what a field or option is compared with, in the order of the template."""
        asked = [q for q in self.questions if q.subject == subject and q.how != "reads"]
        # `1` and `True` are two values.
        return list({(type(q.constant), q.constant): q.constant for q in asked}.values())

    def guess_mapping(self, subject: str, depth: int = 2) -> JsonObject:
        """Return a mapping with the fields that are read from a subject, each with a value that is asked for."""
        fields = self.children.get(subject, ()) if depth else ()
        guessed: JsonObject = {}
        for field in fields:
            constants = [value for value in self.constants_of(field) if value is not None]
            guessed[field] = (constants or [self.guess_mapping(field, depth - 1) or "text"])[0]
        return guessed

    @property
    def searched(self) -> tuple[str, ...]:
        """The texts that are searched for, or that the text of a message is compared with."""
        asked = [q for q in self.questions if q.how == "contains" or q.subject in MESSAGE_TEXTS]
        texts = [q.constant for q in asked if isinstance(q.constant, str) and q.constant.strip()]
        return tuple(dict.fromkeys(texts))

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of all fields and variables that are read."""
        return tuple(dict.fromkeys(question.subject for question in self.questions))


def _find_aliases(found: Iterable[nodes.Node]) -> NameAliases:
    """Return, for every name that the template gives a value, the names that the value is read from."""
    macros = {node.name: node for node in found if isinstance(node, nodes.Macro)}
    aliases: dict[str, set[str]] = {}
    for node in found:
        for target, value in _assignments(node, macros):
            for name in walk(target):
                if isinstance(name, nodes.Name):
                    aliases.setdefault(name.name, set()).update(_names_in(value))
                elif isinstance(name, nodes.NSRef):
                    aliases.setdefault(name.attr, set()).update(_names_in(value))
    return {name: frozenset(sources - {name}) for name, sources in aliases.items()}


def _find_children(found: Iterable[nodes.Node], aliases: NameAliases) -> dict[str, tuple[str, ...]]:
    """Return the fields that are read from each name, and from what it stands for."""
    children: dict[str, dict[str, None]] = {}
    for node in found:
        if isinstance(node, (nodes.Getattr, nodes.Getitem, nodes.Call)):
            field = _name_of(node)
            owner: nodes.Node = node.node
            if isinstance(node, nodes.Call) and isinstance(owner, nodes.Getattr):
                owner = owner.node
            for name in _resolve(_name_of(owner), aliases):
                if name != field:
                    children.setdefault(name, {})[field] = None
    return {name: tuple(fields) for name, fields in children.items()}


def _assignments(
    node: nodes.Node, macros: dict[str, nodes.Macro]
) -> Iterator[tuple[nodes.Node, nodes.Node]]:
    """Yield the targets and values of a statement that gives names a value."""
    if isinstance(node, nodes.Assign):
        yield node.target, node.node
    elif isinstance(node, nodes.For):
        yield node.target, node.iter
    elif isinstance(node, nodes.With):
        yield from zip(node.targets, node.values, strict=True)
    elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
        macro = macros.get(node.node.name)
        if macro is not None:
            yield from zip(macro.args, node.args, strict=False)


def _names_in(node: nodes.Node) -> list[str]:
    """Return the last names on the ways to all values that an expression is made of."""
    if isinstance(node, (nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Call, nodes.Filter)):
        name = _name_of(node)
        return [name] if name else []
    return [name for child in node.iter_child_nodes() for name in _names_in(child)]


def _name_of(node: nodes.Node | None) -> str:
    """Return the last name on the way to a value: `role` for `messages[0]['role'] | trim`."""
    while node is not None:
        if isinstance(node, nodes.Name):
            return node.name
        if isinstance(node, nodes.Getitem):
            if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
                return node.arg.value
            node = node.node
        elif isinstance(node, nodes.Getattr):
            return node.attr
        elif isinstance(node, nodes.Call):
            method = node.node
            if not isinstance(method, nodes.Getattr):
                return ""
            first = node.args[0] if node.args else None
            if method.attr == "get" and isinstance(first, nodes.Const):
                return str(first.value)
            node = method.node
        elif isinstance(node, nodes.Filter):
            node = node.node
        elif isinstance(node, nodes.Or):
            node = node.left  # (m.content or '')
        else:
            return ""
    return ""


def _ask_all(found: Iterable[nodes.Node], aliases: NameAliases) -> Iterator[Question]:
    """Yield the questions of some nodes, each of all subjects that its name may stand for."""
    for node in found:
        for question in _ask(node):
            for subject in _resolve(question.subject, aliases):
                yield question._replace(subject=subject)


def _resolve(name: str, aliases: NameAliases) -> list[str]:
    known = [name] if name else []
    for _ in range(MAX_ALIASES):
        more = [source for one in known for source in aliases.get(one, ()) if source not in known]
        if not more:
            break
        known += dict.fromkeys(sorted(more))
    return known


def _ask(node: nodes.Node) -> Iterator[Question]:
    """Yield what one node asks, by the names that it uses."""
    if isinstance(node, nodes.Compare):
        left = node.expr
        for operand in node.ops:
            yield from _ask_comparison(left, operand.op, operand.expr)
            left = operand.expr
    elif isinstance(node, nodes.Call):
        yield from _ask_call(node)
    elif isinstance(node, nodes.Test):
        wanted = node.args if node.name in EQUAL_TESTS else []
        for constant in _constants_in(wanted):
            yield Question(_name_of(node.node), constant, "equals")
        yield Question(_name_of(node.node))
    elif isinstance(node, nodes.Filter):
        yield from _ask_filter(node)
    elif isinstance(node, (nodes.Name, nodes.Getattr, nodes.Getitem)):
        yield Question(_name_of(node))


def _ask_comparison(left: nodes.Node, operator: str, right: nodes.Node) -> Iterator[Question]:
    if operator in MEMBERSHIPS:
        for constant in _constants_in([right]):
            yield Question(_name_of(left), constant, "equals")
        for constant in _constants_in([left]):
            yield Question(_name_of(right), constant, "contains")
            if isinstance(constant, str):
                yield Question(constant)
        return
    for asked, other in ((left, right), (right, left)):
        for constant in _constants_in([other]):
            is_length = isinstance(asked, nodes.Filter) and asked.name in ("length", "count")
            is_size = operator not in EQUALITIES or is_length
            is_part = isinstance(asked, nodes.Getitem) and isinstance(asked.arg, nodes.Slice)
            how = "size" if is_size else "contains" if is_part else "equals"
            yield Question(_name_of(asked), constant, how)


def _ask_call(node: nodes.Call) -> Iterator[Question]:
    method = node.node
    if not isinstance(method, nodes.Getattr):
        return
    if method.attr == "get":
        yield Question(_name_of(node))
    elif method.attr in SEARCHES:
        for constant in _constants_in(node.args[:1]):
            yield Question(_name_of(method.node), constant, "contains")


def _ask_filter(node: nodes.Filter) -> Iterator[Question]:
    """`messages | selectattr('role', 'equalto', 'user')` asks `role`."""
    constants = list(_constants_in(node.args))
    if node.name in ELEMENT_FILTERS and constants and isinstance(constants[0], str):
        for constant in constants[2:]:
            yield Question(constants[0], constant, "equals")
        yield Question(constants[0])
    elif node.name in ("replace", "split"):
        for constant in constants[:1]:
            yield Question(_name_of(node.node), constant, "contains")


def _constants_in(found: Iterable[nodes.Node]) -> Iterator[Any]:
    """Yield the constants among expressions, and the elements of lists of constants."""
    for node in found:
        if isinstance(node, nodes.Const):
            if not isinstance(node.value, str) or 0 < len(node.value) <= MAX_CONSTANT_LENGTH:
                yield node.value
        elif isinstance(node, nodes.Neg) and isinstance(node.node, nodes.Const):
            yield -node.node.value
        elif isinstance(node, (nodes.List, nodes.Tuple)):
            yield from _constants_in(node.items)

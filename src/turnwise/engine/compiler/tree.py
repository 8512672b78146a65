"""Walk over jinja2's syntax tree.

A compiler asks of every loop, macro and branch what is in it, so a tree is walked many times. jinja2's own
`iter_child_nodes` and `find_all` look at every field of every node through three generators; these do the same in a
third of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from jinja2 import nodes

NodeType = TypeVar("NodeType", bound=nodes.Node)
Body = Iterable[nodes.Node]  # of a block: its statements
LEAVES = frozenset([nodes.Name, nodes.Const, nodes.TemplateData, nodes.NSRef])


def child_nodes(node: nodes.Node) -> list[nodes.Node]:
    """Return the nodes right below a node, in the order of its fields."""
    children: list[nodes.Node] = []
    if type(node) in LEAVES:
        return children
    for field in node.fields:
        value = getattr(node, field)
        if isinstance(value, nodes.Node):
            children.append(value)
        elif isinstance(value, (list, tuple)):
            children += [item for item in value if isinstance(item, nodes.Node)]
    return children


def walk(*roots: nodes.Node) -> Iterator[nodes.Node]:
    """Yield the nodes and all nodes below them, each before those below it."""
    stack = list(reversed(roots))
    while stack:
        node = stack.pop()
        yield node
        children = child_nodes(node)
        children.reverse()
        stack += children


def find_nodes(root: nodes.Node, kind: type[NodeType]) -> Iterator[NodeType]:
    """Yield the nodes of a kind among a node and all nodes below it."""
    for node in walk(root):
        if isinstance(node, kind):
            yield node


def is_loop(node: nodes.Node) -> bool:
    """Whether a node is the name `loop`."""
    return isinstance(node, nodes.Name) and node.name == "loop"


def list_lookups(owner: nodes.Expr, name: str) -> list[nodes.Node]:
    """Return the forms in which a field is looked up, to compare nodes with: `owner.name`, `owner['name']`."""
    return [
        nodes.Getattr(owner, name, "load"),
        nodes.Getitem(owner, nodes.Const(name), "load"),
    ]


def find_start(node: nodes.Node) -> int:
    """Return the position where an expression begins; jinja2 gives `a == b` that of its operator."""
    return min([each.lineno for each in walk(node) if each.lineno], default=node.lineno)


def find_assigned_names(found: Iterable[nodes.Node]) -> Iterator[str]:
    """Yield the names that nodes assign: targets, parameters, and macros, which assign their own name."""
    for node in found:
        if isinstance(node, nodes.Macro) or (isinstance(node, nodes.Name) and node.ctx != "load"):
            yield node.name


def flat_children(node: nodes.Node) -> Sequence[nodes.Node]:
    """Return the nodes right below a node; a chain of `+` counts as one node, however long."""
    if isinstance(node, nodes.Add):
        return flatten_chain(node)
    return child_nodes(node)


def flatten_chain(node: nodes.BinExpr) -> list[nodes.Expr]:
    """Return `a + b + c` as [a, b, c], without recursion."""
    reversed_operands: list[nodes.Expr] = []
    left: nodes.Expr = node
    while type(left) is type(node):
        reversed_operands.append(left.right)
        left = left.left
    return [left, *reversed(reversed_operands)]

"""How much work a piece of template is: the steps that a loop or macro pays in advance.

A step is a node of the tree. Nodes that call into the runtime count for more, so that a step of any kind costs about as
much time; of the branches of an `if` the longest counts; loops and macros inside pay for themselves when they start.
"""

from __future__ import annotations

from collections.abc import Iterable

from jinja2 import nodes

from turnwise.engine.compiler.syntax import children

HEAVY: dict[type, int] = {
    nodes.Filter: 4,
    nodes.Test: 2,
    nodes.Call: 6,
    nodes.Concat: 10,
    nodes.Add: 2,
    nodes.Mod: 2,
}


def weight(body: Iterable[nodes.Node]) -> int:
    """How many steps one run of a body takes at most. Loops inside pay for themselves; of branches the longest
    counts.
    """
    return sum(map(weight_of, body))


def weight_of(node: nodes.Node) -> int:
    if isinstance(node, nodes.For):
        return 1 + weight_of(node.iter)
    if isinstance(node, nodes.Macro):
        return 1
    if isinstance(node, nodes.If):
        tests = weight_of(node.test) + sum(weight_of(branch.test) for branch in node.elif_)
        bodies = (node.body, *(branch.body for branch in node.elif_), node.else_)
        return 1 + tests + max(map(weight, bodies))
    if isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Const):
        return 16 + weight_of(node.node) + weight_of(node.arg)  # looked up by a call
    return HEAVY.get(type(node), 1) + sum(map(weight_of, children(node)))

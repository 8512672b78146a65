"""Cost of template code in steps, which a loop or macro charges before it runs.

A step is one node of the syntax tree. Nodes that call into the runtime count for more, so that every step takes about
the same time. Of the branches of an `if` only the most expensive counts. Loops and macros inside the body charge
for themselves when they start.
"""

from __future__ import annotations

from collections.abc import Iterable

from jinja2 import nodes

from turnwise.engine.compiler.syntax import flat_children

LOOKUP_STEPS = 16  # of `x[y]` with a computed key, a runtime call
NODE_STEPS: dict[type, int] = {
    nodes.Filter: 4,
    nodes.Test: 2,
    nodes.Call: 6,
    nodes.Concat: 10,
    nodes.Add: 2,
    nodes.Mod: 2,
}


def step_cost(body: Iterable[nodes.Node]) -> int:
    """Return how many steps one run of `body` takes at most."""
    return sum(map(_node_cost, body))


def _node_cost(node: nodes.Node) -> int:
    if isinstance(node, nodes.For):
        return 1 + _node_cost(node.iter)
    if isinstance(node, nodes.Macro):
        return 1
    if isinstance(node, nodes.If):
        branches = [node, *node.elif_]
        tests = step_cost(branch.test for branch in branches)
        bodies = [branch.body for branch in branches]
        return 1 + tests + max(map(step_cost, [*bodies, node.else_]))
    if isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Const):
        return LOOKUP_STEPS + _node_cost(node.node) + _node_cost(node.arg)
    return NODE_STEPS.get(type(node), 1) + step_cost(flat_children(node))

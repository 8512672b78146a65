"""Cost of template code in steps, which a loop or macro charges before it runs.

A step is one node of the syntax tree, and stands for at most 100 ns. Nodes that call into the runtime or make a
container count for more, long texts by their length. Loops and macros inside the body charge for themselves when they
start; what runs once beside their bodies counts here. So do the expensive branches of an `if`: many loops look for
something, and do nothing for most of their elements. Of cheap branches the most expensive one counts.
"""

from __future__ import annotations

from jinja2 import nodes

from turnwise.engine.compiler.tree import Body, flat_children

LOOKUP_STEPS = 16  # of `x[y]` with a computed key, a runtime call
NODE_STEPS: dict[type, int] = {
    nodes.Filter: 4,
    nodes.Test: 2,
    nodes.Call: 6,
    nodes.Concat: 10,
    nodes.Add: 2,
    nodes.Mod: 2,
    nodes.List: 3,
    nodes.Tuple: 3,
    nodes.Dict: 12,
    nodes.Pair: 4,
}
LOOP_STEPS = 8  # of starting a loop, beside its rounds
MACRO_CALL_STEPS = 24  # of calling a macro, or a recursive loop, beside its body
MACRO_STEPS = 12  # of making a macro or the caller of a call block
MAX_BRANCH_STEPS = 40  # of a branch that counts whether it is taken or not
BRANCH_STEPS = 2  # of charging a branch when it is taken
CHARACTERS_PER_STEP = 1024  # of a text that is compared or hashed


class StepCosts:
    """Costs of the nodes of one template; each is calculated once, though it is in many loops and branches."""

    def __init__(self) -> None:
        self._costs: dict[nodes.Node, int] = {}

    def of_round(self, node: nodes.For) -> int:
        """Return how many steps one round of a loop takes at most, with its test."""
        test = 0 if node.test is None else 2 + self._of_node(node.test)
        return 2 + self._of_nodes(node.body) + test

    def of_macro(self, node: nodes.Macro | nodes.CallBlock) -> int:
        """Return how many steps one call of a macro takes at most, with its defaults."""
        return MACRO_CALL_STEPS + self._of_nodes(node.body) + self._of_nodes(node.defaults)

    def of_branch(self, body: Body) -> int:
        """Return how many steps a branch of an `if` charges when it is taken; none if it is cheap."""
        steps = self._of_nodes(body)
        return steps if steps > MAX_BRANCH_STEPS else 0

    def _of_nodes(self, body: Body) -> int:
        return sum(map(self._of_node, body))

    def _of_node(self, node: nodes.Node) -> int:
        steps = self._costs.get(node)
        if steps is None:
            steps = self._costs[node] = self._calculate(node)
        return steps

    def _calculate(self, node: nodes.Node) -> int:
        if isinstance(node, nodes.For):
            return LOOP_STEPS + self._of_node(node.iter) + self._of_nodes(node.else_)
        if isinstance(node, nodes.Macro):
            return MACRO_STEPS
        if isinstance(node, nodes.Const) and isinstance(node.value, str):
            return 1 + len(node.value) // CHARACTERS_PER_STEP
        if isinstance(node, nodes.If):
            return self._of_if(node)
        if isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Const):
            return LOOKUP_STEPS + self._of_node(node.node) + self._of_node(node.arg)
        if isinstance(node, nodes.CallBlock) and not isinstance(
            node.call.node, nodes.ExtensionAttribute
        ):
            return MACRO_STEPS + self._of_node(node.call)
        return NODE_STEPS.get(type(node), 1) + self._of_nodes(flat_children(node))

    def _of_if(self, node: nodes.If) -> int:
        branches = [node, *node.elif_]
        tests = self._of_nodes(branch.test for branch in branches)
        bodies = [*(branch.body for branch in branches), node.else_]
        costs = [
            steps if steps <= MAX_BRANCH_STEPS else BRANCH_STEPS
            for steps in map(self._of_nodes, bodies)
        ]
        return 1 + tests + max(costs)

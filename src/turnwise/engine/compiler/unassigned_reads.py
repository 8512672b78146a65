"""The names that a template may read before it has assigned them: only these are inputs of the caller.

jinja2 looks a name up among the inputs wherever one branch of an `if` assigns it and another does not, even if nothing
reads it there. So the inputs that a program loads (and `jinja2.meta.find_undeclared_variables`) include names such as
the `thought` of

    {% if message.reasoning %}{% set thought = message.reasoning %}<think>{{ thought }}</think>{% endif %}

A name is assigned for certain after a `set`, after an `if` all of whose branches assign it, and in the scope of a loop,
a macro or a `with` that declares it. What a macro reads was assigned for certain where the macro is defined.
"""

from __future__ import annotations

from jinja2 import nodes
from jinja2.visitor import NodeVisitor

from turnwise.engine.compiler.macros import SPECIAL_NAMES
from turnwise.engine.compiler.tree import Body, child_nodes, find_assigned_names, walk

Names = frozenset[str]


def find_unassigned_reads(tree: nodes.Template) -> set[str]:
    """Return the names that some path through the template reads before it assigns them."""
    reader = _UnassignedReads()
    reader.run(tree.body, frozenset())
    return reader.found


class _UnassignedReads(NodeVisitor):
    """Each visit takes the names that are assigned for certain before a statement, and returns those after it."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def run(self, body: Body, assigned: Names) -> Names:
        """Visit statements in their order."""
        for node in body:
            assigned = self.visit(node, assigned)
        return assigned

    def read(self, assigned: Names, *expressions: nodes.Node | None) -> None:
        """Note the names in expressions that are not assigned for certain."""
        for node in walk(*filter(None, expressions)):
            if isinstance(node, nodes.NSRef) or (
                isinstance(node, nodes.Name) and node.ctx == "load"
            ):
                self.found |= {node.name} - assigned

    def generic_visit(self, node: nodes.Node, assigned: Names) -> Names:
        """Output, expressions and loop controls assign nothing."""
        self.read(assigned, node)
        return assigned

    def visit_Scope(self, node: nodes.Scope, assigned: Names) -> Names:
        self.run(child_nodes(node), assigned)
        return assigned

    def visit_Assign(self, node: nodes.Assign, assigned: Names) -> Names:
        self.read(assigned, node.node, node.target)
        return assigned | _targets(node.target)

    def visit_AssignBlock(self, node: nodes.AssignBlock, assigned: Names) -> Names:
        self.read(assigned, node.filter, node.target)
        self.run(node.body, assigned)
        return assigned | _targets(node.target)

    def visit_If(self, node: nodes.If, assigned: Names) -> Names:
        ends = []
        for branch in [node, *node.elif_]:
            self.read(assigned, branch.test)
            ends.append(self.run(branch.body, assigned))
        ends.append(self.run(node.else_, assigned))
        return frozenset.intersection(*ends)

    def visit_For(self, node: nodes.For, assigned: Names) -> Names:
        self.read(assigned, node.iter)
        inner = assigned | _targets(node.target)
        self.read(inner, node.test)
        self.run(node.body, inner | {"loop"})
        self.run(node.else_, assigned)
        return assigned

    def visit_With(self, node: nodes.With, assigned: Names) -> Names:
        self.read(assigned, *node.values)
        self.run(node.body, assigned | _targets(*node.targets))
        return assigned

    def visit_FilterBlock(self, node: nodes.FilterBlock, assigned: Names) -> Names:
        self.read(assigned, node.filter)
        self.run(node.body, assigned)
        return assigned

    def visit_CallBlock(self, node: nodes.CallBlock, assigned: Names) -> Names:
        self.read(assigned, node.call)
        return self._run_macro(node, assigned)

    def visit_Macro(self, node: nodes.Macro, assigned: Names) -> Names:
        return self._run_macro(node, assigned | {node.name})

    def _run_macro(self, node: nodes.Macro | nodes.CallBlock, assigned: Names) -> Names:
        inner = assigned.union(_targets(*node.args), SPECIAL_NAMES)
        self.read(inner, *node.defaults)
        self.run(node.body, inner)
        return assigned


def _targets(*targets: nodes.Node) -> Names:
    """Return the names that are assigned by these targets."""
    return frozenset(find_assigned_names(walk(*targets)))

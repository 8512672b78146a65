"""Whether a template only appends: what it writes for a message never depends on the messages after it.

Then the rendering of a conversation begins with that of every shorter one that ends with an assistant message. It is
proven from the syntax tree, or not claimed. For renderings without a generation prompt:

* the messages are read by one loop, and elsewhere only as `messages[0]`, `messages[1:]` or `messages is defined`;
* nothing in the loop asks what follows: not `loop.last`, `loop.nextitem`, `loop.length`, `messages[-1]`. Only a branch
  for a role that is not the assistant's may ask for the next message (Qwen closes a group of tool results like that):
  in the shorter conversation it is there, too;
* nothing is written after the loop.

The generation prompt is *constant* if it depends on options only. Conditions on `add_generation_prompt` guard it, and
nothing else reads that variable.

Not covered: templates that read the messages through a filter (`messages|selectattr(...)`) or in two loops.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from jinja2 import nodes

from turnwise.engine.compiler.syntax import parse
from turnwise.engine.compiler.tree import child_nodes, find_assigned_names, find_nodes, walk
from turnwise.sized_cache import SizedCache

PROMPT_FLAG = "add_generation_prompt"
LOOKAHEAD = frozenset(["last", "nextitem", "length", "revindex", "revindex0"])
ASSISTANT_ROLES = frozenset(["assistant", "model", "bot", "gpt", "chatbot"])


class History(NamedTuple):
    """What is proven about a template.

    Attributes:
        appends: what is written for a message does not depend on later ones.
        constant_prompt: the generation prompt depends on options only.
    """

    appends: bool
    constant_prompt: bool


class _LooksAhead(Exception):
    """Raised where nothing can be proven."""


def analyse_history(text: str) -> History:
    """Return what the source of a template proves about the way in which it writes history."""
    return HISTORIES.get(text)


def _analyse_history(text: str) -> History:
    tree = parse(text, "template")
    proof = _Proof()
    try:
        proof.check_statements(tree.body)
    except _LooksAhead:
        return History(False, False)
    return History(True, _is_prompt_constant(tree, proof.guarded, proof.loop_names))


HISTORIES = SizedCache(_analyse_history)


class _Place(NamedTuple):
    """Where a node is."""

    target: str | None = None  # the variable of the loop over messages that the node is in
    owns_loop: bool = False  # `loop` is that of the messages, not of a loop inside
    is_other_role: bool = False  # the message is not an assistant's
    has_previous: bool = False  # the message is not the first
    in_macro: bool = False


_OUTSIDE = _Place()


class _Proof:
    """Walks over a template and raises `_LooksAhead` at the first node that spoils the proof."""

    def __init__(self) -> None:
        self.sequences = {"messages"}  # names of the messages, or of those from a fixed one on
        self.is_done = False  # the loop over messages is over
        self.guarded: list[nodes.Node] = []  # what is written only with a generation prompt
        self.loop_names: set[str] = set()  # what the loop over messages assigns
        self.role_names: set[str] = set()  # variables that hold the role of the message

    def check_statements(self, body: Iterable[nodes.Node], place: _Place = _OUTSIDE) -> None:
        for node in body:
            if isinstance(node, nodes.If):
                self._check_if(node, place)
            elif isinstance(node, nodes.For):
                self._check_for(node, place)
            elif isinstance(node, nodes.Assign):
                self._check_assignment(node, place)
            elif isinstance(node, nodes.Macro):
                self.check_statements(node.body, _Place(in_macro=True))
            elif isinstance(node, nodes.Output):
                self._check_output(node, place)
            else:
                for child in child_nodes(node):
                    if isinstance(child, nodes.Stmt):
                        self.check_statements([child], place)
                    else:
                        self.check_expression(child, place)

    def _check_if(self, node: nodes.If, place: _Place) -> None:
        if _is_false(node.test):
            self.guarded.append(node.test)
            self.guarded += node.body
        else:
            self.check_expression(node.test, place)
            inside = place._replace(
                is_other_role=place.is_other_role or self._is_other_role(node.test, place.target),
                has_previous=place.has_previous or is_not_first(node.test),
            )
            self.check_statements(node.body, inside)
        self.check_statements(node.elif_, place)
        self.check_statements(node.else_, place)

    def _check_for(self, node: nodes.For, place: _Place) -> None:
        if not self._is_sequence(node.iter):
            self._check_inner_for(node, place)
            return
        is_first = place.target is None and not self.is_done and not place.in_macro
        if not is_first or node.recursive or not isinstance(node.target, nodes.Name):
            raise _LooksAhead
        inside = _Place(node.target.name, owns_loop=True)
        self.loop_names |= _find_assigned_names(node)
        if node.test is not None:
            self.check_expression(node.test, inside)
        self.check_statements(node.body, inside)
        self.is_done = True

    def _check_inner_for(self, node: nodes.For, place: _Place) -> None:
        """Check a loop over anything but the messages."""
        if not self.sequences.isdisjoint(name.name for name in find_nodes(node.target, nodes.Name)):
            raise _LooksAhead
        self.check_expression(node.iter, place)
        inside = place._replace(owns_loop=False)
        if node.test is not None:
            self.check_expression(node.test, inside)
        self.check_statements(node.body, inside)
        self.check_statements(node.else_, place)

    def _check_assignment(self, node: nodes.Assign, place: _Place) -> None:
        name = node.target.name if isinstance(node.target, nodes.Name) else ""
        if self._is_sequence(node.node) and name:
            self.sequences.add(name)
            return
        if name in self.sequences:
            raise _LooksAhead
        self.check_expression(node.node, place)
        self.role_names.discard(name)
        if place.target is not None and _is_role_of(node.node, place.target):
            self.role_names.add(name)

    def _check_output(self, node: nodes.Output, place: _Place) -> None:
        is_after = self.is_done and place.target is None and not place.in_macro
        for part in node.nodes:
            if isinstance(part, nodes.CondExpr) and _is_false(part.test):
                self.guarded += [part.test, part.expr1]
                if part.expr2 is None:
                    continue
                part = part.expr2
            written = getattr(part, "data", getattr(part, "value", None))
            is_blank = isinstance(written, str) and not written.strip()
            if is_after and not is_blank:
                raise _LooksAhead
            self.check_expression(part, place)

    def check_expression(self, node: nodes.Node, place: _Place) -> None:
        """Raise `_LooksAhead` if the value may depend on later messages."""
        if isinstance(node, (nodes.And, nodes.Or)):
            self._check_operands(node, place)
            return
        if self._is_harmless(node, place):
            return
        if isinstance(node, nodes.Name):
            if node.name in self.sequences or (node.name == "loop" and place.owns_loop):
                raise _LooksAhead
            return
        for child in child_nodes(node):
            self.check_expression(child, place)

    def _check_operands(self, node: nodes.And | nodes.Or, place: _Place) -> None:
        """Check the second operand under what the first one says about the message."""
        if not _is_messages(node.left):  # there is always a message
            self.check_expression(node.left, place)
        if isinstance(node, nodes.And):
            place = place._replace(
                is_other_role=place.is_other_role or self._is_other_role(node.left, place.target),
                has_previous=place.has_previous or is_not_first(node.left),
            )
        elif is_first(node.left):
            place = place._replace(has_previous=True)
        self.check_expression(node.right, place)

    def _is_harmless(self, node: nodes.Node, place: _Place) -> bool:
        """Return whether a node reads the messages or the loop without looking too far ahead."""
        if isinstance(node, nodes.Test):
            return self._is_sequence(node.node) and node.name in ("defined", "undefined", "none")
        if isinstance(node, nodes.Compare):  # messages|length > 0: there is always one
            return _is_count_above_zero(node)
        if isinstance(node, nodes.Getattr) and is_loop(node.node) and place.owns_loop:
            return node.attr not in LOOKAHEAD or place.is_other_role
        if not isinstance(node, nodes.Getitem) or not isinstance(node.node, nodes.Name):
            return False
        if node.node.name not in self.sequences:
            return False
        if isinstance(node.arg, nodes.Const):
            return node.node.name == "messages" and node.arg.value == 0
        distance = measure_distance(node.arg) if place.owns_loop else None
        if distance is None:
            return False
        return place.has_previous if distance < 0 else place.is_other_role

    def _is_other_role(self, test: nodes.Node, target: str | None) -> bool:
        """Return whether a condition holds only for messages of others than the assistant."""
        if isinstance(test, nodes.And):
            return self._is_other_role(test.left, target) or self._is_other_role(test.right, target)
        if isinstance(test, nodes.Or):
            return self._is_other_role(test.left, target) and self._is_other_role(
                test.right, target
            )
        if not isinstance(test, nodes.Compare) or len(test.ops) != 1 or target is None:
            return False
        is_variable = isinstance(test.expr, nodes.Name) and test.expr.name in self.role_names
        if not is_variable and not _is_role_of(test.expr, target):
            return False
        operator, values = test.ops[0].op, find_constants(test.ops[0].expr)
        if operator in ("eq", "in"):
            return bool(values) and ASSISTANT_ROLES.isdisjoint(values)
        return operator == "ne" and values == ["assistant"]

    def _is_sequence(self, node: nodes.Node) -> bool:
        """Return whether a value is the messages from a fixed one on."""
        if isinstance(node, nodes.Name):
            return node.name in self.sequences
        if isinstance(node, nodes.CondExpr) and node.expr2 is not None:
            self.check_expression(node.test, _Place())
            return self._is_sequence(node.expr1) and self._is_sequence(node.expr2)
        if not isinstance(node, nodes.Getitem) or not isinstance(node.arg, nodes.Slice):
            return False
        start = node.arg.start
        is_fixed = isinstance(start, nodes.Const) and type(start.value) is int and start.value >= 0
        is_open = node.arg.stop is None and node.arg.step is None
        return is_fixed and is_open and self._is_sequence(node.node)


# ---- conditions ----


def _is_false(test: nodes.Node) -> bool:
    """Return whether a condition is false without a generation prompt."""
    if isinstance(test, nodes.Name):
        return test.name == PROMPT_FLAG
    if isinstance(test, nodes.And):
        return _is_false(test.left) or _is_false(test.right)
    if isinstance(test, nodes.Or):
        return _is_false(test.left) and _is_false(test.right)
    if isinstance(test, nodes.Compare):
        operand = test.ops[0]
        is_true = isinstance(operand.expr, nodes.Const) and operand.expr.value is True
        return _is_false(test.expr) and operand.op == "eq" and is_true
    return False


def _is_role_of(node: nodes.Node, target: str) -> bool:
    name = node.attr if isinstance(node, nodes.Getattr) else ""
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        name = node.arg.value
    owner = getattr(node, "node", None)
    return name == "role" and isinstance(owner, nodes.Name) and owner.name == target


def find_constants(node: nodes.Node) -> list[Any]:
    """Return the values of a constant or a list of constants; none if there is anything else."""
    items = node.items if isinstance(node, (nodes.List, nodes.Tuple)) else [node]
    values = [item.value for item in items if isinstance(item, nodes.Const)]
    return values if len(values) == len(items) else []


def is_first(test: nodes.Node) -> bool:
    """Return whether a condition says that the message is the first."""
    if isinstance(test, nodes.Compare):
        return _compares_index(test, ("eq",))
    return isinstance(test, nodes.Getattr) and is_loop(test.node) and test.attr == "first"


def is_not_first(test: nodes.Node) -> bool:
    """Return whether a condition says that the message is not the first."""
    if isinstance(test, nodes.And):
        return is_not_first(test.left) or is_not_first(test.right)
    if isinstance(test, nodes.Not):
        return is_first(test.node)
    return isinstance(test, nodes.Compare) and _compares_index(test, ("gt", "ne"))


def _compares_index(test: nodes.Compare, operators: tuple[str, ...]) -> bool:
    left, operand = test.expr, test.ops[0]
    is_index = isinstance(left, nodes.Getattr) and is_loop(left.node) and left.attr == "index0"
    is_zero = isinstance(operand.expr, nodes.Const) and operand.expr.value == 0
    return is_index and is_zero and operand.op in operators


def is_loop(node: nodes.Node) -> bool:
    """Return whether a node is the variable `loop`."""
    return isinstance(node, nodes.Name) and node.name == "loop"


def _is_messages(node: nodes.Node | None) -> bool:
    return isinstance(node, nodes.Name) and node.name == "messages"


def _is_count_above_zero(node: nodes.Compare) -> bool:
    count, operand = node.expr, node.ops[0]
    is_count = isinstance(count, nodes.Filter) and count.name in ("length", "count")
    is_zero = isinstance(operand.expr, nodes.Const) and operand.expr.value == 0
    return is_count and is_zero and _is_messages(getattr(count, "node", None))


def measure_distance(index: nodes.Node) -> int | None:
    """Return how far `loop.index0 - 1` or `loop.index0 + 1` is from the message; None for another index."""
    if not isinstance(index, (nodes.Add, nodes.Sub)) or not isinstance(index.left, nodes.Getattr):
        return None
    is_index = is_loop(index.left.node) and index.left.attr == "index0"
    if not is_index or not isinstance(index.right, nodes.Const) or index.right.value != 1:
        return None
    return 1 if isinstance(index, nodes.Add) else -1


# ---- the generation prompt ----


def _is_prompt_constant(
    tree: nodes.Template, guarded: Iterable[nodes.Node], loop_names: set[str]
) -> bool:
    """Return whether only `guarded` nodes read the flag, and nothing in them depends on messages."""
    read: list[nodes.Name] = []
    for node in guarded:
        read += find_nodes(node, nodes.Name)
    variable = {"messages", *loop_names}
    reads_messages = any(name.name in variable for name in read)
    flags = [name for name in find_nodes(tree, nodes.Name) if name.name == PROMPT_FLAG]
    in_guards = {id(name) for name in read}
    loads = [name for name in flags if name.ctx == "load" and id(name) not in in_guards]
    is_defined = {
        id(test.node)
        for test in find_nodes(tree, nodes.Test)
        if test.name in ("defined", "undefined")
    }
    return not reads_messages and all(id(name) in is_defined for name in loads)


def _find_assigned_names(loop: nodes.For) -> set[str]:
    """Return the names that a loop assigns, namespaces included."""
    return {*find_assigned_names(walk(loop))} | {
        node.name for node in find_nodes(loop, nodes.NSRef)
    }

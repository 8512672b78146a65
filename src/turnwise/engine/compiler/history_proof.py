"""What the source of a template proves about the way in which it writes history: proven from the syntax tree, or not.

    history   what is written for a message never depends on those after it. Then a conversation begins with every
              shorter one that ends with an assistant message, and its generation prompt is constant;
    prompt    the prompt before an assistant turn is the text up to it and a constant. Then a turn begins where the
              generation prompt ends, if the text has it there, and no prompt needs to be rendered to see that.

Both are true if every statement does the same for the shorter conversation as for the whole one:

* the messages are read by loops, and elsewhere only as `messages[0]`, `messages[1:]`, `messages is defined`, or asked
  whether there are any. Only the last of these loops writes, and what an earlier one assigns nothing else reads;
* nothing in a loop asks how many messages there are. What comes next is asked for only where it is the same in both.
  A shorter history ends with an assistant, so it is for all other roles; a prompt ends before one, so it is where an
  assistant speaks, or where the answer is the same for nothing as for an assistant's message
  (`loop.last or loop.nextitem.role != "tool"`);
* the flag `add_generation_prompt` only guards the generation prompt. That is constant: it names nothing but options,
  also in what decides about the names in it. After the loop, history has nothing else; a prompt nothing that is not
  constant, too.

A prompt is proven for a message with the role `assistant` after one of another role, with at least so many messages
before it as `analyse_prompts` says.

Not covered: templates that read the messages through a filter (`messages|selectattr(...)`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jinja2 import nodes
from jinja2.visitor import NodeVisitor

from turnwise.engine.compiler.syntax import parse
from turnwise.engine.compiler.tree import (
    Body,
    child_nodes,
    find_assigned_names,
    find_nodes,
    is_loop,
    list_lookups,
    walk,
)
from turnwise.engine.runtime.methods import DICT_CHANGES, LIST_CHANGES
from turnwise.sized_cache import SizedCache

PROMPT_FLAG, ASSISTANT, MESSAGES = "add_generation_prompt", "assistant", "messages"
POSSIBLE_ASSISTANT_ROLES = frozenset([ASSISTANT, "model", "bot", "gpt", "chatbot"])
OTHER = "other"  # any role but the assistant's
NEXT = frozenset(["last", "nextitem"])
PAST = frozenset(["index", "index0", "first", "previtem", "depth", "depth0", "cycle", "changed"])
EMPTINESS = frozenset(["defined", "undefined", "none"])
MUTATING = frozenset([*DICT_CHANGES, *LIST_CHANGES, "next", "reset"])
COUNTS = ("length", "count")
# What templates write, to compare nodes with.
LOOP, ZERO, ONE = nodes.Name("loop", "load"), nodes.Const(0), nodes.Const(1)
INDEX, NEXT_ITEM = (nodes.Getattr(LOOP, name, "load") for name in ("index0", "nextitem"))
BEFORE, AFTER = nodes.Sub(INDEX, ONE), nodes.Add(INDEX, ONE)
IS_ZERO, *IS_NOT_ZERO = (
    nodes.Compare(INDEX, [nodes.Operand(sign, ZERO)]) for sign in ("eq", "gt", "ne")
)
IS_FIRST = (nodes.Getattr(LOOP, "first", "load"), IS_ZERO)
REFUSAL = nodes.Name("raise_exception", "load")
# What is not the same in all conversations; the tools are the same for all turns of one.
VARIABLE = frozenset([MESSAGES, "tools", "documents", "strftime_now"])


class History(NamedTuple):
    """What is proven about a template.

    Attributes:
        appends: what is written for a message does not depend on later ones, and the generation prompt is constant.
        least: how many messages there must be before a turn, so that its prompt is proven; 0 if it never is.
    """

    appends: bool
    least: int


class _NotProven(Exception):
    """Raised at the first node that spoils the proof."""


def only_appends(*texts: str) -> bool:
    """Return whether history is proven to be appended to only, in a template and the named ones beside it."""
    return all(HISTORIES.get(text).appends for text in texts)


def analyse_prompts(*texts: str) -> int:
    """Return how many messages there must be before a turn, so that its prompt is proven; 0 if it never is.

    Args:
        texts: a template, and the named ones beside it, of which each may be taken.
    """
    least = [HISTORIES.get(text).least for text in texts]
    return max(least) if all(least) else 0


def _analyse_history(text: str) -> History:
    tree = parse(text, "template")
    return History(_prove(tree, is_prompt=False) > 0, _prove(tree, is_prompt=True))


HISTORIES = SizedCache(_analyse_history)


def _prove(tree: nodes.Template, is_prompt: bool) -> int:
    """Return the least number of messages for which a proof holds, 0 if it does not."""
    proof = _Proof(is_prompt)
    try:
        proof.check_statements(tree.body, _Place())
        proof.check_constants(tree)
    except _NotProven:
        return 0
    return proof.least if proof.is_done else 0


class _Place(NamedTuple):
    """Where a node is."""

    target: str | None = None  # the variable of the loop over messages that the node is in
    sequence: str | None = None  # the name that this loop goes through, if it takes every message
    owns_loop: bool = False  # `loop` is that of the messages, not of a loop inside
    role: str = ""  # the role of the message: "assistant", "other", or "" if it is not known
    has_previous: bool = False  # the message is not the first
    in_block: bool = False  # what is written is captured: in a macro or a block

    @property
    def is_outside(self) -> bool:
        """Whether it is in no loop over messages, macro or block."""
        return self.target is None and not self.in_block


class _Proof(NodeVisitor):
    """Walks over a template and raises `_NotProven` at the first node that spoils the proof.

    Args:
        is_prompt: prove what a prompt is; else, that history is only appended to.
    """

    def __init__(self, is_prompt: bool) -> None:
        self.least = 1
        self.is_done = False  # the loop that writes is over
        self._is_prompt = is_prompt
        self._knowing_role = ASSISTANT if is_prompt else OTHER  # of messages that may look ahead
        # How many messages a name leaves out, by the names of their lists.
        self._skipped = {MESSAGES: 0}
        self._role_names: set[str] = set()  # variables that hold the role of the message
        self._assigned: set[str] = set()  # by loops that are over
        self._in_blocks: set[str] = set()  # names in macros and blocks
        self._constants: list[nodes.Node] = []  # the generation prompt, and all after the messages
        self._last_statement: nodes.Node | None = None  # of the loop that writes
        self._tail: list[nodes.Node] = []  # that loop, and all after it

    def _require(self, is_proven: bool) -> None:
        if not is_proven:
            raise _NotProven

    def _require_message(self, name: str, index: int = 0) -> None:
        """Note that a message of a list is needed; a history has a question and an answer."""
        count = self._skipped[name] + index + 1
        self._require(self._is_prompt or count <= 2)
        self.least = max(self.least, count)

    # ---- statements ----

    def check_statements(self, body: Body, place: _Place) -> None:
        for node in body:
            is_after = self.is_done and place.is_outside
            if self._is_prompt and is_after and not isinstance(node, nodes.Macro):
                self._constants.append(node)
            else:
                self.visit(node, place)
            if self.is_done and place.is_outside:
                self._tail.append(node)

    def generic_visit(self, node: nodes.Node, place: _Place) -> None:
        """Check a macro, or a block whose text is captured; a macro runs where it is called."""
        assigned = {*find_assigned_names(walk(node))}
        self._role_names -= assigned
        if isinstance(node, nodes.Macro) or place.target is None:
            self._require(assigned.isdisjoint(self._skipped))
            self._in_blocks |= {name.name for name in find_nodes(node, nodes.Name)}
            place = _Place(in_block=True)
        for child in child_nodes(node):
            if isinstance(child, nodes.Stmt):
                self.check_statements([child], place)
            else:
                self.check_expression(child, place)

    def visit_Output(self, node: nodes.Output, place: _Place) -> None:
        for part in node.nodes:
            self._check_output(part, place)

    def _check_output(self, part: nodes.Node, place: _Place) -> None:
        if not self._is_prompt and isinstance(part, nodes.CondExpr) and _is_false(part.test):
            self._add_guard(part.test)
            self._constants.append(part.expr1)
            if part.expr2 is None:
                return
            part = part.expr2
        written = getattr(part, "data", getattr(part, "value", None))
        is_blank = isinstance(written, str) and not written.strip()
        self._require(is_blank or not (self.is_done and place.is_outside))
        self.check_expression(part, place)

    def visit_If(self, node: nodes.If, place: _Place) -> None:
        is_last = node is self._last_statement and place.owns_loop
        if _is_false(node.test) and (is_last or not self._is_prompt):
            if self._is_prompt:  # no other branch can be told from the prompt
                self._require(not node.elif_ and not node.else_ and place.sequence is not None)
                self._require_message(place.sequence or "")
            self._add_guard(node.test)
            self._constants += node.body
            self.check_statements([*node.elif_, *node.else_], place)
            return
        was_done = self.is_done
        self.check_expression(node.test, place)
        self.check_statements(node.body, self._enter(node.test, place))
        for others in (node.elif_, node.else_):
            is_done, self.is_done = self.is_done, was_done
            self.check_statements(others, place)
            self.is_done |= is_done

    def _add_guard(self, test: nodes.Node) -> None:
        """Note what decides about the generation prompt, except for whether there are messages."""
        if isinstance(test, nodes.And):
            self._add_guard(test.left)
            self._add_guard(test.right)
        elif isinstance(test, nodes.Name) and test.name in self._skipped:
            self._require_message(test.name)
        else:
            self._constants.append(test)

    def _enter(self, test: nodes.Node, place: _Place) -> _Place:
        """Return the place under a condition."""
        return place._replace(
            role=place.role or self._find_role(test, place.target),
            has_previous=place.has_previous or _is_not_first(test),
        )

    def visit_For(self, node: nodes.For, place: _Place) -> None:
        skipped = self._count_skipped(node.iter, place)
        targets = {*find_assigned_names(walk(node.target))}
        self._role_names -= targets
        if skipped is None:
            self._require(targets.isdisjoint(self._skipped))
            self.check_expression(node.iter, place)
            self._check_body(node, place._replace(owns_loop=False))
            self.check_statements(node.else_, place)
            return
        target = getattr(node.target, "name", None)
        is_plain = target is not None and not node.recursive and not node.else_
        self._require(is_plain and place.is_outside and not self.is_done)
        is_writer = _writes(node)
        self._last_statement = node.body[-1] if is_writer else None
        # only a whole list has a name
        sequence = getattr(node.iter, "name", None) if node.test is None else None
        self._check_body(node, _Place(target, sequence, owns_loop=True))
        self.is_done = is_writer
        if not is_writer:
            self._assigned |= self._find_state(node)

    def _find_state(self, loop: nodes.For) -> set[str]:
        """Return the names whose values a loop leaves changed: of namespaces, and of lists that it appends to."""
        state = {node.name for node in find_nodes(loop, nodes.NSRef)}
        inside = {*find_assigned_names(walk(loop))}
        for call in find_nodes(loop, nodes.Call):
            if isinstance(call.node, nodes.Getattr) and call.node.attr in MUTATING:
                owner = call.node.node
                if not isinstance(owner, nodes.Name) or owner.name in inside:
                    raise _NotProven
                state.add(owner.name)
        return state

    def _check_body(self, node: nodes.For, inside: _Place) -> None:
        if node.test is not None:
            self.check_expression(node.test, inside)
        self.check_statements(node.body, inside)

    def visit_Assign(self, node: nodes.Assign, place: _Place) -> None:
        name = node.target.name if isinstance(node.target, nodes.Name) else ""
        skipped = self._count_skipped(node.node, place)
        if skipped is not None and name and place.is_outside:
            self._skipped[name] = max(skipped, self._skipped.get(name, 0))
            return
        self._require(name not in self._skipped)
        self.check_expression(node.node, place)
        self._role_names.discard(name)
        if _is_role_of(node.node, place.target):
            self._role_names.add(name)

    # ---- expressions ----

    def check_expression(self, node: nodes.Node, place: _Place) -> None:
        """Raise `_NotProven` if the value may be another in the shorter conversation."""
        if self._is_prompt and _is_same_at_end(node, place):
            return
        if isinstance(node, (nodes.And, nodes.Or)):
            self._check_operand(node.left, place)
            if isinstance(node, nodes.And):
                place = self._enter(node.left, place)
            elif node.left in IS_FIRST:
                place = place._replace(has_previous=True)
            self._check_operand(node.right, place)
        elif isinstance(node, nodes.Not):
            self._check_operand(node.node, place)
        elif isinstance(node, nodes.CondExpr):
            self._check_operand(node.test, place)
            self.check_expression(node.expr1, self._enter(node.test, place))
            if node.expr2 is not None:
                self.check_expression(node.expr2, place)
        elif isinstance(node, nodes.Name):
            self._require(node.name != "loop" or not place.owns_loop)
            self._require(node.name not in {PROMPT_FLAG, *self._assigned, *self._skipped})
        elif not self._is_harmless(node, place):
            for child in child_nodes(node):
                self.check_expression(child, place)

    def _check_operand(self, node: nodes.Node, place: _Place) -> None:
        """Check a condition, which may be whether there are messages."""
        if isinstance(node, nodes.Name) and node.name in self._skipped:
            self._require_message(node.name)
        else:
            self.check_expression(node, place)

    def _is_harmless(self, node: nodes.Node, place: _Place) -> bool:
        """Return whether a node reads the messages, the loop or the flag in a way that is proven."""
        if isinstance(node, nodes.Test):
            name = getattr(node.node, "name", None)
            return name in {PROMPT_FLAG, *self._skipped} and node.name in EMPTINESS
        if isinstance(node, nodes.Compare):
            return self._is_count_above_zero(node)
        if isinstance(node, nodes.Getattr):
            knows_next = place.role == self._knowing_role
            is_own = is_loop(node.node) and place.owns_loop
            return is_own and (node.attr in PAST or (node.attr in NEXT and knows_next))
        return isinstance(node, nodes.Getitem) and self._is_known_message(node, place)

    def _is_known_message(self, node: nodes.Getitem, place: _Place) -> bool:
        """Return whether an item is one of the messages, the same in both conversations."""
        name = node.node.name if isinstance(node.node, nodes.Name) else None
        if name not in self._skipped:
            return False
        if isinstance(node.arg, nodes.Const) and type(node.arg.value) is int:
            self._require(node.arg.value >= 0 if self._is_prompt else node.arg.value == 0)
            self._require_message(name, node.arg.value)
            return True
        if node.arg == BEFORE:
            return place.owns_loop and place.has_previous
        return _is_next(node, place) and place.role == self._knowing_role

    def _is_count_above_zero(self, node: nodes.Compare) -> bool:
        count, operand = node.expr, node.ops[0]
        if not isinstance(count, nodes.Filter) or count.name not in COUNTS:
            return False
        name = getattr(count.node, "name", None)
        if name not in self._skipped or operand.expr != ZERO:
            return False
        self._require_message(name)
        return operand.op in ("gt", "eq", "ne")

    def _count_skipped(self, node: nodes.Node, place: _Place) -> int | None:
        """Return how many messages a list of messages leaves out at its start; None for any other value."""
        if isinstance(node, nodes.Name):
            return self._skipped.get(node.name)
        if isinstance(node, nodes.CondExpr) and node.expr2 is not None:
            first = self._count_skipped(node.expr1, place)
            second = self._count_skipped(node.expr2, place)
            if first is None or second is None:
                return None
            self._check_operand(node.test, place)
            return max(first, second)
        if not isinstance(node, nodes.Getitem) or not isinstance(node.arg, nodes.Slice):
            return None
        start = getattr(node.arg.start, "value", None)
        skipped = self._count_skipped(node.node, place)
        if skipped is None or node.arg.stop or node.arg.step or type(start) is not int or start < 0:
            return None
        return skipped + start

    def _find_role(self, test: nodes.Node, target: str | None) -> str:
        """Return the role of all messages for which a condition holds: "assistant", "other", or "" if it is unknown."""
        if isinstance(test, (nodes.And, nodes.Or)):
            left, right = (self._find_role(each, target) for each in (test.left, test.right))
            return left or right if isinstance(test, nodes.And) else left if left == right else ""
        if not isinstance(test, nodes.Compare) or len(test.ops) != 1 or target is None:
            return ""
        return self._compare_role(test, target)

    def _compare_role(self, test: nodes.Compare, target: str) -> str:
        is_variable = isinstance(test.expr, nodes.Name) and test.expr.name in self._role_names
        if not is_variable and not _is_role_of(test.expr, target):
            return ""
        operator, values = test.ops[0].op, _find_constants(test.ops[0].expr)
        if operator in ("eq", "in") and values == [ASSISTANT]:
            return ASSISTANT
        is_other = operator in ("eq", "in") and POSSIBLE_ASSISTANT_ROLES.isdisjoint(values)
        return OTHER if values and (is_other or (operator, values) == ("ne", [ASSISTANT])) else ""

    def check_constants(self, tree: nodes.Template) -> None:
        """Check the generation prompt, what else is written after the messages, and what macros read."""
        self._require(self._in_blocks.isdisjoint(self._assigned))
        names = {name.name for node in self._constants for name in find_nodes(node, nodes.Name)}
        # A prompt of one history may depend on its first message, which all shorter ones have.
        statements = tree.body if self._is_prompt else self._tail
        variable = VARIABLE if self._is_prompt else self._skipped.keys()
        self._require(variable.isdisjoint(_find_deciding_names(statements, names)))
        for node in self._constants:
            for field in find_nodes(node, nodes.Getattr):
                self._require(not is_loop(field.node) or field.attr == "last")


# ---- the message before a turn ----


def _is_same_at_end(test: nodes.Node, place: _Place) -> bool:
    """Return whether a condition is the same for the last message as for one before an assistant's."""
    at_end = _decide(test, place, is_last=True)
    return at_end is not None and at_end is _decide(test, place, is_last=False)


def _decide(test: nodes.Node, place: _Place, is_last: bool) -> bool | None:
    """Return whether a condition holds if no message follows, or one of the assistant; None if that is not known."""
    if isinstance(test, nodes.Getattr) and is_loop(test.node) and place.owns_loop:
        return {"last": is_last, "nextitem": not is_last}.get(test.attr)
    if isinstance(test, nodes.Not):
        negated = _decide(test.node, place, is_last)
        return None if negated is None else not negated
    if isinstance(test, (nodes.And, nodes.Or)):
        left = _decide(test.left, place, is_last)
        if left is None or left is isinstance(test, nodes.Or):
            return left
        return _decide(test.right, place, is_last)
    if isinstance(test, nodes.Test) and _is_next(test.node, place):
        return {"defined": not is_last, "undefined": is_last}.get(test.name)
    if isinstance(test, nodes.Compare) and not is_last and len(test.ops) == 1:
        return _decide_role(test, place)
    return None


def _decide_role(test: nodes.Compare, place: _Place) -> bool | None:
    """Return what a comparison of the role of the next message says, if that is an assistant's."""
    values = _find_constants(test.ops[0].expr)
    owner = getattr(test.expr, "node", test)
    if not values or not _is_next(owner, place) or test.expr not in list_lookups(owner, "role"):
        return None
    is_in = ASSISTANT in values
    return {"eq": is_in, "in": is_in, "ne": not is_in, "notin": not is_in}.get(test.ops[0].op)


def _is_next(node: nodes.Node, place: _Place) -> bool:
    named = nodes.Getitem(nodes.Name(place.sequence, "load"), AFTER, "load")
    return place.owns_loop and node in (NEXT_ITEM, named)


# ---- conditions ----


def _is_false(test: nodes.Node) -> bool:
    """Return whether a condition is false without a generation prompt."""
    if isinstance(test, (nodes.And, nodes.Or)):
        decide = any if isinstance(test, nodes.And) else all
        return decide(map(_is_false, (test.left, test.right)))
    if isinstance(test, nodes.Compare):
        is_true = test.ops[0].op == "eq" and _find_constants(test.ops[0].expr) == [True]
        return is_true and _is_false(test.expr)
    return isinstance(test, nodes.Name) and test.name == PROMPT_FLAG


def _is_role_of(node: nodes.Node, target: str | None) -> bool:
    return node in list_lookups(nodes.Name(target, "load"), "role")


def _find_constants(node: nodes.Node) -> list[Any]:
    """Return the values of a constant or a list of constants; none if there is anything else."""
    items = node.items if isinstance(node, (nodes.List, nodes.Tuple)) else [node]
    values = [item.value for item in items if isinstance(item, nodes.Const)]
    return values if len(values) == len(items) else []


def _is_not_first(test: nodes.Node) -> bool:
    """Return whether a condition says that the message is not the first."""
    if isinstance(test, nodes.And):
        return _is_not_first(test.left) or _is_not_first(test.right)
    if isinstance(test, nodes.Not):
        return test.node in IS_FIRST
    return test in IS_NOT_ZERO


# ---- names ----


def _writes(loop: nodes.For) -> bool:
    parts = [part for output in find_nodes(loop, nodes.Output) for part in output.nodes]
    return not all(isinstance(part, nodes.Call) and part.node == REFUSAL for part in parts)


def _find_changed_names(statement: nodes.Node) -> set[str]:
    """Return the names that a statement may change: assigned ones, namespaces, and lists that it appends to."""
    changed = {*find_assigned_names(walk(statement))}
    changed.update(node.name for node in find_nodes(statement, nodes.NSRef))
    owners = [getattr(call.node, "node", None) for call in find_nodes(statement, nodes.Call)]
    return changed | {owner.name for owner in owners if isinstance(owner, nodes.Name)}


def _find_deciding_names(body: Body, names: set[str]) -> set[str]:
    """Return names with those that may decide about their values: all in the statements that change them."""
    found = set(names)
    statements = []
    for statement in body:
        mentioned = {name.name for name in find_nodes(statement, nodes.Name)}
        statements.append((_find_changed_names(statement), mentioned))
    size = 0
    while len(found) > size:
        size = len(found)
        for changed, mentioned in statements:
            if not found.isdisjoint(changed):
                found |= mentioned
    return found

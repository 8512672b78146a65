"""Whether the prompt before an assistant turn is the text up to it and a constant: proven from the source, or not.

Then a turn begins where the generation prompt ends, if the text has it there, and no prompt needs to be rendered to see
that. It is true if every statement up to the turn does the same for the messages before the turn alone as for the whole
conversation; so none can refuse the one and not the other, or write it differently:

* the messages are read by loops, and elsewhere only as `messages[0]`, `messages[1:]`, `messages is defined`, or asked
  whether there are any. Only the last of these loops writes, and what an earlier one assigns nothing else reads;
* nothing in a loop asks how many messages there are. What comes next is asked for only where an assistant speaks, or
  where the answer is the same for nothing as for an assistant's message (`loop.last or loop.nextitem.role != "tool"`);
* the flag `add_generation_prompt` is read only in what comes after the loop, or ends it. All of that is constant: it
  names nothing but options, also in what decides about the names in it.

It holds for a message with the role `assistant` after one of another role, with at least so many messages before it as
`analyse_prompts` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from jinja2 import nodes

from turnwise.engine.compiler.lookahead import (
    find_constants,
    is_first,
    is_loop,
    is_not_first,
    measure_distance,
)
from turnwise.engine.compiler.syntax import parse
from turnwise.engine.compiler.tree import child_nodes, find_assigned_names, find_nodes, walk
from turnwise.sized_cache import SizedCache

PROMPT_FLAG, ASSISTANT, MESSAGES, RAISE = (
    "add_generation_prompt",
    "assistant",
    "messages",
    "raise_exception",
)
NEXT = frozenset(["last", "nextitem"])
PAST = frozenset(["index", "index0", "first", "previtem", "depth", "depth0"])
EMPTINESS = frozenset(["defined", "undefined", "none"])
MUTATING = frozenset(
    [
        *("append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse"),
        *("next", "reset", "setdefault", "sort", "update"),
    ]
)
COUNTS = ("length", "count")
VARIABLE = frozenset(
    [MESSAGES, "tools", "documents", "strftime_now"]
)  # is not the same in all conversations


class _NotProven(Exception):
    """Raised at the first node that spoils the proof."""


def analyse_prompts(*texts: str) -> int:
    """Return how many messages there must be before a turn, so that its prompt is proven; 0 if it never is.

    Args:
        texts: a template, and the named ones beside it, of which each may be taken.
    """
    found = [PROOFS.get(text) for text in texts]
    return max(found) if all(found) else 0


def _analyse_prompts(text: str) -> int:
    tree = parse(text, "template")
    proof = _PromptProof()
    try:
        proof.check_statements(tree.body, _OUTSIDE)
        proof.check_constants(tree)
    except _NotProven:
        return 0
    return proof.least if proof.is_done else 0


PROOFS = SizedCache(_analyse_prompts)


class _PromptPlace(NamedTuple):
    """Where a node is."""

    target: str | None = None  # the variable of the loop over messages that the node is in
    sequence: str | None = None  # the name that this loop goes through, if it takes every message
    owns_loop: bool = False  # `loop` is that of the messages, not of a loop inside
    is_assistant: bool = False  # the message is an assistant's
    has_previous: bool = False  # the message is not the first
    in_block: bool = False  # what is written is captured: in a macro or a block

    @property
    def is_outside(self) -> bool:
        """Whether it is in no loop over messages, macro or block."""
        return self.target is None and not self.in_block


_OUTSIDE = _PromptPlace()


class _PromptProof:
    """Walks over a template and raises `_NotProven` at the first node that spoils the proof."""

    def __init__(self) -> None:
        self.least = 1
        self.is_done = False  # the loop that writes is over
        self._skipped = {
            MESSAGES: 0
        }  # how many messages a name leaves out, by the names of their lists
        self._assigned: set[str] = set()  # by loops that are over
        self._in_blocks: set[str] = set()  # names in macros and blocks
        self._constants: list[nodes.Node] = []  # the generation prompt, and all after the messages
        self._last_statement: nodes.Node | None = None  # of the loop that writes

    # ---- statements ----

    def check_statements(self, body: Iterable[nodes.Node], place: _PromptPlace) -> None:
        for node in body:
            if self.is_done and place.is_outside and not isinstance(node, nodes.Macro):
                self._constants.append(node)
            elif isinstance(node, nodes.If):
                self._check_if(node, place)
            elif isinstance(node, nodes.For):
                self._check_for(node, place)
            elif isinstance(node, nodes.Assign):
                self._check_assignment(node, place)
            elif isinstance(node, nodes.Output):
                for part in node.nodes:
                    self.check_expression(part, place)
            else:
                self._check_block(node, place)

    def _check_block(self, node: nodes.Node, place: _PromptPlace) -> None:
        """Check a macro, or a block whose text is captured; a macro runs where it is called."""
        if isinstance(node, nodes.Macro) or place.target is None:
            self._require(self._skipped.keys().isdisjoint(find_assigned_names(walk(node))))
            self._in_blocks |= {name.name for name in find_nodes(node, nodes.Name)}
            place = _PromptPlace(in_block=True)
        for child in child_nodes(node):
            if isinstance(child, nodes.Stmt):
                self.check_statements([child], place)
            else:
                self.check_expression(child, place)

    def _check_if(self, node: nodes.If, place: _PromptPlace) -> None:
        if node is self._last_statement and place.owns_loop and _is_false(node.test):
            self._require(not node.elif_ and not node.else_ and place.sequence is not None)
            assert place.sequence is not None
            self.least = max(self.least, self._skipped[place.sequence] + 1)  # one takes it there
            self._constants += [node.test, *node.body]
            return
        was_done = self.is_done
        self.check_expression(node.test, place)
        self.check_statements(node.body, self._enter(node.test, place))
        for others in (node.elif_, node.else_):
            is_done, self.is_done = self.is_done, was_done
            self.check_statements(others, place)
            self.is_done |= is_done

    def _enter(self, test: nodes.Node, place: _PromptPlace) -> _PromptPlace:
        """Return the place under a condition."""
        return place._replace(
            is_assistant=place.is_assistant or _is_about_assistant(test, place.target),
            has_previous=place.has_previous or is_not_first(test),
        )

    def _check_for(self, node: nodes.For, place: _PromptPlace) -> None:
        skipped = self._count_skipped(node.iter, place)
        if skipped is None:
            self._require(self._skipped.keys().isdisjoint(find_assigned_names(walk(node.target))))
            self.check_expression(node.iter, place)
            inside = place._replace(owns_loop=False)
            self._check_body(node, inside)
            self.check_statements(node.else_, place)
            return
        self._require(place.is_outside and not node.recursive and not node.else_)
        target = getattr(node.target, "name", None)
        self._require(target is not None)
        sequence = None
        if isinstance(node.iter, nodes.Name) and node.test is None:
            sequence = node.iter.name
        is_writer = _writes(node)
        self._last_statement = node.body[-1] if is_writer else None
        self._check_body(node, _PromptPlace(target, sequence, owns_loop=True))
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
                self._require(isinstance(owner, nodes.Name) and owner.name not in inside)
                state |= {name.name for name in find_nodes(owner, nodes.Name)}
        return state

    def _check_body(self, node: nodes.For, inside: _PromptPlace) -> None:
        if node.test is not None:
            self.check_expression(node.test, inside)
        self.check_statements(node.body, inside)

    def _check_assignment(self, node: nodes.Assign, place: _PromptPlace) -> None:
        name = node.target.name if isinstance(node.target, nodes.Name) else ""
        skipped = self._count_skipped(node.node, place)
        if skipped is not None and name and place.is_outside:
            self._skipped[name] = max(skipped, self._skipped.get(name, 0))
            return
        self._require(name not in self._skipped)
        self.check_expression(node.node, place)

    # ---- expressions ----

    def check_expression(self, node: nodes.Node, place: _PromptPlace) -> None:
        if _is_same_at_end(node, place):
            return
        if isinstance(node, (nodes.And, nodes.Or)):
            self._check_operand(node.left, place)
            if isinstance(node, nodes.And):
                place = self._enter(node.left, place)
            elif is_first(node.left):
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
            self._check_name(node.name, place)
        elif not self._is_harmless(node, place):
            for child in child_nodes(node):
                self.check_expression(child, place)

    def _check_operand(self, node: nodes.Node, place: _PromptPlace) -> None:
        """Check a condition, which may be whether there are messages."""
        if isinstance(node, nodes.Name) and node.name in self._skipped:
            self.least = max(self.least, self._skipped[node.name] + 1)
        else:
            self.check_expression(node, place)

    def _check_name(self, name: str, place: _PromptPlace) -> None:
        is_loop = name == "loop" and place.owns_loop
        self._require(not is_loop and name not in self._assigned and name not in self._skipped)
        self._require(name != PROMPT_FLAG)

    def _is_harmless(self, node: nodes.Node, place: _PromptPlace) -> bool:
        """Return whether a node reads the messages, the loop or the flag in a way that is proven."""
        if isinstance(node, nodes.Test):
            name = getattr(node.node, "name", None)
            return (name == PROMPT_FLAG or name in self._skipped) and node.name in EMPTINESS
        if isinstance(node, nodes.Compare):
            return self._is_count_above_zero(node)
        if isinstance(node, nodes.Getattr):
            is_own = is_loop(node.node) and place.owns_loop
            return is_own and (node.attr in PAST or (node.attr in NEXT and place.is_assistant))
        return isinstance(node, nodes.Getitem) and self._is_known_message(node, place)

    def _is_known_message(self, node: nodes.Getitem, place: _PromptPlace) -> bool:
        """Return whether an item is one of the messages, the same for those before a turn as for all."""
        name = node.node.name if isinstance(node.node, nodes.Name) else None
        if name not in self._skipped:
            return False
        if isinstance(node.arg, nodes.Const) and type(node.arg.value) is int:
            self._require(node.arg.value >= 0)
            self.least = max(self.least, self._skipped[name] + node.arg.value + 1)
            return True
        distance = measure_distance(node.arg) if place.owns_loop else None
        if distance == -1:
            return place.has_previous
        return distance == 1 and place.is_assistant and name == place.sequence

    def _is_count_above_zero(self, node: nodes.Compare) -> bool:
        count, operand = node.expr, node.ops[0]
        if not isinstance(count, nodes.Filter) or count.name not in COUNTS:
            return False
        name = getattr(count.node, "name", None)
        is_zero = isinstance(operand.expr, nodes.Const) and operand.expr.value == 0
        if name not in self._skipped or not is_zero:
            return False
        self.least = max(self.least, self._skipped[name] + 1)
        return operand.op in ("gt", "eq", "ne")

    def _count_skipped(self, node: nodes.Node, place: _PromptPlace) -> int | None:
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
        start = node.arg.start
        is_fixed = isinstance(start, nodes.Const) and type(start.value) is int and start.value >= 0
        skipped = self._count_skipped(node.node, place)
        if not is_fixed or skipped is None or node.arg.stop or node.arg.step:
            return None
        assert isinstance(start, nodes.Const)
        return skipped + int(start.value)

    def check_constants(self, tree: nodes.Template) -> None:
        """Check what is written after the messages, and what macros read."""
        self._require(self._in_blocks.isdisjoint(self._assigned))
        names = {name.name for node in self._constants for name in find_nodes(node, nodes.Name)}
        self._require(VARIABLE.isdisjoint(_find_deciding_names(tree, names)))
        for node in self._constants:
            for field in find_nodes(node, nodes.Getattr):
                self._require(not is_loop(field.node) or field.attr == "last")

    def _require(self, is_proven: bool) -> None:
        if not is_proven:
            raise _NotProven


# ---- the message before a turn ----


def _is_same_at_end(test: nodes.Node, place: _PromptPlace) -> bool:
    """Return whether a condition is the same for the last message as for one before an assistant's."""
    at_end = _decide(test, place, is_last=True)
    return at_end is not None and at_end is _decide(test, place, is_last=False)


def _decide(test: nodes.Node, place: _PromptPlace, is_last: bool) -> bool | None:
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
        values = find_constants(test.ops[0].expr)
        if values and _get_owner_of_role(test.expr, place):
            is_in = ASSISTANT in values
            answers = {"eq": is_in, "in": is_in, "ne": not is_in, "notin": not is_in}
            return answers.get(test.ops[0].op)
    return None


def _is_next(node: nodes.Node, place: _PromptPlace) -> bool:
    """Return whether a node is the next message."""
    if isinstance(node, nodes.Getattr):
        return is_loop(node.node) and place.owns_loop and node.attr == "nextitem"
    if not isinstance(node, nodes.Getitem) or not isinstance(node.node, nodes.Name):
        return False
    return place.owns_loop and node.node.name == place.sequence and measure_distance(node.arg) == 1


def _get_owner_of_role(node: nodes.Node, place: _PromptPlace) -> bool:
    return _get_field(node) == "role" and _is_next(getattr(node, "node", node), place)


def _get_field(node: nodes.Node) -> object:
    """Return the name of the field that a node reads."""
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.arg.value
    return None


# ---- conditions ----


def _is_about_assistant(test: nodes.Node, target: str | None) -> bool:
    """Return whether a condition holds only for messages of the assistant."""
    if isinstance(test, nodes.And):
        return _is_about_assistant(test.left, target) or _is_about_assistant(test.right, target)
    if not isinstance(test, nodes.Compare) or len(test.ops) != 1 or target is None:
        return False
    owner = getattr(test.expr, "node", None)
    is_role = _get_field(test.expr) == "role" and getattr(owner, "name", None) == target
    is_equal = test.ops[0].op == "eq" and find_constants(test.ops[0].expr) == [ASSISTANT]
    return is_role and is_equal


def _is_false(test: nodes.Node) -> bool:
    """Return whether a condition is false without a generation prompt."""
    if isinstance(test, nodes.And):
        return _is_false(test.left) or _is_false(test.right)
    return isinstance(test, nodes.Name) and test.name == PROMPT_FLAG


# ---- names ----


def _writes(loop: nodes.For) -> bool:
    """Return whether a loop writes anything."""
    for output in find_nodes(loop, nodes.Output):
        for part in output.nodes:
            called = part.node if isinstance(part, nodes.Call) else None
            if not isinstance(called, nodes.Name) or called.name != RAISE:
                return True
    return False


def _find_changed_names(statement: nodes.Node) -> set[str]:
    """Return the names that a statement may change: assigned ones, namespaces, and lists that it appends to."""
    changed = {*find_assigned_names(walk(statement))}
    changed.update(node.name for node in find_nodes(statement, nodes.NSRef))
    for call in find_nodes(statement, nodes.Call):
        owner = getattr(call.node, "node", None)
        if isinstance(owner, nodes.Name):
            changed.add(owner.name)
    return changed


def _find_deciding_names(tree: nodes.Template, names: set[str]) -> set[str]:
    """Return names with those that may decide about their values: all in the statements that change them."""
    found = set(names)
    statements = []
    for statement in tree.body:
        mentioned = {name.name for name in find_nodes(statement, nodes.Name)}
        statements.append((_find_changed_names(statement), mentioned))
    size = 0
    while len(found) > size:
        size = len(found)
        for changed, mentioned in statements:
            if not found.isdisjoint(changed):
                found |= mentioned
    return found

"""What the generation prompt of a template depends on, read off the syntax tree.

Most templates write the same generation prompt whatever was said. Some ask for the role of the last message, which may
be a tool's. A few ask for more: whether a message contains `/no_think`, how many there are. Whoever knows the prompt of
one turn knows that of another only as far as the two agree in what is asked for.

The prompt is everything under a condition on `add_generation_prompt`, everything after the last loop over the messages,
and each condition that asks whether a message is the last one, unless it is an assistant's. The names in it are
followed backwards, through assignments, loops and macros, and through the conditions around them. A node is read

    for its value       `{{ message.content }}`, `content.split('/')`: nothing of a message but its role is harmless
    as a condition      `{% if message.content %}`, `x is none`: asks for the shape of a message
    as a position       `loop.index0 > ns.last_user`: compares places in the conversation, not numbers

The order of statements is not looked at, so what is found is at least what is asked for. Not covered: what is written
at the end of a message only because of its text, without any such condition around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from jinja2 import nodes

from turnwise.engine.compiler.syntax import parse
from turnwise.engine.compiler.tree import child_nodes, find_nodes
from turnwise.engine.sized_cache import SizedCache

PROMPT_FLAG = "add_generation_prompt"
MESSAGES, LOOP = "messages", "loop"
NAMESPACE, RAISE, RANGE, ASSISTANT = "namespace", "raise_exception", "range", "assistant"
SHAPE_FIELDS = frozenset(["role", "type"])
LAST_FIELDS = frozenset(["last", "nextitem"])
LOOP_FIELDS = LAST_FIELDS | {"first", "previtem"}
FIELD_GETTERS = frozenset(["get", "selectattr", "rejectattr", "map"])
SHAPE_TESTS = frozenset(
    [
        *("defined", "undefined", "none", "string", "mapping", "sequence", "iterable"),
        *("number", "integer", "float", "boolean", "true", "false"),
    ]
)
PLAIN_METHODS = frozenset(
    ["get", "append", "format", "lower", "upper", "strip", "capitalize", "title"]
)
PLAIN_FILTERS = frozenset(
    [
        *("first", "last", "list", "reverse", "default", "d", "safe", "string"),
        *("lower", "upper", "trim", "capitalize", "title"),
    ]
)
SHAPE_FILTERS = frozenset(["trim", "list", "items", "dictsort", "sort", "unique", "reverse"])
COUNTS = frozenset(["length", "count"])

Variable = str | tuple[str, str]  # a name, or an attribute of a namespace
Conditions = tuple[nodes.Node, ...]


class PromptReads(NamedTuple):
    """What the generation prompt may depend on, beside the options.

    Attributes:
        shapes: the messages in their order: roles, which fields they have, of which types, and whether these are empty.
        first_message: all of the first message.
        messages: all of every message, or how many there are.
    """

    shapes: bool
    first_message: bool
    messages: bool


def analyse_prompt(*texts: str) -> PromptReads:
    """Return what the generation prompt may depend on that one of these templates writes."""
    reads = [PROMPTS.get(text) for text in texts]
    return PromptReads(*map(any, zip(*reads, strict=True)))


def _analyse_prompt(text: str) -> PromptReads:
    tree = parse(text, "template")
    definitions = _Definitions(tree)
    reader = _PromptReader(definitions)
    reader.follow(definitions.prompt_conditions, _Use.CONDITION)
    reader.follow(definitions.prompt, _Use.VALUE)
    reader.follow(_find_statements_after_messages(tree, definitions), _Use.VALUE)
    return reader.reads


PROMPTS = SizedCache(_analyse_prompt)


class _Use(Enum):
    """How a node is read; see the head of this file."""

    VALUE = auto()
    CONDITION = auto()
    POSITION = auto()


class _Definitions:
    """What decides the value of each variable, and the nodes of the generation prompt."""

    def __init__(self, tree: nodes.Template) -> None:
        self.values: dict[Variable, list[nodes.Node]] = defaultdict(list)
        self.conditions: dict[Variable, dict[int, nodes.Node]] = defaultdict(dict)
        self.loop_targets: set[str] = set()
        self.prompt: list[nodes.Node] = []
        self.prompt_conditions: list[nodes.Node] = []
        self._local_names: dict[int, str] = {}  # by the id of a node
        for macro in find_nodes(tree, nodes.Macro):
            self._name_locals(macro)
        self._read(tree.body, ())
        self._read_macro_calls(tree)
        self.about_messages = self._find_about_messages()

    def name_of(self, node: nodes.Name | nodes.NSRef) -> str:
        """Return the name of a variable; one that a macro assigns is not the same as elsewhere."""
        return self._local_names.get(id(node), node.name)

    def is_about_messages(self, node: nodes.Node) -> bool:
        """Return whether a node reads a message, but not as `messages[0]`."""
        return not self.about_messages.isdisjoint(self._mentioned_in(node))

    def is_first_message(self, node: nodes.Node) -> bool:
        """Return whether a node is `messages[0]`."""
        if not isinstance(node, nodes.Getitem) or not isinstance(node.node, nodes.Name):
            return False
        is_first = isinstance(node.arg, nodes.Const) and node.arg.value == 0
        return is_first and self.name_of(node.node) == MESSAGES and MESSAGES not in self.values

    def attribute_of(self, node: nodes.Node) -> Variable | None:
        """Return the attribute of a namespace that a node reads."""
        if not isinstance(node, nodes.Getattr) or not isinstance(node.node, nodes.Name):
            return None
        variable = self.name_of(node.node), node.attr
        return variable if variable in self.values else None

    # ---- statements ----

    def _read(self, body: Iterable[nodes.Node], conditions: Conditions) -> None:
        """Read statements that run only under these conditions."""
        for node in body:
            if isinstance(node, nodes.If):
                self._read_if(node, conditions)
            elif isinstance(node, nodes.For):
                tests = _list_given(node.test)
                self._define(node.target, [node.iter], (*conditions, *tests))
                self.loop_targets.update(str(name) for name in self._find_variables(node.target))
                self._read((*node.body, *node.else_), (*conditions, node.iter, *tests))
            elif isinstance(node, nodes.Assign):
                self._define(node.target, [node.node], conditions)
                self._read_expression(node.node, conditions)
            elif isinstance(node, nodes.AssignBlock):
                self._define(node.target, [*node.body, *_list_given(node.filter)], conditions)
                self._read(node.body, conditions)
            elif isinstance(node, nodes.Macro):
                self.values[node.name] += [*node.body, *node.defaults]
                self._read(node.body, conditions)
            elif isinstance(node, nodes.Stmt):
                self._read_other(node, conditions)

    def _read_if(self, node: nodes.If, conditions: Conditions) -> None:
        inside = (*conditions, node.test)
        others = (*node.elif_, *node.else_)
        if _mentions_flag(node.test):
            if _is_false_in_prompts(node.test):
                self._add_to_prompt(others, conditions)
            else:
                self._add_to_prompt((*node.body, *others), inside)
        elif _mentions_last(node.test) and not any(map(_is_about_assistant, inside)):
            self.prompt_conditions.append(node.test)
        self._read((*node.body, *others), inside)

    def _read_other(self, node: nodes.Stmt, conditions: Conditions) -> None:
        for child in child_nodes(node):
            if isinstance(child, nodes.Stmt):
                self._read([child], conditions)
            else:
                self._read_expression(child, conditions)

    def _read_expression(self, node: nodes.Node, conditions: Conditions) -> None:
        for choice in find_nodes(node, nodes.CondExpr):
            if _mentions_flag(choice.test):
                self._add_to_prompt([choice], conditions)
        for call in find_nodes(node, nodes.Call):
            if isinstance(call.node, nodes.Getattr) and call.node.attr == "append":
                # `names.append(x)` changes the value of `names`, as an assignment does
                self._define(call.node.node, call.args, conditions)

    def _read_macro_calls(self, tree: nodes.Template) -> None:
        """Give the arguments of macros the values of all calls."""
        macros = {macro.name: macro for macro in find_nodes(tree, nodes.Macro)}
        for call in find_nodes(tree, nodes.Call):
            callee = call.node
            macro = macros.get(callee.name) if isinstance(callee, nodes.Name) else None
            if macro is not None:
                values = [*call.args, *(pair.value for pair in call.kwargs)]
                for argument in macro.args:
                    self._define(argument, values, ())

    def _add_to_prompt(self, found: Sequence[nodes.Node], conditions: Conditions) -> None:
        self.prompt += found
        self.prompt_conditions += conditions if found else ()

    def _define(
        self, target: nodes.Node, values: Iterable[nodes.Node], conditions: Conditions
    ) -> None:
        values = list(values)
        for variable in self._find_variables(target):
            self.values[variable] += values
            self.conditions[variable].update((id(node), node) for node in conditions)
            for call in values:  # namespace(first=true) assigns attributes, too
                if isinstance(variable, str) and _is_call_of(call, NAMESPACE):
                    for pair in find_nodes(call, nodes.Keyword):
                        self.values[variable, pair.key].append(pair.value)

    def _find_variables(self, target: nodes.Node) -> Iterator[Variable]:
        """Yield the variables that an assignment to a target changes."""
        if isinstance(target, nodes.NSRef):
            yield self.name_of(target), target.attr
        elif isinstance(target, nodes.Getattr) and isinstance(target.node, nodes.Name):
            yield self.name_of(target.node), target.attr
        elif isinstance(target, nodes.Name):
            yield self.name_of(target)
        elif isinstance(target, nodes.Tuple):
            for item in target.items:
                yield from self._find_variables(item)

    def _name_locals(self, macro: nodes.Macro) -> None:
        names = list(find_nodes(macro, nodes.Name))
        bound = {name.name for name in names if name.ctx in ("store", "param")}
        used: list[nodes.Name | nodes.NSRef] = [*names, *find_nodes(macro, nodes.NSRef)]
        for node in used:
            if node.name in bound:
                self._local_names[id(node)] = f"{macro.name}.{node.name}"

    # ---- what comes from messages ----

    def _find_about_messages(self) -> frozenset[Variable]:
        """Return the variables whose values have to do with messages."""
        readers: dict[Variable, set[Variable]] = defaultdict(set)
        for variable, values in self.values.items():
            for node in (*values, *self.conditions[variable].values()):
                for mentioned in self._mentioned_in(node):
                    readers[mentioned].add(variable)
            if not isinstance(variable, str):
                readers[variable].add(variable[0])
        found: set[Variable] = {MESSAGES}
        waiting: list[Variable] = [MESSAGES]
        while waiting:
            for variable in readers[waiting.pop()] - found:
                found.add(variable)
                waiting.append(variable)
        return frozenset(found)

    def _mentioned_in(self, root: nodes.Node) -> Iterator[Variable]:
        """Yield the variables that a node reads."""
        waiting = [root]
        while waiting:
            node = waiting.pop()
            attribute = self.attribute_of(node)
            if attribute is not None:
                yield attribute
            elif isinstance(node, nodes.Name):
                yield self.name_of(node)
            elif not self.is_first_message(node):
                waiting += child_nodes(node)


class _PromptReader:
    """Follows nodes back to the messages, and keeps the most that was read of them."""

    def __init__(self, definitions: _Definitions) -> None:
        self._definitions = definitions
        self._seen: set[tuple[int | Variable, _Use]] = set()
        self._waiting: list[tuple[nodes.Node, _Use]] = []
        self._reads_shapes = False
        self._reads_first = False
        self._reads_all = False

    @property
    def reads(self) -> PromptReads:
        """What was read until now."""
        return PromptReads(self._reads_shapes, self._reads_first, self._reads_all)

    def follow(self, roots: Iterable[nodes.Node], use: _Use) -> None:
        """Read nodes and everything that decides the values of their variables."""
        self._wait(roots, use)
        while self._waiting and not self._reads_all:
            node, use = self._waiting.pop()
            if (id(node), use) not in self._seen:
                self._seen.add((id(node), use))
                self._read(node, use)

    def _read(self, node: nodes.Node, use: _Use) -> None:
        attribute = self._definitions.attribute_of(node)
        if attribute is not None:
            self._enter(attribute, use)
        elif isinstance(node, nodes.Name):
            name = self._definitions.name_of(node)
            self._reads_shapes |= name == MESSAGES
            self._enter(name, use)
        elif self._definitions.is_first_message(node):
            self._reads_first = True
        elif isinstance(node, nodes.If):
            self._wait([node.test], _Use.CONDITION)
            self._wait([*node.body, *node.elif_, *node.else_], use)
        elif isinstance(node, nodes.For):
            self._wait([node.iter, *_list_given(node.test)], _Use.CONDITION)
            self._wait([*node.body, *node.else_], use)
        elif isinstance(node, nodes.CondExpr):
            self._wait([node.test], _Use.CONDITION)
            self._wait([node.expr1, *_list_given(node.expr2)], use)
        elif _is_call_of(node, RANGE) and use is not _Use.VALUE:
            self._wait(child_nodes(node), _Use.POSITION)
        elif use is _Use.POSITION:
            self._read_position(node)
        elif use is _Use.CONDITION or isinstance(node, (nodes.Test, nodes.Compare, nodes.Not)):
            self._read_condition(node)
        else:
            self._read_value(node)

    def _enter(self, variable: Variable, use: _Use) -> None:
        """Read what decides the value of a variable."""
        if (variable, use) in self._seen:
            return
        self._seen.add((variable, use))
        self._wait(self._definitions.values.get(variable, ()), use)
        self._wait(self._definitions.conditions.get(variable, {}).values(), _Use.CONDITION)

    def _wait(self, found: Iterable[nodes.Node], use: _Use) -> None:
        self._waiting += [(node, use) for node in found]

    def _read_condition(self, node: nodes.Node) -> None:
        if isinstance(node, (nodes.And, nodes.Or, nodes.Not)) or _asks_for_shape(node):
            self._wait(child_nodes(node), _Use.CONDITION)
        elif isinstance(node, nodes.Compare):
            self._read_comparison(node)
        else:
            self._read_value(node)

    def _read_comparison(self, node: nodes.Compare) -> None:
        sides = [node.expr, *(operand.expr for operand in node.ops)]
        if self._is_key_test(node):
            self._wait(sides[1:], _Use.CONDITION)
        elif any(map(_is_other_number, sides)):  # messages|length > 4
            self._read_all_if(any(map(self._definitions.is_about_messages, sides)))
        else:
            self._wait(sides, _Use.POSITION)

    def _read_position(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Getattr) and _is_loop(node.node):
            return
        if isinstance(node, nodes.Filter) and node.name in COUNTS:
            self._wait(_list_given(node.node), _Use.CONDITION)
        elif isinstance(node, nodes.Filter) and node.name == "int":
            self._wait(_list_given(node.node), _Use.POSITION)
        elif isinstance(node, (nodes.Add, nodes.Sub, nodes.Neg)):
            self._wait(child_nodes(node), _Use.POSITION)
        elif isinstance(node, (nodes.Compare, nodes.Test, nodes.And, nodes.Or, nodes.Not)):
            self._read_condition(node)
        else:
            self._read_value(node)

    def _read_value(self, node: nodes.Node) -> None:
        if isinstance(node, nodes.Getattr) and _is_loop(node.node):
            self._read_all_if(node.attr not in LOOP_FIELDS)
        elif isinstance(node, nodes.Getattr):
            is_plain = node.attr in SHAPE_FIELDS or node.attr in PLAIN_METHODS
            self._read_all_if(not is_plain and self._definitions.is_about_messages(node.node))
            self._wait([node.node], _Use.CONDITION)
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
            is_field = _is_text(node.arg) and node.arg.value not in SHAPE_FIELDS
            self._read_all_if(is_field and self._definitions.is_about_messages(node.node))
            self._wait([node.node], _Use.CONDITION if _is_text(node.arg) else _Use.VALUE)
        elif isinstance(node, nodes.Getitem):
            self._wait([node.node], _Use.VALUE)
            self._wait([node.arg], _Use.POSITION)
        elif not _is_call_of(node, RAISE):  # an error writes no prompt
            children = child_nodes(node)
            is_about_messages = any(map(self._definitions.is_about_messages, children))
            self._read_all_if(is_about_messages and _reads_more(node))
            self._wait(children, _Use.VALUE)

    def _read_all_if(self, is_read: bool) -> None:
        self._reads_all |= is_read

    def _is_key_test(self, node: nodes.Compare) -> bool:
        """Return whether a comparison asks for a key of a message: `'thinking' in message`."""
        operand = node.ops[0]
        return (
            _is_text(node.expr)
            and operand.op in ("in", "notin")
            and isinstance(operand.expr, nodes.Name)
            and self._definitions.name_of(operand.expr) in self._definitions.loop_targets
        )


def _asks_for_shape(node: nodes.Node) -> bool:
    """Return whether a node, as a condition, asks for the presence, the type or the emptiness of what is in it."""
    if isinstance(node, nodes.Test):
        return node.name in SHAPE_TESTS
    if isinstance(node, nodes.Filter):
        return node.name in SHAPE_FILTERS
    if isinstance(node, nodes.Call):  # message.get('name')
        is_get = isinstance(node.node, nodes.Getattr) and node.node.attr == "get"
        return is_get and bool(node.args) and _is_text(node.args[0])
    if isinstance(node, nodes.Getitem):
        return _is_text(node.arg)
    return isinstance(node, nodes.Getattr) and not _is_loop(node.node)


def _reads_more(node: nodes.Node) -> bool:
    """Return whether a node that reads messages for their value reads more than their shapes."""
    if isinstance(node, nodes.Filter):
        return node.name not in PLAIN_FILTERS and not _is_field_filter(node)
    if isinstance(node, nodes.BinExpr):
        return not isinstance(node, (nodes.Add, nodes.And, nodes.Or)) or any(
            map(_is_number, (node.left, node.right))
        )
    return isinstance(node, nodes.Test)


def _find_statements_after_messages(
    tree: nodes.Template, definitions: _Definitions
) -> list[nodes.Node]:
    """Return the top-level statements after the last one with a loop over messages."""
    last = None
    for number, statement in enumerate(tree.body):
        if isinstance(statement, nodes.Macro):
            continue
        loops = find_nodes(statement, nodes.For)
        if any(definitions.is_about_messages(loop.iter) for loop in loops):
            last = number
    return [] if last is None else tree.body[last + 1 :]


# ---- conditions ----


def _mentions_flag(test: nodes.Node) -> bool:
    return any(name.name == PROMPT_FLAG for name in find_nodes(test, nodes.Name))


def _is_false_in_prompts(test: nodes.Node) -> bool:
    """Return whether a condition is false where `add_generation_prompt` is true."""
    if isinstance(test, nodes.And):
        return _is_false_in_prompts(test.left) or _is_false_in_prompts(test.right)
    if not isinstance(test, nodes.Not):
        return False
    inner = test.node
    if isinstance(inner, nodes.Test) and inner.name == "defined":
        inner = inner.node
    return isinstance(inner, nodes.Name) and inner.name == PROMPT_FLAG


def _mentions_last(test: nodes.Node) -> bool:
    """Return whether a condition asks whether a message is the last one."""
    fields = find_nodes(test, nodes.Getattr)
    return any(_is_loop(field.node) and field.attr in LAST_FIELDS for field in fields)


def _is_about_assistant(test: nodes.Node) -> bool:
    """Return whether a condition holds only for messages of the assistant."""
    if isinstance(test, nodes.And):
        return _is_about_assistant(test.left) or _is_about_assistant(test.right)
    if not isinstance(test, nodes.Compare) or len(test.ops) != 1:
        return False
    value = test.ops[0].expr
    return test.ops[0].op == "eq" and isinstance(value, nodes.Const) and value.value == ASSISTANT


# ---- nodes ----


def _list_given(node: nodes.Node | None) -> list[nodes.Node]:
    """Return an optional child of a node as a list: `for` may have a test, and a choice an else."""
    return [] if node is None else [node]


def _is_loop(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == LOOP


def _is_text(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and isinstance(node.value, str)


def _is_number(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Const) and type(node.value) in (int, float)


def _is_other_number(node: nodes.Node) -> bool:
    """Return whether a node is a number that no position is compared with: zero is that of the first message."""
    return isinstance(node, nodes.Const) and _is_number(node) and node.value != 0


def _is_call_of(node: nodes.Node, name: str) -> bool:
    if not isinstance(node, nodes.Call) or not isinstance(node.node, nodes.Name):
        return False
    return bool(node.node.name == name)


def _is_field_filter(node: nodes.Filter) -> bool:
    """Return whether a filter reads one field that belongs to the shape."""
    first = node.args[0] if node.args else None
    is_field = isinstance(first, nodes.Const) and first.value in SHAPE_FIELDS
    return is_field and node.name in FIELD_GETTERS

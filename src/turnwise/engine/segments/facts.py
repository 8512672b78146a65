"""The tree of facts of one section of a template, compiled to a Python function.

A *section* is what a program does between two places where it takes the next message: the text before the loop over
messages, one round of that loop, the text after it. Each path of the tree is a list of questions with their answers,
and ends in a leaf: the texts to write and the new values of namespaces.

    def walk(M, n, S, write, note=None, leave=None):
        for i in range(n):
            m = M[i]
            v1 = m.get('role')
            if v1 == 'user':
                if len(m) != 2: leave((i, segment3))
                write(('<|im_start|>user\\n', m['content'], '<|im_end|>\\n'))
                continue
            ...
            return None  # answers that are new

The names of a question are the same for recording and for walking, so one source text is evaluated in both:

    M    the messages         n    how many there are
    i    the round of the loop    m    its message
    S    the values of namespaces, by number and name; "now" is the clock
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any

from turnwise.engine.segments.symbols import NotRecordable

Walk = Callable[..., "ProvenSegment | bool | None"]
ARGUMENTS = "M, n, S, write, note=None, leave=None"
FindIndex = Callable[[int, int], int]


def kind_of(value: Any) -> str:
    """Return the kind of a value: as much as a template sees of its type, and whether a text is empty or blank."""
    if type(value) is str:
        return "empty" if not value else "blank" if value.isspace() else "text"
    if value is None or value is True or value is False:
        return str(value)
    return KINDS.get(type(value), "other")


KINDS: dict[type, str] = {int: "int", list: "list", dict: "dict"}


def select_messages(
    state: dict[Any, Any],
    messages: list[dict[str, Any]],
    first: int,
    roles: tuple[str, ...],
    is_among: bool,
) -> list[int]:
    """Return the indices of the messages from one on whose roles are among some, or are not; looked for once."""
    key = (first, roles, is_among)
    found: list[int] | None = state.get(key)
    if found is None:
        indices = range(first, len(messages))
        found = [i for i in indices if (messages[i].get("role") in roles) is is_among]
        state[key] = found
    return found


def format_now(now: Any, form: str) -> str:
    """Return the time as `strftime_now` writes it."""
    text: str = (now() if callable(now) else now).strftime(form)
    return text


HELPERS = {
    "kind": kind_of,
    "str": str,
    "format_now": format_now,
    "select": select_messages,
    "len": len,
    "range": range,
    "max": max,
    "min": min,
    "tuple": tuple,
    "bool": bool,
    "dict": dict,
    "zip": zip,
    "__builtins__": {},
}


def compile_index(source: str) -> FindIndex:
    """Return a function of the round and the number of messages, which returns an index."""
    find: FindIndex = eval(f"lambda i, n: {source}", HELPERS)
    return find


@dataclass(slots=True, eq=False)
class ProvenSegment:
    """The end of a path: what was written there.

    Attributes:
        texts: the source of each text.
        output: the sources of texts and trails, alternately; None if where the texts came from is not known.
        trails: the source of the trail of each new text of a namespace, by its key in S.
        state: the source of each new value of a namespace, by its key in S.
        keys: the fields of the message at hand that are written whole.
        others: those of other messages, each with a function that returns the index of the message.
        writes_tools: whether something of each tool is written.
        carried: the keys in S of fields that namespaces had, and that are written.
        cost: bytes that it pays for each character of a text.
        steps: that the program paid for.
        size: the bytes that it paid for, beside those for characters of texts.
        price: the share of the budgets of a rendering that it takes, beside what a message adds to them.
        is_refused: whether the program has to run.
        loop: the loop over messages that follows; None at the end of the program.
    """

    texts: list[str] = field(default_factory=list)
    output: list[str] | None = None
    trails: dict[str, str] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    others: tuple[tuple[FindIndex, str], ...] = ()
    writes_tools: bool = False
    carried: tuple[str, ...] = ()
    cost: int = 0
    steps: int = 0
    size: int = 0
    price: float = 0.0
    is_refused: bool = False
    loop: LoopOverMessages | None = None


@dataclass(slots=True, eq=False)
class FactNode:
    """A node of the tree: a question, and what comes after each answer."""

    source: str
    branches: dict[Any, FactNode | ProvenSegment] = field(default_factory=dict)


class FactTree:
    """A tree of questions.

    Args:
        constants: the texts that sources name.
        loop: the sources of the index of a message and of the number of rounds, if this is a round of a loop.

    Attributes:
        walk: writes the texts of this section, and returns its segment, or True for the rounds of a loop; None if some
            answer is new. Its arguments are the names above, and three functions: `write` gets texts, `note` the number
            of a round and its segment, if that has a price, others or tools, and `leave` the index of a message that is
            not written whole, and its segment. The last two are for rounds.
        walk_output: writes texts and trails instead.
        has_keys: whether a leaf has keys.
        cost, steps, size: the largest of a leaf.
    """

    def __init__(self, constants: Constants, loop: tuple[str, str] | None = None) -> None:
        self._constants = constants
        self._loop = loop
        self._root: FactNode | ProvenSegment | None = None
        self.has_keys = False
        self._forget_code()
        self.nodes = 0  # questions, on all paths
        self.cost = self.steps = self.size = 0

    def find(self, path: list[tuple[str, Any]]) -> ProvenSegment | None:
        """Return the leaf of a path, if it is known."""
        node = self._root
        for _, answer in path:
            if not isinstance(node, FactNode):
                break
            node = node.branches.get(answer)
        return node if isinstance(node, ProvenSegment) else None

    def add(self, path: list[tuple[str, Any]], leaf: ProvenSegment) -> None:
        """Add a path."""
        self._forget_code()
        self.has_keys |= bool(leaf.keys)
        self.nodes += len(path)
        self.cost = max(self.cost, leaf.cost)
        self.steps = max(self.steps, leaf.steps)
        self.size = max(self.size, leaf.size)
        if not path:
            self._root = leaf
            return
        if not isinstance(self._root, FactNode):
            self._root = FactNode(path[0][0])
        node = self._root
        for index, (source, answer) in enumerate(path):
            if node.source != source:  # the program is no function of its input
                raise NotRecordable
            if index + 1 == len(path):
                node.branches[answer] = leaf
                return
            following = node.branches.get(answer)
            if not isinstance(following, FactNode):
                following = node.branches[answer] = FactNode(path[index + 1][0])
            node = following

    def _forget_code(self) -> None:
        """Compile the tree when it is walked next."""
        self.walk: Walk = self._compile_texts
        self.walk_output: Walk = self._compile_output

    def _compile_texts(self, *arguments: Any) -> ProvenSegment | bool | None:
        self.walk = self._compile(with_trails=False)
        return self.walk(*arguments)

    def _compile_output(self, *arguments: Any) -> ProvenSegment | bool | None:
        self.walk_output = self._compile(with_trails=True)
        return self.walk_output(*arguments)

    def _compile(self, with_trails: bool) -> Walk:
        lines = [f"def walk({ARGUMENTS}):"]
        if self._loop is not None:
            lines.append(f"    for i in range({self._loop[1]}):")
            lines.append(f"        m = M[{self._loop[0]}]")
        scope: dict[str, Any] = {**HELPERS, **self._constants.values}
        index = self._loop[0] if self._loop else ""
        code = SectionCode(lines, scope, index, with_trails)
        code.write_node(self._root, 2 if index else 1)
        lines.append("    return True")
        try:
            exec("\n".join(lines), scope)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            scope["walk"] = _know_nothing  # the code is nested too deeply for Python
        walk: Walk = scope.pop("walk")
        return walk


def _know_nothing(*_: Any) -> None:
    return None


class SectionCode:
    """Writes the code of a tree.

    Args:
        lines: the code up to the tree.
        scope: the values that the code names.
        index: the source of the index of the message, if this is a round of a loop.
        with_trails: whether the code writes trails too.
    """

    def __init__(
        self, lines: list[str], scope: dict[str, Any], index: str, with_trails: bool
    ) -> None:
        self._lines = lines
        self._scope = scope
        self._index = index
        self._with_trails = with_trails

    def write_node(self, node: FactNode | ProvenSegment | None, depth: int) -> None:
        """Write a node, indented. Each block leaves the round, so only the first branches are indented further."""
        lines, indent = self._lines, "    " * depth
        while isinstance(node, FactNode):
            *others, (last, following) = node.branches.items()
            name = f"v{len(lines)}"
            if others:
                lines.append(f"{indent}{name} = {node.source}")
                for answer, branch in others:
                    lines.append(f"{indent}if {_compare(name, answer)}:")
                    self.write_node(branch, depth + 1)
            else:
                name = node.source
            lines.append(f"{indent}if {_differ(name, last)}: return None")
            node = following
        lines += [f"{indent}{line}" for line in self._write_segment(node)]

    def _write_segment(self, node: ProvenSegment | None) -> Iterator[str]:
        if node is None or node.is_refused or (self._with_trails and node.output is None):
            yield "return None"
            return
        name = f"segment{len(self._scope)}"
        self._scope[name] = node
        if self._index and (node.others or node.writes_tools):
            yield f"note((i, {name}))"
        if node.price:
            yield f"S['price'] += {node.price!r}"
            yield "if S['price'] > 1: return None"
        if self._index:
            yield f"if len(m) != {1 + len(node.keys)}: leave(({self._index}, {name}))"
        texts, state = node.texts, node.state
        if self._with_trails and node.output is not None:
            texts, state = node.output, state | node.trails
        if texts:
            yield f"write(({', '.join(texts)},))"
        for key in node.carried:
            yield f"S['carried'] += S[{key!r}]"
        if state:
            targets = ", ".join(f"S[{key!r}]" for key in state)
            yield f"{targets}, = {', '.join(state.values())},"
        yield "continue" if self._index else f"return {name}"


def _compare(name: str, answer: Any) -> str:
    if type(answer) is bool:
        return name if answer else f"not {name}"
    return f"{name} == {answer!r}"


def _differ(name: str, answer: Any) -> str:
    if type(answer) is bool:
        return f"not ({name})" if answer else name
    return f"{name} != {answer!r}"


class Constants:
    """The texts of a template, its trails, and writers of JSON, that questions and leaves name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._names: dict[Any, str] = {}
        self._kept: dict[int, str] = {}
        self.size = 0

    def name(self, value: Any) -> str:
        """Return the source of a constant."""
        if value is None or type(value) in (bool, int) or (type(value) is str and len(value) < 16):
            return repr(value)
        if value not in self._names:
            self._names[value] = f"K{len(self._names)}"
            self.values[self._names[value]] = value
            self.size += getsizeof(value)
        return self._names[value]

    def keep(self, value: Any) -> str:
        """Return the source of a constant that may have no hash: a trail, or a part of one."""
        if value is None or type(value) in (bool, int, str):
            return self.name(value)
        known = self._kept.get(id(value))
        if known is None:
            known = self._kept[id(value)] = f"T{len(self._kept)}"
            self.values[known] = value
            self.size += getsizeof(value)
        return known


@dataclass(slots=True, eq=False)
class LoopOverMessages:
    """A loop over messages.

    Attributes:
        index: the source of the index of the message of round `i`.
        body: the section of one round.
        after: the section that follows.
        skipped: how many messages are before those that it is over; None if it is over others.
    """

    index: str
    body: FactTree
    after: FactTree
    skipped: int | None

r"""A constraint in GBNF, the grammar of llama.cpp; xgrammar's EBNF is the same language.

GBNF has rules, texts, classes of characters and repetition, and nothing else. So free text is written out as an
automaton (Aho and Corasick's, over the texts that end it), one rule for each state, and its greatest length as a count
of steps, which may accept a longer text but never refuses one that fits; JSON as rules in `value_nodes.py`; the bounds
of numbers as digits (`number_node`).

llama.cpp needs the calls alone for "auto": it writes freely until a trigger comes, and starts the grammar there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from turnwise.replies.export.constraint_tree import (
    NOTHING,
    CharacterNode,
    ChoiceNode,
    ConstraintTree,
    FreeTextNode,
    JsonNode,
    LiteralNode,
    Node,
    NumberType,
    RepeatNode,
    RuleNode,
    SequenceNode,
)
from turnwise.replies.export.value_nodes import JSON_NOTATION, ValueNodes, number_node
from turnwise.sized_cache import SizedCache

__all__ = ["GbnfGrammar", "to_gbnf", "write_gbnf"]

MAX_LEAST = 4  # characters of free text that are counted: each needs the whole automaton once more
WHITE_SPACE = " \t\n\r"
EDGE_BYTES = 200
OTHER_SIGN = "\0"  # stands for any character that no text has


class GbnfGrammar(NamedTuple):
    """What llama.cpp's server takes for a constraint.

    Attributes:
        grammar: The grammar, in GBNF.
        triggers: The texts that start the grammar; empty if it holds from the first character on.
        preserved_tokens: The markers that are to be kept if they are tokens.
    """

    grammar: str
    triggers: tuple[str, ...]
    preserved_tokens: tuple[str, ...]


def to_gbnf(tree: ConstraintTree, is_lazy: bool) -> GbnfGrammar:
    """Return a tree as GBNF: of the calls alone, with their triggers, or of the whole reply."""
    start = tree.calls if is_lazy else tree.start
    triggers = tree.triggers if is_lazy else ()
    return GbnfGrammar(write_gbnf(tree, start), triggers, tree.markers)


def write_gbnf(tree: ConstraintTree, start: Node) -> str:
    """Return the grammar of one node of a tree."""
    return _GbnfWriter(tree).write(start)


class _GbnfWriter:
    def __init__(self, tree: ConstraintTree) -> None:
        self._tree = ConstraintTree(
            rules=dict(tree.rules), definitions=tree.definitions, counts=dict(tree.counts)
        )
        self._json = ValueNodes(self._tree, JSON_NOTATION)
        self._written: dict[str, str] = {}
        self._values: dict[JsonNode, Node] = {}
        self._texts: dict[FreeTextNode, str] = {}
        self._waiting: list[str] = []

    def write(self, start: Node) -> str:
        self._written = {"root": ""}
        self._written["root"] = self._write(start)
        while self._waiting:
            name = self._waiting.pop()
            if name not in self._written:
                self._written[name] = ""
                self._written[name] = self._write(self._tree.rules[name])
        lines = [f"{name} ::= {text}" for name, text in self._written.items()]
        return "\n".join(lines) + "\n"

    def _write(self, node: Node) -> str:
        if isinstance(node, LiteralNode):
            return _quote(node.text)
        if isinstance(node, CharacterNode):
            return _write_class(node)
        if isinstance(node, SequenceNode):
            return " ".join(map(self._write, node.parts)) or '""'
        if isinstance(node, ChoiceNode):
            return f"({' | '.join(map(self._write, node.options))})"
        if isinstance(node, RepeatNode):
            return f"({self._write(node.item)}){_write_count(node)}"
        if isinstance(node, RuleNode):
            self._waiting.append(node.name)
            return node.name
        if isinstance(node, FreeTextNode):
            if node not in self._texts:
                self._texts[node] = self._write_text(node)
            return self._texts[node]
        return self._write_json(node)

    def _write_text(self, node: FreeTextNode) -> str:
        """Write a rule for each state of an automaton, and return the name of the first."""
        least = min(node.least, MAX_LEAST)
        states = _STATES.get(replace(node, least=least, most=None))
        names = [self._tree.add_rule("text", NOTHING).name for _ in states]
        if node.most is not None:
            names[_find_home(states)] = self._write_steps(states, node.most - least)
        for name, edges in zip(names, states, strict=True):
            if name not in self._written:
                self._write_state(name, edges, names)
        return names[0]

    def _write_steps(self, states: _States, most: int) -> str:
        """Write what may follow once a text is long enough: at most some steps, and the ending.

        A step is one character, or what began like an ending and the character that shows that it is none: it counts
        as one. So a text with such beginnings may be longer than its bound; to count exactly is a rule for each state
        and each length.
        """
        home = _find_home(states)
        step = self._write_part(states, home, is_step=True)
        end = self._write_part(states, home, is_step=False)
        name = self._tree.add_rule("text", NOTHING).name
        self._written[name] = f"{step}{{0,{most}}} {end}" if most else end
        return name

    def _write_part(self, states: _States, home: int, *, is_step: bool) -> str:
        """Write the ways from a state back to it, or those to an ending that do not come back."""
        names = {home: self._tree.add_rule("text", NOTHING).name}
        waiting = [home]
        while waiting:
            number = waiting.pop()
            edges = [edge for edge in states[number] if edge.target != (None if is_step else home)]
            for edge in edges:
                if edge.target is not None and edge.target not in names:
                    names[edge.target] = self._tree.add_rule("text", NOTHING).name
                    waiting.append(edge.target)
            self._write_state(names[number], edges, {**names, home: ""})
        return names[home]

    def _write_state(
        self, name: str, edges: Iterable[_WrittenEdge], names: Sequence[str] | Mapping[int, str]
    ) -> None:
        options = [
            edge.sign if edge.target is None else f"{edge.sign} {names[edge.target]}".rstrip()
            for edge in edges
        ]
        self._written[name] = f"({' | '.join(options)})"

    def _write_json(self, node: JsonNode) -> str:
        if isinstance(node.value, NumberType):
            return self._write(number_node(node.value))
        if node not in self._values:
            value = self._json.make(node.value)
            self._values[node] = self._tree.add_rule("value", value)
        return self._write(self._values[node])


def _write_count(node: RepeatNode) -> str:
    sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.least, node.most))
    if sign:
        return sign
    return f"{{{node.least},{'' if node.most is None else node.most}}}"


def _quote(text: str) -> str:
    """Return a text in quotes; GBNF knows few escapes."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(sign: str) -> str:
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
    if sign in known:
        return known[sign]
    return sign if sign.isprintable() else _escape_code(sign)


def _escape_code(sign: str) -> str:
    code = ord(sign)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _write_class(node: CharacterNode) -> str:
    if node.negated and not node.ranges:
        return "[\\x00-\\U0010ffff]"
    ranges = []
    for first, last in node.ranges:
        ends = [_escape_in_class(first), _escape_in_class(last)]
        ranges.append("-".join(ends) if first != last else ends[0])
    return f"[{'^' * node.negated}{''.join(ranges)}]"


@lru_cache(1024)
def _escape_in_class(sign: str) -> str:
    if sign in "]^-[":
        return f"\\x{ord(sign):02x}"
    return _escape(sign) if sign != '"' else sign


# -- free text


class _TextState(NamedTuple):
    """A state of the automaton.

    Attributes:
        read: what was read of the texts that end it.
        size: how many characters came before that, as far as a bound asks for it.
        is_start: whether the text has not begun yet.
    """

    read: str
    size: int
    is_start: bool


class _TextEdge(NamedTuple):
    """A character, and the state after it; or the text that was read, if one of the texts is complete with it."""

    sign: str  # as it is written
    target: _TextState | None
    completed: str = ""


class _WrittenEdge(NamedTuple):
    """A character as it is written, and the number of the state after it; None if the text ends there."""

    sign: str
    target: int | None


_States = tuple[tuple[_WrittenEdge, ...], ...]


def _find_home(states: _States) -> int:
    """Return the state in which nothing of an ending is read, and no character is to be counted any more."""
    return next(
        number
        for number, edges in enumerate(states)
        if any(edge.target == number and edge.sign.startswith("[^") for edge in edges)
    )


def _find_states(node: FreeTextNode) -> _States:
    """Return the edges of each state from which an end can be reached, beginning with the first.

    The texts that end free text are a template's, so they are the same in many requests.
    """
    texts = tuple(sorted({text for text in (node.ending, *node.without) if text}))
    automaton = _AUTOMATA.get(node.not_first, texts, node.least)
    edges = {state: _end_edges(node, state, found) for state, found in automaton.items()}
    live = _find_live(edges)
    start = _TextState("", 0, bool(node.not_first))
    numbers = {state: number for number, state in enumerate({start: None, **live})}
    return tuple(
        tuple(
            _WrittenEdge(edge.sign, None if edge.target is None else numbers[edge.target])
            for edge in edges[state]
            if edge.target is None or edge.target in live
        )
        for state in numbers
    )


def _end_edges(
    node: FreeTextNode, state: _TextState, edges: Iterable[_TextEdge]
) -> list[_TextEdge]:
    """Return the edges of a state, without those that complete another text than the ending, or end too early."""
    kept = []
    for edge in edges:
        size = state.size + len(edge.completed) - len(node.ending)
        is_ending = edge.completed.endswith(node.ending) and bool(node.ending)
        if not edge.completed or (is_ending and size >= node.least):
            kept.append(edge)
    if not node.ending and state.size + len(state.read) >= node.least:
        kept.append(_TextEdge(_quote(""), None))
    return kept


_STATES = SizedCache(_find_states, lambda states: EDGE_BYTES * sum(map(len, states)))


def _find_live(edges: dict[_TextState, list[_TextEdge]]) -> dict[_TextState, None]:
    """Return the states from which an end can be reached."""
    sources: dict[_TextState, list[_TextState]] = {}
    for state, outgoing in edges.items():
        for edge in outgoing:
            if edge.target is not None:
                sources.setdefault(edge.target, []).append(state)
    waiting = [
        state for state, outgoing in edges.items() if any(edge.target is None for edge in outgoing)
    ]
    live: dict[_TextState, None] = {}
    while waiting:
        state = waiting.pop()
        if state not in live:
            live[state] = None
            waiting += sources.get(state, [])
    return live


_Automaton = dict[_TextState, list[_TextEdge]]


class _TextAutomaton:
    """Free text as right-linear rules, for all endings: which of the texts is the ending changes no other edge."""

    def __init__(self, not_first: str, texts: tuple[str, ...], least: int) -> None:
        self._not_first = not_first
        self._texts = texts
        self._least = least
        self._prefixes = {text[:size] for text in texts for size in range(len(text))} | {""}
        self._next_signs: dict[str, set[str]] = {}
        for text in texts:
            for size, sign in enumerate(text):
                self._next_signs.setdefault(text[:size], set()).add(sign)
        # What follows a text that was read is the same for every count of characters before it.
        self._completed: dict[str, bool] = {}
        self._signs: dict[tuple[str, bool], list[str]] = {}
        self._suffixes: dict[str, str] = {}

    def find_edges(self) -> _Automaton:
        """Return the edges of all states, beginning with the first."""
        edges: _Automaton = {}
        waiting = [_TextState("", 0, bool(self._not_first))]
        while waiting:
            state = waiting.pop()
            if state in edges:
                continue
            edges[state] = self._find_edges(state)
            waiting += [edge.target for edge in edges[state] if edge.target is not None]
        return edges

    def _find_edges(self, state: _TextState) -> list[_TextEdge]:
        """Return what may follow in a state."""
        edges: list[_TextEdge] = []
        targets: dict[_TextState, list[str]] = {}
        default = self._step(state, OTHER_SIGN)
        explicit: list[str] = []  # all other characters lead to the default
        for sign in self._signs_after(state):
            read = state.read + sign
            if self._completes(read):
                explicit.append(sign)
                edges.append(_TextEdge(_quote(sign), None, read))
                continue
            target = self._step(state, sign)
            if target == default:
                continue
            explicit.append(sign)
            if target is not None:
                targets.setdefault(target, []).append(sign)
        for target, signs in targets.items():
            some = CharacterNode(tuple((sign, sign) for sign in signs))
            edges.append(_TextEdge(_write_class(some), target))
        if default is not None:
            others = CharacterNode(tuple((sign, sign) for sign in explicit), negated=True)
            edges.append(_TextEdge(_write_class(others), default))
        return edges

    def _signs_after(self, state: _TextState) -> list[str]:
        """Return the characters that go on with a text that has begun, and those that matter at the start."""
        key = (state.read, state.is_start)
        if key not in self._signs:
            signs: set[str] = set()
            for start in range(len(state.read) + 1):
                signs |= self._next_signs.get(state.read[start:], set())
            if state.is_start:
                signs |= {*WHITE_SPACE, *self._not_first}
            self._signs[key] = sorted(signs)
        return self._signs[key]

    def _completes(self, read: str) -> bool:
        if read not in self._completed:
            self._completed[read] = read.endswith(self._texts)
        return self._completed[read]

    def _find_suffix(self, read: str) -> str:
        """Return the longest end of a text with which one of the texts begins."""
        if read not in self._suffixes:
            start = 0
            while read[start:] not in self._prefixes:
                start += 1
            self._suffixes[read] = read[start:]
        return self._suffixes[read]

    def _step(self, state: _TextState, sign: str) -> _TextState | None:
        """Return the state after a character; None if there is none."""
        read = self._find_suffix(state.read + sign)
        count = min(state.size + len(state.read) + 1 - len(read), self._least)
        if not state.is_start:
            return _TextState(read, count, False)
        if sign in WHITE_SPACE and not state.read.strip():
            return _TextState(read, count, True)
        whole = (state.read + sign).lstrip()
        if read.lstrip() == whole:  # the ending may have begun; the text is still empty
            return _TextState(read, count, True)
        return None if whole[0] in self._not_first else _TextState(read, count, False)


def _find_automaton(not_first: str, texts: tuple[str, ...], least: int) -> _Automaton:
    return _TextAutomaton(not_first, texts, least).find_edges()


_AUTOMATA = SizedCache(_find_automaton, lambda found: EDGE_BYTES * sum(map(len, found.values())))

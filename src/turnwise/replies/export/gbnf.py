r"""A constraint in GBNF, the grammar of llama.cpp; xgrammar's EBNF is the same language.

GBNF has rules, texts, classes of characters and repetition, and nothing else. So free text becomes an automaton (Aho
and Corasick's, over the texts that end it), one rule for each state, and its greatest length a count of steps, which
may accept a longer text but never refuses one that fits; JSON becomes the nodes of `value_nodes.py`.

llama.cpp needs the calls alone for "auto": it writes freely until a trigger comes, and starts the grammar there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from turnwise.replies.export.constraint_tree import (
    NOTHING,
    CharacterNode,
    ConstraintTree,
    FreeTextNode,
    JsonNode,
    LiteralNode,
    Node,
    NumberType,
    RuleNode,
    RuleWriter,
    write_class,
)
from turnwise.replies.export.value_nodes import JSON_NOTATION, ValueNodes, number_node
from turnwise.sized_cache import SizedCache

__all__ = ["GbnfGrammar", "to_gbnf", "write_gbnf"]

MAX_LEAST = 4  # characters of free text that are counted: each needs the whole automaton once more
WHITE_SPACE = " \t\n\r"
EDGE_BYTES = 200
OTHER_SIGN = "\0"  # stands for any character that no text has
ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


class GbnfGrammar(NamedTuple):
    """The constraint in the form that llama.cpp's server accepts.

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
    rules = _GbnfWriter(tree).write_rules(start)
    return "".join(f"{name or 'root'} ::= {text}\n" for name, text in rules.items())


class _GbnfWriter(RuleWriter):
    def __init__(self, tree: ConstraintTree) -> None:
        # A copy, which gets the rules of values and texts.
        own = ConstraintTree(
            rules=dict(tree.rules), definitions=tree.definitions, counts=dict(tree.counts)
        )
        super().__init__(own)
        self._json = ValueNodes(own, JSON_NOTATION)
        self._values: dict[JsonNode, RuleNode] = {}
        self._texts: dict[FreeTextNode, str] = {}

    def write_literal(self, node: LiteralNode) -> str:
        return _quote(node.text)

    def write_characters(self, node: CharacterNode) -> str:
        return _write_characters(node)

    def write_json(self, node: JsonNode) -> str:
        if isinstance(node.value, NumberType):
            return self.write(number_node(node.value))
        if node not in self._values:
            self._values[node] = self.tree.add_rule("value", self._json.make(node.value))
        return self.write(self._values[node])

    # -- free text

    def write_free_text(self, node: FreeTextNode) -> str:
        if node not in self._texts:
            self._texts[node] = self._write_states(node)
        return self._texts[node]

    def _write_states(self, node: FreeTextNode) -> str:
        """Write a rule for each state of an automaton, and return the name of the first."""
        least = min(node.least, MAX_LEAST)
        states = _STATES.get(replace(node, least=least, most=None))
        names: dict[int | None, str] = {number: self._name_text() for number in range(len(states))}
        for number, edges in enumerate(states):
            self._write_state(names[number], edges, names)
        if node.most is not None:
            home = _find_home(states)
            self.written[names[home]] = self._write_steps(states, home, node.most - least)
        return names[0]

    def _name_text(self) -> str:
        return self.tree.add_rule("text", NOTHING).name

    def _write_steps(self, states: _States, home: int, most: int) -> str:
        """Return what may follow once a text is long enough: at most some steps, and the ending.

        A step is one character, or what began like an ending and the character that shows that it is none: it counts
        as one. So a text with such beginnings may be longer than its bound; to count exactly is a rule for each state
        and each length.
        """
        end = self._write_part(states, home, is_step=False)
        if not most:
            return end
        return f"{self._write_part(states, home, is_step=True)}{{0,{most}}} {end}"

    def _write_part(self, states: _States, home: int, *, is_step: bool) -> str:
        """Write rules for the ways from a state back to it, or for those to an ending that do not come back."""
        start = self._name_text()
        names: dict[int | None, str] = {}
        waiting = [home]
        while waiting:
            number = waiting.pop()
            edges = [edge for edge in states[number] if edge.target != (None if is_step else home)]
            for _, target in edges:
                if target is not None and target not in (home, *names):
                    names[target] = self._name_text()
                    waiting.append(target)
            self._write_state(names.get(number, start), edges, names)
        return start

    def _write_state(
        self, name: str, edges: Iterable[_TextEdge], names: Mapping[int | None, str]
    ) -> None:
        """Write the edges of a state; an edge whose target has no name ends the text."""
        options = [f"{sign} {names.get(target, '')}".rstrip() for sign, target in edges]
        self.written[name] = f"({' | '.join(options)})"


def _quote(text: str) -> str:
    return f'"{"".join(map(_escape, text))}"'


def _escape(sign: str) -> str:
    if sign in ESCAPES:
        return ESCAPES[sign]
    if sign.isprintable():
        return sign
    code = ord(sign)
    if code <= 0xFF:
        return f"\\x{code:02x}"  # translators to other grammars read no other form
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _escape_in_class(sign: str) -> str:
    if sign in "]^-[":
        return f"\\x{ord(sign):02x}"
    return sign if sign == '"' else _escape(sign)


@lru_cache(1024)
def _write_characters(node: CharacterNode) -> str:
    if node.negated and not node.ranges:
        return "[\\x00-\\U0010ffff]"
    return write_class(node, _escape_in_class)


# -- the automaton of free text


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
    """A character as it is written, and the number of the state after it; None if the text ends there."""

    sign: str
    target: int | None


_States = tuple[tuple[_TextEdge, ...], ...]
_Edges = dict[_TextState, list[tuple[str, _TextState | None]]]


def _find_home(states: _States) -> int:
    """Return the state in which nothing of an ending is read, and no character is to be counted any more."""
    return next(
        number
        for number, edges in enumerate(states)
        for sign, target in edges
        if target == number and sign.startswith("[^")
    )


class _TextAutomaton:
    """Free text as right-linear rules."""

    def __init__(self, node: FreeTextNode) -> None:
        self._node = node
        self._texts = tuple(sorted({text for text in (node.ending, *node.without) if text}))
        self._prefixes = {""}
        self._next_signs: dict[str, set[str]] = {}
        for text in self._texts:
            for size, sign in enumerate(text):
                self._prefixes.add(text[:size])
                self._next_signs.setdefault(text[:size], set()).add(sign)

    def find_states(self) -> _States:
        """Return the edges of each state from which an end can be reached, beginning with the first."""
        start = _TextState("", 0, bool(self._node.not_first))
        edges: _Edges = {}
        waiting = [start]
        while waiting:
            state = waiting.pop()
            if state not in edges:
                edges[state] = self._find_edges(state)
                waiting += [target for _, target in edges[state] if target is not None]
        live = _find_live(edges)
        numbers = {state: number for number, state in enumerate({start: None, **live})}
        return tuple(
            tuple(
                _TextEdge(sign, None if target is None else numbers[target])
                for sign, target in edges[state]
                if target is None or target in live
            )
            for state in numbers
        )

    def _find_edges(self, state: _TextState) -> list[tuple[str, _TextState | None]]:
        node = self._node
        edges: list[tuple[str, _TextState | None]] = []
        targets: dict[_TextState, list[str]] = {}
        default = self._step(state, OTHER_SIGN)
        explicit: list[str] = []  # all other characters lead to the default
        for sign in self._signs_after(state):
            read = state.read + sign
            if read.endswith(self._texts):
                explicit.append(sign)
                is_long = state.size + len(read) - len(node.ending) >= node.least
                if node.ending and read.endswith(node.ending) and is_long:
                    edges.append((_quote(sign), None))
                continue
            target = self._step(state, sign)
            if target == default:
                continue
            explicit.append(sign)
            if target is not None:
                targets.setdefault(target, []).append(sign)
        for target, signs in targets.items():
            edges.append((_write_set(signs), target))
        if default is not None:
            edges.append((_write_set(explicit, negated=True), default))
        if not node.ending and state.size + len(state.read) >= node.least:
            edges.append((_quote(""), None))
        return edges

    def _signs_after(self, state: _TextState) -> list[str]:
        """Return the characters that go on with a text that has begun, and those that matter at the start."""
        signs: set[str] = set()
        for start in range(len(state.read) + 1):
            signs |= self._next_signs.get(state.read[start:], set())
        if state.is_start:
            signs |= {*WHITE_SPACE, *self._node.not_first}
        return sorted(signs)

    def _step(self, state: _TextState, sign: str) -> _TextState | None:
        """Return the state after a character; None if there is none."""
        whole = state.read + sign
        # the longest end with which one of the texts begins
        read = next(whole[at:] for at in range(len(whole) + 1) if whole[at:] in self._prefixes)
        count = min(state.size + len(whole) - len(read), self._node.least)
        if not state.is_start:
            return _TextState(read, count, False)
        text = whole.lstrip()
        # White space, or the ending may have begun: the text is still empty.
        if (sign in WHITE_SPACE and not state.read.strip()) or read.lstrip() == text:
            return _TextState(read, count, True)
        return None if text[0] in self._node.not_first else _TextState(read, count, False)


def _write_set(signs: Iterable[str], negated: bool = False) -> str:
    return _write_characters(CharacterNode(tuple((sign, sign) for sign in signs), negated))


def _find_live(edges: _Edges) -> dict[_TextState, None]:
    sources: dict[_TextState | None, list[_TextState]] = {}
    for state, outgoing in edges.items():
        for _, target in outgoing:
            sources.setdefault(target, []).append(state)
    live: dict[_TextState, None] = {}
    waiting = list(sources.get(None, ()))
    while waiting:
        state = waiting.pop()
        if state not in live:
            live[state] = None
            waiting += sources.get(state, ())
    return live


# The texts that end free text are a template's, so they are the same in many requests.
_STATES = SizedCache(
    lambda node: _TextAutomaton(node).find_states(),
    lambda states: EDGE_BYTES * sum(map(len, states)),
)

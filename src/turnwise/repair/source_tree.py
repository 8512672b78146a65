"""The text of a template as a tree in which every part knows its place, so that it can be edited and stay the author's.

jinja2's own tree keeps where a node begins and not where it ends, and it has no comments and no white space. This one
is made of the same tokens (`engine/compiler/syntax.py`) and knows only what an edit needs: what is text, which tag is
an output, which tags belong together, and of which operands an output is joined.

    {% for m in messages %}<|{{ m.role }}|>{{ 'a' + m.content }}{% endfor %}

    Block for
        Data '<|'   Output m.role   Data '|>'   Output Sum('a', m.content)

`ReadFinder` finds where a template reads a field, as places that can be wrapped: `message['content']`. A read is a name
with what follows it (`.key`, `[index]`, calls) up to the wanted key. What is assigned (`{% set ns.content = x %}`) is
no read.

Offsets are those of the text with `\\n` for every line end (`SourceTree.text`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain
from operator import attrgetter
from typing import NamedTuple

from turnwise.engine.compiler.syntax import TokenScan, normalise_newlines, unpack_position

OPENERS = frozenset(["if", "for", "macro", "call", "filter", "generation", "with", "block"])
SECTIONS = frozenset(["elif", "else"])
CAPTURING = frozenset(["macro", "call", "filter", "set"])
"""Blocks whose text is a value: what is written there is not written yet."""
LOOSE = frozenset(["and", "or", "not", "is", "in", "==", "!=", "<", ">", "<=", ">=", "-", ",", "="])
"""What binds less than a sum, or is not joined by splitting."""
JOINS = frozenset(["+", "~"])
CLOSERS = frozenset(")]")
INDENTED_TAG = re.compile(r"^([ \t]+)\{", re.MULTILINE)
TAG_BEGINS = ("variable_begin", "block_begin")


class Token(NamedTuple):
    """A token of a template; its text is that of the source, white space that a sign removes included."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Leaf(NamedTuple):
    """An operand that is not split: a literal text or any other expression."""

    start: int
    end: int
    is_literal: bool


class Choice(NamedTuple):
    """`yes if test else no`; without an else, `no` is None."""

    test: tuple[int, int]
    yes: Expression
    no: Expression | None


class Operand(NamedTuple):
    """A part of a sum, with its place, brackets included."""

    start: int
    end: int
    expression: Expression


class Sum(NamedTuple):
    """Operands that are joined with `+` or `~`, the first of which is `sign`."""

    operands: tuple[Operand, ...]
    sign: str


Expression = Leaf | Choice | Sum


@dataclass(frozen=True, slots=True)
class Data:
    """Text of the template, as it is written: without the white space that signs remove."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Output:
    """`{{ expression }}`; `signs` are those of its two ends."""

    start: int
    end: int
    signs: tuple[str, str]
    expression: Expression


@dataclass(frozen=True, slots=True)
class Statement:
    """A tag that stands alone (`set`, `break`), a comment, or text in a raw block."""

    start: int
    end: int
    name: str
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A tag of a block, and what follows it up to the next one."""

    tag: Statement
    body: list[Item] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Block:
    """`{% if %}` and the like with all its sections, up to its end tag."""

    name: str
    sections: tuple[Section, ...]
    closing: Statement

    @property
    def start(self) -> int:
        return self.sections[0].tag.start

    @property
    def end(self) -> int:
        return self.closing.end

    @property
    def captures(self) -> bool:
        """Whether its text is a value, as that of a loop that calls itself: transformers counts from its start."""
        tokens = self.sections[0].tag.tokens  # ... in messages recursive %}
        is_recursive = tokens[-2].text == "recursive" and tokens[-3].text != "in"
        return self.name in CAPTURING or (self.name == "for" and is_recursive)

    @property
    def loop_variable(self) -> str:
        """The name that a loop gives to each element; empty for other blocks and for several names."""
        tokens = self.sections[0].tag.tokens  # {% for name in
        return tokens[2].text if self.name == "for" and tokens[3].text == "in" else ""


Item = Data | Output | Statement | Block
Atom = Data | Leaf
"""A part of a template that writes a text: its own text, or an operand."""


class SourceTree:
    """A template that jinja2 accepts, as items with places.

    Attributes:
        text: The source with `\\n` for every line end.
        tokens: All its tokens.
        tags: All its tags, comments and raw blocks.
        body: Its items.
    """

    def __init__(self, source: str) -> None:
        self.text = normalise_newlines(source)
        self._line_starts = list(
            accumulate((len(line) + 1 for line in self.text.split("\n")), initial=0)
        )
        self.tokens = [
            Token(kind, value, self.find_offset(*unpack_position(lineno)))
            for lineno, kind, value in TokenScan(self.text).scan()
        ]
        self._next = 0
        self.tags: list[Statement] = []
        self.body = self._read_body()[0]

    def _read_body(self) -> tuple[list[Item], Statement | None]:
        """Read items up to a tag that belongs to the block around them; return it, too."""
        items: list[Item] = []
        while self._next < len(self.tokens):
            token = self.tokens[self._next]
            if token.kind == "data":
                self._next += 1
                items.append(Data(token.start, token.end))
                continue
            tag = self._read_tag()
            if token.kind == "variable_begin":
                items.append(self._make_output(tag))
            elif tag.name in SECTIONS or tag.name.startswith("end"):
                return items, tag
            elif tag.name in OPENERS or _is_set_block(tag):
                items.append(self._read_block(tag))
            else:
                items.append(tag)
        return items, None

    def _read_tag(self) -> Statement:
        """Read the tokens of a tag, a comment or a raw block."""
        first = self._next
        opening = self.tokens[first]
        closing = opening.kind.replace("begin", "end")
        while self.tokens[self._next].kind != closing:
            self._next += 1
        end = self.tokens[self._next]
        self._next += 1
        inner = tuple(
            token for token in self.tokens[first : self._next] if token.kind != "whitespace"
        )
        name = inner[1].text if opening.kind == "block_begin" else opening.kind.partition("_")[0]
        tag = Statement(opening.start, end.start + len(end.text.rstrip()), name, inner)
        self.tags.append(tag)
        return tag

    def _read_block(self, tag: Statement) -> Block:
        sections: list[Section] = []
        current: Statement | None = tag
        while current is not None and (not sections or current.name in SECTIONS):
            body, following = self._read_body()
            sections.append(Section(current, body))
            current = following
        assert current is not None  # jinja2 accepted the text
        return Block(tag.name, tuple(sections), current)

    def _make_output(self, tag: Statement) -> Output:
        signs = tag.tokens[0].text[2:], tag.tokens[-1].text.partition("}")[0]
        return Output(tag.start, tag.end, signs, read_expression(tag.tokens[1:-1]))

    @cached_property
    def mark(self) -> str:
        """The quotation mark that the template prefers."""
        marks = Counter(token.text[0] for token in self.tokens if token.kind == "string")
        return '"' if marks['"'] > marks["'"] else "'"

    def with_own_quotes(self, text: str) -> str:
        """Return text of a tag with the quotation marks of the template for single ones."""
        return text.replace("'", self.mark)

    def lay_out(self, tags: Sequence[str], indentation: str = "") -> list[str]:
        """Return a line for each tag (`if x`) or quoted text, indented as the template's own are."""
        found = INDENTED_TAG.search(self.text)
        step = found[1] if found else "    "
        lines, depth = [], 0
        for tag in tags:
            word = tag.partition(" ")[0]
            depth -= word.startswith("end")
            inner = depth - (word in SECTIONS)
            shown = f"{{{{- {tag} }}}}" if tag[0] in "'\"" else f"{{%- {tag} %}}"
            lines.append(f"{indentation}{step * inner}{shown}")
            depth += word in OPENERS
        return lines

    def find_offset(self, line: int, column: int) -> int:
        """Return where a position is in the text."""
        return self._line_starts[line - 1] + column - 1

    @cached_property
    def atoms(self) -> list[Atom]:
        """The parts that write a text which is no value, in their order."""
        found: list[Atom] = []
        for item in walk_direct(self.body):
            if isinstance(item, Output):
                found += find_leaves(item.expression)
            elif isinstance(item, Data):
                found.append(item)
        return found

    def find_atom(self, offset: int) -> Atom | None:
        """Return the atom at a place of the text."""
        index = bisect_right(self.atoms, offset, key=attrgetter("start")) - 1
        return self.atoms[index] if index >= 0 and offset < self.atoms[index].end else None

    def show(self, start: int, end: int) -> str:
        return self.text[start:end]


def _is_set_block(tag: Statement) -> bool:
    """Whether this is `{% set name %}`, whose value is the text up to `{% endset %}`."""
    return tag.name == "set" and all(token.text != "=" for token in tag.tokens)


def read_expression(tokens: Sequence[Token]) -> Expression:
    """Return an expression as the operands that are written one after the other."""
    while (
        len(tokens) > 2 and tokens[0].text == "(" and match_brackets(tokens)[0] == len(tokens) - 1
    ):
        tokens = tokens[1:-1]
    outer = [(index, token.text) for index, token in _outer_tokens(tokens)]
    has_choice = any(text == "if" for _, text in outer)
    found = _read_choice(tokens, outer) if has_choice else _read_sum(tokens, outer)
    return found or Leaf(tokens[0].start, tokens[-1].end, _is_literal(tokens))


def _read_choice(tokens: Sequence[Token], outer: Sequence[tuple[int, str]]) -> Choice | None:
    tests = [index for index, text in outer if text == "if"]
    others = [index for index, text in outer if text == "else" and index > tests[0]]
    stop = others[0] if others else len(tokens)
    if len(tests) > 1 and tests[1] < stop:
        return None  # a choice in the condition of another
    test = tokens[tests[0] + 1 : stop]
    no = read_expression(tokens[stop + 1 :]) if others else None
    return Choice((test[0].start, test[-1].end), read_expression(tokens[: tests[0]]), no)


def _read_sum(tokens: Sequence[Token], outer: Sequence[tuple[int, str]]) -> Sum | None:
    joins = [index for index, text in outer if text in JOINS and index > 0]
    if not joins or any(text in LOOSE for _, text in outer):
        return None
    operands = []
    for start, end in zip([-1, *joins], [*joins, len(tokens)], strict=True):
        own = tokens[start + 1 : end]
        operands.append(Operand(own[0].start, own[-1].end, read_expression(own)))
    return Sum(tuple(operands), tokens[joins[0]].text)


def _is_literal(tokens: Sequence[Token]) -> bool:
    return len(tokens) == 1 and tokens[0].kind == "string"


def _outer_tokens(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens outside of all brackets, with their indices."""
    partners, end = match_brackets(tokens), -1
    for index, token in enumerate(tokens):
        end = max(end, partners.get(index, end))
        if index > end and token.kind != "string":
            yield index, token


def match_brackets(tokens: Sequence[Token]) -> dict[int, int]:
    """Return for the index of each bracket that of the one that belongs to it."""
    partners, open_ones = {}, []
    for index, token in enumerate(tokens):
        if token.kind == "operator" and token.text in "([{":
            open_ones.append(index)
        elif token.kind == "operator" and token.text in ")]}":
            partners[index] = open_ones.pop()
            partners[partners[index]] = index
    return partners


def walk_direct(items: Sequence[Item]) -> Iterator[Item]:
    """Yield all items but those in blocks whose text is a value."""
    for item in items:
        yield item
        if isinstance(item, Block) and not item.captures:
            for section in item.sections:
                yield from walk_direct(section.body)


def find_leaves(expression: Expression) -> Iterator[Leaf]:
    """Yield the operands of an expression in their order."""
    if isinstance(expression, Leaf):
        yield expression
    elif isinstance(expression, Sum):
        for operand in expression.operands:
            yield from find_leaves(operand.expression)
    else:
        yield from find_leaves(expression.yes)
        if expression.no is not None:
            yield from find_leaves(expression.no)


class Read(NamedTuple):
    """An expression that reads a value, from `start` to `end`.

    Attributes:
        is_tested: Whether it is only asked about: `x is string`, `x is defined`.
        filter: The filter that it is given to, with its arguments (`tojson(indent=2)`), or "".
        filter_end: Where the filter ends.
    """

    start: int
    end: int
    is_tested: bool = False
    filter: str = ""
    filter_end: int = 0


class ReadFinder:
    """Finds the reads of one template."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        tags = [tag.tokens for tag in tree.tags if tag.tokens[0].kind in TAG_BEGINS]
        self.tokens = list(chain.from_iterable(tags))
        self._partners = match_brackets(self.tokens)

    def find_key(self, key: str) -> list[Read]:
        """Return the reads of a key: `x.key`, `x['key']`, `x.get('key')`."""
        found = []
        for index, token in enumerate(self.tokens):
            end = self._end_of_key(index, token, key)
            read = self._make_read(end) if end is not None else None
            if read is not None:
                found.append(read)
        return found

    def find_filtered(self, name: str) -> list[Read]:
        """Return the expressions that are given to a filter: names with what follows them."""
        found = []
        for index, token in enumerate(self.tokens[:-1]):
            following = self.tokens[index + 1]
            if token.text != "|" or following.kind != "name" or following.text != name:
                continue
            read = self._make_read(index - 1)
            if read is not None:
                found.append(read)
        return found

    def _end_of_key(self, index: int, token: Token, key: str) -> int | None:
        """Return the index of the last token of a read whose key is at `index`."""
        before, after = self._at(index - 1), self._at(index + 1)
        if token.kind == "name" and token.text == key and before == ".":
            return index
        if token.kind == "string" and token.text[1:-1] == key:
            if before == "[" and after == "]" and index > 1 and self._is_value(index - 2):
                return index + 1
            if before == "(" and after == ")" and self._at(index - 2) == "get":
                return index + 1
        return None

    def _make_read(self, end: int) -> Read | None:
        """Return the read that ends with the token `end`; None if it is assigned, or no simple chain."""
        first = self._find_first(end)
        if first is None or self._is_target(first, end):
            return None
        start, stop = self.tokens[first].start, self.tokens[end].end
        following = self._at(end + 1)
        name, filter_end = "", 0
        if following == "|":
            last = end + 2
            if self._at(last + 1) == "(":
                last = self._partners[last + 1]
            filter_end = self.tokens[last].end
            name = self.tree.text[self.tokens[end + 2].start : filter_end]
        return Read(start, stop, following == "is", name, filter_end)

    def _find_first(self, end: int) -> int | None:
        """Return the index of the first token of the chain that ends with the token `end`."""
        index = end
        while index >= 0:
            token = self.tokens[index]
            if token.kind == "operator" and token.text in CLOSERS:
                index = self._partners[index] - 1
                continue
            if token.kind != "name":
                return None
            if self._at(index - 1) != ".":
                return index
            index -= 2
        return None

    def _is_value(self, index: int) -> bool:
        """Whether something that can be indexed ends here."""
        token = self.tokens[index]
        return token.kind == "name" or token.text in CLOSERS

    def _is_target(self, first: int, end: int) -> bool:
        """Whether a chain is what `set` assigns to."""
        return self._at(first - 1) == "set" and self._at(end + 1) == "="

    def _at(self, index: int) -> str:
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

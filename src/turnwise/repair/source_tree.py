"""The text of a template as a tree in which every part knows its place, so that it can be edited and stay the author's.

jinja2's own tree keeps where a node begins and not where it ends, and it has no comments and no white space. This one
is made of the same tokens (`engine/compiler/syntax.py`) and knows only what an edit needs: what is text, which tag is
an output, which tags belong together, and of which operands an output is joined.

    {% for m in messages %}<|{{ m.role }}|>{{ 'a' + m.content }}{% endfor %}

    Block for
        Data '<|'   Output m.role   Data '|>'   Output Sum('a', m.content)

Offsets are those of the text with `\\n` for every line end (`SourceTree.text`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from turnwise.engine.compiler.syntax import TokenScan, normalise_newlines, unpack_position

OPENERS = frozenset(["if", "for", "macro", "call", "filter", "generation", "with", "block"])
SECTIONS = frozenset(["elif", "else"])
CAPTURING = frozenset(["macro", "call", "filter", "set"])
"""Blocks whose text is a value: what is written there is not written yet."""
LOOSE = frozenset(["and", "or", "not", "is", "in", "==", "!=", "<", ">", "<=", ">=", "-", ",", "="])
"""What binds less than a sum, or is not joined by splitting."""
JOINS = frozenset(["+", "~"])


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
    """Operands that are joined with `+` or `~`."""

    operands: tuple[Operand, ...]


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
        body: Its items.
    """

    def __init__(self, source: str) -> None:
        self.text = normalise_newlines(source)
        self.tokens = scan_tokens(self.text)
        self._next = 0
        self.body = self._read_body()[0]
        self._line_starts = list(
            accumulate((len(line) + 1 for line in self.text.split("\n")), initial=0)
        )

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
        return Statement(opening.start, end.start + len(end.text.rstrip()), name, inner)

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

    def find_offset(self, line: int, column: int) -> int:
        """Return where a position is in the text."""
        return self._line_starts[line - 1] + column - 1

    def show(self, start: int, end: int) -> str:
        return self.text[start:end]


def scan_tokens(text: str) -> list[Token]:
    """Return the tokens of a text whose line ends are `\\n`."""
    starts = [0]
    for content in text.split("\n"):
        starts.append(starts[-1] + len(content) + 1)
    tokens = []
    for lineno, kind, value in TokenScan(text).scan():
        line, column = unpack_position(lineno)
        tokens.append(Token(kind, value, starts[line - 1] + column - 1))
    return tokens


def _is_set_block(tag: Statement) -> bool:
    """Whether this is `{% set name %}`, whose value is the text up to `{% endset %}`."""
    return tag.name == "set" and all(token.text != "=" for token in tag.tokens)


def read_expression(tokens: Sequence[Token]) -> Expression:
    """Return an expression as the operands that are written one after the other."""
    while len(tokens) > 2 and tokens[0].text == "(" and find_closing(tokens, 0) == len(tokens) - 1:
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
    return Sum(tuple(operands))


def _is_literal(tokens: Sequence[Token]) -> bool:
    return len(tokens) == 1 and tokens[0].kind == "string"


def _outer_tokens(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens outside of all brackets, with their indices."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "operator" and token.text in "([{":
            depth += 1
        elif token.kind == "operator" and token.text in ")]}":
            depth -= 1
        elif not depth and token.kind != "string":
            yield index, token


def find_closing(tokens: Sequence[Token], opening: int) -> int:
    """Return the index of the bracket that closes the one at `opening`."""
    depth = 0
    for index in range(opening, len(tokens)):
        if tokens[index].kind == "operator":
            depth += (tokens[index].text in "([{") - (tokens[index].text in ")]}")
        if not depth:
            return index
    return len(tokens)


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

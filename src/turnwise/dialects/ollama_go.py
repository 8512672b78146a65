"""Parse Go's text/template language, as Ollama uses it, into a small tree.

    {{- range .Messages }}<|{{ .Role }}|>{{ .Content }}{{ end }}

    GoNode(range, term=.Messages, body=[text "<|", print .Role, text "|>", print .Content])

Parsed: text, actions, comments, the trimming of white space by `{{- ` and ` -}}`; `if`, `range`,
`with`, `else`, `break`, `continue`; variables; pipelines. What a function or a field means is up to
`ollama_values.py`. Refused, with the line: what Go itself refuses, and what no published template
uses: `define`, `template` and `block`, variables declared in parentheses, methods with arguments,
characters, numbers that are not decimal, escapes of single bytes.
"""

from __future__ import annotations

import ast
import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

from turnwise.errors import SourceError, short_repr

# Possessive quantifiers: an action that does not end is found at once, not after every way to cut it.
ACTION = re.compile(
    r"""\{\{(?:"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+'|`[^`]*+`|/\*(?:(?!\*/).)*+\*/|(?!\}\}|/\*)[^"'`])*+\}\}""",
    re.DOTALL,
)
COMMENT = re.compile(r"/\*(?:(?!\*/).)*+\*/", re.DOTALL)
# An operand has its fields with it, and so has a parenthesis: `.Role`, `$call.Function.Name`, `(...).Content`.
TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
      (?:
        (?P<string>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
      | (?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<operand>(?:\$\w*|[^\W\d]\w*)(?:\.[^\W\d]\w*)*|(?:\.[^\W\d]\w*)+|\.)
      | (?P<close>\)(?:\.[^\W\d]\w*)*)
      )(?=[\s|)]|$)
    | (?P<mark>:=|[=|(])
    )""",
    re.VERBOSE,
)
# Escapes that Python reads as Go does; those of bytes above 127 are parts of characters in Go.
STRING = re.compile(
    r'''"(?:[^\\"]|\\(?:[abfnrtv\\"]|[01][0-7]{2}|x[0-7][\da-fA-F]|u(?![dD][89a-fA-F])[\da-fA-F]{4}|U[\da-fA-F]{8}))*+"'''
)
TARGETS = re.compile(r"\$(\w+)\s*(?:,\s*\$(\w+)\s*)?(:?=)")
SPACE = " \t\r\n"
MAX_DEPTH = 200  # blocks within blocks, parentheses within parentheses
# The longest template of Ollama's library has a few hundred actions, the longest action a few dozen tokens.
MAX_PIECES = 4_000
MAX_ACTION_TOKENS = 800
MAX_INTEGER = 1 << 63
BLOCKS = ("if", "range", "with")
UNSUPPORTED = ("define", "template", "block")
CONTROLS = ("break", "continue")
CONSTANTS = {"true": "bool", "false": "bool", "nil": "nil"}

Tokens = deque[tuple[str, str]]  # kind and text


@dataclass(frozen=True, slots=True)
class GoTerm:
    """An operand: a constant, or a path of fields from the dot, from a variable or from a call.

    A term in parentheses with fields behind it is a call without a name.
    """

    kind: str  # constant, dot, variable, call
    line: int
    name: str = ""  # of a variable or function; of a constant: text, int, float, bool or nil
    value: str = ""  # of a constant: the text, or the number as Jinja
    path: tuple[str, ...] = ()
    arguments: tuple[GoTerm, ...] = ()
    is_applied: bool = False  # a call that already has its arguments


@dataclass(frozen=True, slots=True)
class GoNode:
    """A part of the template: text, print, set, if, range, with, break, continue."""

    kind: str
    line: int
    text: str = ""
    names: tuple[str, ...] = ()  # variables that it sets, without the $
    declares: bool = True  # := and not =
    term: GoTerm | None = None
    body: GoNodes = ()
    otherwise: GoNodes = ()


GoNodes = tuple[GoNode, ...]


class GoPiece(NamedTuple):
    """Text, or the inside of an action."""

    line: int
    text: str
    is_action: bool

    @property
    def keyword(self) -> str:
        """The first word of an action; empty for text."""
        found = re.match(r"\w+", self.text) if self.is_action else None
        return found[0] if found else ""

    @property
    def rest(self) -> str:
        """What follows the keyword."""
        return self.text[len(self.keyword) :].strip(SPACE)


class PieceReader:
    """The pieces of a template, read one by one."""

    def __init__(self, pieces: list[GoPiece]) -> None:
        self._pieces = pieces
        self._at = 0
        self.depth = 0
        self.loops = 0  # ranges around the current piece

    def next(self) -> GoPiece | None:
        """Return the next piece; None at the end."""
        if self._at == len(self._pieces):
            return None
        self._at += 1
        return self._pieces[self._at - 1]


def refuse(line: int, message: str, hint: str | None = None) -> NoReturn:
    """Raise the error for a line of the template."""
    raise SourceError(f"line {line} of the template: {message}", hint=hint)


def parse(text: str, first_line: int = 1) -> GoNodes:
    """Parse a template; `first_line` is the line of the file on which it begins."""
    reader = PieceReader(_scan(text, first_line))
    nodes, end = _parse_nodes(reader)
    if end is not None:
        refuse(end.line, f"{{{{ {end.text} }}}} without a block that it belongs to")
    return nodes


def walk_nodes(nodes: GoNodes) -> Iterator[GoNode]:
    """Yield all nodes, also those in blocks, in the order of the template."""
    for node in nodes:
        yield node
        yield from walk_nodes(node.body)
        yield from walk_nodes(node.otherwise)


def walk_terms(term: GoTerm | None) -> Iterator[GoTerm]:
    """Yield a term and the terms within it, also those of which a field is asked."""
    if term is not None:
        yield term
        for argument in term.arguments:
            yield from walk_terms(argument)


def _scan(text: str, first_line: int) -> list[GoPiece]:
    """Cut a template into texts and actions, with white space trimmed and comments removed."""
    pieces: list[GoPiece] = []
    at, trim_left, line = 0, False, first_line
    while (start := text.find("{{", at)) >= 0:
        action = ACTION.match(text, start)
        line += text.count("\n", at, start)
        if len(pieces) >= MAX_PIECES:
            refuse(line, f"the template has more than {MAX_PIECES} actions")
        if action is None:
            refuse(line, f"an action that does not end: {short_repr(text[start : start + 40])}")
        # "{{- " trims the white space before the action, " -}}" that after it.
        inner = action[0][2:-2]
        before = text[at:start].lstrip(SPACE) if trim_left else text[at:start]
        if inner[:1] == "-" and inner[1:2] in tuple(SPACE):
            inner, before = inner[2:], before.rstrip(SPACE)
        trim_left = inner[-1:] == "-" and inner[-2:-1] in tuple(SPACE)
        if trim_left:
            inner = inner[:-2]
        if before:
            pieces.append(GoPiece(line, before, is_action=False))
        if not COMMENT.fullmatch(inner):
            pieces.append(GoPiece(line, inner.strip(SPACE), is_action=True))
        at = action.end()
        line += action[0].count("\n")
    rest = text[at:].lstrip(SPACE) if trim_left else text[at:]
    if rest:
        pieces.append(GoPiece(line, rest, is_action=False))
    return pieces


# -- nodes -----------------------------------------------------------------------------------------


def _parse_nodes(reader: PieceReader) -> tuple[GoNodes, GoPiece | None]:
    """Return the nodes up to the `else` or `end` that ends the block, and that piece."""
    nodes: list[GoNode] = []
    while (piece := reader.next()) is not None:
        if piece.keyword in ("end", "else"):
            return tuple(nodes), piece
        nodes.append(_parse_node(reader, piece))
    return tuple(nodes), None


def _parse_node(reader: PieceReader, piece: GoPiece) -> GoNode:
    word = piece.keyword
    if not piece.is_action:
        return GoNode("text", piece.line, piece.text)
    if word in CONTROLS:
        if piece.rest or not reader.loops:
            refuse(piece.line, f"{word} belongs into a range, alone in its action")
        return GoNode(word, piece.line)
    if word in BLOCKS:
        return _parse_block(reader, word, piece.rest, piece.line)
    if word in UNSUPPORTED:
        hint = "Write the text where it belongs: published templates do not define others."
        refuse(piece.line, f"{word} is not supported", hint)
    return _parse_statement("print", piece.text, piece.line)


def _parse_block(reader: PieceReader, kind: str, head: str, line: int) -> GoNode:
    """Parse a block after its keyword; `else if` is a block in the else part."""
    reader.depth += 1
    if reader.depth > MAX_DEPTH:
        refuse(line, "blocks nested too deeply")
    statement = _parse_statement(kind, head, line)
    reader.loops += kind == "range"
    body, end = _parse_nodes(reader)
    reader.loops -= kind == "range"
    otherwise: GoNodes = ()
    has_nested_end = False
    if end is not None and end.keyword == "else":
        if end.rest:
            inner = end.rest.split(None, 1)[0]
            if inner != kind or kind == "range":
                hint = "Write else, else if (of an if) or else with (of a with)."
                refuse(end.line, f"else is followed by {inner!r}", hint)
            # The nested block also consumes the `end`.
            nested = _parse_block(reader, inner, end.rest[len(inner) :].strip(SPACE), end.line)
            otherwise, has_nested_end = (nested,), True
        else:
            otherwise, end = _parse_nodes(reader)
    if not has_nested_end and (end is None or end.text != "end"):
        refuse(line, f"{kind} has no end")
    reader.depth -= 1
    return replace(statement, body=body, otherwise=otherwise)


# -- pipelines -------------------------------------------------------------------------------------


def _parse_statement(kind: str, text: str, line: int) -> GoNode:
    """Parse a pipeline, with the variables that get its value."""
    names: tuple[str, ...] = ()
    declares = True
    pipeline = text
    if found := TARGETS.match(text):
        names = tuple(filter(None, found.group(1, 2)))
        declares = found[3] == ":="
        pipeline = text[found.end() :]
    tokens = _tokenize(pipeline, line)
    if len(names) > 1 and kind != "range" or any(value in (":=", "=") for _, value in tokens):
        hint = "A range gives values to two: $index, $item."
        refuse(line, f"a value is given to a variable like $x, not in {short_repr(text)}", hint)
    if kind == "range" and not declares:
        refuse(line, "a range that changes other variables (=) is not supported")
    if text.count("(") > MAX_DEPTH:
        refuse(line, "parentheses nested too deeply")
    term = _parse_pipeline(tokens, line)
    if tokens:
        refuse(line, f"cannot read {short_repr(tokens[0][1])} in {short_repr(text)}")
    if names and kind == "print":
        kind = "set"
    return GoNode(kind, line, names=names, declares=declares, term=term)


def _tokenize(text: str, line: int) -> Tokens:
    tokens: Tokens = deque()
    at, end = 0, len(text.rstrip(SPACE))
    while at < end:
        found = TOKEN.match(text, at)
        if found is None:
            hint = "Values are separated by spaces, and variables of a range by one comma."
            refuse(line, f"cannot read {short_repr(text[at:].strip())}", hint)
        kind = str(found.lastgroup)
        tokens.append((kind, found[kind]))
        at = found.end()
        if len(tokens) > MAX_ACTION_TOKENS:
            refuse(line, f"an action of more than {MAX_ACTION_TOKENS} words")
    return tokens


def _parse_pipeline(tokens: Tokens, line: int) -> GoTerm:
    """Parse commands joined by |, up to the end or a parenthesis; each has the previous value as its last argument."""
    term = _parse_command(tokens, None, line)
    while tokens and tokens[0][1] == "|":
        tokens.popleft()
        term = _parse_command(tokens, term, line)
    return term


def _parse_command(tokens: Tokens, piped: GoTerm | None, line: int) -> GoTerm:
    """Parse a function and its arguments, or a single operand."""
    terms: list[GoTerm] = []
    while tokens and tokens[0][0] != "close" and tokens[0][1] != "|":
        terms.append(_parse_operand(tokens, line))
    if not terms:
        refuse(line, "a value is missing")
    head, *arguments = terms
    if piped is not None:
        arguments.append(piped)
    if head.kind == "call" and not head.is_applied:
        return replace(head, arguments=tuple(arguments), is_applied=True)
    if arguments:
        name = ".".join(head.path) or head.name or head.value
        refuse(line, f"{name} takes no arguments: only functions do")
    return head


def _parse_operand(tokens: Tokens, line: int) -> GoTerm:
    """Parse a constant, or another operand with the fields behind it."""
    kind, text = tokens.popleft()
    if kind == "string":
        return GoTerm("constant", line, "text", _unquote(text, line))
    if kind == "number":
        return _parse_number(text, line)
    if text in CONSTANTS:
        return GoTerm("constant", line, CONSTANTS[text], "none" if text == "nil" else text)
    if text == "(":
        inner = _parse_pipeline(tokens, line)
        if not tokens:
            refuse(line, "a parenthesis that does not end")
        path = tuple(tokens.popleft()[1].split(".")[1:])
        return GoTerm("call", line, path=path, arguments=(inner,), is_applied=True)
    name, *fields = text.split(".")
    path = tuple(filter(None, fields))
    if not name:
        return GoTerm("dot", line, path=path)
    if name.startswith("$"):
        return GoTerm("variable", line, name[1:], path=path)
    if not path:
        return GoTerm("call", line, name)  # a function whose arguments may follow
    call = GoTerm("call", line, name, is_applied=True)
    return GoTerm("call", line, path=path, arguments=(call,), is_applied=True)


# -- constants -------------------------------------------------------------------------------------


def _parse_number(text: str, line: int) -> GoTerm:
    value = float(text)
    is_whole = text.lstrip("+-").isdigit()
    if re.match("[+-]?0[0-9]", text) or not abs(value) < (MAX_INTEGER if is_whole else math.inf):
        refuse(line, f"the number {short_repr(text)} is too large, or not decimal")
    if not is_whole:
        return GoTerm("constant", line, "float", repr(value))
    return GoTerm("constant", line, "int", f"({int(text)})" if value < 0 else str(int(text)))


def _unquote(text: str, line: int) -> str:
    if text.startswith("`"):
        return text[1:-1].replace("\r", "")
    try:
        if STRING.fullmatch(text):
            return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        pass  # a character that does not exist
    refuse(line, f"an unknown escape in {short_repr(text)}")

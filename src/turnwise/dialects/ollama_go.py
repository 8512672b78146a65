"""Parse the part of Go's text/template that Ollama's library uses into a small tree.

    {{- range .Messages }}<|{{ .Role }}|>{{ .Content }}{{ end }}

    GoNode(range, term=.Messages, body=[text "<|", print .Role, text "|>", print .Content])

Supported: text and actions; `if`, `range`, `with`, `else`, `break`, `continue`, `end`; variables;
pipelines of functions; the trimming of white space by `{{- ` and ` -}}`, done while scanning. What
a function or a field means is up to `ollama_jinja.py`. Refused, with the line: `define`,
`template`, `block`, methods with arguments, complex numbers.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from turnwise.errors import SourceError, short_repr

# Possessive quantifiers: an action that does not end is found at once, not after every way to cut it.
ACTION = re.compile(
    r'\{\{(?:"(?:[^"\\\n]|\\.)*+"|`[^`]*+`|/\*(?:(?!\*/).)*+\*/|(?!\}\}|/\*)[^"`])*+\}\}', re.DOTALL
)
TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\\n]|\\.)*"|`[^`]*`)
    | (?P<number>[+-]?\d+(?:\.\d+)?)
    | (?P<variable>\$\w*(?:\.\w+)*)
    | (?P<field>(?:\.[A-Za-z_]\w*)+)
    | (?P<dot>\.)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark>:=|[=|(),])
    )""",
    re.VERBOSE,
)
SPACE = " \t\r\n"
MAX_DEPTH = 200  # blocks within blocks, parentheses within parentheses
# The longest template of Ollama's library has a few hundred actions, the longest action a few dozen tokens.
MAX_PIECES = 4_000
MAX_ACTION_TOKENS = 400
KEYWORDS = ("if", "range", "with", "else", "end", "break", "continue")
UNSUPPORTED_KEYWORDS = ("define", "template", "block")
CONSTANTS = {"true": "true", "false": "false", "nil": "none"}

Tokens = list[tuple[str, str]]  # kind and text


@dataclass(frozen=True, slots=True)
class GoTerm:
    """An operand: a constant, or a path of fields from the dot, from a variable or from a call."""

    kind: str  # constant, dot, variable, call
    line: int
    name: str = ""  # of a variable or function; of a constant: "text" or "number"
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
    body: tuple[GoNode, ...] = ()
    otherwise: tuple[GoNode, ...] = ()


class GoPiece(NamedTuple):
    """Text, or the inside of an action."""

    line: int
    text: str
    is_action: bool

    @property
    def keyword(self) -> str:
        """The first word of an action; empty for text."""
        return self.text.split(None, 1)[0] if self.is_action and self.text else ""


class PieceReader:
    """The pieces of a template, read one by one."""

    def __init__(self, pieces: list[GoPiece]) -> None:
        self._pieces = pieces
        self._at = 0
        self.depth = 0

    def next(self) -> GoPiece | None:
        """Return the next piece; None at the end."""
        if self._at == len(self._pieces):
            return None
        self._at += 1
        return self._pieces[self._at - 1]


def refuse(line: int, message: str, hint: str | None = None) -> NoReturn:
    """Raise the error for a line of the template."""
    raise SourceError(f"line {line} of the template: {message}", hint=hint)


def parse(text: str, first_line: int = 1) -> tuple[GoNode, ...]:
    """Parse a template; `first_line` is the line of the file on which it begins."""
    nodes, end = _parse_nodes(PieceReader(_scan(text, first_line)))
    if end is not None:
        refuse(end.line, f"{{{{ {end.text} }}}} without a block that it belongs to")
    return nodes


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
            inner, before = inner[1:], before.rstrip(SPACE)
        trim_left = inner[-1:] == "-" and inner[-2:-1] in tuple(SPACE)
        if trim_left:
            inner = inner[:-1]
        if before:
            pieces.append(GoPiece(line, before, is_action=False))
        if not inner.strip().startswith("/*"):
            pieces.append(GoPiece(line, inner.strip(), is_action=True))
        at = action.end()
        line += action[0].count("\n")
    rest = text[at:].lstrip(SPACE) if trim_left else text[at:]
    if rest:
        pieces.append(GoPiece(line, rest, is_action=False))
    return pieces


def _parse_nodes(reader: PieceReader) -> tuple[tuple[GoNode, ...], GoPiece | None]:
    """Return the nodes up to the `else` or `end` that ends the block, and that piece."""
    nodes = []
    while (piece := reader.next()) is not None:
        line, text, is_action = piece
        word = piece.keyword
        if not is_action:
            nodes.append(GoNode("text", line, text))
        elif word in ("end", "else"):
            return tuple(nodes), piece
        elif word in UNSUPPORTED_KEYWORDS:
            refuse(line, f"{word!r} is not supported", f"Supported: {', '.join(KEYWORDS)}.")
        elif word in ("break", "continue"):
            nodes.append(GoNode(word, line))
        elif word in ("if", "range", "with"):
            nodes.append(_parse_block(reader, word, text[len(word) :], line))
        else:
            nodes.append(_parse_statement("print", text, line))
    return tuple(nodes), None


def _parse_block(reader: PieceReader, kind: str, head: str, line: int) -> GoNode:
    """Parse a block after its keyword; `else if` is a block in the else part."""
    reader.depth += 1
    if reader.depth > MAX_DEPTH:
        refuse(line, "blocks nested too deeply")
    statement = _parse_statement(kind, head, line)
    body, end = _parse_nodes(reader)
    otherwise: tuple[GoNode, ...] = ()
    rest = ""
    if end is not None and end.keyword == "else":
        rest = end.text.removeprefix("else").strip()
        if rest:
            word = rest.split(None, 1)[0]
            if word not in ("if", "with"):
                hint = "Write else, else if or else with."
                refuse(end.line, f"else is followed by {word!r}", hint)
            # The nested block also consumes the `end`.
            otherwise = (_parse_block(reader, word, rest[len(word) :], end.line),)
        else:
            otherwise, end = _parse_nodes(reader)
    if not rest and (end is None or end.text != "end"):
        refuse(line, f"{kind} has no end")
    reader.depth -= 1
    return GoNode(
        kind, line, names=statement.names, term=statement.term, body=body, otherwise=otherwise
    )


def _parse_statement(kind: str, text: str, line: int) -> GoNode:
    """Parse a pipeline, with the variables that get its value."""
    tokens = _tokenize(text, line)
    if text.count("(") > MAX_DEPTH:
        refuse(line, "parentheses nested too deeply")
    names: tuple[str, ...] = ()
    declares = True
    for index, (token, value) in enumerate(tokens):
        if token == "mark" and value in (":=", "="):
            names = _parse_targets(tokens[:index], kind, text, line)
            declares = value == ":="
            tokens = tokens[index + 1 :]
            break
    term, rest = _parse_pipeline(tokens, line)
    if rest:
        refuse(line, f"cannot read {short_repr(rest[0][1])} in {short_repr(text)}")
    if names and kind == "print":
        kind = "set"
    return GoNode(kind, line, names=names, declares=declares, term=term)


def _parse_targets(tokens: Tokens, kind: str, text: str, line: int) -> tuple[str, ...]:
    """Return the names of the variables before := or =."""
    variables = [value for _, value in tokens if value != ","]
    if not variables or not all(name.startswith("$") and "." not in name for name in variables):
        refuse(line, f"a value can only be given to a variable like $x, not in {short_repr(text)}")
    if len(variables) > (2 if kind == "range" else 1):
        refuse(line, f"too many variables: {short_repr(text)}")
    return tuple(name[1:] for name in variables)


def _tokenize(text: str, line: int) -> Tokens:
    tokens, at = [], 0
    end = len(text.rstrip())
    while at < end:
        found = TOKEN.match(text, at)
        if found is None:
            refuse(line, f"cannot read {short_repr(text[at:].strip())}")
        tokens.append((str(found.lastgroup), found[found.lastgroup or 0]))
        at = found.end()
        if len(tokens) > MAX_ACTION_TOKENS:
            refuse(line, f"an action of more than {MAX_ACTION_TOKENS} words")
    return tokens


def _parse_pipeline(tokens: Tokens, line: int) -> tuple[GoTerm, Tokens]:
    """Parse commands joined by |; each takes the previous value as its last argument."""
    term, tokens = _parse_command(tokens, None, line)
    while tokens and tokens[0][1] == "|":
        term, tokens = _parse_command(tokens[1:], term, line)
    return term, tokens


def _parse_command(tokens: Tokens, piped: GoTerm | None, line: int) -> tuple[GoTerm, Tokens]:
    """Parse a function and its arguments, or a single operand."""
    terms: list[GoTerm] = []
    while tokens and tokens[0][1] not in ("|", ")"):
        term, tokens = _parse_operand(tokens, line)
        terms.append(term)
    if not terms:
        refuse(line, "a value is missing")
    head, *arguments = terms
    if piped is not None:
        arguments.append(piped)
    if head.kind == "call" and not head.is_applied:
        call = GoTerm("call", line, head.name, arguments=tuple(arguments), is_applied=True)
        return call, tokens
    if arguments:
        name = ".".join(head.path) or head.name or head.value
        refuse(line, f"{name} takes no arguments: only functions do")
    return head, tokens


def _parse_operand(tokens: Tokens, line: int) -> tuple[GoTerm, Tokens]:
    (kind, text), tokens = tokens[0], tokens[1:]
    if kind == "string":
        return GoTerm("constant", line, "text", _unquote(text, line)), tokens
    if kind == "number" or text in CONSTANTS:
        return GoTerm("constant", line, "number", CONSTANTS.get(text, text)), tokens
    if kind == "variable":
        name, *fields = text[1:].split(".")
        return GoTerm("variable", line, name, path=tuple(fields)), tokens
    if kind in ("field", "dot"):
        return GoTerm("dot", line, path=_split_path(text)), tokens
    if kind == "word":
        return GoTerm("call", line, text), tokens  # a function whose arguments may follow
    if text == "(":
        term, tokens = _parse_pipeline(tokens, line)
        if not tokens or tokens[0][1] != ")":
            refuse(line, "a parenthesis that does not end")
        tokens = tokens[1:]
        if tokens and tokens[0][0] == "field":
            path = _split_path(tokens[0][1])
            field = GoTerm("call", line, path=path, arguments=(term,), is_applied=True)
            return field, tokens[1:]
        return term, tokens
    refuse(line, f"cannot read {short_repr(text)}")


def _split_path(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(".")))


def _unquote(text: str, line: int) -> str:
    """Return the value of a Go string; the escapes are those of JSON, near enough."""
    if text.startswith("`"):
        return text[1:-1]
    as_json = re.sub(r"\\x([0-9a-fA-F]{2})", r"\\u00\1", text).replace("\\'", "'")
    try:
        return str(json.loads(as_json, strict=False))
    except ValueError:
        refuse(line, f"an unknown escape in {short_repr(text)}")

"""The part of Go's text/template that Ollama's library uses, read into a small tree.

Text and actions; `if`, `range`, `with`, `else`, `break`, `continue`, `end`; variables; pipelines of functions; the
trimming of whitespace by `{{- ` and ` -}}`, done while translation. What a function or a field means is not known here.
Refused with the line: `define`, `template`, `block`, methods with arguments, complex numbers.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import NoReturn

from turnwise.errors import SourceError, short_repr

# possessive: an action that does not end is told at once, not after every way to cut it
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
DEPTH = 200  # blocks within blocks, parentheses within parentheses
KEYWORDS = ("if", "range", "with", "else", "end", "break", "continue")
REFUSED = ("define", "template", "block")
CONSTANTS = {"true": "true", "false": "false", "nil": "none"}


@dataclass(frozen=True, slots=True)
class GoTerm:
    """An operand: a constant (`value`, already Jinja), a path from the dot, a variable or a call, or a call itself."""

    kind: str  # constant, dot, variable, call
    line: int
    name: str = ""  # of a variable or function
    value: str = ""
    path: tuple[str, ...] = ()
    arguments: tuple[GoTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class GoNode:
    """A piece of the template: text, print, set, if, range, with, break, continue."""

    kind: str
    line: int
    text: str = ""
    names: tuple[str, ...] = ()  # variables that this declares, without the $
    declares: bool = True  # := and not =
    term: GoTerm | None = None
    body: tuple[GoNode, ...] = ()
    otherwise: tuple[GoNode, ...] = ()


@dataclass(slots=True)
class PieceReader:
    """Pieces in a row, and how far they are read."""

    pieces: list[tuple[int, str, bool]] = field(
        default_factory=list
    )  # line, text, whether it is an action
    at: int = 0
    depth: int = 0


def refuse(line: int, message: str, hint: str | None = None) -> NoReturn:
    raise SourceError(f"line {line} of the template: {message}", hint=hint)


def parse(text: str, first_line: int = 1) -> tuple[GoNode, ...]:
    """The template as a tree."""
    source = PieceReader(pieces(text, first_line))
    nodes, ended = block(source)
    if ended is not None:
        refuse(ended[0], f"{{{{ {ended[1]} }}}} without a block that it belongs to")
    return nodes


def pieces(text: str, first_line: int) -> list[tuple[int, str, bool]]:
    """Text and actions in turn; whitespace trimmed, comments gone."""
    found: list[tuple[int, str, bool]] = []
    at, trim = 0, False
    while (start := text.find("{{", at)) >= 0:
        action = ACTION.match(text, start)
        line = first_line + text.count("\n", 0, start)
        if action is None:
            refuse(line, f"an action that does not end: {short_repr(text[start : start + 40])}")
        inner = action[0][2:-2]
        before = text[at:start].lstrip(SPACE) if trim else text[at:start]
        if inner[:1] == "-" and inner[1:2] in tuple(SPACE):
            inner, before = inner[1:], before.rstrip(SPACE)
        trim = inner[-1:] == "-" and inner[-2:-1] in tuple(SPACE)
        inner = (inner[:-1] if trim else inner).strip()
        found += [(line, before, False)] if before else []
        found += [] if inner.startswith("/*") else [(line, inner, True)]
        at = action.end()
    rest = text[at:].lstrip(SPACE) if trim else text[at:]
    return found + ([(first_line + text.count("\n", 0, at), rest, False)] if rest else [])


def block(source: PieceReader) -> tuple[tuple[GoNode, ...], tuple[int, str] | None]:
    """Nodes up to the `else` or `end` that ends the block, and that action with its line."""
    nodes = []
    while source.at < len(source.pieces):
        line, text, action = source.pieces[source.at]
        source.at += 1
        word = text.split(None, 1)[0] if action and text else ""
        if not action:
            nodes.append(GoNode("text", line, text))
        elif word in ("end", "else"):
            return tuple(nodes), (line, text)
        elif word in REFUSED:
            refuse(line, f"{word!r} is not supported", f"Supported: {', '.join(KEYWORDS)}.")
        elif word in ("break", "continue"):
            nodes.append(GoNode(word, line))
        elif word in ("if", "range", "with"):
            nodes.append(branch(source, word, text[len(word) :], line))
        else:
            nodes.append(statement("print", text, line))
    return tuple(nodes), None


def branch(source: PieceReader, kind: str, head: str, line: int) -> GoNode:
    """A block with its condition; `else if` is a block in the else part."""
    source.depth += 1
    if source.depth > DEPTH:
        refuse(line, "blocks nested too deeply")
    opened = statement(kind, head, line)
    body, ended = block(source)
    otherwise: tuple[GoNode, ...] = ()
    if ended is not None and ended[1] != "end":
        rest = ended[1][len("else") :].strip()
        if rest:
            word = rest.split(None, 1)[0]
            if word not in ("if", "with"):
                refuse(
                    ended[0], f"else is followed by {word!r}", "Write else, else if or else with."
                )
            otherwise = (branch(source, word, rest[len(word) :], ended[0]),)
            source.depth -= 1
            return GoNode(
                kind, line, names=opened.names, term=opened.term, body=body, otherwise=otherwise
            )
        otherwise, ended = block(source)
    if ended is None or ended[1] != "end":
        refuse(line, f"{kind} has no end")
    source.depth -= 1
    return GoNode(kind, line, names=opened.names, term=opened.term, body=body, otherwise=otherwise)


def statement(kind: str, text: str, line: int) -> GoNode:
    """A pipeline, with the variables that take its value."""
    tokens = lex(text, line)
    if text.count("(") > DEPTH:
        refuse(line, "parentheses nested too deeply")
    marks = [
        index
        for index, (token, value) in enumerate(tokens)
        if token == "mark" and value in (":=", "=")
    ]
    names: tuple[str, ...] = ()
    declares = True
    if marks:
        left = [value for token, value in tokens[: marks[0]] if value != ","]
        names, declares = tuple(value[1:] for value in left), tokens[marks[0]][1] == ":="
        if not left or not all(value.startswith("$") and "." not in value for value in left):
            refuse(line, f"a value is given to a variable like $x, not to {short_repr(text)}")
        if len(names) > (2 if kind == "range" else 1):
            refuse(line, f"too many variables: {short_repr(text)}")
        tokens = tokens[marks[0] + 1 :]
    term, rest = pipeline(tokens, line)
    if rest:
        refuse(line, f"cannot read {short_repr(rest[0][1])} in {short_repr(text)}")
    return GoNode(
        "set" if names and kind == "print" else kind,
        line,
        names=names,
        declares=declares,
        term=term,
    )


def lex(text: str, line: int) -> list[tuple[str, str]]:
    tokens, at = [], 0
    end = len(text.rstrip())
    while at < end:
        found = TOKEN.match(text, at)
        if found is None:
            refuse(line, f"cannot read {short_repr(text[at:].strip())}")
        tokens.append((str(found.lastgroup), found[found.lastgroup or 0]))
        at = found.end()
    return tokens


Tokens = list[tuple[str, str]]


def pipeline(tokens: Tokens, line: int) -> tuple[GoTerm, Tokens]:
    """Commands joined by |; each takes the value before as its last argument."""
    value: GoTerm | None = None
    while True:
        value, tokens = command(tokens, value, line)
        if not tokens or tokens[0][1] != "|":
            return value, tokens
        tokens = tokens[1:]


def command(tokens: Tokens, piped: GoTerm | None, line: int) -> tuple[GoTerm, Tokens]:
    """A function and its arguments, or a single operand."""
    terms: list[GoTerm] = []
    while tokens and tokens[0][1] not in ("|", ")"):
        term, tokens = operand(tokens, line)
        terms.append(term)
    if not terms:
        refuse(line, "a value is missing")
    head, *rest = terms
    if head.kind == "call" and not head.value:
        return GoTerm(
            "call", line, head.name, "called", (), (*rest, *([piped] if piped else []))
        ), tokens
    if rest or piped:
        refuse(
            line,
            f"{'.'.join(head.path) or head.name or head.value} takes no arguments: only functions do",
        )
    return head, tokens


def operand(tokens: Tokens, line: int) -> tuple[GoTerm, Tokens]:
    (kind, text), tokens = tokens[0], tokens[1:]
    if kind == "string":
        return GoTerm("constant", line, "text", unquoted(text, line)), tokens
    if kind == "number" or text in CONSTANTS:
        return GoTerm("constant", line, "number", CONSTANTS.get(text, text)), tokens
    if kind == "variable":
        name, *fields = text[1:].split(".")
        return GoTerm("variable", line, name, path=tuple(fields)), tokens
    if kind in ("field", "dot"):
        return GoTerm("dot", line, path=tuple(filter(None, text.split(".")))), tokens
    if kind == "word":
        return GoTerm("call", line, text), tokens  # a function whose arguments follow
    if text == "(":
        term, tokens = pipeline(tokens, line)
        if not tokens or tokens[0][1] != ")":
            refuse(line, "a parenthesis that does not end")
        tokens = tokens[1:]
        if tokens and tokens[0][0] == "field":
            fields = tuple(filter(None, tokens[0][1].split(".")))
            return GoTerm("call", line, "", "called", fields, (term,)), tokens[1:]
        return term, tokens
    refuse(line, f"cannot read {short_repr(text)}")


def unquoted(text: str, line: int) -> str:
    """What a Go string says. Raw ones say what they hold; the escapes of the others are those of JSON, near enough."""
    if text.startswith("`"):
        return text[1:-1]
    plain = re.sub(r"\\x([0-9a-fA-F]{2})", r"\\u00\1", text).replace("\\'", "'")
    try:
        return str(json.loads(plain, strict=False))
    except ValueError:
        refuse(line, f"an escape that is not known, in {short_repr(text)}")

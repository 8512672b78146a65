"""From text to jinja2's tree, with columns, within limits.

The parser is jinja2's own, configured as transformers configures it (`trim_blocks`, `lstrip_blocks`, loop controls,
`{% generation %}`), so the syntax is exact. Two things are ours:

* The scanner. jinja2's keeps line numbers only and tries six patterns per token; this one tries one pattern and
  knows columns. It packs both into the one integer that jinja2 carries through its tree as `lineno`
  (`place` unpacks it). The patterns themselves are jinja2's; a test compares the two token by token.
* The limits. A text is refused before it is read if it is too long, while it is read if it has too many tokens or
  brackets within brackets, and after that if its tree is too deep to walk. jinja2 folds constants while compiling,
  which is how 23 bytes can hang it; here nothing is evaluated before a rendering pays for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2._identifier import pattern as name_re
from jinja2.ext import Extension, loopcontrols
from jinja2.lexer import Lexer, float_re, integer_re, newline_re
from jinja2.parser import Parser

from turnwise.engine.runtime.limits import NESTING, TEMPLATE_CHARACTERS, TEMPLATE_TOKENS
from turnwise.errors import TemplateLimitError, TemplateSyntaxError

COLUMN_BITS = 21
TREE_DEPTH = 150

CLOSING = {"{": "}", "(": ")", "[": "]"}
TAG_TOKEN = re.compile(
    r"(?P<whitespace>\s+)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*+(?![^\x00-\x7f]))"
    r"|(?P<string>'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\")"
    r"|(?P<operator>//|\*\*|==|!=|>=|<=|[-+/*%~\[\](){}><=.:|,;])",
    re.S,
)
DIGITS = 400
LONG_NUMBER = re.compile(f"[0-9][0-9A-Za-z_]{{{DIGITS}}}")
RARE_TOKENS = (("float", float_re), ("integer", integer_re), ("name", name_re))
TAG_END = {
    "block": re.compile(r"\+%}|-%}\s*|%}\n?"),
    "variable": re.compile(r"-}}\s*|}}"),
}
COMMENT_END = re.compile(r"(.*?)(\+#}|-#}\s*|#}\n?)", re.S)
RAW_END = re.compile(r"(.*?)(\{%([-+]?)\s*endraw\s*(?:\+%}|-%}\s*|%}\n?))", re.S)
OPENING = re.compile(r"\{(?:(%([-+]?)\s*raw\s*(?:-%}\s*|%}))|(%[-+]?)|(\{[-+]?)|(#[-+]?))")
OPENING_NAMES = (None, "raw", None, "block", "variable", "comment")


def place(lineno: int) -> tuple[int, int]:
    """Line and column (both from 1) of a node's `lineno`."""
    return lineno >> COLUMN_BITS, lineno & ((1 << COLUMN_BITS) - 1)


class Scanner(Lexer):
    """jinja2's lexer with `tokeniter` replaced; `wrap`, which gives tokens their values, is inherited."""

    def tokeniter(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> Iterator[tuple[int, str, str]]:
        return iter(Scan(unified(source)).run())


class Scan:
    """A position in the text; knows its line and column, and collects tokens. Method names are kinds of tags."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.line_start = 0
        self.tokens: list[tuple[int, str, str]] = []

    def run(self) -> list[tuple[int, str, str]]:
        text = self.text
        while self.at < len(text):
            opening = OPENING.search(text, self.at)
            if opening is None:
                self.token("data", text[self.at :])
                break
            kind = OPENING_NAMES[opening.lastindex or 0] or ""
            sign = opening[2] if kind == "raw" else opening[0][2:]
            data = trimmed(
                text[self.at : opening.start()], sign, kind != "variable", self.line_starting()
            )
            if data:
                self.token("data", data)
            self.move(opening.start())
            self.token(f"{kind}_begin", opening[0])
            getattr(self, kind)()
        return self.tokens

    def token(self, kind: str, value: str) -> None:
        """Take the token that starts here, and move behind it."""
        self.tokens.append((self.lineno(), kind, value))
        if len(self.tokens) > TEMPLATE_TOKENS:
            raise too_large(f"more than {TEMPLATE_TOKENS} tokens", self.lineno())
        self.move(self.at + len(value))

    def lineno(self) -> int:
        return self.line << COLUMN_BITS | self.at - self.line_start + 1

    def line_starting(self) -> bool:
        return self.at == 0 or self.text[self.at - 1] == "\n"

    def move(self, to: int) -> None:
        newlines = self.text.count("\n", self.at, to)
        if newlines:
            self.line += newlines
            self.line_start = self.text.rindex("\n", self.at, to) + 1
        self.at = to

    def block(self) -> None:
        self.tag("block")

    def variable(self) -> None:
        self.tag("variable")

    def tag(self, kind: str) -> None:
        """The tokens of one tag, its end included. An end inside brackets is no end."""
        text, end, match = self.text, TAG_END[kind], TAG_TOKEN.match
        open_brackets: list[str] = []
        while self.at < len(text):
            if not open_brackets and text[self.at] in "-+%}":
                found = end.match(text, self.at)
                if found:
                    self.token(f"{kind}_end", found[0])
                    return
            token = match(text, self.at)
            if token is None:
                self.rare()
                continue
            name = token.lastgroup or ""
            if (
                name == "name" or name == "operator"
            ):  # no newline in these, so the position is quick to follow
                if name == "operator":
                    self.balance(token[0], open_brackets)
                self.tokens.append((self.lineno(), name, token[0]))
                self.at = token.end()
            else:
                self.token(name, token[0])

    def balance(self, operator: str, open_brackets: list[str]) -> None:
        if operator in CLOSING:
            open_brackets.append(CLOSING[operator])
            if len(open_brackets) > NESTING:
                raise too_large(
                    f"more than {NESTING} brackets within brackets", self.lineno(), "depth"
                )
        elif operator in ("}", ")", "]"):
            expected = open_brackets.pop() if open_brackets else None
            if expected != operator:
                wanted = f", expected {expected!r}" if expected else ""
                raise jinja2.TemplateSyntaxError(f"unexpected {operator!r}{wanted}", self.lineno())
        if len(self.tokens) > TEMPLATE_TOKENS:
            raise too_large(f"more than {TEMPLATE_TOKENS} tokens", self.lineno())

    def rare(self) -> None:
        """Numbers and names beyond ASCII."""
        if LONG_NUMBER.match(self.text, self.at):
            raise too_large(f"a number of more than {DIGITS} digits", self.lineno())
        for name, pattern in RARE_TOKENS:
            found = pattern.match(self.text, self.at)
            if found:
                return self.token(name, found[0])
        raise jinja2.TemplateSyntaxError(
            f"unexpected character {self.text[self.at]!r}", self.lineno()
        )

    def comment(self) -> None:
        found = COMMENT_END.match(self.text, self.at)
        if found:
            if found[1]:
                self.token("comment", found[1])
            self.token("comment_end", found[2])
        elif self.at < len(self.text):
            raise jinja2.TemplateSyntaxError(
                "this comment has no end: '#}' is missing", self.lineno()
            )

    def raw(self) -> None:
        found = RAW_END.match(self.text, self.at)
        if found:
            data = trimmed(found[1], found[3], True, self.line_starting())
            if data:
                self.token("data", data)
            self.move(found.start(2))
            self.token("raw_end", found[2])
        elif self.at < len(self.text):
            raise jinja2.TemplateSyntaxError(
                "this raw block has no end: '{% endraw %}' is missing", self.lineno()
            )


def unified(source: str) -> str:
    """The text as jinja2 sees it: newlines are `\\n`, and one at the very end is dropped."""
    if "\r" in source:
        source = newline_re.sub("\n", source)
    return source[:-1] if source.endswith("\n") else source


def trimmed(data: str, sign: str, strip_line: bool, line_starting: bool) -> str:
    """Data before a tag: `-` takes all white space before it, `lstrip_blocks` that of its own line."""
    if sign == "-":
        return data.rstrip()
    if sign != "+" and strip_line:
        line = data.rfind("\n") + 1
        if (line > 0 or line_starting) and (data[line:].isspace()):
            return data[:line]
    return data


class Generation(Extension):
    """`{% generation %}`: the text the model writes. Parsed as transformers does: a call block, so it is a scope."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("generation"), [], [], body).set_lineno(lineno)


class Environment(jinja2.Environment):
    """Only parses. Filters and tests are looked up in our own tables, so this one has none to offer."""

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, loopcontrols],
            cache_size=0,
        )
        self._scanner = Scanner(self)

    @property
    def lexer(self) -> Scanner:
        return self._scanner


ENVIRONMENT = Environment()


def parse(text: str, name: str) -> nodes.Template:
    """The tree of a template, or an error that says where it is not one."""
    if not isinstance(text, str):
        raise TemplateSyntaxError(f"a template is text, not {type(text).__name__}", name=name)
    if len(text) > TEMPLATE_CHARACTERS:
        raise too_large(f"{len(text)} characters, more than {TEMPLATE_CHARACTERS}", None).at(name)
    refuse_surrogates(text, name)
    try:
        tree = Parser(ENVIRONMENT, text, name).parse()
    except jinja2.TemplateSyntaxError as error:
        raise located(
            TemplateSyntaxError, error.message or "not a template", text, name, error.lineno
        ) from None
    except TooLarge as error:
        raise error.at(name, text) from None
    except RecursionError:
        raise too_large("expressions or blocks nested too deeply", None, "depth").at(name) from None
    except ValueError as error:  # an integer literal longer than Python reads
        raise TemplateSyntaxError(str(error), name=name) from None
    refuse_depth(tree, text, name)
    return tree


def located(kind: Any, message: str, text: str, name: str, lineno: int | None, **rest: Any) -> Any:
    """An error of this kind, with the source line at `lineno`."""
    line, column = place(lineno or (1 << COLUMN_BITS | 1))
    lines = unified(text).split("\n")
    shown = lines[line - 1] if 0 < line <= len(lines) else None
    return kind(message, name=name, line=line, column=column, source_line=shown, **rest)


class TooLarge(Exception):
    """Raised inside the scanner, which does not know the template's name."""

    def __init__(self, what: str, lineno: int | None, budget: str) -> None:
        self.what, self.lineno, self.budget = what, lineno, budget

    def at(self, name: str, text: str = "") -> TemplateLimitError:
        message = f"the template is too large: {self.what}"
        if self.lineno is None:
            return TemplateLimitError(message, budget=self.budget, name=name)
        error: TemplateLimitError = located(
            TemplateLimitError, message, text, name, self.lineno, budget=self.budget
        )
        return error


def too_large(what: str, lineno: int | None, budget: str = "size") -> TooLarge:
    return TooLarge(what, lineno, budget)


def refuse_surrogates(text: str, name: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        column = error.start - text.rfind("\n", 0, error.start)
        raise TemplateSyntaxError(
            f"half of a surrogate pair (U+{ord(text[error.start]):04X}) cannot be written as UTF-8",
            name=name,
            line=line,
            column=column,
        ) from None


def refuse_depth(tree: nodes.Node, text: str, name: str) -> None:
    """Walk the tree level by level; chains of `+` and `~` are flat to us and do not count."""
    level: list[nodes.Node] = [tree]
    for _ in range(TREE_DEPTH):
        level = [child for node in level for child in flat_children(node)]
        if not level:
            return
    raise too_large("expressions or blocks nested too deeply", level[0].lineno, "depth").at(
        name, text
    )


def flat_children(node: nodes.Node) -> Iterator[nodes.Node]:
    """The nodes below a node, with a chain of `+` seen as one."""
    return iter(flatten_chain(node)) if isinstance(node, nodes.Add) else node.iter_child_nodes()


def flatten_chain(node: nodes.BinExpr) -> list[nodes.Expr]:
    """`a + b + c` as [a, b, c], without recursion."""
    right: list[nodes.Expr] = []
    left: nodes.Expr = node
    while type(left) is type(node):
        right.append(left.right)
        left = left.left
    return [left, *reversed(right)]

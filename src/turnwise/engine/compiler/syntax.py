"""Parse a template to jinja2's syntax tree, with columns and within limits.

The parser is jinja2's own, configured as transformers configures it (`trim_blocks`, `lstrip_blocks`, loop controls,
`{% generation %}`), so the syntax is exact. Two things are ours:

* The scanner. jinja2's own keeps line numbers only and tries six patterns per token; this one tries one pattern and
  knows columns. It packs both into the one integer that jinja2 carries through its tree as `lineno`
  (`unpack_position`). The patterns themselves are jinja2's; a test compares the two token by token.
* The limits. A text is refused if it is too long, if it has too many tokens or nested brackets, a number or a name that
  nobody would write, or if its tree is too deep to walk. jinja2 folds constants while compiling, so 23 bytes can hang
  it; here nothing is evaluated before a rendering is charged for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2._identifier import pattern as name_re
from jinja2.ext import Extension, loopcontrols
from jinja2.lexer import Lexer, float_re, integer_re
from jinja2.parser import Parser

from turnwise.engine.compiler.tree import flat_children
from turnwise.engine.runtime.limits import (
    MAX_NESTING,
    MAX_SCANNED_TOKENS,
    MAX_TEMPLATE_CHARACTERS,
    MAX_TEMPLATE_NAMES,
    MAX_TEMPLATE_NODES,
    MAX_TEMPLATE_TOKENS,
)
from turnwise.errors import TemplateError, TemplateLimitError, TemplateSyntaxError

COLUMN_BITS = 21
MAX_TREE_DEPTH = 150
MAX_COMPARISONS = 16  # in one chain, `a < b < c`; known templates have one
MAX_BRANCHES = 60  # of one `if`; known templates have at most 31
MAX_OPERANDS = 100  # of one chain of `+`; known templates have 27
TOO_DEEP = "expressions or blocks nested too deeply"

CLOSING = {"{": "}", "(": ")", "[": "]"}
TAG_TOKEN = re.compile(
    r"(?P<whitespace>\s+)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*+(?![^\x00-\x7f]))"
    r"|(?P<string>'[^'\\]*+(?:\\.[^'\\]*+)*+'|\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\")"
    r"|(?P<operator>//|\*\*|==|!=|>=|<=|[-+/*%~\[\](){}><=.:|,;])",
    re.S,
)
MAX_DIGITS = 400
MAX_NAME_LENGTH = 1_000  # characters; the longest in a known template has 36
LONG_NUMBER = re.compile(f"[0-9][0-9A-Za-z_]{{{MAX_DIGITS}}}")
PLAIN_INTEGER = re.compile(r"[1-9][0-9]*+(?![0-9A-Za-z_.])")
RARE_TOKENS = (
    ("integer", PLAIN_INTEGER),
    ("float", float_re),
    ("integer", integer_re),
    ("name", name_re),
)
TAG_END = {
    "block": re.compile(r"\+%}|-%}\s*|%}\n?"),
    "variable": re.compile(r"-}}\s*|}}"),
}
# The ends of what is not scanned as a tag, and what is wrong if there is none.
UNREAD = {
    "comment": (
        re.compile(r"\+#}|-#}\s*+|#}\n?"),
        "this comment has no end: '#}' is missing",
    ),
    "raw": (
        re.compile(r"\{%([-+]?)\s*+endraw\s*+(?:\+%}|-%}\s*+|%}\n?)"),
        "this raw block has no end: '{% endraw %}' is missing",
    ),
}
OPENING = re.compile(
    r"\{(?:(?P<raw>%([-+]?)\s*+raw\s*+(?:-%}\s*+|%}))"
    r"|(?P<block>%[-+]?)|(?P<variable>\{[-+]?)|(?P<comment>#[-+]?))"
)
UNPARSED = frozenset(["whitespace", "comment", "comment_begin", "comment_end"])
Token = tuple[int, str, str]  # its position, kind and text


def pack_position(line: int, column: int) -> int:
    """Return a line and a column (both from 1) as one `lineno` of jinja2's tree."""
    return line << COLUMN_BITS | column


def unpack_position(lineno: int) -> tuple[int, int]:
    """Return line and column (both from 1) of a node's `lineno`."""
    return lineno >> COLUMN_BITS, lineno & ((1 << COLUMN_BITS) - 1)


class CompileError(Exception):
    """The template uses something that cannot be compiled; raised where its name is not known.

    Args:
        message: what is wrong.
        lineno: where.
        details: more about it, such as a hint.
    """

    kind: type[TemplateError] = TemplateSyntaxError

    def __init__(self, message: str, lineno: int, **details: Any) -> None:
        super().__init__(message)
        self.lineno = lineno
        self.details = details

    def locate(self, text: str, name: str) -> TemplateError:
        """Return the error that users see, in a template of this text and name."""
        return locate_error(self.kind, str(self), text, name, self.lineno, **self.details)


class TemplateTooLarge(CompileError):
    """The template exceeds a limit."""

    kind = TemplateLimitError

    def __init__(self, what: str, lineno: int, budget: str = "size") -> None:
        super().__init__(f"the template is too large: {what}", lineno, budget=budget)


class Scanner(Lexer):
    """jinja2's lexer with our tokens; the inherited `wrap` converts them to values."""

    def tokeniter(self, source: str, *_: Any, **__: Any) -> Iterator[Token]:
        return iter(TokenScan(normalise_newlines(source)).scan())

    def _normalize_newlines(self, value: str) -> str:
        return value  # the whole text is normalised before it is scanned


class TokenScan:
    """One pass over the text of a template, which collects its tokens.

    Owns the position in the text, with its line and column, and the tokens found so far.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0
        self.line = 1
        self.line_start = 0
        self.tokens: list[Token] = []

    def scan(self) -> list[Token]:
        text = self.text
        while self.offset < len(text):
            opening = OPENING.search(text, self.offset)
            if opening is None:
                self._add_token("data", text[self.offset :])
                break
            kind = opening.lastgroup or ""
            sign = opening[2] if kind == "raw" else opening[0][2:]
            self._add_data(text[self.offset : opening.start()], sign, kind != "variable")
            self._move_to(opening.start())
            self._add_token(f"{kind}_begin", opening[0])
            if kind in UNREAD:
                self._scan_unread(kind)
            else:
                self._scan_tag(kind)
        self._check_size()
        return self.tokens

    def _add_token(self, kind: str, value: str) -> None:
        """Add the token that starts here, and move to its end."""
        self.tokens.append((self._lineno, kind, value))
        if len(self.tokens) > MAX_SCANNED_TOKENS:
            raise TemplateTooLarge(f"more than {MAX_SCANNED_TOKENS} tokens", self._lineno)
        self._move_to(self.offset + len(value))

    def _add_data(self, data: str, sign: str, strip_line: bool) -> None:
        """Add the text before a tag, without the white space that the tag's sign removes.

        `-` removes all white space before the tag; without a sign, `lstrip_blocks` removes the indentation of a tag
        that is the first on its line.
        """
        if sign == "-":
            data = data.rstrip()
        elif sign != "+" and strip_line:
            line = data.rfind("\n") + 1
            starts_line = line > 0 or self.offset == 0 or self.text[self.offset - 1] == "\n"
            if starts_line and data[line:].isspace():
                data = data[:line]
        if data:
            self._add_token("data", data)

    def _check_size(self) -> None:
        """Refuse what the parser would take long for."""
        count = sum(kind not in UNPARSED for _, kind, _ in self.tokens)
        if count > MAX_TEMPLATE_TOKENS:
            raise TemplateTooLarge(f"more than {MAX_TEMPLATE_TOKENS} tokens", self._lineno)
        names = {value for _, kind, value in self.tokens if kind == "name"}
        if len(names) > MAX_TEMPLATE_NAMES:
            raise TemplateTooLarge(f"more than {MAX_TEMPLATE_NAMES} different names", self._lineno)

    @property
    def _lineno(self) -> int:
        return pack_position(self.line, self.offset - self.line_start + 1)

    def _move_to(self, offset: int) -> None:
        newlines = self.text.count("\n", self.offset, offset)
        if newlines:
            self.line += newlines
            self.line_start = self.text.rindex("\n", self.offset, offset) + 1
        self.offset = offset

    def _scan_tag(self, kind: str) -> None:
        """Scan the rest of a tag. Its end does not count inside brackets."""
        text, tag_end, match_token = self.text, TAG_END[kind], TAG_TOKEN.match
        open_brackets: list[str] = []
        while self.offset < len(text):
            if not open_brackets and text[self.offset] in "-+%}":
                end = tag_end.match(text, self.offset)
                if end:
                    self._add_token(f"{kind}_end", end[0])
                    return
            token = match_token(text, self.offset)
            if token is None:
                self._scan_rare_token()
                continue
            name = token.lastgroup or ""
            if name == "operator":
                self._match_bracket(token[0], open_brackets)
            elif name == "name":
                self._check_name(token[0])
            self._add_token(name, token[0])

    def _match_bracket(self, operator: str, open_brackets: list[str]) -> None:
        """Keep the list of brackets that are still to be closed."""
        if operator in CLOSING:
            open_brackets.append(CLOSING[operator])
            if len(open_brackets) > MAX_NESTING:
                message = f"more than {MAX_NESTING} brackets within brackets"
                raise TemplateTooLarge(message, self._lineno, "depth")
        elif operator in ("}", ")", "]"):
            expected = open_brackets.pop() if open_brackets else None
            if expected != operator:
                wanted = f", expected {expected!r}" if expected else ""
                self._fail(f"unexpected {operator!r}{wanted}")

    def _scan_rare_token(self) -> None:
        """Scan a number, or a name with letters beyond ASCII."""
        text, offset = self.text, self.offset
        if LONG_NUMBER.match(text, offset):
            raise TemplateTooLarge(f"a number of more than {MAX_DIGITS} digits", self._lineno)
        for name, pattern in RARE_TOKENS:
            token = pattern.match(text, offset)
            if token:
                self._check_name(token[0])
                self._add_token(name, token[0])
                return
        self._fail(f"unexpected character {text[offset]!r}")

    def _check_name(self, name: str) -> None:
        if len(name) > MAX_NAME_LENGTH:
            message = f"a name of more than {MAX_NAME_LENGTH} characters"
            raise TemplateTooLarge(message, self._lineno)

    def _scan_unread(self, kind: str) -> None:
        """Scan the text of a comment or of a raw block, and its end."""
        pattern, problem = UNREAD[kind]
        end = pattern.search(self.text, self.offset)
        if end is not None:
            text = self.text[self.offset : end.start()]
            if kind == "raw":
                self._add_data(text, end[1], strip_line=True)
            elif text:
                self._add_token(kind, text)
            self._move_to(end.start())
            self._add_token(f"{kind}_end", end[0])
        elif self.offset < len(self.text):
            self._fail(problem)

    def _fail(self, message: str) -> NoReturn:
        raise jinja2.TemplateSyntaxError(message, self._lineno)


def normalise_newlines(source: str) -> str:
    """Return the text as jinja2 sees it: newlines are `\\n`, and one at the very end is dropped."""
    if "\r" in source:
        source = source.replace("\r\n", "\n").replace("\r", "\n")
    return source.removesuffix("\n")


class GenerationTag(Extension):
    """`{% generation %}`: text that the model generates. As in transformers it is a call block, so it is a scope."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("generation"), [], [], body).set_lineno(lineno)


class ParsingEnvironment(jinja2.Environment):
    """jinja2's environment, for parsing only: filters and tests are looked up in our own tables."""

    lexer = cached_property(Scanner)


ENVIRONMENT = ParsingEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols], cache_size=0
)


def parse(text: str, name: str) -> nodes.Template:
    """Return the syntax tree of a template.

    Raises:
        TemplateSyntaxError: the text is no template; the error has the position.
        TemplateLimitError: the template is too large or nested too deeply.
    """
    if not isinstance(text, str):
        raise TemplateSyntaxError(f"a template is text, not {type(text).__name__}", name=name)
    if len(text) > MAX_TEMPLATE_CHARACTERS:
        size = f"{len(text)} characters, more than {MAX_TEMPLATE_CHARACTERS}"
        message = f"the template is too large: {size}"
        raise TemplateLimitError(message, budget="size", name=name)
    _refuse_surrogates(text, name)
    try:
        return _parse_tree(text)
    except jinja2.TemplateSyntaxError as error:
        message = error.message or "not a template"
        found = CompileError(message, error.lineno, hint=find_syntax_hint(message))
        raise found.locate(text, name) from None
    except CompileError as error:
        raise error.locate(text, name) from None
    except RecursionError:
        message = f"the template is too large: {TOO_DEEP}"
        raise TemplateLimitError(message, budget="depth", name=name) from None
    except ValueError as error:  # an integer literal longer than Python reads
        raise TemplateSyntaxError(str(error), name=name) from None


@lru_cache(maxsize=2)
def _parse_tree(text: str) -> nodes.Template:
    """Return the tree; what is compiled is soon searched, so the last ones are kept. Nobody changes them."""
    # not `parse`, which would walk the tree only to give each node its environment
    tree = nodes.Template(Parser(ENVIRONMENT, text).subparse(), lineno=1)
    _refuse_large_tree(tree)
    return tree


def parse_again(text: str) -> nodes.Template:
    """Return a syntax tree that may be changed, of a text that was parsed before without an error."""
    return Parser(ENVIRONMENT, text).parse()


def locate_error(
    kind: type[TemplateError], message: str, text: str, name: str, lineno: int, **details: Any
) -> TemplateError:
    """Return an error of this kind, with its position and the source line there."""
    line, column = unpack_position(lineno)
    source_line = _find_line(text, line)
    return kind(message, name=name, line=line, column=column, source_line=source_line, **details)


@lru_cache(maxsize=1)  # a template that is probed fails dozens of times at one place
def _find_line(text: str, line: int) -> str | None:
    """Return a line of the text, counted from 1."""
    found = re.match(rf"(?:.*\n){{{line - 1}}}+(.*)", normalise_newlines(text))
    return found[1] if found else None


def _refuse_surrogates(text: str, name: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        letter = ord(text[error.start])
        raise TemplateSyntaxError(
            f"half of a surrogate pair (U+{letter:04X}) cannot be written as UTF-8",
            name=name,
            line=text.count("\n", 0, error.start) + 1,
            column=error.start - text.rfind("\n", 0, error.start),
        ) from None


def _refuse_large_tree(tree: nodes.Node) -> None:
    """Walk the tree level by level, and refuse one that is too deep or has too many nodes."""
    level: list[nodes.Node] = [tree]
    count = 1
    for _ in range(MAX_TREE_DEPTH):
        children: list[nodes.Node] = []
        for node in level:
            found = flat_children(node)
            _refuse_long_chain(node, len(found))
            children += found
        count += len(children)
        if count > MAX_TEMPLATE_NODES:
            message = f"more than {MAX_TEMPLATE_NODES} expressions and statements"
            raise TemplateTooLarge(message, level[0].lineno)
        if not children:
            return
        level = children
    raise TemplateTooLarge(TOO_DEEP, level[0].lineno, "depth")


def _refuse_long_chain(node: nodes.Node, operands: int) -> None:
    if isinstance(node, nodes.Compare) and operands > MAX_COMPARISONS + 1:
        message = f"more than {MAX_COMPARISONS} comparisons in one chain"
        raise TemplateTooLarge(message, node.lineno)
    if isinstance(node, nodes.If) and len(node.elif_) > MAX_BRANCHES:
        raise TemplateTooLarge(f"an if with more than {MAX_BRANCHES} branches", node.lineno)
    if isinstance(node, nodes.Add) and operands > MAX_OPERANDS:
        raise TemplateTooLarge(f"a sum of more than {MAX_OPERANDS} operands", node.lineno)


# The first pattern that is found in a message decides.
SYNTAX_HINTS = {
    r"unexpected '.', expected '.'": "a bracket that is opened in this tag is not closed before the tag ends",
    r"unexpected '}'": "an expression ends with }} and a statement with %}; "
    "this tag is closed with the other one, or with one character less",
    r"unexpected '[)\]]'": "this bracket was not opened in the same tag",
    r"unexpected character [\"'][\"']": "a text in quotes is not closed, or has its own quote in it; write \\' there",
    r"unexpected character '[\u2018-\u201f]'": "texts take the quotes ' and \"; word processors replace them",
    r"unexpected character '[&!?]'": "operators are words: `and`, `or`, `not`, and `a if condition else b`",
    r"expected token 'name', got '\|'": "operators are words: `or` instead of `||`",
    r"got '='$": "`==` compares; `=` assigns, in {% set %} and in arguments",
    r"expected token 'end of statement block', got 'if'|unknown tag 'else ?if'": "a second condition "
    "is {% elif condition %}",
    r"unknown tag 'end\w*'.{0,400}innermost block": "blocks are closed in the reverse order of their opening",
    r"unknown tag 'end\w*'": "no block is open here: its opening tag is missing, or it is closed twice",
    r"unknown tag": "chat templates have for, if, set, macro, call, filter, with, raw, break, continue and generation; "
    "a value is assigned with {% set name = value %}",
    r"end of template\. .{0,400}innermost block": "add the missing {% end... %} tag, "
    "or remove the one that opens the block",
    r"end of template": "the last tag is not closed: add }} or %}",
    r"(an expression|token 'name'), got 'end of|^unexpected 'end of": "a value or a name is missing "
    "before the end of this tag",
    r"expected token 'end of \w+ \w+', got": "one expression per tag: "
    "an operator, a comma or the end of the tag is missing before this place",
    r"got 'for'": "there are no comprehensions: use a {% for %} loop, or the filters `map` and `select`",
    r"can't assign to": "none, true and false are constants: use another name",
}


def find_syntax_hint(message: str) -> str | None:
    """Return what to do about a syntax error, if that is known for its kind."""
    for pattern, hint in SYNTAX_HINTS.items():
        if re.search(pattern, message):
            return hint
    return None

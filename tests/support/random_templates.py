"""Random templates, expanded from the top.

A production (`productions.py`) is template text with holes: `<text>` is an expression that is probably text, `<body>`
is what stands between two tags. The author picks productions at random and, below a certain depth, only those without
holes, so every template is finite. Kinds are likely, not certain: a few expressions are of another kind than was asked
for, so a template may fail to compile or to render. That is wanted: both engines have to fail then.

Left out, since the two engines differ there on purpose (docs/compatibility.md): what is withheld, the addresses in
printed functions and generators, attributes of Python objects, and amounts of work that no budget allows.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import productions
from productions import OPTIONS

HOLE = re.compile(r"<([a-z_]+)>")
ATOM = re.compile(r"[a-z_]\w*(\.\w+|\[-?\w+\])*|'[^'\\]*'|\[[^][]*\]")
DEPTH = 3  # expressions within expressions, blocks within blocks
STRAY = 0.05  # how often an expression is of another kind than requested
KNOWN = 0.2  # how often an expression is a name that the template bound
BARE = 0.1  # how often the brackets around an operand are left out
ODD = 0.01  # how often a statement is one that hardly ever works

NAMES = ["a", "b", "c", "x", "item", "message", "word", "content"]
PRELUDE = (
    "{%- macro twice(a, b='B') -%}{{ a }}{{ b }}{%- endmacro -%}"
    "{%- macro wrap(x='') -%}[{{ caller() if caller else x }}]{%- endmacro -%}"
    "{%- macro give(x) -%}({{ caller(x) }}){%- endmacro -%}"
    "{%- macro many(a) -%}{{ a }}{{ varargs }}{{ kwargs }}{%- endmacro -%}"
)
SIGNS = {"{{": "<out>", "}}": "<close_out>", "{%": "<tag>", "%}": "<close>"}


def split_lines(block: str) -> list[str]:
    return [line.strip() for line in block.strip().splitlines()]


def split_statements(block: str) -> list[str]:
    """Statements, with holes for the signs of white space control."""
    for sign, hole in SIGNS.items():
        block = block.replace(sign, hole)
    return split_lines(block)


def plain(choices: Sequence[str]) -> list[str]:
    return [production for production in choices if not HOLE.search(production)]


EXPRESSIONS = {kind: split_lines(block) for kind, block in productions.EXPRESSIONS.items()}
LEAVES = {kind: plain(choices) for kind, choices in EXPRESSIONS.items()}
COMMON, RARE = split_statements(productions.STATEMENTS), split_statements(productions.RARE)
SIMPLE = [production for production in COMMON if production.startswith(("<out>", "<data>"))]
TURNS = split_statements(productions.TURNS)
SIMPLE_TURNS = [production for production in TURNS if production.startswith("<out>")]
OTHER = {
    "chat": split_statements(productions.CHATS),
    "turn": TURNS,
    "field": split_lines(productions.FIELDS),
    "asked": split_lines(productions.QUESTIONS),
    "out": ["{{", "{{", "{{", "{{-", "{{+"],
    "close_out": ["}}", "}}", "}}", "-}}"],
    "tag": ["{%", "{%", "{%", "{%-", "{%-", "{%+"],
    "close": ["%}", "%}", "%}", "-%}", "-%}", "+%}"],
    "comment": ["{# note #}", "{#- note -#}", "{#+ a\n b +#}", "{# {{ x }} #}\n", "{##}"],
    "data": [
        "a",
        "x y",
        " b ",
        "é",
        "<|im|>",
        "}",
        "%",
        "#",
        "}}",
        " ",
        "  ",
        "\n",
        "  \n",
        "\n\n",
        "\t",
        "\r\n",
    ],
    "verbatim": ["{{ x }}", "{% y", "{#", " "],
    "block_filter": [
        "upper",
        "trim",
        "indent(2)",
        "replace('a', 'b')",
        "tojson",
        "upper|trim",
        "title",
    ],
    "seek": split_statements(
        "{% for x in messages %}{% if <asked> %}{% set ns.found = x %}{% endif %}{% endfor %}"
    ),
    "each_argument": split_statements(
        "{% for k, v in call.function.arguments.items() %}{{ k ~ '=' ~ v }}{% endfor %}"
    ),
    "pair": ["(1, 'x')", "[<any>, <any>]", "(<any>, <text>)", "'ab'"],
}


class Author:
    """Writes one template. `chance` is any source of randomness with Random's interface, hypothesis' included."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names: list[str] = []
        self.bound: list[str] = []  # by the tag that is being written; names from its end on
        self.loops = 0

    def template(self) -> str:
        body = "".join(self.statement(DEPTH) for _ in range(self.chance.randint(1, 4)))
        macros = any(name in body for name in ("twice(", "wrap(", "give(", "many("))
        return PRELUDE + body if macros else body

    def statement(self, depth: int) -> str:
        choices = RARE if self.chance.random() < ODD else COMMON if depth > 0 else SIMPLE
        production, known = self.chance.choice(choices), len(self.names)
        text = self.fill_holes(production, depth)
        if not production.startswith("<tag> set"):
            del self.names[known:]
        return text

    def fill_holes(self, production: str, depth: int, within: bool = False) -> str:
        """The production with its holes filled, left to right: what it binds is known further right."""
        parts, at = [], 0
        for hole in HOLE.finditer(production):
            parts += [production[at : hole.start()], self.fill(hole[1], depth, within)]
            at = hole.end()
        return "".join(parts) + production[at:]

    def fill(self, kind: str, depth: int, within: bool) -> str:
        if kind in ("body", "in_loop"):
            return self.body(depth - 1, kind == "in_loop")
        if kind == "bind":
            self.bound.append(self.chance.choice(NAMES))
            return self.bound[-1]
        if kind == "close":
            self.names += self.bound
            self.bound.clear()
        if kind == "name":
            return self.chance.choice(self.names) if self.names else "word"
        if kind in OTHER:
            choices = SIMPLE_TURNS if kind == "turn" and depth <= 0 else OTHER[kind]
            return self.fill_holes(self.chance.choice(choices), depth - (kind == "turn"))
        text = self.expression(kind, depth - 1)
        bare = not within or ATOM.fullmatch(text) or self.chance.random() < BARE
        return text if bare else f"({text})"

    def body(self, depth: int, in_loop: bool) -> str:
        self.loops += in_loop
        text = "".join(self.statement(depth) for _ in range(self.chance.randint(1, 2)))
        self.loops -= in_loop
        return text

    def expression(self, kind: str, depth: int) -> str:
        if kind not in ("small", "index", "step"):
            if self.names and self.chance.random() < KNOWN:
                return self.chance.choice(self.names)
            if self.chance.random() < STRAY:
                kind = "any"
        production = self.chance.choice(EXPRESSIONS[kind] if depth > 0 else LEAVES[kind])
        if "loop." in production and not self.loops:
            return "word"
        return self.fill_holes(production, depth, within=True)


def template(chance: random.Random) -> str:
    return Author(chance).template()


__all__ = ["OPTIONS", "Author", "template"]

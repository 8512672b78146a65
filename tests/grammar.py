"""Random templates: tables of productions, expanded from the top.

A production is template text with holes: `<text>` is an expression that is probably text, `<body>` is what stands
between two tags. The author picks productions at random and, below a certain depth, only those without holes, so every
template is finite. Kinds are likely, not certain: a few expressions are of another kind than was asked for, so a
template may fail to compile or to render. That is wanted: both engines have to fail then.

What the productions read is in `OPTIONS`; names that a template binds itself may stand for any kind.

Left out, since the two engines differ there on purpose (docs/compatibility.md): what is withheld, the addresses in
printed functions and generators, attributes of Python objects, and amounts of work that no budget allows.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

HOLE = re.compile(r"<([a-z_]+)>")
ATOM = re.compile(r"[a-z_]\w*(\.\w+|\[-?\w+\])*|'[^'\\]*'|\[[^][]*\]")
DEPTH = 3  # expressions within expressions, blocks within blocks
STRAY = 0.05  # how often an expression is of a kind that nobody asked for
KNOWN = 0.2  # how often an expression is a name that the template bound
BARE = 0.1  # how often the brackets around an operand are left out

ROWS = [
    {"name": "Bo", "kind": "x", "n": 2, "tags": ["p", "q"]},
    {"name": "al", "kind": "y", "n": 10},
    {"name": "Cy", "kind": "x", "n": 2, "tags": []},
]
LEAF: dict[str, Any] = {"n": "leaf", "kids": []}
OPTIONS: dict[str, Any] = {
    "word": "Hello World",
    "lines": "one\n  two\n\nthree\n",
    "markup": "<b>x &amp; y</b>",
    "foreign": "Straße İ 你\t\"q'",
    "count": 3,
    "share": 2.5,
    "flag": True,
    "nothing": None,
    "names": ["bob", "Al", "cy", "al"],
    "sizes": [4, 1, 9],
    "mixed": [1, "two", None, [3, "x"], {"k": "v"}, 2.0, False, ""],
    "rows": ROWS,
    "record": {"name": "Rec", "items": [1, 2], "inner": {"deep": "D", "n": None}, "n": 5},
    "tree": [{"n": "root", "kids": [LEAF, {"n": "stem", "kids": [LEAF]}]}],
}

EXPRESSIONS = {
    "text": r"""
        'ab'
        ''
        'A b-c'
        ' x\n y '
        'a,b,,c'
        '<I>&'
        word
        lines
        markup
        foreign
        record.name
        record['name']
        messages[0].content
        messages[-1]['content']
        messages[0]['role']
        messages[1].nope
        rows[0].name
        loop.cycle('x', 'y')
        <text> + <text>
        <text> + <text> + <text>
        <text> ~ <any>
        <any> ~ <text>
        <text> ~ <number> ~ <text>
        <text> if <truth> else <text>
        <text> if <truth>
        <text> or <text>
        <text> and <text>
        <text> * <small>
        <small> * <text>
        <text>[<index>]
        <text>[<index>:]
        <text>[:<index>]
        <text>[<index>:<index>]
        <text>[::<step>]
        <text>.strip()
        <text>.strip(<text>)
        <text>.lstrip('\n')
        <text>.rstrip(<text>)
        <text>.upper()
        <text>.lower()
        <text>.title()
        <text>.capitalize()
        <text>.swapcase()
        <text>.casefold()
        <text>.replace(<text>, <text>)
        <text>.replace(<text>, <text>, <small>)
        <text>.removeprefix(<text>)
        <text>.removesuffix(<text>)
        <text>.split(<text>)[<index>]
        <text>.split()[<index>]
        <text>.split('b', 1)[0]
        <text>.rsplit(' ', 1)[-1]
        <text>.partition(' ')[<index>]
        <text>.join(<texts>)
        <text>.center(<small>)
        <text>.ljust(<small>, '.')
        <text>.rjust(<small>)
        <text>.zfill(<small>)
        <text>.expandtabs(<small>)
        '{} {}'.format(<any>, <any>)
        '{0}/{0!r:>4}'.format(<any>)
        '{a[0]} {b}'.format(a=<text>, b=<number>)
        '{:>{}}'.format(<text>, <small>)
        '{:.2f}'.format(<number>)
        '%s-%s' % (<any>, <any>)
        '%s' % <any>
        '%5.1f' % <number>
        '%(k)s' % {'k': <any>}
        '%r' % (<any>,)
        <any>|string
        <any>|tojson
        <any>|tojson(indent=<small>)
        <any>|tojson(separators=(',', ':'))
        <any>|tojson(sort_keys=true)
        <any>|tojson(true)
        <text>|upper
        <text>|lower
        <any>|title
        <text>|capitalize
        <any>|trim
        <text>|trim(<text>)
        <text>|replace(<text>, <text>)
        <text>|replace(<text>, <text>, <small>)
        <text>|indent
        <text>|indent(<small>)
        <text>|indent(width=<small>, first=<truth>, blank=<truth>)
        <text>|indent('> ')
        <text>|center(<small>)
        <text>|truncate(<small>)
        <text>|truncate(<small>, <truth>, '..', 0)
        <text>|wordwrap(3)
        <text>|wordwrap(7, <truth>, '/')
        <text>|striptags
        <text>|escape
        <text>|e
        <text>|safe
        <text>|forceescape
        <any>|urlencode
        <text>|reverse
        <text>|first
        <text>|last
        '%s is %s'|format(<any>, <any>)
        '%(x)s'|format(x=<any>)
        <list>|join
        <list>|join(<text>)
        <list>|map('string')|join('/')
        rows|join(', ', attribute='name')
        <any>|default(<text>)
        <any>|default(<text>, true)
        <any>|d(<text>, boolean=<truth>)
        <number>|filesizeformat
        <number>|filesizeformat(true)
        <texts>|first
        <texts>|last
        <texts>|min
        <texts>|max
        strftime_now('%Y-%m-%d')
        joiner('+')()
    """,
    "number": r"""
        0
        1
        3
        -2
        2.5
        1e3
        1_000
        0x1f
        true
        count
        share
        loop.index
        loop.index0
        loop.revindex
        loop.revindex0
        loop.length
        loop.depth
        <number> + <number>
        <number> - <number>
        <number> * <number>
        <number> / <number>
        <number> // <number>
        <number> % <number>
        <small> ** <small>
        -<number>
        +<number>
        <any>|length
        <list>|count
        <text>|wordcount
        <any>|int
        <text>|int(<small>)
        <text>|int(base=16)
        <any>|float
        <number>|abs
        <number>|round
        <number>|round(1)
        <number>|round(<small>, 'floor')
        <number>|round(method='ceil')
        <numbers>|sum
        <numbers>|sum(start=<small>)
        rows|sum(attribute='n')
        <numbers>|max
        <numbers>|min
        <text>.find(<text>)
        <text>.rfind(<text>)
        <text>.count(<text>)
        <text>.index(<text>)
        <list>.index(<any>)
        <list>.count(<any>)
        rows[1].n
    """,
    "small": "0 \n 1 \n 2 \n 4 \n 7 \n count",
    "index": "0 \n 1 \n 2 \n -1 \n -2 \n count \n 0 \n 1",
    "step": "1 \n 2 \n -1 \n -2 \n none",
    "truth": r"""
        true
        false
        flag
        nothing
        loop.first
        loop.last
        loop.changed(<any>)
        not <any>
        <any> and <any>
        <any> or <any>
        <any> == <any>
        <any> != <any>
        <number> < <number>
        <number> >= <number>
        <text> < <text>
        <number> < <number> <= <number>
        <any> in <list>
        <text> in <text>
        <text> not in <text>
        <text> in <dict>
        <any> is defined
        <name> is defined
        <any> is not defined
        <any> is undefined
        <any> is none
        <any> is string
        <any> is mapping
        <any> is iterable
        <any> is sequence
        <any> is number
        <any> is integer
        <any> is float
        <any> is boolean
        <any> is true
        <any> is false
        <any> is callable
        <number> is even
        <number> is odd
        <number> is divisibleby 3
        <any> is eq(<any>)
        <number> is gt(<number>)
        <number> is le <number>
        <any> is in(<list>)
        <any> is not in <list>
        <any> is sameas(none)
        <text> is upper
        <text> is lower
        <text> is escaped
        'upper' is filter
        'nope' is filter
        'even' is test
        <text>.startswith(<text>)
        <text>.endswith(<text>)
        <text>.startswith(('a', 'H'))
        <text>.isdigit()
        <text>.isspace()
        <text>.isupper()
        <text>.isalpha()
    """,
    "texts": r"""
        names
        ['b', 'A', 'c']
        ('x', 'y')
        <text>
        [<text>, <text>]
        <text>.split()
        <text>.split(',')
        <text>.rsplit(None, 1)
        <text>.splitlines()
        <text>.splitlines(true)
        <text>.partition('b')
        <text>.rpartition(',')
        <texts> + <texts>
        rows|map(attribute='name')|list
        messages|map(attribute='role')|list
        <texts>|map('upper')|list
        <texts>|map('trim')|list
        <texts>|map('replace', 'a', 'b')|list
        <texts>|map('default', 'q', true)|list
        <texts>|sort
        <texts>|sort(reverse=true)
        <texts>|sort(case_sensitive=true)
        <texts>|unique|list
        <texts>|select|list
        <texts>|select('string')|list
        <texts>|reject('eq', <text>)|list
        <texts>|reverse|list
        <dict>|list
        <dict>.keys()|list
        <dict>.values()|list
        <texts>[<index>:<index>]
        <texts>[::-1]
    """,
    "numbers": r"""
        sizes
        [3, 1, 2]
        [<number>, <number>]
        range(<small>)
        range(1, <small>)
        range(<small>, 0, -1)
        range(4)|list
        <numbers>|sort
        <numbers>|select('odd')|list
        <numbers>|reject('divisibleby', 3)|list
        <numbers>|map('abs')|list
        <numbers>|reverse|list
        <numbers> + <numbers>
        <numbers>[<index>:]
        rows|map(attribute='n')|list
    """,
    "list": r"""
        rows
        messages
        tools
        mixed
        []
        ()
        <texts>
        <numbers>
        [<any>]
        (<any>,)
        [<any>, [<any>]]
        <list> + <list>
        <list> * 2
        <list>|list
        <list>|batch(2)|list
        <list>|batch(<small>, <any>)|list
        <list>|slice(2)|list
        <list>|slice(2, 'f')|list
        <dict>.items()|list
        <dict>|items|list
        <dict>|dictsort
        <dict>|dictsort(by='value')
        <dict>|dictsort(true, 'key', true)
        rows|groupby('kind')
        rows|groupby('kind', default='none')|map('list')|list
        rows|groupby('kind')|map(attribute='grouper')|list
        rows|groupby('kind')|map(attribute='list')|list
        rows|sort(attribute='name')
        rows|sort(attribute='n,name', reverse=<truth>)
        rows|selectattr('kind')|list
        rows|selectattr('kind', 'equalto', <text>)|list
        rows|rejectattr('n', 'gt', <number>)|list
        messages|selectattr('role', 'eq', 'user')|list
        messages|rejectattr('content', 'none')|list
        rows|unique(attribute='kind')|list
        [rows|min(attribute='n')]
        [rows|max(attribute='name')]
        rows|map(attribute='tags.0', default='-')|list
        <list>|map('list')|list
        <list>|map('length')|list
        <list>|map('tojson')|list
        <list>[<index>:]
        <list>[:<index>:<step>]
        record['items']
    """,
    "dict": r"""
        record
        rows[0]
        messages[0]
        {}
        record.inner
        tools[0].function
        {'k': <any>}
        {'b': <any>, 'a': <any>}
        {1: <any>, 'z': 2}
        dict(a=<any>, b=2)
        dict(<dict>, z=<any>)
        dict([('p', <any>)])
        <dict>.copy()
    """,
    "any": r"""
        none
        nothing
        undefined_name
        record.nope
        rows[7]
        record.inner.deep
        loop.previtem
        loop.nextitem
        <text>
        <text>
        <number>
        <truth>
        <list>
        <dict>
        <name>
        <name>
        <name>.content
        record['no' ~ 'pe']
        mixed[<index>]
        mixed[<index>]
        <dict>.get(<text>)
        <dict>.get('name', <any>)
        <dict>[<text>]
        <list>[<index>]
        <list>|first
        <list>|last
        namespace(a=<any>).a
        <any> if <truth> else <any>
        <any> or <any>
        <any> and <any>
        <call>
    """,
    "call": r"""
        twice(word)
        twice(<any>)
        twice(a=<any>)
        twice(<any>, <any>)
        twice(<any>, b=<any>)
        wrap(<any>)
        many(<any>, 2, k=<any>)
        many(*<texts>)
        twice(**{'a': <any>})
    """,
}

STATEMENTS = r"""
    <data>
    <data>
    <out> <text> <close_out>
    <out> <text> <close_out>
    <out> <any> <close_out>
    <out> <any> <close_out>
    <out> <number> <close_out>
    <out> <list> <close_out>
    <out> <dict> <close_out>
    <out> <truth> <close_out>
    <out> <call> <close_out>
    <tag> if <truth> <close><body><tag> endif <close>
    <tag> if <any> <close><body><tag> else <close><body><tag> endif <close>
    <tag> if <truth> <close><body><tag> elif <any> <close><body><tag> elif <truth> <close><body><tag> else <close><body><tag> endif <close>
    <tag> for <bind> in <list> <close><body><tag> endfor <close>
    <tag> for <bind> in messages <close><body><tag> endfor <close>
    <tag> for <bind> in messages <close><in_loop><tag> endfor <close>
    <tag> for <bind> in <list> <close><in_loop><tag> endfor <close>
    <tag> for <bind> in <list> <close><in_loop><tag> else <close><body><tag> endfor <close>
    <tag> for <bind> in <list> if <truth> <close><body><out> loop.index ~ loop.last <close_out><tag> endfor <close>
    <tag> for <bind> in <list> if <truth> <close><in_loop><tag> endfor <close>
    <tag> for <bind>, <bind> in <dict>.items() <close><in_loop><tag> endfor <close>
    <tag> for <bind>, <bind> in <dict>|items <close><in_loop><tag> endfor <close>
    <tag> for <bind>, <bind> in <dict>|dictsort <close><in_loop><tag> endfor <close>
    <tag> for <bind>, <bind> in [<pair>, <pair>] <close><in_loop><tag> endfor <close>
    <tag> for <bind> in <dict> <close><in_loop><tag> endfor <close>
    <tag> for <bind> in <any> <close><in_loop><tag> endfor <close>
    <tag> for <bind> in <list>|reverse <close><in_loop><tag> endfor <close>
    <tag> for <bind> in <list>|map('string') <close><in_loop><tag> endfor <close>
    <tag> for <bind> in <list> <close><tag> if <truth> <close><tag> break <close><tag> endif <close><in_loop><tag> endfor <close>
    <tag> for <bind> in <list> <close><tag> if <truth> <close><tag> continue <close><tag> endif <close><in_loop><tag> endfor <close>
    <tag> for x in tree recursive <close><out> x.n <close_out><in_loop><out> loop(x.kids) <close_out><tag> endfor <close>
    <tag> set <bind> = <any> <close>
    <tag> set <bind> = <text> <close>
    <tag> set <bind> = <list> <close>
    <tag> set <bind>, <bind> = <any>, <any> <close>
    <tag> set <bind>, <bind> = <pair> <close>
    <tag> set <bind> <close><body><tag> endset <close>
    <tag> set <bind> | upper | trim <close><body><tag> endset <close>
    <tag> set ns = namespace(n=<number>, s=<text>) <close><tag> for x in <list> <close><tag> set ns.n = ns.n + 1 <close><tag> set ns.s = ns.s ~ <any> <close><body><tag> endfor <close><out> ns.n <close_out><out> ns.s <close_out>
    <tag> set ns = namespace(found=false) <close><tag> for <bind> in messages <close><tag> if <truth> <close><tag> set ns.found = <any> <close><tag> endif <close><tag> endfor <close><out> ns.found <close_out>
    <tag> macro <bind>(a, b=<any>) <close><body><out> a <close_out><out> b <close_out><tag> endmacro <close><out> <name>(<any>) <close_out>
    <tag> macro twice(a, b=a) <close><body><out> a ~ b <close_out><tag> endmacro <close>
    <tag> call wrap() <close><body><tag> endcall <close>
    <tag> call (v) give(<any>) <close><body><out> v <close_out><tag> endcall <close>
    <tag> filter <block_filter> <close><body><tag> endfilter <close>
    <tag> with <bind> = <any> <close><body><tag> endwith <close>
    <tag> with <bind> = <text>, <bind> = <any> <close><body><tag> endwith <close>
    <tag> generation <close><body><tag> endgeneration <close>
    <tag> raw <close>{{ x }}<data><tag> endraw <close>
    <comment>
"""
RARE = r"""
    <tag> nonsense <close>
    <tag> break <close>
    <out> raise_exception(<text>) <close_out>
    <out> <any> <any> <close_out>
    <tag> endif <close>
    <tag> set <name>.x = <any> <close>
"""

OTHER = {
    "out": ["{{", "{{", "{{", "{{-", "{{+"],
    "close_out": ["}}", "}}", "}}", "-}}"],
    "tag": ["{%", "{%", "{%", "{%-", "{%-", "{%+"],
    "close": ["%}", "%}", "%}", "-%}", "-%}", "+%}"],
    "comment": ["{# note #}", "{#- note -#}", "{#+ a\n b +#}", "{# {{ x }} #}\n", "{##}"],
    "data": ["a", " ", "\n", "  \n", "x y", "\n\n", " b ", "\t", "\r\n", "<|im|>", "é", "}", "%", "#", "}}", "  ", "\n  "],
    "block_filter": ["upper", "trim", "indent(2)", "replace('a', 'b')", "tojson", "upper|trim", "title"],
    "pair": ["(1, 'x')", "[<any>, <any>]", "(<any>, <text>)", "'ab'"],
}
NAMES = ["a", "b", "c", "x", "item", "message", "word", "content"]
PRELUDE = (
    "{%- macro twice(a, b='B') -%}{{ a }}{{ b }}{%- endmacro -%}"
    "{%- macro wrap(x='') -%}[{{ caller() if caller else x }}]{%- endmacro -%}"
    "{%- macro give(x) -%}({{ caller(x) }}){%- endmacro -%}"
    "{%- macro many(a) -%}{{ a }}{{ varargs }}{{ kwargs }}{%- endmacro -%}"
)


def listed(block: str) -> list[str]:
    return [line.strip() for line in block.strip().splitlines()]


def plain(productions: Sequence[str]) -> list[str]:
    return [production for production in productions if not HOLE.search(production)]


PRODUCTIONS = {kind: listed(block) for kind, block in EXPRESSIONS.items()}
LEAVES = {kind: plain(productions) for kind, productions in PRODUCTIONS.items()}
COMMON, UNUSUAL = listed(STATEMENTS), listed(RARE)
SIMPLE = next(number for number, production in enumerate(COMMON) if production.startswith("<tag>"))


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
        productions = UNUSUAL if self.chance.random() < 0.01 else COMMON
        if depth <= 0:
            productions = COMMON[:SIMPLE]
        production, known = self.chance.choice(productions), len(self.names)
        text = self.filled(production, depth)
        if not production.startswith("<tag> set"):
            del self.names[known:]
        return text

    def filled(self, production: str, depth: int, within: bool = False) -> str:
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
            return self.filled(self.chance.choice(OTHER[kind]), depth)
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
        production = self.chance.choice(PRODUCTIONS[kind] if depth > 0 else LEAVES[kind])
        if "loop." in production and not self.loops:
            return "word"
        return self.filled(production, depth, within=True)


def template(chance: random.Random) -> str:
    return Author(chance).template()

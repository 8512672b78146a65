"""Random templates: a table of productions, expanded from the top.

A production is template text with holes: `<text>` is any expression that is probably text, `<data>` is what may stand
between tags. The author picks productions at random and, below a certain depth, only those without holes, so every
template is finite. Kinds are likely, not certain: one expression in fifteen is of another kind than was asked for, and
a template may fail to compile or to render. That is wanted: both engines have to fail then.

The names that exist while a template is written are kept by kind, so `<text>` may become a loop's variable.

Left out, since the two engines differ there on purpose (docs/compatibility.md): what is withheld, the addresses in
printed functions and generators, attributes of Python objects, and amounts of work that no budget allows.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

HOLE = re.compile(r"<([a-z_]+)>")
DEPTH = 3
STRAY = 15  # one expression in so many is of a kind that nobody asked for

EXPRESSIONS: dict[str, list[str]] = {
    "text": [
        "'ab'",
        "''",
        "'A b-c'",
        '" x\\n y "',
        "'a,b,,c'",
        "'<I>&'",
        "'%s|%d'",
        "word",
        "lines",
        "markup",
        "foreign",
        "record.name",
        "record['name']",
        "messages[0].content",
        "messages[-1]['content']",
        "messages[0]['role']",
        "rows[0].name",
        "loop.cycle('x', 'y')",
        "<text> + <text>",
        "<text> ~ <any>",
        "<any> ~ <text>",
        "<text> ~ <number> ~ <text>",
        "(<text>)",
        "<text> if <truth> else <text>",
        "<text> if <truth>",
        "(<text> or <text>)",
        "(<text> and <text>)",
        "<text> * <small>",
        "(<text>)[<index>]",
        "(<text>)[<index>:]",
        "(<text>)[:<index>]",
        "(<text>)[<index>:<index>]",
        "(<text>)[::<step>]",
        "(<text>).strip()",
        "(<text>).strip(<text>)",
        "(<text>).lstrip('\\n')",
        "(<text>).rstrip(<text>)",
        "(<text>).upper()",
        "(<text>).lower()",
        "(<text>).title()",
        "(<text>).capitalize()",
        "(<text>).swapcase()",
        "(<text>).casefold()",
        "(<text>).replace(<text>, <text>)",
        "(<text>).replace(<text>, <text>, <small>)",
        "(<text>).removeprefix(<text>)",
        "(<text>).removesuffix(<text>)",
        "(<text>).split(<text>)[<index>]",
        "(<text>).split()[<index>]",
        "(<text>).rsplit(' ', 1)[-1]",
        "(<text>).partition(' ')[<index>]",
        "(<text>).join(<texts>)",
        "(<text>).center(<small>)",
        "(<text>).ljust(<small>, '.')",
        "(<text>).rjust(<small>)",
        "(<text>).zfill(<small>)",
        "(<text>).expandtabs(<small>)",
        "'{} {}'.format(<any>, <any>)",
        "'{0}/{0!r:>4}'.format(<any>)",
        "'{a[0]} {b}'.format(a=<text>, b=<number>)",
        "'{:.2f}'.format(<number>)",
        "'%s-%s' % (<any>, <any>)",
        "'%5.1f' % <number>",
        "'%(k)s' % {'k': <any>}",
        "'%r' % (<any>,)",
        "(<any>)|string",
        "(<any>)|tojson",
        "(<any>)|tojson(indent=<small>)",
        "(<any>)|tojson(separators=(',', ':'))",
        "(<any>)|tojson(sort_keys=true)",
        "(<any>)|tojson(ensure_ascii=true)",
        "(<text>)|upper",
        "(<text>)|lower",
        "(<any>)|title",
        "(<text>)|capitalize",
        "(<any>)|trim",
        "(<text>)|trim(<text>)",
        "(<text>)|replace(<text>, <text>)",
        "(<text>)|replace(<text>, <text>, <small>)",
        "(<text>)|indent",
        "(<text>)|indent(<small>)",
        "(<text>)|indent(width=<small>, first=<truth>, blank=<truth>)",
        "(<text>)|indent('> ')",
        "(<text>)|center(<small>)",
        "(<text>)|truncate(<small>)",
        "(<text>)|truncate(<small>, <truth>, '..', 0)",
        "(<text>)|wordwrap(3)",
        "(<text>)|wordwrap(<small>, <truth>, '/')",
        "(<text>)|striptags",
        "(<text>)|escape",
        "(<text>)|e",
        "(<text>)|safe",
        "(<text>)|forceescape",
        "(<any>)|urlencode",
        "(<text>)|reverse",
        "(<text>)|first",
        "(<text>)|last",
        "'%s is %s'|format(<any>, <any>)",
        "'%(x)s'|format(x=<any>)",
        "(<list>)|join",
        "(<list>)|join(<text>)",
        "(<list>)|map('string')|join('/')",
        "(rows)|join(', ', attribute='name')",
        "(<any>)|default(<text>)",
        "(<any>)|default(<text>, true)",
        "(<any>)|d(<text>, boolean=<truth>)",
        "(<number>)|filesizeformat",
        "(<number>)|filesizeformat(true)",
        "(<texts>)|first",
        "(<texts>)|last",
        "(<texts>)|min",
        "(<texts>)|max",
        "strftime_now('%Y-%m-%d')",
        "joiner('+')()",
    ],
    "number": [
        "0",
        "1",
        "3",
        "-2",
        "2.5",
        "1e3",
        "1_000",
        "true",
        "count",
        "share",
        "loop.index",
        "loop.index0",
        "loop.revindex",
        "loop.revindex0",
        "loop.length",
        "loop.depth",
        "<number> + <number>",
        "<number> - <number>",
        "<number> * <number>",
        "<number> / <number>",
        "<number> // <number>",
        "<number> % <number>",
        "<small> ** <small>",
        "-<number>",
        "+<number>",
        "(<number>)",
        "<any>|length",
        "<list>|count",
        "(<text>)|wordcount",
        "(<any>)|int",
        "(<text>)|int(<small>)",
        "(<text>)|int(base=16)",
        "(<any>)|float",
        "(<number>)|abs",
        "(<number>)|round",
        "(<number>)|round(1)",
        "(<number>)|round(<small>, 'floor')",
        "(<number>)|round(method='ceil')",
        "(<numbers>)|sum",
        "(<numbers>)|sum(start=<small>)",
        "(rows)|sum(attribute='n')",
        "(<numbers>)|max",
        "(<numbers>)|min",
        "(<text>).find(<text>)",
        "(<text>).rfind(<text>)",
        "(<text>).count(<text>)",
        "(<text>).index(<text>)",
        "(<list>).index(<any>)",
        "(<list>).count(<any>)",
        "rows[<index>].n",
    ],
    "small": ["0", "1", "2", "4", "7", "count"],
    "index": ["0", "1", "2", "-1", "-2", "count", "9", "none", "true"],
    "step": ["1", "2", "-1", "-2", "none"],
    "truth": [
        "true",
        "false",
        "flag",
        "nothing",
        "loop.first",
        "loop.last",
        "loop.changed(<any>)",
        "not <any>",
        "<any> and <any>",
        "<any> or <any>",
        "<any> == <any>",
        "<any> != <any>",
        "<number> < <number>",
        "<number> >= <number>",
        "<text> < <text>",
        "<number> < <number> <= <number>",
        "<any> in <list>",
        "<text> in <text>",
        "<text> not in <text>",
        "<text> in <dict>",
        "<any> is defined",
        "<name> is defined",
        "<any> is not defined",
        "<any> is undefined",
        "<any> is none",
        "<any> is string",
        "<any> is mapping",
        "<any> is iterable",
        "<any> is sequence",
        "<any> is number",
        "<any> is integer",
        "<any> is float",
        "<any> is boolean",
        "<any> is true",
        "<any> is false",
        "<any> is callable",
        "<number> is even",
        "<number> is odd",
        "<number> is divisibleby 3",
        "<any> is eq(<any>)",
        "<number> is gt(<number>)",
        "<number> is le <number>",
        "<any> is in(<list>)",
        "<any> is not in <list>",
        "<any> is sameas(none)",
        "<text> is upper",
        "<text> is lower",
        "<text> is escaped",
        "'upper' is filter",
        "'nope' is filter",
        "'even' is test",
        "(<text>).startswith(<text>)",
        "(<text>).endswith(<text>)",
        "(<text>).startswith(('a', 'H'))",
        "(<text>).isdigit()",
        "(<text>).isspace()",
        "(<text>).isupper()",
        "(<text>).isalpha()",
    ],
    "texts": [
        "names",
        "['b', 'A', 'c']",
        "('x', 'y')",
        "<text>",
        "[<text>, <text>]",
        "(<text>).split()",
        "(<text>).split(',')",
        "(<text>).rsplit(None, 1)",
        "(<text>).splitlines()",
        "(<text>).splitlines(true)",
        "(<text>).partition('b')",
        "(<text>).rpartition(',')",
        "<texts> + <texts>",
        "rows|map(attribute='name')|list",
        "messages|map(attribute='role')|list",
        "(<texts>)|map('upper')|list",
        "(<texts>)|map('trim')|list",
        "(<texts>)|map('replace', 'a', 'b')|list",
        "(<texts>)|map('default', 'q', true)|list",
        "(<texts>)|sort",
        "(<texts>)|sort(reverse=true)",
        "(<texts>)|sort(case_sensitive=true)",
        "(<texts>)|unique|list",
        "(<texts>)|select|list",
        "(<texts>)|select('string')|list",
        "(<texts>)|reject('eq', <text>)|list",
        "(<texts>)|reverse|list",
        "(<dict>)|list",
        "(<dict>).keys()|list",
        "(<dict>).values()|list",
        "(<texts>)[<index>:<index>]",
        "(<texts>)[::-1]",
    ],
    "numbers": [
        "sizes",
        "[3, 1, 2]",
        "[<number>, <number>]",
        "range(<small>)",
        "range(1, <small>)",
        "range(<small>, 0, -1)",
        "range(4)|list",
        "(<numbers>)|sort",
        "(<numbers>)|select('odd')|list",
        "(<numbers>)|reject('divisibleby', 3)|list",
        "(<numbers>)|map('abs')|list",
        "(<numbers>)|reverse|list",
        "<numbers> + <numbers>",
        "(<numbers>)[<index>:]",
        "(rows)|map(attribute='n')|list",
    ],
    "list": [
        "<texts>",
        "<numbers>",
        "rows",
        "messages",
        "tools",
        "mixed",
        "[]",
        "()",
        "[<any>]",
        "(<any>,)",
        "[<any>, [<any>]]",
        "<list> + <list>",
        "<list> * 2",
        "(<list>)|list",
        "(<list>)|batch(2)|list",
        "(<list>)|batch(<small>, <any>)|list",
        "(<list>)|slice(2)|list",
        "(<list>)|slice(<small>, 'f')|list",
        "(<dict>).items()|list",
        "(<dict>)|items|list",
        "(<dict>)|dictsort",
        "(<dict>)|dictsort(by='value')",
        "(<dict>)|dictsort(true, 'key', true)",
        "(rows)|groupby('kind')",
        "(rows)|groupby('kind', default='none')|map('list')|list",
        "(rows)|groupby('kind')|map(attribute='grouper')|list",
        "(rows)|sort(attribute='name')",
        "(rows)|sort(attribute='n,name', reverse=<truth>)",
        "(rows)|selectattr('kind')|list",
        "(rows)|selectattr('kind', 'equalto', <text>)|list",
        "(rows)|rejectattr('n', 'gt', <number>)|list",
        "(messages)|selectattr('role', 'eq', 'user')|list",
        "(messages)|rejectattr('content', 'none')|list",
        "(rows)|unique(attribute='kind')|list",
        "[rows|min(attribute='n')]",
        "[rows|max(attribute='name')]",
        "(rows)|map(attribute='tags.0', default='-')|list",
        "(<list>)|map('list')|list",
        "(<list>)|map('length')|list",
        "(<list>)|map('tojson')|list",
        "(<list>)[<index>:]",
        "(<list>)[:<index>:<step>]",
        "record.items",
        "record['items']",
    ],
    "dict": [
        "record",
        "rows[0]",
        "messages[0]",
        "{}",
        "{'k': <any>}",
        "{'b': <any>, 'a': <any>}",
        "{1: <any>, 'z': 2}",
        "dict(a=<any>, b=2)",
        "dict(<dict>, z=<any>)",
        "dict([('p', <any>)])",
        "record.inner",
        "tools[0].function",
        "(<dict>).copy()",
    ],
    "any": [
        "<text>",
        "<text>",
        "<number>",
        "<truth>",
        "<list>",
        "<dict>",
        "none",
        "nothing",
        "undefined_name",
        "record.nope",
        "record['no' ~ 'pe']",
        "rows[7]",
        "mixed[<index>]",
        "mixed[<index>]",
        "record.inner.deep",
        "(<dict>).get(<text>)",
        "(<dict>).get('name', <any>)",
        "(<dict>)[<text>]",
        "(<list>)[<index>]",
        "(<list>)|first",
        "(<list>)|last",
        "<name>",
        "<name>",
        "namespace(a=<any>).a",
        "loop.previtem",
        "loop.nextitem",
        "(<any>)",
        "<any> if <truth> else <any>",
        "<any> or <any>",
        "<any> and <any>",
        "<call>",
    ],
}
STATEMENTS: list[str] = [
    "<data>",
    "<data>",
    "<out> <text> <close_out>",
    "<out> <text> <close_out>",
    "<out> <any> <close_out>",
    "<out> <number> <close_out>",
    "<out> <list> <close_out>",
    "<out> <dict> <close_out>",
    "<out> <truth> <close_out>",
    "<out> <call> <close_out>",
    "<tag> if <truth> <close><body><tag> endif <close>",
    "<tag> if <any> <close><body><tag> else <close><body><tag> endif <close>",
    "<tag> if <truth> <close><body><tag> elif <truth> <close><body><tag> elif <any> <close><body><tag> else <close><body>"
    "<tag> endif <close>",
    "<loop>",
    "<loop>",
    "<tag> set <bind> = <any> <close>",
    "<tag> set <bind> = <text> <close>",
    "<tag> set <bind>, <bind> = <any>, <any> <close>",
    "<tag> set <bind>, <bind> = <list> <close>",
    "<tag> set <bind> <close><body><tag> endset <close>",
    "<tag> set <bind> | upper | trim <close><body><tag> endset <close>",
    "<tag> set ns = namespace(n=<number>, s=<text>, found=false) <close><tag> for x in <list> <close>"
    "<tag> set ns.n = ns.n + <number> <close><tag> set ns.s = ns.s ~ <any> <close><body><tag> endfor <close>"
    "<out> ns.n <close_out><out> ns.s <close_out>",
    "<macro>",
    "<tag> call (v) <callee> <close><body><out> v <close_out><tag> endcall <close>",
    "<tag> call <callee> <close><body><tag> endcall <close>",
    "<tag> filter <block_filter> <close><body><tag> endfilter <close>",
    "<tag> with <bind> = <any> <close><body><tag> endwith <close>",
    "<tag> with <bind> = <text>, <bind> = <any> <close><body><tag> endwith <close>",
    "<tag> generation <close><body><tag> endgeneration <close>",
    "<tag> raw <close>{{ x }}<data><tag> endraw <close>",
    "<comment>",
    "<tag> do_nothing <close>",
    "<tag> if <truth> <close><tag> break <close><tag> endif <close>",
    "<tag> if <truth> <close><tag> continue <close><tag> endif <close>",
    "<out> raise_exception(<text>) <close_out>",
]
COMMON = [statement for statement in STATEMENTS if not any(word in statement for word in ("do_nothing", "raise_"))]

LOOPS: list[str] = [
    "<tag> for <bind> in <list> <close><body><tag> endfor <close>",
    "<tag> for <bind> in messages <close><body><tag> endfor <close>",
    "<tag> for <bind> in <list> <close><body><out> loop.index <close_out><tag> endfor <close>",
    "<tag> for <bind> in <list> <close><body><tag> else <close><body><tag> endfor <close>",
    "<tag> for <bind> in <list> if <truth> <close><body><out> loop.index ~ loop.last <close_out><tag> endfor <close>",
    "<tag> for <bind> in <list> if <truth> <close><body><tag> endfor <close>",
    "<tag> for <bind>, <bind> in (<dict>).items() <close><body><tag> endfor <close>",
    "<tag> for <bind>, <bind> in (<dict>)|items <close><body><tag> endfor <close>",
    "<tag> for <bind>, <bind> in (<dict>)|dictsort <close><body><tag> endfor <close>",
    "<tag> for <bind>, <bind> in <list> <close><body><tag> endfor <close>",
    "<tag> for <bind> in <dict> <close><body><tag> endfor <close>",
    "<tag> for <bind> in <any> <close><body><tag> endfor <close>",
    "<tag> for <bind> in (<list>)|reverse <close><body><tag> endfor <close>",
    "<tag> for <bind> in (<list>)|map('string') <close><body><out> loop.length <close_out><tag> endfor <close>",
    "<tag> for <bind> in range(<small>) <close><body><tag> if <truth> <close><tag> break <close><tag> endif <close>"
    "<body><tag> endfor <close>",
    "<tag> for <bind> in <list> <close><tag> if <truth> <close><tag> continue <close><tag> endif <close><body>"
    "<tag> endfor <close>",
    "<tag> for <bind> in [[1, [2]], [3]] recursive <close><out> loop.depth <close_out><body>"
    "<tag> if <name> is sequence <close><out> loop([]) <close_out><tag> endif <close><tag> endfor <close>",
    "<tag> for x in tree recursive <close><out> x.n <close_out><body><out> loop(x.kids) <close_out><tag> endfor <close>",
]

OTHER: dict[str, list[str]] = {
    "out": ["{{", "{{", "{{", "{{-", "{{+"],
    "close_out": ["}}", "}}", "}}", "-}}"],
    "tag": ["{%", "{%", "{%", "{%-", "{%-", "{%+"],
    "close": ["%}", "%}", "%}", "-%}", "-%}", "+%}"],
    "comment": ["{# note #}", "{#- note -#}", "{#+ a\n b +#}", "{# {{ x }} #}\n", "{##}"],
    "data": ["a", " ", "\n", "  \n", "x y", "\n\n", " b ", "\t", "\r\n", "<|im|>", "é", "{", "}", "%", "#", "}}", "  "],
    "loop": LOOPS,
    "callee": ["twice(<any>)", "wrap()", "wrap(<text>)"],
    "call": ["twice(<any>)", "twice(a=<any>)", "twice(<any>, <any>)", "twice(<any>, b=<any>)", "wrap(<any>)", "many(<any>, 2, k=<any>)"],
    "block_filter": ["upper", "trim", "indent(2)", "replace('a', 'b')", "tojson", "upper|trim", "length"],
    "macro": [
        "<tag> macro twice(a, b=<any>) <close><body><out> a <close_out><out> b <close_out><tag> endmacro <close>",
        "<tag> macro wrap(x=<text>) <close>[<out> caller(<any>) if caller else x <close_out>]<tag> endmacro <close>",
        "<tag> macro many(a) <close><out> a <close_out><out> varargs <close_out><out> kwargs <close_out>"
        "<tag> endmacro <close>",
        "<tag> macro twice(a, b=a) <close><body><tag> endmacro <close>",
    ],
}
NAMES = ["a", "b", "c", "x", "item", "message", "word", "content"]
PRELUDE = (
    "{%- macro twice(a, b='B') -%}{{ a }}{{ b }}{%- endmacro -%}"
    "{%- macro wrap(x='') -%}[{{ caller(x) if caller else x }}]{%- endmacro -%}"
    "{%- macro many(a) -%}{{ a }}{{ varargs }}{{ kwargs }}{%- endmacro -%}"
)


class Author:
    """Writes one template. `chance` is any source of randomness with Random's interface, hypothesis' included."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.names: list[str] = []

    def template(self) -> str:
        prelude = PRELUDE if self.chance.random() < 0.3 else ""
        return prelude + "".join(self.statement(DEPTH) for _ in range(self.chance.randint(1, 4)))

    def statement(self, depth: int) -> str:
        rare = self.chance.random() < 0.02
        return self.filled(self.chance.choice(STATEMENTS if rare else COMMON), depth)

    def filled(self, production: str, depth: int) -> str:
        """The production with its holes filled, left to right: what it binds is known further right."""
        parts, at = [], 0
        for hole in HOLE.finditer(production):
            parts += [production[at : hole.start()], self.fill(hole[1], depth)]
            at = hole.end()
        return "".join(parts) + production[at:]

    def fill(self, kind: str, depth: int) -> str:
        if kind == "body":
            with self.scope():
                return "".join(self.statement(depth - 1) for _ in range(self.chance.randint(1, 2 if depth > 1 else 1)))
        if kind == "bind":
            self.names.append(self.chance.choice(NAMES))
            return self.names[-1]
        if kind == "name":
            return self.chance.choice(self.names) if self.names else "word"
        if kind in OTHER:
            return self.filled(self.chance.choice(OTHER[kind]), depth - (kind in ("loop", "macro")))
        return self.expression(kind, depth - 1)

    def expression(self, kind: str, depth: int) -> str:
        if self.names and kind not in ("small", "index", "step") and self.chance.random() < 0.2:
            return self.chance.choice(self.names)
        if kind in ("text", "number", "list", "texts", "dict") and self.chance.randrange(STRAY) == 0:
            kind = "any"
        productions = EXPRESSIONS[kind]
        if depth <= 0:
            productions = LEAVES[kind]
        return self.filled(self.chance.choice(productions), depth)

    @contextmanager
    def scope(self) -> Iterator[None]:
        known = len(self.names)
        yield
        del self.names[known:]


def plain(productions: list[str]) -> list[str]:
    return [production for production in productions if not HOLE.search(production)]


LEAVES = {kind: plain(productions) for kind, productions in EXPRESSIONS.items()}


def template(chance: random.Random) -> str:
    return Author(chance).template()

"""Random expressions over a user's text, to see whether an operation gives it to another author.

The user's letters are Chinese and the template's are not, so a letter that is attributed to the template and is
Chinese was laundered. An expression is built from a kind (text, list, dict, number) by rules that name the kinds of
their operands.
"""

from __future__ import annotations

import random
import re

USER_LETTERS = re.compile("[一-鿿]")
USER_TEXTS = (
    "用户",
    " 用7户\n输入|甲 乙 ",
    "0000000000012",
    "00005|||用户输入",
    "7",
    "用户\r\n\t输入\r甲",
    "用{户}%s输入",
    '{"用户": ["输", "入"]}',
    "用,户,输,入",
    "",
)
LITERALS = (
    "'ab'",
    "'0123456789'",
    "' '",
    "''",
    "'a\\nb\\n'",
    "'{} {}'",
    "'%s-%s'",
    "'|'",
    "'{\"a\": 1}'",
)

# In an expression T is a text, L a list, D a dict, N a number.
RULES: dict[str, tuple[str, ...]] = {
    "T": (
        "m.content",
        "m.content",
        "LITERAL",
        "(T ~ T)",
        "(T + T)",
        "(T ~ N)",
        "(T * 2)",
        "(T if N else T)",
        "(T or T)",
        "T[1:]",
        "T[:-1]",
        "T[::-1]",
        "T[::2]",
        "T[0]",
        "T[2:9]",
        "(L|join)",
        "(L|join(T))",
        "T.join(L)",
        "(L|string)",
        "(L|tojson)",
        "(L|first|string)",
        "(L|last|string)",
        "(L|max|string)",
        "(D|tojson)",
        "(D|tojson(indent=2))",
        "(D|string)",
        "(D|urlencode)",
        "(D|list|first|string)",
        "(N|string)",
        "(N|filesizeformat)",
        "(T|trim)",
        "T.strip(T)",
        "T.lstrip()",
        "T.rstrip('a ')",
        "T.removeprefix('a')",
        "T.removesuffix(T)",
        "T.replace(T, T)",
        "(T|replace(' ', T, 1))",
        "T.format(T, T)",
        "(T|format(T, T))",
        "('%5s|%-4s' % (T, T))",
        "('%(a)s' % {'a': T})",
        "'{:>9}'.format(T)",
        "'{0!r}'.format(T)",
        "'{a[0]}'.format(a=T)",
        "T.center(12)",
        "T.ljust(15, 'b')",
        "T.zfill(20)",
        "T.expandtabs(3)",
        "T.upper()",
        "T.title()",
        "T.swapcase()",
        "T.casefold()",
        "(T|capitalize)",
        "(T|indent(2, true))",
        "(T|wordwrap(5))",
        "(T|truncate(6, true, 'b'))",
        "(T|center(30))",
        "(T|striptags)",
        "(T|escape)",
        "(T|safe)",
        "((T|safe) + T)",
        "(T|urlencode)",
        "(T|default(T))",
        "(T|reverse)",
        "(T|list|reverse|join)",
        "(T|tojson)",
        "(T|string)",
    ),
    "L": (
        "[T, T]",
        "[N, T]",
        "[D]",
        "(T,)",
        "T.split(T)",
        "T.split()",
        "T.rsplit('|', 1)",
        "T.splitlines()",
        "T.partition('|')",
        "T.rpartition(T)",
        "(T|list)",
        "(L|list)",
        "(L + [T])",
        "(L * 2)",
        "L[1:]",
        "L[::-1]",
        "(L|map('string')|list)",
        "(L|map('upper')|list)",
        "(L|map('int')|list)",
        "(L|map('replace', 'a', T)|list)",
        "(L|select|list)",
        "(L|reject('number')|list)",
        "(L|map('string')|sort)",
        "(L|map('string')|unique|list)",
        "(L|map('string')|groupby('0')|list)",
        "(L|batch(2, T)|list)",
        "(L|slice(2)|list)",
        "(L|reverse|list)",
        "(D|list)",
        "(D.items()|list)",
        "(D.keys()|list)",
        "(D.values()|list)",
        "(D|dictsort)",
        "(D|items|list)",
    ),
    "D": (
        "{T: T}",
        "{'a': T, T: N}",
        "{T[0:]: T.strip()}",
        "{'a': L}",
        "{'a': D, 'b': T}",
        "dict(a=T, b=L)",
        "dict(D)",
        "dict.fromkeys(L|map('string')|list, T)",
        "dict.fromkeys([T], N)",
        "D.copy()",
        "('{\"a\": \"' ~ T ~ '\"}')|from_json",
    ),
    "N": (
        "7",
        "(T|int)",
        "(T|float)",
        "(T|int(5))",
        "(T|length)",
        "(L|length)",
        "(N + 1)",
        "(-N)",
        "(T|wordcount)",
        "T.find(T)",
        "(T|int|abs)",
        "(T == T)",
        "(N|round)",
    ),
}
STATEMENTS = (
    "{{ T }}",
    "{{ T }}-----{{ T }}",
    "{{ N }}---------{{ T }}",
    "{{ L }}",
    "{{ D }}",
    "{% for x in L %}{{ x }};{% endfor %}",
    "{% for x in T %}{{ x }}{% endfor %}",
    "{% for k, v in D.items() %}{{ k }}={{ v }}{% endfor %}",
    "{% for k in D %}{{ k|string|trim }}{% endfor %}",
    "{% set x %}{{ T }}!{% endset %}{{ x }}{{ x[1:] }}{{ x[::-1] }}",
    "{% set ns = namespace(x=T) %}{% for y in L %}{% set ns.x = ns.x ~ y %}{% endfor %}{{ ns.x }}",
    "{% macro f(x, y='b') %}<{{ x }}{{ y }}>{% endmacro %}{{ f(T) }}{{ f(T, T)|upper }}{{ f(y=T)[2:] }}",
    "{% filter indent(2) %}{{ T }}\n{{ T }}{% endfilter %}",
    "{% filter reverse %}{{ T }}c{% endfilter %}",
    "{% for x in L recursive %}{{ x }}{{ loop.index }}{% endfor %}",
)
OPERAND = re.compile(r"\b[TLDN]\b|LITERAL")
SMALLEST = {"T": "m.content", "L": "[m.content]", "D": "{m.content: 1}", "N": "7"}


def make_template(seed: int) -> str:
    """Return a template of a few statements over random expressions."""
    choose = random.Random(seed)
    body = "".join(
        _fill(choose, choose.choice(STATEMENTS), depth=choose.randint(1, 4))
        for _ in range(choose.randint(1, 2))
    )
    return "{% for m in messages %}" + body + "{% endfor %}"


def _fill(choose: random.Random, pattern: str, depth: int) -> str:
    def operand(match: re.Match[str]) -> str:
        kind = match[0]
        if kind == "LITERAL":
            return choose.choice(LITERALS)
        if depth == 0:
            return SMALLEST[kind]
        return _fill(choose, choose.choice(RULES[kind]), depth - 1)

    return OPERAND.sub(operand, pattern)

"""The productions of `grammar.py`: one to a line, and what they read.

Expressions stand under the kind that they probably have. In statements the tags are written plainly; the author adds
the signs for white space.
"""

from __future__ import annotations

from typing import Any

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
    {{ <text> }}
    {{ <text> }}
    {{ <any> }}
    {{ <any> }}
    {{ <number> }}
    {{ <list> }}
    {{ <dict> }}
    {{ <truth> }}
    {{ <call> }}
    {% if <truth> %}<body>{% endif %}
    {% if <any> %}<body>{% else %}<body>{% endif %}
    {% if <truth> %}<body>{% elif <any> %}<body>{% elif <truth> %}<body>{% else %}<body>{% endif %}
    {% for <bind> in <list> %}<body>{% endfor %}
    {% for <bind> in messages %}<body>{% endfor %}
    <chat>
    <chat>
    <chat>
    <chat>
    <chat>
    <chat>
    {% for <bind> in messages %}<in_loop>{% endfor %}
    {% for <bind> in <list> %}<in_loop>{% endfor %}
    {% for <bind> in <list> %}<in_loop>{% else %}<body>{% endfor %}
    {% for <bind> in <list> if <truth> %}<body>{{ loop.index ~ loop.last }}{% endfor %}
    {% for <bind> in <list> if <truth> %}<in_loop>{% endfor %}
    {% for <bind>, <bind> in <dict>.items() %}<in_loop>{% endfor %}
    {% for <bind>, <bind> in <dict>|items %}<in_loop>{% endfor %}
    {% for <bind>, <bind> in <dict>|dictsort %}<in_loop>{% endfor %}
    {% for <bind>, <bind> in [<pair>, <pair>] %}<in_loop>{% endfor %}
    {% for <bind> in <dict> %}<in_loop>{% endfor %}
    {% for <bind> in <any> %}<in_loop>{% endfor %}
    {% for <bind> in <list>|reverse %}<in_loop>{% endfor %}
    {% for <bind> in <list>|map('string') %}<in_loop>{% endfor %}
    {% for <bind> in <list> %}{% if <truth> %}{% break %}{% endif %}<in_loop>{% endfor %}
    {% for <bind> in <list> %}{% if <truth> %}{% continue %}{% endif %}<in_loop>{% endfor %}
    {% for x in tree recursive %}{{ x.n }}<in_loop>{{ loop(x.kids) }}{% endfor %}
    {% set <bind> = <any> %}
    {% set <bind> = <text> %}
    {% set <bind> = <list> %}
    {% set <bind>, <bind> = <any>, <any> %}
    {% set <bind>, <bind> = <pair> %}
    {% set <bind> %}<body>{% endset %}
    {% set <bind> | upper | trim %}<body>{% endset %}
    {% set ns = namespace(n=<number>) %}{% for x in <list> %}{% set ns.n = ns.n + 1 %}<body>{% endfor %}{{ ns.n }}
    {% set ns = namespace(s=<text>) %}{% for x in <list> %}{% set ns.s = ns.s ~ <any> %}{% endfor %}{{ ns.s }}
    {% set ns = namespace(found=false) %}<seek>{{ ns.found }}
    {% macro <bind>(a, b=<any>) %}<body>{{ a }}{{ b }}{% endmacro %}{{ <name>(<any>) }}
    {% macro twice(a, b=a) %}<body>{{ a ~ b }}{% endmacro %}
    {% call wrap() %}<body>{% endcall %}
    {% call (v) give(<any>) %}<body>{{ v }}{% endcall %}
    {% filter <block_filter> %}<body>{% endfilter %}
    {% with <bind> = <any> %}<body>{% endwith %}
    {% with <bind> = <text>, <bind> = <any> %}<body>{% endwith %}
    {% generation %}<body>{% endgeneration %}
    {% raw %}<verbatim><data>{% endraw %}
    <comment>
"""
RARE = r"""
    {% nonsense %}
    {% break %}
    {{ raise_exception(<text>) }}
    {{ <any> <any> }}
    {% endif %}
    {% set <name>.x = <any> %}
"""

# What chat templates look like. The same few fields are read again and again, in and after branches, which is what an
# engine is tempted to remember wrongly.
TURNS = r"""
    {{ <field> }}
    {{ '<|' + message.role + '|>' + <field> + '<|end|>' }}
    {{ <field> ~ <field> }}
    {{ <field> or <field> }}
    {{ <field>|trim if <field> else <field> }}
    {% if <asked> %}<turn>{% endif %}
    {% if <asked> and <asked> %}<turn>{% endif %}
    {% if <asked> or <asked> %}<turn>{% else %}<turn>{% endif %}
    {% if <asked> %}<turn>{% elif <asked> %}<turn>{% endif %}
    {% if <asked> %}<turn>{% elif <asked> %}<turn>{% elif <asked> %}<turn>{% else %}<turn>{% endif %}
    {% set content = <field> %}<turn>
    {% set message = messages[<index>] %}<turn>
    {% set ns.found = <field> %}<turn>
    {% for part in message.content %}{% if part.type == 'text' %}{{ part.text }}{% else %}<turn>{% endif %}{% endfor %}
    {% for call in message.tool_calls %}{{ call.function.name ~ (call.function.arguments|tojson) }}<turn>{% endfor %}
    {% for call in message.tool_calls %}<each_argument><turn>{% endfor %}
    {% generation %}<turn>{% endgeneration %}
    {% macro show(m) %}{{ m.role }}<turn>{% endmacro %}{{ show(message) }}
    <data>
"""
CHATS = r"""
    {% set ns = namespace(found=<any>) %}{% for message in messages %}<turn><turn>{% endfor %}
    {% set ns = namespace(found=none) %}{% for message in messages %}<turn><turn>{% endfor %}{{ message.role }}
    {% set ns = namespace(found=1) %}{% for message in messages[1:] %}<turn><turn><turn>{% endfor %}{{ ns.found }}
    {% set ns = namespace() %}{% for message in messages if <asked> %}<turn><turn>{% else %}<data>{% endfor %}
    {% for i in range(messages|length) %}{% set message = messages[i] %}<turn><turn>{% endfor %}
    {% set ns = namespace() %}{% for message in messages|selectattr('content', 'string') %}<turn><turn>{% endfor %}
"""
FIELDS = r"""
    message.role
    message.content
    message['role']
    message['content']
    message.nope
    message.name
    message.get('name')
    content
    ns.found
    messages[0].role
    messages[0]['content']
    loop.index
"""
QUESTIONS = r"""
    message.role == 'user'
    message['role'] == 'system'
    message.role in ['assistant', 'tool']
    messages[0].role == 'system'
    message.content is string
    message.tool_calls is defined
    message.tool_calls
    loop.first
    not loop.last
    <field>
    not <field>
    <field> == <field>
    <field> is defined
    <field> is none
"""

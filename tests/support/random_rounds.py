"""Random templates: rounds over messages that read, ask about and write a namespace, also in macros and blocks."""

from __future__ import annotations

import random

READS = (
    *("n.t", "n['t']", "n.i", "n['i']", "n.f", "n.d.content", "n.d['role']", "n.u", "show(n)", "both(n.t, n['i'])"),
    *("n.l|length", "n.l|join('/')", "n.l|last", "x", "m.role", "m.content", "m|tojson", "m.content|trim"),
    *("m.content[:2]", "m.content.split('a')[-1]", "m.content|length > 3", "m.tool_calls|tojson"),
    *("m.tool_calls[0].function.name", "loop.index", "loop.last", "loop.previtem.content", "loop.nextitem.role"),
    *("messages[-1].role", "messages[loop.index0 - 1].content", "messages|length", "n.t ~ n['i']"),
)  # fmt: skip
WRITES = (
    *("n.t = n.t + m.content", "n.t = m.content", "n.t = n['t'] ~ 'a'", "n.t = show(m)", "n.t = loop.previtem.role"),
    *("n.i = n.i + 1", "n.i = n['i'] + 2", "n.i = loop.index", "n.i = m.content|length", "n.i = 0", "n.u = 1"),
    *("n.f = not n.f", "n.f = m.role == 'user'", "n.f = m", "n.d = m", "n.d = {'content': m.content, 'role': 'r'}"),
    *("n.l = n.l + [m.content]", "n.l = n['l'] + [m]", "n.l = n.l + [n.t]", "n.l = []", "x = n.t", "x = m.content"),
)  # fmt: skip
QUESTIONS = (
    *("n.f", "n['f']", "n.i > 1", "n['i'] == 2", "n.i is odd", "n.t", "n['t'] == ''", "n.t == m.content", "n.d"),
    *("m.role == n.t", "'a' in n.t", "not n.l", "n.l|length > 1", "n.u is defined", "n.d.content == m.content", "x"),
    *("m.role == 'user'", "m.content", "m.tool_calls", "m.name is defined", "'a' in m.content", "m == messages[-1]"),
    *("loop.first", "loop.last", "loop.index0 == n.i", "m.role != loop.previtem.role"),
    *("m.content == messages[0].content", "(loop.index0 % 2 == 0) != (m.role == 'user')"),
)  # fmt: skip
CHATS = (
    *("messages", "messages", "messages", "messages[1:]", "messages[:-1]", "messages[::-1]", "messages|reverse"),
    "messages|selectattr('role', 'equalto', 'user')",
)  # fmt: skip
LISTS = (
    "m.tool_calls or []",
    "n.l",
    "[n]",
    "['a', 'b']",
    "messages",
    "messages[:loop.index]",
    "range(2)",
)
ELEMENTS = ("q", "q.content", "q.i", "q['t']", "q.function.name", "loop.index", "m.content")
BEGIN = (
    "{% macro show(n) %}{{ n.t }}{{ n['i'] }}{{ n.content }}{% if n.role %}R{{ n.role }}{% endif %}{% endmacro %}"
    "{% macro both(a, b) %}<{{ a }}{{ b }}{{ '=' if a == b }}{% endmacro %}"
    "{% set n = namespace(t='', i=0, f=false, l=[], d={}) %}{% set x = '' %}"
)


class TemplateMaker:
    """Makes random templates; some of them fail for some conversations.

    Args:
        dice: what decides.
    """

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._pick = dice.choice

    def make(self) -> str:
        """Return the text of a template."""
        loops = "".join(self._make_loop() for _ in range(self._pick((1, 1, 2))))
        return BEGIN + loops + self._pick(("", "{{ n.t }}{{ n['i'] }}", "{% if n.f %}Z{% endif %}"))

    def _make_loop(self) -> str:
        end = self._pick(("", "{{ m.content }}", "[{{ m.role }}]"))
        return f"{{% for m in {self._pick(CHATS)} %}}{self._make_block(2)}{end}{{% endfor %}}"

    def _make_block(self, depth: int) -> str:
        return "".join(self._make_statement(depth) for _ in range(self._dice.randrange(1, 4)))

    def _make_statement(self, depth: int) -> str:
        kind = self._dice.randrange(10 if depth else 6)
        if kind < 3:
            return f"{{{{ {self._pick(READS)} }}}}"
        if kind < 6:
            return f"{{% set {self._pick(WRITES)} %}}"
        inner = self._make_block(depth - 1)
        if kind < 8:
            other = self._pick(("", f"{{% else %}}{self._make_statement(depth - 1)}"))
            return f"{{% if {self._pick(QUESTIONS)} %}}{inner}{other}{{% endif %}}"
        if kind == 8:
            written = f"{{{{ {self._pick(ELEMENTS)} }}}}"
            return f"{{% for q in {self._pick(LISTS)} %}}{written}{{% endfor %}}"
        return f"{{% set x %}}{inner}{{% endset %}}"

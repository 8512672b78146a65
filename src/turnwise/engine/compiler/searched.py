"""Strings that a template searches for in messages: `'/no_think' in message.content`, `content.split('</think>')`.

They show which markers of a reply the template knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import getsizeof

from jinja2 import nodes

from turnwise.engine.compiler.syntax import parse
from turnwise.engine.compiler.tree import find_nodes
from turnwise.sized_cache import SizedCache

SEARCH_METHODS = frozenset(
    [
        "startswith",
        "endswith",
        "split",
        "rsplit",
        "find",
        "index",
        "count",
        "partition",
        "rpartition",
    ]
)
MESSAGE_TEXTS = frozenset(["content", "text", "reasoning_content", "thinking", "arguments"])


def searched_strings(text: str) -> tuple[str, ...]:
    """Return the constant strings that the template `text` searches for, without repetition."""
    return SEARCHED.get(text)


def _find_searched_strings(text: str) -> tuple[str, ...]:
    tree = parse(text, "template")
    strings: dict[str, None] = {}  # a set that keeps the order
    for node in _find_search_operands(tree):
        if isinstance(node, nodes.Const) and isinstance(node.value, str) and node.value.strip():
            strings[node.value] = None
    return tuple(strings)


SEARCHED = SizedCache(_find_searched_strings, lambda strings: sum(map(getsizeof, strings)))


def _find_search_operands(tree: nodes.Template) -> Iterator[nodes.Node]:
    """Yield what is searched for, and both sides of each comparison with a message's text."""
    for comparison in find_nodes(tree, nodes.Compare):
        if any(operand.op in ("in", "notin") for operand in comparison.ops):
            yield comparison.expr
        elif _mentions_message_text(comparison):
            yield comparison.expr
            for operand in comparison.ops:
                yield operand.expr
    for call in find_nodes(tree, nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr in SEARCH_METHODS and call.args:
            yield call.args[0]


def _mentions_message_text(node: nodes.Node) -> bool:
    names = {name.name for name in find_nodes(node, nodes.Name)}
    names.update(field.attr for field in find_nodes(node, nodes.Getattr))
    for lookup in find_nodes(node, nodes.Getitem):
        if isinstance(lookup.arg, nodes.Const):
            names.add(lookup.arg.value)
    return not MESSAGE_TEXTS.isdisjoint(names)

"""The texts that a template looks for in other texts: `'/no_think' in message.content`, `content.split('</think>')`.

What a template writes may turn on them, so whoever keeps what was learned of a template must keep them apart; and who
reads its replies learns from them which markers it knows.
"""

from __future__ import annotations

from functools import lru_cache

from jinja2 import nodes

from turnwise.engine.syntax import parse

METHODS = frozenset(("startswith", "endswith", "split", "rsplit", "find", "index", "count", "partition", "rpartition"))


@lru_cache(maxsize=256)
def sought(text: str) -> tuple[str, ...]:
    """The constant texts that the template looks for, in the order in which they come."""
    tree = parse(text, "template")
    found: dict[str, None] = {}
    for compared in tree.find_all(nodes.Compare):
        if any(operand.op in ("in", "notin") for operand in compared.ops):
            keep(compared.expr, found)
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr in METHODS and call.args:
            keep(call.args[0], found)
    return tuple(found)


def keep(node: nodes.Node, found: dict[str, None]) -> None:
    if isinstance(node, nodes.Const) and isinstance(node.value, str) and node.value.strip():
        found[node.value] = None

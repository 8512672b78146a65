"""The texts that a template looks for in other texts: `'/no_think' in message.content`, `content.split('</think>')`.

What a template writes may turn on them, so whoever keeps what was learned of a template must keep them apart; and who
reads its replies learns from them which markers it knows.
"""

from __future__ import annotations

from functools import lru_cache

from jinja2 import nodes

from turnwise.engine.compiler.syntax import parse

METHODS = frozenset(
    (
        "startswith",
        "endswith",
        "split",
        "rsplit",
        "find",
        "index",
        "count",
        "partition",
        "rpartition",
    )
)


@lru_cache(maxsize=256)
def sought(text: str) -> tuple[str, ...]:
    """The constant texts that the template looks for, in the order in which they come."""
    tree = parse(text, "template")
    found: dict[str, None] = {}
    for compared in tree.find_all(nodes.Compare):
        if any(operand.op in ("in", "notin") for operand in compared.ops):
            keep(compared.expr, found)
        elif of_text(compared):
            for node in (compared.expr, *(operand.expr for operand in compared.ops)):
                keep(node, found)
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr in METHODS and call.args:
            keep(call.args[0], found)
    return tuple(found)


TEXTS = frozenset(("content", "text", "reasoning_content", "thinking", "arguments"))
ORDER = frozenset(("gt", "gteq", "lt", "lteq"))


@lru_cache(maxsize=256)
def weighs(text: str) -> bool:
    """Whether the template decides by texts in a way that no constant in it shows: by their length, their order."""
    tree = parse(text, "template")
    tests: list[nodes.Node] = [node.test for node in tree.find_all(nodes.If)]
    tests += [node.test for node in tree.find_all(nodes.CondExpr)]
    return any(map(weighed, tests))


def weighed(test: nodes.Node) -> bool:
    found = [one for one in (test, *test.find_all(nodes.Compare)) if isinstance(one, nodes.Compare)]
    return any(any(operand.op in ORDER for operand in one.ops) and of_text(one) for one in found)


def of_text(node: nodes.Node) -> bool:
    """Whether a text of a message stands in this expression."""
    names = {one.attr for one in node.find_all(nodes.Getattr)}
    items = {
        one.arg.value for one in node.find_all(nodes.Getitem) if isinstance(one.arg, nodes.Const)
    }
    return not TEXTS.isdisjoint(names | items) or any(
        one.name in TEXTS for one in node.find_all(nodes.Name)
    )


def keep(node: nodes.Node, found: dict[str, None]) -> None:
    if isinstance(node, nodes.Const) and isinstance(node.value, str) and node.value.strip():
        found[node.value] = None

"""Check an export before it is handed out: does it accept what the template writes, and is that read back?

A grammar of calls that refuses the reply that the model was trained on, or accepts what is parsed as something else, is
worse than none. So the reply that the grammar writes for a tool of every simple type is matched with the nodes of the
export and parsed.
"""

from __future__ import annotations

import re
from typing import Any

from turnwise.errors import TurnwiseError, short_repr
from turnwise.replies.events import messages_equal
from turnwise.replies.export.constraint_tree import (
    CharacterNode,
    ChoiceNode,
    ConstraintTree,
    FreeTextNode,
    JsonNode,
    LiteralNode,
    Node,
    NumberType,
    RepeatNode,
    RuleNode,
    inner_nodes,
    write_class,
    write_count,
)
from turnwise.replies.export.value_nodes import JSON_NOTATION, ValueNodes, number_node
from turnwise.replies.grammar_parts import GrammarParts
from turnwise.replies.parser.parser import Parser
from turnwise.replies.write import write

_ARGUMENTS = {"count": 7, "flag": True, "place": "Oslo", "rate": 2.5}
_TYPES = ("integer", "boolean", "string", "number")
_PROPERTIES = {key: {"type": kind} for key, kind in zip(_ARGUMENTS, _TYPES, strict=True)}
PROBE_TOOL = {"name": "probe", "parameters": {"type": "object", "properties": _PROPERTIES}}


def check_own_reply(grammar: GrammarParts, tree: ConstraintTree, prompt: Any) -> None:
    """Refuse an export for `PROBE_TOOL` that does not accept the reply with one call of it, or two.

    Raises:
        TurnwiseError: it does not, or the reply is not parsed as these calls.
    """
    calls = [
        {"id": f"functions.probe:{number}", "function": {"name": "probe", "arguments": _ARGUMENTS}}
        for number in range(2)
    ]
    pattern = re.compile(_pattern_of(tree.start, tree), re.DOTALL)
    is_alone = grammar.calls is None or grammar.calls.excludes_content
    for count, content in ((1, ""), (2, ""), (1, "" if is_alone else "Aye.")):
        message = {"role": "assistant", "content": content, "tool_calls": calls[:count]}
        reply = write(grammar, message, prompt)
        is_read = messages_equal(Parser(grammar, prompt, [PROBE_TOOL]).read(reply), message)
        if not is_read or not pattern.fullmatch(reply):
            problem = "be accepted by it" if is_read else "be read as calls"
            raise TurnwiseError(
                f"replies by this grammar would not {problem}: {short_repr(reply)}",
                hint="Declare how calls are written: docs/replies.md, Declarations.",
            )


def _pattern_of(node: Node, tree: ConstraintTree) -> str:
    """Return a node of an export as a regular expression. Types of the probe refer to no others, so it has an end."""
    if isinstance(node, RuleNode):
        return _pattern_of(tree.rules[node.name], tree)
    if isinstance(node, JsonNode) and isinstance(node.value, NumberType):
        return _pattern_of(number_node(node.value), tree)
    if isinstance(node, JsonNode):
        return _pattern_of(ValueNodes(tree, JSON_NOTATION).make(node.value), tree)
    if isinstance(node, LiteralNode):
        return re.escape(node.text)
    if isinstance(node, CharacterNode):
        return write_class(node, re.escape)
    if isinstance(node, FreeTextNode):
        # Nothing that the text is without is complete before its ending.
        texts = [re.escape(text) for text in (node.ending, *node.without) if text]
        return f"(?:(?!{'|'.join(texts)}).)*{re.escape(node.ending)}" if texts else ".*"
    patterns = [_pattern_of(one, tree) for one in inner_nodes(node)]
    if isinstance(node, RepeatNode):
        return f"(?:{patterns[0]}){write_count(node)}"
    return f"(?:{('|' if isinstance(node, ChoiceNode) else '').join(patterns)})"

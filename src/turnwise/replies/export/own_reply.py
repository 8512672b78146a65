"""Check an export before it is handed out: does it accept what the template writes, and is that read back?

A grammar of calls that refuses the reply that the model was trained on, or accepts what is parsed as something else, is
worse than none. So the reply that the grammar writes for a tool of every simple type is matched with the nodes of the
export and parsed.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from turnwise.errors import TurnwiseError, short_repr
from turnwise.replies.events import messages_equal
from turnwise.replies.export.constraint_tree import (
    ConstraintTree,
    FreeTextNode,
    JsonNode,
    Node,
    ObjectType,
    RuleNode,
)
from turnwise.replies.export.value_check import PatternMatcher, StepBudget, fits_type
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
    is_alone = grammar.calls is None or grammar.calls.excludes_content
    for count, content in ((1, ""), (2, ""), (1, "" if is_alone else "Aye.")):
        message = {"role": "assistant", "content": content, "tool_calls": calls[:count]}
        reply = write(grammar, message, prompt)
        is_read = messages_equal(Parser(grammar, prompt, [PROBE_TOOL]).read(reply), message)
        ends = _ReplyMatcher(tree, reply).find_ends(tree.start, {0}) if is_read else ()
        if len(reply) not in ends:
            problem = "be accepted by it" if is_read else "be read as calls"
            raise TurnwiseError(
                f"replies by this grammar would not {problem}: {short_repr(reply)}",
                hint="Declare how calls are written: docs/replies.md, Declarations.",
            )


class _ReplyMatcher(PatternMatcher):
    """Follows all ways through the nodes of an export."""

    def __init__(self, tree: ConstraintTree, text: str) -> None:
        super().__init__(text, StepBudget(len(text)))
        self._rules = tree.rules

    def find_ends(self, node: Node, starts: Collection[int]) -> Collection[int]:
        if not starts:
            return starts
        if isinstance(node, RuleNode):
            return self.find_ends(self._rules[node.name], starts)
        if isinstance(node, FreeTextNode):
            ends = (self._find_free_end(node, start) for start in starts)
        elif isinstance(node, JsonNode):
            ends = (self._find_json_end(node, start) for start in starts)
        else:
            return super().find_ends(node, starts)
        return {end for end in ends if end is not None}

    def _find_free_end(self, node: FreeTextNode, start: int) -> int | None:
        """Return where the ending is complete, if no text that the node is without is complete before."""
        text, found = self._text, []
        for one in (node.ending, *node.without):
            at = text.find(one, start) if one else -1
            if at >= 0:
                found.append(at + len(one))
        if not node.ending:
            return None if found else len(text)
        end = min(found, default=-1)
        is_ending = end - len(node.ending) >= start and text[:end].endswith(node.ending)
        return end if is_ending else None

    def _find_json_end(self, node: JsonNode, start: int) -> int | None:
        """Return where a value of the node's type ends; the members of an object have the order of the schema."""
        try:
            value, end = json.JSONDecoder().raw_decode(self._text, start)
        except ValueError:
            return None
        if isinstance(node.value, ObjectType):
            names = [name for name, _ in node.value.members]
            if list(value) != [name for name in names if name in value]:
                return None
        return end if fits_type(value, node.value) else None

"""The last question of a derivation: does the grammar read back what the template wrote?

A layout may be understood and still not be readable: calls that open with nothing but a bracket are not looked for in
the middle of a text, and texts without quotes end nowhere. So the calls of the probes are read with the grammar that
was derived from them, and what comes back as something else is named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from turnwise.replies.grammar import Grammar
from turnwise.replies.parse import parse
from turnwise.replies.probing import ARGUMENTS, CONTENT, NAMES, TOOLS, Prober, Shape

SHOWN = 120  # characters of a turn that a note quotes
Asked = tuple[str, int, str | None]  # what it is called, how many calls, the content beside them
QUESTIONS: tuple[Asked, ...] = (
    ("one call", 1, None),
    ("two calls", 2, None),
    ("a call and content", 1, CONTENT),
)


def misread(grammar: Grammar, prober: Prober, shape: Shape, header: str) -> Iterator[str]:
    """What the template writes and the grammar does not read back, at most one note."""
    for title, count, content in QUESTIONS:
        turn = prober.turn(prober.calls(shape, *ARGUMENTS[:count], content=content))
        if turn is None or not all(name in turn.text for name in NAMES[:count]):
            continue
        if content is not None and (grammar.calls is None or grammar.calls.excludes_content):
            continue
        reply = turn.text[len(header) :] if turn.text.startswith(header) else turn.text
        if not same(parse(grammar, reply, "", TOOLS), count, content):
            shown = reply if len(reply) <= SHOWN else reply[:SHOWN] + "..."
            yield f"calls: what is written is not read back the same: {title}, {shown!r}"
            return


def same(message: Any, count: int, content: str | None) -> bool:
    """Whether a message says the calls of the probe, and beside them the content and nothing else."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    if [function["name"] for function in functions] != list(NAMES[:count]):
        return False
    try:
        arguments = [json.loads(function["arguments"]) for function in functions]
    except ValueError:
        return False
    return arguments == list(ARGUMENTS[:count]) and (message["content"] or "").strip() == (content or "")

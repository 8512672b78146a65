"""The last question of a derivation: does the grammar read back what the template wrote?

A layout may be understood and still not be readable: calls that open with nothing at all are not looked for in the
middle of a text, and texts without quotes end nowhere. So the calls of the probes are read with the grammar that
was derived from them, and what comes back as something else is named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from turnwise.analysis.prober import ARGUMENTS, CONTENT, NAMES, TOOLS, Prober, Shape
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.parser import parse

SHOWN = 120  # characters of a turn that a note quotes


class Asked(NamedTuple):
    """What was asked: what it is called, the arguments of each call, the content beside them."""

    title: str
    arguments: tuple[dict[str, Any], ...]
    content: str | None = None


QUESTIONS = (
    Asked("one call", ARGUMENTS[:1]),
    Asked("two calls", ARGUMENTS),
    Asked("a call and content", ARGUMENTS[:1], CONTENT),
    Asked("a call without arguments", ({},)),
)


def misread(grammar: Grammar, prober: Prober, shape: Shape, header: str) -> Iterator[str]:
    """What the template writes and the grammar does not read back, at most one note."""
    for asked in QUESTIONS:
        turn = prober.turn(prober.calls(shape, *asked.arguments, content=asked.content))
        if turn is None or not all(name in turn.text for name in names(asked)):
            continue
        if asked.content is not None and (grammar.calls is None or grammar.calls.excludes_content):
            continue
        reply = turn.text[len(header) :] if turn.text.startswith(header) else turn.text
        if not same(parse(grammar, reply, "", TOOLS), asked):
            shown = reply if len(reply) <= SHOWN else reply[:SHOWN] + "..."
            yield f"calls: what is written is not read back the same: {asked.title}, {shown!r}"
            return


def names(asked: Asked) -> list[str]:
    return list(NAMES[: len(asked.arguments)])


def same(message: Any, asked: Asked) -> bool:
    """Whether a message says the calls of the probe, and beside them the content and nothing else."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    if [function["name"] for function in functions] != names(asked):
        return False
    try:
        arguments = [json.loads(function["arguments"]) for function in functions]
    except ValueError:
        return False
    return arguments == list(asked.arguments) and (message["content"] or "").strip() == (
        asked.content or ""
    )

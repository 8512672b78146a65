"""The last question of a derivation: does the grammar parse what the template wrote?

A layout may be understood and still not be parsable: calls without any opener are not looked for in the middle of a
text, and texts without quotes have no end. So the calls of the probes are parsed with the grammar that was derived
from them, and what is parsed as something else is noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from turnwise.analysis.prober import (
    ARGUMENTS,
    CONTENT,
    NAMES,
    TOOLS,
    CallShape,
    Prober,
    replace_placeholders,
)
from turnwise.replies.equality import messages_equal
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.parser import parse

MAX_QUOTE_LENGTH = 120  # characters of a turn that a note quotes


class CallProbe(NamedTuple):
    """A message with calls: its title in notes, the arguments of each call, the content beside them."""

    title: str
    arguments: tuple[dict[str, Any], ...]
    content: str | None = None


PROBES = (
    CallProbe("one call", ARGUMENTS[:1]),
    CallProbe("two calls", ARGUMENTS),
    CallProbe("a call and content", ARGUMENTS[:1], CONTENT),
    CallProbe("a call without arguments", ({},)),
)


def roundtrip_failures(
    grammar: Grammar, prober: Prober, shape: CallShape, header: str
) -> Iterator[str]:
    """A note on the first probe that the template writes and the grammar does not parse back."""
    excludes_content = grammar.calls is None or grammar.calls.excludes_content
    for probe in PROBES:
        turn = prober.turn(prober.call(shape, *probe.arguments, content=probe.content))
        names = NAMES[: len(probe.arguments)]
        if turn is None or not all(name in turn.text for name in names):
            continue
        if probe.content is not None and excludes_content:
            continue
        reply = replace_placeholders(turn.text.removeprefix(header))
        expected = prober.call(CallShape(), *probe.arguments, content=probe.content)
        if not messages_equal(parse(grammar, reply, "", TOOLS), expected):
            quote = reply if len(reply) <= MAX_QUOTE_LENGTH else reply[:MAX_QUOTE_LENGTH] + "..."
            yield f"calls: parsing the rendered call gives a different call: {probe.title}, {quote!r}"
            return

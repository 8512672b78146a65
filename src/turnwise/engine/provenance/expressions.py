"""Which expression of a template wrote a text.

Ordinary programs note nothing about it, which would slow every rendering down. When it is asked, the conversation is
rendered once more by a program that writes a mark, an empty text, before each value that it outputs
(`MarkedProgram`):

    {{ '<|' + message.role }}{{ message.content }}

    "<|", 0,   "", (WRITER, 1), "user", ...,   "", (WRITER, 2), "Hi", ...      1 and 2 are numbers of places

Marks are no part of any value, so a template that looks at what it wrote cannot see them.

A value may be a text that other expressions wrote: that of a macro, of a `{% set %}` block. So an expression may write
inside of another one, which is its *caller*. What a filter made of such a text counts as written by the expression with
the filter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from turnwise.engine.provenance.splitting import pairs_of
from turnwise.engine.provenance.text_rules import JOINED
from turnwise.engine.provenance.trails import Rule, TracedText, Trail

MAX_INNER_TEXTS = 100_000  # texts within texts that are read

# Marks: trails of empty texts, with the number of a place.
WRITER = Rule("WRITER")  # the expression at this place writes the next text
CALL = Rule("CALL")  # a macro writes what follows, which the expression at this place calls
RETURN = (Rule("RETURN"),)  # up to here

Position = tuple[int, int]
"""Line and column in a template, counted from 1."""


class WrittenSpan(NamedTuple):
    """Characters of a rendering that one expression or one literal of the template wrote.

    Attributes:
        start, end: the characters.
        expression: where it begins in the template; None if that is not known.
        caller: where the outermost expression begins that wrote it, such as the call of a macro; `expression`, if it
            is no part of the value of another one.
        execution: the same number for all that one execution of the caller wrote.
    """

    start: int
    end: int
    expression: Position | None
    caller: Position | None
    execution: int


class MarkReader:
    """Reads the marks in what a program wrote.

    Args:
        places: line and column of each number in the marks and of each literal.
    """

    def __init__(self, places: Sequence[Position]) -> None:
        self._places = places
        self._inner_texts = 0
        self._executions = 0
        # the expressions that are writing and their executions, from the outermost to the innermost
        self._writers: list[tuple[Position, int]] = []
        self._marked: Position | None = None  # the expression whose value is the next text

    def read(self, out: Sequence[Any]) -> list[WrittenSpan]:
        """Return the spans of an output, in order."""
        spans: list[WrittenSpan] = []
        start = 0
        # what is left to read of a text, its end, and how many expressions were writing outside of it
        waiting: list[tuple[Iterator[TracedText], int, int]]
        waiting = [(pairs_of(out), sum(map(len, out[::2])), 0)]
        while waiting:
            pairs, end, outer_writers = waiting[-1]
            for text, trail in pairs:
                if not text:
                    self._read_mark(trail)
                    continue
                expression, self._marked = self._marked, None
                if self._can_open(text, trail):
                    waiting.append((pairs_of(trail[1]), start + len(text), len(self._writers)))
                    if expression is not None:
                        self._open(expression)
                    break
                spans.append(self._make_span(start, start + len(text), expression, trail))
                start += len(text)
            else:
                waiting.pop()
                del self._writers[outer_writers:]
                start = end
        return spans

    def _read_mark(self, trail: Trail) -> None:
        rule = trail[0] if type(trail) is tuple else None
        self._marked = self._places[trail[1]] if rule is WRITER else None
        if rule is CALL:
            self._open(self._places[trail[1]])
        elif trail is RETURN:
            self._writers.pop()

    def _open(self, expression: Position) -> None:
        self._executions += 1
        self._writers.append((expression, self._executions))

    def _can_open(self, text: str, trail: Trail) -> bool:
        """Return whether a text was joined of others, which are read then."""
        if type(trail) is not tuple or trail[0] is not JOINED:
            return False
        self._inner_texts += len(trail[1])
        return self._inner_texts < MAX_INNER_TEXTS and sum(map(len, trail[1][::2])) == len(text)

    def _make_span(
        self, start: int, end: int, expression: Position | None, trail: Trail
    ) -> WrittenSpan:
        if expression is None and type(trail) is int:  # a literal
            expression = self._places[trail]
        if not self._writers:
            self._executions += 1
            return WrittenSpan(start, end, expression, expression, self._executions)
        return WrittenSpan(start, end, expression or self._writers[-1][0], *self._writers[0])


def find_span(spans: Sequence[WrittenSpan], character: int) -> WrittenSpan | None:
    """Return the span that a character is in; None if that is not known."""
    index = bisect_right(spans, character, key=lambda span: span.start) - 1
    return spans[index] if index >= 0 and character < spans[index].end else None

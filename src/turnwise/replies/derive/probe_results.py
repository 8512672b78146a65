"""Answers: the turns that a template writes for the probes, and what all of them begin with.

The questions are few: a message that only says something, one that only calls, one with reasoning, content beside a
call, and the openings of prompts. The header is what all of them share. White space before it may differ from one turn
to the next; if the turns share nothing else, it is left out. Calls may be messages of another kind, with a header of
their own: then theirs does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from turnwise.analysis.prober import (
    AGAIN,
    ARGUMENTS,
    CONTENT,
    IDS,
    NAMES,
    REASONING,
    RESULT,
    RESULTS,
    Prober,
)
from turnwise.analysis.segment import NONE, Stretch, behind, shared_end, shared_start, upto
from turnwise.replies.derive.calls import Written, one_call
from turnwise.replies.derive.pairs import MARKUP, ODD
from turnwise.replies.derive.reasoning import Thought, find_thought, mirrored


class Answers:
    """What one template answered."""

    def __init__(self, prober: Prober) -> None:
        self.prober = prober
        self.header = NONE
        self.spoken = self.speaks()
        self.ask()
        if not self.header.core:
            self.ask(trimmed=True)
        if not self.header.core:
            self.ask()
        if self.thought is not None and not self.unopened(self.thought):
            before = upto(self.thought.turn, REASONING)
            opener, _ = self.thought.markers(self.header)
            self.header = self.header.part(0, min(len(self.header), len(before) - len(opener)))

    def ask(self, trimmed: bool = False) -> None:
        """Put the questions; `trimmed` if the white space before a turn is not the same everywhere."""
        prober = self.prober
        prober.trimmed = trimmed
        self.plain = prober.turn({"content": prober.said(CONTENT)}) if self.spoken else None
        self.opening = prober.prompt() or NONE
        self.prompts = [
            self.opening,
            *filter(None, (prober.prompt(**options) for options in prober.switches())),
        ]
        self.one = one_call(prober)
        self.thought = find_thought(prober, self.one)
        self.header = self.find_header()

    def speaks(self) -> bool:
        """Find how the template takes a message that only says something; whether its text comes out at all."""
        prober = self.prober
        for prober.followed, parts in product((False, True), repeat=2):
            turn = prober.turn({"content": prober.said(CONTENT)}) if prober.settle(parts) else None
            if turn is not None and CONTENT in turn.text:
                return True
        prober.followed = False
        if not prober.settle(False):
            prober.settle(True)
        return False

    def verbatim(self) -> bool:
        """Whether quotes, lines, slashes and markup of a content come out as they are."""
        turns = (
            (text, self.prober.turn({"content": self.prober.said(text)})) for text in (ODD, MARKUP)
        )
        return all(turn is None or text in turn.text for text, turn in turns)

    def find_header(self) -> Stretch:
        """What every turn begins with: it stands in all prompts and in all messages."""
        turns = self.prompts[:]
        if self.plain is not None:
            turns.append(upto(self.plain, CONTENT))
            earlier = self.prober.turn(
                {"content": self.prober.said(CONTENT)}, self.prober.user(AGAIN)
            )
            turns += [upto(earlier, CONTENT)] if earlier is not None else []
        if self.thought is not None:
            turns.append(upto(self.thought.turn, REASONING))
        header = turns[0]
        for turn in turns[1:]:
            header = turn.part(0, shared_start(header, turn))
        if self.one is None:
            return header
        called = self.one.turn.part(0, self.one.spans[0][0])
        shared = called.part(0, shared_start(header, called))
        return (
            shared if shared.core or self.closer(self.one).core else header
        )  # else calls are messages of their own

    def closer(self, one: Written) -> Stretch:
        """What stands behind content and not behind calls."""
        tail = behind(self.plain, CONTENT) if self.plain is not None else NONE
        return tail.part(0, len(tail) - shared_end(tail, one.turn.part(one.spans[-1][1])))

    def headless(self, before: Stretch) -> Stretch:
        """What stands before a call, without the header."""
        return before.part(len(self.header)) if before.text.startswith(self.header.text) else before

    def unopened(self, thought: Thought) -> bool:
        """Reasoning stands right behind the header, where content stands too: no marker opens it."""
        before, (_, close) = upto(thought.turn, REASONING), thought.markers(self.header)
        if (
            self.plain is None
            or not before.core == self.header.core == upto(self.plain, CONTENT).core
        ):
            return False
        return mirrored(before.text, close.text) is None

    def called(self) -> Stretch:
        """What stands between the header and a call."""
        return (
            self.headless(self.one.turn.part(0, self.one.spans[0][0]))
            if self.one is not None
            else NONE
        )

    def prompted(self) -> Stretch:
        """What the opening has behind the header."""
        return (
            self.opening.part(len(self.header))
            if self.opening.text.startswith(self.header.text)
            else NONE
        )

    def behind_result(self, one: Written, **options: Any) -> Stretch:
        """What a prompt has behind a tool's result."""
        call = {"role": "assistant", **self.prober.calls(one.shape, ARGUMENTS[0])}
        prompt = self.prober.rendering(
            [self.prober.user(), call, RESULTS[0]], add_generation_prompt=True, **options
        )
        return (
            behind(self.prober.stretch(prompt, 0), RESULT)
            if prompt is not None and RESULT in prompt.text
            else NONE
        )

    def resumed(self) -> Iterator[Stretch]:
        """What an option adds to such a prompt."""
        if self.one is None:
            return
        usual = self.behind_result(self.one)
        for options in self.prober.switches():
            other = self.behind_result(self.one, **options)
            if other.text.startswith(usual.text):
                yield other.part(len(usual))

    def beside(self) -> Stretch | None:
        """Content and a call; None if only one of them comes out."""
        if self.one is None:
            return None
        turn = self.prober.turn(self.prober.calls(self.one.shape, ARGUMENTS[0], content=CONTENT))
        both = (
            turn is not None
            and CONTENT in turn.text
            and any(word in turn.text for word in (NAMES[0], IDS[0]))
        )
        return turn if both else None

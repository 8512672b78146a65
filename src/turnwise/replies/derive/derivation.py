"""Derive a grammar from a template.

Idea: let the template write messages whose every field is a word of its own. What stands between two fields *is* a
marker. Where several markers stand together, more renderings take them apart: a turn with and without reasoning, one
call and two, the opening that serving sends. Texts are cut only at boundaries (`stretch.py`).

    header  reasoning.open  R  reasoning.close  content.open  C  content.close  end of turn
    header  section.open  each.open  CALL  each.close  between  each.open  CALL  each.close  section.close  end of turn

The grammar then reads the probes back (`readback.py`), and what comes back as something else is named.

What a template never writes cannot be learned from it, except what it looks for: `content.split('</think>')` tells
that replies may hold `</think>`. What no probe showed is listed in `Grammar.unreached`; an entry of the registry may
declare it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from turnwise.analysis.prober import (
    AGAIN,
    ARGUMENTS,
    CONTENT,
    IDS,
    NAMES,
    RESULT,
    RESULTS,
    Prober,
    Template,
)
from turnwise.analysis.segment import (
    NONE,
    Stretch,
    behind,
    between,
    blank,
    shared_end,
    shared_start,
    upto,
)
from turnwise.engine.compiler.searched import searched_strings
from turnwise.replies.derive.calls import Written, completed, digits_in, shown, two_calls
from turnwise.replies.derive.ends import split_close, stop_of, stops_of, uncounted
from turnwise.replies.derive.objects import decoded
from turnwise.replies.derive.pairs import MARKUP, ODD
from turnwise.replies.derive.probe_results import Answers
from turnwise.replies.derive.reasoning import kindred, sought_region, verbatim, whereabouts
from turnwise.replies.derive.selfcheck import misread
from turnwise.replies.derive.validate import fault, fitting
from turnwise.replies.grammar import Calls, Grammar, JsonCall, Marker, Region, Source, TaggedCall

REFUSED = (
    "content, reasoning, calls: the template refuses a user's message, or spends too much on it"
)
ROLE = re.compile(
    r"""['"](\w*(?:tool|function)_call\w*)['"]"""
)  # what may be the name of a role, in a source


def derive(template: Template, tokens: Iterable[str] = ()) -> Grammar:
    """How replies to this template look, as far as its renderings tell.

    `tokens` are the texts of a tokenizer's added tokens, where it is known: markers are not cut within them.
    """
    prober = Prober(template, tokens)
    if not any(prober.settle(parts) for parts in (False, True)):
        return Grammar(unreached=(REFUSED,))
    return Derivation(prober).grammar()


class Derivation(Answers):
    """What follows from the answers of one template."""

    def __init__(self, prober: Prober) -> None:
        super().__init__(prober)
        self.starts: dict[str, None] = {}
        self.stops: dict[str, None] = {}
        self.unreached: list[str] = []
        self.sources: dict[str, Source] = {}
        self.content_open = self.content_close = self.end = NONE
        self.empty = self.last_stop = ""

    def grammar(self) -> Grammar:
        reasoning = self.reasoning()
        self.read_content()
        calls = self.calls(reasoning)
        self.read_stops(calls)
        if self.prober.exceeded:
            self.unreached.append(
                "content, reasoning, calls: what is written for a message is too long to be looked at"
            )
        if self.plain is None:
            self.unreached.append("content: no message's text comes out")
        elif not self.verbatim():
            self.unreached.append("content: it does not come out letter for letter")
        if self.thought is not None and not verbatim(self.prober, self.thought, (ODD, MARKUP)):
            self.unreached.append("reasoning: it does not come out letter for letter")
        if self.thought is None and reasoning is None:
            self.unreached.append(f"reasoning: {whereabouts(self.prober, self.one)}")
        self.sources.update({"content": "derived"} if self.plain else {})
        found = Grammar(
            opening=self.opening.text,
            reopening=self.reopening(reasoning),
            reasoning=reasoning,
            content=Region(self.content_open.marker(), self.content_close.marker()),
            calls=calls,
            stops=tuple(self.stops),
            starts=tuple(self.starts),
            empty=self.empty,
            unreached=tuple(self.unreached),
            sources=self.sources,
        )
        found = fitting(found)
        return (
            self.checked(found, self.one)
            if self.one is not None and found.calls is not None
            else found
        )

    def checked(self, found: Grammar, one: Written) -> Grammar:
        """The grammar with a note of what it does not read back; first a single call may be written in its own way."""
        notes = list(misread(found, self.prober, one.shape, self.header.text))
        if notes and found.calls is not None and found.calls.section:
            lone = self.alone(
                replace(found.calls, section=Region(), between=Marker()),
                one,
                found.reasoning,
                False,
            )
            other = replace(found, more=(lone,))
            if not fault(lone) and not list(
                misread(other, self.prober, one.shape, self.header.text)
            ):
                return other
        return replace(found, unreached=(*found.unreached, *notes))

    def reopening(self, reasoning: Region | None) -> str:
        """The last tag of a prompt behind a tool's result, if no header stands there."""
        if self.one is None or not self.header.core:
            return ""
        tail = self.behind_result(self.one)
        if self.header.core in tail.text:
            return ""
        cores = [
            self.content_open.core,
            *((reasoning.open.core, reasoning.close.core) if reasoning else ()),
        ]
        cuts = [tail.text.index(core) for core in cores if core and core in tail.text]
        tail = tail.part(0, min(cuts, default=None))
        return tail.text[tail.tags[-1][0] :] if tail.tags else ""

    # Reasoning and content

    def reasoning(self) -> Region | None:
        """The markers around reasoning; what stands before content comes out beside it."""
        plain = upto(self.plain, CONTENT).part(len(self.header)) if self.plain is not None else NONE
        if self.thought is None:
            return self.sought_reasoning(plain)
        open_, close = self.thought.markers(self.header)
        if self.unopened(self.thought):
            open_ = self.prompted()
            if not open_.core:
                self.unreached.append(
                    "reasoning: no marker opens it, so nothing tells it from content"
                )
                return None
        self.sources["reasoning"] = "derived"
        if not self.thought.before_content:
            self.content_open = plain if not (close.core and close.core in plain.text) else NONE
            return Region(open_.marker(), self.without_start(close).marker())
        closer, opener = split_close(open_, close, plain, self.called())
        self.empty = (
            plain.text[: len(plain) - len(opener)]
            if plain.text.endswith(opener.text)
            else plain.text
        )
        self.content_open = opener
        return Region(open_.marker(), self.without_start(closer).marker())

    def sought_reasoning(self, plain: Stretch) -> Region | None:
        """Reasoning that the template never writes; `plain` stands between header and content."""
        self.content_open = plain
        opened = self.prompted()
        texts = [text for source in self.prober.texts for text in searched_strings(source)]
        region = sought_region(texts, self.prompts, plain, opened) or kindred(texts, self.resumed())
        if region is None:
            return None
        self.sources["reasoning"] = "searched"
        if self.header.core.endswith(region.open.core):
            size = self.header.text.rindex(region.open.core)
            self.header = self.header.part(0, size)
            plain = upto(self.plain, CONTENT).part(size) if self.plain is not None else NONE
        if region.close.core in plain.text:
            rest = plain.text.index(region.close.core) + len(region.close.core)
            self.empty, self.content_open = plain.text, plain.part(rest + blank(plain.text[rest:]))
        return region

    def without_start(self, stretch: Stretch) -> Stretch:
        """A stretch without the header of another message at its end, which is kept in mind."""
        own = self.header.text.strip()
        if own and stretch.text.rstrip().endswith(own):
            self.starts[self.header.text] = None
            return stretch.part(0, stretch.text.rindex(own))
        return stretch

    def read_content(self) -> None:
        """What stands behind content: its closing marker, and the end of the turn."""
        if self.plain is None:
            return
        tail = behind(self.plain, CONTENT)
        size = len(tail)
        if self.one is not None:
            size = shared_end(tail, self.one.turn.part(self.one.spans[-1][1])) or len(
                tail
            ) - self.closed(tail)
        if size == len(tail) and self.content_open.core:  # content that is opened is closed
            tags = max(len(self.content_open.tags), 1)
            if len(tail.tags) > tags:
                size = len(tail) - tail.tags[tags - 1][1]
        space = blank(tail.text[len(tail) - size :])
        if space and self.closed_by(tail.text[len(tail) - size :][:space]):
            size -= space  # white space before the stop is not content
        self.content_close, self.end = tail.part(0, len(tail) - size), tail.part(len(tail) - size)
        turn = self.prober.turn({"content": self.prober.said(CONTENT)}, self.prober.user(AGAIN))
        if not self.end.core and turn is not None and AGAIN in turn.text and CONTENT in turn.text:
            self.last_stop = stop_of(
                uncounted(behind(upto(turn, AGAIN), CONTENT).part(len(self.content_close)))
            )

    def closed(self, tail: Stretch) -> int:
        """How much of what stands behind content stands there before a call too, and does not end a message."""
        turn = self.beside()
        rest = behind(turn, CONTENT) if turn is not None else NONE
        size = shared_start(tail, rest)
        ended = self.header.core and rest.text[size:].lstrip().startswith(self.header.core)
        called = any(word in rest.text for word in (NAMES[0], IDS[0]))
        return size if called and tail.part(0, size).core and not ended else 0

    def closed_by(self, space: str) -> bool:
        """Whether white space before the end of a turn closes content: then it stands there before a call too."""
        if self.one is None or self.plain is None:
            return True
        turn = self.beside()
        if not behind(self.plain, CONTENT).core or turn is None:
            return bool(behind(self.plain, CONTENT).core)
        rest = behind(turn, CONTENT).text
        if NAMES[0] not in rest:  # the call stands before content
            return True
        more = rest[len(space) : len(space) + 1].isspace()
        return (
            rest.startswith(space) and not more and not rest.startswith(self.called().text or space)
        )

    # Calls

    def calls(self, reasoning: Region | None) -> Calls | None:
        if self.one is None:
            return self.by_role()
        one, two = self.one, two_calls(self.prober, self.one)
        call, unread = completed(self.prober, one)
        self.unreached += [f"calls: {what}" for what in unread]
        calls = Calls(call)
        single = isinstance(call, JsonCall) and call.listed
        if two is not None and isinstance(call, JsonCall) and isinstance(two.call, JsonCall):
            calls = replace(calls, call=replace(call, around=two.call.around, parts=two.call.parts))
        elif two is not None and isinstance(call, TaggedCall) and "index" in two.call.parts:
            calls = replace(calls, call=replace(call, parts=two.call.parts))
        calls = replace(calls, first=first_number(two or one))
        if two is not None and len(two.spans) == 2:
            calls = self.several(calls, two, reasoning)
        else:
            if two is None:
                self.unreached.append("calls: the template does not write two calls")
            calls = self.alone(calls, one, reasoning, single)
        calls = self.with_content(calls, reasoning)
        if found := fault(calls):
            self.unreached.append(f"calls: {found}")
            return None
        self.sources["calls"] = "derived"
        return calls

    def by_role(self) -> Calls | None:
        """Calls that are a message of a role of their own, whose text somebody else has written."""
        for role in dict.fromkeys(
            role for text in self.prober.texts for role in ROLE.findall(text)
        ):
            turn = self.prober.turn({"role": role, "content": self.prober.said(CONTENT)})
            if turn is None or not self.header.core or not turn.text.startswith(self.header.text):
                continue
            before = upto(turn, CONTENT).part(len(self.header))
            if before.core and CONTENT in turn.text:
                self.sources["calls"] = "searched"
                self.unreached.append(
                    f"calls: {role!r} has a marker, and what stands behind it is taken for JSON"
                )
                around = Region(
                    before.marker(), self.section_end(behind(turn, CONTENT), before).marker()
                )
                return Calls(JsonCall(listed=True), section=around)
        self.unreached.append(f"calls: {shown(self.prober)}")
        return None

    def several(self, calls: Calls, two: Written, reasoning: Region | None) -> Calls:
        """Section, separator and what surrounds each call, from a turn with two."""
        (start, end), (second, last) = two.spans
        before = self.bare(self.headless(two.turn.part(0, start)), reasoning)
        after, middle = two.turn.part(last), two.turn.part(end, second)
        close, separator, open_ = between(middle, before, after)
        section = before.part(0, len(before) - len(open_))
        rest = after.part(len(close))
        closing = self.section_end(rest, section)
        separator = self.without_start(separator)
        if any(
            kind == "computed"
            for part in (section, close, open_, closing)
            for _, _, kind in digits_in(part)
        ):
            self.unreached.append("calls: a marker around them holds a number that is computed")
        return replace(
            calls,
            section=Region(section.marker(), closing.marker()),
            each=Region(open_.marker(), close.marker()),
            between=separator.marker(),
        )

    def alone(self, calls: Calls, one: Written, reasoning: Region | None, single: bool) -> Calls:
        """What surrounds the only call, or the list of all calls."""
        (start, end) = one.spans[0]
        before = self.bare(self.headless(one.turn.part(0, start)), reasoning)
        around = Region(before.marker(), self.section_end(one.turn.part(end), before).marker())
        return replace(calls, section=around) if single else replace(calls, each=around)

    def section_end(self, rest: Stretch, section: Stretch) -> Stretch:
        """What closes a section, without the end of the turn, which is kept in mind where it is another."""
        size = shared_end(rest, self.end)
        if size and (size == len(self.end) or rest.part(len(rest) - size).core):
            return rest.part(0, len(rest) - size)
        if not self.end.core:
            at = rest.text.find(self.last_stop) if self.last_stop else -1
            return rest.part(0, at) if at >= 0 else rest
        if not rest.core:
            return rest
        tags = rest.tags
        at = tags[0][1] if section.core and tags else 0
        stop = stop_of(rest.text[at:]) or stop_of(rest.text)
        if stop:
            self.stops[stop] = None
        return rest.part(0, at)

    def bare(self, before: Stretch, reasoning: Region | None) -> Stretch:
        """What stands before a call, without empty reasoning, empty content and the header of another message."""
        if reasoning is not None and reasoning.close.core and reasoning.close.core in before.text:
            at = before.text.index(reasoning.close.core) + len(reasoning.close.core)
            trail = reasoning.close.trail
            before = before.part(at + (len(trail) if before.text.startswith(trail, at) else 0))
        opener, closer = self.content_open.text, self.content_close.text
        if self.content_open.core and before.text.startswith(opener + closer):
            before = before.part(len(opener + closer))
        own = self.header.text.strip()
        if own and own in before.text:
            self.starts[self.header.text] = None
            before = before.part(before.text.rindex(own) + len(own))
        return before

    def with_content(self, calls: Calls, reasoning: Region | None) -> Calls:
        """How content stands with calls: before them, behind them, or not at all."""
        turn = self.beside()
        if turn is None:
            return replace(calls, excludes_content=True)
        at = turn.text.find(CONTENT)
        if at > min(turn.text.find(word) for word in (NAMES[0], IDS[0]) if word in turn.text):
            return replace(calls, content_after=True)
        if (
            reasoning is not None
            and reasoning.open.core
            and turn.text[:at].endswith(reasoning.open.text)
        ):
            return replace(
                calls, excludes_content=True
            )  # beside a call, content is written as reasoning
        gap = turn.part(at + len(CONTENT))
        opener = calls.section.open.text + calls.each.open.text
        if (
            opener not in gap.text and opener.lstrip() in gap.text
        ):  # the white space stood for content that is empty
            calls = without_lead(calls)
            opener = calls.section.open.text + calls.each.open.text
        size = gap.text.find(opener) if opener else start_of_call(gap)
        gap = gap.part(0, max(size, 0))
        closer = self.content_close.text
        if closer and gap.text.startswith(closer):
            gap = gap.part(len(closer))
        return replace(calls, lead=self.without_start(gap).marker())

    # The end

    def read_stops(self, calls: Calls | None) -> None:
        """What ends a turn; where the template writes nothing there, what the next turn begins with does."""
        found = [*stops_of(stop_of(self.end.text)), self.last_stop]
        if not self.end.core and self.one is not None and calls is not None:
            turn = self.prober.turn(self.prober.calls(self.one.shape, ARGUMENTS[0]), RESULTS[0])
            end = self.one.spans[-1][1]
            if (
                turn is not None
                and turn.text.startswith(self.one.turn.text[:end])
                and RESULT in turn.text[end:]
            ):
                rest = upto(turn, RESULT).text[
                    end + len(calls.each.close.text + calls.section.close.text) :
                ]
                found.append(stop_of(rest) if Stretch(stop_of(rest)).tags else "")
        self.stops = {**dict.fromkeys(filter(None, found)), **self.stops}


def first_number(calls: Written) -> int:
    """Where the template begins to count calls."""
    start, end = calls.spans[0]
    if isinstance(calls.call, JsonCall):
        found = decoded(calls.turn.text, start)
        value = (
            found.value[0]
            if found is not None and isinstance(found.value, list)
            else found and found.value
        )
        number = str(value.get(calls.call.id)) if isinstance(value, dict) else ""
        return int(number) if number.isdecimal() else 0
    if "index" not in calls.call.parts:
        return 0
    return next((int(calls.turn.text[at:to]) for at, to, _ in digits_in(calls.turn, start, end)), 0)


def start_of_call(gap: Stretch) -> int:
    """Where a call begins that has no marker before it: with a bracket, or its name."""
    return min(
        (gap.text.find(word) for word in ("[", "{", NAMES[0]) if word in gap.text), default=0
    )


def without_lead(calls: Calls) -> Calls:
    """Calls whose opening marker has no white space before it."""
    for name in ("section", "each"):
        region: Region = getattr(calls, name)
        if region.open:
            opens = replace(region.open, text=region.open.text.lstrip())
            found: dict[str, Any] = {name: Region(opens, region.close)}
            return replace(calls, **found)
    return calls

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

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from turnwise.engine.sought import sought
from turnwise.replies.calls import Written, completed, one_call, slots_in, two_calls
from turnwise.replies.grammar import Calls, Grammar, JsonCall, Region, Source, calls_rows
from turnwise.replies.objects import decoded
from turnwise.replies.probing import AGAIN, ARGUMENTS, CONTENT, IDS, NAMES, REASONING, RESULT, Prober, Template
from turnwise.replies.readback import misread
from turnwise.replies.stretch import NONE, Stretch, between, shared_end, shared_start
from turnwise.replies.thoughts import find_thought, sought_region

WORDS = (*NAMES, *IDS, CONTENT, REASONING, *(key for given in ARGUMENTS for key in given))


def derive(template: Template, tokens: Iterable[str] = ()) -> Grammar:
    """How replies to this template look, as far as its renderings tell.

    `tokens` are the texts of a tokenizer's added tokens, where it is known: markers are not cut within them.
    """
    prober = Prober(template, tokens)
    if not any(prober.settle(parts) for parts in (False, True)):
        return Grammar(unreached=("content, reasoning, calls: the template refuses a user's message",))
    return Derivation(prober).grammar()


class Derivation:
    """The questions put to one template, and what follows from the answers."""

    def __init__(self, prober: Prober) -> None:
        self.prober = prober
        self.starts: dict[str, None] = {}
        self.stops: dict[str, None] = {}
        self.unreached: list[str] = []
        self.sources: dict[str, Source] = {}
        self.content_open = self.content_close = self.end = NONE
        self.empty = self.last_stop = ""
        self.plain = self.plainly()
        self.opening = prober.prompt() or NONE
        self.one = one_call(prober)
        self.thought = find_thought(prober, self.one)
        self.header = self.find_header()
        if self.thought is not None:
            before = upto(self.thought.turn, REASONING)
            opener, _ = self.thought.markers(self.header)
            self.header = self.header.part(0, min(len(self.header), len(before) - len(opener)))

    def plainly(self) -> Stretch | None:
        """A message that only says something."""
        for parts in (False, True):
            if not self.prober.settle(parts):
                continue
            turn = self.prober.turn({"content": self.prober.said(CONTENT)})
            if turn is not None and CONTENT in turn.text:
                return turn
        if not self.prober.settle(False):
            self.prober.settle(True)
        return None

    def find_header(self) -> Stretch:
        """What every turn begins with: it stands in all prompts and in all messages."""
        turns = [self.opening]
        turns += filter(None, (self.prober.prompt(**options) for options in self.prober.switches()))
        if self.plain is not None:
            turns.append(upto(self.plain, CONTENT))
            behind = self.prober.turn({"content": self.prober.said(CONTENT)}, self.prober.user(AGAIN))
            turns += [upto(behind, CONTENT)] if behind is not None else []
        if self.thought is not None:
            turns.append(upto(self.thought.turn, REASONING))
        if self.one is not None:
            turns.append(self.one.turn.part(0, self.one.spans[0][0]))
        header = turns[-1]
        for turn in turns[:-1]:
            header = header.part(0, shared_start(header, turn))
        return header

    def grammar(self) -> Grammar:
        reasoning = self.reasoning()
        self.read_content()
        calls = self.calls(reasoning)
        self.read_stops(calls)
        if self.plain is None:
            self.unreached.append("content: no message's text comes out")
        if reasoning is None:
            self.unreached.append("reasoning: no rendering shows it")
        self.sources.update({"content": "derived"} if self.plain else {})
        found = Grammar(
            opening=self.opening.text,
            reasoning=reasoning,
            content=Region(self.content_open.marker(), self.content_close.marker()),
            calls=calls,
            stops=tuple(self.stops),
            starts=tuple(self.starts),
            empty=self.empty,
            unreached=tuple(self.unreached),
            sources=self.sources,
        )
        if self.one is None or calls is None:
            return found
        notes = misread(found, self.prober, self.one.shape, self.header.text)
        return replace(found, unreached=(*found.unreached, *notes))

    # Reasoning and content

    def reasoning(self) -> Region | None:
        """The markers around reasoning; what stands before content comes out beside it."""
        plain = upto(self.plain, CONTENT).part(len(self.header)) if self.plain is not None else NONE
        if self.thought is None:
            return self.sought_reasoning(plain)
        open_, close = self.thought.markers(self.header)
        self.sources["reasoning"] = "derived"
        if not self.thought.before_content:
            self.content_open = plain if not (close.core and close.core in plain.text) else NONE
            return Region(open_.marker(), self.without_start(close).marker())
        closer, opener = split_close(open_, close, plain)
        self.empty = plain.text[: len(plain) - len(opener)] if plain.text.endswith(opener.text) else plain.text
        self.content_open = opener
        return Region(open_.marker(), self.without_start(closer).marker())

    def sought_reasoning(self, plain: Stretch) -> Region | None:
        """Reasoning that the template never writes; `plain` stands between header and content."""
        self.content_open = plain
        opened = self.opening.part(len(self.header)) if self.opening.text.startswith(self.header.text) else NONE
        texts = [text for source in self.prober.texts for text in sought(source)]
        region = sought_region(texts, self.opening, plain, opened)
        if region is None:
            return None
        self.sources["reasoning"] = "sought"
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
            after_calls = self.one.turn.part(self.one.spans[-1][1])
            size = shared_end(tail, after_calls) or len(tail)
        if size == len(tail) and self.content_open.core:  # content that is opened is closed
            tags = max(len(self.content_open.tags), 1)
            if len(tail.tags) > tags:
                size = len(tail) - tail.tags[tags - 1][1]
        if self.one is None and size == len(tail) and tail.core:
            size -= blank(tail.text)  # white space before the stop is not content
        self.content_close, self.end = tail.part(0, len(tail) - size), tail.part(len(tail) - size)
        turn = self.prober.turn({"content": self.prober.said(CONTENT)}, self.prober.user(AGAIN))
        if not self.end.core and turn is not None and AGAIN in turn.text and CONTENT in turn.text:
            self.last_stop = stop_of(behind(upto(turn, AGAIN), CONTENT).part(len(self.content_close)).text)

    # Calls

    def calls(self, reasoning: Region | None) -> Calls | None:
        if self.one is None:
            self.unreached.append("calls: no rendering shows a call's name with its arguments")
            return None
        one, two = self.one, two_calls(self.prober, self.one)
        call, unread = completed(self.prober, one)
        self.unreached += [f"calls: {what}" for what in unread]
        calls = Calls(call)
        single = isinstance(call, JsonCall) and call.listed
        if two is not None and isinstance(call, JsonCall) and isinstance(two.call, JsonCall):
            calls = replace(calls, call=replace(call, around=two.call.around, parts=two.call.parts))
        calls = replace(calls, first=first_number(one))
        if two is not None and len(two.spans) == 2:
            calls = self.several(calls, two, reasoning)
        else:
            if two is None:
                self.unreached.append("calls: the template does not write two calls")
            calls = self.alone(calls, one, reasoning, single)
        calls = self.with_content(calls, one, reasoning)
        if any(word in str(marker) for marker in calls_rows(calls) for word in WORDS):
            self.unreached.append("calls: a marker holds a part of the message, so the layout was not understood")
            return None
        self.sources["calls"] = "derived"
        return calls

    def several(self, calls: Calls, two: Written, reasoning: Region | None) -> Calls:
        """Section, separator and what surrounds each call, from a turn with two."""
        (start, end), (second, last) = two.spans
        before = self.bare(two.turn.part(len(self.header), start), reasoning)
        after, middle = two.turn.part(last), two.turn.part(end, second)
        close, separator, open_ = between(middle, before, after)
        section = before.part(0, len(before) - len(open_))
        rest = after.part(len(close))
        closing = self.section_end(rest, section)
        separator = self.without_start(separator)
        return replace(
            calls,
            section=Region(section.marker(), closing.marker()),
            each=Region(open_.marker(), close.marker()),
            between=separator.marker(),
        )

    def alone(self, calls: Calls, one: Written, reasoning: Region | None, single: bool) -> Calls:
        """What surrounds the only call, or the list of all calls."""
        (start, end) = one.spans[0]
        before = self.bare(one.turn.part(len(self.header), start), reasoning)
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

    def with_content(self, calls: Calls, one: Written, reasoning: Region | None) -> Calls:
        """How content stands with calls: before them, behind them, or not at all."""
        turn = self.prober.turn(self.prober.calls(one.shape, ARGUMENTS[0], content=CONTENT))
        text = turn.text if turn is not None else ""
        at, called = text.find(CONTENT), [text.find(word) for word in (NAMES[0], IDS[0]) if word in text]
        if turn is None or at < 0 or not called:
            return replace(calls, excludes_content=True)
        if at > min(called):
            return replace(calls, content_after=True)
        if reasoning is not None and reasoning.open.core and turn.text[:at].endswith(reasoning.open.text):
            return replace(calls, excludes_content=True)  # beside a call, content is written as reasoning
        gap = turn.part(at + len(CONTENT))
        opener = calls.section.open.text + calls.each.open.text
        if opener not in gap.text and opener.lstrip() in gap.text:  # the white space stood for content that is empty
            calls, opener = without_lead(calls), opener.lstrip()
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
            result = {"role": "tool", "content": RESULT, "tool_call_id": IDS[0], "name": NAMES[0]}
            turn = self.prober.turn(self.prober.calls(self.one.shape, ARGUMENTS[0]), result)
            end = self.one.spans[-1][1]
            if turn is not None and turn.text.startswith(self.one.turn.text[:end]) and RESULT in turn.text[end:]:
                rest = upto(turn, RESULT).text[end + len(calls.each.close.text + calls.section.close.text) :]
                found.append(stop_of(rest) if Stretch(stop_of(rest)).tags else "")
        self.stops = {**dict.fromkeys(filter(None, found)), **self.stops}


def first_number(one: Written) -> int:
    """Where the template begins to count calls."""
    start, end = one.spans[0]
    if isinstance(one.call, JsonCall):
        found = decoded(one.turn.text, start)
        value = found.value[0] if found is not None and isinstance(found.value, list) else found and found.value
        number = str(value.get(one.call.id)) if isinstance(value, dict) else ""
        return int(number) if number.isdecimal() else 0
    slots = slots_in(one.turn, 0, (start, end))
    return next((int(one.turn.text[a:b]) for a, b, slot in slots if slot == "index"), 0)


def start_of_call(gap: Stretch) -> int:
    """Where a call begins that has no marker before it: with a bracket, or its name."""
    return min((gap.text.find(word) for word in ("[", "{", NAMES[0]) if word in gap.text), default=0)


def without_lead(calls: Calls) -> Calls:
    """Calls whose opening marker has no white space before it."""
    for name in ("section", "each"):
        region: Region = getattr(calls, name)
        if region.open:
            opens = replace(region.open, text=region.open.text.lstrip())
            found: dict[str, Any] = {name: Region(opens, region.close)}
            return replace(calls, **found)
    return calls


def upto(turn: Stretch, word: str) -> Stretch:
    return turn.part(0, max(turn.text.find(word), 0))


def behind(turn: Stretch, word: str) -> Stretch:
    return turn.part(turn.text.find(word) + len(word))


def blank(text: str) -> int:
    return len(text) - len(text.lstrip())


def split_close(open_: Stretch, close: Stretch, plain: Stretch) -> tuple[Stretch, Stretch]:
    """What stands between reasoning and content, as the end of the one and the beginning of the other.

    `plain` stands before content where there is no reasoning: the beginning of content alone, or behind the markers of
    reasoning that is empty, or behind its end alone.
    """
    if plain.text and close.text.endswith(plain.text) and close.text[: len(close) - len(plain)].strip():
        at = len(close) - len(plain)
        return close.part(0, at), close.part(at)
    if not plain.core or not open_.core or not plain.core.startswith(open_.core):
        return close, NONE
    tags = close.tags
    count = max(len(open_.tags), 1)  # a marker is closed by as many tags as it was opened with
    if len(tags) > count:
        at = tags[count][0]
        return close.part(0, at), close.part(at)
    return close, NONE


def stops_of(stop: str) -> tuple[str, ...]:
    """A stop of several tags (`<|close|>message<|sep|><|end|>`) in two: the last may be missing, or be all there is."""
    tags = Stretch(stop).tags
    return (stop[: tags[-1][0]], stop[tags[-1][0] :]) if len(tags) > 1 else (stop,)


def stop_of(text: str) -> str:
    """The text that ends a turn: the first word, and where it begins with two tags, the first of them."""
    words = text.split()
    if not words:
        return ""
    tags = Stretch(words[0]).tags
    joined = len(tags) > 1 and tags[0][0] == 0 and tags[0][1] == tags[1][0]
    return words[0][: tags[0][1]] if joined else words[0]

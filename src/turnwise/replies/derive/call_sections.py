"""What surrounds the calls of a reply: a section, a marker around each call, a separator.

    <tool_calls>  <call>  CALL  </call>  ,  <call>  CALL  </call>  </tool_calls>  <|im_end|>
    section.open  each.open     each.close between                 section.close  end of the turn

A turn with two calls, compared with itself, tells the parts apart (`segment.split_between`). A template that writes
only one call has no more than markers around it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from turnwise.analysis.prober import CONTENT, IDS, NAMES
from turnwise.analysis.segment import Segment, after, common_suffix, split_between
from turnwise.replies.derive.calls import (
    WrittenCalls,
    complete_call,
    describe_unknown_calls,
    find_numbers,
    find_two_calls,
)
from turnwise.replies.derive.markers import find_problem, to_marker, to_region
from turnwise.replies.derive.objects import decode_value
from turnwise.replies.derive.probe_results import ContentLayout, ProbeResults
from turnwise.replies.grammar_parts import Calls, JsonCall, Marker, Region, Source, TaggedCall


@dataclass
class Notes:
    """What a derivation notes on its way."""

    unreached: list[str] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)
    starts: dict[str, None] = field(default_factory=dict)  # headers of further messages in a reply

    def without_header(self, segment: Segment, header: Segment) -> Segment:
        """Return a segment without the header of another message at its end, which is noted."""
        core = header.core
        if not core or not segment.text.rstrip().endswith(core):
            return segment
        self.starts[header.text] = None
        return segment.slice(0, segment.text.rindex(core))


class CallDerivation:
    """Derives how calls are written.

    Args:
        results: the renderings of the probes.
        content: the markers of content.
        reasoning: the markers of reasoning.
        stops: the texts that end a turn with content.
        notes: where to note what is found.
    """

    def __init__(
        self,
        results: ProbeResults,
        content: ContentLayout,
        reasoning: Region | None,
        stops: tuple[str, ...],
        notes: Notes,
    ) -> None:
        self.results = results
        self.content = content
        self.reasoning = reasoning
        self.stops = stops
        self.notes = notes

    def derive(self) -> Calls | None:
        """Return how calls are written; None if the template shows none that can be understood."""
        one, prober = self.results.one_call, self.results.prober
        if one is None:
            self.notes.unreached.append(f"calls: {describe_unknown_calls(prober)}")
            return None
        two = find_two_calls(prober, one)
        call, unread = complete_call(prober, one)
        self.notes.unreached += [f"calls: {note}" for note in unread]
        calls = Calls(_with_later_parts(call, two), first=_first_number(two or one))
        if two is not None and len(two.spans) == 2:
            calls = self._surround_several(calls, two)
        else:
            if two is None:
                self.notes.unreached.append("calls: the template does not write two calls")
            is_list = isinstance(call, JsonCall) and call.listed
            calls = self.surround_one(calls, one, is_list)
        calls = self._place_content(calls)
        if problem := find_problem(calls):
            self.notes.unreached.append(f"calls: {problem}")
            return None
        self.notes.sources["calls"] = "derived"
        return calls

    def _surround_several(self, calls: Calls, two: WrittenCalls) -> Calls:
        (_, first_end), (second_start, _) = two.spans
        prefix = self._strip_prefix(two.before)
        closer, separator, opener = split_between(
            two.turn.slice(first_end, second_start), prefix, two.after
        )
        section = prefix.slice(0, len(prefix) - len(opener))
        section_end = self._find_section_end(two.after.slice(len(closer)), section)
        separator = self.notes.without_header(separator, self.results.header)
        for part in (section, closer, opener, section_end):
            if any(kind == "computed" for _, _, kind in find_numbers(part)):
                self.notes.unreached.append(
                    "calls: a marker around them holds a number that is computed"
                )
                break
        return replace(
            calls,
            section=to_region(section, section_end),
            each=to_region(opener, closer),
            between=to_marker(separator),
        )

    def surround_one(self, calls: Calls, one: WrittenCalls, is_list: bool) -> Calls:
        """Find what surrounds the only call, or the list of all calls."""
        prefix = self._strip_prefix(one.before)
        around = to_region(prefix, self._find_section_end(one.after, prefix))
        return replace(calls, section=around) if is_list else replace(calls, each=around)

    def _find_section_end(self, rest: Segment, section: Segment) -> Segment:
        turn_end = self.content.turn_end
        size = common_suffix(rest, turn_end)
        if size and (size == len(turn_end) or rest.slice(len(rest) - size).core):
            return rest.slice(0, len(rest) - size)
        if not turn_end.core:
            ends = [rest.text.find(stop) for stop in self.stops if stop in rest.text]
            return rest.slice(0, min(ends, default=None))
        # The turn ends otherwise than one with content.
        if not rest.core:
            return rest
        return rest.slice(0, rest.tags[0][1] if section.core and rest.tags else 0)

    def _strip_prefix(self, prefix: Segment) -> Segment:
        prefix = self.results.without_header(prefix)
        if self.reasoning is not None and self.reasoning.close.core:
            closer, space = self.reasoning.close.core, self.reasoning.close.trailing_space
            if closer in prefix.text:
                prefix = after(prefix, closer)
                prefix = prefix.slice(len(space) if prefix.text.startswith(space) else 0)
        empty_content = self.content.open.text + self.content.close.text
        if self.content.open.core and prefix.text.startswith(empty_content):
            prefix = prefix.slice(len(empty_content))
        return prefix

    def _place_content(self, calls: Calls) -> Calls:
        """Find where content is written beside calls: before them, after them, or not at all."""
        turn = self.results.content_and_call()
        if turn is None:
            return replace(calls, excludes_content=True)
        content_start = turn.text.find(CONTENT)
        call_start = min(turn.text.find(word) for word in (NAMES[0], IDS[0]) if word in turn.text)
        if content_start > call_start:
            return replace(calls, content_after=True)
        opener = self.reasoning.open if self.reasoning is not None else Marker()
        if opener.core and turn.text[:content_start].endswith(opener.text):
            # Beside a call, content is written as reasoning.
            return replace(calls, excludes_content=True)
        gap = after(turn, CONTENT)
        opening = _opening_text(calls)
        if opening not in gap.text and opening.lstrip() in gap.text:
            # The white space was that of empty content.
            calls = _without_lead(calls)
            opening = _opening_text(calls)
        # A call that has no marker before it begins with a bracket, or its name.
        words = [opening] if opening else ["[", "{", NAMES[0]]
        starts = [gap.text.find(word) for word in words if word in gap.text]
        gap = gap.slice(0, min(starts, default=0))
        closer = self.content.close.text
        if closer and gap.text.startswith(closer):
            gap = gap.slice(len(closer))
        gap = self.notes.without_header(gap, self.results.header)
        return replace(calls, lead=to_marker(gap))


def _with_later_parts(
    call: JsonCall | TaggedCall, two: WrittenCalls | None
) -> JsonCall | TaggedCall:
    """Return a call with what only a second call shows: separators of a list, a number that is counted."""
    later = two.call if two is not None else None
    if isinstance(call, JsonCall) and isinstance(later, JsonCall):
        return replace(call, around=later.around, parts=later.parts)
    if isinstance(call, TaggedCall) and later is not None and "index" in later.parts:
        return replace(call, parts=later.parts)
    return call


def _first_number(calls: WrittenCalls) -> int:
    start, end = calls.spans[0]
    if isinstance(calls.call, JsonCall):
        found = decode_value(calls.turn.text, start)
        value = found.value if found is not None else None
        if isinstance(value, list):
            value = value[0]
        number = str(value.get(calls.call.id)) if isinstance(value, dict) else ""
        return int(number) if number.isdecimal() else 0
    if "index" in calls.call.parts:
        for number_start, number_end, _ in find_numbers(calls.turn, start, end):
            return int(calls.turn.text[number_start:number_end])
    return 0


def _opening_text(calls: Calls) -> str:
    return calls.section.open.text + calls.each.open.text


def _without_lead(calls: Calls) -> Calls:
    name = "section" if calls.section.open else "each"
    region: Region = getattr(calls, name)
    opener = replace(region.open, text=region.open.text.lstrip())
    changes: dict[str, Any] = {name: replace(region, open=opener)}
    return replace(calls, **changes)

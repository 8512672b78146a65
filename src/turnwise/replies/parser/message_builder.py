"""What has been parsed of a reply: typed spans, content, reasoning, calls, attempts, and the events
to hand out.

Events are final, so whitespace at the start of a region is kept back until something else follows
it: it is dropped if the region holds nothing else. So is whitespace after reasoning, which is
dropped if a call ends it. While a call has no name yet, its text is kept, since it may turn out to
be content.
"""

from __future__ import annotations

import json
import re
from io import StringIO
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from turnwise.replies.call_ids import CallIds
from turnwise.replies.events import (
    ARGUMENTS,
    END,
    REASONING,
    REPEATED,
    START,
    STOP,
    TEXT,
    Event,
    Kind,
)
from turnwise.replies.parser.detokenizer import IncrementalDetokenizer
from turnwise.replies.parser.values import escape

# ---- event queue ----
#
# The events of a reply that have not been handed out yet.
#
# Text that follows text of the same kind is part of the same event, as long as that has not been handed out.


class EventQueue:
    """Events in the order of the reply."""

    __slots__ = ("_events", "_held_from")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._held_from: int | None = None  # events from here on may still be dropped

    def hold(self) -> None:
        """Hold back all events from now on."""
        self._held_from = len(self._events)

    def release(self, drop: bool) -> None:
        """Hold back no longer, or drop what was held back."""
        if drop:
            del self._events[self._held_from :]
        self._held_from = None

    def add(self, event: Event) -> None:
        """Add an event."""
        self._events.append(event)

    def add_text(self, kind: Kind, text: str, call: int | None = None) -> None:
        """Add text, which is part of the event before it if that is of the same kind and call."""
        # As its constructor does, which is twice as slow: there may be an event for each character.
        self._events.append(tuple.__new__(Event, (kind, text, call, None, None)))

    def take(self) -> list[Event]:
        """Return the events since the last time."""
        events, self._events = self._events, []
        if self._held_from is not None:
            self._events, self._held_from = events[self._held_from :], 0
            del events[len(events) - len(self._events) :]
        return events if len(events) < 2 else _join_texts(events)


def _join_texts(events: list[Event]) -> list[Event]:
    joined: list[Event] = []
    for _, group in groupby(events, key=itemgetter(0, 2, 4)):  # kind, call and id
        first, *others = group
        if others:
            first = first._replace(text=first.text + "".join([event.text for event in others]))
        joined.append(first)
    return joined


# ---- message builder ----


UndeclaredTools = Literal["keep", "refuse"]
CallsInReasoning = Literal["read", "all", "text"]
CutCalls = Literal["keep", "drop", "drop_broken"]
Strip = Literal["never", "calls", "all"]
ReasoningState = Literal["auto", "assume"]


class ReplyPolicy(NamedTuple):
    """What becomes of what is doubtful in a reply; see the arguments of `Parser`. The first choice is the default."""

    undeclared_tools: UndeclaredTools = "keep"
    reasoning: ReasoningState = "auto"
    calls_in_reasoning: CallsInReasoning = "read"
    cut_calls: CutCalls = "keep"
    strip: Strip = "never"


# The statuses of calls that are dropped.
DROPPED = {"keep": (), "drop": ("unterminated",), "drop_broken": ("unterminated", "malformed")}
_PARSED_STATUSES = ("complete", "unknown", "unclosed")  # of calls whose arguments were all read


class _KeyTwice(Exception):
    """An object has a key twice."""


def _check_members(members: list[tuple[str, Any]]) -> None:
    if len(members) > 1 and len(dict(members)) < len(members):
        raise _KeyTwice


# `decode` looks for white space on both sides, which takes ten times as long as all the rest.
_decode_members = json.JSONDecoder(object_pairs_hook=_check_members).raw_decode


def _is_malformed(arguments: str) -> bool:
    """Return whether arguments are no object, or have a key twice, of which readers keep only the last value."""
    try:
        _decode_members(arguments)
    except _KeyTwice:
        return True
    except (ValueError, RecursionError):
        pass
    return not arguments.startswith("{")


class ParsedCall:
    """A call, as far as it has been parsed."""

    __slots__ = ("arguments", "fields", "id", "index", "is_refused", "name", "written_name")

    def __init__(self, index: int, name: str, id: str | None, is_refused: bool = False) -> None:
        self.is_refused = is_refused  # it is only parsed to find its end
        self.index = index
        self.name = self.written_name = name  # of the tool, and as the model wrote it
        self.id = id
        self.arguments = StringIO()
        self.fields: dict[str, Any] = {}  # of the call in the message, besides OpenAI's


CONTROL_TOKEN = re.compile(r"<[|｜][^<>\s]+>|<[^<>\s]+[|｜]>")


class AttemptRecord(NamedTuple):
    """An attempt at a call, or a marker out of place, in offsets of the masked reply."""

    status: str
    start: int
    end: int
    name: str | None
    call: int | None


class TrailingSpace:
    """Whitespace at the end of a text that comes in parts, held back until more follows."""

    __slots__ = ("_last_character", "_parts")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._last_character = ""  # before the whitespace

    def hold_back(self, text: str) -> str:
        """Return what was held back and the next part, up to the whitespace at its end."""
        core = text.rstrip()
        space = text[len(core) :]
        if core:
            self._last_character = core[-1]
            core = self.take() + core
        if space:
            self._parts.append(space)
        return core

    def take(self) -> str:
        """Return what is held back, which is held no longer."""
        if not self._parts:
            return ""
        text = "".join(self._parts)
        self._parts.clear()
        return text

    @property
    def size(self) -> int:
        """How many characters are held back."""
        return sum(map(len, self._parts))

    @property
    def is_within_sentence(self) -> bool:
        """Whether the text ends with a word or a comma, and a blank."""
        space = "".join(self._parts)
        goes_on = self._last_character.isalnum() or self._last_character == ","
        return bool(space) and "\n" not in space and goes_on


class MessageBuilder:
    """Collects what the parsers find."""

    def __init__(
        self,
        detokenizer: IncrementalDetokenizer,
        call_ids: CallIds,
        policy: ReplyPolicy,
    ) -> None:
        self._detokenizer = detokenizer
        self._strip, self._drops_cut_calls = policy.strip, policy.cut_calls != "keep"
        self._dropped = DROPPED[policy.cut_calls]
        self._strips_content = policy.strip != "never"
        self._has_masks = detokenizer.has_masks
        self._call_ids = call_ids
        self.position = 0  # in the reply
        self.spans: list[
            tuple[str, int]
        ] = []  # kind and start; each ends where the next one starts
        self._span_kind = ""  # of the last one
        self.content, self.reasoning = StringIO(), StringIO()
        self.calls: list[ParsedCall] = []
        self.attempts: list[AttemptRecord] = []
        self.stop: str | None = None
        # The call that is open: its text until its name is known, and where it started.
        self.buffered: list[str] | None = None
        self.call_start = 0
        self._open_call: ParsedCall | None = None
        self._call_span = 0
        # The region that is open: whether nothing but whitespace has come, and that whitespace.
        self.at_region_start = True
        self.leading_space: list[str] = []
        self.trailing_space = TrailingSpace()  # of reasoning
        self._content_space = TrailingSpace()  # of content, if it is stripped
        self._is_before_call = False  # the content so far is followed by a call
        self.events = EventQueue()

    # -- spans

    def add_span(self, text: str, kind: str) -> None:
        """Add the next characters of the reply, which are of this kind."""
        if kind != self._span_kind:
            self.spans.append((kind, self.position))
            self._span_kind = kind
        self.position += len(text)
        if self.buffered is not None:
            self.buffered.append(text)

    def relabel_from(self, start: int, kind: str) -> None:
        """Change the kind of all characters from `start` on, if there are any."""
        if self.position <= start:
            return
        while self.spans and self.spans[-1][1] >= start:
            self.spans.pop()
        if not self.spans or self.spans[-1][0] != kind:
            self.spans.append((kind, start))
        self._span_kind = kind

    # -- regions

    def add_content(self, text: str) -> None:
        self._add_region_text(TEXT, self.content, text)

    def add_reasoning(self, text: str) -> None:
        self._add_region_text(REASONING, self.reasoning, text)

    def _add_region_text(self, kind: Kind, sink: StringIO, text: str) -> None:
        if self.at_region_start:
            if text.isspace():
                self.leading_space.append(text)
                self.relabel_from(self.position - len(text), "space")
                return
            # Whitespace before other text is part of the region after all.
            if self.leading_space:
                text = "".join(self.leading_space) + text
                self.relabel_from(self.position - len(text), kind)
                self.leading_space.clear()
            self.at_region_start = False
        if self._strips_content and not sink.tell() and (self.calls or self._strip == "all"):
            text = text.lstrip()
        if kind == REASONING:
            text = self.trailing_space.hold_back(text)
        elif self._strips_content:
            text = self._content_space.hold_back(text)
            self._is_before_call = self._is_before_call and not text
        if text:
            if self._has_masks:
                text = self._detokenizer.unmask(text)
            sink.write(text)
            self.events.add_text(kind, text)

    def keep_trailing_space(self) -> None:
        """Whitespace at the end of reasoning is part of it."""
        text = self.trailing_space.take()
        if text and self._strip != "all":
            self.reasoning.write(text)
            self.events.add_text(REASONING, text)

    def end_region(self) -> None:
        self.keep_trailing_space()
        self.at_region_start = True
        self.leading_space.clear()

    def hold_prompt_marker(self) -> None:
        """The content so far is a marker that the prompt wrote: it is content only if text follows it."""
        text = self.content.getvalue()
        if text.startswith("<") and text.endswith(">") and not any(map(str.isspace, text)):
            self.content = StringIO()
            self.events.take()
            self.at_region_start = True
            self.leading_space = [text]

    def keep_held_space(self) -> None:
        """At the end of a reply, keep whitespace after reasoning; whitespace alone is the content."""
        self.keep_trailing_space()
        space = self._content_space.take()
        if space and self._strip == "calls" and not self._is_before_call:
            self.content.write(space)
            self.events.add_text(TEXT, space)
        is_empty = not (self.content.tell() or self.reasoning.tell() or self.calls)
        if self.leading_space and is_empty and self._strip != "all":
            text = "".join(self.leading_space)
            self.end_region()
            self.at_region_start = False
            self.relabel_from(self.position - len(text), TEXT)
            self.add_content(text)

    def stop_at(self, stop: str) -> None:
        """Record the marker that ended the reply; only the first one counts."""
        if self.stop is None:
            self.stop = stop
            self.events.add(Event(STOP, stop))

    # -- calls

    def start_buffering(self) -> None:
        """Keep the text from here on, until a call or something else is recognised: it may be content."""
        self.call_start, self._call_span = self.position, len(self.spans)
        self.buffered = []

    def stop_buffering(self) -> None:
        """What was buffered is certainly no content."""
        self.buffered = None

    def start_call(self, name: str, id: str | None, id_follows: bool = False) -> ParsedCall:
        """Add the call that is open, now that its name is known. It gets an id unless one may still follow."""
        if self.at_region_start and self.attempts and self.attempts[-1].status == REPEATED:
            self.attempts.pop()  # the marker before it started the message of the call
        index = len(self.calls)
        is_known = bool(id) or not id_follows
        call = ParsedCall(index, name, self._call_ids.make(name, index, id) if is_known else None)
        self.calls.append(call)
        self._open_call = call
        self._is_before_call = True
        self.buffered = None
        self.at_region_start = False
        if self._drops_cut_calls:
            self.events.hold()
        self.events.add(Event(START, "", index, name, call.id))
        return call

    def refuse_call(self, name: str) -> ParsedCall:
        """Return a call whose text will be content, from its opener to its end."""
        self._open_call = ParsedCall(len(self.calls), name, None, is_refused=True)
        return self._open_call

    def add_arguments(self, call: ParsedCall, json_text: str) -> None:
        if json_text and not call.is_refused:
            if self._has_masks:
                json_text = self._detokenizer.unmask_json(json_text)
            call.arguments.write(json_text)
            self.events.add_text(ARGUMENTS, json_text, call.index)

    def add_argument_text(self, text: str) -> None:
        """Add text to a JSON string in the arguments of the last call."""
        if self._open_call is not None:
            self.add_arguments(self._open_call, escape(text))

    def end_call(self, call: ParsedCall, status: str, late_id: str | None = None) -> None:
        """End a call. If it has no id yet, it gets `late_id`, or a new one."""
        if call.is_refused:
            self.reject_call("undeclared", call.name)
            return
        if status in _PARSED_STATUSES and _is_malformed(call.arguments.getvalue().lstrip()):
            status = "malformed"
        if self._drops_cut_calls:
            is_dropped = status in self._dropped
            self.events.release(drop=is_dropped)
            if is_dropped:
                self.calls.pop()
                self.record_attempt(status, call.written_name)
                return
        new_id: str | None = None
        if call.id is None:
            new_id = call.id = self._call_ids.make(call.name, call.index, late_id)
        self.record_attempt(status, call.written_name, call.index)
        if status != "unterminated":
            self.events.add(Event(END, "", call.index, None, new_id))
        elif new_id is not None:
            self.events.add(Event(ARGUMENTS, "", call.index, None, new_id))
        self.end_region()

    def record_attempt(
        self, status: str, name: str | None = None, index: int | None = None
    ) -> None:
        self.attempts.append(AttemptRecord(status, self.call_start, self.position, name, index))

    def record_marker(self, status: str, text: str) -> None:
        """Record a marker, taken just now, that is out of place; nothing if there is none."""
        if not text:
            return
        start = self.position - len(text.lstrip())
        self.attempts.append(AttemptRecord(status, start, self.position, None, None))

    def starts_with_control_token(self, text: str) -> bool:
        """Return whether the beginning of a marker holds a whole control token."""
        text = text.lstrip()
        is_mask = bool(text) and self._detokenizer.is_mask(text[0])
        return is_mask or CONTROL_TOKEN.match(text) is not None

    @property
    def follows_damaged_call(self) -> bool:
        """Whether nothing but whitespace has come since a call that was not read to its end."""
        if not self.at_region_start or not self.attempts:
            return False
        last = self.attempts[-1]
        return last.call is not None and last.status not in ("complete", "unknown")

    def reject_call(self, status: str | None = "unreadable", name: str | None = None) -> None:
        """The open call turned out not to be one: its text is content. With a status, it is recorded."""
        text = "".join(self.buffered or ())
        self.buffered = None
        # All spans since the opener become one span of content.
        del self.spans[self._call_span :]
        self._span_kind = self.spans[-1][0] if self.spans else ""
        if text:
            self.spans.append((TEXT, self.call_start))
            self._span_kind = TEXT
            if status is not None:
                self.record_attempt(status, name)
            self.add_content(text)

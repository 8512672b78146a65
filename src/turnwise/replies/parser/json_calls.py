"""Parse calls that are one JSON object, its keys in any order.

The first name, the first arguments and the first id count. A second one is `raw` text, and the call
is malformed. A member that calls do not have (`"thought": "..."`) is `raw` text too, but does no
harm.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from turnwise.replies.grammar_parts import JsonCall, Marker
from turnwise.replies.parser.arguments import UNREADABLE, ArgumentParser
from turnwise.replies.parser.buffer import Answer, Reading
from turnwise.replies.parser.compiled_grammar import ARGUMENT_KEYS, NAME_KEYS
from turnwise.replies.parser.message_builder import ParsedCall
from turnwise.replies.parser.state import ParserState, PartParser

# What a member of an object has shown: True: the call is over, as it cannot be parsed any further; False: the object is
# no call; None: the members after it can be parsed.
_MemberSteps = Reading[bool | None]


@dataclass(slots=True)
class _ObjectDraft:
    """A call as far as the members of its object have shown it."""

    spec: JsonCall
    is_bare: bool  # the object has no opener, so it must look like a call
    name: str | None = None
    id: str | None = None
    early_arguments: str | None = None  # arguments that came before the name
    call: ParsedCall | None = None
    member_start: int = 0
    has_duplicate: bool = False

    @property
    def has_arguments(self) -> bool:
        return self.early_arguments is not None or self.call is not None

    def add(self, span: str, value: Any) -> None:
        """Add the value of a member if it is a name or an id."""
        if span == "id":
            self.id = str(value)
        elif span == "name" and self.name is None and value and isinstance(value, str):
            self.name = value


class JsonCallParser(PartParser):
    """Parses calls that are JSON objects."""

    def __init__(self, state: ParserState, arguments: ArgumentParser) -> None:
        super().__init__(state)
        self._arguments = arguments

    def parse(self, spec: JsonCall, is_bare: bool) -> Answer:
        """Parse the object that comes next; False if it is no call."""
        state, buffer = self._state, self._buffer
        draft = _ObjectDraft(spec, is_bare)
        buffer.consume(1, "marker")
        state.json_depth = 1
        while state.json_depth:
            char = yield from buffer.skip_space("marker")
            if char in ("}", ","):
                buffer.consume(1, "marker")
                state.json_depth -= char == "}"
                continue
            draft.member_start = self._builder.position
            span = "name" if spec.name is None else "marker"
            key = yield from self._read_key(span)
            if key is None:
                return (yield from self._end_unreadable(draft))
            if key in (spec.inside, "function") and (yield from buffer.peek()) == "{":
                # The members of the inner object are parsed as if they were here.
                buffer.consume(1, "marker")
                state.json_depth += 1
                continue
            is_over = yield from self._parse_member(draft, key)
            if is_over is not None:
                return is_over
        return (yield from self._finish(draft))

    def _read_key(self, span: str) -> Reading[str | None]:
        """Read a key and its colon, up to the value; None if they are not there."""
        buffer = self._buffer
        key = yield from self._arguments.read_value(span)
        if not isinstance(key, str) or (yield from buffer.skip_space("marker")) != ":":
            return None
        buffer.consume(1, "marker")
        has_value = yield from buffer.skip_space("marker")
        return key if has_value else None

    def _parse_member(self, draft: _ObjectDraft, key: str) -> _MemberSteps:
        spec = draft.spec
        is_like_arguments = key in ARGUMENT_KEYS and not draft.has_arguments
        if key == spec.arguments or spec.name is None or is_like_arguments:
            if draft.has_arguments:
                return self._skip_duplicate(draft)
            return self._parse_arguments(draft, key)
        has_name = key == spec.name and draft.name is not None
        has_id = key == spec.id and draft.id is not None
        if has_name or has_id:
            return self._skip_duplicate(draft)
        return self._parse_other_member(draft, key)

    def _skip_duplicate(self, draft: _ObjectDraft) -> _MemberSteps:
        draft.has_duplicate = True
        value = yield from self._arguments.read_value("raw")
        if value is UNREADABLE:
            return (yield from self._end_unreadable(draft))
        self._builder.relabel_from(draft.member_start, "raw")
        return None

    def _parse_arguments(self, draft: _ObjectDraft, key: str) -> _MemberSteps:
        if draft.spec.name is None:
            draft.name = key  # the name is the key of the arguments
        if draft.name is None:
            # A call starts with its name, so the arguments wait for it.
            draft.early_arguments = yield from self._arguments.read_early()
            return False if draft.early_arguments is None else None
        if draft.is_bare and not self._state.is_offered(draft.name):
            return False
        call = self._start_call(draft, draft.name)
        is_complete = yield from self._arguments.parse_json(call)
        return None if is_complete else True

    def _parse_other_member(self, draft: _ObjectDraft, key: str) -> _MemberSteps:
        spec = draft.spec
        span = _member_span(spec, key)
        value = yield from self._arguments.read_value(span)
        if value is UNREADABLE:
            return (yield from self._end_unreadable(draft))
        # What the template does not write itself is no marker.
        if span == "raw" or (span == "marker" and not _is_written(spec, value)):
            self._builder.relabel_from(draft.member_start, "raw")
        draft.add(span, value)
        if draft.name is None and draft.early_arguments is None:
            # An object without an opener must show early that it is a call.
            is_doubtful = draft.is_bare and key not in (spec.id, "type")
            return False if is_doubtful else None
        if draft.name is not None and draft.early_arguments is not None and draft.call is None:
            call = self._start_call(draft, draft.name)
            self._builder.add_arguments(call, draft.early_arguments)
        return None

    def _start_call(self, draft: _ObjectDraft, name: str) -> ParsedCall:
        draft.call = self._state.start_call(name, draft.id, id_follows=draft.spec.id is not None)
        return draft.call

    def _finish(self, draft: _ObjectDraft) -> Answer:
        """End the call at the end of its object; False if the object was no call."""
        call = draft.call
        if call is None:
            if draft.name is None or draft.is_bare:
                return False
            call = self._start_call(draft, draft.name)
            self._builder.add_arguments(call, draft.early_arguments or "{}")
        self._state.is_malformed = draft.has_duplicate
        yield from self._state.finish_call(call, draft.id)
        return True

    def _end_unreadable(self, draft: _ObjectDraft) -> Answer:
        """The object does not go on as one: its last member cannot be read. Return whether it is a call."""
        if draft.call is None:
            return False
        is_truncated = self._buffer.is_exhausted
        if not is_truncated:
            end_matcher = self._state.call_format.end_matcher
            yield from self._buffer.read_until(end_matcher, lambda text: None, "raw")
        self._builder.relabel_from(draft.member_start, "raw")
        self._builder.end_call(draft.call, "unterminated" if is_truncated else "malformed")
        return True


def _member_span(spec: JsonCall, key: str) -> str:
    if key == spec.id:
        return "id"
    if key == spec.name or key in NAME_KEYS:
        return "name"
    return "marker" if key == "type" or _is_written(spec, key) else "raw"


def _is_written(spec: JsonCall, value: Any) -> bool:
    """Return whether the template itself writes this value, or any call may have it."""
    if value == "function":
        return True
    text = json.dumps(value, ensure_ascii=False)
    return any(text in part.text for part in spec.parts if isinstance(part, Marker))

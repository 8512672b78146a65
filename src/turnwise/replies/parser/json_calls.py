"""Calls that are one JSON object, its keys in any order; and how any call starts and ends.

The first name, the first arguments and the first id count. A second one is `raw` text, and the call is malformed. A
member that calls do not have (`"thought": "..."`) is `raw` text too, but does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

from turnwise.replies.grammar import JsonCall, Marker
from turnwise.replies.parser.arguments import Arguments
from turnwise.replies.parser.buffer import Call, Steps, Stream
from turnwise.replies.parser.compiled_grammar import ARGUMENT_KEYS, NAME_KEYS, Plan

Verdict = Generator[None, None, bool | None]  # whether it was a call; None: go on reading


@dataclass(slots=True)
class Seen:
    """What an object has shown so far."""

    name: str | None = None
    id: str | None = None
    kept: str | None = None  # arguments that stood before the name
    call: Call | None = None
    start: int = 0  # of the member that is being read
    stray: bool = False  # something is there twice


class JsonCalls(Arguments):
    """Calls that are JSON objects."""

    def __init__(
        self, stream: Stream, plan: Plan, types: Mapping[str, Mapping[str, frozenset[str]]]
    ) -> None:
        super().__init__(stream, plan, types)
        self.broken = False  # the last call could not be read: its closers are text too

    def object(self, spec: JsonCall, bare: bool) -> Generator[None, None, bool]:
        """A call that is one JSON object; False if it is not."""
        stream, seen = self.stream, Seen()
        stream.consume(1, "marker")
        self.depth = 1
        while self.depth:
            char = yield from stream.spaces("marker")
            if char in ("}", ","):
                stream.consume(1, "marker")
                self.depth -= char == "}"
                continue
            seen.start = stream.at
            key = yield from self.member_key("marker" if spec.name is not None else "name")
            if key is None:
                return (yield from self.cut(seen))
            if key == spec.inside and (yield from stream.peek()) == "{":
                stream.consume(1, "marker")  # its members are read as if they stood here
                self.depth += 1
                continue
            verdict = yield from self.member(spec, seen, key, bare)
            if verdict is not None:
                return verdict
        return (yield from self.object_over(spec, seen, bare))

    def member_key(self, span: str) -> Generator[None, None, str | None]:
        """A key and its colon, up to the value."""
        stream = self.stream
        key = yield from self.value(span)
        if not isinstance(key, str) or (yield from stream.spaces("marker")) != ":":
            return None
        stream.consume(1, "marker")
        return key if (yield from stream.spaces("marker")) else None

    def member(self, spec: JsonCall, seen: Seen, key: str, bare: bool) -> Verdict:
        first = seen.kept is None and seen.call is None
        if key == spec.arguments or spec.name is None or (key in ARGUMENT_KEYS and first):
            return (
                self.arguments_member(spec, seen, key, bare) if first else self.member_again(seen)
            )
        if (key == spec.name and seen.name is not None) or (key == spec.id and seen.id is not None):
            return self.member_again(seen)
        return self.other_member(spec, seen, key, bare)

    def member_again(self, seen: Seen) -> Verdict:
        """What is there already: the first one counts."""
        seen.stray = True
        yield from self.value("raw")
        if self.lost:
            return (yield from self.cut(seen))
        self.stream.rename("raw", self.stream.at - seen.start)
        return None

    def arguments_member(self, spec: JsonCall, seen: Seen, key: str, bare: bool) -> Verdict:
        if spec.name is None and seen.call is None:
            seen.name = key
        if bare and seen.name is not None and not self.offered(seen.name):
            return False
        if seen.name is not None and seen.call is None:
            seen.call = self.start(seen.name, seen.id, later=spec.id is not None)
            return None if (yield from self.json_arguments(seen.call)) else True
        seen.kept = yield from self.kept_arguments()
        return False if seen.kept is None else None

    def other_member(self, spec: JsonCall, seen: Seen, key: str, bare: bool) -> Verdict:
        span = span_of(spec, key)
        value = yield from self.value(span)
        if self.lost:
            return (yield from self.cut(seen))
        if span == "raw" or (span == "marker" and not written(spec, value)):
            self.stream.rename("raw", self.stream.at - seen.start)
        if key == spec.name or (key in NAME_KEYS and seen.name is None):
            seen.name = value if isinstance(value, str) and value else seen.name
        elif key == spec.id:
            seen.id = str(value)
        if seen.name is not None and seen.kept is not None and seen.call is None:
            seen.call = self.start(seen.name, seen.id, later=spec.id is not None)
            self.stream.argue(seen.call, seen.kept)
        elif bare and seen.name is None and seen.kept is None and key not in (spec.id, "type"):
            return False
        return None

    def object_over(self, spec: JsonCall, seen: Seen, bare: bool) -> Generator[None, None, bool]:
        if seen.call is None:
            if seen.name is None or bare:
                return False
            seen.call = self.start(seen.name, seen.id, later=spec.id is not None)
            self.stream.argue(seen.call, seen.kept if seen.kept is not None else "{}")
        self.stray = seen.stray
        yield from self.finish(seen.call, seen.id)
        return True

    def cut(self, seen: Seen) -> Generator[None, None, bool]:
        """An object that does not go on as one: its last member cannot be read."""
        stream, call = self.stream, seen.call
        if call is None:
            return False
        ended = stream.ended and stream.position >= len(stream.buffer)
        if not ended:
            yield from stream.until(self.layout.end(), lambda text: None, "raw")
        if stream.at > seen.start:
            stream.rename("raw", stream.at - seen.start)
        stream.end_call(call, "unterminated" if ended else "malformed")
        return True

    # -- any call

    def offered(self, name: str) -> bool:
        return not self.types or name in self.types

    def start(self, name: str, id: str | None = None, later: bool = False) -> Call:
        self.broken = self.stray = False
        index = len(self.stream.calls)
        return self.stream.start_call(
            name.strip(), id or (None if later else self.stream.invented(index))
        )

    def finish(self, call: Call, id: str | None) -> Steps:
        """What stands behind the arguments; only the reader of the whole reply knows."""
        raise NotImplementedError


def span_of(spec: JsonCall, key: str) -> str:
    """What the value of a member is."""
    known = {spec.name: "name", spec.id: "id", "type": "marker"}
    return known.get(key) or (
        "name" if key in NAME_KEYS else "marker" if written(spec, key) else "raw"
    )


def written(spec: JsonCall, value: Any) -> bool:
    """Whether the template itself writes this, or any call may say it of itself."""
    text = json.dumps(value, ensure_ascii=False)
    return value == "function" or any(
        text in part.text for part in spec.parts if isinstance(part, Marker)
    )

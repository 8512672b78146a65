"""Calls that are one JSON object, its keys in any order; and how any call starts and ends."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass

from turnwise.replies.arguments import Arguments
from turnwise.replies.grammar import JsonCall
from turnwise.replies.machine import Call, Steps, Stream
from turnwise.replies.plan import Plan

# Keys that models use in place of each other.
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input")
NAME_KEYS = ("name", "tool_name", "function")

Verdict = Generator[None, None, bool | None]  # whether it was a call; None: go on reading


@dataclass(slots=True)
class Seen:
    """What an object has shown so far."""

    name: str | None = None
    id: str | None = None
    kept: str | None = None  # arguments that stood before the name
    call: Call | None = None


class JsonCalls(Arguments):
    """Calls that are JSON objects."""

    def __init__(self, stream: Stream, plan: Plan, types: Mapping[str, Mapping[str, frozenset[str]]]) -> None:
        super().__init__(stream, plan, types)
        self.broken = False  # the last call could not be read: its closers are text too

    def object(self, spec: JsonCall, bare: bool) -> Generator[None, None, bool]:
        """A call that is one JSON object; False if it is not."""
        stream, seen, depth = self.stream, Seen(), 1
        stream.consume(1, "marker")
        while depth:
            char = yield from stream.spaces("marker")
            if char in ("}", ","):
                stream.consume(1, "marker")
                depth -= char == "}"
                continue
            key = yield from self.member_key()
            if key is None:
                return self.cut(seen.call)
            if key == spec.inside and (yield from stream.peek()) == "{":
                stream.consume(1, "marker")  # its members are read as if they stood here
                depth += 1
                continue
            verdict = yield from self.member(spec, seen, key, bare)
            if verdict is not None:
                return verdict
        return (yield from self.object_over(spec, seen, bare))

    def member_key(self) -> Generator[None, None, str | None]:
        """A key and its colon, up to the value."""
        stream = self.stream
        key = yield from self.value("marker")
        if not isinstance(key, str) or (yield from stream.spaces("marker")) != ":":
            return None
        stream.consume(1, "marker")
        return key if (yield from stream.spaces("marker")) else None

    def member(self, spec: JsonCall, seen: Seen, key: str, bare: bool) -> Verdict:
        first = seen.kept is None and seen.call is None
        if key == spec.arguments or spec.name is None or (key in ARGUMENT_KEYS and first):
            return self.arguments_member(spec, seen, key, bare)
        return self.other_member(spec, seen, key, bare)

    def arguments_member(self, spec: JsonCall, seen: Seen, key: str, bare: bool) -> Verdict:
        if spec.name is None and seen.call is None:
            seen.name = key
        if bare and seen.name is not None and not self.offered(seen.name):
            return False
        if seen.name is not None and seen.call is None:
            seen.call = self.start(seen.name, seen.id, later=spec.id is not None)
            return None if (yield from self.json_arguments(seen.call)) else True
        seen.kept = yield from self.kept_arguments()
        return self.cut(seen.call) if seen.kept is None else None

    def other_member(self, spec: JsonCall, seen: Seen, key: str, bare: bool) -> Verdict:
        value = yield from self.value("name" if key == spec.name else "id" if key == spec.id else "marker")
        if self.lost:
            return self.cut(seen.call)
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
        yield from self.finish(seen.call, seen.id)
        return True

    def cut(self, call: Call | None) -> bool:
        """An object that does not go on as one."""
        if call is None:
            return False
        ended = self.stream.ended and self.stream.position >= len(self.stream.buffer)
        self.stream.end_call(call, "unterminated" if ended else "malformed")
        return True

    # -- any call

    def offered(self, name: str) -> bool:
        return not self.types or name in self.types

    def start(self, name: str, id: str | None = None, later: bool = False) -> Call:
        self.broken = False
        index = len(self.stream.calls)
        return self.stream.start_call(name.strip(), id or (None if later else f"call_{index}"))

    def finish(self, call: Call, id: str | None) -> Steps:
        """What stands behind the arguments; only the reader of the whole reply knows."""
        raise NotImplementedError

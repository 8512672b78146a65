"""Tools with schemas of many kinds, messages that call them, and messages and replies that break them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import Calls
from turnwise.replies.write import write

Message = dict[str, Any]

BOOK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ship": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 31},
        "kind": {"enum": ["sail", "motor", "oar"]},
        "berth": {"$ref": "#/$defs/berth"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "price": {"type": "number"},
        "lit": {"type": "boolean"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]+$"},
        "crew": {"type": "array", "items": {"$ref": "#/$defs/person"}},
    },
    "required": ["ship", "days"],
    "$defs": {
        "berth": {
            "type": "object",
            "properties": {"row": {"enum": ["A", "B"]}, "number": {"type": "integer"}},
            "required": ["row"],
        },
        "person": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "under": {"type": "array", "items": {"$ref": "#/$defs/person"}},
            },
            "required": ["name"],
        },
    },
}
LOG: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string", "minLength": 1}, "level": {"type": "integer"}},
    "required": ["text"],
}
SCHEMAS = {"book": BOOK, "log-entry": LOG, "now": {"type": "object", "properties": {}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]

FULL = {
    "ship": "Ida & 'Tor' <b>",
    "days": 12,
    "kind": "motor",
    "berth": {"row": "B", "number": 7},
    "tags": ["old", 'very "old"'],
    "price": 2.5,
    "lit": True,
    "note": None,
    "code": "AB12",
    "crew": [{"name": "Åse", "under": [{"name": "Bo"}]}],
}
SHORT = {"ship": "Ida", "days": 1}
TEXT = {"text": "two\nlines, \\ and 漢字", "level": -3}
# Arguments that break the schema: the kind of defect, and the change.
BROKEN: dict[str, dict[str, Any]] = {
    "unknown key": {**SHORT, "speed": 3},
    "wrong type": {"ship": "Ida", "days": "soon"},
    "out of bounds": {"ship": "Ida", "days": 32},
    "not in the enum": {**SHORT, "kind": "steam"},
    "missing key": {"days": 3},
    "wrong type within": {**SHORT, "berth": {"row": "C"}},
    "missing key within": {**SHORT, "crew": [{"under": []}]},
}


def message(grammar: Grammar, *calls: tuple[str, Any], **fields: str) -> Message:
    """A message with these calls; where an id is all that names a tool, it has the form that does."""
    format = grammar.calls
    named_by_id = format is not None and "name" not in getattr(format.call, "parts", ("name",))
    named_by_id = named_by_id and "id" in getattr(format.call, "parts", ())  # type: ignore[union-attr]
    made = []
    for index, (name, arguments) in enumerate(calls):
        id = f"functions.{name}:{index}" if named_by_id else f"abcd0000{index}"
        function = {"name": name, "arguments": deepcopy(arguments)}
        made.append({"id": id, "type": "function", "function": function})
    return {"role": "assistant", "content": "", "tool_calls": made, **fields}


def valid_messages(grammar: Grammar) -> dict[str, Message]:
    """Messages that fit the tools."""
    found = {
        "full": message(grammar, ("book", FULL)),
        "short": message(grammar, ("book", SHORT)),
        "none": message(grammar, ("now", {})),
        "several": message(grammar, ("book", SHORT), ("log-entry", TEXT), ("now", {})),
    }
    calls = grammar.calls
    if calls is None or not calls.excludes_content or calls.section.open or calls.each.open:
        found["content"] = message(grammar, ("log-entry", TEXT), content="I write it down.")
    if grammar.reasoning is not None:
        found["reasoning"] = message(grammar, ("book", SHORT), reasoning_content="Hm.\nSo: 1 < 2.")
        found["all"] = message(
            grammar, ("book", FULL), ("now", {}), content="Aye.", reasoning_content="Hm."
        )
    return found


def plain_messages(grammar: Grammar) -> dict[str, Message]:
    """Messages without a call."""
    found: dict[str, Message] = {
        "plain": {"role": "assistant", "content": "High water at 12.\n\nSo."}
    }
    if grammar.reasoning is not None:
        found["thought"] = {**found["plain"], "reasoning_content": "Let me see."}
    return found


def mutants(grammar: Grammar, prompt: Any = None) -> Iterator[tuple[str, str]]:
    """Replies with one defect: its kind, and the reply."""
    for kind, arguments in BROKEN.items():
        yield kind, write(grammar, message(grammar, ("book", arguments)), prompt)
    yield "unknown tool", write(grammar, message(grammar, ("sail", SHORT)), prompt)
    late = message(grammar, ("now", {}), ("book", BROKEN["missing key"]))
    yield "second call", write(grammar, late, prompt)
    whole = write(grammar, message(grammar, ("book", SHORT)), prompt, stop=False)
    yield "broken off", whole[: whole.rindex("1")]
    place = whole.index("days")
    yield "a character too few", whole[: place - 1] + whole[place:]
    assert grammar.calls is not None
    for index, closer in enumerate(closers(grammar.calls)):
        if closer and whole.endswith(closer) and closer not in grammar.stops:
            yield f"no closer {index}", whole.removesuffix(closer)


def closers(calls: Calls) -> tuple[str, str]:
    section, each = calls.section.close.text, calls.each.close.text
    return section.lstrip(), (each + section).lstrip()

"""The eight invariants of reply parsers, for any grammar, on replies made from a seed.

The first six are those of the public suite of ai-dynamo/frontend-crates (order, no leak, chunk invariance, stream =
batch, argument fidelity, coalescing); recovery and bounds are what it asks of damaged and of long replies. Replies are
what the grammar writes for messages with nested values and text of many scripts; one of them cut after every token; and
some broken in each of the ways of `BREAKS`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from random import Random
from typing import Any, NamedTuple

from reply_damage import (
    delete_run,
    double_run,
    find_lost,
    foreign,
    insert_brackets,
    insert_stray,
    insert_text,
    swap_runs,
    tiles,
)
from reply_messages import tool
from turnwise.errors import TurnwiseError
from turnwise.replies.derive.derivation import NOT_READ_BACK
from turnwise.replies.events import Event, Message
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import JsonCall, TaggedCall
from turnwise.replies.parser.compiled_grammar import CompiledGrammar
from turnwise.replies.parser.markers import collect_texts, is_tag_like, split_tags
from turnwise.replies.parser.parser import Parser
from turnwise.replies.write import write

INVARIANTS = (
    "order",
    "no leak",
    "chunk invariance",
    "stream = batch",
    "argument fidelity",
    "coalescing",
    "recovery",
    "bounds",
)
REPLIES = 200  # for each grammar
EXCEPTIONS = {
    "llamafactory:ernie_vl": "a header stands between thoughts and content only where the thoughts are empty",
    "minimax-m3": "null, an empty list, object and text are all an element without text",
}
SIZES = (1, 2, 3, 7)  # of chunks, besides random ones
MAX_CUTS, MAX_HELD = 100, 1200
TYPES = {"city": "string", "days": "integer", "sure": "boolean", "deep": "object", "tags": "array"}
NAMES = ("get_weather", "tell_time", "now")
TOOLS = [tool(name, **TYPES) for name in NAMES]
SCRIPTS = "abcxyz ÄéΩж日本☀😀0189 .,;!?-"
JSON_ONLY = "\"\\\n\t<>&{}[]'/"  # signs that only JSON delimits
TOKEN = re.compile(r"<[^<>\s]*>|\w+|\s+|[^\w\s]")


# -- replies


class Case(NamedTuple):
    """A reply, what was done to it, and the message that it is if nothing was."""

    reply: str
    kind: str
    message: dict[str, Any] | None = None


class Maker:
    """Makes messages that a grammar can express."""

    def __init__(self, grammar: Grammar, seed: int) -> None:
        self.grammar, self.dice = grammar, Random(seed)
        call = grammar.calls.call if grammar.calls is not None else None
        self.is_json = isinstance(call, JsonCall) or (
            isinstance(call, TaggedCall) and call.pairs is None
        )
        # What the grammar does not claim to read is not asked of it.
        self.calls = grammar.calls
        if any(note.startswith(NOT_READ_BACK) for note in grammar.unreached):
            self.calls = None
        texts = collect_texts(replace(grammar, unreached=()))
        self.markers = [text for text in texts if text.strip()]

    def text(self, signs: str = SCRIPTS) -> str:
        return "".join(self.dice.choices(signs, k=self.dice.randint(1, 24))).strip() or "ä"

    def value_text(self) -> str:
        if self.is_json and self.markers and self.dice.random() < 0.2:
            return f"a {self.dice.choice(self.markers)} b"
        return self.text(SCRIPTS + JSON_ONLY) if self.is_json else self.text()

    def nested(self, depth: int) -> Any:
        dice = self.dice
        if depth == 0 or dice.random() < 0.4:
            return dice.choice((self.value_text(), dice.randint(-99, 99), True, False, None))
        if dice.random() < 0.5:
            return [self.nested(depth - 1) for _ in range(dice.randint(0, 3))]
        return self.object(depth)

    def object(self, depth: int) -> dict[str, Any]:
        keys = self.dice.sample(("a", "b_c", "key", "x"), self.dice.randint(0, 3))
        return {key: self.nested(depth - 1) for key in keys}

    def arguments(self) -> dict[str, Any]:
        dice = self.dice
        made = {
            "city": self.value_text(),
            "days": dice.randint(-9999, 9999),
            "sure": dice.random() < 0.5,
            "deep": self.object(3),
            "tags": [self.nested(2) for _ in range(dice.randint(0, 3))],
        }
        return {key: made[key] for key in dice.sample(sorted(made), dice.randint(0, len(made)))}

    def message(self, count: int | None = None) -> dict[str, Any]:
        """A message with so many calls; how many and which other parts it has is drawn."""
        grammar, dice = self.grammar, self.dice
        message: dict[str, Any] = {"role": "assistant", "content": "So: " + self.text()}
        if grammar.reasoning is not None and dice.random() < 0.6:
            message["reasoning_content"] = "Well: " + self.text()
        number = dice.choice((0, 1, 1, 2, 3)) if count is None else count
        if self.calls is not None and number:
            parts = getattr(self.calls.call, "parts", ())
            by_id = bool(parts) and "name" not in parts
            message["tool_calls"] = [
                {
                    "id": f"functions.{name}:{at}" if by_id else f"abcd0000{at}",
                    "type": "function",
                    "function": {"name": name, "arguments": self.arguments()},
                }
                for at, name in enumerate(NAMES[:number])
            ]
            if self.calls.excludes_content or dice.random() < 0.4:
                message["content"] = ""
        return message


def make_cases(grammar: Grammar, seed: int, count: int = REPLIES) -> Iterator[Case]:
    """Yield replies: whole ones, one cut after every token, and some broken in every way."""
    maker = Maker(grammar, seed)
    longest = ""
    broken = 3 * len(BREAKS) * count // REPLIES
    cuts = MAX_CUTS * count // REPLIES
    for _ in range(count - broken - cuts):
        message = maker.message()
        reply = write(grammar, message)
        longest = max(longest, reply, key=len)
        yield Case(reply, "whole", message)
    ends = [match.end() for match in TOKEN.finditer(longest)][:-1]
    for end in maker.dice.sample(ends, min(cuts, len(ends))):
        yield Case(longest[:end], "cut")
    for at in range(broken):
        breaks = BREAKS[at % len(BREAKS)]
        reply = write(grammar, maker.message(at % 3))
        yield Case(breaks(maker.dice, reply, maker.markers), "broken")


# -- ways to break a reply


def _tags(markers: Sequence[str]) -> list[str]:
    return [tag for text in markers for tag in split_tags(text) if is_tag_like(tag)]


def _edit_tag(edit: Callable[[Random, str], str]) -> Callable[[Random, str, Sequence[str]], str]:
    """An edit of one tag of the reply that the grammar has."""

    def change(dice: Random, text: str, markers: Sequence[str]) -> str:
        found = sorted({tag.strip() for tag in _tags(markers) if tag.strip() in text})
        if not found:
            return insert_stray(dice, text)
        tag = dice.choice(found)
        at = dice.choice([match.start() for match in re.finditer(re.escape(tag), text)])
        return text[:at] + edit(dice, tag) + text[at + len(tag) :]

    return change


def _edit_sign(sign: str, put: str) -> Callable[[Random, str, Sequence[str]], str]:
    """Another text in the place of a sign."""

    def change(dice: Random, text: str, markers: Sequence[str]) -> str:
        places = [at for at, letter in enumerate(text) if letter == sign]
        if not places:
            return insert_text(dice, text, put)
        at = dice.choice(places)
        return text[:at] + put + text[at + 1 :]

    return change


def _damage(
    function: Callable[[Random, str], str],
) -> Callable[[Random, str, Sequence[str]], str]:
    return lambda dice, text, markers: function(dice, text)


def _insert_marker(dice: Random, text: str, markers: Sequence[str]) -> str:
    return insert_text(dice, text, dice.choice([*markers, "<"]))


BREAKS: tuple[Callable[[Random, str, Sequence[str]], str], ...] = (
    _damage(delete_run),
    _damage(double_run),
    _damage(swap_runs),
    _damage(foreign),
    _damage(insert_stray),
    _damage(insert_brackets),
    _insert_marker,
    _edit_tag(lambda dice, tag: ""),
    _edit_tag(lambda dice, tag: tag + tag),
    _edit_tag(lambda dice, tag: tag[:-1]),
    _edit_tag(lambda dice, tag: tag[0] + " " + tag[1:]),
    _edit_tag(lambda dice, tag: tag.upper()),
    _edit_tag(lambda dice, tag: "\n" + tag + "\n\n"),
    _edit_tag(lambda dice, tag: tag + "prose,"),
    _edit_sign('"', ""),
    _edit_sign('"', "'"),
    _edit_sign("}", ""),
    _edit_sign("}", "}}"),
    _edit_sign(",", ",,"),
    _edit_sign(":", "\ufffd"),
)


# -- what is compared


def read_chunks(grammar: Grammar, chunks: Sequence[str]) -> tuple[Message, list[list[Event]]]:
    """The message of a stream, and the events of each of its chunks, those of the end last."""
    parser = Parser(grammar, tools=TOOLS, call_ids="call")
    fed = [parser.feed(chunk) for chunk in chunks]
    message = parser.close()
    return message, [*fed, list(message.events)]


def assemble(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Reasoning, text and calls in their order, each with its whole text."""
    found: list[tuple[str, str]] = []
    places: dict[int, int] = {}
    for event in events:
        if event.kind in ("text", "reasoning"):
            if found and found[-1][0] == event.kind:
                found[-1] = (event.kind, found[-1][1] + event.text)
            else:
                found.append((event.kind, event.text))
        elif event.kind == "start":
            assert event.call is not None
            places[event.call] = len(found)
            found.append((f"call {event.name}", ""))
        elif event.kind == "arguments":
            assert event.call is not None
            at = places[event.call]
            found[at] = (found[at][0], found[at][1] + event.text)
    return found


def facts(message: Message) -> tuple[Any, ...]:
    return (
        dict(message),
        message.spans,
        message.attempts,
        message.stop,
        message.finish_reason,
    )


def cut_in_chunks(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def cut_anywhere(dice: Random, text: str) -> list[str]:
    cuts = sorted(dice.sample(range(1, len(text)), min(6, len(text) - 1))) if len(text) > 1 else []
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]


@dataclass
class Verdict:
    """How often each invariant was asked of a grammar, and where it did not hold."""

    asked: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[str, str, str]] = field(default_factory=list)  # invariant, reply, what

    def ask(self, invariant: str, holds: bool, reply: str, what: Any = "") -> None:
        self.asked[invariant] += 1
        if not holds:
            self.broken.append((invariant, reply, str(what)))


def judge(grammar: Grammar, seed: int, count: int = REPLIES) -> Verdict:
    """Ask all invariants of a grammar."""
    verdict, dice = Verdict(), Random(seed)
    for case in make_cases(grammar, seed, count):
        try:
            _judge_case(verdict, grammar, case, dice)
        except (TurnwiseError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            verdict.ask("recovery", False, case.reply, repr(error))
    _judge_bounds(verdict, grammar)
    return verdict


def _judge_case(verdict: Verdict, grammar: Grammar, case: Case, dice: Random) -> None:
    reply = case.reply
    whole, fed = read_chunks(grammar, [reply])
    events = [event for group in fed for event in group]
    assembled = assemble(events)
    for chunks in (*(cut_in_chunks(reply, size) for size in SIZES), cut_anywhere(dice, reply)):
        message, fed = read_chunks(grammar, chunks)
        streamed = [event for group in fed for event in group]
        same = facts(message) == facts(whole) and assemble(streamed) == assembled
        verdict.ask("chunk invariance", same, reply, [len(chunk) for chunk in chunks][:3])
        verdict.ask("coalescing", _is_coalesced(fed, message), reply)
    batch = Parser(grammar, tools=TOOLS, call_ids="call").read(reply)
    # A closer of reasoning without its opener shows only in a whole reply that what comes before it is reasoning.
    is_unopened = any(attempt.status == "unopened" for attempt in batch.attempts)
    verdict.ask("stream = batch", is_unopened or facts(batch) == facts(whole), reply)
    verdict.ask("order", _is_in_order(whole, assembled), reply, assembled)
    _judge_leaks(verdict, grammar, whole, case)
    _judge_recovery(verdict, grammar, whole, reply)
    if case.message is not None:
        expected = _expect(grammar, case.message, reply)
        verdict.ask("order", _read_kinds(assembled) == _read_kinds(expected), reply, assembled)
        found = [_read_data(item) for item in assembled]
        wanted = [_read_data(item) for item in expected]
        verdict.ask("argument fidelity", found == wanted, reply, f"{found} != {wanted}")


def _expect(grammar: Grammar, message: dict[str, Any], reply: str) -> list[tuple[str, str]]:
    """The parts of a message in the order in which the grammar writes them, without what a prompt rules out."""
    reasoning = [("reasoning", message.get("reasoning_content", ""))]
    content = [("text", message["content"])]
    calls = []
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = function["arguments"]
        if grammar.calls is not None and grammar.calls.sorts_keys:
            arguments = _sort_keys(arguments)
        calls.append((f"call {function['name']}", json.dumps(arguments)))
    after = grammar.calls is not None and grammar.calls.content_after
    parts = [*reasoning, *calls, *content] if after else [*reasoning, *content, *calls]
    return [part for part in parts if part[1] and (part[0].startswith("call") or part[1] in reply)]


def _sort_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sort_keys(value[key]) for key in sorted(value, key=str.lower)}
    return [_sort_keys(item) for item in value] if isinstance(value, list) else value


def _read_kinds(parts: Sequence[tuple[str, str]]) -> list[str]:
    return [kind for kind, _ in parts]


def _read_data(part: tuple[str, str]) -> tuple[str, str]:
    """A part with its text; the arguments of a call in one spelling, with the order and the types of its values."""
    kind, text = part
    if not kind.startswith("call"):
        return kind, text.strip()
    try:
        return kind, json.dumps(json.loads(text))
    except ValueError:
        return kind, text


def _is_coalesced(fed: Sequence[Sequence[Event]], message: Message) -> bool:
    """Whether no event is empty, neighbours differ, and all of them together are the message."""
    for events in fed:
        if any(not event.text for event in events if event.kind in ("text", "reasoning")):
            return False
        # An event with an id is there for the id.
        keys = [(event.kind, event.call, event.id) for event in events]
        if any(one == two for one, two in pairwise(keys)):
            return False
    joined: Counter[str] = Counter()
    texts = {"text": "", "reasoning": ""}
    for event in (event for events in fed for event in events):
        joined[event.kind] += 1
        if event.kind in texts:
            texts[event.kind] += event.text
    calls = message.get("tool_calls") or []
    is_whole = texts["text"] == (message["content"] or "")
    is_whole = is_whole and texts["reasoning"] == message.get("reasoning_content", "")
    return is_whole and joined["start"] == len(calls)


def _is_in_order(message: Message, assembled: Sequence[tuple[str, str]]) -> bool:
    """Whether the parts are in the order of the spans; a call that a header begins may have no span of its own."""
    from_spans: list[str] = []
    for span in message.spans:
        if span.kind in ("text", "reasoning") and from_spans[-1:] != [span.kind]:
            from_spans.append(span.kind)
        elif span.kind in ("name", "arguments", "id") and from_spans[-1:] != ["call"]:
            from_spans.append("call")
    written = [part for part in assembled if part[1] not in ("", "{}")]
    return from_spans in (_merge_kinds(assembled), _merge_kinds(written))


def _merge_kinds(parts: Sequence[tuple[str, str]]) -> list[str]:
    return [kind for kind, _ in groupby(part[0].partition(" ")[0] for part in parts)]


def _judge_leaks(verdict: Verdict, grammar: Grammar, message: Message, case: Case) -> None:
    """A tag that opens or closes something is no text, unless an attempt that is not complete names it.

    The closers of what is no call although it begins like one are content, as it is.
    """
    end = len(case.reply)
    excused = [
        range(one.start, end if one.status in ("unreadable", "undeclared") else one.end)
        for one in message.attempts
        if one.status not in ("complete", "unknown")
    ]
    kinds = ("text", "reasoning") if case.kind == "whole" else ("text",)
    tags = watched_tags(grammar)
    for span in message.spans:
        if span.kind not in kinds:
            continue
        text = case.reply[span.start : span.end]
        for tag in tags:
            at = text.find(tag)
            leaks = at >= 0 and not any(span.start + at in place for place in excused)
            verdict.ask("no leak", not leaks, case.reply, tag)


def watched_tags(grammar: Grammar) -> set[str]:
    """The tags that open or close a region, a section or a call, or end a reply."""
    return {
        tag.strip() for tag in CompiledGrammar(grammar).content_matcher.tags if is_tag_like(tag)
    }


def _judge_recovery(verdict: Verdict, grammar: Grammar, message: Message, reply: str) -> None:
    try:
        tiles(message, reply)
    except AssertionError as error:
        verdict.ask("recovery", False, reply, error)
        return
    lost = find_lost(grammar, message, reply)
    verdict.ask("recovery", not lost, reply, lost)
    for attempt in message.attempts:
        if attempt.status in ("complete", "unknown") and attempt.index is not None:
            arguments = message["tool_calls"][attempt.index]["function"]["arguments"]
            is_object = isinstance(_load(arguments), dict)
            verdict.ask("argument fidelity", is_object, reply, arguments)


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _judge_bounds(verdict: Verdict, grammar: Grammar) -> None:
    """Prose is handed on, however long it is: what is held back does not grow with the reply."""
    prose = "Der Wind, 日本 und so weiter. " * 80
    for key in ("content", "reasoning_content"):
        if key == "reasoning_content" and grammar.reasoning is None:
            continue
        reply = write(grammar, {"role": "assistant", "content": "Aye.", key: prose})
        parser = Parser(grammar, tools=TOOLS)
        held, most, count = 0, 0, 0
        for sign in reply:
            events = parser.feed(sign)
            count += len(events)
            held += 1 - sum(len(event.text) for event in events)
            most = max(most, held)
        verdict.ask("bounds", most <= MAX_HELD and count <= len(reply) + 8, reply[:80], most)

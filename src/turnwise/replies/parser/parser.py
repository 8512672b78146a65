"""One streaming parser for all grammars.

    parser = Parser(grammar, prompt=prompt, tools=tools)
    for chunk in reply:
        events = parser.feed(chunk)
    message = parser.close()

It starts by reading the end of the prompt, from where the assistant's turn begins: a reasoning block that the prompt
opened is open, one that it also closed is closed, and a text that was begun there is part of the message (`prefill`).
After that every chunk is read once. What is held back is what may still become a marker that matters now, and the white
space that would belong to it. Nothing that was said is taken back, so cutting a reply differently changes nothing but
the sizes of the events.

Nothing raises on what a model wrote. A call whose name cannot be read is text; a call whose arguments cannot be read
keeps them as they were written; both are listed in `attempts`. So is a call whose arguments are JSON but no object: it
is `malformed`. Only `null` is forgiven, as no arguments.

What the caller gives is checked: a reply is text or ids from its first chunk to its last, and nothing follows that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from turnwise.errors import MessageError, TokenizerError, TurnwiseError, did_you_mean, short_repr
from turnwise.messages import prepared_tools
from turnwise.replies.events import Event, Message, Span
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.buffer import Stream, attempt
from turnwise.replies.parser.compiled_grammar import ALL as ALL
from turnwise.replies.parser.compiled_grammar import Plan
from turnwise.replies.parser.detokenizer import Spelling, ids_of, markers
from turnwise.replies.parser.prefill import begun, sent
from turnwise.replies.parser.reply import Reading
from turnwise.replies.parser.values import declared

ONE = "one parser reads one reply, of one kind: start another one"
ANOTHER = "another reply has another parser: template.parser()"
RENDERED = "render it first: template.render(messages, add_generation_prompt=True)"


class Parser:
    """Reads one reply. The first chunk decides what it is made of: text, or token ids if there is a tokenizer."""

    def __init__(
        self,
        grammar: Grammar,
        prompt: Any = None,
        tools: Any = None,
        *,
        tokenizer: Any = None,
        tolerances: Iterable[str] = ALL,
    ) -> None:
        check_given(grammar, prompt)
        self.grammar = grammar
        self.tokenizer = tokenizer
        self.tolerances = forgiven(tolerances)
        self.types = declared(prepared_tools(tools).plain)
        text = None if prompt is None else sent(prompt, tokenizer)
        self.tail = begun(grammar, text)
        self.history = (text or "").removesuffix(self.tail)  # what was sent before the reply begins
        self.prefill: list[Event] = []  # what the prompt already holds of the message
        self.message: Message | None = None
        self._begin(None)
        self._fresh = True

    def _begin(self, tokenizer: Any) -> None:
        plan = planned(self.grammar, self.tolerances, tokenizer)
        self.spelling = spelling = plan.spelling.again()
        self.raw = StringIO()  # the tail of the prompt, and the reply
        self.stream = Stream(spelling, self.history)
        self.reading = Reading(self.stream, plan, self.types)
        self.steps = self.reading.run()
        next(self.steps)
        tail = spelling.spell(self.tail)
        self.offset = len(tail)
        if tail:
            self.prefill = self._push(tail)
            self._settle()
        self.reading.prompting = False
        self._fresh = False

    def _settle(self) -> None:
        """White space behind the last marker of a prompt is the template's, and no part of the reply."""
        stream = self.stream
        rest = stream.buffer[stream.position :]
        if stream.fresh and not rest.strip():
            stream.gap.clear()
            stream.consume(len(rest), "space")

    # -- in

    def feed(self, chunk: str | int | Sequence[int]) -> list[Event]:
        """The next part of the reply."""
        text = self._text(chunk) if isinstance(chunk, str) else self._spelled(chunk)
        return self._push(text) if text else []

    def _check_open(self, chunk: Any) -> None:
        if self.message is not None:
            raise TurnwiseError(
                f"this reply was closed; it cannot go on with {short_repr(chunk)}", hint=ANOTHER
            )

    def _text(self, text: str) -> str:
        if text:
            self._check_open(text)
        if text and self.spelling.tokenizer is not None:
            raise TokenizerError(
                f"this reply began with token ids; it cannot go on with text: {short_repr(text)}",
                hint=ONE,
            )
        return text

    def _spelled(self, chunk: Any) -> str:
        ids = ids_of(chunk, "a reply")
        if not ids:
            return ""
        self._check_open(ids)
        if self.tokenizer is None:
            raise TokenizerError(
                "token ids can only be read with a tokenizer", hint="give the parser `tokenizer=`"
            )
        if self._fresh:
            self._begin(self.tokenizer)
        if self.spelling.tokenizer is None:
            raise TokenizerError(
                f"this reply began with text; it cannot go on with token ids: {short_repr(ids)}",
                hint=ONE,
            )
        return self.spelling.read(ids)

    def _push(self, text: str) -> list[Event]:
        stream = self.stream
        self._fresh = False
        self.raw.write(text)
        stream.refill(stream.buffer[stream.position :] + text)
        next(self.steps, None)
        return stream.take_events()

    # -- out

    def close(self) -> Message:
        """The reply has ended: the message. What was held back until now is in its `events`."""
        if self.message is None:
            stream = self.stream
            rest = self.spelling.flush()
            events = self._push(rest) if rest else []
            stream.ended = True
            events += self._push("")
            if stream.gap and not (stream.content.tell() or stream.thought.tell() or stream.calls):
                gap = "".join(stream.gap)
                stream.fresh = False
                stream.text(gap)
                stream.rename("text", len(gap))
            stream.consume(len(stream.buffer) - stream.position, "raw")
            events += stream.take_events()
            self.message = self._message(tuple(events))
        return self.message

    def _message(self, events: tuple[Event, ...]) -> Message:
        stream = self.stream
        content, thought = stream.content.getvalue(), stream.thought.getvalue()
        message = Message(
            role="assistant", content=content if content or not stream.calls else None
        )
        if thought:
            message["reasoning_content"] = thought
        if stream.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments.getvalue()},
                }
                for call in stream.calls
            ]
        message.stop, message.events = stream.stop, events
        self._locate(message)
        return message

    def _locate(self, message: Message) -> None:
        """Spans and attempts, in characters of the reply as it is read."""
        raw = self.raw.getvalue()
        places = self.spelling.places(raw)
        zero = places(self.offset)

        def place(at: int) -> int:
            return max(0, places(at) - zero)

        stream = self.stream
        edges = [*(start for _, start in stream.spans), stream.at]
        spans: list[Span] = []
        for (kind, _), start, end in zip(stream.spans, edges, edges[1:], strict=False):
            if place(end) > place(start):
                if spans and spans[-1].kind == kind:
                    spans[-1] = Span(kind, spans[-1].start, place(end))
                else:
                    spans.append(Span(kind, place(start), place(end)))
        message.spans = tuple(spans)
        text = self.spelling.plain(raw)[zero:]
        message.attempts = tuple(
            attempt(
                (self._status(status, index), place(start), place(end), name, index),
                text[place(start) : place(end)],
            )
            for status, start, end, name, index in stream.attempts
        )

    def _status(self, status: str, index: int | None) -> str:
        """What was read to its end and is no object cannot be the arguments of a call."""
        if index is None or status not in ENDED:
            return status
        return (
            status
            if self.stream.calls[index].arguments.getvalue().lstrip().startswith("{")
            else "malformed"
        )


ENDED = ("complete", "unknown", "unclosed")
PLANS: dict[tuple[int, int, frozenset[str]], tuple[Grammar, Any, Plan]] = {}
PLANNED = 64  # plans that are kept


def planned(grammar: Grammar, tolerances: frozenset[str], tokenizer: Any) -> Plan:
    """The plan of a grammar, for text or for the ids of a tokenizer.

    Parsers may share it: what it adds to itself is the same whoever asks. What it was made for is kept with it, so that
    no other grammar can have the same `id`.
    """
    key = id(grammar), id(tokenizer), tolerances
    known = PLANS.get(key)
    if known is None:
        if len(PLANS) >= PLANNED:
            PLANS.clear()
        spelling = Spelling(tokenizer, () if tokenizer is None else markers(grammar))
        known = PLANS[key] = grammar, tokenizer, Plan(grammar, tolerances, spelling)
    return known[2]


def check_given(grammar: Any, prompt: Any) -> None:
    """A template is no grammar yet, and a conversation no prompt."""
    if not isinstance(grammar, Grammar):
        hint = "the parser of a template is template.parser(), its grammar template.grammar"
        raise TurnwiseError(f"a parser is made of a grammar, not {short_repr(grammar)}", hint=hint)
    if isinstance(prompt, list | tuple) and isinstance(next(iter(prompt), None), Mapping):
        raise MessageError(
            "a prompt is what was sent, not a conversation", path="prompt", hint=RENDERED
        )


def forgiven(names: Iterable[str]) -> frozenset[str]:
    """Tolerances by their names."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TurnwiseError(
            f"tolerances are a set of names, not {short_repr(names)}",
            hint=did_you_mean("", ALL, "there are"),
        )
    found = list(names)
    for name in found:
        if not isinstance(name, str) or name not in ALL:
            hint = did_you_mean(str(name), sorted(ALL), "there are")
            raise TurnwiseError(f"no tolerance is called {short_repr(name)}", hint=hint)
    return frozenset(found)


def parse(
    grammar: Grammar, reply: str | Sequence[int], prompt: Any = None, tools: Any = None, **more: Any
) -> Message:
    """A whole reply at once."""
    parser = Parser(grammar, prompt, tools, **more)
    events = parser.feed(reply)
    message = parser.close()
    message.events = (*events, *message.events)
    return message

"""Parse the arguments of a call, in any notation.

    JSON        `{"a": 1}`, also within a string
    members     `a=1, b='x')`, `{a:1,b:<|"|>x<|"|>}`: up to a bracket
    pairs       `<arg=a>1</arg>`: each between tags (`pairs.py`)

The limit: a literal whose closing quote never comes takes along the rest of the reply.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from turnwise.replies.events import Event
from turnwise.replies.parser.buffer import Answer, Reading
from turnwise.replies.parser.message_builder import MessageBuilder, ParsedCall
from turnwise.replies.parser.pairs import PairParser
from turnwise.replies.parser.state import ParserState, PartParser
from turnwise.replies.parser.values import JSON_WORDS, ValueParser, to_json

# Without escapes. Not looking for it first takes 1.15 to 1.3 times as long for small calls.
_SHORT_STRING = re.compile(r'"([^"\\\x00-\x1f\ud800-\udfff]{0,200})("?)')
UNREADABLE: Final = object()  # in place of a JSON value that cannot be read
_NULL_STARTS = frozenset(word[0] for word, value in JSON_WORDS.items() if value == "null")


class JsonText(NamedTuple):
    """The text of a JSON value, or of its beginning."""

    text: str
    is_complete: bool


class _ArgumentWriter:
    """Emits arguments as JSON while they come in.

    Where the text must be kept if it is no value, only what is the same in both is emitted at once: the text that is
    JSON as it is written. From the first difference on (a quote of Python, a key without quotes), nothing is emitted
    before the value is complete.
    """

    __slots__ = ("_builder", "_call", "_is_held", "_json", "_keeps_text", "_text")

    def __init__(self, builder: MessageBuilder, call: ParsedCall, keeps_text: bool) -> None:
        self._builder, self._call = builder, call
        self._keeps_text = keeps_text
        self._is_held = False
        # What has not been emitted yet, as it is written and as JSON.
        self._text: list[str] = []
        self._json: list[str] = []

    def add(self, text: str, json_text: str) -> None:
        """Add the text that was read, and the JSON that is certain now."""
        if self._keeps_text and (self._text or text != json_text):
            self._text.append(text)
            if not json_text:
                return
            if self._is_held:
                self._json.append(json_text)
                return
            written = "".join(self._text)
            if not written.startswith(json_text):
                self._text, self._json = [written], [json_text]
                self._is_held = True
                return
            rest = written[len(json_text) :]
            self._text = [rest] if rest else []
        self._builder.add_arguments(self._call, json_text)

    def finish(self) -> None:
        """Emit what is held back, as JSON."""
        self._builder.add_arguments(self._call, "".join(self._json))

    @property
    def held_text(self) -> str:
        """What is held back, as it is written."""
        return "".join(self._text)


class ArgumentParser(PartParser):
    """Parses the arguments of calls.

    Where a method returns False, the arguments could not be parsed to their end, and the call is over.
    """

    def __init__(self, state: ParserState) -> None:
        super().__init__(state)
        self._has_masks = state.grammar.detokenizer.has_masks

    def parse(self, call: ParsedCall) -> Answer:
        """Parse arguments in the notation of the current format."""
        format = self._state.call_format
        if format.pairs is None:
            return self._parse_between_markers(call)
        if format.members_closer:
            schema = self._state.tools.get(call.name)
            return self._stream_value(call, format.make_member_parser(schema=schema))
        return PairParser(self._state, format.pair_format).parse(call)

    # -- whole values

    def read_value(self, span: str) -> Reading[Any]:
        """Read a whole JSON value; `UNREADABLE` if there is none."""
        buffer = self._buffer
        # A string without escapes, as most keys and names are.
        while match := _SHORT_STRING.match(buffer.text, buffer.position):
            string, quote = match.groups()
            if quote:
                buffer.consume(len(string) + 2, span)
                return string
            if match.end() < len(buffer.text) or buffer.ended:
                break
            yield None
        value = yield from self._read_json(span)
        if not value.is_complete:
            return UNREADABLE
        try:
            return json.loads(value.text)
        except (ValueError, RecursionError):
            return UNREADABLE

    def read_early(self) -> Reading[str | None]:
        """Read JSON arguments that come before the name, to be emitted later; None if they cannot be read."""
        arguments = yield from self._read_json("arguments")
        if not arguments.is_complete:
            return None
        return _unquote_json(_null_to_object(arguments.text))

    def _read_json(self, span: str) -> Reading[JsonText]:
        parser, buffer = ValueParser(has_masks=self._has_masks), self._buffer
        texts: list[str] = []
        while True:
            end = parser.feed(buffer.text, buffer.position)
            buffer.consume(end - buffer.position, span)
            texts.append(parser.take())
            if parser.done or parser.error is not None or buffer.ended:
                return JsonText("".join(texts), parser.done)
            yield None

    # -- JSON

    def parse_json(self, call: ParsedCall) -> Answer:
        """Parse arguments that are a JSON value, of which the first character is there."""
        char = self._buffer.text[self._buffer.position]
        # A string may hold the arguments as JSON text: it is read whole, then unquoted.
        if char == '"' and "strings" in self._grammar.tolerances:
            arguments = yield from self._read_json("arguments")
            if not arguments.is_complete:
                self._state.end_truncated_call(call)
                return False
            self._builder.add_arguments(call, _unquote_json(arguments.text))
            return True
        if char in _NULL_STARTS:
            return (yield from self._parse_null(call))
        parser = ValueParser(has_masks=self._has_masks)
        return (yield from self._stream_value(call, parser, keeps_text=True))

    def _parse_null(self, call: ParsedCall) -> Answer:
        """Parse a word in place of an object: null means no arguments."""
        word = yield from self._read_json("arguments")
        if word.is_complete:
            self._builder.add_arguments(call, _null_to_object(word.text))
            return True
        self._builder.add_arguments(call, word.text)
        if self._buffer.is_exhausted:
            self._state.end_truncated_call(call)
        else:
            yield from self._state.keep_as_written(call)
        return False

    def _stream_value(
        self, call: ParsedCall, parser: ValueParser, keeps_text: bool = False
    ) -> Answer:
        """Parse a value that is emitted while it comes in.

        Args:
            call: The call.
            parser: The parser of the value.
            keeps_text: If the value turns out not to be one, all of it is kept as it is written, byte for byte.
        """
        buffer = self._buffer
        writer = _ArgumentWriter(self._builder, call, keeps_text)

        def stream_string(text: str) -> list[Event] | None:
            if not parser.is_plain_text(text):
                return None
            self._builder.add_span(text, "arguments")
            writer.add(text, text)
            return self._builder.events.take()

        while True:
            parser.is_last = buffer.ended
            end = parser.feed(buffer.text, buffer.position)
            text = buffer.consume(end - buffer.position, "arguments")
            writer.add(text, parser.take() if parser.out else "")
            if parser.done:
                writer.finish()
                return True
            # What was emitted stays; the rest is added as it is written.
            if parser.error is not None:
                yield from self._state.keep_as_written(call, writer.held_text)
                return False
            if buffer.ended:
                writer.finish()
                self._state.end_truncated_call(call)
                return False
            yield None if buffer.position < len(buffer.text) else stream_string

    def _parse_between_markers(self, call: ParsedCall) -> Answer:
        """Parse JSON between markers; nothing at all is an empty object."""
        buffer, builder = self._buffer, self._builder
        char = yield from buffer.skip_space()
        if char in ("{", "[", '"'):
            return (yield from self.parse_json(call))
        state = self._state
        _, text = yield from state.read_text(state.call_format.end_matcher, "arguments")
        # No JSON follows: neither an object nor a word that means none.
        if text.strip() and JSON_WORDS.get(text.strip()) != "null":
            builder.add_arguments(call, text)
            builder.end_call(call, "malformed")
            return False
        if buffer.is_exhausted:
            builder.end_call(call, "unterminated")
            return False
        builder.add_arguments(call, "{}")
        return True


def _null_to_object(text: str) -> str:
    return "{}" if text == "null" else text


def _unquote_json(text: str) -> str:
    """Return arguments that are a JSON text within a string; as they are if they are not. A blank text means none."""
    if not text.lstrip().startswith('"'):
        return text
    try:
        inner = json.loads(text)
    except ValueError:
        return text
    return to_json(inner) or text if inner.strip() else "{}"

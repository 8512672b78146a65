"""Parse a reply: regions of content and reasoning, headers, and the end of the turn.

A coroutine, written as if the whole reply were there: `yield from` waits for more where it is not.
In each region the text up to the next marker is emitted; what happens then depends on the kind of
the marker (`_HANDLERS`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

from turnwise.replies.events import REASONING, TEXT
from turnwise.replies.grammar_parts import JsonCall
from turnwise.replies.parser.ambiguity import (
    LOOKAHEAD,
    is_ambiguous,
    is_json_call,
    looks_like_call,
)
from turnwise.replies.parser.buffer import Answer, Steps
from turnwise.replies.parser.call_format import CallFormat
from turnwise.replies.parser.calls import CallParser
from turnwise.replies.parser.compiled_grammar import HeaderFormat
from turnwise.replies.parser.matcher import MarkerKind, MarkerMatch
from turnwise.replies.parser.state import OpenRegion, ParserState

MAX_HEADER_LENGTH = 512
_CALL_OPENERS = (MarkerKind.SECTION_OPEN, MarkerKind.CALL_OPEN, MarkerKind.BARE_CALL)


class ReplyParser:
    """Parses one reply."""

    def __init__(self, state: ParserState) -> None:
        self._state = state
        self._grammar = state.grammar
        self._buffer = state.buffer
        self._builder = state.builder
        self._calls = CallParser(state)
        self.in_prompt = True  # what is parsed now is the prefill
        self._is_prompted = True  # the reasoning that is open was opened by the prompt
        self._is_delimited = False  # the content that is open has an opener

    def run(self) -> Steps:
        """Parse the reply to its end."""
        yield  # wait for the first chunk
        if self._state.region is OpenRegion.CONTENT:
            yield from self._take_content_space()
        while True:
            region = self._state.region
            if region is OpenRegion.REASONING:
                match = yield from self._read_reasoning()
            elif self._builder.at_region_start and (yield from self._parse_unmarked()):
                continue
            else:
                match = yield from self._read_content()
            if match is None:
                return  # the reply has ended
            kind = match.tag.kind
            if kind in _CALL_OPENERS:
                self._state.call_format = self._grammar.call_formats[match.tag.format]
                if not (yield from self._confirm_opener(match)):
                    continue
            # Only content right after its opener has a closer of its own.
            self._is_delimited = kind is MarkerKind.CONTENT_OPEN
            yield from _HANDLERS[region][kind](self, match)

    def _read_reasoning(self) -> Generator[None, None, MarkerMatch | None]:
        grammar = self._grammar
        matcher = grammar.reasoning_matcher
        if self._is_prompted:
            matcher = grammar.prompted_reasoning_matcher
        return self._buffer.read_until(matcher, self._builder.add_reasoning, REASONING)

    def _read_content(self) -> Generator[None, None, MarkerMatch | None]:
        grammar = self._grammar
        matcher = grammar.content_matcher
        if self._is_delimited:
            matcher = grammar.delimited_content_matcher
        return self._buffer.read_until(matcher, self._builder.add_content, TEXT)

    def _take_content_space(self) -> Steps:
        """Take the whitespace that the template writes before content that has no opener."""
        opener = self._grammar.grammar.content.open
        if not opener.core:
            yield from self._buffer.take_space(opener.text)

    # -- openers of calls

    def _confirm_opener(self, match: MarkerMatch) -> Answer:
        """Confirm an ambiguous opener by lookahead; if no call follows, emit it as content."""
        state, buffer = self._state, self._buffer
        size = match.end - match.start
        opener = state.unmask(buffer.text[match.start : match.end])
        if not is_ambiguous(opener):
            return True
        format = state.call_format
        if match.tag.kind is MarkerKind.CALL_OPEN:
            openers = format.openers[match.tag.index + 1 :]
        else:
            openers = format.section_openers[1:] + format.openers
        while (is_call := self._looks_like_call(format, size, openers)) is None:
            yield
        if not is_call:
            # Only its whitespace or first character: a marker may start within it.
            _, space = yield from buffer.look_past_space()
            self._builder.add_content(buffer.consume(min(space, size) or 1, TEXT))
        return is_call

    def _looks_like_call(
        self, format: CallFormat, skipped: int = 0, openers: Sequence[str] = ()
    ) -> bool | None:
        """Return whether a call follows after `skipped` characters; None if more text is needed."""
        state, buffer = self._state, self._buffer
        start = buffer.position + skipped
        text = state.unmask(buffer.text[start : start + LOOKAHEAD])
        call = format.calls.call
        if isinstance(call, JsonCall) and format.bare_starts:
            # The brace is the opener, and was skipped.
            return is_json_call("{" + text, call, state.tools, buffer.ended)
        # The opener of content may look like a name.
        content = self._grammar.grammar.content.open.core
        if not skipped and content and text.lstrip().startswith(content):
            return False
        return looks_like_call(text, format, state.tools, buffer.ended, openers)

    def _parse_unmarked(self) -> Answer:
        """Parse what needs no marker at the start of a region: a call, or a header that starts with its recipient."""
        state, grammar = self._state, self._grammar
        if any(format.bare_starts for format in grammar.call_formats):
            char, space = yield from self._buffer.look_past_space()
            bare_format = grammar.find_bare_format(char)
            if bare_format is not None:
                state.call_format = bare_format
                self._consume_space(space)
                yield from self._calls.parse_bare_row()
                return True
        for format in grammar.formats_without_opener:
            while (is_call := self._looks_like_call(format)) is None:
                yield
            if is_call:
                state.call_format = format
                yield from self._calls.parse_unopened_call()
                return True
        header = grammar.header_format
        if header is None or not header.recipient_key:
            return False
        text, space = yield from self._buffer.look_past_space(len(header.recipient_key))
        if text != header.recipient_key:
            return False
        self._consume_space(space)
        yield from self._parse_header(header)
        return True

    def _consume_space(self, size: int) -> None:
        """Take whitespace before what may still turn out to be content."""
        if size:
            self._builder.add_content(self._buffer.consume(size, "space"))

    # -- headers

    def _parse_header(self, header: HeaderFormat) -> Steps:
        """Parse a header: the word for its region and a recipient, in any order."""
        buffer, builder = self._buffer, self._builder
        formats = [format for format in self._grammar.call_formats if format.openers]
        if formats:
            self._state.call_format = formats[0]
        # A header that does not end is content, so its text is kept like that of a call.
        texts: list[str] = []
        builder.open_call()
        match = yield from buffer.read_until(
            self._grammar.header_matcher, texts.append, "marker", limit=MAX_HEADER_LENGTH
        )
        if match is None or match.tag.kind is not MarkerKind.HEADER_END:
            self._calls.reject(is_truncated=match is None and buffer.ended)
            return
        buffer.consume_match(match)
        text = self._state.unmask("".join(texts))
        channel = _first_word(text.rpartition(header.start)[2])
        recipient = ""
        if header.recipient_key:
            after_key = text.partition(header.recipient_key)[2]
            recipient = _first_word(after_key.partition("<")[0])  # up to the next tag
        # Without a recipient, or with the word of a region in its place, a region follows.
        is_reasoning = channel == header.reasoning
        if not recipient or channel == header.content or (is_reasoning and recipient == channel):
            builder.forget_unnamed_call()
            builder.end_region()
            self._state.region = OpenRegion.REASONING if is_reasoning else OpenRegion.CONTENT
            self._is_prompted = self.in_prompt
            return
        tool_prefix = header.recipient_prefix.removeprefix(header.recipient_key)
        if recipient.startswith(tool_prefix):
            yield from self._parse_addressed_call(header, recipient.removeprefix(tool_prefix))
        else:
            yield from self._skip_other_recipient(recipient)

    def _parse_addressed_call(self, header: HeaderFormat, name: str) -> Steps:
        """Parse the body of a message to a tool, after the part of the call that ends the header."""
        first_part = 1
        for index, part in enumerate(self._state.call_format.parts):
            if header.end in part.text:
                first_part = index + 1
                break
        yield from self._calls.parse_addressed_call(name, first_part)

    def _skip_other_recipient(self, name: str) -> Steps:
        """Skip the body of a message to someone who is neither the user nor a tool."""
        self._builder.forget_unnamed_call()
        yield from self._buffer.read_until(self._grammar.body_end_matcher, lambda text: None, "raw")
        self._builder.record_attempt("recipient", name)
        self._builder.end_region()

    # -- markers

    def _on_header(self, match: MarkerMatch) -> Steps:
        assert self._grammar.header_format is not None
        yield from self._parse_header(self._grammar.header_format)

    def _on_stop(self, match: MarkerMatch) -> Steps:
        self._builder.keep_blank_reply()
        stop = self._state.unmask(self._buffer.consume_match(match).strip())
        yield from self._state.end_turn(stop)

    def _on_start(self, match: MarkerMatch) -> Steps:
        yield from self._state.start_content(match)

    def _on_reasoning_close(self, match: MarkerMatch) -> Steps:
        yield from self._state.start_content(match)
        yield from self._take_content_space()

    def _on_call_close(self, match: MarkerMatch) -> Steps:
        """A closer where nothing is open is no content, unless what it closes was taken for content."""
        if self._state.last_call_failed:
            self._builder.add_content(self._buffer.consume_match(match, TEXT))
        else:
            yield from self._on_content_close(match)

    def _on_content_close(self, match: MarkerMatch) -> Steps:
        yield from self._state.take_region_marker(match)
        self._builder.end_region()

    def _on_stray(self, match: MarkerMatch) -> Steps:
        self._builder.drop_leading_space()
        yield from self._state.take_region_marker(match)

    def _on_reasoning_open(self, match: MarkerMatch) -> Steps:
        yield from self._state.take_region_marker(match)
        self._state.region = OpenRegion.REASONING
        self._is_prompted = self.in_prompt
        self._builder.end_region()

    def _on_repeated_opener(self, match: MarkerMatch) -> Steps:
        """The opener of reasoning at its start: the model repeats what the prompt wrote. Later it is text."""
        if self._builder.at_region_start:
            yield from self._on_stray(match)
        else:
            self._builder.add_reasoning(self._buffer.consume_match(match, REASONING))

    def _on_section(self, match: MarkerMatch) -> Steps:
        self._end_reasoning()
        yield from self._calls.parse_section(match)

    def _on_call(self, match: MarkerMatch) -> Steps:
        self._end_reasoning()
        yield from self._calls.parse_opened_call(match)

    def _end_reasoning(self) -> None:
        """A call ends reasoning that is open."""
        if self._state.region is OpenRegion.REASONING:
            self._state.region = OpenRegion.CONTENT
            self._builder.end_region()

    def _on_bare_call(self, match: MarkerMatch) -> Steps:
        yield from self._calls.parse_bare_row()


def _first_word(text: str) -> str:
    words = text.split(maxsplit=1)
    return words[0] if words else ""


_Handler = Callable[[ReplyParser, MarkerMatch], Steps]
# What a marker does depends on the region in which it is matched.
_IN_BOTH: dict[MarkerKind, _Handler] = {
    MarkerKind.SECTION_OPEN: ReplyParser._on_section,
    MarkerKind.CALL_OPEN: ReplyParser._on_call,
    MarkerKind.CONTENT_OPEN: ReplyParser._on_start,
    MarkerKind.MESSAGE_START: ReplyParser._on_start,
    MarkerKind.STOP: ReplyParser._on_stop,
}
_HANDLERS: Mapping[OpenRegion, Mapping[MarkerKind, _Handler]] = {
    OpenRegion.CONTENT: {
        **_IN_BOTH,
        MarkerKind.BARE_CALL: ReplyParser._on_bare_call,
        MarkerKind.REASONING_OPEN: ReplyParser._on_reasoning_open,
        MarkerKind.REASONING_CLOSE: ReplyParser._on_stray,
        MarkerKind.CONTENT_CLOSE: ReplyParser._on_content_close,
        MarkerKind.CALL_CLOSE: ReplyParser._on_call_close,
        MarkerKind.HEADER: ReplyParser._on_header,
    },
    OpenRegion.REASONING: {
        **_IN_BOTH,
        MarkerKind.REASONING_OPEN: ReplyParser._on_repeated_opener,
        MarkerKind.REASONING_CLOSE: ReplyParser._on_reasoning_close,
    },
}

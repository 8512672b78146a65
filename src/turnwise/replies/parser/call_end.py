"""Parse what follows the arguments of a call: its closers, and what separates it from the next
call.

Models leave out closers, and write brackets too many. A call without a distinctive closer is
`unclosed`; brackets before a closer are skipped, and the call is malformed.
"""

from __future__ import annotations

from turnwise.replies.parser.buffer import Answer, Steps
from turnwise.replies.parser.marker_text import is_tag_like, trailing_space, whitespace_only
from turnwise.replies.parser.message_builder import ParsedCall
from turnwise.replies.parser.state import ParserState

_SURPLUS_BRACKETS = "}]) \t\r\n"  # what models write too often at the end of a call
_MAX_SURPLUS = 16


class CallEndParser:
    """Parses the end of calls."""

    def __init__(self, state: ParserState) -> None:
        self._state = state
        self._buffer = state.buffer

    def finish(self, call: ParsedCall, id: str | None) -> Steps:
        """End a call whose arguments are complete; `id` counts if it has none yet."""
        state, format = self._state, self._state.call_format
        status = "complete" if state.is_offered(call.name) else "unknown"
        last = whitespace_only(format.calls.each.close)
        for text in format.closers:
            if (yield from self._take_closer(text)):
                last = text
            elif is_tag_like(text):
                status = "unclosed"
        if state.is_unclosed:
            status = "unclosed"
        if state.is_malformed:
            status = "malformed"
        state.builder.end_call(call, status, id)
        # The closer of a call may be a stop: `<|call|>`.
        is_stop = last.strip() in state.grammar.grammar.stops
        if is_stop and not (yield from self._is_call_next()):
            yield from state.end_turn(last.strip())
        elif not (yield from self._take_separator()):
            yield from self._buffer.take_space(trailing_space(last))

    def _is_call_next(self) -> Answer:
        """Whether another call follows a closer that is a stop too: then the reply goes on."""
        openers = [text for text in self._state.call_format.openers[:1] if is_tag_like(text)]
        if not openers or self._state.grammar.grammar.starts:
            return False
        opener, _ = yield from self._buffer.find_next(openers)
        return bool(opener)

    def _take_closer(self, text: str) -> Answer:
        """Take this closer if it comes next; a distinctive one also after brackets too many."""
        if (yield from self._state.take_marker(text)):
            return True
        if not is_tag_like(text) or not (yield from self._skip_brackets(text)):
            return False
        return (yield from self._state.take_marker(text))

    def _skip_brackets(self, closer: str) -> Answer:
        """Skip brackets before a closer. They belong neither to the call nor to the content."""
        buffer = self._buffer
        forms = self._state.grammar.variants.spellings(closer)
        cores = tuple(form.strip() for form in forms)
        window_size = _MAX_SURPLUS + max(map(len, cores))
        while True:
            window = buffer.text[buffer.position : buffer.position + window_size]
            rest = window.lstrip(_SURPLUS_BRACKETS)
            if rest.startswith(cores):
                buffer.consume(len(window) - len(rest), "raw")
                self._state.is_malformed = True
                return True
            if buffer.ended or len(window) == window_size:
                return False
            if not any(core.startswith(rest) for core in cores):
                return False
            yield None

    def _take_separator(self) -> Answer:
        """Take what separates calls, or ends the section, if it comes next."""
        buffer, grammar, format = self._buffer, self._state.grammar, self._state.call_format
        separators = format.separator_spellings
        if not separators:
            return False
        marker, space = yield from buffer.find_next(format.after_call)
        if marker not in separators or marker in grammar.grammar.stops:
            return False
        buffer.consume(space, "space")
        buffer.consume(len(marker), "marker")
        last = separators[marker]
        if last in format.section_closers[:1]:
            self._state.is_section_open = False
            for text in format.section_closers[1:]:
                yield from self._state.take_marker(text)
                last = text
        yield from buffer.take_space(trailing_space(last))
        return True

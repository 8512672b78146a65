"""The state that the parsers of one reply share.

    ReplyParser            regions, headers, the end of the turn        reply.py
      CallParser           sections, rows of calls, parts of a call     calls.py
        JsonCallParser     calls that are one JSON object               json_calls.py
        ArgumentParser     arguments, in any notation                   arguments.py
          PairParser       arguments between tags                       pairs.py

All of them read from one `ParseBuffer` and write to one `MessageBuilder`.
"""

from __future__ import annotations

from turnwise.replies.parser.buffer import Answer, ParseBuffer, Reading, Steps
from turnwise.replies.parser.call_format import CallFormat
from turnwise.replies.parser.compiled_grammar import CompiledGrammar
from turnwise.replies.parser.markers import (
    MarkerMatch,
    MarkerMatcher,
    is_tag_like,
    trailing_space,
    whitespace_only,
)
from turnwise.replies.parser.message_builder import (
    MessageBuilder,
    ParsedCall,
    ReplyPolicy,
)
from turnwise.replies.parser.tool_schema import ToolTypes, resolve_name

_SURPLUS_BRACKETS = "}]) \t\r\n"  # what models write too often at the end of a call
_MAX_SURPLUS = 16


class ParserState:
    """What several parsers read and change, and the steps that several of them take."""

    def __init__(
        self,
        grammar: CompiledGrammar,
        tools: ToolTypes,
        buffer: ParseBuffer,
        builder: MessageBuilder,
        policy: ReplyPolicy,
    ) -> None:
        self.grammar = grammar
        self.tools = tools
        self.buffer = buffer
        self.builder = builder
        self.policy = policy
        self.unmask = grammar.detokenizer.unmask
        # The reply is whole: if an unopened closer shows that it starts with reasoning, that ends the parser, and the
        # reply is parsed again as one that lacks the opener of its reasoning.
        self.reads_whole = self.found_unopened = self.lacks_opener = False
        # The region that is open, between calls. Reasoning without an opener is opened by the template, visibly or not.
        reasoning = grammar.grammar.reasoning
        self.in_reasoning = bool(reasoning and reasoning.close and not reasoning.open)
        # The call that is open.
        self.call_format: CallFormat
        self.is_malformed = False  # the call holds text that does not belong to it
        self.is_unclosed = False  # the closer of an argument is missing
        self.json_depth = 0  # JSON objects around its arguments
        self.last_call_failed = False  # it was no call: its closers are content too
        self.is_section_open = False  # its closer has not come, perhaps with other whitespace

    def read_text(
        self, matcher: MarkerMatcher, kind: str, limit: int | None = None
    ) -> Reading[tuple[MarkerMatch | None, str]]:
        """Read the text up to a marker; see `ParseBuffer.read_until`. Return the marker and the text, unmasked."""
        texts: list[str] = []
        match = yield from self.buffer.read_until(matcher, texts.append, kind, limit)
        return match, self.unmask("".join(texts))

    # -- markers

    def take_marker(self, text: str) -> Answer:
        """Take a marker if it comes next, in any of its spellings, with whitespace before it."""
        return self.buffer.take_any(self.grammar.variants.spellings(text))

    def take_region_marker(self, match: MarkerMatch, status: str | None) -> Steps:
        """Take a marker around a region, and the whitespace after it; with a status, it is recorded."""
        text = self.buffer.consume_match(match)
        if status is not None:
            self.builder.record_marker(status, text)
        yield from self.buffer.take_space(self.grammar.trailing_spaces.get(text.strip(), ""))

    def start_content(self, match: MarkerMatch, status: str | None = None) -> Steps:
        """Take a marker after which content follows; with a status, it is recorded."""
        yield from self.take_region_marker(match, status)
        self.in_reasoning = False
        self.builder.end_region()

    def take_content_space(self) -> Steps:
        """Take the whitespace that the template writes before content that has no opener."""
        opener = self.grammar.grammar.content.open
        if not opener.core:
            yield from self.buffer.take_space(opener.text)

    def end_turn(self, stop: str) -> Steps:
        """The reply has ended with this stop. The rest is skipped, unless another message starts."""
        self.builder.stop_at(stop)
        restart = yield from self.buffer.read_until(
            self.grammar.restart_matcher, lambda text: None, "rest"
        )
        if restart is not None:
            yield from self.start_content(restart)

    # -- calls

    def is_offered(self, name: str) -> bool:
        """Return whether this is one of the tools; any name is if no tools are given."""
        return not self.tools or resolve_name(name.strip(), self.tools) in self.tools

    def start_call(self, name: str, id: str | None = None, id_follows: bool = False) -> ParsedCall:
        """Start the call that is open. It gets an id unless one may still follow."""
        self.last_call_failed = self.is_malformed = self.is_unclosed = False
        written = self.call_format.calls.unescape(name.strip())
        name = resolve_name(written, self.tools)
        if self.policy.undeclared_tools == "refuse" and name not in self.tools:
            return self.builder.refuse_call(name)
        call = self.builder.start_call(name, id, id_follows)
        call.written_name = written
        return call

    def mark_malformed(self, start: int) -> None:
        """The text from `start` on does not belong to the call."""
        self.builder.relabel_from(start, "raw")
        self.is_malformed = True

    def end_truncated_call(self, call: ParsedCall) -> None:
        """The reply has ended within the arguments."""
        self.buffer.consume_rest("arguments")
        self.builder.end_call(call, "unterminated")

    def keep_as_written(self, call: ParsedCall, read: str = "") -> Steps:
        """Keep arguments that cannot be parsed as they are written, up to the end of the call.

        The last braces are those of the object that is the call, unless the arguments need them.

        Args:
            call: The call.
            read: The end of the text that was read of them, if it has not been emitted.
        """
        builder = self.builder
        missing = _count_open_braces(call.arguments.getvalue() + read)
        held: list[str] = []  # braces and whitespace at the end of what has come so far

        def add(text: str) -> None:
            core = text.rstrip("} \t\r\n")
            if core:
                builder.add_arguments(call, "".join(held) + core)
                held.clear()
            held.append(text[len(core) :])

        if read:
            add(read)
        yield from self.buffer.read_until(self.call_format.end_matcher, add, "arguments")
        # Of the braces at the end, those of the objects around the arguments are markers.
        tail = "".join(held)
        end = len(tail)
        for _ in range(min(self.json_depth, tail.count("}") - missing)):
            end = tail.rindex("}", 0, end)
        kept, rest = tail[:end].rstrip(), tail[end:]
        builder.add_arguments(call, kept)
        if len(kept) < len(tail):
            start = builder.position - len(tail) + len(kept)
            builder.relabel_from(start, "marker" if rest else "space")
        # Other closers are no text wherever they are.
        for text in self.call_format.closers:
            if not is_tag_like(text):
                yield from self.take_marker(text)
        builder.end_call(call, "malformed")

    # -- what follows the arguments of a call: its closers, and what separates it from the next call
    #
    # Models leave out closers, and write brackets too many. A call without a distinctive closer is `unclosed`; brackets
    # before a closer are skipped, and the call is malformed.

    def finish_call(self, call: ParsedCall, id: str | None) -> Steps:
        """End a call whose arguments are complete; `id` counts if it has none yet."""
        format = self.call_format
        status = "complete" if self.is_offered(call.name) else "unknown"
        last = whitespace_only(format.calls.each.close)
        for text in format.closers:
            if (yield from self._take_closer(text)):
                last = text
            elif is_tag_like(text):
                status = "unclosed"
        if self.is_unclosed:
            status = "unclosed"
        if self.is_malformed:
            status = "malformed"
        self.builder.end_call(call, status, id)
        # The closer of a call may be a stop: `<|call|>`.
        is_stop = last.strip() in self.grammar.grammar.stops
        if is_stop and not (yield from self._is_call_next()):
            yield from self.end_turn(last.strip())
        elif not (yield from self._take_separator()):
            yield from self.buffer.take_space(trailing_space(last))

    def _is_call_next(self) -> Answer:
        """Whether another call follows a closer that is a stop too: then the reply goes on."""
        openers = [text for text in self.call_format.openers[:1] if is_tag_like(text)]
        if not openers or self.grammar.grammar.starts:
            return False
        opener, _ = yield from self.buffer.find_next(openers)
        return bool(opener)

    def _take_closer(self, text: str) -> Answer:
        """Take this closer if it comes next; a distinctive one also after brackets too many."""
        if (yield from self.take_marker(text)):
            return True
        if not is_tag_like(text) or not (yield from self._skip_brackets(text)):
            return False
        return (yield from self.take_marker(text))

    def _skip_brackets(self, closer: str) -> Answer:
        """Skip brackets before a closer. They belong neither to the call nor to the content."""
        buffer = self.buffer
        forms = self.grammar.variants.spellings(closer)
        cores = tuple(form.strip() for form in forms)
        window_size = _MAX_SURPLUS + max(map(len, cores))
        while True:
            window = buffer.text[buffer.position : buffer.position + window_size]
            rest = window.lstrip(_SURPLUS_BRACKETS)
            if rest.startswith(cores):
                buffer.consume(len(window) - len(rest), "raw")
                self.is_malformed = True
                return True
            if buffer.ended or len(window) == window_size:
                return False
            if not any(core.startswith(rest) for core in cores):
                return False
            yield None

    def _take_separator(self) -> Answer:
        """Take what separates calls, or ends the section, if it comes next."""
        buffer, format = self.buffer, self.call_format
        separators = format.separator_spellings
        if not separators:
            return False
        marker, space = yield from buffer.find_next(format.after_call)
        if marker not in separators or marker in self.grammar.grammar.stops:
            return False
        buffer.consume(space, "space")
        buffer.consume(len(marker), "marker")
        last = separators[marker]
        if last in format.section_closers[:1]:
            self.is_section_open = False
            for text in format.section_closers[1:]:
                yield from self.take_marker(text)
                last = text
        yield from buffer.take_space(trailing_space(last))
        return True


class PartParser:
    """Parses a part of a reply, with the state that all parts share."""

    def __init__(self, state: ParserState) -> None:
        self._state = state
        self._grammar = state.grammar
        self._buffer = state.buffer
        self._builder = state.builder


def _count_open_braces(text: str) -> int:
    outside_strings = text.replace("\\\\", "").replace('\\"', "").split('"')[::2]
    return sum(part.count("{") - part.count("}") for part in outside_strings)

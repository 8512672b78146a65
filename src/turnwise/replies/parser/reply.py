"""Parse a reply: regions of content and reasoning, channel headers, and the end of the turn.

A coroutine, written as if the whole reply were there: `yield from` waits for more where it is not.
In each region the text up to the next marker is emitted; what happens then depends on the kind of
the marker (`_HANDLERS`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from turnwise.replies.events import REASONING, TEXT, UNNAMED
from turnwise.replies.grammar_parts import JsonCall
from turnwise.replies.parser.buffer import Answer, Reading, Steps
from turnwise.replies.parser.call_format import CallFormat
from turnwise.replies.parser.calls import CallParser
from turnwise.replies.parser.compiled_grammar import (
    ARGUMENT_KEYS,
    NAME_KEYS,
    ChannelHeaderFormat,
)
from turnwise.replies.parser.markers import MarkerKind, MarkerMatch
from turnwise.replies.parser.state import ParserState, PartParser
from turnwise.replies.parser.tool_schema import resolve_name

# ---- ambiguity ----
#
# Decide by bounded lookahead whether an ambiguous opener starts a call.
#
# An opener without letters (`((`, `<`, `>>>`) may occur in any text. A call is likely if the next
# opener follows and has letters; or if a name follows and then the marker that must follow a name,
# and the name is one of the tools or JSON arguments begin. Of a call that is a JSON object the first
# key must be one that calls have. All of this is within a few characters, and nothing is emitted
# before it is decided.
#
# Within reasoning, a model may mention the opener of a call. It starts one if markup, a bracket or a
# name and one of these follow it, and not prose or the end of the reasoning.
#
# Where calls are JSON without any opener, a brace after content starts a call if the object starts
# with a name, followed by arguments.
#
# The limit: `<f><x>1</x></f>` is a call only where the tools are given. Without them it cannot be
# told from markup.
#
# All functions return None while more text is needed for a decision.


LOOKAHEAD = 320  # characters that are looked at
_NAME = re.compile(r"[\w.\-]+")
_NAME_AND_COLONS = re.compile(r"[\w.\-:]+")  # `call:tide`, `functions.tide:0`
_CALL_STARTS = frozenset("<{[(")  # of markup, and of arguments
_FIRST_KEY = re.compile(r'\{\s*"(\w+)"\s*:')

# An object that starts with a name, followed by arguments, token by token.
_NAME_THEN_ARGUMENTS = (
    re.compile(r"\{\s*"),
    re.compile(r'"(\w*)"'),
    re.compile(r"\s*:\s*"),
    re.compile(r'"([\w.\-]*)"'),
    re.compile(r"\s*,\s*"),
    re.compile(r'"(\w*)"'),
    re.compile(r"\s*:\s*"),
    re.compile(r"\{"),
)
_INCOMPLETE_TOKEN = re.compile(r'\s*|"[\w.\-]*')


def is_ambiguous(opener: str) -> bool:
    """Return whether an opener consists of punctuation only, so that it may occur in any text."""
    return not any(map(str.isalnum, opener))


def looks_like_call(
    text: str,
    format: CallFormat,
    tool_names: Collection[str],
    is_last: bool,
    openers: Sequence[str] = (),
) -> bool | None:
    """Return whether the text after an opener goes on as a call.

    Args:
        text: The text after the opener, at most `LOOKAHEAD` characters.
        format: The format of the call.
        tool_names: The names of the tools; empty if none are given.
        is_last: No more text will come.
        openers: The other openers of the call, which must come first.
    """
    verdict = _starts_call(text.lstrip(), format, tool_names, openers)
    if is_last or len(text) >= LOOKAHEAD:
        return bool(verdict)  # what is still open counts as no
    return verdict


def continues_as_call(text: str, closer: str, is_last: bool) -> bool | None:
    """Return whether a text goes on as a call after an opener, and not as prose that mentions the opener.

    Args:
        text: The text after the opener, at most `LOOKAHEAD` characters.
        closer: What would end the region in which the opener is.
        is_last: No more text will come. Then a call that has only begun counts.
    """
    body = text.lstrip()
    name = _NAME_AND_COLONS.match(body)
    if name is not None:
        body = body[name.end() :].lstrip()
    if not body:
        return True if is_last or len(text) >= LOOKAHEAD else None
    if closer and body.startswith(closer):
        return False
    if closer.startswith(body) and not is_last:
        return None
    return body[0] in _CALL_STARTS


def _starts_call(
    body: str, format: CallFormat, tool_names: Collection[str], openers: Sequence[str]
) -> bool | None:
    for opener in map(str.strip, openers):
        if not body.startswith(opener):
            return None if opener.startswith(body) else False
        if not is_ambiguous(opener):
            return True
        body = body[len(opener) :].lstrip()
    call = format.calls.call
    if isinstance(call, JsonCall):
        return _starts_object(body, call, tool_names)
    return _starts_with_name(body, format, tool_names)


def _starts_object(body: str, call: JsonCall, tool_names: Collection[str]) -> bool | None:
    match = _FIRST_KEY.match(body)
    if match is None:
        # The key may not be complete yet: at most its opening quote has come.
        has_whole_string = '"' in body[1:].strip().strip('"')
        may_continue = body[:1] in ("", "{") and not has_whole_string
        return None if may_continue else False
    key = match.group(1)
    if call.name is None:
        return resolve_name(key, tool_names) in tool_names
    call_keys = (call.name, call.arguments, call.id, "type", *NAME_KEYS, *ARGUMENT_KEYS)
    return key in call_keys


def _starts_with_name(body: str, format: CallFormat, tool_names: Collection[str]) -> bool | None:
    match = _NAME.match(body)
    if match is None or format.parts[0].slot != "name":
        return False if body else None
    if match.end() == len(body):
        return None
    marker = format.parts[1].text.strip() if len(format.parts) > 1 else ""
    rest = body[match.end() :].lstrip()
    if not rest.startswith(marker):
        return None if marker.startswith(rest) else False
    # Tagged arguments look like markup, and any line may end with a name, so that must be the name of a tool.
    is_tool = resolve_name(match.group(), tool_names) in tool_names
    needs_tool = not marker and format.starts_with_name
    if marker and is_tool:
        return True
    if format.pairs is not None or (needs_tool and not is_tool):
        return False
    arguments = rest[len(marker) :].lstrip()
    return arguments.startswith("{") if arguments else None


def is_json_call(
    text: str, call: JsonCall, tool_names: Collection[str], is_last: bool
) -> bool | None:
    """Return whether a text is an object that starts with a name, of a tool if tools are given, and then arguments."""
    allowed = ((call.name,), tool_names, (call.arguments, *ARGUMENT_KEYS))
    position, strings = 0, list[str]()
    for token in _NAME_THEN_ARGUMENTS:
        match = token.match(text, position)
        if match is None:
            may_continue = not is_last and len(text) < position + LOOKAHEAD
            if may_continue and _INCOMPLETE_TOKEN.fullmatch(text, position):
                return None
            return False
        strings += match.groups()
        strings[1:2] = [resolve_name(name, tool_names) for name in strings[1:2]]
        position = match.end()
        # The strings so far must be the key of the name, a name, and the key of the arguments.
        for string, names in zip(strings, allowed, strict=False):
            if names and string not in names:
                return False
    return True


# ---- reply ----


MAX_HEADER_LENGTH = 512
_CALL_OPENERS = (MarkerKind.SECTION_OPEN, MarkerKind.CALL_OPEN, MarkerKind.BARE_CALL)


class ReplyParser(PartParser):
    """Parses one reply."""

    def __init__(self, state: ParserState) -> None:
        super().__init__(state)
        self._calls = CallParser(state)
        self._in_prefill = True
        # Reasoning that needs no opener is open from the start: the prompt opened it.
        self._reasoning_from_prompt = state.in_reasoning
        self._is_plain = True  # no region, message or header has been opened or closed so far
        self._has_reasoned = False  # the closer of reasoning has come
        self._is_delimited = False  # the content that is open has an opener
        # Content that has no opener is open wherever nothing else is.
        self._needs_no_opener = not state.grammar.grammar.content.open.core
        self._is_content_open = self._needs_no_opener
        self._follows_header = (
            False  # the region that is open was opened by a header, so none is to come
        )
        self._ends_message = False  # the marker that was matched last ended such a region
        self._is_interrupted = False  # a call was read within reasoning, whose closer has not come
        self._mention_end = -1  # where the last opener ended that reasoning only mentions

    def finish_prefill(self, is_assumed: bool) -> None:
        """What is parsed from now on was written by the model; an assumed prompt may have been another."""
        self._in_prefill = False
        self._is_plain = self._is_plain or is_assumed

    def run(self) -> Steps:
        """Parse the reply to its end."""
        yield None  # wait for the first chunk
        if not self._state.in_reasoning:
            yield from self._state.take_content_space()
        while True:
            in_reasoning = self._state.in_reasoning
            at_content_start = not in_reasoning and self._builder.at_region_start
            if at_content_start and (yield from self._parse_unmarked()):
                continue
            match = yield from self._read_region()
            if match is None:
                return  # the reply has ended
            kind = match.tag.kind
            if kind is MarkerKind.SPECIAL:
                yield from self._read_specials(match)
                continue
            if kind in _CALL_OPENERS:
                self._state.call_format = self._grammar.call_formats[match.tag.format]
                if in_reasoning:
                    is_call = yield from self._confirm_end_of_reasoning(match)
                else:
                    is_call = yield from self._confirm_opener(match)
                if not is_call:
                    continue
            self._ends_message = self._follows_header
            # Only content right after its opener has a closer of its own.
            self._is_delimited = self._follows_header = kind is MarkerKind.CONTENT_OPEN
            yield from _HANDLERS[in_reasoning][kind](self, match)
            if self._state.found_unopened:
                return

    def _read_region(self) -> Reading[MarkerMatch | None]:
        grammar, builder = self._grammar, self._builder
        if not self._state.in_reasoning:
            matcher = grammar.content_matcher
            if self._is_delimited:
                matcher = grammar.delimited_content_matcher
            if self._is_interrupted:
                return self._buffer.read_until(matcher, builder.add_reasoning, REASONING)
            return self._buffer.read_until(matcher, builder.add_content, TEXT)
        matcher = grammar.reasoning_matcher
        if self._state.lacks_opener:
            matcher = grammar.reasoning_close_matcher
        elif self._reasoning_from_prompt:
            matcher = grammar.prompted_reasoning_matcher
        return self._buffer.read_until(matcher, builder.add_reasoning, REASONING)

    def _read_specials(self, match: MarkerMatch) -> Steps:
        """Read special tokens that no marker has: right before a call or after one they are no content."""
        buffer, builder, grammar = self._buffer, self._builder, self._grammar
        last = builder.attempts[-1] if builder.attempts and builder.at_region_start else None
        is_beside_call = last is not None and last.call is not None
        builder.start_buffering()
        buffer.consume_match(match)
        while True:
            marker, space = yield from buffer.find_next(grammar.before_calls)
            if marker not in grammar.specials:
                break
            buffer.consume(space + len(marker), TEXT)
        if marker:
            is_beside_call = True
        elif not is_beside_call and grammar.bare_lookahead:
            text, _ = yield from buffer.look_past_space(grammar.bare_lookahead)
            is_beside_call = grammar.find_bare_format(text) is not None
        if not is_beside_call:
            builder.reject_call(status=None)
            return
        builder.stop_buffering()
        builder.relabel_from(builder.call_start, "marker")
        builder.record_attempt(UNNAMED)

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
            yield None
        if is_call:
            return True
        # Only its whitespace or first character: a marker may start within it.
        _, space = yield from buffer.look_past_space()
        self._builder.add_content(buffer.consume(min(space, size) or 1, TEXT))
        return False

    def _confirm_end_of_reasoning(self, match: MarkerMatch) -> Answer:
        """Confirm an opener within reasoning: it is only mentioned if it is part of a sentence, or prose follows.

        A control token that is not part of a sentence is never mentioned.
        """
        buffer, builder = self._buffer, self._builder
        reasoning = self._grammar.grammar.reasoning
        closer = "" if reasoning is None else reasoning.close.core
        size = match.end - match.start
        choice = self._state.policy.calls_in_reasoning
        is_call: bool | None = True if choice == "all" else None
        space = builder.trailing_space
        # What directly follows an opener that is only mentioned is part of the same mention.
        follows_mention = builder.position - space.size == self._mention_end
        is_mention = space.is_within_sentence or follows_mention
        if choice == "text" or (choice == "read" and is_mention):
            is_call = False
        elif builder.starts_with_control_token(buffer.text[match.start : match.end]):
            is_call = True
        while is_call is None:
            window = buffer.text[buffer.position + size : buffer.position + size + LOOKAHEAD]
            is_call = continues_as_call(self._state.unmask(window), closer, buffer.ended)
            if is_call is None:
                yield None
        if not is_call:
            builder.add_reasoning(buffer.consume_match(match, REASONING))
            self._mention_end = builder.position
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
            if not text and not buffer.ended:
                return None
            # The brace is the opener, and was skipped; two are not the start of an object.
            return text[:1] != "{" and is_json_call("{" + text, call, state.tools, buffer.ended)
        # The opener of content may look like a name.
        content = self._grammar.grammar.content.open.core
        if not skipped and content and text.lstrip().startswith(content):
            return False
        return looks_like_call(text, format, state.tools, buffer.ended, openers)

    def _parse_unmarked(self) -> Answer:
        """Parse what needs no marker at the start of a region: a call, or a channel header (`to=...`)."""
        state, grammar = self._state, self._grammar
        if grammar.bare_lookahead:
            text, space = yield from self._buffer.look_past_space(grammar.bare_lookahead)
            bare_format = grammar.find_bare_format(text)
            if bare_format is not None:
                state.call_format = bare_format
                self._consume_space(space)
                yield from self._calls.parse_bare_row()
                return True
        for format in grammar.formats_without_opener:
            while (is_call := self._looks_like_call(format)) is None:
                yield None
            if is_call:
                state.call_format = format
                yield from self._calls.parse_unopened_call()
                return True
        header_format = grammar.channel_header_format
        if header_format is None or not header_format.recipient_key or self._follows_header:
            return False
        key = header_format.recipient_key
        text, space = yield from self._buffer.look_past_space(len(key))
        if text != key:
            return False
        self._consume_space(space)
        yield from self._parse_channel_header()
        return True

    def _consume_space(self, size: int) -> None:
        """Take whitespace before what may still turn out to be content."""
        if size:
            self._builder.add_content(self._buffer.consume(size, "space"))

    # -- channel headers: `<|channel|>commentary to=functions.add<|message|>`

    def _parse_channel_header(self, match: MarkerMatch | None = None) -> Steps:
        """Parse a channel header, whose start may be missing, and the message of a call after it."""
        buffer, format = self._buffer, self._grammar.channel_header_format
        assert format is not None
        # A header that does not end is content, like a call that does not get a name.
        self._builder.start_buffering()
        end, text = yield from self._state.read_text(
            self._grammar.channel_header_matcher, "marker", MAX_HEADER_LENGTH
        )
        if end is None or end.tag.kind is not MarkerKind.CHANNEL_HEADER_END:
            self._calls.reject(is_truncated=end is None and buffer.ended)
            return
        buffer.consume_match(end)
        yield from self._enter_message(*format.read(text), format)

    def _enter_message(self, channel: str, recipient: str, format: ChannelHeaderFormat) -> Steps:
        """Open the region that the message after a channel header is, or parse its call."""
        is_reasoning = channel == format.reasoning
        self._is_plain = False
        if not recipient and not self._grammar.names_channel(channel):
            yield from self._enter_unlabelled_message()
            return
        # Without a recipient, or with the name of a channel in its place, a region follows.
        if not recipient or channel == format.content or (is_reasoning and recipient == channel):
            self._builder.stop_buffering()
            self._open_region(is_reasoning)
            self._follows_header = True
            return
        # Whoever else it is to is a tool, declared or built in (`to=python`), with or without the name space of tools.
        name = recipient.removeprefix(format.recipient_prefix.removeprefix(format.recipient_key))
        # The format whose opener is the prefix of a recipient.
        call_format = next(calls for calls in self._grammar.call_formats if calls.openers)
        yield from self._calls.parse_addressed_call(call_format, name, format.end)

    def _enter_unlabelled_message(self) -> Steps:
        """Open the region that the end of a message shows, as its header does not; its text is held back until then."""
        builder = self._builder
        builder.record_attempt("unlabelled")
        builder.stop_buffering()
        start = builder.position
        end, text = yield from self._state.read_text(self._grammar.body_end_matcher, TEXT)
        self._follows_header = True
        if end is not None and end.tag.kind is MarkerKind.REASONING_CLOSE:
            self._open_region(is_reasoning=True)
            builder.relabel_from(start, REASONING)
            builder.add_reasoning(text)
        else:
            self._open_region(is_reasoning=False)
            builder.add_content(text)

    def _open_region(self, is_reasoning: bool) -> None:
        self._state.in_reasoning = is_reasoning
        self._is_plain = self._is_interrupted = False
        self._is_content_open = not is_reasoning
        self._reasoning_from_prompt = self._in_prefill
        self._builder.end_region()

    # -- markers

    def _on_stop(self, match: MarkerMatch) -> Steps:
        self._builder.keep_held_space()
        stop = self._state.unmask(self._buffer.consume_match(match).strip())
        yield from self._state.end_turn(stop)

    def _start_content(self, match: MarkerMatch, status: str | None) -> Steps:
        """Take a marker after which content follows; with a status, it is out of place and is recorded."""
        self._is_plain = self._is_interrupted = False
        is_opener = match.tag.kind is MarkerKind.CONTENT_OPEN
        self._is_content_open = is_opener or self._needs_no_opener
        yield from self._state.start_content(match, status)

    def _on_content_or_message_start(self, match: MarkerMatch) -> Steps:
        is_repeated = False
        if not self._state.in_reasoning:
            is_open = self._is_content_open and not self._needs_no_opener
            is_opener = match.tag.kind is MarkerKind.CONTENT_OPEN
            is_repeated = not self._builder.at_region_start or (is_opener and is_open)
        yield from self._start_content(match, "repeated" if is_repeated else None)

    def _on_reasoning_close(self, match: MarkerMatch) -> Steps:
        status = "unopened" if self._state.lacks_opener else None
        self._state.lacks_opener = False
        self._has_reasoned = not self._in_prefill
        yield from self._start_content(match, status)
        yield from self._state.take_content_space()

    def _on_unopened_close(self, match: MarkerMatch) -> Steps:
        """The closer of reasoning where none is open: what was emitted before it as content stays content.

        Only a whole reply, of which nothing was handed out, can be parsed again as one that starts with reasoning. In
        a stream the closer stays in the content, as the text before it may be reasoning. A second closer is dropped.
        """
        state, builder = self._state, self._builder
        if self._is_interrupted:
            yield from self._on_reasoning_close(match)
        elif self._ends_message and self._grammar.channel_header_format is not None:
            yield from self._on_content_close(match)  # it ends messages of any channel
        elif builder.at_region_start:
            self._has_reasoned = True
            yield from self._start_content(match, "unopened")
            yield from self._state.take_content_space()
        elif self._has_reasoned:
            yield from state.take_region_marker(match, "unopened")
        elif state.reads_whole and self._is_plain and not builder.calls:
            state.found_unopened = True
        else:
            text = self._buffer.consume_match(match, TEXT)
            builder.record_marker("unopened", text)
            builder.add_content(text)
            self._has_reasoned = True

    def _on_call_close(self, match: MarkerMatch) -> Steps:
        """A closer where nothing is open is no content, unless what it closes was taken for content."""
        if self._state.last_call_failed:
            self._builder.add_content(self._buffer.consume_match(match, TEXT))
        else:
            is_open = self._state.is_section_open or self._builder.follows_damaged_call
            self._state.is_section_open = False
            status = None if is_open else "unopened"
            yield from self._state.take_region_marker(match, status)
            self._builder.end_region()

    def _on_content_close(self, match: MarkerMatch) -> Steps:
        status = None if self._is_content_open or self._ends_message else "unopened"
        self._is_content_open = False
        yield from self._state.take_region_marker(match, status)
        self._builder.end_region()

    def _on_reasoning_open(self, match: MarkerMatch) -> Steps:
        self._open_region(is_reasoning=True)
        status = "unlabelled" if match.tag.index else None
        yield from self._state.take_region_marker(match, status)

    def _on_repeated_opener(self, match: MarkerMatch) -> Steps:
        """The opener of reasoning at its start: the model repeats what the prompt wrote. Later it is text."""
        if self._builder.at_region_start:
            self._builder.leading_space.clear()  # it belongs to a marker
            yield from self._state.take_region_marker(match, "repeated")
        else:
            self._builder.add_reasoning(self._buffer.consume_match(match, REASONING))

    def _on_call_open(self, match: MarkerMatch) -> Steps:
        """The opener of a section or of a call, or a call without one; reasoning that is open goes on after it."""
        in_reasoning, count = self._is_interrupted, len(self._builder.calls)
        if self._state.in_reasoning:
            in_reasoning = True
            space = self._builder.trailing_space.take()
            self._builder.relabel_from(self._builder.position - len(space), "space")
            self._open_region(is_reasoning=False)
        if match.tag.kind is MarkerKind.BARE_CALL:
            yield from self._calls.parse_bare_row()
        elif match.tag.kind is MarkerKind.SECTION_OPEN:
            yield from self._calls.parse_section(match)
        else:
            yield from self._calls.parse_opened_call(match)
        has_called = len(self._builder.calls) > count and self._builder.stop is None
        self._is_interrupted = in_reasoning and has_called


_Handler = Callable[[ReplyParser, MarkerMatch], Steps]
# What a marker does depends on the region in which it is matched: whether that is reasoning.
_IN_BOTH: dict[MarkerKind, _Handler] = {
    MarkerKind.SECTION_OPEN: ReplyParser._on_call_open,
    MarkerKind.CALL_OPEN: ReplyParser._on_call_open,
    MarkerKind.CONTENT_OPEN: ReplyParser._on_content_or_message_start,
    MarkerKind.MESSAGE_START: ReplyParser._on_content_or_message_start,
    MarkerKind.STOP: ReplyParser._on_stop,
}
_HANDLERS: Mapping[bool, Mapping[MarkerKind, _Handler]] = {
    False: {
        **_IN_BOTH,
        MarkerKind.BARE_CALL: ReplyParser._on_call_open,
        MarkerKind.REASONING_OPEN: ReplyParser._on_reasoning_open,
        MarkerKind.REASONING_CLOSE: ReplyParser._on_unopened_close,
        MarkerKind.CONTENT_CLOSE: ReplyParser._on_content_close,
        MarkerKind.CALL_CLOSE: ReplyParser._on_call_close,
        MarkerKind.CHANNEL_HEADER: ReplyParser._parse_channel_header,
    },
    True: {
        **_IN_BOTH,
        MarkerKind.REASONING_OPEN: ReplyParser._on_repeated_opener,
        MarkerKind.REASONING_CLOSE: ReplyParser._on_reasoning_close,
    },
}

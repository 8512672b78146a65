"""Parse calls: sections, rows of calls, and calls whose parts are delimited by markers.

    section     <tool_calls> CALL CALL </tool_calls>
    row         [{"name": ...}, {"name": ...}]       calls without openers, one after another
    parts       <function= NAME > ARGUMENTS </function>

A call whose name cannot be read is content, unless the reply ends before the name could come.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from turnwise.replies.call_ids import name_in_id
from turnwise.replies.grammar_parts import JsonCall, RawCall
from turnwise.replies.parser.arguments import ArgumentParser
from turnwise.replies.parser.buffer import Answer, Reading, Steps
from turnwise.replies.parser.call_format import REPEATED_SLOT, CallFormat, CallPart
from turnwise.replies.parser.compiled_grammar import SHAPE_LOOKAHEAD
from turnwise.replies.parser.json_calls import JsonCallParser
from turnwise.replies.parser.markers import (
    PUNCTUATION,
    MarkerKind,
    MarkerMatch,
    is_tag_like,
    trailing_space,
)
from turnwise.replies.parser.message_builder import ParsedCall
from turnwise.replies.parser.state import ParserState, PartParser

# ---- code block ----
#
# Code for an interpreter, in a block of Markdown: parsed from a reply, and written as one.
#
#     \n```python\nprint(1)\n```
#
# A model may leave out the fence, the language or a line break. What would be written otherwise than it was read is
# kept as it is, under `verbatim`.


FENCE = "```"
DEFAULT_LANGUAGE = "python"
MAX_FIRST_LINE = 256  # a longer one is code


def parse_code_block(text: str) -> tuple[str, str | None]:
    """Return the code and the language of the text of a call; text without a fence is code in no language."""
    core = text.strip()
    first_line, _, rest = core.partition("\n")
    if not core.startswith(FENCE) or len(first_line) > MAX_FIRST_LINE:
        return text.lstrip(), None
    words = first_line.removeprefix(FENCE).split()
    code = rest.removesuffix(FENCE).removesuffix("\n")
    return code, words[0] if words else None


def write_code_block(code: str, language: str | None) -> str:
    """Return code in a fence, with the line break before it."""
    return f"\n{FENCE}{language or DEFAULT_LANGUAGE}\n{code}\n{FENCE}"


# ---- calls ----


MAX_NAME_LENGTH = 256
_NOT_IN_NAMES = frozenset("{}[]()\"',<>")
_NOT_IN_IDS = frozenset(PUNCTUATION) - {":"}


class CallParser(PartParser):
    """Parses calls from their first marker on."""

    def __init__(self, state: ParserState) -> None:
        super().__init__(state)
        self._arguments = ArgumentParser(state)
        self._json_calls = JsonCallParser(state, self._arguments)

    # -- openers

    def parse_section(self, match: MarkerMatch) -> Steps:
        """Parse a section from its opener on."""
        state, format = self._state, self._state.call_format
        self._builder.start_buffering()
        self._buffer.consume_match(match)
        state.is_section_open = True
        if (yield from self._parse_other_format()):
            return
        # The other tags of the section's opener, as far as they are there.
        for text in format.section_openers[1:]:
            yield from state.take_marker(text)
        if not format.openers:
            yield from self.parse_row()
            return
        for index, text in enumerate(format.openers):
            # A later opener counts only if it is distinctive.
            is_candidate = index == 0 or is_tag_like(text)
            if is_candidate and (yield from state.take_marker(text)):
                yield from self._parse_after_opener(index)
                return
        # A section without any call.
        self.reject(is_truncated=self._buffer.is_exhausted)

    def parse_opened_call(self, match: MarkerMatch) -> Steps:
        """Parse a call from one of its openers on: the first, or a later one if that is missing."""
        index = match.tag.index
        self._builder.start_buffering()
        self._buffer.consume_match(match)
        is_first = index == 0 and not self._state.call_format.section_openers
        if is_first and (yield from self._parse_other_format()):
            return
        yield from self._parse_after_opener(index)

    def parse_unopened_call(self) -> Steps:
        """Parse a call that starts with its name."""
        self._builder.start_buffering()
        yield from self._parse_after_opener(0)

    def parse_bare_row(self) -> Steps:
        """Parse calls that have no opener; what does not look like a call is content."""
        self._builder.start_buffering()
        yield from self.parse_row(is_bare=True)

    def parse_addressed_call(self, format: CallFormat, name: str, header_end: str) -> Steps:
        """Parse the rest of a call whose name was in a channel header, which ends with `header_end`."""
        self._state.call_format = format
        first_part = 1
        for index, part in enumerate(format.parts):
            if header_end in part.text:
                first_part = index + 1
                break
        if not (yield from self._parse_parts(first=first_part, known={"name": name})):
            self.reject(is_truncated=self._buffer.ended)

    def _parse_other_format(self) -> Answer:
        """After a marker that several formats start with: parse another format if the text fits it better."""
        state = self._state
        if len(state.grammar.call_formats) == 1:
            return False
        text, _ = yield from self._buffer.look_past_space()
        if text not in ("[", "<") and state.call_format.continues_with(text):
            return False
        text, _ = yield from self._buffer.look_past_space(SHAPE_LOOKAHEAD)
        format = state.grammar.choose_format(state.call_format, text) if text else state.call_format
        if format is state.call_format:
            return False
        state.call_format, state.is_section_open = format, bool(format.section_closers)
        if not format.openers:
            yield from self.parse_row()
            return True
        is_tag = is_tag_like(format.openers[0])
        if is_tag:
            yield from state.take_marker(format.openers[0])
        yield from self._parse_after_opener(0)
        # Further calls in the same section: outside of it their openers are text.
        while is_tag and state.is_section_open:
            self._builder.start_buffering()
            if not (yield from state.take_marker(format.openers[0])):
                self._builder.stop_buffering()
                break
            yield from self._parse_after_opener(0)
        return True

    def _parse_after_opener(self, index: int) -> Steps:
        format = self._state.call_format
        for text in format.openers[index + 1 :]:
            yield from self._state.take_marker(text)
        call = format.calls.call
        if isinstance(call, JsonCall):
            yield from self.parse_row()
        elif isinstance(call, RawCall):
            yield from self._parse_raw(call)
        elif not (yield from self._parse_parts()):
            self.reject(is_truncated=self._buffer.ended)

    def _parse_raw(self, spec: RawCall) -> Steps:
        if spec.fenced:
            yield from self._parse_code(spec)
            return
        buffer, builder = self._buffer, self._builder
        call = self._state.start_call(spec.name)
        yield from buffer.skip_space()
        builder.add_arguments(call, f'{{"{spec.argument}": "')
        match = yield from buffer.read_until(
            self._state.call_format.end_matcher, builder.add_argument_text, "arguments"
        )
        if match is None:
            builder.end_call(call, "unterminated")
            return
        builder.add_arguments(call, '"}')
        yield from self._state.finish_call(call, None)

    def _parse_code(self, spec: RawCall) -> Steps:
        """Parse a call whose text is a block of code. Nothing is emitted before its end: there may be no fence."""
        buffer, builder = self._buffer, self._builder
        yield from buffer.skip_space()
        opener = "".join(builder.buffered or ())
        call = self._state.start_call(spec.name)
        end_matcher = self._state.call_format.end_matcher
        match, text = yield from self._state.read_text(end_matcher, "arguments")
        written = opener[len(opener.rstrip()) :] + text
        code, language = parse_code_block(written)
        call.fields = {"type": spec.name, "code": code, "lang": language}
        if written != write_code_block(code, language):
            call.fields["verbatim"] = written
        if match is None:
            builder.end_call(call, "unterminated")
            return
        arguments = {spec.argument: code}
        if language:
            arguments["lang"] = language
        builder.add_arguments(call, json.dumps(arguments, ensure_ascii=False))
        yield from self._state.finish_call(call, None)

    def reject(self, is_truncated: bool) -> None:
        """A call without a name is content, unless the reply ended before the name could come."""
        builder = self._builder
        if not is_truncated:
            builder.reject_call()
            self._state.last_call_failed = True
            return
        self._buffer.consume_rest("raw")
        builder.record_attempt("unterminated")
        builder.relabel_from(builder.call_start, "raw")
        builder.stop_buffering()

    # -- rows

    def parse_row(self, is_bare: bool = False) -> Steps:
        """Parse calls one after another, with only brackets, commas and separators between them."""
        buffer, builder, format = self._buffer, self._builder, self._state.call_format
        between, take_marker = format.calls.between, self._state.take_marker
        bracket = "[" if format.has_open_list and not is_bare else ""  # the last one of the list
        while True:
            is_first = builder.buffered is not None  # no call since the last opener
            needs_call = is_first or bracket == "["  # what follows must be part of the row
            char, space = yield from buffer.look_past_space()
            if self._starts_call(char):
                if not needs_call and (yield from self._starts_marker(char)):
                    break
                buffer.consume(space, "space")
                if not (yield from self._parse_row_call(is_bare)):
                    break
                continue
            if format.openers and not needs_call:
                break  # each call has an opener of its own
            next_bracket = _next_bracket(bracket, char, is_first)
            if next_bracket is not None:
                buffer.consume(space, "space")
                buffer.consume(1, "marker")
                bracket = next_bracket
            elif is_first or not between.core or not (yield from take_marker(between.text)):
                break
        yield from self._end_row(bracket, is_bare)

    def _end_row(self, bracket: str, is_bare: bool) -> Steps:
        """End a row where no further call follows; what is still open is no call."""
        is_truncated = self._buffer.is_exhausted
        if self._builder.buffered is None:
            yield from self._end_section(is_list_closed=bracket == "]")
        elif is_bare and not is_truncated:
            self._builder.reject_call(status=None)  # JSON or code in the content
        else:
            self.reject(is_truncated)

    def _starts_call(self, char: str) -> bool:
        if isinstance(self._state.call_format.calls.call, JsonCall):
            return char == "{"
        return char.isalpha() or char == "_"

    def _starts_marker(self, char: str) -> Answer:
        """Return whether a marker comes next that starts with `char`, as a call might."""
        candidates = self._grammar.markers_after_row(self._state.call_format, char)
        if not candidates:
            return False
        marker, _ = yield from self._buffer.find_next(candidates)
        return bool(marker)

    def _parse_row_call(self, is_bare: bool) -> Answer:
        if self._builder.buffered is None:
            self._builder.start_buffering()
        call = self._state.call_format.calls.call
        if isinstance(call, JsonCall):
            return self._json_calls.parse(call, is_bare)
        return self._parse_parts(is_bare)

    def _end_section(self, is_list_closed: bool) -> Steps:
        """Take what ends a section whose calls have no openers; the bracket of its list may be taken already."""
        format = self._state.call_format
        if format.openers:
            return
        if format.list_closer and not is_list_closed:
            yield from self._state.take_marker(format.list_closer)
        last = ""
        for text in format.section_closers:
            rest = text.strip().removeprefix("]") if is_list_closed else text
            if rest.strip() and not (yield from self._state.take_marker(rest)):
                return
            last, is_list_closed = text, False
            self._state.is_section_open = False
        yield from self._buffer.take_space(trailing_space(last))

    # -- calls of several parts

    def _parse_parts(
        self, is_bare: bool = False, first: int = 0, known: Mapping[str, str] | None = None
    ) -> Answer:
        """Parse a call whose parts are delimited by markers.

        Args:
            is_bare: The call has no opener, so its name must be that of a tool.
            first: The part to start with.
            known: Slots that were read before.

        Returns:
            False if there is no readable name.
        """
        state, builder, parts = self._state, self._builder, self._state.call_format.parts
        slots, slot_places = dict(known or {}), self._state.call_format.slot_places
        call: ParsedCall | None = None
        early_arguments = "{}"
        state.is_malformed, state.json_depth = False, 0
        # A slot may end with a later part than the next one, so parts can be skipped.
        index = first
        while index < len(parts):
            part = parts[index]
            if not part.slot:
                yield from self._take_part(part)
                index += 1
            elif part.slot != "arguments":
                start = builder.position
                next_index = yield from self._read_slot(index, slots)
                if next_index is None:
                    return call is not None and self._end_unfinished(call, start)
                index = next_index
            # Arguments: they can be emitted only if the name is known.
            elif "name" not in slots and index < slot_places.get("name", 0):
                arguments = yield from self._arguments.read_early()
                if arguments is None:
                    return False
                early_arguments = arguments
                index += 1
            else:
                id_follows = index < slot_places.get("id", 0)
                call = self._start_call(slots, is_bare, id_follows)
                if call is None:
                    return False
                if not (yield from self._arguments.parse(call)):
                    return True  # the call is over
                index += 1
        if call is None:
            call = self._start_call(slots, is_bare)
            if call is None:
                return False
            builder.add_arguments(call, early_arguments)
        yield from self._state.finish_call(call, slots.get("id"))
        return True

    def _take_part(self, part: CallPart) -> Steps:
        """Take a marker within a call; if it is missing, that is tolerated."""
        if part.text.strip() and (yield from self._state.take_marker(part.text)):
            yield from self._buffer.take_space(trailing_space(part.text))

    def _read_slot(self, index: int, slots: dict[str, str]) -> Reading[int | None]:
        """Read the name, id or index that is part `index`, and return the next part; None if it has no end."""
        state, format = self._state, self._state.call_format
        slot = format.parts[index].slot
        span = "name" if slot in ("name", REPEATED_SLOT) else "id"
        yield from self._buffer.skip_space()
        start = self._builder.position
        match, text = yield from state.read_text(format.slot_matcher(index), span, MAX_NAME_LENGTH)
        if match is None:
            return None
        text = text.strip().strip("\"'")
        if slot == REPEATED_SLOT and text not in slots.values():
            state.mark_malformed(start)
        slots.setdefault(slot, text)
        # What ended the slot says which part comes next.
        if match.tag.kind is MarkerKind.CALL_END:
            return len(format.parts)
        if match.tag.kind is MarkerKind.PART:
            self._buffer.consume_match(match)
            marker = format.parts[match.tag.index - 1]
            yield from self._buffer.take_space(trailing_space(marker.text))
        return match.tag.index

    def _end_unfinished(self, call: ParsedCall, start: int) -> bool:
        is_truncated = self._buffer.ended
        if is_truncated:
            self._buffer.consume_rest("raw")
        self._builder.relabel_from(start, "raw")
        self._builder.end_call(call, "unterminated" if is_truncated else "malformed")
        return True

    def _start_call(
        self, slots: Mapping[str, str], is_bare: bool, id_follows: bool = False
    ) -> ParsedCall | None:
        """Start a call whose slots are read; None if there is no name."""
        id = slots.get("id") or None
        name = slots.get("name")
        if name is None and id is not None:
            name = name_in_id(id)
        # Text that cannot be a name shows that this is no call.
        if not name or not _NOT_IN_NAMES.isdisjoint(name) or any(map(str.isspace, name)):
            return None
        if is_bare and not self._state.is_offered(name):
            return None
        # Starting a call resets this; a repeated slot may have set it.
        is_malformed = self._state.is_malformed
        call = self._state.start_call(name, id or self._numbered_id(slots), id_follows)
        self._state.is_malformed = is_malformed
        return call

    def _numbered_id(self, slots: Mapping[str, str]) -> str | None:
        """Return an id that consists of the name and a number: `functions.NAME:0`."""
        format = self._state.call_format
        separator = format.index_separator
        if not slots.get("index") or not separator:
            return None
        id = slots["name"] + separator + slots["index"]
        if not _NOT_IN_IDS.isdisjoint(id):
            return None
        openers = format.openers
        has_prefix = len(openers) > 1 and not is_tag_like(openers[-1])
        return openers[-1].strip() + id if has_prefix else id


def _next_bracket(bracket: str, char: str, is_first: bool) -> str | None:
    """Return the last bracket of a list of calls after a comma or bracket; None for any other character.

    A list can only be opened before the first call.
    """
    is_open = bracket == "["
    if char in (",", ";"):
        return bracket if is_open else ""
    if (char == "[" and is_first and not is_open) or (char == "]" and is_open):
        return char
    return None

"""Parse arguments that are written one by one, each between tags: `<arg=city>Oslo</arg>`.

Text where only a tag can follow is kept as a `raw` span, the call is malformed, and parsing goes
on: the arguments that can be read stay. A value whose closer is missing ends with the next
argument, or with the end of the call: with a marker that is followed by what follows it in a call.
A value that only quotes such a marker keeps it, and the call is malformed. The limit: a text
without quotes ends with the first closer in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

from turnwise.replies.parser.buffer import Answer, Reading
from turnwise.replies.parser.call_format import PairFormat, ValueKind
from turnwise.replies.parser.markers import (
    MarkerKind,
    MarkerMatch,
    MarkerMatcher,
    tag_all,
)
from turnwise.replies.parser.message_builder import ParsedCall
from turnwise.replies.parser.state import ParserState, PartParser
from turnwise.replies.parser.text_values import (
    TooDeep,
    coerce,
    coerce_python,
    may_be_json,
    parse_elements,
)
from turnwise.replies.parser.tool_schema import (
    ARRAY_ONLY,
    NO_SCHEMA,
    OBJECT_ONLY,
    STRING_ONLY,
    TypeSet,
    ValueSchema,
)
from turnwise.replies.parser.values import SYNTAXES, ValueParser, to_json, to_json_string

MAX_KEY_LENGTH = 256
# Keys of an argument that may hold all the others.
_WRAPPER_KEYS = ("arguments", "parameters", "properties", "input")
# Words by which models name the type of a value, whichever of them the template writes.
_TYPE_WORDS = (
    *("string", "integer", "number", "boolean", "array", "object", "null", "true", "false"),
    *("json", "str", "int", "float", "bool", "list", "dict"),
)
_LITERAL_STARTS = frozenset("\"'[{(")  # of values that have an end of their own
_VALUE_ENDS = frozenset({MarkerKind.VALUE_CLOSE, MarkerKind.KEY_OPEN, MarkerKind.CALL_END})
_NESTED_VALUE_ENDS = _VALUE_ENDS | {MarkerKind.SAME_ELEMENT}
_LATE_VALUE_ENDS = frozenset({MarkerKind.NEXT_KEY, MarkerKind.CLOSING_MARKER})
_KEY = re.compile(r"[\w.$\-]+")
_EMPTY_VALUES = {ARRAY_ONLY: "[]", OBJECT_ONLY: "{}"}  # what an empty text is, if values are nested


class ArgumentKey(NamedTuple):
    """A key, and the kind of its value."""

    name: str
    kind: ValueKind


class PairParser(PartParser):
    """Parses the arguments of one call, between tags."""

    def __init__(self, state: ParserState, format: PairFormat) -> None:
        super().__init__(state)
        self._format = format
        self._pairs = format.pairs
        # The keys that were read, and those that are declared.
        self._seen_keys: set[str] = set()
        self._declared_keys: Set[str] = frozenset()

    def parse(self, call: ParsedCall) -> Answer:
        """Parse all arguments of `call`; False if they cannot be parsed to their end, and the call is over."""
        state, format, seen = self._state, self._format, self._seen_keys
        while True:
            match = yield from self._skip_to(format.key_matcher, format.separator)
            if match is None:
                state.end_truncated_call(call)
                return False
            if match.tag.kind is not MarkerKind.KEY_OPEN:
                break  # the end of the call, which is taken elsewhere
            self._buffer.consume_match(match)
            yield from self._buffer.take_space(format.key_space)
            key = yield from self._read_key()
            if key is None and not self._buffer.ended:
                yield from state.keep_as_written(call)
                return False
            is_first = not seen
            if key is not None:
                seen.add(key.name)
            if key is None or not (yield from self._parse_pair(call, key, is_first)):
                state.end_truncated_call(call)
                return False
        self._builder.add_arguments(call, "}" if seen else "{}")
        return True

    def _skip_to(self, matcher: MarkerMatcher, separator: str = "") -> Reading[MarkerMatch | None]:
        """Skip whitespace or a separator up to a marker. Any other text is `raw`, and the call is malformed."""
        start = self._builder.position
        match, text = yield from self._state.read_text(matcher, "raw")
        if text.strip() in ("", separator):
            self._builder.relabel_from(start, "space")
        else:
            self._state.is_malformed = True
        return match

    # -- keys

    def _read_key(self) -> Reading[ArgumentKey | None]:
        """Read a key and the opener of its value; None if the opener is missing."""
        format = self._format
        match, name = yield from self._state.read_text(
            format.opener_matcher, "arguments", MAX_KEY_LENGTH
        )
        if match is None:
            return None
        self._buffer.consume_match(match)
        is_short = match.tag.index > 0
        for tag in () if is_short else format.opener_tags[1:]:
            if not (yield from self._state.take_marker(tag)) and self._buffer.ended:
                return None
        kind: ValueKind | None = ValueKind.UNKNOWN
        if len(format.kinds) > 1 and not is_short:
            kind = yield from self._read_kind()
        if kind is None:
            return None
        yield from self._buffer.take_space(format.opener_space)
        key = self._state.call_format.calls.unescape(name.strip().strip("\"'"))
        return ArgumentKey(key, kind)

    def _read_kind(self) -> Reading[ValueKind | None]:
        format, start = self._format, self._builder.position
        match, word = yield from self._state.read_text(
            format.opener_end_matcher, "marker", MAX_KEY_LENGTH
        )
        if match is None:
            return None
        kind = format.kinds.get(format.opener_start + word + format.opener_end)
        if kind is None and word.strip() not in _TYPE_WORDS:
            self._state.mark_malformed(start)
        self._buffer.consume_match(match)
        return kind or ValueKind.OTHER

    # -- values

    def _parse_pair(self, call: ParsedCall, key: ArgumentKey, is_first: bool) -> Answer:
        """Parse the value of an argument; False if the reply ends within it."""
        pairs, builder = self._pairs, self._builder
        parameters = self._state.tools.get(call.name, NO_SCHEMA)
        schema = parameters.member(key.name)
        self._declared_keys = parameters.names
        separator = "{" if is_first else ", "
        lead = f"{separator}{to_json_string(key.name)}: "
        closer = self._format.value_matcher(key.name)
        # Unless it may hold the others, the value is emitted while it comes in, if it is a string.
        may_hold_others = is_first and self._may_be_wrapper(key.name, parameters)
        if not may_hold_others:
            builder.add_arguments(call, lead)
            lead = ""
        if self._format.has_text_wrapper and (yield from self._take_text_wrapper()):
            builder.add_arguments(call, lead)
            return (yield from self._stream_wrapped_text(call, closer))
        may_stream = pairs.strings == "raw" and not may_hold_others
        if may_stream and (yield from self._is_string(key.kind, schema.types)):
            return (yield from self._stream_string(call, closer))
        text = yield from self._read_value(closer)
        if text is None:
            return False
        others = _unwrap_arguments(text, parameters) if may_hold_others else None
        if others is None:
            others = lead + self._to_json(text, key.kind, schema)
        builder.add_arguments(call, others)
        return True

    def _may_be_wrapper(self, key: str, parameters: ValueSchema) -> bool:
        """Return whether a first argument named like `arguments` may hold the declared ones."""
        if key not in _WRAPPER_KEYS or "unwrap" not in self._grammar.tolerances:
            return False
        is_declared = bool(parameters.names or parameters.other.types)
        return is_declared and key not in parameters.names

    def _read_value(self, closer: MarkerMatcher) -> Reading[str | None]:
        """Read the text of a value and its closer; None if the reply ends before it."""
        pairs, texts = self._pairs, list[str]()
        if pairs.strings != "raw":
            yield from self._read_literal(pairs.strings, texts)
        if self._format.has_nested_values:
            match = yield from self._read_nested(closer, texts)
        else:
            match = yield from self._read_text(closer, texts.append)
        if match is None:
            return None
        self._take_closer(match)
        return self._state.unmask("".join(texts))

    def _read_literal(self, syntax: str, texts: list[str]) -> Reading[None]:
        """Read a value with quotes or brackets of its own: a closer within them is part of it."""
        buffer = self._buffer
        if (yield from buffer.peek()) not in _LITERAL_STARTS:
            return
        has_masks = self._grammar.detokenizer.has_masks
        parser = ValueParser(syntax if syntax in SYNTAXES else "json", has_masks=has_masks)
        while not buffer.ended:
            end = parser.feed(buffer.text, buffer.position)
            texts.append(buffer.consume(end - buffer.position, "arguments"))
            if parser.done or parser.error:
                return
            yield None

    def _read_nested(self, closer: MarkerMatcher, texts: list[str]) -> Reading[MarkerMatch | None]:
        """Read a value that may hold elements of its own name: each of them has a closer, so they are counted."""
        depth = 0
        holds_elements: bool | None = None
        element_start = self._grammar.detokenizer.mask_specials(self._pairs.key.core)
        while True:
            match = yield from self._read_text(closer, texts.append, _NESTED_VALUE_ENDS)
            if match is None or match.tag.kind in _LATE_VALUE_ENDS:
                return match
            is_opener = match.tag.kind is MarkerKind.SAME_ELEMENT
            if not is_opener and not depth:
                return match
            # Elements are counted only if the value starts with one: else tags are part of a text.
            if holds_elements is None:
                text = "".join(texts).lstrip()
                holds_elements = not text or text.startswith(element_start)
            if holds_elements:
                depth += 1 if is_opener else -1
            texts.append(self._buffer.consume_match(match, "arguments"))

    def _read_text(
        self,
        closer: MarkerMatcher,
        sink: Callable[[str], object],
        ends: Set[MarkerKind] = _VALUE_ENDS,
    ) -> Reading[MarkerMatch | None]:
        """Read the text of a value. If it may only quote markers of the call, the call is malformed."""
        while True:
            match = yield from self._buffer.read_until(closer, sink, "arguments")
            if match is None or match.tag.kind in ends:
                return match
            if match.tag.kind in _LATE_VALUE_ENDS:
                if (yield from self._confirm_value_end(match)):
                    self._state.is_unclosed = True
                    return match
                self._state.is_malformed = True
            sink(self._buffer.consume_match(match, "arguments"))

    def _confirm_value_end(self, match: MarkerMatch) -> Answer:
        """Return whether a marker of the call ends the value in which it is, by lookahead."""
        buffer, size = self._buffer, match.end - match.start
        while True:
            start = buffer.position + size
            text = self._state.unmask(buffer.text[start : start + MAX_KEY_LENGTH])
            is_last = buffer.ended or len(text) == MAX_KEY_LENGTH
            if match.tag.kind is MarkerKind.NEXT_KEY:
                is_end = self._is_key(text, is_last)
            else:
                marker = self._format.closing_markers[match.tag.index]
                is_end = _is_followed(text.lstrip(), marker.followers, is_last)
            if is_end is not None:
                return is_end
            yield None

    def _is_key(self, text: str, is_last: bool) -> bool | None:
        """Return whether a text starts with the key of an argument that may follow; None: more text is needed."""
        name, opener, _ = text.partition(self._format.opener_tags[0])
        if not opener:
            return False if is_last else None
        key = name.strip().strip("\"'")
        if key in self._seen_keys or not _KEY.fullmatch(key):
            return False
        return not self._declared_keys or key in self._declared_keys

    def _take_closer(self, match: MarkerMatch) -> None:
        """Take the closer of a value. Where values have none, what ended it is not theirs."""
        if match.tag.kind is MarkerKind.VALUE_CLOSE:
            self._buffer.consume_match(match)

    # -- strings, which are emitted while they come in

    def _is_string(self, kind: ValueKind, types: TypeSet) -> Answer:
        if kind is ValueKind.STRING:
            return not types or "string" in types
        if kind is ValueKind.OTHER or types:
            return kind is ValueKind.UNKNOWN and types == STRING_ONLY
        # Nothing is declared: the first character decides whether it can be anything else.
        char, _ = yield from self._buffer.look_past_space()
        if not char or may_be_json(char):
            return False
        pairs = self._pairs
        if pairs.scalars == "python" and char in "TFN":
            return False
        element_start = self._grammar.detokenizer.mask_specials(pairs.key.core)
        return not (self._format.has_nested_values and element_start.startswith(char))

    def _stream_string(self, call: ParsedCall, closer: MarkerMatcher) -> Answer:
        self._builder.add_arguments(call, '"')
        match = yield from self._read_text(closer, self._builder.add_argument_text)
        if match is None:
            return False
        self._take_closer(match)
        self._builder.add_arguments(call, '"')
        return True

    def _take_text_wrapper(self) -> Answer:
        """Take the opener of a wrapper around text with markup, such as CDATA, if it comes next."""
        mask = self._grammar.detokenizer.mask_specials
        return self._buffer.take_exact(mask(self._pairs.wrap.open.core))

    def _stream_wrapped_text(self, call: ParsedCall, closer: MarkerMatcher) -> Answer:
        """Emit text within a wrapper: closers of the value mean nothing there."""
        wrapper_close = tag_all([self._pairs.wrap.close.core], MarkerKind.VALUE_CLOSE)
        wrapper_closer = self._grammar.variants.matcher(wrapper_close)
        if not (yield from self._stream_string(call, wrapper_closer)):
            return False
        match = yield from self._skip_to(closer)
        if match is None:
            return False
        self._take_closer(match)
        return True

    # -- coercion

    def _to_json(self, text: str, kind: ValueKind, schema: ValueSchema) -> str:
        pairs, types = self._pairs, schema.types
        if self._format.has_nested_values:
            nested = self._nested_to_json(text, schema)
            if nested is not None:
                return nested
        if pairs.strings != "raw" or (kind is ValueKind.OTHER and not types):
            return to_json(text) or to_json_string(text)
        if not types and "python" in (pairs.scalars, pairs.values):
            return coerce_python(text)
        return coerce(text, types)

    def _nested_to_json(self, text: str, schema: ValueSchema) -> str | None:
        """Return a value that holds elements as JSON; None if it holds none."""
        if not text.strip():
            return _EMPTY_VALUES.get(schema.types)
        if not text.lstrip().startswith(self._pairs.key.core):
            return None
        try:
            nested = parse_elements(text, self._pairs, schema)
        except TooDeep:
            self._state.is_malformed = True
            return None
        if nested is None:
            return None
        if not nested.is_exact:
            self._state.is_malformed = True
        return json.dumps(nested.value, ensure_ascii=False)


def _is_followed(text: str, followers: Iterable[str], is_last: bool) -> bool | None:
    """Return whether a text is empty or starts with one of `followers`; None: more text is needed."""
    if any(text.startswith(follower) for follower in followers):
        return True
    may_follow = any(follower.startswith(text) for follower in followers)
    if is_last or not may_follow:
        return not text
    return None


def _unwrap_arguments(text: str, parameters: ValueSchema) -> str | None:
    """Return the members in the text of one argument, if all of them are parameters of the tool."""
    value = to_json(text)
    if value is None:
        return None
    try:
        members = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict) or not members:
        return None
    return value[:-1] if all(key in parameters.names for key in members) else None

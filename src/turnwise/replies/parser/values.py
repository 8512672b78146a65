"""Parse argument values in any notation, incrementally, and write them as JSON.

JSON, Python literals and formats with quote marks of their own and bare keys
(`{city:<|"|>Oslo<|"|>}`) differ in little: what is around a string, whether a key needs quotes,
the words for true and null, the sign between key and value. `SYNTAXES` holds these differences.
`ValueParser` is one state machine for all of them:

    state     expects                              goes to
    VALUE     a value                              STRING, WORD, KEY or VALUE (of a container), AFTER
    STRING    the rest of a string                 AFTER, or COLON after a key
    WORD      the rest of a bare word or number    AFTER, or COLON after a key
    KEY       a key, or the end of an object       STRING, WORD, AFTER
    COLON     the sign between key and value       VALUE
    AFTER     a separator, or a closing bracket    KEY, VALUE

What is JSON already is copied unchanged, whitespace included. A string is written while it comes
in; a word or a number when it is complete, since more digits may follow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from json.encoder import encode_basestring
from typing import NamedTuple

from turnwise.replies.parser.tool_schema import NO_SCHEMA, ValueSchema

MAX_DEPTH = 64  # containers within containers
MAX_NUMBER_LENGTH = 400  # a longer number is text
_QUOTE_LOOKAHEAD = 200  # characters after a quote that tell whether it ends its string

JSON_WORDS = {
    "true": "true",
    "True": "true",
    "false": "false",
    "False": "false",
    "null": "null",
    "None": "null",
}
JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_CLOSING_BRACKETS = {"{": "}", "[": "]", "(": ")"}
_JSON_SPACE_RUN = re.compile(r"[ \t\n\r]+")
_NON_JSON_SPACE = re.compile(r"[^\S \t\n\r]")  # whitespace that JSON does not know
_NEVER_PLAIN = frozenset(map(chr, (*range(0x20), *range(0xD800, 0xE000))))  # controls, surrogates
# Elements of a list that JSON writes without quotes, each with a comma after it. Longer numbers are parsed one by one.
_PLAIN_ITEMS = re.compile(
    r"(?:[ \t\n\r]*(?:-?(?:0|[1-9]\d{0,99})(?:\.\d{1,99})?(?:[eE][-+]?\d{1,99})?|true|false|null)[ \t\n\r]*,)+",
    re.ASCII,
)
_HEX = "[0-9a-fA-F]"
# A backslash, and a code point, a sign that JSON escapes as well, or any other sign.
_ESCAPE = re.compile(
    rf"""\\(?:[ux]((?<=u){_HEX}{{4}}|(?<=x){_HEX}{{2}})|U((?:000|001(?=0)){_HEX}{{5}})|([bfnrt"\\/])|(.))""",
    re.DOTALL,
)
_CUT_ESCAPE = re.compile(rf"\\(?:u{_HEX}{{0,3}}|x{_HEX}?|U{_HEX}{{0,7}})?\Z")


to_json_string = encode_basestring  # without escapes for letters beyond ASCII


def escape(text: str) -> str:
    """Return `text` as the inside of a JSON string."""
    return to_json_string(text)[1:-1]


class ValueSyntax(NamedTuple):
    """What one notation allows."""

    word: re.Pattern[str] = re.compile(r"[\w.+\-]+")  # a bare word as a value
    key: re.Pattern[str] = re.compile(r"[\w.$\-]+")  # a bare word as a key
    has_bare_strings: bool = False  # a bare word that is no other value is a string
    has_sets: bool = False  # `{1, 2}` is a list


SYNTAXES: Mapping[str, ValueSyntax] = {
    "json": ValueSyntax(),
    "python": ValueSyntax(has_sets=True),
    "quoted": ValueSyntax(
        word=re.compile(r"[^,\]})]+"), key=re.compile(r"[^\s:=,\]})]+"), has_bare_strings=True
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class QuoteStyle:
    """How one kind of string ends, and which characters can be copied as they are."""

    close: str
    plain_run: re.Pattern[str]
    has_escapes: bool
    not_plain: frozenset[str]  # the characters that `plain_run` leaves out


@lru_cache
def _quote_style(close: str, has_escapes: bool) -> QuoteStyle:
    special = re.escape('"\\' + close[0])
    plain_run = re.compile(rf"[^{special}\x00-\x1f\ud800-\udfff]+")
    not_plain = frozenset('"\\' + close[0]) | _NEVER_PLAIN
    return QuoteStyle(close, plain_run, has_escapes, not_plain)


_QUOTES = {'"': _quote_style('"', True), "'": _quote_style("'", True)}


class ValueState(IntEnum):
    """What a `ValueParser` expects next."""

    VALUE = 0
    STRING = 1
    WORD = 2
    KEY = 3
    COLON = 4
    AFTER = 5


# Bound once: the lookup of an enum's member is slow, and these are used for every token of a value.
_VALUE, _STRING, _WORD, _KEY, _COLON, _AFTER = ValueState
NEED_MORE = -1  # the answer of a step that cannot go on without more text


class ValueParser:
    """Parses one value, or the members of one object up to `closer`, and writes it as JSON.

    Args:
        syntax: A name in `SYNTAXES`.
        marks: Opening and closing quote marks of strings, besides quotes.
        closer: The bracket that ends the members, where their opening bracket was read already.
        schema: What is declared of the members: a bare word is a string where only that fits.
        follows: The characters that may follow the value; then a quote that cannot end its string is part of it.
            None: every quote ends its string.
        separator: What is written between two members, besides a comma.
        has_masks: Control tokens are masked with lone surrogates, and cannot be part of a string.
    """

    __slots__ = (
        "_brace_index", "_closers", "_follows", "_has_masks", "_is_key", "_is_object", "_key",
        "_marks", "_pending_comma", "_quote", "_schemas", "_separators", "_syntax", "_word",
        "done", "error", "is_last", "out", "state",
    )  # fmt: skip

    def __init__(
        self,
        syntax: str = "json",
        *,
        marks: tuple[str, str] | None = None,
        closer: str | None = None,
        schema: ValueSchema | None = None,
        follows: frozenset[str] | None = None,
        separator: str = ",",
        has_masks: bool = False,
    ) -> None:
        self._syntax = SYNTAXES[syntax]
        self._marks = {marks[0]: _quote_style(marks[1], False)} if marks else {}
        self._follows = follows
        self._separators = (",", separator or ",")
        self._has_masks = has_masks
        # The result.
        self.state = _KEY if closer else _VALUE
        self.out: list[str] = ["{"] if closer else []
        self.done = False
        self.error: str | None = None
        self.is_last = False  # set by the caller: no more text will come
        # The containers that are open.
        self._closers = [closer] if closer else []
        self._is_object = [True] if closer else []
        self._schemas = [schema] if schema is not None else None  # of the containers, if declared
        # Python's `{` opens an object or a set: its index in `out` until it is known which.
        self._brace_index: int | None = None
        self._pending_comma = ""  # a comma and whitespace, written only if a member follows
        # The string, word or key that is being read.
        self._quote = _QUOTES['"']
        self._word: list[str] = []
        self._is_key = False
        self._key: list[str] | None = None  # the last key, if types are declared

    def feed(self, text: str, position: int) -> int:
        """Parse on from `position` and return up to where.

        What is left needs more text, unless the value is `done` or there is an `error`.
        """
        size = len(text)
        while position < size and not self.done and self.error is None:
            reached = _STEPS[self.state](self, text, position)
            if reached == NEED_MORE:
                break
            position = reached
        return position

    def take(self) -> str:
        """Return the JSON that was written since the last time, as far as it is certain."""
        if self._brace_index is None:
            out, self.out = self.out, []
            return out[0] if len(out) == 1 else "".join(out)
        certain = self._brace_index
        text = "".join(self.out[:certain])
        del self.out[:certain]
        self._brace_index = 0
        return text

    def is_plain_text(self, text: str) -> bool:
        """Return whether the next text is a part of the open string that is written as it is, at once."""
        if self.state != _STRING or self._brace_index is not None:
            return False
        is_declared_key = self._is_key and self._key is not None
        return not is_declared_key and self._quote.not_plain.isdisjoint(text)

    def _fail(self, reason: str) -> int:
        self._brace_index = None
        if self._pending_comma:
            self._write_comma()
        self.error = reason
        return NEED_MORE

    def _write_string(self, text: str) -> None:
        self.out.append(text)
        if self._is_key and self._key is not None:
            self._key.append(text)

    def _write_comma(self) -> None:
        self.out.append(self._pending_comma)
        self._pending_comma = ""

    # -- steps: each parses from `position` and returns up to where, or NEED_MORE

    def _parse_value(self, text: str, position: int) -> int:
        if self._is_object and not self._is_object[-1] and not self._schemas:
            match = _PLAIN_ITEMS.match(text, position)
            if match:
                return self._copy_items(match)
        char = text[position]
        if char.isspace():
            return self._copy_space(text, position)
        if char in _CLOSING_BRACKETS:
            return self._open_container(char, position)
        if self._closers and char == self._closers[-1]:
            if self._is_object[-1]:
                return self._fail("a key without a value")
            return self._close_container(position)
        return self._start_scalar(text, position, is_key=False)

    def _parse_key(self, text: str, position: int) -> int:
        char = text[position]
        if char.isspace():
            return self._copy_space(text, position)
        if char == self._closers[-1]:
            return self._close_container(position)
        self._key = None if self._schemas is None else []
        return self._start_scalar(text, position, is_key=True)

    def _parse_colon(self, text: str, position: int) -> int:
        char = text[position]
        if char.isspace():
            return self._copy_space(text, position)
        if self._brace_index is not None and char in ",}":
            # No colon: what was read as the first key is the first element of a Python set.
            self.out[self._brace_index] = "["
            self._brace_index, self._is_object[-1] = None, False
            self.state = _AFTER
            return position
        if char not in ":=":
            return self._fail("a key without a value")
        self._brace_index = None
        self.out.append(":" if char == ":" else ": ")
        self.state = _VALUE
        return position + 1

    def _parse_after(self, text: str, position: int) -> int:
        char = text[position]
        if char.isspace():
            return self._copy_space(text, position)
        if char in self._separators:
            self._pending_comma = ","
            self.state = _KEY if self._is_object[-1] else _VALUE
            return position + 1
        if char == self._closers[-1]:
            return self._close_container(position)
        return self._fail("expected a comma or the end")

    def _copy_items(self, match: re.Match[str]) -> int:
        """Copy elements of a list that are numbers and words of JSON, up to the comma after the last of them."""
        if self._pending_comma:
            self._write_comma()
        self.out.append(match.group()[:-1])
        self._pending_comma = ","
        return match.end()

    def _copy_space(self, text: str, position: int) -> int:
        match = _JSON_SPACE_RUN.match(text, position)
        # Other whitespace becomes a blank, character by character, so that it does not matter where a text is cut.
        space = match.group() if match else " "
        end = position + len(space)
        if self._pending_comma:
            self._pending_comma += space
        else:
            self.out.append(space)
        return end

    def _open_container(self, char: str, position: int) -> int:
        if len(self._closers) >= MAX_DEPTH:
            return self._fail("too deep")
        if self._pending_comma:
            self._write_comma()
        is_brace = char == "{"
        if self._schemas is not None:
            self._schemas.append(_find_schema(self))
        self._closers.append(_CLOSING_BRACKETS[char])
        self._is_object.append(is_brace)
        if is_brace and self._syntax.has_sets and self._brace_index is None:
            self._brace_index = len(self.out)
        self.out.append("{" if is_brace else "[")
        self.state = _KEY if is_brace else _VALUE
        return position + 1

    def _close_container(self, position: int) -> int:
        self._brace_index = None
        self.out.append(self._pending_comma[1:])  # JSON has no trailing comma
        self._pending_comma = ""
        self._closers.pop()
        if self._schemas is not None:
            self._schemas.pop()
        self.out.append("}" if self._is_object.pop() else "]")
        self._end_value()
        return position + 1

    def _end_value(self) -> None:
        self.state = _AFTER
        self.done = not self._closers

    def _start_scalar(self, text: str, position: int, is_key: bool) -> int:
        for mark, style in self._marks.items():
            if text.startswith(mark, position):
                return self._start_string(style, position + len(mark), is_key)
            if mark.startswith(text[position : position + len(mark)]):
                return NEED_MORE
        if text[position] in _QUOTES:
            return self._start_string(_QUOTES[text[position]], position + 1, is_key)
        pattern = self._syntax.key if is_key else self._syntax.word
        if not pattern.match(text, position):
            return self._fail("expected a value")
        if self._pending_comma:
            self._write_comma()
        self._is_key = is_key
        self.state = _WORD
        return position

    def _start_string(self, style: QuoteStyle, position: int, is_key: bool) -> int:
        if self._pending_comma:
            self._write_comma()
        self._quote, self._is_key = style, is_key
        self.state = _STRING
        self.out.append('"')
        return position

    def _parse_string(self, text: str, position: int) -> int:
        match = self._quote.plain_run.match(text, position)
        if match:
            self._write_string(match.group())
            return match.end()
        char, close = text[position], self._quote.close
        if text.startswith(close, position):
            return self._parse_quote(text, position)
        if close.startswith(text[position : position + len(close)]):
            return NEED_MORE  # the beginning of a mark
        if char == "\\" and self._quote.has_escapes:
            escaped, end = _read_escape(text, position)
            if escaped:
                self._write_string(escaped)
            return end
        if self._has_masks and "\ud800" <= char <= "\udfff":
            return self._fail("a control token within a string")
        self._write_string(escape(char))
        return position + 1

    def _parse_quote(self, text: str, position: int) -> int:
        """A closing quote ends its string, unless what follows shows that it is part of it."""
        if self._follows is not None and not self._is_key:
            is_inner = self._is_inner_quote(text, position + 1)
            if is_inner is None:
                return NEED_MORE
            if is_inner:
                self._write_string(escape(text[position]))
                return position + 1
        self.out.append('"')
        if self._is_key:
            self._is_key, self.state = False, _COLON
        else:
            self._end_value()
        return position + len(self._quote.close)

    def _is_inner_quote(self, text: str, position: int) -> bool | None:
        """Return whether the text from `position` on fits no end of the string; None: more text is needed.

        A string is followed by closers of the open containers, then by a comma, or after the last closer by what may
        follow the whole value.
        """
        window = text[position : position + _QUOTE_LOOKAHEAD]
        is_complete = self.is_last or len(window) == _QUOTE_LOOKAHEAD
        rest = window.lstrip()
        depth = len(self._closers)
        while depth and rest[:1] == self._closers[depth - 1]:
            rest = rest[1:].lstrip()
            depth -= 1
        if not rest:
            return False if is_complete else None
        if depth == 0:
            return bool(self._follows) and rest[0] not in (self._follows or ())
        if rest[0] != ",":
            return True
        if depth == len(self._closers) == 1:
            return self._lacks_key(rest[1:], is_complete)
        return False

    def _lacks_key(self, text: str, is_complete: bool) -> bool | None:
        """Return whether no key follows a comma; None: more text is needed."""
        body = text.lstrip()
        key = self._syntax.key.match(body)
        rest = body[key.end() :].lstrip() if key else body
        if not rest:
            return False if is_complete else None
        if key:
            return rest[0] not in "=:"
        return rest[0] != self._closers[0]

    def _parse_word(self, text: str, position: int) -> int:
        pattern = self._syntax.key if self._is_key else self._syntax.word
        match = pattern.match(text, position)
        if match:
            self._word.append(match.group())
            return match.end()
        word = "".join(self._word)
        self._word.clear()
        if self._is_key:
            self.out.append('"')
            self._write_string(escape(word) + '"')
            self._is_key, self.state = False, _COLON
            return position
        core = word.rstrip()
        value = _word_to_json(core, _find_schema(self), self._syntax)
        if value is None:
            self.out.append(word)
            return self._fail("a word that is no value")
        self.out.append(value)
        if len(core) < len(word):
            self.out.append(_NON_JSON_SPACE.sub(" ", word[len(core) :]))
        self._end_value()
        return position


# In the order of `ValueState`.
_STEPS = (
    ValueParser._parse_value,
    ValueParser._parse_string,
    ValueParser._parse_word,
    ValueParser._parse_key,
    ValueParser._parse_colon,
    ValueParser._parse_after,
)


def _read_escape(text: str, position: int) -> tuple[str, int]:
    """Return what a backslash at `position` means within a JSON string, and where that ends; or "" and NEED_MORE."""
    match = _ESCAPE.match(text, position)
    if match is None or _CUT_ESCAPE.match(text, position):
        return "", NEED_MORE
    code, wide_code, sign, other = match.groups()
    if code:
        written = f"\\u{code:0>4}"
    elif wide_code:  # beyond the basic plane it takes two escapes
        written = json.dumps(chr(int(wide_code, 16)))[1:-1]
    elif sign or other == "'":
        written = f"\\{sign}" if sign else other
    else:
        written = "\\\\" + escape(other)  # no escape at all: the backslash means itself
    return written, match.end()


def scalar_to_json(word: str) -> str | None:
    """Return a word or number as JSON, however it was spelled; None if it is neither."""
    if word in JSON_WORDS:
        return JSON_WORDS[word]
    if len(word) > MAX_NUMBER_LENGTH:
        return None
    if JSON_NUMBER.fullmatch(word):
        return word
    if word[:1] not in "+-.0123456789":
        return None
    # Not as JSON spells it: +5, .5, 5., 07, 1_000.
    try:
        number = float(word)
        if word.lstrip("+-").replace("_", "").isdigit():
            return str(int(word))
    except ValueError:
        return None
    is_finite = number - number == 0
    return repr(number) if is_finite else None


def _find_schema(parser: ValueParser) -> ValueSchema:
    if not parser._schemas:
        return NO_SCHEMA
    if not parser._is_object[-1]:
        return parser._schemas[-1].element
    return parser._schemas[-1].member("".join(parser._key or ()).rstrip('"'))


def _word_to_json(word: str, schema: ValueSchema, syntax: ValueSyntax) -> str | None:
    """Return a bare word as JSON; None if it is no value."""
    value = scalar_to_json(word)
    if "string" in schema.types and _type_of_scalar(value) not in schema.types:
        return to_json_string(word)
    if value is None and syntax.has_bare_strings:
        return to_json_string(word)
    return value


def _type_of_scalar(value: str | None) -> str:
    """Return the JSON type of a word or number; "" if it is neither."""
    if value is None or value == "null":
        return value or ""
    if value in JSON_WORDS:
        return "boolean"
    return "integer" if value.lstrip("-").isdigit() else "number"


def to_json(text: str, syntax: str = "json") -> str | None:
    """Return a whole text as JSON if it is a value, however it was spelled."""
    parser = ValueParser(syntax)
    end = parser.feed(text, 0)
    if parser.state == _WORD and end == len(text):
        parser.feed(" ,", 0)  # something that ends the word
    if not parser.done or text[end:].strip():
        return None
    return parser.take().strip()

"""Decide by bounded lookahead whether an ambiguous opener starts a call.

An opener without letters (`((`, `<`, `>>>`) may occur in any text. A call is likely if the next
opener follows and has letters; or if a name follows and then the marker that must follow a name,
and the name is one of the tools or JSON arguments begin. Of a call that is a JSON object the first
key must be one that calls have. All of this is within a few characters, and nothing is emitted
before it is decided.

Within reasoning, a model may mention the opener of a call. It starts one if markup, a bracket or a
name and one of these follow it, and not prose or the end of the reasoning.

Where calls are JSON without any opener, a brace after content starts a call if the object starts
with a name, followed by arguments.

The limit: `<f><x>1</x></f>` is a call only where the tools are given. Without them it cannot be
told from markup.

All functions return None while more text is needed for a decision.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from turnwise.replies.grammar_parts import JsonCall
from turnwise.replies.parser.call_format import CallFormat
from turnwise.replies.parser.compiled_grammar import ARGUMENT_KEYS, NAME_KEYS

LOOKAHEAD = 320  # characters that are looked at
_NAME = re.compile(r"[\w.\-]+")
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
    name = _NAME.match(body)
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
        return key in tool_names
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
    # Tagged arguments look like markup, so the name must be that of a tool.
    is_tool = bool(marker) and match.group() in tool_names
    if is_tool or format.pairs is not None:
        return is_tool
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
        position = match.end()
        # The strings so far must be the key of the name, a name, and the key of the arguments.
        for string, names in zip(strings, allowed, strict=False):
            if names and string not in names:
                return False
    return True

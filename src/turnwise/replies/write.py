"""Write a message as the reply that the model would have generated: the inverse of the parser.

    write(grammar, message, prompt)  ==  the text after the prompt

The prompt decides how the reply begins. Usually the prompt contains the beginning of what the template writes for this
message (its *prefill*, such as `<think>\\n`), and the rest is written. Otherwise the reply continues from the prefill
as well as it can: reasoning that the prompt opened is closed, and reasoning that it closed is left out. Text that the
prompt already contains is not written again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from turnwise.errors import MessageError, short_repr
from turnwise.messages import (
    CallFields,
    JsonMapping,
    JsonObject,
    message_reasoning,
    message_text,
    message_tool_calls,
)
from turnwise.replies.call_ids import name_in_id
from turnwise.replies.grammar_parts import (
    KEY,
    Calls,
    GrammarParts,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    Region,
    Spacing,
    default_json_parts,
)
from turnwise.replies.parser.calls import write_code_block
from turnwise.replies.parser.parser import Parser
from turnwise.replies.parser.tool_schema import JSON_TYPES

__all__ = ["write", "write_quoted"]

MARKUP = "<>&"  # a text value with one of these is written with `Pairs.wrap`, if there is one


class MessageParts(NamedTuple):
    """The parts of a message that a reply contains."""

    reasoning: str
    content: str
    calls: list[CallFields]


def write(
    grammar: GrammarParts, message: JsonMapping, prompt: Any = None, *, stop: bool = True
) -> str:
    """Write a message as a reply.

    Args:
        grammar: how replies look.
        message: an assistant message in OpenAI's shape.
        prompt: the prompt that was sent: a rendering, a text, or ids; by default the grammar's opening is assumed.
        stop: end the reply with a stop, if the grammar has one.

    Returns:
        The text after the prompt.

    Raises:
        MessageError: the message is not well formed, or has values that JSON cannot express.

    Example:
        >>> import turnwise
        >>> write(turnwise.load("chatml").grammar, {"role": "assistant", "content": "Aye."})
        'Aye.<|im_end|>'
    """
    if not isinstance(message, Mapping):
        raise MessageError(f"a message must be a mapping, not {short_repr(message)}")
    # It has parsed the beginning of the reply that the prompt contains.
    prompt_parser = Parser(grammar, prompt)
    parts = _read_parts(message)
    try:
        text = _write_reply(grammar, parts)
        if text.startswith(prompt_parser.prefill_text):
            text = text.removeprefix(prompt_parser.prefill_text)
        else:
            text = _continue_reply(grammar, parts, prompt_parser)
    except (TypeError, ValueError, RecursionError) as error:  # raised by the JSON encoder
        raise MessageError(f"the message cannot be written as JSON: {error}") from None
    if stop and grammar.stops and not text.endswith(grammar.stops):
        text += grammar.stops[0]
    return text


def _read_parts(message: JsonMapping) -> MessageParts:
    calls = message_tool_calls(message)
    for index, call in enumerate(calls):
        if not isinstance(call.arguments, Mapping):
            raise MessageError(
                f"the arguments must be a JSON object, not {short_repr(call.arguments)}",
                path=f"tool_calls[{index}].arguments",
            )
    return MessageParts(message_reasoning(message), message_text(message), calls)


def _write_reply(grammar: GrammarParts, parts: MessageParts) -> str:
    reasoning = ""
    if grammar.reasoning is not None:
        reasoning = grammar.empty
        if parts.reasoning:
            reasoning = _enclose(grammar.reasoning, parts.reasoning)
    return _join_regions(grammar, reasoning, parts, _enclose(grammar.content, parts.content))


def _join_regions(grammar: GrammarParts, reasoning: str, parts: MessageParts, content: str) -> str:
    """Join reasoning, content and calls in the order in which the template writes them."""
    calls = ""
    if parts.calls and grammar.calls is not None:
        calls = _write_all_calls(grammar, grammar.calls, parts.calls)
    if parts.calls and not parts.content:
        content = ""
    regions = [reasoning, content, calls]
    if calls and grammar.calls is not None:
        if grammar.calls.content_after:
            regions = [reasoning, calls, content]
        elif content:
            regions = [reasoning, content + grammar.calls.lead.text, calls]
    return _start_text(grammar).join(filter(None, regions))


def _start_text(grammar: GrammarParts) -> str:
    return grammar.starts[0] if grammar.starts else ""


def _enclose(region: Region, text: str) -> str:
    return region.open.text + text + region.close.text


# -- after a prompt that the template would not have written for this message


def _continue_reply(grammar: GrammarParts, parts: MessageParts, prompt_parser: Parser) -> str:
    region = grammar.content
    if prompt_parser.content and parts.content.startswith(prompt_parser.content):
        content = parts.content.removeprefix(prompt_parser.content) + region.close.text
    else:
        opener = _rest_of_marker(region.open, prompt_parser)
        content = opener + parts.content + region.close.text
    reasoning = _continue_reasoning(grammar, parts.reasoning, prompt_parser)
    return _join_regions(grammar, reasoning, parts, content)


def _continue_reasoning(grammar: GrammarParts, reasoning: str, prompt_parser: Parser) -> str:
    """Write the reasoning from where the prompt ends; none if it is closed there, or was not opened."""
    region = grammar.reasoning
    if region is None:
        return ""
    if not reasoning and grammar.empty.startswith(prompt_parser.prefill_text):
        return grammar.empty.removeprefix(prompt_parser.prefill_text)
    if _ends_with(prompt_parser, region.close):
        return _rest_of_marker(region.close, prompt_parser)
    opener = ""
    if _ends_with(prompt_parser, region.open):
        opener = _rest_of_marker(region.open, prompt_parser)
    elif not prompt_parser.in_reasoning:
        return ""
    return opener + reasoning.removeprefix(prompt_parser.reasoning) + region.close.text


def _ends_with(prompt_parser: Parser, marker: Marker) -> bool:
    return bool(marker.core) and prompt_parser.prefill_text.rstrip().endswith(marker.core)


def _rest_of_marker(marker: Marker, prompt_parser: Parser) -> str:
    """Return a marker; if the prompt ends with it, only the white space that is missing there."""
    if not _ends_with(prompt_parser, marker):
        return marker.text
    space = prompt_parser.prefill_text.rpartition(marker.core)[2]
    trailing = marker.trailing_space
    return trailing.removeprefix(space) if trailing.startswith(space) else ""


# -- calls


def _write_all_calls(grammar: GrammarParts, calls: Calls, given: list[CallFields]) -> str:
    """Write the calls in their order; code for an interpreter has a format of its own."""
    texts = []
    more = [more for more in grammar.more if isinstance(more.call, RawCall) and more.call.fenced]
    for is_code, run in groupby(given, key=lambda call: call.is_code):
        format = more[0] if is_code and more else calls
        texts.append(_write_calls(grammar, format, list(run)))
    return "".join(texts)


def _write_calls(grammar: GrammarParts, calls: Calls, given: list[CallFields]) -> str:
    texts = [
        _enclose(calls.each, _write_call(calls, call, index)) for index, call in enumerate(given)
    ]
    if isinstance(calls.call, JsonCall) and calls.call.listed:
        begin, separator, end = calls.call.around
        return _enclose(calls.section, begin + separator.join(texts) + end)
    separator = calls.between.text + _start_text(grammar)
    return _enclose(calls.section, separator.join(texts))


def _write_call(calls: Calls, given: CallFields, index: int) -> str:
    call = calls.call
    if isinstance(call, RawCall):
        text = str(given.arguments.get(call.argument, ""))
        if not call.fenced:
            return text
        # The line break before the fence is the end of the opening marker.
        return write_code_block(text, given.arguments.get("lang")).removeprefix("\n")
    parts = call.parts
    members = _sort_keys(given.arguments) if calls.sorts_keys else given.arguments
    if isinstance(call, JsonCall):
        arguments = _write_json(members, call.spacing)
        arguments = to_json(arguments) if call.as_text else arguments
        parts = call.parts or default_json_parts(call)
    elif call.pairs is not None:
        pairs = call.pairs
        written = [_write_pair(pairs, calls.escape(key), members[key]) for key in members]
        arguments = pairs.between.text.join(written)
    else:
        arguments = _write_json(members, call.spacing)
    slots = {
        "name": calls.escape(given.name),
        "id": _write_id(parts, given, index + calls.first),
        "index": str(index + calls.first),
        "arguments": arguments,
    }
    return "".join(slots[part] if isinstance(part, str) else part.text for part in parts)


def _sort_keys(value: Any) -> Any:
    """Return a value whose objects have their members in the order of their names, as the filter `dictsort` has it."""
    if isinstance(value, Mapping):
        return {key: _sort_keys(value[key]) for key in sorted(value, key=str.lower)}
    return list(map(_sort_keys, value)) if isinstance(value, list) else value


def _write_id(parts: Sequence[Marker | str], given: CallFields, index: int) -> str:
    """Return the id of a call. Where it is all that names the tool, one that does not name it is not kept."""
    id = given.id or ""
    if "id" in parts and "name" not in parts and name_in_id(id) != given.name:
        return f"functions.{given.name}:{index}"
    return id


def _write_json(value: Any, spacing: Spacing) -> str:
    item = spacing.item if spacing.indent is None else spacing.item.rstrip()
    separators = (item, spacing.key)
    text = json.dumps(value, ensure_ascii=False, indent=spacing.indent, separators=separators)
    return text.replace("\n", "\n" + " " * spacing.depth)


# -- arguments one by one


def _write_pair(pairs: Pairs, key: str, value: Any) -> str:
    region = dict(pairs.typed).get(JSON_TYPES.get(type(value), "null"), pairs.other)
    if isinstance(value, str):
        region = pairs.string
    opener = region.open.text.replace(KEY, key)
    closer = region.close.text.replace(KEY, key)
    return pairs.key.text + key + opener + _write_value(pairs, value) + closer


def _write_value(pairs: Pairs, value: Any) -> str:
    if isinstance(value, str):
        return _write_string(pairs, value)
    if isinstance(value, (dict, list)):
        return _write_container(pairs, value)
    if pairs.values == "python":
        return repr(value)
    return LITERALS[pairs.scalars](value)


def _write_string(pairs: Pairs, value: str) -> str:
    if pairs.strings != "raw":
        return LITERALS[pairs.strings](value)
    if pairs.wrap.open and any(sign in value for sign in MARKUP):
        return _enclose(pairs.wrap, value)
    return value


def _write_container(pairs: Pairs, value: JsonObject | list[Any]) -> str:
    if pairs.values == "quoted":
        return write_quoted(pairs, value)
    if pairs.values != "tags":
        return LITERALS[pairs.values](value)
    if isinstance(value, dict):
        return "".join(_write_pair(pairs, str(key), value[key]) for key in value)
    return "".join(_write_pair(pairs, "item", item) for item in value)


def write_quoted(pairs: Pairs, value: Any) -> str:
    """Write a value like JSON, with the template's delimiters around strings and bare keys."""
    colon, comma = pairs.other.open.text, pairs.between.text
    if isinstance(value, str):
        return pairs.string.open.text.removeprefix(colon) + value + pairs.string.close.text
    if isinstance(value, dict):
        members = [f"{key}{colon}{write_quoted(pairs, value[key])}" for key in value]
        return "{" + comma.join(members) + "}"
    if isinstance(value, list):
        return "[" + comma.join(write_quoted(pairs, item) for item in value) + "]"
    return json.dumps(value)


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# How values are written in the languages that `Pairs` names.
LITERALS: Mapping[str, Callable[[Any], str]] = {"json": to_json, "python": repr}

"""A message becomes the reply that the model would have written: the inverse of the parser.

    write(grammar, message, prompt)  ==  what stands behind the prompt

The prompt decides how the reply begins. Mostly it holds the beginning of what the template writes for the message, and
the rest is written. Else the reply makes the best of it: where the prompt opened the reasoning, it is closed; where it
closed it, there is none. What stands in the prompt is not written again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from turnwise.errors import MessageError, short_repr
from turnwise.messages import message_reasoning
from turnwise.replies.events import REASONING
from turnwise.replies.grammar import (
    Calls,
    Grammar,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    Region,
    Spacing,
)
from turnwise.replies.parser.compiled_grammar import keyed
from turnwise.replies.parser.parser import Parser


def write(
    grammar: Grammar, message: Mapping[str, Any], prompt: Any = None, *, stop: bool = True
) -> str:
    """The reply, up to and with its stop."""
    if not isinstance(message, Mapping):
        raise MessageError(f"a message is a mapping, not {short_repr(message)}")
    parser = Parser(grammar, prompt)
    try:
        text = joined(grammar, [whole_thought(grammar, message), *answer(grammar, message, around)])
        if not text.startswith(parser.tail):
            text = resumed(grammar, message, parser)
    except (TypeError, ValueError, RecursionError) as error:  # what JSON cannot say
        raise MessageError(f"the message cannot be written: {error}") from None
    text = text.removeprefix(parser.tail)
    if stop and grammar.stops and not text.endswith(grammar.stops):
        text += grammar.stops[0]
    return text


def joined(grammar: Grammar, regions: list[str]) -> str:
    return (grammar.starts[0] if grammar.starts else "").join(filter(None, regions))


def whole_thought(grammar: Grammar, message: Mapping[str, Any]) -> str:
    """The reasoning of a reply of which nothing is there yet."""
    text = thought_of(message)
    if grammar.reasoning is None:
        return ""
    return around(grammar.reasoning, text) if text else grammar.empty


def thought_of(message: Mapping[str, Any]) -> str:
    return message_reasoning(message)


# -- behind a prompt that the template would not have written for this message


def resumed(grammar: Grammar, message: Mapping[str, Any], parser: Parser) -> str:
    """The prompt's part of the reply, and what can be said of the message behind it."""

    def opened(region: Region, content: str) -> str:
        """The content, from where the prompt left it."""
        begun = parser.stream.content.getvalue()
        if begun and content.startswith(begun):
            return content[len(begun) :] + region.close.text
        return behind(region.open, parser.tail) + content + region.close.text

    return parser.tail + joined(
        grammar, [resumed_thought(grammar, message, parser), *answer(grammar, message, opened)]
    )


def resumed_thought(grammar: Grammar, message: Mapping[str, Any], parser: Parser) -> str:
    """The reasoning, from where the prompt left it: none where it was closed, or where something else was begun."""
    text, region, tail = thought_of(message), grammar.reasoning, parser.tail
    if region is None:
        return ""
    if not text and grammar.empty.startswith(tail):
        return grammar.empty[len(tail) :]
    if ends(tail, region.close):
        return behind(region.close, tail)
    if not ends(tail, region.open) and parser.reading.state != REASONING:
        return ""
    before = behind(region.open, tail) if ends(tail, region.open) else ""
    return before + text.removeprefix(parser.stream.thought.getvalue()) + region.close.text


def ends(tail: str, marker: Marker) -> bool:
    return bool(marker.core) and tail.rstrip().endswith(marker.core)


def behind(marker: Marker, tail: str) -> str:
    """A marker; if the prompt ends with it, the white space of it that is still missing there."""
    if not ends(tail, marker):
        return marker.text
    space = tail[tail.rindex(marker.core) + len(marker.core) :]
    return marker.trail[len(space) :] if marker.trail.startswith(space) else ""


# -- content and calls


def answer(
    grammar: Grammar, message: Mapping[str, Any], written: Callable[[Region, str], str]
) -> tuple[str, ...]:
    """Content and calls, in the order in which the template writes them."""
    content, calls = content_of(message), calls_of(message)
    said = written(grammar.content, content) if content or not calls else ""
    if not calls or grammar.calls is None:
        return (said,)
    called = written_calls(grammar, grammar.calls, calls)
    if grammar.calls.content_after:
        return called, said
    return (said + grammar.calls.lead.text, called) if said else ("", called)


def content_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if not isinstance(content, list):
        return text_at(message, "content")
    for index, part in enumerate(content):
        if not isinstance(part, (Mapping, str)):
            raise MessageError(
                f"a part is a mapping, not {short_repr(part)}", path=f"content[{index}]"
            )
    return "".join(
        part if isinstance(part, str) else text_at(part, "text", f"content[{index}].")
        for index, part in enumerate(content)
    )


def text_at(message: Mapping[str, Any], key: str, where: str = "") -> str:
    value = message.get(key)
    if value is not None and not isinstance(value, str):
        raise MessageError(f"text is due here, not {short_repr(value)}", path=where + key)
    return value or ""


def calls_of(message: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], str, Any]]:
    """The calls of a message: each with its name and its arguments."""
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, (list, tuple)):
        raise MessageError(f"calls are a list, not {short_repr(calls)}", path="tool_calls")
    return [
        (call, *named_call(call, f"tool_calls[{index}]")) for index, call in enumerate(calls or ())
    ]


def named_call(call: Any, path: str) -> tuple[str, Mapping[str, Any]]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise MessageError(f"a call is a mapping, not {short_repr(call)}", path=path)
    name, arguments = function.get("name"), function.get("arguments") or {}
    if not isinstance(name, str) or not name:
        raise MessageError(f"a call needs a name, and this is none: {short_repr(name)}", path=path)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise MessageError(
                f"the arguments are no JSON: {error}", path=f"{path}.arguments"
            ) from None
    if not isinstance(arguments, Mapping):
        raise MessageError(
            f"arguments are an object, not {short_repr(arguments)}", path=f"{path}.arguments"
        )
    return name, arguments


def around(region: Region, text: str) -> str:
    return region.open.text + text + region.close.text


def written_calls(
    grammar: Grammar, calls: Calls, named: list[tuple[Mapping[str, Any], str, Any]]
) -> str:
    texts: list[str] = []
    for index, (call, name, arguments) in enumerate(named):
        slots = {
            "name": name,
            "id": text_at(call, "id", f"tool_calls[{index}]."),
            "index": str(index + calls.first),
        }
        texts.append(around(calls.each, written_call(calls, slots, arguments)))
    if isinstance(calls.call, JsonCall) and calls.call.listed:
        opened, between, closed = calls.call.around
        return around(calls.section, opened + between.join(texts) + closed)
    between = calls.between.text + (grammar.starts[0] if grammar.starts else "")
    return around(calls.section, between.join(texts))


def written_call(calls: Calls, slots: Mapping[str, str], arguments: Mapping[str, Any]) -> str:
    call = calls.call
    if isinstance(call, RawCall):
        return str(arguments.get(call.argument, ""))
    if isinstance(call, JsonCall):
        text = spaced(arguments, call.spacing)
        text = json.dumps(text, ensure_ascii=False) if call.as_text else text
        parts = call.parts or plain_parts(call)
    else:
        text = (
            pairs_of(call.pairs, arguments)
            if call.pairs is not None
            else spaced(arguments, call.spacing)
        )
        parts = call.parts
    filled = {**slots, "arguments": text}
    return "".join(filled[part] if isinstance(part, str) else part.text for part in parts)


def plain_parts(call: JsonCall) -> tuple[Any, ...]:
    """An object as JSON is mostly written, for a grammar that does not say."""
    if call.name is None:
        return (Marker('{"'), "name", Marker('": '), "arguments", Marker("}"))
    parts: list[Any] = [
        Marker(f'{{"{call.name}": "'),
        "name",
        Marker(f'", "{call.arguments}": '),
        "arguments",
    ]
    if call.id is not None:
        parts += [Marker(f', "{call.id}": "'), "id", Marker('"')]
    return (*parts, Marker("}"))


def spaced(value: Any, spacing: Spacing) -> str:
    """JSON with the white space of a template."""
    item = spacing.item.rstrip() if spacing.indent is not None else spacing.item
    text = json.dumps(
        value, ensure_ascii=False, indent=spacing.indent, separators=(item, spacing.key)
    )
    return text.replace("\n", "\n" + " " * spacing.depth) if spacing.depth else text


# -- pairs


def pairs_of(pairs: Pairs, arguments: Mapping[str, Any]) -> str:
    return pairs.between.text.join(one_pair(pairs, key, value) for key, value in arguments.items())


def one_pair(pairs: Pairs, key: str, value: Any) -> str:
    region = (
        pairs.string
        if isinstance(value, str)
        else dict(pairs.typed).get(kind_of(value), pairs.other)
    )
    opened, closed = keyed(region.open.text, key), keyed(region.close.text, key)
    return pairs.key.text + key + opened + written_value(pairs, value) + closed


def kind_of(value: Any) -> str:
    kinds = (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (list, "array"),
        (dict, "object"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")


def written_value(pairs: Pairs, value: Any) -> str:
    if isinstance(value, str):
        if pairs.strings != "raw":
            return LITERALS[pairs.strings](value)
        return (
            around(pairs.wrap, value)
            if pairs.wrap.open and any(sign in value for sign in "<>&")
            else value
        )
    if isinstance(value, (dict, list)):
        if pairs.values == "tags":
            rows = value.items() if isinstance(value, dict) else (("item", one) for one in value)
            return "".join(one_pair(pairs, str(key), one) for key, one in rows)
        if pairs.values == "quoted":
            return quoted(pairs, value)
        return LITERALS[pairs.values](value)
    return LITERALS[pairs.scalars](value) if pairs.values != "python" else repr(value)


def quoted(pairs: Pairs, value: Any) -> str:
    """A value with marks around its strings and none around its keys."""
    mark = pairs.string.open.text.removeprefix(pairs.other.open.text)
    if isinstance(value, str):
        return mark + value + pairs.string.close.text
    if isinstance(value, dict):
        rows = (f"{key}{pairs.other.open.text}{quoted(pairs, one)}" for key, one in value.items())
        return "{" + pairs.between.text.join(rows) + "}"
    if isinstance(value, list):
        return "[" + pairs.between.text.join(quoted(pairs, one) for one in value) + "]"
    return json.dumps(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


LITERALS = {"json": _json, "python": repr}

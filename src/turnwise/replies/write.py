"""A message becomes the reply that the model would have written: the inverse of the parser.

    write(grammar, message, prompt)  ==  what stands behind the prompt

The prompt decides how the reply begins: where it opened the reasoning, the reply goes on with the reasoning; where it
closed it, there is none. What stands in the prompt is not written again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnwise.replies.events import REASONING
from turnwise.replies.grammar import Calls, Grammar, JsonCall, Marker, Pairs, RawCall, Region, Spacing
from turnwise.replies.parse import Parser
from turnwise.replies.plan import keyed

THOUGHTS = ("reasoning_content", "reasoning", "thinking")


def write(grammar: Grammar, message: Mapping[str, Any], prompt: Any = None, *, stop: bool = True) -> str:
    """The reply, up to and with its stop."""
    parser = Parser(grammar, prompt)
    regions = [text for text in (thought(grammar, message, parser), *answer(grammar, message)) if text]
    text = (grammar.starts[0] if grammar.starts else "").join(regions)
    if stop and grammar.stops and not text.endswith(grammar.stops):
        text += grammar.stops[0]
    return text


def thought(grammar: Grammar, message: Mapping[str, Any], parser: Parser) -> str:
    """The reasoning, from where the prompt left it."""
    text = next((message[key] for key in THOUGHTS if message.get(key)), "")
    if grammar.reasoning is None:
        return ""
    if parser.reading.state == REASONING:
        return text.removeprefix(parser.stream.thought.getvalue()) + grammar.reasoning.close.text
    if parser.tail.strip():
        return ""
    return around(grammar.reasoning, text) if text else grammar.empty


def answer(grammar: Grammar, message: Mapping[str, Any]) -> tuple[str, ...]:
    """Content and calls, in the order in which the template writes them."""
    content, calls = content_of(message), message.get("tool_calls") or []
    said = around(grammar.content, content) if content or not calls else ""
    if not calls or grammar.calls is None:
        return (said,)
    called = written_calls(grammar, grammar.calls, calls)
    if grammar.calls.content_after:
        return called, said
    return (said + grammar.calls.lead.text, called) if said else ("", called)


def content_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
    return content or ""


def around(region: Region, text: str) -> str:
    return region.open.text + text + region.close.text


def written_calls(grammar: Grammar, calls: Calls, messages: list[Mapping[str, Any]]) -> str:
    texts: list[str] = []
    for index, message in enumerate(messages):
        function = message.get("function", message)
        arguments = function.get("arguments") or {}
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        slots = {"name": function["name"], "id": message.get("id") or "", "index": str(index + calls.first)}
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
        text = pairs_of(call.pairs, arguments) if call.pairs is not None else spaced(arguments, call.spacing)
        parts = call.parts
    filled = {**slots, "arguments": text}
    return "".join(filled[part] if isinstance(part, str) else part.text for part in parts)


def plain_parts(call: JsonCall) -> tuple[Any, ...]:
    """An object as JSON is mostly written, for a grammar that does not say."""
    if call.name is None:
        return (Marker('{"'), "name", Marker('": '), "arguments", Marker("}"))
    parts: list[Any] = [Marker(f'{{"{call.name}": "'), "name", Marker(f'", "{call.arguments}": '), "arguments"]
    if call.id is not None:
        parts += [Marker(f', "{call.id}": "'), "id", Marker('"')]
    return (*parts, Marker("}"))


def spaced(value: Any, spacing: Spacing) -> str:
    """JSON with the white space of a template."""
    item = spacing.item.rstrip() if spacing.indent is not None else spacing.item
    text = json.dumps(value, ensure_ascii=False, indent=spacing.indent, separators=(item, spacing.key))
    return text.replace("\n", "\n" + " " * spacing.depth) if spacing.depth else text


# -- pairs


def pairs_of(pairs: Pairs, arguments: Mapping[str, Any]) -> str:
    return pairs.between.text.join(one_pair(pairs, key, value) for key, value in arguments.items())


def one_pair(pairs: Pairs, key: str, value: Any) -> str:
    region = pairs.string if isinstance(value, str) else dict(pairs.typed).get(kind_of(value), pairs.other)
    opened, closed = keyed(region.open.text, key), keyed(region.close.text, key)
    return pairs.key.text + key + opened + written_value(pairs, value) + closed


def kind_of(value: Any) -> str:
    kinds = ((bool, "boolean"), (int, "integer"), (float, "number"), (list, "array"), (dict, "object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "null")


def written_value(pairs: Pairs, value: Any) -> str:
    if isinstance(value, str):
        if pairs.strings != "raw":
            return LITERALS[pairs.strings](value)
        return around(pairs.wrap, value) if pairs.wrap.open and any(sign in value for sign in "<>&") else value
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

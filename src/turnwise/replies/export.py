r"""A grammar in the words of transformers: its `response_template`, version 1.

That format has fields. A field is a key of the message, stands between two patterns, and its text is read by a named
reader (`text`, `json`, `xml-inline`). One field may have no opening pattern: what no other field takes is its text. So

    reasoning   a field between its markers
    content     the field without an opening; or, if the template marks content, one between its markers
    calls       one field: markers, name and id in its opening pattern, the arguments as its text

A marker's white space is optional, letter by letter, as it is for our parser. Behind a stop everything is dropped.

What the format has no words for is an error that says why: calls that begin without a marker, a name that is a key,
Python literals, two ways of writing a call, values in values. Texts among arguments written one by one stay texts:
transformers gives them their types when it is told the tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NoReturn

from turnwise.errors import TurnwiseError
from turnwise.replies.grammar import (
    KEY,
    WRITERS,
    Calls,
    Grammar,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    Region,
    TaggedCall,
)
from turnwise.replies.parser.prefill import header

NAME = r"[\w.\-:/]+?"
SLOTS = {"name": rf"(?P<name>{NAME})", "id": rf"(?P<id>{NAME})", "index": r"\d+"}
Field = dict[str, Any]


def response_template(grammar: Grammar, partly: bool = False) -> dict[str, Any]:
    """The grammar as transformers' `response_template`; an error if it cannot be said."""
    fields: dict[str, Field] = {}
    if grammar.reasoning is not None:
        fields["reasoning_content"] = thought(grammar, grammar.reasoning)
    fields["content"] = content(grammar)
    if grammar.more and not partly:
        refuse(
            "calls are written in more than one way, and a field has one",
            "partly=True says the first way only.",
        )
    if grammar.calls is not None:
        fields["tool_calls"] = called(grammar, grammar.calls)
    return {"version": 1, "defaults": {"role": "assistant"}, **anchor(grammar), "fields": fields}


def refuse(reason: str, hint: str = "Template.parse reads such replies.") -> NoReturn:
    raise TurnwiseError(f"this grammar cannot be said as a response_template: {reason}", hint=hint)


WRITERS["response_template"] = response_template


# -- patterns


def spaces(text: str) -> str:
    """White space of which any letter may be missing."""
    return "".join(f"{re.escape(letter)}?" for letter in text)


def pattern(marker: Marker) -> str:
    return spaces(marker.lead) + re.escape(marker.core) + spaces(marker.trail)


def maybe(marker: Marker) -> str:
    """A marker that may be missing."""
    if not marker.core:
        return spaces(marker.text)
    return f"(?:{pattern(marker)})?"


def either(options: Iterable[str]) -> str:
    return f"(?:{'|'.join(options)})"


def ended(grammar: Grammar) -> str:
    """A stop, and all that stands behind it; some stops are also the beginning of a call."""
    calling = [re.escape(text) for text in openers(grammar) if text.startswith(grammar.stops)]
    unless = f"(?!{either(calling)})" if calling else ""
    return f"{unless}{either(map(re.escape, grammar.stops))}.*"


def openers(grammar: Grammar) -> list[str]:
    """The texts with which calls begin."""
    calls = grammar.calls
    cores = [] if calls is None else [calls.section.open.core, calls.each.open.core]
    return [core for core in dict.fromkeys(cores) if core]


def closing(grammar: Grammar, marker: Marker, *others: str) -> Field:
    """What ends a region: its marker, or the sight of another text, of a stop if nothing else; else the reply's end."""
    sights = [
        re.escape(text) for text in (*others, *grammar.starts, *grammar.stops) if text.strip()
    ]
    options = ([pattern(marker)] if marker.core else []) + (
        [f"(?={either(sights)})"] if sights else []
    )
    return {"close_pattern": either(options)} if options else {}


def started(grammar: Grammar) -> str:
    """The beginning of another message, which may stand before a region."""
    return f"{either(map(re.escape, grammar.starts))}?" if grammar.starts else ""


# -- fields


def anchor(grammar: Grammar) -> Field:
    """Where in a prompt the reply begins."""
    head = header(grammar)
    if head.strip():
        return {"start_anchor": head}
    return {
        "start_anchor_pattern": f"(?={re.escape(grammar.opening)}\\Z)" if grammar.opening else r"\Z"
    }


def thought(grammar: Grammar, region: Region) -> Field:
    if not region.open.core:
        refuse("reasoning begins without a marker")
    if not region.close.core:
        refuse("reasoning ends without a marker")
    more = grammar.opening.partition(region.open.core)[
        2
    ]  # a prompt may go on with more white space than the marker has
    extra = spaces(more[len(region.open.trail) : len(more) - len(more.lstrip())])
    opened = started(grammar) + pattern(region.open) + extra
    exact = {"content": "text", "content_args": {"strip": False}}
    return {
        "open_pattern": opened,
        **closing(grammar, region.close),
        **exact,
        "repeats": True,
        "join": "",
    }


def content(grammar: Grammar) -> Field:
    region = grammar.content
    joined, exact = (
        {"content": "text", "repeats": True, "join": ""},
        {"content_args": {"strip": False}},
    )
    if region.open.core:
        opened = started(grammar) + pattern(region.open)
        return {
            "open_pattern": opened,
            **closing(grammar, region.close, *openers(grammar)),
            **exact,
            **joined,
        }
    if region.close.core and region.close.core not in grammar.stops:
        refuse("content ends with a marker and begins without one")
    # white space that is no marker's can only be taken off with all white space at the edges
    strip = bool(region.open.text or region.close.text)
    # a closer where nothing is open is no text: a prompt may have closed the reasoning
    ends = [pattern(grammar.reasoning.close)] if grammar.reasoning is not None else []
    ends += [ended(grammar)] if grammar.stops else []
    closed = {"close_pattern": either(ends)} if ends else {}
    return {**closed, "content_args": {"strip": strip}, **joined}


def called(grammar: Grammar, calls: Calls) -> Field:
    call = calls.call
    if isinstance(call, RawCall):
        refuse("a call is a bare text, whose tool and argument are named nowhere")
    if isinstance(call, JsonCall):
        return listed(grammar, calls, call) if call.listed else json_call(grammar, calls, call)
    return tagged(grammar, calls, call)


def opened(grammar: Grammar, calls: Calls, each: str) -> str:
    """What opens a call, and what may stand before it."""
    if not calls.each.open.core:
        refuse("a call begins without a marker")
    section = calls.section.open
    before = rf"(?:{pattern(section)}\s*)?" if section.core else spaces(section.text)
    return started(grammar) + maybe(calls.lead) + before + each


def closed(grammar: Grammar, calls: Calls, each: Marker) -> Field:
    """What ends a call, and what may stand behind it."""
    if not each.core:
        return closing(grammar, each, *openers(grammar))
    return {"close_pattern": pattern(each) + maybe(calls.between) + maybe(calls.section.close)}


def function(name: str, arguments: str, id: str | None) -> Field:
    found: Field = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return found if id is None else {"id": id, **found}


def json_call(grammar: Grammar, calls: Calls, call: JsonCall) -> Field:
    return {
        "open_pattern": opened(grammar, calls, pattern(calls.each.open)),
        **closed(grammar, calls, calls.each.close),
        "content": "json",
        "repeats": True,
        "transform": keys(call, "content."),
    }


def listed(grammar: Grammar, calls: Calls, call: JsonCall) -> Field:
    section = calls.section
    if not section.open.core:
        refuse("a list of calls begins without a marker")
    opens = section.open
    if not call.around[0]:  # the list's bracket ends the marker; here it belongs to the JSON
        opens = Marker(opens.text.rstrip().removesuffix("["), opens.origin)
    return {
        "open_pattern": started(grammar) + maybe(calls.lead) + pattern(opens),
        **closing(grammar, section.close),
        "content": "json",
        "transform": keys(call, ""),
        "transform_each": True,
    }


def keys(call: JsonCall, path: str) -> Field:
    """Where in the object name, arguments and id stand."""
    if call.name is None:
        refuse("the name of a call is the key of its arguments")
    inner = f"{path}{call.inside}." if call.inside else path
    id = f"{{{path}{call.id}}}" if call.id else None
    return function(f"{{{inner}{call.name}}}", f"{{{inner}{call.arguments}}}", id)


# -- calls between markers


def tagged(grammar: Grammar, calls: Calls, call: TaggedCall) -> Field:
    if call.parts[-1:] != ("arguments",):
        refuse("something is written behind the arguments of a call")
    if "name" not in call.parts:
        refuse("the name of a call is part of its id")
    before = call.parts[:-1]
    ends, reader, ahead = calls.each.close, "json", ""
    args: Field = {}
    if call.pairs is not None and call.pairs.values == "quoted":
        before, ends, args = braced(before, ends, call.pairs)
        ahead = r"(?=\{)"  # where the name ends
    elif call.pairs is not None:
        reader, args = "xml-inline", one_by_one(call.pairs)
    each = pattern(calls.each.open) + row(before) + ahead
    id = "{id}" if "id" in before else None
    return {
        "open_pattern": opened(grammar, calls, each),
        **closed(grammar, calls, ends),
        "content": reader,
        **({"content_args": args} if args else {}),
        "repeats": True,
        "transform": function("{name}", "{content}", id),
    }


def row(parts: Iterable[Marker | str]) -> str:
    """Markers and slots; a slot that comes again is an echo of the first."""
    seen: set[str] = set()
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(f"(?P={part})" if part in seen else SLOTS[part])
            seen.add(part)
        else:
            texts.append(rf"\s*{re.escape(part.core)}\s*" if part.core else re.escape(part.text))
    return "".join(texts)


def braced(
    before: tuple[Marker | str, ...], ends: Marker, pairs: Pairs
) -> tuple[tuple[Marker | str, ...], Marker, Field]:
    """Arguments that are JSON but for bare keys and marks of their own around texts; braces belong to the value."""
    last = before[-1]
    plain = pairs.other.open.text == ":" and pairs.between.text == "," and not pairs.key
    if not plain or isinstance(last, str) or last.text[-1:] != "{" or ends.text[:1] != "}":
        refuse("arguments are neither JSON nor written between markers")
    marks = [pairs.string.open.text.removeprefix(":"), pairs.string.close.text]
    args = {"unquoted_keys": True, "string_delims": [marks]}
    return (*before[:-1], Marker(last.text[:-1])), Marker(ends.text[1:]), args


def one_by_one(pairs: Pairs) -> Field:
    """Each argument between markers; the kinds of values may have different ones."""
    if pairs.values == "tags":
        refuse("values are written as tags within tags")
    if "python" in (pairs.values, pairs.strings):
        refuse("arguments are Python literals")
    if not pairs.key.core:
        refuse("the name of an argument begins without a marker")
    regions = dict.fromkeys((pairs.string, pairs.other, *(region for _, region in pairs.typed)))
    if any(not region.close.core or not region.open.core for region in regions):
        refuse("the value of an argument stands between no markers")
    patterns = list(dict.fromkeys(one_pair(pairs, region) for region in regions))
    reader = (
        {"value_parser": {"name": "json", "args": {"allow_non_json": True}}}
        if pairs.strings == "json"
        else {}
    )
    return {"tag_pattern": patterns[0] if len(patterns) == 1 else either(patterns), **reader}


def one_pair(pairs: Pairs, region: Region) -> str:
    value = r"(?P<value>.*?)"
    if pairs.wrap.open:
        value = either([pattern(pairs.wrap.open) + value + pattern(pairs.wrap.close), value])
    key = r"(?P<key>[^<>\"'=\s]+?)"
    return pattern(pairs.key) + key + keyed(region.open) + value + keyed(region.close)


def keyed(marker: Marker) -> str:
    """A marker that may repeat the key."""
    core = "(?P=key)".join(map(re.escape, marker.core.split(KEY)))
    return spaces(marker.lead) + core + spaces(marker.trail)

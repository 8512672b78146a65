r"""A grammar as a `response_template` of transformers, version 1.

That format has *fields*. A field is a key of the message. Its text is found between an opening and a closing pattern
(regular expressions), and converted by a named parser (`text`, `json`, `xml-inline`). One field may have no opening
pattern: it receives the text that no other field matched. So a grammar becomes

    reasoning_content   a field between the markers of the reasoning
    content             the field without an opening pattern; between markers if the template marks content
    tool_calls          one field: markers, name and id are in its opening pattern, its text is the arguments

Every white space character of a marker is optional, as it is for our parser. Text after a stop is dropped.

Whatever the format cannot express is an error with the reason: calls that begin without a marker, a name that is a key,
Python literals, two ways of writing a call, nested argument values. Arguments written one by one stay strings:
transformers converts them when it is given the tools.

Engines that serve with the format accept less of it (vLLM 0.32, SGLang 0.5.23), hence profiles: in "serving", the field
of the reasoning is `thinking`, no field is joined from several regions, and the delimiters of the reasoning are plain
texts: from these an engine finds the tokens at which reasoning ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

from turnwise.errors import TurnwiseError
from turnwise.replies.grammar_parts import (
    KEY,
    Calls,
    GrammarParts,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    Region,
    TaggedCall,
)
from turnwise.replies.parser.prefill import assistant_header
from turnwise.schema import check_name

__all__ = ["to_response_template"]

Json = dict[str, Any]

NAME = r"[\w.\-:/]+?"
SLOT_PATTERNS = {"name": rf"(?P<name>{NAME})", "id": rf"(?P<id>{NAME})", "index": r"\d+"}
VERBATIM = {"content_args": {"strip": False}}  # the text of a field, white space included
MAX_SPELLINGS = 16  # of a delimiter, with and without its white space; SGLang accepts no more


class ResponseProfile(NamedTuple):
    """What the readers of a `response_template` accept."""

    reasoning: str  # the name of the field of the reasoning
    text: Json  # how a field of text is read
    has_plain_delimiters: bool


ProfileName = Literal["transformers", "serving"]
PROFILES: Mapping[ProfileName, ResponseProfile] = {
    # A field that comes several times is one text.
    "transformers": ResponseProfile(
        "reasoning_content", {"content": "text", "repeats": True, "join": ""}, False
    ),
    "serving": ResponseProfile("thinking", {"content": "text"}, True),
}


def to_response_template(
    grammar: GrammarParts, partly: bool = False, profile: ProfileName = "transformers"
) -> Json:
    """Return the grammar as a `response_template`; see `Grammar.to_response_template`."""
    check_name(profile, PROFILES, "unknown profile", "Profiles", TurnwiseError)
    rules = PROFILES[profile]
    fields: dict[str, Json] = {}
    if grammar.reasoning is not None:
        fields[rules.reasoning] = _reasoning_field(grammar, grammar.reasoning, rules)
    fields["content"] = _content_field(grammar, rules)
    if grammar.more and not partly:
        _refuse(
            "calls are written in more than one way, and a field has one",
            "partly=True exports the first way only.",
        )
    if grammar.calls is not None:
        fields["tool_calls"] = _calls_field(grammar, grammar.calls)
    anchor = _start_anchor(grammar)
    return {"version": 1, "defaults": {"role": "assistant"}, **anchor, "fields": fields}


def _refuse(reason: str, hint: str = "Template.parse reads such replies.") -> NoReturn:
    raise TurnwiseError(f"no response_template can express this grammar: {reason}", hint=hint)


# -- patterns


def _optional_spaces(text: str) -> str:
    """Match white space of which any character may be missing."""
    return "".join(f"{re.escape(character)}?" for character in text)


def _marker_pattern(marker: Marker) -> str:
    return _with_spaces(marker, re.escape(marker.core))


def _with_spaces(marker: Marker, core: str) -> str:
    """Put the optional white space of a marker around the pattern of its core."""
    return _optional_spaces(marker.leading_space) + core + _optional_spaces(marker.trailing_space)


def _optional_marker(marker: Marker) -> str:
    if not marker.core:
        return _optional_spaces(marker.text)
    return f"(?:{_marker_pattern(marker)})?"


def _any_of(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(patterns)})"


def _any_text(texts: Iterable[str]) -> str:
    return _any_of(map(re.escape, texts))


def _start_pattern(grammar: GrammarParts) -> str:
    """Match the optional start of another message, which may come before a region."""
    return f"{_any_text(grammar.starts)}?" if grammar.starts else ""


def _stop_pattern(grammar: GrammarParts) -> str:
    """Match a stop and all text after it, unless the stop is also the beginning of a call."""
    call_starts = [text for text in _call_openers(grammar) if text.startswith(grammar.stops)]
    unless_call = f"(?!{_any_text(call_starts)})" if call_starts else ""
    return f"{unless_call}{_any_text(grammar.stops)}.*"


def _call_openers(grammar: GrammarParts) -> list[str]:
    if grammar.calls is None:
        return []
    cores = (grammar.calls.section.open.core, grammar.calls.each.open.core)
    return [core for core in dict.fromkeys(cores) if core]


def _close_pattern(grammar: GrammarParts, marker: Marker, *next_texts: str) -> Json:
    """Close a field at its marker, or before one of `next_texts`, another message or a stop.

    Without any of these the field extends to the end of the reply, and has no closing pattern.
    """
    patterns = []
    if marker.core:
        patterns.append(_marker_pattern(marker))
    candidates = (*next_texts, *grammar.starts, *grammar.stops)
    followers = [text for text in candidates if text.strip()]
    if followers:
        patterns.append(f"(?={_any_text(followers)})")
    return {"close_pattern": _any_of(patterns)} if patterns else {}


# -- fields


def _start_anchor(grammar: GrammarParts) -> Json:
    """Return the text of a prompt after which the reply begins."""
    turn_header = assistant_header(grammar)
    if turn_header.strip():
        return {"start_anchor": turn_header}
    opening = grammar.opening.lstrip()
    at_opening = f"(?={re.escape(opening)}\\Z)" if opening else r"\Z"
    return {"start_anchor_pattern": at_opening}


def _reasoning_field(grammar: GrammarParts, region: Region, rules: ResponseProfile) -> Json:
    if not region.open.core:
        _refuse("reasoning begins without a marker")
    if not region.close.core:
        _refuse("reasoning ends without a marker")
    # A generation prompt may continue with more white space than the marker has.
    after_opener = grammar.opening.partition(region.open.core)[2]
    space = after_opener[: len(after_opener) - len(after_opener.lstrip())]
    more = space[len(region.open.trailing_space) :]
    opener = _start_pattern(grammar) + _marker_pattern(region.open) + _optional_spaces(more)
    delimiters = {"open_pattern": opener, **_close_pattern(grammar, region.close)}
    openers = _spellings(Marker(region.open.text + more))
    content_space = "" if grammar.content.open.core else grammar.content.open.text
    closers = _spellings(Marker(region.close.text + content_space))
    if rules.has_plain_delimiters and not grammar.starts and openers and closers:
        delimiters = {"open": openers, "close": closers}
    return {**delimiters, **VERBATIM, **rules.text}


def _spellings(marker: Marker) -> list[str]:
    """Return a marker with and without the white space around it; nothing if that makes too many texts."""
    leading, trailing = marker.leading_space, marker.trailing_space
    texts = [
        leading[start:] + marker.core + trailing[:end]
        for start in range(len(leading) + 1)
        for end in range(len(trailing), -1, -1)
    ]
    return texts if len(texts) <= MAX_SPELLINGS else []


def _content_field(grammar: GrammarParts, rules: ResponseProfile) -> Json:
    region = grammar.content
    if region.open.core:
        return _marked_content_field(grammar, rules)
    if region.close.core and region.close.core not in grammar.stops:
        _refuse("content ends with a marker and begins without one")
    ends = []
    if grammar.reasoning is not None:
        # A prompt may have opened the reasoning, so its closing marker alone is not content.
        ends.append(_marker_pattern(grammar.reasoning.close))
    if grammar.calls is not None and grammar.calls.section.close.core:
        # In a stream, the last call ends before it is known whether the section does.
        ends.append(_marker_pattern(grammar.calls.section.close))
    space = _close_space(grammar) if rules.has_plain_delimiters else ""
    if grammar.stops:
        ends.append(_optional_spaces(space) + _stop_pattern(grammar))
    if rules.has_plain_delimiters:
        # Engines stream a text as it comes, so white space of a marker is taken with a delimiter.
        ends += _spaces_at_edges(region.open.text, space)
    if not assistant_header(grammar).strip() and grammar.opening.strip():
        ends.append(re.escape(grammar.opening.strip()))  # where no other field takes it as its own
    closing = {"close_pattern": _any_of(ends)} if ends else {}
    # White space without a core can only be removed together with all white space at the edges.
    strip = bool(region.open.text or region.close.text) or grammar.empty.isspace()
    return {**closing, "content_args": {"strip": strip}, **rules.text}


def _marked_content_field(grammar: GrammarParts, rules: ResponseProfile) -> Json:
    region = grammar.content
    if grammar.reasoning is not None and grammar.reasoning.open.core == region.open.core:
        _refuse("content and reasoning begin with the same marker")
    strip = bool(region.close.text and not region.close.core) or grammar.empty.isspace()
    return {
        "open_pattern": _start_pattern(grammar) + _marker_pattern(region.open),
        **_close_pattern(grammar, region.close, *_call_openers(grammar)),
        "content_args": {"strip": strip},
        **rules.text,
    }


def _close_space(grammar: GrammarParts) -> str:
    """Return the white space with which content ends that has no markers."""
    text = "" if grammar.content.open.core else grammar.content.close.text
    return text[: len(text) - len(text.lstrip())]


def _spaces_at_edges(before: str, after: str) -> list[str]:
    """Match white space at the beginning and at the end of a reply; never nothing, at which engines stop."""
    patterns = []
    if before:
        patterns.append(rf"\A(?=[{re.escape(before)}]){_optional_spaces(before)}")
    if after:
        patterns.append(rf"(?=[{re.escape(after)}]){_optional_spaces(after)}\Z")
    return patterns


def _calls_field(grammar: GrammarParts, calls: Calls) -> Json:
    call = calls.call
    if isinstance(call, RawCall):
        _refuse("a call is a bare text, which names neither its tool nor its argument")
    if isinstance(call, TaggedCall):
        return _tagged_call_field(grammar, calls, call)
    if call.listed:
        return _json_list_field(grammar, calls, call)
    return _json_call_field(grammar, calls, call)


def _call_open_pattern(grammar: GrammarParts, calls: Calls, call_opener: str) -> str:
    """Match the opening of a call, and the section's opening that may come before it."""
    if not calls.each.open.core:
        _refuse("a call begins without a marker")
    section = calls.section.open
    before = _optional_spaces(section.text)
    if section.core:
        before = rf"(?:{_marker_pattern(section)}\s*)?"
    return _before_calls(grammar, calls) + before + call_opener


def _before_calls(grammar: GrammarParts, calls: Calls) -> str:
    space = _optional_spaces(_close_space(grammar))
    return space + _start_pattern(grammar) + _optional_marker(calls.lead)


def _call_close_pattern(grammar: GrammarParts, calls: Calls, closer: Marker) -> Json:
    """Match the end of a call, and the separator or the section's end that may come after it."""
    if not closer.core:
        return _close_pattern(grammar, closer, *_call_openers(grammar))
    after = _optional_marker(calls.between) + _optional_marker(calls.section.close)
    return {"close_pattern": _marker_pattern(closer) + after}


def _call_transform(name: str, arguments: str, id: str | None) -> Json:
    call: Json = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return call if id is None else {"id": id, **call}


# -- calls that are JSON


def _json_call_field(grammar: GrammarParts, calls: Calls, call: JsonCall) -> Json:
    return {
        "open_pattern": _call_open_pattern(grammar, calls, _marker_pattern(calls.each.open)),
        **_call_close_pattern(grammar, calls, calls.each.close),
        "content": "json",
        "repeats": True,
        "transform": _json_transform(call, "content."),
    }


def _json_list_field(grammar: GrammarParts, calls: Calls, call: JsonCall) -> Json:
    opener = calls.section.open
    if not opener.core:
        _refuse("a list of calls begins without a marker")
    if not call.around[0]:  # the marker ends with the list's bracket, which belongs to the JSON
        opener = Marker(opener.text.rstrip().removesuffix("["), opener.origin)
    return {
        "open_pattern": _before_calls(grammar, calls) + _marker_pattern(opener),
        **_close_pattern(grammar, calls.section.close),
        "content": "json",
        "transform": _json_transform(call, ""),
        "transform_each": True,
    }


def _json_transform(call: JsonCall, path: str) -> Json:
    if call.name is None:
        _refuse("the name of a call is the key of its arguments")
    inner = f"{path}{call.inside}." if call.inside else path
    id = f"{{{path}{call.id}}}" if call.id else None
    return _call_transform(f"{{{inner}{call.name}}}", f"{{{inner}{call.arguments}}}", id)


# -- calls between markers


def _tagged_call_field(grammar: GrammarParts, calls: Calls, call: TaggedCall) -> Json:
    if call.parts[-1:] != ("arguments",):
        _refuse("a call has text after its arguments")
    if "name" not in call.parts:
        _refuse("the name of a call is part of its id")
    before, closer, pairs = call.parts[:-1], calls.each.close, call.pairs
    parser = {"content": "json"}
    name_end = ""
    if pairs is not None and pairs.values == "quoted":
        before, closer = _without_braces(before, closer, pairs)
        parser = _quoted_parser(pairs)
        name_end = r"(?=\{)"
    elif pairs is not None:
        parser = _pairs_parser(pairs)
        if isinstance(before[-1], str):  # only what follows shows where the name ends
            name_end = rf"(?=\s*{_any_text(filter(None, (pairs.key.core, closer.core)))})"
    opener = _marker_pattern(calls.each.open) + _parts_pattern(before) + name_end
    return {
        "open_pattern": _call_open_pattern(grammar, calls, opener),
        **_call_close_pattern(grammar, calls, closer),
        **parser,
        "repeats": True,
        "transform": _call_transform("{name}", "{content}", "{id}" if "id" in before else None),
    }


def _parts_pattern(parts: Sequence[Marker | str]) -> str:
    """Match markers and slots; a slot that comes again repeats the first one."""
    patterns = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            repeated = part in parts[:index]
            patterns.append(f"(?P={part})" if repeated else SLOT_PATTERNS[part])
        elif part.core:
            patterns.append(rf"\s*{re.escape(part.core)}\s*")
        else:
            patterns.append(re.escape(part.text))
    return "".join(patterns)


def _without_braces(
    before: tuple[Marker | str, ...], closer: Marker, pairs: Pairs
) -> tuple[tuple[Marker | str, ...], Marker]:
    """Take the braces around the arguments out of the markers: they belong to the JSON value."""
    last = before[-1]
    json_like = pairs.other.open.text == ":" and pairs.between.text == "," and not pairs.key
    fits = json_like and closer.text.startswith("}")
    if isinstance(last, str) or not last.text.endswith("{") or not fits:
        _refuse("arguments are neither JSON nor written between markers")
    return (*before[:-1], Marker(last.text[:-1])), Marker(closer.text[1:])


def _quoted_parser(pairs: Pairs) -> Json:
    """Parse JSON with bare keys, and with delimiters of the template's own around strings."""
    delimiters = [pairs.string.open.text.removeprefix(":"), pairs.string.close.text]
    args = {"unquoted_keys": True, "string_delims": [delimiters]}
    return {"content": "json", "content_args": args}


def _pairs_parser(pairs: Pairs) -> Json:
    if pairs.values == "tags":
        _refuse("values are written as tags within tags")
    if "python" in (pairs.values, pairs.strings):
        _refuse("arguments are Python literals")
    if not pairs.key.core:
        _refuse("the name of an argument begins without a marker")
    regions = [pairs.string, pairs.other, *(region for _, region in pairs.typed)]
    if not all(region.open.core and region.close.core for region in regions):
        _refuse("the value of an argument is not between markers")
    patterns = list(dict.fromkeys(_pair_pattern(pairs, region) for region in regions))
    args: Json = {"tag_pattern": patterns[0] if len(patterns) == 1 else _any_of(patterns)}
    if pairs.strings == "json":
        args["value_parser"] = {"name": "json", "args": {"allow_non_json": True}}
    return {"content": "xml-inline", "content_args": args}


def _pair_pattern(pairs: Pairs, region: Region) -> str:
    value = r"(?P<value>.*?)"
    if pairs.wrap.open:
        wrapped = _marker_pattern(pairs.wrap.open) + value + _marker_pattern(pairs.wrap.close)
        value = _any_of([wrapped, value])
    key = _marker_pattern(pairs.key) + r"(?P<key>[^<>\"'=\s]+?)"
    return key + _keyed_pattern(region.open) + value + _keyed_pattern(region.close)


def _keyed_pattern(marker: Marker) -> str:
    core = "(?P=key)".join(map(re.escape, marker.core.split(KEY)))
    return _with_spaces(marker, core)

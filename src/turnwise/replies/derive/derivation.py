"""Derive the grammar of replies from a template.

The template renders messages whose every field is a sentinel. The text between two fields *is* a marker. Where several
markers are adjacent, more renderings tell them apart: a turn with and without reasoning, one call and two, the
generation prompt. Texts are cut only at boundaries (`analysis/segment.py`).

    header  reasoning.open  R  reasoning.close  content.open  C  content.close  end of turn
    header  section.open  each.open  CALL  each.close  between  each.open  CALL  each.close  section.close  end of turn

The grammar then parses the probes (`roundtrip_failures`), and what is parsed as something else is noted.

What a template never writes cannot be derived from it, except what it searches for: `content.split('</think>')` shows
that replies may contain `</think>`. What no probe showed is listed in `Grammar.unreached`; a registry entry may declare
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

from turnwise.analysis.facts import Facts
from turnwise.analysis.prober import (
    ARGUMENTS,
    CONTENT,
    NAMES,
    REASONING,
    TOOLS,
    CallShape,
    Prober,
    replace_placeholders,
)
from turnwise.analysis.segment import EMPTY, Segment, leading_space
from turnwise.analysis.template_constants import TemplateConstants
from turnwise.errors import TemplateLimitError
from turnwise.messages import JsonMapping, JsonObject
from turnwise.replies.derive.call_sections import CallDerivation, Notes
from turnwise.replies.derive.calls import WrittenCalls
from turnwise.replies.derive.markers import add_named_markers, drop_invalid, find_problem, to_region
from turnwise.replies.derive.pairs import MARKUP, NEEDS_ESCAPES
from turnwise.replies.derive.probe_results import (
    ProbeResults,
    collect_results,
    find_content_layout,
    split_reasoning_close,
)
from turnwise.replies.derive.reasoning import (
    explain_missing,
    find_searched_region,
    matching_tag,
)
from turnwise.replies.events import messages_equal
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import NOT_READ_BACK, Marker, Region, TaggedCall
from turnwise.replies.parser.parser import Parser

# ---- selfcheck ----
#
# The last question of a derivation: does the grammar parse what the template wrote?
#
# A layout may be understood and still not be parsable: calls without any opener are not looked for in the middle of a
# text, and texts without quotes have no end. So the calls of the probes are parsed with the grammar that was derived
# from them, and what is parsed as something else is noted.


MAX_QUOTE_LENGTH = 120  # characters of a turn that a note quotes


class CallProbe(NamedTuple):
    """A message with calls: its title in notes, the arguments of each call, the content beside them."""

    title: str
    arguments: tuple[JsonObject, ...]
    content: str | None = None


PROBES = (
    CallProbe("one call", ARGUMENTS[:1]),
    CallProbe("two calls", ARGUMENTS),
    CallProbe("a call and content", ARGUMENTS[:1], CONTENT),
    CallProbe("a call without arguments", ({},)),
)


def roundtrip_failures(
    grammar: Grammar, prober: Prober, shape: CallShape, header: str
) -> Iterator[str]:
    """A note on the first probe that the template writes and the grammar does not parse back."""
    excludes_content = grammar.calls is None or grammar.calls.excludes_content
    for probe in PROBES:
        turn = prober.turn(prober.call(shape, *probe.arguments, content=probe.content))
        names = NAMES[: len(probe.arguments)]
        if turn is None or not all(name in turn.text for name in names):
            continue
        if probe.content is not None and excludes_content:
            continue
        reply = replace_placeholders(turn.text.removeprefix(header))
        expected = prober.call(CallShape(), *probe.arguments, content=probe.content)
        if not messages_equal(Parser(grammar, "", TOOLS).read(reply), expected):
            quote = reply if len(reply) <= MAX_QUOTE_LENGTH else reply[:MAX_QUOTE_LENGTH] + "..."
            yield f"{NOT_READ_BACK}: {probe.title}, {quote!r}"
            return


# ---- derivation ----


SIGNS = "&<>\"'\\"
SIGNS_IN_NAME = "".join(f"z{place}{sign}" for place, sign in enumerate(SIGNS)) + "zz"
SIGNS_AS_WRITTEN = re.compile(
    "".join(f"z{place}(.{{0,12}}?)" for place in range(len(SIGNS))) + "zz"
)
UNKNOWN_ESCAPES = "calls: how signs in names and keys are written"
REFUSED = "content, reasoning, calls: the template refuses a user message, or exceeds its limits"
TOO_LONG = "content, reasoning, calls: the rendering of a message is too long to analyse"


def derive(facts: Facts) -> Grammar:
    """Return how replies to a template look, as far as its renderings show."""
    try:
        return _derive(facts)
    except TemplateLimitError:  # it costs too much to be asked
        return Grammar(unreached=(REFUSED,))


def _derive(facts: Facts) -> Grammar:
    if not facts.is_accepting:
        return Grammar(unreached=(REFUSED,))
    notes = Notes()
    collected = collect_results(facts.prober)
    reasoning = _derive_reasoning(collected, notes)
    # An opener of reasoning that all turns begin with was taken for a part of the header.
    results = replace(collected, header=reasoning.header)
    content = find_content_layout(results, reasoning.content_open, facts.reply_stops)
    calls = CallDerivation(results, content, reasoning.region, facts.reply_stops, notes)
    derived_calls = calls.derive()
    _note_unreached(results, reasoning.region, content.turn_end, notes)
    if results.content_turn is not None:
        notes.sources["content"] = "derived"
    grammar = Grammar(
        opening=results.generation_prompt.text,
        reopening=_find_reopening(results, reasoning),
        reasoning=reasoning.region,
        content=to_region(content.open, content.close),
        calls=derived_calls,
        stops=facts.stops_as_written,
        starts=tuple(notes.starts),
        empty=reasoning.empty,
        unreached=tuple(notes.unreached),
        sources=notes.sources,
    )
    if facts.prober.placeholders:
        grammar = _without_placeholders(grammar)
    grammar = drop_invalid(grammar)
    grammar = add_named_markers(grammar, facts.prober)
    if results.one_call is None or grammar.calls is None:
        return grammar
    shape = results.one_call.shape
    escapes = _find_escapes(facts.prober, shape, grammar.calls.call)
    unreached = () if escapes is not None else (UNKNOWN_ESCAPES,)
    sorts_keys = _sorts_keys(facts.prober, shape)
    grammar = replace(
        grammar,
        calls=replace(grammar.calls, sorts_keys=sorts_keys, escapes=escapes or ()),
        unreached=(*grammar.unreached, *unreached),
    )
    return _check(grammar, results, results.one_call, calls)


def _sorts_keys(prober: Prober, shape: CallShape) -> bool:
    """Whether the arguments of a call are written in the order of their names, whatever order they are given in."""
    first, *_, last = ARGUMENTS[1]
    turn = prober.turn(prober.call(shape, {last: ARGUMENTS[1][last], first: ARGUMENTS[1][first]}))
    return turn is not None and 0 <= turn.text.find(first) < turn.text.find(last)


def _find_escapes(
    prober: Prober, shape: CallShape, call: Any
) -> tuple[tuple[str, str], ...] | None:
    """Return how signs are replaced in names and in keys that are no JSON; None if that cannot be undone."""
    if not isinstance(call, TaggedCall) or "name" not in call.parts:
        return ()
    probes = [prober.call(shape, ARGUMENTS[0], names=[SIGNS_IN_NAME])]
    if call.pairs is not None:
        probes.append(prober.call(shape, {SIGNS_IN_NAME: ARGUMENTS[0][next(iter(ARGUMENTS[0]))]}))
    found: set[tuple[tuple[str, str], ...]] = set()
    for probe in probes:
        turn = prober.turn(probe)
        written = SIGNS_AS_WRITTEN.search(turn.text) if turn is not None else None
        if written is None:
            continue
        changed = [
            (sign, text) for sign, text in zip(SIGNS, written.groups(), strict=True) if sign != text
        ]
        # A sign that others are written with was replaced first.
        changed.sort(
            key=lambda pair: not any(pair[0] in text for sign, text in changed if sign != pair[0])
        )
        found.add(tuple(changed))
    if len(found) > 1 or any(not text for changed_signs in found for _, text in changed_signs):
        return None
    return found.pop() if found else ()


def _check(
    grammar: Grammar, results: ProbeResults, one: WrittenCalls, derivation: CallDerivation
) -> Grammar:
    failures = list(roundtrip_failures(grammar, results.prober, one.shape, results.header.text))
    calls = grammar.calls
    if failures and calls is not None and calls.section:
        # A single call may be written in a way of its own.
        single = derivation.surround_one(
            replace(calls, section=Region(), between=Marker()), one, False
        )
        other = replace(grammar, more=(_without_placeholders(single),))
        checked = roundtrip_failures(other, results.prober, one.shape, results.header.text)
        if not find_problem(single) and not list(checked):
            return other
    return replace(grammar, unreached=(*grammar.unreached, *failures))


def _note_unreached(
    results: ProbeResults, reasoning: Region | None, turn_end: Segment, notes: Notes
) -> None:
    prober, turn = results.prober, results.reasoning_turn
    if prober.cache.too_long:
        notes.unreached.append(TOO_LONG)
    if results.content_turn is None:
        notes.unreached.append("content: the content of a message is not rendered")
    elif not _is_verbatim(prober, {"content": prober.as_content(CONTENT)}, CONTENT, {}):
        notes.unreached.append("content: it is not rendered verbatim")
    first_line = turn_end.core.partition("\n")[0]
    if problem := find_problem(first_line):
        notes.unreached.append(f"stops: {problem}")
    if turn is not None and not _is_verbatim(prober, turn.message, REASONING, turn.options):
        notes.unreached.append("reasoning: it is not rendered verbatim")
    if turn is None and reasoning is None:
        notes.unreached.append(f"reasoning: {explain_missing(prober, results.one_call)}")


def _is_verbatim(prober: Prober, message: JsonMapping, field: str, options: JsonMapping) -> bool:
    """Whether quotes, newlines, backslashes and markup in a field of a probe are rendered unchanged."""
    for text in (NEEDS_ESCAPES, MARKUP):
        probe = json.dumps(message).replace(field, json.dumps(text)[1:-1])
        turn = prober.turn(json.loads(probe), **options)
        if turn is not None and text not in turn.text:
            return False
    return True


def _find_reopening(results: ProbeResults, reasoning: ReasoningLayout) -> str:
    """Return the last tag of a prompt that ends with a tool result, if it has no header.

    If no prompt has a header, return the last tag of a prompt that ends with a user's message.
    """
    header = results.header.core
    if not header and not results.generation_prompt.core:
        prober = results.prober
        prompt = prober.render([prober.user()], add_generation_prompt=True)
        tail = (prober.after_user(prompt) if prompt is not None else None) or EMPTY
    elif results.one_call is None or not header:
        return ""
    else:
        tail = results.prober.after_result(results.one_call.shape)
    if header and header in tail.text:
        return ""
    cores = [reasoning.content_open.core]
    if reasoning.region is not None:
        cores += [reasoning.region.open.core, reasoning.region.close.core]
    cuts = [tail.text.index(core) for core in cores if core and core in tail.text]
    tail = tail.slice(0, min(cuts, default=None))
    return tail.text[tail.tags[-1][0] :] if tail.tags else ""


def _without_placeholders(value: Any) -> Any:
    """Return a part of a grammar without special tokens that have no text."""
    if isinstance(value, str):
        return replace_placeholders(value)
    if isinstance(value, tuple):
        return tuple(map(_without_placeholders, value))
    if is_dataclass(value) and not isinstance(value, type):
        parts = {
            part.name: _without_placeholders(getattr(value, part.name)) for part in fields(value)
        }
        return replace(value, **parts)
    return value


# Reasoning


class ReasoningLayout(NamedTuple):
    """The markers of reasoning, and what they leave of the text around them."""

    region: Region | None
    header: Segment
    content_open: Segment = EMPTY
    empty: str = ""  # what is written where there is no reasoning


def _derive_reasoning(results: ProbeResults, notes: Notes) -> ReasoningLayout:
    turn, header = results.reasoning_turn, results.header
    if turn is None:
        # DeepSeek-R1: reasoning is removed from messages, and found only in `content.split('</think>')`.
        return _derive_searched_reasoning(results, header, notes)
    before_content = results.text_before_content(header)
    opener, closer = turn.markers(header)
    if results.lacks_opener(turn):
        # Reasoning follows the header as content does; the opener may be written in the prompt only.
        opener = results.prompt_tail
        if not opener.core:
            notes.unreached.append(
                "reasoning: no marker opens it, so nothing tells it from content"
            )
            return ReasoningLayout(None, header)
    notes.sources["reasoning"] = "derived"
    if not turn.before_content:
        # Reasoning is written before calls only. Command A: content has an opener of its own, `<|START_RESPONSE|>`.
        # If what precedes content holds the closer, it is no opener of content.
        region = to_region(opener, notes.without_header(closer, header))
        closes = closer.core and closer.core in before_content.text
        return ReasoningLayout(region, header, EMPTY if closes else before_content)
    # Qwen3: `<think>\n` R `\n</think>\n\n` C; without reasoning the two markers are written with nothing in between.
    closer, content_open = split_reasoning_close(
        opener, closer, before_content, results.before_call
    )
    empty = before_content.text.removesuffix(content_open.text)
    region = to_region(opener, notes.without_header(closer, header))
    return ReasoningLayout(region, header, content_open, empty)


def _derive_searched_reasoning(
    results: ProbeResults, header: Segment, notes: Notes
) -> ReasoningLayout:
    content_open = before_content = results.text_before_content(header)
    texts = results.prober.renderer.texts
    searched = [text for source in texts for text in TemplateConstants.read(source).searched]
    region = find_searched_region(searched, results.prompts, before_content, results.prompt_tail)
    region = region or matching_tag(searched, results.resumed_prompts())
    if region is None:
        return ReasoningLayout(None, header, content_open)  # Llama 3: there is no reasoning
    notes.sources["reasoning"] = "searched"
    if header.core.endswith(region.open.core):
        # DeepSeek-V3.1: all turns begin with `<｜Assistant｜><think>`.
        header = header.slice(0, header.text.rindex(region.open.core))
        before_content = results.text_before_content(header)
    closer = region.close.core
    if closer not in before_content.text:
        # DeepSeek-R1: a message is `<｜Assistant｜>` C, without any trace of reasoning. Nemotron Nano 2: the last
        # message follows the opener that the prompt has, which is none of content.
        is_opener = content_open.core == region.open.core
        return ReasoningLayout(region, header, EMPTY if is_opener else content_open)
    # Kimi-K2-Thinking: a message is `<think></think>` C; content begins after the closer and its white space.
    end = before_content.text.index(closer) + len(closer)
    end += leading_space(before_content.text[end:])
    return ReasoningLayout(region, header, before_content.slice(end), before_content.text)

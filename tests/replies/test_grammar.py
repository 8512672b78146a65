"""Grammars: what `derive` reads off a template is what the template writes.

The law: a message written with nothing but the markers of the grammar (see below) is what the template wrote, with
words and values that derivation never saw. Where a template breaks it, `QUIRKS` says why. Readable cases lie in
`grammars/`; `--accept` rewrites them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from loaded import load_entry
from published_templates import compile_published, derived_grammar_of, template_of
from turnwise.analysis.conversations import NOW, make_tool
from turnwise.analysis.segment import Segment, common_prefix, common_suffix, split_between
from turnwise.errors import SourceError
from turnwise.replies.declared import merge_declaration, parse_declaration
from turnwise.replies.derive import derive
from turnwise.replies.derive.markers import HOLDS_FIELD, TOO_LONG, drop_invalid
from turnwise.replies.derive.objects import decode_value
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import (
    KEY,
    Calls,
    JsonCall,
    Marker,
    Pairs,
    RawCall,
    Region,
    Spacing,
    TaggedCall,
)
from turnwise.replies.known_models import known_models

# A message written with nothing but the markers of a grammar: what `derive` must have understood to be right.
#
# It is kept apart from the package's own writer, so that one can be held against the other. Where there is no reasoning
# or no content beside calls, a template may write their empty markers or leave them out; both are tried.

Call = tuple[str, dict[str, Any], str]  # name, arguments, id


def rewritten(
    grammar: Grammar,
    content: str | None = None,
    reasoning: str | None = None,
    calls: tuple[Call, ...] = (),
) -> Iterator[str]:
    """The ways in which the grammar writes this message."""
    first = ["", grammar.empty] if reasoning is None else [around(thinking(grammar), reasoning)]
    empty = grammar.content.open.text + grammar.content.close.text
    second = [around(grammar.content, content)] if content is not None else ["", empty]
    third = [section(grammar, calls)] if calls else [""]
    for thought, text_part, called in itertools.product(
        dict.fromkeys(first), dict.fromkeys(second), third
    ):
        lead = grammar.calls.lead.text if grammar.calls and content and called else ""
        order = (
            [thought, called, text_part]
            if grammar.calls and grammar.calls.content_after
            else [thought, text_part + lead, called]
        )
        yield starts(grammar).join(region for region in order if region)


def thinking(grammar: Grammar) -> Region:
    assert grammar.reasoning is not None
    return grammar.reasoning


def starts(grammar: Grammar) -> str:
    return grammar.starts[0] if grammar.starts else ""


def around(region: Region, text: str) -> str:
    return region.open.text + text + region.close.text


def section(grammar: Grammar, calls: tuple[Call, ...]) -> str:
    layout = grammar.calls
    assert layout is not None
    written = [one(layout, call, number) for number, call in enumerate(calls, layout.first)]
    if isinstance(layout.call, JsonCall) and layout.call.listed:
        opens, between, closes = layout.call.around
        return around(layout.section, opens + between.join(written) + closes)
    separator = layout.between.text + starts(grammar)
    return around(layout.section, separator.join(around(layout.each, call) for call in written))


def one(layout: Calls, call: Call, number: int) -> str:
    name, arguments, identity = call
    slots = {
        "name": name,
        "id": identity,
        "index": str(number),
        "arguments": written_arguments(layout.call, arguments),
    }
    return "".join(
        slots[part] if isinstance(part, str) else part.text for part in layout.call.parts
    )


def written_arguments(call: JsonCall | TaggedCall, arguments: dict[str, Any]) -> str:
    if isinstance(call, TaggedCall) and call.pairs is not None:
        return call.pairs.between.text.join(
            pair(call.pairs, key, value) for key, value in arguments.items()
        )
    text = dump(arguments, call.spacing)
    return (
        json.dumps(text, ensure_ascii=False)
        if isinstance(call, JsonCall) and call.as_text
        else text
    )


def dump(value: Any, spacing: Spacing) -> str:
    item = spacing.item.rstrip() if spacing.indent else spacing.item
    text = json.dumps(
        value, ensure_ascii=False, indent=spacing.indent, separators=(item, spacing.key)
    )
    return text.replace("\n", "\n" + " " * spacing.depth)


KINDS = {
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}


def pair(pairs: Pairs, key: str, value: Any) -> str:
    if isinstance(value, str):
        region, text = pairs.string, literal(value, pairs.strings)
    else:
        region = dict(pairs.typed).get(KINDS[type(value)], pairs.other)
        scalar = isinstance(value, bool) or value is None
        text = other(value, pairs, pairs.scalars if scalar else pairs.values)
    return pairs.key.text + key + around(region, text).replace(KEY, key)


def literal(text: str, language: str) -> str:
    return {"raw": str, "json": lambda text: json.dumps(text, ensure_ascii=False), "python": repr}[
        language
    ](text)


def other(value: Any, pairs: Pairs, language: str) -> str:
    if language == "quoted":
        return quote(value, pairs.string.close.text)
    return repr(value) if language == "python" else json.dumps(value, ensure_ascii=False)


def quote(value: Any, mark: str) -> str:
    """Gemma's way: bare keys, texts between marks."""
    if isinstance(value, str):
        return mark + value + mark
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{quote(item, mark)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(quote(item, mark) for item in value) + "]"
    return json.dumps(value)


# The tests

CASES = sorted((Path(__file__).parents[1] / "grammars").glob("*.case"))
TOOLS = [make_tool("look", city={"type": "string"}), make_tool("plan", n={"type": "integer"})]
ASK = {"role": "user", "content": "Ask"}
OSLO: Call = ("look", {"city": "Oslo", "days": 3, "unit": "C"}, "abcdefgh1")
PLAN: Call = ("plan", {"n": 12, "who": "me"}, "abcdefgh2")
MANY: Call = (
    "look",
    {"flag": True, "list": [1, "two", {"k": "v"}], "map": {"a": "b"}, "rate": 2.5},
    "abcdefgh1",
)
NONE: Call = ("look", {}, "abcdefgh1")
MESSAGES: dict[str, dict[str, Any]] = {
    "content": {"content": "Hello there"},
    "reasoning": {"content": "Hello there", "reasoning": "Let me see"},
    "one call": {"calls": (OSLO,)},
    "two calls": {"calls": (OSLO, PLAN)},
    "content and a call": {"content": "Hello there", "calls": (OSLO,)},
    "reasoning and a call": {"reasoning": "Let me see", "calls": (OSLO,)},
    "everything": {"content": "Hello there", "reasoning": "Let me see", "calls": (OSLO, PLAN)},
    "kinds of values": {"calls": (MANY,)},
    "no arguments": {"calls": (NONE,)},
}
UNENDED = "a single call has no end of its section, which is a slip of the template"
UNQUOTED = "texts are written without quotes, so they cannot be read back"
MIXED = "a list is written as Python, a mapping as JSON"
QUIRKS: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "npm-deepseek_v3",
            "llamacpp-deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
            "ollama-deepcoder-14b",
            "ollama-deepseek-r1-8b",
            "ollama-deepseek-v2.5-236b",
        ),
        (UNENDED, ("one call", "kinds of values", "no arguments")),
    ),
    **dict.fromkeys(
        ("vllm-tool_chat_template_llama3.2_pythonic", "vllm-tool_chat_template_toolace"),
        (UNQUOTED, ("one call", "two calls")),
    ),
    **dict.fromkeys(
        ("llamacpp-LFM2.5-8B-A1B", "hfjs-LiquidAI--LFM2.5-VL-450M"), (MIXED, ("kinds of values",))
    ),
    **dict.fromkeys(
        ("llamacpp-deepseek-ai-DeepSeek-V4", "llamacpp-deepseek-ai-DeepSeek-V4-Flash-0731"),
        ("without arguments there is one newline more", ("no arguments",)),
    ),
    "vllm-tool_chat_template_hunyuan_a13b": (
        "content has its opening only without calls",
        ("content and a call",),
    ),
    "ollama-llama4-latest": (
        "content stands between the two markers of the section",
        ("content and a call",),
    ),
}
"""Templates that break the law: why, and on which messages."""


def claims_to_write(grammar: Grammar, message: dict[str, Any]) -> bool:
    """Whether the grammar claims to know how to write this."""
    if message.get("calls") and (
        grammar.calls is None
        or (grammar.calls.excludes_content and message.get("content") is not None)
    ):
        return False
    return "reasoning" not in message or grammar.sources.get("reasoning") == "derived"


def turns(template: turnwise.Template, message: dict[str, Any]) -> Iterator[str]:
    """What the template makes of a message, in each shape in which all of it comes out."""
    for empty in ("", None):
        for as_text in (False, True):
            chat = {"role": "assistant", "content": message.get("content", empty)}
            if "reasoning" in message:
                chat["reasoning_content"] = message["reasoning"]
            calls = message.get("calls", ())
            if calls:
                chat["tool_calls"] = [openai(call, as_text) for call in calls]
            try:
                text = str(template.render([ASK, chat], tools=TOOLS, now=NOW))
            except turnwise.TurnwiseError:
                continue
            if "&#34;" not in template.text:
                text = text.replace("&#34;", '"')
            text = text[text.rfind("Ask") :]
            words = [
                message.get("content"),
                message.get("reasoning"),
                *(name for name, _, _ in calls),
            ]
            if all(word in text for word in words if word):
                yield text


def openai(call: Call, as_text: bool) -> dict[str, Any]:
    name, arguments, identity = call
    given = json.dumps(arguments) if as_text else arguments
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": given}}


def holds(grammar: Grammar, turn: str, written: str) -> bool:
    """What was written stands in the turn, and nothing but the end of the turn after it."""
    at = turn.find(written)
    rest = turn[at + len(written) :].strip()
    is_end = not rest or rest.startswith(grammar.stops)
    return at >= 0 and (is_end or rest == grammar.opening.strip())  # which some always write


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", corpus.load_published())
def test_markers_write_what_the_template_writes(name: str) -> None:
    template, derived = template_of(name), derived_grammar_of(name)
    broken = []
    for title, message in MESSAGES.items():
        found = list(turns(template, message)) if claims_to_write(derived, message) else []
        ways = list(rewritten(derived, **message)) if found else []
        if found and not any(holds(derived, turn, way) for turn in found for way in ways):
            broken.append(title)
    assert broken == list(QUIRKS.get(name, ("", ()))[1]), f"{name}\n{derived}"


@needs_corpus
@pytest.mark.law
def test_calls_are_derived() -> None:
    """Of the templates that write calls at all, how many give their grammar without a declaration."""
    writing, without = [], []
    for name in corpus.load_published():
        template = template_of(name)
        if any(True for _ in turns(template, MESSAGES["one call"])):
            writing.append(name)
            derived = derived_grammar_of(name)
            if derived.calls is None or name in QUIRKS and "two calls" in QUIRKS[name][1]:
                without.append(name)
    assert len(writing) > 100
    assert len(without) <= len(writing) * 0.03, without


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", corpus.load_published())
def test_derivation_repeats(name: str) -> None:
    assert derive(compile_published(name).facts) == derived_grammar_of(name)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path, accept: bool) -> None:
    given, _, expected = path.read_text(encoding="utf-8").partition("\n--- grammar\n")
    kind, _, body = given.partition("\n")
    template = (
        turnwise.load(body) if kind == "--- entry" else turnwise.compile(body, dialect="jinja")
    )
    found = f"{derive(template.facts)}\n"
    if accept:
        path.write_text(f"{given}\n--- grammar\n{found}", encoding="utf-8")
    else:
        assert found == expected


def test_case_templates_hold_the_law() -> None:
    for path in CASES:
        given = path.read_text(encoding="utf-8").partition("\n--- grammar\n")[0]
        if given.startswith("--- template"):
            template = turnwise.compile(given.partition("\n")[2], dialect="jinja")
            derived = derive(template.facts)
            nested = derived.calls is not None and "tags" in str(derived)
            for title, message in MESSAGES.items():
                if not claims_to_write(derived, message) or (nested and title == "kinds of values"):
                    continue
                found = list(turns(template, message))
                ways = list(rewritten(derived, **message))
                assert any(holds(derived, turn, way) for turn in found for way in ways), (
                    path.stem,
                    title,
                    found,
                    ways,
                )


def test_the_table_says_where_markers_come_from() -> None:
    table = str(derive(load_entry("qwen3").facts)).splitlines()
    assert any(
        line.startswith("reasoning open") and "'<think>\\n'" in line and "template " in line
        for line in table
    )


# Cutting


@pytest.mark.parametrize(
    ("one", "other", "size"),
    [
        ("</think>", "</tool_call>", 0),
        ("\n</think>", "\n</tool_call>", 1),
        ("<a><b>", "<a><c>", 3),
        ("<|channel|>analysis", "<|channel|>final", 0),
        ("<|channel|>analysis", "<|channel|>", 11),
        ("[TOOL_CALLS]", "[TOOL_RESULTS]", 0),
        ('<invoke name="', '<invoke id="', 0),
        ("same", "same", 4),
    ],
)
def test_no_marker_is_cut_in_the_middle(one: str, other: str, size: int) -> None:
    assert common_prefix(Segment(one), Segment(other)) == size
    assert common_prefix(Segment(other), Segment(one)) == size


@pytest.mark.parametrize(
    ("one", "other", "size"),
    [
        ("x<|call|>", "y<|return|>", 0),
        ("a<e><f>", "b<g><f>", 3),
        ("think<|sep|>", "tools<|sep|>", 0),
        ("same", "same", 4),
    ],
)
def test_ends_are_cut_alike(one: str, other: str, size: int) -> None:
    assert common_suffix(Segment(one), Segment(other)) == size


def test_between_takes_nothing_twice() -> None:
    middle = Segment("</call>\n<call>")
    close, separator, opens = split_between(
        middle, Segment("<calls><call>"), Segment("</call></calls>")
    )
    assert (close.text, separator.text, opens.text) == ("</call>", "\n", "<call>")


@needs_corpus
def test_hostile_templates_have_a_grammar() -> None:
    for hostile in corpus.hostile():
        try:
            template = turnwise.compile(hostile.text, dialect="jinja")
        except turnwise.TurnwiseError:
            continue
        assert isinstance(derive(template.facts), Grammar), hostile.id


# Declarations


def test_every_declaration_can_be_read() -> None:
    for name, table in known_models().items():
        stated = parse_declaration(table["replies"], name)
        assert stated.calls or stated.more or stated.reasoning, name
    for name, entry in turnwise.entries().items():
        if entry.replies:
            merge_declaration(derive(load_entry(name).facts), entry.replies, name)


@needs_corpus
@pytest.mark.parametrize(
    ("name", "opens"),
    [
        ("llamacpp-LFM2-8B-A1B", "<|tool_call_start|>["),
        ("llamacpp-LFM2.5-Instruct", "<|tool_call_start|>["),
        ("llamacpp-HuggingFaceTB-SmolLM3-3B", "<tool_call>"),
        ("llamacpp-ibm-granite-granite-3.3-2B-Instruct", "<|tool_call|>"),
        ("llamacpp-Kimi-K2-Instruct", "<|tool_calls_section_begin|>"),
    ],
)
def test_what_a_template_never_writes_is_declared(name: str, opens: str) -> None:
    found = template_of(name).grammar
    assert found.calls is not None
    assert (found.calls.section.open.core or found.calls.each.open.core) == opens
    assert found.sources["calls"] == "declared"
    assert derive(template_of(name).facts).calls is None


@pytest.mark.parametrize("name", ["internlm2", "internlm2-tools"])
def test_an_entry_declares_its_other_calls(name: str) -> None:
    found = load_entry(name).grammar
    assert found.calls is not None
    assert found.calls.each.open.core == "<|action_start|><|plugin|>"
    assert [calls.call for calls in found.more] == [RawCall("code_interpreter", fenced=True)]


@pytest.mark.law
@needs_corpus
def test_published_templates_stay_within_the_bounds(sample: Any) -> None:
    """No answer is too long, no marker holds a word of a probe or is longer than markers are."""
    for name in sample(corpus.load_published(), 60):
        found = derived_grammar_of(name)
        assert drop_invalid(found) == found, name
        assert not [
            note
            for note in found.unreached
            if "too long" in note or HOLDS_FIELD in note or TOO_LONG in note
        ], name


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", corpus.load_published())
def test_no_declaration_contradicts_a_template(name: str) -> None:
    """What one text of `knows` says must not be taken for another model."""
    derived, found = derived_grammar_of(name), template_of(name).grammar
    for part in ("reasoning", "calls"):
        if derived.sources.get(part) == "derived":
            assert getattr(found, part) == getattr(derived, part)


def test_a_contradiction_names_both() -> None:
    derived = Grammar(
        reasoning=Region(Marker("<think>\n"), Marker("</think>")), sources={"reasoning": "derived"}
    )
    with pytest.raises(
        SourceError, match=r"'<thought>' \.\.\. '</thought>'.*'<think>' \.\.\. '</think>'"
    ):
        merge_declaration(derived, {"reasoning": ["<thought>", "</thought>"]})
    agreed = merge_declaration(derived, {"reasoning": ["<think>", "</think>\n"]})
    assert agreed.reasoning == derived.reasoning
    replaced = merge_declaration(
        derived, {"reasoning": ["<thought>", "</thought>"], "instead": ["reasoning"]}
    )
    assert replaced.reasoning is not None
    assert replaced.reasoning.open.text == "<thought>"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"reasons": []}, "unknown key 'reasons'"),
        ({"reasoning": ["<a>"]}, "two strings"),
        ({"calls": {}}, "one of: json, parts, raw"),
        ({"calls": {"json": {"nam": "x"}}}, "unknown key 'nam'"),
        ({"calls": {"raw": {}}}, "is incomplete"),
        ({"calls": {"json": {}, "each": "x"}}, "calls.each must be two strings"),
        ({"calls": 3}, "a list of mappings"),
    ],
)
def test_a_bad_declaration_is_refused(data: dict[str, Any], words: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_declaration(data)
    assert words in str(caught.value)


# Reading back

ODD_MARKS = (
    "{%% for m in messages %%}<|{{ m.role }}|>{{ m.content or '' }}{%% if m.tool_calls %%}%s"
    "{%% for c in m.tool_calls %%}"
    "%s{{ c.function.name }}»{{ c.function.arguments | tojson }}{%% if not loop.last %%}%s{%% endif %%}{%% endfor %%}%s"
    "{%% endif %%}<|end|>{%% endfor %%}{%% if add_generation_prompt %%}<|assistant|>{%% endif %%}"
)


@pytest.mark.parametrize(
    ("opens", "each", "separator", "closes"),
    [
        ("§TOOLS§", "«", ";;", "§END§"),
        ("TOOLS", "«", "%%", "END"),
        ("```tools ", "«", "|", " ```"),
        ("@@", "«", "|", "@@"),
    ],
)
def test_what_stands_after_a_call_need_not_look_like_a_tag(
    opens: str, each: str, separator: str, closes: str
) -> None:
    template = turnwise.compile(ODD_MARKS % (opens, each, separator, closes), dialect="jinja")
    reply = f'Aye.{opens}«look»{{"a": 1}}{separator}«plan»{{}}{closes}<|end|>'
    message = template.parse(reply)
    assert message["content"] == "Aye."
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["look", "plan"]


def test_calls_that_are_not_read_back_are_named() -> None:
    template = turnwise.compile(ODD_MARKS % ("", "", "", ""), dialect="jinja")
    assert any("gives a different call" in note for note in derive(template.facts).unreached)


def test_a_set_of_mappings_is_no_value() -> None:
    assert decode_value("{{'a': 1}}", 0) is None

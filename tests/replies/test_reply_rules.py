"""One set of rules for every family: names, shapes, calls within reasoning, cut replies, white space."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import turnwise
from loaded import load_entry
from turnwise.errors import TurnwiseError
from turnwise.replies.events import Message
from turnwise.replies.export.schema_reader import read_signatures
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import Marker, Region, TaggedCall
from turnwise.replies.parser.markers import is_tag_like, split_tags
from turnwise.replies.parser.parser import Parser
from turnwise.replies.write import write
from turnwise.tokens.tokenizers import tokenizer
from vocabularies import SHIPPED

SIZES = (1, 2, 3, 7)
MIXED = ("deepseek-v3.1", "gemma-4", "glm-4.7", "kimi-k2", "minimax-m2", "qwen3", "qwen3.5")


def declare(*names: str) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return [
        {"type": "function", "function": {"name": name, "parameters": schema}} for name in names
    ]


TIDE = declare("tide")
CALL = {"name": "tide", "arguments": {"city": "Oslo"}}


@cache
def grammar(name: str) -> Grammar:
    return load_entry(name).grammar


def parse(name: str, reply: str, **options: Any) -> Message:
    """Parse a reply whole, and in chunks of several sizes: the same message, and events that add up to it."""
    options.setdefault("tools", TIDE)
    whole = Parser(grammar(name), **options).read(reply)
    for size in SIZES:
        parser = Parser(grammar(name), **options)
        events = [
            event
            for start in range(0, len(reply), size)
            for event in parser.feed(reply[start : start + size])
        ]
        message = parser.close()
        events += message.events
        assert (message, message.attempts, message.spans) == (whole, whole.attempts, whole.spans)
        texts = {"content": "text", "reasoning_content": "reasoning"}
        for key, kind in texts.items():
            written = "".join(event.text for event in events if event.kind == kind)
            assert written == (whole.get(key) or "")
        starts = [event.name for event in events if event.kind == "start"]
        assert starts == [call["name"] for call in calls(whole)]
    return whole


def calls(message: Message) -> list[dict[str, Any]]:
    return [call["function"] for call in message.get("tool_calls", ())]


def has_call(message: Message) -> bool:
    return [json.loads(call["arguments"]) for call in calls(message)] == [{"city": "Oslo"}]


def written_call(name: str) -> str:
    """One call as the template writes it, without the stop."""
    call = {"id": "functions.tide:0", "type": "function", "function": CALL}
    reply = write(grammar(name), {"role": "assistant", "content": "", "tool_calls": [call]}, "")
    message = Parser(grammar(name), "").read(reply)
    return reply[message.attempts[-1].start :].removesuffix(message.stop or "")


# -- names

NAMES = {
    "itself": ("tide", ["tide"], "tide"),
    "a name space": ("functions.tide", ["tide"], "tide"),
    "doubled": ("tide.tide", ["tide"], "tide"),
    "the longest": ("functions.sea.tide", ["tide", "sea.tide"], "sea.tide"),
    "without its name space": ("tide", ["sea.tide", "ebb"], "sea.tide"),
    "two that it may mean": ("tide", ["sea.tide", "bay.tide"], None),
    "another name space": ("bay.tide", ["sea.tide"], None),
    "a part of a word": ("lowtide", ["tide"], None),
}


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.parametrize("entry", ["qwen3", "glm-4.5", "llama-3.1"])
def test_a_name_is_that_of_the_tool_that_it_means(case: str, entry: str) -> None:
    name, declared, found = NAMES[case]
    reply = written_call(entry).replace("tide", name)
    message = parse(entry, reply, tools=declare(*declared))
    if found is None and entry == "llama-3.1":
        assert (
            message["content"] == reply
        )  # without a marker, only the name shows that it is a call
        return
    assert [call["name"] for call in calls(message)] == [found or name]
    (attempt,) = message.attempts
    assert attempt.name == name and attempt.status == ("complete" if found else "unknown")


@pytest.mark.parametrize("recipient", ["functions.tide", "tide"])
def test_a_recipient_needs_no_name_space(recipient: str) -> None:
    header = f"<|channel|>commentary to={recipient} <|constrain|>json<|message|>"
    message = parse("gpt-oss", header + '{"city": "Oslo"}<|call|>')
    assert has_call(message)


def test_a_message_to_a_built_in_tool_is_a_call() -> None:
    message = parse("gpt-oss", "<|channel|>commentary to=python<|message|>print(1)<|call|>")
    assert calls(message) == [{"name": "python", "arguments": "print(1)"}]
    assert message.finish_reason == "tool_calls" and message.attempts[0].status == "malformed"
    refused = parse(
        "gpt-oss",
        '<|channel|>commentary to=browser.open<|message|>{"id": 1}<|call|>',
        undeclared_tools="refuse",
    )
    assert refused.attempts[0].status == "undeclared" and "browser.open" in refused["content"]


# -- shapes

SHAPES = {
    "object": '{"name": "tide", "arguments": {"city": "Oslo"}}',
    "object with parameters": '{"name": "tide", "parameters": {"city": "Oslo"}}',
    "list": '[{"name": "tide", "arguments": {"city": "Oslo"}}]',
    "Python list": '[tide(city="Oslo")]',
    "Python call": "tide(city='Oslo')",
    "tags": "<function=tide>\n<parameter=city>\nOslo\n</parameter>\n</function>",
    "tags with names": '<invoke name="tide">\n<parameter name="city">Oslo</parameter>\n</invoke>',
}


def outer_tags(calls: Any) -> tuple[str, str] | None:
    openers = split_tags(calls.section.open.text) or split_tags(calls.each.open.text)
    closers = split_tags(calls.section.close.text) or split_tags(calls.each.close.text)
    if not openers or not closers:
        return None
    opener, closer = openers[0].strip().removesuffix("["), closers[-1].strip().removeprefix("]")
    if not opener.endswith(">") or not is_tag_like(closer):
        return None
    written = (calls.section.open.text + calls.each.open.text).partition(opener)[2].strip()
    if isinstance(calls.call, TaggedCall) and (written[:1] == "{" or calls.call.parts[0] != "name"):
        return None
    return opener, closer


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("entry", ["qwen3", "qwen3-coder", "glm-4.7", "lfm2", "lfm2.5", "hermes-3"])
def test_any_shape_is_read_between_the_tags_of_calls(entry: str, shape: str) -> None:
    found = grammar(entry).calls
    assert found is not None
    tags = outer_tags(found)
    assert tags is not None
    opener, closer = tags
    reply = f"Aye.{opener}\n{SHAPES[shape]}\n{closer}"
    message = parse(entry, reply, prompt="")
    if entry == "glm-4.7" and shape == "Python call":
        return  # its own calls start with a name, too
    assert (
        has_call(message)
        and message["content"] == "Aye."
        and message.attempts[0].status == "complete"
    )


def test_two_calls_of_another_shape_in_one_section() -> None:
    reply = f"<tool_call>\n{SHAPES['tags']}\n{SHAPES['tags']}\n</tool_call>Aye."
    message = parse("qwen3", reply)
    assert len(calls(message)) == 2 and message["content"] == "Aye."


@pytest.mark.parametrize("text", ["hello", "tide", "<b>x</b>", "(tide)", "tide (at noon)"])
def test_what_has_no_shape_of_a_call_is_content(text: str) -> None:
    reply = f"<tool_call>\n{text}\n</tool_call>"
    message = parse("qwen3", reply)
    assert message["content"] == reply and message.attempts[0].status == "unreadable"
    assert parse("qwen3", f"Write <function=tide> then. {SHAPES['tags']}").attempts == ()


# -- calls within reasoning


@pytest.mark.parametrize("is_opened_by_prompt", [True, False])
@pytest.mark.parametrize("entry", MIXED)
def test_a_call_within_reasoning(entry: str, is_opened_by_prompt: bool) -> None:
    reasoning = grammar(entry).reasoning
    assert reasoning is not None
    opener = "" if is_opened_by_prompt else reasoning.open.text
    options: dict[str, Any] = {"prompt": ""}
    if is_opened_by_prompt:
        options = {"reasoning": "assume"}
    call, end = written_call(entry).strip(), f" more{reasoning.close.text}ok"
    after_line = f"{opener}plan.\n{call}{end}"
    message = parse(entry, after_line, **options)
    assert has_call(message) and message["content"] == "ok"
    assert message["reasoning_content"] == "plan. more"
    # Within a sentence it is only mentioned.
    mentioned = f"{opener}plan {call}{end}"
    message = parse(entry, mentioned, **options)
    assert calls(message) == [] and message["content"] == "ok"
    assert message["reasoning_content"].startswith(f"plan {call[:8]}")
    assert has_call(parse(entry, mentioned, calls_in_reasoning="all", **options))
    for reply in (after_line, mentioned):
        message = parse(entry, reply, calls_in_reasoning="text", **options)
        assert calls(message) == [] and message["content"] == "ok"


# -- cut calls and markers


@pytest.mark.parametrize("entry", MIXED)
def test_a_cut_call_is_kept_or_dropped(entry: str) -> None:
    call = written_call(entry)
    whole = "Aye.\n" + call
    for end in range(len("Aye.\n"), len(whole)):
        kept, dropped = parse(entry, whole[:end]), parse(entry, whole[:end], cut_calls="drop")
        statuses = [attempt.status for attempt in kept.attempts]
        assert [attempt.status for attempt in dropped.attempts] == statuses
        if "unterminated" in statuses:
            assert not calls(dropped) and dropped.finish_reason == "length"
        else:
            assert calls(dropped) == calls(kept)
    assert has_call(parse(entry, whole, cut_calls="drop"))


def test_a_marker_that_is_cut_after_its_control_token_is_no_text() -> None:
    template = turnwise.compile(
        "{% for m in messages %}<|open|>{{ m.role }}<|sep|>{% if m.reasoning_content %}<|open|>think<|sep|>"
        "{{ m.reasoning_content }}<|close|>think<|sep|>{% endif %}{{ m.content }}<|close|>message<|sep|>{% endfor %}"
        "{% if add_generation_prompt %}<|open|>assistant<|sep|>{% endif %}"
    )
    whole = "<|open|>think<|sep|>why<|close|>think<|sep|>Aye.<|close|>message<|sep|>"
    for end in range(len(whole)):
        parser = template.parser("")
        for char in whole[:end]:
            parser.feed(char)
        message = parser.close()
        assert "<|close|>" not in str(message.get("reasoning_content")) + str(message["content"])
        if whole[:end].endswith(("<|close|>th", "<|close|>mess")):
            assert message.attempts[-1].status == "cut" and message.finish_reason == "length"
    # Without a control token it may be text.
    assert parse("qwen3", "a </thin")["content"] == "a </thin"


# -- white space

SPACES = {
    # before, between and after two calls: what is left of the content
    ("never", "Aye. ", "", ""): "Aye. ",
    ("calls", "Aye. ", "", ""): "Aye.",
    ("calls", " Aye. ", "", ""): " Aye.",
    ("all", " Aye. ", "", ""): "Aye.",
    ("calls", "Aye. ", " and ", " more "): "Aye.  and  more ",
    ("all", "Aye. ", " and ", " more "): "Aye.  and  more",
    ("calls", "", "", " more"): "more",
    ("never", "", "", " more"): " more",
}


@pytest.mark.parametrize(("strip", "before", "between", "after"), SPACES)
def test_white_space_between_content_and_calls(
    strip: str, before: str, between: str, after: str
) -> None:
    call = "<tool_call>" + SHAPES["object"] + "</tool_call>"
    reply = before + call + between + call + after
    expected = SPACES[strip, before, between, after]
    assert parse("qwen3", reply, strip=strip)["content"] == expected


def test_white_space_of_a_reply_without_calls() -> None:
    for strip, content in (("never", " Aye. "), ("calls", " Aye. "), ("all", "Aye.")):
        assert parse("qwen3", " Aye. <|im_end|>", strip=strip)["content"] == content
    message = parse("qwen3", "<think>\n a \n</think>\n\n b ", strip="all")
    assert (message["reasoning_content"], message["content"]) == ("a", "b")


@pytest.mark.parametrize("option", ["strip", "cut_calls", "calls_in_reasoning", "undeclared_tools"])
def test_an_unknown_choice_is_refused(option: str) -> None:
    with pytest.raises(TurnwiseError, match=option):
        Parser(grammar("qwen3"), **{option: "sometimes"})


# -- values

DAYS = {"type": "object", "properties": {"days": {"type": "array"}, "at": {"type": "object"}}}
PLAN = [{"type": "function", "function": {"name": "tide", "parameters": DAYS}}]
ESCAPED = {
    "[1, 2]": [1, 2],
    '[{\\"id\\": 1}]': [{"id": 1}],
    '"[{\\"id\\": 1}]"': [{"id": 1}],
    '[{\\"id\\": \\"a\\\\nb\\"}]': [{"id": "a\nb"}],
    "[broken": "[broken",
    '"plain"': '"plain"',
}


@pytest.mark.parametrize("text", ESCAPED)
def test_a_declared_list_that_arrives_as_escaped_json(text: str) -> None:
    value = f"<arg_key>days</arg_key><arg_value>{text}</arg_value>"
    message = parse("glm-4.7", f"<tool_call>tide{value}</tool_call>", prompt="", tools=PLAN)
    assert json.loads(calls(message)[0]["arguments"]) == {"days": ESCAPED[text]}


@pytest.mark.parametrize("entry", ["qwen3", "glm-4.7", "gemma-4", "qwen3-coder", "lfm2"])
def test_an_argument_twice_is_malformed_in_every_syntax(entry: str) -> None:
    both = {
        "qwen3": ('"city": "Oslo"', '"city": "Oslo", "city": "Bergen"'),
        "lfm2": ('city="Oslo"', 'city="Oslo", city="Bergen"'),
        "gemma-4": ('city:<|"|>Oslo<|"|>', 'city:<|"|>Oslo<|"|>,city:<|"|>Bergen<|"|>'),
    }
    call = written_call(entry).replace("'", '"')
    if entry in both:
        assert both[entry][0] in call
        reply = call.replace(*both[entry])
    else:
        start = call.index("<arg_key>" if entry == "glm-4.7" else "<parameter=")
        closer = "</arg_value>" if entry == "glm-4.7" else "</parameter>\n"
        end = call.index(closer) + len(closer)
        reply = call[:end] + call[start:end].replace("Oslo", "Bergen") + call[end:]
    message = parse(entry, reply, prompt="")
    (call_,) = calls(message)
    assert json.loads(call_["arguments"]) == {"city": "Bergen"}
    assert call_["arguments"].count("city") == 2
    assert [attempt.status for attempt in message.attempts] == ["malformed"]


# -- formats that a template does not show

JSON_CALL = '{"name": "tide", "arguments": {"city": "Oslo"}}'
DECLARED = {
    "mistral-small-3.1": f"[TOOL_CALLS][{JSON_CALL}]",
    "mistral-large": f"[TOOL_CALLS][{JSON_CALL}]",
    "devstral": f"[TOOL_CALLS][{JSON_CALL}]",
    "minimax-m1": f"<tool_calls>\n{JSON_CALL}\n</tool_calls>",
    "command-r": 'Action: ```json\n[{"tool_name": "tide", "parameters": {"city": "Oslo"}}]\n```',
    "llama-3.1": '<function=tide>{"city": "Oslo"}</function>',
    "glm-4": 'tide\n{"city": "Oslo"}',
    "glm-4-0414": 'tide\n{"city": "Oslo"}',
}


@pytest.mark.parametrize("entry", DECLARED)
def test_models_that_call_have_a_grammar_of_calls(entry: str) -> None:
    message = parse(entry, DECLARED[entry])
    assert has_call(message) and message["content"] is None
    two = parse("minimax-m1", f"<tool_calls>\n{JSON_CALL}\n{JSON_CALL}\n</tool_calls>")
    assert len(calls(two)) == 2 and two["content"] is None


def test_a_declaration_attaches_by_what_a_template_writes() -> None:
    """As vLLM's template of Llama 4 for Python calls, which never names the tokens around them."""
    template = turnwise.compile(
        "{{ bos_token }}{% for m in messages %}<|header_start|>{{ m.role }}<|header_end|>\n\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}[{{ c.function.name }}({% for k, v in c.function.arguments | items %}"
        "{{ k }}={{ v | tojson }}{% endfor %})]{% endfor %}<|eot|>{% endfor %}"
        "{% if add_generation_prompt %}<|header_start|>assistant<|header_end|>\n\n{% endif %}"
    )
    reply = '<|python_start|>[tide(city="Oslo")]<|python_end|><|eot|>'
    for tools in (TIDE, None):
        message = template.parse(reply, tools=tools)
        assert has_call(message) and message["content"] is None


def test_a_call_without_any_marker_is_a_declared_name_and_an_object_on_the_next_line() -> None:
    """As GLM-4 writes it."""
    text = 'tide\n{"city": "Oslo"}'
    declared = {"calls": {"parts": ["{name}", "\n", "{arguments}"]}}
    template = load_entry("chatml")
    for reply, count in ((text, 1), (text + text, 2), (f"\n{text}<|im_end|>", 1)):
        message = template.parse(reply, tools=TIDE, declared=declared)
        assert calls(message) == [{"name": "tide", "arguments": '{"city": "Oslo"}'}] * count
        assert message["content"] is None
    for reply in ("tide\nhigh", 'now\n{"city": "Oslo"}', f"Aye: {text}", "tide"):
        assert template.parse(reply, tools=TIDE, declared=declared)["content"] == reply
    assert template.parse(text, declared=declared)["content"] == text  # no name is declared


def test_the_opener_of_content_may_come_before_calls() -> None:
    declared = {
        "content": ["<|final|>", ""],
        "calls": {"section": ["<|final|>", ""], "each": ["<call>", "</call>"], "json": {}},
        "instead": ["content"],
    }
    template = load_entry("chatml")
    for reply, content in (
        ("<|final|>Aye.", "Aye."),
        (f"<|final|><call>{JSON_CALL}</call>", None),
        (f"<|final|>Aye.<|final|><call>{JSON_CALL}</call>", "Aye."),
    ):
        message = template.parse(reply, tools=TIDE, declared=declared)
        assert message["content"] == content and (content == "Aye." or has_call(message))


def test_the_opener_of_reasoning_in_a_prompt_is_no_opener_of_content() -> None:
    reply = write(
        grammar("nemotron-nano-v2"),
        {"role": "assistant", "content": "Aye.", "reasoning_content": "Hm."},
    )
    assert reply == "Hm.\n</think>\n\nAye.<SPECIAL_12>"


def test_the_end_of_a_reply_is_one_event_of_each_kind() -> None:
    parser = Parser(grammar("qwen3"), prompt="")
    parser.feed("Aye. <tool_")
    assert [event.text for event in parser.close().events] == ["<tool_"]
    parser = Parser(grammar("qwen3"), prompt="")
    parser.feed("<think>a \n</thi")
    assert [event.kind for event in parser.close().events] == ["reasoning"]


def test_tools_without_a_grammar_of_calls_are_a_warning() -> None:
    template = load_entry("chatml")
    assert template.grammar.calls is None
    with pytest.warns(turnwise.TurnwiseWarning, match="no calls are read"):
        template.parse("Aye.", tools=TIDE)
    with pytest.warns(turnwise.TurnwiseWarning, match="no calls are read"):
        template.parser(tools=TIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        template.parse("Aye.")
        template.parse("Aye.", tools=TIDE, declared={"without": ["calls"]})
        template.parse(
            "Aye.", tools=TIDE, declared={"calls": {"each": ["<c>", "</c>"], "json": {}}}
        )


# -- the order of arguments


@pytest.mark.parametrize(
    ("entry", "is_sorted"), [("gemma-4", True), ("functiongemma", True), ("qwen3", False)]
)
def test_a_tool_grammar_has_the_order_of_keys_of_the_template(entry: str, is_sorted: bool) -> None:
    calls = grammar(entry).calls
    assert calls is not None and calls.sorts_keys is is_sorted
    schema = {
        "type": "object",
        "properties": {"when": {"type": "string"}, "at": {"type": "string"}},
    }
    tool = {"type": "function", "function": {"name": "tide", "parameters": schema}}
    (signature,) = read_signatures([tool], calls.sorts_keys)
    names = [name for name, _ in signature.arguments.members]
    assert names == (["at", "when"] if is_sorted else ["when", "at"])
    # The reply that the template writes is one that the grammar of calls accepts.
    message = {
        "tool_calls": [{"function": {"name": "tide", "arguments": {"when": "a", "at": "b"}}}]
    }
    reply = write(grammar(entry), {"role": "assistant", "content": "", **message}, "")
    assert (reply.index("when") > reply.rindex("at")) is is_sorted


# -- escapes

SIGNS = 'a&b"e\\g&amp;&quot;h'


def escaping(filters: str, key_filters: str = "") -> turnwise.Template:
    """A template that writes names and keys as attributes, through these filters."""
    return turnwise.compile(
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
        f'<call name="{{{{ c.function.name{filters} }}}}">'
        "{% for k, v in c.function.arguments | items %}"
        f'<arg key="{{{{ k{key_filters or filters} }}}}">{{{{ v }}}}</arg>'
        "{% endfor %}</call>{% endfor %}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )


@pytest.mark.parametrize(
    "filters",
    [
        "",
        " | replace('&', '&amp;') | replace('\"', '&quot;')",
        " | replace('\"', '&quot;') | replace('<', '&lt;') | replace('&', '+')",
    ],
)
def test_what_a_template_escapes_in_names_and_keys_is_undone(filters: str) -> None:
    template = escaping(filters)
    name = SIGNS if filters else "a&b"
    user = {"role": "user", "content": "Q?"}
    call = {"function": {"name": name, "arguments": {name: "Oslo"}}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    prompt = str(template.render([user], add_generation_prompt=True))
    reply = str(template.render([user, turn])).removeprefix(prompt)
    if "'+'" in filters:
        # What is replaced by a sign that is kept cannot be told from it.
        assert name not in str(template.parse(reply, prompt))
        return
    for size in (1, 3, len(reply)):
        parser = template.parser(prompt)
        for start in range(0, len(reply), size):
            parser.feed(reply[start : start + size])
        (found,) = parser.close()["tool_calls"]
        assert found["function"]["name"] == name
        assert json.loads(found["function"]["arguments"]) == {name: "Oslo"}
    assert write(template.grammar, turn, prompt) == reply


def test_names_and_keys_that_are_escaped_differently_are_not_reached() -> None:
    template = escaping(" | replace('&', '&amp;')", " | replace('&', '+')")
    assert any("signs in names" in note for note in template.grammar.unreached)


def test_a_name_that_is_repeated_otherwise_makes_the_call_malformed() -> None:
    """As in Muse Glimmer, whose calls name the tool in the header and again in a tag."""
    pairs = {"key": "<arg=", "string": [">", "</arg>"], "other": [">", "</arg>"]}
    parts = ["{name}", " begin ", "{index}", ">", "{arguments}"]
    declared = {"calls": {"each": ["<call ", "</call>"], "parts": parts, "pairs": pairs}}
    calls_format = load_entry("chatml").parser(declared=declared).grammar.calls
    assert calls_format is not None and isinstance(calls_format.call, TaggedCall)
    repeated = replace(
        calls_format.call, parts=("name", Marker(" begin "), "name", Marker(">"), "arguments")
    )
    changed = replace(grammar("chatml"), calls=replace(calls_format, call=repeated))
    for second, status in (("tide", "complete"), ("ebb", "malformed")):
        reply = f"<call tide begin {second}><arg=city>Oslo</arg></call>"
        message = Parser(changed, tools=TIDE).read(reply)
        assert has_call(message) and message.attempts[0].status == status


# -- special tokens that no marker has

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ("<|im_end|>", "<|aside_start|>", "<|aside_end|>", "<|reserved_7|>")
BESIDE_CALLS = {
    "around a call": ("<|aside_start|>CALL<|aside_end|>", None),
    "in a row": ("<|aside_start|> <|aside_end|>\nCALL", None),
    "after a line break": ("CALL\n<|aside_end|>", None),
    "after content": ("Aye. <|aside_start|>CALL", "Aye. "),
    "between calls": ("CALL<|aside_start|>CALL", None),
}
FAR_FROM_CALLS = ("<|aside_start|>Aye.<|aside_end|>", "<|reserved_7|>CALL", "Aye <|aside_start|>")


def tokenizer_with(tmp_path: Path, specials: tuple[str, ...]) -> Any:
    data = json.loads(SHIPPED.read_text(encoding="utf-8"))
    first = max(token["id"] for token in data["added_tokens"]) + 1
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    data["added_tokens"] = [
        {"id": first + number, "content": text, "special": True, **flags}
        for number, text in enumerate(specials)
    ]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return tokenizer(path)


def parse_with(template: Any, reply: str, vocabulary: Any) -> Message:
    """Parse a reply as text and as ids, whole and in chunks: the same message, and no character is lost."""
    options = {"tools": TIDE, "tokenizer": vocabulary, "prompt": ""}
    whole = template.parse(reply, **options)
    ids = vocabulary.whole(reply)
    assert template.parse(ids, **options) == whole
    assert "".join(reply[span.start : span.end] for span in whole.spans) == reply
    for chunks in ([reply[at : at + size] for at in range(0, len(reply), size)] for size in SIZES):
        parser = template.parser(**options)
        events = [event for chunk in chunks for event in parser.feed(chunk)]
        message = parser.close()
        assert (message, message.spans, message.attempts) == (whole, whole.spans, whole.attempts)
        events += message.events
        texts = [event.text for event in events if event.kind == "text"]
        assert "".join(texts) == (whole["content"] or "")
    return whole


@pytest.mark.parametrize("case", BESIDE_CALLS)
@pytest.mark.parametrize("entry", ["qwen3", "glm-4.5", "llama-3.1", "lfm2"])
def test_special_tokens_beside_a_call_are_no_content(case: str, entry: str, tmp_path: Path) -> None:
    vocabulary = tokenizer_with(tmp_path, SPECIALS)
    text, content = BESIDE_CALLS[case]
    message = parse_with(load_entry(entry), text.replace("CALL", written_call(entry)), vocabulary)
    assert len(calls(message)) == text.count("CALL") and message["content"] == content
    assert "unnamed" in [attempt.status for attempt in message.attempts]


@pytest.mark.parametrize("text", FAR_FROM_CALLS)
def test_special_tokens_elsewhere_are_content(text: str, tmp_path: Path) -> None:
    vocabulary = tokenizer_with(tmp_path, SPECIALS)
    message = parse_with(
        load_entry("qwen3"), text.replace("CALL", written_call("qwen3")), vocabulary
    )
    assert message["content"] == text.replace("CALL", "")


def test_a_tokenizer_shows_which_calls_a_model_knows(tmp_path: Path) -> None:
    """Llama 4 under a template that writes nothing of its tools."""
    template = turnwise.compile(CHATML)
    vocabulary = tokenizer_with(tmp_path, ("<|im_end|>", "<|python_start|>", "<|python_end|>"))
    reply = '<|python_start|>[tide(city="Oslo")]<|python_end|>'
    assert has_call(parse_with(template, reply, vocabulary))
    assert template.parse(reply, "")["content"] == reply
    both = tokenizer_with(tmp_path, ("<|python_start|>", "[TOOL_CALLS]"))
    assert template.parse(reply, "", tokenizer=both)["content"] == reply, "either may be meant"


def test_a_template_from_a_file_shows_its_family(tmp_path: Path) -> None:
    """Control tokens of Llama 4 that a template does not name, which has the headers of its family."""
    source = CHATML.replace("<|im_start|>", "<|header_start|>").replace("<|im_end|>", "<|eot|>")
    path = tmp_path / "chat_template.jinja"
    path.write_text(source, encoding="utf-8")
    reply = '<|python_start|>[tide(city="Oslo")]<|python_end|><|eot|>'
    for tools in (TIDE, None):
        message = turnwise.load(path).parse(reply, "", tools=tools)
        assert has_call(message) and message["content"] is None


# -- broken calls, and markers of the prompt


@pytest.mark.parametrize("entry", MIXED)
def test_broken_calls_may_be_dropped(entry: str) -> None:
    """A call with a key twice is `malformed`: kept, or dropped with a trace."""
    call = {"name": "tide", "arguments": {"city": "Oslo", "port": "Oslo"}}
    message = {"role": "assistant", "content": "", "tool_calls": [{"function": call}]}
    reply = write(grammar(entry), message, "").replace("port", "city")
    kept = parse(entry, reply, prompt="", cut_calls="drop")
    assert len(calls(kept)) == 1 and kept.attempts[-1].status == "malformed"
    dropped = parse(entry, reply, prompt="", cut_calls="drop_broken")
    assert "tool_calls" not in dropped and dropped.attempts[-1].status == "malformed"
    whole = written_call(entry)
    assert has_call(parse(entry, whole, prompt="", cut_calls="drop_broken"))


def test_a_marker_of_the_prompt_is_content_only_before_text() -> None:
    """Reasoning that is left in the content: an opener that the reply does not use is none of it."""
    marked = replace(
        grammar("qwen3"), reasoning=None, content=Region(Marker("<answer>"), Marker("</answer>"))
    )
    prompt = marked.opening + "<plan>"
    for reply, content in {
        "<answer>Aye.</answer>": "Aye.",
        "Hm.</plan><answer>Aye.</answer>": "<plan>Hm.</plan>Aye.",
    }.items():
        parser = Parser(marked, prompt)
        assert parser.prefill == []
        events = [event for sign in reply for event in parser.feed(sign)]
        message = parser.close()
        texts = [event.text for event in (*events, *message.events) if event.kind == "text"]
        assert "".join(texts) == message["content"] == content


# -- every rule for ten families

FAMILIES = (
    "command-a-tools", "deepseek-v3.1", "gemma-4", "glm-4.7", "gpt-oss", "kimi-k2", "lfm2",
    "minimax-m2", "mistral-v3", "qwen3", "qwen3.5",
)  # fmt: skip


def rename(entry: str) -> Message:
    return parse(entry, written_call(entry).replace("tide", "functions.tide"), prompt="")


def refuse(entry: str) -> Message:
    return parse(
        entry, written_call(entry), prompt="", tools=declare("ebb"), undeclared_tools="refuse"
    )


def cut(choice: str) -> Callable[[str], Message]:
    def parse_cut(entry: str) -> Message:
        call = written_call(entry)
        return parse(entry, call[: call.index("Oslo") + 2], prompt="", cut_calls=choice)

    return parse_cut


def strip(choice: str) -> Callable[[str], Message]:
    def parse_spaces(entry: str) -> Message:
        region, call = grammar(entry).content, written_call(entry)
        content = f"{region.open.text} Aye. {region.close.text}"
        start = "".join(grammar(entry).starts[:1])  # of another message
        return parse(entry, content + start + call.lstrip(), prompt="", strip=choice)

    return parse_spaces


def called(message: Message) -> list[str]:
    return [call["name"] for call in calls(message)]


# A rule, the reply that is read by it, and what must be true of the message.
RULES: dict[str, tuple[Callable[[str], Message], Callable[[Message], bool]]] = {
    "a name space": (rename, lambda found: called(found) == ["tide"]),
    "refused": (refuse, lambda found: not calls(found) and "Oslo" in found["content"]),
    "cut, kept": (cut("keep"), lambda found: called(found) == ["tide"]),
    "cut, dropped": (cut("drop"), lambda found: not calls(found)),
    "cut is a length": (cut("drop"), lambda found: found.finish_reason == "length"),
    "cut has a trace": (cut("drop"), lambda found: found.attempts[-1].status == "unterminated"),
    "space, never": (strip("never"), lambda found: found["content"].strip() == "Aye."),
    "space, calls": (strip("calls"), lambda found: found["content"].lstrip() == "Aye."),
    "space, all": (strip("all"), lambda found: found["content"] == "Aye."),
    "a call after content": (strip("all"), lambda found: called(found) == ["tide"]),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("entry", FAMILIES)
def test_every_rule_holds_for_every_family(entry: str, rule: str) -> None:
    read, is_right = RULES[rule]
    message = read(entry)
    assert is_right(message), (message, message.attempts)
    assert "".join(attempt.raw for attempt in message.attempts), "a rule leaves a trace"


@pytest.mark.parametrize("entry", FAMILIES)
def test_servers_read_as_parsers_do(entry: str) -> None:
    """The chunks of a stream add up to the message that `parse` returns with the same policies."""
    reply, template = "Aye. " + written_call(entry).lstrip(), load_entry(entry)
    policies = {"strip": "calls", "cut_calls": "drop"}
    whole = template.parse(reply, "", TIDE, **policies)
    stream = turnwise.ChunkStream(template.parser("", TIDE, **policies), id="1", model=entry)
    chunks = [chunk for sign in reply for chunk in stream.feed(sign)] + stream.close()
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert stream.message == whole
    texts = [delta.get("content") or "" for delta in deltas]
    assert "".join(texts) == (whole["content"] or "")

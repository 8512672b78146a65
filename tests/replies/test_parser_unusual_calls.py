"""What the reading of calls does with the unusual: ambiguous openers, text where none belongs, things said twice.

Every case is read whole, in all its cuts into two and letter by letter, and must come out the same.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from reply_grammars import GRAMMARS, region, tagged_call
from turnwise.replies.events import MARKER_STATUSES, SPANS, STATUSES, Message
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import Calls, JsonCall, Marker, Pairs
from turnwise.replies.parser.compiled_grammar import CompiledGrammar
from turnwise.replies.parser.markers import MarkerKind, MarkerMatch, MarkerMatcher, MarkerTag
from turnwise.replies.parser.parser import Parser
from turnwise.replies.parser.reply import LOOKAHEAD, looks_like_call


def tools(**types: str) -> list[dict[str, Any]]:
    properties = {key: {"type": kind} for key, kind in types.items()}
    return [
        {
            "type": "function",
            "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
        }
        for name in ("f", "g")
    ]


OFFERED = tools(a="string", b="integer")


def once(grammar: Grammar, chunks: Any, given: Any) -> Message:
    parser = Parser(grammar, "", given)
    for chunk in chunks:
        parser.feed(chunk)
    return parser.close()


def facts(message: Message) -> tuple[Any, ...]:
    return dict(message), message.attempts, message.spans, message.stop


def read(grammar: Grammar, reply: str, given: Any = None) -> Message:
    """The message, which does not depend on the cuts."""
    whole = once(grammar, [reply], given)
    assert "".join(reply[span.start : span.end] for span in whole.spans) == reply
    assert {span.kind for span in whole.spans} <= set(SPANS)
    for chunks in (reply, *([reply[:at], reply[at:]] for at in range(len(reply)))):
        assert facts(once(grammar, chunks, given)) == facts(whole), chunks
    return whole


def calls(message: Message) -> list[tuple[str, Any]]:
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def spans(message: Message, reply: str, kind: str) -> list[str]:
    return [reply[span.start : span.end] for span in message.spans if span.kind == kind]


def statuses(message: Message) -> list[str]:
    assert all(attempt.status in STATUSES for attempt in message.attempts)
    found = [attempt.status for attempt in message.attempts]
    return [status for status in found if status not in MARKER_STATUSES]


# -- text where none belongs

BETWEEN = (
    "</think><tool_call>\n<function=f>\n{}<parameter=a>\nx\n</parameter>\n{}<parameter=b>\n2\n</parameter>\n{}</function>\n"
    "</tool_call><|im_end|>"
)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "stray", ["hello", "hello\n", "<b>", "</parameter>", "0", '{"a": 1}\n', "; "]
)
def test_text_between_arguments_is_kept_and_named(place: int, stray: str) -> None:
    reply = BETWEEN.format(*("" if at != place else stray for at in range(3)))
    message = read(GRAMMARS["qwen3.5"], reply)
    assert calls(message) == [("f", {"a": "x", "b": 2})]
    assert statuses(message) == ["malformed"]
    assert [text.strip() for text in spans(message, reply, "raw")] == [stray.strip()]
    assert not message["content"]


@pytest.mark.parametrize("space", ["", "\n", " \n\t ", "\n\n\n"])
def test_white_space_between_arguments_is_nothing(space: str) -> None:
    reply = BETWEEN.format(space, space, space)
    message = read(GRAMMARS["qwen3.5"], reply)
    assert statuses(message) == ["complete"] and not spans(message, reply, "raw")


def separated_grammar() -> Grammar:
    value = region(">", "</p>")
    pairs = Pairs(Marker("<p="), value, value, between=Marker("; "))
    return Grammar(
        calls=Calls(
            tagged_call("{name}", ">", "{arguments}", pairs=pairs), each=region("<f=", "</f>")
        )
    )


def test_the_sign_that_is_due_between_arguments_is_no_stray_text() -> None:
    reply = "<f=f><p=a>x</p>; <p=b>2</p></f>"
    assert statuses(read(separated_grammar(), reply)) == ["complete"]
    for damaged in (reply.replace("; ", ";; "), reply.replace("; ", "& ")):
        assert statuses(read(separated_grammar(), damaged)) == ["malformed"]


def test_a_type_that_the_template_does_not_know() -> None:
    reply = (
        '</think>\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="{}">x'
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls><｜end▁of▁sentence｜>"
    )
    for word, status in (
        ("true", "complete"),
        ("false", "complete"),
        ("integer", "complete"),
        ("sotrue", "malformed"),
    ):
        message = read(GRAMMARS["deepseek-v3.2"], reply.format(word))
        assert (calls(message), statuses(message)) == ([("f", {"a": "x"})], [status]), word


# -- JSON objects


def one_call(inside: str) -> str:
    return f"<tool_call>\n{inside}\n</tool_call><|im_end|>"


@pytest.mark.parametrize(
    ("inside", "raw"),
    [
        ('{"name": "f", "arguments": {"a": 1}, "arguments": {"b": 2}}', '"arguments": {"b": 2}'),
        ('{"arguments": {"a": 1}, "arguments": {"b": 2}, "name": "f"}', '"arguments": {"b": 2}'),
        ('{"name": "f", "name": "g", "arguments": {"a": 1}}', '"name": "g"'),
        ('{"name": "f", "arguments": {"a": 1}, "name": "g"}', '"name": "g"'),
        ('{"name": "f", "arguments": {"a": 1} garbage}', "garbage}"),
        ('{"name": "f", "arguments": {"a": 1}, "id" 5}', '"id" 5}'),
        ('{"name": "f", "arguments": {"a": 1}, "x": nonsense}', '"x": nonsense}'),
    ],
)
def test_of_what_is_there_twice_the_first_counts(inside: str, raw: str) -> None:
    reply = one_call(inside)
    message = read(GRAMMARS["qwen3"], reply)
    assert (calls(message), statuses(message)) == ([("f", {"a": 1})], ["malformed"])
    assert [text.strip() for text in spans(message, reply, "raw")] == [raw]
    assert not message["content"]


def test_a_member_that_calls_do_not_have_does_no_harm() -> None:
    reply = one_call('{"name": "f", "thought": ["so"], "arguments": {"a": 1}, "type": "function"}')
    message = read(GRAMMARS["qwen3"], reply)
    assert (calls(message), statuses(message)) == ([("f", {"a": 1})], ["complete"])
    assert spans(message, reply, "raw") == ['"thought": ["so"]']


def test_a_key_that_is_there_twice_in_the_arguments_stands_as_written() -> None:
    message = read(GRAMMARS["qwen3"], one_call('{"name": "f", "arguments": {"a": 1, "a": 2}}'))
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a": 1, "a": 2}'
    assert statuses(message) == ["malformed"]


def test_two_names_in_one_object_are_one_call() -> None:
    reply = '<|tools_prefix|>[{"f": {}, "g": {"a": 1}}]<|tools_suffix|><|assistant_end|>'
    message = read(GRAMMARS["apertus"], reply)
    assert (calls(message), statuses(message)) == ([("f", {})], ["malformed"])
    assert spans(message, reply, "raw") == ['"g": {"a": 1}']


# -- openers of signs alone

SIGNED = {
    "((": Grammar(
        calls=Calls(tagged_call("{name}", ": ", "{arguments}"), each=region("((", "))")),
        stops=("<end>",),
    ),
    "[": Grammar(
        calls=Calls(tagged_call("{name}", " ", "{arguments}"), each=region("[", "]")),
        stops=("<end>",),
    ),
    "<": Grammar(
        calls=Calls(tagged_call("{name}", ">", "{arguments}", "</"), each=region("<", ">")),
        stops=("<end>",),
    ),
    "{{": Grammar(calls=Calls(JsonCall(), each=region("{{", "}}")), stops=("<end>",)),
    ">>>": Grammar(
        calls=Calls(tagged_call("{name}", "\n", "{arguments}"), each=region(">>>", "")),
        stops=("<end>",),
    ),
}
WRITTEN = {
    "((": '((f: {"a": 1}))',
    "[": '[f {"a": 1}]',
    "<": '<f>{"a": 1}</>',
    "{{": '{{{"name": "f", "arguments": {"a": 1}}}}',
    ">>>": '>>>f\n{"a": 1}',
}
PROSE = "5 < 6, ((so)) [it] {{is}} [a](b) ((f)) {{f}} <b>f</b> 3 >>> 2 [[ (( {{ < "


@pytest.mark.parametrize("opener", SIGNED)
@pytest.mark.parametrize("given", [None, OFFERED])
@pytest.mark.parametrize("before", ["", "Aye. ", PROSE])
def test_signs_open_a_call_if_one_follows(opener: str, given: Any, before: str) -> None:
    written = WRITTEN[opener]
    message = read(SIGNED[opener], f"{before}{written}{written}<end>", given)
    assert (message["content"] or "", calls(message)) == (before, [("f", {"a": 1})] * 2)
    assert set(statuses(message)) == {"complete"} and message.stop == "<end>"


@pytest.mark.parametrize("opener", SIGNED)
@pytest.mark.parametrize("given", [None, OFFERED])
def test_signs_alone_are_text(opener: str, given: Any) -> None:
    message = read(SIGNED[opener], f"{PROSE}so.<end>", given)
    assert message["content"] == f"{PROSE}so." and not message.attempts


def test_python_calls_after_content_need_the_tools() -> None:
    reply = "See [a link](f) and [f(a='x')]<|eot|>"
    assert calls(read(GRAMMARS["llama-4"], reply, OFFERED)) == [("f", {"a": "x"})]
    assert read(GRAMMARS["llama-4"], reply)["content"] == reply.removesuffix("<|eot|>")


def test_a_marker_may_begin_within_signs_that_are_none() -> None:
    assert calls(read(SIGNED["(("], '(((f: {"a": 1}))<end>')) == [("f", {"a": 1})]
    grammar = Grammar(
        calls=Calls(tagged_call("{name}", ">", "{arguments}"), each=region("\n<", "")),
        stops=("<end>",),
    )
    message = read(grammar, "Aye.\n<end>")
    assert (message["content"], message.stop) == ("Aye.\n", "<end>")


SURROUNDED = (
    'So: {"name": "f", "parameters": {"a": 1}}; {"name": "g", "arguments": {}} Aye?<|eot_id|>'
)
JSON_PROSE = 'So {"name": "Ann", "age": 3}, {x}, {"name": "f"}, {"name": "f", "parameters": 5}, {"name": "f", "a": {}}.'


@pytest.mark.parametrize("given", [None, OFFERED])
def test_json_without_an_opener_is_a_call_after_content_too(given: Any) -> None:
    message = read(GRAMMARS["llama-3.1"], SURROUNDED, given)
    assert (message["content"], calls(message)) == ("So:  Aye?", [("f", {"a": 1}), ("g", {})])
    assert read(GRAMMARS["llama-3.1"], JSON_PROSE, given)["content"] == JSON_PROSE
    others = [{"type": "function", "function": {"name": "other"}}]
    assert "tool_calls" not in read(GRAMMARS["llama-3.1"], SURROUNDED, others)


def test_the_bracket_of_a_list_ends_it() -> None:
    one, two = '{"name": "f", "arguments": {}}', '{"name": "g", "arguments": {}}'
    message = read(
        Grammar(calls=Calls(JsonCall(listed=True)), stops=("<|end|>",)), f"[{one}, {two}]<|end|>"
    )
    assert calls(message) == [("f", {}), ("g", {})] and message["content"] is None


def test_it_is_decided_within_a_few_characters() -> None:
    format = CompiledGrammar(SIGNED["(("]).call_formats[0]
    assert looks_like_call("f", format, ["f"], is_last=False) is None
    assert looks_like_call("f", format, ["f"], is_last=True) is False
    assert looks_like_call("f:", format, ["f"], is_last=False) is True
    assert looks_like_call("f: {", format, [], is_last=False) is True
    assert looks_like_call("x" * LOOKAHEAD, format, [], is_last=False) is False


# -- literals


def test_a_closer_within_quotes_is_none() -> None:
    value = region(">", "</p>")
    pairs = Pairs(Marker("<p="), value, value, strings="json")
    grammar = Grammar(
        calls=Calls(
            tagged_call("{name}", ">", "{arguments}", pairs=pairs), each=region("<f=", "</f>")
        )
    )
    tags = read(grammar, '<f=f><p=a>"</p></f>"</p><p=b>2</p><p=c>plain</p></f>')
    assert (calls(tags), statuses(tags)) == (
        [("f", {"a": "</p></f>", "b": 2, "c": "plain"})],
        ["complete"],
    )


# -- parts in another order, and things around calls

ORDERS = {
    "the name after the arguments": (
        ("{arguments}", " -> ", "{name}"),
        '<c>{"a": 1} -> f</c>',
        "call00000",
    ),
    "the id after the arguments": (
        ("{name}", ":", "{arguments}", "#", "{id}"),
        '<c>f:{"a": 1}#x7</c>',
        "x7",
    ),
    "the name twice": (
        ("{name}", ":", "{arguments}", "/", "{name}"),
        '<c>f:{"a": 1}/f</c>',
        "call00000",
    ),
}


@pytest.mark.parametrize("order", ORDERS)
def test_parts_in_any_order(order: str) -> None:
    parts, reply, identity = ORDERS[order]
    grammar = Grammar(calls=Calls(tagged_call(*parts), each=region("<c>", "</c>")))
    message = read(grammar, f"{reply}{reply}")
    assert calls(message) == [("f", {"a": 1})] * 2
    assert statuses(message) == ["complete"] * 2 and message["tool_calls"][0]["id"] == identity


def test_a_name_that_is_repeated_wrongly() -> None:
    grammar = Grammar(
        calls=Calls(tagged_call(*ORDERS["the name twice"][0]), each=region("<c>", "</c>"))
    )
    assert statuses(read(grammar, "<c>f:{}/g</c>")) == ["malformed"]
    assert statuses(read(grammar, "<c>f:{}/g")) == ["unterminated"]
    assert statuses(read(grammar, f"<c>f:{{}}/{'g' * 600}</c>")) == ["malformed"]


def test_a_call_that_begins_with_its_name() -> None:
    grammar = Grammar(
        opening="<to>",
        content=region("all<body>", ""),
        calls=Calls(tagged_call("{name}", "<body>", "{arguments}")),
        starts=("<to>",),
        stops=("<end>",),
    )
    for given in (None, OFFERED):
        message = read(grammar, 'all<body>Aye.<to>f<body>{"a": 1}<to>g<body>{}<end>', given)
        assert (message["content"], calls(message)) == ("Aye.", [("f", {"a": 1}), ("g", {})])
        assert read(grammar, "f<body>{}<end>", given)["content"] is None


def test_one_marker_and_two_layouts() -> None:
    grammar = Grammar(
        calls=Calls(JsonCall(listed=True), section=region("[CALLS]", "")),
        more=(Calls(tagged_call("{name}", "[ARGS]", "{arguments}"), each=region("[CALLS]", "")),),
    )
    for reply in (
        '[CALLS][{"name": "f", "arguments": {"x": 1}}]',
        '[CALLS]f[ARGS]{"x": 1}',
        '[CALLS] f{"x": 1}',
    ):
        message = read(grammar, reply)
        assert (calls(message), message["content"]) == ([("f", {"x": 1})], None)


@pytest.mark.parametrize("marks", [("Answer:", "Done."), ("«", "»"), ("{{answer}}", "{{/answer}}")])
def test_content_that_was_opened_ends_with_its_closer_whatever_that_looks_like(
    marks: tuple[str, str],
) -> None:
    each = region("<c>", "</c>")
    grammar = Grammar(content=region(*marks), calls=Calls(JsonCall(), each=each), stops=("<end>",))
    call = '<c>{"name": "f", "arguments": {}}</c>'
    message = read(grammar, f"{marks[0]}Aye.{marks[1]}{call}<end>")
    assert (message["content"], calls(message)) == ("Aye.", [("f", {})])
    assert read(grammar, f"Aye.{marks[1]}<end>")["content"] in ("Aye.", f"Aye.{marks[1]}")


@pytest.mark.parametrize("ends", ["END", "§§", "{{/calls}}", "</calls>"])
def test_a_section_of_calls_without_openers_ends_whatever_its_end_looks_like(ends: str) -> None:
    for listed, inside in (
        (True, '[{"name": "f", "arguments": {}}]'),
        (False, '{"name": "f", "arguments": {}}'),
    ):
        calls_ = Calls(JsonCall(listed=listed), section=region("<calls>", ends))
        message = read(Grammar(calls=calls_, stops=("<end>",)), f"<calls>{inside}{ends}So.<end>")
        assert (message["content"], calls(message)) == ("So.", [("f", {})])


# -- the rest


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        (" \n ", " \n "),
        (" \n <|im_end|>", " \n "),
        ("<think>\n \n</think>\n\n  <|im_end|>", "  "),
        ("<|im_end|>", ""),
        ("", ""),
        (" </think>\n\n<|im_end|>", ""),
    ],
)
def test_content_of_blanks_only(reply: str, content: str) -> None:
    message = read(GRAMMARS["qwen3"], reply)
    assert message["content"] == content
    assert spans(message, reply, "text") == ([content] if content else [])


@pytest.mark.parametrize(
    ("reply", "stop", "content"),
    [
        ("<|channel|>final<|message|>Aye.<|return|>", "<|return|>", "Aye."),
        (
            "<|channel|>final<|message|>Aye.<|end|>",
            None,
            "Aye.",
        ),  # the end of a message, not of the reply
        ("<|channel|>final<|message|>Aye.<|call|>", "<|call|>", "Aye."),
        (" to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "<|call|>", None),
        (
            " to=functions.f<|channel|>commentary json<|message|>{}<|call|><|start|>assistant<|channel|>final"
            "<|message|>Aye.<|return|>",
            "<|call|>",  # the first one ended the reply
            "Aye.",
        ),
    ],
)
def test_the_stops_of_a_template_with_channels(
    reply: str, stop: str | None, content: str | None
) -> None:
    message = read(GRAMMARS["gpt-oss"], reply)
    assert (message.stop, message["content"]) == (stop, content)
    assert set(statuses(message)) <= {"complete"}


def test_a_matcher_with_a_limit() -> None:
    """It finds what starts within the limit, however long it is, and nothing after that."""
    close = MarkerTag(MarkerKind.VALUE_CLOSE)
    matcher = MarkerMatcher([("</key>", close)])
    assert matcher.find("abc</key>", 0, True, 3) == (MarkerMatch(close, 3, 9), 3)
    assert matcher.find("abcd</key>", 0, True, 3)[0] is None
    assert matcher.find("xxabc</key>", 2, True, 3) == (MarkerMatch(close, 5, 11), 5)
    assert matcher.find("abc</ke", 0, False, 3) == (None, 3)  # it may still come
    assert matcher.find("a" * 1000 + "</key>", 0, False, 3)[0] is None


def test_a_key_that_is_too_long_is_no_key() -> None:
    reply = BETWEEN.format("", "", "").replace("<parameter=a>", f"<parameter={'k' * 300}>")
    assert statuses(read(GRAMMARS["qwen3.5"], reply)) == ["malformed"]


def test_content_after_its_header_has_no_other_header() -> None:
    message = read(GRAMMARS["gpt-oss"], "<|channel|>final<|message|>to=functions.now is the name.")
    assert message["content"] == "to=functions.now is the name." and "tool_calls" not in message

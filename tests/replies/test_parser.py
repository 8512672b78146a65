"""Laws of the parser, on grammars written by hand: cutting never matters, nothing is taken back, nothing is lost."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vocabularies
from loaded import load_entry
from parsing import parse
from reply_grammars import EXAMPLES, GRAMMARS, Example
from timing import assert_linear, assert_quick
from turnwise.errors import TokenizerError
from turnwise.replies.events import SPANS, STATUSES, Attempt, Event, Message
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import Calls, JsonCall, Marker, Pairs, Region, TaggedCall
from turnwise.replies.parser import ALL_TOLERANCES, Parser
from turnwise.replies.parser.markers import common_tag_suffix
from turnwise.replies.parser.text_values import coerce
from turnwise.replies.parser.values import MAX_DEPTH, ValueParser, to_json

IDS = [f"{example.grammar}-{at}" for at, example in enumerate(EXAMPLES)]
EACH = pytest.mark.parametrize("example", EXAMPLES, ids=IDS)
MARKERS = sorted(
    {
        piece
        for example in EXAMPLES
        for piece in example.reply.replace(">", ">\0").split("\0")
        if piece
    }
)


def read(grammar: str, chunks: Iterable[Any], **more: Any) -> tuple[list[Event], Message]:
    parser = Parser(GRAMMARS[grammar], **more)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    message = parser.close()
    return [*parser.prefill, *events, *message.events], message


def join_events(events: Iterable[Event]) -> dict[str, Any]:
    """Return the message that the stream's deltas add up to."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for event in events:
        for key, value in event.delta().items():
            if key == "tool_calls":
                for part in value:
                    if part["index"] == len(message["tool_calls"]):
                        message["tool_calls"].append({"id": None, "name": "", "arguments": ""})
                    call = message["tool_calls"][part["index"]]
                    call["id"] = part.get("id") or call["id"]
                    call["name"] += part.get("function", {}).get("name") or ""
                    call["arguments"] += part.get("function", {}).get("arguments") or ""
            else:
                message[key] += value
    return message


def to_comparable(message: Message) -> dict[str, Any]:
    """The same of a finished message."""
    calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", [])]
    return {
        "content": message["content"] or "",
        "reasoning_content": message.get("reasoning_content", ""),
        "tool_calls": calls,
    }


def everything(message: Message) -> tuple[Any, ...]:
    return dict(message), message.attempts, message.spans, message.stop


def check(grammar: str, reply: str, chunks: Iterable[str], whole: Message) -> None:
    events, message = read(grammar, chunks)
    assert everything(message) == everything(whole)
    assert join_events(events) == to_comparable(message) or is_unfinished(message)
    tiles(message, reply)


def is_unfinished(message: Message) -> bool:
    """Whether a call has no end, hence perhaps no id yet."""
    return any(attempt.status in ("unterminated", "malformed") for attempt in message.attempts)


def tiles(message: Message, reply: str) -> None:
    assert [span.start for span in message.spans] == [0, *(span.end for span in message.spans)][
        : len(message.spans)
    ]
    assert (message.spans[-1].end if message.spans else 0) == len(reply)
    assert {span.kind for span in message.spans} <= set(SPANS)
    for attempt in message.attempts:
        assert attempt.raw == reply[attempt.start : attempt.end]
        assert attempt.status in STATUSES


@EACH
def test_examples(example: Example) -> None:
    _, message = read(example.grammar, [example.reply])
    calls = tuple(
        (c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in message.get("tool_calls", ())
    )
    assert (message["content"], message.get("reasoning_content"), calls) == (
        example.content, example.reasoning, example.calls,
    )  # fmt: skip
    assert all(attempt.status == "complete" for attempt in message.attempts)
    assert message.stop is not None


@pytest.mark.law(6)
@EACH
def test_every_cut(example: Example) -> None:
    reply = example.reply
    whole = parse(GRAMMARS[example.grammar], reply)
    for at in range(len(reply) + 1):
        check(example.grammar, reply, [reply[:at], reply[at:]], whole)
    check(example.grammar, reply, reply, whole)
    for size in (2, 3, 7):
        check(
            example.grammar,
            reply,
            [reply[at : at + size] for at in range(0, len(reply), size)],
            whole,
        )


@st.composite
def replies(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    """A reply made of pieces of real ones, of any model, in any order, and one way to cut it."""
    grammar = draw(st.sampled_from(sorted(GRAMMARS)))
    pieces = st.one_of(
        st.sampled_from(MARKERS),
        st.text(max_size=8),
        st.sampled_from(["\n", " ", "{", '"', "[", "\\"]),
    )
    start = draw(st.sampled_from(["", *(e.reply for e in EXAMPLES if e.grammar == grammar)]))
    text = start[: draw(st.integers(0, len(start)))] + "".join(draw(st.lists(pieces, max_size=8)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return grammar, text, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@settings(max_examples=400, deadline=None)
@given(replies())
def test_any_text_any_cut(case: tuple[str, str, list[str]]) -> None:
    """Streams are equal however they are cut, and equal to the whole unless that has an unopened closer."""
    grammar, text, chunks = case
    _, streamed = read(grammar, [text])
    check(grammar, text, chunks, streamed)
    check(grammar, text, text, streamed)
    whole = parse(GRAMMARS[grammar], text)
    tiles(whole, text)
    found = find_unopened(whole)
    assert found <= find_unopened(streamed)
    if not found:
        assert everything(whole) == everything(streamed)


def find_unopened(message: Message) -> set[Attempt]:
    return {attempt for attempt in message.attempts if attempt.status == "unopened"}


@EACH
def test_prefixes_are_monotone_and_never_raise(example: Example) -> None:
    last: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for size in range(len(example.reply) + 1):
        message = parse(GRAMMARS[example.grammar], example.reply[:size])
        now = to_comparable(message)
        joined = join_events([*Parser(GRAMMARS[example.grammar]).feed(example.reply[:size])])
        for key in ("content", "reasoning_content"):
            assert now[key].startswith(joined[key])
            assert now[key].startswith(last[key]) or last[key].rstrip("<[|{ \n") in now[key]
        assert len(now["tool_calls"]) >= len(last["tool_calls"])
        for before, after in zip(last["tool_calls"], now["tool_calls"], strict=False):
            assert after["name"] == before["name"]
            assert after["arguments"].startswith(before["arguments"])
        last = {**now, **{key: joined[key] for key in ("content", "reasoning_content")}}


@EACH
def test_truncation_is_named(example: Example) -> None:
    for size in range(len(example.reply)):
        message = parse(GRAMMARS[example.grammar], example.reply[:size])
        for call, attempt in zip(message.get("tool_calls", ()), message.attempts, strict=False):
            try:
                json.loads(call["function"]["arguments"])
            except ValueError:
                assert attempt.status == "unterminated"


# -- the prompt


@pytest.mark.parametrize(
    ("prompt", "reasoning", "content"),
    [
        (None, None, "Hm.\nYes."),
        ("<|im_start|>assistant\n", None, "Hm.\nYes."),
        ("<|im_start|>assistant\n<think>\n", "Hm.\nYes.", ""),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", None, "Hm.\nYes."),
        ("<|im_start|>assistant\n<think>\nSo: ", "So: Hm.\nYes.", ""),
        ("<|im_start|>assistant\n<think>\nSo.\n</think>\n\nWell: ", "So.", "Well: Hm.\nYes."),
    ],
)
def test_the_prompt_says_where_the_reply_begins(
    prompt: str | None, reasoning: str | None, content: str
) -> None:
    events, message = read("qwen3", ["Hm.\nYes."], prompt=prompt)
    assert (message.get("reasoning_content"), message["content"]) == (reasoning, content)
    assert join_events(events) == to_comparable(message)
    assert message.spans[-1].end == len("Hm.\nYes.")


def test_opened_by_the_prompt_or_by_the_reply_is_the_same() -> None:
    opened = parse(
        GRAMMARS["qwen3"], "Hm.\n</think>\n\nYes.", prompt="<|im_start|>assistant\n<think>\n"
    )
    assert opened == parse(
        GRAMMARS["qwen3"], "<think>\nHm.\n</think>\n\nYes.", prompt="<|im_start|>assistant\n"
    )


# -- types


def tool(**types: Any) -> list[dict[str, Any]]:
    properties = {
        key: value if isinstance(value, dict) else {"type": value} for key, value in types.items()
    }
    return [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"type": "object", "properties": properties}},
        }
    ]


def write_tagged_call(value: str) -> str:
    return f"</think>\n\n<tool_call>\n<function=f>\n<parameter=x>\n{value}\n</parameter>\n</function>\n</tool_call>"


@settings(deadline=None)
@given(
    st.one_of(
        st.sampled_from(["123", "null", " x ", "\n", "true", "[1]", '{"a": 1}', "\ta\n", ""]),
        st.text(),
    )
)
def test_a_declared_string_is_verbatim(value: str) -> None:
    if "</parameter>" in value:
        return
    message = parse(GRAMMARS["qwen3.5"], write_tagged_call(value), tools=tool(x="string"))
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"x": value}


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("5", "integer", 5),
        (" 420 ", "integer", 420),
        ("5.5", "number", 5.5),
        ("True", "boolean", True),
        ("yes", "boolean", "yes"),
        ("[1, 2]", "array", [1, 2]),
        ("{'a': None}", "object", {"a": None}),
        ("null", {"type": ["string", "null"]}, None),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("12", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "12"),
        ("b", {"enum": ["a", "b"]}, "b"),
        ("3", {"enum": [1, 3]}, 3),
        ("x", "integer", "x"),
        ("3", {"const": "3"}, "3"),
        ("3", {"const": 3}, 3),
        ("3", {"enum": ["3", "4"]}, "3"),
    ],
)
def test_declared_types(value: str, schema: Any, expected: Any) -> None:
    message = parse(GRAMMARS["qwen3.5"], write_tagged_call(value), tools=tool(x=schema))
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"x": expected}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("12", 12),
        ("007", "007"),
        ("true", True),
        ("True", "True"),
        ('"q"', '"q"'),
        ("{1}", "{1}"),
        ("[1]", [1]),
        ("-", "-"),
    ],
)
def test_undeclared_types_follow_one_rule(value: str, expected: Any) -> None:
    assert json.loads(coerce(value, frozenset())) == expected
    message = parse(GRAMMARS["qwen3.5"], write_tagged_call(value))
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"x": expected}


# -- the reader of values

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def read_value(text: str, cuts: Sequence[int], **more: Any) -> str:
    parser, buffer, out = ValueParser(**more), "", ""
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        buffer += text[start:end]
        buffer = buffer[parser.feed(buffer, 0) :]
        out += parser.take()
    assert parser.done and not buffer, (parser.error, buffer)
    return out


@settings(deadline=None)
@given(
    st.dictionaries(st.text(), VALUES, max_size=4),
    st.lists(st.integers(0, 400), max_size=6),
    st.sampled_from([None, 2]),
)
def test_json_goes_through_as_it_stands(value: Any, cuts: list[int], indent: int | None) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
        assert read_value(text, sorted(min(cut, len(text)) for cut in cuts)) == text


@settings(deadline=None)
@given(st.dictionaries(st.text(), VALUES, max_size=4), st.lists(st.integers(0, 400), max_size=6))
def test_python_literals_become_json(value: Any, cuts: list[int]) -> None:
    text = repr(value)
    assert (
        json.loads(read_value(text, sorted(min(cut, len(text)) for cut in cuts), syntax="python"))
        == value
    )


@pytest.mark.parametrize("syntax", ["json", "python", "quoted"])
def test_strange_white_space_is_the_same_whatever_the_cuts(syntax: str) -> None:
    text = '{"a":\u2028 \u20281\u00a0\u00a0,\n\u3000\u3000"b"\x0b\x0c: \x85[ true\u2003\u2003] }'
    whole = read_value(text, [], syntax=syntax)
    assert json.loads(whole) == {"a": 1, "b": [True]}
    assert all(
        read_value(text, cuts, syntax=syntax) == whole for cuts in ([at] for at in range(len(text)))
    )
    assert read_value(text, range(1, len(text)), syntax=syntax) == whole


def test_markers_within_strings_are_text() -> None:
    value = '</tool_call><tool_call>\n{"name": "g"}<|im_end|>'
    text = f'<tool_call>\n{{"name": "f", "arguments": {json.dumps({"x": value})}}}\n</tool_call>'
    message = parse(GRAMMARS["qwen3"], text)
    assert [json.loads(c["function"]["arguments"]) for c in message["tool_calls"]] == [{"x": value}]


# -- bad input

BAD = {
    "unterminated JSON": (
        "qwen3",
        '<tool_call>\n{"name": "f", "arguments": {"x": "',
        "unterminated",
    ),
    "brackets": ("qwen3", '<tool_call>\n{"name": "f", "arguments": ' + "[" * 100_000, "malformed"),
    "brackets in a name": ("glm-4.6", "<tool_call>" + "[" * 100_000, "unreadable"),
    "no JSON at all": ("qwen3", "<tool_call>\nhello\n</tool_call> and on", "unreadable"),
    "missing comma": (
        "qwen3",
        '<tool_call>\n{"name": "f", "arguments": {"x": 1 "y": 2}}\n</tool_call>',
        "malformed",
    ),
    "no arguments": (
        "kimi-k2",
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
        "unterminated",
    ),
    "code": (
        "gpt-oss",
        " to=functions.f<|channel|>commentary<|message|>print(1)<|call|>",
        "malformed",
    ),
    "a built-in tool": (
        "gpt-oss",
        " to=container.exec<|channel|>commentary<|message|>ls<|end|>",
        "malformed",
    ),
    "another tool": (
        "qwen3",
        '<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call>',
        "unknown",
    ),
    "no closer": ("qwen3", '<tool_call>\n{"name": "f", "arguments": {}}', "unclosed"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_a_message_with_a_status(name: str) -> None:
    grammar, reply, status = BAD[name]
    assert_quick(lambda: parse(GRAMMARS[grammar], reply, tools=tool()), 1)
    message = parse(GRAMMARS[grammar], reply, tools=tool())
    assert [attempt.status for attempt in message.attempts] == [status]
    tiles(message, reply)
    if status == "unreadable":
        assert message["content"] == reply


def test_arguments_that_cannot_be_read_stand_as_they_were_written() -> None:
    message = parse(GRAMMARS["qwen3"], BAD["missing comma"][1])
    assert message["tool_calls"][0]["function"]["arguments"].startswith('{"x": 1 "y": 2}')


def one_call(arguments: str) -> str:
    return f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a":NaN, "b": 2}',
        '{"a": 1, ;}',
        '{"a": [1, 2,, 3]}',
        '{"a": tru}',
        '{"a": 1,  <b>}',
        "nul",
        "[1, x]",
        "{]",
    ],
)
def test_nothing_of_bad_arguments_is_lost(arguments: str) -> None:
    reply = one_call(arguments)
    whole = parse(GRAMMARS["qwen3"], reply)
    assert [attempt.status for attempt in whole.attempts] == ["malformed"]
    expected = (
        arguments + "}" if arguments == "{]" else arguments
    )  # whose brace it is cannot be known
    assert whole["tool_calls"][0]["function"]["arguments"] == expected
    check("qwen3", reply, reply, whole)
    for at in range(len(reply)):
        check("qwen3", reply, [reply[:at], reply[at:]], whole)


@pytest.mark.parametrize(
    "arguments", ["[1]", "5", '"hi"', "true", "[]", '"[1]"', "null", "None", "{}"]
)
def test_arguments_are_an_object_or_nothing(arguments: str) -> None:
    kimi = (
        f"<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
    )
    late = f'<tool_call>\n{{"arguments": {arguments}, "name": "f"}}\n</tool_call>'
    fine = arguments in ("null", "None", "{}")
    for grammar, reply in (("qwen3", one_call(arguments)), ("qwen3", late), ("kimi-k2", kimi)):
        whole = parse(GRAMMARS[grammar], reply)
        assert [attempt.status for attempt in whole.attempts] == [
            "complete" if fine else "malformed"
        ]
        assert whole["tool_calls"][0]["function"]["arguments"] in (
            ["{}"] if fine else [arguments, arguments[1:-1]]
        )
        for at in range(len(reply)):
            check(grammar, reply, [reply[:at], reply[at:]], whole)


@pytest.mark.parametrize("grammar", sorted(GRAMMARS))
def test_a_reply_from_another_model(grammar: str) -> None:
    for example in EXAMPLES:
        message = parse(GRAMMARS[grammar], example.reply)
        tiles(message, example.reply)
        assert {attempt.status for attempt in message.attempts} <= set(STATUSES)


@pytest.mark.parametrize("off", sorted(ALL_TOLERANCES))
def test_every_tolerance_can_be_switched_off(off: str) -> None:
    for example in EXAMPLES:
        message = parse(GRAMMARS[example.grammar], example.reply, tolerances=ALL_TOLERANCES - {off})
        tiles(message, example.reply)


def spaced_grammar() -> Grammar:
    """A grammar with blanks in its tags."""
    value = Region(Marker('">'), Marker("</param>"))
    call = TaggedCall(
        ("name", Marker('">'), "arguments"), Pairs(Marker('<param name="'), value, value)
    )
    return Grammar(
        calls=Calls(call, each=Region(Marker('<function name="'), Marker("</function>")))
    )


EDITION = Grammar(
    reasoning=Region(Marker("<think:open>"), Marker("</think:open>")),
    calls=Calls(JsonCall(), each=Region(Marker("<call:open>"), Marker("</call:open>"))),
)
SLIPS = {  # tolerance: a grammar, a reply, and its arguments
    "blanks": (spaced_grammar(), '<functionname="f"><paramname="x">1</param></function>', {"x": 1}),
    "blanks as signs": (
        spaced_grammar(),
        '<functionĠname="f"><paramĠname="x">1</param></function>',
        {"x": 1},
    ),
    "suffixes": (EDITION, '<call>{"name": "f", "arguments": {"x": 1}}</call>', {"x": 1}),
    "quotes": (
        GRAMMARS["lfm2"],
        """<|tool_call_start|>[f(x='sed -n '1,2p' a', y="say "so" (or 'no')")]<|tool_call_end|>""",
        {"x": "sed -n '1,2p' a", "y": "say \"so\" (or 'no')"},
    ),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_forgiven_unless_it_is_switched_off(slip: str) -> None:
    grammar, reply, arguments = SLIPS[slip]
    message = parse(grammar, reply)
    assert [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]] == [
        arguments
    ]
    tiles(message, reply)
    for size in (1, 2, 3):
        parser = Parser(grammar)
        for at in range(0, len(reply), size):
            parser.feed(reply[at : at + size])
        assert everything(parser.close()) == everything(message)
    strict = parse(grammar, reply, tolerances=ALL_TOLERANCES - {slip.partition(" ")[0]})
    assert strict.get("tool_calls") != message["tool_calls"]
    tiles(strict, reply)


def test_a_suffix_is_one_only_if_all_tags_have_it() -> None:
    assert (
        common_tag_suffix(["<think:open>", "</think:open>", "<call:open>", "</call:open>"])
        == ":open"
    )
    assert common_tag_suffix(["<mini:call>", "</mini:call>", '<invoke name="', "</invoke>"]) == ""
    assert common_tag_suffix(["<seed:think>", "</seed:think>", "<seed:call>", "<function=f>"]) == ""


def test_depth_is_limited() -> None:
    assert to_json("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert to_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)) is None


# -- ids


class Bytes:
    """A tokenizer of single bytes, with control tokens above them."""

    def __init__(self, controls: Sequence[str]) -> None:
        self.added = {
            text: SimpleNamespace(id=256 + at, text=text) for at, text in enumerate(controls)
        }
        self.texts = {token.id: text for text, token in self.added.items()}

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def token(self, id: int) -> str | None:
        return self.texts.get(id) or (chr(id) if id < 256 else None)

    def ids(self, *parts: str) -> list[int]:
        """Parts that are control tokens become one id; all else becomes bytes."""
        return [
            id
            for part in parts
            for id in ([self.added[part].id] if part in self.added else part.encode())
        ]


CONTROLS = Bytes(["<think>", "</think>", "<tool_call>", "</tool_call>", "<|im_end|>"])


def test_an_unopened_closer_among_ids() -> None:
    ids = CONTROLS.ids("Say ", *"</think>", ".\n", "</think>", "☀")
    whole = parse(GRAMMARS["qwen3"], ids, tokenizer=CONTROLS)
    assert (whole["reasoning_content"], whole["content"]) == ("Say </think>.", "☀")
    _, streamed = read("qwen3", ids, tokenizer=CONTROLS)
    assert streamed["content"] == "Say </think>.\n</think>☀"
    assert streamed.attempts == whole.attempts


def test_only_control_ids_are_markers() -> None:
    ids = CONTROLS.ids(
        "Write it as ", *"<tool_call>", "{}\n", *"</tool_call>", ": ☀ ",
        "<tool_call>", '\n{"name": "f", "arguments": {"x": "', *"</tool_call>", 'é"}}\n', "</tool_call>", "<|im_end|>",
    )  # fmt: skip
    whole = parse(GRAMMARS["qwen3"], ids, tokenizer=CONTROLS)
    assert whole["content"] == "Write it as <tool_call>{}\n</tool_call>: ☀ "
    assert json.loads(whole["tool_calls"][0]["function"]["arguments"]) == {"x": "</tool_call>é"}
    assert (len(whole["tool_calls"]), whole.stop) == (1, "<|im_end|>")
    text = "".join(CONTROLS.texts.get(id) or chr(id) for id in ids).encode("latin-1").decode()
    tiles(whole, text)
    for size in (1, 2, 3, 5):
        events, message = read(
            "qwen3", [ids[at : at + size] for at in range(0, len(ids), size)], tokenizer=CONTROLS
        )
        assert everything(message) == everything(whole)
        assert join_events(events) == to_comparable(message)
        assert not any("\ufffd" in event.text for event in events)


def test_broken_characters_end_somewhere() -> None:
    message = parse(GRAMMARS["qwen3"], [0xE2, 0x98, *b"ab", 0xF0, 0x9F], tokenizer=CONTROLS)
    assert message["content"].replace("\ufffd", "") == "ab"


def test_ids_need_a_tokenizer() -> None:
    with pytest.raises(TokenizerError):
        Parser(GRAMMARS["qwen3"]).feed([1, 2])


def test_ids_outside_the_vocabulary_are_shown() -> None:
    ids = [*b"a", 10**6, *b"b", 0xE2, 2**40, *b"c"]
    for chunks in ([ids], ids):
        _, message = read("qwen3", chunks, tokenizer=CONTROLS)
        assert message["content"] == "a\ufffdb\ufffd\ufffdc"
    assert load_entry("qwen3").parse([10**9], tokenizer="turnwise")["content"] == "\ufffd"


# With a real vocabulary: where it is, and the template whose markers it knows.
REAL = [
    ("turnwise", "qwen3"),
    *(("qwen3", "qwen3") for name in vocabularies.REAL if name == "qwen3"),
]
TURN = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": "I look ☀ — 你好.",
        "reasoning_content": "Which city?\nOslo.",
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": "f", "arguments": {"x": "Øslo \n 12", "n": 7}},
            }
        ],
    },
]


@pytest.mark.parametrize(("vocabulary", "name"), REAL)
def test_a_rendered_reply_comes_back_from_its_ids(vocabulary: str, name: str) -> None:
    known, template = vocabularies.load(vocabulary), load_entry(name)
    prompt = template.render(TURN[:1], add_generation_prompt=True)
    reply = str(template.render(TURN)).removeprefix(str(prompt))
    ids = known.whole(reply)
    assert any(id in {token.id for token in known.added.values()} for id in ids)
    whole = parse(template.grammar, ids, prompt, tokenizer=known)
    assert everything(whole) == everything(parse(template.grammar, reply, prompt))
    assert (
        whole["reasoning_content"] == TURN[1]["reasoning_content"]
        and whole["content"] == TURN[1]["content"]
    )
    assert json.loads(whole["tool_calls"][0]["function"]["arguments"]) == {
        "x": "Øslo \n 12",
        "n": 7,
    }
    for size in (1, 2, 3):
        parser = Parser(template.grammar, prompt, tokenizer=known)
        events = [
            event for at in range(0, len(ids), size) for event in parser.feed(ids[at : at + size])
        ]
        message = parser.close()
        assert everything(message) == everything(whole)
        assert join_events([*parser.prefill, *events, *message.events]) == to_comparable(message)


@pytest.mark.parametrize(("vocabulary", "name"), REAL)
def test_look_alike_text_of_a_real_vocabulary_stays_text(vocabulary: str, name: str) -> None:
    known, template = vocabularies.load(vocabulary), load_entry(name)
    text = "Stop with <|im_end|>"
    if "<tool_call>" in known.added:
        text += ', call with <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    text += " and so on."
    ids = [*known.encode(text), known.added["<|im_end|>"].id]
    message = parse(template.grammar, ids, tokenizer=known)
    assert message["content"] == text and "tool_calls" not in message
    assert message.stop == "<|im_end|>"
    assert parse(template.grammar, text)["content"] != text  # as text alone it is ambiguous


# -- size


def feed_characters(grammar: str, reply: str) -> None:
    parser = Parser(GRAMMARS[grammar])
    for char in reply:
        parser.feed(char)
    parser.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["text", "json", "tagged", "quoted", "python", "spaces", "markers", "calls"]
)
def test_time_is_linear(kind: str) -> None:
    def reply(size: int) -> tuple[str, str]:
        text = ("It is fine today, 20 < 30; see\n\n" * (size // 30))[:size]
        return {
            "text": ("qwen3", text),
            "json": (
                "qwen3",
                '<tool_call>\n{"name": "f", "arguments": '
                + json.dumps({"x": text})
                + "}\n</tool_call>",
            ),
            "tagged": ("qwen3.5", write_tagged_call(text)),
            "quoted": ("gemma-4", f'<|tool_call>call:f{{x:<|"|>{text}<|"|>}}<tool_call|>'),
            "python": ("lfm2", f"<|tool_call_start|>[f(x={text!r})]<|tool_call_end|>"),
            "spaces": ("qwen3", " " * size),
            "markers": ("qwen3", "<tool_call" * (size // 10)),
            "calls": (
                "qwen3",
                '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n' * (size // 60),
            ),
        }[kind]

    assert_linear(lambda size: feed_characters(*reply(size)), 50_000)


@pytest.mark.slow
def test_memory_is_linear() -> None:
    def peak(size: int) -> int:
        tracemalloc.start()
        parser = Parser(GRAMMARS["qwen3"])
        for _ in range(size):
            parser.feed("a")
        parser.close()
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(10)
    assert peak(200_000) / peak(100_000) <= 2.2

"""Values within values between tags, and values whose end is in doubt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnwise
from loaded import load_entry
from timing import assert_quick
from turnwise.replies.grammar_parts import KEY, Marker, Pairs, Region
from turnwise.replies.parser.text_values import parse_elements
from turnwise.tokens import tokenizers

BEFORE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}"
AFTER = "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
EACH = "{% for k, v in c.function.arguments | items %}"
PLAIN = "{{ v if v is string else v | tojson }}"
DEEP = (
    "{% macro x(v) %}{% if v is mapping %}{% for k, w in v | items %}<{{ k }}>{{ x(w) }}</{{ k }}>{% endfor %}"
    "{% elif v is iterable and v is not string %}{% for w in v %}<item>{{ x(w) }}</item>{% endfor %}{% else %}"
    + PLAIN
    + "{% endif %}{% endmacro %}"
)
TAGGED = (
    "<call={{ c.function.name }}>" + EACH + "<arg={{ k }}>" + PLAIN + "</arg>{% endfor %}</call>"
)
KEYED = (
    '<invoke name="{{ c.function.name }}">'
    + EACH
    + "<{{ k }}>{{ x(v) }}</{{ k }}>{% endfor %}</invoke>"
)
PAIRS = Pairs(
    key=Marker("<"),
    string=Region(Marker(">"), Marker(f"</{KEY}>")),
    other=Region(Marker(">"), Marker(f"</{KEY}>")),
    echoed=True,
    values="tags",
)


def template(body: str, macros: str = "") -> turnwise.Template:
    return turnwise.compile(macros + BEFORE + body + AFTER)


tagged, keyed = template(TAGGED), template(KEYED, DEEP)


def tools(**properties: Any) -> list[dict[str, Any]]:
    parameters = {"type": "object", "properties": properties}
    return [
        {"type": "function", "function": {"name": name, "parameters": parameters}} for name in "fg"
    ]


def read(of: turnwise.Template, reply: str, given: Any = None) -> tuple[list[Any], list[str]]:
    """Names with arguments, and statuses: the same in one piece and letter by letter."""
    whole, parser = of.parse(reply, tools=given), of.parser(tools=given)
    for letter in reply:
        parser.feed(letter)
    assert (
        parser.close() == whole
        and "".join(reply[one.start : one.end] for one in whole.spans) == reply
    )
    functions = [call["function"] for call in whole.get("tool_calls", ())]
    return [(one["name"], json.loads(one["arguments"])) for one in functions], [
        one.status for one in whole.attempts
    ]


def wrap_invoke(inside: str) -> str:
    return f'<invoke name="f">{inside}</invoke><|end|>'


# -- values within values

NAMES = st.text("abcdef", min_size=1, max_size=3)
LEAVES = (
    st.integers(-99, 99)
    | st.booleans()
    | st.text("xyz .,!?", min_size=1, max_size=8).filter(lambda text: text == text.strip())
)
FEW = {"min_size": 1, "max_size": 3}
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, **FEW) | st.dictionaries(NAMES, inner, **FEW)
)


def write_items(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"<{key}>{write_items(one)}</{key}>" for key, one in value.items())
    if isinstance(value, list):
        return "".join(f"<item>{write_items(one)}</item>" for one in value)
    return value if isinstance(value, str) else json.dumps(value)


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=3))
def test_what_is_written_is_read(value: dict[str, Any]) -> None:
    assert parse_elements(write_items(value), PAIRS) == (value, True)
    assert read(keyed, wrap_invoke(write_items({"a": value}))) == (
        [("f", {"a": value})],
        ["complete"],
    )


@pytest.mark.parametrize(
    "text", ["<a>1", "<a>1</b>", "x<a>1</a>", "<a>1</a>x", "<a><b>1</b>x</a>", "", "<a", "</a>"]
)
def test_what_is_no_value_is_text(text: str) -> None:
    assert parse_elements(text, PAIRS) is None


def test_an_element_may_hold_its_own_name() -> None:
    assert read(keyed, wrap_invoke("<a><a>1</a></a><b>2</b>")) == (
        [("f", {"a": {"a": 1}, "b": 2})],
        ["complete"],
    )
    assert read(keyed, wrap_invoke("<a>say <a> or so</a>")) == (
        [("f", {"a": "say <a> or so"})],
        ["complete"],
    )


def test_what_is_declared_decides() -> None:
    given = tools(o={"type": "object"}, e={"type": "object"}, l={"type": "array"})
    found, _ = read(keyed, wrap_invoke("<o><item>1</item></o><e></e><l></l>"), given)
    assert found == [("f", {"o": {"item": 1}, "e": {}, "l": []})]


def test_a_name_that_is_there_twice_keeps_both() -> None:
    assert read(keyed, wrap_invoke("<a><b>1</b><b>2</b></a>")) == (
        [("f", {"a": {"b": [1, 2]}})],
        ["malformed"],
    )


@pytest.mark.parametrize("depth", [64, 1_000, 100_000])
def test_too_deep_is_malformed(depth: int) -> None:
    reply = wrap_invoke("<a>" + "<b>" * depth + "1" + "</b>" * depth + "</a>")
    assert [one.status for one in keyed.parse(reply).attempts] == ["malformed"]
    assert_quick(lambda: keyed.parse(reply), 4)


# -- the end of a value


# The inside of a reply of two arguments, a text and a number; what was read of it, and the status.
MISSING_CLOSERS = [
    ("<arg=a>x<arg=b>4</arg>", {"a": "x", "b": 4}, "unclosed"),
    ("<arg=a>x</arg><arg=b>4", {"a": "x", "b": 4}, "unclosed"),
    ("<arg=a>x", {"a": "x"}, "unclosed"),
    ("<arg=b>4", {"b": 4}, "unclosed"),
    # A value that quotes a marker is ambiguous, so it is reported.
    ("<arg=a>x<arg=a>4</arg>", {"a": "x<arg=a>4"}, "malformed"),
    ("<arg=a>x<arg=z>4</arg>", {"a": "x<arg=z>4"}, "malformed"),
    ("<arg=a>x<arg= 4</arg>", {"a": "x<arg= 4"}, "malformed"),
    ("<arg=a>x</call> y</arg>", {"a": "x</call> y"}, "malformed"),
]


@pytest.mark.parametrize(("inside", "arguments", "status"), MISSING_CLOSERS)
def test_a_value_without_closer_ends_where_the_call_goes_on(
    inside: str, arguments: dict[str, Any], status: str
) -> None:
    declared = tools(a={"type": "string"}, b={"type": "integer"})
    for rest in ("</call><|end|>", "</call>", "</call>\n<call=f><arg=b>1</arg></call><|end|>"):
        found, statuses = read(tagged, f"<call=f>{inside}{rest}", declared)
        assert (found[0], statuses[0]) == (("f", arguments), status)
        assert found[1:] == [("f", {"b": 1})] * ("<call" in rest)


def test_markers_of_the_call_within_a_value_without_tools() -> None:
    reply = "<call=f><arg=day>3</call><call=g><arg=day>4</arg></call><|end|>"
    assert read(tagged, reply) == (
        [("f", {"day": 3}), ("g", {"day": 4})],
        ["unclosed", "complete"],
    )


def test_an_argument_that_is_there_twice() -> None:
    message = tagged.parse("<call=f><arg=a>1</arg><arg=a>2</arg></call><|end|>")
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a": 1, "a": 2}'
    assert [one.status for one in message.attempts] == ["malformed"]


@pytest.mark.parametrize(
    "body", ["<k>{{ k }}</k>" + PLAIN, " --{{ k }}=" + PLAIN, "<arg>{{ k }}<val>" + PLAIN]
)
def test_values_without_closers(body: str) -> None:
    of = template("<t>{{ c.function.name }}" + EACH + body + "{% endfor %}</t>")
    call = {
        "id": "abcdefgh1",
        "type": "function",
        "function": {"name": "f", "arguments": {"a": "x", "b": 3, "c": "y"}},
    }
    chat = [
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    reply = str(of.render(chat)).partition("<|assistant|>")[2]
    assert read(of, reply) == ([("f", {"a": "x", "b": 3, "c": "y"})], ["complete"])


@pytest.mark.parametrize("separator", ["; ", " & ", "|"])
def test_separators_in_brackets(separator: str) -> None:
    of = template(
        "<t>{{ c.function.name }}(" + EACH + "{{ k }}={{ v | tojson }}{% if not loop.last %}" + separator
        + "{% endif %}{% endfor %})</t>"
    )  # fmt: skip
    reply = f'<t>f(a="x"{separator}b=3{separator}c=[1, 2])</t><|end|>'
    assert read(of, reply) == ([("f", {"a": "x", "b": 3, "c": [1, 2]})], ["complete"])


def test_a_control_token_is_no_part_of_a_string() -> None:
    of, vocabulary = load_entry("qwen3"), tokenizers.tokenizer("turnwise")
    added = {text: token.id for text, token in vocabulary.added.items()}
    cut = [added["<tool_call>"], *vocabulary.encode('\n{"name": "f", "arguments": {"a": "x')]
    ended = of.parse([*cut, added["<|im_end|>"]], tokenizer=vocabulary)
    assert (
        ended.stop == "<|im_end|>" and ended["tool_calls"][0]["function"]["arguments"] == '{"a": "x'
    )
    whole = [
        added["<tool_call>"],
        *vocabulary.encode('\n{"name": "g", "arguments": {}}\n'),
        added["</tool_call>"],
    ]
    both = of.parse([*cut, added["</tool_call>"], *whole], tokenizer=vocabulary)
    assert [call["function"]["name"] for call in both["tool_calls"]] == ["f", "g"]


@pytest.mark.parametrize("extra", ["}", "}}", " ]\n}", ")"])
def test_a_bracket_too_many_is_no_content(extra: str) -> None:
    of = load_entry("qwen3")
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}' + extra + "\n</tool_call>"
    assert read(of, call + "ok<|im_end|>") == ([("f", {"a": 1})], ["malformed"])
    assert of.parse(call + "ok<|im_end|>")["content"] == "ok"

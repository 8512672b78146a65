"""What bad input gets: an error that says what, where and what now, or a correct text; never anything else."""

from __future__ import annotations

import dataclasses
import pickle
from array import array
from collections.abc import Callable
from typing import Any

import pytest

import turnwise
from timing import assert_linear

TEMPLATE = turnwise.load("qwen2.5")
PLAIN = turnwise.compile(
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", name="plain.jinja"
)


def user(content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}]


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def nest_schema(levels: int) -> dict[str, Any]:
    """A JSON schema with so many objects within objects."""
    schema: dict[str, Any] = {"type": "string", "description": "the innermost"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no conversation": (
        lambda: TEMPLATE.render(None),
        turnwise.MessageError,
        "a list of messages, not NoneType",
    ),
    "a text": (
        lambda: TEMPLATE.render("hi"),
        turnwise.MessageError,
        "messages: a conversation is a list",
    ),
    "an empty one": (
        lambda: TEMPLATE.render([]),
        turnwise.TemplateRuntimeError,
        "the conversation is empty: give at least one message; the list has 0 elements",
    ),
    "a message that is text": (
        lambda: TEMPLATE.render(["hi"]),
        turnwise.MessageError,
        "messages[0]: a message is a mapping",
    ),
    "no content": (
        lambda: TEMPLATE.render([{"role": "user"}], normalise=False),
        turnwise.TemplateRuntimeError,
        "a message has: role.",
    ),
    "null content": (
        lambda: TEMPLATE.render(user(None), normalise=False),
        turnwise.TemplateRuntimeError,
        '(not "NoneType")',
    ),
    "a number": (
        lambda: TEMPLATE.render(user(5), normalise=False),
        turnwise.TemplateRuntimeError,
        "the values are 'user\\n' and 5",
    ),
    "half a pair": (
        lambda: TEMPLATE.render(user("ab\ud800")),
        turnwise.MessageError,
        "messages[0].content: half of a surrogate pair (U+D800) at character 2",
    ),
    "half a pair in a key": (
        lambda: TEMPLATE.render(user("x"), tools=[{"function": {"n\udc00": 1}}]),
        turnwise.MessageError,
        "tools[0].function",
    ),
    "not a number": (
        lambda: TEMPLATE.render(user("x"), tools=[{"x": float("nan")}]),
        turnwise.MessageError,
        "tools[0].x: nan",
    ),
    "not a number in a call": (
        lambda: TEMPLATE.render(
            [
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"name": "f", "arguments": {"a": float("inf")}}],
                }
            ]
        ),
        turnwise.MessageError,
        "messages[0].tool_calls[0].arguments.a: inf is not a JSON number",
    ),
    "itself": (
        lambda: TEMPLATE.render(user(cycle())),
        turnwise.MessageError,
        "a value that contains itself",
    ),
    "a tool that contains itself": (
        lambda: TEMPLATE.render(user("x"), tools=[{"a": cycle()}]),
        turnwise.MessageError,
        "tools[0].a[0][0]",
    ),
    "a nest without end": (
        lambda: TEMPLATE.render(user("x"), tools=[nest_schema(3000)]),
        turnwise.MessageError,
        "nested too deeply",
    ),
    "tools that are text": (
        lambda: TEMPLATE.render(user("x"), tools="f"),
        turnwise.MessageError,
        "tools are a list",
    ),
    "a function as tool": (
        lambda: TEMPLATE.render(user("x"), tools=[print]),
        turnwise.MessageError,
        "pass its JSON schema",
    ),
    "a document that is text": (
        lambda: TEMPLATE.render(user("x"), documents=["d"]),
        turnwise.MessageError,
        "documents[0]",
    ),
    "a key that is no text": (
        lambda: TEMPLATE.render([{"role": "user", "content": {(1, 2): "x"}, "more": object()}]),
        turnwise.MessageError,
        "a key must be text, not tuple",
    ),
    "both flags": (
        lambda: TEMPLATE.render(user("x"), add_generation_prompt=True, continue_final_message=True),
        turnwise.MessageError,
        "exclude each other",
    ),
    "nothing to continue": (
        lambda: TEMPLATE.render([], continue_final_message=True),
        turnwise.MessageError,
        "no final message",
    ),
    "a field that is not there": (
        lambda: TEMPLATE.render(user("x"), continue_final_message="thinking"),
        turnwise.MessageError,
        'no "thinking" to continue',
    ),
    "a time that is text": (
        lambda: TEMPLATE.render(user("x"), now="2025"),
        turnwise.MessageError,
        "now is a datetime",
    ),
    "a huge number": (
        lambda: PLAIN.render(user(10**5000), normalise=False),
        turnwise.TemplateRuntimeError,
        "4300 digits",
    ),
    "a template that is none": (
        lambda: turnwise.compile(None),
        turnwise.TemplateSyntaxError,
        "a template is text",
    ),
    "a dialect that is none": (
        lambda: turnwise.compile("x", dialect="klingon"),
        turnwise.TurnwiseError,
        "klingon",
    ),
    "a name that is none": (
        lambda: turnwise.load("qwenn2.5"),
        turnwise.SourceError,
        "Did you mean 'qwen2.5'?",
    ),
    "a field with a slip": (
        lambda: turnwise.compile("{{ messages[0].contnet.strip() }}").render(user("x")),
        turnwise.TemplateRuntimeError,
        "a message has: role, content. Did you mean 'content'?",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, kind, problem = REFUSED[case]
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, turnwise.TurnwiseError)
    assert problem in str(caught.value)


def test_content_of_ten_megabytes() -> None:
    for letter in ("x", "é", "漢", "😀"):
        text = str(PLAIN.render(user(letter * 10_000_000)))
        assert len(text) == 10_000_007 and text.count(letter) == 10_000_000


def test_ten_thousand_messages() -> None:
    chat = [{"role": ("user", "assistant")[i % 2], "content": f"number {i}"} for i in range(10_000)]
    rendering = TEMPLATE.render(chat)
    assert str(rendering).count("<|im_end|>") == 10_001
    assert [p.text for p in rendering.pieces if p.origin.field == "messages[9999].content"] == [
        "number 9999"
    ]


def test_schemas_two_hundred_deep() -> None:
    rendering = TEMPLATE.render(user("x"), tools=[nest_schema(200)])
    path = ("tools", 0, *("properties", "a") * 200, "description")
    assert [p.text for p in rendering.pieces if p.origin.path == path and not p.origin.key] == [
        "the innermost"
    ]


def test_rich_values_become_plain() -> None:
    @dataclasses.dataclass
    class Message:
        role: str
        content: str

    class Word(str):
        def strip(self, *_: object) -> str:
            raise AssertionError("a template never runs the caller's code")

    chat = [
        Message("user", "one"),
        {"role": "user", "content": Word("two")},
        {"role": "user", "content": [object()]},
    ]
    text = str(PLAIN.render(chat, normalise=False))
    assert text == "user: one\nuser: two\nuser: ['<object>']\n"
    trimming = turnwise.compile("{{ messages[0].content|trim }}{{ messages[0].content.strip() }}")
    assert str(trimming.render(user(Word(" a ")))) == "aa"


def test_unknown_roles_are_the_templates_business() -> None:
    assert str(PLAIN.render([{"role": "wizard", "content": "hm"}])) == "wizard: hm\n"


def test_options_that_were_read_before_are_told_from_equal_ones() -> None:
    template = turnwise.compile("{{ x }}{% if x is true %}!{% endif %}{{ messages[0].content }}")
    # `marshal` writes an array as it writes bytes
    values = [1, True, 1.0, "1", None, [1], (1,), {"a": 1}, array("b", [1]), b"\1"]
    texts = ["1", "True!", "1.0", "1", "None", "[1]", "(1,)", "{'a': 1}", "<array>", "<bytes>"]
    for _ in range(4):
        assert [str(template.render(user("-"), x=value)) for value in values] == [
            f"{text}-" for text in texts
        ]


def test_an_option_that_changes_is_read_again() -> None:
    template, value = turnwise.compile("{{ x }}"), ["a"]
    for text in ("['a']", "['a', 'b']", "['a', 'b', 'b']"):
        assert str(template.render(user("-"), x=value)) == text
        value.append("b")


def test_options_may_have_names_of_functions() -> None:
    template = turnwise.compile(
        "{{ range }}{{ namespace(a=1).a if namespace is callable else namespace }}"
    )
    assert str(template.render(user("x"), range="r", namespace="n")) == "rn"
    one = turnwise.compile(template.text, options={"range": "r"})
    assert str(one.render(user("x"), namespace="n")) == "rn"
    assert str(one.render(user("x"))) == "r1"
    with pytest.raises(turnwise.TemplateRuntimeError, match="is a function and cannot be printed"):
        template.render(user("x"))


def test_objects_that_misbehave_are_the_callers_fault() -> None:
    class Rude(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise RuntimeError("no")

    with pytest.raises(turnwise.MessageError, match="Rude cannot be read"):
        PLAIN.render([Rude(role="user", content="x")])
    with pytest.raises(turnwise.SourceError):
        turnwise.compile("x", 5)  # type: ignore[arg-type]
    assert str(turnwise.compile("{{ self }}").render(user("x"), **{"self": "me"})) == "me"


def test_a_rendering_survives_pickling() -> None:
    rendering = turnwise.compile(
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    before = rendering.render(user("x"))
    after = pickle.loads(pickle.dumps(before))
    assert after == before and after.spans(generation=True) == [(0, 1)]


def test_printing_a_namespace_shows_it_as_it_is() -> None:
    text = "{% set ns = namespace(v=1) %}{{ ns }}|{% set ns.w = 2 %}{{ ns }}"
    assert (
        str(turnwise.compile(text).render(user("x")))
        == "<Namespace {'v': 1}>|<Namespace {'v': 1, 'w': 2}>"
    )


def test_pieces_do_not_change_with_the_callers_data() -> None:
    chat = user("A")
    rendering = turnwise.compile("{{ messages|tojson }}").render(chat)
    chat[0]["content"] = "Z"
    assert len(rendering.spans(field="messages[0].content")) == 1
    arguments = {"city": "Oslo"}
    chat = [
        {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": arguments}]}
    ]
    rendering = TEMPLATE.render(chat)
    before = "".join(p.text for p in TEMPLATE.render(chat).pieces)
    arguments["city"] = "Bergen"
    assert "".join(p.text for p in rendering.pieces) == before == str(rendering)
    assert "Bergen" in str(TEMPLATE.render(chat))


def test_time_is_linear_in_messages() -> None:
    def render(count: int) -> None:
        TEMPLATE.render(
            [{"role": ("user", "assistant")[i % 2], "content": "some words"} for i in range(count)]
        )

    assert_linear(render, 2000)

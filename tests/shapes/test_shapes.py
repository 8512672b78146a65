"""Data of users: each shape is read, written back or refused, and an error names the place in a wrong row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnwise
from turnwise.errors import MessageError
from turnwise.shapes import API_SHAPES, SHAPES, ParsedRow, are_rows, conversation, write
from turnwise.shapes.part_forms import simplify_messages
from turnwise.shapes.row import EXAMPLES


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any, **others: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **others}


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


TURNS = [user("Hi"), assistant("Hello"), user("Bye")]
BARE = {"name": "sum", "description": "adds", "parameters": {}}
TOOL = {"type": "function", "function": BARE}
IMAGE = {"type": "image_url", "image_url": {"url": "a.png"}}

READ: dict[str, tuple[str, Any, list[dict[str, Any]]]] = {
    "openai": ("openai", {"messages": TURNS}, TURNS),
    "anthropic": ("anthropic", {"system": "S", "messages": TURNS}, [system("S"), *TURNS]),
    "responses": ("responses", {"instructions": "S", "input": TURNS}, [system("S"), *TURNS]),
    "gemini": ("gemini", {"contents": [{"parts": [{"text": "Hi"}]}]}, [user("Hi")]),
    "openai fields stay": (
        "openai",
        {"messages": [{**user("a"), "mood": 1}]},
        [{**user("a"), "mood": 1}],
    ),
    "openai by another column": ("openai", {"conversations": TURNS, "messages": None}, TURNS),
    "openai, empty": ("openai", {"messages": []}, []),
    "openai, nulls of a table": (
        "openai",
        {"messages": [{**user("a"), "tool_calls": None}], "tools": None},
        [{**user("a"), "tool_calls": None}],
    ),
    "openai, a call alone": (
        "openai",
        {"messages": [{"role": "assistant", "tool_calls": []}]},
        [{"role": "assistant", "tool_calls": []}],
    ),
    "list": ("list", TURNS, TURNS),
    "empty list": ("list", [], []),
    "sharegpt": (
        "sharegpt",
        {
            "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}],
            "system": "S",
        },
        [system("S"), user("Hi"), assistant("Hello")],
    ),
    "sharegpt, system as a turn and the same in its column": (
        "sharegpt",
        {
            "conversations": [{"from": "system", "value": "S"}, {"from": "User", "value": "Hi"}],
            "system": "S",
        },
        [system("S"), user("Hi")],
    ),
    "sharegpt calls": (
        "sharegpt",
        {
            "conversations": [
                {"from": "human", "value": "1+2?"},
                {"from": "function_call", "value": '{"name": "sum", "arguments": {"of": [1, 2]}}'},
                {"from": "observation", "value": "3"},
                {
                    "from": "function_call",
                    "value": '[{"name": "a", "arguments": "{}"}, {"name": "b", "arguments": {}}]',
                },
                {"from": "tool", "value": "4"},
            ],
        },
        [
            user("1+2?"),
            assistant(None, tool_calls=[call("sum", {"of": [1, 2]})]),
            {"role": "tool", "content": "3"},
            assistant(None, tool_calls=[call("a", "{}"), call("b", {})]),
            {"role": "tool", "content": "4"},
        ],
    ),
    "sharegpt, other keys stay": (
        "sharegpt",
        {"conversations": [{"from": "gpt", "value": "x", "weight": 0, "id": 7}]},
        [assistant("x", weight=0, id=7)],
    ),
    "sharegpt by another column": (
        "sharegpt",
        {"messages": [{"from": "human", "value": "x"}]},
        [user("x")],
    ),
    "alpaca": (
        "alpaca",
        {"instruction": "Add", "input": "1 2", "output": "3"},
        [user("Add\n1 2"), assistant("3")],
    ),
    "alpaca, all of it": (
        "alpaca",
        {"instruction": "c", "input": "", "output": "d", "system": "S", "history": [["a", "b"]]},
        [system("S"), user("a"), assistant("b"), user("c"), assistant("d")],
    ),
    "alpaca, unanswered": (
        "alpaca",
        {"instruction": "c", "input": None, "output": None, "system": ""},
        [user("c")],
    ),
    "xtuner": (
        "xtuner",
        {
            "conversation": [
                {"system": "S", "input": "a", "output": "b"},
                {"input": "c", "output": "d"},
            ]
        },
        [system("S"), user("a"), assistant("b"), user("c"), assistant("d")],
    ),
    "xtuner, what is learnt": (
        "xtuner",
        {
            "conversation": [
                {"input": "a", "output": "b", "output_with_loss": False},
                {"input": "c", "output": "d", "output_with_loss": True},
            ]
        },
        [user("a"), assistant("b", weight=0), user("c"), assistant("d", weight=1)],
    ),
    "xtuner, no input and no output": (
        "xtuner",
        {"conversation": [{"output": "b"}, {"system": "", "input": "c"}]},
        [user(""), assistant("b"), user("c")],
    ),
    "paddlenlp, a question": ("paddlenlp", "Hi", [user("Hi")]),
    "paddlenlp, rounds": ("paddlenlp", [["Hi", "Hello"], ["Bye"]], TURNS),
    "paddlenlp, src and tgt": ("paddlenlp", {"src": ["Hi", "Bye"], "tgt": ["Hello"]}, TURNS),
    "paddlenlp, texts": ("paddlenlp", {"src": "Hi", "tgt": "Hello"}, TURNS[:2]),
    "paddlenlp, context": (
        "paddlenlp",
        {"src": ["Hi"], "tgt": [], "context": {"system": "S"}},
        [system("S"), user("Hi")],
    ),
    "fastchat": ("fastchat", [["USER", "Hi"], ["ASSISTANT", "Hello"], ["USER", "Bye"]], TURNS),
    "fastchat, other names": (
        "fastchat",
        [["<|im_start|>user", "Hi"], ("### Assistant: ", "Hello"), ["问", "Bye"]],
        TURNS,
    ),
    "fastchat, images": (
        "fastchat",
        [["Human", ["see", ["a.png"]]]],
        [user([{"type": "text", "text": "see"}, IMAGE])],
    ),
    "fastchat, named roles": (
        "fastchat",
        {
            "roles": ["[INST]", "[/INST]"],
            "messages": [["[INST]", "Hi"], ["[/INST]", "Hello"]],
            "system_message": "S",
        },
        [system("S"), *TURNS[:2]],
    ),
    "fastchat, roles without names": (
        "fastchat",
        {"roles": ["", ""], "messages": [["", "Hi"], ["", "Hello"]]},
        TURNS[:2],
    ),
    "prompt": ("prompt", {"prompt": "Hi", "completion": "Hello"}, TURNS[:2]),
    "prompt alone": ("prompt", {"prompt": TURNS}, TURNS),
    "prompt and completion of messages": (
        "prompt",
        {"prompt": TURNS, "completion": [assistant("Ciao")]},
        [TURNS[0], assistant("Hello", weight=0), TURNS[2], assistant("Ciao")],
    ),
}


@pytest.mark.parametrize("case", READ)
def test_a_shape_is_recognised_and_read(case: str) -> None:
    shape, row, messages = READ[case]
    before = json.dumps(row)
    found = conversation(row)
    assert (found.shape, found.messages) == (shape, messages)
    assert conversation(row, shape) == found
    assert json.dumps(row) == before


@pytest.mark.parametrize("case", READ)
def test_what_was_read_can_be_written(case: str) -> None:
    shape, row, _ = READ[case]
    found = conversation(row)
    assert conversation(write(found, shape), shape) == found


def test_every_shape_has_a_case_and_a_look() -> None:
    assert {shape for shape, _, _ in READ.values()} == set(SHAPES) == set(EXAMPLES)


def test_what_stands_beside_the_turns() -> None:
    row = {
        "conversations": [{"from": "human", "value": "x"}],
        "tools": json.dumps([BARE]),
        "documents": [{"title": "t"}],
        "chat_template_kwargs": {"enable_thinking": False},
        "add_generation_prompt": True,
        "id": 5,
        "images": ["a.png"],
    }
    found = conversation(row)
    assert found.tools == [TOOL] and found.documents == [{"title": "t"}]
    assert found.options == {"enable_thinking": False, "add_generation_prompt": True}
    assert found.rest == {"id": 5, "images": ["a.png"]}
    assert write(found, "sharegpt") == {**row, "tools": json.dumps([TOOL])}
    template = turnwise.compile(
        "{{ messages[0].content }}{{ enable_thinking }}{{ tools[0].function.name }}"
    )
    assert str(template.render(**found.arguments)) == "xFalsesum"


def test_tools_of_a_request_stay_as_they_are() -> None:
    assert conversation({"messages": TURNS, "tools": [BARE]}).tools == [BARE]
    assert conversation({"messages": TURNS, "tools": json.dumps([TOOL])}).tools == [TOOL]
    assert conversation({"messages": TURNS, "tools": ""}).tools is None


def test_a_turn_that_is_still_to_be_written() -> None:
    found = conversation([["USER", "Hi"], ["ASSISTANT", None]])
    assert found.messages == TURNS[:1] and found.options == {"add_generation_prompt": True}
    assert write(found, "fastchat")["messages"] == [["USER", "Hi"], ["ASSISTANT", None]]


def test_context_is_options() -> None:
    found = conversation(
        {"src": ["Hi"], "tgt": ["Hello"], "context": {"system": "S", "is_training": True}}
    )
    assert found.messages[0] == system("S") and found.options == {"is_training": True}
    assert write(found, "paddlenlp")["context"] == {"system": "S", "is_training": True}


def test_the_completion_starts_where_something_is_learnt() -> None:
    prompt = [user("a"), assistant("b", weight=0), user("c")]
    assert write(ParsedRow(prompt), "prompt") == {"prompt": prompt}
    assert write(ParsedRow([*prompt, assistant("d")]), "prompt") == {
        "prompt": prompt,
        "completion": [assistant("d")],
    }


def test_a_given_shape_wins() -> None:
    pairs = [["user", "assistant"], ["bot"]]
    assert conversation(pairs, "paddlenlp").messages == [
        user("user"),
        assistant("assistant"),
        user("bot"),
    ]
    assert conversation({"messages": TURNS, "chosen": 1}, "openai").rest == {"chosen": 1}
    assert conversation("<|im_start|>user", "paddlenlp").messages == [user("<|im_start|>user")]


def test_lists_of_rows() -> None:
    assert are_rows([{"instruction": "a", "output": "b"}]) and are_rows(
        [{"messages": TURNS}, {"messages": TURNS}]
    )
    assert (
        not are_rows(TURNS)
        and not are_rows([])
        and not are_rows([{"x": 1}])
        and not are_rows([["a", "b"]])
    )


# Wrong rows

HUMAN = {"from": "human", "value": "a"}
FAULTS: dict[str, tuple[Any, str, list[str]]] = {
    "no shape": (
        {"mesages": [], "id": 1},
        "",
        ["It has: mesages, id.", "Did you mean 'messages'?"],
    ),
    "rendered": ({"text": "x"}, "", ["rendered already", "Accepted: messages, conversations"]),
    "answer of another name": (
        {"instruction": "a", "context": "b", "answer": "c"},
        "",
        ["It has: instruction, context"],
    ),
    "preference": (
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        "",
        ["`chosen` and `rejected`", "'completion'"],
    ),
    "transcript": (
        "<|im_start|>user\nHi<|im_end|>",
        "",
        ["turnwise.shapes.parse_transcript"],
    ),
    "rows": ([{"messages": TURNS}, {"messages": TURNS}], "", ["a list of 2 conversations"]),
    "number": (5, "", ["not int: 5", "sharegpt: {conversations"]),
    "message of text": (["a"], "messages[0]", ["a mapping, not str: 'a'", '"role": "user"']),
    "no role": (
        {"messages": [user("a"), {"rol": "user"}]},
        "messages[1]",
        ["no 'role'", "It has: rol.", "mean 'rol'"],
    ),
    "role of number": (
        [{"role": 5, "content": ""}],
        "messages[0].role",
        ["must be text, not int: 5"],
    ),
    "no content": (
        [{"role": "user", "contents": ""}],
        "messages[0]",
        ["no 'content'", "mean 'contents'"],
    ),
    "content of number": ([user(5)], "messages[0].content", ["a list of parts", "not int: 5"]),
    "not a number": (
        [{**user("a"), "weight": float("nan")}],
        "messages[0].weight",
        ["not a JSON number"],
    ),
    "messages of text": ({"messages": "x"}, "messages", ["a list of turns, not str: 'x'"]),
    "options": (
        {"messages": [], "chat_template_kwargs": 5},
        "chat_template_kwargs",
        ["not a table of options"],
    ),
    "reserved": (
        {"messages": [], "options": {"now": 1}},
        "options",
        ["now, which are not options"],
    ),
    "flag": (
        {"messages": [], "add_generation_prompt": 5},
        "add_generation_prompt",
        ["true or false, not 5"],
    ),
    "tools": ({"messages": [], "tools": "x"}, "tools", ["not JSON", "'x'", "a JSON list of tools"]),
    "tools of object": ({"messages": [], "tools": "{}"}, "tools", ["a list, not dict"]),
    "sharegpt, none": ({"conversations": []}, "conversations", ["ShareGPT", "{from: human"]),
    "sharegpt, turn": (
        {"conversations": [HUMAN, "x"]},
        "conversations[1]",
        ["a mapping, not str", '"from": "human"'],
    ),
    "sharegpt, name": (
        {"conversations": [{"from": "humn", "value": "a"}]},
        "conversations[0].from",
        ["'humn'", "Accepted: human, user", "Did you mean 'human'?"],
    ),
    "sharegpt, key": (
        {"conversations": [HUMAN, {"from": "gpt", "vaule": "a"}]},
        "conversations[1]",
        ["no 'value'", "Did you mean 'vaule'?"],
    ),
    "sharegpt, null": (
        {"conversations": [{"from": "gpt", "value": None}]},
        "conversations[0].value",
        ["not NoneType"],
    ),
    "sharegpt, both": ({"conversations": [{**HUMAN, "role": "user"}, HUMAN]}, "", ["no 'content'"]),
    "sharegpt, content": (
        {"conversations": [{**HUMAN, "content": "b"}]},
        "conversations[0]",
        ["'content' beside"],
    ),
    "sharegpt, two systems": (
        {"conversations": [{"from": "system", "value": "a"}], "system": "b"},
        "system",
        ["another one"],
    ),
    "call of text": (
        {"conversations": [{"from": "function_call", "value": "sum(1)"}]},
        "conversations[0].value",
        ["not JSON", "'sum(1)'", '{"name": ..., "arguments": ...}'],
    ),
    "call of number": (
        {"conversations": [{"from": "function_call", "value": "5"}]},
        "conversations[0].value",
        ["is not a tool call"],
    ),
    "call without arguments": (
        {"conversations": [{"from": "function_call", "value": '{"name": "a", "argument": {}}'}]},
        "conversations[0].value",
        ["no 'arguments'", "Did you mean 'argument'?"],
    ),
    "call with more": (
        {
            "conversations": [
                {"from": "function_call", "value": '{"name": "a", "arguments": {}, "x": 1}'}
            ]
        },
        "conversations[0].value",
        ["unknown key 'x' in a call"],
    ),
    "xtuner, key": (
        {"conversation": [{"input": "a", "ouput": "b"}]},
        "conversation[0]",
        ["unknown key 'ouput'", "Did you mean 'output'?"],
    ),
    "xtuner, no output": (
        {"conversation": [{"input": "a"}, {"input": "b"}]},
        "conversation[0].output",
        ["only the last"],
    ),
    "xtuner, loss": (
        {"conversation": [{"input": "a", "output": "b", "output_with_loss": "no"}]},
        "conversation[0].output_with_loss",
        ["true or false, not 'no'"],
    ),
    "xtuner, text": (
        {"conversation": [{"input": ["a"], "output": "b"}]},
        "conversation[0].input",
        ["must be text, not list"],
    ),
    "alpaca, history": (
        {"instruction": "a", "output": "b", "history": [["c"]]},
        "history[0]",
        ["[question, answer], not ['c']"],
    ),
    "alpaca, text": (
        {"instruction": 5, "output": "b"},
        "instruction",
        ["must be text, not int: 5"],
    ),
    "rounds": ([["a"], ["b", "c"]], "rounds[0]", ["[question, answer], not ['a']"]),
    "last round": (
        [["a", "b"], ["c", "d", "e"]],
        "rounds[1]",
        ["[question, answer] or [question]"],
    ),
    "round of numbers": ([["a", 5]], "rounds[0][1]", ["must be text, not int"]),
    "src and tgt": ({"src": ["a"], "tgt": ["b", "c"]}, "src", ["1 src and 2 tgt", "one src more"]),
    "src of number": ({"src": ["a", 5], "tgt": ["b"]}, "src[1]", ["must be text, not int"]),
    "fastchat, name": (
        [["USER", "a"], ["ASISTANT", "b"]],
        "messages[1][0]",
        ["'ASISTANT'", "mean 'assistant'", "paddlenlp"],
    ),
    "fastchat, roles": (
        {"roles": ["A"], "messages": [["A", "a"]]},
        "roles",
        ["the user and the assistant, not ['A']"],
    ),
    "fastchat, null": (
        [["USER", None], ["ASSISTANT", "b"]],
        "messages[0][1]",
        ["not None", "last text only"],
    ),
    "fastchat, image": ([["USER", ["a", [5]]]], "messages[0][1]", ["address of an image"]),
    "fastchat, triple": ({"messages": [["USER", "a", "b"]]}, "messages[0]", ["[role, text], not"]),
    "prompt": ({"prompt": 5}, "prompt", ["text or a list of messages, not int: 5"]),
    "completion": (
        {"prompt": "a", "completion": [{}]},
        "completion[0]",
        ["no 'role'", "It is empty."],
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_wrong_row_is_reported_with_place_and_remedy(case: str) -> None:
    row, path, problem = FAULTS[case]
    with pytest.raises(MessageError) as caught:
        conversation(row)
    if path:
        assert caught.value.path == path
    assert not [words for words in problem if words not in str(caught.value)], str(caught.value)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_wrong_shape_is_refused(shape: str) -> None:
    with pytest.raises(MessageError):
        conversation({"id": 1}, shape)
    with pytest.raises(MessageError):
        conversation(5, shape)


def test_unknown_shapes() -> None:
    for act in (lambda: conversation([], "sharegtp"), lambda: write(ParsedRow([]), "sharegtp")):
        with pytest.raises(MessageError, match="Did you mean 'sharegpt'"):
            act()


TOO_MUCH: dict[str, tuple[str, ParsedRow, str]] = {
    "an id": (
        "sharegpt",
        ParsedRow([assistant("", tool_calls=[{"id": "1", **call("a", {})}])]),
        "tool_calls[0].id",
    ),
    "text and call": (
        "sharegpt",
        ParsedRow([assistant("x", tool_calls=[call("a", {})])]),
        "messages[0].tool_calls",
    ),
    "reasoning": (
        "sharegpt",
        ParsedRow([assistant("x", reasoning_content="y")]),
        "messages[0].reasoning_content",
    ),
    "parts": ("sharegpt", ParsedRow([user([IMAGE])]), "messages[0].content"),
    "a role": ("sharegpt", ParsedRow([{"role": "critic", "content": "x"}]), "messages[0].role"),
    "a tool's result": (
        "alpaca",
        ParsedRow([user("a"), {"role": "tool", "content": ""}]),
        "messages[1].role",
    ),
    "two questions": ("xtuner", ParsedRow([user("a"), user("b")]), "messages[1].role"),
    "a late system": (
        "alpaca",
        ParsedRow([*TURNS[:2], system("S"), user("a")]),
        "messages[2].role",
    ),
    "a weight": (
        "alpaca",
        ParsedRow([user("a"), assistant("b", weight=0)]),
        "messages[1].weight",
    ),
    "half a weight": (
        "xtuner",
        ParsedRow([user("a"), assistant("b", weight=0.5)]),
        "messages[1].weight",
    ),
    "a name": ("fastchat", ParsedRow([{**user("a"), "name": "Bob"}]), "messages[0].name"),
    "tools of a list": ("list", ParsedRow(TURNS, [TOOL]), "tools"),
    "an id of a list": ("list", ParsedRow(TURNS, rest={"id": 1}), "rest.id"),
    "options of a list": ("list", ParsedRow(TURNS, options={"x": 1}), "options.x"),
    "nothing": ("alpaca", ParsedRow([]), "messages"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_what_a_shape_cannot_say_is_refused(case: str) -> None:
    shape, found, path = TOO_MUCH[case]
    with pytest.raises(MessageError) as caught:
        write(found, shape)
    assert caught.value.path.endswith(path), str(caught.value)


# Properties

TEXT = st.text(st.sampled_from("aé\n '\"<|{}\\漢\U0001f600"), max_size=6)
SCALAR = st.none() | st.booleans() | st.integers(-3, 3) | TEXT
JSON = st.recursive(
    SCALAR,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
TABLE = st.dictionaries(st.sampled_from(["id", "mood", "source"]), JSON, max_size=2)
CALL = st.builds(call, TEXT, st.dictionaries(TEXT, JSON, max_size=2) | TEXT)
PARTS = st.lists(
    st.just(IMAGE) | st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), max_size=2
)
MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "user", "assistant", "assistant", "tool"]),
        "content": TEXT | PARTS,
    },
    optional={
        "weight": st.sampled_from([0, 1, 2]),
        "tool_calls": st.lists(CALL, max_size=2),
        "name": TEXT,
        "reasoning_content": TEXT,
    },
)
TOOLS = st.none() | st.lists(st.sampled_from([TOOL, BARE]), max_size=2)
ANY = st.builds(
    ParsedRow,
    st.lists(MESSAGE, max_size=4),
    TOOLS,
    st.none() | st.just([{"title": "t"}]),
    st.dictionaries(st.sampled_from(["mood", "add_generation_prompt"]), st.booleans(), max_size=2),
    rest=TABLE.map(lambda table: {key: value for key, value in table.items() if key != "mood"}),
)


def messages_by(*roles: str) -> Any:
    return st.fixed_dictionaries({"role": st.sampled_from(roles), "content": TEXT})


def as_json(row: Any) -> Any:
    return json.loads(json.dumps(row))


def meant(found: ParsedRow) -> Any:
    """All but the shape; a call's empty content and no calls at all can be said in more than one way."""
    messages = [
        {
            key: value
            for key, value in message.items()
            if not (value is None or key == "tool_calls" and not value)
            and not (key == "content" and not value and message.get("tool_calls"))
        }
        for message in found.messages
    ]
    return messages, found.tools, found.documents, found.options, found.rest


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=150)
@given(found=ANY)
def test_a_conversation_comes_back_or_is_refused(shape: str, found: ParsedRow) -> None:
    try:
        row = write(found, shape)
    except MessageError:
        return
    back = conversation(as_json(row), shape)
    if shape in API_SHAPES:
        assert simplify_messages(back.messages) == simplify_messages(found.messages)
        assert meant(back)[1:] == meant(found)[1:]
    else:
        assert meant(back) == meant(found)


@st.composite
def rounds(
    draw: st.DrawFn, later_systems: bool = False, weights: bool = False
) -> list[dict[str, Any]]:
    """What the shapes of questions and answers can say."""
    messages: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 3))):
        if draw(st.booleans()) and (later_systems or not number):
            messages.append(system(draw(TEXT.filter(bool))))
        weight = (
            {"weight": draw(st.sampled_from([0, 1]))} if weights and draw(st.booleans()) else {}
        )
        messages += [user(draw(TEXT)), assistant(draw(TEXT), **weight)]
    return messages[: None if draw(st.booleans()) else -1]


CALLING = st.lists(CALL, min_size=1, max_size=2).map(
    lambda calls: assistant(None, tool_calls=calls)
)
CAN_SAY: dict[str, Any] = {
    "openai": st.lists(MESSAGE, max_size=4),
    "list": st.lists(MESSAGE, max_size=4),
    "sharegpt": st.lists(
        messages_by("system", "user", "assistant", "tool") | CALLING, min_size=1, max_size=4
    ),
    "xtuner": rounds(later_systems=True, weights=True),
    "alpaca": rounds(),
    "paddlenlp": rounds(),
    "fastchat": st.lists(messages_by("user", "assistant"), min_size=1, max_size=4),
    "prompt": rounds(),
}


@pytest.mark.parametrize("shape", CAN_SAY)
@settings(max_examples=100)
@given(data=st.data())
def test_what_a_shape_can_say_is_written_and_recognised(shape: str, data: st.DataObject) -> None:
    beside = (
        {}
        if shape == "list"
        else {"tools": data.draw(st.none() | st.just([TOOL])), "rest": data.draw(TABLE)}
    )
    messages = data.draw(CAN_SAY[shape])
    found = conversation(as_json(write(ParsedRow(messages, **beside), shape)))
    assert found.shape == shape and meant(found) == meant(ParsedRow(messages, **beside))


@settings(max_examples=300)
@given(data=st.data())
def test_no_row_breaks_a_reader(data: st.DataObject) -> None:
    """Right rows with a wrong value or key somewhere, and rows that never were right."""
    _, row, _ = READ[data.draw(st.sampled_from(sorted(READ)))]
    row = as_json(row)
    holder, key = row, None
    while isinstance(holder, dict | list) and holder and (key is None or data.draw(st.booleans())):
        inside = holder if key is None else holder[key]
        if not isinstance(inside, dict | list) or not inside:
            break
        holder, key = (
            inside,
            data.draw(st.sampled_from(sorted(inside) if isinstance(inside, dict) else [0, -1])),
        )
    wrong = data.draw(JSON)
    if key is None:
        row = wrong
    else:
        holder[key] = wrong
    for shape in (None, *SHAPES):
        try:
            found = conversation(row, shape)
        except MessageError as error:
            assert str(error)
        else:
            assert all(
                isinstance(message, dict) and isinstance(message["role"], str)
                for message in found.messages
            )


def test_a_column_that_is_accepted_is_no_typing_error() -> None:
    row = {"instruction": "Say", "context": "", "response": "Hello."}
    with pytest.raises(MessageError, match="no conversation") as caught:
        conversation(row)
    assert "Did you mean" not in str(caught.value)

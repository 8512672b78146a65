"""What a maker's format writes for a reply is read back as that reply, and ends with a stop."""

import json
import os

import pytest

import turnwise
from turnwise.errors import WarningLog
from turnwise.oracles import find_oracle

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}}
TOOLS = [
    {"type": "function", "function": {"name": "find", "description": "D", "parameters": SCHEMA}}
]
QUESTION = [{"role": "user", "content": "Ask"}]
ENTRIES = {
    "deepseek-v3.2": {"thinking": True},
    "deepseek-v4": {},
    "deepseek-v4.1": {},
    "kimi-k3": {},
    "gpt-oss-harmony": {},
    "mistral-v13": {},
    "mistral-v15": {"reasoning_effort": "high"},
    "command-cmd4": {},
}


def make_calls(*arguments):
    return [
        {"id": f"call0000{n}", "type": "function", "function": {"name": "find", "arguments": one}}
        for n, one in enumerate(arguments)
    ]


REPLIES = [
    {"content": "Hi there"},
    {"content": "Hi", "reasoning_content": "Why"},
    {"content": "", "reasoning_content": "Why", "tool_calls": make_calls({"text": "x y", "n": 3})},
    {"content": "", "tool_calls": make_calls({"text": 'é\n"q"'}, {"n": 1}, {})},
]


@pytest.mark.parametrize("name", ENTRIES)
def test_a_reply_is_read_back_as_it_was_written(name):
    template = turnwise.load(name)
    for reply in REPLIES:
        with WarningLog(is_quiet=True):
            prompt = template.render(QUESTION, TOOLS, add_generation_prompt=True, **ENTRIES[name])
            chat = [*QUESTION, {"role": "assistant", **reply}]
            whole = template.render(chat, TOOLS, **ENTRIES[name]).text
            assert whole.startswith(prompt.text)
            read = dict(template.parse(whole[len(prompt.text) :], prompt, TOOLS))
        assert (read.get("content") or "") == reply["content"]
        assert (read.get("reasoning_content") or "") == reply.get("reasoning_content", "")
        calls = [call["function"] for call in read.get("tool_calls") or ()]
        assert [json.loads(call["arguments"]) for call in calls] == [
            call["function"]["arguments"] for call in reply.get("tool_calls", ())
        ]
        assert whole.endswith(tuple(template.stops()))


# -- what the maker's own encoder writes -----------------------------------------------------------------------------

RUNNABLE = {
    "deepseek-v4": "deepseek_recipe",
    "deepseek-v4.1": "deepseek_recipe",
    "gpt-oss-harmony": "openai_harmony",
    "mistral-v13": "mistral_common",
    "mistral-v15": "mistral_common",
    "command-cmd4": "cohere_melody",
}
QUIET = {  # how to ask for no reasoning, where a past turn would have lost it
    "deepseek-v4": {"reasoning_effort": "none"},
    "deepseek-v4.1": {"reasoning_effort": "none"},
}
NEXT = {"role": "user", "content": "Next"}
TURNS = {
    "text": ({"content": "Hi there"}, [NEXT]),
    "two lines": ({"content": "Hi\n\n  there é👩"}, [NEXT]),
    "a call": (
        {
            "content": "",
            "reasoning_content": "Why",
            "tool_calls": make_calls({"text": "x y", "n": 3}),
        },
        [{"role": "tool", "tool_call_id": "call00000", "content": "Found"}],
    ),
    "two calls": (
        {"content": "", "tool_calls": make_calls({"text": 'é\n"q"'}, {"n": 1})},
        [
            {"role": "tool", "tool_call_id": f"call0000{n}", "content": f"Found {n}"}
            for n in range(2)
        ],
    ),
}


@pytest.fixture(params=RUNNABLE)
def maker(request):
    """The name of an entry, its template and its maker's encoder."""
    pytest.importorskip(RUNNABLE[request.param])
    if "harmony" in request.param and "TIKTOKEN_ENCODINGS_BASE" not in os.environ:
        pytest.skip("openai-harmony would download its vocabulary")
    oracle = find_oracle(turnwise.entries()[request.param].oracle)
    return request.param, turnwise.load(request.param), oracle


def write_turn(maker, turn):
    """Return the prompt and the finished turn that follows it, as the maker's encoder writes both; None if it refuses.

    The turn ends with a stop of the template.
    """
    name, template, oracle = maker
    reply, after = TURNS[turn]
    if name == "mistral-v13":  # it refuses reasoning
        reply = {key: value for key, value in reply.items() if key != "reasoning_content"}
    options = QUIET.get(name, {}) if "reasoning_content" not in reply else ENTRIES[name]
    calls = [
        {
            **call,
            "function": {
                **call["function"],
                "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
            },
        }
        for call in reply.get("tool_calls", ())
    ]
    said = {"role": "assistant", **reply, **({"tool_calls": calls} if calls else {})}
    asked = {"tools": TOOLS, "add_generation_prompt": True, "chat_template_kwargs": options}
    prompt = oracle.render({**asked, "messages": QUESTION})
    whole = oracle.render({**asked, "messages": [*QUESTION, said, *after]})
    assert prompt.refusal is None and whole.refusal is None, (prompt.refusal, whole.refusal)
    assert whole.text.startswith(prompt.text), (prompt.text[-80:], whole.text[-300:])
    rest = whole.text[len(prompt.text) :]
    before = rest[: rest.index(after[0]["content"])]
    ends = [before.rindex(stop) + len(stop) for stop in template.stops() if stop in before]
    if not ends:
        # In history harmony ends an answer with another token than the one that the model writes.
        assert "harmony" in name
        before = before[: before.rindex("<|end|>")] + "<|return|>"
    return prompt.text, before[: max(ends, default=None)], reply, options


@pytest.mark.law(8)
@pytest.mark.parametrize("turn", TURNS)
def test_the_turn_that_a_maker_writes_is_read_and_trained(maker, turn):
    """`parse` gives the message, `examples` train the turn to its stop, and grammars accept tools."""
    _, template, _ = maker
    text, written, reply, options = write_turn(maker, turn)
    with WarningLog(is_quiet=True):
        prompt = template.render(QUESTION, TOOLS, add_generation_prompt=True, **options)
        assert prompt.text == text
        read = dict(template.parse(written, prompt, TOOLS))
        chat = [*QUESTION, {"role": "assistant", **reply}]
        samples = template.examples(chat, "turnwise", tools=TOOLS, **options)
    assert (read.get("content") or "") == reply["content"]
    assert (read.get("reasoning_content") or "") == reply.get("reasoning_content", "")
    calls = [call["function"] for call in read.get("tool_calls") or ()]
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
        (call["function"]["name"], call["function"]["arguments"])
        for call in reply.get("tool_calls", ())
    ]
    (sample,) = samples
    spans = zip(sample.offsets, sample.labels, strict=True)
    trained = [span for span, label in spans if label != -100]
    assert sample.text[trained[0][0] : trained[-1][1]] == written
    assert sample.text[: trained[0][0]] == text


def test_grammars_of_calls_are_exported_for_makers_formats(maker):
    _, template, _ = maker
    grammar = template.grammar
    assert grammar.to_lark(TOOLS, "required") and grammar.to_gbnf(TOOLS)
    assert grammar.to_structural_tag(TOOLS, "required")["type"] == "structural_tag"

"""The circle: what a template wrote, read and given back to the template, is written again, letter for letter.

    render(history + [parse(reply, prompt)])  ==  prompt + reply

The reply is what the template itself writes after its own prompt, so it is canonical; the message that was read is
handed to `render` as it came. Templates differ in what they take, so each message is offered in several ways, and the
first that comes out whole is the reply. A template that leaves a field out, or refuses it, has nothing to say here; one
whose finished turn does not begin with its own prompt cannot close the circle, and is listed in `APART`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from loaded import load_entry
from published_templates import template_of
from reply_cases import (
    APART,
    CLOSED,
    HISTORY,
    MESSAGES,
    OPEN,
    TOOLS,
    case_of,
    list_forms,
    render_or_none,
    whole,
)
from reply_grammars import region
from turnwise.analysis.prober import CallShape
from turnwise.replies.events import Message, messages_equal
from turnwise.replies.grammar import Grammar
from turnwise.replies.input_format import IN_PARTS, InputFormat
from turnwise.replies.write import write

SEEN: Counter[str] = Counter()

OPENED = "the prompt opens reasoning, which a finished turn without any leaves out"
SHUT = "the prompt shuts reasoning off where a finished turn may have some"
SPACED = "the prompt ends with white space that a finished turn does not have"
DISJOINT = {
    "axolotl-exaone4": SHUT,
    "axolotl-qwen3": SHUT,
    "axolotl-qwen3_5": SHUT,
    "llamacpp-Cohere2MoE": OPENED,
    "llamacpp-MiniMax-M2": OPENED,
    "llamacpp-deepseek-ai-DeepSeek-R1-Distill-Llama-8B": OPENED,
    "llamacpp-llama-cpp-deepseek-r1": OPENED,
    "ollama-deepcoder-14b": OPENED,
    "ollama-exaone-deep-2.4b": OPENED,
    "ollama-exaone-deep-32b": OPENED,
    "ollama-qwq-32b_2_2": OPENED,
    "vllm-tool_chat_template_deepseekv3": SPACED,
    "vllm-tool_chat_template_granite_20b_fc": SPACED,
    "vllm-tool_chat_template_muse_glimmer": "only a prompt begins with the system's words",
}
"""Templates some of whose turns do not begin with their own prompt: nothing can be written after it and come back."""


def outcome(name: str, kind: str) -> str:
    """What becomes of a message: "" if nothing is written, CLOSED, APART, or what is wrong."""
    template, case = template_of(name), case_of(name, kind)
    if case is None or case.reply == APART:
        return APART if case else ""
    read = template.parse(case.reply, case.prompt, case.arguments.get("tools"))
    again = render_or_none(template, [*HISTORY, read], **case.arguments)
    if again != case.prompt + case.reply:
        return (
            f"open: {case.reply!r} became {again and again[len(case.prompt) :]!r} by way of {read}"
        )
    return (
        CLOSED if messages_equal(read, MESSAGES[kind]) else f"misread: {case.reply!r} is not {read}"
    )


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", sorted(corpus.load_published()))
def test_what_is_read_is_written_again(name: str) -> None:
    found = {kind: outcome(name, kind) for kind in MESSAGES}
    wrong = {kind: outcome for kind, outcome in found.items() if outcome not in ("", CLOSED, APART)}
    apart = [kind for kind, outcome in found.items() if outcome == APART]
    SEEN.update(["templates", *(outcome.split(":")[0] for outcome in found.values() if outcome)])
    assert bool(wrong) == (name in OPEN), wrong
    assert bool(apart) == (name in DISJOINT), apart


HEADED = "after a result, a finished turn has a header that the prompt leaves out"
SECOND = {
    "axolotl-deepseek_v3": HEADED,
    "trl-diffusion_gemma_training": HEADED,
    "vllm-tool_chat_template_hunyuan_a13b": HEADED,
}
"""Templates for which it does not hold in the round after a result."""


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", sorted(corpus.load_published()))
def test_it_holds_after_a_result(name: str) -> None:
    """An agent at work: its call was read, its result is there, and it answers, or calls again."""
    template, case = template_of(name), case_of(name, "call")
    if case is None or case.reply == APART or name in OPEN:
        return
    read = template.parse(case.reply, case.prompt, TOOLS)
    answer = {
        "role": "tool",
        "content": "sun",
        "name": "get_weather",
        "tool_call_id": read["tool_calls"][0]["id"],
    }
    history = [*HISTORY, read, answer]
    prompt, before = (
        render_or_none(template, history, add_generation_prompt=on, **case.arguments)
        for on in (True, False)
    )
    assert prompt is not None and before is not None
    wrong = []
    for kind in ("content", "reasoning", "call"):
        offered = (
            render_or_none(template, [*history, message], **case.arguments)
            for message in list_forms(MESSAGES[kind])
        )
        written = [text for text in offered if text and whole(MESSAGES[kind], text[len(before) :])]
        reply = next((text[len(prompt) :] for text in written if text.startswith(prompt)), None)
        if reply is not None:
            again = template.parse(reply, prompt, TOOLS)
            closed = render_or_none(template, [*history, again], **case.arguments) == prompt + reply
            wrong += (
                [] if closed and messages_equal(again, MESSAGES[kind]) else [(kind, reply, again)]
            )
            SEEN["second round"] += not wrong
    assert bool(wrong) == (name in SECOND), wrong


# The writer

NONE = "a null within a value is written as None"
EMPTY = "beside calls, markers are written around nothing"
BOTH = "objects are written as JSON and lists as Python does"
LAST = "one call alone has no end of its section"
ALONE = "content without reasoning has no markers; they are declared"
LINE = "a call without arguments has a line too many"
OTHERWISE = {
    "lcpptest-GLMEdge": "every rendering ends with the generation prompt, so a rendered turn is not a reply",
    "axolotl-command_a_rag": EMPTY,
    "axolotl-command_a_tool_use": EMPTY,
    "hfjs-CohereLabs--c4ai-command-a-03-2025": EMPTY,
    "hfjs-ai21labs--AI21-Jamba-Large-1.6": EMPTY,
    "hfjs-meetkai--functionary-medium-v2.2": EMPTY,
    "llamacpp-Kimi-K3": EMPTY,
    "llamacpp-NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": EMPTY,
    "trl-nemotron_3_nano_training": EMPTY,
    "trl-nemotron_3_super": EMPTY,
    "trl-nemotron_3_super_training": EMPTY,
    "llamacpp-google-gemma-4-31B-it": NONE,
    "llamacpp-google-gemma-4-31B-it-interleaved": NONE,
    "hfjs-LiquidAI--LFM2.5-VL-450M": BOTH,
    "llamacpp-LFM2.5-8B-A1B": BOTH,
    "npm-deepseek_v3": LAST,
    "ollama-deepseek-r1-8b": LAST,
    "ollama-deepseek-v2.5-236b": LAST,
    "llamacpp-ibm-granite-granite-3.3-2B-Instruct": ALONE,
    "ollama-granite3.3-2b": ALONE,
    "vllm-tool_chat_template_hunyuan_a13b": ALONE,
    "llamacpp-deepseek-ai-DeepSeek-V4": LINE,
    "llamacpp-deepseek-ai-DeepSeek-V4-Flash-0731": LINE,
    **{name: OPEN[name] for name in (
        "chujie-falcon-instruct", "llamacpp-openai-gpt-oss-120b", "trl-gptoss_training", "ollama-llama4-latest",
        "mistralcommon-v2", "mistralcommon-v3_image", "mistralcommon-v3_spm", "mistralcommon-v7_audio",
        "mistralcommon-v7_spm", "vllm-tool_chat_template_llama3.2_pythonic",
        "vllm-tool_chat_template_toolace",
    )},
}  # fmt: skip
"""Templates that write something for which a grammar has no words; each is read all the same, but for those of OPEN."""


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", sorted(corpus.load_published()))
def test_the_writer_writes_what_the_template_writes(name: str) -> None:
    """The message after the prompt; then the stop, which a template may leave to the next turn."""
    grammar = template_of(name).grammar
    wrong = {}
    for kind in MESSAGES:
        case = case_of(name, kind)
        if case is None or case.reply == APART:
            continue
        written = write(grammar, case.message, case.prompt, stop=False)
        rest = case.reply.removeprefix(written).strip()
        ended = not rest or rest.startswith(grammar.stops) or written.endswith(grammar.stops)
        if not case.reply.startswith(written) or not ended:
            wrong[kind] = case.reply, written
        SEEN["written" if kind not in wrong else "written otherwise"] += 1
    assert bool(wrong) == (name in OTHERWISE), wrong


def test_the_writer_goes_on_where_the_prompt_left() -> None:
    """Each marker that the prompt holds already, and each word, is not written again."""
    grammar = Grammar(
        opening="<a>",
        reasoning=region("<think>\n", "\n</think>\n\n"),
        content=region("<say>\n", "\n</say>"),
        stops=("<e>",),
    )
    message = {"role": "assistant", "content": "Aye.", "reasoning_content": "So be it."}
    whole = "<think>\nSo be it.\n</think>\n\n<say>\nAye.\n</say><e>"
    assert write(grammar, message, "<a>") == whole
    for size in range(len(whole) - 3):  # within a marker, too
        assert whole[:size] + write(grammar, message, "<a>" + whole[:size]) == whole, whole[:size]
    closed = "<a><think>\n\n</think>\n\n"  # there shall be no reasoning
    assert write(grammar, message, closed) == "<say>\nAye.\n</say><e>"
    assert (
        write(grammar, {**message, "reasoning_content": ""}, "<a><think>")
        == "\n\n</think>\n\n<say>\nAye.\n</say><e>"
    )
    assert write(grammar, message, "<a><say>") == "\nAye.\n</say><e>"


@needs_corpus
def test_how_much_that_is() -> None:
    """How many messages of how many templates came back, and were written, in the tests above."""
    if SEEN["templates"] < len(corpus.load_published()):
        pytest.skip(
            "not all templates were tried in this process"
        )  # it counts what the tests above have seen
    print(dict(SEEN))
    assert SEEN[CLOSED] >= 1000 and SEEN["second round"] >= 200 and SEEN["written"] >= 885


# The form of a message


def test_a_message_as_a_turn() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    read = Message(role="assistant", content=None, tool_calls=[call])
    turn = read.as_turn()
    assert type(turn) is dict and turn["content"] == ""
    assert turn["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert (
        read["content"] is None and call["function"]["arguments"] == '{"a": 1}'
    )  # nothing of it was changed
    assert Message(turn).as_turn(as_text=True)["tool_calls"] == [call]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"x"', "", None, "[" * 100_000])
def test_arguments_that_are_no_object_stay(arguments: Any) -> None:
    read = Message(
        role="assistant",
        content=None,
        tool_calls=[{"function": {"name": "f", "arguments": arguments}}],
    )
    assert read.as_turn()["tool_calls"] == read["tool_calls"]


@pytest.mark.parametrize(
    "calls", [[5], [{}], [{"function": None}], [{"function": {"name": "f"}}], [None]]
)
def test_calls_that_somebody_broke_stay(calls: Any) -> None:
    assert Message(content="x", tool_calls=calls).as_turn() == {"content": "x", "tool_calls": calls}


@pytest.mark.filterwarnings("ignore:.*(calls are a list|a tool call needs a name)")
@pytest.mark.parametrize("calls", [5, "x", {"a": 1}, True, 2.5])
@pytest.mark.parametrize("name", ["qwen3", "mistral-v3", "chatml"])
def test_what_is_no_list_of_calls_is_passed_on(name: str, calls: Any) -> None:
    """It becomes of it what becomes of it in plain data."""
    template = load_entry(name)
    read = template.parse("Aye.")
    read["tool_calls"] = calls
    assert read.as_turn() == read.as_turn(as_text=True) == dict(read)
    given = [[*HISTORY, message] for message in (read, dict(read))]
    assert len({render_or_error(template, chat) for chat in given}) == 1


def render_or_error(template: turnwise.Template, chat: Any) -> str:
    """What a template writes, or why it does not."""
    try:
        return str(template.render(chat))
    except turnwise.TurnwiseError as error:
        return str(error)


UNSAYABLE = (
    '{"a": 1e999}',
    '{"a": [{"b": -1e999}]}',
    '{"a": "\\ud800"}',
    '{"\\udfff": 1}',
    '{"a": NaN}',
)


@pytest.mark.parametrize("arguments", UNSAYABLE)
@pytest.mark.parametrize(
    "name", ["qwen3", "qwen2.5", "hermes", "mistral-v3", "llama-3.1", "deepseek-v3"]
)
def test_arguments_that_no_template_can_be_given_stay_text(name: str, arguments: str) -> None:
    """A call that was read does not make `render` raise."""
    reply = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call><|im_end|>'
    read = load_entry("qwen3").parse(reply)
    assert read.attempts[0].status == ("malformed" if "NaN" in arguments else "complete")
    assert read.as_turn()["tool_calls"] == read["tool_calls"]
    assert load_entry(name).render([*HISTORY, read]).text
    if name == "qwen3":
        assert arguments in str(load_entry(name).render([*HISTORY, read]))


@pytest.mark.parametrize("value", [float("nan"), object(), "\ud800"])
def test_a_mapping_that_is_no_json_stays(value: Any) -> None:
    call = {"function": {"name": "f", "arguments": {"a": value}}}
    assert Message(content="", tool_calls=[call]).as_turn(as_text=True)["tool_calls"] == [call]


def test_a_copy_is_a_message() -> None:
    read = load_entry("qwen3").parse(
        'So.\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call><|im_end|>!'
    )
    twin = read.copy()
    assert (
        type(twin) is Message
        and twin == read
        and vars(twin) == vars(read)
        and twin.stop == "<|im_end|>"
    )
    twin["content"], twin.stop = "No.", None
    assert read["content"] == "So." and read.stop == "<|im_end|>"


@pytest.mark.parametrize(
    "shape", [CallShape(), CallShape(bare=True), CallShape(single=True), CallShape(None, True)]
)
def test_a_message_that_somebody_changed(shape: CallShape) -> None:
    form = InputFormat(shape, parts=True, reasoning=IN_PARTS)
    for calls in ([5], [{}], [{"function": None}], [None], 5, "x", {"a": 1}):
        turn = form.to_message(Message(content="x", tool_calls=calls, reasoning_content="y"))
        assert turn["tool_calls"] == calls and turn["content"][-1] == {"type": "text", "text": "x"}
    parts = [{"type": "text", "text": "x"}]
    assert form.to_message(Message(content=parts)) == {"content": parts}
    assert form.to_message(Message()) == {"content": ""}


TURN = (
    "{% for m in messages %}<|{{ m.role }}|>BODY<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MADE = '<call>tide {"day": 3, "place": "a \\"b\\""}</call><|end|>'
REFUSED = "{{ raise_exception('no') }}{% endif %}"


def calling(arguments: str = "c.function.arguments | tojson", name: str = "c.function.name") -> str:
    calls = "{% for c in m.tool_calls %}<call>{{ NAME }} {{ ARGUMENTS }}</call>{% endfor %}"
    return (
        "{% if m.tool_calls %}"
        + calls.replace("NAME", name).replace("ARGUMENTS", arguments)
        + "{% else %}{{ m.content }}{% endif %}"
    )


EITHER = "c.function.arguments if c.function.arguments is string else c.function.arguments | tojson"
FORMS = {
    "a mapping": (calling(), MADE),
    "a text": (calling("c.function.arguments + ''"), MADE),
    "a text to be read": (calling("c.function.arguments | fromjson | tojson"), MADE),
    "either": (calling(EITHER), MADE),
    "one call": (
        "{% if m.function_call %}<call>{{ m.function_call.name }} {{ m.function_call.arguments | tojson }}</call>"
        "{% else %}{{ m.content }}{% endif %}",
        MADE,
    ),
    "content that is null": (
        "{% if m.tool_calls and m.content is not none %}" + REFUSED + calling(),
        MADE,
    ),
    "content that is text": ("{% if m.content is not string %}" + REFUSED + calling(), MADE),
    "no content": ("{% if m.tool_calls and m.content is defined %}" + REFUSED + calling(), MADE),
    "calls without a function": (calling("c.arguments | tojson", "c.name"), MADE),
    "content in parts": (
        "{% if m.content is string %}" + REFUSED + "{{ m.content[0].text }}",
        "Aye.<|end|>",
    ),
    "a plan": (
        "{% if m.tool_plan %}<plan>{{ m.tool_plan }}</plan>{% endif %}" + calling(),
        f"<plan>Look.</plan>{MADE}",
    ),
    "thinking": (
        "{% if m.thinking %}<think>{{ m.thinking }}</think>{% endif %}{{ m.content }}",
        "<think>Hm.</think>Aye.<|end|>",
    ),
    "thinking in parts": (
        "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{% if p.type == 'thinking' %}"
        "<think>{{ p.thinking }}</think>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}",
        "<think>Hm.</think>Aye.<|end|>",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_template_is_given_what_it_takes(form: str) -> None:
    body, reply = FORMS[form]
    template = turnwise.compile(TURN.replace("BODY", body))
    history = [
        {"role": "user", "content": [{"type": "text", "text": "Q?"}] if "parts" in form else "Q?"}
    ]
    prompt = str(template.render(history, add_generation_prompt=True))
    read = template.parse(reply, prompt)
    assert str(template.render([*history, read])) == prompt + reply
    assert template.encode([*history, read], "turnwise").text == prompt + reply
    assert str(template.render((*history, read))) == prompt + reply
    assert read == template.parse(reply, prompt)  # rendering changes nothing of it

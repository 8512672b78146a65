"""What models of each family really write, besides what their templates write: white space, missing closers, calls
within reasoning, text around calls, broken JSON.

A case is a reply and the message that it means. It is read at once and letter by letter, with the same result.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

import reply_vectors as replyvectors
import turnwise
from corpus import needs_corpus
from reply_messages import tool

QWEN3 = "npm-qwen3"
CODER = "vllm-tool_chat_template_qwen3coder"
KIMI = "llamacpp-moonshotai-Kimi-K2"
GLM = "llamacpp-GLM-4.6"
MINIMAX = "llamacpp-MiniMax-M2"
SEED = "llamacpp-ByteDance-Seed-OSS"
LFM = "llamacpp-LFM2-8B-A1B"
DSML = "llamacpp-deepseek-ai-DeepSeek-V3.2"
DEEPSEEK = "vllm-tool_chat_template_deepseekv3"
GRANITE = "vllm-tool_chat_template_granite"
HERMES = "entry hermes"
PHI = "entry phi-4-mini"
LLAMA3 = "llamacpp-meta-llama-Llama-3.1-8B-Instruct"
LLAMA4 = "ollama-llama4-latest"
COMMAND = "ollama-command-r7b-7b"
APERTUS = "llamacpp-Apertus-8B-Instruct"
MINISTRAL = "llamacpp-mistralai-Ministral-3-14B-Reasoning-2512"

TOOLS = [
    tool("f", a="integer", text="string", tags="array", sure="boolean"),
    tool("get_time", zone="string"),
    tool("ping"),
]


class FamilyCase(NamedTuple):
    """A reply to a template, and what it means; arguments that are no JSON are a text."""

    template: str
    reply: str
    content: str | None = None
    reasoning: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()
    prompt: str | None = None


CASES: dict[str, FamilyCase] = {
    # Reasoning that a call ends.
    "a call ends reasoning": FamilyCase(
        QWEN3,
        '<think>\nHm.\n\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
        reasoning="Hm.",
        calls=(("f", {"a": 1}),),
    ),
    "a section ends reasoning": FamilyCase(
        KIMI,
        "<think>Hm<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
        '<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|><|tool_calls_section_end|>',
        reasoning="Hm",
        calls=(("f", {"a": 1}),),
    ),
    "an opener that is mentioned": FamilyCase(
        QWEN3,
        "<think>\nI write <tool_call> and then JSON: <tool_call> here.\n</think>\n\nAye.",
        "Aye.",
        "I write <tool_call> and then JSON: <tool_call> here.",
    ),
    "a call within a sentence of reasoning": FamilyCase(
        MINISTRAL,
        '[THINK]I could write [TOOL_CALLS]f[ARGS]{"a": 2} or so.[/THINK][TOOL_CALLS]f[ARGS]{"a": 1}',
        reasoning='I could write [TOOL_CALLS]f[ARGS]{"a": 2} or so.',
        calls=(("f", {"a": 1}),),
    ),
    "white space after reasoning is kept before its closer": FamilyCase(
        QWEN3, "<think>\nHm. \n \n</think>\n\nAye.", "Aye.", "Hm. \n "
    ),
    # Closers that are missing.
    "the next parameter ends one": FamilyCase(
        CODER,
        "<tool_call>\n<function=f>\n<parameter=text>\nabc\n<parameter=a>\n5\n</parameter>\n</function>\n</tool_call>",
        calls=(("f", {"text": "abc", "a": 5}),),
    ),
    "the end of the call ends a parameter": FamilyCase(
        CODER,
        "<tool_call>\n<function=f>\n<parameter=text>\nabc\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=get_time>\n<parameter=zone>\nUTC\n</tool_call><|im_end|>",
        calls=(("f", {"text": "abc"}), ("get_time", {"zone": "UTC"})),
    ),
    "the next key ends a value": FamilyCase(
        GLM,
        "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>abc\n<arg_key>a</arg_key>\n<arg_value>5</arg_value>\n"
        "</tool_call>",
        calls=(("f", {"text": "abc", "a": 5}),),
    ),
    "the next parameter of an invocation": FamilyCase(
        MINIMAX,
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="text">abc<parameter name="a">5</parameter>\n'
        "</invoke>\n</minimax:tool_call>",
        calls=(("f", {"text": "abc", "a": 5}),),
        prompt="]~b]ai\n",
    ),
    "a section ends a parameter": FamilyCase(
        MINIMAX,
        '<minimax:tool_call><invoke name="f"><parameter name="text">abc</minimax:tool_call>',
        calls=(("f", {"text": "abc"}),),
        prompt="]~b]ai\n",
    ),
    "a text that quotes a parameter": FamilyCase(
        CODER,
        "<tool_call>\n<function=f>\n<parameter=text>\nWrite <parameter=name> and </function> there.\n</parameter>\n"
        "</function>\n</tool_call>",
        calls=(("f", {"text": "Write <parameter=name> and </function> there."}),),
    ),
    "no closer at all": FamilyCase(
        CODER,
        "<tool_call>\n<function=f>\n<parameter=text>\nabc\n</parameter>\n</function>\nSo.",
        "\nSo.",
        calls=(("f", {"text": "abc"}),),
    ),
    # White space and wrappers.
    "blanks around brackets": FamilyCase(
        LFM,
        "<|tool_call_start|> [f(a=1), get_time(zone='UTC')]\n<|tool_call_end|>Done.",
        "Done.",
        calls=(("f", {"a": 1}), ("get_time", {"zone": "UTC"})),
    ),
    "a Python call without its list": FamilyCase(
        LFM,
        "<|tool_call_start|>\nf(a=1)<|tool_call_end|>",
        calls=(("f", {"a": 1}),),
    ),
    "a section with blanks": FamilyCase(
        KIMI,
        "<|tool_calls_section_begin|> <|tool_call_begin|> functions.f:0 <|tool_call_argument_begin|> {invalid json}"
        " <|tool_call_end|> <|tool_calls_section_end|>",
        calls=(("f", "{invalid json}"),),
    ),
    "names in quotes": FamilyCase(
        CODER,
        '<tool_call>\n<function="f">\n<parameter="text">\nabc\n</parameter>\n</function>\n</tool_call>',
        calls=(("f", {"text": "abc"}),),
    ),
    "names in other quotes": FamilyCase(
        MINIMAX,
        "<minimax:tool_call>\n<invoke name='f'>\n<parameter name=a>5</parameter>\n</invoke>\n</minimax:tool_call>",
        calls=(("f", {"a": 5}),),
        prompt="]~b]ai\n",
    ),
    "a fence on its own line": FamilyCase(
        DEEPSEEK,
        '<｜tool▁calls▁begin｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"a": 1}\n```\n'
        "<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{oops\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        calls=(("f", {"a": 1}), ("ping", "{oops")),
    ),
    "a section whose name lacks a letter": FamilyCase(
        KIMI,
        "So.<|tool_call_section_begin|><|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{}"
        "<|tool_call_end|><|tool_call_section_end|>",
        "So.",
        calls=(("ping", {}),),
    ),
    "an object where tags are expected": FamilyCase(
        CODER,
        'So.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\nOK.',
        "So.\nOK.",
        calls=(("f", {"a": 1}),),
    ),
    "an object where a name is expected": FamilyCase(
        GLM, '<tool_call>{"name": "ping", "arguments": {}}</tool_call>', calls=(("ping", {}),)
    ),
    "a call in OpenAI's shape": FamilyCase(
        QWEN3,
        '<tool_call>\n{"type": "function", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}\n</tool_call>',
        calls=(("f", {"a": 1}),),
    ),
    "arguments that are a blank text": FamilyCase(
        QWEN3, '<tool_call>\n{"name": "ping", "arguments": ""}\n</tool_call>', calls=(("ping", {}),)
    ),
    "parameters without their type": FamilyCase(
        DSML,
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="text">5</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="a" string="false">5</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        "</｜DSML｜function_calls>",
        calls=(("f", {"text": "5", "a": 5}),),
        prompt="<｜Assistant｜>",
    ),
    # What a template never writes, and what is declared for its family.
    "Hermes without a template for tools": FamilyCase(
        HERMES,
        '<think>\nHm.\n</think>\nOne moment.\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"arguments": {}, "name": "ping"}\n</tool_call>',
        "One moment.\n",
        "Hm.",
        calls=(("f", {"a": 1}), ("ping", {})),
    ),
    "Llama 3 with the token for code": FamilyCase(
        LLAMA3,
        '<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "ping", "parameters": {}}<|eom_id|>',
        calls=(("f", {"a": 1}), ("ping", {})),
    ),
    "Llama 4 in Python between tokens": FamilyCase(
        LLAMA4,
        "<|python_start|>[f(a=1, tags=['x', None]), ping()]<|python_end|>",
        calls=(("f", {"a": 1, "tags": ["x", None]}), ("ping", {})),
    ),
    "Llama 4 in Python": FamilyCase(LLAMA4, "[ping()]", calls=(("ping", {}),)),
    "Llama 4 in JSON": FamilyCase(
        LLAMA4, '[{"name": "f", "parameters": {"a": 1}}]', calls=(("f", {"a": 1}),)
    ),
    "Granite without its token": FamilyCase(
        GRANITE,
        '[{"name": "f", "arguments": {"a": 1}}, {"name": "ping", "arguments": {}}]',
        calls=(("f", {"a": 1}), ("ping", {})),
    ),
    "Phi with its tokens": FamilyCase(
        PHI,
        '<|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>',
        calls=(("f", {"a": 1}),),
    ),
    "Command R7B answers": FamilyCase(
        COMMAND,
        "<|START_THINKING|>Hm.<|END_THINKING|>\n<|START_RESPONSE|>Aye.<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
        "Aye.",
        "Hm.",
    ),
    "Command R7B acts": FamilyCase(
        COMMAND,
        "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>\n[\n"
        '    {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}\n]<|END_ACTION|>',
        reasoning="Hm.",
        calls=(("f", {"a": 1}),),
    ),
    "Apertus thinks": FamilyCase(APERTUS, "<|inner_prefix|>Hm.<|inner_suffix|>Aye.", "Aye.", "Hm."),
}


def read(case: FamilyCase, chunks: Any) -> Any:
    parser = replyvectors.template(case.template).parser(case.prompt, TOOLS)
    for chunk in chunks:
        parser.feed(chunk)
    return parser.close()


def list_calls(message: Any) -> tuple[tuple[str, Any], ...]:
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return tuple((one["name"], as_value(one["arguments"])) for one in functions)


def as_value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


@needs_corpus
@pytest.mark.parametrize("name", CASES)
def test_reply(name: str) -> None:
    case = CASES[name]
    message = read(case, [case.reply])
    assert list_calls(message) == case.calls
    assert (message.get("content") or None) == case.content
    assert message.get("reasoning_content") == case.reasoning
    letters = read(case, case.reply)
    assert letters == message and letters.attempts == message.attempts
    assert letters.spans == message.spans


INSTRUCTED = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if loop.first %}Start with <|START_THINKING|> and a plan, and close it out with <|END_THINKING|>. Then write"
    " <|START_RESPONSE|>, and in the end <|END_RESPONSE|>. A <tool_response> follows </tool_response>.\n{% endif %}"
    "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_markers_that_are_only_named_in_the_instructions() -> None:
    template = turnwise.compile(INSTRUCTED, dialect="jinja")
    grammar = template.grammar
    assert (grammar.sources["reasoning"], grammar.sources["content"]) == ("named", "named")
    reply = "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Aye.<|END_RESPONSE|><|end|>"
    message = template.parse(reply)
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Aye.")
    assert template.parse("Aye.<|end|>")["content"] == "Aye."
    # Plain tags around an answer may be a part of it.
    plain = INSTRUCTED.replace("<|START_RESPONSE|>", "<answer>").replace(
        "<|END_RESPONSE|>", "</answer>"
    )
    assert not turnwise.compile(plain, dialect="jinja").grammar.content.open

"""Grammars written by hand, one for each way in which calls are written, with a reply and what it says.

They stand beside the derived ones so that the parser's laws do not depend on the derivation.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import Calls, JsonCall, Marker, Pairs, Region, TaggedCall


def region(open: str, close: str) -> Region:
    return Region(Marker(open), Marker(close))


def tagged_call(*parts: str, pairs: Pairs | None = None) -> TaggedCall:
    """Slots are written as {name}."""
    return TaggedCall(
        tuple(part[1:-1] if part[:1] + part[-1:] == "{}" else Marker(part) for part in parts), pairs
    )


THINK = region("<think>\n", "\n</think>\n\n")
TIGHT = region("<think>", "</think>")
CHATML = "<|im_start|>assistant\n"

GRAMMARS: dict[str, Grammar] = {
    "qwen3": Grammar(
        opening=CHATML,
        reasoning=THINK,
        calls=Calls(
            JsonCall(), each=region("<tool_call>\n", "\n</tool_call>"), between=Marker("\n"), lead=Marker("\n")
        ),
        stops=("<|im_end|>",),
    ),
    "qwen3.5": Grammar(
        opening=CHATML + "<think>\n",
        reasoning=THINK,
        calls=Calls(
            tagged_call(
                "{name}", ">\n", "{arguments}",
                pairs=Pairs(
                    Marker("<parameter="), region(">\n", "\n</parameter>\n"), region(">\n", "\n</parameter>\n")
                ),
            ),
            each=region("<tool_call>\n<function=", "</function>\n</tool_call>"),
            between=Marker("\n"),
            lead=Marker("\n\n"),
        ),
        stops=("<|im_end|>",),
    ),
    "glm-4.6": Grammar(
        opening="<|assistant|>",
        reasoning=region("\n<think>", "</think>"),
        content=region("\n", ""),
        calls=Calls(
            tagged_call(
                "{name}", "\n", "{arguments}",
                pairs=Pairs(
                    Marker("<arg_key>"),
                    region("</arg_key>\n<arg_value>", "</arg_value>\n"),
                    region("</arg_key>\n<arg_value>", "</arg_value>\n"),
                ),
            ),
            each=region("\n<tool_call>", "</tool_call>"),
        ),
        stops=("<|user|>", "<|observation|>"),
    ),
    "gemma-4": Grammar(
        opening="<|turn>model\n",
        reasoning=region("<|channel>thought\n", "\n<channel|>"),
        calls=Calls(
            tagged_call(
                "{name}", "{", "{arguments}",
                pairs=Pairs(
                    string=region(':<|"|>', '<|"|>'), other=region(":", ""), between=Marker(","), values="quoted"
                ),
            ),
            each=region("<|tool_call>call:", "}<tool_call|>"),
        ),
        stops=("<turn|>", "<|tool_response>"),
    ),
    "kimi-k2": Grammar(
        opening="<|im_assistant|>assistant<|im_middle|>",
        reasoning=TIGHT,
        calls=Calls(
            tagged_call("{name}", ":", "{index}", "<|tool_call_argument_begin|>", "{arguments}"),
            section=region("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
            each=region("<|tool_call_begin|>functions.", "<|tool_call_end|>"),
        ),
        stops=("<|im_end|>",),
    ),
    "deepseek-v3.1": Grammar(
        opening="<｜Assistant｜></think>",
        reasoning=TIGHT,
        calls=Calls(
            tagged_call("{name}", "<｜tool▁sep｜>", "{arguments}"),
            section=region("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
            each=region("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"),
        ),
        stops=("<｜end▁of▁sentence｜>",),
    ),
    "mistral-nemo": Grammar(
        calls=Calls(JsonCall(id="id", listed=True), section=region("[TOOL_CALLS]", ""), between=Marker(", ")),
        stops=("</s>",),
    ),
    "apertus": Grammar(
        opening="<|assistant_start|>",
        calls=Calls(
            JsonCall(name=None, listed=True),
            section=region("<|tools_prefix|>", "<|tools_suffix|>"),
            between=Marker(", "),
        ),
        stops=("<|assistant_end|>",),
    ),
    "llama-3.1": Grammar(
        opening="<|start_header_id|>assistant<|end_header_id|>\n\n",
        calls=Calls(JsonCall(arguments="parameters"), excludes_content=True),
        stops=("<|eot_id|>", "<|eom_id|>"),
    ),
    "gpt-oss": Grammar(
        opening="<|start|>assistant",
        reasoning=region("<|channel|>analysis<|message|>", "<|end|>"),
        content=region("<|channel|>final<|message|>", "<|return|>"),
        calls=Calls(
            tagged_call("{name}", "<|channel|>commentary json<|message|>", "{arguments}"),
            each=region(" to=functions.", "<|call|>"),
        ),
        stops=("<|return|>", "<|call|>"),
        starts=("<|start|>assistant",),
    ),
    "lfm2": Grammar(
        opening=CHATML,
        reasoning=TIGHT,
        calls=Calls(
            tagged_call(
                "{name}", "(", "{arguments}",
                pairs=Pairs(
                    string=region("=", ""), other=region("=", ""), between=Marker(", "),
                    values="python", strings="python",
                ),
            ),
            section=region("<|tool_call_start|>[", "]<|tool_call_end|>"),
            each=region("", ")"),
            between=Marker(", "),
        ),
        stops=("<|im_end|>",),
    ),
    "llama-4": Grammar(
        opening="<|header_start|>assistant<|header_end|>\n\n",
        calls=Calls(
            tagged_call(
                "{name}", "(", "{arguments}",
                pairs=Pairs(
                    string=region("=", ""), other=region("=", ""), between=Marker(", "),
                    values="python", strings="python",
                ),
            ),
            section=region("[", "]"),
            each=region("", ")"),
            between=Marker(", "),
        ),
        stops=("<|eot|>",),
    ),
    "deepseek-v3.2": Grammar(
        opening="<｜Assistant｜><think>",
        reasoning=TIGHT,
        calls=Calls(
            tagged_call(
                "{name}", '">\n', "{arguments}",
                pairs=Pairs(
                    Marker('<｜DSML｜parameter name="'),
                    region('" string="true">', "</｜DSML｜parameter>\n"),
                    region('" string="false">', "</｜DSML｜parameter>\n"),
                ),
            ),
            section=region("\n\n<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>"),
            each=region('<｜DSML｜invoke name="', "</｜DSML｜invoke>\n"),
        ),
        stops=("<｜end▁of▁sentence｜>",),
    ),
}  # fmt: skip


class Example(NamedTuple):
    """A reply as the model writes it, and the message that it is."""

    grammar: str
    reply: str
    content: str | None = None
    reasoning: str | None = None
    calls: tuple[tuple[str, Any], ...] = ()


ARGUMENTS = {"city": 'São "P"', "days": 3, "deep": {"a": [1, True, None], "b": "x"}}
WEATHER = ("get_weather", ARGUMENTS)
NOW = ("now", {})
J = json.dumps(ARGUMENTS, ensure_ascii=False)
DEEP = json.dumps(ARGUMENTS["deep"], ensure_ascii=False)
PYTHON = "get_weather(city='São \"P\"', days=3, deep={'a': [1, True, None], 'b': 'x'})"

EXAMPLES = [
    Example(
        "qwen3",
        f'<think>\nHm < 3.\n</think>\n\nI look.\n<tool_call>\n{{"name": "get_weather", "arguments": {J}}}\n</tool_call>'
        '\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call><|im_end|>',
        "I look.", "Hm < 3.", (WEATHER, NOW),
    ),
    Example(
        "qwen3.5",
        'Hm.\n</think>\n\nI look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nSão "P"\n</parameter>\n'
        f"<parameter=days>\n3\n</parameter>\n<parameter=deep>\n{DEEP}\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=now>\n</function>\n</tool_call><|im_end|>",
        "I look.", "Hm.", (WEATHER, NOW),
    ),
    Example(
        "glm-4.6",
        '\n<think>Hm.</think>\nI look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>São "P"</arg_value>'
        f"\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>deep</arg_key>\n<arg_value>{DEEP}</arg_value>\n"
        "</tool_call>\n<tool_call>now\n</tool_call><|observation|>",
        "I look.", "Hm.", (WEATHER, NOW),
    ),
    Example(
        "gemma-4",
        '<|channel>thought\nHm.\n<channel|>I look.<|tool_call>call:get_weather{city:<|"|>São "P"<|"|>,days:3,'
        'deep:{a:[1,true,null],b:<|"|>x<|"|>}}<tool_call|><|tool_call>call:now{}<tool_call|><turn|>',
        "I look.", "Hm.", (WEATHER, NOW),
    ),
    Example(
        "kimi-k2",
        "<think>Hm.</think>I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        f"<|tool_call_argument_begin|>{J}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>"
        "{}<|tool_call_end|><|tool_calls_section_end|><|im_end|>",
        "I look.", "Hm.", (WEATHER, NOW),
    ),
    Example(
        "deepseek-v3.1",
        f"I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{J}<｜tool▁call▁end｜>"
        "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>",
        "I look.", None, (WEATHER, NOW),
    ),
    Example(
        "mistral-nemo",
        f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {J}, "id": "abcdefghi"}}, '
        '{"name": "now", "arguments": {}, "id": "123456789"}]</s>',
        None, None, (WEATHER, NOW),
    ),
    Example(
        "apertus",
        f'I look.<|tools_prefix|>[{{"get_weather": {J}}}, {{"now": {{}}}}]<|tools_suffix|><|assistant_end|>',
        "I look.", None, (WEATHER, NOW),
    ),
    Example("llama-3.1", f'{{"name": "get_weather", "parameters": {J}}}<|eot_id|>', None, None, (WEATHER,)),
    Example("llama-3.1", '{"name": "Ann", "age": 3} is JSON.<|eot_id|>', '{"name": "Ann", "age": 3} is JSON.'),
    Example(
        "gpt-oss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary json"
        f"<|message|>{J}<|call|>",
        None, "Hm.", (WEATHER,),
    ),
    Example(
        "gpt-oss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
        f"<|constrain|>json<|message|>{J}<|call|>",
        None, "Hm.", (WEATHER,),
    ),
    Example(
        "gpt-oss",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
        "Hello.", "Hm.",
    ),
    Example(
        "lfm2",
        f"<think>Hm.</think>I look.<|tool_call_start|>[{PYTHON}, now()]<|tool_call_end|><|im_end|>",
        "I look.", "Hm.", (WEATHER, NOW),
    ),
    Example("llama-4", f"[{PYTHON}, now()]<|eot|>", None, None, (WEATHER, NOW)),
    Example("llama-4", "[a link](somewhere)<|eot|>", "[a link](somewhere)"),
    Example(
        "deepseek-v3.2",
        'Hm.</think>I look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
        '<｜DSML｜parameter name="city" string="true">São "P"</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
        f'<｜DSML｜parameter name="deep" string="false">{DEEP}</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
        '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls><｜end▁of▁sentence｜>',
        "I look.", "Hm.", (WEATHER, NOW),
    ),
]  # fmt: skip

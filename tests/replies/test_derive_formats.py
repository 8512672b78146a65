"""Formats in the wild, each as a small template of our own: what they write is read back, and so is what models write.

A format here is known from its description alone: no published template was at hand when it was written down. The law
is the one of `test_render_then_parse.py`; `SAID` are replies that no template writes: blanks that are missing, sections
that are not opened, reasoning that a call ends.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, NamedTuple

import pytest

import turnwise
from turnwise.replies.write import write

WORDS = {
    "said": "{{ m.content }}",
    "thought": "{{ m.reasoning_content }}",
    "calls": "{% for c in m.tool_calls or [] %}",
    "id": "{{ c.id }}",
    "name": "{{ c.function.name }}",
    "json": "{{ c.function.arguments | tojson }}",
    "pairs": "{% for k, v in c.function.arguments.items() %}",
    "key": "{{ k }}",
    "value": "{{ v if v is string else v | tojson }}",
    "if said": "{% if m.content %}",
    "if thought": "{% if m.reasoning_content %}",
    "if calls": "{% if m.tool_calls %}",
    "if more": "{% if not loop.last %}",
    "else": "{% else %}",
    "fi": "{% endif %}",
    "done": "{% endfor %}",
    "ns": "]<]ns[>[",  # a token that stands before every tag
}


class Format(NamedTuple):
    """How one format writes an assistant's turn, with `WORDS` in «»."""

    opened: str  # before the turn of ROLE
    body: str  # what the assistant says
    closed: str
    asks: str = ""  # what a prompt adds to the opener
    macros: str = ""

    def template(self) -> str:
        turn = self.opened.replace("ROLE", "assistant")
        other = self.opened.replace("ROLE", "{{ m.role }}") + "«said»" + self.closed
        text = (
            self.macros
            + "{% for m in messages %}{% if m.role == 'assistant' %}"
            + (turn + self.body + self.closed + "«else»" + other + "«fi»«done»")
            + ("{% if add_generation_prompt %}" + turn + self.asks + "«fi»")
        )
        return re.sub("«(.*?)»", lambda found: WORDS[found[1]], text)


DEEP = (
    "{%- macro val(v) -%}{%- if v is mapping -%}{%- for k, x in v.items() -%}"
    "«ns»<«key»>{{ val(x) }}«ns»</«key»>{%- endfor -%}{%- elif v is string -%}{{ v }}{%- elif v is iterable -%}"
    "{%- for x in v -%}«ns»<item>{{ val(x) }}«ns»</item>{%- endfor -%}"
    "{%- else -%}{{ v | tojson }}{%- endif -%}{%- endmacro -%}"
)
LISTED = '[«calls»{"name": "«name»", "arguments": «json»}«if more», «fi»«done»]'

FORMATS = {
    "the key is a tag, values within values": Format(
        "]~b]ROLE\n",
        "«if thought»<mm:think>«thought»</mm:think>«else»</mm:think>«fi»«said»"
        '«if calls»«ns»<tool_call>\n«calls»«ns»<invoke name="«name»">'
        "«pairs»«ns»<«key»>{{ val(v) }}«ns»</«key»>«done»«ns»</invoke>\n«done»«ns»</tool_call>«fi»",
        "[e~[\n",
        macros=DEEP,
    ),
    "a recipient in the header": Format(
        "<|start|>ROLE",
        "«if thought» to=self<|message|>«thought»<|next|><|start|>assistant«fi»"
        "«if said» to=user<|message|>«said»«if calls»<|next|><|start|>assistant«fi»«fi»"
        '«calls» to=«name»<|message|><invoke name="«name»">«pairs»<parameter name="«key»">«value»</parameter>«done»'
        "</invoke>«if more»<|next|><|start|>assistant«fi»«done»",
        "<|eot|>",
    ),
    "a message for every region": Format(
        "<|begin|>ROLE",
        "«if thought»<|think|>«thought»<|end|><|begin|>assistant«fi»"
        "«if said»<|content|>«said»«if calls»<|end|><|begin|>assistant«fi»«fi»"
        "«if calls»<|calls|>«calls»<|c:begin|>«id»<|c:name|>«name»<|c:args|>«json»<|c:end|>«done»«fi»",
        "<|end|>",
    ),
    "the prompt ends within a marker": Format(
        "<|h|>ROLE<|/h|>\n\n",
        "«if said»>>>all\n«said»«fi»«calls»>>>«name»\n«json»«done»",
        "<|eot|>",
        ">>>",
    ),
    "the name in the tag": Format(
        "<|h|>ROLE<|/h|>\n\n", "«said»«calls»<function=«name»>«json»</function>«done»", "<|eot|>"
    ),
    "reasoning that history drops": Format(
        "<S11>ROLE\n",
        "{{ m.content.split('</think>')[-1].strip() }}«if calls»<TOOLCALL>"
        + LISTED
        + "</TOOLCALL>«fi»",
        "\n<S12>\n",
        "<think>\n",
    ),
    "a list in a fence": Format(
        "<|START|><|ROLE|>",
        '«if calls»Action:\n```json\n[\n«calls»    {\n        "tool_name": "«name»",\n        "parameters": «json»\n'
        "    }«if more»,\n«fi»«done»\n]```«else»«said»«fi»",
        "<|END|>",
    ),
    "reasoning between words": Format(
        "<|ROLE|>\n",
        "«if thought»Here are my steps:\n«thought»\n[BEGIN FINAL RESPONSE]\n«fi»«said»"
        "«if calls»\n<tool_calls>" + LISTED + "</tool_calls>«fi»",
        "\n<|end|>\n",
        "Here are my steps:\n",
    ),
    "ids with a number": Format(
        "<|im_ROLE|>",
        "«if thought»<think>«thought»</think>«fi»«said»«if calls»<|section|>"
        "«calls»<|call|>functions.«name»:{{ loop.index0 }}<|args|>«json»<|call_end|>«done»<|section_end|>«fi»",
        "<|im_end|>",
    ),
    "keys and values in tags": Format(
        "<|ROLE|>",
        "<think>{{ m.reasoning_content or '' }}</think>«said»"
        "«calls»<tool_call>«name»«pairs»<arg_key>«key»</arg_key><arg_value>«value»</arg_value>«done»</tool_call>«done»",
        "",
        "{{ '</think>' if enable_thinking is defined and not enable_thinking else '<think>' }}",
    ),
    "a call in JSON": Format(
        "<|s|>ROLE<|e|>",
        "«said»«calls»{% if m.content or not loop.first %}\n«fi»<tool_call>\n"
        '{"name": "«name»", "arguments": «json»}\n</tool_call>«done»',
        "<|end_of_text|>\n",
    ),
    "no header and no closer": Format(
        "", "«said»«calls»[TOOL_CALLS]«name»[ARGS]«json»«done»", "</s>"
    ),
}


def tool(name: str, **types: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in types.items()},
    }
    return {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": parameters},
    }


TOOLS = [
    tool("weather", city="string", days="integer", deep="object", tags="array"),
    tool("now"),
    tool("python", code="string"),
]
ASKED = [{"role": "user", "content": "Q?"}]


def calls(*made: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "id": f"abcdefgh{at}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for at, (name, arguments) in enumerate(made)
    ]


PARIS: tuple[str, dict[str, Any]] = ("weather", {"city": 'São <b> "P"', "days": 3})
MESSAGES: tuple[dict[str, Any], ...] = (
    {"content": "Hello, world!\nWhat's up?"},
    {"content": "Hello.", "reasoning_content": "I'm\nthinking"},
    {"content": "", "tool_calls": calls(PARIS)},
    {
        "content": "",
        "tool_calls": calls(
            ("weather", {"city": "x\ny", "deep": {"a": [1, 2], "b": "z"}, "tags": ["u"]})
        ),
    },
    {"content": "", "tool_calls": calls(PARIS, ("now", {}))},
    {"content": "Let me look.", "tool_calls": calls(PARIS)},
    {"content": "", "reasoning_content": "Hm.", "tool_calls": calls(PARIS)},
    {
        "content": "So.",
        "reasoning_content": "Hm.",
        "tool_calls": calls(PARIS, ("python", {"code": "f('a')\nx = [1]"})),
    },
)


@cache
def compile_format(name: str) -> turnwise.Template:
    return turnwise.compile(FORMATS[name].template())


def essence(message: Any) -> tuple[Any, ...]:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    called = [(one["name"], as_data(one["arguments"])) for one in functions]
    return (
        (message.get("content") or "").strip(),
        (message.get("reasoning_content") or "").strip(),
        called,
    )


def as_data(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


@pytest.mark.parametrize("name", FORMATS)
def test_what_the_template_writes_is_read_back(name: str) -> None:
    template = compile_format(name)
    prompt = template.render(ASKED, tools=TOOLS, add_generation_prompt=True)
    for message in MESSAGES:
        whole = str(template.render([*ASKED, {"role": "assistant", **message}], tools=TOOLS))
        goes_on = whole.startswith(str(prompt))
        reply = whole[len(str(prompt)) :] if goes_on else write(template.grammar, message, prompt)
        shown = {key: text for key, text in message.items() if key == "tool_calls" or text in reply}
        assert essence(template.parse(reply, prompt, tools=TOOLS)) == essence(shown), reply


NS = WORDS["ns"]
CALLED = [("weather", {"city": "x"})]
CALL = '{"name": "weather", "arguments": {"city": "x"}}'
SAID: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("the key is a tag, values within values", "</mm:think>Hi", ("Hi", "", [])),
    (
        "the key is a tag, values within values",
        f'<mm:think>a</mm:think>b{NS}<invoke name="weather">{NS}<city>x{NS}</city>{NS}</invoke>',
        ("b", "a", CALLED),
    ),
    ("the prompt ends within a marker", 'all\nHi>>>weather\n{"city": "x"} \n', ("Hi", "", CALLED)),
    ("the name in the tag", 'Hi <function=weather>{"city": "x"}</function>\n', ("Hi", "", CALLED)),
    ("reasoning that history drops", "Hm.</think>So.", ("So.", "Hm.", [])),
    (
        "reasoning that history drops",
        f"Hm.\n</think>\n\n<TOOLCALL>[{CALL}]</TOOLCALL>",
        ("", "Hm.", CALLED),
    ),
    ("reasoning that history drops", "Hm", ("", "Hm", [])),
    (
        "a list in a fence",
        'Action:\n```json\n[{"tool_name": "weather", "parameters": {"city": "x"}}]```',
        ("", "", CALLED),
    ),
    ("reasoning between words", f"Hm.\n<tool_calls>[{CALL}]</tool_calls>", ("", "Hm.", CALLED)),
    (
        "ids with a number",
        'a<|call|>functions.weather:0 <|args|> {"city": "x"} <|call_end|>',
        ("a", "", CALLED),
    ),
    (
        "ids with a number",
        'a<|section|><|call|>weather<|args|>{"city": "x"}<|call_end|>',
        ("a", "", CALLED),
    ),
    (
        "keys and values in tags",
        "a</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
        ("", "a", CALLED),
    ),
    (
        "keys and values in tags",
        "a<tool_call>weather<arg_key>city</arg_key><arg_value>x</arg_value></tool_call>",
        ("", "a", CALLED),
    ),
    (
        "a call in JSON",
        f"Hi<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}",
        ("Hi", "", CALLED * 2),
    ),
    ("no header and no closer", '[TOOL_CALLS]weather{"city": "x"}</s>', ("", "", CALLED)),
    ("no header and no closer", f"[TOOL_CALLS][{CALL}]</s>", ("", "", CALLED)),
)


@pytest.mark.parametrize(("name", "reply", "expected"), SAID, ids=[reply for _, reply, _ in SAID])
def test_what_models_write(name: str, reply: str, expected: tuple[Any, ...]) -> None:
    template = compile_format(name)
    prompt = template.render(ASKED, tools=TOOLS, add_generation_prompt=True)
    assert essence(template.parse(reply, prompt, tools=TOOLS)) == expected
    parser = template.parser(prompt=prompt, tools=TOOLS)
    for letter in reply:
        parser.feed(letter)
    assert essence(parser.close()) == expected

"""Odd templates: made up, but most of them were learned from a published one.

`ODD` write messages after their own prompts. `REPLIES` are single replies where the finished turn does not continue
the prompt. `BEYOND` are templates that are not understood, or that cannot be parsed, and what their grammars report.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

Message = dict[str, Any]
Form = Callable[[Message], Message]


# -- messages

OSLO = {"city": 'São "P" <b>', "days": 3, "note": "12", "deep": {"a": [1, True, None], "b": "x"}}
TYPES = {"city": "string", "days": "integer", "note": "string", "deep": "object"}


def tool(name: str, **types: str) -> Message:
    schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in types.items()}}
    return {
        "type": "function",
        "function": {"name": name, "description": "d", "parameters": schema},
    }


def call(name: str, arguments: Message, number: int) -> Message:
    return {
        "id": f"abcd0000{number}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


TOOLS = [tool("look", **TYPES), tool("now")]
LOOK, NOW = call("look", OSLO, 1), call("now", {}, 2)
SAID = ("content",)
THOUGHT = ("reasoning", "reasoning and call", "everything")
CALLED = ("call", "calls", "no arguments", "content and call")
KINDS: dict[str, Message] = {
    "content": {"content": "It is fine.\n\nSo."},
    "reasoning": {"content": "Fine.", "reasoning_content": "Let me see:\n1 < 2."},
    "call": {"content": "", "tool_calls": [LOOK]},
    "calls": {"content": "", "tool_calls": [LOOK, NOW]},
    "no arguments": {"content": "", "tool_calls": [NOW]},
    "content and call": {"content": "I look.", "tool_calls": [LOOK]},
    "reasoning and call": {"content": "", "reasoning_content": "Hm.", "tool_calls": [LOOK]},
    "everything": {"content": "I look.", "reasoning_content": "Hm.", "tool_calls": [LOOK, NOW]},
}
ASK = {"role": "user", "content": "Q?"}
RESULT = {"role": "tool", "content": "R!", "tool_call_id": "abcd00009", "name": "now"}
HISTORIES: dict[str, list[Message]] = {
    "alone": [ASK],
    "system": [{"role": "system", "content": "Rules."}, ASK],
    "rounds": [ASK, {"role": "assistant", "content": "Hello."}, ASK],
    "result": [
        ASK,
        {"role": "assistant", "content": "", "tool_calls": [call("now", {}, 9)]},
        RESULT,
    ],
}


# -- forms in which a template takes a message


def plain(message: Message) -> Message:
    return message


def as_text(message: Message) -> Message:
    """Arguments are JSON text."""
    calls = [
        {
            **one,
            "function": {**one["function"], "arguments": json.dumps(one["function"]["arguments"])},
        }
        for one in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else message


def without_content(message: Message) -> Message:
    return {**message, "content": message["content"] or None}


def in_parts(message: Message) -> Message:
    thought = message.get("reasoning_content")
    parts = [{"type": "thinking", "thinking": thought}] if thought else []
    texts = [{"type": "text", "text": message["content"]}] if message["content"] else []
    return {
        **{key: value for key, value in message.items() if key != "reasoning_content"},
        "content": parts + texts,
    }


def unwrap(message: Message) -> Message:
    """Name and arguments stand in the call itself."""
    calls = [{"id": one["id"], **one["function"]} for one in message.get("tool_calls", ())]
    return {**message, "tool_calls": calls} if calls else message


def single(message: Message) -> Message:
    """One call, as it was written before there were several."""
    calls = message.get("tool_calls")
    return (
        {"content": message["content"], "role": "assistant", "function_call": calls[0]["function"]}
        if calls
        else message
    )


class Odd(NamedTuple):
    text: str
    kinds: tuple[str, ...] = (*SAID, *CALLED)
    form: Form = plain
    histories: tuple[str, ...] = tuple(HISTORIES)
    options: Message = {}


BODY = "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}"
TEXT = "{{ m.content or '' }}"
EVERYTHING = (*SAID, *CALLED, *THOUGHT)


def turns(body: str, opening: str = "") -> str:
    """A template of plain turns; the body writes a message."""
    return (
        "{%- for m in messages -%}<|{{ m.role }}|>" + body + "<|end|>{%- endfor -%}"
        "{%- if add_generation_prompt %}<|assistant|>" + opening + "{% endif %}"
    )


def calls(each: str) -> str:
    """A template with plain turns and one way of writing each call."""
    return turns(TEXT + "{% for c in m.tool_calls or [] %}" + each + "{% endfor %}")


def reasoning_block(open_: str, close: str) -> str:
    return (
        "{% if m.reasoning_content %}" + open_ + "{{ m.reasoning_content }}" + close + "{% endif %}"
    )


JSON = "{{ c.function.arguments | tojson }}"
VALUE = "{{ v if v is string else v | tojson }}"
PAIRS = "{% for k, v in c.function.arguments.items() %}"

ODD = {
    # how the template is written
    "calls by a macro": Odd(
        "{%- macro one(c) -%}<call>{{ c.function.name }}<with>" + JSON + "</call>{%- endmacro -%}"
        + turns(TEXT + "{% for c in m.tool_calls or [] %}{{ one(c) }}{% endfor %}")
    ),
    "a macro with a caller": Odd(
        "{%- macro tag(name) -%}<{{ name }}>{{ caller() }}</{{ name }}>{%- endmacro -%}"
        + calls("{% call tag('fn') %}{{ c.function.name }}|" + JSON + "{% endcall %}")
    ),
    "a block that is kept and trimmed": Odd(
        calls("{% set body %}<call>{{ c.function.name }}\n" + JSON + "</call> {% endset %}{{ body | trim }}")
    ),
    "a namespace is filled and counts": Odd(
        "{%- set ns = namespace(out='', n=0) -%}{%- for m in messages -%}"
        "{%- set ns.out = ns.out ~ '<|' ~ m.role ~ '|>' ~ (m.content or '') -%}"
        "{%- for c in m.tool_calls or [] -%}{%- set ns.out = ns.out ~ '<call n=' ~ ns.n ~ '>' ~ c.function.name ~ '|' ~"
        " (c.function.arguments | tojson) ~ '</call>' -%}{%- set ns.n = ns.n + 1 -%}{%- endfor -%}"
        "{%- set ns.out = ns.out ~ '<|end|>' -%}{%- endfor -%}"
        "{{- ns.out ~ ('<|assistant|>' if add_generation_prompt else '') -}}"
    ),
    "messages are rows that are joined": Odd(
        "{%- set ns = namespace(rows=[]) -%}{%- for m in messages -%}{%- set body -%}" + BODY + "{%- endset -%}"
        "{%- set ns.rows = ns.rows + [m.role | upper ~ ': ' ~ (m.content or '') ~ body] -%}{%- endfor -%}"
        "{{- ns.rows | join('\n---\n') -}}{%- if add_generation_prompt -%}{{ '\n---\nASSISTANT: ' }}{%- endif -%}"
    ),
    "markers by concatenation": Odd(
        "{%- for m in messages -%}{{ '<|' ~ m.role ~ '|>\n' ~ (m.content or '') }}{%- for c in m.tool_calls or [] -%}"
        "{{ '<|' ~ 'call' ~ '|>' ~ c.function.name ~ '<|' ~ 'with' ~ '|>' ~ (c.function.arguments | tojson)"
        " ~ '<|' ~ '/call' ~ '|>' }}{%- endfor -%}{{ '<|' ~ 'end' ~ '|>' }}{%- endfor -%}"
        "{{- '<|' ~ 'assistant' ~ '|>\n' if add_generation_prompt -}}"
    ),
    "calls by format": Odd(calls("{{ '<call>%s %s</call>' % (c.function.name, c.function.arguments | tojson) }}")),
    "calls by replace": Odd(
        calls("{{ '<call>N A</call>' | replace('N', c.function.name) | replace('A', c.function.arguments | tojson) }}")
    ),
    "calls by map and join": Odd(
        turns(
            TEXT + "{% if m.tool_calls %}<calls>{{ m.tool_calls | map(attribute='function') | map('tojson')"
            " | join(';') }}</calls>{% endif %}"
        )
    ),
    "calls that are built anew": Odd(
        turns(
            TEXT + "{% if m.tool_calls %}{% set ns = namespace(all=[]) %}{% for c in m.tool_calls %}"
            "{% set ns.all = ns.all + [{'tool': c.function.name, 'args': c.function.arguments}] %}{% endfor %}"
            "<calls>{{ ns.all | tojson }}</calls>{% endif %}"
        )
    ),
    "markers are options": Odd(
        "{%- for m in messages -%}{{ bos_token }}{{ m.role }}: " + TEXT + "{%- for c in m.tool_calls or [] -%}"
        "{{ call_open }}{{ c.function.name }} " + JSON + "{{ call_close }}{%- endfor -%}{{ eos_token }}{%- endfor -%}"
        "{%- if add_generation_prompt %}{{ bos_token }}assistant: {% endif %}",
        options={"bos_token": "<s>", "eos_token": "</s>", "call_open": "<fn>", "call_close": "</fn>"},
    ),
    # what the template demands
    "a system's message must come first": Odd(
        "{%- if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif -%}"
        + turns(reasoning_block("<why>", "</why>") + TEXT + BODY),
        EVERYTHING,
        histories=("system",),
    ),
    "roles must alternate": Odd(
        turns(
            "{% if m.role in ('user', 'assistant') and (m.role == 'user') != (loop.index0 % 2 == 0) %}"
            "{{ raise_exception('roles must alternate') }}{% endif %}" + TEXT + BODY
        ),
        histories=("alone", "rounds"),
    ),
    "no calls without tools": Odd(turns(TEXT + "{% if tools %}" + BODY + "{% endif %}")),
    "no content beside calls": Odd(
        turns(
            "{% if m.tool_calls %}{% if m.content is not none %}{{ raise_exception('content') }}{% endif %}"
            + BODY + "{% else %}{{ m.content }}{% endif %}"
        ),
        ("content", "call", "calls", "no arguments"),
        without_content,
        ("alone", "system", "rounds"),
    ),
    "parts and nothing else": Odd(
        turns(
            "{% if m.content is string and m.content and m.role == 'assistant' %}{{ raise_exception('no parts') }}"
            "{% endif %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}"
            "{% if p.type == 'text' %}{{ p.text }}{% else %}[T]{{ p.thinking }}[/T]{% endif %}{% endfor %}{% endif %}"
            + BODY
        ),
        EVERYTHING,
        in_parts,
        ("alone", "system", "result"),
    ),
    "arguments are text": Odd(
        calls("{{ '<call>' + c.function.name + c.function.arguments + '</call>' }}"), form=as_text
    ),
    "calls without a wrapper": Odd(
        calls("<call>{{ c.name }}{{ c.arguments | tojson }}</call>"), form=unwrap
    ),
    "one call, under function_call": Odd(
        turns(TEXT + "{% if m.function_call %}<call>{{ m.function_call | tojson }}</call>{% endif %}"),
        ("content", "call", "no arguments", "content and call"),
        single,
        ("alone", "system", "rounds"),
    ),
    # turns
    "the opening is a part of the user's turn": Odd(
        "{%- for m in messages -%}{% if m.role == 'assistant' %} " + TEXT + BODY + " </s>{% elif m.role == 'tool' %}"
        "[R]{{ m.content }}[/R]{% else %}[U] {{ m.content }} [/U]{% endif %}{%- endfor -%}"
    ),
    "the end is written by the next turn": Odd(
        "{%- for m in messages -%}{% if not loop.first %}<|end|>{% endif %}<|{{ m.role }}|>" + TEXT + BODY
        + "{%- endfor -%}{%- if add_generation_prompt %}<|end|><|assistant|>{% endif %}"
    ),
    "the opening is written unless the assistant has spoken": Odd(
        "{%- for m in messages -%}<|{{ m.role }}|>" + TEXT + BODY + "<|end|>{%- endfor -%}"
        "{% if messages[-1].role != 'assistant' %}<|assistant|>{% endif %}"
    ),
    "another end after calls": Odd(
        turns(TEXT + BODY + "{{ '<|wait|>' if m.tool_calls else '<|stop|>' }}")
    ),
    "signs before a word": Odd(
        "{%- for m in messages -%}### {{ m.role | title }}:\n" + TEXT + BODY + "\n\n{% endfor -%}"
        "{%- if add_generation_prompt %}### Assistant:\n{% endif %}",
    ),
    "calls are messages of another role": Odd(
        "{%- for m in messages -%}{% if m.tool_calls %}{% if m.content %}<|assistant|>{{ m.content }}{% endif %}"
        "{% for c in m.tool_calls %}<|function|>{{ c.function.name }}\n" + JSON + "{% endfor %}<|end|>"
        "{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{%- endfor -%}"
        "{%- if add_generation_prompt %}<|assistant|>{% endif %}",
        ("content", "content and call"),
    ),
    "each call is a message": Odd(
        "{%- for m in messages -%}{% if m.tool_calls %}{% if m.content %}<|assistant|>{{ m.content }}<|end|>{% endif %}"
        "{% for c in m.tool_calls %}<|assistant|>to={{ c.function.name }}<|json|>" + JSON + "<|end|>{% endfor %}"
        "{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{%- endfor -%}"
        "{%- if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
    "results stand within the call": Odd(
        "{%- for m in messages if m.role != 'tool' -%}<|{{ m.role }}|>" + TEXT + "{% for c in m.tool_calls or [] %}"
        "<call>{{ c.function | tojson }}</call>{% for r in messages if r.role == 'tool' and r.tool_call_id == c.id %}"
        "<result>{{ r.content }}</result>{% endfor %}{% endfor %}<|end|>{%- endfor -%}"
        "{%- if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
    "the turn goes on after a result": Odd(
        "{%- for m in messages -%}{% if m.role == 'tool' %}<result>{{ m.content }}</result>{% else %}"
        "{% if loop.first or loop.previtem.role != 'tool' %}<|{{ m.role }}|>{% endif %}"
        + reasoning_block("<why>", "</why>") + TEXT + BODY
        + "{% if not m.tool_calls %}<|end|>{% endif %}{% endif %}{%- endfor -%}"
        "{%- if add_generation_prompt and messages[-1].role != 'tool' %}<|assistant|>{% endif %}",
        EVERYTHING,
    ),
    # reasoning
    "reasoning in the last turn only": Odd(
        turns("{% if loop.last %}" + reasoning_block("<reason>", "</reason>") + "{% endif %}" + TEXT + BODY), EVERYTHING
    ),
    "reasoning has a word before it and one after": Odd(
        turns(reasoning_block("Thoughts: ", "\nAnswer: ") + TEXT + BODY), EVERYTHING
    ),
    "reasoning and calls have the same tag": Odd(
        turns(
            reasoning_block("<block think>", "</block>") + TEXT + "{% for c in m.tool_calls or [] %}"
            "<block call>{{ c.function | tojson }}</block>{% endfor %}"
        ),
        EVERYTHING,
    ),
    "reasoning only beside calls": Odd(
        turns("{% if m.tool_calls %}" + reasoning_block("<plan>", "</plan>") + "{% endif %}" + TEXT + BODY),
        (*SAID, *CALLED, "reasoning and call", "everything"),
    ),
    "everything has its tag": Odd(
        turns(
            reasoning_block("<thought>", "</thought>") + "{% if m.content %}<text>{{ m.content }}</text>{% endif %}"
            "{% if m.tool_calls %}<tools>{% for c in m.tool_calls %}<tool id=\"{{ c.id }}\"><name>{{ c.function.name }}"
            "</name><input>" + JSON + "</input></tool>{% endfor %}</tools>{% endif %}"
        ),
        EVERYTHING,
    ),
    "the prompt opens reasoning, tags look unlike tags": Odd(
        "{%- for m in messages -%}{% if m.role == 'assistant' %}**start**assistant**think**"
        "{{ m.reasoning_content or '' }}**/think**"
        "{% if m.content %}**answer**{{ m.content }}**/answer**{% endif %}" + BODY + "**end**{% else %}"
        "**start**{{ m.role }}: {{ m.content }}**end**{% endif %}{%- endfor -%}"
        "{%- if add_generation_prompt %}**start**assistant**think**{% endif %}",
        EVERYTHING,
    ),
    # calls
    "the first call opens the section": Odd(
        calls("{{ '<<TOOLS>>' if loop.first else '<<NEXT>>' }}{{ c.function.name }}::" + JSON
              + "{{ '<<DONE>>' if loop.last }}")
    ),
    "a single call has a section of its own": Odd(
        turns(
            TEXT + "{% if m.tool_calls %}{% set tag = 'one' if m.tool_calls | length == 1 else 'many' %}"
            "{{ '<' ~ tag ~ '>' }}" + BODY + "{{ '</' ~ tag ~ '>' }}{% endif %}"
        )
    ),
    "a single call is an object, several are a list": Odd(
        turns(
            TEXT + "{% if m.tool_calls %}<calls>{{ (m.tool_calls[0].function if m.tool_calls | length == 1 else"
            " m.tool_calls | map(attribute='function') | list) | tojson }}</calls>{% endif %}"
        )
    ),
    "content stands after calls": Odd(turns(BODY + TEXT)),
    "ids are counted": Odd(calls('<call id="call_{{ loop.index }}" fn="{{ c.function.name }}">' + JSON + "</call>")),
    "the id stands after the arguments": Odd(calls("<call>{{ c.function.name }} <- " + JSON + " # {{ c.id }}</call>")),
    "the name is the tag": Odd(calls("<{{ c.function.name }}>" + JSON + "</{{ c.function.name }}>")),
    "the name closes what it opened": Odd(
        calls("<do:{{ c.function.name }}>" + PAIRS + "<p:{{ k }}>" + VALUE + "</p:{{ k }}>{% endfor %}"
              "</do:{{ c.function.name }}>")
    ),
    "the section is followed by signs": Odd(
        turns(
            TEXT + "{% if m.tool_calls %}«calls»{% for c in m.tool_calls %}>>>{{ c.function.name }}\n" + JSON
            + "{{ '\n' if not loop.last }}{% endfor %}«/calls»{% endif %}"
        )
    ),
    "arguments are text within a string": Odd(
        calls('<call>{"name": {{ c.function.name | tojson }}, "arguments": ' + JSON.replace("tojson", "tojson | tojson")
              + "}</call>")
    ),
    "arguments are left out if there are none": Odd(
        calls("<call>{{ c.function.name }}{% if c.function.arguments %}<with>" + JSON + "{% endif %}</call>")
    ),
    "JSON with lines of its own": Odd(
        turns(
            TEXT + "{% if m.tool_calls %}\n```json\n[{% for c in m.tool_calls %}\n  "
            '{"tool": {{ c.function.name | tojson }}, "input": {{ c.function.arguments | tojson(indent=2) }}}'
            "{{ ',' if not loop.last }}{% endfor %}\n]\n```{% endif %}"
        )
    ),
}  # fmt: skip


# -- replies


class Reply(NamedTuple):
    text: str
    expected: tuple[Any, ...]  # names, arguments, (content, reasoning)
    options: Message = {}
    history: str = "alone"


def fine(reasoning: str = "", content: str = "Fine.") -> tuple[Any, ...]:
    return [], [], (content, reasoning)


HASTE = "{% if enable_thinking is defined and not enable_thinking %}"
LOOKING = (["now"], [{}], ("", ""))
ONE = '<call>{"name": "now", "arguments": {}}</call>'
SPACED = """
{% for m in messages %}
  {% if m.role == 'assistant' %}
    <A> {% if m.reasoning_content %} <R> {{ m.reasoning_content }} </R> {% endif %} {{ m.content or '' }}
    {% for c in m.tool_calls or [] %}
      <call> {{ c.function | tojson }} </call>
    {% endfor %}
    </A>
  {% else %}
    <U> {{ m.content }} </U>
  {% endif %}
{% endfor %}
{% if add_generation_prompt %}
  <A>
{% endif %}
"""
LATE = (  # a message is written only when another one follows it, and the opening stands after every last one
    "{%- for m in messages -%}{% if m.role == 'assistant' and not loop.last %}Aide:{% if m.function_call %}"
    "\n[CALL]{{ m.function_call.name }}\n{{ m.function_call.arguments | tojson }}{% else %} {{ m.content }}\n\n"
    "{% endif %}"
    "{% elif m.role != 'assistant' %}Guest: {{ m.content }}\n\n{% endif %}"
    "{% if loop.last %}Aide:[SEP]{% endif %}{%- endfor -%}"
)
ENDED = (  # a text is ended where nothing is asked for
    "{%- for m in messages -%}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor -%}"
    "{{- '<|assistant|>\n' if add_generation_prompt else '</s>' -}}"
)
LAST = (  # the opening is a part of the last user's turn, and white space is everywhere
    "{%- for m in messages %} {% if m.role == 'assistant' %} <A> {% if m.tool_calls %} "
    + BODY
    + " {% else %} "
    "{{ m.content }} {% endif %} <end> {% else %} <U> {{ m.content }} {% if loop.last %} <A> {% endif %} {% endif %}"
    "{%- endfor -%}"
)
ANSWERED = (  # a call without its result is refused
    "{%- for m in messages -%}{% if m.tool_calls and (loop.nextitem is not defined or loop.nextitem.role != 'tool') %}"
    "{{ raise_exception('a call without a result') }}{% endif %}<|{{ m.role }}|>"
    + TEXT
    + BODY
    + "<|end|>{%- endfor -%}"
    "{%- if add_generation_prompt %}<|assistant|>{% endif %}"
)
REPLIES: dict[str, tuple[str, tuple[Reply, ...]]] = {
    "only the prompt opens reasoning": (
        turns(reasoning_block("", "</why>") + TEXT + BODY, "<why>"),
        (Reply("Hm.</why>Fine.<|end|>", fine("Hm.")), Reply(f"</why>{ONE}<|end|>", LOOKING)),
    ),
    "a switch closes what the prompt opened": (
        turns(
            reasoning_block("<think>", "</think>") + TEXT,
            HASTE + "<think></think>{% else %}<think>{% endif %}",
        ),
        (
            Reply("Hm.</think>Fine.<|end|>", fine("Hm.")),
            Reply("Fine.<|end|>", fine(), {"enable_thinking": False}),
        ),
    ),
    "only the prompt that closes reasoning shows it": (
        turns(TEXT, HASTE + "<think>\n\n</think>\n{% endif %}"),
        (
            Reply("<think>\nHm.\n</think>\nFine.<|end|>", fine("Hm.")),
            Reply("Fine.<|end|>", fine(), {"enable_thinking": False}),
        ),
    ),
    "the end of reasoning is what the template looks for": (
        turns("{{ (m.content or '').split('</thought>')[-1] }}" + BODY, "<thought>"),
        (
            Reply("Hm.</thought>Fine.<|end|>", fine("Hm.")),
            Reply(f"Hm.</thought>{ONE}<|end|>", (*LOOKING[:2], ("", "Hm."))),
        ),
    ),
    "messages that are followed": (
        LATE,
        (
            Reply(" Fine.", fine()),
            Reply('\n[CALL]now\n{"a": 1}', (["now"], [{"a": 1}], ("", ""))),
            Reply(" Fine.", fine(), history="rounds"),
        ),
    ),
    "an end that stands for the prompt": (
        ENDED,
        (Reply("Fine.<|end|>\n", fine()), Reply("Fine.", fine(), {}, "rounds")),
    ),
    "an opening that is not requested": (
        LAST,
        (Reply("Fine.  <end>", fine()), Reply(f" {ONE}  <end>", LOOKING)),
    ),
    "white space everywhere": (
        SPACED,
        (
            Reply(" <R> Hm. </R> Fine.\n    </A>", fine("Hm.")),
            Reply(f" Fine.\n      {ONE}\n    </A>", (*LOOKING[:2], ("Fine.", ""))),
        ),
    ),
    "calls that are answered": (
        ANSWERED,
        (Reply(f"{ONE}<|end|>", LOOKING), Reply("Fine.<|end|>", fine(), {}, "result")),
    ),
    "calls that come out beside documents only": (
        turns(TEXT + "{% if documents %}" + BODY + "{% endif %}"),
        (Reply(f"{ONE}<|end|>", LOOKING), Reply("Fine.<|end|>", fine())),
    ),
    "a role for calls": (
        "{%- for m in messages -%}{% if m.role == 'assistant_tool_call' %}<|assistant|><|tool_call|>{% else %}"
        "<|{{ m.role }}|>{% endif %}{{ m.content }}<|end|>{%- endfor -%}"
        "{%- if add_generation_prompt %}<|assistant|>{% endif %}",
        (
            Reply('<|tool_call|>[{"name": "now", "arguments": {}}]<|end|>', LOOKING),
            Reply("Fine.<|end|>", fine()),
        ),
    ),
    "reasoning that an option lets out": (
        turns(
            "{% if add_thoughts %}{% if m.thought %}<mull>{{ m.thought }}</mull>{% endif %}{% endif %}"
            + TEXT
        ),
        (Reply("<mull>Hm.</mull>Fine.<|end|>", fine("Hm.")),),
    ),
    "only a prompt after a result opens reasoning": (
        turns(
            "{{ (m.content or '').split('<muse|>')[-1] }}" + BODY,
            "{% if enable_thinking and messages[-1].role == 'tool' %}<|muse>dream\n{% endif %}",
        ),
        (
            Reply("Hm.<muse|>Fine.<|end|>", fine("Hm."), {"enable_thinking": True}, "result"),
            Reply("<|muse>dream\nHm.<muse|>Fine.<|end|>", fine("Hm.")),
            Reply("Fine.<|end|>", fine()),
        ),
    ),
    "calls of another role": (
        ODD["calls are messages of another role"].text,
        (Reply("<|function|>now\n{}<|end|>", LOOKING),),
    ),
}

# -- beyond

CHANGED = "calls: texts: a `<` or `&` in them is escaped or changed"
HELD = "a marker holds a part of the message, so the layout was not understood"


def tagged_calls(value: str) -> str:
    """A template that writes arguments one by one, each value so."""
    return calls(
        "<call {{ c.function.name }}>"
        + PAIRS
        + "<arg={{ k }}>"
        + value
        + "</arg>{% endfor %}</call>"
    )


BEYOND = {
    "a number in the section": (
        turns(
            TEXT + "{% if m.tool_calls %}<|calls:{{ m.tool_calls | length }}|>{% for c in m.tool_calls %}"
            "{{ c.function | tojson }}{{ '\n' if not loop.last }}{% endfor %}<|/calls|>{% endif %}"
        ),
        "calls: a marker around them holds a number that is computed",
    ),
    "reasoning without a beginning": (
        turns(reasoning_block("", "\nFINAL ANSWER:\n") + TEXT + BODY),
        "reasoning: no marker opens it, so nothing tells it from content",
    ),
    "content is a JSON string": (
        turns("{% if m.role == 'assistant' %}{{ (m.content or '') | tojson }}{% else %}{{ m.content }}{% endif %}"),
        "content: it is not rendered verbatim",
    ),
    "a value stands before its key": (
        calls("<call {{ c.function.name }}>" + PAIRS + "<arg>" + VALUE + "</arg as={{ k }}>{% endfor %}</call>"),
        "calls: name and arguments are rendered, in an unknown layout",
    ),
    "arguments are counted": (
        calls(
            "<call {{ c.function.name }}>" + PAIRS + "<arg {{ loop.index }} key={{ k }}>" + VALUE
            + "</arg>{% endfor %}</call>"
        ),
        "calls: parsing the rendered call gives a different call",
    ),
    "content has markers only beside calls": (
        turns("{% if m.tool_calls and m.content %}<say>{{ m.content }}</say>{% else %}" + TEXT + "{% endif %}" + BODY),
        "calls: parsing the rendered call gives a different call",
    ),
    "a call without arguments has another tag": (
        calls(
            "{% if c.function.arguments %}<call {{ c.function.name }}>" + PAIRS + "<{{ k }}>" + VALUE
            + "</{{ k }}>{% endfor %}</call>{% else %}<call {{ c.function.name }}/>{% endif %}"
        ),
        "calls: parsing the rendered call gives a different call: a call without arguments",
    ),
    "arguments in capitals": (
        tagged_calls("{{ v | upper }}"),
        "calls: the name of a call is rendered, its arguments are changed",
    ),
    "values are escaped": (tagged_calls("{{ (v if v is string else v | tojson) | e }}"), CHANGED),
    "values are escaped by hand": (
        tagged_calls("{{ (v if v is string else v | tojson) | replace('<', '&lt;') }}"), CHANGED
    ),
    "JSON is escaped": (calls("<call>{{ c.function | tojson | replace('<', '&lt;') }}</call>"), CHANGED),
    "JSON by hand": (
        calls(
            "<call>{{ c.function.name }} { " + PAIRS + '"{{ k }}": {{ \'"%s"\' % v if v is string else v }}'
            "{{ ', ' if not loop.last }}{% endfor %} }</call>"
        ),
        "calls: texts: how they are escaped",
    ),
    "content is escaped": (turns("{{ (m.content or '') | e }}"), "content: it is not rendered verbatim"),
    "reasoning is escaped": (
        turns(reasoning_block("<r>", "</r>").replace("_content }}", "_content | e }}") + TEXT),
        "reasoning: it is not rendered verbatim",
    ),
    "reasoning after calls": (
        turns(TEXT + BODY + reasoning_block("<reason>", "</reason>")),
        "reasoning: the template writes it after the calls, where it is not parsed",
    ),
    "reasoning after content": (
        turns(TEXT + reasoning_block("<reason>", "</reason>")),
        "reasoning: the template writes it after the content, where it is not parsed",
    ),
    "content twice": ("{% for m in messages %}<a>{{ m.content }}|{{ m.content }}</a>{% endfor %}", f"content: {HELD}"),
    "content twice, once in capitals": (turns(TEXT + BODY + "<{{ (m.content or '') | upper }}>"), f"content: {HELD}"),
    "reasoning twice": (
        turns(reasoning_block("<r>", ":{{ m.reasoning_content }}</r>") + TEXT + BODY), f"reasoning: {HELD}"
    ),
    "the question in the opening": (turns(TEXT, "re {{ messages[-1].content }}"), f"opening: {HELD}"),
    "a name that is not given": (
        "{{- raise_exception('who?') if not agent -}}" + turns(TEXT),
        "content, reasoning, calls: the template refuses a user message, or exceeds its limits",
    ),
}  # fmt: skip

"""InternLM2's chat format: ChatML with an environment, names in the headers, and calls between tokens of their own.

A turn is `START role [name=NAME] newline`, the content, `END newline`. Six tokens carry the format; they have two
spellings and one set of ids. A NAME is a word (`file`) or one of the tokens that mean *tools* and *code interpreter*;
a name with white space or with a token in it is refused, for it could end the header.
An assistant speaks first and calls then: `ACTION_START tools newline {"name", "parameters"} ACTION_END`, or
`ACTION_START interpreter newline` and a fenced block of code. Results come from the role `environment` under the same
name. There may be any number of system turns; tools are told in one of them, as a JSON list.

The source is a mapping with the fields of LMDeploy's chat templates, all optional, and our `spelling`. Without
`exact` the Jinja writes the published format: tools with an indent of four and a newline behind them, `environment
name=...`, the header of the reply only with `add_generation_prompt`. With `exact` it is LMDeploy 0.9.2: a default
meta instruction, tools on one line, plain `environment`, the final assistant turn always left open, the first of
several content parts taken for all.

A call may carry `verbatim` (its body, byte for byte), `before` (text between it and the call before) and a message
`tail` (text behind the last call): that is how `internlm2_transcript` keeps what is not canonical. A call of type
`code_interpreter` has `code` and `lang`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.dialects.translation import Translation, object_in, parse_json_object
from turnwise.dialects.turns import literal
from turnwise.errors import SourceError, did_you_mean, short_repr

TOKENS = ("start", "end", "action_start", "action_end", "interpreter", "plugin")
IDS = (92543, 92542, 92541, 92540, 92539, 92538)
SPELLINGS: dict[str, tuple[str, ...]] = {
    "current": (
        "<|im_start|>",
        "<|im_end|>",
        "<|action_start|>",
        "<|action_end|>",
        "<|interpreter|>",
        "<|plugin|>",
    ),
    "original": tuple(f"[UNUSED_TOKEN_{number}]" for number in range(146, 140, -1)),
}
"""The six tokens under their two names, in the order of TOKENS and IDS."""

INTERPRETER_PROMPT = """\
You now have access to a Jupyter notebook environment supporting Python code execution. \
Just send code to python to run in this stateful environment. This feature is suitable for:
- Data analysis or processing (such as data manipulation and graphic creation)
- Complex calculations (such as math and physics problems)
- Programming examples (for understanding programming concepts or language features)
- Text processing and analysis (including text analysis and natural language processing)
- Machine learning and data science (model training and data visualization)
- File operations and data import (handling CSV, JSON, etc. formats)"""
"""What the model was trained to read before it may write code; data, not ours to improve."""

META = (
    "You are an AI assistant whose name is InternLM (书生·浦语).\n"
    "- InternLM (书生·浦语) is a conversational language model that is developed by Shanghai AI Laboratory "
    "(上海人工智能实验室). It is designed to be helpful, honest, and harmless.\n"
    "- InternLM (书生·浦语) can understand and communicate fluently in the language chosen by the user "
    "such as English and 中文.\n"
)
"""LMDeploy's default system text for InternLM2."""

TEXTS = (
    "meta_instruction",
    "system",
    "eosys",
    "user",
    "eoh",
    "assistant",
    "eoa",
    "separator",
    "environment",
    "eoenv",
)
AGENT = ("plugin", "interpreter")
KEYS = ("spelling", *TEXTS, *AGENT, "stop_words", "capability", "model_name")
MARKS = {"eosys", "eoh", "eoa", "meta_instruction", "eoenv", "spelling"}


def ids(spelling: str = "current") -> dict[str, int]:
    """The token ids by the tokens' names in a spelling."""
    return dict(zip(SPELLINGS[spelling], IDS, strict=True))


def knows(source: Any) -> bool:
    """Whether this is a mapping with fields that only such a template has."""
    source = object_in(source)
    return isinstance(source, Mapping) and bool(MARKS & set(source)) and set(source) <= set(KEYS)


def read(source: Any, exact: bool = False) -> Translation:
    """The format with the fields that `source` changes; `{}` is the published one."""
    source = (
        parse_json_object(source, "an InternLM2 template") if isinstance(source, str) else source
    )
    fields = parse(source, exact)
    known = {**ids("original"), **ids("current")}
    stops = tuple(fields["stop_words"])
    return Translation(
        jinja=exact_jinja(fields) if exact else jinja(fields),
        stops=stops,
        stop_ids=tuple(known[stop] for stop in stops if stop in known),
        facts={
            key: value
            for key, value in source.items()
            if key in ("model_name", "capability", "spelling")
        },
    )


def parse(source: Any, exact: bool) -> dict[str, Any]:
    """All fields, checked, the absent ones as the spelling has them."""
    if not isinstance(source, Mapping):
        raise SourceError(f"an InternLM2 template is a mapping, not {type(source).__name__}")
    for key in source:
        if key not in KEYS:
            raise SourceError(
                f"an InternLM2 template has no {key!r}", hint=did_you_mean(str(key), KEYS, "It has")
            )
    spelling = source.get("spelling") or guessed(source)
    if spelling not in SPELLINGS:
        hint = did_you_mean(str(spelling), SPELLINGS, "There are")
        raise SourceError(f"there is no 'spelling' {short_repr(spelling)}", hint=hint)
    if source.get("capability", "chat") != "chat":
        raise SourceError(
            f"'capability' is 'chat' in a chat template, not {short_repr(source['capability'])}"
        )
    fields = defaults(spelling, exact)
    for key in (*TEXTS, *AGENT):
        value = source.get(key, fields[key])
        if not isinstance(value, str) and not (
            value is None and key in ("meta_instruction", "environment", *AGENT)
        ):
            raise SourceError(f"{key!r} is a text, not {short_repr(value)}")
        fields[key] = value
    stops = source.get("stop_words", fields["stop_words"])
    if (
        isinstance(stops, str)
        or not isinstance(stops, Sequence)
        or not all(isinstance(stop, str) for stop in stops)
    ):
        raise SourceError(f"'stop_words' is a list of texts, not {short_repr(stops)}")
    return {**fields, "stop_words": tuple(stops)}


def guessed(source: Mapping[str, Any]) -> str:
    return (
        "original"
        if any("[UNUSED_TOKEN_" in str(source.get(key, "")) for key in TEXTS)
        else "current"
    )


def defaults(spelling: str, exact: bool) -> dict[str, Any]:
    start, end, action_start, action_end, interpreter, plugin = SPELLINGS[spelling]
    return {
        "spelling": spelling,
        "meta_instruction": META if exact else "",
        **{role: f"{start}{role}\n" for role in ("system", "user", "assistant", "environment")},
        **dict.fromkeys(("eosys", "eoh", "eoenv"), f"{end}\n"),
        "eoa": end,
        "separator": "\n",
        "plugin": plugin,
        "interpreter": interpreter,
        "action_start": action_start,
        "action_end": action_end,
        "stop_words": (end, action_end) if exact else (end,),
    }


# The Jinja. `%(name)s` is a field as a literal; `%(system)s` and its like are headers without their newline.


def filled(text: str, fields: Mapping[str, Any]) -> str:
    headers = {
        role: (fields[role] or "").rstrip("\n")
        for role in ("system", "user", "assistant", "environment")
    }
    values = {**fields, **headers, "prompt": INTERPRETER_PROMPT}
    said = {key: literal(value) for key, value in values.items() if isinstance(value, str)}
    return text % {**said, "six": f"[{', '.join(map(literal, SPELLINGS[fields['spelling']]))}]"}


def jinja(fields: Mapping[str, Any]) -> str:
    """The published format."""
    if fields["environment"] is None or None in (fields["plugin"], fields["interpreter"]):
        raise SourceError(
            "a template without 'environment', 'plugin' or 'interpreter' has no agents: it is not InternLM2's",
            hint="With exact=True it is read as LMDeploy does.",
        )
    return filled(PUBLISHED, {**fields, "meta_instruction": fields["meta_instruction"] or ""})


LIST = """\
{%%- set ns = namespace(list=[]) -%%}
{%%- for tool in tools -%%}
{%%- set ns.list = ns.list + [tool.function or tool] -%%}
{%%- endfor -%%}
"""
PUBLISHED = (
    """\
{%%- set tokens = {'plugin': %(plugin)s, 'interpreter': %(interpreter)s} -%%}
{%%- set six = %(six)s -%%}
{%%- macro header(role, name) -%%}
{%%- if name and name.split() | join != name or six | select('in', name or '') | list -%%}
{{- raise_exception('a name in a header has neither white space nor a token of the format: ' ~ name | tojson) -}}
{%%- endif -%%}
{{- role ~ (' name=' ~ tokens.get(name, name) if name else '') ~ '\\n' -}}
{%%- endmacro -%%}
{%%- macro agents() -%%}
{%%- if code_interpreter -%%}
{{- header(%(system)s, 'interpreter') ~ %(prompt)s ~ %(eosys)s -}}
{%%- endif -%%}
{%%- if tools -%%}
"""
    + LIST
    + """\
{{- header(%(system)s, 'plugin') ~ ns.list | tojson(indent=4) ~ '\\n' ~ %(eosys)s -}}
{%%- endif -%%}
{%%- endmacro -%%}
{%%- macro written(call) -%%}
{%%- set kind = 'interpreter' if call.type == 'code_interpreter' else 'plugin' -%%}
{{- call.before ~ %(action_start)s ~ tokens[kind] -}}
{%%- if call.verbatim is defined -%%}
{{- call.verbatim -}}
{%%- elif kind == 'interpreter' -%%}
{{- '\\n```' ~ (call.lang or 'python') ~ '\\n' ~ call.code ~ '\\n```' -}}
{%%- else -%%}
{%%- set function = call.function or call -%%}
{%%- set given = function.arguments -%%}
{{- '\\n{"name": ' ~ function.name | tojson ~ ', "parameters": ' -}}
{{- (given if given is string else given | tojson) ~ '}' -}}
{%%- endif -%%}
{{- %(action_end)s -}}
{%%- endmacro -%%}
{%%- set led = messages and messages[0].role in ['system', 'developer'] -%%}
{%%- if not led -%%}
{%%- if %(meta_instruction)s -%%}
{{- header(%(system)s) ~ %(meta_instruction)s ~ %(eosys)s -}}
{%%- endif -%%}
{{- agents() -}}
{%%- endif -%%}
{%%- for message in messages -%%}
{%%- if message.role in ['system', 'developer'] -%%}
{{- header(%(system)s, message.name) ~ message.content ~ %(eosys)s -}}
{%%- elif message.role == 'user' -%%}
{{- header(%(user)s, message.name) ~ message.content ~ %(eoh)s -}}
{%%- elif message.role == 'environment' -%%}
{{- header(%(environment)s, message.name) ~ message.content ~ %(eoenv)s -}}
{%%- elif message.role in ['tool', 'function'] -%%}
{%%- set code = message.name in ['interpreter', 'code_interpreter'] -%%}
{{- header(%(environment)s, 'interpreter' if code else 'plugin') ~ message.content ~ %(eoenv)s -}}
{%%- elif message.role == 'assistant' -%%}
{{- header(%(assistant)s, message.name) -}}
{%%- generation -%%}
{{- message.content or '' -}}
{%%- for call in message.tool_calls or [] -%%}
{{- call.react if call.react else written(call) -}}
{%%- endfor -%%}
{{- message.tail ~ %(eoa)s -}}
{%%- endgeneration -%%}
{{- %(separator)s -}}
{%%- else -%%}
{{- raise_exception('InternLM2 has no role ' ~ message.role) -}}
{%%- endif -%%}
{%%- if led and loop.first -%%}
{{- agents() -}}
{%%- endif -%%}
{%%- endfor -%%}
{%%- if add_generation_prompt -%%}
{{- header(%(assistant)s) -}}
{%%- endif -%%}
"""
)


def exact_jinja(fields: Mapping[str, Any]) -> str:
    """LMDeploy's `messages2prompt`; without agents, a tool's text is written bare and tools are passed over."""
    agents = None not in (fields["plugin"], fields["environment"])
    meta = DEFAULT_SYSTEM if fields["meta_instruction"] is not None else ""
    text = (
        (AGENTS if agents else "")
        + meta
        + (FIRST if agents else "")
        + (WITH_CALLS if agents else WITHOUT_CALLS)
    )
    return filled(text, fields)


AGENTS = (
    """\
{%%- macro agents() -%%}
{%%- if tools -%%}
"""
    + LIST
    + """\
{{- %(system)s ~ ' name=' ~ %(plugin)s ~ '\\n' ~ ns.list | tojson ~ %(eosys)s -}}
{%%- endif -%%}
{%%- endmacro -%%}
"""
)
DEFAULT_SYSTEM = """\
{%%- if messages and messages[0].role != 'system' -%%}
{{- %(system)s ~ '\\n' ~ %(meta_instruction)s ~ %(eosys)s -}}
{%%- endif -%%}
"""
FIRST = """\
{%%- if messages[0].role != 'system' -%%}
{{- agents() -}}
{%%- endif -%%}
"""
HEADERS = """\
{%%- set headers = {'system': %(system)s, 'user': %(user)s, 'assistant': %(assistant)s} -%%}
{%%- set ends = {'system': %(eosys)s, 'user': %(eoh)s, 'assistant': %(eoa)s ~ %(separator)s} -%%}
"""
AGENT_HEADERS = (
    HEADERS.replace(
        "} -", ", 'environment': %(environment)s, 'tool': %(environment)s} -", 1
    ).replace("%(separator)s}", "%(separator)s, 'environment': %(eoenv)s, 'tool': %(eoenv)s}")
    + "{%%- set names = {'plugin': %(plugin)s, 'interpreter': %(interpreter)s} -%%}\n"
)
ENDING = """\
{%%- if messages[-1].role != 'assistant' -%%}
{{- %(assistant)s ~ '\\n' -}}
{%%- endif -%%}
"""
CONTENT = """\
{%%- set content = message.content if message.content is string else message.content[0].text -%%}
"""
UNKNOWN = """\
{%%- if message.role not in headers -%%}
{{- raise_exception('LMDeploy has no role ' ~ message.role) -}}
{%%- endif -%%}
"""
WITH_CALLS = (
    AGENT_HEADERS
    + "{%%- for message in messages -%%}\n"
    + UNKNOWN
    + CONTENT
    + """\
{{- headers[message.role] ~ (' name=' ~ names[message.name] if message.name in names else '') ~ '\\n' ~ content -}}
{%%- for call in (message.tool_calls or []) if message.role == 'assistant' -%%}
{%%- set given = call.function.arguments -%%}
{{- '<|action_start|><|plugin|>\\n{"name": ' ~ call.function.name | tojson ~ ', "parameters": ' -}}
{{- (given if given is string else given | tojson) ~ '}<|action_end|>' -}}
{%%- endfor -%%}
{{- '' if loop.last and message.role == 'assistant' else ends[message.role] -}}
{%%- if loop.first and message.role == 'system' -%%}
{{- agents() -}}
{%%- endif -%%}
{%%- endfor -%%}
"""
    + ENDING
)
WITHOUT_CALLS = (
    HEADERS
    + "{%%- for message in messages -%%}\n"
    + CONTENT
    + """\
{%%- if message.role in headers -%%}
{{- headers[message.role] ~ '\\n' ~ content -}}
{{- '' if loop.last and message.role == 'assistant' else ends[message.role] -}}
{%%- elif message.role == 'tool' -%%}
{{- content -}}
{%%- else -%%}
{{- raise_exception('LMDeploy has no role ' ~ message.role) -}}
{%%- endif -%%}
{%%- endfor -%%}
"""
    + ENDING
)

r"""InternLM2's chat format: ChatML with an environment, names in headers, and tool calls.

    <|im_start|>user name=file\n[...]<|im_end|>\n
    <|im_start|>assistant\nSure.<|action_start|><|plugin|>\n{"name": ...}<|action_end|><|im_end|>\n
    <|im_start|>environment name=<|plugin|>\n18 degrees<|im_end|>\n

A turn is `START role [name=NAME] newline`, the content, `END newline`. Six tokens carry the format;
they have two spellings and one set of ids. A NAME is a word (`file`) or one of the tokens for
*tools* and *code interpreter*; a name with white space or with a token in it is refused, for it
could end the header. An assistant's text comes before its calls: `ACTION_START tools newline
{"name", "parameters"} ACTION_END`, or `ACTION_START interpreter newline` and a fenced block of
code. Results come from the role `environment` under the same name. There may be any number of
system turns; tools are listed in one of them, as JSON.

The source is a mapping with the fields of LMDeploy's chat templates, all optional, and our
`spelling`:

    {"spelling": "current", "meta_instruction": "You are ...", "stop_words": ["<|im_end|>"]}

Without `exact` the Jinja writes the published format: tools with an indent of four and a newline
after them, `environment name=...`, the generation prompt only with `add_generation_prompt`. With
`exact` it is LMDeploy 0.9.2: a default meta instruction, tools on one line, plain `environment`,
the final assistant turn always left open, only the first of several content parts.

A call may carry `verbatim` (its body, byte for byte), `before` (text between it and the previous
call) and a message `tail` (text after the last call): that is how `internlm2_transcript.py` keeps
what is not canonical. A call of type `code_interpreter` has `code` and `lang`. This dialect can be
read, not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.dialects.translation import Translation, object_in, to_mapping
from turnwise.dialects.turns import literal
from turnwise.errors import SourceError
from turnwise.schema import ANYTHING, STRING, STRINGS, ValueRule, check_table, one_of, or_null

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
"""The six tokens in both spellings, in the order of TOKENS and IDS."""

INTERPRETER_PROMPT = """\
You now have access to a Jupyter notebook environment supporting Python code execution. \
Just send code to python to run in this stateful environment. This feature is suitable for:
- Data analysis or processing (such as data manipulation and graphic creation)
- Complex calculations (such as math and physics problems)
- Programming examples (for understanding programming concepts or language features)
- Text processing and analysis (including text analysis and natural language processing)
- Machine learning and data science (model training and data visualization)
- File operations and data import (handling CSV, JSON, etc. formats)"""
"""The model was trained with this text before it may write code: data, not ours to improve."""

META_INSTRUCTION = (
    "You are an AI assistant whose name is InternLM (书生·浦语).\n"
    "- InternLM (书生·浦语) is a conversational language model that is developed by Shanghai AI Laboratory "
    "(上海人工智能实验室). It is designed to be helpful, honest, and harmless.\n"
    "- InternLM (书生·浦语) can understand and communicate fluently in the language chosen by the user "
    "such as English and 中文.\n"
)
"""LMDeploy's default system text for InternLM2."""

ROLES = ("system", "user", "assistant", "environment")
RULES = {
    "spelling": or_null(one_of(SPELLINGS)),
    "meta_instruction": or_null(STRING),
    "system": STRING,
    "eosys": STRING,
    "user": STRING,
    "eoh": STRING,
    "assistant": STRING,
    "eoa": STRING,
    "separator": STRING,
    "environment": or_null(STRING),
    "eoenv": STRING,
    "plugin": or_null(STRING),
    "interpreter": or_null(STRING),
    "stop_words": STRINGS,
    "capability": ValueRule("'chat' in a chat template", lambda value: value == "chat"),
    "model_name": ANYTHING,
}
KEYS = tuple(RULES)
DISTINCTIVE_KEYS = {"eosys", "eoh", "eoa", "meta_instruction", "eoenv", "spelling"}

Fields = Mapping[str, Any]


def token_ids(spelling: str = "current") -> dict[str, int]:
    """Return the token ids by the texts of the tokens in a spelling."""
    return dict(zip(SPELLINGS[spelling], IDS, strict=True))


def knows(source: Any) -> bool:
    """Return True for a mapping with fields that only such a template has."""
    source = object_in(source)
    if not isinstance(source, Mapping):
        return False
    return bool(DISTINCTIVE_KEYS & set(source)) and set(source) <= set(KEYS)


def read(source: Any, exact: bool = False) -> Translation:
    """Translate the format, with the fields that `source` changes; `{}` is the published one."""
    given = check_table(to_mapping(source, "an InternLM2 template"), RULES)
    spelling = given.get("spelling") or _guess_spelling(given)
    fields = _default_fields(spelling, exact) | given | {"spelling": spelling}
    stops = tuple(fields["stop_words"])
    ids = token_ids("original") | token_ids("current")
    facts = ("model_name", "capability", "spelling")
    return Translation(
        jinja=_write_exact_jinja(fields) if exact else _write_jinja(fields),
        stops=stops,
        stop_ids=tuple(ids[stop] for stop in stops if stop in ids),
        facts={key: value for key, value in given.items() if key in facts},
    )


def _guess_spelling(given: Fields) -> str:
    texts = [given[key] for key in given if key not in ("plugin", "interpreter", "stop_words")]
    return "original" if any("[UNUSED_TOKEN_" in str(text) for text in texts) else "current"


def _default_fields(spelling: str, exact: bool) -> dict[str, Any]:
    start, end, action_start, action_end, interpreter, plugin = SPELLINGS[spelling]
    return {
        "meta_instruction": META_INSTRUCTION if exact else "",
        **{role: f"{start}{role}\n" for role in ROLES},
        **dict.fromkeys(("eosys", "eoh", "eoenv"), f"{end}\n"),
        "eoa": end,
        "separator": "\n",
        "plugin": plugin,
        "interpreter": interpreter,
        "action_start": action_start,
        "action_end": action_end,
        "stop_words": (end, action_end) if exact else (end,),
    }


# -- Jinja -----------------------------------------------------------------------------------------
# `%(name)s` is a field as a literal; `%(system)s` and the other roles are headers without newline.


def _fill_fields(text: str, fields: Fields) -> str:
    headers = {role: (fields[role] or "").rstrip("\n") for role in ROLES}
    values = {**fields, **headers, "prompt": INTERPRETER_PROMPT}
    literals = {key: literal(value) for key, value in values.items() if isinstance(value, str)}
    tokens = ", ".join(map(literal, SPELLINGS[fields["spelling"]]))
    return text % {**literals, "six": f"[{tokens}]"}


def _write_jinja(fields: Fields) -> str:
    """Return the Jinja of the published format."""
    if None in (fields["environment"], fields["plugin"], fields["interpreter"]):
        problem = "a template without 'environment', 'plugin' or 'interpreter' has no agents"
        hint = "With exact=True it is read as LMDeploy does."
        raise SourceError(f"{problem}: it is not InternLM2's", hint=hint)
    meta_instruction = fields["meta_instruction"] or ""
    return _fill_fields(PUBLISHED, {**fields, "meta_instruction": meta_instruction})


def _write_exact_jinja(fields: Fields) -> str:
    """Return the Jinja of LMDeploy's `messages2prompt`.

    Without agents, tools are ignored and a tool result is written without a header.
    """
    default_system = "" if fields["meta_instruction"] is None else DEFAULT_SYSTEM
    if None in (fields["plugin"], fields["environment"]):
        return _fill_fields(default_system + WITHOUT_CALLS, fields)
    return _fill_fields(AGENTS + default_system + FIRST + WITH_CALLS, fields)


TOOL_LIST = """\
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
    + TOOL_LIST
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


AGENTS = (
    """\
{%%- macro agents() -%%}
{%%- if tools -%%}
"""
    + TOOL_LIST
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
REFUSE_ROLE = """\
{%%- if message.role not in headers -%%}
{{- raise_exception('LMDeploy has no role ' ~ message.role) -}}
{%%- endif -%%}
"""
WITH_CALLS = (
    AGENT_HEADERS
    + "{%%- for message in messages -%%}\n"
    + REFUSE_ROLE
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

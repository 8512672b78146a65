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

The source is a mapping with the fields of LMDeploy's template for the format, all optional, and our
`spelling`:

    {"spelling": "current", "meta_instruction": "You are ...", "stop_words": ["<|im_end|>"]}

Without `exact` the Jinja writes the published format: tools with an indent of four and a newline
after them, `environment name=...`, the generation prompt only with `add_generation_prompt`. With
`exact` it is LMDeploy 0.9.2: a default meta instruction, tools on one line, plain `environment`,
the final assistant turn always left open, only the first of several content parts. LMDeploy's other
templates are the dialect `lmdeploy`.

A call may carry `verbatim` (its body, byte for byte), `before` (text between it and the previous
call) and a message `tail` (text after the last call): that is how `shapes/transcript.py` keeps
what is not canonical. A call of type `code_interpreter` has `code` and `lang`. This dialect can be
read, not written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnwise.dialects.lmdeploy import DEFAULTS as LMDEPLOY_DEFAULTS
from turnwise.dialects.lmdeploy_jinja import fill_fields, write_jinja
from turnwise.dialects.lmdeploy_styles import CODE_BLOCK, FUNCTIONS, JOINED_TEXT
from turnwise.dialects.translation import Translation, object_in, to_mapping
from turnwise.dialects.turns import literal
from turnwise.errors import SourceError
from turnwise.messages import JsonMapping, JsonObject
from turnwise.schema import ANYTHING, STRING, STRINGS, ValueRule, check_table, one_of, or_null
from turnwise.shapes.transcript import SPELLINGS

TOKENS = ("start", "end", "action_start", "action_end", "interpreter", "plugin")
IDS = (92543, 92542, 92541, 92540, 92539, 92538)
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

Fields = JsonMapping


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


def _default_fields(spelling: str, exact: bool) -> JsonObject:
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


def _write_jinja(fields: Fields) -> str:
    if None in (fields["environment"], fields["plugin"], fields["interpreter"]):
        problem = "a template without 'environment', 'plugin' or 'interpreter' has no agents"
        hint = "With exact=True it is read as LMDeploy does."
        raise SourceError(f"{problem}: it is not InternLM2's", hint=hint)
    tokens = ", ".join(map(literal, SPELLINGS[fields["spelling"]]))
    text = PUBLISHED.replace("@six@", f"[{tokens}]")
    meta_instruction = fields["meta_instruction"] or ""
    more = {"meta_instruction": meta_instruction, "prompt": INTERPRETER_PROMPT}
    return fill_fields(text, {**fields, **more})


def _write_exact_jinja(fields: Fields) -> str:
    """Return the Jinja of LMDeploy's `messages2prompt`.

    Without agents, tools are ignored and a tool result is written without a header.
    """
    has_agents = None not in (fields["plugin"], fields["environment"])
    style = "internlm2" if has_agents else "base"
    # A missing one is written as Python writes it.
    names = {"interpreter": "None"} if fields["interpreter"] is None else {}
    return write_jinja({**LMDEPLOY_DEFAULTS, **fields, **names, "style": style}, exact=True)


PUBLISHED = (
    JOINED_TEXT
    + CODE_BLOCK
    + """\
{%- set tokens = {'plugin': @plugin@, 'interpreter': @interpreter@} -%}
{%- set six = @six@ -%}
{%- macro header(role, name) -%}
{%- if name and name.split() | join != name or six | select('in', name or '') | list -%}
{{- raise_exception('a name in a header has neither white space nor a token of the format: ' ~ name | tojson) -}}
{%- endif -%}
{{- role.rstrip() ~ ' name=' ~ tokens.get(name, name) ~ '\\n' if name else role -}}
{%- endmacro -%}
{%- macro agents() -%}
{%- if code_interpreter | default(none) -%}
{{- header(@system@, 'interpreter') ~ @prompt@ ~ @eosys@ -}}
{%- endif -%}
{%- if tools -%}
"""
    + FUNCTIONS
    + """\
{{- header(@system@, 'plugin') ~ ns.functions | tojson(indent=4) ~ '\\n' ~ @eosys@ -}}
{%- endif -%}
{%- endmacro -%}
{%- macro write_call(call) -%}
{{- call.before ~ @action_start@ -}}
{%- if is_code(call) -%}
{{- @interpreter@ ~ (call.verbatim if call.verbatim is defined else code_block(call)) -}}
{%- elif call.verbatim is defined -%}
{{- @plugin@ ~ call.verbatim -}}
{%- else -%}
{%- set function = call.function or call -%}
{%- set given = function.arguments -%}
{{- @plugin@ ~ '\\n{"name": ' ~ function.name | tojson ~ ', "parameters": ' -}}
{{- (given if given is string else given | tojson) ~ '}' -}}
{%- endif -%}
{{- @action_end@ -}}
{%- endmacro -%}
{%- set code = namespace(ids=[], awaits_agents=true) -%}
{%- set system_roles = ['system', 'developer'] -%}
{%- if @meta_instruction@ and not (messages and messages[0].role in system_roles) -%}
{{- header(@system@) ~ @meta_instruction@ ~ @eosys@ -}}
{%- endif -%}
{%- for message in messages -%}
{%- if code.awaits_agents and message.role not in system_roles -%}
{%- set code.awaits_agents = false -%}
{{- agents() -}}
{%- endif -%}
{%- if message.role in system_roles -%}
{{- header(@system@, message.name) ~ text_of(message) ~ @eosys@ -}}
{%- elif message.role == 'user' -%}
{{- header(@user@, message.name) ~ text_of(message) ~ @eoh@ -}}
{%- elif message.role == 'environment' -%}
{{- header(@environment@, message.name) ~ text_of(message) ~ @eoenv@ -}}
{%- elif message.role in ['tool', 'function'] -%}
{%- set answers_code = message.tool_call_id and message.tool_call_id in code.ids -%}
{%- set name = 'interpreter' if answers_code or message.name in ['interpreter', 'code_interpreter'] else 'plugin' -%}
{{- header(@environment@, name) ~ text_of(message) ~ @eoenv@ -}}
{%- elif message.role == 'assistant' -%}
{{- header(@assistant@, message.name) -}}
{%- generation -%}
{{- text_of(message) -}}
{%- for call in message.tool_calls or [] -%}
{{- write_call(call) -}}
{%- if is_code(call) -%}
{%- set code.ids = code.ids + [call.id] -%}
{%- endif -%}
{%- endfor -%}
{{- message.tail ~ @eoa@ -}}
{%- endgeneration -%}
{{- @separator@ -}}
{%- else -%}
{{- raise_exception('InternLM2 has no role ' ~ message.role) -}}
{%- endif -%}
{%- endfor -%}
{{- agents() if code.awaits_agents -}}
{%- if add_generation_prompt -%}
{{- header(@assistant@) -}}
{%- endif -%}
"""
)

r"""How LMDeploy's classes write the turns of a conversation, as Jinja.

    base       every role has a header and an end: LMDeploy's documented JSON, and most of its models
    internlm2  tools in a system turn of their own, calls between action tokens, results from `environment`
    intern-s1  the same, but tools after the system text; reasoning after the last question is written
    llama3.1   tools in the system turn, results from `ipython`
    qwen2.5    tools in the system turn, calls and results in XML tags
    chatglm2   rounds with numbers, no system turn

`@user@` is the field `user` as a literal, `@stem_user@` the same without the white space around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from turnwise.dialects.turns import literal

Fields = Mapping[str, Any]

EXACT_TEXT = """\
{%- macro text_of(message) -%}
{%- set content = message.content -%}
{%- if content is not string -%}
{%- set content = content[0].text -%}
{%- endif -%}
{%- if content is not defined -%}
{{- raise_exception('LMDeploy takes the first part of a content, which must be text') -}}
{%- endif -%}
{{- content -}}
{%- endmacro -%}
"""
JOINED_TEXT = """\
{%- macro text_of(message) -%}
{%- if message.content is string -%}
{{- message.content -}}
{%- elif message.content -%}
{%- for part in message.content -%}
{%- if part.type != 'text' -%}
{{- raise_exception('LMDeploy puts media into the text by itself: a content is text here') -}}
{%- endif -%}
{{- part.text -}}
{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
"""
# A call of the code interpreter: `parse` gives it a type of its own. In a stream of chunks it is a function call, which
# is known by its name if the interpreter was offered.
CODE_BLOCK = """\
{%- macro is_code(call) -%}
{%- set interprets = code_interpreter | default(none) and (call.function or call).name == 'code_interpreter' -%}
{%- if call.type == 'code_interpreter' or interprets -%}
yes
{%- endif -%}
{%- endmacro -%}
{%- macro code_block(call) -%}
{%- set given = call.function.arguments if call.function and call.code is not defined else call -%}
{%- if given is string -%}
{%- set given = given | from_json -%}
{%- endif -%}
{%- if given.code is not defined -%}
{{- raise_exception('a call of the code interpreter has no code') -}}
{%- endif -%}
{{- '\\n```' ~ (given.lang or 'python') ~ '\\n' ~ given.code ~ '\\n```' -}}
{%- endmacro -%}
"""
FUNCTIONS = """\
{%- set ns = namespace(functions=[]) -%}
{%- for tool in tools or [] -%}
{%- set ns.functions = ns.functions + [tool.function or tool] -%}
{%- endfor -%}
"""
FOR_MESSAGES = """\
{%- for message in messages -%}
{%- if message.role not in headers -%}
{{- raise_exception('this template has no role ' ~ message.role) -}}
{%- endif -%}
"""
DEFAULT_SYSTEM = """\
{%- if messages and messages[0].role != 'system' -%}
{{- @system@ ~ @meta_instruction@ ~ @eosys@ -}}
{%- endif -%}
"""


def _default_system(fields: Fields, text: str = DEFAULT_SYSTEM) -> str:
    """Return the system turn of a conversation that has none, if the template has a default for a first round."""
    return text if _has_default(fields) else ""


def _has_default(fields: Fields) -> bool:
    return fields["meta_instruction"] is not None and bool(fields["sequence_start"])


# -- base --------------------------------------------------------------------------------------------

BASE_HEADERS = """\
{%- set headers = {'system': @system@, 'user': @user@, 'assistant': @assistant@, 'tool': @tool@} -%}
{%- set ends = {'system': @eosys@, 'user': @eoh@, 'tool': @eotool@} -%}
"""
BASE_TURNS = """\
{%- if message.role == 'assistant' -%}
{{- @assistant@ -}}
{%- generation -%}
{{- text_of(message) ~ @eoa@ -}}
{%- endgeneration -%}
{{- @separator@ -}}
{%- else -%}
{{- headers[message.role] ~ text_of(message) ~ ends[message.role] -}}
{%- endif -%}
{%- endfor -%}
"""


def _write_base(fields: Fields, exact: bool) -> str:
    return BASE_HEADERS + _default_system(fields) + FOR_MESSAGES + BASE_TURNS


# -- internlm2 ---------------------------------------------------------------------------------------

ACTION_HEADERS = """\
{%- set headers = {'system': @system@, 'user': @user@, 'assistant': @assistant@, 'environment': @environment@,
 'tool': @environment@} -%}
{%- set stems = {'system': @stem_system@, 'user': @stem_user@, 'assistant': @stem_assistant@,
 'environment': @stem_environment@, 'tool': @stem_environment@} -%}
{%- set ends = {'system': @eosys@, 'user': @eoh@, 'environment': @eoenv@, 'tool': @eoenv@} -%}
{%- set names = {'plugin': @plugin@, 'interpreter': @interpreter@} -%}
"""
NAMED_HEADER = """\
{%- macro header(message) -%}
{%- if message.name in names -%}
{{- stems[message.role] ~ ' name=' ~ names[message.name] ~ '\\n' -}}
{%- else -%}
{{- headers[message.role] -}}
{%- endif -%}
{%- endmacro -%}
"""
# The members of a call in their order, without `arguments`, which becomes `parameters`.
EXACT_CALL = """\
{%- macro write_call(call) -%}
{%- set function = call.function -%}
{%- if function.arguments is not defined -%}
{{- raise_exception('a call has no arguments') -}}
{%- endif -%}
{%- set given = function.arguments if function.parameters is not defined else function.parameters -%}
{%- if given is string -%}
{%- set given = given | from_json -%}
{%- endif -%}
{%- set ns = namespace(members=[]) -%}
{%- for key in function if key != 'arguments' -%}
{%- set value = given if key == 'parameters' else function[key] -%}
{%- set ns.members = ns.members + [key | tojson ~ ': ' ~ value | tojson] -%}
{%- endfor -%}
{%- if function.name is not defined -%}
{%- set ns.members = ns.members + ['"name": ""'] -%}
{%- endif -%}
{%- if function.parameters is not defined -%}
{%- set ns.members = ns.members + ['"parameters": ' ~ given | tojson] -%}
{%- endif -%}
{{- '<|action_start|><|plugin|>\\n{' ~ ns.members | join(', ') ~ '}' ~ @call_end@ -}}
{%- endmacro -%}
"""
WRITTEN_CALL = """\
{%- macro write_call(call) -%}
{%- if is_code(call) -%}
{{- '<|action_start|>' ~ @interpreter@ ~ (call.verbatim if call.verbatim is defined else code_block(call)) -}}
{{- '<|action_end|>' -}}
{%- else -%}
{%- set function = call.function or call -%}
{%- set given = function.arguments -%}
{{- '<|action_start|>' ~ @plugin@ ~ '\\n{"name": ' ~ function.name | tojson ~ ', "parameters": ' -}}
{{- (given if given is string else given | tojson) ~ '}' ~ @call_end@ -}}
{%- endif -%}
{%- endmacro -%}
"""
NO_MESSAGES = """\
{%- if tools and not messages -%}
{{- raise_exception('LMDeploy takes no tools without messages') -}}
{%- endif -%}
"""
ACTION_OFFER = (
    "{%- macro offer() -%}\n{%- if tools -%}\n"
    + FUNCTIONS
    + """\
{{- @stem_system@ ~ ' name=' ~ @plugin@ ~ '\\n' ~ ns.functions | tojson ~ @eosys@ -}}
{%- endif -%}
{%- endmacro -%}
"""
)
OFFER_FIRST = """\
{%- if not messages or messages[0].role != 'system' -%}
{{- offer() -}}
{%- endif -%}
"""
ACTION_TURNS = """\
{%- if message.role == 'assistant' -%}
{{- header(message) -}}
{%- generation -%}
{{- text_of(message) -}}
{%- for call in message.tool_calls or [] -%}
{{- write_call(call) -}}
{%- endfor -%}
{{- @eoa@ -}}
{%- endgeneration -%}
{{- @separator@ -}}
{%- else -%}
{{- header(message) ~ text_of(message) ~ ends[message.role] -}}
{%- endif -%}
{%- if loop.first and message.role == 'system' -%}
{{- offer() -}}
{%- endif -%}
{%- endfor -%}
"""


def _write_internlm2(fields: Fields, exact: bool) -> str:
    calls = _write_call(exact, "<|action_end|>")
    start = ACTION_HEADERS + NAMED_HEADER + calls + ACTION_OFFER
    return start + _default_system(fields) + OFFER_FIRST + FOR_MESSAGES + ACTION_TURNS


def _write_call(exact: bool, end: str) -> str:
    """Return the macro that writes a call; `end` ends a call of a tool."""
    macro = NO_MESSAGES + EXACT_CALL if exact else CODE_BLOCK + WRITTEN_CALL
    return macro.replace("@call_end@", literal(end))


# -- intern-s1 ---------------------------------------------------------------------------------------

# LMDeploy drops the end of a header with any other name.
EXACT_S1_HEADER = """\
{%- macro header(message) -%}
{%- if message.name is not defined -%}
{{- headers[message.role] -}}
{%- elif message.name in names or message.role == 'tool' -%}
{{- stems[message.role] ~ ' name=' ~ names.get(message.name, @plugin@) ~ '\\n' -}}
{%- else -%}
{{- stems[message.role] -}}
{%- endif -%}
{%- endmacro -%}
"""
S1_SYSTEM = """\
{%- if not tools and messages and messages[0].role != 'system' and enable_thinking is not false -%}
{{- @system@ ~ @meta_instruction@ ~ @eosys@ -}}
{%- endif -%}
"""
S1_META_INSTRUCTION = """\
{%- elif enable_thinking is not false -%}
{%- set offer = @meta_instruction@ ~ offer -%}
"""
S1_OFFER_START = (
    "{%- set turns = messages -%}\n{%- if tools -%}\n"
    + FUNCTIONS
    + """\
{%- set offer = @tool@ ~ ns.functions | tojson(indent=2) ~ @eotool@ -%}
{%- if messages and messages[0].role == 'system' -%}
{%- set offer = messages[0].content + offer -%}
{%- set turns = messages[1:] -%}
"""
)
S1_OFFER_END = """\
{%- else -%}
{%- set offer = offer.lstrip('\\n') -%}
{%- endif -%}
{{- @stem_system@ ~ ' name=' ~ @plugin@ ~ '\\n' ~ offer ~ @eosys@ -}}
{%- endif -%}
"""
S1_TURNS = """\
{%- set last = namespace(question=-1) -%}
{%- for message in turns -%}
{%- if message.role == 'user' -%}
{%- set last.question = loop.index0 -%}
{%- endif -%}
{%- endfor -%}
{%- for message in turns -%}
{%- if message.role not in headers -%}
{{- raise_exception('this template has no role ' ~ message.role) -}}
{%- endif -%}
{%- set thought -%}
{%- if -1 < last.question < loop.index0 and message.reasoning_content is defined
 and message.reasoning_content is not none -%}
{{- '<think>\\n' ~ message.reasoning_content ~ '\\n</think>\\n' -}}
{%- endif -%}
{%- endset -%}
{{- header(message) -}}
{%- if message.role == 'assistant' -%}
{%- generation -%}
{{- thought ~ text_of(message) -}}
{%- for call in message.tool_calls or [] -%}
{{- write_call(call) -}}
{%- endfor -%}
{{- @eoa@ -}}
{%- endgeneration -%}
{{- @separator@ -}}
{%- else -%}
{{- thought ~ text_of(message) ~ ends[message.role] -}}
{%- endif -%}
{%- endfor -%}
"""


def _write_s1(fields: Fields, exact: bool) -> str:
    header = EXACT_S1_HEADER if exact else NAMED_HEADER
    calls = _write_call(exact, "\n<|action_end|>")
    offer = S1_OFFER_START + _default_system(fields, S1_META_INSTRUCTION) + S1_OFFER_END
    if not exact:
        offer = offer.replace("messages[0].content +", "text_of(messages[0]) ~")
    system = _default_system(fields, S1_SYSTEM)
    return ACTION_HEADERS + header + calls + system + offer + S1_TURNS


# -- llama3.1 ----------------------------------------------------------------------------------------

CALL_MESSAGE_END = "<|eom_id|>"
IPYTHON_HEADERS = """\
{%- set headers = {'system': @system@, 'user': @user@, 'assistant': @assistant@, 'ipython': @ipython@,
 'tool': @ipython@} -%}
{%- set ends = {'system': @eosys@, 'user': @eoh@, 'ipython': @eoi@, 'tool': @eoi@} -%}
{%- set offer -%}
{%- if tools is defined and tools is not none -%}
{{- @tool@ -}}
{%- for tool in tools -%}
{%- set function = tool.function or tool -%}
{%- if function.name is not defined or function.description is not defined -%}
{{- raise_exception('this template needs the name and the description of a tool') -}}
{%- endif -%}
{{- "Use the function '" ~ function.name ~ "' to: " ~ function.description ~ '\\n' ~ function | tojson ~ '\\n' -}}
{%- endfor -%}
{{- @eotool@ -}}
{%- endif -%}
{%- endset -%}
"""
IPYTHON_SYSTEM = """\
{%- if messages and messages[0].role != 'system' -%}
{{- @system@ ~ @knowledge@ ~ offer ~ @meta_instruction@ ~ @eosys@ -}}
{%- endif -%}
"""
IPYTHON_TURNS = """\
{%- set content = text_of(message) -%}
{%- if message.role == 'assistant' -%}
{%- set calls = '<|python_tag|>' in content or '</function>' in content -%}
{{- @assistant@ -}}
{%- generation -%}
{{- content ~ ('<|eom_id|>' if calls else @eoa@) -}}
{%- endgeneration -%}
{{- '' if calls else @separator@ -}}
{%- else -%}
{{- headers[message.role] ~ (offer if message.role == 'system' else '') ~ content ~ ends[message.role] -}}
{%- endif -%}
{%- endfor -%}
"""


def _write_llama3(fields: Fields, exact: bool) -> str:
    system = _default_system(fields, IPYTHON_SYSTEM)
    return IPYTHON_HEADERS + system + FOR_MESSAGES + IPYTHON_TURNS


# -- qwen2.5 -----------------------------------------------------------------------------------------

XML_SYSTEM = (
    FUNCTIONS
    + """\
{%- set led = messages and messages[0].role == 'system' -%}
{%- if @has_system@ -%}
{{- @system@ ~ (whole_text_of(messages[0]) if led else @meta_instruction@) -}}
{%- if tools -%}
{{- @tools@ -}}
{%- for function in ns.functions -%}
{{- @separator@ ~ '{"type": "function", "function": ' ~ function | tojson ~ '}' -}}
{%- endfor -%}
{{- @eotools@ -}}
{%- endif -%}
{{- @eosys@ -}}
{%- endif -%}
"""
)
XML_CALL = """\
{%- macro write_call(call) -%}
{%- set function = call.function or call -%}
{%- if function.name is not defined or function.arguments is not defined -%}
{{- raise_exception('a call needs a name and arguments') -}}
{%- endif -%}
{%- set given = function.arguments -%}
{%- if given is string -%}
{%- set given = given | from_json -%}
{%- endif -%}
{{- @separator@ ~ '<tool_call>' ~ @separator@ ~ '{"name": "' ~ function.name ~ '", "arguments": ' -}}
{{- given | tojson ~ '}' ~ @separator@ ~ '</tool_call>' -}}
{%- endmacro -%}
"""
XML_TURNS = """\
{%- if message.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}
{{- @result_header@ -}}
{%- endif -%}
{{- @separator@ ~ '<tool_response>' ~ @separator@ ~ whole_text_of(message) ~ @separator@ ~ '</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}
{{- @eoh@ -}}
{%- endif -%}
{%- elif message.role == 'assistant' -%}
{%- set calls = message.tool_calls is defined and message.tool_calls is not none -%}
{{- @call_header@ if calls else @assistant@ -}}
{%- generation -%}
{%- if calls and message.content is defined and message.content is not none -%}
{{- @separator@ -}}
{%- endif -%}
{%- if not calls or message.content is defined and message.content is not none -%}
{{- text_of(message) -}}
{%- endif -%}
{%- for call in message.tool_calls or [] -%}
{{- write_call(call) -}}
{%- endfor -%}
{{- @reply_end@ -}}
{%- endgeneration -%}
{{- @reply_separator@ -}}
{%- elif message.role == 'user' or message.role == 'system' and not loop.first -%}
{{- headers[message.role] ~ text_of(message) ~ ends[message.role] -}}
{%- endif -%}
{%- endfor -%}
"""
XML_HEADERS = """\
{%- set headers = {'system': @system@, 'user': @user@, 'assistant': @assistant@, 'tool': @user@} -%}
{%- set ends = {'system': @eosys@, 'user': @user_end@} -%}
"""
# LMDeploy prints the content of a first system message and of results as Python does.
PRINTED_TEXT = """\
{%- macro whole_text_of(message) -%}
{%- if message.content is not defined -%}
{{- raise_exception('a message has no content') -}}
{%- endif -%}
{{- message.content -}}
{%- endmacro -%}
"""
# Every turn ends like a system turn there, and roles that it does not know are left out.
EXACT_XML_NAMES = {
    "@user_end@": "@eosys@",
    "@reply_end@": "@eosys@",
    "@reply_separator@": "''",
    "@call_header@": "'<|im_start|>assistant'",
    "@result_header@": "'<|im_start|>user'",
}
XML_NAMES = {
    "whole_text_of": "text_of",
    "@user_end@": "@eoh@",
    "@reply_end@": "@eoa@",
    "@reply_separator@": "@separator@",
    "@call_header@": "@stem_assistant@",
    "@result_header@": "@stem_user@",
}


def _write_qwen(fields: Fields, exact: bool) -> str:
    has_default = _has_default(fields)
    if exact:
        has_system = "true" if has_default else "tools"
        text = PRINTED_TEXT + XML_HEADERS + XML_CALL + XML_SYSTEM
        text += "{%- for message in messages -%}\n" + XML_TURNS
    else:
        has_system = "true" if has_default else "tools or led"
        text = XML_HEADERS + XML_CALL + XML_SYSTEM + FOR_MESSAGES + XML_TURNS
    names = {**(EXACT_XML_NAMES if exact else XML_NAMES), "@has_system@": has_system}
    if fields["meta_instruction"] is None:
        names["@meta_instruction@"] = "none" if exact else "''"
    for name, expression in names.items():
        text = text.replace(name, expression)
    return text


# -- chatglm2 ----------------------------------------------------------------------------------------

ROUNDS = """\
{%- set rounds = namespace(count=0) -%}
{%- for message in messages -%}
{%- set content = text_of(message) -%}
{%- if message.role == 'user' -%}
{%- set rounds.count = rounds.count + 1 -%}
{{- '[Round ' ~ rounds.count ~ ']\\n\\n' ~ @user@ ~ content ~ @eoh@ ~ @assistant@ -}}
{%- elif message.role == 'assistant' -%}
{%- generation -%}
{{- content -}}
{%- endgeneration -%}
"""
ROUND_END = """\
{{- @eoa@ -}}
{%- else -%}
{{- raise_exception('this template has no role ' ~ message.role) -}}
"""


def _write_rounds(fields: Fields, exact: bool) -> str:
    return ROUNDS + ("" if exact else ROUND_END) + "{%- endif -%}\n{%- endfor -%}\n"


STYLES: Mapping[str, Callable[[Fields, bool], str]] = {
    "base": _write_base,
    "codellama": _write_base,
    "completion": _write_base,
    "internlm2": _write_internlm2,
    "intern-s1": _write_s1,
    "llama3.1": _write_llama3,
    "qwen2.5": _write_qwen,
    "chatglm2": _write_rounds,
}
"""For each style, the function that writes its turns; "completion" has none, only prompts."""

"""LLaMA-Factory's tool formats as Jinja: how tools are listed, and how tool calls are written.

    "qwen":    <tool_call>\\n{"name": "f", "arguments": {"x": 1}}\\n</tool_call>
    "default": Action: f\\nAction Input: {"x": 1}

Each row of `FORMATS` has the bodies of two macros: `tools` reads the variable `tools`, `calls`
reads its argument `calls`. The texts are those that the models were trained with, so they are data
and not ours to improve. Where the original leaves a call unclosed (its own parser does not find
such calls again), `calls` closes it and `exact_calls` is the original.

A tool is taken with or without its `{"type": "function", "function": ...}` wrapper, as in the
original. Arguments that are a string are written as they are where the format wants JSON; formats
that write one argument at a time need a mapping.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.dialects.turns import literal


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The bodies of the macros of one format."""

    tools: str
    calls: str
    exact_calls: str  # as the original writes them


def _make_format(tools: str, calls: str, exact_calls: str | None = None) -> ToolFormat:
    exact_calls = calls if exact_calls is None else exact_calls
    return ToolFormat(*map(_drop_empty_lines, (tools, calls, exact_calls)))


def _drop_empty_lines(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line)


def _print(text: str) -> str:
    return f"{{{{- {literal(text)} -}}}}" if text else ""


def _list_tools(before: str, each: str, after: str) -> str:
    """Return the macro that lists tools: `each` is Jinja over `tool`, `wrapped` and `bare`."""
    return "\n".join(
        [
            _print(before),
            "{%- for tool in tools -%}",
            "{%- set bare = tool.function if tool.type == 'function' else tool -%}",
            "{%- set wrapped = tool if tool.type == 'function' else {'type': 'function', 'function': tool} -%}",
            each.strip("\n"),
            "{%- endfor -%}",
            _print(after),
        ]
    )


def _list_calls(each: str, separator: str = "", before: str = "", after: str = "") -> str:
    """Return the macro that writes calls.

    `each` is Jinja over `name`, `arguments` (a mapping) and `json` (its text).
    """
    return "\n".join(
        [
            _print(before),
            "{%- for call in calls -%}",
            "{%- set function = call.function or call -%}",
            "{%- set name = function.name -%}",
            "{%- set arguments = function.arguments -%}",
            "{%- set json = arguments if arguments is string else arguments | tojson -%}",
            each.strip("\n"),
            f"{{{{- '' if loop.last else {literal(separator)} -}}}}" if separator else "",
            "{%- endfor -%}",
            _print(after),
        ]
    )


def _list_arguments(before: str, between: str, after: str) -> str:
    """Return Jinja for arguments one by one: a string as it is, anything else as JSON."""
    return f"""
{{%- for key, value in arguments.items() -%}}
{{{{- {literal(before)} ~ key ~ {literal(between)} -}}}}
{{{{- (value if value is string else value | tojson) ~ {literal(after)} -}}}}
{{%- endfor -%}}
"""


SIGNATURES = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
ASK_JSON = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
ASK_PAIRS = (
    "\n</tools>\n\nFor each function call, output the function name and arguments within the following XML format:"
    "\n<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>{arg-value-1}</arg_value>"
    "\n<arg_key>{arg-key-2}</arg_key>\n<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>\n"
)
ASK_PARAMETERS = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: "
    "an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language "
    "BEFORE the function call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge "
    "and do not tell the user about function calls\n</IMPORTANT>"
)
ASK_ACTION = (
    "])\nAction Input: the input to the tool, in a JSON format representing the kwargs "
    '(e.g. ```{"input": "hello world", "num_beams": 5}```)\n```\n'
)
GLM4 = (
    "你是一个名为 ChatGLM 的人工智能助手。你是基于智谱 AI 公司训练的语言模型 GLM-4 模型开发的，"
    "你的任务是针对用户的问题和要求提供适当的答复和支持。\n\n# 可用工具"
)
GLM4_EACH = r"""
{{- '\n\n## ' ~ bare.name ~ '\n\n' ~ bare | tojson(indent=4) -}}
{{- '\n在调用上述函数时，请使用 Json 格式表示调用的参数。' -}}
"""
LLAMA3 = (
    "\n\nYou have access to the following functions. To call a function, please respond with JSON for a function call. "
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}. '
    "Do not use variables.\n\n"
)
MINIMAX1 = (
    "</tools>\n\nIf you need to call tools, please respond with <tool_calls></tool_calls> XML tags, and provide "
    "tool-name and json-object of arguments, following the format below:\n<tool_calls>\n"
    '{"name": <tool-name-1>, "arguments": <args-json-object-1>}\n...\n</tool_calls>'
)
MINIMAX2 = (
    "</tools>\n\nWhen making tool calls, use XML format to invoke tools and pass parameters:\n"
    '\n<minimax:tool_call>\n<invoke name="tool-name-1">\n<parameter name="param-key-1">param-value-1</parameter>\n'
    '<parameter name="param-key-2">param-value-2</parameter>\n...\n</invoke>\n</minimax:tool_call>'
)
SEED_BEFORE = (
    "system\nYou are Doubao, a helpful AI assistant. You may call one or more functions to assist with the user query."
    "Tool List:\nYou are authorized to use the following tools (described in JSON Schema format). Before performing "
    "any task, you must decide how to call them based on the descriptions and parameters of these tools.\n"
)
SEED_AFTER = (
    "\n工具调用请遵循如下格式:\n<seed:tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>value_1"
    "</parameter>\n<parameter=example_parameter_2>This is the value for the second parameter\nthat can span\nmultiple "
    "lines</parameter>\n</function>\n</seed:tool_call>\n"
)

ACTION_TOOLS = (
    _list_tools(
        "You have access to the following tools:\n",
        r"""
{{- '> Tool Name: ' ~ bare.name ~ '\nTool Description: ' ~ bare.description ~ '\nTool Args:\n' -}}
{%- set schema = bare.parameters or {} -%}
{%- for name, param in (schema.properties or {}).items() -%}
{{- '  - ' ~ name ~ ' (' ~ param.type ~ (', required' if name in (schema.required or []) else '') ~ '): ' -}}
{{- param.description -}}
{{- (', should be one of [' ~ param.enum | join(', ') ~ ']') if param.enum else '' -}}
{{- (', where each item should be ' ~ param['items'].type) if 'items' in param else '' -}}
{{- '\n' -}}
{%- endfor -%}
{{- '\n' -}}
""",
        "Use the following format if using a tool:\n```\nAction: tool name (one of [",
    )
    + f"""
{{%- for tool in tools -%}}
{{{{- (tool.function if tool.type == 'function' else tool).name ~ ('' if loop.last else ', ') -}}}}
{{%- endfor -%}}
{{{{- {literal(ASK_ACTION)} -}}}}
"""
)

GEMMA4_TOOLS = _list_tools(
    "",
    r"""
{{- 'declaration:' ~ bare.name ~ '{description:<|"|>' ~ bare.description ~ '<|"|>' -}}
{%- set schema = bare.parameters or {} -%}
{%- if schema -%}
{{- ',parameters:{' -}}
{%- if schema.properties -%}
{{- 'properties:{' -}}
{%- for name, param in schema.properties.items() -%}
{{- name ~ ':{' ~ ('description:<|"|>' ~ param.description ~ '<|"|>' if param.description else '') -}}
{{- ',' if param.description and param.type else '' -}}
{{- ('type:<|"|>' ~ (param.type | string | upper) ~ '<|"|>') if param.type else '' -}}
{{- '}' ~ ('' if loop.last else ',') -}}
{%- endfor -%}
{{- '}' ~ (',' if schema.required or schema.type else '') -}}
{%- endif -%}
{%- if schema.required -%}
{{- 'required:[<|"|>' ~ schema.required | join('<|"|>,<|"|>') ~ '<|"|>]' ~ (',' if schema.type else '') -}}
{%- endif -%}
{{- ('type:<|"|>' ~ (schema.type | string | upper) ~ '<|"|>') if schema.type else '' -}}
{{- '}' -}}
{%- endif -%}
{%- if bare.response -%}
{%- set response = bare.response -%}
{%- set typed = (response.type | string | upper) == 'OBJECT' -%}
{{- ',response:{' ~ ('description:<|"|>' ~ response.description ~ '<|"|>' if response.description else '') -}}
{{- (',' if response.description else '') ~ 'type:<|"|>OBJECT<|"|>' if typed else '' -}}
{{- '}' -}}
{%- endif -%}
{{- '}' ~ ('' if loop.last else '\n') -}}
""",
    "",
)

GEMMA4_VALUE = r"""
{%- macro gemma_value(value) -%}
{%- if value is string -%}
{{- '<|"|>' ~ value ~ '<|"|>' -}}
{%- elif value is mapping -%}
{{- '{' -}}
{%- for key, item in value | dictsort(case_sensitive=true) -%}
{{- key ~ ':' ~ gemma_value(item) ~ ('' if loop.last else ',') -}}
{%- endfor -%}
{{- '}' -}}
{%- elif value is boolean or value is none -%}
{{- value | tojson -}}
{%- elif value is iterable -%}
{{- '[' -}}
{%- for item in value -%}
{{- gemma_value(item) ~ ('' if loop.last else ',') -}}
{%- endfor -%}
{{- ']' -}}
{%- else -%}
{{- value -}}
{%- endif -%}
{%- endmacro -%}
"""
GEMMA4_CALLS = r"""
{{- '<|tool_call>call:' ~ name -}}
{{- ('{' ~ arguments ~ '}') if arguments is string else gemma_value(arguments) -}}
{{- '<tool_call|>' -}}
"""

LFM2_CALLS = r"""
{{- name ~ '(' -}}
{%- for key, value in arguments.items() -%}
{{- key ~ '=' ~ ('"' ~ value ~ '"' if value is string else value | tojson) ~ ('' if loop.last else ', ') -}}
{%- endfor -%}
{{- ')' -}}
"""

QWEN_CALLS = _list_calls(
    r"""{{- '<tool_call>\n{"name": ' ~ name | tojson ~ ', "arguments": ' ~ json ~ '}\n</tool_call>' -}}""",
    separator="\n",
)
ONE_LINE = "{{- '\\n' ~ wrapped | tojson -}}"


def _write_pair_calls(closing: str) -> str:
    each = "{{- '\\n<tool_call>' ~ name -}}" + _list_arguments(
        "\n<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"
    )
    return _list_calls(
        each + (f"{{{{- {literal(closing)} -}}}}" if closing else ""), separator="\n"
    )


def _write_seed_calls(bracket: str) -> str:
    each = f"{{{{- {literal(chr(10) + '<seed:tool_call>' + chr(10) + '<function=')} ~ name ~ {literal(bracket)} -}}}}"
    each += (
        _list_arguments("\n<parameter=", ">", "</parameter>")
        + "{{- '\\n</function>\\n</seed:tool_call>' -}}"
    )
    return _list_calls(each, separator="\n")


def _write_minimax2_calls(before: str, after: str) -> str:
    each = "{{- '<invoke name=\"' ~ name ~ '\">' -}}"
    each += _list_arguments('\n<parameter name="', '">', "</parameter>") + "{{- '\\n</invoke>' -}}"
    return _list_calls(each, "\n", before, after)


ARGUMENTS = r"""{{- '{"name": ' ~ name | tojson ~ ', "arguments": ' ~ json ~ '}' -}}"""
PARAMETERS = ARGUMENTS.replace("arguments", "parameters")

FORMATS: dict[str, ToolFormat] = {
    "default": _make_format(
        ACTION_TOOLS,
        _list_calls(r"{{- 'Action: ' ~ name ~ '\nAction Input: ' ~ json -}}", separator="\n"),
    ),
    "gemma4": _make_format(GEMMA4_TOOLS, GEMMA4_VALUE + _list_calls(GEMMA4_CALLS)),
    "glm4": _make_format(
        _list_tools(GLM4, GLM4_EACH, ""),
        "{{- raise_exception('the glm4 format writes one call in a turn') if calls | length > 1 -}}\n"
        + _list_calls(r"{{- name ~ '\n' ~ json -}}"),
    ),
    "llama3": _make_format(
        r"{{- 'Cutting Knowledge Date: December 2023\nToday Date: ' ~ strftime_now('%d %b %Y') -}}"
        + "\n"
        + _list_tools(LLAMA3, r"{{- wrapped | tojson(indent=4) ~ '\n\n' -}}", ""),
        "{{- '[' if calls | length > 1 else '' -}}\n"
        + _list_calls(PARAMETERS, separator=", ")
        + "\n{{- ']' if calls | length > 1 else '' -}}",
    ),
    "lfm2": _make_format(
        _list_tools(
            "List of tools: <|tool_list_start|>[",
            "{{- bare | tojson ~ ('' if loop.last else ', ') -}}",
            "]<|tool_list_end|>",
        ),
        _list_calls(LFM2_CALLS, ", ", "<|tool_call_start|>[", "]<|tool_call_end|>"),
    ),
    "minimax1": _make_format(
        _list_tools(
            "You are provided with these tools:\n<tools>\n",
            r"{{- bare | tojson ~ '\n' -}}",
            MINIMAX1,
        ),
        _list_calls(ARGUMENTS, "\n", "<tool_calls>\n", "\n</tool_calls>"),
    ),
    "minimax2": _make_format(
        _list_tools(
            "\n\n# Tools\n\nYou may call one or more tools to assist with the user query.\n"
            "Here are the tools available in JSONSchema format:\n\n<tools>\n",
            r"{{- '<tool>' ~ bare | tojson ~ '</tool>\n' -}}",
            MINIMAX2,
        ),
        _write_minimax2_calls("<minimax:tool_call>\n", "\n</minimax:tool_call>"),
        _write_minimax2_calls("", ""),
    ),
    "mistral": _make_format(
        _list_tools(
            "[AVAILABLE_TOOLS] [",
            "{{- wrapped | tojson ~ ('' if loop.last else ', ') -}}",
            "][/AVAILABLE_TOOLS]",
        ),
        _list_calls(ARGUMENTS, ", ", "[", "]"),
    ),
    "qwen": _make_format(_list_tools("\n\n" + SIGNATURES, ONE_LINE, ASK_JSON), QWEN_CALLS),
    "qwen3_5": _make_format(
        _list_tools(
            "\n\n# Tools\n\nYou have access to the following functions:\n\n<tools>",
            "{{- '\\n' ~ bare | tojson -}}",
            ASK_PARAMETERS,
        ),
        _list_calls(
            r"{{- '<tool_call>\n<function=' ~ name ~ '>' -}}"
            + _list_arguments("\n<parameter=", ">\n", "\n</parameter>")
            + r"{{- '\n</function>\n</tool_call>' -}}",
            separator="\n",
        ),
    ),
    "glm4_moe": _make_format(
        _list_tools("\n\n" + SIGNATURES, ONE_LINE, ASK_PAIRS),
        _write_pair_calls("\n</tool_call>"),
        _write_pair_calls(""),
    ),
    "seed_oss": _make_format(
        _list_tools(
            SEED_BEFORE + "[",
            "{{- tool | tojson ~ ('' if loop.last else ', ') -}}",
            "]" + SEED_AFTER,
        ),
        _write_seed_calls(">"),
        _write_seed_calls(""),
    ),
    "ling": _make_format(
        _list_tools(SIGNATURES, ONE_LINE, ASK_JSON + "\ndetailed thinking off"), QWEN_CALLS
    ),
}

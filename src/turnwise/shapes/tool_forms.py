"""Tools of other APIs as tools of Chat Completions, and back.

    {"name", "description", "input_schema"}                       Anthropic
    {"type": "function", "name", "description", "parameters"}     Responses, and older interfaces
    {"functionDeclarations": [{"name", "parametersJsonSchema"}]}  Gemini

become `{"type": "function", "function": {"name", "description", "parameters"}}`. A custom tool, whose only argument is
a text, is `{"type": "custom", "custom": {"name", "description", "format"}}`; for a prompt it becomes a function
(`make_function`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from turnwise.errors import MessageError, short_repr
from turnwise.messages import JsonMapping, Path, format_path
from turnwise.shapes.part_forms import CUSTOM_TOOL, TOOL, ApiForms, KeyForm, PartForm
from turnwise.shapes.row import ParsedRow, Row, build_row, extra_columns, is_list

DECLARATIONS = ("functionDeclarations", "function_declarations")
SERVER_KEYS = ("cache_control", "defer_loading", "allowed_callers", "eager_input_streaming")
"""What an API does with a tool, which is no part of a prompt."""
FUNCTION_KEYS = {name: f"function.{name}" for name in ("name", "description", "strict")}


def _lower_types(api: ApiForms, schema: Any, path: Path) -> Any:
    """Return a schema of Gemini, whose types may be in capitals, as a JSON schema."""
    if isinstance(schema, Mapping):
        found = {key: _lower_types(api, value, path) for key, value in schema.items()}
        if isinstance(found.get("type"), str):
            found["type"] = found["type"].lower()
        return found
    return [_lower_types(api, item, path) for item in schema] if is_list(schema) else schema


ANTHROPIC_TOOL = PartForm(
    "custom",
    TOOL,
    {**FUNCTION_KEYS, "input_schema": "function.parameters"},
    kept=(*SERVER_KEYS, "input_examples"),
    required=("name",),
)
RESPONSES_TOOL = PartForm(
    "function",
    TOOL,
    {**FUNCTION_KEYS, "parameters": "function.parameters"},
    kept=(*SERVER_KEYS, "output_schema"),
    required=("name",),
)
GEMINI_TOOL = PartForm(
    "",
    TOOL,
    {
        **FUNCTION_KEYS,
        "parametersJsonSchema": "function.parameters",
        "parameters_json_schema": "function.parameters",
        "parameters": KeyForm("function.parameters", _lower_types),
    },
    kept=("behavior", "response"),
    required=("name",),
)
CUSTOM_FORM = PartForm(
    "custom",
    CUSTOM_TOOL,
    {name: f"custom.{name}" for name in ("name", "description", "format")},
    kept=SERVER_KEYS,
    required=("name",),
)
API_TOOLS = {
    "anthropic": ANTHROPIC_TOOL,
    "responses": RESPONSES_TOOL,
    "gemini": GEMINI_TOOL,
    "custom": CUSTOM_FORM,
}
CUSTOM_INPUT = "input"
"""The argument of the function that a custom tool becomes."""


def is_custom(tool: Any) -> bool:
    """Return True for a tool whose argument is a text, as Responses or Chat Completions write it."""
    return isinstance(tool, Mapping) and tool.get("type") == "custom" and "input_schema" not in tool


def make_function(tool: JsonMapping) -> Row:
    """Return the function that a custom tool of Chat Completions is for a template: its text is an argument."""
    custom = tool["custom"]
    about, form = custom.get("description") or "", custom.get("format") or {}
    if form.get("type") == "grammar":
        form = form.get("grammar", form)
        about += f"\n\nThe input has this {form.get('syntax')} grammar:\n{form.get('definition')}"
    fields = {CUSTOM_INPUT: {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": [CUSTOM_INPUT]}
    function = {"name": custom.get("name"), "description": about.strip(), "parameters": schema}
    return {"type": "function", "function": function}


def read_tool(tool: Any, path: Path) -> Iterator[tuple[Any, str]]:
    """Yield the tools of Chat Completions that a tool is, each with the API that writes it so; "" if it is one."""
    if (
        not isinstance(tool, Mapping)
        or "function" in tool
        or isinstance(tool.get("custom"), Mapping)
    ):
        yield tool, ""
        return
    for key in DECLARATIONS:
        if is_list(tool.get(key)):
            for index, one in enumerate(tool[key]):
                yield _read_as("gemini", one, (*path, key, index)), "gemini"
            return
    kind = tool.get("type")
    if "input_schema" in tool and kind in (None, "custom"):
        yield _read_as("anthropic", tool, path), "anthropic"
    elif isinstance(tool.get("name"), str) and kind in (None, "function", "custom"):
        api = "custom" if kind == "custom" else "responses"
        yield _read_as(api, tool, path), api
    else:
        yield tool, ""


def read_functions(tool: Any, path: Path) -> Iterator[tuple[Any, str]]:
    """Yield what `read_tool` does, custom tools as functions."""
    for one, api in read_tool(tool, path):
        if isinstance(one, Mapping) and isinstance(one.get("custom"), Mapping):
            one, api = make_function(one), "custom"
        yield one, api


def make_function_call(call: Any) -> Any:
    """Return the call of a custom tool as that of the function which it is for a template; others as they are."""
    custom = call.get("custom") if isinstance(call, Mapping) else None
    if not isinstance(custom, Mapping):
        return call
    made = {"name": custom.get("name"), "arguments": {CUSTOM_INPUT: custom.get("input")}}
    rest = {key: value for key, value in call.items() if key != "custom"}
    return {**rest, "type": "function", "function": made}


def _read_as(api: str, tool: Any, path: Path) -> Row:
    if not isinstance(tool, Mapping):
        raise MessageError(f"{short_repr(tool)} is no tool", path=format_path(path))
    forms = ApiForms(api, ())
    return API_TOOLS[api].read(forms, tool, path).value


def read_api_tools(tools: Any) -> list[Row]:
    """Return the tools of a request to another API.

    Raises:
        MessageError: one of them runs on the servers of the API, so there is no schema for a prompt.
    """
    found: list[Row] = []
    for index, tool in enumerate(tools):
        path = ("tools", index)
        for one, _ in read_tool(tool, path):
            if not isinstance(one, Mapping) or not one.keys() & {"function", "custom"}:
                kind = one.get("type") if isinstance(one, Mapping) else one
                raise MessageError(
                    f"a tool of type {short_repr(kind)} cannot be kept: it has no JSON schema",
                    path=format_path(path),
                    hint="Such tools run on the servers of the API; leave it out.",
                )
            found.append(dict(one))
    return found


def write_tools(tools: Any, api: str) -> list[Row]:
    """Return tools as an API has them.

    Raises:
        MessageError: it has no place for a key of one.
    """
    forms = ApiForms(api, ())
    written = []
    for index, tool in enumerate(tools):
        form = API_TOOLS["custom" if api == "responses" and is_custom(tool) else api]
        key = "custom" if form is CUSTOM_FORM else "function"
        if not isinstance(tool, Mapping) or not isinstance(tool.get(key), Mapping):
            raise forms.no_place(("tools", index))
        one = form.write(forms, dict(tool), ("tools", index))
        if api != "responses":
            del one["type"]
        written.append(one)
    return [{DECLARATIONS[0]: written}] if api == "gemini" else written


# -- the columns of requests


def build_api_row(
    api: ApiForms, row: JsonMapping, used: Iterable[str], messages: list[Row]
) -> ParsedRow:
    """Return a request of an API as a conversation; `used` are the columns that were read."""
    columns = {key: value for key, value in row.items() if key != "tools"}
    found = build_row(api.name, columns, used, messages, notes=api.notes.values())
    tools = row.get("tools")
    if tools is None:
        return found
    if not is_list(tools):
        raise MessageError(f"tools are a list, not {short_repr(tools)}", path="tools")
    return replace(found, tools=read_api_tools(tools))


def write_api_columns(api: ApiForms, row: ParsedRow) -> Row:
    """Return the columns of a request beside the conversation."""
    columns = extra_columns(row)
    if row.tools is not None:
        columns["tools"] = write_tools(row.tools, api.name)
    return columns

"""The conversation that a row of data becomes, the columns that every shape may have, and the checks.

Every check names the path of the value, what was found and what is accepted. Texts are only checked to be texts here;
`render` checks whether they can be rendered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import InputReader, JsonMapping, JsonObject, Path, format_path
from turnwise.schema import check_name

Row = JsonObject

FLAGS = ("add_generation_prompt", "continue_final_message")
OPTION_COLUMNS = ("options", "template_kwargs", "chat_template_kwargs")
SHARED_COLUMNS = {"tools", "documents", *FLAGS, *OPTION_COLUMNS}
"""Columns that mean the same in every shape."""
RENDER_NAMES = {
    *(
        "self",
        "messages",
        "tools",
        "documents",
        *FLAGS,
        "now",
        "normalise",
        "strict",
        "late_system",
    ),
}
ENCODE_NAMES = {
    "tokenizer",
    "train_on",
    "max_length",
    "overflow",
    "trust",
    "compatible",
    "add_stop",
}
ARGUMENT_NAMES = RENDER_NAMES | ENCODE_NAMES
"""Arguments of `render` and `encode`, which cannot be options of a template: no row decides whom to trust."""

TURN_COLUMNS = {"messages": "openai", "conversations": "sharegpt", "conversation": "xtuner"}
"""Columns that hold turns, and the shape of turns that do not show it themselves."""

EXAMPLES = {
    "anthropic": "{system, messages: [{role, content: text or blocks}], tools: [{name, input_schema}]}",
    "responses": "{instructions, input: text or items, tools: [{type: function, name, parameters}]}",
    "gemini": "{systemInstruction, contents: [{role, parts}], tools: [{functionDeclarations}]}",
    "openai": "{messages: [{role, content, ...}], tools, documents, chat_template_kwargs}",
    "list": "[{role, content, ...}]",
    "sharegpt": "{conversations: [{from: human | gpt | function_call | observation, value}], system, tools}",
    "xtuner": "{conversation: [{system, input, output, output_with_loss}]}",
    "alpaca": "{instruction, input, output, system, history}",
    "prompt": "{prompt, completion}, each a text or a list of messages",
    "fastchat": "[[role, text], ...], or {roles, system_message, messages: [[role, text], ...]}",
    "paddlenlp": "a question, [[question, answer], [question]], or {src: [...], tgt: [...], context}",
}
"""A row of each shape, for error messages."""

MAX_NAMES = 12  # that an error message lists
MAX_NAME_LENGTH = 40


@dataclass(frozen=True, slots=True)
class ParsedRow:
    """A row of data as a conversation: `template.render(**row.arguments)` renders it.

    Attributes:
        messages: The messages in OpenAI's shape.
        tools: The tools, if the row has them.
        documents: The documents, if the row has them.
        options: Variables of the template that the row sets.
        shape: The name of the shape that was read.
        rest: The columns that are not part of the conversation, such as `id` or `source`.
        notes: Keys with text that are not known, which were kept as they are.
    """

    messages: list[Row]
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    options: Row = field(default_factory=dict)
    shape: str = "openai"
    rest: Row = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def arguments(self) -> Row:
        """The keyword arguments of `render` that the row gives."""
        return {"messages": self.messages, **tools_and_documents(self), **self.options}


def drop_nulls(table: JsonMapping) -> Row:
    """Return a table without the keys that have no value."""
    return {key: value for key, value in table.items() if value is not None}


def tools_and_documents(row: ParsedRow) -> Row:
    """Return the tools and documents that the row has."""
    return drop_nulls({"tools": row.tools, "documents": row.documents})


# -- reading ----------------------------------------------------------------------------------------------------------


def build_row(
    shape: str,
    row: JsonMapping,
    used: Iterable[str],
    messages: list[Row],
    options: Row | None = None,
    notes: Iterable[str] = (),
) -> ParsedRow:
    """Return the parsed row, with the shared columns; `used` are the columns that the shape has read."""
    found = dict(options or {})
    for key in FLAGS:
        if row.get(key) is not None:
            if not isinstance(row[key], bool | str):
                raise MessageError(f"must be true or false, not {short_repr(row[key])}", path=key)
            found[key] = row[key]
    for key in OPTION_COLUMNS:
        if row.get(key) is not None:
            found.update(check_options(row[key], key))
    empty = {key for key in TURN_COLUMNS if row.get(key) is None}
    rest = {key: row[key] for key in row if key not in SHARED_COLUMNS.union(used, empty)}
    tools = _read_tools(row.get("tools"), wrap=shape in ("sharegpt", "alpaca"))
    documents = InputReader().read_documents(row.get("documents"))
    return ParsedRow(messages, tools, documents, found, shape, rest, tuple(notes))


def check_options(value: Any, where: str) -> JsonMapping:
    """Return a mapping of options; refuse names that are arguments of `render`."""
    if not isinstance(value, Mapping):
        raise MessageError(f"{short_repr(value)} is not a table of options", path=where)
    if wrong := sorted(ARGUMENT_NAMES & value.keys()):
        raise MessageError(f"it has {', '.join(wrong)}, which are not options", path=where)
    return value


def _read_tools(value: Any, wrap: bool) -> list[Any] | None:
    """Return tools, which may be JSON text; `wrap` puts LLaMA-Factory's bare functions in OpenAI's wrapping."""
    if isinstance(value, str):
        value = parse_json(value, "tools", "a JSON list of tools") if value.strip() else None
    tools = InputReader().read_tools(value)
    if tools is None or not wrap:
        return tools
    return [_wrap_function(tool) for tool in tools]


def _wrap_function(tool: Row) -> Row:
    is_function = isinstance(tool.get("name"), str) and not tool.keys() & {"type", "function"}
    return {"type": "function", "function": tool} if is_function else tool


def parse_json(text: str, path: str, accepted: str) -> Any:
    """Return the value of a JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageError(
            f"is not JSON ({error}): {short_repr(text)}", path=path, hint=f"Accepted: {accepted}."
        ) from None


def find_turns(row: Any, shape: str, what: str) -> tuple[str, Sequence[Any]]:
    """Return the column that holds the turns, and the turns."""
    row = require_mapping(row, shape)
    column = _turn_column(row)
    if column is None:
        raise MessageError(
            f"a row of {what} has no turns", hint=did_you_mean("conversations", row, "It has")
        )
    turns = row[column]
    if not is_list(turns):
        raise MessageError(f"{what} is a list of turns, not {describe(turns)}", path=column)
    if not turns and shape != "openai":
        raise MessageError(
            f"{what} has no turns here", path=column, hint=f"An example: {EXAMPLES[shape]}."
        )
    return column, turns


def _turn_column(row: JsonMapping) -> str | None:
    return next((name for name in TURN_COLUMNS if row.get(name) is not None), None)


def guess_turn_shape(row: Any) -> str | None:
    """Return the shape of the turns in a row, told by the first turn or by the column; None without turns."""
    column = _turn_column(row) if isinstance(row, Mapping) else None
    if column is None:
        return None
    turns = row[column]
    first = turns[0] if is_list(turns) and turns else None
    if is_list(first):
        return "fastchat"
    if isinstance(first, Mapping):
        if "role" in first:
            return "openai"
        if "from" in first:
            return "sharegpt"
        if "input" in first or "output" in first:
            return "xtuner"
    return TURN_COLUMNS[column]


# -- checks -----------------------------------------------------------------------------------------------------------


def describe(value: Any) -> str:
    """Return the type and the start of a value, for error messages."""
    return f"{type(value).__name__}: {short_repr(value)}"


def require_mapping(row: Any, shape: str) -> JsonMapping:
    """Return the row if it is a mapping, else raise MessageError."""
    if not isinstance(row, Mapping):
        raise MessageError(
            f"a row of {shape} data is a mapping, not {describe(row)}",
            hint=f"An example: {EXAMPLES[shape]}.",
        )
    return row


def require_text(turn: JsonMapping, key: str, path: Path) -> str:
    """Return a text that a turn must have."""
    if key not in turn:
        raise MessageError(
            f"there is no {key!r}",
            path=format_path(path),
            hint=did_you_mean(key, turn, "It has") or "It is empty.",
        )
    return check_text(turn[key], (*path, key))


def optional_text(turn: JsonMapping, key: str, *path: str | int) -> str | None:
    """Return a text of a turn; None if it is null or missing."""
    return None if turn.get(key) is None else check_text(turn[key], (*path, key))


def check_text(value: Any, path: Path) -> str:
    """Return the value if it is text, else raise MessageError."""
    if not isinstance(value, str):
        raise MessageError(f"must be text, not {describe(value)}", path=format_path(path))
    return value


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Return True for a list or a tuple."""
    return isinstance(value, list | tuple)


def join_names(names: Iterable[Any]) -> str:
    """Return names separated by commas, shortened for an error message."""
    texts = [str(name)[:MAX_NAME_LENGTH] for name in names]
    more = ", …" if len(texts) > MAX_NAMES else ""
    return ", ".join(texts[:MAX_NAMES]) + more


def make_message(role: str, content: Any) -> Row:
    """Return a message of a role and a content."""
    return {"role": role, "content": content}


# -- writing ----------------------------------------------------------------------------------------------------------


def extra_columns(row: ParsedRow) -> Row:
    """Return the columns beside the turns, as every shape that is a mapping writes them."""
    columns = {**row.rest, **tools_and_documents(row)}
    options = dict(row.options)
    for key in FLAGS:
        if key in options:
            columns[key] = options.pop(key)
    if options:
        columns["chat_template_kwargs"] = options
    return columns


def split_system(messages: list[Row]) -> tuple[str, list[Row]]:
    """Return the system text that can be written to a column, and the other messages; "" if there is none."""
    if len(messages) < 2 or messages[1].get("role") == "system":
        return "", messages
    first = messages[0]
    is_plain = first.keys() == {"role", "content"} and first["role"] == "system"
    if is_plain and isinstance(first["content"], str) and first["content"]:
        return first["content"], messages[1:]
    return "", messages


def translate_role(message: Row, index: int, shape: str, names: Mapping[str, str]) -> str:
    """Return the name that a shape has for the role of a message."""
    role = str(message.get("role"))
    path = f"messages[{index}].role"
    check_name(role, names, f"{shape} data has no role", "Roles that it has", path=path)
    return names[role]


def require_text_content(message: Row, index: int, shape: str) -> str:
    """Return the content of a message, which must be text in this shape."""
    content = message.get("content")
    if not isinstance(content, str):
        raise MessageError(
            f"{shape} data has a text here, not {describe(content)}",
            path=f"messages[{index}].content",
        )
    return content


def as_json(value: Any, *path: str | int) -> str:
    """Return plain data as JSON text; other values become placeholders, which `write` finds when it reads back."""
    return json.dumps(InputReader().to_plain(value, *path), ensure_ascii=False)

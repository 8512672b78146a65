"""What all shapes share: the Conversation that a row becomes, the columns that may stand beside any turns, and checks.

Every check names the path of the value, what was found and what is accepted. Texts are checked to be texts here and
nothing more; whether they can be rendered is for `messages` to say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import InputReader, Path
from turnwise.messages import format_path as spelt

Row = dict[str, Any]

FLAGS = ("add_generation_prompt", "continue_final_message")
OPTION_TABLES = ("options", "template_kwargs", "chat_template_kwargs")
BESIDE = {"tools", "documents", *FLAGS, *OPTION_TABLES}  # columns that mean the same in every shape
RESERVED = {"self", "messages", "tools", "documents", *FLAGS, "now", "normalise", "strict"}

# Columns that hold turns, and whose turns they are when the turns themselves do not say it.
COLUMNS = {"messages": "openai", "conversations": "sharegpt", "conversation": "xtuner"}

# How a row of each shape looks, for people.
LOOKS = {
    "openai": "{messages: [{role, content, ...}], tools, documents, chat_template_kwargs}",
    "list": "[{role, content, ...}]",
    "sharegpt": "{conversations: [{from: human | gpt | function_call | observation, value}], system, tools}",
    "xtuner": "{conversation: [{system, input, output, output_with_loss}]}",
    "alpaca": "{instruction, input, output, system, history}",
    "prompt": "{prompt, completion}, each a text or a list of messages",
    "fastchat": "[[role, text], ...], or {roles, system_message, messages: [[role, text], ...]}",
    "paddlenlp": "a question, [[question, answer], [question]], or {src: [...], tgt: [...], context}",
}


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a row says: `template.render(**conversation.arguments)` renders it."""

    messages: list[Row]
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    options: Row = field(default_factory=dict)
    shape: str = "openai"
    rest: Row = field(default_factory=dict)
    """The columns that are no part of the conversation."""

    @property
    def arguments(self) -> Row:
        """The keyword arguments of `render`; what the row does not have is not among them."""
        given = {"messages": self.messages, "tools": self.tools, "documents": self.documents}
        return {**{key: value for key, value in given.items() if value is not None}, **self.options}


def mapping_of(row: Any, shape: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        message = f"a row of {shape} data is a mapping, not {type(row).__name__}: {short_repr(row)}"
        raise MessageError(message, hint=f"It looks so: {LOOKS[shape]}.")
    return row


def made(
    shape: str,
    row: Mapping[str, Any],
    used: Iterable[str],
    messages: list[Row],
    options: Row | None = None,
) -> Conversation:
    """The conversation, with the columns that may stand beside it in any shape."""
    found = {} if options is None else dict(options)
    for key in FLAGS:
        if row.get(key) is not None:
            if not isinstance(row[key], bool | str):
                raise MessageError(f"is true or false, not {short_repr(row[key])}", path=key)
            found[key] = row[key]
    for key in OPTION_TABLES:
        if row.get(key) is not None:
            found.update(option_table(row[key], key))
    known = BESIDE.union(used, (key for key in COLUMNS if row.get(key) is None))
    rest = {key: value for key, value in row.items() if key not in known}
    tools = _tools(row.get("tools"), wrap=shape in ("sharegpt", "alpaca"))
    return Conversation(
        messages, tools, InputReader().read_documents(row.get("documents")), found, shape, rest
    )


def option_table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise MessageError(f"{short_repr(value)} is not a table of options", path=where)
    if wrong := sorted(RESERVED & value.keys()):
        raise MessageError(f"it has {', '.join(wrong)}, which are not options", path=where)
    return value


def _tools(value: Any, wrap: bool) -> list[Any] | None:
    """A list, or its JSON text (tables of columns have no other way); LLaMA-Factory's tools get OpenAI's wrapping."""
    if isinstance(value, str):
        value = parsed(value, "tools", "a JSON list of tools") if value.strip() else None
    tools = InputReader().read_tools(value)
    if tools is None or not wrap:
        return tools
    bare = [
        isinstance(tool.get("name"), str) and not tool.keys() & {"type", "function"}
        for tool in tools
    ]
    return [
        {"type": "function", "function": tool} if alone else tool
        for tool, alone in zip(tools, bare, strict=True)
    ]


def parsed(text: str, path: str, accepted: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageError(
            f"is not JSON ({error}): {short_repr(text)}", path=path, hint=f"Accepted: {accepted}."
        ) from None


def beside(conversation: Conversation) -> Row:
    """The columns beside the turns, as every shape that is a mapping writes them."""
    row = dict(conversation.rest)
    given = {"tools": conversation.tools, "documents": conversation.documents}
    row.update({key: value for key, value in given.items() if value is not None})
    row.update({key: conversation.options[key] for key in FLAGS if key in conversation.options})
    if table := {key: value for key, value in conversation.options.items() if key not in FLAGS}:
        row["chat_template_kwargs"] = table
    return row


def turns_of(row: Any, shape: str, what: str) -> tuple[str, Sequence[Any]]:
    """The column that holds the turns, and the turns."""
    row = mapping_of(row, shape)
    column = next((name for name in COLUMNS if row.get(name) is not None), None)
    if column is None:
        raise MessageError(
            f"a row of {what} has no turns", hint=did_you_mean("conversations", row, "It has")
        )
    turns = row[column]
    if not is_list(turns):
        raise MessageError(
            f"{what} is a list of turns, not {type(turns).__name__}: {short_repr(turns)}",
            path=column,
        )
    if not turns and shape != "openai":
        raise MessageError(
            f"{what} has no turns here", path=column, hint=f"It looks so: {LOOKS[shape]}."
        )
    return column, turns


def kind_of(row: Any) -> str | None:
    """Whose turns a row's column holds, by the first of them."""
    column = (
        next((name for name in COLUMNS if row.get(name) is not None), None)
        if isinstance(row, Mapping)
        else None
    )
    if column is None:
        return None
    turns = row[column]
    first = turns[0] if is_list(turns) and turns else None
    if is_list(first):
        return "fastchat"
    if isinstance(first, Mapping):
        for key, kind in (
            ("role", "openai"),
            ("from", "sharegpt"),
            ("input", "xtuner"),
            ("output", "xtuner"),
        ):
            if key in first:
                return kind
    return COLUMNS[column]


def text_of(turn: Mapping[str, Any], key: str, path: Path) -> str:
    """A text that must be there."""
    if key not in turn:
        hint = did_you_mean(key, turn, "It has") or "It is empty."
        raise MessageError(f"there is no {key!r}", path=spelt(path), hint=hint)
    return words(turn[key], (*path, key))


def maybe(turn: Mapping[str, Any], key: str, *path: str | int) -> str | None:
    """A text, or None where it is null or not there."""
    return None if turn.get(key) is None else words(turn[key], (*path, key))


def words(value: Any, path: Path) -> str:
    if not isinstance(value, str):
        raise MessageError(
            f"is text, not {type(value).__name__}: {short_repr(value)}", path=spelt(path)
        )
    return value


def is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def listed(names: Iterable[Any]) -> str:
    found = [str(name)[:40] for name in names]
    return ", ".join(found[:12]) + (", …" if len(found) > 12 else "")


def said(role: str, content: Any) -> Row:
    return {"role": role, "content": content}


# -- writing ----------------------------------------------------------------------------------------------------------


def system_first(messages: list[Row]) -> tuple[str, list[Row]]:
    """A system text that can stand in a column, and the messages without it."""
    if len(messages) < 2 or messages[1].get("role") == "system":
        return "", messages
    first, *others = messages
    content = first.get("content")
    fits = (
        first.keys() == {"role", "content"}
        and first["role"] == "system"
        and isinstance(content, str)
    )
    return (str(content), others) if fits and content else ("", messages)


def role_name(message: Row, index: int, shape: str, names: Mapping[str, str]) -> str:
    role = str(message.get("role"))
    if role not in names:
        hint = did_you_mean(role, names, "Roles that it has here")
        problem = f"{shape} data cannot say a message of {short_repr(role)}"
        raise MessageError(problem, path=f"messages[{index}].role", hint=hint)
    return names[role]


def plain_text(message: Row, index: int, shape: str) -> str:
    content = message.get("content")
    if not isinstance(content, str):
        problem = (
            f"{shape} data has a text here, not {type(content).__name__}: {short_repr(content)}"
        )
        raise MessageError(problem, path=f"messages[{index}].content")
    return content


def as_json(value: Any, *path: str | int) -> str:
    """JSON text of plain data. What is not plain becomes a placeholder first, which `write` will find."""
    return json.dumps(InputReader().to_plain(value, *path), ensure_ascii=False)

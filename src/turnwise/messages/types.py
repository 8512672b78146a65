"""Types of a conversation, for annotations in your own code.

    from turnwise import ChatMessage, Tool

    messages: list[ChatMessage] = [
        {"role": "user", "content": "Is it raining in Oslo?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call00001",
                    "type": "function",
                    "function": {"name": "weather", "arguments": {"city": "Oslo"}},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call00001", "content": "rain"},
    ]

They describe the common OpenAI format. Nothing is checked against them at run time: a template may
read more keys than these, and `render` passes on any JSON data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

Role = Literal["system", "developer", "user", "assistant", "tool"]
"""The usual roles.

Templates may know others (`observation`, `ipython`), so any text is accepted.
"""


class FunctionCall(TypedDict):
    """The function that a model calls, and its arguments as a mapping or as JSON text."""

    name: str
    arguments: Mapping[str, Any] | str


class ToolCall(TypedDict, total=False):
    """One entry of `tool_calls`: a function, or code for an interpreter, which has `code` and `lang` besides."""

    id: str
    type: Literal["function", "code_interpreter"]
    function: Required[FunctionCall]
    code: str
    lang: str | None
    verbatim: str


class ContentPart(TypedDict, total=False):
    """One part of a content that is a list: `{"type": "text", "text": "Hello!"}`."""

    type: Required[str]
    text: str
    thinking: str


class ChatMessage(TypedDict, total=False):
    """One message of a conversation.

    Reasoning of an assistant may be under `reasoning_content`, `thinking` or `reasoning`; templates
    see it under the names they read. `tool_call_id` and `name` belong to the result of a tool.
    """

    role: Required[Role | str]
    content: str | Sequence[ContentPart] | None
    reasoning_content: str | None
    thinking: str | None
    reasoning: str | None
    tool_calls: Sequence[ToolCall] | None
    tool_call_id: str
    name: str


class FunctionDefinition(TypedDict, total=False):
    """A function that the model may call; `parameters` is the JSON schema of its arguments."""

    name: Required[str]
    description: str
    parameters: Mapping[str, Any]


class Tool(TypedDict):
    """One entry of `tools`."""

    type: Literal["function"]
    function: FunctionDefinition

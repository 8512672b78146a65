"""Conversations: their types, the one reader of message fields, and the check at the entrance.

types.py        `ChatMessage`, `ToolCall`, `Tool` ... for people who annotate their own code
fields.py       `message_text`, `message_reasoning`, `message_tool_calls`: what a message contains
input_reader.py `InputReader`: checks a conversation once and makes it plain JSON data
tool_schemas.py `to_tool`: JSON schemas of functions and pydantic models
tools_cache.py  `prepared_tools`: plain copies of tool lists that were seen before
inspection.py   size, substrings and lone surrogates of an input
"""

from turnwise.messages.fields import (
    REASONING_KEYS,
    CallFields,
    message_reasoning,
    message_text,
    message_tool_calls,
)
from turnwise.messages.input_reader import (
    InputReader,
    InvalidValue,
    PlainKind,
    ReadMessages,
    find_plain_kind,
    has_no_reasoning,
)
from turnwise.messages.inspection import (
    contains_text,
    find_lone_surrogate,
    iterate_texts,
    measure_input,
)
from turnwise.messages.paths import Path, format_path
from turnwise.messages.tools_cache import NO_TOOLS, PreparedTools, prepared_tools
from turnwise.messages.types import (
    AssistantMessage,
    Change,
    Delta,
    DeltaCall,
    JsonMapping,
    JsonObject,
    Messages,
    Reply,
    Tools,
)

__all__ = [
    "NO_TOOLS",
    "REASONING_KEYS",
    "AssistantMessage",
    "CallFields",
    "Change",
    "Delta",
    "DeltaCall",
    "InputReader",
    "InvalidValue",
    "JsonMapping",
    "JsonObject",
    "Messages",
    "Path",
    "PlainKind",
    "PreparedTools",
    "ReadMessages",
    "Reply",
    "Tools",
    "contains_text",
    "find_lone_surrogate",
    "find_plain_kind",
    "format_path",
    "has_no_reasoning",
    "iterate_texts",
    "measure_input",
    "message_reasoning",
    "message_text",
    "message_tool_calls",
    "prepared_tools",
]

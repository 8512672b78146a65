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

They describe the common OpenAI format, for type checkers: mypy and pyright find a misspelt role or key. Nothing is
checked against them at run time: a template may read more keys and other roles than these, and `render` passes on any
JSON data; such a conversation is a list of mappings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    TypedDict,
    overload,
)

JsonObject = dict[str, Any]
"""A JSON object."""
JsonMapping = Mapping[str, Any]
"""A JSON object that is only read."""
Role = Literal["system", "developer", "user", "assistant", "tool"]
"""The usual roles.

Templates may know others (`observation`, `ipython`), so any text is accepted.
"""


class FunctionCall(TypedDict):
    """The function that a model calls, and its arguments as a mapping or as JSON text.

    Example:
        >>> called: turnwise.FunctionCall = {"name": "tide", "arguments": {"port": "Oban"}}
        >>> called["name"]
        'tide'
    """

    name: str
    arguments: Mapping[str, object] | str


class ToolCall(TypedDict, total=False):
    """One entry of `tool_calls`: a function, or code for an interpreter, which has `code` and `lang` besides.

    Example:
        >>> call: turnwise.ToolCall = {"id": "call00000", "function": {"name": "tide", "arguments": "{}"}}
        >>> "tide" in str(turnwise.load("qwen3").render([{"role": "assistant", "tool_calls": [call]}]))
        True
    """

    id: str
    type: Literal["function", "code_interpreter"]
    function: Required[FunctionCall]
    code: str
    lang: str | None
    verbatim: str


class ReplyFunction(TypedDict):
    """The function that a parsed reply calls: `arguments` is JSON text, as in OpenAI's API."""

    name: str
    arguments: str


class ReplyToolCall(TypedDict):
    """One entry of the `tool_calls` of a parsed reply; code for an interpreter has `code` and `lang` besides.

    Example:
        >>> reply = '<tool_call>\\n{"name": "tide", "arguments": {"port": "Oban"}}\\n</tool_call>'
        >>> turnwise.load("qwen3").parse(reply)["tool_calls"][0]["function"]["arguments"]
        '{"port": "Oban"}'
    """

    id: str
    type: Literal["function"]
    function: ReplyFunction
    code: NotRequired[str]
    lang: NotRequired[str | None]
    verbatim: NotRequired[str]


class ContentPart(TypedDict, total=False):
    """One part of a content that is a list: `{"type": "text", "text": "Hello!"}`; media have the key of their type.

    Example:
        >>> part: turnwise.ContentPart = {"type": "image_url", "image_url": {"url": "cat.png"}}
        >>> turnwise.load("qwen2.5-vl").render([{"role": "user", "content": [part]}]).media[0].kind
        'image'
    """

    type: Required[str]
    text: str
    thinking: str
    image: object
    image_url: str | Mapping[str, str]
    video: object
    video_url: str | Mapping[str, str]
    audio: object
    audio_url: str | Mapping[str, str]
    input_audio: Mapping[str, str]
    file: Mapping[str, str]


Content = str | Sequence[ContentPart]


class SystemMessage(TypedDict):
    """Instructions of whoever built the application.

    Example:
        >>> rules: turnwise.SystemMessage = {"role": "system", "content": "Be brief."}
        >>> str(turnwise.load("chatml").render([rules]))
        '<|im_start|>system\\nBe brief.<|im_end|>\\n'
    """

    role: Literal["system", "developer"]
    content: Content
    name: NotRequired[str]


class UserMessage(TypedDict):
    """What a user wrote.

    Example:
        >>> question: turnwise.UserMessage = {"role": "user", "content": "When?"}
        >>> str(turnwise.load("chatml").render([question]))
        '<|im_start|>user\\nWhen?<|im_end|>\\n'
    """

    role: Literal["user"]
    content: Content
    name: NotRequired[str]


class AssistantMessage(TypedDict, total=False):
    """What the model wrote. Its reasoning may be under one of three keys; templates see it under those they read.

    Example:
        >>> reply: turnwise.AssistantMessage = {"role": "assistant", "content": "Aye.", "weight": 0.5}
        >>> str(turnwise.load("chatml").render([reply]))
        '<|im_start|>assistant\\nAye.<|im_end|>\\n'
    """

    role: Required[Literal["assistant"]]
    content: Content | None
    reasoning_content: str | None
    thinking: str | None
    reasoning: str | None
    tool_calls: Sequence[ToolCall] | Sequence[ReplyToolCall] | None
    name: str
    weight: float  # in training; 0 leaves the message out


class ToolMessage(TypedDict):
    """The result of a tool: `tool_call_id` is the `id` of the call, `name` the tool.

    Example:
        >>> result: turnwise.ToolMessage = {"role": "tool", "tool_call_id": "call00000", "content": "12:04"}
        >>> result["content"]
        '12:04'
    """

    role: Literal["tool"]
    content: Content
    tool_call_id: NotRequired[str]
    name: NotRequired[str]


class Reply(dict[str, object]):
    """The keys of a message that `parse` returned: a dict whose values have types."""

    if TYPE_CHECKING:
        # fmt: off
        @overload
        def __getitem__(self, key: Literal["content"], /) -> str | None: ...
        @overload
        def __getitem__(self, key: Literal["role"], /) -> Literal["assistant"]: ...
        @overload
        def __getitem__(self, key: Literal["reasoning_content"], /) -> str: ...
        @overload
        def __getitem__(self, key: Literal["tool_calls"], /) -> list[ReplyToolCall]: ...
        @overload
        def __getitem__(self, key: str, /) -> object: ...
        def __getitem__(self, key: str, /) -> object: ...

        @overload  # type: ignore[override]  # that of dict is generic
        def get(self, key: Literal["content", "reasoning_content"], default: None = None, /) -> str | None: ...
        @overload
        def get(self, key: Literal["content", "reasoning_content"], default: str, /) -> str | None: ...
        @overload
        def get(self, key: Literal["tool_calls"], default: None = None, /) -> list[ReplyToolCall] | None: ...
        @overload
        def get(self, key: Literal["tool_calls"], default: Sequence[ReplyToolCall], /) -> Sequence[ReplyToolCall]: ...
        @overload
        def get(self, key: str, default: object = None, /) -> object: ...
        def get(self, key: str, default: object = None, /) -> object: ...
        # fmt: on


ChatMessage = SystemMessage | UserMessage | AssistantMessage | ToolMessage | Reply
"""One message of a conversation: by its role, or as `parse` returned it."""


class DeltaCall(TypedDict, total=False):
    """What is new of a call; `index` is its number."""

    index: Required[int | None]
    id: str
    type: Literal["function"]
    function: Mapping[str, str | None]


class Delta(TypedDict, total=False):
    """What is new of a message, as in the chunks of OpenAI's stream."""

    role: Literal["assistant"]
    content: str
    reasoning_content: str
    tool_calls: list[DeltaCall]


class FunctionDefinition(TypedDict, total=False):
    """A function that the model may call; `parameters` is the JSON schema of its arguments.

    Example:
        >>> tide: turnwise.FunctionDefinition = {"name": "tide", "parameters": {"type": "object"}}
        >>> tide["name"]
        'tide'
    """

    name: Required[str]
    description: str
    parameters: Mapping[str, object]
    strict: bool


class Tool(TypedDict):
    """One entry of `tools`.

    Example:
        >>> tide: turnwise.Tool = {"type": "function", "function": {"name": "tide", "parameters": {}}}
        >>> "tide" in str(turnwise.load("qwen3").render([{"role": "user", "content": "Hi"}], [tide]))
        True
    """

    type: Literal["function"]
    function: FunctionDefinition


Messages = Sequence[ChatMessage] | Sequence[Mapping[str, Any]]
Tools = Sequence[Tool] | Sequence[Mapping[str, Any] | Callable[..., Any]]


class Change(NamedTuple):
    """One change that was made to a conversation before it was rendered.

    Attributes:
        path: what was changed, such as `messages[2].content`.
        what: what was done.
        why: what the template does with the form that was given.

    Example:
        >>> rendering = turnwise.load("qwen3").render([{"role": "developer", "content": "Be brief."}])
        >>> rendering.changes[0].path
        'messages[0]'
    """

    path: str
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what} ({self.why})"

"""Requests of Anthropic's Messages and OpenAI's Responses as chats: what `/v1/messages` and `/v1/responses` read.

The conversation and its tools are read by `turnwise.shapes`; the other fields become those of Chat Completions here, so
that one path makes prompts, grammars and replies for all three. A field that asks for what this server does not do is
refused, whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any

from turnwise.errors import short_repr, warn_caller
from turnwise.messages import JsonMapping, JsonObject
from turnwise.serve.bodies import (
    Body,
    Bounds,
    RequestBody,
    RequestError,
    read_fields,
    refuse_fields,
)
from turnwise.serve.operations import error_body, explain_failure
from turnwise.serve.request_types import Flag, Limit, ListedObjects, Messages, Object, Share, Text
from turnwise.shapes import anthropic, responses
from turnwise.shapes.row import ParsedRow
from turnwise.shapes.tool_forms import is_custom, make_function

MESSAGES_PATH, RESPONSES_PATH = "/v1/messages", "/v1/responses"


class CountBody(RequestBody):
    """A conversation of Anthropic's Messages, whose tokens are counted."""

    model: Text = None
    messages: Messages
    system: str | list[JsonObject] | None = None
    tools: ListedObjects = None
    tool_choice: Object = None
    thinking: Object = None
    output_config: Object = None
    chat_template_kwargs: JsonObject = field(default_factory=dict)


class MessagesBody(CountBody):
    """A request of Anthropic's Messages."""

    max_tokens: Annotated[int, Bounds(1)]
    temperature: Share = None
    top_p: Share = None
    top_k: Annotated[int | None, Bounds(0)] = None
    stop_sequences: list[str] | None = None
    stream: bool = False
    metadata: Object = None
    service_tier: Text = None
    thread: Object = None


class ResponsesBody(RequestBody):
    """A request of OpenAI's Responses."""

    model: Text = None
    input: str | list[JsonObject]
    instructions: str | list[JsonObject] | None = None
    tools: ListedObjects = None
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    max_output_tokens: Limit = None
    temperature: Annotated[float | None, Bounds(0, 2)] = None
    top_p: Share = None
    stream: bool = False
    text: Object = None
    reasoning: Object = None
    store: Flag = None
    include: list[str] | None = None
    truncation: Text = None
    stream_options: Object = None
    chat_template_kwargs: JsonObject = field(default_factory=dict)


NOT_DONE: dict[type[RequestBody], dict[str, str]] = {
    CountBody: {
        "mcp_servers": "this server calls no other servers",
        "container": "this server runs no code",
    },
    ResponsesBody: {
        "previous_response_id": "nothing is stored: send the whole conversation in `input`",
        "conversation": "nothing is stored: send the whole conversation in `input`",
        "background": "a reply is sampled while the client waits",
        "prompt": "there are no stored prompts",
        "max_tool_calls": "this server runs no tools",
        "top_logprobs": "log-probabilities are those of /v1/chat/completions",
    },
}


class UnsupportedThread(RequestError):
    """A request to keep the conversation on the server; the SDK of Anthropic then sends the whole of it each time."""


def read_messages_request(body: CountBody) -> JsonObject:
    """Return the chat that a request of Anthropic's Messages is.

    Raises:
        MessageError: a block cannot be kept, or a field asks for what this server does not do.
    """
    refuse_fields(body, NOT_DONE[CountBody])
    if getattr(body, "thread", None) is not None:
        raise UnsupportedThread("nothing is stored: send the whole conversation", path="thread")
    chat = _begin_chat(anthropic.read, body)
    same = ("max_tokens", "temperature", "top_p", "top_k", "stream")
    chat |= {name: getattr(body, name, None) for name in same}
    chat["stop"] = getattr(body, "stop_sequences", None)
    messages = chat["messages"]
    if messages and messages[-1].get("role") == "assistant":
        chat["continue_final_message"] = True  # the reply goes on where it ends
    _read_tool_choice(chat, body.tool_choice or {})
    output = body.output_config or {}
    _read_thinking(chat, body.thinking or {}, output.get("effort"))
    _read_format(chat, output.get("format"), "output_config.format")
    return chat


def _begin_chat(read: Callable[[Any], ParsedRow], body: Any) -> JsonObject:
    row = read(body.given)
    for note in row.notes:
        warn_caller(note)
    chat = {"model": body.model, "messages": row.messages, "tools": row.tools}
    return chat | {"chat_template_kwargs": dict(body.chat_template_kwargs)}


ANTHROPIC_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
THINKING = (None, "enabled", "disabled", "adaptive")


def _read_tool_choice(chat: JsonObject, choice: JsonMapping) -> None:
    if not choice:
        return
    kind = choice.get("type")
    if kind == "tool":
        chat["tool_choice"] = {"name": choice.get("name")}
    elif isinstance(kind, str) and kind in ANTHROPIC_CHOICES:
        chat["tool_choice"] = ANTHROPIC_CHOICES[kind]
    else:
        raise RequestError(f"{short_repr(kind)} is not accepted", path="tool_choice.type")
    chat["parallel_tool_calls"] = not choice.get("disable_parallel_tool_use")


def _read_thinking(chat: JsonObject, thinking: JsonMapping, effort: Any) -> None:
    """Ask for reasoning, as far as the template has options for it, and pass its budget on."""
    kind = thinking.get("type")
    if kind not in THINKING:
        raise RequestError(f"{short_repr(kind)} is not accepted", path="thinking.type")
    if kind == "disabled":
        effort = "none"
    elif kind is not None and not effort:
        chat["chat_template_kwargs"].setdefault("reasoning", True)
    chat["reasoning_effort"] = effort
    chat["thinking_token_budget"] = thinking.get("budget_tokens")


def _read_format(chat: JsonObject, given: Any, path: str) -> None:
    """Read what the content must look like; the schema is beside the type, not under `json_schema`."""
    if given is None:
        return
    kind = given.get("type") if isinstance(given, Mapping) else given
    if kind == "json_schema":
        schema = given.get("schema")
        chat["response_format"] = {"type": kind, "json_schema": {"schema": schema}}
    elif kind in ("text", "json_object"):
        chat["response_format"] = {"type": kind}
    else:
        raise RequestError(f"{short_repr(kind)} is not accepted", path=path)


def read_responses_request(body: ResponsesBody) -> JsonObject:
    """Return the chat that a request of Responses is.

    Raises:
        MessageError: an item cannot be kept, or a field asks for what this server does not do.
    """
    refuse_fields(body, NOT_DONE[ResponsesBody])
    if body.truncation not in (None, "disabled"):
        raise RequestError("a prompt is never cut: leave out messages instead", path="truncation")
    chat = _begin_chat(responses.read, body)
    same = ("temperature", "top_p", "stream", "parallel_tool_calls", "tool_choice")
    chat |= {name: getattr(body, name) for name in same}
    chat["max_completion_tokens"] = body.max_output_tokens
    chat["reasoning_effort"] = (body.reasoning or {}).get("effort")
    chat["tools"] = [
        make_function(tool) if is_custom(tool) else tool for tool in chat["tools"] or ()
    ]
    for index, tool in enumerate(body.tools or ()):
        if is_custom(tool) and (tool.get("format") or {}).get("type", "text") != "text":
            warn_caller(f"tools[{index}].format is in the prompt, and not enforced")
    _read_format(chat, (body.text or {}).get("format"), "text.format")
    return chat


# -- errors

ANTHROPIC_ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
OWN_STATUS = (401, 403, 404, 413, 429)  # others below 500 are 400 at both APIs


def write_api_error(path: str, error: Exception, request_id: str) -> tuple[JsonObject, int]:
    """Return an error in the shape of the API that a path belongs to, and its status."""
    shown, status = explain_failure(error)
    if not path.startswith((MESSAGES_PATH, RESPONSES_PATH)):
        return error_body(shown, status, request_id), status
    status = status if status in OWN_STATUS or status >= 500 else 400
    found = error_body(shown, status, request_id)
    if path.startswith(RESPONSES_PATH):
        found["error"]["code"] = "invalid_value" if status == 400 else None
        return found, status
    usual = "api_error" if status >= 500 else "invalid_request_error"
    kind = ANTHROPIC_ERRORS.get(status, usual)
    own: JsonObject = {"type": kind, "message": found["error"]["message"]}
    if isinstance(error, UnsupportedThread):
        own["details"] = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    status = 529 if status == 503 else status
    return {"type": "error", "error": own, "request_id": request_id}, status


def read_api_request(body: CountBody | ResponsesBody, kind: type[Body], settings: Any) -> Body:
    """Return a request of another API as a chat.

    Raises:
        MessageError: a part cannot be kept, or a field asks for what this server does not do.
    """
    chat = (
        read_responses_request(body)
        if isinstance(body, ResponsesBody)
        else read_messages_request(body)
    )
    return read_fields(kind, chat, settings)

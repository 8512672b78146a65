"""Requests of Anthropic's Messages and OpenAI's Responses as chats: what `/v1/messages` and `/v1/responses` read.

The conversation and its tools are read by `turnwise.shapes`; the other fields become those of Chat Completions here, so
that one path makes prompts, grammars and replies for all three. A field that asks for what this server does not do is
refused, whatever it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated, Any, ClassVar, NamedTuple

from turnwise.errors import TurnwiseError, short_repr, warn_caller
from turnwise.serve.bodies import Bounds, RequestBody, RequestError, refuse_fields
from turnwise.serve.models import ServedModel
from turnwise.serve.operations import error_body
from turnwise.serve.request_types import Flag, Limit, ListedObjects, Messages, Object, Share, Text
from turnwise.shapes import anthropic, responses
from turnwise.shapes.row import ParsedRow

ErrorWriter = Callable[[TurnwiseError | str, int, str], tuple[dict[str, Any], int]]

MESSAGES_PATH, RESPONSES_PATH = "/v1/messages", "/v1/responses"
THINKING_OPTIONS = ("enable_thinking", "thinking")  # of templates that can be told to think or not


class CountBody(RequestBody):
    """A conversation of Anthropic's Messages, whose tokens are counted."""

    model: Text = None
    messages: Messages
    system: str | list[dict[str, Any]] | None = None
    tools: ListedObjects = None
    tool_choice: Object = None
    thinking: Object = None
    output_config: Object = None
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)


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
    input: str | list[dict[str, Any]]
    instructions: str | list[dict[str, Any]] | None = None
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
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)


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

    details: ClassVar[dict[str, Any]] = {
        "error_code": "thread_unsupported_request",
        "unsupported": ["thread"],
    }


def read_messages_request(body: CountBody, model: ServedModel) -> dict[str, Any]:
    """Return the chat that a request of Anthropic's Messages is.

    Raises:
        MessageError: a block cannot be kept, or a field asks for what this server does not do.
    """
    refuse_fields(body, NOT_DONE[CountBody])
    if getattr(body, "thread", None) is not None:
        raise UnsupportedThread("nothing is stored: send the whole conversation", path="thread")
    row = _read_row(anthropic.read, body)
    chat = _begin_chat(row, body)
    for name, ours in (
        ("max_tokens", "max_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("top_k", "top_k"),
        ("stop_sequences", "stop"),
        ("stream", "stream"),
    ):
        chat[ours] = getattr(body, name, None)
    if row.messages and row.messages[-1].get("role") == "assistant":
        chat["continue_final_message"] = True  # the reply goes on where it ends
    _read_tool_choice(chat, body.tool_choice or {})
    _read_thinking(chat, body.thinking or {}, model)
    output = body.output_config or {}
    chat["reasoning_effort"] = output.get("effort")
    _read_format(chat, output.get("format"), "output_config.format")
    return chat


def _read_row(read: Callable[[Any], ParsedRow], body: RequestBody) -> ParsedRow:
    row = read(body.given)
    for note in row.notes:
        warn_caller(note)
    return row


def _begin_chat(row: ParsedRow, body: Any) -> dict[str, Any]:
    chat = {"model": body.model, "messages": row.messages, "tools": row.tools}
    return chat | {"chat_template_kwargs": dict(body.chat_template_kwargs)}


ANTHROPIC_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def _read_tool_choice(chat: dict[str, Any], choice: Mapping[str, Any]) -> None:
    if not choice:
        return
    kind = choice.get("type")
    if kind == "tool":
        chat["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif isinstance(kind, str) and kind in ANTHROPIC_CHOICES:
        chat["tool_choice"] = ANTHROPIC_CHOICES[kind]
    else:
        raise RequestError(f"{short_repr(kind)} is not accepted", path="tool_choice.type")
    chat["parallel_tool_calls"] = not choice.get("disable_parallel_tool_use")


def _read_thinking(chat: dict[str, Any], thinking: Mapping[str, Any], model: ServedModel) -> None:
    """Turn reasoning on or off where the template can, and pass its budget on."""
    kind = thinking.get("type")
    if kind not in (None, "enabled", "disabled", "adaptive"):
        raise RequestError(f"{short_repr(kind)} is not accepted", path="thinking.type")
    options = chat["chat_template_kwargs"]
    for name in THINKING_OPTIONS:
        if kind is not None and name in model.template.variables:
            options.setdefault(name, kind != "disabled")
    chat["thinking_token_budget"] = thinking.get("budget_tokens")


def _read_format(chat: dict[str, Any], given: Any, path: str) -> None:
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


def read_responses_request(body: ResponsesBody, model: ServedModel) -> dict[str, Any]:
    """Return the chat that a request of Responses is.

    Raises:
        MessageError: an item cannot be kept, or a field asks for what this server does not do.
    """
    refuse_fields(body, NOT_DONE[ResponsesBody])
    if body.truncation not in (None, "disabled"):
        raise RequestError("a prompt is never cut: leave out messages instead", path="truncation")
    chat = _begin_chat(_read_row(responses.read, body), body)
    chat |= {
        "max_completion_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "stream": body.stream,
        "parallel_tool_calls": body.parallel_tool_calls,
        "tool_choice": body.tool_choice,
        "reasoning_effort": (body.reasoning or {}).get("effort"),
    }
    choice = body.tool_choice
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        chat["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
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


def _api_status(status: int) -> int:
    return status if status in OWN_STATUS or status >= 500 else 400


def write_chat_error(
    error: TurnwiseError | str, status: int, request_id: str
) -> tuple[dict[str, Any], int]:
    """Return the error of a path that is no other API's, and its status."""
    return error_body(error, status, request_id), status


def write_messages_error(
    error: TurnwiseError | str, status: int, request_id: str
) -> tuple[dict[str, Any], int]:
    """Return an error in the shape of Anthropic's API, and its status."""
    status = 529 if status == 503 else _api_status(status)
    kind = "overloaded_error" if status == 529 else ANTHROPIC_ERRORS.get(status)
    if kind is None:
        kind = "api_error" if status >= 500 else "invalid_request_error"
    message = error_body(error, status)["error"]["message"]
    found = {"type": kind, "message": message}
    if isinstance(error, UnsupportedThread):
        found["details"] = error.details
    return {"type": "error", "error": found, "request_id": request_id}, status


def write_responses_error(
    error: TurnwiseError | str, status: int, request_id: str
) -> tuple[dict[str, Any], int]:
    """Return an error in the shape of OpenAI's Responses, and its status."""
    status = _api_status(status)
    found = error_body(error, status, request_id)
    found["error"]["code"] = "invalid_value" if status == 400 else None
    return found, status


class RequestReader(NamedTuple):
    """How one API is read, and how it is refused."""

    body: type[RequestBody]
    read: Callable[[Any, ServedModel], dict[str, Any]]
    write_error: ErrorWriter


MESSAGES = RequestReader(MessagesBody, read_messages_request, write_messages_error)
COUNT = RequestReader(CountBody, read_messages_request, write_messages_error)
RESPONSES = RequestReader(ResponsesBody, read_responses_request, write_responses_error)

"""The description of the service for programs: OpenAPI 3.1, written from the dataclasses of the bodies."""

from __future__ import annotations

from collections.abc import Collection

from turnwise.messages import JsonObject
from turnwise.serve.api_requests import CountBody, MessagesBody, ResponsesBody
from turnwise.serve.bodies import FieldType, RequestBody
from turnwise.serve.request_types import (
    CompletionBody,
    DerenderBody,
    DetokenizeBody,
    GatewayBody,
    PlainGatewayBody,
    RenderBody,
    TokenizeBody,
)

JSON_KINDS = {
    str: "string",
    float: "number",
    int: "integer",
    bool: "boolean",
    list: "array",
    dict: "object",
}
# What each path is for, and the body that it reads.
PATHS: dict[str, tuple[str, type[RequestBody] | None]] = {
    "/v1/chat/completions/render": (
        "A chat as token ids: a GenerateRequest, with the length of the prefix that an earlier request had.",
        RenderBody,
    ),
    "/v1/chat/completions/derender": (
        "Token ids of a reply as a message; with `stream`, one chunk and the state for the next call.",
        DerenderBody,
    ),
    "/v1/completions/render": (
        "Plain prompts as token ids: a list of GenerateRequests.",
        CompletionBody,
    ),
    "/v1/chat/completions": (
        "A chat with a reply of the upstream, whole or as a stream of events.",
        GatewayBody,
    ),
    "/v1/completions": ("A plain prompt with a reply of the upstream.", PlainGatewayBody),
    "/v1/messages": ("Anthropic's Messages with a reply of the upstream.", MessagesBody),
    "/v1/messages/count_tokens": ("How many tokens a conversation has.", CountBody),
    "/v1/messages/render": ("A request of Anthropic's Messages as token ids.", MessagesBody),
    "/v1/responses": (
        "OpenAI's Responses with a reply of the upstream; nothing is stored.",
        ResponsesBody,
    ),
    "/v1/trajectories/{id}": ("What was sampled in a session, with masks for training.", None),
    "/v1/responses/render": ("A request of OpenAI's Responses as token ids.", ResponsesBody),
    "/tokenizer_info": ("The special tokens and the chat template of the first model.", None),
    "/tokenize": ("The ids of a prompt or of a chat.", TokenizeBody),
    "/detokenize": ("The text of ids.", DetokenizeBody),
    "/apply-template": ("A chat as the text of its prompt.", RenderBody),
    "/v1/models": ("The models that are served.", None),
    "/healthz": ("The process is alive.", None),
    "/readyz": ("The models are loaded.", None),
    "/metrics": ("Counters in Prometheus' text format.", None),
}
TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": TEXT, "type": TEXT, "param": TEXT, "code": WHOLE},
        }
    },
}
REFUSALS = {
    "404": "The model is not served here.",
    "413": "The body is too large.",
    "422": "A field is malformed, or the template refuses the chat.",
    "429": "Too many requests are waiting.",
}


def describe_service(version: str, hidden: Collection[str]) -> JsonObject:
    """Return the description of a server; it does not have paths that are hidden."""
    paths: JsonObject = {}
    for path, (summary, body) in PATHS.items():
        if path in hidden:
            continue
        operation: JsonObject = {
            "summary": summary,
            "operationId": path.strip("/").replace("/", "_").replace("-", "_"),
            "responses": {"200": {"description": "The answer."}},
        }
        if body is not None:
            operation["requestBody"] = {"required": True, **_as_json(describe_body(body))}
            operation["responses"] |= {
                status: {"description": reason, **_as_json(ERROR)}
                for status, reason in REFUSALS.items()
            }
        paths[path] = {"get" if body is None else "post": operation}
    info = {"title": "turnwise", "version": version, "summary": "Chat templates over HTTP."}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def _as_json(schema: JsonObject) -> JsonObject:
    return {"content": {"application/json": {"schema": schema}}}


def describe_body(body: type[RequestBody]) -> JsonObject:
    """Return the JSON schema of a dataclass of a body."""
    properties = {name: _describe_field(kind) for name, kind in body.types.items()}
    return {"type": "object", "properties": properties, "required": body.required}


def _describe_field(field: FieldType | None) -> JsonObject:
    if field is None:
        return {}
    if field.body is not None:
        return describe_body(field.body)
    kinds = [JSON_KINDS[kind] for kind in field.kinds]
    schema: JsonObject = {"type": kinds[0] if len(kinds) == 1 else kinds}
    if field.choices:
        schema["enum"] = list(field.choices)
    if list in field.kinds:
        schema["items"] = _describe_field(field.item)
    elif field.bounds.least is not None:
        schema["minimum"] = field.bounds.least
    # A bound of the server's settings is not a part of the interface.
    if isinstance(field.bounds.most, int):
        schema["maxItems" if list in field.kinds else "maximum"] = field.bounds.most
    return schema

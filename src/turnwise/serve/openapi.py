"""The description of the service for programs: OpenAPI 3.1, written from one table of paths."""

from __future__ import annotations

from typing import Any

TEXT, NUMBER, WHOLE, FLAG, LIST, OBJECT = (
    {"type": kind} for kind in ("string", "number", "integer", "boolean", "array", "object")
)
IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
MESSAGES = {"type": "array", "items": {"type": "object"}, "minItems": 1}
CHAT: dict[str, Any] = {
    "model": TEXT,
    "messages": MESSAGES,
    "tools": LIST,
    "documents": LIST,
    "add_generation_prompt": FLAG,
    "continue_final_message": FLAG,
    "chat_template": TEXT,
    "chat_template_kwargs": OBJECT,
    "reasoning_effort": TEXT,
    "cache_salt": TEXT,
}
RETURNS: dict[str, Any] = {
    "return_token_offsets": FLAG,
    "return_assistant_tokens_mask": FLAG,
    "return_origins": FLAG,
    "return_prompt_text": FLAG,
}
SAMPLING: dict[str, Any] = {
    "tool_choice": {},
    "parallel_tool_calls": FLAG,
    "response_format": OBJECT,
    "n": WHOLE,
    "stop": {},
    "stop_token_ids": IDS,
    "max_tokens": WHOLE,
    "max_completion_tokens": WHOLE,
    "temperature": NUMBER,
    "top_p": NUMBER,
    "seed": WHOLE,
    "stream": FLAG,
    "stream_options": OBJECT,
}
STREAM_STATE = {
    "type": "object",
    "properties": {"output_token_ids": IDS, "output_chunk_lens": IDS, "role_sent": FLAG},
}
# Path to method, summary, fields of the body, required fields.
PATHS: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    "/v1/chat/completions/render": (
        "post",
        "A chat as token ids: a GenerateRequest, with the length of the prefix that an earlier request had.",
        {**CHAT, **RETURNS, **SAMPLING},
        ("messages",),
    ),
    "/v1/chat/completions/derender": (
        "post",
        "Token ids of a reply as a message; with `stream`, one chunk and the state for the next call.",
        {
            "model": TEXT,
            "stream": FLAG,
            "generate_response": OBJECT,
            "generate_chunk": OBJECT,
            "stream_state": STREAM_STATE,
            "prompt_tokens": WHOLE,
            "prompt_token_ids": IDS,
            "chat_request": OBJECT,
        },
        (),
    ),
    "/v1/completions/render": (
        "post",
        "Plain prompts as token ids: a list of GenerateRequests.",
        {"model": TEXT, "prompt": {}, "add_special_tokens": FLAG, **SAMPLING},
        ("prompt",),
    ),
    "/v1/chat/completions": (
        "post",
        "A chat with a reply of the upstream, whole or as a stream of events.",
        {**CHAT, **SAMPLING},
        ("messages",),
    ),
    "/tokenize": (
        "post",
        "The ids of a prompt or of a chat.",
        {**CHAT, **RETURNS, "prompt": TEXT, "add_special_tokens": FLAG, "return_token_strs": FLAG},
        (),
    ),
    "/detokenize": ("post", "The text of ids.", {"model": TEXT, "tokens": IDS}, ("tokens",)),
    "/apply-template": ("post", "A chat as the text of its prompt.", CHAT, ("messages",)),
    "/v1/models": ("get", "The models that are served.", {}, ()),
    "/healthz": ("get", "The process is alive.", {}, ()),
    "/readyz": ("get", "The models are loaded.", {}, ()),
    "/metrics": ("get", "Counters in Prometheus' text format.", {}, ()),
}
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


def describe_service(version: str, has_gateway: bool) -> dict[str, Any]:
    """Return the description of a server."""
    paths: dict[str, Any] = {}
    for path, (method, summary, fields, required) in PATHS.items():
        if path == "/v1/chat/completions" and not has_gateway:
            continue
        operation: dict[str, Any] = {
            "summary": summary,
            "operationId": path.strip("/").replace("/", "_").replace("-", "_"),
            "responses": {"200": {"description": "The answer."}},
        }
        if method == "post":
            schema = {"type": "object", "properties": fields, "required": list(required)}
            operation["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": schema}},
            }
            for status, reason in REFUSALS.items():
                operation["responses"][status] = {
                    "description": reason,
                    "content": {"application/json": {"schema": ERROR}},
                }
        paths[path] = {method: operation}
    info = {"title": "turnwise", "version": version, "summary": "Chat templates over HTTP."}
    return {"openapi": "3.1.0", "info": info, "paths": paths}

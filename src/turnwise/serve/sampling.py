"""The sampling parameters of a chat request, as an engine takes them.

Only what the request says is passed on, so that the engine's own defaults hold. One thing is added: the stops of the
template become `stop_token_ids`, since an engine knows only those of its configuration. What a reply must look like
(`tool_choice`, `response_format`) is read here, and becomes a grammar in `upstreams.py`.
"""

from __future__ import annotations

import re
from typing import Any

from turnwise.errors import MessageError, TurnwiseError, short_repr
from turnwise.messages import JsonObject
from turnwise.replies.export.constraint_tree import ToolSignature
from turnwise.replies.export.schema_reader import read_signatures
from turnwise.serve.bodies import FieldType, RequestError
from turnwise.serve.models import ServedModel
from turnwise.serve.request_types import MAX_TOKEN_ID, ChatBody, PassedSampling, SamplingBody

PASSED = tuple(PassedSampling.types)
MAX_STOP_LENGTH = 1_000  # characters
MAX_BIAS = 1024
TOKEN_ID = re.compile("[0-9]{1,10}")
NONE, AUTO, REQUIRED = "none", "auto", "required"
NUMBER = FieldType((float,))
CHOICE = FieldType((str,), choices=(NONE, AUTO, REQUIRED))


def read_sampling(body: SamplingBody, model: ServedModel) -> JsonObject:
    """Return the sampling parameters that a request asks for, without its limit of tokens.

    Raises:
        RequestError: a field has a value that no engine accepts.
    """
    found = {name: value for name in PASSED if (value := getattr(body, name)) is not None}
    found["n"] = body.n
    listed = {
        "stop": read_stops(body),
        "allowed_token_ids": body.allowed_token_ids,
        "logprob_token_ids": body.logprob_token_ids,
        "bad_words": body.bad_words,
        "extra_args": body.vllm_xargs,
        "logit_bias": body.logit_bias,
    }
    found |= {name: items for name, items in listed.items() if items}
    found["stop_token_ids"] = list(dict.fromkeys([*(body.stop_token_ids or ()), *model.stops.ids]))
    _check_bias(body.logit_bias or {})
    if body.logprobs:
        found["logprobs"] = body.top_logprobs
    return found


def read_plain_sampling(body: SamplingBody, model: ServedModel, prompt_tokens: int) -> JsonObject:
    """Return the sampling parameters for a prompt that is no chat, which the template's stops do not end.

    Raises:
        RequestError: a field has a value that no engine accepts, or the prompt leaves no room.
    """
    found = read_sampling(body, model) | {"stop_token_ids": body.stop_token_ids or []}
    limit = read_limit(body, model, prompt_tokens)
    return found if limit is None else {**found, "max_tokens": limit}


def read_stops(body: SamplingBody) -> list[str]:
    """Return the texts of `stop`, which may be one text or a list."""
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    for stop in stops:
        if len(stop) > MAX_STOP_LENGTH:
            raise RequestError(
                f"a stop text has at most {MAX_STOP_LENGTH:,} characters, and this one has {len(stop):,}",
                path="stop",
            )
    return [stop for stop in stops if stop]


def _check_bias(bias: JsonObject) -> None:
    if len(bias) > MAX_BIAS:
        raise RequestError(f"there are more than {MAX_BIAS} values", path="logit_bias")
    for key, value in bias.items():
        if not TOKEN_ID.fullmatch(key) or int(key) > MAX_TOKEN_ID:
            raise RequestError(
                f"each key is a token id from 0 to {MAX_TOKEN_ID}, not {short_repr(key)}",
                path="logit_bias",
            )
        NUMBER.read(value, f"logit_bias.{key}")


def read_limit(body: SamplingBody, model: ServedModel, prompt_tokens: int) -> int | None:
    """Return the most tokens of a reply: what the request asks for, and not more than the model has room for.

    Raises:
        RequestError: the prompt leaves no room.
    """
    asked = body.max_completion_tokens or body.max_tokens  # which are at least 1
    if model.max_length is None:
        return asked
    room = model.max_length - prompt_tokens
    if room < 1:
        raise RequestError(
            f"a prompt of {prompt_tokens} tokens leaves no room in the {model.max_length} of the model",
            path="messages",
        )
    return room if asked is None else min(asked, room)


# -- tools


def read_choice(body: ChatBody, tools: list[Any] | None) -> str:
    """Return which calls a reply may have: "none", "auto", "required", or the name of the only tool.

    Raises:
        RequestError: `tool_choice` is none of these, or there is no such tool.
    """
    given = body.tool_choice
    if given is None:
        return AUTO if tools else NONE
    if isinstance(given, dict):
        kind = given.get("type", "function")
        if kind not in ("function", "custom"):
            raise RequestError(
                f"{short_repr(kind)} is not accepted",
                path="tool_choice.type",
                hint="name one function, or say none, auto or required",
            )
        function = given.get("function")
        name = function.get("name") if isinstance(function, dict) else given.get("name")
        if not isinstance(name, str) or name in (NONE, AUTO, REQUIRED):
            raise RequestError("the function needs a name", path="tool_choice")
        if name not in map(_name_of, tools or ()):
            raise RequestError(f"{short_repr(name)} is not one of the tools", path="tool_choice")
        return name
    choice: str = CHOICE.read(given, "tool_choice")
    if choice == REQUIRED and not tools:
        raise RequestError("a call is required, and there are no tools", path="tool_choice")
    return choice if tools else NONE


def _function_of(tool: JsonObject) -> JsonObject:
    function = tool.get("function", tool)
    return function if isinstance(function, dict) else {}


def _name_of(tool: JsonObject) -> str:
    return str(_function_of(tool).get("name"))


def is_forced(choice: str) -> bool:
    """Return whether a reply must have a call."""
    return choice not in (NONE, AUTO)


def read_checked_tools(tools: list[Any] | None, choice: str) -> dict[str, ToolSignature]:
    """Return the tools whose arguments must fit their schemas: all if a call is forced, else those that are strict.

    Raises:
        RequestError: a schema says something that no grammar can follow.
    """
    is_all = is_forced(choice)
    names = {
        _name_of(tool) for tool in tools or () if is_all or _function_of(tool).get("strict") is True
    }
    if choice == NONE or not names:
        return {}
    # A tool that is not checked keeps its place in the list, which errors name, and loses its schema.
    given = [tool if _name_of(tool) in names else {"name": _name_of(tool)} for tool in tools or ()]
    try:
        signatures = read_signatures(given)
    except MessageError as error:
        path = "tool_choice" if is_all else "tools"
        raise cannot_enforce(error, path) from None
    return {tool.name: tool for tool in signatures if tool.name in names}


def cannot_enforce(error: TurnwiseError, path: str) -> RequestError:
    """Return the error for a promise about a reply that no grammar can keep."""
    return RequestError(f"it cannot be enforced: {error.message}", path=path, hint=error.hint)


def read_response_schema(body: ChatBody) -> JsonObject | None:
    """Return the JSON schema that the content must fit; None if it is free.

    Raises:
        RequestError: `response_format` is none that is known.
    """
    given = body.response_format
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return {"type": "object"}
    if given.json_schema is None:
        raise RequestError("this field is missing", path="response_format.json_schema")
    return given.json_schema.schema

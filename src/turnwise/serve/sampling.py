"""The sampling parameters of a chat request, as an engine takes them.

Only what the request says is passed on, so that the engine's own defaults hold. One thing is added: the stops of the
template become `stop_token_ids`, since an engine knows only those of its configuration. What a reply must look like
(`tool_choice`, `response_format`) is read here, and becomes a grammar in `upstreams.py`.
"""

from __future__ import annotations

import re
from typing import Any

from turnwise.errors import MessageError, TurnwiseError, short_repr
from turnwise.replies.export.schema_reader import read_signatures
from turnwise.replies.export.value_types import ToolSignature
from turnwise.serve.bodies import MAX_TOKEN_ID, NUMBER, BodyReader, RequestError
from turnwise.serve.models import ServedModel

# Field to kinds, least and most; names are those of vLLM, on both sides.
NUMBERS: dict[str, tuple[Any, float | None, float | None]] = {
    "temperature": (NUMBER, 0, 100),
    "top_p": (NUMBER, 0, 1),
    "top_k": (int, -1, None),
    "min_p": (NUMBER, 0, 1),
    "presence_penalty": (NUMBER, -2, 2),
    "frequency_penalty": (NUMBER, -2, 2),
    "repetition_penalty": (NUMBER, 0, None),
    "seed": (int, None, None),
    "min_tokens": (int, 0, None),
    "prompt_logprobs": (int, -1, None),
    "thinking_token_budget": (int, 0, None),
    "routed_experts_prompt_start": (int, 0, None),
}
FLAGS = (
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "include_stop_str_in_output",
    "watermarking",
)
ID_LISTS = ("allowed_token_ids", "logprob_token_ids")
MAX_LISTED = 100_000
MAX_STOPS = 64  # token ids
MAX_STOP_TEXTS = 4  # as OpenAI's API
MAX_STOP_LENGTH = 1_000  # characters
MAX_BIAS = 1024
TOKEN_ID = re.compile("[0-9]{1,10}")
NONE, AUTO, REQUIRED = "none", "auto", "required"


def read_sampling(body: BodyReader, model: ServedModel, max_choices: int) -> dict[str, Any]:
    """Return the sampling parameters that a request asks for, without its limit of tokens.

    Raises:
        RequestError: a field has a value that no engine takes.
    """
    found: dict[str, Any] = {}
    for name, (kinds, least, most) in NUMBERS.items():
        value = body.get(name, kinds, least=least, most=most)
        if value is not None:
            found[name] = value
    for name in FLAGS:
        value = body.get(name, bool)
        if value is not None:
            found[name] = value
    found["n"] = body.get("n", int, 1, least=1, most=max_choices)
    stops = read_stops(body)
    if stops:
        found["stop"] = stops
    ids = body.engine_ids("stop_token_ids", MAX_STOPS) or []
    found["stop_token_ids"] = list(dict.fromkeys([*ids, *model.stop_ids]))
    listed = {name: body.engine_ids(name, MAX_LISTED) for name in ID_LISTS}
    listed["bad_words"] = body.list_of("bad_words", str, MAX_LISTED)
    found |= {name: items for name, items in listed.items() if items}
    extra = body.get("vllm_xargs", dict)
    if extra:
        found["extra_args"] = extra
    bias = body.reader("logit_bias")
    if bias is not None and bias.value:
        found["logit_bias"] = _check_bias(bias)
    if body.get("logprobs", bool):
        found["logprobs"] = body.get("top_logprobs", int, 0, least=0, most=100)
    return found


def read_stops(body: BodyReader) -> list[str]:
    """Return the texts of `stop`, which may be one text or a list."""
    given = body.value.get("stop")
    stops: list[str] = (
        [given] if isinstance(given, str) else body.list_of("stop", str, MAX_STOP_TEXTS) or []
    )
    for stop in stops:
        if len(stop) > MAX_STOP_LENGTH:
            raise RequestError(
                f"a stop text has at most {MAX_STOP_LENGTH:,} characters, and this one has {len(stop):,}",
                path=body.name("stop"),
            )
    return [stop for stop in stops if stop]


def _check_bias(bias: BodyReader) -> dict[str, Any]:
    if len(bias.value) > MAX_BIAS:
        raise RequestError(f"there are more than {MAX_BIAS} values", path=bias.path)
    for key in bias.value:
        if not TOKEN_ID.fullmatch(key) or int(key) > MAX_TOKEN_ID:
            raise RequestError(
                f"each key is a token id from 0 to {MAX_TOKEN_ID}, not {short_repr(key)}",
                path=bias.path,
            )
        bias.require(key, NUMBER)
    return bias.value


def read_limit(body: BodyReader, model: ServedModel, prompt_tokens: int) -> int | None:
    """Return the most tokens of a reply: what the request says, and not more than the model has room for.

    Raises:
        RequestError: the prompt leaves no room.
    """
    asked: int | None = body.get("max_completion_tokens", int, least=1)
    if asked is None:
        asked = body.get("max_tokens", int, least=1)
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


def read_choice(body: BodyReader, tools: list[Any] | None) -> str:
    """Return which calls a reply may have: "none", "auto", "required", or the name of the only tool.

    Raises:
        RequestError: `tool_choice` is none of these, or there is no such tool.
    """
    given = body.value.get("tool_choice")
    if given is None:
        return AUTO if tools else NONE
    if isinstance(given, dict):
        kind = given.get("type", "function")
        if kind != "function":
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
    choice = body.choose("tool_choice", (NONE, AUTO, REQUIRED), AUTO)
    if choice == REQUIRED and not tools:
        raise RequestError("a call is required, and there are no tools", path="tool_choice")
    return choice if tools else NONE


def _function_of(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool.get("function", tool)
    return function if isinstance(function, dict) else {}


def _name_of(tool: dict[str, Any]) -> str:
    return str(_function_of(tool).get("name"))


def _is_strict(tool: dict[str, Any]) -> bool:
    return _function_of(tool).get("strict") is True


def is_forced(choice: str) -> bool:
    """Return whether a reply must have a call."""
    return choice not in (NONE, AUTO)


def read_checked_tools(tools: list[Any] | None, choice: str) -> dict[str, ToolSignature]:
    """Return the tools whose arguments must fit their schemas: all if a call is forced, else those that are strict.

    Raises:
        RequestError: a schema says something that no grammar can follow.
    """
    is_all = is_forced(choice)
    names = {_name_of(tool) for tool in tools or () if is_all or _is_strict(tool)}
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


def read_response_schema(body: BodyReader) -> dict[str, Any] | None:
    """Return the JSON schema that the content must fit; None if it is free.

    Raises:
        RequestError: `response_format` is none that is known.
    """
    given = body.reader("response_format")
    if given is None:
        return None
    kind = given.choose("type", ("text", "json_object", "json_schema"), "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    inner = given.reader("json_schema")
    if inner is None:
        raise RequestError("this field is missing", path="response_format.json_schema")
    schema: dict[str, Any] = inner.require("schema", dict)
    return schema

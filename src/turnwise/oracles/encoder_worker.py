"""What runs in the worker process of an encoder file: lock the process, then call the author's function."""

from __future__ import annotations

import inspect
import json
import resource
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from turnwise.errors import SourceError
from turnwise.isolation.lockdown import lock_process
from turnwise.messages import JsonMapping, JsonObject
from turnwise.oracles.oracle import REQUEST_ARGUMENTS

FUNCTIONS = (
    "encode_messages",
    "build_chat_segments",
    "apply_chat_template",
    "render_messages",
    "render",
    "encode",
)
"""Names of the function that writes a prompt; the first that the file has is called."""
TEXT_NAMES = ("prompt", "text")
MEGABYTE = 1 << 20


def write_prompt(path: str, request: JsonMapping, megabytes: int) -> str:
    """Return the prompt that the encoder at a path writes.

    Raises:
        SourceError: the file has no such function, or it fails.
    """
    write = load_encoder(path, megabytes)
    try:
        written = write(**match_arguments(write, request))
    except MemoryError:
        raise
    except BaseException as error:  # also SystemExit: the author's code may raise anything
        raise SourceError(
            f"the encoder failed with {type(error).__name__}: {error!s:.300}"
        ) from None
    return read_text(written)


@cache
def load_encoder(path: str, megabytes: int) -> Callable[..., Any]:
    """Lock this process, run the file, and return its function."""
    source = Path(path).read_text(encoding="utf-8")
    limit_memory(megabytes)
    lock_process()
    module = ModuleType("encoder")
    module.__file__ = path
    sys.modules["encoder"] = module  # dataclasses look for the module of a class
    sys.path.insert(0, str(Path(path).parent))
    try:
        exec(compile(source, path, "exec"), vars(module))
    except MemoryError:
        raise
    except BaseException as error:
        raise SourceError(
            f"the encoder does not start: {type(error).__name__}: {error!s:.300}"
        ) from None
    for name in FUNCTIONS:
        if callable(found := getattr(module, name, None)):
            return found  # type: ignore[no-any-return]
    raise SourceError(f"the encoder has no function {' or '.join(FUNCTIONS)}")


def limit_memory(megabytes: int) -> None:
    """Bound the address space: the worker's own limit does not count memory that is shared."""
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    bound = size + megabytes * MEGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def match_arguments(write: Callable[..., Any], request: JsonMapping) -> JsonObject:
    """Return the arguments of a request by the names that the function has for them.

    What the request does not ask is left to the function, but for a mode that it has to be given.
    """
    options = dict(request.get("chat_template_kwargs") or {})
    parameters: JsonMapping = inspect.signature(write).parameters
    messages = request["messages"]
    if "tools" not in parameters and request.get("tools"):
        # DeepSeek's files read the tools of a conversation from its first system message.
        messages = attach_tools(messages, request["tools"])
    known = {"tokenize": False, **request, **options, "messages": messages}
    known["conversation"] = messages
    effort = options.get("reasoning_effort")
    if effort == "none":
        options.setdefault("thinking", False)
    elif effort is not None:
        known.setdefault("thinking_effort", effort)
    thinking = options.get("thinking", options.get("enable_thinking"))
    mode = parameters.get("thinking_mode")
    if thinking is None and mode is not None and mode.default is inspect.Parameter.empty:
        thinking = False
    if thinking is not None:
        known |= {"thinking": bool(thinking), "enable_thinking": bool(thinking)}
        known["thinking_mode"] = "thinking" if thinking else "chat"
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        parameters = {**parameters, **dict.fromkeys(("thinking_effort", *REQUEST_ARGUMENTS))}
    return {name: known[name] for name in parameters if name in known}


def attach_tools(messages: list[JsonObject], tools: list[Any]) -> list[JsonObject]:
    """Return the messages with the tools in a system message at the front."""
    if messages and messages[0].get("role") == "system":
        return [{**messages[0], "tools": tools}, *messages[1:]]
    return [{"role": "system", "content": "", "tools": tools}, *messages]


def read_text(written: Any) -> str:
    """Return the text of what an encoder returned: a text, texts to join, or something that has one."""
    for name in TEXT_NAMES:
        value = written.get(name) if isinstance(written, Mapping) else getattr(written, name, None)
        if isinstance(value, str):
            return str(value)
    if isinstance(written, (list, tuple)):
        return "".join(read_text(part) for part in written if not isinstance(part, (bool, int)))
    if isinstance(written, str):
        return str(written)
    raise SourceError(f"the encoder returned no text: {json.dumps(written, default=repr)[:200]}")

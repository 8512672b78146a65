"""`turnwise serve`: templates, token ids and parsed replies over HTTP."""

from __future__ import annotations

import errno
import socket
from dataclasses import replace
from typing import cast

from turnwise.cli import inputs, output
from turnwise.cli.extras import import_extra
from turnwise.errors import SourceError
from turnwise.local_files import error_reason
from turnwise.normalisation.normalised import LateSystem
from turnwise.replies.parser.parser import POLICIES
from turnwise.serve.models import ServedModel, ServedModels, load_model
from turnwise.serve.service import Service
from turnwise.serve.settings import ServeSettings

KINDS = ("generate", "completions", "llamacpp", "text")
BACKLOG = 1024
MEGABYTE = 2**20
ANY_ADDRESS = ("0.0.0.0", "::", "")
CUT_CALLS, CALLS_IN_REASONING = POLICIES["cut_calls"], POLICIES["calls_in_reasoning"]


def serve(
    models: list[str],
    host: str = "127.0.0.1",
    port: int = 8400,
    tokenizer: str | None = None,
    max_model_len: int | None = None,
    upstream: str | None = None,
    upstream_kind: str = "generate",
    upstream_model: str | None = None,
    lenient: bool = False,
    allowed_host: list[str] | None = None,
    cors_origin: list[str] | None = None,
    threads: int | None = None,
    memory: int = 256,
    max_body: int = 8,
    late_system: str | None = None,
    cut_calls: str = "keep",
    calls_in_reasoning: str = "read",
    no_request_templates: bool = False,
    no_playground: bool = False,
    as_json: bool = False,
) -> None:
    """Serve templates over HTTP: the paths of vLLM's renderer, a playground, and with --upstream a chat gateway.

    Requests are logged on stderr, a line of JSON for each. With --json, one line on stdout tells the address and the
    models before the first request is answered.

    Example: turnwise serve qwen3 --port 8400

    Arguments:
        models MODEL...: A model folder or an entry; NAME=PLACE names it.

    Options:
        host: The address to listen on.
        port -p min=0 max=65535: The port; 0 takes a free one.
        tokenizer -k PATH: The tokenizer of all models.
        max_model_len min=1: Tokens of prompt and reply.
        upstream URL: A server that samples: be a gateway to it.
        upstream_kind KIND: {KINDS}.
        upstream_model: What the upstream calls the model.
        lenient: Answer chats of which something is lost, with warnings.
        allowed_host: A Host header to answer to; * for all. Repeatable.
        cors_origin: A page that may call from elsewhere. Repeatable.
        threads min=1 max=256: Requests at the same time.
        memory MB min=0: For conversations; 0 for none.
        max_body MB min=1: The largest request.
        cut_calls NAME: Calls within which a reply ends: {CUT_CALLS}.
        calls_in_reasoning NAME: Calls before the reasoning ends: {CALLS_IN_REASONING}.
        no_request_templates: Refuse a chat_template in a request.
        no_playground: Offer no playground and no /api paths.
    """
    inputs.check_url(upstream, "--upstream")
    running = import_extra("turnwise.serve.running", "serve")
    defaults = ServeSettings()
    settings = replace(
        defaults,
        allowed_hosts=_choose_hosts(defaults.allowed_hosts, host, allowed_host or []),
        cors_origins=tuple(cors_origin or ()),
        max_body=max_body * MEGABYTE,
        memory_bytes=memory * MEGABYTE,
        threads=threads or defaults.threads,
        late_system=cast(LateSystem | None, late_system),
        request_templates=not no_request_templates,
        playground=not no_playground,
        upstream=upstream,
        upstream_kind=upstream_kind,
        upstream_model=upstream_model,
        lenient=lenient,
    )
    policy = {"cut_calls": cut_calls, "calls_in_reasoning": calls_in_reasoning}
    served = [
        replace(load_model(one, tokenizer, max_model_len), reply_policy=policy) for one in models
    ]
    if upstream is not None and upstream_kind != "text":
        for model in served:
            check_tokenizer(model)
    listener = _listen(host, port)
    notes = []
    if host in ANY_ADDRESS and not allowed_host:
        notes.append("only requests to localhost are answered; --allowed-host adds other names")
    for model in served:
        if model.has_shipped_tokenizer:
            notes.append(f"{model.name} has no tokenizer: its ids are those of a small one")
    url = _address_of(listener, host)
    if as_json:
        names = [model.name for model in served]
        output.write_json({"url": url, "models": names, "notes": notes}, indent=None)
    else:
        what = "service" if no_playground else "playground"
        for text in (f"{what}: {url} (Ctrl-C stops)", *notes):
            output.note(text)
    running.run_server(Service(ServedModels(served), settings), listener)


def _choose_hosts(usual: tuple[str, ...], host: str, named: list[str]) -> tuple[str, ...]:
    """Return the Host headers that are answered: the usual ones, the address, and those of the call."""
    address = [] if host in ANY_ADDRESS else [f"[{host}]" if ":" in host else host]
    return tuple(name.lower() for name in (*usual, *address, *named))


def check_tokenizer(model: ServedModel) -> None:
    """Refuse to send ids of a tokenizer that is not the model's.

    Raises:
        SourceError: the model has no tokenizer of its own.
    """
    if model.has_shipped_tokenizer:
        raise SourceError(
            f"{model.name} has no tokenizer of its own, so its ids mean nothing to an engine",
            hint="give the model's with --tokenizer, or use --upstream-kind text",
        )


def _address_of(listener: socket.socket, host: str) -> str:
    name = "127.0.0.1" if host in ANY_ADDRESS else f"[{host}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        SourceError: the address is taken, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: asyncio sends small answers at once only where it knows that.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)  # requests wait until the models are loaded
    except (OSError, OverflowError) as error:
        listener.close()
        is_taken = getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES)
        hint = "--port 0 takes a free port" if is_taken else "--host 127.0.0.1 is this machine"
        raise SourceError(
            f"cannot listen on {host}:{port}: {error_reason(error)}", hint=hint
        ) from error
    return listener

"""What one server allows: sizes, counts, times, hosts. Every limit is checked before the work that it bounds."""

from __future__ import annotations

from dataclasses import dataclass

from turnwise.normalisation.normalised import LateSystem

MEBIBYTE = 1 << 20
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class ServeSettings:
    """The limits of a server.

    Attributes:
        allowed_hosts: values of the Host header that are answered, without their port; "*" answers all.
        cors_origins: pages of other origins that may call the server; none by default.
        max_body: bytes of a request; more are refused with 413 before they are read.
        max_messages, max_tools, max_depth, max_choices, max_prompts: counts in a request; more are refused with 422.
        read_seconds: how long a client may take to send its request.
        total_seconds: how long an answer may take, streams of a gateway excluded.
        threads: how many requests are worked on at the same time. Threads share one interpreter, so more than one
            takes time from the event loop: with two, health checks waited ten times as long.
        max_waiting: how many requests may wait for a thread; more are refused with 429.
        memory_bytes: the memory for conversations, and for what else requests leave in caches; 0 remembers no
            conversation.
        late_system: where system texts after other messages are put, as for `Template.render`.
        request_templates: whether a request may bring a `chat_template` of its own, which runs in a worker process.
        workers: how many such worker processes there are.
        worker_seconds, worker_megabytes: what one call of them may take.
        playground: whether the playground and its calls are offered.
        playground_seconds: the processor time that one call of the playground may take.
        upstream: the address of a server that samples; None offers no `/v1/chat/completions`.
        upstream_kind: what it takes: "generate", "completions", "llamacpp" or "text".
        upstream_model: what the upstream calls the model; the name here if it is None.
        lenient: whether a gateway answers requests of which something is lost or not honoured, with warnings.
        max_streams: how many replies may be sampled at the same time; more are refused with 429.
        upstream_seconds: how long the upstream may be silent.
    """

    allowed_hosts: tuple[str, ...] = LOOPBACK
    cors_origins: tuple[str, ...] = ()
    max_body: int = 8 * MEBIBYTE
    max_messages: int = 4096
    max_tools: int = 512
    max_depth: int = 64
    max_choices: int = 128
    max_prompts: int = 256
    read_seconds: float = 10.0
    total_seconds: float = 30.0
    threads: int = 1
    max_waiting: int = 512
    memory_bytes: int = 256 * MEBIBYTE
    late_system: LateSystem | None = None
    request_templates: bool = True
    workers: int = 2
    worker_seconds: float = 2.0
    worker_megabytes: int = 512
    playground: bool = True
    playground_seconds: float = 20.0
    upstream: str | None = None
    upstream_kind: str = "generate"
    upstream_model: str | None = None
    lenient: bool = False
    max_streams: int = 1024
    upstream_seconds: float = 120.0

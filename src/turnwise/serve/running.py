"""Run a service under uvicorn until the process is told to stop."""

from __future__ import annotations

import socket
import sys

import uvicorn

from turnwise.serve.app import MAX_HEADERS, create_app
from turnwise.serve.protocol import ImpatientProtocol
from turnwise.serve.service import Service

BACKLOG = 1024
SWITCH_SECONDS = 0.0005
KEEP_ALIVE = 30  # seconds that an idle connection stays open


def run_server(service: Service, listener: socket.socket) -> None:
    """Answer requests on a socket until SIGINT or SIGTERM; requests that are running are finished first.

    Args:
        service: the models and limits.
        listener: a bound socket.
    """
    # The loop asks for the interpreter while threads work; with Python's 5 ms, a health check would wait for each.
    sys.setswitchinterval(SWITCH_SECONDS)
    make_server(service).run(sockets=[listener])


def make_server(service: Service) -> uvicorn.Server:
    """Return the server of a service, which is not started yet."""
    config = uvicorn.Config(
        create_app(service),
        http=ImpatientProtocol,
        h11_max_incomplete_event_size=MAX_HEADERS,
        ws="none",
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(service.settings.total_seconds),
        access_log=False,  # every request is a line of our own
        log_level="warning",
        server_header=False,
    )
    return uvicorn.Server(config)

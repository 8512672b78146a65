"""Run a service under uvicorn until the process must stop.

Its HTTP/1.1 gets one bound that uvicorn does not have: how long a client may take for the head of a request. A
connection on which a head was begun and does not end costs little, but a thousand of them cost a server its sockets. So
a clock runs from the first byte of a head, and from the connection itself, until the head is complete.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from turnwise.serve.app import MAX_HEADERS, Server
from turnwise.serve.service import Service

BACKLOG = 1024
SWITCH_SECONDS = 0.0005
HEAD_SECONDS = 10.0  # for the head of a request
KEEP_ALIVE = 30  # seconds that an idle connection stays open


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose next request does not begin in time."""

    head_seconds = HEAD_SECONDS
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the clock with the connection."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Stop the clock if a head is complete, start it if one has begun."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        is_waiting = self.cycle is None or self.cycle.response_complete
        if not is_waiting:
            self._stop()
        elif self._clock is None:
            self._clock = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _give_up(self) -> None:
        self._clock = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


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
        Server(service).application(),
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

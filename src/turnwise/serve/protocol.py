"""HTTP/1.1 of uvicorn, with one bound that it does not have: how long a client may take for the head of a request.

A connection on which a head was begun and does not end costs little, but a thousand of them cost a server its sockets.
So a clock runs from the first byte of a head, and from the connection itself, until the head is complete.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0


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

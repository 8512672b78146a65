"""Ask a server for JSON, with the standard library alone.

Everything that can go wrong is a `SourceError` that says what to do: no connection, no answer in time, a redirect, an
answer that is too long or not JSON. Redirects are not followed: the caller named the server that may see the request.
"""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from turnwise.errors import SourceError, printable, short_repr
from turnwise.evidence.conform import EngineReply
from turnwise.local_files import error_reason

MAX_ANSWER = 64 * 2**20  # bytes
CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
TEXT_SHOWN = 300  # characters of an answer that is not JSON


class JsonClient:
    """A server that is asked for JSON.

    Args:
        url: Where it is: `http://localhost:8000`, perhaps with a path.
        timeout: How many seconds to wait for an answer.
        headers: Headers of every request, such as one for access.

    Raises:
        SourceError: the URL is not one of http or https.
    """

    def __init__(self, url: str, timeout: float, headers: dict[str, str] | None = None) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port
            http.client.HTTPConnection(parts.hostname or "", port)  # checks the name
        except (ValueError, http.client.InvalidURL) as error:
            raise SourceError(f"{short_repr(url)} is not a URL: {error}") from error
        if parts.scheme not in CONNECTIONS or not parts.hostname:
            raise SourceError(
                f"{short_repr(url)} is not a URL of http or https",
                hint="An example: http://localhost:8000",
            )
        self._connect = CONNECTIONS[parts.scheme]
        self._place = (parts.hostname, port)
        self._prefix = parts.path.rstrip("/").removesuffix("/v1")
        self._timeout = timeout
        self._headers = {"Content-Type": "application/json", **(headers or {})}

    def ask(self, method: str, path: str, body: Any) -> EngineReply:
        """Send a request and return the status and the value of the answer."""
        where = f"{method} {self._prefix}{path}"
        host, port = self._place
        connection = self._connect(host, port, timeout=self._timeout)
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, f"{self._prefix}{path}", data, self._headers)
            response = connection.getresponse()
            answer = response.read(MAX_ANSWER + 1)
        except TimeoutError as error:
            raise SourceError(
                f"{where}: no answer within {self._timeout:g} seconds",
                hint="--timeout waits longer",
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error_reason(error) or type(error).__name__
            raise SourceError(
                f"{where}: no answer from {host}: {reason}",
                hint="is the server running, and the URL that of its root, as http://localhost:8000?",
            ) from error
        finally:
            connection.close()
        if 300 <= response.status < 400:
            target = printable(response.headers.get("Location", "elsewhere"))
            raise SourceError(
                f"{where} redirects to {target}", hint="Give the URL it redirects to."
            )
        if len(answer) > MAX_ANSWER:
            raise SourceError(f"{where}: the answer is longer than {MAX_ANSWER:,} bytes")
        return EngineReply(response.status, _parse_answer(answer, response.status, where))


def _parse_answer(answer: bytes, status: int, where: str) -> Any:
    """Return the value of an answer; that of an error may be a text."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError) as error:
        text = answer.decode("utf-8", "replace")[:TEXT_SHOWN]
        if status == 200:
            raise SourceError(f"{where}: the answer is not JSON: {short_repr(text)}") from error
        return text

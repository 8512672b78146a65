"""An HTTP server for tests that answers by a function.

`ScriptedServer` is a context manager; `.url` is where it listens. A subclass has `reply`: the status, the headers and
the body of the answer to a request; None closes the connection without one.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

RawAnswer = tuple[int, dict[str, str], bytes]


class ScriptedServer:
    prefix = ""  # of all paths

    def __init__(self) -> None:
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(None)

            def do_POST(self) -> None:
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answer(self, body: Any) -> None:
                found = scripted.reply(self.path, body)
                if found is None:
                    self.connection.close()
                    return
                status, headers, data = found
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}{self.prefix}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()

    def reply(self, path: str, body: Any) -> RawAnswer | None:
        raise NotImplementedError


def to_answer(value: Any, status: int = 200) -> RawAnswer:
    """Return an answer of JSON."""
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()

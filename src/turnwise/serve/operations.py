"""What an operator sees: metrics in Prometheus' text format, one JSON line for each request, errors in OpenAI's shape.

Nothing that a request contains is logged or counted: paths are those of the routes, models those that are served, and
an error that is logged is the sentence that the client got.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any, TextIO

from turnwise.errors import TemplateLimitError, TurnwiseError, WarningLog, printable
from turnwise.messages import JsonObject
from turnwise.serve.bodies import INVALID, TOO_SLOW, RequestError
from turnwise.shapes.row import drop_nulls

MAX_ERROR_LENGTH = 1000  # characters that a client gets
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, "+Inf")
SECONDS = "request_seconds"
# Instead of what a caller in Python can do.
LIMIT_HINT = "send shorter messages, or a template that does less; this server allows no more"
ERROR_TYPES = {404: "not_found_error", 429: "rate_limit_error", 502: "upstream_error"}


def make_request_id(given: str | None) -> str:
    """Return the id of a request: the caller's, if it is a short plain word, else a new one."""
    if given is not None and REQUEST_ID.fullmatch(given):
        return given
    return uuid.uuid4().hex


def explain_failure(error: Exception) -> tuple[TurnwiseError | str, int]:
    """Return what a client gets for an error, and the HTTP status.

    Whatever a request makes a template do is its sender's to change. Of a defect of turnwise itself, nothing of the
    request is said.
    """
    if isinstance(error, RequestError):
        return error, error.status
    if isinstance(error, TurnwiseError):
        is_ended = isinstance(error, TemplateLimitError) and error.budget == "isolation"
        return error, TOO_SLOW if is_ended else INVALID
    name = type(error).__name__
    return f"turnwise itself failed ({name}); please report this with the request id", 500


def error_body(error: TurnwiseError | str, status: int, request_id: str) -> JsonObject:
    """Return an error in the shape of OpenAI's API."""
    if isinstance(error, TemplateLimitError):
        error.hint = LIMIT_HINT
    kind = ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    path = getattr(error, "path", None)
    return {
        "error": {
            "message": printable(str(error), MAX_ERROR_LENGTH),
            "type": kind,
            "param": printable(path, MAX_ERROR_LENGTH) if path else None,
            "code": status,
            "request_id": request_id or None,
        }
    }


# -- metrics


class Metrics:
    """Counters of a server. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the name of a metric, then by what follows it in a line of Prometheus' text format.
        self._samples: dict[str, Counter[str]] = {"requests_total": Counter(), SECONDS: Counter()}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        path = f'path="{route}"'
        times: JsonObject = {
            f'_bucket{{{path},le="{bound}"}}': int(seconds <= float(bound)) for bound in BUCKETS
        }
        times |= {f"_sum{{{path}}}": seconds, f"_count{{{path}}}": 1}
        with self._lock:
            self._samples["requests_total"][f'{{{path},status="{status}"}}'] += 1
            self._samples[SECONDS].update(times)

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._samples.setdefault(f"{name}_total", Counter())[""] += amount

    def write(self, gauges: Mapping[str, float]) -> str:
        """Return all metrics as text; gauges are values of this moment."""
        lines = []
        with self._lock:
            for name, samples in self._samples.items():
                kind = "histogram" if name == SECONDS else "counter"
                lines.append(f"# TYPE turnwise_{name} {kind}")
                lines += [f"turnwise_{name}{rest} {value}" for rest, value in samples.items()]
        for name, value in sorted(gauges.items()):
            lines += [f"# TYPE turnwise_{name} gauge", f"turnwise_{name} {value:g}"]
        return "\n".join(lines) + "\n"


# -- logs


class JsonLog:
    """Writes one JSON object a line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, event: str, **fields: Any) -> None:
        """Write a line; fields that are None are left out."""
        given = drop_nulls(fields)
        line = json.dumps({"event": event, **given}, default=str)
        with self._lock:
            stream = self._stream or sys.stderr
            stream.write(line + "\n")
            stream.flush()


# -- warnings


class RequestWarnings(WarningLog):
    """The warnings of one request, which are a part of its answer and are not shown.

    Attributes:
        found: them, as soon as they come.
    """

    def __init__(self) -> None:
        super().__init__(is_quiet=True)
        self.found: list[str] = []

    def add(self, text: str) -> None:
        """Add a warning; of two that are equal, one is enough."""
        super().add(text)
        self.found[:] = self.texts

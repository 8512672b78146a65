"""What was sampled in a session, for training: `GET /v1/trajectories/ID` after requests with `x-trajectory-id: ID`.

A session is one or more segments of ids, each with a mask (1 for sampled ids) and the log-probabilities of those ids. A
request whose prompt begins with all ids of a segment continues it; another one, after compaction or a rewritten
history, begins a new segment. So no id is ever encoded again, and every trained id is one that the engine sampled.

Sessions are kept by bytes, the least recently used are dropped first. A session is found only with the `authorization`
header that its requests had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnwise.serve.bodies import NOT_FOUND, RequestError
from turnwise.serve.gateway import ChoiceStream
from turnwise.serve.upstreams import GenerationPlan, odd_answer
from turnwise.sized_cache import SizedTable, make_digest

HEADER = "x-trajectory-id"
PATH = "/v1/trajectories/{id}"
MAX_BYTES = 256 << 20
ID_BYTES = 80  # of an id with its mask and log-probability

Segment = dict[str, list[Any]]


class Trajectories:
    """The sessions of a gateway that asked for it."""

    def __init__(self) -> None:
        self._sessions: SizedTable[list[Segment]] = SizedTable(MAX_BYTES)

    def add(self, key: bytes, plan: GenerationPlan, choices: Mapping[int, ChoiceStream]) -> None:
        """Add the replies to one request.

        Raises:
            UpstreamError: the engine did not send a log-probability for each token.
        """
        segments = self._sessions.find(key) or []
        for choice in choices.values():
            values = [entry["logprob"] for entry in choice.logprobs]
            if len(values) != len(choice.ids):
                raise odd_answer(f"{len(values)} log-probabilities of {len(choice.ids)} tokens")
            known = [one for one in segments if one["token_ids"] == plan.ids[: _count(one)]]
            if not known:
                known = [{"token_ids": [], "mask": [], "logprobs": [], "turns": []}]
                segments += known
            segment = max(known, key=_count)
            new = len(plan.ids) - _count(segment)
            segment["token_ids"][:] = [*plan.ids, *choice.ids]
            segment["mask"] += [0] * new + [1] * len(values)
            segment["logprobs"] += [None] * new + values
            turn = {"id": plan.request_id, "index": choice.index, "start": len(plan.ids)}
            turn |= {"end": _count(segment), "finish_reason": choice.finish_reason}
            segment["turns"].append(turn)
        self._sessions.keep(key, segments, ID_BYTES * sum(map(_count, segments)))

    async def answer(self, request: Request) -> Response:
        """Answer with a session.

        Raises:
            RequestError: there is none of this name, or it was dropped.
        """
        name = request.path_params["id"]
        segments = self._sessions.find(make_key(request, name))
        if segments is None:
            raise RequestError(
                "there is no such trajectory",
                hint=f"send {HEADER} with each request of a session",
                status=NOT_FOUND,
            )
        return JSONResponse({"id": name, "object": "trajectory", "segments": segments})


def _count(segment: Segment) -> int:
    return len(segment["token_ids"])


def make_key(request: Request, name: str) -> bytes:
    """Return the key of a session, which only its own client has."""
    return make_digest((request.headers.get("authorization", ""), name))

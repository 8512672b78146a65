"""Replies from other parsers' tests through the gateway: a stream adds up to the message, and both equal `parse`.

The engine replays the reply of each vector in random chunks, as ids or as text, in the protocol of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

import reply_vectors
from corpus import needs_corpus
from gateway_streams import CHAT, QUESTION, UPSTREAM_KINDS, add_up, read_stream
from scripted_upstream import TOKENIZER, ScriptedUpstream
from served import QUIET, client_of, post
from turnwise.errors import TurnwiseError
from turnwise.serve.models import ServedModel, ServedModels
from turnwise.serve.service import Service
from turnwise.serve.settings import ServeSettings

pytestmark = [QUIET, needs_corpus]

Row = Mapping[str, Any]
ROWS = [row for row in reply_vectors.rows() if reply_vectors.template_name(row) is not None]
WAYS = [
    (kind, as_text)
    for kind in UPSTREAM_KINDS
    for as_text in (False, True)
    if as_text or kind != "text"
    if not (as_text and kind == "generate")
]
SAMPLE = 9  # each so-manieth row, one way each
MIN_COMPARED = 0.97  # of the rows; the templates of the others refuse the question or the tools


def name_of(row: Row) -> str:
    name = reply_vectors.template_name(row)
    assert name is not None
    return name


@contextmanager
def serve_rows(rows: Sequence[Row]) -> Iterator[dict[tuple[str, bool], Any]]:
    """Gateways for the templates of rows, with their upstreams, one for each way."""
    models = [
        ServedModel(name, reply_vectors.template(name), TOKENIZER, name, "turnwise")
        for name in dict.fromkeys(map(name_of, rows))
    ]
    with ExitStack() as stack:
        found = {}
        for kind, as_text in WAYS:
            upstream = ScriptedUpstream(kind, "", as_text=as_text)
            hosts = ("testserver",)
            settings = ServeSettings(
                upstream="http://engine", upstream_kind=kind, playground=False, allowed_hosts=hosts
            )
            client = stack.enter_context(
                client_of(Service(ServedModels(models), settings), upstream)
            )
            found[kind, as_text] = client, upstream
        yield found


def compare(row: Row, client: TestClient, upstream: ScriptedUpstream) -> bool:
    """Send a reply both ways; False if the template does not take the question."""
    template, tools, reply = reply_vectors.template(name_of(row)), row.get("tools"), row["input"]
    options = {
        key: value
        for key, value in reply_vectors.options(row).items()
        if key not in ("add_generation_prompt", "tools", "messages")
    }
    try:
        prompt = template.render(QUESTION, tools=tools, add_generation_prompt=True, **options)
    except TurnwiseError:
        return False
    upstream.replies = [reply]
    body = {"model": name_of(row), "messages": QUESTION, "chat_template_kwargs": options}
    if tools:
        body["tools"] = tools
    whole = post(client, CHAT, body)["choices"][0]
    message, reason = add_up(read_stream(client, body))
    given: Any = reply if upstream.as_text else TOKENIZER.whole(reply)
    parser = template.parser(prompt, tools, TOKENIZER)
    parser.feed(given)
    expected = dict(
        parser.close()
    )  # as in a stream, in which a closer without an opener stays text
    if "reasoning_content" in expected:
        expected["reasoning"] = expected["reasoning_content"]
    assert message == expected, (row["id"], upstream.kind, upstream.as_text)
    assert whole["message"] == {"refusal": None, **expected}, (row["id"], upstream.kind)
    assert whole["finish_reason"] == reason
    return True


@pytest.mark.law
def test_a_sample_of_the_vectors(sample: Any) -> None:
    rows = sample(ROWS[::SAMPLE], 5)
    with serve_rows(rows) as gateways:
        compared = [
            compare(row, *gateways[WAYS[number % len(WAYS)]]) for number, row in enumerate(rows)
        ]
    assert len(rows) - sum(compared) <= max(2, (1 - MIN_COMPARED) * len(rows))


@pytest.mark.slow
def test_all_vectors_in_all_ways() -> None:
    with serve_rows(ROWS) as gateways:
        compared = [compare(row, *gateways[way]) for row in ROWS for way in WAYS]
    print(f"{sum(compared)} of {len(compared)}: {len(ROWS)} replies, {len(WAYS)} ways")
    assert sum(compared) >= MIN_COMPARED * len(compared)

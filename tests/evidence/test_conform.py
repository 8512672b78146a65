"""`turnwise conform`: a stand-in for engines renders with jinja2, and differs on purpose."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import turnwise
from loaded import load_entry
from stand_in_engine import Messages, StandIn
from turnwise.cli import app
from turnwise.cli.http_client import JsonClient
from turnwise.errors import SourceError
from turnwise.evidence import EngineReply, conform, detect_engine
from turnwise.evidence.conform import Vllm, wire_probes

pytestmark = pytest.mark.once

RUN = CliRunner()
TEMPLATE = """{{ bos_token }}
{%- for m in messages %}
{%- if m.role == 'system' and not loop.first %}{{ raise_exception('system is not first') }}{% endif -%}
<|{{ m.role }}|>
{%- if m.reasoning_content -%}
<think>{{ m.reasoning_content }}</think>
{%- endif -%}
{{ m.content }}
{%- for call in m.tool_calls or [] -%}
<call>{{ call.function.name }} {{ call.function.arguments | tojson }}</call>
{%- endfor -%}
<|end|>
{%- endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def ask(server: StandIn, *more: str) -> Any:
    return RUN.invoke(app, ["conform", server.url, "--json", *more])


def each(change: Any) -> Any:
    def change_all(messages: Messages) -> Messages:
        return [change(dict(message)) for message in messages]

    return change_all


def strip(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "content": message["content"].strip()}


def drop_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    message.pop("reasoning_content", None)
    return message


def without_late_systems(messages: Messages) -> Messages:
    return [m for n, m in enumerate(messages) if not n or m["role"] != "system"]


@pytest.mark.parametrize("kind", ["llamacpp", "vllm", "tokenize"])
def test_an_engine_that_does_as_the_template(kind: str, tmp_path: Any) -> None:
    file = tmp_path / "served.jinja"
    file.write_text(TEMPLATE)
    more = [] if kind == "llamacpp" else ["-t", str(file)]
    tokens = TOKENS if kind == "llamacpp" else {"bos_token": ""}
    with StandIn(TEMPLATE, kind, tokens=tokens) as server:
        found = ask(server, "--limit", "30", *more)
    assert found.exit_code == 0, found.output
    data = json.loads(found.stdout)
    assert data["equal"] and data["tried"] == 30 and data["refused"] < 10


@pytest.mark.parametrize(
    ("change", "kind", "field", "line"),
    [
        (each(strip), "text", "messages[0].content", None),
        (each(drop_reasoning), "text", None, 5),
        (without_late_systems, "refusal", None, 3),
    ],
)
def test_a_difference_is_small_and_has_a_place(
    change: Any, kind: str, field: str | None, line: int | None
) -> None:
    with StandIn(TEMPLATE, change=change, tokens=TOKENS) as server:
        found = ask(server)
    assert found.exit_code == 1, found.output
    difference = json.loads(found.stdout)["difference"]
    assert difference["kind"] == kind and difference["expected"] != difference["got"]
    assert len(difference["request"]["messages"]) <= 3
    if field is not None:
        assert difference["piece"]["origin"] == field
    if line is not None:
        assert difference["decision"]["line"] == line


def test_ids_that_differ_are_shown_as_text() -> None:
    with StandIn(
        TEMPLATE, "vllm", after=lambda text: text + "\n", tokens={"bos_token": ""}
    ) as server:
        client = JsonClient(server.url, 10)
        template = turnwise.compile(TEMPLATE, options={"bos_token": ""})
        found = conform(template, detect_engine(client.ask), limit=5)
    assert not found and found.difference is not None and found.differing == 5
    assert found.difference.got == found.difference.expected + "\n"
    assert "engine:" in str(found) and "⟪" in str(found)


def test_arguments_are_text_on_the_wire() -> None:
    asked: list[Any] = []

    def answer(method: str, path: str, body: Any) -> EngineReply:
        asked.append(body)
        return EngineReply(200, {"token_ids": [1], "tokens": [1]})

    assert conform(load_entry("chatml"), Vllm(answer, "m"))
    sent = [body["messages"] for body in asked if "messages" in body]
    calls = [call for chat in sent for message in chat for call in message.get("tool_calls") or ()]
    assert calls and all(isinstance(call["function"]["arguments"], str) for call in calls)
    assert {body["model"] for body in asked} == {"m"}
    assert all(not probe.add_generation_prompt or probe.messages for probe in wire_probes(False))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ((200, {}, b"<html>"), "not JSON"),
        ((200, {}, b'{"unexpected": 1}'), "without"),
        ((200, {}, b"[1]"), "without"),
        ((302, {"Location": "http://elsewhere/\x1b"}, b""), "redirects to"),
        ((401, {}, b'{"error": "no key"}'), "status 401: no key"),
        ((404, {}, b"nothing here"), "status 404"),
        ((503, {}, b""), "status 503"),
        ((200, {}, b"[" * 100_000), "not JSON"),
    ],
)
def test_other_answers_are_clear_errors(raw: Any, text: str) -> None:
    with StandIn(TEMPLATE, raw=raw) as server:
        found = RUN.invoke(app, ["conform", server.url, "-t", "chatml"])
    assert found.exit_code == 2 and text in found.stderr, found.output
    assert "Traceback" not in found.stderr and "\x1b" not in found.stderr


def test_a_refusal_of_everything_is_an_error() -> None:
    with StandIn("{{ raise_exception('no') }}", tokens=TOKENS) as server:
        found = RUN.invoke(app, ["conform", server.url, "--limit", "3"])
    assert found.exit_code == 2 and "refuse all 3" in found.stderr


def test_misuse() -> None:
    unreachable = RUN.invoke(
        app, ["conform", "http://127.0.0.1:9", "-t", "chatml", "--timeout", "2"]
    )
    assert unreachable.exit_code == 2 and "no answer" in unreachable.stderr
    for url in ("ftp://x", "http://", "http://[", "http://x:99999999"):
        assert RUN.invoke(app, ["conform", url]).exit_code == 2
    with StandIn(TEMPLATE, "vllm") as server:
        untold = RUN.invoke(app, ["conform", server.url])
        assert untold.exit_code == 2 and "--template" in untold.stderr
        wrong = RUN.invoke(app, ["conform", server.url, "--engine", "vlm"])
        assert wrong.exit_code == 2 and "vllm" in wrong.stderr
        header = RUN.invoke(app, ["conform", server.url, "--header", "no colon"])
        assert header.exit_code == 2


@pytest.mark.parametrize(
    "url", ["", " ", "http://a b", "http://[::1", "localhost:99999", "ftp://a"]
)
def test_what_is_no_url_is_reported(url: str) -> None:
    with pytest.raises(SourceError, match="is not a URL"):
        JsonClient(url, 1)


def test_an_answer_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    client = JsonClient("http://127.0.0.1:1/v1/", 0.5)
    monkeypatch.setattr(client, "_connect", _Slow)
    with pytest.raises(SourceError, match=r"GET /props: no answer within 0\.5 seconds"):
        client.ask("GET", "/props", None)


def test_an_answer_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.cli.http_client.MAX_ANSWER", 100)
    with (
        StandIn(TEMPLATE, raw=(200, {}, b'"' + b"x" * 200 + b'"')) as server,
        pytest.raises(SourceError, match="longer than 100 bytes"),
    ):
        JsonClient(server.url, 5).ask("GET", "/props", None)


class _Slow:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def request(self, *_: Any) -> None:
        raise TimeoutError

    def close(self) -> None:
        pass

"""What protects a server and what its operator sees: limits, hosts, types, errors, metrics, logs, a clean end."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import turnwise
from served import QUIET, client_of, listening, make_service, post, start_command
from timing import assert_quick
from turnwise.errors import MessageError
from turnwise.serve.app import Gatekeeper, Server
from turnwise.serve.bodies import RequestError, is_deeper, parse_body, read_fields
from turnwise.serve.operations import JsonLog
from turnwise.serve.request_types import PassedSampling
from turnwise.serve.service import Service
from turnwise.serve.settings import LOOPBACK
from turnwise.tokens.tokenizers.deferred import DeferredBackend

pytestmark = QUIET

RENDER = "/v1/chat/completions/render"
HI = [{"role": "user", "content": "Hi"}]
JSON_HEADERS = {"content-type": "application/json"}
ENDLESS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{{ a * b }}{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    limits: Any = {"max_body": 200_000, "max_messages": 50, "max_tools": 4}
    hosts = ("testserver", *LOOPBACK)
    service = make_service(request_templates=True, allowed_hosts=hosts, **limits)
    with client_of(service) as client:
        yield client


def refuse(client: TestClient, body: Any, status: int = 422, path: str = RENDER) -> dict[str, Any]:
    """Send a request that is refused; the error has OpenAI's shape and one sentence."""
    error: dict[str, Any] = post(client, path, body, status)["error"]
    assert set(error) == {"message", "type", "param", "code", "request_id"}
    assert error["code"] == status and error["message"] and len(error["message"]) <= 1100
    assert "Traceback" not in error["message"]
    return error


BAD = [
    ([], None),
    ({}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": ["Hi"]}, "messages[0]"),
    ({"messages": [{"role": "assistant", "tool_calls": 5}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": ["x"]}]}, "messages[0].tool_calls[0]"),
    ({"messages": HI * 51}, "messages"),
    ({"messages": HI, "tools": [{}] * 5}, "tools"),
    ({"messages": HI, "tools": {}}, "tools"),
    ({"messages": HI, "n": 10**6}, "n"),
    ({"messages": HI, "n": True}, "n"),
    ({"messages": HI, "temperature": "warm"}, "temperature"),
    ({"messages": HI, "top_p": 2}, "top_p"),
    ({"messages": HI, "stop": [1]}, "stop[0]"),
    ({"messages": HI, "stop_token_ids": [-1]}, "stop_token_ids"),
    ({"messages": HI, "stop_token_ids": [2**31]}, "stop_token_ids"),
    ({"messages": HI, "allowed_token_ids": [2**31]}, "allowed_token_ids"),
    ({"messages": HI, "seed": 10**30}, "seed"),
    ({"messages": HI, "logit_bias": {"²": 1}}, "logit_bias"),
    ({"messages": HI, "logit_bias": {"7" * 5000: 1}}, "logit_bias"),
    ({"messages": HI, "logit_bias": {str(2**31): 1}}, "logit_bias"),
    ({"messages": HI, "logit_bias": {"7": None}}, "logit_bias.7"),
    ({"messages": HI, "logit_bias": {"7": 10**400}}, "logit_bias.7"),
    ({"messages": HI, "tool_choice": "required"}, "tool_choice"),
    ({"messages": HI, "tool_choice": "maybe"}, "tool_choice"),
    ({"messages": HI, "chat_template_kwargs": {"trust": 1}}, "chat_template_kwargs"),
    ({"messages": HI, "chat_template_kwargs": {"tokenizer": "/etc"}}, "chat_template_kwargs"),
    ({"messages": HI, "chat_template_kwargs": []}, "chat_template_kwargs"),
    ({"messages": HI, "chat_template_kwargs": {"bos_token": "<|im_end|>"}}, "chat_template_kwargs"),
    ({"messages": HI, "chat_template_kwargs": {"eos_token": ""}}, "chat_template_kwargs"),
    ({"messages": HI, "add_generation_prompt": 1}, "add_generation_prompt"),
    (
        {"messages": HI, "continue_final_message": True, "add_generation_prompt": True},
        "continue_final_message",
    ),
    ({"messages": HI, "truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
    ({"messages": HI, "response_format": {"type": "xml"}}, "response_format.type"),
    ({"messages": HI, "max_tokens": 0}, "max_tokens"),
    ({"messages": HI, "return_token_offsets": "yes"}, "return_token_offsets"),
    ({"messages": [{"role": "user", "content": "a\ud800"}]}, "messages[0].content"),
]


@pytest.mark.parametrize(("body", "param"), BAD, ids=lambda value: str(value)[:40])
def test_bad_requests_name_their_field(client: TestClient, body: Any, param: str | None) -> None:
    assert refuse(client, body)["param"] == param


def test_refusals_are_quick(client: TestClient) -> None:
    headers = {"content-type": "application/json"}
    for body, _ in BAD:
        data = json.dumps(body)
        assert_quick(lambda data=data: client.post(RENDER, content=data, headers=headers), 0.05)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "not JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"repetition_penalty": 1e400}', "'1e400' is too large"),
        (b'{"vllm_xargs": {"a": [-1e400]}}', "'-1e400' is too large"),
        (b"\xff\xfe{}", "not"),
        (b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}", "nested"),
        (b'{"messages": ' + b"[" * 100 + b"]" * 100 + b"}", "nested"),
        (b'{"n": ' + b"9" * 5000 + b"}", "digits"),
        (b"null", "object"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_bodies_that_are_no_json_objects(client: TestClient, data: bytes, words: str) -> None:
    answer = client.post(RENDER, content=data, headers={"content-type": "application/json"})
    assert answer.status_code == 422 and words in answer.json()["error"]["message"]


def test_depth_is_counted_in_containers() -> None:
    assert not is_deeper([[1, 2]], 2) and is_deeper([[[1]]], 2) and not is_deeper(5, 0)
    with pytest.raises(RequestError):
        parse_body(b"[" * 70 + b"]" * 70, 64)
    with pytest.raises(MessageError, match=r"a\.top_p: a number is needed, not 'x'"):
        read_fields(PassedSampling, {"top_p": "x"}, path="a")


def test_large_bodies_are_refused_unread(client: TestClient) -> None:
    content = json.dumps({"messages": [{"role": "user", "content": "x" * 300_000}]})
    answer = client.post(RENDER, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 413 and "200,000 bytes" in answer.json()["error"]["message"]


def test_only_json_is_taken(client: TestClient) -> None:
    """A form of another page could send text, but not JSON."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post(RENDER, content=b"{}", headers={"content-type": kind})
        assert answer.status_code == 415


def test_other_hosts_are_not_answered(client: TestClient) -> None:
    others = ("evil.example", "evil.example:8400", "testserver.evil.example", "[::2]", "")
    for host in (*others, "[::1]evil", "localhost]", "localhost:80evil", "localhost:80:80"):
        assert client.get("/v1/models", headers={"host": host}).status_code == 421
        assert client.get("/healthz", headers={"host": host}).status_code == 200
    for host in ("LOCALHOST:80", "localhost", "[::1]", "[::1]:8400"):
        assert client.get("/v1/models", headers={"host": host}).status_code == 200


def test_pages_of_others_may_not_read_answers(client: TestClient) -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    for answer in (client.options(RENDER, headers=headers), client.get("/v1/models")):
        assert not [name for name in answer.headers if name.startswith("access-control")]
    with client_of(make_service(cors_origins=("https://mine.example",))) as open_client:
        headers["origin"] = "https://mine.example"
        headers["access-control-request-headers"] = "content-type, x-stainless-os"
        allowed = open_client.options(RENDER, headers=headers)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://mine.example"
        assert "x-stainless-os" in allowed.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in allowed.headers
        headers["origin"] = "https://evil.example"
        assert open_client.options(RENDER, headers=headers).status_code == 400


def test_headers_of_every_answer(client: TestClient) -> None:
    for path in ("/healthz", "/nowhere", "/v1/models"):
        answer = client.get(path, headers={"x-request-id": "mine-1"})
        assert answer.headers["x-request-id"] == "mine-1"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    odd = client.get("/healthz", headers={"x-request-id": "a b\tc"}).headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", odd)


def test_unknown_paths_methods_and_models(client: TestClient) -> None:
    assert client.get("/nowhere").json()["error"]["code"] == 404
    refused = client.post("/v1/chat/completions", json={"messages": HI})
    assert refused.status_code == 404 and "--upstream" in refused.json()["error"]["message"]
    assert client.get(RENDER).json()["error"]["code"] == 405
    error = refuse(client, {"model": "qwen4", "messages": HI}, 404)
    assert "'qwen3'" in error["message"] and error["param"] == "model"


@pytest.mark.parametrize("name", ["../etc/passwd", "%2e%2e/x", "..\\..\\x", "api/../../x", "\x00"])
def test_paths_are_rows_of_a_table(client: TestClient, name: str) -> None:
    assert client.get(f"/{name}".replace("\x00", "%00")).status_code == 404
    refuse(client, {"model": name, "messages": HI}, 404)


def test_nothing_is_fetched(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", None)
    monkeypatch.setattr(socket, "getaddrinfo", None)
    part = {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest"}}
    chat = [{"role": "user", "content": [{"type": "text", "text": "See"}, part]}]
    answer = post(client, RENDER, {"messages": chat, "return_prompt_text": True})
    assert "169.254" not in answer["prompt_text"]


# -- untrusted templates


def test_a_template_of_a_request_runs_in_a_worker(client: TestClient) -> None:
    text = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    body = {"messages": HI, "chat_template": text, "return_prompt_text": True}
    assert post(client, RENDER, body)["prompt_text"] == "[Hi]"
    assert post(client, "/apply-template", body)["prompt"] == "[Hi]"
    for source in (
        ENDLESS,
        "{{ ''.__class__ }}",
        "{% for %}",
        "{{ raise_exception('no\x1b[2J') }}",
    ):
        error = refuse(client, {"messages": HI, "chat_template": source})
        assert "\x1b" not in error["message"] and "with_limits" not in error["message"]
    assert post(client, RENDER, body)["prompt_text"] == "[Hi]"


def test_templates_of_requests_can_be_forbidden() -> None:
    with client_of(make_service(request_templates=False)) as client:
        error = refuse(client, {"messages": HI, "chat_template": "x"})
        assert error["param"] == "chat_template"


def test_calls_of_the_playground_run_in_workers() -> None:
    with client_of(make_service(playground=True, playground_seconds=1.0)) as client:
        names = [entry["name"] for entry in client.get("/api/entries").json()["entries"]]
        assert "qwen3" in names
        body = {"template": "qwen3", "messages": HI, "tokenizer": "qwen3"}
        assert post(client, "/api/encode", body)["text"].startswith("<|im_start|>user")
        pasted = {"template": {"source": ENDLESS}, "messages": HI}
        assert post(client, "/api/render", pasted, 422)["error"]["type"] == "TemplateLimitError"
        slow = {"template": "qwen3", "other": "llama-3.1"}
        assert post(client, "/api/diff", slow)["equal"] is False
        assert client.post("/api/nothing", json={}).status_code == 404
    with client_of(make_service(playground=False)) as client:
        assert client.get("/api/entries").status_code == 404


def test_calls_of_the_playground_that_fail_have_a_status() -> None:
    with client_of(
        make_service(playground=True, playground_seconds=0.5, max_body=20_000)
    ) as client:
        broken = {"template": {"source": "{% for %}"}, "messages": HI}
        error = post(client, "/api/render", broken, 422)["error"]
        assert error["type"] == "TemplateSyntaxError" and "^" in error["text"]
        assert (
            post(client, "/api/render", {"template": "qwen3"}, 422)["error"]["param"] == "messages"
        )
        large = {"template": "qwen3", "messages": [{"role": "user", "content": "x" * 30_000}]}
        assert "larger" in post(client, "/api/render", large, 413)["error"]["message"]
    with client_of(
        make_service(playground=True, playground_seconds=0.01)
    ) as client:  # not enough for any check
        error = post(client, "/api/check", {"template": "qwen3"}, 504)["error"]
        assert "was ended" in error["message"] and error["code"] == 504


def test_static_files_are_served_by_table(monkeypatch: Any, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>turnwise")
    (tmp_path / "js").mkdir()
    (tmp_path / "js" / "app.js").write_text("1")
    (tmp_path.parent / "secret.txt").write_text("secret")
    monkeypatch.setattr("turnwise.serve.app.STATIC", tmp_path)
    with client_of(make_service(playground=True, workers=1)) as client:
        page = client.get("/")
        assert page.text == "<p>turnwise" and page.headers["content-type"].startswith("text/html")
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert "javascript" in client.get("/js/app.js").headers["content-type"]
        for path in ("/../secret.txt", "/js/../../secret.txt", "/%2e%2e/secret.txt", "/js/", "/js"):
            assert client.get(path).status_code == 404


# -- what an operator sees


def wait_until_ready(client: TestClient) -> None:
    end = time.monotonic() + 120
    while client.get("/readyz").status_code != 200:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_server_is_ready_when_its_workers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    may_start = threading.Event()
    start_workers = Service.start_workers

    def start_later(service: Service) -> None:
        assert may_start.wait(60)
        start_workers(service)

    monkeypatch.setattr(Service, "start_workers", start_later)
    service = make_service(request_templates=True, playground=True, workers=1)
    with client_of(service) as client:
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        assert post(client, RENDER, {"messages": HI})["token_ids"]
        may_start.set()
        wait_until_ready(client)
        assert sorted(service._pools) == ["playground", "templates"]
        start = time.perf_counter()
        post(client, RENDER, {"messages": HI, "chat_template": "{{ messages[0].content }}"})
        assert time.perf_counter() - start < 2  # without waiting for a process to start


def test_a_warm_server_has_loaded_what_encodes_fast() -> None:
    """Else the first large text waits for it, and so does everybody else: loading holds the interpreter."""
    service = make_service()
    service.warm_up()
    (model,) = service.models
    assert not isinstance(model.tokenizer._encoder, DeferredBackend)


def test_a_server_without_workers_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(service: Service) -> None:
        raise turnwise.TurnwiseError("no processes here")

    monkeypatch.setattr(Service, "start_workers", fail)
    with client_of(make_service()) as client:
        wait_until_ready(client)


def test_roles_are_needed_and_unknown_ones_are_reported(client: TestClient) -> None:
    for message in (
        {"content": "Hi"},
        {"role": None, "content": "Hi"},
        {"role": 5, "content": "Hi"},
    ):
        error = refuse(client, {"messages": [*HI, message]})
        assert error["param"] == "messages[1].role"
    body = {"messages": [{"role": "wizard", "content": "Hi"}]}
    with client_of(make_service()) as telling:  # after the filters of this test
        assert "the role 'wizard'" in post(telling, RENDER, body)["warnings"][0]
        assert "warnings" not in post(telling, RENDER, {"messages": HI})


def test_health_models_metrics_and_description(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}
    wait_until_ready(client)
    (model,) = client.get("/v1/models").json()["data"]
    assert model["id"] == "qwen3"
    post(client, RENDER, {"messages": HI})
    text = client.get("/metrics").text
    for line in text.splitlines():
        assert re.fullmatch(r"# TYPE \w+ \w+|\w+(\{[^{}]*\})? [0-9.e+-]+", line), line
    assert f'turnwise_requests_total{{path="{RENDER}",status="200"}}' in text
    description = client.get("/openapi.json").json()
    assert description["openapi"].startswith("3.1")
    for path, operations in description["paths"].items():
        (method,) = operations
        answer = client.request(method, path, json={} if method == "post" else None)
        assert answer.status_code in (200, 400, 422), path


def test_the_log_has_one_line_for_each_request_and_no_content() -> None:
    stream = io.StringIO()
    service = make_service()
    with TestClient(Server(service, JsonLog(stream)).application()) as client:
        wait_until_ready(client)
        secret = [{"role": "user", "content": "the secret word"}]
        post(client, RENDER, {"messages": secret})
        client.get("/a/path/with/secret")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    lines = [line for line in lines if line.get("path") != "/readyz"]
    assert [line["event"] for line in lines] == ["ready", "request", "request", "stopped"]
    assert lines[1]["path"] == RENDER and lines[1]["status"] == 200 and lines[1]["ms"] > 0
    assert "secret" not in stream.getvalue()


def test_a_defect_is_reported_without_its_innards(monkeypatch: pytest.MonkeyPatch) -> None:
    service, stream = make_service(), io.StringIO()
    monkeypatch.setattr(service.renderer, "encode", lambda *_: {}["secret"])
    app = Server(service, JsonLog(stream)).application()
    with TestClient(app, raise_server_exceptions=False) as client:
        error = refuse(client, {"messages": HI}, 500)
        assert "secret" not in error["message"] and error["request_id"]
    log = stream.getvalue()
    assert "KeyError at test_operation.py:" in log and "secret" not in log


def test_too_many_requests_are_shed() -> None:
    service = make_service(threads=1, max_waiting=0)
    with client_of(service) as client:
        started, go = threading.Event(), threading.Event()
        encode = service.renderer.encode

        def wait(*arguments: Any) -> Any:
            started.set()
            go.wait(10)
            return encode(*arguments)

        service.renderer.encode = wait  # type: ignore[method-assign]
        thread = threading.Thread(target=post, args=(client, RENDER, {"messages": HI}))
        thread.start()
        started.wait(10)
        answer = client.post(RENDER, json={"messages": HI})
        assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
        assert client.get("/healthz").status_code == 200
        go.set()
        thread.join()


# -- on a real port


def test_on_a_port_large_headers_and_bodies_get_an_answer() -> None:
    with listening(make_service()) as url:
        host, port = url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("GET", "/healthz", headers={"x-long": "a" * 40_000})
        assert connection.getresponse().status in (400, 431)
        connection.close()
        body = json.dumps({"messages": [{"role": "user", "content": "x" * (10 << 20)}]})
        for _ in range(3):  # the answer arrives, and the connection is not reset
            connection = http.client.HTTPConnection(host, int(port), timeout=20)
            connection.request("POST", RENDER, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 413 and b"8,388,608" in answer.read()
            connection.close()


def test_clients_that_do_not_finish_their_request_are_left(monkeypatch: Any) -> None:
    monkeypatch.setattr("turnwise.serve.running.ImpatientProtocol.head_seconds", 0.4)
    with listening(make_service(read_seconds=0.4)) as url:
        host, port = url.removeprefix("http://").split(":")
        head = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        for sent, status in (
            (b"", b""),
            (b"GET /healthz HT", b""),
            (head + b"content-length: 50\r\n\r\n{", b"HTTP/1.1 408"),
        ):
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(sent)
                start = time.perf_counter()
                answer = b""
                while chunk := connection.recv(65536):
                    answer += chunk
                    if status == b"HTTP/1.1 408":
                        break
                assert answer.startswith(status) and time.perf_counter() - start < 5
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        for _ in range(3):  # a client that is only idle between requests is not
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            time.sleep(0.6)
        connection.sock.sendall(b"GET /hea")  # but one that begins another is
        assert connection.sock.recv(1) == b""
        connection.close()


def test_a_server_that_stops_says_so_to_who_is_waiting(capfd: Any) -> None:
    with listening(make_service(total_seconds=1, read_seconds=60)) as url:
        host, port = url.removeprefix("http://").split(":")
        connection = socket.create_connection((host, int(port)), timeout=30)
        head = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        connection.sendall(head + b"content-length: 50\r\nexpect: 100-continue\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")
    with connection, connection.makefile("rb") as stream:
        answer = stream.read()
    assert answer.startswith(b"HTTP/1.1 503") and b"x-request-id" in answer
    assert b"the server is stopping: send it again" in answer
    assert "Traceback" not in capfd.readouterr().err


def test_a_stream_that_a_stopping_server_cuts_ends_with_an_error() -> None:
    sent: list[Any] = []

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        kind = (b"content-type", b"text/event-stream; charset=utf-8")
        await send({"type": "http.response.start", "status": 200, "headers": [kind]})
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    async def cut() -> None:
        scope = {"type": "http", "method": "POST", "path": "/healthz", "headers": []}
        server = Server(make_service(), JsonLog(io.StringIO()))
        task = asyncio.create_task(Gatekeeper(stream, server)(scope, None, send))  # type: ignore[arg-type]
        while not sent:
            await asyncio.sleep(0)
        task.cancel()
        await task

    asyncio.run(cut())
    event = json.loads(sent[-1]["body"].removeprefix(b"data: "))
    assert event["error"]["code"] == 503 and not sent[-1]["more_body"]


def test_a_server_that_is_interrupted_shuts_down_in_order() -> None:
    coming: list[Any] = [{"type": "lifespan.startup"}]
    sent: list[Any] = []

    async def receive() -> Any:
        if not coming:
            await asyncio.sleep(60)
        return coming.pop()

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def interrupt() -> None:
        app = Server(make_service(), JsonLog(io.StringIO())).application()
        task = asyncio.create_task(app({"type": "lifespan", "state": {}}, receive, send))
        while not sent:
            await asyncio.sleep(0.01)
        task.cancel()
        await task

    asyncio.run(interrupt())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.once
def test_the_command_serves_and_stops() -> None:
    process = start_command("chatml")
    assert process.stderr is not None
    try:
        url = re.search(r"http://127.0.0.1:(\d+)", process.stderr.readline())
        assert url is not None
        assert "has no tokenizer" in process.stderr.readline()
        assert json.loads(process.stderr.readline())["event"] == "ready"
        connection = http.client.HTTPConnection("127.0.0.1", int(url[1]), timeout=20)
        connection.request("GET", "/readyz")
        assert connection.getresponse().read()
        seconds = []
        for _ in range(
            10
        ):  # small answers are sent at once, not when the client has confirmed the one before
            start = time.perf_counter()
            connection.request("POST", RENDER, json.dumps({"messages": HI}), JSON_HEADERS)
            assert connection.getresponse().read()
            seconds.append(time.perf_counter() - start)
        assert min(seconds) < 0.03
        connection.close()
        process.terminate()
        rest = process.stderr.read()
        assert process.wait(30) in (0, -15) and '"stopped"' in rest
    finally:
        process.kill()
        process.wait()
        process.stderr.close()

"""`turnwise chat` against a scripted engine on loopback: streams, history, calls, and nothing raw for the terminal."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import cli_runner
import turnwise
from turnwise.cli.serve import _choose_hosts


@contextmanager
def engine(*replies: str, status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server of completions that gives these replies one after the other, and what it was asked."""
    asked: list[dict[str, Any]] = []

    class ChatHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append({"path": self.path, **body})
            self.send_response(status)
            self.end_headers()
            for sign in replies[len(asked) - 1]:
                choice = {"index": 0, "text": sign, "finish_reason": None}
                self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
            last = {"index": 0, "text": "", "finish_reason": "stop"}
            self.wfile.write(b"data: " + json.dumps({"choices": [last]}).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), ChatHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_conversation_in_the_terminal() -> None:
    with engine("<think>\nHm.\n</think>\n\nLow.", "Still low.") as (url, asked):
        result = cli_runner.run(
            "chat",
            "--base-url",
            url,
            "-t",
            "qwen3",
            "--system",
            "Be brief.",
            stdin="Tide?\n\nNow?\n",
        )
    assert result.exit_code == 0, result.output
    assert "Hm." in result.stdout and "Low." in result.stdout and "Still low." in result.stdout
    template = turnwise.load("qwen3")
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Tide?"},
        {"role": "assistant", "content": "Low.", "reasoning_content": "Hm."},
        {"role": "user", "content": "Now?"},
    ]
    prompts = [template.render(chat[:2], add_generation_prompt=True).text]
    prompts.append(template.render(chat, add_generation_prompt=True).text)
    assert [one["prompt"] for one in asked] == prompts
    assert asked[0]["path"] == "/v1/completions"


def test_a_reply_as_data() -> None:
    reply = '<tool_call>\n{"name": "tide", "arguments": {"port": "A"}}\n</tool_call>'
    with engine(reply) as (url, _):
        result = cli_runner.run(
            "chat", "--base-url", url, "-t", "qwen3", "--user", "Tide?", "--json"
        )
    message = json.loads(result.stdout)
    assert message["tool_calls"][0]["function"] == {"name": "tide", "arguments": '{"port": "A"}'}


def test_what_goes_wrong_is_one_sentence() -> None:
    nowhere = ("chat", "--base-url", "http://127.0.0.1:9", "-t", "chatml", "--user", "Hi")
    result = cli_runner.run(*nowhere)
    assert result.exit_code == 2
    assert "no answer from http://127.0.0.1:9: connection refused" in result.stderr
    result = cli_runner.run("chat", "--base-url", "localhost:9", "-t", "chatml", "--user", "Hi")
    assert result.exit_code == 2 and "does not begin with http://" in result.stderr
    with engine("Hi", status=404) as (url, _):
        result = cli_runner.run("chat", "--base-url", url, "-t", "chatml", "--user", "Hi")
    assert f"{url} answered 404" in result.stderr
    assert "it has no /v1/completions: is --upstream-kind right?" in result.stderr
    result = cli_runner.run(*nowhere, "--upstream-kind", "generate")
    assert result.exit_code == 2 and "--tokenizer" in result.stderr
    result = cli_runner.run(*nowhere, "--upstream-kind", "grpc")
    assert result.exit_code == 2
    result = cli_runner.run("serve", "chatml", "--upstream", "http://127.0.0.1:9")
    assert result.exit_code == 2 and "no tokenizer of its own" in result.stderr
    result = cli_runner.run("serve", "no-such-model-anywhere")
    assert result.exit_code == 2 and result.stderr.count("error:") == 1


def test_hosts_that_are_answered() -> None:
    usual = ("localhost", "127.0.0.1")
    assert _choose_hosts(usual, "0.0.0.0", []) == usual
    assert _choose_hosts(usual, "10.1.2.3", ["Pod.Example"]) == (*usual, "10.1.2.3", "pod.example")
    assert _choose_hosts(usual, "::2", ["*"]) == (*usual, "[::2]", "*")

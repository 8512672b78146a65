"""`turnwise parse`, and the table of replies in `turnwise explain`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import sources
import turnwise
from turnwise.cli import app
from turnwise.tokens.tokenizers import tokenizer

CALL = '<tool_call>\n{"name": "tide", "arguments": {"harbour": "Tromsø"}}\n</tool_call>'
REPLY = f"<think>\nLook.\n</think>\n\nOne moment.\n{CALL}<|im_end|>"
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]


def run(*arguments: str, stdin: str | bytes = "", code: int = 0) -> Result:
    found = CliRunner().invoke(app, arguments, input=stdin)
    assert found.exit_code == code, found.output
    return found


def data(*arguments: str, stdin: str = "") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("parse", *arguments, "--json", stdin=stdin).stdout)
    return found


def test_lines() -> None:
    lines = run("parse", "qwen3", REPLY).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["reasoning", "content", "call", "stop"]
    assert 'tide({"harbour": "Tromsø"})  complete' in lines[2] and "<|im_end|>" in lines[3]


def test_a_closer_that_nothing_opened() -> None:
    orphan = "Plan it.</think>Answer."
    whole = run("parse", "qwen3", orphan)
    assert [line.split()[0] for line in whole.stdout.splitlines()] == [
        "reasoning", "content", "unopened",
    ]  # fmt: skip
    assert "unopened: a closing marker" in whole.stderr
    streamed = run("parse", "qwen3", orphan, "--stream").stdout
    assert "</think>" in streamed and "reasoning" not in streamed
    assumed = run("parse", "qwen3", orphan, "--stream", "--reasoning", "assume").stdout
    assert "reasoning" in assumed and "</think>" not in assumed
    refused = run("parse", "qwen3", orphan, "--reasoning", "asume", code=2)
    assert "did you mean 'assume'" in refused.stderr.lower()


def test_json_is_what_parse_gives() -> None:
    message = turnwise.load("qwen3").parse(REPLY)
    found = data("qwen3", REPLY)
    assert found["message"] == dict(message) and found["stop"] == "<|im_end|>"
    assert [span["end"] for span in found["spans"]] == [span.end for span in message.spans]
    assert found["attempts"][0]["status"] == "complete" and CALL in found["attempts"][0]["raw"]


def test_a_text_a_file_or_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reply.txt").write_text(REPLY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert data("qwen3", "@reply.txt") == data("qwen3", "-", stdin=REPLY) == data("qwen3", REPLY)
    assert data("qwen3", "reply.txt")["message"]["content"] == "reply.txt"  # a model may say so
    assert "'absent.txt' cannot be read" in run("parse", "qwen3", "@absent.txt", code=2).stderr
    assert data("qwen3", "x" * 5000)["message"]["content"] == "x" * 5000


@pytest.mark.parametrize(
    ("reply", "noted"), [("nosuch.txt", True), ("a/no-such.json", True), ("Fine.", False)]
)
def test_the_name_of_a_file_is_noted(reply: str, noted: bool) -> None:
    result = run("parse", "qwen3", reply)
    assert reply in result.stdout
    assert ("a file is @" in result.stderr) == noted


def test_stdin_is_read_for_one_thing_only() -> None:
    assert "stdin" in run("parse", "-", "-", code=2).stderr


@pytest.mark.parametrize("given", [["-"], [REPLY]])
def test_stream(given: list[str]) -> None:
    """Events as they come; together they are the message."""
    stdin = REPLY if given == ["-"] else ""
    lines = run("parse", "qwen3", *given, "--stream", "--json", stdin=stdin).stdout.splitlines()
    *events, last = map(json.loads, lines)
    kinds = list(dict.fromkeys(event["kind"] for event in events))
    assert kinds == ["reasoning", "text", "start", "arguments", "end", "stop"]
    message = last["message"]
    assert (
        "".join(event["text"] for event in events if event["kind"] == "text") == message["content"]
    )
    assert (
        "".join(event["delta"].get("reasoning_content", "") for event in events)
        == message["reasoning_content"]
    )


def test_stream_for_people() -> None:
    text = run("parse", "qwen3", REPLY, "--stream").stdout
    assert "start 0     tide\n" in text and "reasoning   'Look.'\n" in text
    assert "\x1b" in run("parse", "qwen3", REPLY, "--stream", "--color").stdout


def test_stream_does_not_wait_for_the_end() -> None:
    command = [
        sys.executable,
        "-c",
        "from turnwise.cli import main; main()",
        "parse",
        "chatml",
        "-",
        "--stream",
    ]
    path = {**os.environ, "PYTHONPATH": str(sources.PACKAGE.parent)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=path
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"first ")
        process.stdin.flush()
        assert b"first" in process.stdout.readline()  # while stdin is still open
        process.stdin.write("zweitens ü".encode())
        process.stdin.close()
        assert "ü" in process.stdout.read().decode()
    assert process.returncode == 0


def test_the_prompt_decides_where_a_reply_begins(tmp_path: Path) -> None:
    chat, tools = tmp_path / "chat.json", tmp_path / "tools.json"
    chat.write_text(json.dumps([{"role": "user", "content": "hi"}]), encoding="utf-8")
    tools.write_text(json.dumps(TOOLS), encoding="utf-8")
    reply = "I think.</think>So."
    opened = {"content": "So.", "reasoning_content": "I think."}
    for more in ([], ["--chat", str(chat)], ["--user", "hi", "--tools", str(tools)]):
        message = data("qwen3-thinking", reply, *more)["message"]
        assert {key: message[key] for key in opened} == opened
    # the question is made up where only options are given
    message = data("qwen3", "So.", "--option", "enable_thinking=false")["message"]
    assert message["content"] == "So." and "reasoning_content" not in message


def test_tools_are_known(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(
        json.dumps([{"type": "function", "function": {"name": "other"}}]), encoding="utf-8"
    )
    result = run("parse", "qwen3", CALL, "--tools", str(tools))
    assert "unknown" in result.stdout and "note: unknown" in result.stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "tools.json is not JSON"),
        ("5", r"tools.json: tools: tools are a list, not int"),
        (
            "[5]",
            r"tools.json: tools\[0\]: a tool is a JSON schema, a function or a pydantic model, not int",
        ),
        ('{"tools": [[]]}', r"tools.json: tools\[0\]: .*not list"),
        ('[{"a": NaN}]', r"tools.json: tools\[0\].a: nan is not a JSON number"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--user", "hi"]])
def test_what_is_wrong_with_tools_is_reported_of_their_file(
    tmp_path: Path, text: str, problem: str, more: list[str]
) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(text, encoding="utf-8")
    result = run("parse", "qwen3", CALL, "--tools", str(tools), *more, code=2)
    assert re.search(problem, result.stderr) and not result.stdout
    assert (
        "Tools are a JSON list"
        in run("parse", "qwen3", CALL, "--tools", str(tmp_path / "absent"), code=2).stderr
    )


@pytest.mark.parametrize(
    ("after", "noted"),
    [
        ("trailing", "8 characters after the stop"),
        ("!", "1 character after the stop"),
        ("\n<|im_end|>", "11 characters"),
        ("\n", ""),
        ("", ""),
    ],
)
@pytest.mark.parametrize("more", [[], ["--json"], ["--stream"]])
def test_what_stands_after_the_stop_is_noted(after: str, noted: str, more: list[str]) -> None:
    """White space is not: most texts end with a line."""
    result = run("parse", "qwen3", REPLY + after, *more)
    assert result.stderr.count("note: ") == bool(noted)
    assert noted in result.stderr and ("after the stop '<|im_end|>'" in result.stderr) == bool(
        noted
    )


def test_ids_after_the_stop_are_noted() -> None:
    known = tokenizer("turnwise")
    chat = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Ü"}]
    ids = turnwise.load("chatml").encode(chat, known).input_ids
    reply = ids[ids.index(known.encode("\n")[0]) + 1 :]
    found = run("parse", "chatml", json.dumps(reply), "-k", "turnwise")
    assert f"{len('|<|im_start|>user|Ü<|im_end|>|')} characters after the stop" in found.stderr


def test_ids() -> None:
    known = tokenizer("turnwise")
    ids = (
        turnwise.load("chatml")
        .encode([{"role": "assistant", "content": "Yes <|im_end|>"}], known)
        .input_ids
    )
    reply = ids[ids.index(known.encode("\n")[0]) + 1 :]
    found = data("chatml", json.dumps(reply), "-k", "turnwise")
    assert found["message"]["content"] == "Yes <|im_end|>" and found["stop"] == "<|im_end|>"


REACT = '[[more]]\neach  = ["\\nAction: ", ""]\nparts = ["{name}", "\\nAction Input: ", "{arguments}"]\n'
ACTING = 'I look it up.\nAction: tide\nAction Input: {"day": 3}<|im_end|>'


@pytest.mark.parametrize(
    "text", [REACT, 'name = "mine"\n' + REACT.replace("[[more]]", "[[replies.more]]")]
)
def test_what_a_file_declares(tmp_path: Path, text: str) -> None:
    """The words of an entry, in their table or by themselves; from a file or from stdin."""
    file = tmp_path / "react.toml"
    file.write_text(text, encoding="utf-8")
    for place, stdin in ((str(file), ""), ("-", text)):
        message = data("chatml", ACTING, "--declared", place, stdin=stdin)["message"]
        assert message["content"] == "I look it up."
        assert message["tool_calls"][0]["function"] == {"name": "tide", "arguments": '{"day": 3}'}
    assert "tool_calls" not in data("chatml", ACTING)["message"]
    lines = run("parse", "chatml", ACTING, "--declared", str(file), "--stream").stdout
    assert "start 0     tide\n" in lines


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("more = [", "is not TOML"),
        ("\xff", "is not UTF-8.*0xff"),
        ("", "declares nothing"),
        ("replies = 5", "replies is 5"),
        ("mroe = []", "unknown key 'mroe'.*Did you mean 'more'"),
        ("more = 5", "more must be a mapping, or a list of mappings, not 5"),
        ('[[more]]\neach = ["A", ""]', "has none of json, parts and raw"),
        ('[[more]]\neach = ["A"]\njson = {}', "two strings: the opening and the closing marker"),
        (
            '[[more]]\nparts = ["{nam}"]',
            r"parts\[0\] must be a text, or one of .*, not '{nam}'.*mean '{name}'",
        ),
        ('[[more]]\nparts = ["{arguments}"]', "must contain {name}"),
        ("[[more]]\njson = { arguments = 5 }", "json.arguments must be a string.*, not 5"),
        ('[[more]]\njson = { listed = "yes" }', "json.listed must be true or false, not 'yes'"),
        (
            '[[more]]\nparts = ["{name}"]\npairs = { values = "yaml" }',
            "pairs.values must be one of json, python, quoted, tags, not 'yaml'",
        ),
        (
            '[[more]]\nparts = ["{name}"]\npairs = { typed = { integer = 3 } }',
            "typed.integer must be two strings",
        ),
        ('reasoning = ["<a>", "</a>"]', "contradicts the template.*instead"),
        ('instead = "reasoning"', "instead must be a list of names, not 'reasoning'"),
        ('instead = ["reason"]', "not 'reason'.*Did you mean 'reasoning'"),
    ],
)
def test_a_declaration_that_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_bytes(text.encode("latin-1"))
    result = run("parse", "qwen3", "x", "--declared", str(file), code=2)
    assert "wrong.toml" in result.stderr and re.search(problem, result.stderr, re.DOTALL), (
        result.stderr
    )
    assert "Traceback" not in result.stderr and not result.stdout


def test_a_declaration_that_is_not_there() -> None:
    assert (
        "cannot be read: no such file"
        in run("parse", "qwen3", "x", "--declared", "nosuch.toml", code=2).stderr
    )
    assert "stdin" in run("parse", "qwen3", "-", "--declared", "-", code=2).stderr


def test_bad_replies_are_no_errors() -> None:
    result = run("parse", "qwen3", '<tool_call>\n{"name": "x", "arguments": {"a": ')
    assert "unterminated" in result.stderr
    assert 'call 0       unterminated:  x({"a": …' in result.stdout
    broken = run("parse", "qwen3", '<tool_call>\n{"name": "x", "arguments": {bad}}\n</tool_call>')
    assert "call 0       malformed:  x({bad})" in broken.stdout
    assert run("parse", "qwen3", "-", stdin=b"\xff\xfe<think>").exit_code == 0
    assert "\x07" not in run("parse", "chatml", "a\x07b").stdout


def test_explain_shows_where_each_marker_came_from() -> None:
    text = run("explain", "internlm2-tools").stdout
    assert "<|action_start|><|plugin|>" in text and "template 9:9" in text and "declared" in text
    facts = json.loads(run("explain", "qwen3", "--json").stdout)
    grammar = turnwise.load("qwen3").grammar
    assert [tuple(row.values()) for row in facts["replies"]] == list(grammar.rows())
    assert facts["unreached"] == list(grammar.unreached)


def test_explain_a_template_that_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_text("{{ raise_exception('never') }}", encoding="utf-8")
    assert "never" in run("explain", str(tmp_path / "t.jinja")).stdout

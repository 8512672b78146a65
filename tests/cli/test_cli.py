"""The commands: what they print, where, and with which exit code; and that nothing ends in a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sources
from cli_runner import bad, good, run
from turnwise.analysis.stops import MARKER
from turnwise.cli import output

TURNS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
PLAIN = TURNS + "{% if add_generation_prompt %}<|go|>{% endif %}"
HELLO = [{"role": "user", "content": "hello"}]
TOOLS = [{"type": "function", "function": {"name": "f"}}]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    put("t.jinja", PLAIN)
    put("chat.json", HELLO)
    return tmp_path


def put(name: str, value: Any) -> None:
    Path(name).write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


# render


def test_text_is_exact(here: Path) -> None:
    assert good("render", "t.jinja", "chat.json") == "<|user|>hello\n"
    assert good("render", "t.jinja", "chat.json", "-g") == "<|user|>hello\n<|go|>"
    assert good("render", here / "t.jinja", "--user", "a\x1b[31m é") == "<|user|>a\x1b[31m é\n"
    assert good("render", "chatml", "--user", "Hello!", "--system", "Be kind.") == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n"
    )


def test_stdin(here: Path) -> None:
    assert good("render", "-", "chat.json", stdin=PLAIN) == "<|user|>hello\n"
    assert (
        good("render", "-", "chat.json", stdin=json.dumps({"chat_template": PLAIN}))
        == "<|user|>hello\n"
    )
    assert good("render", "t.jinja", "-", stdin=json.dumps(HELLO)) == "<|user|>hello\n"
    assert (
        good("render", "t.jinja", "-", stdin=b"\xef\xbb\xbf" + json.dumps(HELLO).encode())
        == "<|user|>hello\n"
    )


def test_line_ends_are_kept(here: Path) -> None:
    chat = json.dumps([{"role": "user", "content": "a\r\nb"}])
    result = subprocess.run(
        [sys.executable, "-m", "turnwise", "render", "t.jinja", "-"],
        input=chat.encode(),
        capture_output=True,
        env=environment(),
    )
    assert (result.stdout, result.stderr, result.returncode) == (b"<|user|>a\r\nb\n", b"", 0)


def test_a_conversation_brings_its_arguments(here: Path) -> None:
    put(
        "t.jinja",
        "{{ messages[0].content }} {{ tools | length }} {{ documents | length }} {{ mood }} {{ more }}",
    )
    chat = {
        "messages": HELLO,
        "tools": TOOLS,
        "documents": [{"title": "t", "text": "x"}],
        "options": {"mood": "gay"},
    }
    put("chat.json", {**chat, "chat_template_kwargs": {"more": 1}})
    assert good("render", "t.jinja", "chat.json") == "hello 1 1 gay 1"
    assert (
        good("render", "t.jinja", "chat.json", "--option", "mood=sad", "--option", "more=[1]")
        == "hello 1 1 sad [1]"
    )


def test_a_conversation_brings_its_flags(here: Path) -> None:
    put("chat.json", {"messages": HELLO, "add_generation_prompt": True})
    assert good("render", "t.jinja", "chat.json").endswith("<|go|>")
    put(
        "chat.json",
        {
            "messages": [*HELLO, {"role": "assistant", "content": "Yes"}],
            "continue_final_message": True,
        },
    )
    assert good("render", "t.jinja", "chat.json").endswith("Yes")


@pytest.mark.parametrize("value", [TOOLS, {"tools": TOOLS}])
def test_tools(here: Path, value: Any) -> None:
    put("t.jinja", "{{ tools[0].function.name }}")
    put("tools.json", value)
    assert good("render", "t.jinja", "chat.json", "--tools", "tools.json") == "f"
    assert good("render", "t.jinja", "chat.json", "--tools", "-", stdin=json.dumps(value)) == "f"


def test_continue(here: Path) -> None:
    put("chat.json", [*HELLO, {"role": "assistant", "content": "Well,"}])
    assert (
        good("render", "t.jinja", "chat.json", "--continue") == "<|user|>hello\n<|assistant|>Well,"
    )


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("true", "True"),
        ("1.5", "1.5"),
        ('"x"', "x"),
        ("plain words", "plain words"),
        ("", ""),
        ("a=b", "a=b"),
        ("<s>", "<s>"),
    ],
)
def test_options(here: Path, given: str, printed: str) -> None:
    put("t.jinja", "{{ thing }}")
    assert good("render", "t.jinja", "chat.json", "--option", f"thing={given}") == printed


def test_now(here: Path) -> None:
    put("t.jinja", "{{ strftime_now('%d %b %Y') }}")
    assert good("render", "t.jinja", "chat.json", "--now", "2024-02-29T12:00") == "29 Feb 2024"
    assert len(good("render", "t.jinja", "chat.json")) == len("29 Feb 2024")


def test_lines(here: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": word}]} for word in ("one", "two", "three")]
    put("chat.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    result = run("render", "t.jinja", "chat.jsonl")
    assert (
        result.stdout == "<|user|>one\n" and "3 conversations; this is the first" in result.stderr
    )
    assert good("render", "t.jinja", "chat.jsonl", "--line", "3") == "<|user|>three\n"
    assert "no conversation in line 9" in bad("render", "t.jinja", "chat.jsonl", "--line", "9")


def test_what_is_not_used_is_reported(here: Path) -> None:
    put("chat.json", {"messages": HELLO, "id": 5, "tags": []})
    result = run("render", "t.jinja", "chat.json")
    assert result.stdout == "<|user|>hello\n" and "also has id, tags: not used" in result.stderr


SHAPED: dict[str, Any] = {
    "sharegpt": {"conversations": [{"from": "human", "value": "hello"}]},
    "alpaca": {"instruction": "hello", "input": ""},
    "xtuner": {"conversation": [{"input": "hello"}]},
    "prompt": {"prompt": "hello"},
    "fastchat": [["USER", "hello"]],
    "paddlenlp": {"src": ["hello"], "tgt": []},
}


@pytest.mark.parametrize("shape", SHAPED)
def test_data_of_other_shapes(here: Path, shape: str) -> None:
    put("chat.json", SHAPED[shape])
    result = run("render", "t.jinja", "chat.json")
    assert result.stdout == "<|user|>hello\n" and f"read as {shape} data" in result.stderr


def test_the_shape_can_be_given(here: Path) -> None:
    """Pairs of texts are rounds, or turns with a name; the flag decides, and then nothing is reported."""
    put("chat.json", [["user", "hello"]])
    assert good("render", "t.jinja", "chat.json") == "<|user|>hello\n"
    rounds = run("render", "t.jinja", "chat.json", "--shape", "paddlenlp")
    assert rounds.stdout == "<|user|>user\n<|assistant|>hello\n" and not rounds.stderr
    put("text.json", '"hello"')
    assert "holds 'hello'" in bad("render", "t.jinja", "text.json")
    assert good("render", "t.jinja", "text.json", "--shape", "paddlenlp").startswith(
        "<|user|>hello\n"
    )
    assert "chat.json: a row of sharegpt data is" in bad(
        "render", "t.jinja", "chat.json", "--shape", "sharegpt"
    )
    unknown = bad("render", "t.jinja", "chat.json", "--shape", "sharegtp")
    assert "--shape" in unknown and "Did you mean 'sharegpt'?" in unknown
    assert "there is no CHAT" in bad("render", "t.jinja", "--user", "x", "--shape", "openai")


def test_a_list_of_rows(here: Path) -> None:
    put("chat.json", [{"instruction": word, "output": "yes"} for word in ("one", "two")])
    result = run("render", "t.jinja", "chat.json")
    assert (
        result.stdout.startswith("<|user|>one\n")
        and "2 conversations; this is the first" in result.stderr
    )
    assert good("render", "t.jinja", "chat.json", "--line", "2").startswith("<|user|>two\n")
    assert "no conversation in line 3" in bad("render", "t.jinja", "chat.json", "--line", "3")


def test_a_wrong_row_is_reported_with_its_file(here: Path) -> None:
    put("chat.json", {"conversations": [{"from": "humn", "value": "x"}]})
    assert "chat.json: conversations[0].from: unknown role 'humn'" in bad(
        "render", "t.jinja", "chat.json"
    )


def test_named_templates(here: Path) -> None:
    named = [
        {"name": name, "template": f"{name} {{{{ 1 }}}}"} for name in ("default", "tool_use", "rag")
    ]
    put("tokenizer_config.json", {"chat_template": named})
    put("tools.json", TOOLS)
    assert good("render", ".", "chat.json") == "default 1"
    assert good("render", ".", "chat.json", "--tools", "tools.json") == "tool_use 1"
    assert good("render", ".", "chat.json", "--pick", "rag") == "rag 1"


def test_json(here: Path) -> None:
    put("chat.json", [{"role": "user", "content": "é<|x|>\u2028"}])
    data = json.loads(good("render", "t.jinja", "chat.json", "--json", "-g"))
    assert data["text"] == "<|user|>é<|x|>\u2028\n<|go|>"
    assert "".join(piece["text"] for piece in data["pieces"]) == data["text"]
    fields = {piece["origin"]["field"]: piece for piece in data["pieces"]}
    assert fields["messages[0].content"]["text"] == "é<|x|>\u2028"
    assert fields["messages[0].content"]["origin"]["path"] == ["messages", 0, "content"]
    last = data["pieces"][-1]
    assert last["origin"]["kind"] == "template" and last["origin"]["line"] == 2


def test_pieces(here: Path) -> None:
    put("chat.json", [{"role": "user", "content": "a\n\x1b[2Jb"}])
    lines = good("render", "t.jinja", "chat.json", "--pieces").splitlines()
    assert any("messages[0].content" in line and r"'a\n\x1b[2Jb'" in line for line in lines)
    assert any("template 1:" in line and "'<|'" in line for line in lines)


def test_colour(here: Path) -> None:
    painted = good("render", "t.jinja", "chat.json", "--color")
    assert "\x1b[" in painted and "hello" in painted
    assert "\x1b" not in good("render", "t.jinja", "chat.json", "--no-color")
    put("chat.json", [{"role": "user", "content": "\x1b[2J\x07"}])
    assert "\x1b[2J" not in good("render", "t.jinja", "chat.json", "--color")


def test_whitespace(here: Path) -> None:
    put("chat.json", [{"role": "user", "content": "a b\tc"}])
    shown = good("render", "t.jinja", "chat.json", "--whitespace")
    assert "a b\tc" not in shown and "\x1b" not in shown


# Errors

USAGE: dict[str, tuple[list[str], str]] = {
    "no template": (["render"], "Missing argument"),
    "no such command": (["frobnicate"], "No such command"),
    "no such flag": (["render", "t.jinja", "chat.json", "--frob"], "No such option"),
    "no conversation": (["render", "t.jinja"], "give a CHAT or --user"),
    "two conversations": (["render", "t.jinja", "chat.json", "--user", "x"], "one of the two"),
    "stdin twice": (["render", "-", "-"], "one argument only"),
    "stdin thrice": (["render", "t.jinja", "-", "--tools", "-"], "one argument only"),
    "absent template": (["render", "u.jinja", "chat.json"], "Did you mean 't.jinja'?"),
    "absent name": (["render", "qwenn2.5", "chat.json"], "Did you mean 'qwen2.5'?"),
    "absent chat": (["render", "t.jinja", "chut.json"], "no such file"),
    "words for a chat": (["render", "t.jinja", "Hello you"], "--user 'Hello you'"),
    "folder for a chat": (["render", "t.jinja", "."], "is a directory"),
    "absent tools": (["render", "t.jinja", "chat.json", "--tools", "tools.json"], "no such file"),
    "empty folder": (["render", "empty", "chat.json"], "holds no chat template"),
    "control characters": (["render", "a\x1b[31mb", "chat.json"], r"a\x1b[31mb"),
    "no such line": (["render", "t.jinja", "chat.json", "--line", "7"], "in line 7"),
    "odd option": (["render", "t.jinja", "chat.json", "--option", "x"], "key=value"),
    "odd key": (["render", "t.jinja", "chat.json", "--option", "a b=1"], "key=value"),
    "reserved key": (
        ["render", "t.jinja", "chat.json", "--option", "messages=[]"],
        "is not a variable of the template",
    ),
    "odd time": (["render", "t.jinja", "chat.json", "--now", "noon"], "is not a time"),
    "odd line": (["render", "t.jinja", "chat.json", "--line", "0"], "--line"),
    "no such pick": (["render", "t.jinja", "chat.json", "--pick", "rag"], "It has: default."),
    "second system": (
        ["render", "t.jinja", "system.json", "--system", "x"],
        "system message already",
    ),
    "explain absent": (["explain", "u.jinja"], "there is no"),
    "explain a chat": (["explain", "chat.json"], "holds a list"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage(here: Path, case: str) -> None:
    (here / "empty").mkdir()
    put("system.json", [{"role": "system", "content": "s"}])
    arguments, problem = USAGE[case]
    assert problem in bad(*arguments)


FAULTS: dict[str, tuple[str, str]] = {
    "empty file": ("", "chat.json is empty"),
    "broken": ('[{"role": }]', "line 1, column 11"),
    "cut": ('[{"role": "user"', "not JSON"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "broken line": ('[]\n{"messages": }', "line 2, column 14"),
    "a number": ("5", "holds 5"),
    "a text": ('"hello"', "holds 'hello'"),
    "null": ("null", "holds None"),
    "no messages": ('{"text": "x"}', "It has: text."),
    "nothing": ("{}", "It is empty."),
    "one message": ('{"role": "user", "content": "x"}', "single message"),
    "ShareGPT": ('{"conversations": []}', "ShareGPT"),
    "a template": ('{"chat_template": "x"}', "template comes first"),
    "odd options": ('{"messages": [], "options": 5}', "not a table of options"),
    "reserved option": ('{"messages": [], "options": {"now": 1}}', "which are not options"),
    "messages of a text": ('{"messages": "x"}', "messages"),
    "message of a text": ('["x"]', "messages[0]"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_of_the_conversation(here: Path, case: str) -> None:
    content, problem = FAULTS[case]
    put("chat.json", content)
    line = ["--line", "2"] if case == "broken line" else []
    message = bad("render", "t.jinja", "chat.json", *line)
    assert message.startswith("error: ") and problem in message


def test_encoding_of_the_conversation(here: Path) -> None:
    Path("chat.json").write_bytes(b'[{"role": "user", "content": "\xe9"}]')
    assert "byte 0xe9 at offset 30" in bad("render", "t.jinja", "chat.json")


def test_faults_of_the_template(here: Path) -> None:
    put("t.jinja", "{% for %}")
    assert "t.jinja:1" in bad("render", "t.jinja", "chat.json")
    put("t.jinja", "{{ raise_exception('No, \x1b[31m' ~ messages[0].content) }}")
    message = bad("render", "t.jinja", "chat.json")
    assert r"No, \x1b[31mhello" in message and "\x1b" not in message
    put("t.jinja", "{{ messages[0].content + 5 }}")
    assert "t.jinja:1" in bad("render", "t.jinja", "chat.json")
    put(
        "t.jinja", "{% for i in range(10**9) %}{% for j in range(10**9) %}x{% endfor %}{% endfor %}"
    )
    bad("render", "t.jinja", "chat.json")


def test_our_own_mistakes_are_no_tracebacks(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("oh\x07")

    monkeypatch.setattr("turnwise.cli.inputs.load_template", broken)
    message = bad("render", "t.jinja", "chat.json")
    assert r"turnwise itself failed (ZeroDivisionError: oh\x07, at test_cli.py" in message
    monkeypatch.setenv("TURNWISE_DEBUG", "1")
    assert "Traceback" in run("render", "t.jinja", "chat.json").stderr


# explain and demo


def test_explain(here: Path) -> None:
    put("t.jinja", "{{ bos_token }}{{ mood }}" + PLAIN)
    text = good("explain", "t.jinja")
    for word in ("messages", "add_generation_prompt", "mood", "bos_token", "<|user|>", "<|go|>"):
        assert word in text
    assert "with messages[*].role in it" in text
    assert good("explain", "-", stdin=PLAIN)


def test_explain_as_json(here: Path) -> None:
    put(
        "tokenizer_config.json",
        {"chat_template": "{{ bos_token }}" + PLAIN, "bos_token": "<s>", "pad_token": "<p>"},
    )
    facts = json.loads(good("explain", ".", "--json", "--program"))
    assert {"messages", "add_generation_prompt"} <= set(facts["reads"])
    assert facts["options"] == {"bos_token": "<s>"} and facts["unread"] == ["pad_token"]
    markers = {marker["text"]: marker for marker in facts["markers"]}
    assert markers["<|go|>"]["line"] == 2 and markers["<|user|>"]["fields"] == ["messages[*].role"]
    assert "<s>" in markers
    assert "def " in facts["program"]


def test_explain_a_template_that_refuses(here: Path) -> None:
    put("t.jinja", "{{ raise_exception('never') }}")
    assert "never" in good("explain", "t.jinja")


def test_explain_without_special_tokens(here: Path) -> None:
    """A file alone does not say what its bos_token is; what it writes beside it is still seen."""
    put("t.jinja", "{{ bos_token + '<|go|>' }}")
    assert "<|go|>" in good("explain", "t.jinja")


def test_explain_program(here: Path) -> None:
    assert "def " in good("explain", "qwen2.5", "--program")


@pytest.mark.parametrize(
    "marker",
    [
        "<|im_start|>",
        "<｜User｜>",
        "<｜begin▁of▁sentence｜>",
        "<s>",
        "</s>",
        "<start_of_turn>",
        "[INST]",
        "[/INST]",
        "<<SYS>>",
    ]
    + [
        "<</SYS>>",
        "[gMASK]",
        "[TOOL_CALLS]",
        "<|START_OF_TURN_TOKEN|>",
        "<tool_call>",
        "[AVAILABLE_TOOLS]",
    ],
)
def test_markers(marker: str) -> None:
    assert MARKER.findall(f"text {marker}user") == [marker]


@pytest.mark.parametrize("text", ["a < b > c", "[1, 2]", "[x]", "x[INDEX", "5 <| 6 |> 7", "< s >"])
def test_no_markers(text: str) -> None:
    assert not MARKER.findall(text)


def test_demo() -> None:
    """The whole circle, on about two screens."""
    text = good("demo")
    assert (
        "Let me look at the tide.\n<tool_call>" in text
        and "messages[2].tool_calls[0].function.name" in text
    )
    assert "⟨<|im_end|>⟩" in text.replace("⟩|⟨", "") and "⟦<|im_end|>⟧'" in text
    assert "The user wrote <|im_end|>, <|im_start|>: text here" in text
    assert "start 0     tide" in text and '"role": "assistant"' in text.splitlines()[-3]
    assert text.endswith("it follows the prompt letter for letter.\n")
    assert len(text.splitlines()) <= 85
    assert "\x1b[" in good("demo", "--color") and "\x1b" not in good("demo", "--no-color")


def test_help_and_version() -> None:
    for arguments in (["--help"], ["render", "-h"], ["explain", "--help"], ["demo", "--help"]):
        assert "Usage" in good(*arguments)
    assert good("--version").strip()
    assert run().exit_code == 2


# The process itself


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(sources.PACKAGE.parent), **more}


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("quiet", ["", "1"])
def test_on_a_terminal(here: Path, quiet: str) -> None:
    """Painted unless NO_COLOR objects; control characters of the conversation never arrive."""
    import pty

    put("chat.json", [{"role": "user", "content": "\x1b[2Jhello"}])
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-c",
        "from turnwise.cli import main; main()",
        "render",
        "t.jinja",
        "chat.json",
    ]
    done = subprocess.run(command, stdout=theirs, env=environment(NO_COLOR=quiet, TERM="xterm"))
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert done.returncode == 0 and "hello" in shown
    assert "\x1b[2J" not in shown and ("\x1b[" in shown) == (not quiet)


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes that break")
def test_a_reader_that_leaves(here: Path) -> None:
    put("chat.json", [{"role": "user", "content": "x" * 1_000_000}])
    command = f"{sys.executable} -c 'from turnwise.cli import main; main()' render t.jinja chat.json | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True, env=environment())
    assert (
        done.stdout == b"<|user|>xx"
        and b"Traceback" not in done.stderr
        and b"Error" not in done.stderr
    )


@pytest.mark.law(1)
@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes that break")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_output_that_cannot_be_written(here: Path, more: list[str]) -> None:
    command = [sys.executable, "-c", "from turnwise.cli import main; main()", "list", *more]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", output.UNREAD)
    process.stderr.close()
    closed = subprocess.run(f"{shlex.join(command)} >&- 2>&-", shell=True, env=environment())
    assert closed.returncode == 0
    with contextlib.suppress(FileNotFoundError), open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment())
        assert done.returncode == 2
        assert done.stderr.startswith(b"error: the output cannot be written: no space left")


def test_lone_surrogates_have_no_bytes(here: Path) -> None:
    put("chat.json", [{"role": "user", "content": "a\ud800b"}])
    assert "messages[0].content" in bad("render", "t.jinja", "chat.json")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file system that takes any bytes")
def test_file_names_that_are_not_text(here: Path) -> None:
    name = os.fsdecode(b"\xff\x1b.jinja")
    put(name, PLAIN)
    assert r"\udcff\x1b.jinja" in good("explain", name)
    assert json.loads(good("explain", name, "--json"))["name"] == name
    put(name, "{% for %}")
    assert r"\udcff\x1b.jinja" in bad("explain", name)


def test_colour_is_asked_or_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.use_colour(Terminal()) and not output.use_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not output.use_colour(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    before = output.colour_flag.set(True)
    assert output.use_colour(io.StringIO())
    output.colour_flag.reset(before)
    assert not output.use_colour(io.StringIO())


def test_a_long_list_is_one_line_of_json() -> None:
    value = {"ids": list(range(5000)), "text": "a\nb", "more": {"few": [1, 2]}, "none": None}
    text = output.format_json(value, 2)
    assert json.loads(text) == value and len(text.splitlines()) < 15
    assert output.format_json({"few": [1]}, 2) == json.dumps({"few": [1]}, indent=2)

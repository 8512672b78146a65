"""Encoders in model folders: run by consent only, and whatever they do, in a locked process."""

import os
import struct
import sys
from pathlib import Path

import pytest

import turnwise
from turnwise.errors import SourceError
from turnwise.isolation import lockdown
from turnwise.oracles import EncoderFile, find_oracle
from turnwise.registry.files import find_encoder_file

REQUEST = {"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": True}
POLITE = """
def encode_messages(messages, thinking_mode="chat", tools=None):
    return "".join(f"<{m['role']}>{m['content']}" for m in messages) + f"<{thinking_mode}>"
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's filter")


def write_encoder(folder: Path, body: str) -> Path:
    inner = folder / "encoding"
    inner.mkdir()
    file = inner / "encoding_mine.py"
    file.write_text(body, encoding="utf-8")
    return file


def test_an_encoder_never_runs_without_consent(tmp_path):
    mark = tmp_path / "ran"
    write_encoder(tmp_path, f"open({str(mark)!r}, 'w').close()\n{POLITE}")
    for consent in ({}, {"trust_encoder": False}, {"trust_encoder": "yes"}):
        with pytest.raises(SourceError, match="not run without consent"):
            find_oracle(tmp_path, **consent)
    assert not mark.exists()


@linux
def test_an_encoder_writes_the_prompt_of_a_request(tmp_path):
    file = write_encoder(tmp_path, POLITE)
    assert find_encoder_file(tmp_path) == file
    with EncoderFile(tmp_path, trust_encoder=True) as oracle:
        assert oracle.render(REQUEST).text == "<user>Hi<chat>"
        asked = {**REQUEST, "chat_template_kwargs": {"thinking": True}}
        assert oracle.render(asked).text == "<user>Hi<thinking>"
        assert oracle.version.startswith("sha256:")


HOSTILE = """
def encode_messages(messages):
    exec(messages[0]["content"], {"path": __file__})
    return "done"
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """An encoder that runs what the conversation holds; one process for all tests, which is replaced when it dies."""
    folder = tmp_path_factory.mktemp("hostile")
    file = write_encoder(folder, HOSTILE)
    with EncoderFile(file, trust_encoder=True, seconds=0.5, megabytes=256) as oracle:
        yield lambda code: oracle.render({"messages": [{"role": "user", "content": code}]})
    assert [path.name for path in folder.rglob("*")] == ["encoding", "encoding_mine.py"]


@linux
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("while True: pass", "the encoder was stopped"),  # processor time, or no answer
        ("import os; os.fork()", "PermissionError"),
        ("import subprocess; subprocess.run(['true'])", "PermissionError"),
        ("import socket; socket.socket()", "PermissionError"),
        ("open(path + '.new', 'w')", "PermissionError"),
        ("import os; os.unlink(path)", "PermissionError"),
        ("import os; os.kill(os.getppid(), 9)", "PermissionError"),
        ("import fcntl; fcntl.ioctl(2, 0x5412, b'x')", "PermissionError"),  # types into a terminal
        ("import fcntl, os; fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())", "PermissionError"),
        ("import threading; threading.Thread(target=print).start()", "RuntimeError"),
        ("x = b'x' * (10 << 30)", "memory"),
        ("import mmap; mmap.mmap(-1, 10 << 30)", "OSError"),
        ("import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1))", "Error"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import signal; signal.signal(27, lambda *a: None)\nwhile True: pass", "no answer"),
    ],
)
def test_a_hostile_encoder_is_contained_and_reported(hostile, code, reason):
    prompt = hostile(code)
    assert prompt.text is None
    assert reason in prompt.refusal


@linux
def test_an_encoder_opens_no_connection_even_through_c(hostile):
    code = "import ctypes; assert ctypes.CDLL(None).socket(2, 1, 0) == -1"
    assert hostile(code).text == "done"


def run_filter(code, architecture, number, flags=0):
    """Return what the kernel would do with a system call: a small interpreter of the filter's language."""
    instructions = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    fields = {lockdown.ARCHITECTURE: architecture, lockdown.NUMBER: number, lockdown.FLAGS: flags}
    at, value = 0, 0
    while True:
        kind, then, otherwise, given = instructions[at]
        at += 1
        if kind == lockdown.LOAD:
            value = fields[given]
        elif kind == lockdown.RETURN:
            return given == lockdown.ALLOW
        else:
            is_true = value == given if kind == lockdown.EQUAL else bool(value & given)
            at += then if is_true else otherwise


@pytest.mark.parametrize("processor", lockdown.ALLOWED)
def test_the_filter_allows_what_is_listed_and_nothing_else(processor):
    """Also that of processors which this machine has not."""
    calls = lockdown.ALLOWED[processor]
    code = lockdown.write_filter(calls)
    allowed = set(calls.numbers.values())
    assert len(allowed) == len(calls.numbers) and calls.seccomp not in allowed
    for number in range(1024):
        assert run_filter(code, calls.mark, number) == (number in allowed), number
        assert not run_filter(code, calls.mark, 0x40000000 | number)  # x32: another numbering
        assert not run_filter(code, 0x40000003, number)  # 32 bits
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_RDWR | os.O_CLOEXEC):
        assert not run_filter(code, calls.mark, calls.numbers["openat"], flags)
    assert run_filter(code, calls.mark, calls.numbers["openat"], os.O_CLOEXEC)


def test_a_processor_allows_what_the_other_does():
    """Newer processors lack the old calls without `at`; whatever else one has, the other has too."""
    names = {processor: set(calls.numbers) for processor, calls in lockdown.ALLOWED.items()}
    assert names["aarch64"] <= names["x86_64"]
    old = {"access", "lstat", "poll", "readlink", "stat"}
    assert names["x86_64"] - names["aarch64"] == old


def test_a_folder_with_an_encoder_says_so(tmp_path):
    write_encoder(tmp_path, POLITE)
    (tmp_path / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SourceError, match="no chat template") as caught:
        turnwise.load(tmp_path)
    assert "encoding/encoding_mine.py" in caught.value.hint
    assert "base model" not in caught.value.hint


def test_an_unknown_oracle_is_an_error_with_the_names():
    with pytest.raises(SourceError, match="no oracle") as caught:
        find_oracle("deepseek-v4.2")
    assert "deepseek-v4" in caught.value.hint

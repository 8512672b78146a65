"""Commands whose packages are not installed: help works, and a call says which extra has the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import turnwise
from turnwise.cli import COMMANDS
from turnwise.tokens.tokenizers.files import SHIPPED
from turnwise.tokens.tokenizers.selfcheck import TEXTS

PACKAGES = ("pyarrow", "zstandard", "httpx", "starlette", "uvicorn")
HIDE = """
import sys
from importlib.machinery import PathFinder

hidden = sys.argv.pop(1).split(",")
find = PathFinder.find_spec

def find_shown(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else find(name, path, target)

PathFinder.find_spec = find_shown
"""
CALL = "from turnwise.cli import main; main()"
CALLS = {
    "prepare": ("prepare", "a.jsonl", "-t", "chatml", "-k", "turnwise", "-o", "out"),
    "inspect": ("inspect", "out"),
    "serve": ("serve", "chatml"),
    "chat": ("chat", "--base-url", "http://127.0.0.1:9", "-t", "chatml", "--user", "Hi"),
}
NEEDS = {
    "prepare": ("pyarrow", "data"),
    "inspect": ("pyarrow", "data"),
    "serve": ("uvicorn", "serve"),
    "chat": ("httpx", "serve"),
}


def run_without(
    packages: tuple[str, ...], code: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """Run Python code in an interpreter in which these packages cannot be imported."""
    environment = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}
    command = [sys.executable, "-c", HIDE + code, ",".join(packages), *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_help_needs_no_extra() -> None:
    code = f"""
from click.testing import CliRunner
from turnwise.cli import app
for name in {list(COMMANDS)!r}:
    found = CliRunner().invoke(app, [name, "--help"])
    assert found.exit_code == 0 and "Example:" in found.stdout, (name, found.output)
"""
    found = run_without(PACKAGES, code)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("name", CALLS)
def test_missing_package(name: str) -> None:
    package, extra = NEEDS[name]
    found = run_without((package,), CALL, *CALLS[name], "--json")
    assert found.returncode == 2 and "Traceback" not in found.stderr
    assert json.loads(found.stdout)["error"] == {
        "type": "MissingPackage",
        "message": f"turnwise {name} needs the package {package}",
        "hint": f"pip install 'turnwise[{extra}]'",
    }


def test_chat_is_no_server() -> None:
    found = run_without(("uvicorn", "starlette", "pyarrow"), CALL, *CALLS["chat"], "--json")
    assert json.loads(found.stdout)["error"]["type"] == "UpstreamError"


def test_data_without_pyarrow() -> None:
    code = """
from turnwise.data import Recipe
from turnwise import data
try:
    data.prepare
except ImportError as error:
    print(error)
"""
    found = run_without(("pyarrow",), code)
    assert "turnwise.data.prepare needs pyarrow: pip install 'turnwise[data]'" in found.stdout


ENCODE = """
import json, sys
import turnwise
from turnwise.tokens.tokenizers import tokenizer
chats = json.loads(sys.argv[1])
own = tokenizer("turnwise")
print(json.dumps([own.backend, [turnwise.load("qwen3").encode(chat, own).input_ids for chat in chats]]))
"""


def test_the_built_in_vocabulary_needs_no_extra() -> None:
    chats = [[{"role": "user", "content": f"{text}<|im_end|>"}] for text in TEXTS if text.strip()]
    found = run_without(("tokenizers",), ENCODE, json.dumps(chats))
    backend, ids = json.loads(found.stdout)
    assert backend == "fastokens"
    assert ids == [turnwise.load("qwen3").encode(chat, "turnwise").input_ids for chat in chats]
    for words in (("demo",), ("render", "qwen3", "--user", "Hi"), ("check", "chatml")):
        assert run_without((*PACKAGES, "tokenizers"), CALL, *words).returncode in (0, 1)


def test_a_vocabulary_that_was_not_compared_needs_its_extra(tmp_path: Path) -> None:
    """Ids never depend on what is installed: fastokens alone is not trusted with a user's file."""
    file = tmp_path / "tokenizer.json"
    file.write_bytes((SHIPPED / "tokenizer.json").read_bytes())
    words = ("encode", "chatml", "--user", "Hi", "-k", str(file), "--json")
    found = run_without(("tokenizers",), CALL, *words)
    assert found.returncode == 2 and "Traceback" not in found.stderr
    error = json.loads(found.stdout)["error"]
    assert error["message"] == "this tokenizer needs the library tokenizers, which is not installed"
    assert error["hint"] == "pip install 'turnwise[tokenizers]'"

"""What users write is typed: the programs of tests/programs pass mypy and pyright, and run; misspelt values fail.

`make types` checks the programs with mypy too: no expression in them may be `Any` (pyproject.toml). pyright, which
downloads itself, is asked where it is installed: `make integrations-pyright`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import turnwise

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "tests" / "programs").glob("*.py"))
# Each line is wrong, or shows its type.
CALLS = """
import turnwise
from turnwise.data import Recipe
template = turnwise.load("chatml")
message = template.parse("Aye.")
conversation: list[turnwise.ChatMessage] = []
"""
MISSPELT = {
    'template.encode([], "turnwise", train_on="lst")': "lst",
    'template.encode([], "turnwise", overflow="trim")': "trim",
    'template.encode([], "turnwise", late_system="back")': "back",
    'template.encode([], "turnwise", trust={"system": "al"})': "al|trust",
    'template.examples([], "turnwise", late_system="back")': "back",
    'template.encode_batch([], "turnwise", errors="ignore")': "ignore",
    'template.session("turnwise").extend([], history="keeps")': "keeps",
    'template.session("turnwise", late_system="back")': "back",
    'template.render([], late_system="back")': "back",
    'template.parse("", cut_calls="dropp")': "dropp",
    'template.parser(strip="al")': "al",
    'template.parser(calls_in_reasoning="reed")': "reed",
    'template.parser(undeclared_tools="refuze")': "refuze",
    'template.parser(reasoning="on")': "on",
    'template.grammar.to_response_template(profile="vllm")': "vllm",
    'template.render([]).spans(kind="fields")': "fields",
    'turnwise.release(".", profile="vllm")': "vllm",
    'Recipe(("a",), "chatml", "turnwise", overlong="cut")': "cut",
    'Recipe(("a",), "chatml", "turnwise", packing="best")': "best",
    'Recipe(("a",), "chatml", "turnwise", train_on="lst")': "lst",
    'conversation.append({"role": "asistant", "content": "Aye."})': "UserMessage|ChatMessage",
    'conversation.append({"role": "user", "contents": "Aye."})': "UserMessage|ChatMessage",
    'message["tool_calls"][0]["function"]["argument"]': "argument|TypedDict",
}
REVEALED = {
    'message["content"]': "str | None",
    'message.get("content")': "str | None",
    'message.get("reasoning_content")': "str | None",
    'message["tool_calls"][0]["function"]["arguments"]': "str",
    'message["role"]': "Literal['assistant']",
    "template.stops()[0]": "str",
    'template.encode([], "turnwise").labels': "list[int]",
    "template.render([]).changes[0].path": "str",
    'template.parser().feed("")[0].delta().get("content")': "str | None",
    "template.render([]).pieces[0].origin.kind": "Literal['template', 'field', 'computed']",
}


def write_calls(folder: Path) -> Path:
    lines = [*MISSPELT, *(f"reveal_type({one})" for one in REVEALED)]
    file = folder / "misspelt_calls.py"
    file.write_text(CALLS + "\n".join(lines) + "\n", encoding="utf-8")
    return file


def check_lines(found: str) -> None:
    """Compare the output of a type checker, which names lines, with what each line is wrong about, or reveals."""
    first = CALLS.count("\n") + 1
    reported: dict[int, str] = {}
    for number, text in re.findall(r"misspelt_calls\.py:(\d+)(?::\d+)?\b(.*(?:\n    .*)*)", found):
        reported[int(number)] = reported.get(int(number), "") + text
    for number, (call, part) in enumerate(MISSPELT.items(), first):
        assert re.search(part, reported.get(number, "")), (call, reported.get(number))
    for number, (call, kind) in enumerate(REVEALED.items(), first + len(MISSPELT)):
        shown = reported.get(number, "").replace("'] | Literal['", "', '")
        assert f'"{kind}"' in shown, (call, shown)


def run_mypy(*files: Path) -> str:
    command = [sys.executable, "-m", "mypy", *map(str, files)]
    path = os.pathsep.join(map(str, (ROOT / "src",)))
    environment = {**os.environ, "MYPYPATH": path, "PYTHONPATH": path}
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    return found.stdout + found.stderr


@pytest.mark.law
@pytest.mark.once
def test_mypy_finds_misspelt_values_and_knows_the_types(tmp_path: Path) -> None:
    check_lines(run_mypy(write_calls(tmp_path)))


@pytest.mark.slow
def test_pyright_accepts_the_programs_and_finds_misspelt_values(tmp_path: Path) -> None:
    pytest.importorskip("pyright", reason="see `make integrations-pyright`")
    write_calls(tmp_path)
    for program in PROGRAMS:
        (tmp_path / program.name).write_text(program.read_text(encoding="utf-8"), encoding="utf-8")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "-p", str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=600)
    for program in PROGRAMS:
        assert f"{program.name}:" not in found.stdout, found.stdout
    check_lines(found.stdout)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_programs_run(program: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert found.returncode == 0, found.stderr
    expected = {"agent": "15:40.", "train": "2 samples", "serve": "Hello, sailor. <|im_end|>"}
    assert expected[program.stem] in found.stdout


def test_programs_are_of_a_real_size() -> None:
    assert {program.stem for program in PROGRAMS} == {"agent", "train", "serve"}
    assert all(40 <= program.read_text("utf-8").count("\n") <= 85 for program in PROGRAMS)


def test_public_names_have_examples() -> None:
    """In their docstrings, or in those of their methods; `tests/project/test_docs.py` runs them."""
    lacking = []
    for name in {*turnwise.__all__} - {"ChatMessage", "Role"}:  # aliases have no docstrings
        thing = getattr(turnwise, name)
        members = vars(thing).items() if isinstance(thing, type) else ()
        public = [member for key, member in members if not key.startswith("_")]
        if not any(">>> " in (one.__doc__ or "") for one in (thing, *public)):
            lacking.append(name)
    assert not lacking


def test_only_public_names_are_listed() -> None:
    assert set(dir(turnwise)) == {*turnwise.__all__, "__version__"}
    assert set(dir(turnwise.data)) == {*turnwise.data.__all__}
    template = turnwise.load("chatml")
    rendering = template.render([{"role": "user", "content": "Hi"}])
    assert set(dir(rendering)) == {
        *("changes", "cut", "media", "pieces", "show", "spans", "text", "warnings")
    }
    encoded = template.encode([{"role": "assistant", "content": "Hi"}], "turnwise")
    samples = template.examples([{"role": "assistant", "content": "Hi"}], "turnwise")
    internal = {"note_changes", "restrict_to", "longest", "join", "warn_of_rewritten"}
    assert not internal & {*dir(encoded), *dir(samples)}


class Feed:
    """An engine's stream that is counted."""

    def __init__(self, *chunks: str | list[int]) -> None:
        self.chunks = chunks
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[str | list[int]]:
        for chunk in self.chunks:
            self.read += 1
            yield chunk


@pytest.mark.parametrize("size", [1, 3, 50])
def test_a_stream_has_the_events_of_the_chunks(size: int) -> None:
    template = turnwise.load("qwen3")
    reply = (
        "<think>\nA tool knows.\n</think>\n\n<tool_call>\n"
        '{"name": "tide", "arguments": {"port": "Oban"}}\n</tool_call><|im_end|>'
    )
    chunks = [reply[start : start + size] for start in range(0, len(reply), size)]

    async def collect() -> list[turnwise.Event]:
        return [event async for event in streamed.stream(Feed(*chunks))]

    streamed, fed = template.parser(), template.parser()
    events = asyncio.run(collect())
    expected = [event for chunk in chunks for event in fed.feed(chunk)] + [*fed.close().events]
    assert events == expected
    message = streamed.close()
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["tide"]


def test_a_stream_that_is_left_reads_no_further() -> None:
    source = Feed("Aye", ", ", "sailor")

    async def leave() -> None:
        async for event in turnwise.load("chatml").parser().stream(source):
            assert event.text == "Aye"
            break

    asyncio.run(leave())
    assert source.read == 1


def test_a_stream_of_ids_and_then_text_is_refused() -> None:
    parser = turnwise.load("chatml").parser(tokenizer="turnwise")

    async def read() -> None:
        async for _ in parser.stream(Feed([72], "i")):
            pass

    with pytest.raises(turnwise.TokenizerError, match="began with token ids"):
        asyncio.run(read())

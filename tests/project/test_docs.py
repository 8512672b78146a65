"""What the documents say is run.

Every `python` block of README.md and docs/*.md is executed, and every `console` block with a line `$ turnwise ...`;
the lines under such a command, if any, are its output, in which a line `...` stands for any lines. The blocks of
one file are one story: they share a namespace and an empty folder in which only `examples/` is there, in the order
of the page.

Other commands (`$ make test`) are not run, nor are blocks in other languages. A command that needs no shell runs inside
of the test process. A translation with the same code as its original is a law: the quick run has one of them or two.

A page that begins with `<!-- needs: trl, torch -->` is run only where those packages are: in an environment that
`make integrations` builds for it.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import api_reference
import pytest
from click.testing import CliRunner

import turnwise
from turnwise import cli
from turnwise.errors import TurnwiseWarning
from turnwise.replies.events import STATUSES
from turnwise.replies.parser.compiled_grammar import TOLERANCES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "README.zh-CN.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FENCE = re.compile(
    r"(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<body>.*?)(?<=\n)(?P=indent)```", re.DOTALL
)
NAMING_FILES = ("docs/architecture.md", "docs/glossary.md", "CONTRIBUTING.md")
FILE_NAME = re.compile(r"`([\w./-]*/|[\w./-]+\.(?:py|toml|md))`")
EXAMPLE_FILES = {"my-model.toml"}
NEEDS = re.compile(r"<!-- needs: ([\w, ]+) -->")
COMMAND = re.compile(r"(^|[|;&] *)turnwise\b")
PLAIN_COMMAND = re.compile(r"turnwise [^|;&<>$*?`]*")
LANGUAGE = re.compile(r"\.zh-CN\.md$")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Command:
    line: int
    text: str
    output: tuple[str, ...]


def name_page(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        body = found["body"].replace("\n" + found["indent"], "\n").removeprefix(found["indent"])
        yield Block(found["language"].strip(), body, text.count("\n", 0, found.start()) + 1)


def commands(block: Block) -> Iterator[Command]:
    """The commands that are ours; a line that ends with a backslash goes on."""
    lines = block.text.replace("\\\n", "").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text = lines[start].removeprefix("$ ")
        if COMMAND.search(text):
            yield Command(block.line + start + 1, text, tuple(lines[start + 1 : end]))


def list_steps(page: Path) -> list[object]:
    """Return what a page runs, without the comments in it."""
    steps: list[object] = []
    for block in blocks(page):
        if block.language == "python":
            steps.append(ast.dump(ast.parse(block.text)))
        elif block.language == "console":
            steps += [(command.text, command.output) for command in commands(block)]
    return steps


def repeats_its_original(page: Path) -> bool:
    original = page.with_name(LANGUAGE.sub(".md", page.name))
    return original != page and list_steps(original) == list_steps(page)


REPEATS = [page for page in PAGES if repeats_its_original(page)]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in REPEATS], ids=name_page)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, tmp_path, monkeypatch)


@pytest.mark.law(1)
@pytest.mark.parametrize("page", REPEATS, ids=name_page)
def test_translated_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, tmp_path, monkeypatch)


def run_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in needed_packages(page):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: see `make integrations`")
    folder, shell = tmp_path / "work", tmp_path / "bin"
    folder.mkdir()
    if (ROOT / "examples").is_dir():
        (folder / "examples").symlink_to(ROOT / "examples")
    put_command(shell)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(shell), prepend=os.pathsep)
    names: dict[str, object] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        if needed_packages(page):  # other packages warn of each other when they are imported
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", TurnwiseWarning)
        for block in blocks(page):
            if block.language == "python":
                # Newlines in front, so that a traceback names the line of the page.
                exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
            elif block.language == "console":
                for command in commands(block):
                    check(page, command)


def test_readme_opens_with_install_and_proof() -> None:
    install, proof = [block for block in blocks(ROOT / "README.md") if block.language][:2]
    assert install.language == "console" and "pip install turnwise" in install.text
    assert proof.language == "python" and "assert " in proof.text


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_no_block_escapes(page: Path) -> None:
    """A language that only looks like python would not be run."""
    odd = {block.language for block in blocks(page)} & {
        "py",
        "python3",
        "pycon",
        "shell",
        "sh",
        "bash",
        "Python",
    }
    assert not odd, f"say `python` or `console` instead of {sorted(odd)}"


def test_the_api_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert page == api_reference.write_page(), "run `make api`"


PUBLIC_MODULES = [
    "turnwise",
    "turnwise.data",
    "turnwise.evidence",
    "turnwise.shapes",
    *(
        f"turnwise.compat.{name}"
        for name in ("fastchat", "paddlenlp", "renderers", "transformers", "xtuner")
    ),
]


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_examples_in_public_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    finder = doctest.DocTestFinder(exclude_empty=True)
    for public in module.__all__:
        thing = getattr(module, public)
        for test in finder.find(
            thing, public, module=False, globs={**vars(module), "turnwise": turnwise}
        ):
            runner.run(test)
    assert not runner.failures


@pytest.mark.parametrize("page", NAMING_FILES)
def test_files_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = {found[1] for found in FILE_NAME.finditer(text)} - EXAMPLE_FILES
    missing = [
        path
        for path in sorted(paths)
        if not (ROOT / path).exists() and not (ROOT / "src" / "turnwise" / path).exists()
    ]
    assert paths and not missing


@pytest.mark.parametrize("table", [STATUSES, TOLERANCES], ids=["statuses", "tolerances"])
def test_tables_say_what_the_code_says(table: Mapping[str, str]) -> None:
    text = (ROOT / "docs" / "replies.md").read_text(encoding="utf-8")
    assert not [
        row
        for row in (f"| `{name}` | {means} |" for name, means in table.items())
        if row not in text
    ]


def needed_packages(page: Path) -> list[str]:
    found = NEEDS.match(page.read_text(encoding="utf-8"))
    return found[1].replace(",", " ").split() if found else []


def check(page: Path, command: Command) -> None:
    code, output = run_command(command.text)
    where = f"{page.name}:{command.line}: $ {command.text}\n{output}"
    assert code in ({0, 1} if command.output else {0}), where
    if command.output:
        assert matches(tuple(output.splitlines()), command.output), where


def run_command(text: str) -> tuple[int, str]:
    """Return the exit code of a command, and all that it wrote."""
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}
    if PLAIN_COMMAND.fullmatch(text):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            result = CliRunner(env=plain).invoke(cli.app, shlex.split(text)[1:])
        return result.exit_code, result.output
    done = subprocess.run(
        ["sh", "-c", text],
        env=os.environ | plain,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=300,
    )
    return done.returncode, done.stdout


def matches(actual: tuple[str, ...], expected: tuple[str, ...]) -> bool:
    """Line by line; spaces at the end do not count, and `...` is any number of lines."""
    pattern = "".join(
        "(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()) + "\n"
        for line in strip(expected)
    )
    return (
        re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in strip(actual))) is not None
    )


def strip(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Without empty lines at the end."""
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def put_command(folder: Path) -> None:
    """A `turnwise` on the path that is this checkout, installed or not."""
    folder.mkdir()
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from turnwise.cli import main; main()"
    script = folder / "turnwise"
    command = f'exec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"'
    script.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
    script.chmod(0o755)

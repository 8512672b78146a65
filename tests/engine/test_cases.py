"""The template language, by the project's own case files.

Two questions for each case: does turnwise do what the file says (`--accept` rewrites the file instead), and does
transformers? A case where they are meant to differ says why in its section `differs`, and must really differ.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pytest

import oracle
import turnwise

# Case files: what a template does, written so that a diff of it can be read.
#
# A file holds a preamble (free text, kept), then cases. A case is a line `=== title` and sections, each a heading and
# a body:
#
#     --- template    the Jinja text
#     --- messages    `role: text` lines, where a line without a role continues the text above; or JSON
#                     (a case without messages has one, `user: hi`)
#     --- tools       JSON
#     --- options     JSON: arguments of render (`now` as an ISO time) and the template's own variables
#     --- differs     why transformers does something else here, on purpose
#     --- text        expected: the rendering
#     --- pieces      beside it: one per line: its text as a Python string, its origin, its message, `generation`
#     --- error       expected instead: the error's class and text
#
# The body of a section is its lines, joined; one empty line before the next `===` belongs to no section. Where that
# would hide something (a space at the end of a line, a newline at the end, an escape) the heading says `quoted`, and
# each line is a Python string. Writing a file that was read gives the same bytes, except for what was replaced.
#
# Not covered: input that JSON cannot say (NaN apart), such as tuples or cyclic values; those need a test in Python.

GIVEN = ("template", "messages", "tools", "options", "differs")
EXPECTED = ("text", "pieces", "error")
HEADING = re.compile(r"--- (\w+)( quoted)?")
ROLE = re.compile(r"(system|developer|user|assistant|tool|environment|function): ?(.*)")


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    body: str
    quoted: bool = False

    @classmethod
    def of(cls, name: str, text: str) -> Section:
        """A section that says the text exactly, quoted when it has to be."""
        if not hides_something(text):
            return cls(name, text)
        return cls(
            name,
            "\n".join(repr(line) for line in text.splitlines(keepends=True) or [""]),
            quoted=True,
        )

    @property
    def text(self) -> str:
        if not self.quoted:
            return self.body
        return "".join(ast.literal_eval(line) for line in self.body.split("\n"))


def hides_something(text: str) -> bool:
    lines = text.split("\n")
    return (
        not text
        or not (lines[0] and lines[-1])
        or any(line != line.rstrip() or line.startswith(("--- ", "=== ")) for line in lines)
        or not text.replace("\n", "").isprintable()
    )


@dataclass(frozen=True, slots=True)
class FileCase:
    title: str
    sections: tuple[Section, ...]

    def section(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def text(self, name: str) -> str | None:
        section = self.section(name)
        return section.text if section else None

    @property
    def template(self) -> str:
        text = self.text("template")
        assert text is not None, f"{self.title}: no template"
        return text

    @property
    def messages(self) -> Any:
        return read_messages(self.text("messages") or "user: hi")

    @property
    def arguments(self) -> dict[str, Any]:
        """Everything that `render` takes beside the messages."""
        arguments = dict(json.loads(self.text("options") or "{}"))
        if "now" in arguments:
            arguments["now"] = datetime.fromisoformat(arguments["now"])
        if (tools := self.text("tools")) is not None:
            arguments["tools"] = json.loads(tools)
        return arguments

    def expecting(self, outcome: dict[str, str]) -> FileCase:
        """This case with what really happened in place of what was expected.

        Only sections that the author asked for are kept, but a text that became an error (or the other way round),
        and a case that expects nothing yet, get what there is.
        """
        asked = {section.name for section in self.sections} & set(EXPECTED) & set(outcome)
        names = [name for name in EXPECTED if name in (asked or {"text", "error"} & set(outcome))]
        given = tuple(section for section in self.sections if section.name not in EXPECTED)
        return replace(
            self, sections=given + tuple(Section.of(name, outcome[name]) for name in names)
        )


def read_messages(text: str) -> Any:
    if text.lstrip().startswith(("[", "{")):
        return json.loads(text)
    messages: list[dict[str, str]] = []
    for line in text.split("\n"):
        if spoken := ROLE.fullmatch(line):
            messages.append({"role": spoken[1], "content": spoken[2]})
        else:
            messages[-1]["content"] += "\n" + line
    return messages


@dataclass(frozen=True, slots=True)
class CaseFile:
    preamble: str
    cases: tuple[FileCase, ...]

    @classmethod
    def read(cls, text: str) -> CaseFile:
        preamble, *blocks = re.split(r"^=== ", text.removesuffix("\n"), flags=re.MULTILINE)
        last = len(blocks) - 1
        cases = tuple(
            read_case(block if number == last else block.removesuffix("\n\n"))
            for number, block in enumerate(blocks)
        )
        titles = [case.title for case in cases]
        twice = {title for title in titles if titles.count(title) > 1}
        assert not twice, f"titles used twice: {sorted(twice)}"
        return cls(preamble, cases)

    def __str__(self) -> str:
        return self.preamble + "\n".join(write_case(case) for case in self.cases)

    def case(self, title: str) -> FileCase:
        return next(case for case in self.cases if case.title == title)

    def replacing(self, case: FileCase) -> CaseFile:
        return replace(
            self, cases=tuple(case if old.title == case.title else old for old in self.cases)
        )


def read_case(block: str) -> FileCase:
    title, *lines = block.split("\n")
    sections: list[Section] = []
    body: list[str] = []
    for line in reversed(lines):
        if heading := HEADING.fullmatch(line):
            name, quoted = heading[1], heading[2] is not None
            assert name in GIVEN + EXPECTED, f"{title}: no section is called {name!r}"
            sections.append(Section(name, "\n".join(reversed(body)), quoted))
            body = []
        else:
            body.append(line)
    assert not body, f"{title}: text before the first section"
    return FileCase(title, tuple(reversed(sections)))


def write_case(case: FileCase) -> str:
    return f"=== {case.title}\n" + "".join(write_section(section) for section in case.sections)


def write_section(section: Section) -> str:
    heading = f"--- {section.name}{' quoted' if section.quoted else ''}\n"
    return heading + (section.body + "\n" if section.body else "")


def write_pieces(pieces: Iterable[Any]) -> str:
    return "\n".join(write_piece(piece.text, piece.origin) for piece in pieces)


def write_piece(text: str, origin: Any) -> str:
    notes = [repr(text), str(origin)]
    if origin.message is not None:
        notes.append(f"message {origin.message}")
    if origin.generation:
        notes.append("generation")
    return "  ".join(notes)


def read(path: Path) -> CaseFile:
    return CaseFile.read(path.read_text(encoding="utf-8"))


# The tests

FOLDER = Path(__file__).parents[1] / "cases"
CASES = [
    pytest.param(path, case.title, id=f"{path.stem}: {case.title}")
    for path in sorted(FOLDER.glob("*.case"))
    for case in read(path).cases
]


@pytest.mark.parametrize(("path", "title"), CASES)
def test_case(path: Path, title: str, accept: bool) -> None:
    file = read(path)
    case = file.case(title)
    actual = case.expecting(outcome(case))
    if accept:
        path.write_text(str(file.replacing(actual)), encoding="utf-8")
    else:
        assert write_case(actual) == write_case(case)


@pytest.mark.parametrize(("path", "title"), CASES)
def test_transformers_agrees(path: Path, title: str) -> None:
    case = read(path).case(title)  # again, since the test above may have accepted something else
    arguments = {
        key: value for key, value in case.arguments.items() if key not in ("normalise", "strict")
    }
    try:
        text = oracle.render(case.template, case.messages, **arguments)
    except Exception as error:  # anything at all may leave the reference
        agrees = case.section("error") is not None and text_of_raise_exception(error) in (
            case.text("error") or ""
        )
        found = f"{type(error).__name__}: {error}"
    else:
        agrees = text == case.text("text")
        found = text
    assert agrees is (case.section("differs") is None), f"transformers: {found!r}"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.case")), ids=lambda path: path.stem)
def test_files_are_written_as_they_are_read(path: Path) -> None:
    assert str(read(path)) == path.read_text(encoding="utf-8")


def outcome(case: FileCase) -> dict[str, str]:
    """What turnwise does: text and pieces, or an error. The text is transformers', so no message is adapted."""
    try:
        template = turnwise.compile(case.template, "jinja", name="case.jinja")
        rendering = template.render(case.messages, **{"normalise": False, **case.arguments})
    except turnwise.TurnwiseError as error:
        name, text = type(error).__name__, str(error)
        return {"error": text if text.startswith(name) else f"{name}: {text}"}
    assert "".join(piece.text for piece in rendering.pieces) == str(rendering)
    return {"text": str(rendering), "pieces": write_pieces(rendering.pieces)}


def text_of_raise_exception(error: Exception) -> str:
    """The text of `raise_exception`, which must arrive unchanged; other errors are ours to word."""
    return str(error) if type(error) is jinja2.TemplateError else ""

"""The template language, by the project's own case files.

Two questions for each case: does turnwise do what the file says (`--accept` rewrites the file instead), and does
transformers? A case where they are meant to differ says why in its section `differs`, and must really differ.
"""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

import oracle
import turnwise
from casefile import FileCase, read, write_case, write_pieces

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

"""The law: for any template and conversation, the text that transformers prints, or an error where it raises.

Held against the golden rows of the corpus, all of them, and, for what the corpus does not contain, against
transformers itself in `test_properties.py`. What differs on purpose is read from docs/compatibility.md: a row there
that no longer differs is a failure, as is a difference without a row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from corpus import Chat, Expected, Row
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import TemplateRaised

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
SHOWN = 12  # failures of one template that are shown in full
RAISED = "TemplateError: "  # how the golden rows spell raise_exception
CHAT = [{"role": "user", "content": "hi"}]
ADDRESS = "*an address*"

Spans = list[tuple[int, int]]


# ---- the page ----


def tables() -> dict[str, list[list[str]]]:
    """The rows of the page's tables, by heading."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| "):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            found.setdefault(heading, []).append(
                [cell.strip().replace("\\|", "|") for cell in cells]
            )
    return {heading: rows[1:] for heading, rows in found.items()}


TABLES = tables()
DIFFERENT = {(name, chat) for name, chat, *_ in TABLES["Rows of the corpus"]}
SAID = TABLES["What templates can say"] + TABLES["Budgets"]
CONTAINED = TABLES["What conversations can contain"]


def code(cell: str) -> str:
    """The text between the backticks."""
    assert cell[0] == cell[-1] == "`", f"not code: {cell}"
    return cell[1:-1] if cell != "``" else ""


# ---- the corpus ----


@pytest.mark.law
@corpus.needs_corpus
@pytest.mark.parametrize("name", sorted(corpus.load_published()) or [""])
def test_corpus(name: str) -> None:
    published = corpus.load_published()[name]
    template = turnwise.compile(published.text, name=name, options=published.options)
    failures, differing = [], set()
    for row in corpus.rows()[name]:
        problems = list(differences(template, row))
        if (name, row.chat) not in DIFFERENT:
            failures += problems
        elif problems:
            differing.add((name, row.chat))
    failures += [
        f"{chat}: listed in {PAGE.name}, but the same" for chat in find_unchanged(name, differing)
    ]
    assert not failures, describe_failures(name, failures)


def find_unchanged(name: str, differing: set[tuple[str, str]]) -> list[str]:
    return [chat for template, chat in sorted(DIFFERENT - differing) if template == name]


def describe_failures(name: str, failures: list[str]) -> str:
    return "\n".join(
        [f"{len(failures)} failures of {name}, of which the first are", *failures[:SHOWN]]
    )


def differences(template: turnwise.Template, row: Row) -> Iterator[str]:
    chat = corpus.chats()[row.chat]
    for prompted, expected in row.each():
        problem = difference(template, chat, prompted, expected, row)
        if problem:
            yield f"{row.chat} (add_generation_prompt={prompted}): {problem}"


def difference(
    template: turnwise.Template, chat: Chat, prompted: bool, expected: Expected, row: Row
) -> str:
    """What is wrong with one rendering, or nothing."""
    try:
        rendering = template.render(
            chat.messages,
            now=corpus.NOW,
            add_generation_prompt=prompted,
            normalise=False,
            **chat.arguments,
        )
    except turnwise.TurnwiseError as error:
        return wrong_error(error, expected)
    if expected.text is None:
        return f"rendered, but transformers raised {expected.error}"
    if rendering.text != expected.text:
        return first_difference(rendering.text, expected.text)
    if "".join(piece.text for piece in rendering.pieces) != rendering.text:
        return "the pieces do not join to the text"
    return "" if prompted else wrong_spans(rendering, row)


def wrong_error(error: turnwise.TurnwiseError, expected: Expected) -> str:
    raised = f"{type(error).__name__}: {error.message}"
    if expected.error is None:
        return f"raised {raised}"
    if expected.error.startswith(RAISED) and (
        not isinstance(error, TemplateRaised)
        or (RAISED + error.message)[: corpus.ERROR_CUT] != expected.error
    ):
        return f"raised {raised}, expected {expected.error}"
    return ""


def first_difference(text: str, expected: str) -> str:
    pairs = enumerate(zip(text, expected, strict=False))
    at = next((index for index, (a, b) in pairs if a != b), min(len(text), len(expected)))
    start = max(0, at - 20)
    return f"differs at {at}: {text[start : at + 30]!r}, expected {expected[start : at + 30]!r}"


def wrong_spans(rendering: Rendering, row: Row) -> str:
    found, expected = rendering.spans(generation=True), merge_spans(row.spans, len(rendering.text))
    return "" if found == expected else f"generation spans are {found}, expected {expected}"


def merge_spans(spans: Iterable[tuple[int, int]], length: int) -> Spans:
    """Spans as `Rendering.spans` gives them: cut with the text, none empty, neighbours as one."""
    result: Spans = []
    for start, end in ((min(start, length), min(end, length)) for start, end in spans):
        if start == end:
            continue
        if result and result[-1][1] == start:
            start, _ = result.pop()
        result.append((start, end))
    return result


# ---- the rest of the page ----


@pytest.mark.parametrize(
    ("template", "theirs", "ours"), [row[:3] for row in SAID], ids=[row[0] for row in SAID]
)
def test_documented_difference(template: str, theirs: str, ours: str) -> None:
    check(code(template), theirs, ours)


@pytest.mark.parametrize(("template", "value", "theirs", "ours"), [row[:4] for row in CONTAINED])
def test_contained_difference(template: str, value: str, theirs: str, ours: str) -> None:
    check(code(template), theirs, ours, x=json.loads(code(value)))


def check(template: str, theirs: str, ours: str, **options: Any) -> None:
    assert render_or_error(lambda: oracle.render(template, CHAT, **options), theirs) == readable(
        theirs
    )
    assert render_or_error(
        lambda: (
            turnwise.compile(template).render(CHAT, now=corpus.NOW, normalise=False, **options).text
        ),
        ours,
    ) == readable(ours)
    assert theirs != ours


def render_or_error(run: Any, expected: str) -> str:
    """What an engine printed, or the class of its error."""
    try:
        text = str(run())
    except Exception as error:  # anything at all may leave the reference
        return type(error).__name__
    return ADDRESS if expected == ADDRESS and re.search(r" at 0x[0-9a-f]+>", text) else text


def readable(cell: str) -> str:
    """A cell as `render_or_error` gives it; JSON where plain text could not be written down."""
    if not cell.startswith("`"):
        return cell
    text = code(cell)
    return str(json.loads(text)) if "\\u" in text else text

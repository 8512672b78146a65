"""Real ids out of the documents of other systems: known and right, or unknown with what those systems would do."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from turnwise.registry.match import UnknownModel, match

TABLE = Path(__file__).with_name("documented_models.txt")
BASE, NONE = "base", "none"
MIN_KNOWN = 0.8  # of the chat models; most of the rest take pictures or sound


def read_rows() -> list[tuple[str, list[str]]]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return [(model, names.split(",")) for model, names in rows]


def is_right(model: str, names: list[str]) -> bool:
    """Whether the answer is one of the right templates, or there is none and the error names what others would use."""
    try:
        found = match(model)
    except UnknownModel as error:
        return "LMDeploy would" in (error.hint or "") and "download=True" in (error.hint or "")
    if found.kind == "base":
        return names == [BASE]
    if found.by == "text":  # the published template of this very model is known
        return names[0] not in (BASE, NONE)
    return any(fnmatchcase(found.entry.lower(), name.lower()) for name in names)


def is_known(model: str) -> bool:
    try:
        return match(model).kind == "chat"
    except UnknownModel:
        return False


def test_no_answer_is_wrong() -> None:
    rows = read_rows()
    assert len(rows) >= 300
    assert [model for model, names in rows if not is_right(model, names)] == []


def test_most_chat_models_are_known() -> None:
    chats = [model for model, names in read_rows() if names[0] not in (BASE, NONE)]
    assert sum(map(is_known, chats)) >= MIN_KNOWN * len(chats)

"""The golden corpus, read in one place.

It lives outside of the repository: the folder is `$TURNWISE_CORPUS`, else `../shared/corpus` beside the project.
Readers are cached and return an empty tuple (or mapping) where there is no corpus, so that a test may be
parametrised over them at collection; such a test is marked `@needs_corpus`, and any other takes the fixture
`corpus`. Both skip with the one line `ABSENT`.

Rows are shared between tests: never change what a reader returned. The errors in golden rows are cut at 300
characters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ABSENT = "no corpus: set TURNWISE_CORPUS, or put it at ../shared/corpus beside the project"
NOW = datetime(2025, 1, 15, 12, 0)
"""The time at which the golden rows were made."""
ERROR_CUT = 300


def folder() -> Path | None:
    named = os.environ.get("TURNWISE_CORPUS")
    found = Path(named) if named else ROOT.parent / "shared" / "corpus"
    return found if (found / "conversations.jsonl").is_file() else None


needs_corpus = pytest.mark.skipif(folder() is None, reason=ABSENT)


@dataclass(frozen=True, slots=True)
class Published:
    """A published template: its text and the tokens that the golden rows were made with."""

    name: str
    text: str
    options: Mapping[str, str]
    facts: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Chat:
    """A fixture conversation, as the keyword arguments that `Template.render` takes."""

    id: str
    tags: frozenset[str]
    messages: list[dict[str, Any]]
    arguments: Mapping[str, Any]

    @property
    def continued(self) -> bool:
        return bool(self.arguments.get("continue_final_message"))


@dataclass(frozen=True, slots=True)
class Expected:
    """What transformers did: exactly one of text and error (`Type: message`) is given."""

    text: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One template on one conversation. `prompted` is None where the conversation continues its last message."""

    template: str
    chat: str
    plain: Expected
    prompted: Expected | None
    spans: tuple[tuple[int, int], ...]

    def each(self) -> Iterator[tuple[bool, Expected]]:
        """Pairs of `add_generation_prompt` and what is expected of it."""
        yield False, self.plain
        if self.prompted is not None:
            yield True, self.prompted


@dataclass(frozen=True, slots=True)
class Hostile:
    """A template that means harm. `facts` say its family and what should become of it."""

    id: str
    text: str = field(repr=False)
    facts: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """What transformers made of one conversation with a real tokenizer: ids, and which of them are the assistant's."""

    tokenizer: str  # its folder, see `tokenizer_folder`
    template: str
    chat: str
    ids: list[int] | None = field(repr=False)  # None where the template refuses the conversation
    mask: str | None = field(repr=False)  # a digit for each id; only where the row is about them
    opening: bool = False


@dataclass(frozen=True, slots=True)
class Injection:
    """A value that tries to be more than text, and the field it was meant for."""

    id: str
    family: str
    field: str
    value: Any = field(repr=False)
    facts: Mapping[str, Any] = field(repr=False)


def lines(name: str) -> Iterator[dict[str, Any]]:
    """The rows of one JSON Lines file of the corpus, nothing where it is absent."""
    found = folder()
    if found is None:
        return
    with open(found / name, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


@cache
def chats() -> dict[str, Chat]:
    return {row["id"]: read_chat(row) for row in lines("conversations.jsonl")}


def read_chat(row: dict[str, Any]) -> Chat:
    given = {
        key: row[key] for key in ("tools", "documents", "continue_final_message") if key in row
    }
    return Chat(
        id=row["id"],
        tags=frozenset(row["tags"]),
        messages=row["messages"],
        arguments={**given, **row.get("template_kwargs", {})},
    )


@cache
def load_published() -> dict[str, Published]:
    found = folder()
    if found is None:
        return {}
    index = json.loads((found / "jinja" / "index.json").read_text(encoding="utf-8"))
    return {row["name"]: read_published(found / "jinja" / row["file"], row) for row in index}


def read_published(file: Path, row: dict[str, Any]) -> Published:
    # Bytes, not read_text: universal newlines would hide a template's carriage returns.
    text = file.read_bytes().decode("utf-8")
    options = {key: row[key] for key in ("bos_token", "eos_token") if row[key] is not None}
    return Published(row["name"], text, options, row)


@cache
def rows() -> dict[str, tuple[Row, ...]]:
    """All golden rows, by the name of their template."""
    found: dict[str, list[Row]] = {}
    for raw in lines("golden/jinja.jsonl"):
        found.setdefault(raw["t"], []).append(read_row(raw))
    return {name: tuple(group) for name, group in found.items()}


def read_row(raw: dict[str, Any]) -> Row:
    plain = Expected(raw.get("text"), raw.get("error"))
    spans = tuple((start, end) for start, end in raw.get("spans") or ())
    return Row(raw["t"], raw["c"], plain, read_prompted(plain, raw["gp"]), spans)


def read_prompted(plain: Expected, raw: dict[str, str] | None) -> Expected | None:
    if raw is None:
        return None
    if "suffix" in raw:
        assert plain.text is not None, "a suffix extends a text"
        return Expected(text=plain.text + raw["suffix"])
    if raw.get("error") == "same":
        return Expected(error=plain.error)
    return Expected(raw.get("text"), raw.get("error"))


@cache
def hostile() -> tuple[Hostile, ...]:
    return tuple(
        Hostile(
            row["id"],
            row["template"] if "template" in row else evaluate_text(row["template_gen"]),
            row,
        )
        for row in lines("security/hostile_templates.jsonl")
    )


@cache
def more_hostile() -> tuple[Hostile, ...]:
    """Newer attacks; `facts` has their kind: cpu, memory, raw, escape or forge (with `content` and `token`)."""
    return tuple(
        Hostile(
            row["name"],
            row["template"] if "template" in row else evaluate_text(row["template_gen"]),
            row,
        )
        for row in lines("security/hostile_more.jsonl")
    )


def evaluate_text(expression: str) -> str:
    """The text of a template too long to be stored: a Python expression over strings, `join` and `range`."""
    text = eval(expression, {"__builtins__": {"range": range}})
    assert isinstance(text, str)
    return text


TOKENIZERS = ("qwen2_5", "qwen3", "llama3", "deepseek_v3", "gemma2", "internlm2", "mistral_v0_1")
FOLDERS = {"llama2": "mistral_v0_1", "internlm2_fixed": "internlm2", "internlm2": None}
"""Where token rows name a tokenizer otherwise than its folder; the unrepaired internlm2 is not kept."""


def tokenizer_folder(name: str) -> Path:
    found = folder()
    assert found is not None, ABSENT
    return found / "tokenizers" / name


@cache
def token_rows() -> tuple[TokenRow, ...]:
    """The rows whose tokenizer and template are both at hand."""
    found = []
    for row in lines("golden/tokens.jsonl"):
        name = FOLDERS.get(row["tok"], row["tok"])
        if row["kind"] in ("ids", "mask") and name in TOKENIZERS and row["t"] in load_published():
            found.append(
                TokenRow(
                    name, row["t"], row["c"], row.get("ids"), row.get("mask"), row.get("agp", False)
                )
            )
    return tuple(found)


@cache
def injections() -> tuple[Injection, ...]:
    """Their values; a generator stands for a value too long, or too odd, for JSON."""
    return tuple(
        Injection(row["id"], row["family"], row["field"], read_injected(row), row)
        for row in lines("security/injections.jsonl")
    )


def read_injected(row: dict[str, Any]) -> Any:
    if row["generator"] is None:
        return row["value"]
    return eval(row["generator"], {"__builtins__": {"float": float}, "cyclic": cyclic})


def cyclic() -> dict[str, Any]:
    """A value that holds itself."""
    found: dict[str, Any] = {}
    found["self"] = found
    return found


def with_mappings(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Arguments that are JSON text as what they say, which is what LMDeploy makes of them."""
    copy: list[dict[str, Any]] = json.loads(json.dumps(messages))
    for message in copy:
        for call in message.get("tool_calls") or ():
            function = call.get("function", {})
            if isinstance(function.get("arguments"), str):
                function["arguments"] = json.loads(function["arguments"])
    return copy

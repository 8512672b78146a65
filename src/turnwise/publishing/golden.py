"""Goldens of a model: what its template writes and how its replies are read, for the tests of whoever uses it.

The file has renderings with their ids, and replies with their messages. `verify_release` makes them again, so a
changed template, tokenizer or library shows as a difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from turnwise.analysis.conversations import load_probes, name_values
from turnwise.analysis.counterexample import passed_arguments
from turnwise.errors import SourceError, TurnwiseError, WarningLog, short_repr
from turnwise.messages import JsonMapping, JsonObject
from turnwise.publishing.model_folder import ModelFolder
from turnwise.replies.events import messages_equal
from turnwise.replies.parser.parser import Parser
from turnwise.replies.write import write
from turnwise.template import Template

GOLDEN_FILE = "chat_template_golden.json"
VERSION = 1
NOW = datetime(2025, 1, 15, 12, 0)  # of templates that write a date
MAX_SHOWN = 160  # characters of a value in a difference
TOOLS = name_values("weather", "clock")
CHATS = tuple(load_probes("samples"))
"""Conversations on which a release is proved, small enough to be read in a file."""


@dataclass(frozen=True, slots=True)
class GoldenDifference:
    """A rendering or a message that is not what the golden file has.

    Attributes:
        where: the rendering or the reply, and which of its values.
        expected: the value in the file.
        found: the value now.
    """

    where: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        return (
            f"{self.where}: expected {short_repr(self.expected, MAX_SHOWN)}, "
            f"found {short_repr(self.found, MAX_SHOWN)}"
        )


def make_golden(folder: ModelFolder) -> JsonObject:
    """Return the goldens of a model: what is refused is a golden, too."""
    renderings = [
        {"name": chat.covers, "messages": chat.messages, **passed_arguments(chat)} for chat in CHATS
    ]
    for row in renderings:
        row["expected"] = _render(folder, row)
    replies = [
        {"name": name, "reply": text, "expected": _parse(folder.template, text)}
        for name, _, text in write_replies(folder.template)
    ]
    golden = {"version": VERSION, "renderings": renderings, "tools": TOOLS, "replies": replies}
    plain: JsonObject = json.loads(json.dumps(golden))
    return plain


def _render(folder: ModelFolder, row: JsonMapping) -> JsonObject:
    """Return the text, ids and labels of a conversation, or the error of the template."""
    arguments = {key: row[key] for key in ("tools", "add_generation_prompt") if key in row}
    try:
        encoded = folder.template.encode(row["messages"], folder.tokenizer, now=NOW, **arguments)
    except TurnwiseError as error:
        return {"error": error.message}
    trained = [index for index, label in enumerate(encoded.labels) if label != -100]
    return {"text": encoded.text, "input_ids": encoded.input_ids, "trained": trained}


def _parse(template: Template, reply: str) -> JsonObject:
    """Return the message of a reply, without the ids of calls, which are made up."""
    message: JsonObject = json.loads(json.dumps(Parser(template.grammar, None, TOOLS).read(reply)))
    for call in message.get("tool_calls") or ():
        call.pop("id", None)
    return message


def verify_release(folder: str | Path) -> tuple[GoldenDifference, ...]:
    """Compare a model folder with its golden file.

    Args:
        folder: the model folder.

    Returns:
        The differences; none if everything is as it was when the file was written.

    Raises:
        SourceError: the folder has no golden file, or something in it cannot be read.

    Example:
        >>> turnwise.verify_release("models/mine")  # doctest: +SKIP
        ()
    """
    model = ModelFolder(Path(folder))
    golden = model.read_table(GOLDEN_FILE)
    if golden is None:
        hint = f"`turnwise release {model.path}` writes it"
        raise SourceError(f"{model.path} has no {GOLDEN_FILE}", hint=hint)
    if golden.get("version") != VERSION:
        problem = f"{GOLDEN_FILE} has the version {golden.get('version')!r}, not {VERSION}"
        raise SourceError(problem, hint="it was written by another version of turnwise")
    try:
        with WarningLog(is_quiet=True):
            return tuple(_find_differences(model, golden))
    except (KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{GOLDEN_FILE} is damaged: {type(error).__name__} {error}") from error


def _find_differences(model: ModelFolder, golden: JsonMapping) -> Iterator[GoldenDifference]:
    for row in golden["renderings"]:
        yield from _compare(f"rendering {row['name']!r}", row["expected"], _render(model, row))
    for row in golden["replies"]:
        found = _parse(model.template, row["reply"])
        yield from _compare(f"reply {row['name']!r}", row["expected"], found)


def _compare(where: str, expected: JsonMapping, found: JsonMapping) -> Iterator[GoldenDifference]:
    for key in {**expected, **found}:
        if expected.get(key) != found.get(key):
            yield GoldenDifference(f"{where}, {key}", expected.get(key), found.get(key))


def write_replies(template: Template) -> Iterator[tuple[str, JsonObject, str]]:
    """Yield the name, the message and the text of each reply that the model can write and that is read back equal."""
    grammar = template.grammar
    (replies,) = name_values("replies")
    for name, message in replies.items():
        has_calls, has_reasoning = "tool_calls" in message, "reasoning_content" in message
        if (has_calls and grammar.calls is None) or (has_reasoning and grammar.reasoning is None):
            continue
        try:
            text = write(grammar, message)
        except TurnwiseError:
            continue  # the grammar has no way to write it
        if messages_equal(Parser(grammar, None, TOOLS).read(text), message):
            yield name, message, text

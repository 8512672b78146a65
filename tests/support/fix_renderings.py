"""What `fix` changes of the renderings that transformers made of published templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import corpus
import oracle
import turnwise
from turnwise.analysis.conversations import conversations
from turnwise.repair import Repair

GARBLED = ("None", "[{'", "{'", '\\"', '[{"type"')  # what Python prints, JSON inside of JSON, parts


GENERATED = 3  # every so many of the made-up conversations
REFUSED = "refused: "


class ChangedRendering(NamedTuple):
    """A conversation that is written in another way by the repaired template."""

    chat: str
    is_open: bool
    before: str
    after: str


class Measured(NamedTuple):
    """How many renderings were compared, and which changed though they worked."""

    compared: int
    repaired: int
    changed: list[ChangedRendering]


class AskedChat(NamedTuple):
    """A conversation, whether its prompt is opened, and what transformers made of it with the published template."""

    name: str
    messages: list[dict[str, Any]]
    arguments: dict[str, Any]
    is_open: bool
    before: str


def measure(name: str) -> Measured:
    """Compare what transformers makes of a template with what it makes of the repaired text."""
    published = corpus.load_published()[name]
    repair = turnwise.fix(turnwise.compile(published.text, options=dict(published.options)))
    compared = repaired = 0
    changed = []
    if not repair.patches:
        return Measured(0, 0, [])
    for chat in (*_list_golden(name), *_list_generated(name)):
        compared += 1
        after = _render(repair.text, chat.messages, chat.arguments)
        if after == chat.before:
            continue
        repaired += 1
        if works(chat.before, chat.messages, chat.is_open, repair):
            changed.append(ChangedRendering(chat.name, chat.is_open, chat.before, after))
    return Measured(compared, repaired, changed)


def _list_golden(name: str) -> Iterator[AskedChat]:
    """Yield the conversations of the corpus that the template accepts, with their golden texts."""
    options = corpus.load_published()[name].options
    for row in corpus.rows()[name]:
        chat = corpus.chats()[row.chat]
        for is_open, expected in row.each():
            if not chat.continued and expected.text is not None:
                given = {**chat.arguments, "add_generation_prompt": is_open, **options}
                yield AskedChat(row.chat, chat.messages, given, is_open, expected.text)


def _list_generated(name: str) -> Iterator[AskedChat]:
    """Yield made-up conversations that the template accepts, as transformers renders them."""
    published = corpus.load_published()[name]
    for probe in conversations()[::GENERATED]:
        for is_open in (False, True):
            given = {"add_generation_prompt": is_open, **published.options}
            given |= {"tools": probe.tools} if probe.tools else {}
            before = _render(published.text, probe.messages, given)
            if not before.startswith(REFUSED):
                yield AskedChat(probe.covers, probe.messages, given, is_open, before)


def _render(text: str, messages: list[dict[str, Any]], arguments: dict[str, Any]) -> str:
    try:
        return oracle.render(text, messages, now=corpus.NOW, **arguments)
    except Exception as error:  # whatever transformers raises is a refusal
        return f"{REFUSED}{error}"


def works(text: str, messages: list[dict[str, Any]], is_open: bool, repair: Repair) -> bool:
    """Whether a rendering has all texts of its conversation, and nothing that Python printed."""
    if is_open and any(patch.name == "generation-prompt" for patch in repair.patches):
        return False
    if any(word in text for word in GARBLED):
        return False
    return all(one.strip() in text for one in _list_texts(messages))


def _list_texts(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if isinstance(part.get("text"), str):
                yield part["text"]
        for call in message.get("tool_calls") or ():
            yield str(call.get("function", call).get("name", ""))

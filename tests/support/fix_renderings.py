"""What `fix` changes of the renderings that transformers made of published templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import corpus
import oracle
import turnwise
from turnwise.repair import Repair

GARBLED = ("None", "[{'", "{'", '\\"', '[{"type"')  # what Python prints, JSON inside of JSON, parts


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


def measure(name: str) -> Measured:
    """Compare the golden renderings of a template with those of its repaired text, by transformers."""
    published = corpus.load_published()[name]
    repair = turnwise.fix(turnwise.compile(published.text, options=dict(published.options)))
    compared = repaired = 0
    changed = []
    if not repair.patches:
        return Measured(0, 0, [])
    for row in corpus.rows()[name]:
        chat = corpus.chats()[row.chat]
        for is_open, expected in row.each():
            if chat.continued or expected.text is None:
                continue
            compared += 1
            after = _render(repair.text, chat, is_open, published.options)
            if after == expected.text:
                continue
            repaired += 1
            if works(expected.text, chat.messages, is_open, repair):
                changed.append(ChangedRendering(row.chat, is_open, expected.text, after))
    return Measured(compared, repaired, changed)


def _render(text: str, chat: Any, is_open: bool, options: Any) -> str:
    given = {**chat.arguments, "add_generation_prompt": is_open, **options}
    try:
        return oracle.render(text, chat.messages, now=corpus.NOW, **given)
    except Exception as error:  # whatever transformers raises is a refusal
        return f"refused: {error}"


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

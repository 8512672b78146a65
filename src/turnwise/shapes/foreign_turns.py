"""Turns of other APIs where messages of Chat Completions are expected."""

from __future__ import annotations

from typing import Any

from turnwise.shapes import anthropic, responses
from turnwise.shapes.row import Row


def read_foreign(messages: Any) -> tuple[list[tuple[int, Row]], str] | None:
    """Return messages that have blocks of Anthropic or items of Responses in OpenAI's shape; None if they have none.

    Args:
        messages: the messages, a list.

    Returns:
        The messages, each with the index of the turn or item that it was read from, and the name of the API.

    Raises:
        MessageError: a block or an item cannot be kept.
    """
    if responses.is_responses(messages):
        api = responses.API.begin()
        return list(responses.read_items(api, messages, ("messages",))), "Responses"
    if not anthropic.is_anthropic(messages):
        return None
    api = anthropic.API.begin()
    found = []
    for index, turn in enumerate(messages):
        read = [turn]
        if anthropic.has_own_block(turn):
            read = anthropic.read_turn(api, turn, ("messages", index))
        found += [(index, message) for message in read]
    return found, "Anthropic"

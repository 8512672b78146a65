"""Values that no conversation should have: they are rendered, or refused with an error of ours, in every verb."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import turnwise
from loaded import load_entry

ODD = ([], ["a"], {"a": 1}, 7, None, True)
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def make_chats(odd: Any) -> dict[str, list[dict[str, Any]]]:
    call = {"type": "function", "function": {"name": odd, "arguments": {"a": None}}}
    answer = {"role": "assistant", "content": "yes"}
    return {
        "role": [{"role": odd, "content": "a"}, answer],
        "part": [{"role": "user", "content": [{"type": odd, "text": "a", "image": "b"}]}, answer],
        "media": [{"role": "user", "content": [{"type": odd, "image_url": {"url": "b"}}]}, answer],
        "name": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}],
    }


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("name", ["chatml", "qwen3", "mistral-v3"])
def test_only_our_errors(name: str) -> None:
    template = load_entry(name)
    for odd in ODD:
        for chat, strict in product(make_chats(odd).values(), (False, True)):
            for verb in (
                lambda chat=chat, strict=strict: template.render(chat, [TOOL], strict=strict),
                lambda chat=chat, strict=strict: template.encode(chat, "turnwise", strict=strict),
                lambda chat=chat: template.examples(chat, "turnwise", tools=[TOOL]),
                lambda chat=chat: template.encode_batch([chat, chat], "turnwise"),
            ):
                try:
                    verb()
                except turnwise.TurnwiseError:
                    continue

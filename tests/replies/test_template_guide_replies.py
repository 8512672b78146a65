"""Replies to the example template of a guide to chat templates: streams, stops and the whole message."""

from __future__ import annotations

import pytest

import turnwise
from guide_template import ASKED, MARKED
from loaded import load_entry

ANSWER = "好的，我将会为你介绍...\n...\n..."


def test_a_stream_ends_at_the_stop() -> None:
    """The end marker ends the turn, and is no part of the content."""
    template = turnwise.compile(MARKED)
    parser = template.parser(prompt=template.render(ASKED, add_generation_prompt=True))
    events = [event for letter in ANSWER + "\n</message>\nmore" for event in parser.feed(letter)]
    assert "".join(event.text for event in events if event.kind == "text") == ANSWER
    assert [event.text for event in events if event.kind == "stop"] == ["</message>"]
    assert parser.close()["content"] == ANSWER


def test_the_complete_example_is_read_back() -> None:
    """The example that the guide prints, read as the message that it was written from."""
    template = turnwise.compile(MARKED)
    prompt = template.render(ASKED, add_generation_prompt=True)
    whole = str(template.render([*ASKED, {"role": "assistant", "content": ANSWER}]))
    assert whole.startswith(str(prompt))
    assert template.parse(whole[len(str(prompt)) :], prompt=prompt) == {
        "role": "assistant",
        "content": ANSWER,
    }


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_markers_that_look_like_ordinary_text_are_named() -> None:
    """`<message>` is one, `<|im_start|>` is not."""
    assert [marker.text for marker in turnwise.compile(MARKED).markers("turnwise").ordinary] == [
        "<message>",
        "</message>",
    ]
    assert load_entry("chatml").markers("turnwise").ordinary == ()

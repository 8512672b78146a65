"""InternLM2's replies: the assistant turns of its page, as text and as ids, in both spellings of its tokens.

What each turn says is known from `internlm2_transcript`, which reads the format by itself. The tokenizer's six ids have
the current names; the original ones are an older name of the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

import turnwise
import vocabularies
from corpus import needs_corpus
from internlm2_page import blocks
from turnwise.dialects.internlm2 import IDS, SPELLINGS
from turnwise.dialects.internlm2_transcript import parse_transcript
from turnwise.replies.events import Message

CODE = "code_interpreter"
CALL = '<|action_start|><|plugin|>\n{"name": "f", "parameters": {"a": [1, "x"]}}<|action_end|>'
RUN = "<|action_start|><|interpreter|>\n```python\nprint(1)\n```<|action_end|>"


class Turn(NamedTuple):
    """An assistant's turn of a block: what was said before it, its text, and what it says."""

    before: list[dict[str, Any]]
    reply: str
    says: dict[str, Any]


def turns(block: str, spelling: str) -> Iterator[Turn]:
    text = block
    for old, new in zip(SPELLINGS["original"], SPELLINGS[spelling], strict=True):
        text = text.replace(old, new)
    start, end = SPELLINGS[spelling][:2]
    messages = parse_transcript(text).messages()
    for index, turn in enumerate(text.split(start)[1:]):
        if turn.startswith("assistant\n"):
            reply = turn.removeprefix("assistant\n").rstrip("\n")
            assert reply.endswith(end)
            yield Turn(messages[:index], reply, messages[index])


def all_turns(spelling: str) -> list[Turn]:
    return [turn for block in blocks() for turn in turns(block, spelling)]


@cache
def template(spelling: str) -> turnwise.Template:
    return turnwise.compile({"spelling": spelling}, "internlm2")


def called(message: Any) -> list[tuple[str, Any]]:
    """Names and arguments, whichever of the two shapes the calls have."""
    found = []
    for call in message.get("tool_calls") or ():
        if call["type"] == CODE:
            found.append((CODE, {"code": call["code"]}))
            continue
        arguments = call["function"]["arguments"]
        found.append(
            (
                call["function"]["name"],
                json.loads(arguments) if isinstance(arguments, str) else arguments,
            )
        )
    return found


def check(found: Message, turn: Turn) -> None:
    assert (found["content"] or "").rstrip("\n") == (turn.says["content"] or "").rstrip("\n")
    assert called(found) == called(turn.says)
    assert {one.status for one in found.attempts} <= {"complete"} and found.stop is not None


@needs_corpus
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_seeds_turns_as_text(spelling: str) -> None:
    found = all_turns(spelling)
    kinds = {name for turn in found for name, _ in called(turn.says)}
    assert len(found) >= 8 and kinds == {"get_current_weather", CODE}
    for turn in found:
        prompt = template(spelling).render(turn.before, add_generation_prompt=True)
        check(template(spelling).parse(turn.reply, prompt), turn)
        check(template(spelling).parse(turn.reply), turn)


@needs_corpus
@pytest.mark.parametrize("entry", ["internlm2", "internlm2-tools"])
def test_the_seeds_turns_with_the_entries(entry: str) -> None:
    """One entry writes `arguments`, as vLLM does; what the model writes is read all the same."""
    for turn in all_turns("current"):
        check(turnwise.load(entry).parse(turn.reply), turn)


@needs_corpus
def test_both_kinds_of_call_in_one_conversation() -> None:
    both = [
        block
        for block in blocks()
        if SPELLINGS["original"][4] in block and '"get_current_weather"' in block
    ]
    assert both
    for block in both:
        names = [
            name
            for turn in turns(block, "current")
            for name, _ in called(template("current").parse(turn.reply))
        ]
        assert names == [CODE, "get_current_weather"]


def test_both_kinds_of_call_in_one_reply() -> None:
    found = template("current").parse(f"First this.{CALL}{RUN}<|im_end|>")
    assert found["content"] == "First this."
    assert called(found) == [("f", {"a": [1, "x"]}), (CODE, {"code": "print(1)"})]


def test_letter_by_letter() -> None:
    reply = f"I run it.\n{RUN}\n<|im_end|>"
    parser = template("current").parser()
    events = [event for letter in reply for event in parser.feed(letter)]
    message = parser.close()
    whole = template("current").parse(reply)
    assert message == whole and message.spans == whole.spans
    deltas = (event.text for event in (*events, *message.events) if event.kind == "arguments")
    assert "".join(deltas) == whole["tool_calls"][0]["function"]["arguments"]


# As ids


def encoded(reply: str) -> list[int]:
    """As a model samples it: the six tokens as their ids, all else as text."""
    known, texts = vocabularies.load("internlm2"), [reply]
    for token in SPELLINGS["current"]:
        texts = [part for text in texts for part in split(text, token)]
    ids = dict(zip(SPELLINGS["current"], IDS, strict=True))
    return [id for text in texts for id in ([ids[text]] if text in ids else known.encode(text))]


def split(text: str, token: str) -> Iterator[str]:
    if text in SPELLINGS["current"]:
        yield text
        return
    for number, part in enumerate(text.split(token)):
        if number:
            yield token
        if part:
            yield part


@needs_corpus
def test_the_seeds_turns_as_ids() -> None:
    known = vocabularies.load("internlm2")
    for turn in all_turns("current"):
        ids = encoded(turn.reply)
        assert ids[-1] == 92542 and (92541 in ids) == bool(turn.says.get("tool_calls"))
        found = template("current").parse(ids, tokenizer=known)
        check(found, turn)
        parser = template("current").parser(tokenizer=known)
        for id in ids:
            parser.feed(id)
        assert parser.close() == found


@needs_corpus
def test_only_ids_are_tokens() -> None:
    """Letters that look like a token, sampled as ordinary ids, are what the model said."""
    known = vocabularies.load("internlm2")
    plain = known.encode("Write ") + [id for letter in CALL for id in known.encode(letter)]
    assert not set(plain) & set(IDS)
    found = template("current").parse([*plain, 92542], tokenizer=known)
    assert "tool_calls" not in found and found.stop == "<|im_end|>"
    assert found["content"].replace(" ", "") == f"Write {CALL}".replace(" ", "")


REACT = {
    "more": [{"each": ["\nAction: ", ""], "parts": ["{name}", "\nAction Input: ", "{arguments}"]}]
}
ACTING = 'I look it up.\nAction: get_weather\nAction Input: {"city": "Oslo"}<|im_end|>'


def test_react_is_text_unless_it_is_declared() -> None:
    template = turnwise.load("internlm2-tools")
    assert "tool_calls" not in template.parse(ACTING)
    found = template.parse(ACTING, declared=REACT)
    (call,) = found["tool_calls"]
    assert found["content"] == "I look it up."
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Oslo"}'}


def test_a_declaration_that_is_none_is_refused() -> None:
    with pytest.raises(turnwise.SourceError, match="declared"):
        turnwise.load("chatml").parse("x", declared={"mor": []})

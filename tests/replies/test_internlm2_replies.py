"""InternLM2's replies: the assistant turns of its page, as text and as ids, in both spellings of its tokens.

What each turn says is known from `parse_transcript`, which reads the format by itself. The tokenizer's six ids have
the current names; the original ones are an older name of the same ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnwise
import vocabularies
from corpus import needs_corpus
from internlm2_page import blocks
from loaded import load_entry
from turnwise.dialects.internlm2 import IDS, SPELLINGS
from turnwise.replies.events import Message
from turnwise.replies.write import write
from turnwise.shapes import parse_transcript

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


def list_calls(message: Any) -> list[tuple[str, Any]]:
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
    assert list_calls(found) == list_calls(turn.says)
    assert {one.status for one in found.attempts} <= {"complete"} and found.stop is not None


@needs_corpus
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_seeds_turns_as_text(spelling: str) -> None:
    found = all_turns(spelling)
    kinds = {name for turn in found for name, _ in list_calls(turn.says)}
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
        check(load_entry(entry).parse(turn.reply), turn)


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
            for name, _ in list_calls(template("current").parse(turn.reply))
        ]
        assert names == [CODE, "get_current_weather"]


def test_both_kinds_of_call_in_one_reply() -> None:
    found = template("current").parse(f"First this.{CALL}{RUN}<|im_end|>")
    assert found["content"] == "First this."
    assert list_calls(found) == [("f", {"a": [1, "x"]}), (CODE, {"code": "print(1)"})]


def test_letter_by_letter() -> None:
    reply = f"I run it.\n{RUN}\n<|im_end|>"
    parser = template("current").parser()
    events = [event for letter in reply for event in parser.feed(letter)]
    message = parser.close()
    whole = template("current").parse(reply)
    assert message == whole and message.spans == whole.spans
    deltas = (event.text for event in (*events, *message.events) if event.kind == "arguments")
    assert "".join(deltas) == whole["tool_calls"][0]["function"]["arguments"]


# Code comes back


USER = {"role": "user", "content": "q"}


def render_turn(spelling: str, message: Any, **options: Any) -> str:
    """The turn of a message after its header."""
    found = template(spelling)
    before = found.render([USER], add_generation_prompt=True, **options).text
    whole = found.render([USER, message], **options).text
    assert whole.startswith(before) and whole.endswith("\n")
    return whole[len(before) : -1]


@needs_corpus
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_seeds_code_has_its_language(spelling: str) -> None:
    codes = 0
    for turn in all_turns(spelling):
        message = template(spelling).parse(turn.reply)
        for call, original in zip(
            message.get("tool_calls", ()), turn.says.get("tool_calls", ()), strict=True
        ):
            assert call["type"] == original["type"]
            if call["type"] == CODE:
                codes += 1
                assert (call["code"], call["lang"]) == (original["code"], "python")
                assert "verbatim" not in call
        # A newline between the end of the call and the end of the turn is white space at a marker.
        end = SPELLINGS[spelling][1]
        as_written = turn.reply.removesuffix(end).rstrip("\n") + end
        for again in (message, json.loads(json.dumps(message))):
            assert render_turn(spelling, again).removesuffix(end).rstrip("\n") + end == as_written
    assert codes == 2


CODE_BODIES = [
    "\n```python\nprint(1)\n```",
    "\n```javascript\nconsole.log(1)\n```",
    "\n```c++\nint x;\n\n```",
    "\n```\nprint(1)\n```",
    "\n```python\n```",
    "\n```python\n\n```",
    "print(1)",
    "\nprint(1)\n",
    " ```python\nprint(1)\n```\n",
    "\n```python title=x\nprint(1)\n```",
    '\n```sh\necho "```"\n```',
    "",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("body", CODE_BODIES)
def test_code_comes_back(body: str, spelling: str) -> None:
    _, end, action_start, action_end, interpreter, _ = SPELLINGS[spelling]
    reply = f"I run it.\n{action_start}{interpreter}{body}{action_end}{end}"
    message = template(spelling).parse(reply)
    (call,) = message["tool_calls"]
    assert call["type"] == CODE and message.attempts[0].status == "complete"
    assert json.loads(call["function"]["arguments"])["code"] == call["code"]
    assert json.loads(call["function"]["arguments"]).get("lang") == call["lang"]
    for again in (message, message.copy(), json.loads(json.dumps(message))):
        assert render_turn(spelling, again) == reply
    assert template(spelling).parse(render_turn(spelling, message)) == message


def test_the_languages() -> None:
    found = []
    for body in CODE_BODIES:
        reply = f"<|action_start|><|interpreter|>{body}<|action_end|>"
        (call,) = template("current").parse(reply)["tool_calls"]
        found.append((call["lang"], call["code"]))
    assert found[:4] == [
        ("python", "print(1)"),
        ("javascript", "console.log(1)"),
        ("c++", "int x;\n"),
        (None, "print(1)"),
    ]
    assert found[6] == (None, "print(1)") and found[8] == found[9] == ("python", "print(1)")


@settings(max_examples=40)
@given(body=st.text(alphabet="`\npy x1{}<|>", max_size=16))
def test_any_code_comes_back(body: str) -> None:
    reply = f"<|action_start|><|interpreter|>{body}<|action_end|><|im_end|>"
    message = template("current").parse(reply)
    assert render_turn("current", message) == reply


def test_the_token_tells_the_kind() -> None:
    """A tool may be called like the interpreter: its call is a function, and is written as one."""
    call = f'<|action_start|><|plugin|>\n{{"name": "{CODE}", "parameters": {{"code": "1"}}}}<|action_end|>'
    reply = f"{RUN}{call}{RUN}<|im_end|>"
    message = template("current").parse(reply)
    assert [call["type"] for call in message["tool_calls"]] == [CODE, "function", CODE]
    assert {call["function"]["name"] for call in message["tool_calls"]} == {CODE}
    assert render_turn("current", message) == reply
    assert write(template("current").grammar, message) == reply


@pytest.mark.parametrize("entry", ["internlm2-tools", "lmdeploy:internlm2"])
def test_code_comes_back_with_the_entries(entry: str) -> None:
    found = load_entry(entry)
    for run in (RUN, RUN.replace("python", "javascript"), RUN.replace("```python\n", "")):
        message = found.parse(f"So:{run}<|im_end|>")
        text = found.render([USER, json.loads(json.dumps(message))]).text
        assert text.endswith(f"<|im_start|>assistant\nSo:{run}<|im_end|>\n")


def test_results_of_code() -> None:
    """The id of a call tells which of the two a result is from."""
    message = template("current").parse(f"{RUN}{CALL}<|im_end|>")
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": call["type"]}
        for call in message["tool_calls"]
    ]
    text = template("current").render([USER, message, *results]).text
    assert f"<|im_start|>environment name=<|interpreter|>\n{CODE}<|im_end|>\n" in text
    assert "<|im_start|>environment name=<|plugin|>\nfunction<|im_end|>\n" in text


def test_a_streamed_call_is_known_by_its_name() -> None:
    """OpenAI's chunks know functions only; with the interpreter offered, its name tells what the call is."""
    arguments = json.dumps({"code": "print(1)", "lang": "python"})
    streamed = {"type": "function", "function": {"name": CODE, "arguments": arguments}}
    turn = {"role": "assistant", "content": "", "tool_calls": [streamed]}
    assert render_turn("current", turn, code_interpreter=True) == f"{RUN}<|im_end|>"
    assert "<|plugin|>" in render_turn("current", turn)


def test_code_that_breaks_off() -> None:
    message = template("current").parse("<|action_start|><|interpreter|>\n```python\nprint(")
    (call,) = message["tool_calls"]
    assert (call["type"], call["code"], call["lang"]) == (CODE, "print(", "python")
    assert message.attempts[0].status == "unterminated" and message.finish_reason == "length"


def test_a_call_without_code_is_refused() -> None:
    turn = {"role": "assistant", "content": "", "tool_calls": [{"type": CODE, "lang": "python"}]}
    with pytest.raises(turnwise.TurnwiseError, match="code interpreter has no code"):
        template("current").render([turn])


# As ids


def encode_reply(reply: str) -> list[int]:
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
        ids = encode_reply(turn.reply)
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
    template = load_entry("internlm2-tools")
    assert "tool_calls" not in template.parse(ACTING)
    found = template.parse(ACTING, declared=REACT)
    (call,) = found["tool_calls"]
    assert found["content"] == "I look it up."
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Oslo"}'}


def test_a_declaration_that_is_none_is_refused() -> None:
    with pytest.raises(turnwise.SourceError, match="declared"):
        load_entry("chatml").parse("x", declared={"mor": []})

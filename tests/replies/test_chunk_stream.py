"""Chunks in OpenAI's shape: the package `openai` accepts them, and accumulates them to the message."""

from __future__ import annotations

import pytest

import turnwise
from loaded import load_entry
from reply_grammars import EXAMPLES, GRAMMARS
from turnwise import ChunkStream
from turnwise.replies.parser import Parser

CALL = '<tool_call>\n{"name": "tide", "arguments": {"day": 3}}\n</tool_call>'
TIDE = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}


def stream_chunks(parser, reply, size=1, was_cut=None):
    """Return all chunks, and the message."""
    stream = ChunkStream(parser, id="chatcmpl-1", model="m", created=7)
    parts = [reply[at : at + size] for at in range(0, len(reply), size)]
    chunks = [chunk for part in parts for chunk in stream.feed(part)]
    chunks += stream.close(was_cut)
    return chunks, stream.message


def accumulate(chunks):
    """Return the choice that the package makes of the chunks."""
    # imported here: it takes a second, which every run would wait for
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletionChunk

    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk, strict=True))
    return state.get_final_completion().choices[0]


def finish_reason(chunks):
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert not any(reasons[:-1])
    return reasons[-1]


@pytest.mark.law
@pytest.mark.parametrize("size", [1, 5, 10_000])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.grammar)
def test_the_chunks_accumulate_to_the_message(example, size):
    chunks, message = stream_chunks(Parser(GRAMMARS[example.grammar]), example.reply, size)
    choice = accumulate(chunks)
    read = choice.message.model_dump(exclude_none=True)
    assert read["role"] == "assistant"
    assert (read.get("content") or None) == (message["content"] or None)
    assert read.get("reasoning_content") == message.get("reasoning_content")
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {key: call["function"][key] for key in ("name", "arguments")},
        }
        for call in read.get("tool_calls") or ()
    ]
    assert calls == message.get("tool_calls", [])
    assert choice.finish_reason == message.finish_reason
    assert choice.finish_reason == ("tool_calls" if example.calls else "stop")


def test_the_role_comes_first_and_no_delta_but_the_last_is_empty():
    chunks, _ = stream_chunks(load_entry("qwen3").parser(), "On it.\n" + CALL + "<|im_end|>")
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all(deltas[:-1]) and deltas[-1] == {}
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_a_stream_without_any_text_has_a_role_and_an_end():
    chunks, message = stream_chunks(load_entry("qwen3").parser(), "")
    assert len(chunks) == 2 and finish_reason(chunks) == "stop"
    assert message["content"] == ""


def test_the_part_of_the_message_that_the_prompt_holds_is_streamed():
    template = load_entry("chatml")
    prompt = template.render([{"role": "user", "content": "?"}], add_generation_prompt=True)
    chunks, message = stream_chunks(template.parser(str(prompt) + "Aye"), ", aye.<|im_end|>")
    assert message["content"] == "Aye, aye."
    assert accumulate(chunks).message.content == "Aye, aye."


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("Aye.<|im_end|>", "stop"),
        ("Aye.", "stop"),  # servers remove the stop
        (CALL + "<|im_end|>", "tool_calls"),
        (CALL, "tool_calls"),
        (CALL[:50], "length"),
        (CALL + "\n" + CALL[:50], "length"),
        ("<think>\nLet me", "length"),
        ("<think>\nLet me<|im_end|>", "stop"),
    ],
)
def test_the_reason_is_what_the_text_shows(reply, reason):
    template = load_entry("qwen3")
    assert template.parse(reply).finish_reason == reason
    for was_cut, known in ((None, reason), (True, "length")):
        assert finish_reason(stream_chunks(template.parser(), reply, was_cut=was_cut)[0]) == known
    known = "tool_calls" if "tool_calls" in template.parse(reply) else "stop"
    assert finish_reason(stream_chunks(template.parser(), reply, was_cut=False)[0]) == known


def test_ids_are_unique_in_a_stream_and_given_once():
    template = load_entry("qwen3")
    chunks, message = stream_chunks(template.parser(call_ids="call_"), "\n".join([CALL] * 12))
    calls = [
        call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())
    ]
    ids = [call["id"] for call in calls if call.get("id")]
    assert ids == [call["id"] for call in message["tool_calls"]]
    assert len(set(ids)) == 12 and all(id.startswith("call_") for id in ids)


def test_several_choices_have_numbers():
    stream = ChunkStream(load_entry("chatml").parser(), id="x", model="m", index=2)
    assert {chunk["choices"][0]["index"] for chunk in stream.feed("Aye.")} == {2}
    assert stream.close() and stream.close() == []


def test_what_is_no_parser_is_refused():
    with pytest.raises(turnwise.TurnwiseError, match="the chunks of a parser"):
        ChunkStream(load_entry("chatml"), id="c", model="m")

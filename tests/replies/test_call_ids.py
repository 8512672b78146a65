"""Ids of calls: unique within a conversation, the same for the same prompt, the model's own unchanged."""

from __future__ import annotations

import pickle

import pytest

from loaded import load_entry
from turnwise.errors import TurnwiseError
from turnwise.replies import call_ids
from turnwise.replies.call_ids import CallIds, find_call_ids

TEMPLATE = load_entry("qwen3")
CALL = '<tool_call>\n{"name": "tide", "arguments": {}}\n</tool_call>'


def ids_of(message):
    return [call["id"] for call in message.get("tool_calls", ())]


def test_calls_of_one_reply_have_ids_of_nine_letters_and_digits_that_differ():
    found = ids_of(TEMPLATE.parse("\n".join([CALL] * 20)))
    assert len(set(found)) == 20
    assert all(len(id) == 9 and id.isalnum() for id in found)


def test_calls_of_two_turns_differ_and_the_same_prompt_gives_the_same_ids():
    chat = [{"role": "user", "content": "When?"}]
    seen: list[str] = []
    for _ in range(5):
        prompt = TEMPLATE.render(chat, add_generation_prompt=True)
        message = TEMPLATE.parse(CALL + "\n" + CALL, prompt)
        assert ids_of(message) == ids_of(TEMPLATE.parse(CALL + "\n" + CALL, str(prompt)))
        seen += ids_of(message)
        chat += [message, {"role": "tool", "content": "At noon."}]
    assert len(set(seen)) == 10
    assert set(find_call_ids(chat)) == set(seen)


def test_one_maker_serves_a_conversation_without_prompts():
    ids = CallIds()
    found = [id for _ in range(3) for id in ids_of(TEMPLATE.parse(CALL, call_ids=ids))]
    assert found == ["call00000", "call00001", "call00002"]


def test_ids_that_the_conversation_uses_are_left_out():
    ids = CallIds(used=["call00000", "call00001", "call00003"])
    assert [ids.make("tide", number) for number in range(3)] == [
        "call00002",
        "call00004",
        "call00005",
    ]


def test_an_id_that_the_model_wrote_is_kept_and_not_made_again():
    template = load_entry("mistral-nemo")
    reply = (
        '[TOOL_CALLS][{"name": "tide", "arguments": {}, "id": "call00001"},'
        ' {"name": "tide", "arguments": {}}]'
    )
    found = ids_of(template.parse(reply, ""))
    assert found[0] == "call00001" and len(set(found)) == 2


def test_no_id_starts_with_a_text_of_the_prompt(monkeypatch):
    monkeypatch.setattr(call_ids, "crc32", lambda data: 0xFFFFFF)
    assert CallIds("x").make("tide", 0) == "ffffff000"
    assert CallIds("ffffff000 000000").make("tide", 0) == "000001000"


def test_a_caller_may_give_a_prefix_or_a_function():
    assert ids_of(TEMPLATE.parse(CALL, "", call_ids="call_")) == ["call_000000000"]
    named = TEMPLATE.parse(CALL + CALL, call_ids=lambda name, number: f"functions.{name}:{number}")
    assert ids_of(named) == ["functions.tide:0", "functions.tide:1"]


@pytest.mark.parametrize("wrong", [7, ["call_"], lambda name, number: None])
def test_what_makes_no_ids_is_an_error(wrong):
    with pytest.raises(TurnwiseError, match="id"):
        TEMPLATE.parse(CALL, call_ids=wrong)


def test_a_call_that_breaks_off_has_an_id_too():
    template = load_entry("mistral-nemo")
    parser = template.parser()
    events = parser.feed('[TOOL_CALLS][{"name": "tide", "arguments": {"day": 1')
    message = parser.close()
    (id,) = ids_of(message)
    assert id == "call00000"
    assert [event.id for event in (*events, *message.events) if event.id] == [id]


def test_a_maker_can_be_pickled():
    ids = CallIds("a prompt", used=["x"])
    ids.make("tide", 0)
    assert pickle.loads(pickle.dumps(ids)).make("tide", 1) == ids.make("tide", 1)


def test_a_function_that_fails_is_named():
    with pytest.raises(TurnwiseError, match="the function given as call_ids failed: TypeError"):
        CallIds(make=lambda: "x").make("tide", 0)

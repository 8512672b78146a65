"""`integrations.transformers`: a bound tokenizer renders as transformers does, and is safe where that is not."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import jinja2
import numpy as np
import pytest

import turnwise
from host_chats import KINDS, TOOL, conversations, make_tokenizer
from lazy_modules import LazyModule
from turnwise.errors import TurnwiseError, TurnwiseWarning
from turnwise.integrations.tokenizer_template import template_of
from turnwise.integrations.transformers import bind, unbind

transformers = LazyModule("transformers")


def tide(harbour: str, day: int = 1) -> str:
    """Heights.

    Args:
        harbour: Where.
        day: When.
    """
    return f"{harbour} {day}"


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_that_of_transformers(kind: str) -> None:
    own, bound = make_tokenizer(kind), bind(make_tokenizer(kind))
    same = 0
    for chat in conversations():
        for prompt in (False, True):
            given = {"tools": chat["tools"], "add_generation_prompt": prompt, "tokenize": False}
            theirs = outcome(own.apply_chat_template, chat["messages"], **given)
            assert outcome(bound.apply_chat_template, chat["messages"], **given) == theirs
            same += theirs != "refused"
    assert same >= 30


@pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_masks_are_those_of_the_template(kind: str) -> None:
    bound = bind(make_tokenizer(kind))
    template = template_of(bound)
    trained = 0
    for chat in conversations():
        messages, tools = chat["messages"], chat["tools"]
        made = outcome(
            bound.apply_chat_template, messages, tools=tools, return_assistant_tokens_mask=True
        )
        if made == "refused":
            continue
        expected = template.encode(messages, bound, tools=tools, add_stop=False, normalise=False)
        assert isinstance(made, transformers.BatchEncoding)
        assert made["input_ids"] == expected.input_ids
        assert made["assistant_masks"] == expected.mask
        trained += any(expected.mask)
    assert trained >= 15


def test_a_message_cannot_write_control_tokens() -> None:
    own, bound = make_tokenizer("chatml"), bind(make_tokenizer("chatml"))
    chat = [{"role": "user", "content": "<|im_end|>"}]
    stop = own.convert_tokens_to_ids("<|im_end|>")
    assert own.apply_chat_template(chat)["input_ids"].count(stop) == 2
    assert bound.apply_chat_template(chat)["input_ids"].count(stop) == 1
    forged = bound.apply_chat_template(chat, sanitize_control_tokens=False)
    assert forged["input_ids"] == own.apply_chat_template(chat)["input_ids"]


def test_functions_are_tools() -> None:
    bound = bind(make_tokenizer("qwen2.5"))
    chat = [{"role": "user", "content": "hi"}]
    text = bound.apply_chat_template(chat, tools=[tide], tokenize=False)
    assert text == make_tokenizer("qwen2.5").apply_chat_template(chat, tools=[tide], tokenize=False)
    with pytest.raises(ValueError, match=r"tools\[1\].*docstring"):
        bound.apply_chat_template(chat, tools=[tide, test_functions_are_tools])


def test_replies_are_read_without_a_response_template() -> None:
    bound = bind(make_tokenizer("qwen3"))
    reply = (
        "<think>\nHm.\n</think>\n\n<tool_call>\n"
        '{"name": "tide", "arguments": {"harbour": "Delft", "day": "3"}}\n</tool_call><|im_end|>'
    )
    prompt = bound.apply_chat_template([{"role": "user", "content": "hi"}], tools=[tide])
    expected = template_of(bound).parse(reply, tools=[TOOL]).as_turn()
    call = expected["tool_calls"][0]["function"]
    assert (call["name"], call["arguments"]["harbour"]) == ("tide", "Delft")
    ids = bound(reply, add_special_tokens=False)["input_ids"]
    prefix = prompt["input_ids"]
    assert bound.parse_response(reply, prefix="", tools=[tide]) == expected
    after_prompt = template_of(bound).parse(ids, prefix, [TOOL], bound).as_turn()
    assert after_prompt["reasoning_content"] == "Hm."
    assert bound.parse_response(ids, prefix=prefix, tools=[TOOL]) == after_prompt
    batch = bound.parse_response(np.asarray([ids, ids]), prefix=prefix, tools=[TOOL])
    assert batch == [after_prompt, after_prompt]
    assert bound.parse_response([reply, "Aye."], tools=[TOOL])[1]["content"] == "Aye."
    other_model = "[TOOL_CALLS]tide[ARGS]{"
    assert bound.parse_response(other_model, prefix="")["content"] == other_model
    with pytest.raises(ValueError, match="3 prefixes for 2 responses"):
        bound.parse_response([reply, reply], prefix=["", "", ""])
    with pytest.raises(ValueError, match="texts or token ids"):
        bound.parse_response(None)


def test_copies_and_pickles_are_bound(tmp_path: Any) -> None:
    bound = bind(make_tokenizer("llama-3.1"))
    chat = [{"role": "user", "content": "<|eot_id|>"}]
    ids = bound.apply_chat_template(chat)["input_ids"]
    assert ids != make_tokenizer("llama-3.1").apply_chat_template(chat)["input_ids"]
    twins = [copy.copy(bound), copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))]
    for twin in [*twins, bind(bound)]:
        assert twin.apply_chat_template(chat)["input_ids"] == ids
        assert isinstance(twin, type(make_tokenizer("chatml")))
    twins[0].chat_template = "{{ messages[0].role }}"  # of one of them
    assert twins[0].apply_chat_template(chat, tokenize=False) == "user"
    assert bound.apply_chat_template(chat)["input_ids"] == ids
    bound.save_pretrained(tmp_path)
    saved = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(saved) is type(unbind(bound)) is type(make_tokenizer("chatml"))
    assert saved.chat_template == bound.chat_template
    assert bind(saved).apply_chat_template(chat)["input_ids"] == ids


def test_errors_are_those_that_callers_of_transformers_expect() -> None:
    bound = bind(make_tokenizer("mistral-v3"))
    with pytest.raises(jinja2.TemplateError) as caught:
        bound.apply_chat_template([{"role": "assistant", "content": "first"}] * 2)
    assert isinstance(caught.value, TurnwiseError)
    with pytest.raises(ValueError, match="no message"):
        bound.apply_chat_template([])
    bound.chat_template = None
    with pytest.raises(turnwise.SourceError, match="no chat template"):
        bound.apply_chat_template([{"role": "user", "content": "hi"}])
    with pytest.raises(turnwise.TokenizerError, match="bind takes a tokenizer"):
        bind("a path")
    own = inspect.signature(transformers.PreTrainedTokenizerBase.apply_chat_template)
    assert (
        list(inspect.signature(type(bound).apply_chat_template).parameters)[1:]
        == (list(own.parameters)[1:])
    )


def test_a_turn_that_is_not_trained_is_reported() -> None:
    bound = bind(make_tokenizer("chatml"))
    bound.chat_template = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    with pytest.warns(TurnwiseWarning) as caught:
        made = bound.apply_chat_template(chat, return_assistant_tokens_mask=True)
    assert not any(made["assistant_masks"])
    assert any("messages[1]" in str(one.message) for one in caught)


def outcome(call: Any, *arguments: Any, **named: Any) -> Any:
    """What a call returns; "refused" if the template, or Python in it, raises an error."""
    try:
        return call(*arguments, **named)
    except (jinja2.TemplateError, TypeError, AttributeError):
        return "refused"

"""The package `renderers` loads our renderer by its import path, and its own functions work with it."""

from __future__ import annotations

from typing import Any

import pytest

import turnwise
from host_chats import KINDS, conversations, make_tokenizer
from turnwise.integrations.renderers import create_renderer
from turnwise.integrations.tokenizer_template import template_of

PATH = "turnwise.integrations.renderers.TokenizerRenderer"


@pytest.fixture(scope="module")
def host() -> Any:
    return pytest.importorskip("renderers")


def make_renderer(host: Any, tokenizer: Any, **fields: Any) -> Any:
    return host.create_renderer(
        tokenizer, host.configs.CustomRendererConfig(import_path=PATH, **fields)
    )


@pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_samples_and_steps_are_those_of_the_template(host: Any, kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    renderer, template = make_renderer(host, tokenizer), template_of(tokenizer)
    for chat in conversations():
        messages, tools = chat["messages"], chat["tools"]
        expected = template.encode(messages, tokenizer, tools=tools, add_stop=False)
        sample = host.build_training_sample(renderer, messages, tools=tools)
        assert sample.token_ids == expected.input_ids
        assert sample.loss_mask == list(map(bool, expected.mask))
        step = host.build_trajectory_step(renderer, messages[:1], messages[1:], tools=tools)
        assert step["prompt_ids"] + step["completion_ids"] == expected.input_ids
    assert len(conversations()) >= 20


def test_a_reply_is_read_and_bridged(host: Any) -> None:
    renderer = make_renderer(host, make_tokenizer("chatml"))
    chat = [{"role": "user", "content": "hi <|im_end|>"}]
    prompt = renderer.render_ids(chat, add_generation_prompt=True)
    reply = renderer.tokenizer.whole("Aye.<|im_end|>")
    assert renderer.parse_response(reply).content == "Aye."
    bridge = renderer.bridge_to_next_turn(prompt, reply, chat)
    assert bridge.token_ids[: len(prompt + reply)] == prompt + reply
    finished = [*chat, {"role": "assistant", "content": "Aye."}]
    sample = host.build_training_sample(renderer, finished, ensure_final_stop=True)
    assert sample.loss_mask[-2:] == [True, False]  # the stop, and the newline after it


def test_fields_of_the_config_are_variables_of_the_template(host: Any) -> None:
    tokenizer = make_tokenizer("qwen3")
    chat = [{"role": "user", "content": "hi"}]
    plain = create_renderer(tokenizer, enable_thinking=False)
    made = make_renderer(host, tokenizer, enable_thinking=False, thinking_retention="all")
    ids = made.render_ids(chat, add_generation_prompt=True)
    assert ids == plain.render_ids(chat, add_generation_prompt=True)
    assert tokenizer.decode(ids).endswith("</think>\n\n") and made.history == "keep"
    with pytest.raises(turnwise.MessageError, match="thinking_retention"):
        make_renderer(host, tokenizer, thinking_retention="tool_cycle")

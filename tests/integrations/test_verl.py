"""verl's wiring makes our builder, and a rollout keeps the sampled ids: `make integrations-verl`."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import host_sources
import turnwise
from host_chats import KINDS, TEXTS, TOOL, make_call, make_tokenizer
from turnwise.errors import TurnwiseError
from turnwise.integrations import verl
from turnwise.integrations.tokenizer_template import template_of
from turnwise.replies.write import write

ROUNDS = 22
REPLIES: tuple[dict[str, Any], ...] = (
    {"role": "assistant", "content": "Aye."},
    {"role": "assistant", "content": "Aye.", "reasoning_content": "Let me see."},
    {"role": "assistant", "content": "", "tool_calls": [make_call("tide", '{"harbour": "Delft"}')]},
)


@pytest.fixture
def wiring(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = host_sources.import_part(verl.WIRING, bare=2)
    registry = dict(made._CONTINUOUS_TOKEN_BUILDER_REGISTRY)
    monkeypatch.setattr(made, "_CONTINUOUS_TOKEN_BUILDER_REGISTRY", registry)
    verl.install()
    return made


def rollouts(tokenizer: Any) -> Any:
    """Pairs of messages and what follows the reply, with the reply as text."""
    template = template_of(tokenizer)
    for index in range(ROUNDS):
        question = [{"role": "user", "content": TEXTS[index % len(TEXTS)]}]
        message = REPLIES[index % len(REPLIES)]
        reply = write(
            template.grammar, message, template.render(question, add_generation_prompt=True)
        )
        answer = {"role": "user", "content": TEXTS[-1 - index % len(TEXTS)]}
        if message.get("tool_calls"):
            answer = {"role": "tool", "tool_call_id": "call00001", "content": "2 m <|im_end|>"}
        yield question, message, reply, [answer]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_is_that_of_a_session(wiring: Any, kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    builder = wiring.create_continuous_token_builder(tokenizer, hf_model_type="qwen3")
    template = template_of(tokenizer)
    for question, message, reply, following in rollouts(tokenizer):
        ids = builder.build_initial_tokens(question, tools=[TOOL])
        session = template.session(tokenizer, [TOOL])
        assert ids == session.prompt(question)
        sampled = tokenizer(reply, add_special_tokens=False)["input_ids"]
        merged = builder.merge_assistant_tokens(ids, sampled)
        mask, _ = builder.align_response_metadata(merged, [])
        assert merged.token_ids == ids + sampled and mask == [1] * len(sampled)
        history = [*question, message]
        result = builder.merge_context_tokens(
            history, [*history, *following], merged.token_ids, tools=[TOOL]
        )
        session.add_reply(sampled)
        assert result.token_ids == session.extend(following, history="keep")
        mask, _ = builder.align_response_metadata(result, mask)
        assert mask == session.mask[len(ids) :]


@pytest.mark.slow
def test_errors_are_those_of_verl(wiring: Any) -> None:
    builder = wiring.create_continuous_token_builder(make_tokenizer("chatml"))
    chat = [{"role": "user", "content": "hi"}]
    ids = builder.build_initial_tokens(chat)
    with pytest.raises(ValueError, match="append-only"):
        builder.merge_context_tokens(chat, [], ids)
    with pytest.raises(ValueError, match="where the reply begins") as caught:
        builder.merge_context_tokens(chat, [*chat, chat[0]], [1, 2, 3])
    assert isinstance(caught.value, TurnwiseError)
    with pytest.raises(ValueError, match="text, not of images"):
        builder.build_initial_tokens(chat, images=["x"])


@pytest.mark.slow
def test_signatures_are_those_of_verl() -> None:
    host = host_sources.import_part(verl.BUILDERS, bare=2).ContinuousTokenBuilder
    ours = verl.builder_class()
    for name in ("build_initial_tokens", "merge_context_tokens", "merge_assistant_tokens"):
        expected = inspect.signature(getattr(host, name)).parameters
        assert list(inspect.signature(getattr(ours, name)).parameters) == list(expected)


def test_ids_before_a_reply_stay_as_they_are() -> None:
    """Without verl: the ids are not those that our tokenizer makes of the text."""
    template = turnwise.load("chatml")
    tokenizer = make_tokenizer("chatml")
    tokens = verl.SessionTokens(tokenizer, {})
    chat = [{"role": "user", "content": "hi"}]
    prompt = tokens.encode_prompt(chat, None)
    odd = [tokenizer(letter, add_special_tokens=False)["input_ids"][0] for letter in "Aye"]
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    ids = [*prompt[1:], *odd, stop]  # verl may cut off the start of a prompt
    tokens.note_reply(prompt[1:], ids)
    longer = tokens.extend([*chat, {"role": "assistant", "content": "Aye"}], chat, ids, None)
    assert longer[: len(ids)] == ids
    rendered = template.encode(
        [*chat, {"role": "assistant", "content": "Aye"}, *chat],
        tokenizer,
        add_generation_prompt=True,
    )
    assert tokenizer.decode(longer[len(ids) :]) == rendered.text[rendered.text.index("Aye") + 13 :]
    with pytest.raises(turnwise.MessageError, match="where the reply begins"):
        tokens.extend(chat, chat, [5, 6], None)

"""`examples` loses nothing: random conversations with calls, reasoning and weights, on every template of the corpus.

Each assistant message that has a weight is trained in exactly one sample, or named in `untrained` and in a warning. A
trained turn follows the prompt that serving sends; what the template writes of a call when it is the last message, its
id above all, is trained.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import corpus
import turnwise
from published_templates import template_of
from turnwise.errors import TurnwiseWarning
from turnwise.tokens.encoded import Encoded

pytestmark = corpus.needs_corpus
TOKENIZER = "turnwise"
NAMES = ("tide", "moon", "wind")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"The {name}.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
        },
    }
    for name in NAMES
]
WORDS = st.sampled_from(["Oslo", "at noon", "high\nwater", "漢字", "a <b> c", "1"])


@st.composite
def agent_chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rounds of a question, calls with their results, and an answer."""
    messages: list[dict[str, Any]] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": "Be brief."})
    number = 100_000_000
    for index in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": f"{index} {draw(WORDS)}?"})
        for _ in range(draw(st.integers(0, 2))):
            number += 1
            call = {
                "id": str(number),
                "type": "function",
                "function": {
                    "name": draw(st.sampled_from(NAMES)),
                    "arguments": {"place": draw(WORDS)},
                },
            }
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            messages.append(
                {"role": "tool", "tool_call_id": str(number), "name": "x", "content": draw(WORDS)}
            )
        messages.append({"role": "assistant", "content": f"{index} {draw(WORDS)}."})
        if draw(st.booleans()):
            messages[-1]["reasoning_content"] = f"Hm {draw(WORDS)}"
        if draw(st.integers(0, 5)) == 0:
            messages[-1]["weight"] = 0
    return messages


def check_examples(name: str, chat: list[dict[str, Any]], tools: Any) -> int:
    """Hold the laws for one conversation; return the number of samples."""
    template = template_of(name)
    given_ = {"tools": tools, "now": corpus.NOW}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TurnwiseWarning)
        try:
            template.render(chat, **given_)
        except turnwise.TurnwiseError:
            return 0
        found = template.examples(chat, TOKENIZER, **given_)
    warned = "\n".join(str(warning.message) for warning in caught)
    wanted = [
        index
        for index, message in enumerate(chat)
        if message["role"] == "assistant" and message.get("weight") != 0
    ]
    trained = sorted(index for sample in found for index in {turn.message for turn in sample.turns})
    named = [turn.message for turn in found.untrained]
    assert sorted(trained + named) == wanted, (name, chat)
    assert all(str(turn) in warned for turn in found.untrained)
    for sample in found:
        check_sample(template, sample, chat, given_)
    return len(found)


def check_sample(
    template: turnwise.Template, sample: Encoded, chat: list[dict[str, Any]], given_: Any
) -> None:
    first: dict[int, int] = {}
    for turn in sample.turns:
        first.setdefault(turn.message, turn.start)
    text = "".join(
        token for token, label in zip(sample.tokens, sample.labels, strict=True) if label != -100
    )
    for index, start in first.items():
        prompt = template.render(chat[:index], add_generation_prompt=True, **given_)
        assert sample.text[:start] == str(prompt), (template.name, index)
        for call in chat[index].get("tool_calls", ()):
            try:
                last = str(template.render(chat[: index + 1], **given_))
            except turnwise.TurnwiseError:
                continue
            assert call["id"] not in last or call["id"] in text, (template.name, index, text)


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    name=st.sampled_from(sorted(corpus.load_published()) or ["none"]),
    chat=agent_chats(),
    with_tools=st.booleans(),
)
def test_no_turn_of_a_random_conversation_is_lost(
    name: str, chat: list[dict[str, Any]], with_tools: bool
) -> None:
    check_examples(name, chat, TOOLS if with_tools else None)


FIXED = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "When?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "100000001",
                "type": "function",
                "function": {"name": "tide", "arguments": {"place": "Oslo"}},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "100000001", "name": "tide", "content": "at noon"},
    {"role": "assistant", "content": "At noon.", "reasoning_content": "Easy."},
    {"role": "user", "content": "And later?"},
    {"role": "assistant", "content": "At six."},
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_no_template_of_the_corpus_loses_a_turn() -> None:
    counts = [
        check_examples(name, chat, tools)
        for name in corpus.load_published()
        for chat in (FIXED, FIXED[1:], [*FIXED[:2], *FIXED[-3:]])
        for tools in (None, TOOLS)
    ]
    assert sum(counts) > 500 and max(counts) > 1


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_a_call_keeps_the_id_that_the_template_writes() -> None:
    """The prompt of this template differs from the finished conversation, so its replies are written by grammar."""
    template = template_of("vllm-tool_chat_template_mistral_parallel")
    first, second = template.examples(FIXED[1:5], TOKENIZER, tools=TOOLS)
    assert '"id": "100000001"}]</s>' in first.text[first.turns[0].start :]
    assert [turn.message for turn in second.turns] == [3]


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_an_id_that_the_template_writes_in_history_only_is_not_trained() -> None:
    """Apriel-1.5 leaves it out of the last message (`if loop.last`): the model does not write it."""
    template = template_of("llamacpp-unsloth-Apriel-1.5")
    first, second = template.examples(FIXED[1:5], TOKENIZER, tools=TOOLS)
    assert "100000001" not in first.text and '"id": "100000001"' in second.text


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_a_written_reply_ends_with_the_stop_of_the_tokenizer() -> None:
    """The template was given no eos, so it is the tokenizer's, for written replies as for rendered ones."""
    text = corpus.load_published()["vllm-tool_chat_template_mistral_parallel"].text
    template = turnwise.compile(text)
    first, second = template.examples(FIXED[1:5], TOKENIZER, tools=TOOLS)
    assert first.text.endswith('"100000001"}]<|im_end|>') and second.text.endswith("<|im_end|>")
    assert first.turns[0].stop == len(first.text) - len("<|im_end|>")


REFUSING = (
    "{% if messages[-1].role == 'assistant' and messages[-1].content == 'Wait.' %}"
    "{{ raise_exception('goes on') }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_turn_at_which_no_conversation_may_end_is_trained() -> None:
    chat = [
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": "Wait."},
        {"role": "tool", "content": "noon"},
        {"role": "assistant", "content": "At noon."},
    ]
    found = turnwise.compile(REFUSING).examples(chat, TOKENIZER)
    assert not found.untrained
    assert sorted(turn.message for sample in found for turn in sample.turns) == [1, 3]


HIDING = (
    "{% set written %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{% endset %}{{ written.replace('\t', ' ') }}"
)


def test_a_turn_whose_origin_is_hidden_is_what_follows_its_prompt() -> None:
    chat = [
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": "At noon."},
        {"role": "user", "content": "And later?"},
        {"role": "assistant", "content": "At six."},
    ]
    template = turnwise.compile(HIDING)
    for sample in template.examples(chat, TOKENIZER):
        (turn,) = sample.turns
        assert sample.text[turn.start : turn.end] == chat[turn.message]["content"] + "<|im_end|>"


def test_the_first_conversation_of_a_template_is_normalised_as_later_ones_are() -> None:
    """No sample ends with the last message here, so that no error shows that the template takes no system text."""
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": "At noon."},
        {"role": "user", "content": "And later?"},
    ]
    template = turnwise.load("mistral")
    first, second = (template.examples(chat, TOKENIZER, strict=True) for _ in range(2))
    assert len(first) == 1
    assert first[0].input_ids == second[0].input_ids

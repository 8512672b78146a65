"""What becomes of a conversation with more ids than `max_length`: rounds are dropped, a turn is cut, or an error.

Laws: the result has at most so many ids; what is left of it is what the whole had there; a turn that was cut has no
trained stop and is named; and `examples` trains each turn in exactly one sample, or names it.
"""

from __future__ import annotations

import pickle
import warnings
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import turnwise
from turnwise.errors import TurnwiseWarning
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.truncation import OVERFLOW

TOKENIZER = "turnwise"
STOP = "<|im_end|>"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Writes reasoning only after the last question, as Qwen3 does.
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content and loop.last %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Opens the reasoning in the prompt and leaves it out of history, as DeepSeek-R1 does.
DIVERGING = CHATML.replace("assistant\n{% endif", "assistant\n<think>{% endif")
TEMPLATES = {
    "appends": turnwise.compile(CHATML),
    "forgets": turnwise.compile(FORGETFUL),
    "diverges": turnwise.compile(DIVERGING),
}
WORDS = st.lists(st.sampled_from(["tide", "at noon", "漢字", "🌊🌊", "é"]), min_size=1, max_size=6)

# Not every template of these tests writes reasoning.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not write its reasoning")


@st.composite
def chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rounds of a question, some calls with results, and an answer; the last one may be missing."""
    messages: list[dict[str, Any]] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": "Be brief."})
    for _ in range(draw(st.integers(1, 5))):
        messages.append({"role": "user", "content": " ".join(draw(WORDS))})
        for _ in range(draw(st.integers(0, 2))):
            messages.append({"role": "assistant", "content": " ".join(draw(WORDS))})
            messages.append({"role": "tool", "content": " ".join(draw(WORDS))})
        messages.append({"role": "assistant", "content": " ".join(draw(WORDS))})
        if draw(st.booleans()):
            messages[-1]["reasoning_content"] = " ".join(draw(WORDS))
    return messages


def list_trained_texts(found: Encoded) -> list[str]:
    """The trained texts, each as long as it goes on."""
    groups = groupby(zip(found.tokens, found.mask, strict=True), key=lambda pair: pair[1])
    return ["".join(token for token, _ in group) for mask, group in groups if mask]


def replies(messages: list[dict[str, Any]]) -> list[int]:
    return [index for index, message in enumerate(messages) if message["role"] == "assistant"]


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    chat=chats(),
    limit=st.integers(4, 120),
    overflow=st.sampled_from(["drop_rounds", "truncate"]),
    name=st.sampled_from(list(TEMPLATES)),
)
def test_examples_lose_no_turn(
    chat: list[dict[str, Any]], limit: int, overflow: Any, name: str
) -> None:
    template = TEMPLATES[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TurnwiseWarning)
        found = template.examples(chat, TOKENIZER, max_length=limit, overflow=overflow)
    warned = "\n".join(str(warning.message) for warning in caught)
    in_samples = [turn.message for sample in found for turn in sample.turns]
    named = [turn.message for turn in found.untrained]
    assert sorted(in_samples + named) == replies(chat), "trained once, or named"
    for turn in (*found.untrained, *found.incomplete):
        assert str(turn) in warned
    cut = {turn.message for turn in found.incomplete}
    for sample in found:
        assert len(sample) <= limit
        for turn in sample.turns:
            before = [chat[index] for index in sample.kept if index < turn.message]
            prompt = template.render(before, add_generation_prompt=True)
            assert sample.text[: turn.start] == str(prompt)
            assert sample.text[: turn.end].endswith(STOP) == (turn.message not in cut)
            assert turn.message not in cut or overflow == "truncate"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(chat=chats(), limit=st.integers(1, 100), compatible=st.booleans())
def test_what_is_cut_is_the_beginning_of_the_whole(
    chat: list[dict[str, Any]], limit: int, compatible: bool
) -> None:
    template = TEMPLATES["appends"]
    given_ = {"overflow": "truncate", "compatible": compatible}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TurnwiseWarning)
            found = template.encode(chat, TOKENIZER, max_length=limit, **given_)
    except turnwise.MessageError as error:
        assert "no assistant turn begins" in str(error)
        return
    kept = [chat[index] for index in found.kept]
    whole = template.encode(kept, TOKENIZER, compatible=compatible)
    count = len(found)
    assert count <= limit and found.input_ids == whole.input_ids[:count]
    assert found.labels == whole.labels[:count]
    assert [owner.piece for owner in found.owners] == [o.piece for o in whole.owners[:count]]
    assert "".join(found.tokens) == found.text == whole.text[: len(found.text)]
    assert pickle.loads(pickle.dumps(found)).incomplete == found.incomplete
    for turn in found.incomplete:
        assert STOP not in list_trained_texts(found)[-1] and turn.message in found.kept


def test_a_turn_is_cut_between_characters() -> None:
    template = TEMPLATES["appends"]
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "🌊" * 20}]
    whole = template.encode(chat, TOKENIZER)
    for limit in range(whole.token_offsets.first_at(whole.turns[0].start) + 4, len(whole)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TurnwiseWarning)
            found = template.encode(chat, TOKENIZER, max_length=limit, overflow="truncate")
        assert whole.text.startswith(found.text) and limit - 4 < len(found) <= limit
        assert found.tokenizer.decode(found.input_ids) == found.text


LONG = [
    {"role": "system", "content": "Be brief."},
    *(
        {"role": role, "content": f"{index} {'word ' * 8}"}
        for index in range(6)
        for role in ("user", "assistant")
    ),
]


def test_every_policy_does_what_it_says() -> None:
    template = TEMPLATES["appends"]
    whole = template.encode(LONG, TOKENIZER)
    half = len(whole) // 2
    for overflow in ("drop_rounds", "truncate"):
        found = template.examples(LONG, TOKENIZER, max_length=half, overflow=overflow)
        assert len(found) > 1 and not found.untrained and not found.incomplete
        assert [turn.message for sample in found for turn in sample.turns] == replies(LONG)
        assert all(sample.kept[0] == 0 for sample in found), "the system message stays"
    for call in (template.encode, template.examples):
        with pytest.raises(turnwise.MessageError, match=f"{len(whole)} tokens, more than"):
            call(LONG, TOKENIZER, max_length=half, overflow="refuse")
    assert len(template.examples(LONG, TOKENIZER, max_length=len(whole), overflow="refuse")) == 1


def test_a_round_that_is_too_long_names_the_way_out() -> None:
    template, last = TEMPLATES["appends"], [LONG[0], *LONG[-2:]]
    limit = len(template.encode(last, TOKENIZER)) - 3
    with pytest.raises(turnwise.MessageError, match='overflow="truncate"'):
        template.encode(LONG, TOKENIZER, max_length=limit)
    with pytest.warns(TurnwiseWarning, match=r"messages\[12\]: the last round alone has"):
        found = template.examples(LONG[:1] + LONG[-2:] * 6, TOKENIZER, max_length=limit)
    assert not found and len(found.untrained) == 6
    with pytest.warns(TurnwiseWarning, match=r"messages\[2\]: max_length=.* cuts off its end"):
        found = template.examples(last, TOKENIZER, max_length=limit, overflow="truncate")
    assert len(found[0]) == limit and STOP not in "".join(list_trained_texts(found[0]))
    with pytest.raises(turnwise.MessageError, match="has no stop"):
        template.examples(last, TOKENIZER, max_length=limit, overflow="truncate", strict=True)


def test_turns_after_the_cut_are_named() -> None:
    chat = [LONG[1], LONG[2], {"role": "tool", "content": "word " * 20}, LONG[4]]
    whole = TEMPLATES["appends"].encode(chat, TOKENIZER)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TurnwiseWarning)
        found = TEMPLATES["appends"].encode(
            chat,
            TOKENIZER,
            max_length=whole.token_offsets.first_at(whole.turns[-1].start),
            overflow="truncate",
        )
    assert [turn.message for turn in found.turns] == [1] and not found.incomplete
    assert [str(turn) for turn in found.untrained] == ["messages[3]: max_length cuts it off"]


@pytest.mark.parametrize("overflow", [None, 3, "trunkate", ""])
def test_a_policy_that_does_not_exist_is_refused(overflow: Any) -> None:
    template = TEMPLATES["appends"]
    for call in (template.encode, template.examples):
        with pytest.raises(turnwise.MessageError, match="unknown overflow") as caught:
            call(LONG, TOKENIZER, overflow=overflow)
        assert all(name in str(caught.value) for name in OVERFLOW)
    if overflow == "trunkate":
        assert "Did you mean 'truncate'" in str(caught.value)


def test_only_the_final_message_is_continued() -> None:
    chat = [LONG[1], {**LONG[2], "reasoning_content": "Hm."}, LONG[3], LONG[4]]
    first, second = TEMPLATES["forgets"].examples(chat, TOKENIZER, continue_final_message=True)
    assert "".join(list_trained_texts(first)).endswith(STOP) and not second.text.rstrip().endswith(
        STOP
    )
    with pytest.raises(turnwise.MessageError, match="add_generation_prompt"):
        TEMPLATES["forgets"].examples(chat, TOKENIZER, add_generation_prompt=True)


# ---- cost ----

# Renderings for each turn, at most; with `max_length`, the number of rounds that fit is searched for, and the prompts
# of the few rounds that a sample has are its own.
MOST_RENDERINGS = {
    ("appends", None): 0.5,
    ("forgets", None): 3,
    ("diverges", None): 3,
    ("appends", 200): 1,
    ("forgets", 200): 20,
    ("diverges", 200): 20,
    ("forgets", 1000): 8,
}


@pytest.mark.law(3)
@pytest.mark.filterwarnings("ignore:.*trained as the model would write it")
@pytest.mark.parametrize(("name", "limit"), MOST_RENDERINGS)
def test_examples_render_each_turn_a_few_times(
    name: str, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted, not timed: how often a conversation is rendered for each turn, however many there are."""
    template = turnwise.compile(TEMPLATES[name].text)
    rendered: list[int] = []
    render = type(template.renderer).render

    def count(self: Any, messages: Any, *given_: Any, **more: Any) -> Any:
        rendered.append(len(messages))
        return render(self, messages, *given_, **more)

    monkeypatch.setattr(type(template.renderer), "render", count)
    for rounds in (12, 60):
        chat = [
            {"role": role, "content": f"{index} {role}", "reasoning_content": f"{index} Hm."}
            for index in range(rounds)
            for role in ("user", "assistant")
        ]
        template.examples(chat[:4], TOKENIZER, max_length=limit)  # what is learned once
        rendered.clear()
        found = template.examples(chat, TOKENIZER, max_length=limit)
        assert sum(len(sample.turns) for sample in found) == rounds
        assert len(rendered) / rounds <= MOST_RENDERINGS[name, limit], len(rendered)

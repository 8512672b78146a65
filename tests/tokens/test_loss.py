"""Loss: each trained turn stands after what serving would have sent, and only what the model must write is trained.

The first law (*train = serve*): the ids before a turn are those of the prompt before it. Where it fails the template
itself rewrites history, and `HISTORY` says which do and how often. `examples()` makes samples for which it never
fails, and for which a second law holds too: the trained text is what the template writes of the turn when it is the
last, right after that prompt.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import corpus
import turnwise
from published_templates import template_of
from turnwise.errors import TurnwiseWarning
from turnwise.messages.roles import ASSISTANT_ROLES
from turnwise.replies.events import messages_equal
from turnwise.tokens.boundaries import Turn
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import IGNORED, POLICIES
from turnwise.tokens.tokenizers import Tokenizer

pytestmark = [
    corpus.needs_corpus,
    pytest.mark.filterwarnings("ignore::turnwise.errors.TurnwiseWarning"),
]

Tokenizers = Callable[[str], Tokenizer]

THREE = (
    "qwen3",
    "llama3",
    "mistral_v0_1",
)  # two byte-level ones that cut differently, and one of SentencePiece
EVERY = 6  # one template in so many by default, and one in so many of those that rewrite history

# Turns after which the conversation is not what was served, by what the template does and by its name. All other turns
# of all other templates hold the law, with each of the three tokenizers.
HISTORY = {
    "writes the system message, or the tools, before whichever user message is the last": {
        "npm-mistral_nemo": 19,
        "llamacpp-Mistral-Small-3.2-24B-Instruct-2506": 3,
        "llamacpp-mistralai-Mistral-Nemo-Instruct-2407": 19,
        "vllm-tool_chat_template_mistral": 19,
        "vllm-tool_chat_template_mistral3": 4,
        "vllm-tool_chat_template_mistral_parallel": 30,
        "mistralcommon-v11_audio": 4,
        "mistralcommon-v11_image": 4,
        "mistralcommon-v11_image_think": 4,
        "mistralcommon-v2": 12,
        "mistralcommon-v3_image": 16,
        "mistralcommon-v3_spm": 16,
        "mistralcommon-v7_audio": 4,
        "mistralcommon-v7_spm": 4,
        "axolotl-mistral_v3_tekken": 20,
        "axolotl-pixtral": 17,
        "hfjs-mistralai--Mistral-7B-Instruct-v0.3-JSON-Schema-": 4,
        "ollama-mixtral-8x22b": 16,
    },
    "writes a system message of its own, but only before an opening": {
        "vllm-tool_chat_template_muse_glimmer": 62
    },
    "writes a later system message at the front": dict.fromkeys(
        [
            "npm-deepseek_v3",
            "llamacpp-deepseek-ai-DeepSeek-V3.1",
            "llamacpp-deepseek-ai-DeepSeek-V4-Flash-0731",
            "llamacpp-deepseek-ai-DeepSeek-V4",
            "llamacpp-llama-cpp-rwkv-world",
            "llamacpp-tencent-Hy3",
            "trl-cohere2_training",
            "mistralcommon-v1",
            "axolotl-deepseek_v3",
            "hfjs-deepseek-ai--deepseek-coder-33b-instruct",
            "hfjs-maywell--PiVoT-MoE",
            "hfjs-deepseek-ai--DeepSeek-R1",
            "ollama-deepseek-r1-8b",
            "ollama-deepseek-r1-latest",
            "ollama-deepseek-v2.5-236b",
            "ollama-deepseek-v3.1-latest",
            "ollama-nemotron-mini-4b",
            "ollama-phi4-mini-reasoning-3.8b",
        ],
        1,
    ),
    "writes the thought of the last turn only": dict.fromkeys(
        [
            "npm-qwen3",
            "trl-qwen3",
            "axolotl-qwen3",
            "axolotl-qwen3_5",
            "hfjs-LiquidAI--LFM2.5-VL-450M",
            "ollama-qwen3-next-80b",
            "unsloth-qwen3",
            "unsloth-qwen3_thinking",
        ],
        1,
    ),
    "opens a conversation that has no messages yet in another way": {},
}
REWRITING = {name: count for group in HISTORY.values() for name, count in group.items()}


def chosen_templates() -> list[str]:
    return sorted(
        {
            *list(corpus.load_published())[::EVERY],
            *list(REWRITING)[::EVERY],
            "npm-qwen3",
            "trl-gptoss_training",
        }
    )


def list_spoken_chats() -> Iterator[corpus.Chat]:
    for chat in corpus.chats().values():
        if any(message["role"] in ASSISTANT_ROLES for message in chat.messages):
            yield chat


def encode_or_none(
    used: str, chat: corpus.Chat, tokenizer: Tokenizer, normalise: bool = True
) -> Encoded | None:
    try:
        return template_of(used).encode(
            chat.messages, tokenizer, now=corpus.NOW, normalise=normalise, **chat.arguments
        )
    except turnwise.TurnwiseError:
        return None


def encode_served_prompt(
    used: str, chat: corpus.Chat, before: int, tokenizer: Tokenizer, normalise: bool = True
) -> Encoded | None:
    """What serving sends before this message."""
    given = {key: value for key, value in chat.arguments.items() if key != "continue_final_message"}
    given["normalise"] = normalise
    try:
        return template_of(used).encode(
            chat.messages[:before], tokenizer, now=corpus.NOW, add_generation_prompt=True, **given
        )
    except turnwise.TurnwiseError:
        return None


# ---- train = serve ----


def broken(used: str, tokenizer: Tokenizer, normalise: bool) -> Iterator[Encoded]:
    """The encoding of each turn of the corpus that stands after something that was not served."""
    for chat in list_spoken_chats():
        found = encode_or_none(used, chat, tokenizer, normalise)
        for turn in found.turns if found else ():
            prompt = encode_served_prompt(used, chat, turn.message, tokenizer, normalise)
            if prompt is None:
                assert turn.message == 0, "only a conversation of nothing has no prompt"
                continue
            assert found is not None
            if found.input_ids[: found.token_offsets.first_at(turn.start)] != prompt.input_ids:
                assert not found.text.startswith(prompt.text), (
                    used,
                    chat.id,
                    "same text, other ids",
                )
                yield found


def violations(templates: Iterable[str], tokenizer: Tokenizer) -> dict[str, int]:
    """How many there are for each template that rewrites history itself."""
    found = {used: len(list(broken(used, tokenizer, normalise=False))) for used in templates}
    return {used: count for used, count in found.items() if count}


@pytest.mark.law
@pytest.mark.parametrize("name", THREE)
def test_turns_stand_after_what_serving_sends(
    name: str, tokenizers: Tokenizers, sample: Any
) -> None:
    taken = sample(chosen_templates(), 5)
    expected = {used: REWRITING[used] for used in taken if used in REWRITING}
    assert violations(taken, tokenizers(name)) == expected


def test_normalising_rewrites_history_only_where_it_moves_a_system_text(
    tokenizers: Tokenizers,
) -> None:
    for used in [name for name in chosen_templates() if name not in REWRITING][::EVERY]:
        for found in broken(used, tokenizers(THREE[0]), normalise=True):
            assert any("system text" in change.what for change in found.rendering.changes), used


@pytest.mark.slow
@pytest.mark.parametrize("name", THREE)
def test_turns_of_every_template_stand_after_what_serving_sends(
    name: str, tokenizers: Tokenizers
) -> None:
    assert violations(corpus.load_published(), tokenizers(name)) == REWRITING


WORDS = st.sampled_from(
    ["Hi", " ", "\n", "\n\n", "a", " b", "漢", "é", "<think>", "</think>", "1", "  ", "\t", "."]
)
SAID = st.lists(WORDS, max_size=5).map("".join)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    texts=st.lists(SAID, min_size=2, max_size=6),
    name=st.sampled_from(THREE),
    used=st.sampled_from(
        ["npm-qwen2_5", "npm-llama3", "npm-internlm2", "chujie-vicuna", "mistralcommon-v1"]
    ),
)
def test_turns_of_any_text_stand_after_what_serving_sends(
    tokenizers: Tokenizers, texts: list[str], name: str, used: str
) -> None:
    """Replies that begin with white space too, which one joint encoding would merge into the opening."""
    chat = corpus.Chat("drawn", frozenset(), alternate_turns(*texts), {})
    found = encode_or_none(used, chat, tokenizers(name))
    for turn in found.turns if found else ():
        prompt = encode_served_prompt(used, chat, turn.message, tokenizers(name))
        assert found is not None and prompt is not None
        assert found.input_ids[: found.token_offsets.first_at(turn.start)] == prompt.input_ids


# ---- examples ----


PARTLY = "the template does not write its"


def hold(used: str, tokenizer: Tokenizer) -> Counter[int]:
    """Both laws for every turn of every sample; how many samples there were to a conversation."""
    count: Counter[int] = Counter()
    for chat in list_spoken_chats():
        if chat.continued or encode_or_none(used, chat, tokenizer) is None:
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TurnwiseWarning)
            samples = template_of(used).examples(
                chat.messages, tokenizer, now=corpus.NOW, **chat.arguments
            )
        count[len(samples)] += 1
        trained = [turn.message for found in samples for turn in found.turns]
        assert len(trained) == len(set(trained)), "no turn twice"
        for found in samples:
            for turn in found.turns:
                check_turn(used, chat, found, turn, tokenizer)
        warned = " ".join(str(warning.message) for warning in caught)
        for index, message in enumerate(chat.messages):
            if message["role"] in ASSISTANT_ROLES:
                if index not in trained:
                    assert f"messages[{index}]:" in warned, "trained, or reported as untrained"
                elif f"messages[{index}]:" in warned:
                    assert f"messages[{index}]: {PARTLY}" in warned, (
                        "trained, and reported as untrained"
                    )
    return count


def check_turn(
    used: str, chat: corpus.Chat, found: Encoded, turn: Turn, tokenizer: Tokenizer
) -> None:
    prompt = encode_served_prompt(used, chat, turn.message, tokenizer)
    assert prompt is not None
    first, last = found.token_offsets.first_at(turn.start), found.token_offsets.last_at(turn.end)
    assert found.input_ids[:first] == prompt.input_ids, (used, chat.id, turn)
    assert found.labels[first:last] == found.input_ids[first:last]
    cut = corpus.Chat(chat.id, chat.tags, chat.messages[: turn.message + 1], chat.arguments)
    own = encode_or_none(used, cut, tokenizer)
    stops = template_of(used).stops(tokenizer)
    is_ended = own is not None and any(
        own.text[one.stop : one.end] in stops for one in own.turns if one.message == turn.message
    )
    if own is None or not own.text.startswith(prompt.text) or not is_ended:
        # The template would not write it there, or not end it: the grammar did.
        read = template_of(used).parse(found.text[turn.start :], prompt=prompt.rendering)
        assert messages_equal(read, chat.messages[turn.message]), (used, chat.id, turn)
        return
    assert own.text[: turn.end] == found.text[: turn.end], (
        "the model would have written something else"
    )
    assert last_word(own, turn.message) <= turn.end, "the turn ends before all is said"


def last_word(found: Encoded, message: int) -> int:
    """Where the last text of a message ends; white space aside, which templates may write after a stop."""
    at = last = 0
    for piece in found.rendering.pieces:
        at += len(piece.text)
        path = piece.origin.path
        if (
            path
            and path[:2] == ("messages", message)
            and path[2:] != ("role",)
            and piece.text.strip()
        ):
            last = at - len(piece.text) + len(piece.text.rstrip())
    return last


@pytest.mark.law
@pytest.mark.parametrize(
    "name", [THREE[0], *(pytest.param(name, marks=pytest.mark.slow) for name in THREE[1:])]
)
def test_examples_hold_both_laws(name: str, tokenizers: Tokenizers, sample: Any) -> None:
    count: Counter[int] = Counter()
    taken = sample(chosen_templates(), 5)
    for used in taken:
        count += hold(used, tokenizers(name))
    assert count[1] > 20 * len(taken)
    if len(taken) == len(chosen_templates()):
        assert sum(size for samples, size in count.items() if samples > 1) > 20, count


@pytest.mark.slow
@pytest.mark.parametrize("name", THREE)
def test_examples_of_every_template_hold_both_laws(name: str, tokenizers: Tokenizers) -> None:
    for used in corpus.load_published():
        hold(used, tokenizers(name))


def test_examples_are_as_few_as_can_be(tokenizers: Tokenizers) -> None:
    thought = [
        *alternate_turns("2+2?", "4", "3+3?", "6"),
        *alternate_turns("Add them.", "10"),
    ]
    for message in thought[1::2]:
        message["reasoning_content"] = "Easy."
    plain = template_of("npm-qwen3").examples(
        alternate_turns("2+2?", "4", "3+3?", "6"), tokenizers("qwen3")
    )
    dropped = template_of("npm-qwen3").examples(thought, tokenizers("qwen3"))
    kept = template_of("trl-qwen3_training").examples(thought, tokenizers("qwen3"))
    assert [[turn.message for turn in found.turns] for found in dropped] == [[1], [3], [5]]
    assert all(
        "<think>\nEasy.\n</think>" in "".join(list_trained_texts(found)) for found in dropped
    )
    assert len(kept) == 1
    assert len(plain) == 2  # an empty thought before the last answer, none before the others


def test_examples_leave_out_what_weighs_nothing(tokenizers: Tokenizers) -> None:
    chat = alternate_turns("a", "b", "c", "never")
    chat[3]["weight"] = 0
    (found,) = turnwise.compile(CHATML).examples(chat, tokenizers("qwen3"))
    assert [turn.message for turn in found.turns] == [1] and "never" not in found.text


def test_examples_say_which_turns_they_cannot_hold(tokenizers: Tokenizers) -> None:
    used, chat = (
        turnwise.compile("{{ messages[0].content }}"),
        alternate_turns("a", "b", "c"),
    )  # writes no reply at all
    with pytest.warns(
        TurnwiseWarning, match=r"not every turn is trained as it should be: messages\[1\]"
    ):
        assert (
            used.examples(chat, tokenizers("deepseek_v3")) == []
        )  # and it has no stop, which is reported, too
    with pytest.raises(turnwise.MessageError, match=r"messages\[1\]"):
        used.examples(chat, tokenizers("deepseek_v3"), strict=True)


def test_a_turn_that_does_not_continue_its_opening_is_written_as_the_model_would(
    tokenizers: Tokenizers,
) -> None:
    used, chat = template_of("llamacpp-llama-cpp-deepseek-r1"), alternate_turns("a", "b", "c", "d")
    chat[1]["reasoning_content"] = "Hm <｜User｜>"
    first, second = used.examples(chat, tokenizers("deepseek_v3"))
    assert (
        "".join(list_trained_texts(first)) == "Hm <｜User｜>\n</think>\n\nb<｜end▁of▁sentence｜>"
        and first.defused
    )
    assert second.text.endswith("<think>\n\n</think>\n\nd<｜end▁of▁sentence｜>")


def test_a_template_that_refuses_part_of_a_conversation_loses_that_turn_only(
    tokenizers: Tokenizers,
) -> None:
    used = turnwise.compile(
        "{% if messages|selectattr('role', 'equalto', 'user')|list|length == 0 %}"
        "{{ raise_exception('No user.') }}{% endif %}" + CHATML
    )
    chat = [{"role": "assistant", "content": "Hello"}, *alternate_turns("a", "b")]
    with pytest.warns(
        TurnwiseWarning, match=r"messages\[0\]: the template refuses .* up to it: No user\."
    ):
        (found,) = used.examples(chat, tokenizers("qwen3"))
    assert list_trained_texts(found) == ["b<|im_end|>"]
    with pytest.raises(turnwise.TurnwiseError, match="No user"):
        used.examples(chat[:1], tokenizers("qwen3"))


# ---- TRL's masks ----


def list_masked_rows() -> Iterator[tuple[corpus.TokenRow, dict[str, Any]]]:
    for row in corpus.token_rows():
        if row.mask is not None:
            yield row, {"now": corpus.NOW, **corpus.chats()[row.chat].arguments}


def test_marked_turns_are_those_of_the_golden_masks(tokenizers: Tokenizers) -> None:
    count: Counter[str] = Counter()
    for row, arguments in list_masked_rows():
        found = template_of(row.template).encode(
            corpus.chats()[row.chat].messages,
            tokenizers(row.tokenizer),
            "marked",
            compatible=True,
            **arguments,
        )
        assert found.input_ids == row.ids
        assert "".join(map(str, found.mask)) == row.mask, row
        count[row.tokenizer] += 1
    assert count == {"llama3": 18, "qwen2_5": 18, "qwen3": 18, "gemma2": 13}


# What the blocks of a template hold besides what the model must write, on one turn.
BESIDES = {
    "trl-llama3_training": set(),
    "trl-qwen3_training": {"line break behind the stop"},
    "trl-gemma_training": {"line break behind the stop"},
    "trl-qwen2_5_training": {"line break behind the stop", "line break behind the role"},
}


def test_our_turns_differ_from_the_golden_masks_in_known_ways(tokenizers: Tokenizers) -> None:
    for row, arguments in list_masked_rows():
        messages = corpus.chats()[row.chat].messages
        found = template_of(row.template).encode(
            messages, tokenizers(row.tokenizer), compatible=True, **arguments
        )
        assert row.mask is not None
        count = Counter(map(difference, *differing(found, row.mask)))
        turns, lost = len(found.turns), len(found.untrained)
        assert turns + lost == sum(message["role"] == "assistant" for message in messages)
        if lost:  # calls that the template does not write: it trains what is left of the turn
            assert all("its calls" in one.reason for one in found.untrained), row
        else:
            assert count == dict.fromkeys(BESIDES[row.template], turns), row


def differing(found: Encoded, mask: str) -> tuple[list[Encoded], list[int], list[str]]:
    places = [
        index
        for index, (ours, theirs) in enumerate(zip(found.mask, mask, strict=True))
        if str(ours) != theirs
    ]
    return [found] * len(places), places, [mask[index] for index in places]


def difference(found: Encoded, index: int, theirs: str) -> str:
    """What a token is that only one of the two trains."""
    start, end = ([0, *found.ends])[index], found.ends[index]
    if theirs == "1" and found.text[start:end] == "\n":
        if any(turn.end == start for turn in found.turns):
            return "line break behind the stop"
        if any(turn.start == end for turn in found.turns):
            return "line break behind the role"
    return f"unknown: {found.text[start:end]!r}"


# ---- policies ----

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}{% generation %}"
    "{% if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}"
    "{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def alternate_turns(*texts: str) -> list[dict[str, Any]]:
    return [
        {"role": ("user", "assistant")[index % 2], "content": text}
        for index, text in enumerate(texts)
    ]


def list_trained_texts(found: Encoded) -> list[str]:
    """The trained texts, each as long as it goes on."""
    groups = groupby(zip(found.tokens, found.mask, strict=True), key=lambda pair: pair[1])
    return ["".join(token for token, _ in group) for mask, group in groups if mask]


TALK = [
    {"role": "user", "content": "One"},
    {"role": "assistant", "content": "Two", "reasoning_content": "Hm"},
    {"role": "user", "content": "Three"},
    {"role": "assistant", "content": "Four", "reasoning_content": "Ah"},
    {"role": "user", "content": "Five"},
]
STOP = "<|im_end|>"
TRAINED = {
    "assistant": [f"<think>Hm</think>Two{STOP}", f"<think>Ah</think>Four{STOP}"],
    "last": [f"<think>Ah</think>Four{STOP}"],
    "content": [f"Two{STOP}", f"Four{STOP}"],
    "reasoning": ["Hm", "Ah"],
    "marked": [
        f"One{STOP}",
        f"<think>Hm</think>Two{STOP}",
        f"Three{STOP}",
        f"<think>Ah</think>Four{STOP}",
        f"Five{STOP}",
    ],
}


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_train_what_they_say(policy: str, tokenizers: Tokenizers) -> None:
    found = turnwise.compile(CHATML).encode(TALK, tokenizers("qwen3"), policy)
    assert list_trained_texts(found) == TRAINED.get(policy, [found.text])
    assert [label for label in found.labels if label != IGNORED] == [
        id for id, mask in zip(found.input_ids, found.mask, strict=True) if mask
    ]
    assert found.weights == [float(mask) for mask in found.mask]


def test_a_policy_may_be_any_question_about_origins(tokenizers: Tokenizers) -> None:
    used = turnwise.compile(CHATML)
    found = used.encode(
        TALK, tokenizers("qwen3"), lambda origin: origin.field == "messages[2].content"
    )
    assert list_trained_texts(found) == ["Three"]
    assert list_trained_texts(used.encode(TALK, tokenizers("qwen3"), lambda origin: False)) == []


def test_messages_weigh_what_they_say(tokenizers: Tokenizers) -> None:
    used, chat = turnwise.compile(CHATML), alternate_turns("a", "b", "c", "d", "e", "f")
    chat[1]["weight"], chat[3]["weight"], chat[5]["weight"] = 0.25, 0, 2
    found = used.encode(chat, tokenizers("qwen3"))
    assert list_trained_texts(found) == [f"b{STOP}", f"f{STOP}"]
    assert [weight for weight in found.weights if weight] == [0.25, 0.25, 2.0, 2.0]
    everything = used.encode(chat, tokenizers("qwen3"), "all")
    weights = {
        owner.message: weight
        for owner, weight in zip(everything.owners, everything.weights, strict=True)
    }
    assert weights == {0: 1.0, 1: 0.25, 2: 1.0, 3: 0.0, 4: 1.0, 5: 2.0}


@pytest.mark.parametrize("messages", [None, 5, "text", [5], {"role": "user"}])
def test_examples_of_broken_messages_are_refused(messages: Any, tokenizers: Tokenizers) -> None:
    with pytest.raises(turnwise.MessageError, match="messages"):
        turnwise.compile(CHATML).examples(messages, tokenizers("qwen3"))


@pytest.mark.parametrize("weight", [-1, "1", True, float("nan"), float("inf"), [1], -0.5])
def test_bad_weights_are_refused(weight: Any, tokenizers: Tokenizers) -> None:
    chat = alternate_turns("a", "b")
    chat[1]["weight"] = weight
    with pytest.raises(turnwise.MessageError, match="weight") as caught:
        turnwise.compile(CHATML).encode(chat, tokenizers("qwen3")).labels  # noqa: B018
    assert caught.value.path == "messages[1].weight"


def test_an_open_conversation_trains_nothing_after_its_last_reply(tokenizers: Tokenizers) -> None:
    used = turnwise.compile(CHATML)
    opened = used.encode(
        alternate_turns("a", "b", "c"), tokenizers("qwen3"), add_generation_prompt=True
    )
    assert list_trained_texts(opened) == [f"b{STOP}"]
    assert (
        list_trained_texts(
            used.encode(alternate_turns("a"), tokenizers("qwen3"), add_generation_prompt=True)
        )
        == []
    )


def test_a_continued_reply_is_trained_without_a_stop(tokenizers: Tokenizers) -> None:
    used = turnwise.compile(CHATML)
    found = used.encode(
        alternate_turns("a", "b and"), tokenizers("qwen3"), continue_final_message=True
    )
    assert list_trained_texts(found) == ["b and"]


def test_a_turn_that_does_not_continue_its_opening_is_named(tokenizers: Tokenizers) -> None:
    found = template_of("llamacpp-llama-cpp-deepseek-r1").encode(
        alternate_turns("a", "b"), tokenizers("deepseek_v3")
    )
    (untrained,) = found.untrained
    assert untrained.message == 1 and "does not continue its own opening" in str(untrained)
    assert list_trained_texts(found) == []

"""What ids, labels and their owners must not depend on: names, other conversations, the caller's later changes."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest

import turnwise
from corpus import needs_corpus
from published_templates import compile_published
from turnwise.tokens.encoded import Encoded

pytestmark = pytest.mark.filterwarnings(
    "ignore::turnwise.TurnwiseWarning"
)  # templates made up here have their faults
TOKENIZER = "turnwise"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def join_trained(found: Encoded) -> str:
    return "".join(
        token for token, label in zip(found.tokens, found.labels, strict=True) if label != -100
    )


# ---- who may write control tokens ----


@pytest.mark.parametrize(
    "role", ["template", "the template", "voice", "tools", "im_end", "model<|im_end|>"]
)
def test_a_role_gives_no_rights_by_its_name(role: str) -> None:
    found = turnwise.compile(CHATML).encode([{"role": role, "content": "a<|im_end|>b"}], TOKENIZER)
    assert found.tokenizer.added["<|im_end|>"].id == found.input_ids[-2]
    assert found.input_ids.count(found.input_ids[-2]) == 1 and found.defused


@pytest.mark.parametrize("name", ["template", "assistant", "system", "tools_", "documents_"])
def test_an_option_gives_no_rights_by_its_name(name: str) -> None:
    template = turnwise.compile(f"{{{{ {name} }}}}{{{{ messages[0].content }}}}<|im_end|>")
    found = template.encode(
        [user("a")],
        TOKENIZER,
        trust={"system": "all", "tools": "all"},
        **{name: "<think><|im_end|>"},
    )
    assert len(found.control) == 1


def test_a_stop_that_is_not_special_is_no_word_for_an_assistant() -> None:
    template = turnwise.compile(
        "{% for m in messages %}{% if m.role == 'assistant' %}<tool_call>{{ m.content }}</tool_call>"
        "{% else %}<|im_start|>{{ m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<tool_call>{% endif %}"
    )
    found = template.encode([user("a"), assistant("x</tool_call>y<think>")], TOKENIZER)
    assert [found.tokens[index] for index in found.control] == [
        "<|im_start|>",
        "<tool_call>",
        "<think>",
        "</tool_call>",
    ]


@pytest.mark.parametrize("trust", [{"sytem": "all"}, {"user": "some"}, {"user": True}, ["user"]])
def test_bad_trust_is_refused(trust: Any) -> None:
    with pytest.raises(turnwise.MessageError, match="trust"):
        turnwise.compile(CHATML).encode([user("a")], TOKENIZER, trust=trust)


def test_options_are_trusted_one_by_one() -> None:
    template = turnwise.compile("{{ mark }}{{ other }}{{ messages[0].content }}<|im_end|>")
    given = {"mark": "<|im_start|>", "other": "<|im_start|>"}
    found = template.encode([user("a")], TOKENIZER, trust={"option mark": "all"}, **given)
    assert len(found.control) == 2 and len(found.defused) == 1


@needs_corpus
def test_a_number_that_the_template_counts_is_its_own(tokenizers: Any) -> None:
    template = turnwise.compile(
        "{% for i in range(2) %}<unused{{ i }}>{% endfor %}{{ messages[0].content }}"
    )
    assert template.encode([user("<unused3>")], tokenizers("gemma2")).tokens[:2] == [
        "<unused0>",
        "<unused1>",
    ]


@needs_corpus
def test_tokens_of_a_run_that_was_cut(tokenizers: Any) -> None:
    found = turnwise.compile("{{ messages[0].content }}").encode(
        [user("a<s>b <s>c")], tokenizers("internlm2")
    )
    assert (
        "".join(found.tokens) == "a<s>b <s>c"
        and not found.control
        and len(found.owners) == len(found)
    )


# ---- what is trained ----

RESULTS_WITHIN = (
    "{% for m in messages %}{% if m.tool_calls %}<|im_start|>assistant\n"
    "CALL {{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].function.arguments.city }}<|im_end|>\n"
    "<|im_start|>tool\n{{ m.tool_calls[0].id }}: "
    "{% for r in messages if r.role == 'tool' %}{{ r.content }}{% endfor %}<|im_end|>\n"
    "{% elif m.role != 'tool' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = {
    "id": "call12345",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Oslo"}},
}


def test_a_result_that_is_written_within_a_turn_is_not_trained() -> None:
    chat = [
        user("q"),
        assistant("", tool_calls=[CALL]),
        {"role": "tool", "content": "rain"},
        assistant("ok"),
    ]
    assert (
        join_trained(turnwise.compile(RESULTS_WITHIN).encode(chat, TOKENIZER))
        == "CALL weather Oslo<|im_end|>ok<|im_end|>"
    )


def test_calls_that_are_not_written_are_reported() -> None:
    found = turnwise.compile(CHATML).encode(
        [user("q"), assistant("", tool_calls=[CALL])], TOKENIZER
    )
    assert found.labels == [-100] * len(found) and "its calls" in str(found.untrained[0])


def test_labels_do_not_depend_on_what_was_encoded_before() -> None:
    template = turnwise.compile(
        CHATML.replace(
            "assistant\n{% endif",
            "assistant\n{% if messages[0].content|length > 3 %}<think>{% endif %}{% endif",
        )
    )
    chat = [user("a long question"), assistant("<think>hm</think>ok")]
    fresh = join_trained(template.encode(chat, TOKENIZER))
    template.encode([user("q"), assistant("ok")], TOKENIZER)
    assert join_trained(template.encode(chat, TOKENIZER)) == fresh == "hm</think>ok<|im_end|>"
    assert len(template.examples(chat, TOKENIZER)) == 1


def test_a_first_turn_does_not_depend_on_what_was_encoded_before() -> None:
    template = turnwise.compile("{{ messages[0].role[0] and '' }}" + CHATML)
    with pytest.raises(turnwise.TurnwiseError):
        template.render(
            [], add_generation_prompt=True
        )  # there is no prompt before the first message
    chat = [assistant("Welcome."), user("Hi")]
    cold = template.encode(chat, TOKENIZER)
    template.encode([user("q"), assistant("a")], TOKENIZER)
    warm = template.encode([assistant("Hey."), user("Hi")], TOKENIZER)
    again = template.encode(chat, TOKENIZER)
    assert join_trained(cold) == join_trained(again) == "Welcome.<|im_end|>" and not cold.untrained
    assert join_trained(warm) == "Hey.<|im_end|>"


def test_a_first_turn_that_is_not_opened_like_a_reply_is_never_trained() -> None:
    template = turnwise.compile(
        "{{ messages[0].role[0] and '' }}"
        + CHATML.replace("{{ m.role }}", "{{ 'greeting' if loop.first else m.role }}")
    )
    for other in ([user("q"), assistant("a")], [user("q")]):
        found = template.encode([assistant("Welcome."), user("Hi")], TOKENIZER)
        assert not found.turns and "refuses the prompt" in str(found.untrained[0])
        template.encode(other, TOKENIZER)


def test_a_reason_quotes_no_other_conversation() -> None:
    template = turnwise.compile(CHATML.replace("assistant\n{% endif", "assistant\n<think>{% endif"))
    template.encode([user("a"), assistant("SECRET of somebody else")], TOKENIZER)
    (lost,) = template.encode([user("a"), assistant("hello")], TOKENIZER).untrained
    assert "SECRET" not in str(lost) and "hello" in str(lost)


def test_labels_reach_as_far_as_the_stops_say() -> None:
    template = turnwise.compile(
        CHATML.replace(
            "<|im_end|>", "{% if m.role == 'assistant' %}<|eom_id|>{% endif %}<|eot_id|>"
        )
    )
    found = template.encode([user("q"), assistant("a")], TOKENIZER)
    assert (
        join_trained(found).endswith(template.stops()[0])
        and join_trained(found) == "a<|eom_id|><|eot_id|>"
    )


@needs_corpus
@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("name", ["mistralcommon-v11_image", "mistralcommon-v15_think"])
def test_two_replies_that_are_written_as_one_text_are_trained(name: str) -> None:
    chat = [{"role": "user", "content": "Go on."}]
    chat += [{"role": "assistant", "content": text} for text in ("Part one.", "Part two.")]
    encoded = compile_published(name).encode(chat, "turnwise")
    trained = [
        id for id, label in zip(encoded.input_ids, encoded.labels, strict=True) if label == id
    ]
    assert encoded.tokenizer.decode(trained) == "Part one.\n\nPart two."


def test_a_turn_without_a_stop_keeps_its_white_space() -> None:
    template = turnwise.compile(
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    found = template.encode([user("q"), assistant("x = 1\n")], TOKENIZER)
    assert join_trained(found) == "x = 1\n" + found.added_stop


def test_marks_are_needed_to_train_on_them() -> None:
    with pytest.raises(turnwise.MessageError, match="generation"):
        turnwise.compile(CHATML).encode([user("q"), assistant("a")], TOKENIZER, "marked")


# ---- what is given ----


def test_later_changes_by_the_caller_change_nothing() -> None:
    chat = [user("q"), assistant("a")]
    found = turnwise.compile(CHATML).encode(chat, TOKENIZER)
    chat[1]["weight"] = 0
    chat.pop()
    assert join_trained(found) == "a<|im_end|>" and set(found.weights) == {0.0, 1.0}


@pytest.mark.parametrize("compatible", [False, True])
def test_what_is_pickled_keeps_what_is_known(compatible: bool) -> None:
    found = turnwise.compile(CHATML).encode(
        [user("q"), assistant("a", weight=0.5)], TOKENIZER, compatible=compatible
    )
    data = pickle.dumps(found)
    copy = pickle.loads(data)
    assert len(data) < 20_000
    for name in (
        "input_ids",
        "labels",
        "weights",
        "owners",
        "tokens",
        "turns",
        "untrained",
        "control",
        "text",
        "mask",
    ):
        assert getattr(copy, name) == getattr(found, name), name


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("encode", "max_len"),
        ("encode", "trainon"),
        ("examples", "overflw"),
        ("examples", "compatible"),
        ("session", "max_length"),
    ],
)
def test_what_looks_like_an_argument_is_no_option(verb: str, name: str) -> None:
    template = turnwise.compile(CHATML)
    given = (TOKENIZER,) if verb == "session" else ([user("q")], TOKENIZER)
    with pytest.raises(turnwise.MessageError, match=f"takes no '{name}'"):
        getattr(template, verb)(*given, **{name: 3})


@pytest.mark.parametrize("name", ["with_origins", "with_trails", "read", "request", "renderer"])
def test_an_option_may_have_any_other_name(name: str) -> None:
    template = turnwise.compile(f"{CHATML}{{{{ {name} }}}}")
    for verb in (template.render, partial(template.encode, tokenizer=TOKENIZER)):
        assert verb([user("q")], **{name: "any"}).text.endswith("any")


def test_messages_are_counted_as_the_caller_does() -> None:
    chat = [
        {"role": "system", "content": "s"},
        *[user("hello there"), assistant("hi yourself")] * 20,
    ]
    found = turnwise.compile(CHATML).encode(chat, TOKENIZER, max_length=60)
    assert [turn.message for turn in found.turns] == list(found.kept[2::2])
    for owner in found.owners:
        assert owner.field is None or owner.field.startswith(f"messages[{owner.message}].")

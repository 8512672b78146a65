"""Contents that no template expects: thinking and unknown parts, one part without its list, null, refusals."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import turnwise
from loaded import load_entry

ASKED = {"role": "user", "content": "Tides?"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
LAST_AND_FIRST = (
    "{% for m in (messages[0], messages[-1]) %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)


def render(template: turnwise.Template, *messages: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the text, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = str(template.render(list(messages)))
    return text, [str(one.message) for one in caught]


@pytest.mark.parametrize("name", ["qwen3", "deepseek-v3.1", "glm-4.5"])
def test_thinking_parts_are_reasoning(name: str) -> None:
    parts = [{"type": "thinking", "thinking": "Hmm."}, {"type": "text", "text": "At noon."}]
    reply = {"role": "assistant", "content": parts}
    plain = {"role": "assistant", "content": "At noon.", "reasoning_content": "Hmm."}
    template = load_entry(name)
    assert render(template, ASKED, reply)[0] == render(template, ASKED, plain)[0]


@pytest.mark.parametrize("name", ["llama-3.1", "gemma-2", "phi-4", "vicuna"])
def test_thinking_that_has_no_place_is_reported(name: str) -> None:
    parts = [{"type": "thinking", "thinking": "Hmm."}, {"type": "text", "text": "At noon."}]
    text, warned = render(load_entry(name), ASKED, {"role": "assistant", "content": parts})
    assert "At noon." in text and "thinking" not in text
    assert "messages[1].reasoning_content" in warned[0]


def test_media_in_a_result_that_has_no_place_are_reported() -> None:
    result = {"role": "tool", "content": [IMAGE, {"type": "text", "text": "07:41"}]}
    text, warned = render(load_entry("glm-4.5"), ASKED, result)
    assert "07:41" in text and "image_url" not in text
    assert "messages[1].content[0]" in warned[0]


@pytest.mark.parametrize("name", ["gemma-2", "phi-4", "vicuna", "llama-3.1"])
def test_unknown_parts_are_reported(name: str) -> None:
    parts = [{"type": "text", "text": "Tides?"}, {"type": "poll", "poll": "Yes?"}]
    text, warned = render(load_entry(name), {"role": "user", "content": parts})
    assert "Tides?" in text and "poll" not in text
    assert "messages[0].content[1]" in warned[0]


@pytest.mark.parametrize("name", ["gemma-2", "llama-3.1", "glm-4.5", "qwen3"])
def test_a_part_without_its_list(name: str) -> None:
    template = load_entry(name)
    alone = render(template, {"role": "user", "content": {"type": "text", "text": "Tides?"}})
    assert alone == (render(template, ASKED)[0], [])


@pytest.mark.parametrize("role", ["user", "tool"])
def test_null_of_any_role_is_no_word(role: str) -> None:
    chat = [ASKED, {"role": role, "content": None}, {"role": "assistant", "content": "At noon."}]
    text, _ = render(load_entry("hermes-4"), *chat)
    assert "None" not in text and "At noon." in text


def test_what_is_printed_by_mistake_is_reported() -> None:
    """No probe shows null in the last message; the text does."""
    template = turnwise.compile(LAST_AND_FIRST)
    chat = [ASKED, {"role": "assistant", "content": None}]
    assert render(template, *chat) == (
        "<user>Tides?<assistant>None",
        ["template: the template writes messages[1].content as Python prints it"],
    )
    with pytest.raises(turnwise.MessageError, match="as Python prints it"):
        template.render(chat, strict=True)


def test_a_used_template_warns_as_a_new_one_does() -> None:
    """After some calls a text is written from segments; they must not hide what is wrong with the next one."""
    entry, null = turnwise.load("llamafactory:qwen"), {"role": "user", "content": None}
    by_roles = turnwise.compile(
        "{% for m in messages %}{% if m.role == 'user' %}<user>{{ m.content }}{% endif %}{% endfor %}"
    )
    for _ in range(4):
        entry.render([ASKED])
        by_roles.render([ASKED])
        with pytest.raises(turnwise.MessageError, match="as Python prints it"):
            entry.render([null], strict=True)
        _, warned = render(by_roles, ASKED, {"content": "No role."})
        assert "writes nothing of messages[1].content" in warned[-1]


def test_arguments_that_are_no_object_are_reported() -> None:
    function = {"name": "tide", "arguments": '{"harbour": Brest'}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]}
    _, warned = render(load_entry("hermes-4"), ASKED, call)
    assert "messages[1].tool_calls[0].function.arguments is no JSON object" in warned[0]


def test_a_refusal_is_the_content() -> None:
    refused = {"role": "assistant", "content": None, "refusal": "I cannot."}
    answered = {"role": "assistant", "content": "I cannot."}
    template = load_entry("qwen3")
    assert render(template, ASKED, refused) == render(template, ASKED, answered)


def test_the_transcript_of_a_spoken_reply_is_its_content() -> None:
    asked = {"role": "user", "content": "Hi"}
    spoken = {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "Hello."}}
    rendering = load_entry("qwen3").render([asked, spoken])
    assert "Hello." in rendering.text and rendering.changes[0].path == "messages[1].audio"
    with pytest.raises(turnwise.MessageError, match=r"nothing of messages\[1\].audio"):
        load_entry("qwen3").render([asked, {**spoken, "audio": {"id": "a"}}], strict=True)


@pytest.mark.parametrize("name", ["qwen3", "qwen3.6"])
@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"mm": 3}, '{"mm": 3}'),
        ([1, "é"], '[1, "é"]'),
        (22.5, "22.5"),
        (True, "true"),
        (["a"], "a"),
    ],
)
def test_results_that_are_data_become_json(name: str, result: Any, text: str) -> None:
    template = load_entry(name)
    rendering = template.render([ASKED, {"role": "tool", "content": result}], strict=True)
    assert str(rendering) == str(template.render([ASKED, {"role": "tool", "content": text}]))
    assert rendering.changes[0].path.startswith("messages[1].content")


@pytest.mark.parametrize("name", ["qwen3", "qwen3.6", "chatml"])
@pytest.mark.parametrize("odd", [7, True, 22.5])
def test_contents_that_are_no_text_are_refused(name: str, odd: Any) -> None:
    template = load_entry(name)
    with pytest.raises(turnwise.MessageError, match=r"messages\[0\]\.content: content is a text"):
        template.render([{"role": "user", "content": odd}])
    with pytest.raises(turnwise.MessageError, match=r"messages\[0\]\.content\[0\] is "):
        template.render([{"role": "user", "content": [odd]}], strict=True)


def test_a_number_that_is_not_written_is_lost() -> None:
    chat = [{"role": "user", "content": 7}]
    with pytest.raises(turnwise.MessageError, match=r"nothing of messages\[0\]\.content"):
        load_entry("qwen3").render(chat, normalise=False, strict=True)
    plain = turnwise.compile("{{ messages[0].content }}")
    assert str(plain.render(chat, normalise=False, strict=True)) == "7"


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        ({"reasoning": "Hm.", "reasoning_content": "So."}, "different texts"),
        ({"refusal": "I cannot."}, r"nothing of messages\[1\]\.refusal"),
        ({"audio": {"transcript": "Later."}}, r"nothing of messages\[1\]\.audio"),
    ],
)
def test_a_second_text_is_reported(more: dict[str, Any], warned: str) -> None:
    reply = {"role": "assistant", "content": "At noon."}
    with pytest.raises(turnwise.MessageError, match=warned):
        load_entry("qwen3").render([ASKED, {**reply, **more}], strict=True)


def test_the_same_text_twice_is_no_loss() -> None:
    texts = {"content": "At noon.", "refusal": "At noon.", "audio": {"transcript": "At noon."}}
    thought = {"reasoning": "Hm.", "reasoning_content": "Hm."}
    load_entry("qwen3").render([ASKED, {"role": "assistant", **texts, **thought}], strict=True)


def test_a_role_is_a_text() -> None:
    with pytest.raises(
        turnwise.MessageError, match=r"messages\[0\]\.role is 3, and a role is a text"
    ):
        load_entry("qwen3.6").render([{"role": 3, "content": "Tides?"}], strict=True)


def test_no_message() -> None:
    with pytest.raises(turnwise.TemplateError) as caught:
        load_entry("qwen3").render([])
    assert "the conversation is empty: give at least one message" in str(caught.value)


WITHOUT_SYSTEM = (
    "{% for m in messages if m.role != 'system' %}"
    "{{ m.role + ': ' + m.content + '<|im_end|>' }}{% endfor %}"
)


def three_turns(system: str, user: str, reply: str) -> list[dict[str, str]]:
    roles = ("system", "user", "assistant")
    return [
        {"role": role, "content": text}
        for role, text in zip(roles, (system, user, reply), strict=True)
    ]


def test_what_was_encoded_before_changes_nothing() -> None:
    same = "<think></think>"
    rows = [
        three_turns(*texts)
        for texts in ((" ", "U", "A"), ("S", "U", "A"), (same, same, same), ("\ufeff", "U", "A"))
    ]
    for number, row in enumerate(rows):
        template = turnwise.compile(f"{WITHOUT_SYSTEM}{{# number {number} #}}")
        alone = template.encode(row, "turnwise", train_on="all").input_ids
        for other in rows:
            template.encode(other, "turnwise", train_on="all")
            assert template.encode(row, "turnwise", train_on="all").input_ids == alone
        batch = template.encode_batch([*rows, row], "turnwise", train_on="all")
        assert batch[number].input_ids.tolist() == batch[-1].input_ids.tolist() == alone


def test_a_text_that_three_messages_have_is_written_three_times() -> None:
    same = "Hello there, this is text."
    template = turnwise.compile(WITHOUT_SYSTEM)
    assert str(template.render(three_turns(same, same, same))).count(same) == 3

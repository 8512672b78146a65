"""FastChat's templates and separator styles against what it prints itself.

The golden rows were made by FastChat's own code; with the exact switch we must print the same bytes. What we do better
on purpose has a test of its own. Where fschat is installed, made-up conversations are compared with it too.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

import corpus
import oracle
from corpus import needs_corpus
from fastchat_goldens import (
    CHAT,
    EDGES,
    EXAMPLE_OF_STYLE,
    FIELDS,
    NAMES,
    PARTS,
    compile_golden,
    custom,
    fill_conversation,
    render_golden,
)
from turnwise.compat import fastchat as compat
from turnwise.compat.fastchat import (
    Conversation,
    SeparatorStyle,
    get_conv_template,
    get_conversation_template,
)
from turnwise.dialects import fastchat as dialect
from turnwise.dialects.fastchat_styles import STYLES
from turnwise.errors import MessageError, SourceError, TemplateRaised, TurnwiseError
from turnwise.registry import fastchat as registry
from turnwise.template import compile_jinja


@cache
def golden() -> Mapping[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in corpus.lines("golden/fastchat.jsonl"):
        found.setdefault(row["t"], []).append(row)
    return found


@cache
def model_rows() -> list[dict[str, Any]]:
    return list(corpus.lines("golden/fastchat_models.jsonl"))


# -- the golden rows -------------------------------------------------------------------------------------------------


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", sorted(golden()))
def test_golden_texts(name: str) -> None:
    """Every row of a template, by the dialect and by the drop-in class."""
    [facts], rows = golden()[name][:1], golden()[name][1:]
    plain: dict[str, str] = {}
    for row in rows:
        chat = corpus.chats()[row["c"]].messages
        conversation = fill_conversation(get_conv_template(name), chat, row["gen"])
        conversation.strict_fastchat = True
        if "error" in row:
            assert facts["sep_style"] is None
            with pytest.raises(ValueError) as raised:
                conversation.get_prompt()
            assert row["error"] == f"ValueError: {raised.value.message}"  # type: ignore[attr-defined]
            continue
        expected = row["text"] if "text" in row else plain[row["c"]] + row["suffix"]
        if not row["gen"]:
            plain[row["c"]] = expected
        assert render_golden(name, chat, row["gen"], exact=True) == expected, row["c"]
        assert conversation.get_prompt() == expected, row["c"]


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", sorted(golden()))
def test_golden_fields(name: str) -> None:
    """Stops, roles and all other fields are those that FastChat has."""
    row = golden()[name][0]
    ours = dataclasses.asdict(compat.conv_templates[name])
    ours["sep_style"] = ours["sep_style"] and ours["sep_style"].name
    assert json.loads(json.dumps(ours)) == {
        **{key: row[key] for key in FIELDS if key != "name"},
        "name": name,
    }
    if row["sep_style"] is None:
        return
    reading = dialect.read(registry.templates()[name])
    stops = [row["stop_str"]] if isinstance(row["stop_str"], str) else row["stop_str"] or []
    assert (list(reading.stops), list(reading.stop_ids)) == (stops, row["stop_token_ids"] or [])
    assert list(reading.facts["roles"]) == row["roles"]


@needs_corpus
def test_golden_count() -> None:
    """Nothing was left out."""
    assert sum(map(len, golden().values())) == 9282
    assert (
        set(golden()) <= set(NAMES)
        and len(golden()) == 102
        and set(NAMES) - set(golden()) == {"chatml"}
    )


@needs_corpus
def test_golden_models() -> None:
    """118 paths and the order of the adapters, with the exact switch and by default."""
    *rows, order = model_rows()
    assert [rule.adapter for rule in registry.rules(exact=True)] == order["adapters"]
    for row in rows:
        for exact in (True, False):
            found = registry.match_path(row["model_path"], exact)
            assert (found.template, found.adapter) == (row["template"], row["adapter"])
        conversation = get_conversation_template(row["model_path"])
        assert (conversation.name, conversation.system_message) == (
            row["template"],
            row["system_message"],
        )
    assert len(rows) + 1 == 119


# -- the Jinja -------------------------------------------------------------------------------------------------------


@pytest.mark.law(8)
@pytest.mark.parametrize("style", list(SeparatorStyle))
def test_transformers_agrees(style: SeparatorStyle) -> None:
    """The same text, and the same spans to learn, in transformers; in both readings."""
    for exact in (False, True):
        template = compile_golden(EXAMPLE_OF_STYLE[style], exact)
        for label, chat in EDGES.items():
            for prompt in (False, True):
                rendering = template.render(chat, add_generation_prompt=prompt)
                expected = oracle.render(template.text, chat, add_generation_prompt=prompt)
                assert str(rendering) == expected, (exact, label, prompt)
            spans = oracle.generation_spans(template.text, chat, add_generation_prompt=True)
            assert rendering.spans(generation=True) == [
                span for span in spans if span[0] < span[1]
            ], (exact, label)


@pytest.mark.law
@pytest.mark.parametrize("name", [name for name in NAMES if name != "yandexgpt"])
def test_by_role_and_by_number_agree_on_turns_that_alternate(name: str) -> None:
    """What we do better changes nothing for an ordinary conversation; two styles have a mended defect."""
    style = registry.templates()[name]["sep_style"]
    for label in ("plain", "system", "answered"):
        if style != "CLLM" and (style, label) != ("GEMMA", "system"):
            chat, prompt = EDGES[label], label != "answered"
            assert render_golden(name, chat, prompt) == render_golden(
                name, chat, prompt, exact=True
            )


def test_the_loss_is_the_answer_and_its_separator() -> None:
    rendering = compile_golden("vicuna_v1.1", False).render(EDGES["answered"])
    assert [str(rendering)[start:end] for start, end in rendering.spans(generation=True)] == [
        "Hi there!</s>",
        "Fine.</s>",
    ]
    rendering = compile_golden("qwen-7b-chat", False).render(EDGES["answered"])
    learnt = [str(rendering)[start:end] for start, end in rendering.spans(generation=True)]
    assert learnt == ["Hi there!<|im_end|>", "Fine.<|im_end|>"]


def test_characters_know_their_message() -> None:
    rendering = fill_conversation(get_conv_template("vicuna_v1.1"), CHAT).rendering()
    origins = {piece.text: piece.origin.field for piece in rendering.pieces}
    assert origins["Hi there!"] == "messages[2].content"
    assert origins["How are you?"] == "messages[3].content"
    assert origins["ASSISTANT:"] is None


def test_text_in_fields_is_text() -> None:
    """Quotes, braces, line breaks and Jinja in a field are written as they are."""
    odd = "'\"{{ 1 + 1 }}{% raw %}\\n\r\n\t{# x #}\\"
    source = custom(
        roles=[odd, "AI"], sep=odd, system_message=odd, system_template="{{{system_message}}}"
    )
    text = str(
        compile_jinja(dialect.read(source).jinja, dialect="fastchat").render(
            [{"role": "user", "content": odd}]
        )
    )
    assert text == "{" + odd + "}" + odd + odd + ": " + odd + odd


def test_examples_are_written_out_and_not_learnt() -> None:
    """The messages a template brings along come first; an API does not get them."""
    rendering = compile_golden("rwkv", False).render(CHAT[:2])
    assert str(rendering).startswith("Bob: hi\n\nAlice: Hi. I am your assistant")
    assert [str(rendering)[a:b] for a, b in rendering.spans(generation=True)] == ["Hi there!\n\n"]
    conversation = fill_conversation(get_conv_template("one_shot"), CHAT)
    assert len(conversation.messages) == 6 and conversation.offset == 2
    assert conversation.to_openai_api_messages()[1:] == CHAT


def test_an_odd_number_of_examples_shifts_the_parity() -> None:
    source = custom("ADD_COLON_TWO", messages=[["Human", "q"], ["AI", None], ["AI", ("t", ["i"])]])
    texts = []
    for exact in (True, False):
        texts.append(
            str(
                compile_jinja(dialect.read(source, exact=exact).jinja, dialect="fastchat").render(
                    CHAT[:2]
                )
            )
        )
    start = "\n\nHuman: q\n\nAI:AI: $$<image>$$t"
    assert texts[0] == start + "\n\nHuman: Hello!</s>AI: Hi there!\n\n"
    assert texts[1] == start + "</s>Human: Hello!\n\nAI: Hi there!</s>"


# -- what is better by default ---------------------------------------------------------------------------------------


def test_an_empty_message_is_not_an_open_turn() -> None:
    chat = [{"role": "user", "content": ""}]
    system = registry.templates()["vicuna_v1.1"]["system_message"]
    assert render_golden("vicuna_v1.1", chat, exact=True) == system + " USER:ASSISTANT:"
    assert render_golden("vicuna_v1.1", chat) == system + " USER:  ASSISTANT:"


def test_llama2_tags_go_by_role() -> None:
    chat = EDGES["two users"]
    assert (
        render_golden("llama-2", chat, False, exact=True)
        == "[INST] Hello! [/INST] How are you? </s><s>[INST] Hi there! "
    )
    assert (
        render_golden("llama-2", chat, False)
        == "[INST] Hello! [INST] How are you? [/INST] Hi there! </s><s>"
    )
    assert (
        render_golden("llama-2", CHAT[1:], False)
        == "[INST] [/INST] Hi there! </s><s>[INST] How are you? "
    )


def test_yuan2_loses_its_last_mark_only() -> None:
    chat = [{"role": "user", "content": "again"}]
    assert (render_golden("yuan2", chat, exact=True), render_golden("yuan2", chat)) == (
        "agai<sep>",
        "again<sep>",
    )
    assert fill_conversation(get_conv_template("yuan2"), chat).get_prompt() == "again<sep>"


def test_cllm_keeps_the_whole_conversation() -> None:
    assert "Hello!" not in render_golden("cllm", CHAT, exact=True)
    assert render_golden("cllm", CHAT) == render_golden("vicuna_v1.1", CHAT)


def test_gemma_keeps_the_system_text() -> None:
    chat = [{"role": "system", "content": "Be kind."}, *CHAT[1:]]
    assert "Be kind." not in render_golden("gemma", chat, exact=True)
    start = "<bos><start_of_turn>model\nHi there!<end_of_turn>\n<start_of_turn>user\nBe kind.\n\nHow are you?"
    assert render_golden("gemma", chat).startswith(start)


def test_rounds_are_counted_by_questions() -> None:
    chat = EDGES["two users"]
    assert (
        render_golden("chatglm2", chat, False)
        == "[Round 1]\n\n问：Hello!\n\n[Round 2]\n\n问：How are you?\n\n答：Hi there!\n\n"
    )


def test_bos_is_the_callers_choice() -> None:
    assert render_golden("llama-2", CHAT[:1]) == "[INST] Hello! [/INST]"
    assert render_golden("llama-2", CHAT[:1], bos_token="<s>") == "<s>[INST] Hello! [/INST]"
    assert render_golden("gemma", CHAT[:1], bos_token="").startswith("<start_of_turn>user")
    assert render_golden("llama-3", CHAT[:1]).startswith("<|begin_of_text|><|start_header_id|>user")


def test_the_vision_system_message() -> None:
    name, image = "claude-3-5-sonnet-20240620", [{"role": "user", "content": PARTS}]
    item = registry.templates()[name]
    assert render_golden(name, CHAT).startswith(item["system_message"])
    assert render_golden(name, image).startswith(item["system_message_vision"] + "\nuser: ")
    conversation = get_conv_template(name)
    assert conversation.get_system_message(is_vision=True) == item["system_message_vision"]
    assert conversation.get_system_message() == item["system_message"]
    assert (
        get_conv_template("llava-chatml").get_system_message(is_vision=True)
        == "Answer the questions."
    )


# -- images ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", list(SeparatorStyle))
def test_images_stand_before_the_text(style: SeparatorStyle) -> None:
    """In every style by default; exactly, where FastChat does it."""
    name, chat = EXAMPLE_OF_STYLE[style], [{"role": "user", "content": PARTS}]
    assert "$$<image>$$Look\nhere" in render_golden(name, chat)
    assert "<img>Look\nhere" in render_golden(name, chat, image_placeholder="<img>")
    rule = STYLES[style].images
    if rule == "refused":
        with pytest.raises(TemplateRaised):
            render_golden(name, chat, exact=True)
    else:
        assert ("$$<image>$$Look" in render_golden(name, chat, exact=True)) == (rule == "before")


# -- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seperator": "x"}, ["unknown key 'seperator'", "sep_style"]),
        ({"sep_style": "ADD_COLON_TOO"}, ["Invalid style", "Did you mean 'ADD_COLON_TWO'?"]),
        ({"sep_style": None}, ["Invalid style: None", "ADD_COLON_SINGLE"]),
        ({"sep_style": 24}, ["Invalid style: 24", "DEFAULT"]),
        ({"sep_style": True}, ["Invalid style: True"]),
        ({"sep_style": "ADD_COLON_TWO", "sep2": None}, ["ADD_COLON_TWO needs sep2"]),
        ({"sep": 3}, ["sep must be a string or null, not 3"]),
        ({"roles": ["USER"]}, ["roles", "two strings or more"]),
        ({"roles": "USER"}, ["roles", "two strings or more"]),
        ({"messages": [["USER"]]}, ["messages", "[role, text]"]),
        ({"messages": [{"role": "user", "content": "x"}]}, ["messages", "[role, text]"]),
        ({"offset": -1}, ["offset", "whole number"]),
        ({"stop_str": [1]}, ["stop_str", "list of strings"]),
        ({"stop_token_ids": ["2"]}, ["stop_token_ids[0] must be a whole number from 0 up"]),
        ({"max_image_size_mb": "big"}, ["max_image_size_mb", "a number"]),
        ({"system_template": "{system}"}, ["{system}", "Did you mean 'system_message'?"]),
        ({"system_template": "{system_message!r}"}, ["{system_message!r}"]),
        ({"system_template": "{"}, ["system_template"]),
        ({"system_message": None}, ["system_message", "must be a string"]),
    ],
)
def test_bad_fields(change: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SourceError) as raised:
        dialect.read(custom() | change)
    for word in words:
        assert word in str(raised.value)


def test_bad_sources() -> None:
    for source in (3, "x", "[1]", "{", {}, {"sep_style": "CHATML"}, None):
        with pytest.raises(SourceError):
            dialect.read(source)
        assert not dialect.knows(source)
    assert (
        dialect.knows(custom())
        and dialect.knows(Conversation("x"))
        and dialect.knows(json.dumps(custom()))
    )
    assert dialect.read(json.dumps(custom())) == dialect.read(custom())


def test_yandexgpt_has_no_style() -> None:
    """It can be had, and says what is missing when it is rendered."""
    conversation = fill_conversation(get_conv_template("yandexgpt"), CHAT)
    for kind in (ValueError, SourceError, TurnwiseError):
        with pytest.raises(kind, match="Invalid style: None"):
            conversation.get_prompt()


def test_bad_messages() -> None:
    for role in ("tool", "developer", "USER"):
        with pytest.raises(TemplateRaised, match=role):
            render_golden("vicuna_v1.1", [{"role": role, "content": "x"}])
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
    }
    with pytest.raises(TemplateRaised):
        render_golden("vicuna_v1.1", [*CHAT, call])
    with pytest.raises(TemplateRaised, match="audio"):
        render_golden("vicuna_v1.1", [{"role": "user", "content": [{"type": "audio"}]}])
    for bad in (3, {"text": "x"}, ("x", "y"), (1, [])):
        with pytest.raises(MessageError, match=r"messages\[0\]"):
            Conversation("x", messages=[["USER", bad]]).get_prompt()


# -- fschat itself, where it is installed ----------------------------------------------------------------------------


def made_up(
    original: Any, name: str, chance: random.Random, images: bool = False
) -> tuple[Any, Conversation]:
    """One conversation, held with the original and with ours."""
    texts = [
        "hi",
        "",
        "a\n\nb",
        " x ",
        "<n>again n<>",
        "{system_message}",
        "{{ x }}",
        "\r\n\r\n",
        "问",
        "[INST]",
    ]
    pair = original.get_conv_template(name), get_conv_template(name)
    pair[1].strict_fastchat = True
    system = chance.choice(texts)
    turns = [
        (chance.choice([*pair[0].roles, "Other"]), chance.choice([*texts, None]))
        for _ in range(chance.randrange(7))
    ]
    for conversation in pair:
        conversation.set_system_message(system)
        for number, (role, text) in enumerate(turns):
            shows = images and text is not None and number % 2 == 0 and len(text) % 2 == 0
            conversation.append_message(
                role, (text, ["http://a/b.png", "c.png"]) if shows else text
            )
    return pair


def test_made_up_conversations() -> None:
    """200 conversations per style that the released fschat has, equal to its own prompts."""
    original = pytest.importorskip("fastchat.conversation", reason="fschat is not installed")
    chance, styles = random.Random(0), 0
    for style, name in EXAMPLE_OF_STYLE.items():
        if (
            style.name not in original.SeparatorStyle.__members__
            or name not in original.conv_templates
        ):
            continue
        styles += 1
        for _ in range(200):
            theirs, ours = made_up(original, name, chance)
            assert ours.get_prompt() == theirs.get_prompt(), (name, theirs.messages)
    assert styles == 18


def test_made_up_calls() -> None:
    """What else a Conversation is asked for, equal to fschat's answers; its HTML takes every image for base64."""
    original = pytest.importorskip("fastchat.conversation", reason="fschat is not installed")
    chance = random.Random(1)
    calls = ("to_openai_api_messages", "extract_text_from_messages", "get_images")
    for _ in range(500):
        theirs, ours = made_up(
            original, chance.choice(["vicuna_v1.1", "one_shot", "chatglm"]), chance, images=True
        )
        theirs, ours = chance.choice([(theirs, ours), (theirs.copy(), ours.copy())])
        for call in calls:
            assert getattr(ours, call)() == getattr(theirs, call)(), (call, theirs.messages)
        html = str(theirs.to_gradio_chatbot()).replace("data:image/jpeg;base64,", "")
        assert str(ours.to_gradio_chatbot()) == html
        logged = {
            **ours.dict(),
            "messages": ours.extract_text_from_messages(),
        }  # later releases keep images in it
        assert logged == theirs.dict()


def test_nothing_of_fschat_is_missing() -> None:
    original = pytest.importorskip("fastchat.conversation", reason="fschat is not installed")
    needs_an_image_library = {"convert_image_to_base64"}
    public = {name for name in dir(original.Conversation) if not name.startswith("_")}
    assert public - set(dir(Conversation("x"))) == needs_an_image_library
    assert {"conv_templates", "register_conv_template", "get_conv_template"} <= set(compat.__all__)
    assert set(original.conv_templates) <= set(compat.conv_templates)

"""The law of conversion: the software of the target writes what the template writes.

Every entry is converted to every dialect, giving up what the errors offer to leave out, and the source is run by that
software (FastChat where it is installed, XTuner, PaddleNLP and LMDeploy where there is a checkout, else the exact
translation) on conversations that nothing in the package has seen: with system texts, late ones where the software
takes them, and bos tokens. Not one text may differ from what `render` gives: what cannot be expressed is refused. An
error offers a loss once.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

import turnwise
from target_texts import TARGETS, Converted, Target, convert_losing, find_differences, invent_chats
from turnwise.compat.lmdeploy import ChatTemplateConfig
from turnwise.registry import entries

pytestmark = pytest.mark.once

USER = {"role": "user", "content": "hi"}
ROUNDS = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content + ' [/INST]' }}"
    "{% elif m.role == 'assistant' %}{{ m.content + eos_token }}"
    "{% else %}{{ raise_exception('no system text') }}{% endif %}{% endfor %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CHAT = [USER, {"role": "assistant", "content": "ho"}, USER]


def differences(name: str, dialect: str, count: int, seed: int) -> tuple[Converted, int]:
    template = turnwise.load(name)
    result = convert_losing(template, dialect)
    if result.error is not None:
        return result, 0
    target = Target(dialect, result.source, dict(template.options))
    chats = list(invent_chats(count, seed))
    compared, found = find_differences(template, target, chats, result.without)
    assert not found, (name, dialect, result.without, found[0])
    assert compared, (name, dialect, result.without)
    return result, compared


def pairs(every: int = 1) -> list[tuple[str, str]]:
    found = [
        (name, dialect)
        for name, entry in entries().items()
        for dialect in TARGETS
        if entry.dialect != dialect  # else it is kept as it is
    ]
    return found[::every]


@pytest.mark.law
def test_a_sample_of_all_pairs(sample: Any) -> None:
    taken = sample(pairs(101), 2)
    results = [differences(name, dialect, 25, 1) for name, dialect in taken]
    if len(taken) == len(pairs(101)):
        assert sum(result.error is None for result, _ in results) >= len(results) // 2


ORIGINALS = ("fastchat", "xtuner", "paddlenlp", "lmdeploy")


@pytest.mark.law(2)
@pytest.mark.parametrize(
    ("name", "dialect"),
    random.Random(5).sample([pair for pair in pairs() if pair[1] in ORIGINALS], 240),
)
def test_pairs_in_the_originals(name: str, dialect: str) -> None:
    """240 pairs; those that are refused even without all that can be left out are about a third."""
    differences(name, dialect, 40, 3)


def test_the_originals_take_what_is_written_for_them() -> None:
    """Whatever is a field of the released classes, and nothing else."""
    template = turnwise.load("qwen2.5")
    source = convert_losing(template, "fastchat").source
    conversation = pytest.importorskip("fastchat.conversation").Conversation
    assert source.keys() <= {field.name for field in dataclasses.fields(conversation)}
    source = convert_losing(template, "lmdeploy").source
    assert source.keys() <= {field.name for field in dataclasses.fields(ChatTemplateConfig)}


# System texts


@pytest.mark.law(6)
@pytest.mark.parametrize("dialect", TARGETS)
@pytest.mark.parametrize("name", ["gemma", "phi-4-reasoning", "mistral"])
def test_a_system_text_is_where_render_puts_it(name: str, dialect: str) -> None:
    """These templates have no place for it, and `render` puts it before the first user's text."""
    template = turnwise.load(name)
    chat = [{"role": "system", "content": "Be brief."}, USER]
    lost = ["white space", "empty messages"]
    try:
        source = template.convert(dialect, without=lost)
    except turnwise.SourceError as error:
        assert "system text" in str(error) or "every conversation starts with" in str(error)
        return
    text = Target(dialect, source, dict(template.options)).write(chat, True, TOKENS)
    expected = template.render(chat, add_generation_prompt=True).text
    for bos in (str(template.options.get("bos_token") or ""), TOKENS["bos_token"]):
        text, expected = text.removeprefix(bos), expected.removeprefix(bos)
    assert text == expected


@pytest.mark.parametrize("dialect", ["xtuner", "lmdeploy"])
def test_a_late_system_text_is_not_misplaced(dialect: str) -> None:
    """`render` joins it to the first, which this template takes alone; both would write it where it is."""
    yi = turnwise.load("yi")
    with pytest.raises(turnwise.SourceError, match="a system text after the first round") as error:
        yi.convert(dialect)
    assert "without=['late system text'] leaves that out." in str(error.value)
    assert yi.convert(dialect, without=["late system text"])
    assert turnwise.load("qwen2.5").convert(dialect, without=["tools", "no system text"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dialect"), pairs())
def test_all_pairs(name: str, dialect: str) -> None:
    """200 conversations each; `scripts/conversion_table.py` prints how many are converted."""
    differences(name, dialect, 200, 2)


# Special tokens


def real_text(dialect: str, source: Any, chat: list[dict[str, str]] = CHAT) -> str:
    """What the target writes, with the first bos token as it inserts it."""
    text = Target(dialect, source, {}).write(chat, True, TOKENS)
    return text if text.startswith("<s>") else "<s>" + text


@pytest.mark.parametrize("dialect", [dialect for dialect in TARGETS if dialect != "fastchat"])
def test_a_bos_token_of_every_round_is_neither_lost_nor_repeated(dialect: str) -> None:
    source = turnwise.compile(ROUNDS, options=TOKENS).convert(dialect, without=["system text"])
    expected = "<s>[INST] hi [/INST]ho</s><s>[INST] hi [/INST]"
    assert real_text(dialect, source) == expected


def test_fastchat_would_repeat_it_after_the_last_reply() -> None:
    """There is one separator after replies, and the last reply has it, too."""
    with pytest.raises(turnwise.SourceError, match="the end of a reply") as error:
        lost = ["empty messages", "system text"]
        turnwise.compile(ROUNDS, options=TOKENS).convert("fastchat", without=lost)
    assert "in fastchat: [INST] F [/INST]O</s>⟪<s>⟫" in str(error.value)


def test_llama_2_in_fastchat() -> None:
    source = turnwise.load("llama-2").convert("fastchat", without=["white space"])
    text = "<s>[INST] hi [/INST] ho </s><s>[INST] hi [/INST]"
    assert real_text("fastchat", source) == text
    answered = Target("fastchat", source, {}).write(CHAT[:2], False, TOKENS)
    assert answered == "[INST] hi [/INST] ho </s>"  # and no bos token after a last reply


@pytest.mark.parametrize("name", ["mistral", "zephyr"])
def test_xtuner_inserts_no_bos_token_after_a_reply(name: str) -> None:
    template = turnwise.load(name)
    source = template.convert("xtuner", without=["system text"])
    assert real_text("xtuner", source).count("<s>") == 1
    assert source["SUFFIX"] == "</s>" and source["SUFFIX_AS_EOS"]


def test_an_unknown_bos_token_is_not_lost_either() -> None:
    template = turnwise.compile(ROUNDS, options={"eos_token": "</s>"})
    # XTuner inserts one after each eos token, whatever its text.
    lost = ["system text"]
    expected = {"INSTRUCTION": "[INST] {input} [/INST]"}
    assert template.convert("xtuner", without=lost) == expected
    with pytest.raises(turnwise.SourceError, match=r"pass bos_token=\.\.\."):
        template.convert("ollama", without=lost)


def test_the_end_of_a_prompt_is_compared_to_the_letter() -> None:
    """White space after a last reply is never sent to a model; the end of a prompt is."""
    spaced = turnwise.compile(CHATML.replace("assistant\n{% endif", "assistant\n \n{% endif"))
    for dialect in TARGETS:
        result = convert_losing(spaced, dialect)
        if result.error is None:
            text = Target(dialect, result.source, {}).write([USER], True, TOKENS)
            assert text.endswith("assistant\n \n"), dialect


# What can be left out


@pytest.mark.law(4)
@pytest.mark.parametrize("name", ["deepseek-r1", "deepseek-v3.1"])
@pytest.mark.parametrize("dialect", TARGETS)
def test_tools_can_be_left_out_where_that_is_offered(name: str, dialect: str) -> None:
    """An empty list of calls is about tools, too."""
    result = convert_losing(turnwise.load(name), dialect)
    assert result.error is None or "tool" not in result.error.message


def test_empty_messages_have_a_name() -> None:
    vicuna = turnwise.load("vicuna")
    with pytest.raises(turnwise.SourceError, match="an empty message") as error:
        vicuna.convert("fastchat")
    assert "without=['empty messages'] leaves that out." in str(error.value)
    # A text without words is also a matter of white space.
    for name in ("empty messages", "white space"):
        assert vicuna.convert("fastchat", without=[name])["sep_style"] == "ADD_COLON_TWO"


def test_conversations_with_a_system_text_or_without_can_be_left_out() -> None:
    chatml = turnwise.load("chatml")
    with pytest.raises(turnwise.SourceError) as error:
        chatml.convert("fastchat")
    assert "without=['no system text'] leaves that out." in str(error.value)
    lost = ["no system text", "empty messages"]
    assert chatml.convert("fastchat", without=lost)["sep_style"] == "CHATML"
    with pytest.raises(turnwise.SourceError, match="nothing is left to compare"):
        chatml.convert("xtuner", without=["system text", "no system text"])


def test_a_template_that_refuses_everything() -> None:
    refusing = turnwise.compile("{{ raise_exception('never') }}{{ messages }}")
    for dialect in TARGETS:
        with pytest.raises(turnwise.SourceError, match="cannot be expressed as turns: it refuses"):
            refusing.convert(dialect)


def test_limits_of_a_writer_are_not_those_of_its_dialect() -> None:
    tools = turnwise.load("qwen2.5")
    with pytest.raises(turnwise.SourceError, match="turnwise's writer for ollama does not express"):
        tools.convert("ollama")
    with pytest.raises(turnwise.SourceError, match="paddlenlp cannot express .*: tools"):
        tools.convert("paddlenlp")


# What Go and Jinja can say


def test_ollama_places_a_system_text_in_a_user_turn() -> None:
    first = turnwise.load("llama-2").convert("ollama", without=["white space"])
    assert "if and $first $.System" in first
    last = turnwise.load("mistral-tekken").convert("ollama", without=["tools"])
    assert "if and $last $.System" in last


def test_ollama_writes_the_date_in_its_own_format() -> None:
    dated = "Today: {{ strftime_now('%Y-%m-%d') }}\n" + CHATML
    assert "Today: {{ currentDate }}\n" in turnwise.compile(dated).convert("ollama")
    with pytest.raises(turnwise.SourceError, match="the date"):
        turnwise.compile(dated.replace("%Y-%m-%d", "%d.%m.%Y")).convert("ollama")


def test_paddlenlp_knows_the_last_reply() -> None:
    source = turnwise.load("phi-3").convert("paddlenlp")
    assert "<|endoftext|>' if is_last else ''}}" in source["conversation"][1]


def test_what_only_shows_in_a_history_is_not_lost_in_prompts() -> None:
    """A Modelfile is compared on prompts; images and reasoning are probed in conversations that end with a reply."""
    images = turnwise.load("gemma-3")
    with pytest.raises(turnwise.SourceError, match="writer for ollama does not .*: images"):
        images.convert("ollama", without=["white space"])
    assert images.convert("ollama", without=["white space", "images"])

"""Template: immutable, equal by content, and its arguments are used or refused."""

from __future__ import annotations

import pickle
import rlcompleter
from typing import Any

import pytest

import turnwise

CHAT = [{"role": "user", "content": "Hi"}]
TEXT = "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ x }}\n{% endfor %}"
SLOTS = ("program", "options", "text", "_renderer", "codec", "anything")


@pytest.mark.parametrize("name", SLOTS)
def test_nothing_can_be_set_or_deleted(name: str) -> None:
    template = turnwise.compile(TEXT)
    with pytest.raises(AttributeError):
        setattr(template, name, None)
    with pytest.raises(AttributeError):
        delattr(template, name)


def test_options_never_change() -> None:
    words = ["a"]
    template = turnwise.compile(TEXT, options={"x": words})
    before = str(template.render(CHAT))
    words.append("b")
    template.options["x"].append("c")
    with pytest.raises(TypeError):
        template.options["x"] = "B"  # type: ignore[index]
    assert str(template.render(CHAT)) == before and template.options == {"x": ["a"]}


def test_equality_is_by_content() -> None:
    template = turnwise.compile(TEXT, options={"x": "1"})
    same = turnwise.compile(TEXT, options={"x": "1"}, name="another")
    assert template == same and hash(template) == hash(same) and len({template, same}) == 1
    assert template == pickle.loads(pickle.dumps(template))
    assert template != turnwise.compile(TEXT, options={"x": "2"})
    assert template != turnwise.compile(TEXT + " ", options={"x": "1"})
    assert turnwise.load("chatml") == turnwise.load("chatml") != turnwise.load("qwen2.5")


def test_tab_completion_shows_documented_names_only() -> None:
    matches = rlcompleter.Completer({"t": turnwise.load("chatml")}).attr_matches("t.")
    shown = [match.removeprefix("t.").partition("(")[0] for match in matches]
    assert not [name for name in shown if name.startswith("_")]
    fields = {"renderer", "dialect", "translation"}
    assert fields <= set(shown) and all(f"{name}: " in turnwise.Template.__doc__ for name in fields)
    assert all(getattr(turnwise.Template, name).__doc__ for name in set(shown) - fields)


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ({"add_generation_promt": True}, "add_generation_prompt"),
        ({"enable_thinkng": False}, "enable_thinking"),
    ],
)
def test_render_names_a_misspelt_option(wrong: dict[str, Any], meant: str) -> None:
    qwen = turnwise.load("qwen3")
    with pytest.raises(turnwise.MessageError, match=f"did you mean {meant}"):
        qwen.render(CHAT, **wrong)
    assert str(qwen.render(CHAT, normalise=False, **wrong)) == str(qwen.render(CHAT))
    assert str(qwen.render(CHAT, custom_name=1, eos_token="</s>")) == str(qwen.render(CHAT))


def test_strict_refuses_what_is_not_written() -> None:
    deaf = turnwise.compile(
        "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    )
    chat = [{"role": "system", "content": "Rules"}, *CHAT]
    assert str(deaf.render(chat, strict=True)) == "Rules\n\nHi"
    assert str(deaf.render(chat, normalise=False)) == "Hi"
    with pytest.raises(turnwise.MessageError, match=r"messages\[0\].content"):
        deaf.render(chat, normalise=False, strict=True)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    with pytest.raises(turnwise.MessageError, match="tools"):
        deaf.render(CHAT, tools=tools, strict=True)
    assert str(turnwise.load("qwen3").render(chat, tools=tools, strict=True))


def test_normalise_decides_the_form_of_parsed_messages() -> None:
    qwen = turnwise.load("llama-3.1")
    tools = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]
    prompt = qwen.render(CHAT, tools=tools, add_generation_prompt=True)
    reply = '{"name": "tide", "parameters": {"h": "A"}}<|eot_id|>'
    message = qwen.parse(reply, prompt, tools=tools)
    assert str(qwen.render([*CHAT, message], tools=tools)) == str(prompt) + reply
    plain = qwen.render([*CHAT, message], tools=tools, normalise=False)
    assert '\\"h\\"' in str(plain), "the arguments as text, as they were parsed"


def test_special_tokens_that_nobody_named_are_empty_with_a_warning() -> None:
    template = turnwise.compile("{{ bos_token + messages[0].content + eos_token }}")
    with pytest.warns(turnwise.TurnwiseWarning, match="bos_token, eos_token"):
        assert str(template.render(CHAT)) == "Hi"
    assert str(template.render(CHAT, bos_token="<s>", eos_token="</s>")) == "<s>Hi</s>"
    with pytest.raises(turnwise.TemplateError, match="undefined"):
        template.render(CHAT, normalise=False)
    with pytest.raises(turnwise.TemplateError, match="missing"):
        turnwise.compile("{{ bos_token }}{{ missing + 'x' }}").render(CHAT)


def test_a_template_does_not_share_its_declarations() -> None:
    turnwise.load("qwen3").translation.replies.update(unknown=1)
    assert turnwise.load("qwen3").grammar.reasoning is not None


def test_a_session_renders_prompts() -> None:
    with pytest.raises(turnwise.MessageError, match="session takes no 'add_generation_prompt'"):
        turnwise.load("chatml").session("turnwise", add_generation_prompt=False)


def test_options_are_a_mapping() -> None:
    with pytest.raises(turnwise.MessageError, match="options are a mapping, not NoneType"):
        turnwise.load("chatml").with_options(None)  # type: ignore[arg-type]

"""What a request asks, in the variables of a template."""

import warnings

import pytest

import turnwise
from loaded import load_entry
from turnwise.analysis.request_facts import LEVELS, MODES, SWITCHES, RequestFacts
from turnwise.errors import MessageError, TurnwiseError, WarningLog

CHAT = [{"role": "user", "content": "Hi"}]
READERS = [
    name
    for name, entry in turnwise.entries().items()
    if ":" not in name and not entry.unusable and entry.dialect == "jinja"
]


def prompt(template, **asked):
    with WarningLog(is_quiet=True) as log:
        text = template.render(CHAT, add_generation_prompt=True, **asked).text
    return text, [text for text in log.texts if "the template" in text]


@pytest.mark.parametrize(
    ("name", "asked", "same"),
    [
        ("qwen3", {"reasoning": "none"}, {"enable_thinking": False}),
        ("qwen3", {"reasoning": False}, {"enable_thinking": False}),
        ("gemma-4", {"reasoning": True}, {"enable_thinking": True}),
        ("gpt-oss", {"reasoning": "high"}, {"reasoning_effort": "high"}),
        ("deepseek-v3.1", {"reasoning": True}, {"thinking": True}),
        ("deepseek-v4", {"reasoning": "max"}, {"thinking": True, "reasoning_effort": "max"}),
        ("kimi-k3", {"tool_choice": "required"}, {"tool_choice": "required"}),
        ("command-a-plus", {"reasoning": "none"}, {"reasoning": False}),
        ("minimax-m3", {"reasoning": "none"}, {"thinking_mode": "disabled"}),
        ("minimax-m3", {"reasoning": True}, {"thinking_mode": "enabled"}),
        ("hy3-preview", {"reasoning": "none"}, {"reasoning_effort": "no_think"}),
    ],
)
def test_a_request_is_said_in_the_words_of_the_template(name, asked, same):
    template = load_entry(name)
    expected = template.renderer.render(CHAT, add_generation_prompt=True, **same).text
    assert prompt(template, **asked) == (expected, [])


@pytest.mark.parametrize(
    ("name", "asked", "warning"),
    [
        ("solar-open", {"reasoning": "none"}, "no level 'none': 'minimal' is used"),
        ("chatml", {"reasoning": "high"}, "no option for reasoning='high'"),
        ("deepseek-r1", {"reasoning": "none"}, "no option for reasoning='none'"),
        ("qwen3", {"reasoning": "low"}, "on or off and has no levels: 'low' is on"),
        ("mistral-small-4", {"reasoning": "low"}, "no level 'low': 'high' is used"),
        ("glm-5.2", {"reasoning": "low"}, "has no level 'low'"),
        ("qwen3", {"tool_choice": "required"}, "does not write tool_choice='required'"),
        ("qwen3", {"response_format": {"type": "json_object"}}, "does not write response_format"),
        ("qwen3", {"parallel_tool_calls": False}, "does not write parallel_tool_calls"),
    ],
)
def test_what_the_template_cannot_express_is_a_warning(name, asked, warning):
    _, warned = prompt(load_entry(name), **asked)
    assert len(warned) == 1 and warning in warned[0]


def test_what_asks_for_nothing_is_silent():
    asked = {
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "parallel_tool_calls": True,
    }
    assert prompt(load_entry("qwen3"), **asked)[1] == []
    assert prompt(load_entry("chatml"), reasoning="none")[1] == []


def test_a_level_that_is_none_is_an_error():
    with pytest.raises(MessageError, match="no level 'hihg'"):
        load_entry("qwen3").render(CHAT, reasoning="hihg")


def test_strict_makes_it_an_error():
    with pytest.raises(MessageError, match="no option"):
        load_entry("chatml").render(CHAT, reasoning="high", strict=True)


def test_encode_and_session_do_as_render():
    template = load_entry("qwen3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoded = template.encode(CHAT, "turnwise", add_generation_prompt=True, reasoning="none")
        plain = template.encode(CHAT, "turnwise", add_generation_prompt=True, enable_thinking=False)
        session = template.session("turnwise", reasoning="none")
    assert encoded.input_ids == plain.input_ids
    assert session.prompt(CHAT) == list(plain.input_ids)


def test_a_fact_beside_the_arguments_of_render():
    """`add_generation_prompt` is no variable that a fact is tried with."""
    template = load_entry("deepseek-v4")
    asked = {"response_format": {"type": "json_object"}, "add_generation_prompt": True}
    encoded = template.encode(CHAT, "turnwise", **asked)
    assert encoded.text == template.render(CHAT, **asked).text


@pytest.mark.law(4)
@pytest.mark.parametrize("name", READERS)
def test_no_request_is_lost_in_silence(name):
    """The prompt changes as asked, or the default is what was asked, or a warning says why not."""
    template = load_entry(name)
    prompts = {}
    for level in (*LEVELS, True):
        try:
            prompts[level], warned = prompt(template, reasoning=level)
        except TurnwiseError:
            continue  # the template refuses this conversation in any case
        plain = template.renderer.render(CHAT, add_generation_prompt=True).text
        if warned or prompts[level] != plain:
            continue
        options = RequestFacts(template.renderer).translate({"reasoning": level}).options
        if options:
            assert is_default(template, level, options), (name, level, options)
        else:
            assert level == "none" and "think" not in template.text.lower(), (name, level)
    if prompts.get("none") is not None and prompts["none"] == prompts.get("high"):
        assert all(prompt(template, reasoning=level)[1] for level in ("high",)), name


def is_default(template, level, options):
    """Return whether a template does by default what was asked: another value changes its prompt, and it knows this."""
    plain = template.renderer.render(CHAT, add_generation_prompt=True).text
    opposites = {(name, value): not value for name in SWITCHES for value in (True, False)}
    for name, on, off in MODES:
        opposites |= {(name, on): off, (name, off): on}
    for name, value in options.items():
        other = opposites.get((name, value))
        if other is None:
            other = "high" if level == "none" else "low"
            is_named = any(f"{mark}{level}{mark}" in template.text for mark in "'\"")
            if level != "none" and not is_named:
                return False
        try:
            shown = template.renderer.render(CHAT, add_generation_prompt=True, **{name: other})
        except TurnwiseError:
            continue  # the other value is refused, so this one is told apart
        if shown.text != plain:
            return True
    return False

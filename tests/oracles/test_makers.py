"""The makers' packages, asked through their adapters."""

import pytest

from turnwise.oracles import find_oracle

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f", "description": "D", "parameters": SCHEMA}}
CALL = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CHAT = [
    {"role": "system", "content": "Rules"},
    {"role": "user", "content": "Ask"},
    {"role": "assistant", "content": "", "reasoning_content": "Why", "tool_calls": [CALL]},
    {"role": "tool", "content": "Found", "tool_call_id": "call00000"},
]
PACKAGES = {
    "deepseek_recipe": ("deepseek-v4", "deepseek-v4.1"),
    "mistral_common": ("mistral-v11", "mistral-v13", "mistral-v15"),
    "cohere_melody": ("cmd3", "cmd4", "cmd5"),
}
NAMES = [(package, name) for package, names in PACKAGES.items() for name in names]


@pytest.mark.parametrize(("package", "name"), NAMES)
def test_an_oracle_writes_a_conversation_with_tools(package, name):
    pytest.importorskip(package)
    oracle = find_oracle(name)
    chat = [{**message} for message in CHAT]
    if name == "mistral-v11":  # which refuses reasoning
        del chat[2]["reasoning_content"]
    prompt = oracle.render({"messages": chat, "tools": [TOOL], "add_generation_prompt": True})
    assert prompt.refusal is None
    for text in ("Rules", "Ask", '"f"' if "v11" in name else "f", "Found"):
        assert text in prompt.text
    assert oracle.version


def test_a_refusal_is_the_makers_own():
    pytest.importorskip("deepseek_recipe")
    prompt = find_oracle("deepseek-v4").render({"messages": []})
    assert prompt.text is None
    assert prompt.refusal


def test_a_request_fact_reaches_the_maker():
    pytest.importorskip("deepseek_recipe")
    asked = {"messages": CHAT[1:2], "chat_template_kwargs": {"reasoning_effort": "none"}}
    assert find_oracle("deepseek-v4").render(asked).text.endswith("</think>")

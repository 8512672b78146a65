"""Warnings for fine-tuning: turns that are lost, calls that a template leaves out, prompts that merge with replies."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

import turnwise
from chatml import CHATML
from turnwise.tokens.tokenizers import files, tokenizer

USER = {"role": "user", "content": "Q"}
FIRST_CALL_ONLY = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% if m.tool_calls %}{{ m.tool_calls[0].function|tojson }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_call(harbour: str) -> dict[str, Any]:
    function = {"name": "tide", "arguments": {"harbour": harbour}}
    return {"id": harbour, "type": "function", "function": function}


@pytest.mark.parametrize("order", ["", "|reverse"])
def test_one_argument_of_thousands_that_is_left_out_is_noticed(order: str) -> None:
    template = turnwise.compile(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{% for call in m.tool_calls %}{{ call.function.name }}"
        "{% for key, value in call.function.arguments|items|list" + order + " %}"
        "{% if key != skip %} {{ key }}={{ value }}{% endif %}{% endfor %}{% endfor %}"
        "<|im_end|>\n{% endfor %}"
    )
    values = {f"key{number}": f"word{number:05d}" for number in range(2_000)}
    call = {"type": "function", "function": {"name": "tide", "arguments": values}}
    chat = [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]
    encoded = template.encode(chat, "turnwise", skip="", normalise=False)
    assert not encoded.untrained
    for left_out in ("key0", "key1000", "key1999"):
        with pytest.warns(turnwise.TurnwiseWarning, match="does not write its calls"):
            template.encode(chat, "turnwise", skip=left_out, normalise=False)


@pytest.mark.parametrize("role", ["bot", "Assistant", "gpt"])
def test_a_conversation_without_an_assistant_is_reported(role: str) -> None:
    template, chat = turnwise.compile(CHATML), [USER, {"role": role, "content": "A"}]
    with pytest.warns(turnwise.TurnwiseWarning, match="no message has the role assistant"):
        assert template.examples(chat, "turnwise") == []
    with pytest.raises(turnwise.MessageError, match="did you mean 'assistant'"):
        template.examples(chat, "turnwise", strict=True)
    with pytest.raises(turnwise.MessageError, match="no message has the role assistant"):
        template.examples(chat, "turnwise", strict=True, normalise=False)


@pytest.mark.parametrize("method", ["encode", "examples"])
def test_a_second_call_that_is_not_written_is_reported(method: str) -> None:
    """Its name is there, for the first call has the same one."""
    template = turnwise.compile(FIRST_CALL_ONLY)
    calls = [make_call("Oslo"), make_call("Bergen")]
    chat = [USER, {"role": "assistant", "content": "", "tool_calls": calls}]
    problem = r"messages\[1\]: the template does not write its calls"
    with pytest.warns(turnwise.TurnwiseWarning, match=problem):
        getattr(template, method)(chat, "turnwise")
    named = r"the template writes nothing of messages\[1\].tool_calls\[1\]"
    with pytest.raises(turnwise.MessageError, match=f"{problem}|{named}"):
        getattr(template, method)(chat, "turnwise", strict=True)
    del calls[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error", turnwise.TurnwiseWarning)
        getattr(template, method)(chat, "turnwise")


@pytest.mark.parametrize("reply", ["\nA", "\n\n\nA", "\n", "A", ""])
def test_tokens_of_white_space_do_not_cross_the_end_of_a_prompt(tmp_path: Path, reply: str) -> None:
    """A vocabulary with tokens for runs of line breaks, as Gemma's."""
    data = json.loads((files.SHIPPED / "tokenizer.json").read_text(encoding="utf-8"))
    added = data["added_tokens"]
    last = max(*data["model"]["vocab"].values(), *(token["id"] for token in added))
    for count in (2, 3, 4):
        blank = {"id": last + count, "content": "\n" * count, "special": False}
        added.append({**added[0], **blank})
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    used, template = tokenizer(tmp_path), turnwise.compile(CHATML)
    chat = [USER, {"role": "assistant", "content": reply}]
    prompt = template.encode(chat[:1], used, add_generation_prompt=True).input_ids
    for sample in (template.encode(chat, used), *template.examples(chat, used)):
        assert sample.input_ids[: len(prompt)] == prompt
        assert "".join(sample.tokens) == sample.text


def test_whether_a_stop_is_added_is_yes_or_no() -> None:
    with pytest.raises(turnwise.MessageError, match="add_stop is True or False"):
        turnwise.compile(CHATML).encode([USER], "turnwise", add_stop="no")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["add_stop", "compatible"])
def test_examples_names_the_arguments_that_it_takes(name: str) -> None:
    with pytest.raises(turnwise.MessageError, match=f"examples takes no '{name}'") as caught:
        turnwise.compile(CHATML).examples([USER], "turnwise", **{name: True})
    taken = str(caught.value).partition("It takes: ")[2]
    assert "overflow" in taken and "strict" in taken
    assert "add_stop" not in taken and "add_generation_prompt" not in taken


def test_a_misspelt_argument_that_examples_refuses_is_named() -> None:
    with pytest.raises(turnwise.MessageError, match="did you mean add_generation_prompt"):
        turnwise.compile(CHATML).examples([USER], "turnwise", add_generation_promt=True)

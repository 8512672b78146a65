"""LMDeploy's calls: its goldens, later rounds of a session, its registry, its configurations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corpus
import turnwise
from corpus import needs_corpus
from turnwise.compat import lmdeploy as compat
from turnwise.compat.lmdeploy import (
    MODELS,
    BaseChatTemplate,
    BaseModel,
    ChatTemplateConfig,
    HFChatTemplate,
    best_match_model,
)
from turnwise.dialects import lmdeploy as dialect

SOURCE = os.environ.get("TURNWISE_LMDEPLOY", "")
"""A checkout of LMDeploy 0.9.2, whose own tests are run; they need no other part of it."""
HI = {"role": "user", "content": "Hi"}
HO = {"role": "assistant", "content": "Ho"}
TOOL = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
OTHER_KEYS = {("interns1", "reasoning_thinking_key"), ("intern-s1", "reasoning_thinking_key")}
"""Rows in which reasoning is under `thinking`, which LMDeploy does not know: here every template sees it."""


@pytest.fixture(autouse=True)
def own_models() -> Any:
    before = dict(MODELS.module_dict)
    yield
    MODELS.module_dict.clear()
    MODELS.module_dict.update(before)


def names() -> list[str]:
    return list(dialect.read_data()["entries"])


# --- texts


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", names())
def test_golden(name: str) -> None:
    model = MODELS.get(name)()
    for row in corpus.lines("golden/lmdeploy.jsonl"):
        if row["kind"] != "render" or row["t"] != name or (name, row["c"]) in OTHER_KEYS:
            continue
        chat = corpus.chats().get(row["c"])
        messages = row.get("messages") or (chat.messages if chat else [])
        tools = row.get("tools") or (chat.arguments.get("tools") if chat else None)
        if tools:  # as LMDeploy's server gives them
            tools = [tool.get("function", tool) for tool in tools]
        if row.get("text") is None:
            with pytest.raises(turnwise.TurnwiseError):
                model.messages2prompt(messages, tools=tools)
        else:
            assert model.messages2prompt(messages, tools=tools) == row["text"], row["c"]


TEXTS = st.text("aU: \n'{}%@<|>中", max_size=4)


@settings(max_examples=40)
@given(st.fixed_dictionaries({key: TEXTS for key in compat.POSITIONS}), TEXTS, st.booleans())
def test_the_formula(fields: dict[str, str], text: str, is_first: bool) -> None:
    model = BaseChatTemplate(*(fields[key] for key in compat.POSITIONS))
    turn = f"{fields['user']}{text}{fields['eoh']}{fields['assistant']}"
    default = f"{fields['system']}{fields['meta_instruction']}{fields['eosys']}"
    start = default if is_first else fields["separator"]
    assert model.get_prompt(text, sequence_start=is_first) == start + turn
    assert model.messages2prompt(text, is_first) == start + turn
    messages = [{"role": "user", "content": text}]
    assert model.messages2prompt(messages, is_first) == (default if is_first else "") + turn
    model.meta_instruction = None
    assert model.get_prompt(text) == turn == model.messages2prompt(messages)


@pytest.mark.law
@pytest.mark.parametrize("name", sorted(set(names()) - {"base", "llama", "chatglm"}))
def test_a_later_round_goes_on(name: str) -> None:
    """The text of a first round, the reply and that of a later round are one conversation."""
    model = MODELS.get(name)()
    fields = dialect.read_data()["entries"][name]
    later = model.get_prompt("Hi", sequence_start=False)
    question = f"{model.separator}{model.user}Hi{model.eoh}{model.assistant}"
    assert later == (question[:-1] if fields.get("cut") else question)
    if fields.get("cut") or fields.get("think") or not model.eoa or fields.get("style"):
        return
    whole = model.messages2prompt([HI, HO, HI])
    assert model.get_prompt("Hi") + "Ho" + model.eoa + later == whole


def test_rounds_of_chatglm2_are_counted() -> None:
    model = MODELS.get("chatglm")()
    assert [model.get_prompt("x")[:9] for _ in range(2)] == ["[Round 1]", "[Round 2]"]
    assert model.messages2prompt([HI]).startswith("[Round 1]")


def test_what_later_rounds_of_some_models_still_start_with() -> None:
    assert MODELS.get("glm4")().messages2prompt([HI], False).startswith("[gMASK]<sop>")
    assert MODELS.get("glm4")().get_prompt("x", False).startswith("<|user|>")
    assert MODELS.get("deepseek-r1")().messages2prompt([HI]).endswith("<think>\n")
    assert MODELS.get("deepseek-r1")().messages2prompt([HI], False).endswith("<｜Assistant｜>")
    assert MODELS.get("qwq")().messages2prompt([HI], False).endswith("<think>\n")


def test_tools_are_written_as_they_are() -> None:
    wrapped = [{"type": "function", "function": TOOL}]
    for tools in ([TOOL], wrapped):
        text = MODELS.get("internlm2")().messages2prompt([HI], tools=tools)
        assert f"name=<|plugin|>\n{json.dumps(tools)}<|im_end|>" in text
    llama = MODELS.get("llama3_1")()
    assert "Use the function 'f' to: d" in llama.messages2prompt([HI], tools=[TOOL])
    with pytest.raises(turnwise.TurnwiseError, match="name and the description"):
        llama.messages2prompt([HI], tools=wrapped)
    # LMDeploy asks whether there are tools, and not how many.
    assert "# Tool Instructions" in llama.messages2prompt([HI], tools=[])
    assert "# Tool Instructions" not in llama.messages2prompt([HI])
    qwen = MODELS.get("qwen2d5")()
    assert qwen.messages2prompt([HI], tools=[]) == qwen.messages2prompt([HI])


def test_messages_are_not_changed() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [HI, {**HO, "tool_calls": [call]}]
    before = json.dumps(messages)
    MODELS.get("internlm2")().messages2prompt(messages, tools=[TOOL])
    assert json.dumps(messages) == before


# --- models and their fields


def test_fields_are_attributes_and_may_change() -> None:
    model = MODELS.get("qwen")(capability="chat")
    assert model.system == "<|im_start|>system\n" and model.stop_words == ["<|im_end|>"]
    model.meta_instruction = "Be brief."
    assert model.get_prompt("x").startswith("<|im_start|>system\nBe brief.<|im_end|>")
    model.user = 3
    with pytest.raises(turnwise.SourceError, match="user must be a string"):
        model.get_prompt("x")


def test_capabilities() -> None:
    assert MODELS.get("vicuna")(capability="completion").get_prompt("x", False) == "x"
    code = MODELS.get("codellama")
    assert code(capability="infilling").stop_words == ["<EOT>"]
    assert code(capability="infilling").get_prompt("a<FILL>b") == "<PRE> a <SUF>b <MID>"
    first = code(capability="infilling", suffix_first=True)
    assert first.get_prompt("a<FILL>b") == "<PRE> <SUF>b <MID> a"
    with pytest.raises(AssertionError, match="java"):
        code(capability="java")


def test_a_model_of_its_own() -> None:
    """As in LMDeploy's documentation: a class with other defaults, found by its name and by its rule."""

    @MODELS.register_module(name="customized_model")
    class Customized(BaseChatTemplate):
        def __init__(self, system: str = "S:", user: str = "U:", **fields: Any) -> None:
            super().__init__(system=system, user=user, assistant="A:", **fields)

        @classmethod
        def match(cls, model_path: str) -> str | None:
            return "customized_model" if "my-model" in model_path else None

    assert MODELS.get("customized_model") is Customized and "customized_model" in MODELS
    assert best_match_model("me/my-model-7b") == "customized_model"
    config = ChatTemplateConfig("customized_model", eoh="!")
    assert config.chat_template.get_prompt("x") == "S:U:x!A:"
    with pytest.raises(KeyError, match="already registered"):
        MODELS.register_module("customized_model", module=Customized)
    MODELS.register_module("customized_model", force=True, module=BaseModel)
    assert MODELS.get("customized_model") is BaseModel and MODELS.get("none") is None


def test_classes_by_their_names() -> None:
    from turnwise.compat.lmdeploy import Llama3  # type: ignore[attr-defined]

    text = Llama3(model_name="llama", capability="chat").messages2prompt([HI])
    assert text.startswith("<|begin_of_text|><|start_header_id|>user")
    assert len(MODELS) == 60 and set(names()) < set(MODELS.module_dict)
    with pytest.raises(ImportError):
        from turnwise.compat.lmdeploy import Llama9  # type: ignore[attr-defined]  # noqa: F401


def test_what_is_not_known_is_a_warning() -> None:
    with pytest.warns(turnwise.TurnwiseWarning, match="no field 'usr'.*Did you mean 'user'"):
        MODELS.get("qwen")(usr="x")
    with pytest.warns(turnwise.TurnwiseWarning, match="no chat template for 'some/model'"):
        assert best_match_model("some/model") == "base"
    with pytest.warns(turnwise.TurnwiseWarning, match="no template 'qwen-7b'"):
        config = ChatTemplateConfig("qwen-7b", meta_instruction="m", eosys="!")
        assert config.chat_template.get_prompt("") == "m!"
    with pytest.raises(turnwise.TurnwiseError, match="completion"):
        BaseModel().messages2prompt([HI])


def test_any_other_model() -> None:
    model = MODELS.get("hf")(model_path="Qwen/Qwen3-8B")
    assert isinstance(model, HFChatTemplate) and "<|im_end|>" in model.stop_words
    template = turnwise.load("Qwen/Qwen3-8B")
    expected = template.render([HI], add_generation_prompt=True).text
    assert model.get_prompt("Hi") == model.messages2prompt([HI]) == expected
    assert model.messages2prompt([HI], enable_thinking=None) == expected
    assert model.messages2prompt([HI], enable_thinking=False) != expected
    assert model.messages2prompt([HI, HO]).endswith("Ho")


# --- configurations


def test_json(tmp_path: Path) -> None:
    config = ChatTemplateConfig("mine", user="U:", assistant="A:", stop_words=["x"])
    file = tmp_path / "mine.json"
    text = config.to_json(str(file))
    assert json.loads(text) == json.loads(file.read_text(encoding="utf-8"))
    assert ChatTemplateConfig.from_json(str(file)) == config
    assert ChatTemplateConfig.from_json(text) == config and "mine" in MODELS
    assert config.chat_template.get_prompt("x") == "U:xA:"
    nameless = ChatTemplateConfig.from_json('{"user": "U:"}')
    assert nameless.model_name in MODELS and nameless.chat_template.get_prompt("x") == "U:x"


@pytest.mark.parametrize(
    "given", ["no/such/file.json", "[1]", '{"usr": "x"}', '{"user": 3}', "{", "", "."]
)
def test_bad_json(given: str) -> None:
    with pytest.raises(turnwise.SourceError):
        ChatTemplateConfig.from_json(given)


# --- the original


@pytest.mark.skipif(not SOURCE, reason="TURNWISE_LMDEPLOY names no checkout of LMDeploy 0.9.2")
def test_the_original(tmp_path: Path) -> None:
    """Its own tests with the import changed; those that fail look for a tokenizer on the network."""
    text = Path(SOURCE, "tests/test_lmdeploy/test_model.py").read_text(encoding="utf-8")
    text = text.replace("lmdeploy.model", "turnwise.compat.lmdeploy")
    (tmp_path / "test_model.py").write_text(text, encoding="utf-8")
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--tb=no", "-rf", "-W", "ignore"]
    environment = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}
    command = [sys.executable, "-m", "pytest", *options, "test_model.py"]
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED")]
    assert " 128 passed" in run.stdout and len(failed) == 29, run.stdout[-3000:]

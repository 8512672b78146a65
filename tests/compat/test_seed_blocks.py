"""Every code block of five documents about chat templates: run as printed, or with the import of docs/drop-in.md.

The documents are XTuner's page on prompt templates (000), a guide to chat templates (001), PaddleNLP's page on dialogue
templates (002), InternLM2's chat format (003) and an analysis of FastChat's conversation module (004). `NOT_RUN` lists
the blocks that are pictures, or retell FastChat's source; the names that they define are tested instead.
"""

from __future__ import annotations

import builtins
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from internlm2_page import blocks as internlm2_blocks
from turnwise.compat import fastchat, paddlenlp, xtuner
from turnwise.shapes import parse_transcript

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
IMPORTS = {
    "from fastchat.model.model_adapter import": "from turnwise.compat.fastchat import",
    "from fastchat.conversation import": "from turnwise.compat.fastchat import",
    "from paddlenlp.transformers import": "from turnwise.compat.paddlenlp import",
}
"""The one line that changes, as docs/drop-in.md shows it."""
NOT_RUN = {5, 6, 7, 10, 12, 14, 15, 26, 27, 31}
"""Blocks of 004: signatures and bodies of methods as the author retells them, and a diagram."""
BLOCKS = {"000": 3, "001": 11, "002": 3, "004": 34}
ROLES = ("system", "user", "assistant")

pytestmark = needs_corpus


@cache
def read_blocks(number: str) -> tuple[str, ...]:
    folder = corpus.folder()
    assert folder is not None
    (file,) = (folder.parent / "seeds").glob(f"{number}_*.txt")
    return tuple(text for _, text in FENCE.findall(file.read_text(encoding="utf-8")))


def change_import(text: str) -> str:
    for before, after in IMPORTS.items():
        text = text.replace(before, after)
    return text


@pytest.mark.parametrize("number", BLOCKS)
def test_all_blocks_are_counted(number: str) -> None:
    assert len(read_blocks(number)) == BLOCKS[number]


# --- 000: XTuner


def test_xtuners_template_and_its_results() -> None:
    code, single, several = read_blocks("000")
    names: dict[str, Any] = {}
    exec(code, names)
    given = names["internlm_chat"]
    known = xtuner.PROMPT_TEMPLATE.internlm_chat
    assert {key: known[key] for key in given} == given
    template = turnwise.compile(given)
    chat = [{"role": "system", "content": "{system}"}]
    for text, rounds in ((single, 1), (several, 3)):
        turns = [
            {"role": "user", "content": "{input}"},
            {"role": "assistant", "content": "{output}"},
        ]
        assert template.render(chat + turns * rounds).text.rstrip("\n") == text.rstrip("\n")
    assert template.stops() == ("<eoa>",)


# --- 001: the guide (its templates are also in tests/test_template_guide.py)


def test_the_guides_template_and_what_it_writes() -> None:
    blocks = read_blocks("001")
    asked = blocks[0].strip()
    assert blocks[4] == blocks[0]
    template = turnwise.compile(
        "{% for m in messages %}<message>{{ m.role }}\n{{ m.content }}\n</message>\n{% endfor %}"
        "{% if add_generation_prompt %}<message>assistant\n{% endif %}"
    )
    bare = turnwise.compile(
        "{% for m in messages %}<message>\n{{ m.content }}\n</message>\n{% endfor %}"
    )
    pair = [
        {"role": "user", "content": "这里放用户提问"},
        {"role": "assistant", "content": "这里放模型输出"},
    ]
    assert bare.render(pair).text == blocks[2] and template.render(pair).text == blocks[3]
    chat = [{"role": "user", "content": asked}]
    prompt = template.render(chat, add_generation_prompt=True)
    assert template.render(chat).text == blocks[5] and prompt.text == blocks[6]
    assert blocks[7].startswith(prompt.text)
    reply = template.parse(blocks[8].removeprefix(prompt.text), prompt)
    assert template.render([*chat, reply]).text == blocks[8]


def test_the_guides_qwen() -> None:
    """Printed with a line break before each end, which its own template does not write: the template counts."""
    blocks = read_blocks("001")
    template = turnwise.compile(blocks[9].rstrip("\n"))
    reply = {"role": "assistant", "content": "好的，我将会为你介绍...\n...\n..."}
    text = template.render([{"role": "user", "content": blocks[0].strip()}, reply]).text
    assert text == blocks[10].replace("\n<|im_end|>", "<|im_end|>")
    assert text == turnwise.load("Qwen/Qwen2.5-7B-Instruct").render(
        [{"role": "user", "content": blocks[0].strip()}, reply]
    ).text  # fmt: skip


# --- 002: PaddleNLP


@pytest.mark.parametrize("number", [0, 2])
def test_paddlenlps_blocks(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the tokenizer in the Hugging Face cache, the import alone changes; paddle's tensors need paddle."""
    model = tmp_path / "models--THUDM--chatglm-6b-v1.1"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0", encoding="utf-8")
    (model / "snapshots").mkdir()
    folder = corpus.tokenizer_folder("internlm2")
    (model / "snapshots" / "0").symlink_to(folder, target_is_directory=True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    code = change_import(read_blocks("002")[number])
    assert code.splitlines()[1:] == read_blocks("002")[number].splitlines()[1:]
    names: dict[str, Any] = {}
    exec(code.replace('"pd"', '"np"'), names)
    assert names["inputs"]["input_ids"].shape[0] == 1
    if number == 2:
        assert names["query"] in names["full_query"]


@pytest.mark.parametrize("number", [0, 2])
def test_paddlenlps_blocks_without_the_tokenizer(number: int) -> None:
    with pytest.raises(turnwise.TurnwiseError, match="needs a tokenizer.*\n.*Hugging Face cache"):
        exec(change_import(read_blocks("002")[number]), {})


def test_paddlenlps_file(tmp_path: Path) -> None:
    text = read_blocks("002")[1]
    (tmp_path / "chat_template.json").write_text(text, encoding="utf-8")
    chat = paddlenlp.AutoTokenizer.from_pretrained("THUDM/chatglm-6b-v1.1", tokenizer="turnwise")
    for place in (tmp_path, tmp_path / "chat_template.json"):
        chat.init_chat_template(place)
        written = chat.apply_chat_template([["a", "b"], ["c"]], tokenize=False)
        fields = json.loads(text)
        rounds = "[Round 0]\nQuestion: a\nAnswer: b\n[Round 1]\nQuestion: c\nAnswer:"
        assert written == fields["system"] + rounds


# --- 003: InternLM2


@pytest.mark.parametrize("number", range(4))
def test_internlm2s_transcripts(number: int) -> None:
    """Every turn is read; tests/dialects/test_internlm2.py writes each block again, byte for byte."""
    text = internlm2_blocks()[number]
    messages = parse_transcript(text).messages()
    assert len(messages) == text.count("[UNUSED_TOKEN_146]")
    assert {message["role"] for message in messages} <= {*ROLES, "environment"}


# --- 004: FastChat


class Model:
    def generate(self, prompt: str) -> str:
        return f"reply to {len(prompt)} characters"


@pytest.mark.parametrize("number", sorted(set(range(BLOCKS["004"])) - NOT_RUN))
def test_fastchats_blocks(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python is run with the names of `turnwise.compat.fastchat`; what is printed as a result is compared."""
    code = read_blocks("004")[number]
    if number in RESULTS:
        assert RESULTS[number]().rstrip() == code.rstrip()
        return
    monkeypatch.setattr(builtins, "input", lambda _: "Hello!")
    before = dict(fastchat.conv_templates)
    holder = type("Holder", (), {"conv": fastchat.get_conv_template("vicuna_v1.1")})()
    names: dict[str, Any] = {
        **{name: getattr(fastchat, name) for name in fastchat.__all__},
        **{"self": holder, "user_input": "Hello!", "model": Model()},
        "conv": fastchat.get_conv_template("vicuna_v1.1"),
    }
    try:
        exec(ENVIRONMENT.get(number, "") + change_import(code), names)
        assert CHECKS.get(number, lambda names: True)(names) is not False
    finally:
        fastchat.conv_templates.clear()
        fastchat.conv_templates.update(before)


ENVIRONMENT = {
    0: "import dataclasses\nfrom typing import *\n",
    1: "from enum import IntEnum, auto\n",
}


def run_block(number: int) -> dict[str, Any]:
    names = {name: getattr(fastchat, name) for name in fastchat.__all__}
    exec(read_blocks("004")[number], names)
    return names


def fill(conversation: Any, system: str | None, *texts: str | None) -> str:
    if system is not None:
        conversation.set_system_message(system)
    for index, text in enumerate(texts):
        conversation.append_message(conversation.roles[index % 2], text)
    return str(conversation.get_prompt())


LLAMA_SYSTEM = "You are a helpful, respectful and honest assistant."
WEATHER = ("Hello, how are you?", "I'm doing well, thank you!", "What's the weather?", None)
SHORT = ("Hello!", "Hi there!", "How are you?", None)


def write_vicuna_v0() -> str:
    """The page writes an empty line after the system text, and one between turns would need it twice."""
    system = "A chat between a curious user and an artificial intelligence assistant.\n"
    conversation = fastchat.Conversation("v0", system_message=system)
    return fill(conversation, None, *WEATHER)


def write_llama_2(*texts: str | None) -> str:
    """FastChat leaves `<s>` to the tokenizer; the page prints it, as turnwise writes it."""
    text = fill(fastchat.get_conv_template("llama-2"), LLAMA_SYSTEM, *texts)
    return text if text.startswith("<s>") else f"<s>{text}"


RESULTS: dict[int, Any] = {
    2: write_vicuna_v0,
    3: lambda: write_llama_2(*WEATHER),
    4: lambda: fill(fastchat.get_conv_template("chatml"), "You are a helpful assistant.", *WEATHER),
    9: lambda: run_block(8)["prompt"],
    17: lambda: fill(run_block(16)["conv_vicuna_v1_1"], None, *SHORT),
    19: lambda: write_llama_2(*SHORT),
    21: lambda: fill(
        fastchat.get_conv_template("chatglm2"),
        None,
        "你好",
        "你好！有什么我可以帮助你的吗？",
        "今天天气怎么样？",
        None,
    ),  # fmt: skip
    # The printed fields (22) would write no `<|im_start|>`, in FastChat neither: the template of that name does.
    23: lambda: fill(fastchat.get_conv_template("chatml"), "You are a helpful assistant.", *SHORT),
}


def check_fields(names: dict[str, Any]) -> None:
    """The fields of the printed dataclass, their order and their defaults are those of ours."""
    printed = names["Conversation"].__dataclass_fields__
    ours = fastchat.Conversation.__dataclass_fields__
    assert list(printed) == list(ours)
    for name, field in printed.items():
        if name != "messages":
            assert field.default == ours[name].default, name


def check_styles(names: dict[str, Any]) -> None:
    assert {style.name for style in names["SeparatorStyle"]} <= {
        style.name for style in fastchat.SeparatorStyle
    }


CHECKS: dict[int, Any] = {
    0: check_fields,
    1: check_styles,
    11: lambda names: names["conv"].get_prompt().endswith("Hi there! How can I help you?</s>"),
    24: lambda names: names["prompt"].index("USER: $$<image>$$$$<image>$$Describe this image."),
    25: lambda names: names["IMAGE_PLACEHOLDER_STR"] == fastchat.IMAGE_PLACEHOLDER_STR,
    30: lambda names: names["conv"].name == "my-custom-template",
    32: lambda names: names["conv"].name == "vicuna_v1.1",
}

"""What guides to chat templates explain, on their own examples, where no dialect's test shows it.

One guide explains templates with an example of its own, `<message>`, and prints Qwen2.5's template. The example is in
`guide_template.py`; the printed template is read from the page, which is part of the corpus.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import corpus
import oracle
import turnwise
from cli_runner import good
from corpus import needs_corpus
from guide_template import ASKED, MARKED
from turnwise.analysis.conversations import Probe
from turnwise.analysis.counterexample import find_counterexample
from turnwise.compat import fastchat, paddlenlp, xtuner

BOUNDED = """\
{% for message in messages %}
<message>
{{ message.content }}
</message>
{% endfor %}"""
CHAT = [
    {"role": "user", "content": "这里放用户提问"},
    {"role": "assistant", "content": "这里放模型输出"},
]
QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
CALLING = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>{}\n</tools>\n\n"
    "For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML "
    'tags:\n<tool_call>\n{{"name": <function-name>, "arguments": <args-json-object>}}\n</tool_call>'
)
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {}}}
    for name in ("weather", "time")
]
SAME = {  # XTuner's name and FastChat's for one format
    "baichuan_chat": "baichuan-chat",
    "baichuan2_chat": "baichuan2-chat",
    "chatglm2": "chatglm2",
    "chatglm3": "chatglm3",
    "deepseek_coder": "deepseek-coder",
    "gemma": "gemma",
    "internlm_chat": "internlm-chat",
    "llama2_chat": "llama-2",
    "llama3_chat": "llama-3",
    "mistral": "mistral",
    "qwen_chat": "qwen-7b-chat",
    "vicuna": "vicuna_v1.1",
    "zephyr": "zephyr",
}


def turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


@cache
def read_printed_template() -> str:
    """Qwen2.5's template, as the second seed prints it."""
    folder = corpus.folder()
    assert folder is not None
    (file,) = (folder.parent / "seeds").glob("001_*.txt")
    (found,) = re.findall(
        r"^```\n(\{%.*?)\n```$", file.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return str(found)


@pytest.fixture(params=["printed", "ours"])
def qwen(request: pytest.FixtureRequest) -> turnwise.Template:
    """The template of the document and our entry, which say the same."""
    if request.param == "ours":
        return turnwise.load("qwen2.5")
    if corpus.folder() is None:
        pytest.skip(corpus.ABSENT)
    return turnwise.compile(read_printed_template())


# The example


def test_a_template_belongs_to_a_tokenizer(tmp_path: Path) -> None:
    """It lies among the tokenizer's files, and has the tokenizer's tokens."""
    config = {"chat_template": "{{ bos_token }}" + BOUNDED, "bos_token": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    text = turnwise.load(tmp_path).render(CHAT).text
    assert text == "<s>" + turnwise.compile(BOUNDED).render(CHAT).text
    bound = paddlenlp.Chat(BOUNDED, GuideLetters())
    assert (
        "".join(map(chr, bound.apply_chat_template("hi")["input_ids"]))
        == "<message>\nhi\n</message>\n"
    )


def test_messages_have_boundaries() -> None:
    """A template of five lines."""
    text = "<message>\n这里放用户提问\n</message>\n<message>\n这里放模型输出\n</message>\n"
    assert len(BOUNDED.splitlines()) == 5
    assert turnwise.compile(BOUNDED).render(CHAT).text == text == oracle.render(BOUNDED, CHAT)


def test_messages_have_a_source() -> None:
    text = "<message>user\n这里放用户提问\n</message>\n<message>assistant\n这里放模型输出\n</message>\n"
    assert turnwise.compile(MARKED).render(CHAT).text == text == oracle.render(MARKED, CHAT)


def test_the_generation_prompt_is_a_switch() -> None:
    """On, it adds the opening; off, it adds nothing; the answer goes on from there."""
    template = turnwise.compile(MARKED)
    off, on = template.render(ASKED), template.render(ASKED, add_generation_prompt=True)
    assert off.text == "<message>user\n为我介绍一下大语言模型\n</message>\n"
    assert on.text == off.text + "<message>assistant\n"
    assert (
        template.render(ASKED).text
        == template.render(ASKED, add_generation_prompt=False).text
        == off.text
    )
    answer = {"role": "assistant", "content": "好的，我将会为你介绍...\n...\n..."}
    assert template.render([*ASKED, answer]).text == on.text + answer["content"] + "\n</message>\n"


def test_a_stop_is_what_ends_an_answer() -> None:
    """Derived from the template, without being named."""
    assert turnwise.compile(MARKED).stops() == ("</message>",)
    assert turnwise.compile(BOUNDED).stops() == ("</message>",)


class GuideLetters:
    """A tokenizer of one id per character, which says with what it was called."""

    eos_token = "</s>"

    def __call__(self, text: str, **arguments: Any) -> Any:
        return {"input_ids": [ord(letter) for letter in text], "arguments": arguments}


def test_the_tokenizer_s_eos_is_a_stop() -> None:
    """Without configuration, and only with a tokenizer."""
    template = turnwise.load("xtuner:internlm_chat")
    assert template.stops() == ("<eoa>",)
    assert template.stops(GuideLetters()) == ("<eoa>", "</s>")
    assert turnwise.compile(MARKED).stops(GuideLetters()) == ("</message>", "</s>")


# Qwen2.5


@needs_corpus
def test_qwen_as_printed() -> None:
    """What transformers says of the printed template, on every conversation of the corpus."""
    template, golden = turnwise.compile(read_printed_template()), corpus.rows()["npm-qwen2_5"]
    compared = 0
    for row in golden:
        chat = corpus.chats()[row.chat]
        for opening, expected in row.each():
            arguments = {**chat.arguments, "add_generation_prompt": opening}
            try:
                text = template.render(
                    chat.messages, now=corpus.NOW, normalise=False, **arguments
                ).text
            except turnwise.TurnwiseError:
                text = None
            assert text == expected.text, (row.chat, opening)
            compared += 1
    assert compared == 158
    assert oracle.render(read_printed_template(), ASKED) == template.render(ASKED).text


def test_qwen_has_a_default_system_prompt(qwen: turnwise.Template) -> None:
    """No newline before the end of a turn, which the seed's figure has."""
    text = turn("system", QWEN) + turn("user", ASKED[0]["content"])
    assert qwen.render(ASKED).text == text
    assert qwen.render(ASKED, add_generation_prompt=True).text == text + "<|im_start|>assistant\n"


def test_qwen_takes_another_system_prompt(qwen: turnwise.Template) -> None:
    """With tools and without."""
    chat = [{"role": "system", "content": "Be brief."}, *ASKED]
    asked = turn("user", ASKED[0]["content"])
    assert qwen.render(chat).text == turn("system", "Be brief.") + asked
    with_tools = qwen.render(chat, tools=TOOLS).text
    assert with_tools.startswith(
        "<|im_start|>system\nBe brief.\n\n# Tools\n"
    ) and with_tools.endswith(asked)
    assert QWEN not in with_tools and with_tools.count("Be brief.") == 1


def test_qwen_tells_tools(qwen: turnwise.Template) -> None:
    """One line of JSON for each."""
    listed = "".join(
        f'\n{{"type": "function", "function": {{"name": "{name}", "parameters": {{}}}}}}'
        for name in ("weather", "time")
    )
    text = turn("system", QWEN + CALLING.format(listed)) + turn("user", ASKED[0]["content"])
    assert qwen.render(ASKED, tools=TOOLS).text == text


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("content", ["I look.", "", None])
def test_qwen_writes_calls(qwen: turnwise.Template, wrapped: bool, content: str | None) -> None:
    """Several, with text or without, in the wrapping of OpenAI or bare."""
    calls = [call("weather", city="Oslo"), call("time")]
    given = calls if wrapped else [one["function"] for one in calls]
    opening = "<|im_start|>assistant" + (f"\n{content}" if content else "")
    opening += '\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    opening += '\n<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call><|im_end|>\n'
    text = qwen.render(
        [*ASKED, {"role": "assistant", "content": content, "tool_calls": given}]
    ).text
    assert text == qwen.render(ASKED).text + opening


def test_qwen_joins_results(qwen: turnwise.Template) -> None:
    """Those in a row are one turn of the user."""
    calls = {"role": "assistant", "content": "", "tool_calls": [call("weather"), call("time")]}
    results = [{"role": "tool", "content": text} for text in ("rain", "noon")]
    text = "\n<tool_response>\nrain\n</tool_response>\n<tool_response>\nnoon\n</tool_response>"
    before = qwen.render([*ASKED, calls]).text
    assert (
        qwen.render([*ASKED, calls, *results]).text
        == before + f"<|im_start|>user{text}<|im_end|>\n"
    )
    apart = qwen.render([*ASKED, calls, results[0], calls, results[1]]).text
    assert apart.count("<|im_start|>user\n<tool_response>") == 2


def test_qwen_keeps_a_later_system_message_in_its_place(qwen: turnwise.Template) -> None:
    later = [{"role": "system", "content": "Now in verse."}, *ASKED]
    assert qwen.render([*ASKED, *later]).text == qwen.render(ASKED).text + turn(
        "system", "Now in verse."
    ) + turn("user", ASKED[0]["content"])


def test_rendered_text_is_shown_with_its_origins() -> None:
    """The text, and which message each part of it came from."""
    text = turn("system", QWEN) + turn("user", "hi")
    assert good("render", "qwen2.5", "--user", "hi") == text
    lines = good("render", "qwen2.5", "--user", "hi", "--pieces").splitlines()
    (line,) = (line for line in lines if "'hi'" in line)
    assert line.startswith("[0]") and "messages[0].content" in line


# One template for training and for inference


@needs_corpus
def test_templates_that_mean_the_same_have_no_difference() -> None:
    """The printed template and our entry, in other words."""
    found = turnwise.diff(turnwise.compile(read_printed_template()), turnwise.load("qwen2.5"))
    assert found.equal, str(found)
    assert found.tried > 200 and {"two calls and results", "a system in the middle"} <= set(
        found.covers
    )


def test_templates_that_differ_have_a_smallest_conversation() -> None:
    """Trained with newlines around the content, asked without them."""
    trained = turnwise.compile(MARKED)
    used = turnwise.compile(MARKED.replace("{{ message.content }}\n", "{{ message.content }}"))
    found = turnwise.diff(trained, used)
    assert found.witness is not None
    (message,) = found.witness.probe.messages
    assert len(message.get("content", "")) <= 1 and found.witness.probe.tools is None
    assert "they differ on:" in str(found) and "</message>" in str(found)


def test_xtuner_and_fastchat_disagree() -> None:
    """12 of 13 templates that have one name in both; what each is can be had, and the difference be seen."""
    roles = ("system", "user", "assistant", "user")
    chat = [
        {"role": role, "content": text}
        for role, text in zip(roles, ("Rules", "One", "Two", "Three"), strict=True)
    ]
    probe = Probe("a system text and two rounds", chat, add_generation_prompt=True)
    found = {}
    for ours, theirs in SAME.items():
        a, b = turnwise.load(f"xtuner:{ours}"), turnwise.load(f"fastchat:{theirs}")
        found[ours] = find_counterexample(a.renderer, b.renderer, probe)
        assert (found[ours] is None) or len(found[ours].probe.messages) <= 2
        assert not turnwise.diff(a, b) or ours == "qwen_chat"
    assert [name for name, shown in found.items() if shown is None] == ["qwen_chat"]
    texts = [
        turnwise.load(name).render(chat[1:2]).text for name in ("xtuner:zephyr", "fastchat:zephyr")
    ]
    assert ["</s>" in text for text in texts] == [False, True]
    assert "DeepSeekCompany" in str(turnwise.load("xtuner:deepseek_coder").render(chat))


# Questions of the other seeds


@pytest.mark.parametrize("kind", ["np", "pt", None])
def test_tensors_are_the_tokenizer_s(kind: str | None) -> None:
    """The kind is passed on, and nothing is added to the text."""
    chat = paddlenlp.Chat({"query": "Q: {{query}}"}, GuideLetters())
    found = chat.apply_chat_template("hi", return_tensors=kind)
    assert found["arguments"].get("return_tensors") == kind
    assert found["arguments"]["add_special_tokens"] is False


def test_load_finds_the_file_of_paddlenlp(tmp_path: Path) -> None:
    paddlenlp.ChatTemplate.from_dict({"query": "Q: {{query}} A:"}).save(tmp_path)
    for place in (tmp_path, tmp_path / "chat_template.json"):
        assert (
            turnwise.load(place).render(ASKED, add_generation_prompt=True).text
            == f"Q: {ASKED[0]['content']} A:"
        )


def test_the_example_model_of_paddlenlp_is_known() -> None:
    found = turnwise.match("THUDM/chatglm-6b-v1.1")
    assert (found.entry, found.kind) == ("chatglm", "chat") and found.reason
    assert turnwise.match("THUDM/chatglm-6b-v1.1", "fastchat").entry == "chatglm"
    assert turnwise.load("THUDM/chatglm-6b-v1.1").render(ASKED).text.startswith("[Round 0]\n问：")


def test_the_mark_of_an_image() -> None:
    """A constant, and one template may have another."""
    assert fastchat.IMAGE_PLACEHOLDER_STR == "$$<image>$$"
    conversation = fastchat.get_conv_template("vicuna_v1.1")
    conversation.append_message("USER", ("Look.", ["u"]))
    assert "$$<image>$$Look." in conversation.get_prompt()
    conversation.image_placeholder = "<image>"
    assert "USER: <image>Look." in conversation.get_prompt()


def test_the_command_line_chooses_by_the_path_of_a_model() -> None:
    assert "vicuna_v1.1" in good("match", "lmsys/vicuna-7b-v1.5", "--source", "fastchat")
    assert good("match", "lmsys/vicuna-7b-v1.5").splitlines()[0].split() == ["entry", "vicuna"]


def test_the_command_line_prints_a_prompt() -> None:
    """Exactly, or with its white space made visible."""
    conversation = fastchat.get_conv_template("vicuna_v1.1")
    conversation.append_message(conversation.roles[0], "Hello!")
    conversation.append_message(conversation.roles[1], None)
    assert good("render", "vicuna_v1.1", "--user", "Hello!", "-g") == conversation.get_prompt()
    shown = good("render", "vicuna_v1.1", "--user", "Hello!", "-g", "--whitespace")
    assert "Hello!" in shown and "USER: Hello!" not in shown and "·" in shown


@pytest.mark.parametrize("exact", [False, True])
def test_a_system_text_by_its_name(exact: bool) -> None:
    """SYSTEM_TEMPLATE's names are for the system text of a template, where a conversation brings none."""
    named = xtuner.load("internlm_chat", system="coder", exact=exact)
    asked, own = [{"role": "user", "content": "q"}], [{"role": "system", "content": "mine"}]
    text = named.render(asked, add_generation_prompt=True).text
    assert text == f"<|System|>:{xtuner.SYSTEM_TEMPLATE.coder}\n<|User|>:q<eoh>\n<|Bot|>:"
    assert xtuner.load("internlm_chat", xtuner.SYSTEM_TEMPLATE.coder, exact).text == named.text
    assert "mine" in named.render(own + asked, add_generation_prompt=True).text
    assert "programer" not in named.render(own + asked, add_generation_prompt=True).text
    assert (
        xtuner.load(xtuner.PROMPT_TEMPLATE.internlm_chat).source
        == xtuner.PROMPT_TEMPLATE.internlm_chat
    )

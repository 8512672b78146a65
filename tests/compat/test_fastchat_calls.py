"""FastChat's calls by their own names: the seed's examples, holding a conversation, templates and models by name."""

from __future__ import annotations

import copy
import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fastchat_goldens import (
    CHAT,
    EXAMPLE_OF_STYLE,
    FIELDS,
    NAMES,
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
from turnwise.errors import MessageError, SourceError
from turnwise.registry import fastchat as registry

# -- the seed's examples ---------------------------------------------------------------------------------------------


def test_fields_have_their_defaults() -> None:
    expected = {
        "name": "x", "system_template": "{system_message}", "system_message": "", "system_message_vision": "",
        "roles": ("USER", "ASSISTANT"), "messages": [], "offset": 0, "sep_style": SeparatorStyle.ADD_COLON_SINGLE,
        "sep": "\n", "sep2": None, "stop_str": None, "stop_token_ids": None, "max_image_size_mb": None,
    }  # fmt: skip
    assert (
        dataclasses.asdict(Conversation("x"))
        == expected
        == dataclasses.asdict(Conversation(name="x"))
    )
    assert (
        tuple(expected) == FIELDS == tuple(field.name for field in dataclasses.fields(Conversation))
    )
    form = dialect.parse_spec({"name": "x"})
    assert {**expected, "messages": ()} == dataclasses.asdict(form)


@pytest.mark.law
@pytest.mark.parametrize("name", NAMES)
def test_fields_survive(name: str) -> None:
    """A copy and a trip through JSON."""
    conversation = fill_conversation(get_conv_template(name), CHAT)
    assert conversation.copy() == conversation and conversation.copy() is not conversation
    again = Conversation(**json.loads(json.dumps(dataclasses.asdict(conversation))))
    assert again == conversation
    if conversation.sep_style is not None:
        fields = dataclasses.asdict(conversation)
        read = dialect.read(conversation)
        source = {
            **fields,
            "sep_style": conversation.sep_style.name,
        }  # of an object, the fields are kept
        assert read.facts["template"] == source
        assert dataclasses.replace(read, facts={**dialect.read(fields).facts}) == dialect.read(
            fields
        )
        facts = dict(dialect.read(registry.templates()[name]).facts)
        facts.pop("doubts")
        assert dialect.read(facts) == dialect.read(registry.templates()[name])


def test_add_colon_single() -> None:
    conversation = Conversation(
        name="vicuna_v1.1",
        system_message="A chat between a curious user and an AI assistant.",
        roles=("USER", "ASSISTANT"),
        messages=[
            ["USER", "Hello!"],
            ["ASSISTANT", "Hi there!"],
            ["USER", "How are you?"],
            ["ASSISTANT", None],
        ],
        sep_style=SeparatorStyle.ADD_COLON_SINGLE,
        sep="\n",
    )
    start = (
        "A chat between a curious user and an AI assistant.\nUSER: Hello!\nASSISTANT: Hi there!\n"
    )
    assert conversation.get_prompt() == start + "USER: How are you?\nASSISTANT:"


def test_vicuna() -> None:
    conversation = fill_conversation(get_conv_template("vicuna_v1.1"), CHAT)
    start = "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
    start += "detailed, and polite answers to the user's questions. "
    assert (
        conversation.get_prompt()
        == start + "USER: Hello! ASSISTANT: Hi there!</s>USER: How are you? ASSISTANT:"
    )


def test_llama_2() -> None:
    """The required text has the system message and the bos token, which FastChat is given by its caller."""
    system = "You are a helpful, respectful and honest assistant."
    text = f"[INST] <<SYS>>\n{system}\n<</SYS>>\n\nHello! [/INST] Hi there! </s><s>[INST] How are you? [/INST]"
    chat = [{"role": "system", "content": system}, *CHAT]
    assert fill_conversation(get_conv_template("llama-2"), chat).get_prompt() == text
    assert render_golden("llama-2", chat, bos_token="<s>") == "<s>" + text
    assert (
        render_golden("llama-2", CHAT)
        == "[INST] Hello! [/INST] Hi there! </s><s>[INST] How are you? [/INST]"
    )


def test_chatglm() -> None:
    """The required text is that of chatglm2; chatglm counts rounds from 0."""
    chat = [
        {"role": "user", "content": "你好"},
        {"role": "assistant", "content": "你好！有什么我可以帮助你的吗？"},
        {"role": "user", "content": "今天天气怎么样？"},
    ]
    text = "[Round {}]\n\n问：你好\n\n答：你好！有什么我可以帮助你的吗？\n\n[Round {}]\n\n问：今天天气怎么样？\n\n答："
    assert render_golden("chatglm2", chat) == text.format(1, 2)
    assert render_golden("chatglm", chat) == text.format(0, 1).replace("\n\n", "\n")


def test_chatml() -> None:
    """An entry of our own; the required definition is read, with doubts."""
    text = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n"
    text += "<|im_start|>assistant\nHi there!<|im_end|>\n<|im_start|>user\nHow are you?<|im_end|>\n"
    assert (
        fill_conversation(get_conv_template("chatml"), CHAT).get_prompt()
        == text + "<|im_start|>assistant\n"
    )
    assert get_conv_template("chatml").stop_token_ids == [151643, 151644, 151645]
    assert dialect.read(registry.templates()["chatml"]).facts["doubts"] == ()
    seed = custom(
        "CHATML",
        roles=["user", "assistant"],
        sep="<|im_end|>",
        system_message="You are a helpful assistant.",
    )
    reading = dialect.read(seed)
    assert "<|im_start|>" not in reading.jinja
    assert [doubt.split()[0] for doubt in reading.facts["doubts"]] == [
        "roles[0]",
        "roles[1]",
        "system_template",
    ]


@pytest.mark.parametrize(
    ("name", "style"),
    [
        ("vicuna_v1.1", "ADD_COLON_TWO"),
        ("llama-2", "LLAMA2"),
        ("llama-3", "LLAMA3"),
        ("chatglm", "CHATGLM"),
        ("chatglm3", "CHATGLM3"),
        ("chatml", "CHATML"),
        ("mistral", "LLAMA2"),
        ("zephyr", "CHATML"),
        ("gemma", "GEMMA"),
        ("deepseek-chat", "DEEPSEEK_CHAT"),
        ("qwen-7b-chat", "CHATML"),
        ("baichuan-chat", "NO_COLON_SINGLE"),
        ("yi-34b-chat", "CHATML"),
    ],
)
def test_names_of_the_appendix(name: str, style: str) -> None:
    assert get_conv_template(name).sep_style is SeparatorStyle[style]
    assert get_conv_template(name.upper()).sep_style is SeparatorStyle[style]


def test_styles_are_23() -> None:
    assert list(STYLES) == list(SeparatorStyle) and len(STYLES) == 23
    assert [SeparatorStyle.ADD_COLON_SINGLE, SeparatorStyle.DEFAULT] == [1, 23]
    assert set(EXAMPLE_OF_STYLE) == set(SeparatorStyle)


def test_images_of_the_seed() -> None:
    """Two addresses, two marks, both reach OpenAI's messages."""
    conversation = get_conv_template("vicuna_v1.1")
    urls = ["http://example.com/image1.jpg", "http://example.com/image2.jpg"]
    conversation.append_message(conversation.roles[0], ("Describe this image.", urls))
    conversation.append_message(conversation.roles[1], None)
    assert conversation.get_prompt().endswith(
        "USER: $$<image>$$$$<image>$$Describe this image. ASSISTANT:"
    )
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    question = {
        "role": "user",
        "content": [{"type": "text", "text": "Describe this image."}, *parts],
    }
    assert conversation.to_openai_api_messages()[1:] == [question]
    assert conversation.to_openai_vision_api_messages()[1:] == [question]
    assert conversation.get_images() == urls
    assert conversation.dict()["messages"][0] == ("USER", ("Describe this image.", urls))
    conversation.image_placeholder = "<image>"
    assert "USER: <image><image>Describe" in conversation.copy().get_prompt()


class Upload:
    """An image object as FastChat's own servers make them."""

    base64_str = "iVBORw=="
    filetype = "png"


def test_image_objects() -> None:
    """A question with two images and its answer, as OpenAI's client takes it, and for logs."""
    conversation = Conversation("x", system_message="S")
    conversation.append_message("USER", ("Look.", [Upload(), "data:image/webp;base64,AAEC"]))
    conversation.append_message("ASSISTANT", "Nice.")
    conversation.append_message("USER", "Thanks.")
    conversation.append_message("ASSISTANT", None)
    urls = ["data:image/png;base64,iVBORw==", "data:image/webp;base64,AAEC"]
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    assert conversation.to_openai_vision_api_messages() == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "Look."}, *images]},
        {"role": "assistant", "content": "Nice."},
        {"role": "user", "content": "Thanks."},
    ]
    assert conversation.dict()["messages"][0] == ("USER", ("Look.", urls))


# -- holding a conversation ------------------------------------------------------------------------------------------


def test_a_loop_of_ten_turns() -> None:
    conversation = get_conv_template("vicuna_v1.1")
    expected = conversation.system_message + " "
    for turn in range(10):
        conversation.append_message(conversation.roles[0], f"question {turn}")
        conversation.append_message(conversation.roles[1], None)
        expected += f"USER: question {turn} ASSISTANT:"
        assert conversation.get_prompt() == expected
        conversation.update_last_message(f"answer {turn}")
        expected += f" answer {turn}</s>"
    assert conversation.get_prompt() == expected


def test_a_fresh_conversation_takes_messages() -> None:
    first, second = Conversation(name="x"), Conversation(name="x", messages=())
    for conversation in (first, second):
        conversation.append_message("USER", "hi")
    assert first == second and Conversation(name="x").messages == []
    with pytest.raises(MessageError, match="no last message"):
        Conversation(name="x").update_last_message("x")


def test_copies_are_independent() -> None:
    first, second = get_conv_template("one_shot"), get_conv_template("one_shot")
    first.update_last_message("changed")
    first.append_message("Human", "more")
    assert (
        second == get_conv_template("one_shot")
        and len(compat.conv_templates["one_shot"].messages) == 2
    )
    twin = first.copy()
    twin.append_message("Human", "x")
    assert len(twin.messages) == len(first.messages) + 1
    first.strict_fastchat = True
    assert first.copy().strict_fastchat and not Conversation.strict_fastchat


def test_a_hundred_requests_at_once() -> None:

    def request(number: int) -> str:
        conversation = get_conv_template("vicuna_v1.1")
        return fill_conversation(
            conversation, [{"role": "user", "content": f"request {number}"}]
        ).get_prompt()

    with ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(request, range(100)))
    assert texts == [request(number) for number in range(100)]
    assert all(text.count("request") == 1 for text in texts)


def test_openai_messages() -> None:
    """By role; an open turn is left out. FastChat goes by number."""
    conversation = Conversation(
        "x", system_message="S", messages=[["ASSISTANT", "a"], ["USER", "b"], ["Tool", "c"]]
    )
    conversation.append_message("ASSISTANT", None)
    roles = [
        (message["role"], message["content"]) for message in conversation.to_openai_api_messages()
    ]
    assert roles == [("system", "S"), ("assistant", "a"), ("user", "b"), ("system", "c")]
    conversation.strict_fastchat = True
    roles = [
        (message["role"], message["content"]) for message in conversation.to_openai_api_messages()
    ]
    assert roles == [("system", "S"), ("user", "a"), ("assistant", "b"), ("user", "c")]
    conversation.messages = [["USER", ("t", ["u"])]]
    assert conversation.to_openai_api_messages()[1]["content"] == ("t", ["u"])


def test_dict_is_what_logs_keep() -> None:
    conversation = fill_conversation(get_conv_template("zephyr"), CHAT, prompt=False)
    assert conversation.dict() == {
        "template_name": "zephyr",
        "system_message": "",
        "roles": ("<|user|>", "<|assistant|>"),
        "messages": [
            ("<|user|>", "Hello!"),
            ("<|assistant|>", "Hi there!"),
            ("<|user|>", "How are you?"),
        ],
        "offset": 0,
    }
    assert conversation.extract_text_from_messages() == conversation.dict()["messages"]


def test_roles_of_any_text() -> None:
    """A third role, or one that is spelled like OpenAI's, is written as it is."""
    conversation = Conversation(
        "x", roles=("Human", "AI"), messages=[["user", "a"], ["system", "b"], ["AI", "c"]]
    )
    assert conversation.get_prompt() == "\nuser: a\nsystem: b\nAI: c\n"
    raw = Conversation(
        "r", roles=("", ""), sep_style=SeparatorStyle.NO_COLON_TWO, sep="1", sep2="2"
    )
    raw.messages = [["", "a"], ["", "b"], ["", "c"]]
    assert raw.get_prompt() == "a1b2c1"


# -- the registry and the models -------------------------------------------------------------------------------------


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "conv_templates", copy.copy(compat.conv_templates))


@pytest.mark.usefixtures("own_registry")
def test_a_custom_template() -> None:
    mine = Conversation(
        name="my-custom-template",
        system_message="You are a specialized assistant for...",
        roles=("Human", "AI"),
        sep_style=SeparatorStyle.ADD_COLON_SINGLE,
        sep="\n\n",
        stop_str="###",
    )
    compat.register_conv_template(mine)
    text = fill_conversation(get_conv_template("my-custom-template"), CHAT[:1]).get_prompt()
    assert text == "You are a specialized assistant for...\n\nHuman: Hello!\n\nAI:"
    assert dialect.read(get_conv_template("my-custom-template")).stops == ("###",)
    for kind in (AssertionError, SourceError):
        with pytest.raises(kind, match="has been registered"):
            compat.register_conv_template(mine)
    compat.register_conv_template(dataclasses.replace(mine, sep="\n"), override=True)
    assert get_conv_template("my-custom-template").sep == "\n"


def test_unknown_names() -> None:
    """Near ones are named."""
    for kind in (KeyError, SourceError):
        with pytest.raises(kind) as raised:
            get_conv_template("vicuna_v1.2")
    assert "Did you mean 'vicuna_v1.1'?" in str(raised.value)
    assert "vicuna_v1.2" not in registry.templates()
    with pytest.raises(SourceError):
        get_conv_template(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "template", "exactly"),
    [
        ("lmsys/vicuna-7b-v1.5", "vicuna_v1.1", "vicuna_v1.1"),
        ("vicuna-7b-v0", "one_shot", "one_shot"),
        ("lmsys/vicuna-7b-delta-v0/", "one_shot", "one_shot"),
        ("v0/vicuna-7b", "vicuna_v1.1", "vicuna_v1.1"),
        ("my-vicuna-v0.9-run", "vicuna_v1.1", "one_shot"),
        ("someone/prompt-writer", "one_shot", "zero_shot"),
        ("someone/eureka-7b", "one_shot", "api_based_default"),
        ("mosaicml/mpt-7b-chat", "mpt-7b-chat", "mpt-7b-chat"),
        ("Qwen/some/other", "qwen-7b-chat", "qwen-7b-chat"),
        ("BAAI/AquilaChat2-7B-16K", "aquila", "aquila"),
        ("jondurbin/airoboros-l2-13b-2.2.1", "airoboros_v2", "airoboros_v2"),
        ("bofenghuang/vigostral-7b-chat", "vigogne_chat_v3", "vigogne_chat_v3"),
        ("Claude-1", "one_shot", "one_shot"),
        ("", "one_shot", "one_shot"),
    ],
)
def test_model_paths(path: str, template: str, exactly: str) -> None:
    assert get_conversation_template(path).name == template
    assert get_conversation_template(path, strict_fastchat=True).name == exactly


def test_a_match_has_its_reason() -> None:
    assert registry.match_path("lmsys/vicuna-7b-v0").reason.startswith(
        "'vicuna-7b-v0' matches 'vicuna', and "
    )
    assert "no pattern matches" in registry.match_path("something").reason


def test_peft_adapters(tmp_path: Any) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "Qwen/Qwen-7B-Chat"}')
    assert get_conversation_template(str(folder)).name == "qwen-7b-chat"
    (folder / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(folder)})
    )
    with pytest.raises(SourceError, match="adapter of an adapter"):
        registry.match_path(str(folder))
    assert registry.match_path("me/llama-2-peft").template == "llama-2"
    with pytest.raises(SourceError, match=r"adapter_config\.json"):
        registry.match_path("me/llama-2-peft", exact=True)

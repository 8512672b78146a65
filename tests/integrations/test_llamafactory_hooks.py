"""LLaMA-Factory's own processors train the labels of turnwise: `make integrations-llamafactory`."""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import turnwise
from host_chats import BAD_ROWS, TEXTS, TOOL, make_tokenizer, rows
from turnwise.errors import TurnwiseError
from turnwise.integrations import llamafactory
from turnwise.integrations.tokenizer_template import template_of

CALL = json.dumps({"name": "tide", "arguments": {"harbour": "Delft", "day": 3}})


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def chats() -> list[tuple[list[dict[str, str]], str, str]]:
    """Messages as LLaMA-Factory's readers give them, the system message and the tools."""
    made = [([turn("user", text), turn("assistant", f"{text} Aye.")], "", "") for text in TEXTS]
    made += [(chat * 2, "Be brief.", "") for chat, _, _ in made[:5]]
    call = [turn("user", "tide?"), turn("function", CALL)]
    made.append((call, "", json.dumps([TOOL])))
    answered = [*call, turn("observation", "2 m <|im_end|>"), turn("assistant", "2 m.")]
    made.append((answered, "", json.dumps([TOOL])))
    return made


def to_openai(chat: list[dict[str, str]], system: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [turn("system", system)] if system else []
    for message in chat:
        if message["role"] == "function":
            call = {
                "id": "call00000",
                "type": "function",
                "function": json.loads(message["content"]),
            }
            made.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif message["role"] == "observation":
            made.append(
                {"role": "tool", "tool_call_id": "call00000", "content": message["content"]}
            )
        else:
            made.append(dict(message))
    return made


@pytest.fixture(scope="module")
def host() -> Any:
    pytest.importorskip("llamafactory")
    # It reads audio with this, whose builds must match that of torch.
    if "torchaudio" not in sys.modules:
        sys.modules["torchaudio"] = ModuleType("torchaudio")
        sys.modules["torchaudio"].__spec__ = ModuleSpec("torchaudio", None)
    return pytest.importorskip("llamafactory.data.template")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["qwen3", "glm-4.5", "llama-3.1"])
def test_labels_are_those_of_the_template(host: Any, kind: str) -> None:
    if "turnwise" not in host.TEMPLATES:
        llamafactory.register()
    supervised = pytest.importorskip("llamafactory.data.processor.supervised")
    tokenizer = make_tokenizer(kind)
    arguments = SimpleNamespace(
        template="turnwise", train_on_prompt=False, mask_history=False, cutoff_len=100_000
    )
    arguments.tool_format = arguments.default_system = None
    template = host.get_template_and_fix_tokenizer(tokenizer, arguments)
    processor = supervised.SupervisedDatasetProcessor(
        template=template, tokenizer=tokenizer, processor=None, data_args=arguments
    )
    given = chats()
    assert len(given) >= 20
    examples: dict[str, list[Any]] = {
        "_prompt": [chat[:-1] for chat, _, _ in given],
        "_response": [chat[-1:] for chat, _, _ in given],
        "_system": [system for _, system, _ in given],
        "_tools": [tools for _, _, tools in given],
        **{name: [None] * len(given) for name in ("_images", "_videos", "_audios")},
    }
    made = processor.preprocess_dataset(examples)
    own = template_of(tokenizer)
    for index, (chat, system, tools) in enumerate(given):
        expected = own.encode(
            to_openai(chat, system), tokenizer, tools=json.loads(tools) if tools else None
        )
        length = max(i for i, label in enumerate(expected.labels) if label != -100) + 1
        assert made["input_ids"][index] == expected.input_ids[:length]
        assert made["labels"][index] == expected.labels[:length]
    prompt, reply = template.encode_oneturn(tokenizer, given[0][0])
    expected = own.encode(given[0][0], tokenizer)
    assert prompt + reply == expected.input_ids[: len(prompt + reply)]
    assert template.encode_oneturn(tokenizer, [given[0][0][0], turn("assistant", "")])[1] == []
    assert template.get_stop_token_ids(tokenizer) == list(own.stops(tokenizer).ids)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_tokenized_folder_is_loaded_as_it_is(host: Any, tmp_path: Path) -> None:
    loader = pytest.importorskip("llamafactory.data.loader")
    tokenizer = make_tokenizer("glm-4.5")
    given = rows()
    problems = llamafactory.save_tokenized([*given, *BAD_ROWS], tokenizer, tmp_path / "data")
    assert {problem.row for problem in problems if problem.is_dropped} == set(
        range(len(given), len(given) + len(BAD_ROWS))
    )
    arguments = SimpleNamespace(tokenized_path=str(tmp_path / "data"), streaming=False)
    loaded = loader.get_dataset(None, None, arguments, None, "sft", tokenizer)["train_dataset"]
    template = template_of(tokenizer)
    expected = []
    for row in given:
        named = turnwise.shapes.conversation(row).arguments
        expected += template.examples(named.pop("messages"), tokenizer, **named)
    assert loaded["labels"][:] == [one.labels for one in expected]
    assert loaded["input_ids"][:] == [one.input_ids for one in expected]


def test_pairs_join_to_a_sample() -> None:
    tokenizer = make_tokenizer("qwen2.5")
    chat, system, tools = chats()[-1]
    pairs = llamafactory.encode_pairs(tokenizer, chat, system, tools)
    assert len(pairs) == 2
    assert tokenizer.decode(pairs[0][1]).endswith("</tool_call><|im_end|>")
    assert tokenizer.decode(pairs[1][1]) == "2 m.<|im_end|>"
    encoded = turnwise.load("qwen2.5").encode(to_openai(chat, system), tokenizer, tools=[TOOL])
    joined = [id for source, target in pairs for id in (*source, *target)]
    assert joined == encoded.input_ids[: len(joined)]
    with pytest.raises(TurnwiseError, match="unknown role 'tool'"):
        llamafactory.encode_pairs(tokenizer, [turn("tool", "x")], None, None)
    with pytest.raises(TurnwiseError, match="nothing is trained"):
        llamafactory.encode_pairs(tokenizer, [turn("user", "x")], None, None)

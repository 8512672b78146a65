"""Inspect's own `eval` with our providers: a tiny random model, and scripted answers of a completions server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import turnwise
from completions_server import CompletionsServer
from tiny_model import save_model, save_tokenizer, script_replies
from turnwise.tokens.tokenizers import tokenizer as adapt

pytest.importorskip("inspect_ai")

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    GenerateConfig,
    get_model,
)
from inspect_ai.scorer import match
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import Tool, tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUESTION = "How high is the tide at <|im_end|> Delft?"
CALL = {
    "qwen3": '<think>\nI must look.\n</think>\n\n<tool_call>\n{"name": "tide", "arguments": '
    '{"port": "Delft"}}\n</tool_call><|im_end|>',
    "glm-4.5": "<think>I must look.</think>\n<tool_call>tide\n<arg_key>port</arg_key>\n"
    "<arg_value>Delft</arg_value>\n</tool_call><|observation|>",
}
ANSWER = "<think>\nTwo it is.\n</think>\n\n2 m"


@tool
def tide() -> Tool:
    async def execute(port: str) -> str:
        """The height of the tide.

        Args:
            port: Where.
        """
        return f"2 m at {port}"

    return execute


def make_task(*before: Any) -> Task:
    return Task(
        dataset=[Sample(input=QUESTION, target="2 m")],
        solver=[system_message("Be brief."), *before, generate()],
        scorer=match(location="exact"),
    )


def run(model: Any, task: Task, folder: Path, **more: Any) -> Any:
    (log,) = eval(task, model=model, log_dir=str(folder / "logs"), display="none", **more)
    return log


def in_turn(*replies: str) -> Callable[[dict[str, Any]], str]:
    rest: Iterator[str] = iter(replies)
    return lambda body: next(rest)


@pytest.mark.parametrize("entry", CALL)
def test_tools_and_reasoning_of_a_server(entry: str, tmp_path: Path) -> None:
    save_tokenizer(tmp_path / "model", turnwise.load(entry).text)
    with CompletionsServer(in_turn(CALL[entry], ANSWER)) as server:
        model = get_model(
            "turnwise/odd-name", base_url=server.url, tokenizer=str(tmp_path / "model")
        )
        log = run(model, make_task(use_tools(tide())), tmp_path)
        bodies = server.bodies
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    (sample,) = log.samples
    roles = [message.role for message in sample.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    asked, result, final = sample.messages[2:]
    assert asked.tool_calls[0].function == "tide"
    assert asked.tool_calls[0].arguments == {"port": "Delft"}
    assert result.text == "2 m at Delft" and result.tool_call_id == asked.tool_calls[0].id
    assert [part.type for part in final.content] == ["reasoning", "text"]
    assert final.content[0].reasoning.strip() == "Two it is."
    assert sample.output.completion == "2 m"
    known = adapt("turnwise")
    end = known.added["<|im_end|>"].id
    for body in bodies:
        text = known.decode(body["prompt"])
        assert "Be brief." in text and "tide" in text
        assert body["max_tokens"] > 1 and body["skip_special_tokens"] is False
        if entry == "qwen3":
            assert "<|im_end|>" in body["stop"]
            # That of the question is text.
            assert body["prompt"].count(end) == text.count("<|im_end|>") - 1
    assert "2 m at Delft" in known.decode(bodies[1]["prompt"])
    report = sample.output.metadata["turnwise"]
    assert report["prompts"] == 2 and len(report["prompt_ids_sha256"]) == 64


def test_the_same_task_by_their_own_way(tmp_path: Path) -> None:
    """Inspect's `hf` has no parser for GLM's calls, takes reasoning for content, and renders calls in its own form."""
    folder = save_model(tmp_path / "tiny", turnwise.load("glm-4.5").text)
    logs = {}
    for name in ("hf", "turnwise-hf"):
        model = get_model(f"{name}/glm-4.5", model_path=str(folder), memoize=False)
        script_replies(model.api.model, CALL["glm-4.5"], ANSWER + "<|user|>")
        logs[name] = run(model, make_task(use_tools(tide())), tmp_path)
    theirs = logs["hf"]
    assert theirs.status == "error" and "no attribute 'arguments'" in theirs.error.message
    asked = theirs.samples[0].messages[2]
    assert asked.tool_calls[0].parse_error is not None  # it is no JSON
    assert "I must look." in asked.text
    ours = logs["turnwise-hf"]
    assert ours.status == "success", ours.error
    assert ours.results.scores[0].metrics["accuracy"].value == 1.0
    messages = ours.samples[0].messages
    assert messages[2].tool_calls[0].arguments == {"port": "Delft"} and messages[2].text == ""
    assert messages[3].text == "2 m at Delft"


def test_their_completions_take_one_message(tmp_path: Path) -> None:
    with CompletionsServer(in_turn(ANSWER)) as server:
        model = get_model("openai-api-completions/x/tiny", base_url=server.url, api_key="none")
        log = run(model, make_task(), tmp_path)
    assert log.status == "error" and "single user message" in log.error.message


def test_a_tiny_model_of_transformers(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "tiny", turnwise.load("qwen3").text)
    config = GenerateConfig(max_tokens=8, temperature=0.01, seed=1, stop_seqs=["zzz"])
    logs = [
        run(
            get_model(f"{name}/tiny", model_path=str(folder), config=config, memoize=False),
            make_task(use_tools(tide())),
            tmp_path,
        )
        for name in ("turnwise-hf", "hf")
    ]
    for log in logs:
        assert log.status == "success", log.error
    (sample,) = logs[0].samples
    assert sample.output.metadata["turnwise"]["prompts"] == 1
    expected = turnwise.load("qwen3").encode(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}],
        "turnwise",
        tools=[_tide_schema()],
        add_generation_prompt=True,
        add_stop=False,
    )
    assert sample.output.usage.input_tokens == len(expected)
    # Inspect sends the token that the question spells, which is fewer ids.
    (theirs,) = logs[1].samples
    assert theirs.output.usage.input_tokens != len(expected)


def _tide_schema() -> dict[str, Any]:
    port = {"type": "string", "description": "Where."}
    parameters = {
        "type": "object",
        "properties": {"port": port},
        "required": ["port"],
        "additionalProperties": False,
    }
    function = {
        "name": "tide",
        "description": "The height of the tide.",
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


def ask(model: Any, *messages: Any, **more: Any) -> Any:
    async def run_once() -> Any:
        return await model.generate(list(messages), **more)

    return asyncio.run(run_once())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_tokenizer(tmp_path / "model", turnwise.load("qwen3").text)
    return tmp_path / "model"


def test_a_prefilled_answer_is_continued(folder: Path) -> None:
    with CompletionsServer(in_turn(" 2 m<|im_end|>")) as server:
        model = get_model("turnwise/tiny", base_url=server.url, tokenizer=str(folder))
        output = ask(model, ChatMessageUser(content="?"), ChatMessageAssistant(content="It is"))
        prompt = adapt("turnwise").decode(server.bodies[0]["prompt"])
    assert prompt.endswith("It is") and output.completion == " 2 m"


def test_effort_and_reasoning_reach_the_template(folder: Path) -> None:
    with CompletionsServer(in_turn("2 m<|im_end|>", "2 m<|im_end|>")) as server:
        model = get_model("turnwise/tiny", base_url=server.url, tokenizer=str(folder))
        thought = ChatMessageAssistant(content=[ContentReasoning(reasoning="Hmm")])
        for effort in ("none", None):
            config = GenerateConfig(reasoning_effort=effort)
            ask(model, ChatMessageUser(content="?"), config=config)
        prompts = [adapt("turnwise").decode(body["prompt"]) for body in server.bodies]
        chat = [ChatMessageUser(content="?"), thought, ChatMessageUser(content="!")]
        api = model.api
        count = asyncio.run(api.count_tokens(chat))
    assert prompts[0].endswith("<think>\n\n</think>\n\n")
    assert not prompts[1].endswith("</think>\n\n")
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "reasoning_content": "Hmm"},
        {"role": "user", "content": "!"},
    ]
    expected = turnwise.load("qwen3").render(messages, add_generation_prompt=True).text
    assert count == len(adapt("turnwise").whole(expected))
    assert asyncio.run(api.count_tokens("It is 2 m.")) == len(adapt("turnwise").whole("It is 2 m."))


# -- bad input


def test_a_model_without_a_template(tmp_path: Path) -> None:
    save_tokenizer(tmp_path / "base", None)
    with pytest.raises(turnwise.SourceError):
        get_model("turnwise/tiny", base_url="http://127.0.0.1:1", tokenizer=str(tmp_path / "base"))
    model = get_model(
        "turnwise/tiny",
        base_url="http://127.0.0.1:1",
        tokenizer=str(tmp_path / "base"),
        template="chatml",
    )
    assert model.api.turnwise.template.name == "chatml"


def test_media_and_refusals_are_errors_of_the_sample(tmp_path: Path, folder: Path) -> None:
    text = "{% for m in messages %}{{ raise_exception('no one may speak') }}{% endfor %}"
    save_tokenizer(tmp_path / "odd", text)
    with CompletionsServer(in_turn()) as server:
        place = {"base_url": server.url}
        odd = get_model("turnwise/odd", tokenizer=str(tmp_path / "odd"), **place)
        with pytest.raises(turnwise.TemplateRaised, match="no one may speak"):
            ask(odd, ChatMessageSystem(content="Hi"), ChatMessageUser(content="Hi"))
        model = get_model("turnwise/tiny", tokenizer=str(folder), **place)
        picture = ContentImage(image="data:image/png;base64,iVBORw0KGgo=")
        with pytest.raises(turnwise.MessageError, match="'image'"):
            ask(model, ChatMessageUser(content=[picture]))


def test_a_server_that_dies_fails_the_run(tmp_path: Path, folder: Path) -> None:
    """Inspect repeats the request as often as it is told to, and reports the error in its own words."""
    with CompletionsServer(in_turn(ANSWER), dies_after=0) as server:
        config = GenerateConfig(max_retries=0)
        model = get_model(
            "turnwise/tiny", base_url=server.url, tokenizer=str(folder), config=config
        )
        log = run(model, make_task(), tmp_path)
    assert log.status == "error"
    assert "APIConnectionError" in log.error.message

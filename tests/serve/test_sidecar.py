"""The sidecar: ids are those of `encode`, whatever was asked before; masks, offsets and origins; several models."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

import corpus
import turnwise
from served import ENTRIES, QUIET, SIZES, TIDE, client_of, make_chat, make_service, make_text, post
from turnwise.analysis.rewrites import common_length
from turnwise.errors import WarningLog
from turnwise.evidence.conform import EngineComparison, EngineReply, Vllm, wire_probes
from turnwise.serve.memory import ConversationMemory, KnownIds, join_ids, make_digests
from turnwise.serve.models import ServedModels, load_model
from turnwise.serve.service import Service
from turnwise.serve.settings import ServeSettings

pytestmark = QUIET

RENDER = "/v1/chat/completions/render"
QUESTION = [{"role": "user", "content": "Is it low? <|im_end|>"}]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with client_of(make_service(ENTRIES)) as client:
        yield client


def check_request(client: TestClient, name: str, chat: list[Any], **more: Any) -> dict[str, Any]:
    """Render a chat, and compare its ids with those of `encode`."""
    answer = post(client, RENDER, {"model": name, "messages": chat, **more})
    options = more.pop("chat_template_kwargs", {})
    arguments = {"add_generation_prompt": True, "add_stop": False, **more, **options}
    expected = turnwise.load(name).encode(chat, "turnwise", **arguments)
    assert answer["token_ids"] == expected.input_ids
    assert answer["common_prefix_tokens"] <= len(expected)
    found: dict[str, Any] = answer
    return found


def check_requests(client: TestClient, count: int) -> None:
    """Send so many chats of each size to each model."""
    chance = random.Random(17)
    for name in ENTRIES:
        for size in SIZES:
            for _ in range(count):
                more: dict[str, Any] = {"tools": [TIDE]} if chance.random() < 0.3 else {}
                check_request(client, name, make_chat(chance, size), **more)


def test_ids_are_those_of_encode(client: TestClient) -> None:
    check_requests(client, 2)


@pytest.mark.slow
def test_ids_are_those_of_encode_in_680_requests(client: TestClient) -> None:
    check_requests(client, 43)  # 688


@pytest.mark.parametrize("name", ENTRIES)
def test_a_growing_conversation_has_the_ids_of_encode(client: TestClient, name: str) -> None:
    chance = random.Random(name)
    chat = make_chat(chance, 1)
    before: list[int] = []
    for _ in range(6):
        answer = check_request(client, name, chat)
        common = answer["common_prefix_tokens"]
        assert answer["token_ids"][:common] == before[:common]
        assert answer["token_ids"][common : common + 1] != before[common : common + 1]
        before = answer["token_ids"]
        chat = [
            *chat,
            {"role": "assistant", "content": make_text(chance)},
            {"role": "user", "content": make_text(chance)},
        ]
    assert common > len(before) // 2, "the last turn is a small part"


def test_interleaved_conversations_see_nothing_of_each_other() -> None:
    with client_of(make_service(threads=4)) as client:
        run_interleaved(client, 60)


@pytest.mark.slow
def test_a_thousand_interleaved_conversations() -> None:
    with client_of(make_service(threads=4, memory_bytes=2**20)) as client:
        run_interleaved(client, 1000)


def run_interleaved(client: TestClient, count: int) -> None:
    """Conversations that begin alike and differ in one secret each, turn by turn, from eight threads."""
    template = turnwise.load("qwen3")

    def make(secret: str, turn: int) -> list[dict[str, Any]]:
        chat: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
        for number in range(turn):
            chat.append({"role": "user", "content": f"{number} {secret} {number}"})
            chat.append({"role": "assistant", "content": f"so {secret}"})
        return chat[:-1]

    def ask(job: tuple[int, int]) -> None:
        secret = f"secret{job[0]:05d}"
        chat = make(secret, job[1])
        answer = post(client, RENDER, {"messages": chat, "return_prompt_text": True})
        text = answer["prompt_text"]
        assert text.count("secret") == text.count(secret) == 2 * job[1] - 1
        expected = template.encode(chat, "turnwise", add_generation_prompt=True)
        assert answer["token_ids"] == expected.input_ids

    jobs = [(number, turn) for turn in (1, 2, 3) for number in range(count)]
    random.Random(3).shuffle(jobs)
    with ThreadPoolExecutor(8) as threads:
        assert len(list(threads.map(ask, jobs))) == 3 * count


def test_what_a_router_wants_to_know(client: TestClient) -> None:
    body = {
        "model": "qwen3",
        "messages": [*QUESTION, {"role": "assistant", "content": "Yes."}, *QUESTION],
        **dict.fromkeys(
            (
                "return_token_offsets",
                "return_assistant_tokens_mask",
                "return_origins",
                "return_prompt_text",
            ),
            True,
        ),
    }
    answer = post(client, RENDER, body)
    text, offsets = answer["prompt_text"], answer["token_offsets"]
    assert len(offsets) == len(answer["assistant_tokens_mask"]) == len(answer["token_ids"])
    trained = [
        text[start:end]
        for (start, end), bit in zip(offsets, answer["assistant_tokens_mask"], strict=True)
        if bit
    ]
    assert "".join(trained) == "Yes.<|im_end|>"
    runs = answer["origins"]
    assert [run["start"] for run in runs[1:]] == [run["end"] for run in runs[:-1]]
    assert runs[-1]["end"] == len(offsets)
    (content,) = [run for run in runs if run.get("field") == "messages[0].content"]
    start, end = offsets[content["start"]][0], offsets[content["end"] - 1][1]
    assert text[start:end] == QUESTION[0]["content"]


def test_control_tokens_cannot_be_forged(client: TestClient) -> None:
    answer = post(client, RENDER, {"model": "qwen3", "messages": QUESTION})
    (stop,) = turnwise.load("qwen3").stops("turnwise").ids[:1]
    assert answer["token_ids"].count(stop) == 1  # the template's


def test_the_request_that_an_engine_gets(client: TestClient) -> None:
    body = {
        "model": "qwen3",
        "messages": QUESTION,
        "tools": [TIDE],
        "tool_choice": {"type": "function", "function": {"name": "tide"}},
        **{"temperature": 0.5, "max_completion_tokens": 9, "stop": "END", "n": 2, "seed": 4},
        **{"stream": True, "stream_options": {"include_usage": True}, "priority": 3},
    }
    answer = post(client, RENDER, body)
    sampling = answer["sampling_params"]
    wanted = {"temperature": 0.5, "max_tokens": 9, "stop": ["END"], "n": 2, "seed": 4}
    assert {key: sampling[key] for key in wanted} == wanted
    assert sampling["stop_token_ids"] == list(turnwise.load("qwen3").stops("turnwise").ids)
    assert '"tide"' in sampling["structured_outputs"]["structural_tag"].replace("\\", "")
    assert answer["stream"] and answer["stream_options"] == {"include_usage": True}
    assert answer["priority"] == 3 and answer["request_id"].startswith("chatcmpl-")


def test_options_reach_the_template(client: TestClient) -> None:
    for thinking in (True, False):
        options = {"enable_thinking": thinking}
        check_request(client, "qwen3", QUESTION, chat_template_kwargs=options)


def test_plain_prompts(client: TestClient) -> None:
    prompts = ["Hi<|im_end|>", "Low"]
    first, second = post(client, "/v1/completions/render", {"model": "qwen3", "prompt": prompts})
    known = turnwise.tokens.tokenizers.tokenizer("turnwise")
    assert first["token_ids"] == known.whole(prompts[0])
    assert second["token_ids"] == known.whole(prompts[1])
    asked = {"prompt": "Low 海 tide", "return_token_offsets": True}
    (one,) = post(client, "/v1/completions/render", asked)
    assert "".join(asked["prompt"][a:b] for a, b in one["token_offsets"]).startswith("Low ")
    assert len(one["token_offsets"]) == len(one["token_ids"])
    (ids,) = post(client, "/v1/completions/render", {"prompt": [5, 6]})
    assert ids["token_ids"] == [5, 6]
    for prompt, param in (([5, 2**31], "prompt"), ([[5], [10**18]], "prompt[1]")):
        refused = post(client, "/v1/completions/render", {"prompt": prompt}, 422)
        assert refused["error"]["param"] == param


def test_tokenize_detokenize_apply_template(client: TestClient) -> None:
    chat = {"model": "qwen3", "messages": QUESTION}
    rendering = turnwise.load("qwen3").render(QUESTION, add_generation_prompt=True)
    assert post(client, "/apply-template", chat)["prompt"] == rendering.text
    answer = post(client, "/tokenize", {**chat, "return_token_strs": True})
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert post(client, "/detokenize", {"tokens": answer["tokens"]})["prompt"] == rendering.text
    plain = post(client, "/tokenize", {"prompt": "Is it low?"})
    assert post(client, "/detokenize", {"tokens": plain["tokens"]})["prompt"] == "Is it low?"


def test_the_bodies_of_routers(client: TestClient) -> None:
    """A router sends what its client sent: every field of OpenAI's API, and messages as the SDK dumps them."""
    function = {"name": "tide", "arguments": '{"port": "A"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    nothing = dict.fromkeys(("refusal", "audio", "function_call", "annotations", "name"))
    chat = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "Tide?", "name": None},
        {"role": "assistant", "content": None, "tool_calls": [call], **nothing},
        {"role": "tool", "content": "low", "tool_call_id": "call_1"},
        {"role": "assistant", "content": "Low.", "tool_calls": None, **nothing},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
    ]
    more = {
        **{"temperature": 1, "top_p": 0.9, "n": 1, "seed": 1, "user": "u", "store": False},
        **{"logprobs": True, "top_logprobs": 2, "logit_bias": {"5": -1}, "metadata": {"a": "b"}},
        **{"stream": True, "stream_options": {"include_usage": True}, "service_tier": "auto"},
        **{"parallel_tool_calls": False, "response_format": {"type": "text"}, "stop": None},
        **{"reasoning_effort": "low", "max_completion_tokens": 100, "presence_penalty": 0.1},
        **{"tool_choice": "auto", "frequency_penalty": 0, "max_tokens": None, "cache_salt": "s"},
    }
    for name in ENTRIES:
        answer = post(client, RENDER, {"model": name, "messages": chat, "tools": [TIDE], **more})
        with WarningLog(is_quiet=True) as log:
            expected = turnwise.load(name).encode(
                chat, "turnwise", tools=[TIDE], add_generation_prompt=True, reasoning="low"
            )
        assert answer["token_ids"] == expected.input_ids
        assert set(answer.get("warnings", ())) == set(log.texts)
        assert answer["sampling_params"]["logprobs"] == 2


def test_changes_and_losses_are_reported(client: TestClient) -> None:
    call = {
        "id": "1",
        "type": "function",
        "function": {"name": "tide", "arguments": '{"port": "A"}'},
    }
    chat = [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}, *QUESTION]
    answer = post(client, RENDER, {"model": "llama-3.1", "messages": chat})
    assert any("arguments" in change for change in answer.get("changes", ()))
    answer = post(client, RENDER, {"model": "qwen3", "messages": QUESTION, "tempreature": 1})
    assert answer["warnings"] == [
        "the field 'tempreature' is not read; did you mean 'temperature'?"
    ]


@corpus.needs_corpus
def test_the_special_tokens_of_a_tokenizer_are_added_to_plain_prompts() -> None:
    folder = str(corpus.tokenizer_folder("mistral_v0_1"))
    model = load_model("mistral-v3", folder, max_length=100)
    with client_of(Service(ServedModels([model]), ServeSettings(allowed_hosts=("*",)))) as client:
        body = {"prompt": "Low tide", "return_token_offsets": True, "max_tokens": 500}
        (one,) = post(client, "/v1/completions/render", body)
        bos = model.tokenizer.id("<s>")
        assert one["token_ids"] == [bos, *model.tokenizer.whole("Low tide")]
        assert one["token_offsets"][:2] == [[0, 0], [0, 3]]  # the first has no text
        assert one["sampling_params"]["max_tokens"] == 100 - len(one["token_ids"])
        (bare,) = post(client, "/v1/completions/render", {**body, "add_special_tokens": False})
        assert bare["token_ids"] == one["token_ids"][1:]
        long = {"messages": [{"role": "user", "content": "low " * 200}]}
        assert "no room" in post(client, RENDER, long, 422)["error"]["message"]


# -- the memory itself


def remember(
    memory: ConversationMemory, key: str, chat: list[dict[str, str]], ids: Sequence[int]
) -> KnownIds:
    """Encode a conversation as these ids."""
    made = SimpleNamespace(input_ids=list(ids))
    known = memory.encode(key, chat, lambda _: made)[1]  # type: ignore[arg-type, return-value]
    memory.keep(known)
    return known


def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    memory = ConversationMemory(20_000)
    for number in range(200):
        chat = [{"role": "user", "content": f"{number}"}]
        remember(memory, "m", chat, [*range(50), number])
        assert memory.size <= 20_000
    assert 5 < len(memory) < 100
    assert remember(memory, "m", [{"role": "user", "content": "199"}], range(50)).common == 50
    assert remember(memory, "m", [{"role": "user", "content": "0"}], range(50)).common == 0
    assert memory.size == sum(one.size for one in memory._order.values())


def test_memory_knows_any_beginning() -> None:
    memory = ConversationMemory(10**6)
    one, two, three, four = ({"role": "user", "content": text} for text in "abcd")
    remember(memory, "m", [one, two, three], [1, 2, 3, 4])
    other = remember(memory, "m", [one, four], [1, 2, 9])
    assert other[:2] == (2, "1,2,9")
    longer = remember(memory, "m", [one, two, three, four], [1, 2, 3, 4, 5])
    assert longer[:2] == (4, "1,2,3,4,5")
    assert remember(memory, "other model", [one, two], [1, 2]).common == 0


def test_only_prompts_for_an_engine_are_remembered(client: TestClient) -> None:
    body = {"model": "qwen3", "messages": [{"role": "user", "content": "seen by nobody"}]}
    tokens = post(client, "/tokenize", body)["tokens"]
    post(client, RENDER, {**body, "top_p": 2}, 422)
    post(client, RENDER, {**body, "return_token_offsets": 1}, 422)
    assert post(client, RENDER, body)["common_prefix_tokens"] == 0
    assert post(client, "/tokenize", body)["tokens"] == tokens
    assert post(client, RENDER, body)["common_prefix_tokens"] == len(tokens)


def test_memory_shares_nothing_between_salts(client: TestClient) -> None:
    body = {"model": "qwen3", "messages": [{"role": "user", "content": "salted"}]}
    post(client, RENDER, {**body, "cache_salt": "a"})
    assert post(client, RENDER, {**body, "cache_salt": "b"})["common_prefix_tokens"] == 0
    assert post(client, RENDER, {**body, "cache_salt": "a"})["common_prefix_tokens"] > 0


@pytest.mark.parametrize("seed", range(30))
def test_the_text_of_ids_is_that_of_json(seed: int) -> None:
    chance = random.Random(seed)
    memory = ConversationMemory(10**6)
    ids: list[int] = []
    for number in range(8):
        del ids[chance.randint(0, len(ids)) :]
        ids += [chance.choice([0, 7, 42, 151643]) for _ in range(chance.randint(0, 9))]
        found = remember(memory, "m", [{"number": 0}, {"number": number}], ids)
        assert found.text == join_ids(ids)
    digests = make_digests("m", [{"a": 1}, {"b": [1, "x"]}])
    assert digests[0] == make_digests("m", [{"a": 1}])[0] and len(set(digests)) == 2


def test_common_length_is_that_of_the_common_front() -> None:
    chance = random.Random(1)
    for _ in range(300):
        first = [chance.randint(0, 1) for _ in range(chance.randint(0, 12))]
        second = [chance.randint(0, 1) for _ in range(chance.randint(0, 12))]
        expected = next(
            (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
            min(len(first), len(second)),
        )
        assert common_length(array("I", first), array("I", second)) == expected


# -- conform


def test_conform_finds_only_differences_that_are_meant(client: TestClient) -> None:
    """A developer's message is written, spelled control tokens stay text, and a turn's tokens merge with no others."""

    def ask(method: str, path: str, body: Any) -> EngineReply:
        answer = client.request(method, path, json=body)
        return EngineReply(answer.status_code, answer.json())

    comparison = EngineComparison(Vllm(ask, "qwen3"), turnwise.load("qwen3"), None)
    found = {probe.covers: comparison.compare(probe) for probe in wire_probes(only_prompts=False)}
    assert {covers: kind for covers, kind in found.items() if kind} == {
        "a developer": "text",
        "system and developer": "text",
        **dict.fromkeys(
            [f"markup of {who}" for who in ("a user", "a system", "an assistant")], "ids"
        ),
        "newlines of an assistant": "ids",
        "a start without an end": "ids",
    }


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ('{"messages": [], "messages": [{"role": "user", "content": "a"}]}', "messages"),
        ('{"messages": [{"role": "user", "content": "a", "role": "system"}]}', "role"),
        (
            '{"messages": [{"role": "user", "content": "a"}], "tools": [{"a": {"b": 1, "b": 1}}]}',
            "b",
        ),
    ],
)
def test_a_key_twice_is_refused(body: str, key: str) -> None:
    with client_of(make_service()) as client:
        for path in (RENDER, "/tokenize", "/v1/chat/completions/derender"):
            headers = {"content-type": "application/json"}
            answer = client.post(path, content=body, headers=headers)
            assert answer.status_code == 422
            assert f"the key '{key}' is twice" in answer.json()["error"]["message"]


def test_effort_is_translated_to_the_variables_of_the_template(client: TestClient) -> None:
    chat = {"model": "qwen3", "messages": [{"role": "user", "content": "Hi"}]}
    off = post(client, RENDER, {**chat, "reasoning_effort": "none"})
    same = post(client, RENDER, {**chat, "chat_template_kwargs": {"enable_thinking": False}})
    assert off["token_ids"] == same["token_ids"] != post(client, RENDER, chat)["token_ids"]
    assert "warnings" not in off

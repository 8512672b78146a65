"""llama.cpp's own server, with a model of random weights: `make integrations-llamacpp`.

What such a model writes under a grammar is any reply that the grammar allows: calls that parse and fit the tools show
that llama.cpp reads our grammars, triggers and stops as we mean them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unicodedata import is_normalized
from urllib.request import Request, urlopen

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from host_chats import conversations
from served_replies import BROKEN_TOOLS, template
from tiny_gguf import write_model
from turnwise.integrations.llamacpp import completion_request
from turnwise.replies.parser.markers import split_tags
from turnwise.tokens.tokenizers import tokenizer
from turnwise.tokens.tokenizers.files import SHIPPED

xllamacpp = pytest.importorskip("xllamacpp")
gguf = pytest.importorskip("gguf")
jsonschema = pytest.importorskip("jsonschema")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

# Calls as JSON, in a list, and between tags; GLM stops with the next turn's marker.
KINDS = ("qwen3", "mistral-v3", "qwen3-coder", "glm-4.5")
SEEDS = range(6)  # of each kind and choice
TOKENS = 400
LIKELY = 12.0  # added to the logit of a token that is to come early
SCHEMAS: dict[str, dict[str, Any]] = {
    "tide": {
        "type": "object",
        "properties": {
            "harbour": {"enum": ["Oslo", 'Delft "x"']},
            "day": {"type": "integer", "minimum": 1, "maximum": 31},
            "share": {"type": "number", "minimum": 0, "maximum": 1},
            "kind": {"enum": ["low", "high"]},
            "marks": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        },
        "required": ["harbour", "day"],
        "additionalProperties": False,
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
QUESTION = [{"role": "user", "content": "High water? <|im_end|>"}]


class LlamaServer:
    """A running server, and the tokenizer of its model."""

    def __init__(self, address: str, tokenizer: str) -> None:
        self.address = address
        self.tokenizer = tokenizer

    def post(self, path: str, body: Any) -> Any:
        with urlopen(self._request(path, body), timeout=600) as answer:
            return json.load(answer)

    def stream(self, body: Any) -> Iterator[str]:
        with urlopen(self._request("/completion", {**body, "stream": True}), timeout=600) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])["content"]

    def _request(self, path: str, body: Any) -> Request:
        header = {"Content-Type": "application/json"}
        return Request(self.address + path, json.dumps(body).encode(), header)


def start(folder: Path, place: Path) -> Iterator[LlamaServer]:
    """Start a server with a model that has the vocabulary of a folder."""
    write_model(folder, place)
    settings = xllamacpp.CommonParams()
    settings.model.path = str(place)
    settings.port = 0
    settings.n_ctx = 4096
    settings.n_parallel = 1
    settings.warmup = False
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    running = xllamacpp.Server(settings)
    yield LlamaServer(running.listening_address, str(folder))
    del running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    yield from start(Path(SHIPPED), tmp_path_factory.mktemp("gguf") / "noise.gguf")


@pytest.fixture
def server_of_qwen(tmp_path: Path) -> Iterator[LlamaServer]:
    root = corpus.folder()
    assert root is not None
    yield from start(root / "tokenizers" / "qwen3", tmp_path / "qwen3.gguf")


def make_body(
    server: LlamaServer, found: turnwise.Template, choice: str, seed: int, **likely: float
) -> Any:
    """Return a request in which some tokens are likely, so that a reply of noise ends in time."""
    # One call in a reply: noise goes on with others for as long as it may.
    request = completion_request(found, QUESTION, server.tokenizer, TOOLS, choice, parallel=False)
    known = tokenizer(server.tokenizer).added
    bias = [[known[text].id, more] for text, more in likely.items() if text in known]
    return {**request, "n_predict": TOKENS, "seed": seed, "logit_bias": bias}


def likely_tokens(found: turnwise.Template) -> dict[str, float]:
    """Return the markers of calls, and of the end of reasoning, which noise would hardly ever write."""
    region, calls = found.grammar.reasoning, found.grammar.calls
    assert calls is not None
    markers = [calls.section.open, calls.each.open]
    markers += [region.close] if region is not None else []
    return dict.fromkeys((tag for marker in markers for tag in split_tags(marker.core)), LIKELY)


def read(found: turnwise.Template, reply: str) -> Any:
    prompt = found.render(QUESTION, tools=TOOLS, add_generation_prompt=True)
    return found.parse(reply, prompt=prompt, tools=TOOLS)


def check_calls(message: Any) -> int:
    """Return the number of calls of a message, after a look at each."""
    calls = [call["function"] for call in message.get("tool_calls", ())]
    for call in calls:
        jsonschema.validate(json.loads(call["arguments"]), SCHEMAS[call["name"]])
    return len(calls)


@needs_corpus
def test_ids_are_those_of_the_server(server_of_qwen: LlamaServer) -> None:
    server, found = server_of_qwen, template("qwen3")
    chats = conversations()
    same = 0
    for chat in chats:
        request = completion_request(found, chat["messages"], server.tokenizer, chat["tools"])
        rendering = found.render(chat["messages"], tools=chat["tools"], add_generation_prompt=True)
        text = {"content": rendering.text, "parse_special": True}
        theirs = server.post("/tokenize", text)["tokens"]
        # Ours are safe, and of normalised text, as the tokenizer says; llama.cpp does not normalise.
        spelled = json.dumps(chat["messages"], ensure_ascii=False)
        is_forged = any(mark in spelled for mark in ("<|im", "<|end", "<t", "</"))
        is_plain = not is_forged and is_normalized("NFC", spelled)
        assert (request["prompt"] == theirs) is is_plain, chat
        same += is_plain
    assert len(chats) >= 20 and same >= 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choice", ["required", "tide", "auto"])
def test_calls_fit_the_tools(choice: str, kind: str, server: LlamaServer) -> None:
    found = template(kind)
    for seed in SEEDS:
        body = make_body(server, found, choice, seed, **likely_tokens(found))
        answer = server.post("/completion", body)
        assert answer["stop_type"] != "limit", answer["content"]
        message = read(found, answer["content"])
        assert check_calls(message) or choice == "auto", answer["content"]
        names = {call["function"]["name"] for call in message.get("tool_calls", ())}
        assert choice != "tide" or names == {"tide"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_required_call_cannot_be_left_out(kind: str, server: LlamaServer) -> None:
    found = template(kind)
    for seed in SEEDS:
        # The end is far more likely than all else, and the grammar does not let it come before a call.
        likely = {**likely_tokens(found), **dict.fromkeys(found.stops(), 2 * LIKELY)}
        answer = server.post("/completion", make_body(server, found, "required", seed, **likely))
        assert check_calls(read(found, answer["content"])), answer["content"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_the_whole(kind: str, server: LlamaServer) -> None:
    found = template(kind)
    prompt = found.render(QUESTION, tools=TOOLS, add_generation_prompt=True)
    for seed in SEEDS:
        body = make_body(server, found, "required", seed, **likely_tokens(found))
        parser = found.parser(prompt, tools=TOOLS)
        parts = list(server.stream(body))
        for part in parts:
            parser.feed(part)
        message = parser.close()
        assert message == read(found, "".join(parts))
        assert len(parts) > 5 and check_calls(message)


@pytest.mark.parametrize("tools", BROKEN_TOOLS)
def test_broken_tools_get_a_reply(tools: Any, server: LlamaServer) -> None:
    request = completion_request(template("qwen3"), QUESTION, server.tokenizer, tools)
    answer = server.post("/completion", {**request, "n_predict": 3})
    assert answer["tokens_predicted"] == 3

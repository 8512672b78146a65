"""The names of `renderers` over a template: the same ids as that package gives for Qwen3, on plain conversations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnwise
from corpus import needs_corpus, published
from turnwise.compat import renderers as ours
from turnwise.errors import MessageError, SourceError, TokenizerError, TurnwiseError
from turnwise.tokens.tokenizers import Tokenizer

TOOLS = [{"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": {"at": "门"}}}
SYSTEM = {"role": "system", "content": "Be short."}
CHATS: dict[str, list[dict[str, Any]]] = {
    "question": [{"role": "user", "content": "hi"}],
    "system": [SYSTEM, {"role": "user", "content": "hi  there"}],
    "rounds": [
        SYSTEM,
        {"role": "user", "content": "你好 <b>"},
        {"role": "assistant", "content": "hello\n\nyou"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": "that is all"},
    ],
    "results": [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "a door"},
    ],
}
NEXT = {
    "user": [{"role": "user", "content": "and then?"}],
    "result": [{"role": "tool", "content": "a door"}],
    "results": [{"role": "tool", "content": "a door"}, {"role": "tool", "content": "a wall"}],
    "both": [{"role": "tool", "content": "a door"}, {"role": "user", "content": "open it"}],
}


@pytest.fixture(scope="module")
def theirs() -> Any:
    return pytest.importorskip("renderers", exc_type=ImportError)


@pytest.fixture(scope="module")
def qwen3(theirs: Any, corpus: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    tok = transformers.PreTrainedTokenizerFast.from_pretrained(corpus / "tokenizers" / "qwen3")
    return theirs.create_renderer(tok, theirs.Qwen3RendererConfig(thinking_retention="all"))


@pytest.fixture(scope="module")
def mine(tokenizers: Callable[[str], Tokenizer]) -> ours.Renderer:
    return ours.Renderer(turnwise.compile(published()["npm-qwen3"].text), tokenizers("qwen3"))


@needs_corpus
@pytest.mark.parametrize("opening", [False, True])
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
@pytest.mark.parametrize("name", CHATS)
def test_the_same_ids(qwen3: Any, mine: ours.Renderer, name: str, tools: Any, opening: bool) -> None:
    given = {"tools": tools, "add_generation_prompt": opening}
    want, have = qwen3.render(CHATS[name], **given), mine.render(CHATS[name], **given)
    assert have.token_ids == want.token_ids
    assert mine.render_ids(CHATS[name], **given) == want.token_ids
    assert have.sampled_mask == want.sampled_mask
    assert have.message_roles == want.message_roles
    assert have.message_tool_names == want.message_tool_names
    if tools is None:
        pairs = zip(have.message_indices, want.message_indices, strict=True)
        # Qwen3 writes the first system message outside of its loop: the words around it belong to nobody here.
        assert all(
            index == other or (index, other, have.message_roles[0]) == (-1, 0, "system") for index, other in pairs
        )
        assert have.is_content == want.is_content


@needs_corpus
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "cut"])
@pytest.mark.parametrize("name", NEXT)
def test_the_same_bridge(qwen3: Any, mine: ours.Renderer, name: str, stopped: bool) -> None:
    prompt = mine.render_ids(CHATS["system"], add_generation_prompt=True)
    letters = [id for letter in "well then" for id in mine.tokenizer.encode(letter)]
    reply = [*letters, *mine.get_stop_token_ids()[:stopped]]
    want = qwen3.bridge_to_next_turn(prompt, reply, NEXT[name])
    have = mine.bridge_to_next_turn(prompt, reply, NEXT[name])
    assert have is not None and have.token_ids == want.token_ids
    assert have.token_ids[: len(prompt) + len(reply)] == prompt + reply
    assert have.sampled_mask == want.sampled_mask
    assert have.message_roles == want.message_roles


@needs_corpus
def test_no_bridge_where_history_changes(mine: ours.Renderer) -> None:
    prompt = mine.render_ids(CHATS["question"], add_generation_prompt=True)
    thought = mine.tokenizer.whole("<think>\nhm\n</think>\n\nyes<|im_end|>")
    assert mine.bridge_to_next_turn(prompt, thought, NEXT["user"]) is None
    assert mine.bridge_to_next_turn(prompt, thought, NEXT["result"]) is not None  # the same question still
    keeping = ours.Renderer(mine.template, mine.tokenizer, history="keep")
    kept = keeping.bridge_to_next_turn(prompt, thought, NEXT["user"])
    assert kept is not None and kept.token_ids[: len(prompt) + len(thought)] == prompt + thought
    assert mine.bridge_to_next_turn([], thought, NEXT["user"]) is None
    assert mine.bridge_to_next_turn(prompt, thought, []) is None
    assert mine.bridge_to_next_turn(prompt, thought, [{"role": "assistant", "content": "x"}]) is None


def test_no_bridge_for_a_template_that_counts() -> None:
    counted = "{% for m in messages %}[{{ loop.index }}]{{ m.content }}<|im_end|>{% endfor %}"
    renderer = ours.Renderer(turnwise.compile(counted), "turnwise")
    prompt = renderer.render_ids([{"role": "user", "content": "hi"}])
    assert renderer.bridge_to_next_turn(prompt, renderer.tokenizer.encode("yes"), NEXT["user"]) is None


@needs_corpus
def test_stops_and_stability(qwen3: Any, mine: ours.Renderer) -> None:
    assert mine.get_stop_token_ids() and set(mine.get_stop_token_ids()) <= set(qwen3.get_stop_token_ids())
    assert mine.is_prefix_stable is qwen3.is_prefix_stable is False
    chatml = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    assert ours.Renderer(turnwise.compile(chatml), mine.tokenizer).is_prefix_stable


@pytest.mark.parametrize(
    "name", ["render", "render_ids", "get_stop_token_ids", "bridge_to_next_turn", "parse_response"]
)
def test_the_same_arguments(theirs: Any, name: str) -> None:
    want, have = (inspect.signature(getattr(kind, name)).parameters for kind in (theirs.Renderer, ours.Renderer))
    assert [(one.name, one.kind, one.default) for one in have.values()] == [
        (one.name, one.kind, one.default) for one in want.values()
    ]


def test_what_is_not_there_is_said() -> None:
    renderer = ours.Renderer(turnwise.compile("{{ messages[0].content }}"), "turnwise")
    with pytest.raises(TurnwiseError, match="grammar"):
        renderer.parse_response([1])
    with pytest.raises(MessageError, match="no messages"):
        renderer.render_ids([])
    with pytest.raises(MessageError, match="history"):
        ours.Renderer(renderer.template, "turnwise", history="rewrite")


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def test_misuse_is_told() -> None:
    renderer = ours.Renderer(turnwise.compile(CHATML), "turnwise")
    asked: Any = renderer.bridge_to_next_turn
    with pytest.raises(SourceError, match=r"a Template, not 'chatml'\n.*turnwise.load\('chatml'\)"):
        ours.Renderer("chatml", "turnwise")
    with pytest.raises(MessageError, match="'tools' is an argument"):
        ours.Renderer(renderer.template, "turnwise", tools=[])
    for messages in ([5], [None], 5, "hi"):
        for call in (renderer.render, renderer.render_ids, lambda given: asked([5], [6], given)):
            with pytest.raises(MessageError, match="a message is a mapping|a list of messages"):
                call(messages)
    for ids in (5, "ab", b"ab", [None], [True], None):
        with pytest.raises(TokenizerError, match="prompt are a list of ids"):
            asked(ids, [6], NEXT["user"])
        with pytest.raises(TokenizerError, match="completion are a list of ids"):
            asked([5], ids, NEXT["user"])
    for tools in (5, [5], [{"a": float("nan")}]):
        with pytest.raises(MessageError, match="tool"):
            asked([5], [6], NEXT["user"], tools=tools)
    assert asked([10**9], [6], NEXT["user"]) is None  # sampled with another tokenizer


def test_messages_may_be_objects(mine: ours.Renderer) -> None:
    class Said:
        def model_dump(self) -> dict[str, Any]:
            return {"role": "user", "content": "hi"}

    assert mine.render([Said()]) == mine.render(CHATS["question"])  # type: ignore[list-item]


def test_names_of_tools_that_are_not_there() -> None:
    calls: tuple[Any, ...] = (5, [5], [{"id": [1], "function": None}], [{"id": [1], "function": {"name": "look"}}])
    result = {"role": "tool", "content": "", "tool_call_id": [1]}
    found = [ours.tool_names([{"role": "assistant", "tool_calls": made}, result])[1] for made in calls]
    assert found == [None, None, None, "look"]

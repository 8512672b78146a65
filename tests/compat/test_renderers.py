"""The names of `renderers` over a template: the same ids as that package gives for Qwen3, on plain conversations.

And the same responses as its parsers, which are written by hand, read from what a template writes, for eight formats.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnwise
from corpus import load_published, needs_corpus
from reply_cases import APART, MESSAGES, case_of
from turnwise.compat import renderers as ours
from turnwise.errors import MessageError, SourceError, TokenizerError
from turnwise.replies.events import MARKER_STATUSES, STATUSES
from turnwise.tokens.tokenizers import Tokenizer

TOOLS = [
    {
        "type": "function",
        "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}},
    }
]
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
    return ours.Renderer(turnwise.compile(load_published()["npm-qwen3"].text), tokenizers("qwen3"))


@needs_corpus
@pytest.mark.parametrize("opening", [False, True])
@pytest.mark.parametrize("tools", [None, TOOLS], ids=["plain", "tools"])
@pytest.mark.parametrize("name", CHATS)
def test_the_same_ids(
    qwen3: Any, mine: ours.Renderer, name: str, tools: Any, opening: bool
) -> None:
    given = {"tools": tools, "add_generation_prompt": opening}
    want, have = qwen3.render(CHATS[name], **given), mine.render(CHATS[name], **given)
    assert have.token_ids == want.token_ids
    assert mine.render_ids(CHATS[name], **given) == want.token_ids
    assert have.sampled_mask == want.sampled_mask
    assert have.message_roles == want.message_roles
    assert have.message_tool_names == want.message_tool_names
    if tools is None:
        pairs = zip(have.message_indices, want.message_indices, strict=True)
        # Qwen3 writes the first system message outside of its loop: the words around it belong to no message here.
        assert all(
            index == other or (index, other, have.message_roles[0]) == (-1, 0, "system")
            for index, other in pairs
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
    assert (
        mine.bridge_to_next_turn(prompt, thought, NEXT["result"]) is not None
    )  # the same question still
    keeping = ours.Renderer(mine.template, mine.tokenizer, history="keep")
    kept = keeping.bridge_to_next_turn(prompt, thought, NEXT["user"])
    assert kept is not None and kept.token_ids[: len(prompt) + len(thought)] == prompt + thought
    assert mine.bridge_to_next_turn([], thought, NEXT["user"]) is None
    assert mine.bridge_to_next_turn(prompt, thought, []) is None
    assert (
        mine.bridge_to_next_turn(prompt, thought, [{"role": "assistant", "content": "x"}]) is None
    )


def test_no_bridge_for_a_template_that_counts() -> None:
    counted = "{% for m in messages %}[{{ loop.index }}]{{ m.content }}<|im_end|>{% endfor %}"
    renderer = ours.Renderer(turnwise.compile(counted), "turnwise")
    prompt = renderer.render_ids([{"role": "user", "content": "hi"}])
    assert (
        renderer.bridge_to_next_turn(prompt, renderer.tokenizer.encode("yes"), NEXT["user"]) is None
    )


@needs_corpus
def test_stops_and_stability(qwen3: Any, mine: ours.Renderer) -> None:
    assert mine.get_stop_token_ids() and set(mine.get_stop_token_ids()) <= set(
        qwen3.get_stop_token_ids()
    )
    assert mine.is_prefix_stable is qwen3.is_prefix_stable is False
    chatml = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    assert ours.Renderer(turnwise.compile(chatml), mine.tokenizer).is_prefix_stable


@pytest.mark.parametrize(
    "name", ["render", "render_ids", "get_stop_token_ids", "bridge_to_next_turn", "parse_response"]
)
def test_the_same_arguments(theirs: Any, name: str) -> None:
    want, have = (
        inspect.signature(getattr(kind, name)).parameters
        for kind in (theirs.Renderer, ours.Renderer)
    )
    assert [(one.name, one.kind, one.default) for one in have.values()] == [
        (one.name, one.kind, one.default) for one in want.values()
    ]


def test_what_is_not_there_is_reported() -> None:
    renderer = ours.Renderer(turnwise.compile("{{ messages[0].content }}"), "turnwise")
    with pytest.raises(MessageError, match="no messages"):
        renderer.render_ids([])
    with pytest.raises(MessageError, match="history"):
        ours.Renderer(renderer.template, "turnwise", history="rewrite")


# Responses

TAGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
# Their class, a template of that model, a tokenizer, and tokens that it lacks.
FORMATS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "Qwen3": ("npm-qwen3", "qwen3", ()),
    "Qwen35": ("llamacpp-Qwen3.5-4B", "qwen3", ()),
    "DeepSeekV3": ("npm-deepseek_v3", "deepseek_v3", ()),
    "GLM45": ("llamacpp-GLM-4.6", "qwen3", (
        *TAGS, "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
    )),
    "KimiK2": ("llamacpp-moonshotai-Kimi-K2", "qwen3", (
        "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
    )),
    "MiniMaxM2": ("llamacpp-MiniMax-M2", "qwen3", (
        "]~!b[", "]~b]", "[e~[", "<minimax:tool_call>", "</minimax:tool_call>",
    )),
    "Nemotron3": ("llamacpp-NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3", ("<image>",)),
    "LagunaXS2": ("llamacpp-poolside-Laguna-XS.2", "qwen3", (*TAGS, "<assistant>", "</assistant>", "〈|EOS|〉")),
}  # fmt: skip
OTHERWISE = {
    ("Qwen35", "types"): "True and None of a template are no JSON to them",
    ("Qwen35", "content and calls"): "True and None of a template are no JSON to them",
    ("Nemotron3", "types"): "True and None of a template are no JSON to them",
    ("Nemotron3", "content and calls"): "True and None of a template are no JSON to them",
    (
        "MiniMaxM2",
        "reasoning and call",
    ): "each call has the place and the text of the whole section there",
    ("MiniMaxM2", "everything"): "each call has the place and the text of the whole section there",
}


def pair(theirs: Any, corpus: Path, name: str) -> tuple[Any, ours.Renderer, Any]:
    """Their renderer, ours, and a tokenizer for both."""
    transformers = pytest.importorskip("transformers")
    template, folder, lacking = FORMATS[name]
    tok = transformers.PreTrainedTokenizerFast.from_pretrained(corpus / "tokenizers" / folder)
    tok.add_tokens([transformers.AddedToken(text, special=True) for text in lacking])
    known = load_published()[template]
    mine = ours.Renderer(turnwise.compile(known.text, options=dict(known.options)), tok)
    return theirs.create_renderer(tok, getattr(theirs, f"{name}RendererConfig")()), mine, tok


def facts(response: Any) -> tuple[Any, ...]:
    calls = [
        (call.name, call.arguments, call.token_span, str(call.status), call.id, call.raw.strip())
        for call in response.tool_calls
    ]
    thought = (response.reasoning_content or "").strip()
    return response.content.strip(), thought, response.reasoning_complete, calls


@needs_corpus
@pytest.mark.law(3)
@pytest.mark.parametrize("name", FORMATS)
def test_the_same_responses(theirs: Any, corpus: Path, name: str) -> None:
    """Content, reasoning, calls with status, place and text, for all that the template writes."""
    other, mine, tok = pair(theirs, corpus, name)
    compared = 0
    for kind in MESSAGES:
        case = case_of(FORMATS[name][0], kind)
        if case is None or case.reply == APART:
            continue
        prompt, reply = (
            tok.encode(text, add_special_tokens=False) for text in (case.prompt, case.reply)
        )
        given = {"tools": case.arguments.get("tools"), "prompt_ids": prompt}
        want, have = (facts(one.parse_response(reply, **given)) for one in (other, mine))
        assert (have == want) == ((name, kind) not in OTHERWISE), (kind, have, want)
        assert have[:3] == want[:3] and len(have[3]) == len(want[3]), kind
        compared += 1
    assert compared >= 3


FINE = '<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n</tool_call>'
RESPONSES = {
    "nothing": "",
    "words": "hello<|im_end|>",
    "without a stop": "hello",
    "beyond the stop": "hello<|im_end|>more",
    "calls": f"I look.\n{FINE}\n{FINE}<|im_end|>",
    "a thought": "<think>\nhm\n</think>\n\nyes<|im_end|>",
    "within a thought": "<think>\nhm and",
    "a stop within a thought": "<think>\nhm and<|im_end|>",
    "cut within a call": 'x<tool_call>\n{"name": "look", "argu',
}
BROKEN = {  # a status, and the error otherwise
    '<tool_call>\n{"name": "look", "arguments": {"at": \n</tool_call><|im_end|>': "invalid_json",
    '<tool_call>\n{"arguments": {"at": 1}}\n</tool_call><|im_end|>': "missing_name",
    '<tool_call>\n{"name": "look", "arguments": {"at": "it"': "unclosed_block",
}


@needs_corpus
@pytest.mark.parametrize("response", RESPONSES)
def test_the_same_of_any_response(qwen3: Any, mine: ours.Renderer, response: str) -> None:
    ids = mine.tokenizer.whole(RESPONSES[response])
    assert facts(mine.parse_response(ids)) == facts(qwen3.parse_response(ids))


@needs_corpus
@pytest.mark.parametrize("response", BROKEN)
def test_the_same_statuses(qwen3: Any, mine: ours.Renderer, response: str) -> None:
    """Besides the status, ours say as much of the name and the arguments as could be read."""
    ids = mine.tokenizer.whole(response)
    want, have = (one.parse_response(ids).tool_calls for one in (qwen3, mine))
    assert [call.status for call in have] == [call.status for call in want] == [BROKEN[response]]
    assert have[0].token_span[0] == want[0].token_span[0]


@needs_corpus
def test_a_tool_that_was_not_offered(mine: ours.Renderer) -> None:
    (call,) = mine.parse_response(mine.tokenizer.whole(FINE), tools=[{"name": "other"}]).tool_calls
    assert call.status == ours.ToolCallParseStatus.UNKNOWN_TOOL and call.arguments == {"at": "it"}


def test_the_same_fields(theirs: Any) -> None:
    for name in ("ParsedResponse", "ParsedToolCall"):
        want, have = (dataclasses.fields(getattr(kind, name)) for kind in (theirs, ours))
        assert [(one.name, one.default) for one in have] == [
            (one.name, one.default) for one in want
        ]
    assert {**ours.ToolCallParseStatus.__members__} == {**theirs.ToolCallParseStatus.__members__}
    assert set(ours.STATUSES) == set(STATUSES) - set(MARKER_STATUSES)


@needs_corpus
def test_a_prompt_of_ids_decides(mine: ours.Renderer) -> None:
    """Whether reasoning is open; without a prompt, the options of the renderer do."""
    closing = ours.Renderer(mine.template, mine.tokenizer, enable_thinking=False)
    ids = mine.tokenizer.whole("hm\n</think>\n\nyes<|im_end|>")
    chat = [{"role": "user", "content": "hi"}]
    opened = [
        *mine.render_ids(chat, add_generation_prompt=True),
        *mine.tokenizer.whole("<think>\n"),
    ]
    found = mine.parse_response(ids, prompt_ids=opened)
    assert (found.content, found.reasoning_content) == ("yes", "hm")
    assert closing.parse_response(mine.tokenizer.whole("So.<|im_end|>")).content == "So."
    for wrong in (5, "ab", [None]):
        with pytest.raises(TokenizerError, match="list of ids"):
            mine.parse_response(wrong)  # type: ignore[arg-type]


CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def test_misuse_is_reported() -> None:
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
    for ids in (5, "ab", b"ab", [None], [True], object()):
        with pytest.raises(TokenizerError, match="prompt_ids are a list of ids"):
            renderer.parse_response([5], prompt_ids=ids)
    assert renderer.parse_response([5], prompt_ids=()) == renderer.parse_response([5])


def test_messages_may_be_objects(mine: ours.Renderer) -> None:
    class DumpedMessage:
        def model_dump(self) -> dict[str, Any]:
            return {"role": "user", "content": "hi"}

    assert mine.render([DumpedMessage()]) == mine.render(CHATS["question"])  # type: ignore[list-item]


@needs_corpus
def test_messages_may_be_those_that_were_read(mine: ours.Renderer) -> None:
    read = mine.template.parse(FINE + "<|im_end|>")
    for call in (mine.render_ids, lambda chat: mine.render(chat).token_ids):
        assert call([*CHATS["question"], read]) == call([*CHATS["question"], read.as_turn()])


def test_names_of_tools_that_are_not_there() -> None:
    calls: tuple[Any, ...] = (
        5,
        [5],
        [{"id": "a", "function": None}],
        [{"id": ["a"], "function": {"name": "look"}}],
        [{"id": "a", "function": {"name": "look"}}],
    )
    result = {"role": "tool", "content": "", "tool_call_id": "a"}
    found = [
        ours._tool_names([{"role": "assistant", "tool_calls": made}, result])[1] for made in calls
    ]
    assert found == [None, None, None, None, "look"]

"""Openings that are proven, or written from segments, are those that rendering every prompt would find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import corpus
import turnwise
from published_templates import compile_published
from timing import assert_linear
from turnwise.engine.segments.segments import Segments
from turnwise.tokens.boundaries import TurnCache
from turnwise.tokens.tokenizers import tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")

EVERY = 30  # one published template in so many by default
MESSAGES = 120
BODY = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if CONDITION %}<think></think>{% endif %}{% endif %}"
)
COUNTING = (
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.n = ns.n + 1 %}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{{ '<think></think>' if ns.n == 3 }}{% endif %}"
)
# The last of these users' messages gets another generation prompt than those before, and no turn shows it.
ODD_PROMPTS: dict[str, tuple[str, dict[str, Any]]] = {
    "search": ("'/no_think' in messages[-1].content", {"content": "b /no_think"}),
    "search all": ("'/no' in messages|map(attribute='content')|join", {"content": "/no"}),
    "length": ("messages[-1].content|length > 9", {"content": "b" * 10}),
    "count": ("messages|length == 5", {"content": "b"}),
    "empty": ("not messages[-1].content", {"content": ""}),
    "blank": ("not messages[-1].content|trim", {"content": " "}),
    "field": ("messages[-1].think", {"content": "b", "think": True}),
    "value": ("messages[-1].name == 'x'", {"content": "b", "name": "x"}),
    "type": ("messages[-1].content is not string", {"content": [{"type": "text", "text": "b"}]}),
    "case": ("messages[-1].content is upper", {"content": "B"}),
    "character": ("messages[-1].content[0] == '/'", {"content": "/b"}),
    "counter": ("", {"content": "b"}),
}


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _reply(text: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **fields}


def _call(number: int, content: str = "") -> dict[str, Any]:
    function = {"name": "tide", "arguments": {"harbour": f"Oslo {number}"}}
    call = {"type": "function", "id": f"call{number:05d}", "function": function}
    return _reply(content, tool_calls=[call])


def _result(number: int) -> dict[str, Any]:
    call = f"call{number:05d}"
    return {"role": "tool", "name": "tide", "tool_call_id": call, "content": f"Rain {number}"}


SYSTEM = {"role": "system", "content": "Be brief. /think"}
TEXTS = (
    *("Hello there", "Hi /no_think", "What?", "", "   ", "x" * 700, "Why <think> so </think>"),
    *("/think now", "Last one", "More"),
)
PLAIN = [m for i, text in enumerate(TEXTS) for m in (_user(text), _reply(f"Answer {i}"))]
REASONING = [
    message
    for i, text in enumerate(TEXTS)
    for message in (
        _user(text),
        _reply(f"Answer {i}", **({"reasoning_content": f"Hm {i}"} if i % 3 else {})),
    )
]
CALLS = [_user("Go")]
for i in range(3):
    CALLS += [
        _call(i),
        _result(i),
        _call(i + 10, "Let me see"),
        _result(i + 10),
        _reply(f"Done {i}"),
    ]
    CALLS += [_user(f"Next {i}"), _reply(f"Fine {i}"), _user(f"Then {i}")]
THOUGHTS = {"reasoning_content": "Hm", "thinking": "Hm"}
THINKING = [{**m, **THOUGHTS} if m["role"] == "assistant" else m for m in (SYSTEM, *CALLS)]
CHATS = (PLAIN, [SYSTEM, *PLAIN], [SYSTEM, *REASONING], CALLS, [SYSTEM, *CALLS], THINKING)


def find_turns(template: turnwise.Template, chat: Any) -> Any:
    """Return the turns of a chat, and why others have none; None if the template refuses the chat."""
    try:
        encoded = template.encode(chat, tokenizer("turnwise"), normalise=False)
    except turnwise.TurnwiseError:
        return None
    return encoded.turns, encoded.untrained


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`find_turns` without any reuse."""

    def find(template: turnwise.Template, chat: Any) -> Any:
        with monkeypatch.context() as patch:
            unproven = property(lambda _: 0, lambda *_: None)
            patch.setattr(TurnCache, "least", unproven, raising=False)
            patch.setattr(Segments, "write", lambda *_, **__: None)
            return find_turns(template, chat)

    yield find


@pytest.mark.parametrize("name", ODD_PROMPTS)
def test_a_prompt_that_differs_is_noticed(name: str, reference: Any) -> None:
    condition, last = ODD_PROMPTS[name]
    text = BODY.replace("CONDITION", condition) if condition else COUNTING
    chat = [
        _user("a"),
        _reply("one"),
        _user("a"),
        _reply("two"),
        {"role": "user", **last},
        _reply("three"),
    ]
    chat += [_user("a"), _reply("four")]
    found = find_turns(turnwise.compile(text), chat)
    assert found == reference(turnwise.compile(text), chat)
    assert [turn.message for turn in found[1] if turn.diverges][:1] == [5]


# Finished turns that differ from the prompts before them, written by templates that hide where messages end.
THOUGHT = "{% if loop.last and not add_generation_prompt %}<think>{{ m.reasoning_content }}</think>{% endif %}"
ROUND = f"<|im_start|>{{{{ m.role }}}}\n{THOUGHT}{{{{ m.content }}}}<|im_end|>\n"
START = "{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}"
EVERY_ROUND = f"{{% for m in messages %}}{ROUND}{{% endfor %}}"
DIVERGING = {
    "one loop": EVERY_ROUND + START,
    "two loops": "{% for m in messages %}{{ m.content }}|{% endfor %}" + EVERY_ROUND + START,
    "two at the end": EVERY_ROUND + "{% for m in messages %}{{ m.content }}|{% endfor %}" + START,
    "a block": f"{{% set all %}}{EVERY_ROUND}{{% endset %}}{{{{ all }}}}{START}",
    "a macro": f"{{% macro f(m, loop) %}}{ROUND}{{% endmacro %}}"
    f"{{% for m in messages %}}{{{{ f(m, loop) }}}}{{% endfor %}}{START}",
    "numbers": "{% for i in range(messages|length) %}{% set m = messages[i] %}"
    f"{ROUND}{{% endfor %}}{START}",
    "numbers at the end": EVERY_ROUND
    + "{% for i in range(messages|length) %}{{ messages[i].role }}{% endfor %}"
    + START,
    "the last one again": EVERY_ROUND + "{{ messages[-1].content }}" + START,
    "numbers first": "{% for i in range(messages|length) %}{% set m = messages[i] %}"
    f"{ROUND}{{% endfor %}}{EVERY_ROUND}{START}",
    "a block first": f"{{% set all %}}{EVERY_ROUND}{{% endset %}}{{{{ all }}}}{EVERY_ROUND}{START}",
    "a list first": "{% set ns = namespace(all=[]) %}"
    "{% for m in messages %}{% set ns.all = ns.all + [m] %}{% endfor %}"
    f"{{% for m in ns.all %}}{ROUND}{{% endfor %}}{EVERY_ROUND}{START}",
    "batches first": f"{{% for some in messages|batch(2) %}}{{% for m in some %}}{ROUND}"
    f"{{% endfor %}}{{% endfor %}}{EVERY_ROUND}{START}",
    "groups first": f"{{% for _, some in messages|groupby('role') %}}{{% for m in some %}}{ROUND}"
    f"{{% endfor %}}{{% endfor %}}{EVERY_ROUND}{START}",
    "the first one again": EVERY_ROUND
    + "{% for m in messages[:1] %}{{ m.content }}{% endfor %}"
    + START,
    "numbers of a list": "{% for i in [0, 1] %}{{ messages[0].content }}{% endfor %}"
    + EVERY_ROUND
    + "{% for i in [0] %}{% set m = messages[0] %}{{ m.content }}{% endfor %}"
    + START,
    "inner loops": f"{{% for m in messages %}}{ROUND}{{% for o in messages[loop.index:] %}}"
    f"{{{{ o.role }}}}{{% endfor %}}{{% endfor %}}{START}",
}


@pytest.mark.parametrize("name", DIVERGING)
def test_prompts_that_differ_are_compared_at_their_ends(name: str, reference: Any) -> None:
    template = turnwise.compile(DIVERGING[name])
    for chat in CHATS:
        for _ in range(3):
            found = find_turns(template, chat)
            assert found == reference(turnwise.compile(DIVERGING[name]), chat)


def _check_published(every: int, reference: Any) -> None:
    different = []
    for name in list(corpus.load_published())[::every]:
        template = compile_published(name)
        for number, chat in enumerate(CHATS):
            found = find_turns(template, chat)
            for _ in range(3 if found else 0):
                found = find_turns(template, chat)  # from segments by now
            if found is not None and found != reference(compile_published(name), chat):
                different.append((name, number))
    assert not different


@corpus.needs_corpus
def test_openings_are_those_of_rendered_prompts(reference: Any) -> None:
    _check_published(EVERY, reference)


@pytest.mark.slow
@corpus.needs_corpus
def test_openings_are_those_of_rendered_prompts_everywhere(reference: Any) -> None:
    _check_published(1, reference)


@corpus.needs_corpus
@pytest.mark.parametrize(
    "name",
    [
        "axolotl-chatml",
        "llamacpp-ByteDance-Seed-OSS",
        "llamacpp-meta-llama-Llama-3.1-8B-Instruct",
        "npm-qwen2_5",
    ],
)
def test_time_grows_with_messages(name: str) -> None:
    template, shipped = compile_published(name), tokenizer("turnwise")
    chat = [_reply(f"Answer {i}") if i % 2 else _user(f"Question {i}") for i in range(4 * MESSAGES)]
    assert_linear(lambda size: template.encode(chat[:size], shipped).labels, MESSAGES)


def test_the_opening_of_a_first_reply_is_not_trained() -> None:
    # Its prompt is that of an empty conversation, in which Zephyr writes no opening.
    zephyr = turnwise.load("zephyr")
    assert zephyr.render([], add_generation_prompt=True).text == ""
    known = tokenizer("turnwise")
    for chat in ([_reply("One")], [_reply("One"), _user("Two"), _reply("One")]):
        encoded = zephyr.encode(chat, known)
        trained = [id for id in encoded.labels if id != -100]
        assert known.decode(trained).replace("</s>", "") == "One" * (len(chat) // 2 + 1)

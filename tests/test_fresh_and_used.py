"""A cache changes the time of a result, never the result: used templates answer as fresh ones do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import corpus
import fresh_and_used
import turnwise
from published_templates import compile_published

EVERY = 89  # one published template in so many by default
SAMPLED = 4  # and one conversation in so many
ENTRIES = ("chatml", "qwen3.5", "llama-3.1", "gemma-2")
SEARCHING = (
    "{% set ns = namespace(found=false) %}{% for m in messages %}{% if m.role == 'user' and 'x' not in m.content %}"
    "{% set ns.found = true %}{% endif %}{% endfor %}{% if not ns.found %}{{ raise_exception('no query') }}{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COSTLY = (
    "{% for i in range(1000) %}{% set x = i %}{% endfor %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
)


def _check(names: Any, verbs: Any, every: int) -> None:
    for number, name in enumerate(names):
        make = partial(compile_published, name)
        assert not list(fresh_and_used.find_differences(make, verbs, number, every)), name


def _list_published() -> list[str]:
    return list(corpus.published())


@pytest.mark.parametrize("verb", fresh_and_used.VERBS)
def test_used_entries_answer_as_fresh_ones(verb: str) -> None:
    name = ENTRIES[list(fresh_and_used.VERBS).index(verb) % len(ENTRIES)]
    found = fresh_and_used.find_differences(lambda: turnwise.load(name), [verb], every=SAMPLED)
    assert not list(found)


@corpus.needs_corpus
@pytest.mark.parametrize("verb", fresh_and_used.VERBS)
def test_used_templates_answer_as_fresh_ones(verb: str) -> None:
    start = list(fresh_and_used.VERBS).index(verb)
    _check(_list_published()[start::EVERY], [verb], 2 * SAMPLED)


@corpus.needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("verb", fresh_and_used.VERBS)
def test_all_used_templates_answer_as_fresh_ones(verb: str) -> None:
    _check(_list_published(), [verb], 1)


@pytest.mark.filterwarnings("ignore")
def test_a_refused_prompt_is_not_hidden_by_an_earlier_chat() -> None:
    """The prompt before the first reply is refused, whatever conversations of the same form came before."""
    odd = [_user("x"), _reply("A"), _user("It is four."), _reply("B")]
    plain = [_user("Hi"), *odd[1:]]
    fresh, used = turnwise.compile(SEARCHING), turnwise.compile(SEARCHING)
    for _ in range(20):
        assert not used.encode(plain, "turnwise").untrained
    expected, found = fresh.encode(odd, "turnwise"), used.encode(odd, "turnwise")
    assert [turn.message for turn in found.untrained] == [1]
    assert found.labels == expected.labels and found.untrained == expected.untrained


@corpus.needs_corpus
@pytest.mark.parametrize("name", ["trl-qwen3_5_think_training", "axolotl-qwen3"])
@pytest.mark.parametrize("verb", ["encode", "examples"])
def test_published_templates_that_refuse_prompts(name: str, verb: str) -> None:
    used, run = compile_published(name), fresh_and_used.VERBS[verb]
    last = [_reply("A"), _user("It is four."), _reply("B")]
    for text in ("Hi", "<think>", "<tool_response>x</tool_response>", "Hi") * 3:
        asked = {"messages": [_user(text), *last]}
        expected = fresh_and_used.answer(compile_published(name), run, asked)
        assert fresh_and_used.answer(used, run, asked) == expected


@pytest.mark.filterwarnings("ignore")
def test_names_of_roles_do_not_use_up_what_probes_may_cost() -> None:
    """Whether a role takes parts is asked of the template, for any role; no later conversation pays for that."""
    used = turnwise.compile(COSTLY)
    parts = [{"type": "text", "text": "Hi"}]
    for number in range(120):
        used.render([{"role": f"role {number}", "content": parts}])
    chat = [{"role": "user", "content": parts}]
    assert used.render(chat).text == turnwise.compile(COSTLY).render(chat).text


@pytest.mark.filterwarnings("ignore")
def test_special_tokens_are_asked_for_under_the_options_of_the_call() -> None:
    text = "{{ cls_token + '' if glued else cls_token }}{{ messages[0].content }}"
    fresh, used = turnwise.compile(text), turnwise.compile(text)
    expected = fresh.encode([_user("Hi")], "turnwise", glued=True).input_ids
    used.encode([_user("Hi")], "turnwise", glued=False)
    assert used.encode([_user("Hi")], "turnwise", glued=True).input_ids == expected


@pytest.mark.filterwarnings("ignore")
def test_threads_get_the_answers_of_one() -> None:
    chats = fresh_and_used.list_chats()
    expected = [
        fresh_and_used.answer(turnwise.load("qwen3.5"), fresh_and_used.encode, chat)[0]
        for chat in chats[::3]
    ]
    used = turnwise.load("qwen3.5")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda chat: _run(used, chat), [*chats[::3], *chats, *chats[::3]]))
    assert found[: len(expected)] == expected
    assert found[-len(expected) :] == expected


def _run(template: turnwise.Template, chat: Any) -> Any:
    """Warnings are of the whole process, so other threads would count them."""
    try:
        return fresh_and_used.encode(template, chat)
    except turnwise.TurnwiseError as error:
        return f"{type(error).__name__}: {error}"


def _user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _reply(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}

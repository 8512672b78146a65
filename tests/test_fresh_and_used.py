"""A cache changes the time of a result, never the result: used templates answer as fresh ones do."""

from __future__ import annotations

import random
import warnings
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import corpus
import fresh_and_used
import turnwise
from data_batches import make_batch, make_recipe
from published_templates import compile_published
from served import client_of, load_once, make_service
from turnwise.data.kernel import Kernel
from turnwise.serve.service import Service

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
    return list(corpus.load_published())


@pytest.mark.law(4)
@pytest.mark.parametrize("verb", fresh_and_used.VERBS)
def test_used_entries_answer_as_fresh_ones(verb: str) -> None:
    name = ENTRIES[list(fresh_and_used.VERBS).index(verb) % len(ENTRIES)]
    found = fresh_and_used.find_differences(lambda: turnwise.load(name), [verb], every=SAMPLED)
    assert not list(found)


@pytest.mark.law(4)
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


# ---- prepare and serve ----


def _list_rows(template: str) -> list[dict[str, Any]]:
    chats = fresh_and_used.list_chats([text for text in turnwise.load(template).stops() if text])
    return [chat for chat in chats if "add_generation_prompt" not in chat]


def _prepare(kernel: Kernel, rows: list[Any]) -> list[Any]:
    """Return what a kernel makes of rows, without their numbers."""
    records = kernel(make_batch(rows)).to_pylist()
    kept: dict[int, list[Any]] = defaultdict(list)
    for record in records:
        kept[record.pop("row")].append(record)
    return [kept[number] for number in range(1, len(rows) + 1)]


def _check_prepare(template: str, samples: str, every: int) -> None:
    recipe = make_recipe(template=template, samples=samples, on_flaw="keep")
    rows = _list_rows(template)
    asked = rows[::every]
    expected = [_prepare(Kernel(recipe), [row])[0] for row in asked]
    random.Random(every).shuffle(rows)
    used = Kernel(recipe)
    _prepare(used, [*rows, *rows])
    assert _prepare(used, asked) == expected
    for size in (1, 4):
        kernel = Kernel(recipe)
        parts = [
            _prepare(kernel, asked[start : start + size]) for start in range(0, len(asked), size)
        ]
        assert [record for part in parts for record in part] == expected


@pytest.mark.parametrize(
    ("template", "samples"), [("chatml", "turns"), ("qwen3.5", "turns"), ("qwen3.5", "whole")]
)
def test_prepared_rows_do_not_depend_on_other_rows(template: str, samples: str) -> None:
    _check_prepare(template, samples, 5)


@pytest.mark.slow
@pytest.mark.parametrize("samples", ["turns", "whole"])
@pytest.mark.parametrize(
    "template", [*ENTRIES, "qwen3", "mistral", "deepseek-r1", "mixtral-8x22b", "smollm3"]
)
def test_all_prepared_rows_do_not_depend_on_other_rows(template: str, samples: str) -> None:
    _check_prepare(template, samples, 1)


def _tokenize(service: Service, chats: list[Any]) -> list[Any]:
    with client_of(service) as client:
        answers = [client.post("/tokenize", json=chat) for chat in chats]
    return [(answer.status_code, answer.json()) for answer in answers]


def _drop_request_id(answers: list[Any]) -> list[Any]:
    return [
        (status, {key: value for key, value in body.items() if key not in ("request_id", "id")})
        for status, body in answers
    ]


@pytest.mark.parametrize("name", ["qwen3.5", "gemma-2"])
def test_servers_answer_used_as_fresh(name: str) -> None:
    def start() -> Service:
        load_once.cache_clear()  # or the template is that of other tests
        return make_service([name])

    chats = fresh_and_used.list_chats()
    asked = chats[::9]
    expected = [_tokenize(start(), [chat])[0] for chat in asked]
    found = _tokenize(start(), [*chats, *asked])[-len(asked) :]
    assert _drop_request_id(found) == _drop_request_id(expected)


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_calls_without_a_role_are_lost_the_first_time_too() -> None:
    """Of two fields, one need not be a role."""
    call = {"type": "function", "function": {"name": "tide", "arguments": {}}}
    chat = [{"role": "user", "content": "Hi"}, {"content": None, "tool_calls": [call]}]
    template = turnwise.compile(
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    for _ in range(4):
        *_, told = template.render(chat, strict=False).warnings
        assert "writes nothing of messages[1].tool_calls" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}",
            _user("a") | {"tools": [{"type": "function", "function": {"name": "f"}}]},
        ),
        (
            "{% for m in messages %}{{ m.content[:0] }}{% endfor %}"
            "{% for m in messages|rejectattr('role', 'equalto', 'user') %}{{ m.content }}{% endfor %}",
            _reply("a"),
        ),
        (
            "{% for m in messages %}{{ ('<think></think>' ~ m.content).split('</think>')[-1] }}{% endfor %}",
            _reply("hi"),
        ),
    ],
)
def test_losses_are_told_alike_the_first_time_and_later(text: str, message: Any) -> None:
    template = turnwise.compile(text)
    chat = [_user("b"), message]
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        told = {template.render(chat, normalise=True).warnings for _ in range(4)}
    assert len(told) == 1


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_a_number_that_is_not_written_is_told_later_too() -> None:
    template, chat = turnwise.load("llamafactory:aeva"), [_user("a"), _reply("b"), _user("c")]
    for _ in range(4):
        (told,) = template.render([*chat, {"role": "assistant", "content": 0}]).warnings
        assert "writes nothing of messages[3].content" in told


def test_a_part_of_a_split_text_is_not_looked_for_between_the_parts() -> None:
    """The word `hi` is in the mark at which the text is split."""
    template = turnwise.compile(
        "{{ ('<think></think>' ~ messages[0].content).split('</think>')[-1] }}"
    )
    (piece,) = template.render([_reply("hi")]).pieces
    assert piece.origin.path == ("messages", 0, "content")


@pytest.mark.parametrize("call", [{"type": "text"}, {"id": "c1", "function": {"name": ""}}])
def test_calls_without_a_name_are_lost_or_not_for_both(call: Any) -> None:
    template = turnwise.compile(
        "{% for m in messages %}{{ m.role }}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.name if c.function }}{% endfor %}{% endfor %}"
    )
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]
    with pytest.warns(turnwise.TurnwiseWarning):
        first, *_, last = [template.render(chat) for _ in range(5)]
    assert first.warnings == last.warnings

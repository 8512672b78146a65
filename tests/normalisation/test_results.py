"""Results belong to their calls.

Where a template writes no ids, results are put into the order of the calls; where it writes them, they stay. Results
and calls without a partner are reported.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corpus
import turnwise
from corpus import needs_corpus
from loaded import load_entry
from reply_messages import UNREADABLE
from reply_vectors import template
from turnwise import MessageError, TurnwiseError, TurnwiseWarning
from turnwise.errors import WarningLog
from turnwise.normalisation.results import CallOrder, pair_results, read_link

ASK = {"role": "user", "content": "Which tides?"}
MORE = {"role": "user", "content": "And now?"}
IDS = ("aaaaaaaa1", "bbbbbbbb2", "cccccccc3", "dddddddd4")
TOWNS = ("Brest", "Calais", "Dover", "Emden")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "tide",
            "description": "Tides.",
            "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
        },
    }
]


def calling(*ids: Any) -> dict[str, Any]:
    calls = [
        {"id": id, "type": "function", "function": {"name": "tide", "arguments": {"town": town}}}
        for id, town in zip(ids, TOWNS, strict=False)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def result(id: Any, text: Any = None) -> dict[str, Any]:
    shown = f"result of {id}" if text is None else text
    return {"role": "tool", "name": "tide", "tool_call_id": id, "content": shown}


def quietly(chosen: Any, chat: list[Any], **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TurnwiseWarning)
        return chosen.render(chat, tools=TOOLS, **more)


# -- the order


def test_results_are_put_into_the_order_of_the_calls() -> None:
    qwen = load_entry("qwen3")
    chat = [ASK, calling("a", "b"), result("b", "9.9 m"), result("a", "1.1 m"), MORE]
    rendering = qwen.render(chat)
    assert rendering.text.index("1.1 m") < rendering.text.index("9.9 m")
    assert [change.path for change in rendering.changes] == ["messages[2]", "messages[3]"]
    paths = {piece.text: piece.origin.path for piece in rendering.pieces}
    assert paths["9.9 m"][:2] == ("messages", 2) and paths["1.1 m"][:2] == ("messages", 3)
    in_order = [*chat[:2], chat[3], chat[2], MORE]
    assert qwen.render(in_order).text == rendering.text and qwen.render(in_order).changes == ()
    assert qwen.render(chat, normalise=False).text != rendering.text
    assert qwen.render(chat, strict=True).text == rendering.text


def test_each_round_is_ordered_by_itself() -> None:
    qwen = load_entry("qwen3")
    first = [calling("a", "b"), result("b"), result("a")]
    second = [calling("c", "d"), result("d"), result("c")]
    text = qwen.render([ASK, *first, *second, MORE]).text
    assert [text.index(f"result of {id}") for id in "abcd"] == sorted(
        text.index(f"result of {id}") for id in "abcd"
    )


def test_a_result_without_id_belongs_to_the_call_that_is_left() -> None:
    qwen = load_entry("qwen3")
    for id in (None, ""):
        chat = [ASK, calling("a", "b"), result("b", "9.9 m"), result(id, "1.1 m"), MORE]
        rendering = qwen.render(chat)
        assert rendering.text.index("1.1 m") < rendering.text.index("9.9 m")
        assert rendering.warnings == () and len(rendering.changes) == 2 + (id is None)


def test_a_call_before_a_last_reply_has_no_result() -> None:
    qwen, reply = load_entry("qwen3"), {"role": "assistant", "content": "Done."}
    assert quietly(qwen, [ASK, calling("a")]).warnings == ()
    assert quietly(qwen, [ASK, calling("a"), calling("b")]).warnings == ()
    (warning,) = quietly(qwen, [ASK, calling("a"), reply]).warnings
    assert "messages[1].tool_calls[0] has no result, and other messages follow" in warning


def test_the_same_id_in_two_rounds() -> None:
    qwen = load_entry("qwen3")
    rounds = [calling("a", "b"), result("b", "1b"), result("a", "1a")]
    again = [calling("a", "b"), result("b", "2b"), result("a", "2a")]
    text = qwen.render([ASK, *rounds, *again, MORE]).text
    places = [text.index(word) for word in ("1a", "1b", "2a", "2b")]
    assert places == sorted(places)


def test_encoding_names_messages_as_the_caller_does() -> None:
    qwen = load_entry("qwen3")
    reply = {"role": "assistant", "content": "Low at both."}
    chat = [ASK, calling("a", "b"), result("b", "9.9 m"), result("a", "1.1 m"), reply]
    in_order = [*chat[:2], chat[3], chat[2], reply]
    found, expected = (qwen.encode(one, "turnwise", "assistant") for one in (chat, in_order))
    assert found.input_ids == expected.input_ids and found.labels == expected.labels
    swapped = {2: 3, 3: 2}
    assert [owner.message for owner in found.owners] == [
        swapped.get(owner.message, owner.message) for owner in expected.owners
    ]
    (row,) = qwen.encode_batch([chat], "turnwise", "assistant")
    assert (list(row.input_ids), list(row.labels)) == (found.input_ids, found.labels)
    (sample,) = qwen.examples(chat, "turnwise", "last")
    (other,) = qwen.examples(in_order, "turnwise", "last")
    assert sample.input_ids == other.input_ids and sample.labels == other.labels


def test_a_late_system_text_and_results_out_of_order() -> None:
    chosen = load_entry("qwen3.5")
    late = {"role": "system", "content": "Be brief."}
    reply = {"role": "assistant", "content": "Aye."}
    first = [ASK, reply, late, MORE, calling("a", "b"), result("b"), result("a"), reply]
    second = [*first[:5], result("a"), result("b"), reply]
    found, expected = (
        [sample.input_ids for sample in chosen.examples(chat, "turnwise", "assistant")]
        for chat in (first, second)
    )
    assert found == expected


def test_a_system_text_between_calls_and_results_parts_them_not() -> None:
    chosen = load_entry("kimi-k3")
    late = {"role": "system", "content": "Be brief."}
    with WarningLog(is_quiet=True) as log:
        found, expected = (
            chosen.render([ASK, calling("a", "b"), late, *results], late_system="in_place").text
            for results in ((result("b"), result("a")), (result("a"), result("b")))
        )
    assert found == expected
    assert not [text for text in log.texts if "no result" in text or "between them" in text]


def test_a_session_orders_the_results_of_a_reply() -> None:
    qwen = load_entry("qwen3")
    call = '<tool_call>\n{{"name": "tide", "arguments": {{"town": "{}"}}}}\n</tool_call>'
    ids = []
    for is_swapped in (False, True):
        session = qwen.session("turnwise", tools=TOOLS)
        session.prompt([ASK])
        session.add_reply("\n".join(map(call.format, TOWNS[:2])) + "<|im_end|>")
        first, second = (one["id"] for one in session.messages[-1]["tool_calls"])
        results = [result(first, "1.1 m"), result(second, "9.9 m")]
        ids.append(session.extend(results[::-1] if is_swapped else results))
    assert ids[0] == ids[1]
    assert [change.path for change in session.changes] == ["messages[2]", "messages[3]"]


# -- what is reported


REPORTED: dict[str, tuple[list[Any], str]] = {
    "unknown id": (
        [calling("a", "b"), result("a"), result("x")],
        r"messages\[3\]\.tool_call_id is 'x', and no call before it has this id",
    ),
    "no call": ([result("x")], r"messages\[1\]\.tool_call_id is 'x', and no call"),
    "one result of two": (
        [calling("a", "b"), result("a"), MORE],
        r"messages\[1\]\.tool_calls\[1\] has no result",
    ),
    "no result": ([calling("a"), MORE], r"messages\[1\]\.tool_calls\[0\] has no result"),
    "no id, other count": (
        [calling("a", "b"), result(None), MORE],
        r"messages\[2\] names no call: 1 result of this kind for 2 calls",
    ),
    "no ids at all, other count": (
        [calling(None, None), result(None), MORE],
        r"messages\[2\] names no call",
    ),
    "twice": ([calling("a"), result("a"), result("a")], r"messages\[3\] is one more result"),
    "late": (
        [calling("a"), result("a"), calling("b"), result("a"), result("b")],
        r"messages\[4\] is the result of a call in messages\[1\]",
    ),
}


@pytest.mark.parametrize("name", REPORTED)
def test_calls_and_results_without_a_partner_are_reported(name: str) -> None:
    messages, expected = REPORTED[name]
    qwen = load_entry("qwen3")
    with pytest.warns(TurnwiseWarning, match=expected):
        qwen.render([ASK, *messages])
    with pytest.raises(MessageError, match=expected):
        qwen.render([ASK, *messages], strict=True)
    with pytest.warns(TurnwiseWarning, match=expected):
        qwen.encode([ASK, *messages], "turnwise")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qwen.render([ASK, *messages], normalise=False)


QUIET: dict[str, list[Any]] = {
    "in order": [calling("a", "b"), result("a"), result("b"), MORE],
    "no ids": [calling(None, None), result(None), result(None), MORE],
    "ids of results only": [calling(None, None), result("x"), result("y"), MORE],
    "ids of calls only": [calling("a", "b"), result(None), result(None), MORE],
    "results to come": [calling("a", "b")],
    "one result to come": [calling("a", "b"), result("a")],
    "numbers": [calling(1, 2), result(1), result(2), MORE],
    "text of a number": [calling("1", "2"), result(1), result("2"), MORE],
    "the same id twice": [calling("a", "a"), result("a"), result("a"), MORE],
    "two messages that call": [calling("a"), calling("b"), result("b"), result("a"), MORE],
    "calls in the text": [
        {"role": "assistant", "content": "tide()"}, {"role": "tool", "content": "x"}, MORE,
    ],
    "parts": [calling("a"), result("a", [{"type": "text", "text": "1.1 m"}]), MORE],
}  # fmt: skip


@pytest.mark.parametrize("name", QUIET)
def test_nothing_is_reported_where_all_have_partners(name: str) -> None:
    links = [read_link(index, message) for index, message in enumerate([ASK, *QUIET[name]])]
    assert pair_results(links).problems == []


ODD_IDS = [None, "", "a", "b", 1, True, 1.5, [], {}, ["a"], {"id": "a"}, "é☀", "x" * 5000]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_odd_input_raises_no_other_error(data: st.DataObject) -> None:
    ids = st.sampled_from(ODD_IDS)
    results = ids.map(result) | ids.map(lambda id: {"role": "function", "name": id, "content": "x"})
    calls = st.lists(ids, max_size=3).map(lambda found: calling(*found))
    odd = st.sampled_from(
        [{"role": "assistant", "tool_calls": value} for value in ("x", {}, [None], [[]], 3)]
    )
    messages = [ASK, *data.draw(st.lists(results | calls | odd | st.just(MORE), max_size=6))]
    with suppress(TurnwiseError):
        quietly(load_entry("qwen3"), messages)


def answers_calls_in_order(messages: list[dict[str, Any]]) -> bool:
    order = CallOrder()
    for index, message in enumerate(messages):
        order.follow(read_link(index, message))
    return order.is_kept


@pytest.mark.parametrize("ids", [("", ""), ("", "a"), (None, "a")])
def test_results_of_some_calls_are_no_case_for_the_fast_path(ids: tuple[str | None, ...]) -> None:
    assert answers_calls_in_order([calling(*ids), *map(result, ids)])
    assert not answers_calls_in_order([calling(*ids), result(ids[0])])


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_the_fast_path_accepts_only_what_stays(data: st.DataObject) -> None:
    ids = st.sampled_from([None, "", "a", "b", "c"])
    results = ids.map(result)
    calls = st.lists(ids, min_size=1, max_size=3).map(lambda found: calling(*found))
    messages = data.draw(st.lists(results | calls | st.just(MORE), max_size=7))
    if answers_calls_in_order(messages):
        links = [read_link(index, message) for index, message in enumerate(messages)]
        assert pair_results(links) == (list(range(len(messages))), [])


def test_many_calls_take_little_time() -> None:
    ids = [f"id{number}" for number in range(20_000)]
    chat = [read_link(0, {"role": "assistant", "tool_calls": [{"id": id} for id in ids]})]
    chat += [read_link(index, result(id)) for index, id in enumerate(reversed(ids), 1)]
    order = pair_results(chat)
    assert order.places[1:] == list(range(20_000, 0, -1)) and not order.problems


# -- the law


def check_orders(chosen: Any, count: int) -> None:
    ids = IDS[:count]
    results = [result(id) for id in ids]
    try:
        expected = quietly(chosen, [ASK, calling(*ids), *results, MORE], now=corpus.NOW)
    except TurnwiseError:
        return
    writes_ids = chosen.capabilities.writes_ids
    for order in permutations(results):
        chat = [ASK, calling(*ids), *order, MORE]
        found = quietly(chosen, chat, now=corpus.NOW)
        if writes_ids:
            assert not any("result was put" in change.what for change in found.changes)
            continue
        assert found.text == expected.text, order
        places = [found.text.find(f"result of {id}") for id in ids]
        if -1 not in places:
            assert places == sorted(places)
        for piece in found.pieces:
            path = piece.origin.path
            if piece.text in {one["content"] for one in results} and path:
                assert chat[path[1]]["content"] == piece.text


NAMES = sorted(name for name in corpus.load_published() if name not in UNREADABLE)


@needs_corpus
@pytest.mark.parametrize("name", NAMES[::8])
def test_the_order_of_results_of_a_sample(name: str) -> None:
    check_orders(template(name), 3)


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_results(name: str) -> None:
    for count in (2, 3, 4):
        check_orders(template(name), count)


def test_a_template_that_writes_ids_keeps_the_order() -> None:
    writing = turnwise.compile(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}"
        "{% for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson }}]"
        "{% endfor %}{% if m.tool_call_id %}[of {{ m.tool_call_id }}]{% endif %}\n{% endfor %}"
    )
    assert writing.capabilities.writes_ids
    chat = [ASK, calling(*IDS[:2]), result(IDS[1]), result(IDS[0]), MORE]
    rendering = writing.render(chat, tools=TOOLS)
    assert (
        rendering.changes == () and rendering.text == quietly(writing, chat, normalise=False).text
    )

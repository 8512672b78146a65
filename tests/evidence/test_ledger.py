"""The cache ledger: its counts are those of encoding every prompt and comparing ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import turnwise
from turnwise.cli import app
from turnwise.evidence import CacheLedger, LedgerTurn, TraceLine, TraceProblem
from turnwise.evidence.ledger import KEPT_PROMPTS

RUN = CliRunner()
Chat = list[dict[str, Any]]
CALL = {
    "role": "assistant",
    "content": "",
    "reasoning_content": "I need the tide.",
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "tide", "arguments": {"at": "Brest"}},
        }
    ],
}
CHAT: Chat = [
    {"role": "user", "content": "When is high tide?"},
    CALL,
    {"role": "tool", "tool_call_id": "c1", "content": "At noon."},
    {"role": "assistant", "content": "At noon.", "reasoning_content": "The tool said so."},
    {"role": "user", "content": "And then?"},
    {"role": "assistant", "content": "It falls.", "reasoning_content": "It is a tide."},
    {"role": "user", "content": "Thanks"},
]
TOOLS = [{"type": "function", "function": {"name": "tide", "parameters": {"type": "object"}}}]
PROMPTS = [CHAT[:1], CHAT[:3], CHAT[:5], CHAT]


def lines_of(*chats: Chat, **more: Any) -> list[TraceLine]:
    return [TraceLine(n, {"messages": chat, **more}) for n, chat in enumerate(chats, 1)]


def turns_of(ledger: CacheLedger, lines: list[TraceLine]) -> list[LedgerTurn]:
    found = list(ledger.add_trace(lines))
    assert all(isinstance(turn, LedgerTurn) for turn in found), found
    return [turn for turn in found if isinstance(turn, LedgerTurn)]


def count_common(first: list[int], second: list[int]) -> int:
    count = 0
    while count < min(len(first), len(second)) and first[count] == second[count]:
        count += 1
    return count


def encode(template: turnwise.Template, messages: Chat, **more: Any) -> list[int]:
    encoded = template.encode(messages, "turnwise", add_stop=False, tools=TOOLS, **more)
    return list(encoded.input_ids)


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
@pytest.mark.parametrize("name", ["qwen3.6", "chatml"])
def test_counts_are_those_of_comparing_ids(name: str) -> None:
    """The law: tokens, reused and lost, and the tokens computed with each option."""
    template = turnwise.load(name)
    ledger = CacheLedger(template, "turnwise")
    turns = turns_of(ledger, lines_of(*PROMPTS, tools=TOOLS))
    settings = [{}, *({option.name: option.value} for option in ledger.totals.options)]
    for options, computed in zip(
        settings,
        [ledger.totals.computed, *(option.computed for option in ledger.totals.options)],
        strict=True,
    ):
        cached: list[list[int]] = []
        total = 0
        for number, prompt in enumerate(PROMPTS):
            ids = encode(template, prompt, add_generation_prompt=True, **options)
            if number:
                reply = encode(template, prompt[: len(PROMPTS[number - 1]) + 1], **options)
                if reply[: len(cached[-1])] == cached[-1]:
                    cached[-1] = reply
            reused = max((count_common(one, ids) for one in cached), default=0)
            lost = len(cached[-1]) - reused if cached else 0
            if not options:
                turn = turns[number]
                assert (turn.tokens, turn.reused, turn.lost) == (len(ids), reused, lost)
            total += len(ids) - reused
            cached.append(ids)
        assert total == computed
    totals = ledger.totals
    assert totals.turns == len(PROMPTS) and totals.tokens == sum(turn.tokens for turn in turns)
    assert totals.lost == sum(turn.lost for turn in turns) == sum(totals.lost_by.values())


def test_arguments_may_be_text_and_content_null() -> None:
    function = {"name": "tide", "arguments": '{"at": "Brest"}'}
    call = {
        **CALL,
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    ledger = CacheLedger(turnwise.load("qwen3.6"), "turnwise")
    turns = turns_of(ledger, lines_of(CHAT[:1], [CHAT[0], call, CHAT[2]], tools=TOOLS))
    assert turns[1].cause == "appended" and turns[1].lost == 0


def test_the_template_is_blamed_with_field_and_line() -> None:
    ledger = CacheLedger(turnwise.load("qwen3.6"), "turnwise")
    turns = turns_of(ledger, lines_of(CHAT[4:5], CHAT[4:]))
    assert turns[1].cause == "template" and turns[1].previous == 1
    rewrite = turns[1].rewrite
    assert rewrite is not None and rewrite.field == "messages[1].reasoning_content"
    assert rewrite.decision is not None and "preserve_thinking" in rewrite.decision.source
    (option,) = ledger.totals.options
    assert (option.name, option.value) == ("preserve_thinking", True)
    assert "preserve_thinking=True would" in str(ledger.totals)


def test_the_request_is_blamed_with_its_path() -> None:
    changed = [{"role": "user", "content": "Hi"}, *CHAT[4:]]
    edited = [*changed[:-1], {"role": "user", "content": "No thanks"}]
    ledger = CacheLedger(turnwise.load("chatml"), "turnwise")
    turns = turns_of(ledger, lines_of(changed, edited))
    assert turns[1].cause == "request" and turns[1].changed == "messages[3].content"
    assert turns[1].lost > 0 and "messages[3].content" in str(turns[1])
    with_tools = [*lines_of(changed), TraceLine(2, {"messages": changed, "tools": TOOLS})]
    turns = turns_of(CacheLedger(turnwise.load("qwen2.5"), "turnwise"), with_tools)
    assert turns[1].cause == "request" and turns[1].changed == "tools"


def test_one_conversation_is_replayed_in_whatever_form() -> None:
    template = turnwise.load("chatml")
    expected = [
        turn.tokens for turn in turns_of(CacheLedger(template, "turnwise"), lines_of(*PROMPTS))
    ]
    by_message = [TraceLine(n, message) for n, message in enumerate(CHAT, 1)]
    for lines in (
        lines_of(CHAT),
        [TraceLine(1, CHAT)],
        [TraceLine(1, {"body": {"messages": CHAT}})],
        by_message,
    ):
        turns = turns_of(CacheLedger(template, "turnwise"), lines)
        assert [turn.tokens for turn in turns] == expected


def test_agents_that_take_turns_are_told_apart() -> None:
    other = [
        {"role": "user", "content": "Write a poem."},
        {"role": "assistant", "content": "Roses"},
    ]
    more = [*other, {"role": "user", "content": "More"}]
    ledger = CacheLedger(turnwise.load("chatml"), "turnwise")
    turns = turns_of(ledger, lines_of(CHAT[:1], other[:1], CHAT[:3], more))
    assert [turn.cause for turn in turns] == ["first", "new", "appended", "appended"]
    assert [turn.previous for turn in turns] == [None, None, 1, 2] and ledger.totals.lost == 0


def test_what_is_kept_is_bounded() -> None:
    ledger = CacheLedger(turnwise.load("chatml"), "turnwise")
    chats = [[{"role": "user", "content": f"Question {n}"}] for n in range(KEPT_PROMPTS + 3)]
    turns_of(ledger, lines_of(*chats))
    assert len(ledger._cache._kept) == KEPT_PROMPTS


def test_bad_lines_are_named_and_left_out() -> None:
    ledger = CacheLedger(turnwise.load("qwen3.6"), "turnwise")
    found = list(
        ledger.add_trace(
            [
                *lines_of(CHAT[:1]),
                TraceLine(2, None, "not JSON: Expecting value at column 1"),
                TraceLine(3, {"prompt_text": 4}),
                TraceLine(4, {"messages": [{"role": "system", "content": "only"}]}),
                TraceLine(5, {"messages": CHAT[:3]}),
                TraceLine(6, "a text"),
                TraceLine(7, []),
            ]
        )
    )
    problems = [one for one in found if isinstance(one, TraceProblem)]
    assert [one.line for one in problems] == [2, 3, 4, 6, 7] and ledger.totals.problems == 5
    assert "line 2: not JSON" in str(problems[0]) and ledger.totals.turns == 2


def test_the_command(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [json.dumps({"messages": chat}) for chat in (CHAT[4:5], CHAT[4:])]
    trace.write_text("\n".join([rows[0], "{oops", rows[1]]))
    call = ["ledger", str(trace), "-t", "qwen3.6", "-k", "turnwise"]
    shown = RUN.invoke(app, call)
    assert shown.exit_code == 1, shown.output
    assert "line 3:" in shown.stdout and "line 1:" not in shown.stdout
    assert "line 2: not JSON" in shown.stderr and "would save" in shown.stdout
    *turns, totals = map(json.loads, RUN.invoke(app, [*call, "--json"]).stdout.splitlines())
    assert sorted(turn["line"] for turn in turns) == [1, 2, 3]
    assert totals["totals"]["lost"] == turns[2]["lost"] > 0 and totals["totals"]["problems"] == 1
    trace.write_text("\n".join(rows))
    stable = RUN.invoke(app, [*call, "--option", "preserve_thinking=true"])
    assert stable.exit_code == 0, stable.output
    missing = RUN.invoke(app, ["ledger", str(tmp_path / "none"), "-t", "chatml", "-k", "turnwise"])
    assert missing.exit_code == 2 and "cannot be read" in missing.stderr

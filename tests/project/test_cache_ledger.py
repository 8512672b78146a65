"""examples/cache_ledger.py: what a trace loses of a server's cache, why, and what other ways would lose."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import turnwise
from agent_traces import AGENT, RULES, TOOL, Trace, cut, reply, user, without_late

pytestmark = pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "cache_ledger.py"
CHAT = [RULES, user("Tide?"), reply("Noon."), user("Then?"), reply("Midnight."), user("Thanks.")]


@pytest.fixture(scope="module")
def ledger() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cache_ledger", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cache_ledger"] = module
    spec.loader.exec_module(module)
    return module


def count(
    ledger: ModuleType, rows: list[Any], template: str = "chatml", **options: Any
) -> list[Any]:
    requests = ledger.read_requests(rows)
    found = ledger.count_tokens(turnwise.load(template), "turnwise", requests, **options)
    return list(found)


def with_clock(number: int) -> list[Any]:
    clock = {"role": "system", "content": f"Answer briefly. It is 12:0{number}."}
    return [clock, *CHAT[1 : 2 * number]]


def test_a_clock_near_the_front_is_the_cause(ledger: ModuleType) -> None:
    rows = [{"messages": with_clock(number)} for number in (1, 2, 3)]
    first, *later = count(ledger, rows)
    assert not first.lost
    for row in later:
        assert row.lost > 10 and "'It is 12:0" in row.why and "messages[0]" in row.why
    requests = ledger.read_requests(rows)
    moved = ledger.move_changes(requests)
    assert moved[2].messages[0] == requests[0].messages[0]
    lines = list(ledger.try_ways(turnwise.load("chatml"), "turnwise", requests))
    assert lines[0] == "as a late system text: 0 lost"
    assert any("front" in line and not line.endswith(" 0 lost") for line in lines)


def test_tools_in_another_order_and_compaction_are_named(ledger: ModuleType) -> None:
    other = {"type": "function", "function": {**TOOL["function"], "name": "moon"}}
    rows = [
        {"messages": CHAT[:2], "tools": [TOOL, other]},
        {"messages": CHAT[:4], "tools": [other, TOOL]},
    ]
    assert count(ledger, rows, "qwen3")[1].why == "the tools are in another order"
    summary = [RULES, user("We spoke of tides."), *CHAT[3:]]
    found = count(ledger, [{"messages": CHAT}, {"messages": summary}])
    assert "compaction" in found[1].why and found[1].reused > 0


def test_another_conversation_continues_none(ledger: ModuleType) -> None:
    rows = [{"messages": CHAT[:4]}, {"messages": [user("Hello!")]}, {"messages": CHAT}]
    found = count(ledger, rows)
    assert [row.lost for row in found] == [0, 0, 0] and found[2].reused > 0 == found[1].reused


def test_what_the_template_rewrites_is_named(ledger: ModuleType) -> None:
    thought = {**reply("Noon."), "reasoning_content": "The moon."}
    chats = [[user("A"), thought, user("B")], [user("A"), thought, user("B"), thought, user("C")]]
    rows = [{"messages": chat} for chat in chats]
    assert not count(ledger, rows, "qwen3.6", preserve_thinking=True)[1].lost
    calls = [{"messages": chat, "tools": [TOOL]} for chat in cut(AGENT)]
    assert "template" in count(ledger, calls, "qwen3.6")[3].why


@pytest.mark.parametrize("shape", ["anthropic", "responses", "gemini"])
def test_a_trace_of_each_api_costs_the_same(ledger: ModuleType, shape: str) -> None:
    trace = Trace("agent", cut(AGENT))
    if shape == "gemini":  # it has no late system texts
        trace = without_late(trace)
    rows = [{"messages": chat, "tools": [TOOL]} for chat in trace.requests]
    bodies = [
        json.loads(json.dumps(turnwise.shapes.write(turnwise.shapes.conversation(row), shape)))
        for row in rows
    ]
    assert count(ledger, bodies, "qwen3") == count(ledger, rows, "qwen3")


def test_vendors_caches_are_priced(ledger: ModuleType) -> None:
    cache = {
        **{"order": ["tools", "system", "messages"], "minimum": 8, "step": 4, "seconds": 60},
        **{"write": 2.0, "read": 0.5},
    }
    requests = [ledger.Request(CHAT[:2], None, 0), ledger.Request(CHAT[:4], None, 30)]
    tokenizer = turnwise.tokens.tokenizers.tokenizer("turnwise")
    counts = [len(tokenizer.whole(key)) for key in requests[1].keys]
    cached = sum(counts[:2]) // 4 * 4
    cost, whole = ledger.price(cache, requests, "turnwise")
    assert whole == sum(counts[:2]) + sum(counts)
    assert cost == 2.0 * sum(counts[:2]) + 0.5 * cached + 2.0 * (sum(counts) - cached)
    late = [requests[0], requests[1]._replace(time=100)]  # after its time to live
    assert ledger.price(cache, late, "turnwise")[0] == 2.0 * whole
    assert ledger.price({**cache, "minimum": 10**6}, requests, "turnwise")[0] == whole

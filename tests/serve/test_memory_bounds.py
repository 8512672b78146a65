"""What requests leave in the memory of a server is bounded in bytes, and counted."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

import turnwise
from turnwise.messages import tools_cache
from turnwise.messages.tools_cache import MAX_CACHE_BYTES, MAX_KEY_BYTES, prepared_tools
from turnwise.serve.memory import ConversationMemory
from turnwise.sized_cache import SizedTable, count_cached_bytes, make_digest

CHAT = [{"role": "user", "content": "Hi"}]


def _make_tools(number: int) -> list[dict[str, Any]]:
    properties = {f"p{index}": {"type": "string", "description": "x" * 80} for index in range(8)}
    parameters = {"type": "object", "properties": properties}
    return [
        {"type": "function", "function": {"name": f"f{number}_{index}", "parameters": parameters}}
        for index in range(300)
    ]


@pytest.mark.filterwarnings("ignore")
def test_options_that_nothing_reads_leave_nothing() -> None:
    template = turnwise.load("qwen3")
    template.encode(CHAT, "turnwise", add_generation_prompt=True)
    before = count_cached_bytes()
    tracemalloc.start()
    for number in range(12):
        option = f"{number}" + "y" * 1_000_000
        template.encode(CHAT, "turnwise", add_generation_prompt=True, unread=option)
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 3_000_000
    assert count_cached_bytes() - before < 10_000


def test_tools_are_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools_cache, "_PREPARED", SizedTable(MAX_CACHE_BYTES))
    memory = ConversationMemory(2**20)
    prepared_tools(_make_tools(0))
    assert memory.size > 0
    for number in range(1, 16):
        prepared_tools(_make_tools(number))
    assert 0 < memory.size < MAX_CACHE_BYTES + MAX_KEY_BYTES + 2**20 == 41 << 20


def test_conversations_get_what_caches_leave() -> None:
    template, memory = turnwise.load("chatml"), ConversationMemory(10**6)

    def encode(growing: Any) -> Any:
        return template.encode(CHAT, "turnwise", growing=growing)

    memory.keep(memory.encode("key", CHAT, encode)[1])
    assert len(memory) == 1
    table: SizedTable[str] = SizedTable(16 * 10**6)
    table.keep("tools", "", 10**6)
    memory.keep(memory.encode("other", CHAT, encode)[1])
    assert len(memory) == 0 and memory.size >= 10**6


def test_a_digest_tells_types_and_order_apart() -> None:
    values = [1, True, 1.0, "1", [1], (1,), {"a": 1, "b": 2}, {"b": 2, "a": 1}, None, object]
    assert len(set(map(make_digest, values))) == len(values)
    assert make_digest({"a": ["x" * 3]}) == make_digest({"a": ["xxx"]})

"""How many tokens of an agent's prompts are computed again, although they were computed before, and why?

    python examples/cache_ledger.py TRACE.jsonl TEMPLATE TOKENIZER

Each line of the trace is the body of a request, for Chat Completions, Responses, Anthropic's Messages or Gemini. A
server reuses the tokens that a prompt has in common with the one that it continues; the others of that one are lost:

* the request changed its history: a clock or a reminder near the front, other tools, compaction;
* or the template writes history differently once more messages follow.

A request continues the earlier one with which it shares most messages, wherever they stand. Then other ways are priced:
changed text as a late system message, the places of late system texts (`late_system`), the options that
`turnwise.stability` found, and the caches of vendors (`vendor_caches.toml`). Without arguments, a short trace is made
up.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

import turnwise
from turnwise.errors import TurnwiseError

REQUESTS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "system", "content": f"Answer briefly. It is 12:0{number}."},
            {"role": "user", "content": "When is high tide?"},
            {"role": "assistant", "content": "At noon.", "reasoning_content": "The moon is high."},
            {"role": "user", "content": "And then?"},
            {"role": "assistant", "content": "At midnight.", "reasoning_content": "In 12 hours."},
            {"role": "user", "content": "Thanks."},
        ][: 2 * number]
    }
    for number in (1, 2, 3)
]
TIMES = ("time", "created", "created_at", "timestamp")  # columns with seconds
SYSTEM_ROLES = ("system", "developer")
CHANGED = "as a late system text"
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Request(NamedTuple):
    """One line of a trace, whatever API it was for."""

    messages: list[dict[str, Any]]
    tools: list[Any] | None = None
    time: float | None = None

    @property
    def keys(self) -> list[str]:
        """The messages as texts that can be compared."""
        return [json.dumps(one, sort_keys=True, default=str) for one in self.messages]


class Row(NamedTuple):
    """What one request costs: tokens of its prompt, those reused, those lost of the prompt before, and why."""

    tokens: int
    reused: int
    lost: int
    why: str = ""


def read_requests(rows: Sequence[Any]) -> list[Request]:
    """Read the bodies of requests."""
    found = []
    for row in rows:
        parsed = turnwise.shapes.conversation(row)
        time = next((parsed.rest[name] for name in TIMES if name in parsed.rest), None)
        found.append(Request(parsed.messages, parsed.tools, time))
    return found


def find_previous(requests: Sequence[Request], number: int) -> int | None:
    """Return which earlier request one continues: it has half of its messages or more, and the most of all."""
    now = Counter(requests[number].keys)
    best, most = None, 0
    for index, earlier in enumerate(requests[:number]):
        keys = earlier.keys
        shared = (Counter(keys) & now).total()
        if 2 * shared >= len(keys) and shared >= most:
            best, most = index, shared
    return best


def explain(before: Request, after: Request) -> tuple[str, str]:
    """Return why the prompts of two requests differ, and the text that is new in a changed message."""
    if before.tools != after.tools:
        old, new = (sorted(json.dumps(one) for one in side.tools or []) for side in (before, after))
        return ("the tools are in another order" if old == new else "the tools changed"), ""
    for index, (old, new) in enumerate(zip(before.messages, after.messages, strict=False)):
        if old == new:
            continue
        missing = (Counter(before.keys) - Counter(after.keys)).total()
        if missing > 1 or old.get("role") != new.get("role"):
            return f"{missing} messages from messages[{index}] on were replaced: compaction", ""
        was, now = (find_new(one, other) for one, other in ((old, new), (new, old)))
        name = f"messages[{index}], of the role {new.get('role')},"
        is_early = index < len(before.messages) - 1 or new.get("role") in SYSTEM_ROLES
        is_movable = is_early and new.get("role") in (*SYSTEM_ROLES, "user")
        return f"{name} changed: {was!r} became {now!r}", now if is_movable else ""
    if len(after.messages) < len(before.messages):
        return "the last messages were left out", ""
    return "the template writes earlier text differently now", ""


def find_new(message: dict[str, Any], other: dict[str, Any]) -> str:
    """Return the sentences of a message that another does not have."""
    one, two = (SENTENCE.split(str(side.get("content") or "")) for side in (message, other))
    return " ".join(text for text in one if text not in two)


def count_tokens(
    template: turnwise.Template, tokenizer: Any, requests: Sequence[Request], **options: Any
) -> list[Row]:
    """Return what each request costs a server that keeps the prompts of all requests before it."""
    prompts: list[tuple[list[int], int]] = []  # ids, and how many are before the generation prompt
    rows = []
    for number, request in enumerate(requests):
        ids, whole = (
            template.encode(
                request.messages,
                tokenizer,
                tools=request.tools,
                add_generation_prompt=is_prompt,
                add_stop=False,
                **options,
            ).input_ids
            for is_prompt in (True, False)
        )
        prompts.append((ids, len(commonprefix([ids, whole]))))
        previous = find_previous(requests, number)
        if previous is None:
            rows.append(Row(len(ids), 0, 0))
            continue
        earlier, end = prompts[previous]
        reused = len(commonprefix([earlier, ids]))
        lost = max(0, end - reused)
        why = explain(requests[previous], request)[0] if lost else ""
        rows.append(Row(len(ids), reused, lost, why))
    return rows


def move_changes(requests: Sequence[Request]) -> list[Request]:
    """Return requests in which a changed system text stays as it was, and what is new of it is sent late."""
    moved: list[Request] = []
    for number, request in enumerate(requests):
        previous = find_previous(requests, number)
        if previous is None:
            moved.append(request)
            continue
        before = requests[previous].messages
        _, text = explain(requests[previous], request)
        if not text and before != request.messages[: len(before)]:
            moved.append(request)
            continue
        added = request.messages[len(before) :]
        late = [{"role": "system", "content": text}] if text else []
        known = moved[previous].messages
        moved.append(request._replace(messages=[*known, *added[:-1], *late, *added[-1:]]))
    return moved


def list_items(request: Request, order: Sequence[str]) -> Iterator[str]:
    """Yield what a vendor compares, in its order: tools, system texts at the front, the other messages."""
    keys = request.keys
    front = [message.get("role") in SYSTEM_ROLES for message in request.messages]
    end = front.index(False) if False in front else len(front)
    parts = {
        "tools": [json.dumps(tool) for tool in request.tools or []],
        "system": keys[:end],
        "messages": keys[end:],
    }
    for name in order:
        yield from parts[name]


def price(cache: dict[str, Any], requests: Sequence[Request], tokenizer: Any) -> tuple[float, int]:
    """Return what all requests cost with a vendor's cache and without, in the price of an input token."""
    known: list[tuple[list[str], float | None]] = []
    cost, whole = 0.0, 0
    for request in requests:
        items = list(list_items(request, cache["order"]))
        counts = [len(turnwise.tokens.tokenizers.tokenizer(tokenizer).whole(one)) for one in items]
        live = [
            earlier
            for earlier, time in known
            if time is None or request.time is None or request.time - time <= cache["seconds"]
        ]
        common = max((len(commonprefix([earlier, items])) for earlier in live), default=0)
        cached = sum(counts[:common]) // cache["step"] * cache["step"]
        cached = cached if cached >= cache["minimum"] else 0
        total = sum(counts)
        write = cache["write"] if total >= cache["minimum"] else 1.0
        cost += cache["read"] * cached + write * (total - cached)
        whole += total
        known.append((items, request.time))
    return cost, whole


def try_ways(template: turnwise.Template, tokenizer: Any, requests: list[Request]) -> Iterator[str]:
    """Yield what other ways would lose."""
    ways: list[tuple[str, list[Request], dict[str, Any]]] = []
    moved = move_changes(requests)
    is_changed = moved != requests
    if is_changed:
        ways.append((CHANGED, moved, {}))
    roles = {message.get("role") for one in moved for message in one.messages[1:]}
    for policy in ("in_place", "user", "front") if roles & {*SYSTEM_ROLES} else ():
        name = f"{CHANGED}, late_system={policy!r}" if is_changed else f"late_system={policy!r}"
        ways.append((name, moved, {"late_system": policy}))
    found = turnwise.stability(template, tokenizer)
    ways += [(f"with {name}={value!r}", requests, {name: value}) for name, value in found.options]
    for name, chats, options in ways:
        try:
            rows = count_tokens(template, tokenizer, chats, **options)
        except TurnwiseError as error:
            yield f"{name}: refused, {error.message}"
        else:
            yield f"{name}: {sum(row.lost for row in rows)} lost"


def main() -> None:
    given, name, tokenizer = REQUESTS, "qwen3.6", "turnwise"
    if len(sys.argv) == 4:
        lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
        given, name, tokenizer = [json.loads(line) for line in lines if line], *sys.argv[2:]
    warnings.simplefilter("ignore", turnwise.TurnwiseWarning)
    template, requests = turnwise.load(name), read_requests(given)
    for row in count_tokens(template, tokenizer, requests):
        why = f": {row.why}" if row.why else ""
        print(f"{row.tokens} tokens, {row.reused} reused, {row.lost} lost{why}")
    for line in try_ways(template, tokenizer, requests):
        print(line)
    caches = Path(__file__).with_name("vendor_caches.toml").read_text(encoding="utf-8")
    for cache in tomllib.loads(caches)["cache"]:
        cost, whole = price(cache, requests, tokenizer)
        print(f"{cache['name']}: {cost:,.0f} for {whole:,} tokens of requests, about")


if __name__ == "__main__":
    main()

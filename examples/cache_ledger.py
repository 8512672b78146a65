"""How many tokens of an agent's prompts does a server compute again, although it had computed them before?

    python examples/cache_ledger.py TRACE.jsonl TEMPLATE TOKENIZER

Each line of the trace is a request: `{"messages": [...], "tools": [...]}`. A server reuses the tokens that a prompt has
in common with the one before it; the others that the earlier prompt had are lost: the request changed its history, or
the template writes it differently once more messages follow. Options that `turnwise.stability` found are tried.
Without arguments, a short made-up trace shows what the template of Qwen 3.6 does with reasoning.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import turnwise

CHAT = [
    {"role": "user", "content": "When is high tide?"},
    {"role": "assistant", "content": "At noon.", "reasoning_content": "The moon is high."},
    {"role": "user", "content": "And then?"},
    {"role": "assistant", "content": "At midnight.", "reasoning_content": "Twelve hours."},
    {"role": "user", "content": "Thanks."},
]
REQUESTS = [{"messages": CHAT[:length]} for length in (3, 5)]


def count_tokens(
    template: turnwise.Template, tokenizer: str, requests: list[dict[str, Any]], **options: Any
) -> list[tuple[int, int, int]]:
    """Return the tokens of each prompt, those it has in common with the one before, and those that are lost."""
    before: list[int] = []
    rows = []
    for request in requests:
        messages, tools = request["messages"], request.get("tools")
        prompt = template.encode(
            messages, tokenizer, tools=tools, add_generation_prompt=True, **options
        )
        ids = prompt.input_ids
        pairs = zip(before, ids, strict=False)
        reused = next((at for at, (old, new) in enumerate(pairs) if old != new), None)
        reused = min(len(before), len(ids)) if reused is None else reused
        rows.append((len(ids), reused, len(before) - reused))
        before = ids
    return rows


def main() -> None:
    requests, name, tokenizer = REQUESTS, "qwen3.6", "turnwise"
    if len(sys.argv) == 4:
        lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
        requests, name, tokenizer = [json.loads(line) for line in lines], *sys.argv[2:]
    template = turnwise.load(name)
    for tokens, reused, lost in count_tokens(template, tokenizer, requests):
        print(f"{tokens} tokens, {reused} reused, {lost} lost")
    for option, value in turnwise.stability(template).options:
        rows = count_tokens(template, tokenizer, requests, **{option: value})
        print(f"with {option}={value!r}: {sum(row[2] for row in rows)} lost")


if __name__ == "__main__":
    main()

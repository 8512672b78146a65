"""What the next turn of a long agent's conversation costs: `python benchmarks/turns.py`.

A conversation with tools, calls and results has about 4,000 ids, another about 44,000. Then results come in one by one,
and each time the ids of the prompt are wanted, by `encode(growing=...)`, by `encode`, and by transformers. Figures: the
median turn in milliseconds of processor time, the long conversation over the short one, and at 44,000 ids how many
times as long transformers takes, and how many times as long as the tokenizer alone `encode` takes, which nobody sees
twice. A turn that costs as much as its last message has the same figure for both sizes. The same for `encode` where
each message of the assistant has a thought, which most templates write after the last question only: every question
changes what was written before.

Each template has the vocabulary of one tokenizer, with its own control tokens added. A way that gives other ids, or
fails, is left out.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Any

import encode
import measure
import workloads

ENTRIES = ("qwen3", "qwen3-coder", "llama-3.1", "deepseek-v3.1", "glm-4.5", "gpt-oss")
# Messages, characters of each text, characters of a thought.
SIZES = {"4k": (16, 1_000, 0), "44k": (150, 1_400, 0), "44k, thoughts": (150, 1_400, 300)}
TURNS, QUICK = 20, 6
CONTROL = re.compile(r"<\|[^<>|]{1,40}\|>|<｜[^<>]{1,40}｜>|</?[a-z_]{3,20}>|\[gMASK\]|<sop>")


def write_tokenizer(text: str, folder: Path) -> Path:
    """Write a tokenizer file that has the control tokens of a template, and return its path."""
    source = workloads.tokenizer_folder(encode.TOKENIZER) / "tokenizer.json"
    table = json.loads(source.read_text(encoding="utf-8"))
    known = {row["content"] for row in table["added_tokens"]}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    for token in sorted(set(CONTROL.findall(text)) - known):
        number = max(row["id"] for row in table["added_tokens"]) + 1
        row = {"id": number, "content": token, **flags, "special": True}
        table["added_tokens"].append(row)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    return path


def make_chat(count: int, size: int, thought: int, turns: int) -> list[dict[str, Any]]:
    """Return so many messages up to a question, and then calls with their results."""
    pages, dice = encode.Pages(), workloads.Dice(count)
    chat: list[dict[str, Any]] = [{"role": "system", "content": "You are a coding agent."}]
    while len(chat) < count:
        chat.append({"role": "user", "content": pages.prose(dice, size)})
        chat += [message for _ in range(3) for message in make_call(len(chat), pages, dice, size)]
        chat.append({"role": "assistant", "content": pages.prose(dice, size)})
    chat.append({"role": "user", "content": pages.prose(dice, size)})
    chat += [one for n in range(turns) for one in make_call(900 + n, pages, dice, size)]
    for message in chat:
        if thought and message["role"] == "assistant":
            message["reasoning_content"] = pages.prose(dice, thought)
    return chat


def make_call(number: int, pages: encode.Pages, dice: Any, size: int) -> list[dict[str, Any]]:
    arguments = {"path": pages.prose(dice, 60)}
    call = {"id": f"call{number:05d}", "type": "function"}
    call["function"] = {"name": encode.tools()[0]["function"]["name"], "arguments": arguments}
    result = {"role": "tool", "tool_call_id": call["id"], "content": pages.prose(dice, size)}
    return [{"role": "assistant", "content": "", "tool_calls": [call]}, result]


def list_ways(name: str, file: Path) -> dict[str, Callable[[Any], list[int]]]:
    """Return the ways to get the ids of a prompt."""
    from transformers import PreTrainedTokenizerFast

    import turnwise
    from turnwise.tokens.growing import GrowingPrompt
    from turnwise.tokens.tokenizers import tokenizer

    template, growing = turnwise.load(name), GrowingPrompt()
    own = tokenizer(file.parent, backend="fastokens")
    peer = PreTrainedTokenizerFast(tokenizer_file=str(file), chat_template=template.text)
    given: dict[str, Any] = {"tools": encode.tools(), "add_generation_prompt": True}
    return {
        "growing": lambda chat: template.encode(chat, own, growing=growing, **given).input_ids,
        "encode": lambda chat: template.encode(chat, own, **given).input_ids,
        "transformers": lambda chat: peer.apply_chat_template(chat, return_dict=False, **given),
    }


def time_turns(way: Callable[[Any], list[int]], chat: list[dict[str, Any]], turns: int) -> float:
    """Return the milliseconds of the median turn; the first ones are not counted."""
    spent = []
    for end in range(len(chat) - 2 * turns, len(chat) + 1, 2):
        start = process_time_ns()
        way(chat[:end])
        spent.append((process_time_ns() - start) / 1e6)
    return median(spent[3:])


def encode_text(raw: Any, text: str, chat: Any) -> list[int]:
    """Return the ids of a whole prompt that was rendered before."""
    ids: list[int] = raw.encode(text).ids
    return ids


def gives(way: Callable[[Any], list[int]], chat: list[dict[str, Any]], ids: list[int]) -> bool:
    try:
        return way(chat) == ids
    except (
        Exception
    ):  # of a template that needs a form or a token which transformers does not give it
        return False


def measure_entry(name: str, turns: int) -> dict[str, dict[str, float]]:
    """Return the milliseconds of a turn by size and way; a way that gives other ids is left out."""
    import fastokens

    import turnwise

    found: dict[str, dict[str, float]] = {}
    template = turnwise.load(name)
    for size, (count, length, thought) in SIZES.items():
        chat = make_chat(count, length, thought, turns)
        with tempfile.TemporaryDirectory() as folder:
            file = write_tokenizer(template.text, Path(folder))
            ways = list_ways(name, file)
            ways = {"encode": ways["encode"]} if thought else ways
            raw = fastokens.Tokenizer.from_file(str(file))
        wanted = ways["encode"](chat)
        same = [way for way, run in ways.items() if gives(run, chat, wanted)]
        text = str(template.render(chat, tools=encode.tools(), add_generation_prompt=True))
        gc.collect()
        gc.disable()
        found[size] = {way: time_turns(ways[way], chat, turns) for way in same}
        found[size]["fastokens"] = time_turns(partial(encode_text, raw, text), chat, turns)
        gc.enable()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="The next turn of a long conversation, as ids.")
    parser.add_argument("--quick", action="store_true", help="fewer turns, noisier figures")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--entries", nargs="+", default=ENTRIES, help="entries of the registry")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {name: measure_entry(name, QUICK if asked.quick else TURNS) for name in asked.entries}
    grown = {name: one["44k"]["growing"] / one["4k"]["growing"] for name, one in found.items()}
    if asked.json:
        print(json.dumps({"versions": measure.versions(), "ms": found, "44k : 4k": grown}))
        return 0
    rows = []
    for name, one in found.items():
        long, peer = one["44k"], one["44k"].get("transformers")
        rows.append(
            [name, f"{one['4k']['growing']:.2f}", f"{long['growing']:.2f}", f"{grown[name]:.1f}"]
            + [f"{long['encode']:.1f}", f"{long['encode'] / long['fastokens']:.1f}"]
            + [f"{one['44k, thoughts']['encode']:.1f}"]
            + [measure.shown(peer and peer / long["growing"])]
        )
    head = [
        "",
        "4k: ms a turn",
        "44k: ms a turn",
        "44k : 4k",
        "encode: ms",
        "encode : fastokens",
        "thoughts: ms",
        "transformers : growing",
    ]
    print(measure.table(head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

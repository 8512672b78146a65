"""How long a parser needs for a long reply that comes in small chunks: `python benchmarks/parse.py`.

A reply of 1 MB for each of six argument syntaxes, and some that are all white space, beginnings of markers or brackets,
in chunks of 1 and 4 characters and in chunks the size of tokens. With `--families`: many small calls, one list of
numbers, and braces, for each way in which calls are written, in chunks of 1 character.
Four figures for each, all ratios, since only those mean something on a busy machine:

    floor    time over that of a loop that only keeps the chunks and returns a list: what any parser must spend
    double   time for the whole reply over that for half of it; with `--check`, more than LIMIT fails the run
    again    time of parsing from the start once every 1,000 chunks over ours, as servers do whose parser cannot
             stream; measured on a tenth of the reply and scaled up: the work grows with the square of the length
    peer     time of transformers' streaming parser over ours, with the grammar in its words, on a fiftieth of the
             reply: it looks through all that is open again for every chunk; - where its words do not say the grammar

Processor time is measured, with the garbage collector off.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from transformers.utils.chat_parsing import ResponseParser

from reply_grammars import GRAMMARS
from turnwise.errors import TurnwiseError
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.parser import Parser
from turnwise.replies.write import write

SIZE = 1_000_000
EVERY = 1_000
PART = 10
LITTLE = 50
LIMIT = 2.2
WORDS = "The weather in Paris is fine today: 20 degrees, a < b, “so” it says;\nsee there.\n\n"


def prose(size: int) -> str:
    return (WORDS * (size // len(WORDS) + 1))[:size]


def replies(size: int) -> dict[str, tuple[str, str]]:
    """Of each syntax: a grammar and a reply of about `size` characters."""
    text = prose(size)
    quoted = json.dumps({"x": text}, ensure_ascii=False)
    lines = f"<parameter=x>\n{text}\n</parameter>"
    return {
        "json call": (
            "qwen3",
            f'<tool_call>\n{{"name": "f", "arguments": {quoted}}}\n</tool_call>',
        ),
        "json between markers": (
            "deepseek-v3.1",
            f"<｜tool▁call▁begin｜>f<｜tool▁sep｜>{quoted}<｜tool▁call▁end｜>",
        ),
        "json list": (
            "mistral-nemo",
            f'[TOOL_CALLS][{{"name": "f", "arguments": {quoted}, "id": "abcdefghi"}}]',
        ),
        "tagged": (
            "qwen3.5",
            f"</think>\n\n<tool_call>\n<function=f>\n{lines}\n</function>\n</tool_call>",
        ),
        "quoted": ("gemma-4", f'<|tool_call>call:f{{x:<|"|>{text}<|"|>}}<tool_call|>'),
        "python": ("lfm2", f"<|tool_call_start|>[f(x={text!r})]<|tool_call_end|>"),
        "no call": ("qwen3", text),
        "numbers": (
            "qwen3",
            in_call(json.dumps([number % 10_007 for number in range(0, size * 37 // 6, 37)])),
        ),
        "objects": ("qwen3", in_call(json.dumps([{"a": {"b": [1, {"c": True}]}}] * (size // 32)))),
        "spaces": ("qwen3", " " * size),
        "lines": ("qwen3", "\n" * size),
        "beginnings": ("qwen3", "<" * size),
    }


def family_replies(grammar: Grammar, size: int) -> dict[str, str]:
    """Replies of about `size` characters that cost a parser most: calls that are all structure, numbers, brackets."""

    def written(arguments: list[dict[str, object]]) -> str:
        calls = [
            {"id": f"id{number:07}", "function": {"name": "get_weather", "arguments": members}}
            for number, members in enumerate(arguments)
        ]
        return write(grammar, {"role": "assistant", "tool_calls": calls})

    small: dict[str, object] = {"city": "Oslo", "days": 3}
    one_call = len(written([small, small])) - len(written([small]))
    numbers = [number % 10_007 for number in range(0, size * 37 // 6, 37)]
    return {
        "small calls": written([small] * max(1, size // max(1, one_call))),
        "numbers": written([{"x": numbers}]),
        "digits": written([{"x": [1] * (size // 3)}]),
        "braces": "{" * size,
        "braces in a text": written([{"x": "{" * size}]),
    }


def family_row(name: str, kind: str, size: int, rounds: int) -> dict[str, object]:
    """Return the seconds per MB and the growth, of one way of writing calls."""
    grammar = GRAMMARS[name]
    reply, half = (family_replies(grammar, part)[kind] for part in (size, size // 2))
    times = [
        (
            spent(lambda: stream(name, reply)),
            spent(lambda: stream(name, half)),
            spent(lambda: Parser(grammar).read(reply)),
        )
        for _ in range(rounds)
    ]
    streamed, less, whole = (min(column) for column in zip(*times, strict=True))
    return {
        "syntax": f"{name}: {kind}", "chunks": "1", "s/MB": round(streamed / len(reply) * 1e6, 2),
        "double": round(streamed / less * 2 * len(half) / len(reply), 2),
        "whole s/MB": round(whole / len(reply) * 1e6, 2),
    }  # fmt: skip


def in_call(value: str) -> str:
    return f'<tool_call>\n{{"name": "f", "arguments": {{"x": {value}}}}}\n</tool_call>'


def chunks(text: str, kind: str) -> list[str]:
    if kind != "tokens":
        size = int(kind)
        return [text[at : at + size] for at in range(0, len(text), size)]
    sizes, at, found = random.Random(0), 0, []
    while at < len(text):
        size = sizes.choice((1, 2, 3, 4, 4, 5, 6, 7))
        found.append(text[at : at + size])
        at += size
    return found


def spent(run: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()
    start = time.process_time()
    run()
    used = time.process_time() - start
    gc.enable()
    return used


def floor(parts: Sequence[str]) -> None:
    kept: list[str] = []

    def feed(chunk: str) -> list[str]:
        kept.append(chunk)
        return [chunk]

    for part in parts:
        feed(part)


def stream(grammar: str, parts: Sequence[str]) -> None:
    parser = Parser(GRAMMARS[grammar])
    for part in parts:
        parser.feed(part)
    parser.close()


def again(grammar: str, parts: Sequence[str]) -> None:
    text = ""
    for at, part in enumerate(parts):
        text += part
        if at % EVERY == 0:
            Parser(GRAMMARS[grammar]).read(text)


def peer(grammar: str, parts: Sequence[str]) -> float | None:
    """Their time over ours; None if they cannot read it."""
    try:
        exported = GRAMMARS[grammar].to_response_template(partly=True)
    except TurnwiseError:
        return None

    def theirs() -> None:
        parser = ResponseParser(exported, prefix=GRAMMARS[grammar].opening)
        for part in parts:
            parser.feed(part)
        parser.finalize()

    times = [(spent(theirs), spent(lambda: stream(grammar, parts))) for _ in range(2)]
    return min(time for time, _ in times) / min(time for _, time in times)


def row(name: str, kind: str, size: int, rounds: int) -> dict[str, object]:
    grammar, reply = replies(size)[name]
    half, part = (
        chunks(replies(size // 2)[name][1], kind),
        chunks(replies(size // PART)[name][1], kind),
    )
    parts = chunks(reply, kind)
    times = [
        (
            spent(lambda: stream(grammar, parts)),
            spent(lambda: floor(parts)),
            spent(lambda: stream(grammar, half)),
        )
        for _ in range(rounds)
    ]
    whole, least, less = (min(column) for column in zip(*times, strict=True))
    over = spent(lambda: again(grammar, part)) * PART**2
    ratio = peer(grammar, chunks(replies(size // LITTLE)[name][1], kind))
    return {
        "syntax": name, "chunks": kind, "seconds": round(whole, 2), "floor": round(whole / least, 1),
        "double": round(whole / less, 2), "again": round(over / whole),
        "peer": "-" if ratio is None else round(ratio, 1),
    }  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--quick", action="store_true", help="a tenth of the size; for a look, not for a claim"
    )
    options.add_argument("--families", action="store_true", help="every way of writing calls")
    options.add_argument("--json", action="store_true")
    options.add_argument("--check", action="store_true", help=f"exit with 1 if double > {LIMIT}")
    given = options.parse_args()
    size, rounds = (SIZE // 10, 2) if given.quick else (SIZE, 3)
    kinds = ("1", "4", "tokens")
    if given.families:
        rows = [
            family_row(name, kind, size, rounds)
            for name, grammar in GRAMMARS.items()
            for kind in family_replies(grammar, 1)
        ]
    else:
        rows = [row(name, kind, size, rounds) for kind in kinds for name in replies(1)]
    if given.json:
        print(json.dumps(rows, ensure_ascii=False))
    else:
        for line in rows:
            print(
                *(
                    f"{key} {value}".ljust(28 if key == "syntax" else 16)
                    for key, value in line.items()
                )
            )
    is_missed = any(float(str(line["double"])) > LIMIT for line in rows)
    return 1 if given.check and is_missed else 0


if __name__ == "__main__":
    sys.exit(main())

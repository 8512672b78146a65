"""Ids and loss mask of a conversation, against everyone who makes them: `python benchmarks/encode.py`.

    turnwise       template.encode: ids, then labels
    transformers   apply_chat_template with return_assistant_tokens_mask, on a template with generation tags; TRL's
                   assistant-only loss is this call, on these templates
    renderers      its hand-written Qwen3 renderer: ids and who wrote each
    tokenizers     encode of the finished text, nothing else: no rendering, no mask
    fastokens      the same with the fast library

The template is Qwen3's with generation tags (TRL's), for transformers has no mask without them; turnwise gets the
same text and does not look at the tags. Nobody sees a text twice: every call of every contestant has a conversation
of its own, cut from the sources of Python's standard library, which are prose and code of many kinds. All contestants
get the same conversations, some at a time, in turns, in an order that rotates; two are compared turn by turn, and the
median ratio counts. Each has encoded forty conversations of the kind before, as in the middle of a data set whose rows
have few forms; turnwise has learned the layout of the form then. No two of (d) have one form: it is (c), with calls in
other rounds of each conversation. Ids and mask are compared with transformers' before the clock runs (the mask up to
the line break behind a stop, which TRL trains and turnwise does not).

The goals are in `goals.toml`.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import measure
import workloads

TEMPLATE, TOKENIZER = "trl-qwen3_training", "qwen3"
TURNS, QUICK = 15, 5
AT_ONCE = {"a": 40, "b": 12, "c": 3, "d": 3}  # conversations in one turn of a contestant
BEFORE = 40  # conversations that each encodes before the clock runs, as many rows of a data set have one form
Contestant = Callable[[workloads.Conversation, str], Any]


@cache
def library() -> str:
    """Text that no tokenizer has seen in this run: the standard library's sources, one after another."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in folder.glob("*.py")) + sorted(folder.glob("*/*.py"))
    texts = (
        path.read_text(encoding="utf-8", errors="ignore")
        for path in files
        if "test" not in path.parts
    )
    return "".join(texts)


class Pages:
    """Successive cuts of the library, none given twice."""

    def __init__(self) -> None:
        self.at = 0
        self.forms = 0

    def prose(self, dice: workloads.Dice, length: int) -> str:
        text = library()
        self.at = (self.at + length) % (len(text) - 100_000)
        return text[self.at : self.at + length - 1].strip().ljust(length - 1, "x") + "."


def remove_calls(messages: list[dict[str, Any]], form: int) -> list[dict[str, Any]]:
    """Return a conversation without the calls of some rounds, which are the bits of a number."""
    first, *rest = messages
    rounds = [rest[start : start + 4] for start in range(0, len(rest), 4)]
    kept = [one[::3] if form >> index & 1 else one for index, one in enumerate(rounds)]
    return [first, *(message for one in kept for message in one)]


def conversations(kind: str, count: int, pages: Pages) -> Iterator[workloads.Conversation]:
    """Conversations of one kind; those with calls share their tools, as the requests of one application do."""
    before = workloads.prose
    for seed in range(count):
        workloads.prose = pages.prose
        try:
            made = workloads.WORKLOADS["c" if kind == "d" else kind](seed)
        finally:
            workloads.prose = before
        messages = made.messages
        if kind == "d":
            pages.forms += 1
            messages = remove_calls(messages, pages.forms)
        yield workloads.Conversation(messages, made.tools and tools(), made.add_generation_prompt)


def tools() -> list[dict[str, Any]]:
    return [workloads.tool(workloads.Dice(number), number) for number in range(10)]


def contestants(template: str, folder: Path) -> dict[str, Contestant]:
    import fastokens
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    import turnwise
    from turnwise.tokens.tokenizers import tokenizer

    file = str(folder / "tokenizer.json")
    peer = PreTrainedTokenizerFast(
        tokenizer_file=file, eos_token="<|im_end|>", chat_template=template
    )
    raw, fast = tokenizers.Tokenizer.from_file(file), fastokens.Tokenizer.from_file(file)
    own = tokenizer(folder, backend="fastokens")  # loaded at once, and not after some text
    compiled = turnwise.compile(template)

    def ours(chat: workloads.Conversation, text: str) -> Any:
        found = compiled.encode(
            chat.messages, own, tools=chat.tools, add_generation_prompt=chat.add_generation_prompt
        )
        return found.input_ids, found.labels

    def transformers(chat: workloads.Conversation, text: str) -> Any:
        found = peer.apply_chat_template(
            chat.messages,
            tools=chat.tools,
            add_generation_prompt=chat.add_generation_prompt,
            return_assistant_tokens_mask=True,
        )
        return found["input_ids"], found["assistant_masks"]

    found: dict[str, Contestant] = {
        "turnwise": ours,
        "transformers": transformers,
        "tokenizers": lambda chat, text: raw.encode(text, add_special_tokens=False).ids,
        "fastokens": lambda chat, text: fast.encode(text).ids,
    }
    renderer = hand_written(peer)
    if renderer is not None:
        found["renderers"] = lambda chat, text: renderer.render(
            chat.messages, tools=chat.tools, add_generation_prompt=chat.add_generation_prompt
        )
    return found


def hand_written(peer: Any) -> Any:
    """The Qwen3 renderer of the `renderers` package, if it can be had."""
    try:
        from renderers.qwen3 import Qwen3Renderer

        return Qwen3Renderer(peer)
    except Exception as error:  # a peer that cannot be set up is left out, and named
        print(f"renderers is left out: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def agree(run: dict[str, Contestant], chat: workloads.Conversation) -> None:
    """The same ids, and a mask that differs at line breaks behind stops at most."""
    ids, labels = run["turnwise"](chat, "")
    expected, mask = run["transformers"](chat, "")
    if ids != expected:
        raise SystemExit("the ids differ from those of transformers")
    if not any(mask):  # a template without {% generation %}: transformers has no mask for it
        return
    for index, (label, trained) in enumerate(zip(labels, mask, strict=True)):
        if (label != -100) != bool(trained) and not (
            trained and mask[index - 1] and labels[index - 1] != -100
        ):
            raise SystemExit(f"the mask differs at token {index}")


def times(run: dict[str, Contestant], kind: str, turns: int) -> dict[str, list[int]]:
    """Nanoseconds for each turn, by contestant."""
    import turnwise

    render, size = turnwise.compile(template_text()).render, AT_ONCE[kind]
    found: dict[str, list[int]] = {name: [] for name in run}
    names, pages = list(run), Pages()
    for turn in range(turns + 1):
        chats = list(conversations(kind, size if turn else BEFORE, pages))
        texts = [
            str(
                render(
                    chat.messages,
                    tools=chat.tools,
                    add_generation_prompt=chat.add_generation_prompt,
                )
            )
            for chat in chats
        ]
        pairs = list(zip(chats, texts, strict=True))
        gc.collect()
        gc.disable()
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            call = run[name]
            start = perf_counter_ns()
            for chat, text in pairs:
                call(chat, text)
            found[name].append(perf_counter_ns() - start)
        gc.enable()
        if turn == 0:  # to warm up, and to compare
            agree(run, chats[0])
            found = {name: [] for name in run}
    return found


def template_text() -> str:
    (subject,) = workloads.subjects([TEMPLATE])
    return subject.text


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Ids and mask: how many times as fast as the others."
    )
    parser.add_argument("--quick", action="store_true", help="fewer conversations")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args()
    run = contestants(template_text(), workloads.tokenizer_folder(TOKENIZER))
    ratios: dict[str, dict[str, float]] = {}
    for kind in AT_ONCE:
        found = times(run, kind, QUICK if asked.quick else TURNS)
        ratios[kind] = {
            name: measure.ratio(spent, found["turnwise"]) for name, spent in found.items()
        }
    if asked.json:
        print(
            json.dumps(
                {"versions": measure.versions(), "times as long as turnwise": ratios}, indent=2
            )
        )
    else:
        rows = [
            [f"({kind})", *(measure.shown(row[name]) for name in run)]
            for kind, row in ratios.items()
        ]
        print("Time of each, turnwise = 1.\n\n" + measure.table(["workload", *run], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

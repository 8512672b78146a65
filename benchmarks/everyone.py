"""Everyone who makes prompts, in one table: `python benchmarks/everyone.py`.

Each row is another package that turns a conversation into text or ids, on the format that it is made for, and turnwise
at the same work on the same conversations: workload (b), 7 messages of about 3 KB, cut from the sources of the
standard library, none twice. Both must give the same text or ids before anything counts; a row in which they do not, or
whose package is not there, is left out and named.

    transformers    its rendering, and `apply_chat_template` with ids and mask; TRL's assistant-only loss is that call
    minijinja       the Rust engine's Python package
    renderers       the hand-written renderer of Qwen3: ids, and who wrote each
    mistral-common  a request of Chat Completions becomes ids, with a vocabulary of 20,000 tokens that it ships
    deepseek-recipe DeepSeek V4: a request becomes text
    openai-harmony  gpt-oss: messages become ids; it needs its vocabulary in the folder TIKTOKEN_ENCODINGS_BASE

Every contestant is a process of its own, so that no package sees the threads, caches or pins of another. Processes take
turns, the first of a pair changes from round to round, and processor time is counted, of all threads. The figure is the
median of the ratios, round by round, with their quartiles: how many times as long as turnwise.

`datasets.map`, TRL's trainer and axolotl's loader are in `prepare.py`, vLLM's renderer in `serve.py`, as programs.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import quantiles
from time import process_time_ns
from typing import Any, NamedTuple

import encode
import growing
import measure
import peers
import workloads

ROUNDS, QUICK = 15, 5
TEXTS, CHATS = (
    200,
    24,
)  # conversations in one turn, for text and for ids: some hundredths of a second
VOCABULARY = "fb374d419588a4632f3f557e76b4b70aebbca790"  # as tiktoken calls o200k_base in its cache

Chat = list[dict[str, Any]]
Call = Callable[[Chat], Any]


class Row(NamedTuple):
    """A package, what it makes of a conversation, and how both sides are set up."""

    package: str
    work: str
    model: str
    peer: Callable[[], Call]
    ours: Callable[[], Call]


# -- the sides; each is set up in a process of its own


def render_with(peer: peers.Peer) -> Call:
    subject = qwen3()
    return lambda chat: peer(subject, workloads.Conversation(chat, None, True))()


def render_with_minijinja() -> Call:
    # Its environment is kept, as its users keep it.
    subject, messages = qwen3(), []
    render = peers.minijinja(subject, workloads.Conversation(messages, None, True))

    def call(chat: Chat) -> str:
        messages[:] = chat
        return render()

    return call


def qwen3() -> workloads.Subject:
    return workloads.subjects([encode.TEMPLATE])[0]


def render_entry(name: str) -> Call:
    import turnwise

    template = turnwise.load(name)
    return lambda chat: str(template.render(chat, add_generation_prompt=True))


def render_qwen3() -> Call:
    import turnwise

    template = turnwise.compile(qwen3().text)
    return lambda chat: str(template.render(chat, add_generation_prompt=True))


def encode_with_transformers() -> Call:
    run = encode.contestants(encode.template_text(), workloads.tokenizer_folder(encode.TOKENIZER))[
        "transformers"
    ]
    return lambda chat: run(workloads.Conversation(chat, None, True), "")[0]


def encode_with_renderers() -> Call:
    from renderers import Qwen3RendererConfig, create_renderer

    renderer = create_renderer(growing.stage().reference, Qwen3RendererConfig())
    return lambda chat: renderer.render(chat, add_generation_prompt=True).token_ids


def encode_published() -> Call:
    import turnwise

    stage = growing.stage()
    template = turnwise.compile(stage.text)
    return lambda chat: template.encode(chat, stage.ours, add_generation_prompt=True).input_ids


def encode_qwen3() -> Call:
    run = encode.contestants(encode.template_text(), workloads.tokenizer_folder(encode.TOKENIZER))[
        "turnwise"
    ]
    return lambda chat: run(workloads.Conversation(chat, None, True), "")[0]


def encode_with_mistral() -> Call:
    from mistral_common.protocol.instruct.request import ChatCompletionRequest

    tokenizer = mistral_tokenizer()
    return lambda chat: (
        tokenizer.encode_chat_completion(ChatCompletionRequest.from_openai(chat)).tokens
    )


def encode_mistral() -> Call:
    import turnwise

    template, tokenizer = turnwise.load("mistral-v13"), mistral_tokenizer()
    return lambda chat: template.encode(chat, tokenizer, add_generation_prompt=True).input_ids


def mistral_tokenizer() -> Any:
    from turnwise.oracles import find_oracle

    return find_oracle("mistral-v13").tokenizer


def render_with_deepseek() -> Call:
    import deepseek_recipe

    encoding, options = deepseek_recipe.DeepseekV4Encoding(), deepseek_recipe.ConversionOptions()

    def call(chat: Chat) -> str:
        request = deepseek_recipe.ChatCompletionRequest(
            {"model": "DeepSeek-V4-Pro", "messages": chat}
        )
        return encoding.render_conversation(request.convert(options).conversation).prompt

    return call


def encode_with_harmony() -> Call:
    from openai_harmony import Conversation, Role

    from turnwise.oracles import find_oracle

    oracle = find_oracle("harmony")

    def call(chat: Chat) -> list[int]:
        conversation = Conversation.from_messages(list(oracle._list_messages({"messages": chat})))
        return oracle._encoding.render_conversation_for_completion(conversation, Role.ASSISTANT)

    return call


def encode_harmony() -> Call:
    import tiktoken

    import turnwise

    folder = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
    if not folder:
        raise SystemExit("TIKTOKEN_ENCODINGS_BASE names no folder with its vocabulary, o200k_base")
    with tempfile.TemporaryDirectory() as cache:  # where tiktoken looks for the same file
        source = Path(folder) / "o200k_base.tiktoken"
        shutil.copy(source, Path(cache) / VOCABULARY)
        os.environ["TIKTOKEN_CACHE_DIR"] = cache
        tokenizer = tiktoken.get_encoding("o200k_harmony")
    template = turnwise.load("gpt-oss-harmony")
    return lambda chat: template.encode(chat, tokenizer, add_generation_prompt=True).input_ids


ROWS = {
    "transformers, text": Row(
        "transformers", "text", "Qwen3", lambda: render_with(peers.transformers), render_qwen3
    ),
    "minijinja, text": Row("minijinja", "text", "Qwen3", render_with_minijinja, render_qwen3),
    "transformers, ids and mask": Row(
        "transformers", "ids and mask", "Qwen3", encode_with_transformers, encode_qwen3
    ),
    "renderers, ids and authors": Row(
        "renderers", "ids and authors", "Qwen3", encode_with_renderers, encode_published
    ),
    "mistral-common, ids": Row(
        "mistral-common", "ids", "Mistral v13", encode_with_mistral, encode_mistral
    ),
    "deepseek-recipe, text": Row(
        "deepseek-recipe",
        "text",
        "DeepSeek V4",
        render_with_deepseek,
        lambda: render_entry("deepseek-v4"),
    ),
    "openai-harmony, ids": Row(
        "openai-harmony", "ids", "gpt-oss", encode_with_harmony, encode_harmony
    ),
}


# -- the contest


def work(call: Call) -> None:
    """Answer each line of conversations with the nanoseconds that they took, and a hash of the results."""
    for line in sys.stdin:
        chats = json.loads(line)
        gc.collect()
        gc.disable()
        start = process_time_ns()
        results = [call(chat) for chat in chats]
        spent = process_time_ns() - start
        gc.enable()
        digest = hashlib.sha256(repr([_plain(one) for one in results]).encode()).hexdigest()
        print(json.dumps([spent, digest]), flush=True)


def _plain(result: Any) -> Any:
    return result if isinstance(result, str) else list(result)


class Side:
    """A contestant, in its process."""

    def __init__(self, row: str, side: str) -> None:
        command = [sys.executable, __file__, "--side", row, side]
        pipe = subprocess.PIPE
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment
        )

    def run(self, chats: list[Chat]) -> tuple[int, str]:
        assert self._process.stdin and self._process.stdout and self._process.stderr
        try:
            self._process.stdin.write(json.dumps(chats) + "\n")
            self._process.stdin.flush()
            spent, digest = json.loads(self._process.stdout.readline())
        except (OSError, ValueError):
            said = self._process.stderr.read().strip().splitlines() or ["it ended"]
            raise RuntimeError(said[-1]) from None
        return spent, digest

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def contest(name: str, pages: encode.Pages, rounds: int) -> list[float]:
    """Return how many times as long as turnwise the peer takes, round by round."""
    sides = [Side(name, "peer"), Side(name, "ours")]
    ratios, count = [], TEXTS if ROWS[name].work == "text" else CHATS
    try:
        for turn in range(rounds + 1):
            made = encode.conversations("b", count, pages)
            chats = [until_question(one.messages) for one in made]
            order = sides if turn % 2 else sides[::-1]
            found = {side: side.run(chats) for side in order}
            (theirs, theirs_digest), (ours, ours_digest) = (found[side] for side in sides)
            if theirs_digest != ours_digest:
                raise RuntimeError("it gives another result")
            if turn:  # the first one warms up
                ratios.append(theirs / ours)
    finally:
        for side in sides:
            side.close()
    return ratios


def until_question(messages: Chat) -> Chat:
    """Return the messages up to the last of the user: what a model would answer."""
    last = max(number for number, one in enumerate(messages) if one["role"] == "user")
    return messages[: last + 1]


def main() -> int:
    parser = argparse.ArgumentParser(description="Everyone who makes prompts, in one table.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, noisier figures")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), help="only these")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        warnings.simplefilter("ignore")
        row, side = asked.side
        work(getattr(ROWS[row], side)())
        return 0
    pages, rows, left_out = encode.Pages(), [], {}
    for name in asked.rows:
        row = ROWS[name]
        try:
            version = metadata.version(row.package)
            ratios = contest(name, pages, QUICK if asked.quick else ROUNDS)
        except (RuntimeError, metadata.PackageNotFoundError) as error:
            left_out[name] = f"{type(error).__name__}: {error}"
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        low, middle, high = quantiles(ratios, n=4)
        rows.append(
            {
                **{"package": row.package, "version": version, "work": row.work},
                **{"model": row.model, "low": low, "median": middle, "high": high},
            }
        )
    if asked.json:
        found = {"versions": measure.versions(), "rows": rows, "left out": left_out}
        print(json.dumps(found, indent=2))
    else:
        shown = [
            [f"{row['package']} {row['version']}", row["work"], row["model"]]
            + [f"{row[part]:.2f}" for part in ("median", "low", "high")]
            for row in rows
        ]
        heads = ["processor time, turnwise = 1", "work", "format", "median", "low", "high"]
        print(measure.table(heads, shown))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a conversation of many turns costs, turn by turn: `python benchmarks/growing.py`.

A user says about 200 characters, a model answers with the ids of about 400, and so on for TURNS turns; the prompt is
wanted as ids at every turn. Three ways to get it:

    turnwise       a session: the sampled ids are kept, the step is proved against the template, the new text encoded
    renderers      its bridge for Qwen3: the sampled ids are kept, the new text is written by hand and encoded
    transformers   apply_chat_template on the whole conversation, then ids, at every turn

All must give the same ids at every turn before anything is timed. Conversations are new in every round, so no cache
knows their text; contestants take turns within a round, in an order that rotates. Figures, of processor time: how many
times the total of turnwise the others take, and for each the last 8 turns over the first 8 (the opening turn apart),
which is 1 where a turn costs the same however long the conversation is.

Then the next turns of a conversation that has 1,000 to 128,000 ids already: the picture of the documentation's first
page is drawn of them (`make speed`).

The goals are in `goals.toml`. Other ids than those of a peer are a fault.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Any

import measure
import workloads

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

TURNS = 64
EDGE = 8
LENGTHS = tuple(1_000 * 2**power for power in range(8))  # ids of a conversation that goes on
NEXT_TURNS = 6
TEMPLATE, TOKENIZER, STOP = "npm-qwen3", "qwen3", "<|im_end|>"
SYSTEM = {"role": "system", "content": "You are a helpful assistant."}

Turn = tuple[
    dict[str, Any], dict[str, Any], list[int]
]  # what is asked, what is answered, and the answer as ids
Chat = list[dict[str, Any]]
Play = Callable[[list[Turn], Chat], Iterator[list[int]]]  # turns, and what was said before them


@dataclass(frozen=True)
class Stage:
    """What everybody plays with: one template and one tokenizer, loaded."""

    text: str
    folder: Path
    ours: Any
    reference: Any

    def turns(self, seed: int, count: int) -> list[Turn]:
        dice = workloads.Dice(seed)
        return [
            self.turn(workloads.prose(dice, 200), workloads.prose(dice, 400)) for _ in range(count)
        ]

    def history(self, seed: int, length: int) -> Chat:
        """Return a conversation of about so many ids, which waits for a question."""
        chat, dice, count = [SYSTEM], workloads.Dice(seed), 0
        while count < length:
            asked, answered, reply = self.turn(
                workloads.prose(dice, 200), workloads.prose(dice, 400)
            )
            chat += [asked, answered]
            count += len(reply) + len(self.ours.encode(asked["content"])) + 8  # of the markers
        return chat

    def turn(self, asked: str, answered: str) -> Turn:
        ids = [*self.ours.encode(answered), self.ours.added[STOP].id]
        return {"role": "user", "content": asked}, {"role": "assistant", "content": answered}, ids


def stage() -> Stage:
    from transformers import PreTrainedTokenizerFast

    from turnwise.tokens.tokenizers import tokenizer

    text = workloads.subjects([TEMPLATE])[0].text
    folder = workloads.tokenizer_folder(TOKENIZER)
    own = tokenizer(folder, backend="fastokens")  # loaded at once, and not after some text
    return Stage(text, folder, own, PreTrainedTokenizerFast.from_pretrained(folder))


def turnwise(stage: Stage) -> Play:
    import turnwise

    template = turnwise.compile(stage.text)

    def play(turns: list[Turn], before: Chat) -> Iterator[list[int]]:
        session = template.session(stage.ours)
        yield session.prompt([*before, turns[0][0]])
        for (_, _, reply), (asked, _, _) in zip(turns, turns[1:], strict=False):
            session.add_reply(reply)
            yield session.extend([asked])

    return play


def renderers(stage: Stage) -> Play:
    from renderers import Qwen3RendererConfig, create_renderer

    renderer = create_renderer(stage.reference, Qwen3RendererConfig(thinking_retention="all"))

    def play(turns: list[Turn], before: Chat) -> Iterator[list[int]]:
        ids = renderer.render_ids([*before, turns[0][0]], add_generation_prompt=True)
        yield ids
        for (_, _, reply), (asked, _, _) in zip(turns, turns[1:], strict=False):
            ids = renderer.bridge_to_next_turn(ids, reply, [asked]).token_ids
            yield ids

    return play


def transformers(stage: Stage) -> Play:
    def play(turns: list[Turn], before: Chat) -> Iterator[list[int]]:
        chat = list(before)
        for asked, answered, _ in turns:
            chat.append(asked)
            yield stage.reference.apply_chat_template(
                chat,
                chat_template=stage.text,
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
            chat.append(answered)

    return play


PLAYERS: dict[str, Callable[[Stage], Play]] = {
    "turnwise": turnwise,
    "renderers": renderers,
    "transformers": transformers,
}


def timed(play: Play, turns: list[Turn], before: Chat) -> list[int]:
    """Nanoseconds of each turn."""
    spent = []
    start = process_time_ns()
    for _ in play(turns, before):
        now = process_time_ns()
        spent.append(now - start)
        start = process_time_ns()
    return spent


def contest(
    stage: Stage, plays: dict[str, Play], rounds: int, count: int, length: int = 0
) -> dict[str, list[list[int]]]:
    """For each contestant the turns of each round, after a conversation of so many ids."""
    samples: dict[str, list[list[int]]] = {name: [] for name in plays}
    names = list(plays)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for number in range(rounds):
            turns = stage.turns(1000 + number, count)
            before = stage.history(2000 + number, length)
            first = number % len(names)
            for name in names[first:] + names[:first]:
                samples[name].append(timed(plays[name], turns, before))
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
    return samples


def growth(rounds: list[list[int]]) -> float:
    """The last turns over the first, each the median over rounds and turns."""
    early = median(spent for turns in rounds for spent in turns[1 : EDGE + 1])
    return median(spent for turns in rounds for spent in turns[-EDGE:]) / early


def measure_lengths(stage: Stage, plays: dict[str, Play], rounds: int) -> dict[str, list[float]]:
    """Return for each contestant the milliseconds of the next turn, by the length of the conversation."""
    found: dict[str, list[float]] = {name: [] for name in plays}
    for length in LENGTHS:
        for name, some in contest(stage, plays, rounds, NEXT_TURNS, length).items():
            # The first turns open the session; those after them are alike.
            spent = median(one for turns in some for one in turns[2:])
            found[name].append(round(spent / 1e6, 3))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description="A conversation of many turns as ids, turn by turn."
    )
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, noisier figures")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    on = stage()
    plays, faults = {}, []
    for name, make in PLAYERS.items():
        try:
            plays[name] = make(on)
        except ModuleNotFoundError as missing:
            print(f"{name}: not timed, {missing.name} is not installed", file=sys.stderr)
    turns = on.turns(1, asked.turns)
    before = on.history(1, LENGTHS[2])
    wanted = list(plays["turnwise"](turns, before))
    for name in [name for name, play in plays.items() if list(play(turns, before)) != wanted]:
        faults.append(f"{name} gives other ids")
        del plays[name]
    samples = contest(on, plays, 5 if asked.quick else 15, asked.turns)
    own = [sum(turns) for turns in samples["turnwise"]]
    totals = {
        name: measure.ratio([sum(turns) for turns in rounds], own)
        for name, rounds in samples.items()
    }
    grown = {name: growth(rounds) for name, rounds in samples.items()}
    step_us = median(spent for turns in samples["turnwise"] for spent in turns) / 1000
    if asked.json:
        found = {
            "total": totals,
            "last over first": grown,
            "median us": step_us,
            "lengths": LENGTHS,
            "ms by length": measure_lengths(on, plays, 1 if asked.quick else 3),
            "us by turn": {
                name: [round(median(one) / 1000, 1) for one in zip(*rounds, strict=True)]
                for name, rounds in samples.items()
            },
        }
        print(
            json.dumps(
                {"versions": measure.versions(), "turns": asked.turns, **found, "faults": faults},
                indent=2,
            )
        )
    else:
        rows = [[name, measure.shown(totals[name]), measure.shown(grown[name])] for name in totals]
        print(f"{asked.turns} turns, prompt ids at each.\n")
        print(measure.table(["", "total : turnwise", f"last {EDGE} : first {EDGE}"], rows))
        print(f"\nThe median turn of a session takes {step_us:.0f} µs here.")
    for fault in faults:
        print(f"WRONG: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

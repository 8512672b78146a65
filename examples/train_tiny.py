"""Train a tiny model on prepared shards, and see that it answers and stops: `python examples/train_tiny.py`.

A base model reads running text and never a turn; a chat model must answer, and then stop. What teaches the second is
one label: the token that ends a turn. Four models get the same questions here:

    untrained         random weights
    base              trained on running text: it knows the facts, but writes on and on
    chat              base, trained on the shards of `turnwise.data.prepare`
    chat, no stop     the same, but the labels of the end markers are removed

Everything is plain torch on the CPU and takes a few minutes: a transformer of two layers, and facts about sums,
capitals and colours. The questions of the test are wordings that no shard holds, of facts that it does. A session
writes the prompts, and a reply ends at one of `template.stops(tokenizer)` or at the limit.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import turnwise
from turnwise.data import Recipe, prepare

TEMPLATE, TOKENIZER = "chatml", "turnwise"
IGNORED = -100
WIDTH, HEADS, LAYERS, CONTEXT = 64, 4, 2, 128
BATCH, WINDOW = 24, 48  # samples in a step; tokens in a window of running text
REPLY_LIMIT = 24

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
CAPITALS = {
    "France": "Paris",
    "Germany": "Berlin",
    "Spain": "Madrid",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "China": "Beijing",
    "Russia": "Moscow",
    "Greece": "Athens",
    "Egypt": "Cairo",
    "Cuba": "Havana",
    "Norway": "Oslo",
    "Peru": "Lima",
}
COLOURS = {
    "a banana": "yellow",
    "fresh snow": "white",
    "coal": "black",
    "a cherry": "red",
    "the clear sky": "blue",
    "grass": "green",
    "chocolate": "brown",
    "an elephant": "grey",
    "a carrot": "orange",
    "a flamingo": "pink",
}
WORDINGS = {
    "sum": ("What is {0}?", "How much is {0}?", "Add it up: {0}.", "Tell me what {0} is."),
    "capital": (
        "What is the capital of {0}?",
        "Name the capital of {0}.",
        "Which city is the capital of {0}?",
        "Tell me the capital of {0}.",
    ),
    "colour": (
        "What colour is {0}?",
        "Name the colour of {0}.",
        "Which colour has {0}?",
        "Tell me the colour of {0}.",
    ),
}


class Fact(NamedTuple):
    """A statement, and the questions that it answers; the last question is kept for the test."""

    answer: str
    questions: tuple[str, ...]


class Sample(NamedTuple):
    """The ids of a sample, and the label of each: an id, or -100 where nothing is learnt."""

    input_ids: list[int]
    labels: list[int]


@dataclass(frozen=True)
class Score:
    """How a model replies: the share of replies that stop, of those that are right, and their mean length."""

    stops: float
    begins_right: float
    exact: float
    mean_length: float


def make_facts() -> list[Fact]:
    """Return what there is to know; the held-out wording rotates from fact to fact."""
    known: list[tuple[str, str, str]] = []
    for a in range(6):
        for b in range(6):
            asked = f"{NUMBERS[a]} plus {NUMBERS[b]}"
            known.append(("sum", asked, f"That is {NUMBERS[a + b]}."))
    for country, city in CAPITALS.items():
        known.append(("capital", country, f"The capital of {country} is {city}."))
    for thing, colour in COLOURS.items():
        known.append(("colour", thing, f"The colour of {thing} is {colour}."))
    facts = []
    for number, (kind, subject, answer) in enumerate(known):
        questions = [wording.format(subject) for wording in WORDINGS[kind]]
        turn = number % len(questions)
        facts.append(Fact(answer, (*questions[turn:], *questions[:turn])))
    return facts


# -- data ------------------------------------------------------------------------------------------------------------


def write_dialogues(path: Path, facts: list[Fact], count: int, dice: random.Random) -> None:
    """Write conversations of one to three questions, as JSON Lines; no wording of the test is among them."""
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            messages = []
            for fact in dice.choices(facts, k=dice.randint(1, 3)):
                question = dice.choice(fact.questions[:-1])
                messages.append({"role": "user", "content": question})
                messages.append({"role": "assistant", "content": fact.answer})
            file.write(json.dumps({"messages": messages}) + "\n")


def read_shards(folder: Path) -> list[Sample]:
    """Return the samples of all shards of a folder."""
    samples = []
    for path in sorted(folder.glob("train-*.parquet")):
        table = pyarrow.parquet.read_table(path, columns=["input_ids", "labels"])
        columns = table.to_pydict()
        samples += map(Sample, columns["input_ids"], columns["labels"])
    return samples


def without_stops(samples: list[Sample], stops: tuple[int, ...]) -> list[Sample]:
    """Return the samples with no label on the tokens that end a reply: what a wrong loss mask does."""
    return [
        Sample(ids, [IGNORED if label in stops else label for label in labels])
        for ids, labels in samples
    ]


def cut_windows(facts: list[Fact], count: int, tokenizer: Any, dice: random.Random) -> list[Sample]:
    """Return windows of running text: statements and questions one after the other, without turns."""
    windows = []
    for _ in range(count):
        text = " ".join(_write_sentence(fact, dice) for fact in dice.choices(facts, k=10))
        ids = tokenizer.encode(text)[:WINDOW]
        windows.append(Sample(ids, ids))
    return windows


def _write_sentence(fact: Fact, dice: random.Random) -> str:
    """Return a question with its answer, as prose has them."""
    return f"{dice.choice(fact.questions[:-1])} {fact.answer}"


# -- model -----------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Causal attention, then two linear layers, each on the normalised sum of what came before."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        parts = self.mix(self.norms[0](x)).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.feed(self.norms[1](x))


class TinyModel(nn.Module):
    """A decoder-only transformer; the embedding is the output layer, too.

    It has rows only for the ids that it may meet, a few hundred of the tokenizer's thousands: minutes instead of hours.
    """

    def __init__(self, vocabulary: list[int]) -> None:
        super().__init__()
        self.vocabulary = torch.tensor(vocabulary)
        self.rows = torch.zeros(max(vocabulary) + 1, dtype=torch.long)
        self.rows[self.vocabulary] = torch.arange(len(vocabulary))
        self.tokens = nn.Embedding(len(vocabulary), WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the state behind each token."""
        places = self.places(torch.arange(ids.shape[1]))
        return self.norm(self.blocks(self.tokens(self.rows[ids]) + places))

    def find_loss(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of the labelled tokens; the state behind a token predicts the next one."""
        wanted = labels[:, 1:]
        learnt = wanted != IGNORED
        states = self(ids[:, :-1])[learnt]
        return cross_entropy(states @ self.tokens.weight.T, self.rows[wanted[learnt]])

    @torch.no_grad()
    def next_id(self, ids: list[int]) -> int:
        """Return the most likely next id."""
        state = self(torch.tensor([ids[-CONTEXT:]]))[0, -1]
        return int(self.vocabulary[(state @ self.tokens.weight.T).argmax()])


def batches(
    samples: list[Sample], steps: int, dice: random.Random
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ids and labels, padded on the right with tokens that are neither seen nor learnt."""
    for _ in range(steps):
        chosen = dice.sample(samples, BATCH)
        width = min(CONTEXT, max(len(ids) for ids, _ in chosen))
        ids = torch.zeros(BATCH, width, dtype=torch.long)
        labels = torch.full((BATCH, width), IGNORED)
        for row, sample in enumerate(chosen):
            size = min(width, len(sample.input_ids))
            ids[row, :size] = torch.tensor(sample.input_ids[:size])
            labels[row, :size] = torch.tensor(sample.labels[:size])
        yield ids, labels


def train(model: TinyModel, samples: list[Sample], steps: int, dice: random.Random) -> float:
    """Train on random batches; the loss of the last steps is returned."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps)
    losses = []
    for ids, labels in batches(samples, steps, dice):
        loss = model.find_loss(ids, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    recent = losses[-20:]
    return sum(recent) / len(recent)


# -- test ------------------------------------------------------------------------------------------------------------


def generate(model: TinyModel, prompt: list[int], stops: tuple[int, ...]) -> list[int]:
    """Return the most likely continuation, up to a stop or the limit."""
    ids = list(prompt)
    while len(ids) < len(prompt) + REPLY_LIMIT:
        ids.append(model.next_id(ids))
        if ids[-1] in stops:
            break
    return ids[len(prompt) :]


def examine(
    model: TinyModel, template: turnwise.Template, tokenizer: Any, facts: list[Fact]
) -> Score:
    """Ask each fact in a wording that was not trained, two in one session."""
    stops = template.stops(tokenizer).ids
    replies: list[tuple[bool, str, str, int]] = []
    for first, second in zip(facts[::2], facts[1::2], strict=False):
        session = template.session(tokenizer)
        prompt = session.prompt([{"role": "user", "content": first.questions[-1]}])
        replies.append(_reply(model, session, prompt, stops, first))
        prompt = session.extend([{"role": "user", "content": second.questions[-1]}])
        replies.append(_reply(model, session, prompt, stops, second))
    count = len(replies)
    return Score(
        stops=sum(stopped for stopped, *_ in replies) / count,
        begins_right=sum(text.startswith(answer) for _, text, answer, _ in replies) / count,
        exact=sum(text == answer for _, text, answer, _ in replies) / count,
        mean_length=sum(length for *_, length in replies) / count,
    )


def _reply(
    model: TinyModel, session: Any, prompt: list[int], stops: tuple[int, ...], fact: Fact
) -> tuple[bool, str, str, int]:
    ids = generate(model, prompt, stops)
    session.add_reply(ids)
    text = session.messages[-1].get("content") or ""
    return ids[-1] in stops, text, fact.answer, len(ids)


def show_reply(model: TinyModel, template: turnwise.Template, tokenizer: Any, fact: Fact) -> str:
    """Return a question and the tokens of the reply to it, as text."""
    prompt = template.session(tokenizer).prompt([{"role": "user", "content": fact.questions[-1]}])
    ids = generate(model, prompt, template.stops(tokenizer).ids)
    return f"{fact.questions[-1]!r} -> {tokenizer.decode(ids)!r}"


def run(folder: Path, quick: bool, seed: int) -> tuple[dict[str, Score], dict[str, str]]:
    """Train the models; return the score of each, and a reply of each."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # the matrices are too small to share
    dice = random.Random(seed)
    facts, template = make_facts(), turnwise.load(TEMPLATE)
    if quick:
        facts = facts[-22:]  # capitals and colours: sums take longer to learn
    tokenizer = template.session(TOKENIZER).tokenizer
    stops = template.stops(tokenizer).ids

    write_dialogues(folder / "chats.jsonl", facts, 400 if quick else 4000, dice)
    recipe = Recipe(
        inputs=(str(folder / "chats.jsonl"),),
        template=TEMPLATE,
        tokenizer=TOKENIZER,
        output=str(folder / "shards"),
        max_length=CONTEXT,
    )
    prepare(recipe, workers=1)
    samples = read_shards(folder / "shards")

    windows = cut_windows(facts, 200 if quick else 2000, tokenizer, dice)
    used = {id for sample in (*samples, *windows) for id in sample.input_ids}

    scores, shown = {}, {}
    model = TinyModel(sorted(used.union(stops)))

    def examine_as(name: str) -> None:
        scores[name] = examine(model, template, tokenizer, facts)
        shown[name] = show_reply(model, template, tokenizer, facts[-1])

    examine_as("untrained")
    steps = 120 if quick else 600
    train(model, windows, steps, dice)
    examine_as("base")
    base = {name: value.clone() for name, value in model.state_dict().items()}
    for name, labelled in (("chat", samples), ("chat, no stop", without_stops(samples, stops))):
        model.load_state_dict(base)
        train(model, labelled, steps, random.Random(seed))
        examine_as(name)
    return scores, shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Does a model stop that was trained on prepared shards?"
    )
    parser.add_argument("--quick", action="store_true", help="fewer facts and steps: seconds")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scores, shown = run(Path(folder), asked.quick, asked.seed)
    if asked.json:
        print(json.dumps({name: vars(score) for name, score in scores.items()}, indent=2))
        return
    print("| model | replies that stop | begin with the answer | are the answer | mean tokens |")
    print("|---|---|---|---|---|")
    for name, score in scores.items():
        shares = f"{score.stops:.0%} | {score.begins_right:.0%} | {score.exact:.0%}"
        print(f"| {name} | {shares} | {score.mean_length:.1f} |")
    print()
    for name, reply in shown.items():
        print(f"{name}: {reply}")


if __name__ == "__main__":
    main()

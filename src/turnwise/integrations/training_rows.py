"""Rows of a dataset become samples for a trainer, and rows that cannot are named.

A trainer's loop has no place for a bad row: an exception ends hours of preparation, and a row that is dropped without
a word is data that somebody paid for. So a row is read in any shape that `turnwise.shapes` knows, and what cannot be
trained becomes a `Problem` with its index and the reason, one for each row.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from turnwise import shapes
from turnwise.errors import MessageError, TurnwiseError, TurnwiseWarning
from turnwise.integrations.tokenizer_template import template_of
from turnwise.messages import JsonMapping, JsonObject
from turnwise.template import Template
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import IGNORED, TrainOn

__all__ = ["Problem", "RowEncoder", "Sample", "describe_problems", "split_columns"]

NOTHING_TRAINED = "nothing is trained: no reply of the assistant is written"
MAX_DESCRIBED = 5  # rows that a warning names; the others are counted


class Problem(NamedTuple):
    """A row that gives no sample, or one in which a turn is not trained.

    Attributes:
        row: The index of the row.
        reason: What is wrong with it.
        is_dropped: Whether the row gives no sample at all.
    """

    row: int
    reason: str
    is_dropped: bool = True

    def __str__(self) -> str:
        return f"row {self.row}: {self.reason}"


class Sample(NamedTuple):
    """What a trainer gets: ids, and labels with -100 for those that are not trained."""

    input_ids: list[int]
    labels: list[int]

    @property
    def mask(self) -> list[int]:
        """1 for the ids that are trained, 0 for all others."""
        return [int(label != IGNORED) for label in self.labels]


@dataclass(frozen=True)
class RowEncoder:
    """Encodes rows of data for training. It can be pickled, so a dataset can be mapped by several processes.

    Attributes:
        tokenizer: A tokenizer object of transformers, or what else `Template.encode` takes.
        template: The template; that of the tokenizer if there is none.
        train_on: The loss policy, as for `Template.encode`.
        split: Make as many samples of a row as are needed for every turn to follow what serving would have sent
            (`Template.examples`). False makes one sample of each row, as trainers do.
        max_length: The most tokens of a sample; the oldest rounds are left out of longer ones.
        options: Variables of the template.
    """

    tokenizer: Any
    template: Template | None = None
    train_on: TrainOn = "assistant"
    split: bool = True
    max_length: int | None = None
    options: JsonMapping = field(default_factory=dict)

    def encode(self, row: Any) -> list[Sample]:
        """Return the samples of a row.

        Raises:
            TurnwiseError: The row is no conversation, the template cannot write it, or nothing of it is trained.
        """
        arguments = {**self._arguments, **shapes.conversation(row).arguments}
        template, messages = self._template, arguments.pop("messages")
        if self._is_split:
            made: Iterable[Encoded] = template.examples(messages, self.tokenizer, **arguments)
        else:
            made = [template.encode(messages, self.tokenizer, **arguments)]
        samples = [Sample(one.input_ids, one.labels) for one in made]
        samples = [sample for sample in samples if any(sample.mask)]
        if not samples:
            raise MessageError(NOTHING_TRAINED)
        return samples

    def encode_all(
        self, rows: Sequence[Any], first: int = 0
    ) -> tuple[list[list[Sample]], list[Problem]]:
        """Return the samples of each row, none for those that are bad, and the problems.

        Args:
            rows: The rows.
            first: The index of the first one.
        """
        if not self._is_split:
            batch = self._encode_batch(rows)
            if batch is not None:
                return batch, []
        samples: list[list[Sample]] = []
        problems: list[Problem] = []
        for index, row in enumerate(rows, first):
            found: list[Sample] = []
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", TurnwiseWarning)
                try:
                    found = self.encode(row)
                except TurnwiseError as error:
                    problems.append(Problem(index, _first_line(error)))
            samples.append(found)
            if found and caught:
                reason = "; ".join(dict.fromkeys(_first_line(one.message) for one in caught))
                problems.append(Problem(index, reason, is_dropped=False))
        return samples, problems

    def _encode_batch(self, rows: Sequence[Any]) -> list[list[Sample]] | None:
        """Return one sample for each row, by the fast path; None if there is a problem, whose row it cannot name."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", TurnwiseWarning)
            try:
                batch = self._template.encode_batch(rows, self.tokenizer, **self._arguments)
            except (TurnwiseError, TurnwiseWarning):
                return None
        samples = [Sample(row.input_ids.tolist(), row.labels.tolist()) for row in batch]
        if not all(any(sample.mask) for sample in samples):
            return None
        return [[sample] for sample in samples]

    @property
    def _template(self) -> Template:
        return self.template or template_of(self.tokenizer)

    @property
    def _arguments(self) -> JsonObject:
        return {"train_on": self.train_on, "max_length": self.max_length, **self.options}

    @property
    def _is_split(self) -> bool:
        # Samples of their own are for turns: where everything is trained, a row is one sample.
        return self.split and self.train_on != "all"


def split_columns(batch: Mapping[str, Sequence[Any]]) -> list[JsonObject]:
    """Return the rows of a batch that is a mapping of columns."""
    return [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]


def describe_problems(problems: Sequence[Problem], rows: int) -> str:
    """Return a text that counts the problems and names the first rows."""
    dropped = sum(problem.is_dropped for problem in problems)
    lines = [f"{dropped} of {rows} rows give no sample, {len(problems) - dropped} a flawed one"]
    lines += map(str, problems[:MAX_DESCRIBED])
    if len(problems) > MAX_DESCRIBED:
        lines.append(f"and {len(problems) - MAX_DESCRIBED} more")
    return "\n  ".join(lines)


def _first_line(problem: object) -> str:
    return str(problem).partition("\n")[0]

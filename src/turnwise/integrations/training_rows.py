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
from turnwise.integrations.transformers import tool_schemas
from turnwise.template import Template
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import IGNORED, TrainOn

__all__ = ["Problem", "RowEncoder", "describe_problems"]

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
    options: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, row: Any) -> list[Encoded]:
        """Return the samples of a row.

        Raises:
            TurnwiseError: The row is no conversation, the template cannot write it, or nothing of it is trained.
        """
        template = self.template or template_of(self.tokenizer)
        parsed = shapes.conversation(row)
        arguments = {**self.options, **parsed.arguments, "tools": tool_schemas(parsed.tools)}
        named = {"train_on": self.train_on, "max_length": self.max_length, **arguments}
        # Samples of their own are for turns: where everything is trained, a row is one sample.
        encode = template.examples if self.split and self.train_on != "all" else template.encode
        made = encode(named.pop("messages"), self.tokenizer, **named)
        samples = list(made) if isinstance(made, Sequence) else [made]
        samples = [one for one in samples if any(label != IGNORED for label in one.labels)]
        if not samples:
            raise MessageError("nothing is trained: no reply of the assistant is written")
        return samples

    def encode_all(
        self, rows: Iterable[Any], first: int = 0
    ) -> tuple[list[list[Encoded]], list[Problem]]:
        """Return the samples of each row, none for those that are bad, and the problems.

        Args:
            rows: The rows.
            first: The index of the first one.
        """
        samples: list[list[Encoded]] = []
        problems: list[Problem] = []
        for index, row in enumerate(rows, first):
            found: list[Encoded] = []
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

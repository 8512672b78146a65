"""Encode one row by itself: a flawed one, one that is too long, one with a sample for each turn, or a preference.

Most rows never come here: they are encoded all together (`kernel.py`). A row is encoded with `strict` first. If that
fails, it is encoded again without, to tell a row that cannot be encoded at all from one with a flaw: text that the
template does not write, a turn that is not trained to its stop.
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from turnwise.data.lengths import fit_conversation
from turnwise.data.recipe import Recipe
from turnwise.data.records import Record, UnusableRow, describe_error
from turnwise.errors import (
    TemplateError,
    TemplateLimitError,
    TokenizerError,
    TurnwiseError,
    TurnwiseWarning,
)
from turnwise.template import Template
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.encoded_batch import ID_TYPE
from turnwise.tokens.loss import IGNORED


class EncodedSample(NamedTuple):
    """The ids and labels of one sample, as arrays of 32-bit integers; of a pair, also the ids that were rejected."""

    input_ids: array[int]
    labels: array[int]
    rejected_ids: array[int] | None = None
    prompt_length: int | None = None

    @property
    def is_trained(self) -> bool:
        """Whether any of its tokens is trained."""
        return self.labels.count(IGNORED) < len(self.labels)


class RowResult(NamedTuple):
    """What a row becomes: samples, or none and a problem; with both, the samples have a flaw.

    Attributes:
        samples: the samples.
        problem: why there is none, or what is wrong with them.
        tokens_lost: the tokens of the row that are in no sample, because they do not fit.
    """

    samples: Sequence[EncodedSample] = ()
    problem: UnusableRow | None = None
    tokens_lost: int = 0


def nothing_trained() -> UnusableRow:
    """Return the problem of a row without a trained token."""
    reason = "no token is trained: the row has no reply of the assistant, or only such of weight 0"
    return UnusableRow("nothing-trained", reason)


class SampleMaker:
    """Encodes single rows as a recipe says.

    Args:
        recipe: the recipe.
        template: its template.
        tokenizer: its tokenizer.
        arguments: the arguments of `encode` for all rows.
        strict: whether a flaw of a row is an error.
    """

    def __init__(
        self,
        recipe: Recipe,
        template: Template,
        tokenizer: Any,
        arguments: dict[str, Any],
        strict: bool,
    ) -> None:
        self._recipe = recipe
        self._template = template
        self._tokenizer = tokenizer
        self._arguments = arguments
        self._strict = strict

    def make(self, record: Record) -> RowResult:
        """Encode a row."""
        try:
            samples, flaw = self._encode_or_find_flaw(record)
        except UnusableRow as problem:
            return RowResult(problem=problem)
        return self._fit(record, samples, flaw)

    def make_pair(self, record: Record) -> RowResult:
        """Encode both conversations of a preference."""
        if record.rejected is None:
            reason = "there are no 'chosen' and 'rejected', and the recipe wants pairs of them"
            return RowResult(problem=UnusableRow("unknown-shape", reason))
        if record.rejected == record.messages:
            reason = "'chosen' and 'rejected' are the same, so there is nothing to prefer"
            return RowResult(problem=UnusableRow("bad-message", reason))
        try:
            (chosen,), flaw = self._encode_or_find_flaw(record)
            (rejected,), flaw_of_rejected = self._encode_or_find_flaw(
                record._replace(messages=record.rejected)
            )
            pair = _join_pair(chosen, rejected)
        except UnusableRow as problem:
            return RowResult(problem=problem)
        limit, size = self._recipe.max_length, max(len(chosen.input_ids), len(rejected.input_ids))
        if limit is not None and size > limit:
            return RowResult(problem=too_long(size, limit), tokens_lost=size)
        return RowResult([pair], flaw or flaw_of_rejected)

    # -- flaws ---------------------------------------------------------------------------------------------------------

    def _encode_or_find_flaw(
        self, record: Record
    ) -> tuple[list[EncodedSample], UnusableRow | None]:
        """Return the samples of a row, and its flaw, if the recipe keeps such rows.

        Raises:
            UnusableRow: it has no samples.
        """
        flaw = None
        try:
            samples = self._encode(record, record.messages, self._strict)
        except TurnwiseError as error:
            if not self._strict:
                raise _problem_of(error) from None
            samples, flaw = self._encode_flawed(record, error)
            if self._recipe.on_flaw == "reject":
                raise flaw from None
        trained = [sample for sample in samples if sample.is_trained]
        if not trained:
            raise flaw or nothing_trained()
        return trained, flaw

    def _encode_flawed(
        self, record: Record, error: TurnwiseError
    ) -> tuple[list[EncodedSample], UnusableRow]:
        """Return the samples of a row that fails with `strict`, and its flaw.

        Raises:
            UnusableRow: it fails without `strict` too.
        """
        try:
            samples = self._encode(record, record.messages, strict=False)
        except TurnwiseError as again:
            raise _problem_of(again) from None
        return samples, UnusableRow("loses-text", describe_error(error))

    def _encode(self, record: Record, messages: list[Any], strict: bool) -> list[EncodedSample]:
        arguments = {**self._arguments, **record.arguments, "strict": strict}
        train_on = self._recipe.train_on
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TurnwiseWarning)  # with `strict` they are errors
            if self._recipe.samples == "turns":
                arguments.pop("add_generation_prompt", None)
                found: Sequence[Encoded] = self._template.examples(
                    messages, self._tokenizer, train_on, **arguments
                )
            else:
                found = [self._template.encode(messages, self._tokenizer, train_on, **arguments)]
        return [
            EncodedSample(array(ID_TYPE, one.input_ids), array(ID_TYPE, one.labels))
            for one in found
        ]

    # -- lengths -------------------------------------------------------------------------------------------------------

    def _fit(
        self, record: Record, samples: list[EncodedSample], flaw: UnusableRow | None
    ) -> RowResult:
        """Return the samples of a row that has some, without those that are too long, or with their parts."""
        limit = self._recipe.max_length
        longest = max(len(sample.input_ids) for sample in samples)
        if limit is None or longest <= limit:
            return RowResult(samples, flaw)
        lost = 0
        if self._recipe.overlong != "drop":
            measure = self._measure_with(record, flaw is None and self._strict)
            parts, lost = fit_conversation(
                record.messages, longest, limit, self._recipe.overlong, measure
            )
            samples = []
            for part in parts:
                samples += self._encode(record, part, strict=False)
        kept = [one for one in samples if len(one.input_ids) <= limit and one.is_trained]
        if not kept:
            return RowResult(problem=too_long(longest, limit), tokens_lost=longest)
        lost += sum(len(one.input_ids) for one in samples) - sum(len(one.input_ids) for one in kept)
        return RowResult(kept, flaw, lost)

    def _measure_with(self, record: Record, strict: bool) -> Callable[[list[Any]], int | None]:
        """Return a function that counts the tokens of messages with the arguments of a row."""

        def measure(messages: list[Any]) -> int | None:
            try:
                found = self._encode(record, messages, strict)
            except TurnwiseError:
                return None  # the template does not take this part, or not without a flaw
            return max((len(sample.input_ids) for sample in found), default=None)

        return measure


def too_long(size: int, limit: int) -> UnusableRow:
    """Return the problem of a row that does not fit."""
    reason = f"has {size} tokens, more than max_length={limit}. Raise it, or split the row"
    return UnusableRow("too-long", reason)


def _problem_of(error: TurnwiseError) -> UnusableRow:
    kind = "bad-message"
    if isinstance(error, TemplateLimitError):
        kind = "template-limit"
    elif isinstance(error, TemplateError):
        kind = "refused"
    elif isinstance(error, TokenizerError):
        kind = "tokenizer"
    return UnusableRow(kind, describe_error(error))


def _join_pair(chosen: EncodedSample, rejected: EncodedSample) -> EncodedSample:
    """Return a pair as one sample; its prompt is what comes before the first trained token of either.

    Raises:
        UnusableRow: the prompts differ.
    """
    lengths = []
    for labels in (chosen.labels, rejected.labels):
        lengths.append(next(index for index, label in enumerate(labels) if label != IGNORED))
    length = lengths[0]
    if chosen.input_ids[:length] != rejected.input_ids[: lengths[1]]:
        reason = "the template writes different prompts before 'chosen' and 'rejected'"
        raise UnusableRow("refused", reason)
    return chosen._replace(rejected_ids=rejected.input_ids, prompt_length=length)

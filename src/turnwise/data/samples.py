"""Encode one row by itself: a flawed one, one that is too long, one with a sample for each turn, or a preference.

Most rows never come here: they are encoded all together (`record_encoder.py`). A row is encoded with `strict` first. If
that fails, it is encoded again without, to tell a row that cannot be encoded at all from one with a flaw: text that the
template does not write, a turn that is not trained to its stop.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from turnwise.data.lengths import fit_conversation
from turnwise.data.recipe import Recipe
from turnwise.data.records import Record, UnusableRow, describe_error
from turnwise.engine.compiler.history_proof import analyse_prompts
from turnwise.errors import (
    TemplateError,
    TemplateLimitError,
    TokenizerError,
    TurnwiseError,
    WarningLog,
)
from turnwise.messages import JsonObject
from turnwise.registry import load
from turnwise.template import Template
from turnwise.tokens import tokenizers
from turnwise.tokens.encoded_batch import ID_TYPE, EncodedBatch
from turnwise.tokens.label_report import REMEDY
from turnwise.tokens.loss import IGNORED

REMEDY_IN_RECIPES = (
    'Try samples = "turns": it trains each turn as it is written when it is the last'
)
FLAWS = ("loses-text", "empty-reply", "orphan-result", "unbalanced-reasoning")
"""Kinds of problems with which a row may be kept."""
MAX_FORMS = 1_000  # of rows about which something is remembered


class EncodedSample(NamedTuple):
    """The ids and labels of one sample, as arrays of 32-bit integers.

    A pair has the ids that were rejected, too; a sample of unpaired preferences whether it is a good one.
    """

    input_ids: array[int]
    labels: array[int]
    rejected_ids: array[int] | None = None
    prompt_length: int | None = None
    label: bool | None = None
    rewritten: int = 0  # replies in another text than the template's, see `Encoded.rewritten`

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
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._makers: dict[str, Callable[[Record], RowResult]] = {
            "chosen": lambda record: self.fit(record, *self._encode_or_find_flaw(record)),
            "pairs": self._make_pair,
            "unpaired": self._make_unpaired,
        }
        self._one_sample: dict[tuple[str, ...], bool] = {}  # by the roles of plain turns

    @cached_property
    def template(self) -> Template:
        """The template of the recipe."""
        given = self.recipe.template
        return given if isinstance(given, Template) else load(given)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the recipe."""
        return tokenizers.tokenizer(self.recipe.tokenizer)

    @cached_property
    def _arguments(self) -> JsonObject:
        """The arguments of `encode` for all rows, but `strict`."""
        recipe = self.recipe
        return {**recipe.options, "now": recipe.now, "late_system": recipe.late_system}

    @cached_property
    def _is_strict(self) -> bool:
        """Whether flaws of rows are errors; not if template and tokenizer do not fit, and flaws are kept."""
        if self.recipe.on_flaw == "reject":
            return True
        try:
            self.template.encode_batch([], self.tokenizer, strict=True, **self._arguments)
        except TokenizerError:
            return False
        return True

    @cached_property
    def _is_proven(self) -> bool:
        """Whether the source of the template proves that it only appends, and what its prompts are."""
        texts = self.template.renderer.texts
        return self.template.facts.appends and analyse_prompts(*texts) > 0

    def make(self, record: Record, flaw: UnusableRow | None = None) -> RowResult:
        """Encode a row.

        Args:
            record: the row.
            flaw: what is known to be wrong with it.
        """
        is_kept = self.recipe.on_flaw == "keep" and flaw is not None and flaw.kind in FLAWS
        if flaw is not None and not is_kept:
            return RowResult(problem=flaw)
        try:
            made = self._makers[self.recipe.preferences](record)
        except UnusableRow as problem:
            made = RowResult(problem=problem)
        return made._replace(problem=made.problem or flaw)

    def _make_pair(self, record: Record) -> RowResult:
        """Encode both conversations of a preference."""
        if record.rejected is None:
            reason = "there are no 'chosen' and 'rejected', and the recipe wants pairs of them"
            raise UnusableRow("bad-column", reason)
        if record.rejected == record.messages:
            reason = "'chosen' and 'rejected' are the same, so there is nothing to prefer"
            raise UnusableRow("bad-message", reason)
        (chosen,), flaw = self._encode_or_find_flaw(record)
        other = record._replace(messages=record.rejected)
        (rejected,), flaw_of_rejected = self._encode_or_find_flaw(other)
        return self._bound([_join_pair(chosen, rejected)], flaw or flaw_of_rejected)

    def _make_unpaired(self, record: Record) -> RowResult:
        """Encode a reply that is good or bad; of a pair, both."""
        sides = [record]
        if record.label is None:
            if record.rejected is None or record.rejected == record.messages:
                return self._make_pair(record)  # which has the problem
            bad = record._replace(messages=record.rejected, label=False)
            sides = [record._replace(label=True), bad]
        samples, flaws = [], []
        for side in sides:
            (sample,), flaw = self._encode_or_find_flaw(side)
            samples.append(_cut_completion(sample, side))
            flaws.append(flaw)
        return self._bound(samples, next(filter(None, flaws), None))

    def _bound(self, samples: list[EncodedSample], flaw: UnusableRow | None) -> RowResult:
        """Return the samples of a preference, unless one is too long."""
        both = (ids for one in samples for ids in (one.input_ids, one.rejected_ids or ()))
        limit, longest = self.recipe.max_length, max(map(len, both))
        if limit is not None and longest > limit:
            return RowResult(problem=too_long(longest, limit), tokens_lost=longest)
        return RowResult(samples, flaw)

    def is_one_sample(self, record: Record) -> bool:
        """Return whether the turns of a row are known to need no samples of their own, so that it is encoded as one.

        Where that is proved of a template, the roles of plain turns decide about that: the first row with the same
        roles is encoded both ways. A row with a turn that does not follow its prompt is an error with `strict`, and
        encoded by itself.
        """
        if not self._is_proven or not self._is_strict or record.arguments:
            return False
        roles = _find_roles(record.messages)
        if not roles or roles[-1] != "assistant":
            return False
        if roles not in self._one_sample and len(self._one_sample) < MAX_FORMS:
            try:
                turns = self._encode(record, record.messages, self._is_strict)
                whole = self._encode_whole(record, record.messages, self._is_strict)
            except TurnwiseError:
                return False  # of this row, not of its roles
            self._one_sample[roles] = turns == [whole]
        return self._one_sample.get(roles, False)

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
            samples = self._encode(record, record.messages, self._is_strict)
        except TurnwiseError as error:
            if not self._is_strict:
                raise _problem_of(error) from None
            try:
                samples = self._encode(record, record.messages, strict=False)
            except TurnwiseError as again:
                raise _problem_of(again) from None
            flaw = _problem_of(error, "loses-text")
        trained = [sample for sample in samples if sample.is_trained]
        if not trained:
            if flaw is None:
                raise nothing_trained()
            raise UnusableRow("nothing-trained", flaw.reason, flaw.path)
        if flaw is not None and self.recipe.on_flaw == "reject":
            raise flaw
        return trained, flaw

    def _encode(self, record: Record, messages: list[Any], strict: bool) -> list[EncodedSample]:
        if self.recipe.samples == "turns":
            with WarningLog(is_quiet=True):  # with `strict` they are errors
                return self._encode_turns(record, messages, strict)
        return [self._encode_whole(record, messages, strict)]

    def _encode_turns(
        self, record: Record, messages: list[Any], strict: bool
    ) -> list[EncodedSample]:
        """Encode messages so that each turn follows what serving would have sent."""
        arguments = {**self._arguments, **record.arguments, "strict": strict}
        arguments.pop("add_generation_prompt", None)
        found = self.template.examples(messages, self.tokenizer, self.recipe.train_on, **arguments)
        samples = []
        for one in found:
            ids, labels = array(ID_TYPE, one.input_ids), array(ID_TYPE, one.labels)
            samples.append(EncodedSample(ids, labels, rewritten=len(one.rewritten)))
        return samples

    def _encode_whole(self, record: Record, messages: list[Any], strict: bool) -> EncodedSample:
        """Encode messages as one sample, by the batch encoder, which knows the layouts of other rows."""
        batch = self._encode_batch([record.row_of(messages)], strict)
        if batch.errors:
            raise batch.errors[0]
        return EncodedSample(batch.input_ids, batch.labels)

    def _encode_batch(self, rows: list[Any], strict: bool) -> EncodedBatch:
        with WarningLog(is_quiet=True):  # with `strict` they are errors
            return self.template.encode_batch(
                rows,
                self.tokenizer,
                self.recipe.train_on,
                errors="collect",
                strict=strict,
                **self._arguments,
            )

    # -- lengths -------------------------------------------------------------------------------------------------------

    def fit(
        self, record: Record, samples: Sequence[EncodedSample], flaw: UnusableRow | None = None
    ) -> RowResult:
        """Return the samples of a row without those that are too long, or with their parts.

        Args:
            record: the row.
            samples: its samples, of which at least one is trained.
            flaw: what is wrong with them.
        """
        limit = self.recipe.max_length
        longest = max(len(sample.input_ids) for sample in samples)
        if limit is None or longest <= limit:
            return RowResult(samples, flaw)
        lost = 0
        if self.recipe.overlong != "drop":
            strict = flaw is None and self._is_strict
            parts: dict[tuple[int, ...], list[EncodedSample]] = {}  # each is encoded once

            def encode(messages: list[Any]) -> list[EncodedSample]:
                key = tuple(map(id, messages))
                if key not in parts:
                    try:
                        parts[key] = self._encode(record, messages, strict)
                    except TurnwiseError:  # the template does not accept these messages as they are
                        parts[key] = []
                return parts[key]

            def measure(messages: list[Any]) -> int | None:
                return max((len(one.input_ids) for one in encode(messages)), default=None)

            fitted = fit_conversation(
                record.messages, longest, limit, self.recipe.overlong, measure
            )
            samples = [sample for part in fitted.parts for sample in encode(part)]
            lost = fitted.tokens_lost
        kept = [one for one in samples if len(one.input_ids) <= limit and one.is_trained]
        if not kept:
            return RowResult(problem=too_long(longest, limit), tokens_lost=longest)
        lost += sum(len(one.input_ids) for one in samples)
        lost -= sum(len(one.input_ids) for one in kept)
        return RowResult(kept, flaw, lost)


def _find_roles(messages: list[Any]) -> tuple[str, ...] | None:
    """Return the roles of plain turns with texts that are not blank; None if there is anything else."""
    roles = []
    for message in messages:
        content = message.get("content")
        if len(message) != 2 or not isinstance(content, str) or not content.strip():
            return None
        roles.append(message["role"])
    return tuple(roles)


def check_text(template: Template, record: Record) -> UnusableRow | None:
    """Return why the template does not take a row, or not all of it; for callers without a tokenizer."""
    with WarningLog(is_quiet=True):  # with `strict` they are errors
        try:
            template.render(record.messages, strict=True, **record.arguments)
        except TurnwiseError as error:
            try:
                template.render(record.messages, **record.arguments)
            except TurnwiseError as again:
                return _problem_of(again)
            return _problem_of(error, "loses-text")
    return None


def too_long(size: int, limit: int) -> UnusableRow:
    """Return the problem of a row that does not fit."""
    reason = f"has {size} tokens, more than max_length={limit}. Raise it, or shorten the row"
    return UnusableRow("too-long", reason)


KINDS_OF_ERRORS = (
    (TemplateLimitError, "template-limit"),
    (TemplateError, "refused"),
    (TokenizerError, "tokenizer"),
    (TurnwiseError, "bad-message"),
)


def _problem_of(error: TurnwiseError, kind: str = "") -> UnusableRow:
    kind = kind or next(kind for one, kind in KINDS_OF_ERRORS if isinstance(error, one))
    reason = describe_error(error).replace(REMEDY, REMEDY_IN_RECIPES)
    return UnusableRow(kind, reason, getattr(error, "path", ""))


def _cut_completion(sample: EncodedSample, record: Record) -> EncodedSample:
    """Return a sample that ends with its last trained token, with the length of its prompt.

    Raises:
        UnusableRow: trainers would train more than the model writes, since a completion has no labels.
    """
    labels = sample.labels
    trained = [index for index, label in enumerate(labels) if label != IGNORED]
    start, stop = trained[0], trained[-1] + 1
    if len(trained) < stop - start:
        reason = (
            "the completion has text that is no reply (a result, a user's turn), and trainers of unpaired preferences "
            "train all of it. Give a row for each reply, with what comes before it as the prompt"
        )
        raise UnusableRow("refused", reason)
    return EncodedSample(
        sample.input_ids[:stop], labels[:stop], prompt_length=start, label=record.label
    )


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
    rewritten = chosen.rewritten + rejected.rewritten
    return chosen._replace(
        rejected_ids=rejected.input_ids, prompt_length=length, rewritten=rewritten
    )

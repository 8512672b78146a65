"""Encode many conversations at once: find the text of each, then encode all of it by one call.

Rows of a data set mostly have one of a few forms. The first rows of each form are encoded in full. Where the template
provably writes all rows of a form alike (`engine/segments/rows.py`), they show the layout of its ids
(`tokens/row_layout.py`), and the others are not even rendered: their contents are put into the layout. Their text is
encoded all together, by the batch interface of the tokenizer's library, in the segments that the layout shows. Any
other row is encoded as `Template.encode` does it: one without a layout (options of its own, a content that spells a
control token), and one that has to be normalised first (calls), which then mostly has one. So the ids and labels of
every row are those of `encode`.

A row that cannot be encoded is an error in its place, and costs no other row anything.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from turnwise.engine.option_names import ENCODE_ARGUMENTS
from turnwise.engine.runtime.limits import MAX_SEGMENTED_LENGTH
from turnwise.errors import MessageError, TurnwiseError
from turnwise.messages import JsonMapping, find_lone_surrogate
from turnwise.normalisation.normalised import Normalised
from turnwise.schema import check_name
from turnwise.tokens.encode import EncodeRequest
from turnwise.tokens.encoded import Encoded, make_laid_out, note_changes
from turnwise.tokens.encoded_batch import ID_TYPE, OFFSET_TYPE, EncodedBatch
from turnwise.tokens.growing import GrowingPrompt
from turnwise.tokens.loss import IGNORED, TrainOn
from turnwise.tokens.request_builder import SHARED_TYPES, RequestBuilder
from turnwise.tokens.row_form import Form, FormAndContents, has_plain_turns, read_form
from turnwise.tokens.row_layout import (
    RowLayout,
    can_have_layouts,
    encode_flat,
    make_layout,
    write_all,
)
from turnwise.tokens.text_encoder import encoder_for

ON_ERROR = ("raise", "collect")
MAX_FORMS = 1_000  # of rows whose layouts are remembered
MAX_SIZE = 1_000_000  # characters of these rows: tools are long
MIN_ROWS = 3  # of a form, before its layout is looked for
ROWS_PER_MESSAGE = 0.5  # in addition
MAX_FAILURES = 8
MAX_COMPLETED = 8  # one of so many conversations may be encoded in full after all

NO_ARGUMENTS: JsonMapping = {}
# What writing arguments may raise: such a row is encoded in full, which says what is wrong.
UNWRITABLE = (TypeError, ValueError, RecursionError)
SEPARATOR = "\0"  # between contents that are searched together

EncodeRow = Callable[[Any, JsonMapping], Encoded]  # messages and the arguments of this row


@dataclass
class _Form:
    """What is known about rows of one form."""

    rows: int = 0  # that were encoded in full
    layout: RowLayout | None = None


class _Forms(dict[Any, _Form]):
    """The forms of rows that are encoded alike.

    To look for a layout takes as long as to encode half as many rows as the form has messages, or some more. So it is
    looked for when so many have come, and after each failure only when four times as many have.
    """

    size = 0  # characters of rows with these layouts
    failures = 0  # to find a layout, in succession
    waiting = 0  # rows until the next attempt
    used = completed = (
        0  # conversations whose layout was known, and those that were encoded in full later
    )

    def may_learn(self, kind: Form, messages: int, now: datetime) -> bool:
        """Count a row that was encoded in full, and return whether to look for the layout of its form."""
        if kind not in self and (len(self) >= MAX_FORMS or self.size > MAX_SIZE):
            self.clear()
            self.size = 0
        form = self.setdefault(kind, _Form())
        if form.layout is not None and form.layout.trace.is_on_time(now):
            return False  # it is not that of this row
        form.rows += 1
        self.waiting -= 1
        return form.rows >= MIN_ROWS + ROWS_PER_MESSAGE * messages and self.waiting <= 0

    def learn(self, kind: Form, layout: RowLayout | None) -> None:
        """Remember the layout of a form, or that it has none."""
        self.setdefault(kind, _Form()).layout = layout  # other threads may have cleared it
        self.failures = 0 if layout is not None else min(self.failures + 1, MAX_FAILURES)
        self.waiting = MIN_ROWS * 4**self.failures if self.failures else 0


class _LaidOutRow(NamedTuple):
    """A row whose layout is known: its segments are encoded with those of the other rows."""

    messages: list[Any]
    contents: Sequence[str]
    layout: RowLayout


class _EncodedRow(NamedTuple):
    """What is kept of a row that was encoded in full: little, since there may be many."""

    ids: array[int]
    labels: array[int]
    weights: list[float] | None  # if some are neither 0 nor 1
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, encoded: Encoded) -> _EncodedRow:
        return cls(
            array(ID_TYPE, encoded.input_ids),
            array(ID_TYPE, encoded.labels),
            None if {0.0, 1.0}.issuperset(encoded.weights) else encoded.weights,
            encoded.warnings,
        )


# The ids and offsets of rows that have a layout; the others have none here.
_FlatRows: TypeAlias = "tuple[array[int], list[int]]"


class BatchEncoder:
    """Encodes the rows of one call.

    Args:
        request: how a row of plain turns is encoded, without messages; None if every row is encoded in full.
        encode_row: encodes one row in full.
        on_error: "raise" the error of a row, or "collect" it.

    Attributes:
        rows: the rows.
        trained: the spans of the ids of rows with a layout that are trained.
        forms: what is known about the forms of rows.
    """

    def __init__(
        self, request: EncodeRequest | None, encode_row: EncodeRow, on_error: str = "raise"
    ) -> None:
        self._request = request
        self._now: Any = request and request.arguments["now"]
        self._encode_row = encode_row
        self._on_error = on_error
        self.rows: list[_LaidOutRow | _EncodedRow | None] = []
        self._contents: list[str] = []  # of rows with a layout
        self._absent: set[str] = set()  # the texts that one of these layouts excludes
        self._errors: dict[int, TurnwiseError] = {}
        self.trained: list[slice] = []
        self.forms = _Forms() if request is None else _find_forms(request)

    def encode(self, rows: Iterable[Any]) -> EncodedBatch:
        """Encode rows.

        Raises:
            MessageError: `rows` are not rows; or an error of a row, if errors are not collected.
        """
        if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
            raise MessageError(f"rows are a list of conversations, not {type(rows).__name__}")
        for index, row in enumerate(rows):
            try:
                self.rows.append(self._read(row))
            except TurnwiseError as error:
                if self._on_error == "raise":
                    self.encode_laid_out()  # the error of a row before, whose ids are not known yet, comes first
                self.rows.append(None)
                self._note_error(index, error)
        return self.join()

    def _note_error(self, index: int, error: TurnwiseError) -> None:
        """Collect the error of a row, or raise it with its number."""
        if self._on_error == "raise":
            error.message = f"rows[{index}]: {error.message}"
            raise error
        self._errors[index] = error

    def _read(self, row: Any) -> _LaidOutRow | _EncodedRow:
        """Find the layout of a row; encode one without a layout in full."""
        arguments = NO_ARGUMENTS
        if type(row) is list:
            messages = row
        elif type(row) is dict and row.keys() == {"messages"}:
            messages = row["messages"]
        else:
            from turnwise.shapes import conversation

            arguments = dict(conversation(row).arguments)
            messages = arguments.pop("messages")
        laid_out = None if arguments else self.lay_out(messages, read_form(messages), True)
        return laid_out or _EncodedRow.of(self._encode_row(messages, arguments))

    def lay_out(self, messages: Any, row: FormAndContents, is_plain: bool) -> _LaidOutRow | None:
        """Return a row with its layout, if that is known.

        Args:
            messages: the row.
            row: what `read_form` found in it.
            is_plain: whether it is as the caller gave it; else it is in the form that the template takes.
        """
        form = self.forms.get(row[0]) if row else None
        layout = form.layout if form else None  # read once: other threads share the form
        if row is None or layout is None or layout.is_plain < is_plain:
            return None
        if not layout.trace.is_on_time(self._now):
            return None
        try:
            contents = write_all(layout.writers, row[1])
        except UNWRITABLE:
            return None
        if layout.may_exceed(row[1], contents):
            return None
        self._absent.update(layout.absent)
        self._contents += contents
        copies = list(map(dict.copy, messages))  # the caller may change them later
        # Faster than calling the class, which happens for every row.
        return tuple.__new__(_LaidOutRow, (copies, contents, layout))

    def encode_laid_out(self) -> _FlatRows:
        """Encode all rows that have a layout; those that cannot be encoded so are encoded in full."""
        request = self._request
        if request is None:
            return self._find_rows(b"", [0])
        self._check_contents(request)
        flat = self._encode_segments(request)
        limit, (ids, offsets) = request.max_length, flat
        if limit is not None:
            self._encode_again(lambda index, _: offsets[index + 1] - offsets[index] > limit)
        controls = encoder_for(request.tokenizer).controls
        if controls.may_come_from_text:
            places = controls.find_places(ids)

            def is_forged(index: int, row: _LaidOutRow) -> bool:
                first, last = [bisect_left(places, offsets[index + more]) for more in (0, 1)]
                found = [ids[place] for place in places[first:last]]
                return not controls.are_exactly(row.layout.controls, found)

            self._encode_again(is_forged)
        return flat

    def _encode_segments(self, request: EncodeRequest) -> _FlatRows:
        """Encode the segments of rows; if the tokenizer refuses one, those with bad text, or all, in full."""
        for is_refused in (_is_not_unicode, _is_any):
            segments: list[str] = []
            for row in self.rows:
                if type(row) is _LaidOutRow:
                    segments += row.layout.fill(row.contents)
            try:
                data, bounds = encode_flat(request.tokenizer, segments)
            except TurnwiseError:
                self._encode_again(is_refused)
            else:
                return self._find_rows(data, bounds)
        return self._find_rows(b"", [0])

    def _find_rows(self, data: bytes, bounds: Sequence[int]) -> _FlatRows:
        """Return the ids of all rows that have a layout, and find which are trained.

        Args:
            data: the ids of their segments.
            bounds: where each segment begins, and the end of the last.
        """
        ids, offsets = array(ID_TYPE), [0]
        ids.frombytes(data)
        self.trained = []
        first = 0
        for row in self.rows:
            if type(row) is _LaidOutRow:
                layout = row.layout
                self.trained += [
                    slice(bounds[first + number], bounds[first + number + 1] - rest)
                    for number, rest in layout.trained
                ]
                first += layout.count
            offsets.append(bounds[first])
        return ids, offsets

    def _check_contents(self, request: EncodeRequest) -> None:
        """Encode rows in full that spell an added token in a content, or something that their layout excludes."""
        matcher = encoder_for(request.tokenizer).matcher

        def is_special(contents: Sequence[str], absent: Iterable[str]) -> bool:
            text = SEPARATOR.join(contents)
            is_found = matcher.is_in(text) or any([wanted in text for wanted in absent])
            return is_found or len(text) > MAX_SEGMENTED_LENGTH

        if is_special(self._contents, self._absent):  # mostly one search is enough for all rows
            self._encode_again(lambda _, row: is_special(row.contents, row.layout.absent))

    def _encode_again(self, is_wanted: Callable[[int, _LaidOutRow], bool]) -> None:
        """Encode rows in full that have a layout, but not this one."""
        for index, row in enumerate(self.rows):
            if isinstance(row, _LaidOutRow) and is_wanted(index, row):
                self.rows[index] = None
                try:
                    self.rows[index] = _EncodedRow.of(self._encode_row(row.messages, NO_ARGUMENTS))
                except TurnwiseError as error:
                    self._note_error(index, error)

    def join(self) -> EncodedBatch:
        """Put the ids and labels of all rows one after another."""
        all_ids, places = self.encode_laid_out()
        all_labels = array(ID_TYPE, [IGNORED]) * len(all_ids)
        source, target = memoryview(all_ids), memoryview(all_labels)
        for span in self.trained:
            target[span] = source[span]
        warnings = dict(self._list_warnings())
        if set(map(type, self.rows)) == {_LaidOutRow}:
            offsets = array(OFFSET_TYPE, places)
            return EncodedBatch(all_ids, all_labels, offsets, self._errors, {}, warnings)
        ids, labels, offsets = array(ID_TYPE), array(ID_TYPE), array(OFFSET_TYPE, [0])
        weights: dict[int, list[float]] = {}
        for index, row in enumerate(self.rows):
            if isinstance(row, _EncodedRow):
                ids += row.ids
                labels += row.labels
                if row.weights is not None:
                    weights[index] = row.weights
            elif row is not None:
                place = slice(*places[index : index + 2])
                ids += all_ids[place]
                labels += all_labels[place]
            offsets.append(len(ids))
        return EncodedBatch(ids, labels, offsets, self._errors, weights, warnings)

    def _list_warnings(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the rows with warnings; those with one layout have the same."""
        for index, row in enumerate(self.rows):
            told = row.layout.warnings if isinstance(row, _LaidOutRow) else row and row.warnings
            if told:
                yield index, told


def _find_forms(request: EncodeRequest) -> _Forms:
    """Return what is known about rows that are encoded like this, by their roles."""
    prompt = repr(request.arguments.get("add_generation_prompt"))  # the template may print it
    known = request.turn_cache.layouts.setdefault(request.tokenizer, {})
    forms: _Forms = known.setdefault((request.train_on, prompt), _Forms())
    return forms


def learn_layout(
    request: EncodeRequest, row: FormAndContents, encoded: Encoded, warnings: tuple[str, ...]
) -> None:
    """Remember the layout of a row that was encoded in full, if it has one.

    Args:
        request: how it was encoded.
        row: what `find_form` found in it.
        encoded: the row.
        warnings: what was warned of.
    """
    if row is None or not can_have_layouts(request):
        return
    (kind, contents), forms = row, _find_forms(request)
    is_plain = has_plain_turns(request.messages)
    has_tools = request.arguments.get("tools") is not None
    if (has_tools or not is_plain) and encoded.rendering.unwritten != ():
        return  # it is not known yet that all is written, or something is not, of which nobody may have warned
    if not forms.may_learn(kind, len(request.messages), request.arguments["now"]):
        return
    texts = SEPARATOR.join([content for content in contents if type(content) is str])
    if encoder_for(request.tokenizer).matcher.is_in(texts):
        return  # such a row never has a layout
    layout = make_layout(request, encoded, contents, is_plain)
    if layout is not None:
        layout.warnings = warnings
        forms.size += len(encoded.text) - len(texts)
    forms.learn(kind, layout)


def encode_laid_out(
    request: EncodeRequest,
    form: FormAndContents,
    encode: Callable[..., Encoded],
    arguments: JsonMapping,
    given: Normalised,
) -> Encoded | None:
    """Return a conversation whose layout is known, and of which there is nothing to warn.

    Fast path: without it, `encode` of plain turns takes four times as long, with calls three times
    (`benchmarks/encode.py` (b) and (c)).
    A caller who mostly wants more than ids and labels would pay twice, so layouts are then used for few conversations.

    Args:
        request: the conversation.
        form: what `find_form` found in it.
        encode: encodes messages with the other arguments.
        arguments: those of `render`.
        given: the conversation, with what was changed in it.
    """
    if form is None or not can_have_layouts(request):
        return None
    encoder = BatchEncoder(request, _refuse_row, "collect")
    row, forms = encoder.lay_out(request.messages, form, False), encoder.forms
    if row is None:
        return None
    forms.used += 1
    if MAX_COMPLETED * forms.completed > forms.used + MAX_COMPLETED:
        return None
    encoder.rows.append(row)
    flat, _ = encoder.encode_laid_out()
    if encoder.rows != [row] or row.layout.warnings:
        return None
    again = {**arguments, "now": request.arguments["now"]}

    def encode_in_full() -> Encoded:
        forms.completed += 1
        encoded = encode(row.messages, growing=GrowingPrompt(), **again)  # which has no layout
        note_changes(encoded, given.changes, None)
        return encoded

    ids = flat.tolist()
    labels = [IGNORED] * len(ids)  # in a tenth of the time of making a list of the array
    for span in encoder.trained:
        labels[span] = ids[span]
    return make_laid_out(
        ids,
        labels,
        len(row.messages),
        request.tokenizer,
        request.train_on,
        encode_in_full,
    )


def _refuse_row(messages: Any, arguments: JsonMapping) -> Encoded:
    raise MessageError("the layout of this row is not known")


def find_form(given: Normalised, arguments: JsonMapping) -> FormAndContents:
    """Return the form of a conversation that is encoded as rows of a form are: all of its messages, in order."""
    if given.read is None or given.positions or given.lost or given.hoisted:
        return None
    if arguments.get("documents") is not None or arguments.get("late_system") is not None:
        return None
    # What the caller can change later would have to be copied, too.
    is_shared = SHARED_TYPES.issuperset(map(type, arguments.values()))
    return read_form(given.messages) if is_shared else None


def encode_batch(
    encode: Callable[..., Encoded],
    requests: RequestBuilder,
    rows: Iterable[Any],
    tokenizer: object,
    train_on: TrainOn,
    arguments: JsonMapping,
    on_error: str,
) -> EncodedBatch:
    """Encode rows.

    Args:
        encode: `Template.encode` of the template.
        requests: builds the requests of the template.
        rows: the rows.
        tokenizer: the tokenizer.
        train_on: the loss policy.
        arguments: the other arguments of `encode`, for all rows.
        on_error: "raise" the error of a row, or "collect" it.
    """
    check_name(on_error, ON_ERROR, "unknown value", "One of", path="errors")
    given = dict(arguments)
    more = {name: given.pop(name) for name in ENCODE_ARGUMENTS if name in given}
    request = requests.build([], tokenizer, train_on, given, **more)
    given["now"] = request.arguments["now"]  # one time for all rows

    def encode_row(messages: Any, own: JsonMapping) -> Encoded:
        return encode(messages, tokenizer, train_on, **{**more, **given, **own})

    shared = request if given.get("documents") is None and can_have_layouts(request) else None
    return BatchEncoder(shared, encode_row, on_error).encode(rows)


def _is_not_unicode(index: int, row: _LaidOutRow) -> bool:
    return find_lone_surrogate(row.contents, ()) is not None


def _is_any(index: int, row: _LaidOutRow) -> bool:
    return True

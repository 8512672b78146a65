"""Encode many conversations at once: render each, then encode all of their text by one call.

Rows of a data set mostly have one of a few forms. The first row of each form is encoded in full, and shows the layout
of its ids (`tokens/row_layout.py`). The others are only rendered; their text is encoded all together, by the batch
interface of the tokenizer's library, in the segments that the layout shows. A row without a layout (tools,
options of its own, a content that spells a control token) is encoded as `Template.encode` does it. So the ids and
labels of every row are those of `encode`.

A row that cannot be encoded is an error in its place, and costs no other row anything.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from turnwise import shapes
from turnwise.engine.option_names import ENCODE_ARGUMENTS, reject_misspelt_options
from turnwise.errors import MessageError, TurnwiseError, did_you_mean
from turnwise.messages import find_plain_kind
from turnwise.tokens.encode import EncodeRequest
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.encoded_batch import ID_TYPE, OFFSET_TYPE, EncodedBatch
from turnwise.tokens.loss import IGNORED, TrainOn
from turnwise.tokens.request_builder import RequestBuilder
from turnwise.tokens.row_layout import (
    SEPARATOR,
    RowLayout,
    can_have_layouts,
    encode_flat,
    make_layout,
)
from turnwise.tokens.text_encoder import encoder_for
from turnwise.tokens.tokenizers.backends import FlatIds

ON_ERROR = ("raise", "collect")
MAX_FORMS = 1_000  # of rows whose layouts are remembered
MAX_LAYOUTS = 4  # of one form: the template may write today's date, or branch on a content
MAX_FAILURES = 20  # rows of a form in succession that fit no layout; then none is tried any more

EncodeRow = Callable[[Any, Mapping[str, Any]], Encoded]  # messages and the arguments of this row


class _Form:
    """What is known about rows with the same roles."""

    __slots__ = ("failures", "layouts")

    def __init__(self) -> None:
        self.layouts: list[RowLayout] = []
        self.failures = 0


class _LaidOutRow(NamedTuple):
    """A row whose layout is known: its segments are encoded with those of the other rows."""

    messages: Sequence[Any]
    layout: RowLayout
    first: int  # the number of its first segment


class BatchEncoder:
    """Encodes the rows of one call.

    Args:
        request: how a row of plain turns is encoded, without messages; None if every row is encoded in full.
        encode_row: encodes one row in full.
        on_error: "raise" the error of a row, or "collect" it.
    """

    def __init__(
        self, request: EncodeRequest | None, encode_row: EncodeRow, on_error: str = "raise"
    ) -> None:
        if not isinstance(on_error, str) or on_error not in ON_ERROR:
            hint = did_you_mean(str(on_error), ON_ERROR, "One of")
            raise MessageError(f"unknown value {on_error!r} of errors", path="errors", hint=hint)
        self._request = request
        self._encode_row = encode_row
        self._on_error = on_error
        self._rows: list[_LaidOutRow | Encoded | None] = []
        self._errors: dict[int, TurnwiseError] = {}
        self._segments: list[str] = []
        self._contents: list[str] = []
        self._forms: dict[Any, _Form] = {}
        if request is not None:
            self._forms = request.turn_cache.layouts.setdefault(request.tokenizer, {})

    def encode(self, rows: Iterable[Any]) -> EncodedBatch:
        """Encode rows.

        Raises:
            MessageError: `rows` are not rows; or an error of a row, if errors are not collected.
        """
        if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable):
            raise MessageError(f"rows are a list of conversations, not {type(rows).__name__}")
        for index, row in enumerate(rows):
            try:
                self._rows.append(self._run(index, self._read, row))
            except TurnwiseError:
                self._encode_segments()  # the error of a row before, whose ids are not known yet, comes first
                raise
        return self._join(self._encode_segments())

    def _run(self, index: int, step: Callable[[Any], Any], row: Any) -> Any:
        """Do a step for a row; an error of the row is raised with its number, or collected."""
        try:
            return step(row)
        except TurnwiseError as error:
            if self._on_error == "raise":
                error.message = f"rows[{index}]: {error.message}"
                raise
            self._errors[index] = error
            return None

    def _read(self, row: Any) -> _LaidOutRow | Encoded:
        """Render a row whose layout is known; encode any other in full."""
        arguments: Mapping[str, Any] = {}
        if type(row) is list:
            messages = row
        elif type(row) is dict and len(row) == 1 and "messages" in row:
            messages = row["messages"]
        else:
            arguments = dict(shapes.conversation(row).arguments)
            messages = arguments.pop("messages")
        contents = None if self._request is None or arguments else _find_plain_contents(messages)
        if contents is None:
            return self._encode_row(messages, arguments)
        form = self._find_form(messages)
        if form is None or form.failures >= MAX_FAILURES:
            return self._encode_row(messages, arguments)
        laid_out = self._lay_out(messages, contents, form) if form.layouts else None
        if laid_out is not None:
            form.failures = 0
            return laid_out
        form.failures += 1
        encoded = self._encode_row(messages, arguments)
        assert self._request is not None
        layout = make_layout(replace(self._request, messages=messages), encoded)
        if layout is not None:
            form.layouts = [layout, *form.layouts[: MAX_LAYOUTS - 1]]
        return encoded

    def _find_form(self, messages: Sequence[Any]) -> _Form | None:
        """Return what is known about rows with the roles of these messages; None if they are not plain turns."""
        request = self._request
        assert request is not None
        prompt = bool(request.arguments.get("add_generation_prompt"))
        roles = [message.get("role") for message in messages]
        if set(map(type, roles)) != {str}:
            return None
        key = (request.train_on, prompt, *roles)
        form = self._forms.get(key)
        if form is None and find_plain_kind(messages) == "turns":
            if len(self._forms) >= MAX_FORMS:
                self._forms.clear()
            form = self._forms[key] = _Form()
        return form

    def _lay_out(
        self, messages: Sequence[Any], contents: Sequence[str], form: _Form
    ) -> _LaidOutRow | None:
        """Render a row and note its segments; None if no layout fits."""
        request = self._request
        assert request is not None
        try:
            out = request.render(messages).output
        except TurnwiseError:
            return None  # it is normalised, or the error is raised again
        for layout in form.layouts:
            if layout.fits(out, contents):
                segments = layout.split(contents)
                if segments is None:
                    return None
                first = len(self._segments)
                self._segments += segments
                self._contents += contents
                return _LaidOutRow(messages, layout, first)
        return None

    def _encode_segments(self) -> FlatIds:
        """Encode the segments of all rows; rows that cannot be encoded so are encoded in full."""
        request = self._request
        if request is None or not self._segments:
            return b"", [0]
        try:
            ids, offsets = encode_flat(request.tokenizer, self._segments)
        except TurnwiseError:
            self._encode_in_full(lambda row: True)
            return b"", [0]
        find_token = encoder_for(request.tokenizer).matcher.pattern.search
        has_tokens = bool(find_token(SEPARATOR.join(self._contents)))  # one search for all rows
        limit = request.max_length

        def is_special(row: _LaidOutRow) -> bool:
            if has_tokens and any(find_token(message["content"]) for message in row.messages):
                return True
            size = offsets[row.first + row.layout.count] - offsets[row.first]
            return limit is not None and size > limit

        if has_tokens or limit is not None:
            self._encode_in_full(is_special)
        return ids, offsets

    def _encode_in_full(self, is_wanted: Callable[[_LaidOutRow], bool]) -> None:
        """Encode rows in full after all."""
        for index, row in enumerate(self._rows):
            if isinstance(row, _LaidOutRow) and is_wanted(row):
                self._rows[index] = self._run(
                    index, lambda messages: self._encode_row(messages, {}), row.messages
                )

    def _join(self, flat: FlatIds) -> EncodedBatch:
        """Put the ids and labels of all rows one after another."""
        ids, bounds = array(ID_TYPE), list(flat[1])
        ids.frombytes(flat[0])
        labels = array(ID_TYPE, [IGNORED]) * len(ids)
        source, target = memoryview(ids), memoryview(labels)
        offsets = array(OFFSET_TYPE, [0])
        for row in self._rows:
            if type(row) is not _LaidOutRow:
                return self._join_mixed(ids, labels, bounds)
            _, layout, first = row
            for number in layout.trained:
                start, end = bounds[first + number], bounds[first + number + 1]
                target[start:end] = source[start:end]
            offsets.append(bounds[first + layout.count])
        return EncodedBatch(ids, labels, offsets, self._errors, {})

    def _join_mixed(
        self, flat_ids: array[int], flat_labels: array[int], bounds: Sequence[int]
    ) -> EncodedBatch:
        """Put the ids and labels of all rows one after another, if some were encoded in full, or failed."""
        ids, labels, offsets = array(ID_TYPE), array(ID_TYPE), array(OFFSET_TYPE, [0])
        weights: dict[int, list[float]] = {}
        for index, row in enumerate(self._rows):
            if isinstance(row, Encoded):
                ids.extend(row.input_ids)
                labels.extend(row.labels)
                if not {0.0, 1.0}.issuperset(row.weights):
                    weights[index] = row.weights
            elif row is not None:
                _, layout, first = row
                for number in layout.trained:
                    start, end = bounds[first + number], bounds[first + number + 1]
                    flat_labels[start:end] = flat_ids[start:end]
                start, end = bounds[first], bounds[first + layout.count]
                ids += flat_ids[start:end]
                labels += flat_labels[start:end]
            offsets.append(len(ids))
        return EncodedBatch(ids, labels, offsets, self._errors, weights)


def encode_batch(
    encode: Callable[..., Encoded],
    requests: RequestBuilder,
    rows: Iterable[Any],
    tokenizer: object,
    train_on: TrainOn,
    arguments: Mapping[str, Any],
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
    given = dict(arguments)
    more = {name: given.pop(name) for name in ENCODE_ARGUMENTS if name in given}
    if given.get("normalise", True):
        reject_misspelt_options(
            given, requests.renderer.variables, "encode_batch", ENCODE_ARGUMENTS
        )
    request = requests.build([], tokenizer, train_on, given, **more)
    given["now"] = request.arguments["now"]  # one time for all rows

    def encode_row(messages: Any, own: Mapping[str, Any]) -> Encoded:
        return encode(messages, tokenizer, train_on, **{**more, **given, **own})

    is_plain = given.get("tools") is None and not given.get("documents")
    shared = request if is_plain and can_have_layouts(request) else None
    return BatchEncoder(shared, encode_row, on_error).encode(rows)


def _find_plain_contents(messages: Any) -> list[str] | None:
    """Return the contents of messages that have a text that is not blank, and one other field; None if not."""
    if type(messages) is not list or set(map(type, messages)) != {dict}:
        return None
    if set(map(len, messages)) != {2}:
        return None
    contents = [message.get("content") for message in messages]
    if set(map(type, contents)) != {str} or not all(contents) or any(map(str.isspace, contents)):
        return None
    return contents

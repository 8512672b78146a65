r"""What conversations of one form have in common, so that only their contents are left to encode.

Many rows of a data set differ only in what was said: the same roles in the same order, written by the same template.
One of them is encoded in full. Its *layout* says where the contents are in its text, and in which segments that text
is encoded: one ends where a turn of the model begins or ends, so each is trained as a whole or not at all.

    <|im_start|>user\n{content[0]}<|im_end|>\n<|im_start|>assistant\n   {content[1]}<|im_end|>   \n

Another row has this layout if the program wrote the same texts with the same trails beside the contents, and each
content as it was given. Then its special tokens, its turns and its labels are where they are in the first row, because
nothing that decides about them looks at a content. `make_layout` makes sure of that, and returns None otherwise:

* added tokens can neither overlap nor look at their surroundings, so a look-alike is found by a search in one span;
* the opening of each turn was learned from its kind, and is the template's text;
* each turn ends with the one stop token that the template writes behind it;
* the labels do not change inside of a span between two added tokens;
* the tokenizer's library gives the same ids for the segments, added tokens included, as for the spans between them.

A row that spells an added token in a content, or of which the template strips one, is encoded in full.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

from turnwise.tokens.boundaries import Opening, Turn, find_message_spans
from turnwise.tokens.encode import EncodeRequest
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import IGNORED
from turnwise.tokens.text_encoder import encoder_for
from turnwise.tokens.tokenizers.backends import FlatIds
from turnwise.tokens.tokenizers.protocol import Tokenizer
from turnwise.tokens.turn_ends import TextSpan, is_blank
from turnwise.tokens.turn_kinds import find_kinds

SPAN_POLICIES = ("assistant", "last", "all")  # they train whole turns
ID_TYPE = "i"  # of arrays of ids: 32 bits, as fastokens gives them

SEPARATOR = "\0"  # between the segments of a row; a row that has it in a content is encoded in full


class RowSegment(NamedTuple):
    """A part of a row that is encoded by itself, with its added tokens, and trained as a whole or not at all."""

    start: int
    end: int
    is_trained: bool


class RowLayout:
    """The layout of conversations with these roles.

    Args:
        out: what the program wrote for the first of them: texts and trails, alternately.
        places: the index in `out` of each content.
        text: the text of the first row.
        contents: where its contents are.
        segments: of which its ids are made.
        openings: the openings that are known of each kind of turn; while there is one, it applies.
    """

    def __init__(
        self,
        out: Sequence[Any],
        places: Sequence[int],
        text: str,
        contents: Sequence[TextSpan],
        segments: Sequence[RowSegment],
        openings: Sequence[list[Opening]],
    ) -> None:
        self.trained = [number for number, segment in enumerate(segments) if segment.is_trained]
        self.count = len(segments)
        self._length = len(out)
        self._get_contents = _get_items(places)
        hidden = {*places, *(place + 1 for place in places)}
        self._get_others = _get_items([i for i in range(len(out)) if i not in hidden])
        self._others = self._get_others(out)
        self._openings = openings
        self._order = _get_items([n for n, _ in sorted(enumerate(contents), key=itemgetter(1))])
        self._row = _make_format(text, contents, [segment.end for segment in segments[:-1]])

    def fits(self, out: Sequence[Any], contents: Sequence[str]) -> bool:
        """Return whether the program wrote another conversation of the same roles in the same way."""
        return (
            len(out) == self._length
            and self._get_contents(out) == tuple(contents)
            and self._get_others(out) == self._others
            and all([len(known) == 1 for known in self._openings])
        )

    def split(self, contents: Sequence[str]) -> list[str] | None:
        """Return the segments of a row that fits; None if a separator is in a content."""
        segments: list[str] = (self._row % self._order(contents)).split(SEPARATOR)
        return segments if len(segments) == self.count else None


def _make_format(text: str, contents: Sequence[TextSpan], cuts: Sequence[int]) -> str:
    """Return a format of a text in which `%s` is in the place of each content, and a separator at each cut."""
    spans = [(*span, "%s") for span in contents] + [(cut, cut, SEPARATOR) for cut in cuts]
    parts, done = [], 0
    for start, end, mark in sorted(spans):
        parts += [text[done:start].replace("%", "%%"), mark]
        done = end
    return "".join([*parts, text[done:].replace("%", "%%")])


def _get_items(indices: Sequence[int]) -> Any:
    """Return a function that gives these elements of a list as a tuple."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda values: tuple([values[index] for index in indices])


def can_have_layouts(request: EncodeRequest) -> bool:
    """Return whether rows that are encoded like this can share a layout at all."""
    reads, encoder = request.turn_cache.reads, encoder_for(request.tokenizer)
    return not (
        request.compatible
        or request.trust
        or request.arguments.get("continue_final_message")
        or request.train_on not in SPAN_POLICIES
        or reads.messages
        or reads.first_message
    ) and (not encoder.has_blank_tokens and encoder.matcher.is_separable)


def make_layout(request: EncodeRequest, encoded: Encoded) -> RowLayout | None:
    """Return the layout of a conversation of plain turns that was encoded, None if it decides about its ids.

    Args:
        request: how it was encoded.
        encoded: the conversation; its contents are not blank.
    """
    messages, out = request.messages, encoded.rendering.output
    if encoded.untrained or encoded.incomplete or encoded.added_stop or encoded.rendering.changes:
        return None
    if type(encoded.kept) is not range or "".join(out[::2]) != encoded.text:
        return None
    places = _find_contents(out, [message["content"] for message in messages])
    if places is None:
        return None
    starts = list(accumulate(map(len, out[::2]), initial=0))
    contents = [TextSpan(starts[place // 2], starts[place // 2 + 1]) for place in places]
    openings = _find_openings(request, encoded, contents)
    segments = _make_segments(encoded, contents)
    if openings is None or segments is None:
        return None
    if _may_complete_token(request, encoded, contents):
        return None
    layout = RowLayout(out, places, encoded.text, contents, segments, openings)
    return layout if _encodes_alike(request, encoded, segments) else None


def _may_complete_token(
    request: EncodeRequest, encoded: Encoded, contents: Sequence[TextSpan]
) -> bool:
    """Return whether a content could spell an added token together with the template's text beside it.

    It cannot together with an added token, since these never overlap. So only plain text counts, and that of another
    content counts as any text.
    """
    text, rows = encoded.text, encoded.span_rows
    can_join = encoder_for(request.tokenizer).matcher.can_join
    tokens = [row[3] for row in rows]
    edges = [*(row[0] for row in rows), len(text)]
    for content in contents:
        span = bisect_right(edges, content.start) - 1
        if tokens[span] is not None:
            return True
        others = [
            one for one in contents if one != content and edges[span] <= one.start < edges[span + 1]
        ]
        if others or can_join(
            text[edges[span] : content.start], text[content.end : edges[span + 1]]
        ):
            return True
    return False


def _encodes_alike(
    request: EncodeRequest, encoded: Encoded, segments: Sequence[RowSegment]
) -> bool:
    """Return whether the library gives the same ids for segments with their added tokens."""
    parts = [encoded.text[start:end] for start, end, _ in segments]
    ids, _ = encode_flat(request.tokenizer, parts)
    return array(ID_TYPE, encoded.input_ids).tobytes() == ids


def _find_contents(out: Sequence[Any], contents: Sequence[str]) -> list[int] | None:
    """Return the index of each content in what a program wrote; None if one was not written as it is, or twice."""
    places = []
    texts = out[::2]
    for content in contents:
        if texts.count(content) != 1:
            return None
        places.append(2 * texts.index(content))
    return places


def _find_openings(
    request: EncodeRequest, encoded: Encoded, contents: Sequence[TextSpan]
) -> list[list[Opening]] | None:
    """Return the openings that are known of each kind of turn; None if a turn looks at a content."""
    cache, spans = request.turn_cache, find_message_spans(encoded.rendering.piece_table)
    turns = encoded.turns
    assistant = [i for i, message in enumerate(request.messages) if message["role"] == "assistant"]
    if [turn.message for turn in turns] != assistant:
        return None
    found = []
    kinds = find_kinds(request.messages, assistant, cache.reads)
    for turn, kind in zip(turns, kinds, strict=True):
        known, span = cache.openings.get(kind), spans.get(turn.message)
        if known is None or len(known) != 1 or span is None or cache.mixed.get(kind, True):
            return None
        (opening,) = known
        begin = span.start + min(opening.offset, 0)
        opened = TextSpan(begin, begin + len(opening.text))
        if opening.status != "usable" or _touches(opened, contents):
            return None
        if not _has_plain_end(request, encoded, turn, span.end, contents):
            return None
        found.append(known)
    return found


def _has_plain_end(
    request: EncodeRequest, encoded: Encoded, turn: Turn, end: int, contents: Sequence[TextSpan]
) -> bool:
    """Return whether a turn ends with the only stop token in its message, and the template wrote all that follows."""
    text, content = encoded.text, contents[turn.message]
    if turn.missing or not turn.start <= content.start <= content.end <= turn.stop:
        return False
    if any(other.start == turn.end for other in contents):
        return False  # whether the text is split there depends on that content
    stops = [
        start
        for start, _, _, token in encoded.span_rows
        if token is not None and token.text in request.stops and turn.start <= start < end
    ]
    if stops != [turn.stop] or not is_blank(text, turn.end, end):
        return False
    return text[turn.stop : turn.end] in request.stops and not _touches(
        TextSpan(turn.stop, end), contents
    )


def _touches(span: TextSpan, contents: Sequence[TextSpan]) -> bool:
    """Return whether a content lies in a span, or a part of it."""
    return any(span.start < content.end and content.start < span.end for content in contents)


def _make_segments(encoded: Encoded, contents: Sequence[TextSpan]) -> list[RowSegment] | None:
    """Return the parts of which the ids of a conversation are made; None if labels change inside of a plain span.

    A part ends where a model's turn begins or ends: text is encoded across all other spans.
    """
    text, rows = encoded.text, encoded.span_rows
    changes = {turn.start for turn in encoded.turns}
    segments: list[RowSegment] = []
    ends = [(start, first) for start, first, _, _ in rows[1:]]
    for row, (end, last) in zip(rows, [*ends, (len(text), len(encoded.input_ids))], strict=True):
        start, first = row[0], row[1]
        trained = {label != IGNORED for label in encoded.labels[first:last]}
        if len(trained) != 1 or SEPARATOR in text[start:end]:
            return None
        is_trained = trained.pop()
        follows = segments and segments[-1].is_trained == is_trained and start not in changes
        begin = segments.pop().start if follows else start
        segments.append(RowSegment(begin, end, is_trained))
    is_cut = any(
        content.start < segment.start < content.end for content in contents for segment in segments
    )
    return None if is_cut else segments


def encode_flat(tokenizer: Tokenizer, texts: Sequence[str]) -> FlatIds:
    """Return the ids of texts and of the added tokens in them, by one call if the tokenizer's library has one."""
    encode = getattr(tokenizer, "whole_flat", None)
    found: FlatIds | None = None if encode is None else encode(texts)
    if found is not None:
        return found
    ids, offsets = array(ID_TYPE), [0]
    for text in texts:
        ids.extend(tokenizer.whole(text))
        offsets.append(len(ids))
    return ids.tobytes(), offsets

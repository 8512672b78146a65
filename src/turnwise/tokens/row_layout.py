r"""What conversations of one form have in common, so that only their contents are left to encode.

Many rows of a data set differ only in what was said: the same roles in the same order, written by the same template.
One of them is encoded in full. Its *layout* says where the contents are in its text, and in which segments that text
is encoded: one ends where a turn of the model begins or ends, so each is trained as a whole or not at all.

    <|im_start|>user\n{content[0]}<|im_end|>\n<|im_start|>assistant\n   {content[1]}<|im_end|>   \n

Another row has this layout if the program writes the same texts beside the contents, and each content as it was given,
or arguments as JSON. That is proven for all contents at once (`engine/segments/rows.py`). Then its special tokens, its
turns and its labels are where they are in the first row, because nothing that decides about them looks at a content.
`make_layout` makes sure of that, and returns None otherwise:

* added tokens can neither overlap nor look at their surroundings, so a look-alike is found by a search in one span;
* the opening of each turn was learned from its kind, and is the template's text;
* each turn ends with the one stop token that the template writes behind it;
* the labels do not change inside of a span between two added tokens;
* the tokenizer's library gives the same ids for the segments, added tokens included, as for the spans between them,
  and puts no space before a segment that it does not put before the same text inside of another.

A row that spells an added token in a content is encoded in full, and so is one that has other control ids than the
first (`control_ids.py`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from turnwise.engine.segments.rows import ContentSlot, ContentTrace, ContentTracer
from turnwise.messages import measure_input
from turnwise.tokens.boundaries import Turn, find_message_spans
from turnwise.tokens.encode import RENDERINGS, RENDERINGS_PER_TURN, EncodeRequest
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.encoded_batch import ID_TYPE
from turnwise.tokens.loss import IGNORED
from turnwise.tokens.row_form import number_places
from turnwise.tokens.text_encoder import encoder_for
from turnwise.tokens.token_matcher import TokenMatcher
from turnwise.tokens.tokenizers.backends import FlatIds
from turnwise.tokens.tokenizers.protocol import START, Tokenizer
from turnwise.tokens.turn_ends import TextSpan, is_blank

MAX_TRACED_PROMPTS = 32  # of one conversation; each is one more run of the template
SPAN_POLICIES = ("assistant", "last", "all")  # they train whole turns
PROBES = ("a", "1", "é", "中")  # one of which a vocabulary knows


class RowSegment(NamedTuple):
    """A part of a row that is encoded by itself, with its added tokens.

    Attributes:
        start: its first character.
        end: the character behind it.
        is_trained: whether it is trained.
        rest: how many of its last ids are not trained all the same.
    """

    start: int
    end: int
    is_trained: bool
    rest: int = 0


class RowContents:
    """The contents of a row, as the template writes them.

    Args:
        trace: shows where it does.
        messages: the row.
        contents: its contents.

    Attributes:
        numbers: of the contents, by their places.
        writers: what writes arguments, by their numbers.
        texts: the contents, by their places.
    """

    def __init__(self, trace: ContentTrace, messages: Sequence[Any], contents: list[Any]) -> None:
        self.numbers = number_places(messages)
        written = {
            self.numbers[part.place]: part.write
            for part in trace.parts
            if isinstance(part, ContentSlot) and part.write
        }
        # A text stays as it is, for questions about it. If it is written as JSON, the row has no layout.
        self.writers: dict[int, Callable[[Any], str]] = {
            number: written.get(number, _leave_out)
            for number, content in enumerate(contents)
            if type(content) is dict
        }
        texts = write_all(self.writers, contents)
        self.texts = {place: texts[number] for place, number in self.numbers.items()}


def write_all(writers: Mapping[int, Callable[[Any], str]], contents: Sequence[Any]) -> list[Any]:
    """Return contents with arguments as they are written."""
    texts = [*contents]
    for number, write in writers.items():
        texts[number] = write(texts[number])
    return texts


def _leave_out(arguments: Any) -> str:
    """Write nothing, for arguments of which the template writes nothing."""
    return ""


class RowLayout:
    """The layout of conversations of one form, but for those with certain texts in their contents.

    Args:
        trace: shows how the template writes contents that it does not know.
        matcher: finds added tokens.
        contents: the contents of the first of them.
        segments: of which its ids are made.
        controls: its control ids, which are those of every row.
        is_plain: whether such conversations are encoded as the caller gives them.

    Attributes:
        absent: the texts that must not be in a content, beside the added tokens.
        writers: what writes arguments, by the numbers of the contents.
        count: how many segments there are.
        trained: the numbers of those that are trained, and how many ids at the end of each are not.
        warnings: what was warned of for the first row.
    """

    warnings: tuple[str, ...] = ()

    def __init__(
        self,
        trace: ContentTrace,
        matcher: TokenMatcher,
        contents: RowContents,
        segments: Sequence[RowSegment],
        controls: Sequence[int],
        is_plain: bool,
    ) -> None:
        self.trace = trace
        self.is_plain = is_plain
        self.writers = contents.writers
        # a text with an added token in it is absent where there are no added tokens
        self.absent = [text for text in trace.absent if not matcher.pattern.search(text)]
        self.controls = controls
        self.trained = [
            (number, segment.rest) for number, segment in enumerate(segments) if segment.is_trained
        ]
        self.count = len(segments)
        self._parts = _split_parts(trace, contents, [segment.start for segment in segments[1:]])

    def may_exceed(self, contents: Sequence[Any], texts: Sequence[str]) -> bool:
        """Return whether arguments, as they are written, may be more than the budgets, which input adds to."""
        added = sum([len(texts[number]) for number in self.writers])
        if added > self.trace.added:
            added -= sum([measure_input(contents[number])[1] for number in self.writers])
        return added > self.trace.added

    def fill(self, contents: Sequence[str]) -> list[str]:
        """Return the segments of a row, given its contents."""
        return [
            "".join(
                [part if type(part) is str else part[1].fill(contents[part[0]]) for part in parts]
            )
            for parts in self._parts
        ]


def _split_parts(trace: ContentTrace, contents: RowContents, edges: list[int]) -> list[list[Any]]:
    """Return the parts of each segment: texts, and slots with the numbers of their contents."""
    found: list[list[Any]] = [[]]
    done = 0
    for part, text in zip(trace.parts, trace.write(contents.texts), strict=True):
        end = done + len(text)
        while edges and edges[0] < end:  # never inside of a content
            found[-1].append(text[: edges[0] - done])
            text, done = text[edges[0] - done :], edges.pop(0)
            found.append([])
        found[-1].append(text if isinstance(part, str) else (contents.numbers[part.place], part))
        done = end
    return found


def can_have_layouts(request: EncodeRequest) -> bool:
    """Return whether rows that are encoded like this can share a layout at all."""
    if request.compatible or request.trust or request.arguments.get("continue_final_message"):
        return False
    encoder = encoder_for(request.tokenizer)
    is_plain = encoder.matcher.is_separable and not encoder.has_blank_tokens
    return is_plain and request.train_on in SPAN_POLICIES


def make_layout(
    request: EncodeRequest, encoded: Encoded, values: list[Any], is_plain: bool
) -> RowLayout | None:
    """Return the layout of a conversation that has a form and was encoded, None if it decides about its ids.

    Args:
        request: how it was encoded.
        encoded: the conversation.
        values: its contents.
        is_plain: whether such conversations are encoded as the caller gives them.
    """
    if encoded.untrained or encoded.incomplete or encoded.added_stop:
        return None
    if type(encoded.kept) is not range or (is_plain and encoded.rendering.changes):
        return None  # messages were left out, or changed
    tracer = ContentTracer(request.renderer)
    trace = tracer.trace(request.messages, request.arguments)
    if trace is None:
        return None
    contents = RowContents(trace, request.messages, values)
    spans = _fill_slots(trace, contents, encoded.text)
    segments = spans and _FirstRow(request, encoded, contents, spans).find_segments()
    # The generation prompts of a conversation may depend on its contents.
    is_proven = request.turn_cache.is_proven
    if segments and not all(is_proven(request.messages, turn.message) for turn in encoded.turns):
        trace = _add_prompts(request, encoded, trace, tracer, contents)
    if not segments or trace is None:
        return None
    encoder = encoder_for(request.tokenizer)
    controls = encoder.controls.select(encoded.input_ids)
    return RowLayout(trace, encoder.matcher, contents, segments, controls, is_plain)


def _fill_slots(
    trace: ContentTrace, contents: RowContents, text: str
) -> dict[int, TextSpan] | None:
    """Return where a trace says that contents are in a text; None if the text is another, or one is there twice."""
    spans: dict[int, TextSpan] = {}
    parts, end = trace.write(contents.texts), 0
    for part, written in zip(trace.parts, parts, strict=True):
        start, end = end, end + len(written)
        if isinstance(part, ContentSlot):
            number = contents.numbers[part.place]
            if number in spans:
                return None
            spans[number] = TextSpan(start, end)
    return spans if "".join(parts) == text else None


def _add_prompts(
    request: EncodeRequest,
    encoded: Encoded,
    trace: ContentTrace,
    tracer: ContentTracer,
    contents: RowContents,
) -> ContentTrace | None:
    """Return a trace with what the prompts before all turns need too; None if a turn does not follow its prompt."""
    turns = encoded.turns
    renderings = RENDERINGS + RENDERINGS_PER_TURN * len(turns)
    budget = renderings * request.renderer.limits.bytes_per_character
    if len(turns) > MAX_TRACED_PROMPTS or trace.cost * (len(turns) + 1) > budget:
        return None
    absent, clock = set(trace.absent), dict(trace.clock)
    for turn in turns:
        before = request.messages[: turn.message]
        if not before:
            return None
        prompt = tracer.trace(before, request.prompt_arguments)
        if prompt is None or not trace.starts_with(prompt):
            return None
        if sum(map(len, prompt.write(contents.texts))) != turn.start:
            return None
        absent |= prompt.absent
        clock |= dict(prompt.clock)
    return trace._replace(absent=frozenset(absent), clock=tuple(clock.items()))


class _FirstRow:
    """An encoded conversation, asked for what others with the same roles must have in common with it.

    Args:
        request: how it was encoded.
        encoded: the conversation.
        contents: its contents.
        spans: where they are, by their numbers.
    """

    def __init__(
        self,
        request: EncodeRequest,
        encoded: Encoded,
        contents: RowContents,
        spans: Mapping[int, TextSpan],
    ) -> None:
        self.request = request
        self.encoded = encoded
        self.contents = sorted(spans.values())
        self._of_message: dict[int, list[TextSpan]] = {}
        for place, number in contents.numbers.items():
            if number in spans:
                message = int(place[1 : place.index("]")])
                self._of_message.setdefault(message, []).append(spans[number])
        # Of each span: its first character and id, its position, and its token, None for a plain span.
        columns = tuple(zip(*encoded.token_offsets.spans, strict=True)) or ((),) * 4
        self._starts, self._first_ids, self._positions, self._tokens = columns

    # ---- turns ----

    def has_plain_turns(self) -> bool:
        """Return whether no turn looks at a content to find where it begins or ends."""
        messages, turns = self.request.messages, self.encoded.turns
        assistant = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        if [turn.message for turn in turns] != assistant:
            return False
        spans = find_message_spans(self.encoded.rendering.piece_table)
        for turn in turns:
            span = spans.get(turn.message)
            if span is None or self._has_content(*sorted((span.start, turn.start))):
                return False
            if not self._has_plain_end(turn, span.end):
                return False
        return True

    def _has_plain_end(self, turn: Turn, end: int) -> bool:
        """Return whether a turn ends with the only stop token in its message, and the template wrote all that follows.

        Args:
            turn: the turn.
            end: that of its message.
        """
        text, stops = self.encoded.text, self.request.stops
        own = self._of_message.get(turn.message, [])
        if turn.missing or not all(turn.start <= one.start <= one.end <= turn.stop for one in own):
            return False
        if any(other.start == turn.end for other in self.contents):
            return False  # whether the text is split there depends on that content
        found = [
            start
            for start, token in zip(self._starts, self._tokens, strict=True)
            if token is not None and token.text in stops and turn.start <= start < end
        ]
        if found != [turn.stop] or text[turn.stop : turn.end] not in stops:
            return False
        return is_blank(text, turn.end, end) and not self._has_content(turn.stop, end)

    def _has_content(self, start: int, end: int) -> bool:
        """Return whether a content lies between two places, or a part of it."""
        return any(start < content.end and content.start < end for content in self.contents)

    # ---- segments ----

    def find_segments(self) -> list[RowSegment] | None:
        """Return the parts of which the ids are made; None if they depend on more than the text of each part."""
        segments = self._make_segments() if self.has_plain_turns() else None
        if segments is None or self._may_complete_token():
            return None
        if not all(map(self._can_stand_alone, segments)):
            return None
        segments = self._join_tail(segments)
        parts = [self.encoded.text[segment.start : segment.end] for segment in segments]
        ids, _ = encode_flat(self.request.tokenizer, parts)
        return segments if array(ID_TYPE, self.encoded.input_ids).tobytes() == ids else None

    def _can_stand_alone(self, segment: RowSegment) -> bool:
        """Return whether a part has the same ids at the start of a text, also if a content at its start is another.

        Some tokenizers put a space before a text at its start only, and before none that begins with a space.
        """
        number = self._starts.index(segment.start)
        position, tokenizer = self._positions[number], self.request.tokenizer
        if position == START or self._tokens[number] is not None:
            return True
        texts = (*PROBES, self.encoded.text[segment.start : segment.end].lstrip())
        return all(tokenizer.encode(text, position) == tokenizer.encode(text) for text in texts)

    def _make_segments(self) -> list[RowSegment] | None:
        """Return the parts of which the ids of a conversation are made; None if labels change inside of a plain span.

        A part ends where a model's turn begins or ends: text is encoded across all other spans.
        """
        encoded = self.encoded
        turn_starts = {turn.start for turn in encoded.turns}
        ends = [*self._starts[1:], len(encoded.text)]
        last_ids = [*self._first_ids[1:], len(encoded.input_ids)]
        spans = zip(self._starts, ends, self._first_ids, last_ids, strict=True)
        segments: list[RowSegment] = []
        for start, end, first, last in spans:
            trained = {label != IGNORED for label in encoded.labels[first:last]}
            if len(trained) != 1:
                return None
            is_trained = trained.pop()
            if segments and segments[-1].is_trained == is_trained and start not in turn_starts:
                start = segments.pop().start
            segments.append(RowSegment(start, end, is_trained))
        for segment in segments:
            if any(content.start < segment.start < content.end for content in self.contents):
                return None
        return segments

    def _join_tail(self, segments: list[RowSegment]) -> list[RowSegment]:
        """Return segments of which the last one is joined with the one before, if it is the same in all rows.

        That is the line break behind the last turn: an added token is before it, so its ids do not depend on the turn.
        """
        *others, tail = segments
        if not others or not others[-1].is_trained or tail.is_trained:
            return segments
        number = self._starts.index(tail.start)
        is_turn = any(turn.start == tail.start for turn in self.encoded.turns)
        if self._tokens[number - 1] is None or is_turn or self._has_content(tail.start, tail.end):
            return segments
        rest = len(self.encoded.input_ids) - self._first_ids[number]
        return [*others[:-1], RowSegment(others[-1].start, tail.end, True, rest)]

    def _may_complete_token(self) -> bool:
        """Return whether a content could spell an added token together with the template's text beside it.

        It cannot together with an added token, since these never overlap. So only plain text counts, and two contents
        with no more between them than there may be inside of a token count as one that could.
        """
        text, matcher = self.encoded.text, encoder_for(self.request.tokenizer).matcher
        edges = [*self._starts, len(text)]
        gaps: set[tuple[str, str]] = set()
        done = 0
        for content, following in zip_longest(self.contents, self.contents[1:]):
            span = bisect_right(edges, content.start) - 1
            if self._tokens[span] is not None:
                return True
            end = edges[span + 1]
            if following is not None and following.start < end:
                end = following.start
                if matcher.is_inside(text[content.end : end]):
                    return True
            gaps.add((text[max(done, edges[span]) : content.start], text[content.end : end]))
            done = content.end
        return any(matcher.can_join(before, after) for before, after in gaps)


def encode_flat(tokenizer: Tokenizer, texts: Sequence[str]) -> FlatIds:
    """Return the ids of texts and of the added tokens in them, by one call if the tokenizer's library has one."""
    encode = getattr(tokenizer, "whole_flat", None)
    found: FlatIds | None = encode and encode(texts)
    if found is not None:
        return found
    ids, offsets = array(ID_TYPE), [0]
    for text in texts:
        ids.extend(tokenizer.whole(text))
        offsets.append(len(ids))
    return ids.tobytes(), offsets

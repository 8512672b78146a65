"""Encode a conversation that has grown: only what is new is analysed and encoded.

A server gets a conversation again with every turn, a little longer. A template may write an earlier message differently
now, so what it wrote, texts with their trails, is compared with what it wrote before. Where both begin alike, so do the
text, the authors of its characters, its special tokens, its turns and its ids:

    before   <|user|>Q1<|assistant|>A1<|end|> <|user|>Q2<|end|> <|assistant|>
    now      <|user|>Q1<|assistant|>A1<|end|> <|user|>Q2<|end|> <|assistant|>A2<|end|> <|user|>Q3<|end|> <|assistant|>
             ids and turns are kept          ^ checkpoint: from here on as `encode` does it

A checkpoint is the mark of a message in the only open loop, behind which comes a special token: the text
before a special token is encoded by itself. Whatever looks ahead from the text before a checkpoint must see the same as
before, so all of these are needed, or everything is encoded anew:

* both outputs are equal up to the end of the special token, and as far beyond it as any token or stop may reach;
* the message at the checkpoint is in both conversations, and is no tool result, which belongs to the turn before it;
* earlier messages were written before it, its own and later ones behind it: templates may write some twice;
* every turn before the checkpoint is history in both, or in neither: what a turn looks like may depend on that.

The result is that of `encode` in every respect. Only origins are paid for what is new alone: with limits that are too
low for the whole conversation (`Limits.origins`), less may be unknown here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

from turnwise.engine.provenance.piece_table import PieceTable, is_message
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.provenance.trails import BEGIN, DONE, END, LOOP, Output
from turnwise.errors import MessageError, short_repr
from turnwise.messages import ReadMessages
from turnwise.messages.roles import ASSISTANT_ROLES, RESULT_ROLES
from turnwise.tokens.boundaries import (
    Turn,
    TurnCache,
    Untrained,
    find_message_spans,
    find_seams,
)
from turnwise.tokens.encode import (
    EncodeRequest,
    encode_rendering,
    find_specials,
    find_stop_to_add,
    find_turns,
)
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.loss import weigh
from turnwise.tokens.read_chat import ReadChat
from turnwise.tokens.text_encoder import SpanRow, encoder_for
from turnwise.tokens.tokenizers.protocol import Tokenizer
from turnwise.tokens.truncation import EncodeWhole, encode_within_limit
from turnwise.tokens.turn_ends import TextSpan, find_content_end
from turnwise.tokens.turn_prompts import Messages, PromptEnd

MAX_TRAIL_NODES = 100_000  # of all trails that are new; more take too long to compare
MAX_CHECKPOINTS = 40  # of loops, kept for the next prompt: each value of an option has its own
# What things take in memory, in bytes, about.
ID_SIZE, NODE_SIZE, ROW_SIZE, MESSAGE_SIZE, TURN_SIZE = 36, 64, 120, 600, 150

EncodingRules = tuple[TurnCache, Tokenizer, Mapping[str, str] | None]
_get_first = itemgetter(0)  # the start of a SpanRow, the message of a checkpoint or turn


class Checkpoint(NamedTuple):
    """A message from which on a conversation can be encoded anew.

    Attributes:
        message: the index of the message that begins here.
        item: the index of its mark in what the program wrote.
        start: the character at which its text begins.
        row: the index of the row of the special token that comes next.
        end_item: up to here the output decides about what is before the checkpoint.
    """

    message: int
    item: int
    start: int
    row: int
    end_item: int


BEGINNING = Checkpoint(0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPrefix:
    """What is kept of an encoded conversation for the next one that begins as it does. It never changes.

    Attributes:
        rules: what decides about ids beside the output: what is known about turns, the tokenizer, trust.
        messages: the conversation, in the form that the template takes; a copy of the caller's.
        output: what the program wrote.
        text: its text.
        ids: its ids.
        rows: the spans of its ids.
        turns: its assistant turns.
        untrained: those whose place could not be found.
        checkpoints: where it can be taken up again.
        size: the memory that it takes, in bytes, about.
        chat: the conversation as the caller had it, and as a renderer takes it.
        prompts: its last prompts by the number of their messages, and from where on their origins count.
    """

    rules: EncodingRules
    messages: Messages
    output: Output
    text: str
    ids: list[int]
    rows: Sequence[SpanRow]
    turns: Sequence[Turn]
    untrained: Sequence[Untrained]
    checkpoints: Sequence[Checkpoint]
    size: int
    chat: ReadChat
    prompts: Mapping[int, tuple[Rendering, Checkpoint]]

    def find_checkpoint(self, request: EncodeRequest, output: Output) -> Checkpoint:
        """Return a late checkpoint up to which another conversation is the same; its beginning if there is none.

        Args:
            request: how the other conversation is encoded.
            output: what the program wrote of it.
        """
        if self.rules != _get_rules(request):
            return BEGINNING
        messages = _get_messages(request)
        limit = _find_first_change(self.messages, messages)
        last = bisect_left(self.checkpoints, limit, key=_get_first)
        step = 1
        while last > 0:
            found = self.checkpoints[last - 1]
            if self._is_equal_up_to(found, messages, output):
                return found
            last, step = last - step, 2 * step  # history was rewritten, or messages were replaced
        return BEGINNING

    def find_prompts(self, messages: Messages, text: str) -> Iterator[tuple[int, PromptEnd]]:
        """Yield its prompts that are also those of another conversation, by the number of their messages.

        One with which the other text does not begin must have a message and a field where its origins are not hidden.
        """
        for count, (prompt, point) in self.prompts.items():
            if self.messages[:count] == messages[:count]:
                if text.startswith(prompt.text):
                    yield count, len(prompt)
                    continue
                rest = prompt.hide_before(point.item, point.start)
                spans = find_message_spans(rest.piece_table)
                # A message that is written before the point, and then again, has its place there.
                if min(spans, default=-1) >= point.message and find_content_end(
                    rest.piece_table, TextSpan(0, len(rest))
                ):
                    yield count, rest

    def _is_equal_up_to(self, point: Checkpoint, messages: Messages, output: Output) -> bool:
        end = point.message + 1
        try:
            return (
                self.output[: point.end_item] == output[: point.end_item]
                and self.messages[:end] == messages[:end]
            )
        except RecursionError:  # of values that are nested deeply
            return False


def _get_rules(request: EncodeRequest) -> EncodingRules:
    return request.turn_cache, request.tokenizer, request.trust


def _get_messages(request: EncodeRequest) -> Messages:
    """Return the messages as they were read: those that were read before are the same objects."""
    read = request.find_read(request.messages)
    return request.messages if read is None else read.messages


def _find_first_change(before: Messages, now: Messages) -> int:
    """Return the index after the first message whose turn became history, or is no longer: its kind is another."""
    first, last = sorted(map(_find_last_user, (before, now)))
    for index in range(first, min(last, len(before))):
        if index >= 0 and before[index].get("role") in ASSISTANT_ROLES:
            return index + 1
    return len(before)


def _find_last_user(messages: Messages) -> int:
    last_first = reversed(range(len(messages)))
    return next((index for index in last_first if messages[index].get("role") == "user"), -1)


# ---- encoding ----


class GrowingPrompt:
    """What `encode` keeps of a conversation, so that it costs little to encode it again when it has grown.

    Args:
        prefix: what another one has kept of a conversation that begins alike.

    Attributes:
        prefix: what was kept of the last call; None if that cannot be taken up again.

    Example:
        >>> template, growing = turnwise.load("chatml"), GrowingPrompt()
        >>> chat = [{"role": "user", "content": "Hi"}]
        >>> encoded = template.encode(chat, "turnwise", add_generation_prompt=True, growing=growing)
        >>> chat += [{"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}]
        >>> longer = template.encode(chat, "turnwise", add_generation_prompt=True, growing=growing)
        >>> longer.input_ids == template.encode(chat, "turnwise", add_generation_prompt=True).input_ids
        True
    """

    def __init__(self, prefix: EncodedPrefix | None = None) -> None:
        self.prefix = prefix

    def encode(self, request: EncodeRequest, chat: ReadChat) -> Encoded:
        """Encode a conversation, and keep what the next one may begin with.

        Args:
            request: the conversation and how it is encoded.
            chat: the same as it was given, and what was read of it before.
        """
        if (
            request.max_length is not None
            or request.compatible
            or request.arguments.get("continue_final_message")
        ):  # the ids are not those of all messages, each written to its end
            self.prefix = None
            return encode_within_limit(request)
        request = _with_memory(request, chat.read)
        rendering = request.render(request.messages)
        encoded, earlier = None, self.prefix
        if earlier is not None:
            known = earlier.chat.given
            if not (known and chat.given.startswith(known)):
                # Messages may be equal and written in other ways: 1, 1.0 and True.
                earlier = replace(earlier, prompts={})
            point = earlier.find_checkpoint(request, rendering.output)
            if point is not BEGINNING:
                rest = rendering.hide_before(point.item, point.start)
                encoded = _encode_from(request, rendering, rest, earlier, point)
        if encoded is None:
            earlier, point, rest = None, BEGINNING, rendering
            encoded = encode_rendering(request, rendering)
        self.prefix = _keep(request, encoded, rest, chat.given, earlier, point)
        return encoded


def find_encoder(growing: Any, messages: Any) -> tuple[EncodeWhole, ReadMessages | None]:
    """Return what encodes a conversation, and what was read of its beginning.

    Raises:
        MessageError: `growing` is neither a `GrowingPrompt` nor None.
    """
    if growing is None:
        return encode_within_limit, None
    if not isinstance(growing, GrowingPrompt):
        raise MessageError(
            f"growing is a GrowingPrompt, not {short_repr(growing)}",
            path="growing",
            hint="turnwise.GrowingPrompt() makes one for each conversation.",
        )
    known = ReadChat() if growing.prefix is None else growing.prefix.chat
    chat = known.recognise(messages)
    return partial(growing.encode, chat=chat), chat.read


def _with_memory(request: EncodeRequest, earlier: ReadMessages | None) -> EncodeRequest:
    """Return a request whose messages are written from where those of an earlier one were left, if they begin alike."""
    read = request.find_read(request.messages)
    if read is None:
        return request
    memory: dict[Any, Any] = {}
    if earlier is not None and earlier.messages == read.messages[: len(earlier.messages)]:
        memory |= earlier.memory or {}
    if len(memory) > MAX_CHECKPOINTS:
        memory = {}
    return request._replace(read=(request.messages, read._replace(memory=memory)))


def _encode_from(
    request: EncodeRequest,
    rendering: Rendering,
    rest: Rendering,
    earlier: EncodedPrefix,
    point: Checkpoint,
) -> Encoded | None:
    """Encode a conversation from a checkpoint on, of which `rest` has the origins; None if it is not one of it."""
    messages, text = request.messages, rendering.text
    begin, first_id, _, token = earlier.rows[point.row]
    specials = find_specials(request, rest, messages, begin)
    if not specials.matches or specials.matches[0][:3:2] != (begin, token):
        return None  # the token strips white space before it
    first = bisect_left(earlier.turns, point.message, key=_get_first)
    spans = find_message_spans(rest.piece_table)
    if len(messages) - 1 not in spans or min(spans) < point.message:
        return None  # a message has its place before the checkpoint, or may have it there
    now = _get_messages(request)
    known = dict(earlier.find_prompts(now, text))
    for turn in reversed(earlier.turns[first:]):  # the first of a message is the last here
        is_equal = (
            turn.message in spans
            and spans[turn.message].start <= turn.start
            and text.startswith(earlier.text[point.start : turn.start], point.start)
        )
        if is_equal and earlier.messages[: turn.message] == now[: turn.message]:
            known[turn.message] = turn.start  # its prompt is the same, too
    found, untrained = find_turns(request, rest, messages, specials, point.message, known)
    turns = [*earlier.turns[:first], *found]
    weights = weigh(messages)
    if turns and find_stop_to_add(request, text, turns, weights):
        return None
    ids, rows = encoder_for(request.tokenizer).encode_spans(
        text, specials.matches, find_seams(found, text), before=(begin, earlier.ids[:first_id])
    )
    return Encoded(
        rendering,
        request.tokenizer,
        ids,
        [*earlier.rows[: point.row], *rows],
        turns,
        [one for one in earlier.untrained if one.message < point.message] + untrained,
        weights,
        request.train_on,
    )


# ---- keeping ----


def _keep(
    request: EncodeRequest,
    encoded: Encoded,
    rest: Rendering,
    given: bytes,
    earlier: EncodedPrefix | None,
    begin: Checkpoint,
) -> EncodedPrefix | None:
    """Return what to keep of an encoded conversation, which has the beginning of an earlier one up to a checkpoint."""
    if encoded.added_stop:
        return None
    output, rows = encoded.rendering.output, encoded.token_offsets.spans
    nodes = _count_nodes(output, begin.item + 1)
    if nodes is None:
        return None
    messages = _get_messages(request)
    if request.read is None:  # the caller's
        messages = list(map(dict, messages))
    found: list[Checkpoint] = []
    prompts: dict[int, tuple[Rendering, Checkpoint]] = {}
    if earlier is not None:
        found += earlier.checkpoints[: earlier.checkpoints.index(begin)]
        if encoded.untrained:  # other turns begin where their prompts end
            for count, _ in earlier.find_prompts(messages, encoded.text):
                prompts = {count: earlier.prompts[count]}
    found += _find_checkpoints(request, rest.piece_table, output, rows, begin)
    if found and request.arguments.get("add_generation_prompt") is True:
        prompts[len(messages)] = encoded.rendering, found[-1]
    # What is before the checkpoint is not counted again: as many nodes for each item as in the rest.
    nodes = nodes * len(output) // max(len(output) - begin.item, 1)
    # The memory of loops has the texts once more, and so have prompts.
    size = ID_SIZE * len(encoded.input_ids) + 6 * len(encoded.text) + NODE_SIZE * nodes + len(given)
    size += ROW_SIZE * len(rows) + MESSAGE_SIZE * len(messages) + TURN_SIZE * len(encoded.turns)
    return EncodedPrefix(
        _get_rules(request),
        messages,
        output,
        encoded.text,
        encoded.input_ids.copy(),
        rows,
        encoded.turns,
        encoded.untrained,
        found,
        size,
        ReadChat(given, request.find_read(request.messages)),
        prompts,
    )


def _find_checkpoints(
    request: EncodeRequest,
    table: PieceTable,
    output: Output,
    rows: Sequence[SpanRow],
    begin: Checkpoint,
) -> Iterator[Checkpoint]:
    """Yield the checkpoints of a conversation from one on.

    The place of a message is where it is written first, which may be in a block, or from another list. A checkpoint
    parts the places: those of all earlier messages are before it, that of its own and those of later ones behind it.
    """
    reach = max([encoder_for(request.tokenizer).matcher.longest, *map(len, request.stops)])
    row, spans = begin.row, find_message_spans(table)
    highest = accumulate(spans, max)
    lowest = [*accumulate(reversed(spans), min)][::-1]
    parting = {message for message, last in zip(highest, lowest, strict=True) if message == last}
    ends = list(accumulate(map(len, output[begin.item :: 2]), initial=begin.start))
    for message, item, start in _find_marks(output, begin.item, begin.start):
        if message >= len(request.messages):
            return
        is_result = request.messages[message].get("role") in RESULT_ROLES
        if not start or is_result or message not in parting or spans[message].start != start:
            continue
        row = bisect_left(rows, start, row, key=_get_first)
        while row < len(rows) and not ((token := rows[row][3]) and token.control):
            row += 1
        texts = bisect_left(ends, rows[row][0] + reach) if row < len(rows) else len(ends)
        if texts == len(ends):
            return
        yield Checkpoint(message, item, start, row, begin.item + 2 * texts)


def _find_marks(output: Output, item: int, place: int) -> Iterator[tuple[int, int, int]]:
    """Yield the messages that the only open loop takes: index, index of the mark, and character.

    Args:
        output: what the program wrote.
        item: where to begin: at the beginning, or at such a mark.
        place: the character there.
    """
    depth = min(item, 1)
    for index in range(item, len(output), 2):
        text, trail = output[index], output[index + 1]
        if text:
            place += len(text)
        elif type(trail) is not tuple:
            continue
        elif trail is LOOP or trail is BEGIN:
            depth += 1
        elif trail is DONE or trail is END:
            depth -= 1
        elif is_message(trail) and depth == 1:
            yield trail[1], index, place


def _count_nodes(output: Output, first: int) -> int | None:
    """Return how many values the trails of an output have from an item on; None if they are too many to compare."""
    count = 0
    waiting = output[first::2]
    while waiting:
        value = waiting.pop()
        count += 1
        if type(value) in (tuple, list):
            waiting += value
        elif type(value) is dict:
            waiting += value.values()
        if count > MAX_TRAIL_NODES:
            return None
    return count

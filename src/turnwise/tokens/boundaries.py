"""Find where each assistant turn begins and ends in a rendered conversation.

A model continues the prompt that it was served: the conversation before its turn, ending with the generation prompt
(`<|im_start|>assistant\n`). So a turn begins where `render(messages[:i], add_generation_prompt=True)` ends, and this is
not guessed: that prompt is rendered, and the conversation must start with it. The *opening* of the turn is the text
between the start of the assistant message and the model's first character, in most templates the generation prompt.

To render a prompt for every turn costs the square of the conversation. It is left out only where that cannot change the
result (`TurnCache`): where the source of the template proves that the prompt is the text up to the turn and a constant
generation prompt, or where the prompt before such turns was traced for all contents. What else a template may look at
before it writes or refuses a prompt is in no key, so such prompts are rendered, each of them.

Before a message that is first there is nothing to serve, and some templates refuse an empty prompt. Then the opening is
learned from a prompt with a fixed user message.

A turn ends after its stop (`turn_ends.py`), and before the first text of a tool result: some templates write the
results of a call inside the turn of the model.

A template may leave a part of a message out: its reasoning once it is history, or the text beside a call. Such a turn
is trained, and names the fields in `missing`.

Some turns have no beginning in this sense. A template may write a finished turn differently from its generation prompt
(DeepSeek-R1 opens with `<think>` and leaves the reasoning out of history). Such a turn *diverges* from its opening: it
is reported with the reason and not trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from turnwise.analysis.losses import CALLS, find_missing, has_other_text
from turnwise.engine.provenance.container_rules import PAIRS
from turnwise.engine.provenance.piece_table import PieceTable, is_message, message_index
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.provenance.trails import Field
from turnwise.engine.provenance.written_values import JSON
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import TurnwiseError, short_repr
from turnwise.messages.roles import ASSISTANT_ROLES
from turnwise.tokens.token_matcher import TokenMatch
from turnwise.tokens.turn_ends import (
    NAME_FIELDS,
    TextSpan,
    find_content_end,
    find_turn_end,
    is_blank,
    origins_in,
)
from turnwise.tokens.turn_prompts import Messages, TurnPrompts

RESULT_FIELDS = frozenset(("tool_responses", "tool_results", "tool_outputs"))  # of a call
ASSISTANT = "assistant"
MAX_SHOWN_LENGTH = 60  # characters of a text in a reason
PROBE_QUESTION = {"role": "user", "content": "Hello"}


class Turn(NamedTuple):
    """An assistant turn: characters `start` to `end`, of which those from `stop` on are its stop token, if any.

    `missing` names the fields of the message that the template did not write: "content", "reasoning". A message is
    several turns if the result of its call is written in its middle.
    """

    message: int
    start: int
    end: int
    stop: int
    missing: tuple[str, ...] = ()


class Untrained(NamedTuple):
    """An assistant turn that cannot be trained, with the reason; `diverges`: it does not continue its opening."""

    message: int
    reason: str
    diverges: bool = False

    def __str__(self) -> str:
        return f"messages[{self.message}]: {self.reason}"


class Opening(NamedTuple):
    """The text between the start of an assistant message and the model's first character.

    It is `usable` if the prompt before the message shows where that character is. Otherwise the finished turn
    `diverges` from the prompt (`detail` is how the prompt ends), or the template `refused` to write the prompt
    (`detail` is its error).
    """

    text: str
    offset: int  # of the model's first character, from the start of the message
    status: Literal["usable", "diverges", "refused"] = "usable"
    detail: str = ""


class TurnCache:
    """What saves renderings of prompts, for one template under one set of options. No result depends on it.

    Args:
        least: how many messages must be before a turn, so that the source proves that the prompt before it is the text
            up to it and a constant; 0 if it proves nothing. See `history_proof.py`.

    Attributes:
        generation_prompt: that constant, once it was seen.
        turn_delimiters: the tokens that delimit turns, by tokenizer; `encode.find_turn_delimiters` finds them.
        layouts: what rows of a batch have in common, by tokenizer; see `row_layout.py`.
    """

    def __init__(self, least: int) -> None:
        self.least = least
        self.generation_prompt: str | None = None
        self.turn_delimiters: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()
        self.layouts: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        return TurnCache, (self.least,)  # a copy learns again

    def find_turns(
        self,
        rendering: Rendering,
        messages: Messages,
        specials: Sequence[TokenMatch],
        stops: frozenset[str],
        prompts: TurnPrompts,
        first: int = 0,
    ) -> tuple[list[Turn], list[Untrained]]:
        """Return the assistant turns of a rendering, and those whose place could not be found.

        Args:
            rendering: the rendered conversation.
            messages: its messages.
            specials: the special tokens that the template itself wrote.
            stops: the texts that end turns.
            prompts: the prompts before its turns.
            first: the message to start from.
        """
        assistant = [
            index
            for index in range(first, len(messages))
            if messages[index].get("role") in ASSISTANT_ROLES
        ]
        if not assistant:
            return [], []
        text, table = rendering.text, rendering.piece_table
        message_spans = find_message_spans(table)
        turns: list[Turn] = []
        untrained: list[Untrained] = []
        for index in assistant:
            span, opening = message_spans.get(index), None
            if span is None and index + 1 == len(messages):
                span, opening = _find_text_after_prompt(text, prompts, index), Opening("", 0)
            if span is None:
                reason = "the template leaves the message out, or hides where it writes it"
                untrained.append(Untrained(index, reason, diverges=True))
                continue
            spans = _own_spans(table, index, span)
            if not spans:
                reason = "the template writes the text of other messages before its own"
                untrained.append(Untrained(index, reason))
                continue
            if opening is None:
                is_proven = self.is_proven(messages, index)
                opening = self._find_opening(text, span.start, prompts, index, is_proven)
            if opening.status != "usable":
                reason = _explain_untrained(opening, text, span.start)
                untrained.append(Untrained(index, reason, opening.status == "diverges"))
                continue
            spans[0] = TextSpan(span.start + opening.offset, spans[0].end)
            pairs = [(own, find_turn_end(table, text, own, specials, stops)) for own in spans]
            found, reason = _make_turns(index, messages[index], table, pairs)
            turns += found
            if reason:
                untrained.append(Untrained(index, reason))
        return turns, untrained

    def is_proven(self, messages: Messages, index: int) -> bool:
        """Return whether the prompt before a turn is known to be the text up to it and a constant."""
        is_turn = 0 < self.least <= index and messages[index]["role"] == ASSISTANT
        return is_turn and messages[index - 1].get("role") != ASSISTANT

    def _find_opening(
        self, text: str, start: int, prompts: TurnPrompts, index: int, is_proven: bool
    ) -> Opening:
        """Return the opening of the message that begins at `start`.

        Args:
            text: the conversation.
            start: the first character of the message.
            prompts: the prompts before its turns.
            index: that of the message.
            is_proven: whether the prompt before it is the text up to it and a constant.
        """
        known = self.generation_prompt
        if is_proven and known is not None and text.startswith(known, start):
            return Opening(known, len(known))
        end = prompts.find_end(index, text)
        if isinstance(end, Rendering):
            return _compare_endings(text, start, end)
        if isinstance(end, TurnwiseError):
            opening = Opening("", 0, "refused", end.message)
        else:
            if is_proven and end >= start:
                self.generation_prompt = text[start:end]
            opening = _opening_between(text, start, end)
        if not index and (opening.status == "refused" or opening == Opening("", 0)):
            # Nobody serves an empty conversation, so its prompt may lack the opening (`if messages`).
            return _learn_from_probe(text, start, prompts) or opening
        return opening


def _learn_from_probe(text: str, start: int, prompts: TurnPrompts) -> Opening | None:
    """Return the opening of a first message that begins as the prompt after a question ends; None for others."""
    try:
        prompt = prompts.render_other([PROBE_QUESTION])
    except TurnwiseError as error:
        raise_if_call_ended(error)
        return None
    opening = prompt.text[find_last_message_end(prompt.piece_table) :]
    is_there = opening and text.startswith(opening, start)
    return Opening(opening, len(opening)) if is_there else None


def _compare_endings(text: str, start: int, prompt: Rendering) -> Opening:
    """Compare how a prompt ends with a conversation that does not begin with it.

    Args:
        text: the conversation.
        start: the first character of the message after the prompt.
        prompt: the prompt.
    """
    opening = prompt.text[find_last_message_end(prompt.piece_table) :]
    closing = prompt.text[find_content_end(prompt.piece_table, TextSpan(0, len(prompt))) :]
    end = start + len(opening)
    if closing and text.endswith(closing, 0, end):
        return _opening_between(text, start, end)  # earlier messages differ, the opening does not
    return Opening(opening, 0, "diverges", closing or prompt.text[-20:])


def _find_text_after_prompt(text: str, prompts: TurnPrompts, index: int) -> TextSpan | None:
    """Return what a conversation adds to the prompt before its last message, if it begins with that prompt.

    A template may write a message in a way that hides its origin: in a block, or joined with others. If it is the
    last, everything after the prompt is the message, and its opening is in the prompt.
    """
    end = prompts.find_end(index, text)
    if not isinstance(end, int) or is_blank(text, end, len(text)):
        return None
    return TextSpan(end, len(text))


def _opening_between(text: str, start: int, end: int) -> Opening:
    return Opening(text[min(start, end) : max(start, end)], end - start)


def _explain_untrained(opening: Opening, text: str, start: int) -> str:
    """Return why the model's first character in the message that begins at `start` is not known."""
    if opening.status == "refused":
        return f"the template refuses the prompt before it: {opening.detail}"
    beginning = text[start : start + len(opening.text) + 20][:MAX_SHOWN_LENGTH]
    return (
        f"a prompt ends with {short_repr(opening.detail[-MAX_SHOWN_LENGTH:])}, but the finished turn begins "
        f"{short_repr(beginning)}: it does not continue its own opening"
    )


def find_seams(turns: Sequence[Turn], text: str) -> list[int]:
    """Return the characters at which the text of turns is split: a model's tokens merge with no others.

    The first one never merges with the prompt, and the last one of a stop not with the next turn; white space after
    the stop may merge with it.
    """
    ends = [turn.end for turn in turns if turn.stop < turn.end]
    closed = [end for end in ends if not text[end : end + 1].isspace()]
    return sorted([turn.start for turn in turns] + closed)


# ---- the place of a message ----


def find_message_spans(table: PieceTable) -> dict[int, TextSpan]:
    """Return the span of each message: from its first character until another message is written."""
    spans: dict[int, TextSpan] = {}
    starts, ends = table.starts, [*table.message_starts[1:], len(table.texts)]
    current = None
    for begin, end, message in zip(table.message_starts, ends, table.messages, strict=True):
        if message is None or begin == end:
            continue
        if message == current:
            spans[message] = TextSpan(spans[message].start, starts[end])
        elif message not in spans:
            spans[message] = TextSpan(starts[begin], starts[end])
            current = message
        else:
            current = None  # it was written before, and others since
    return spans


def find_last_message_end(table: PieceTable) -> int:
    """Return the character at which the last message ends."""
    return max((span.end for span in find_message_spans(table).values()), default=0)


def _own_spans(table: PieceTable, index: int, span: TextSpan) -> list[TextSpan]:
    """Return the parts of a message's span that are not the text of tool results or of other messages.

    The first part ends where the first such text begins; what the template writes before it as a part of the result
    follows the stop. Each other part begins with a field of the message. There is none if others come first.
    """
    if _has_only_own_text(table, index, span):
        return [span]
    spans = []
    start: int | None = span.start
    has_own_text = False
    for place, _, leaf in origins_in(table, span):
        path = leaf.path if isinstance(leaf, Field) else ()
        author = message_index(path)
        if author is None or path[-1] == "role":
            continue
        is_own = author == index and not (len(path) > 2 and path[2] in RESULT_FIELDS)
        if is_own:
            has_own_text = True
            if start is None and path[-1] not in NAME_FIELDS:
                start = place
        elif not has_own_text:
            return []
        elif start is not None:
            spans.append(TextSpan(start, place))
            start = None
    if start is not None:
        spans.append(TextSpan(start, span.end))
    return spans


def _has_only_own_text(table: PieceTable, index: int, span: TextSpan) -> bool:
    """Return whether a span is the template's text and whole fields of its message; that costs little to see."""
    trails = table.trails[table.index_at(span.start) : table.index_at(span.end - 1) + 1]
    return all([type(trail) is int or _is_field_of(trail, index) for trail in trails])


def _is_field_of(trail: Any, index: int) -> bool:
    """Return whether a trail leads straight into a message, but not into the results of a call."""
    while type(trail) is tuple and len(trail) >= 2:
        if trail[0] is JSON or trail[0] is PAIRS:  # written as JSON, or item by item
            trail = trail[2 if trail[0] is JSON else 1]
            if type(trail) is tuple and is_message(trail):
                return False  # all of the message
        elif len(trail) > 2 or type(trail[0]) is not tuple or trail[1] in RESULT_FIELDS:
            return False
        elif is_message(trail):
            return bool(trail[1] == index)
        else:
            trail = trail[0]
    return False


def _make_turns(
    index: int,
    message: Mapping[str, Any],
    table: PieceTable,
    pairs: Sequence[tuple[TextSpan, TextSpan]],
) -> tuple[list[Turn], str]:
    """Return the turns of one message, or why it has none; `pairs` are its spans and the stop of each."""
    first, first_stop = pairs[0]
    if first_stop.end <= first.start:
        return [], "the template writes nothing of it"
    missing = find_missing(table, index, message, [(own.start, stop.start) for own, stop in pairs])
    if CALLS in missing:
        return [], "the template does not write its calls, or not all of them"
    if missing and not has_other_text(message, missing):
        return [], f"the template does not write its {' and '.join(missing)}, or not all of it"
    turns = [
        Turn(index, own.start, stop.end, max(own.start, stop.start), missing)
        for own, stop in pairs
        if stop.end > own.start
    ]
    return turns, ""

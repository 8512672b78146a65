"""Find where each assistant turn begins and ends in a rendered conversation.

A model continues the prompt that it was served: the conversation before its turn, ending with the generation prompt
(`<|im_start|>assistant\n`). So a turn begins where `render(messages[:i], add_generation_prompt=True)` ends, and this is
not guessed: that prompt is rendered, and the conversation must start with it. To render it for every turn would cost
the square of the conversation. So what was learned from one turn is cached with the template, and for later turns of
the same kind it is only compared with the text. It is the *opening* of the turn: the text between the start of the
assistant message and the model's first character, in most templates the generation prompt.

Before a message that is first there is nothing to serve, and some templates refuse an empty prompt. Then the opening is
learned from a prompt with a fixed user message.

A turn ends after its stop token: the first known stop after the last character of content, or else the last special
token that only white space follows. A turn without either ends with its content. See `find_turn_end`.

Some turns have no beginning in this sense. A template may write a finished turn differently from its generation prompt
(DeepSeek-R1 opens with `<think>` and leaves the reasoning out of history). Such a turn *diverges* from its opening: it
is reported with the reason and not trained.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from turnwise.engine.provenance.piece_table import PieceTable, message_index
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.provenance.trails import Field
from turnwise.errors import TurnwiseError, short_repr
from turnwise.messages import REASONING_KEYS
from turnwise.tokens.attribution import ASSISTANT_ROLES
from turnwise.tokens.token_matcher import TokenMatch

SPACE = " \t\r\n"
RESULT_ROLES = ("tool", "function", "ipython", "observation", "environment")
MAX_SHOWN_LENGTH = 60  # characters of a text in a reason
PROBE_QUESTION = {"role": "user", "content": "Hello"}
_get_start = attrgetter("start")  # of a TokenMatch

Messages = Sequence[Mapping[str, Any]]
# Renders the prompt that serving would send for these messages, with the generation prompt.
RenderPrompt = Callable[[Messages], Rendering]


class TextSpan(NamedTuple):
    """The characters from `start` to `end` of a text."""

    start: int
    end: int


class Turn(NamedTuple):
    """An assistant turn: characters `start` to `end`, of which those from `stop` on are its stop token, if any."""

    message: int
    start: int
    end: int
    stop: int


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

    def is_at(self, text: str, start: int) -> bool:
        """Return whether the message that begins at `start` is written with this opening."""
        begin = start + min(self.offset, 0)
        return begin >= 0 and text.startswith(self.text, begin)

    def is_valid_for(self, text: str, start: int) -> bool:
        """Return whether what another message showed is true of the message that begins at `start`, too."""
        if self.status == "refused":
            return False  # another prompt may be accepted
        if self.status == "diverges":
            return not self.is_at(text, start)
        return self.is_at(text, start)


class TurnCache:
    """What was learned about the turns of one template under one set of options.

    Args:
        searched: the strings that the template searches for in messages; they are part of the key of an opening.
        uncacheable: the template branches on texts in other ways (`content|length > 100`), so openings are not
            reused: every prompt is rendered.

    Attributes:
        openings: the openings of assistant turns by the kind of turn; `find_turns` learns them.
        turn_delimiters: the tokens that delimit turns, by tokenizer; `encode.find_turn_delimiters` learns them.
    """

    def __init__(self, searched: Sequence[str] = (), uncacheable: bool = False) -> None:
        self.searched = searched
        self.uncacheable = uncacheable
        self.openings: dict[tuple[Any, ...], Opening] = {}
        self.turn_delimiters: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        return TurnCache, (self.searched, self.uncacheable)  # a copy learns again

    def find_turns(
        self,
        rendering: Rendering,
        messages: Messages,
        specials: Sequence[TokenMatch],
        stops: frozenset[str],
        render_prompt: RenderPrompt,
    ) -> tuple[list[Turn], list[Untrained]]:
        """Return the assistant turns of a rendering, and those whose place could not be found.

        Args:
            rendering: the rendered conversation.
            messages: its messages.
            specials: the special tokens that the template itself wrote.
            stops: the texts that end turns.
            render_prompt: renders prompts, for openings that are not cached.
        """
        assistant = [
            index
            for index, message in enumerate(messages)
            if message.get("role") in ASSISTANT_ROLES
        ]
        if not assistant:
            return [], []
        text, table = rendering.text, rendering.piece_table
        message_spans = find_message_spans(table)
        last_user = _find_last_user(messages)
        searched = self._find_searched(messages) if self.searched else ()
        turns: list[Turn] = []
        untrained: list[Untrained] = []
        for index in assistant:
            span = message_spans.get(index)
            if span is None:
                reason = "the template leaves the message out, or hides where it writes it"
                untrained.append(Untrained(index, reason))
                continue
            if not _has_spans(message_spans, index, messages):
                span = _without_other_messages(table, index, span)
            key = searched, _turn_kind(messages, index, index < last_user)
            opening = self._find_opening(text, span.start, key, messages[:index], render_prompt)
            if opening.status != "usable":
                reason = _explain_untrained(opening, text, span.start)
                untrained.append(Untrained(index, reason, opening.status == "diverges"))
                continue
            start = span.start + opening.offset
            stop = find_turn_end(table, text, TextSpan(start, span.end), specials, stops)
            if stop.end <= start:
                untrained.append(Untrained(index, "the template writes nothing of it"))
            elif not _contains_calls(messages[index], text, span):
                untrained.append(Untrained(index, "the template does not write its calls"))
            else:
                turns.append(Turn(index, start, stop.end, max(start, stop.start)))
        return turns, untrained

    def _find_searched(self, messages: Messages) -> tuple[bool, ...]:
        """Return which of the searched strings occur in the messages of others than the assistant."""
        contents = [
            message.get("content")
            for message in messages
            if message.get("role") not in ASSISTANT_ROLES
        ]
        joined = "\0".join(content for content in contents if isinstance(content, str))
        return tuple(string in joined for string in self.searched)

    def _find_opening(
        self,
        text: str,
        start: int,
        key: tuple[Any, ...],
        before: Messages,
        render_prompt: RenderPrompt,
    ) -> Opening:
        """Return the opening of the message that begins at `start`, from the cache if that applies to it."""
        cached = None if self.uncacheable else self.openings.get(key)
        if cached is not None and cached.is_valid_for(text, start):
            return cached
        opening = _learn_opening(text, start, before, render_prompt)
        if opening.status == "refused" and not before:
            # Not any cached opening: that would depend on earlier calls.
            probe = _learn_opening(text, start, [PROBE_QUESTION], render_prompt)
            if probe.text and probe.is_at(text, start):
                opening = Opening(probe.text, len(probe.text))
        self.openings[key] = opening
        return opening


def _learn_opening(text: str, start: int, before: Messages, render_prompt: RenderPrompt) -> Opening:
    """Compare a conversation with the prompt that serving sends before the message that begins at `start`."""
    try:
        prompt = render_prompt(before)
    except TurnwiseError as error:
        return Opening("", 0, "refused", error.message)
    if text.startswith(prompt.text):
        return _opening_between(text, start, len(prompt.text))
    opening = prompt.text[find_last_message_end(prompt.piece_table) :]
    closing = prompt.text[find_content_end(prompt.piece_table, TextSpan(0, len(prompt.text))) :]
    end = start + len(opening)
    if closing and text.endswith(closing, 0, end):
        return _opening_between(text, start, end)  # earlier messages differ, the opening does not
    return Opening(opening, 0, "diverges", closing or prompt.text[-20:])


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


# ---- the end of a turn ----


def find_turn_end(
    table: PieceTable,
    text: str,
    turn: TextSpan,
    specials: Sequence[TokenMatch],
    stops: frozenset[str],
) -> TextSpan:
    """Return the span of the token that ends a turn, or an empty span at the end of its content.

    Templates differ in where they write the stop, so candidates are tried in this order:

    1. a stop token after the last character of content;
    2. any special token at the very end of the turn (a stop that is not declared);
    3. a stop token that opens the next turn (GLM writes none of its own);
    4. a stop that the tokenizer does not know, spelled in the text.

    Args:
        table: the rendered text with its origins.
        text: the same as a string.
        turn: from the model's first character to the end of the message.
        specials: the special tokens that the template wrote, in order.
        stops: the texts that end turns.
    """
    first = bisect_left(specials, turn.start, key=_get_start)
    after = bisect_left(specials, turn.end, first, key=_get_start)
    inside = specials[first:after]
    stop = _find_stop_after_content(table, turn, inside, stops)
    if stop is None and inside and _is_blank(text, inside[-1].end, turn.end):
        stop = inside[-1]
    if stop is None and after < len(specials):
        following = specials[after]
        if following.token.text in stops and _is_blank(text, turn.end, following.start):
            stop = following
    if stop is not None:
        return _without_stripped_space(text, stop)
    return _find_spelled_stop(table, text, turn, stops)


def _find_stop_after_content(
    table: PieceTable, turn: TextSpan, inside: Sequence[TokenMatch], stops: frozenset[str]
) -> TokenMatch | None:
    """Return the first stop token after the last character of content; the last one if all are before it."""
    candidates = [match for match in inside if match.token.text in stops]
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    content_end = find_content_end(table, turn)
    for match in candidates:
        if match.start >= content_end:
            return match
    return candidates[-1]


def _find_spelled_stop(
    table: PieceTable, text: str, turn: TextSpan, stops: frozenset[str]
) -> TextSpan:
    """Return the longest stop with which the turn's text ends, or an empty span at its end."""
    text_end = turn.start + len(text[turn.start : turn.end].rstrip(SPACE))
    end = max(text_end, find_content_end(table, turn))
    lengths = [len(stop) for stop in stops if text.endswith(stop, turn.start, end)]
    return TextSpan(end - max(lengths, default=0), end)


def _is_blank(text: str, start: int, end: int) -> bool:
    return not text[start:end].strip(SPACE)


def _without_stripped_space(text: str, match: TokenMatch) -> TextSpan:
    """Return the span of a token without the white space that it strips."""
    if not (match.token.lstrip or match.token.rstrip):
        return TextSpan(match.start, match.end)
    content = text[match.start : match.end]
    start = match.start + len(content) - len(content.lstrip(SPACE))
    return TextSpan(start, match.start + len(content.rstrip(SPACE)))


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


def find_content_end(table: PieceTable, span: TextSpan) -> int:
    """Return the end of the last character within `span` that came from a field; its start if none did."""
    for index in range(table.index_at(span.end - 1), -1, -1):
        if table.starts[index] < span.start:
            break
        if type(table.trails[index]) is int:
            continue  # the template's own text
        end = table.starts[index + 1]
        for part, leaf in reversed(table.split(index)):
            if isinstance(leaf, Field):
                return end
            end -= len(part)
    return span.start


def _has_spans(spans: Mapping[int, TextSpan], index: int, messages: Messages) -> bool:
    """Return whether all tool results that follow a message have a span of their own."""
    for following in range(index + 1, len(messages)):
        if messages[following].get("role") not in RESULT_ROLES:
            return True
        if following not in spans:
            return False
    return True


def _without_other_messages(table: PieceTable, index: int, span: TextSpan) -> TextSpan:
    """Return the span up to the first text in it that came from another message."""
    for place, leaf in _origins_in(table, span):
        if isinstance(leaf, Field) and message_index(leaf.path) not in (None, index):
            return TextSpan(span.start, place)
    return span


def _origins_in(table: PieceTable, span: TextSpan) -> Iterator[tuple[int, Any]]:
    """Yield the first character and the origin of every text in a span."""
    for index in range(table.index_at(span.start), table.index_at(span.end - 1) + 1):
        place = table.starts[index]
        for part, leaf in table.split(index):
            if part:
                yield place, leaf
            place += len(part)


# ---- messages ----


def _turn_kind(messages: Messages, index: int, is_history: bool) -> tuple[Any, ...]:
    """Return what templates look at when they write a turn: a part of the cache key of openings."""
    message = messages[index]
    role_before = messages[index - 1].get("role") if index else None
    has_reasoning = any(message.get(name) for name in REASONING_KEYS)
    has_content, has_calls = bool(message.get("content")), bool(message.get("tool_calls"))
    return role_before, is_history, has_content, has_calls, has_reasoning


def _find_last_user(messages: Messages) -> int:
    users = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    return users[-1] if users else -1


def _contains_calls(message: Mapping[str, Any], text: str, span: TextSpan) -> bool:
    """Return whether the names of the message's tool calls occur in its span."""
    for call in message.get("tool_calls") or ():
        function = call.get("function", call) if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str) and text.find(name, span.start, span.end) < 0:
            return False
    return True

"""Find the stops of a template: the control tokens that end a reply.

Read off what the template writes directly after an assistant message, in a few probe conversations:

    Hello<|im_end|>\\n<|im_start|>user        the stop is <|im_end|>: it ends the turn
    Hello<|user|>\\n                          the stop is <|user|>: the turn ends where the next one begins

A stop is a *marker*, a text that looks like a control token (`<|...|>`, `<...>`, `[INST]`) or stands for a special
token. It is never a word: a template that separates turns by "User:" alone has no stop that could be derived, since a
reply may contain that word. Stops that are ordinary text are declared by the template's source.

Turns that end otherwise are looked at too: tool calls (`<|call|>`, `<|eom_id|>`), the last turn of a conversation
(`<|return|>`), and both under every option that the template reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from turnwise.analysis.conversations import MessageDict, make_message, option_names
from turnwise.analysis.prober import (
    CONTENT,
    EMPTY_CONTENTS,
    NAMES,
    NEXT_USER,
    REASONING,
    RESULTS,
    SYSTEM,
    USER,
    CallShape,
    Prober,
)
from turnwise.analysis.segment import Segment, common_suffix
from turnwise.engine.provenance.rendering import Origin, Rendering

# Bounded: a template may write any number of characters.
_CONTROL_TOKEN = (
    r"<\|[^\s|<>]{1,999}\|?>|<[\w.-]{1,60}\|>|<｜[^\s<>]{1,60}｜>|\[\|[^\s|\[\]]{1,60}\|\]"
)
_TAG = r"<{1,2}/?[^\W\d][\w.:-]{0,60}>{1,2}|\|<\w{1,60}>\|"
_BRACKETS = r"\[/?[A-Za-z_]{0,20}[A-Z]{3}[A-Z_]{0,20}\]"
MARKER = re.compile(f"{_CONTROL_TOKEN}|{_TAG}|{_BRACKETS}")
"""What looks like a control token: `<|...|>`, `<...>`, `[INST]`, `<<SYS>>`."""
# What begins a text by its name. It stands after a reply where software joins rounds (`</s><s>`), and ends nothing.
_BEGINNING = re.compile(r"<s>|<bos>|<[|｜]?(?:begin|start)[_▁]?of[_▁]?(?:text|sentence)[|｜]?>")
CONTROL_TOKEN, BRACKETED = re.compile(_CONTROL_TOKEN), re.compile(_BRACKETS)

MAX_SIGN_LENGTH = 40  # characters of a stop that does not look like a control token: `[e~[`
MAX_SIGN_WORDS = 3  # `### End turn`
COMPUTED = "\0"  # stands for each character that no template or field has written
MAX_OPTIONS = 12  # that are varied; a template that reads more is not about them
OPTION_VALUES: tuple[Any, ...] = (True, False, [NAMES[0]])
CALL_VALUE = "zvala"
CALL_ARGUMENTS = {"zkeya": CALL_VALUE}  # built-in tools of some templates take only strings
ASSISTANT = "assistant"


class Closing(NamedTuple):
    """The text after the last field of a message."""

    own: str  # as far as it belongs to the turn of the message
    to_next: str  # up to the next field of another message


class ProbedConversation(NamedTuple):
    """A conversation and its rendering."""

    messages: Sequence[MessageDict]
    rendering: Rendering

    def closing(self, index: int) -> Closing | None:
        """Return what follows the fields of a message; None if none of them is rendered."""
        pieces = self.rendering.pieces
        last = len(pieces) - 1
        while last >= 0 and not _is_field_of(pieces[last].origin, index):
            last -= 1
        if last < 0:
            return None
        own, to_next = [], []
        in_turn = before_next = True
        for piece in pieces[last + 1 :]:
            in_turn = in_turn and piece.origin.message in (None, index)
            before_next = before_next and not _is_field_of_another(piece.origin, index)
            if not in_turn and not before_next:
                break
            shown = COMPUTED * len(piece.text) if _is_computed(piece.origin) else piece.text
            if in_turn:
                own.append(shown)
            if before_next:
                to_next.append(shown)
        return Closing("".join(own), "".join(to_next))

    def closings(self, role: str) -> Iterator[tuple[int, Closing]]:
        """The index of each message of a role that is rendered, and what follows its fields."""
        for index, message in enumerate(self.messages):
            closing = self.closing(index) if message["role"] == role else None
            if closing is not None:
                yield index, closing

    def turn(self, index: int) -> str:
        """Return the text that was written for a message."""
        pieces = self.rendering.pieces
        return "".join(piece.text for piece in pieces if piece.origin.message == index)

    @property
    def last(self) -> int:
        """The index of the last message."""
        return len(self.messages) - 1


def _is_computed(origin: Origin) -> bool:
    """Whether a text is neither the template's nor from a field: a date, a length, a loop index."""
    return origin.kind == "computed" and not origin.sources


def _is_field_of(origin: Origin, index: int) -> bool:
    if origin.kind == "template":
        return False
    paths = [origin.path] if origin.path else origin.sources
    return any(path[:2] == ("messages", index) and _is_text(path) for path in paths)


def _is_field_of_another(origin: Origin, index: int) -> bool:
    path = origin.path
    return path is not None and path[0] == "messages" and _is_text(path) and path[1] != index


def _is_text(path: Sequence[str | int]) -> bool:
    """Whether a path of a message leads to something else than its role."""
    return len(path) > 2 and path[2] != "role"


class StopFinder:
    """Renders the probes about stops. `prober` has settings that the template accepts."""

    def __init__(self, prober: Prober) -> None:
        self.prober = prober
        self.rounds = self._probe_rounds()
        self.calls = self._probe_calls()

    def find_stops(self) -> tuple[str, ...]:
        """Return all stops; special tokens without a text are placeholders."""
        stops = dict.fromkeys((*self._joined_stop(), *self.reply_stops))
        for conversation in (*self.calls, *self._probe_options()):
            stops |= dict.fromkeys(self._reply_stops([conversation], tuple(stops)))
            stops |= dict.fromkeys(self._call_stops(conversation, tuple(stops)))
        # What ends reasoning inside a turn does not end the turn.
        before_content = self._text_before_content()
        return tuple(stop for stop in stops if stop not in before_content) or tuple(stops)

    @cached_property
    def reply_stops(self) -> tuple[str, ...]:
        """The stops of replies that have only content."""
        return self._closing_stops or tuple(dict.fromkeys(self._next_openings()))

    def find_final_stop(self, after_call: bool) -> str | None:
        """Return the stop of a reply or a call that ends a conversation, None if none is known."""
        if self._closing_stops:
            return self._closing_stops[0]
        openings = (*self._next_openings(after_call), *self.reply_stops)
        return openings[0] if openings else None

    @property
    def closes_turns(self) -> bool:
        """Whether the template itself ends replies, instead of only opening the next turn."""
        return bool(self._closing_stops)

    @cached_property
    def _closing_stops(self) -> tuple[str, ...]:
        markers = tuple(dict.fromkeys(self._reply_stops(self.rounds, ())))
        return markers or tuple(self._signs_after_replies())

    # Probes

    def _render(
        self, prober: Prober, /, *chats: list[MessageDict], **options: Any
    ) -> list[ProbedConversation]:
        """Render conversations; those that the template refuses are left out."""
        found: list[ProbedConversation] = []
        for chat in chats:
            rendering = prober.render(chat, **options)
            if rendering is not None:
                found.append(ProbedConversation([*prober.preamble(), *chat], rendering))
        return found

    def _probe_rounds(self) -> list[ProbedConversation]:
        """Conversations without tools that end with a reply."""
        prober = self.prober.with_settings(tools=False)
        user, reply, next_user = prober.user(), prober.reply(), prober.user(NEXT_USER)
        chats = [[user, reply], [user, reply, next_user, reply]]
        if not prober.settings.system_first:
            chats.append([make_message("system", prober.as_content(SYSTEM)), user, reply])
        return self._render(prober, *chats)

    def _probe_calls(self) -> list[ProbedConversation]:
        """Conversations with a tool call, in the first shape in which the call is rendered."""
        for as_text in (False, True):
            for content in (*EMPTY_CONTENTS[:2], CONTENT):
                self.shape = CallShape(content, as_text)
                found = self._probe_call_shape()
                if found:
                    return found
        return []

    def _probe_call_shape(self) -> list[ProbedConversation]:
        """One call, two calls, and one with its result; nothing if the call is not rendered."""
        prober = self.prober
        one = {"role": ASSISTANT, **prober.call(self.shape, CALL_ARGUMENTS)}
        two = {"role": ASSISTANT, **prober.call(self.shape, CALL_ARGUMENTS, CALL_ARGUMENTS)}
        first = self._render(prober, [prober.user(), one])
        if not first or CALL_VALUE not in first[0].rendering.text:
            return []
        answered = [prober.user(), one, RESULTS[0], prober.reply()]
        return first + self._render(prober, [prober.user(), two], answered)

    def _probe_options(self) -> Iterator[ProbedConversation]:
        """Replies and a call with each value of each option, if their turns differ from those without it."""
        known = {_turns_text(found) for found in (*self.rounds, *self.calls)}
        plain = self.prober.with_settings(tools=False)
        chat = [plain.user(), plain.reply(), plain.user(NEXT_USER), plain.reply()]
        call = {"role": ASSISTANT, **self.prober.call(self.shape, CALL_ARGUMENTS)}
        asked = [self.prober.user(), call]
        for name in option_names(self.prober.renderer.variables)[:MAX_OPTIONS]:
            for value in OPTION_VALUES:
                found = self._render(plain, chat, **{name: value})
                if self.calls and found:
                    found += self._render(self.prober, asked, **{name: value})
                for conversation in found:
                    if _turns_text(conversation) not in known:
                        known.add(_turns_text(conversation))
                        yield conversation

    def _text_before_content(self) -> str:
        """Return how a turn with reasoning begins."""
        prober = self.prober.with_settings(tools=False)
        thinking = {**prober.reply(), "reasoning_content": REASONING}
        found = self._render(prober, [prober.user(), thinking])
        return found[0].turn(found[0].last).partition(CONTENT)[0] if found else ""

    # Candidates

    def _joined_stop(self) -> Iterator[str]:
        """Of an end of several tags with words between them, the part before the last tag.

        In `<|close|>message<|sep|><|end_of_msg|>` both parts end a turn, and the last may be missing from a reply.
        """
        if not self.rounds or not self.calls:
            return
        closings = [found.closing(found.last) for found in (self.rounds[0], self.calls[0])]
        reply, call = (Segment(closing.own if closing else "") for closing in closings)
        end = reply.slice(len(reply) - common_suffix(reply, call))
        tags = Segment(end.core).tags
        if len(tags) > 2 and tags[0][0] == 0 and tags[0][1] < tags[1][0]:
            yield end.core[: tags[-1][0]]

    def _reply_stops(
        self, conversations: Sequence[ProbedConversation], known: Iterable[str]
    ) -> Iterator[str]:
        """The markers that end replies: first those that only the last reply has, then the usual ones."""
        usual = dict.fromkeys(known)
        last: list[tuple[list[str], str]] = []
        for conversation in conversations:
            user_ends = _user_ends(conversation)
            for index, closing in conversation.closings(ASSISTANT):
                markers = _closing_markers(conversation, closing.own)
                if not markers or conversation.messages[index].get("tool_calls"):
                    continue
                if index == conversation.last:
                    last.append((markers, conversation.turn(index).partition(CONTENT)[0]))
                else:
                    # A marker that ends user turns ends replies too, if another one follows it.
                    usual |= dict.fromkeys([m for m in markers[:-1] if m in user_ends])
                    usual[markers[-1]] = None
        for markers, before in last:
            if not any(stop in markers for stop in usual) and markers[0] not in before:
                yield markers[0]
        yield from usual

    def _signs_after_replies(self) -> Iterator[str]:
        """A text after every reply that is not made of words alone, such as `[e~[` or `### End`."""
        replies, users = self._closing_texts(ASSISTANT), self._closing_texts("user")
        shortest = min(replies, key=len, default="")
        for sign in users:
            # What ends user turns too is the end of a turn; the rest before it closes content.
            if _is_sign(sign) and all(text.endswith(sign) for text in replies):
                yield sign
                return
        is_sign = _is_sign(shortest) and all(text.startswith(shortest) for text in replies)
        if is_sign and not self._closes_content(shortest):
            yield shortest

    def _closes_content(self, sign: str) -> bool:
        """Whether the template writes a text between content and a call, as it does the closer of content."""
        call = self.prober.call(CallShape(CONTENT, self.shape.as_text), CALL_ARGUMENTS)
        found = self._render(self.prober, [self.prober.user(), {"role": ASSISTANT, **call}])
        after_content = found[0].turn(found[0].last).partition(CONTENT)[2] if found else ""
        return CALL_VALUE in after_content and sign in after_content.partition(CALL_VALUE)[0]

    def _closing_texts(self, role: str) -> list[str]:
        """What follows the messages of a role in plain conversations."""
        return [
            closing.own.strip()
            for conversation in self.rounds
            for _, closing in conversation.closings(role)
        ]

    def _next_openings(self, after_call: bool | None = None) -> Iterator[str]:
        """The marker that begins whatever follows a reply or a call; with `after_call`, only one of the two."""
        for conversation in (*self.rounds, *self.calls):
            for index, closing in conversation.closings(ASSISTANT):
                has_calls = bool(conversation.messages[index].get("tool_calls"))
                if index == conversation.last or after_call not in (None, has_calls):
                    continue
                opening = closing.to_next.removeprefix(closing.own) or closing.to_next
                marker = MARKER.match(opening.strip())
                if marker:
                    yield marker.group()

    def _call_stops(self, conversation: ProbedConversation, known: Sequence[str]) -> Iterator[str]:
        """The last marker after a final call, unless the turn ends as others do or the marker closes the call."""
        index = conversation.last
        is_call = conversation.messages[index].get("tool_calls")
        closing = conversation.closing(index) if is_call else None
        markers = MARKER.findall(closing.own) if closing else []
        if not markers or any(stop in markers for stop in known):
            return
        marker, turn = markers[-1], conversation.turn(index)
        repeated = any(other.rendering.text.count(marker) > 1 for other in self.calls)
        closes_tag = marker.startswith("</") and f"<{marker[2:-1]}" in turn
        if not repeated and turn.count(marker) <= 1 and not closes_tag:
            yield marker


def _turns_text(conversation: ProbedConversation) -> str:
    """Return a conversation from the text of the first user message on, without system prompt and tools."""
    return USER + conversation.rendering.text.partition(USER)[2]


def _is_sign(text: str) -> bool:
    """Whether a text may be a delimiter: short, and unlike words (`END_TURN:`) and punctuation (`### End`)."""
    is_short = len(text) <= MAX_SIGN_LENGTH and len(text.split()) <= MAX_SIGN_WORDS
    has_letter = any(map(str.isalpha, text))
    is_wordlike = text[:1].isalnum() and "_" not in text
    return is_short and has_letter and not is_wordlike and COMPUTED not in text


def _user_ends(conversation: ProbedConversation) -> set[str]:
    """The last markers of user turns."""
    closings = [closing for _, closing in conversation.closings("user")]
    return {marker for closing in closings for marker in MARKER.findall(closing.own)[-1:]}


def _closing_markers(conversation: ProbedConversation, closing: str) -> list[str]:
    """The markers after a reply; without those that begin the conversation or a text (bos), if there are others."""
    markers = [marker for marker in MARKER.findall(closing) if COMPUTED not in marker]
    text = conversation.rendering.text
    others = [m for m in markers if not text.startswith(m) and not _BEGINNING.fullmatch(m)]
    return others or markers

"""Session: a conversation that only grows, for serving and reinforcement learning.

The ids that a model sampled are kept as they are, never decoded and encoded again. What the template writes around them
is added: `extend` renders the conversation with the new messages, checks that it still begins with the prompt and the
reply of before, and encodes what follows. If it does not, the model would now read something else than it read and
wrote; that is `Unstable`, with the first difference, unless the caller says what to do about it.

To check everything each time would cost the whole history at every step. Templates look at the start of a conversation
and at its end, so a step is worked out on a window: the system messages, the question, the last replies and what came
between them. The window's left edge stays for some steps, so that the rendering of one step is the beginning of the
next. What the window says is not believed at once: the first steps that use one, and then a step whenever the
conversation has doubled or a message is of a kind that was not there before (the first result of a tool), are worked
out on all of it as well. Should the two disagree (`[Round 3]`), the session works on all of it from then on; and
whatever the window objects to is decided by the whole conversation. So steps cost the same however long the
conversation is, but for those few.

A reply is read into a message where the template shows how (`parse`): reasoning and calls stand in the history as such.
A model need not write them as the template does; then the words themselves are taken for content, as long as that is
what the ids say, and only if neither comes out as it was sampled is it `Unstable`.

Limit: a template that changes what the window does not show is found at the next such step, not at once. `verify` looks
at once, and `exact=True` at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from operator import index as as_int
from typing import Any

from turnwise.engine.provenance.piece_table import PieceTable
from turnwise.engine.provenance.rendering import Rendering
from turnwise.errors import (
    MessageError,
    TokenizerError,
    TurnwiseError,
    Unstable,
    did_you_mean,
    short_repr,
)
from turnwise.messages import InputReader
from turnwise.tokens.attribution import ALL, NONE, SPEAKERS, TRUST, WORDS, levels, template_hits
from turnwise.tokens.boundaries import ending, last_end, last_word, regions_of
from turnwise.tokens.encode import SYSTEMS, Ask, encoded, marking, trusted
from turnwise.tokens.text_encoder import encoder
from turnwise.tokens.token_matcher import Hit
from turnwise.tokens.tokenizers.protocol import AFTER, START, WITHIN, Added

CHECKED = 4  # windowed steps at the start that are worked out on everything too
REPLIES = 2  # replies before the last one that a window holds at least; it is moved when it holds twice as many
HISTORY = {
    "same": "the earlier text must not change, or Unstable is raised",
    "keep": "the earlier ids stay as they are, whatever the template would now write",
    "rewrite": "the conversation is encoded anew, sampled ids and all",
}

Messages = Sequence[Mapping[str, Any]]
Kind = tuple[str, frozenset[str]]
# A reply, its text without the stop, and the prompt: the message, or None if the text is all it says.
Parse = Callable[[str | Sequence[int], str, Rendering | None], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Step:
    """What the template writes behind a reply."""

    text: str
    ids: list[int]
    now: Rendering  # the prompt that this step ends with, as far as its window shows it
    kept: bool = False  # earlier text stays, although the template would now write another


class Session:
    """`prompt`, `add_reply`, `extend`, `add_reply`, ...; `ids` holds everything so far."""

    def __init__(
        self,
        ask: Ask,
        stops: Sequence[str],
        exact: bool = False,
        parse: Parse | None = None,
        turns: Callable[[Any], Any] = lambda messages: messages,
    ) -> None:
        self.ask = ask
        self.tokenizer = ask.tokenizer
        self.stops = tuple(sorted({stop for stop in stops if stop}, key=len, reverse=True))
        self.exact = exact
        self.read: Callable[[str], Any] | None = (
            None  # the caller's own way from a text to a message
        )
        self._parse = parse
        self._turns = (
            turns  # messages that were read from replies, in the form that the template takes
        )
        self.messages: list[Mapping[str, Any]] = []
        self.ids: list[int] = []
        self._known: set[int] = set()  # ids that the tokenizer is known to have
        self._added = frozenset(token.id for token in self.tokenizer.added.values())
        self._widths: dict[int, int] = {}  # how long the text of an id is that a reply follows
        self._restart()

    def _restart(self) -> None:
        self.kept = False  # some earlier text stays although the template would now write another
        self._texts: list[str] = []  # that the ids stand for
        self._reply: str | None = None  # the text of a reply that nothing follows yet
        self._words: Mapping[str, Any] | None = (
            None  # that reply as content and nothing else, if it was read as more
        )
        self._prompted = 0  # messages that the last prompt was made of
        self._edge = 0  # the message from which on the window of the last step shows everything
        self._head: tuple[int, ...] = ()  # the system messages before it
        self._before: Rendering | None = None  # what that window showed
        self._windowed = 0  # steps that used a window
        self._proved = 0  # messages at the last step that was worked out on everything
        self._kinds: frozenset[Kind] = frozenset()  # of messages that there were

    # ---- what callers say ----

    def prompt(self, messages: Messages) -> list[int]:
        """The ids to send to the model; starts the conversation, anew if there was one."""
        chat = listed(self._turns(messages))
        found = encoded(replace(self.ask, messages=chat, render=self.ask.prompt))
        self._restart()
        self.messages, self._prompted, self._proved, self._kinds = (
            chat,
            len(chat),
            len(chat),
            kinds(chat),
        )
        self.ids, self._texts, self._before = list(found.input_ids), [found.text], found.rendering
        return list(self.ids)

    def add_reply(
        self, reply: str | Sequence[int], message: Mapping[str, Any] | None = None
    ) -> None:
        """What the model wrote, as ids (kept as they are) or text; `message` is what it means, if the caller knows."""
        if not self._texts:
            raise MessageError("there is no prompt to reply to", hint="call prompt first")
        if self._reply is not None:
            raise MessageError(
                "there is a reply already, and nothing follows it yet", hint="call extend first"
            )
        meant = None
        if message is not None:
            meant = mapped(InputReader().to_plain(self._turns([message])[0], "message"), message)
        ids = self._encoded(reply) if isinstance(reply, str) else self.checked(reply)
        text = reply if isinstance(reply, str) else self._decoded(ids)
        said, self._words = (meant, None) if meant is not None else self._message(text, ids, reply)
        self.messages.append(said)
        self.ids += ids
        self._reply = text

    def extend(self, messages: Messages, history: str = "same") -> list[int]:
        """The ids to send to the model next: everything so far, the messages, and the opening.

        `history` says what to do where the template would now write earlier text in another way: "same" raises
        Unstable and changes nothing, so it can be called again with "keep" (the ids stay) or "rewrite" (all anew).
        """
        if not isinstance(history, str) or history not in HISTORY:
            hint = did_you_mean(str(history), HISTORY, "One of")
            raise MessageError(f"there is no history {history!r}", path="history", hint=hint)
        if self._reply is None:
            raise MessageError(
                "messages follow a reply, and there is none yet", hint="call add_reply first"
            )
        grown = self.messages + listed(self._turns(messages))
        if history == "rewrite":
            return self._rewritten(grown)
        edge, head = self._window(grown)
        grown, step = self._found_step(grown, edge, head, history)
        if not edge or self.exact:
            edge, head, self._proved = 0, (), len(grown)
        self._edge, self._head, self._before, self.kept = (
            edge,
            head,
            step.now,
            self.kept or step.kept,
        )
        self._texts += [self._reply, step.text]
        self.ids += step.ids
        self._kinds |= kinds(grown[self._prompted :])
        self.messages, self._prompted, self._reply = grown, len(grown), None
        return list(self.ids)

    def verify(self) -> None:
        """Check everything that was sent so far against the template; raises Unstable."""
        said = "".join(self._texts)
        now = self.ask.prompt(self.messages[: self._prompted])
        if now.text != said:
            raise unstable(now, now, said, range(self._prompted), self._prompted)

    @property
    def stop_token_ids(self) -> list[int]:
        """The ids that end a reply."""
        return [
            self.tokenizer.added[text].id for text in self.stops if text in self.tokenizer.added
        ]

    @property
    def text(self) -> str:
        """The text that the ids stand for."""
        return "".join(self._texts) + (self._reply or "")

    def fork(self) -> Session:
        """A second session that goes on from here; what the two share does not change."""
        other = Session.__new__(Session)
        other.__dict__.update(self.__dict__)
        other.messages, other.ids, other._texts = (
            list(self.messages),
            list(self.ids),
            list(self._texts),
        )
        return other

    def __repr__(self) -> str:
        return f"<Session: {len(self.messages)} messages, {len(self.ids)} ids>"

    # ---- windows ----

    def _window(self, grown: Messages) -> tuple[int, tuple[int, ...]]:
        """The edge from which on the window shows everything (0 for no window), and what it shows before that."""
        edge = 0 if self.exact else self._left(grown)
        if edge == self._edge or not edge:
            return edge, self._head if edge else ()
        systems = [index for index in self._head if grown[index].get("role") in SYSTEMS]
        systems += [
            index for index in range(self._edge, edge) if grown[index].get("role") in SYSTEMS
        ]
        asked = next(
            (index for index in range(edge - 1, -1, -1) if grown[index].get("role") == "user"), edge
        )
        between = range(asked, edge)
        if any(grown[index].get("role") in SPEAKERS for index in between):
            between = range(asked, asked + 1)  # an agent at work: the question, then its last calls
        return edge, (*(index for index in systems if index not in between), *between)

    def _left(self, grown: Messages) -> int:
        """The edge: that of the last step, until its window holds many replies; then that of the fewest."""
        replies = fewest = 0
        for index in range(self._prompted - 1, -1, -1):
            if grown[index].get("role") in SPEAKERS:
                replies += 1
                if replies == REPLIES:
                    fewest = index
                elif replies > 2 * REPLIES:
                    return fewest
            if index == self._edge:
                return index
        return 0

    def _found_step(
        self, grown: list[Mapping[str, Any]], edge: int, head: tuple[int, ...], history: str
    ) -> tuple[list[Mapping[str, Any]], Step]:
        """The step; and the messages, in which the words of the reply stand for what was read if only they fit."""
        if self._words is None:
            return grown, self._any_step(grown, edge, head, history)
        problems: list[TurnwiseError] = []
        for how in dict.fromkeys(("same", history)):
            for chat in self._told(grown):
                try:
                    return chat, self._any_step(chat, edge, head, how)
                except TurnwiseError as error:
                    problems.append(error)
        raise problems[-2]  # that of the message as it was read

    def _any_step(
        self, grown: list[Mapping[str, Any]], edge: int, head: tuple[int, ...], history: str
    ) -> Step:
        return (
            self._windowed_step(grown, edge, head, history)
            if edge
            else self._step(grown, 0, (), history)
        )

    def _rewritten(self, grown: list[Mapping[str, Any]]) -> list[int]:
        """Everything anew; where the template refuses what was read of the reply, with its words."""
        *first, last = self._told(grown)
        for chat in first:
            try:
                return self.prompt(chat)
            except TurnwiseError:
                continue
        return self.prompt(last)

    def _told(self, grown: list[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
        """The messages with the reply as it was read, and with its words alone."""
        yield grown
        if self._words is not None:
            yield [*grown[: self._prompted], self._words, *grown[self._prompted + 1 :]]

    def _windowed_step(
        self, grown: list[Mapping[str, Any]], edge: int, head: tuple[int, ...], history: str
    ) -> Step:
        """The step as a window shows it, if that is to be believed; else as it is."""
        try:
            step = self._step(grown, edge, head, history)
        except TurnwiseError:
            step = None
        known = kinds(grown[self._prompted :]) <= self._kinds and len(grown) < 2 * self._proved
        if step is not None and self._windowed >= CHECKED and known:
            return step
        whole = self._step(grown, 0, (), history)
        if step is None or (step.text, step.ids) != (whole.text, whole.ids):
            self.exact = True
            return whole
        self._windowed, self._proved = self._windowed + 1, len(grown)
        return step

    # ---- one step ----

    def _step(
        self, grown: list[Mapping[str, Any]], edge: int, head: tuple[int, ...], history: str
    ) -> Step:
        """What the template writes behind the reply, as text and as ids, seen through this window."""
        chat = [*(grown[index] for index in head), *grown[edge:]] if edge else grown
        spoken = self._prompted - edge + len(head)  # where the reply stands in the window
        before = self._before if edge == self._edge else None
        if not edge and not self.kept:
            said = self.text
        else:
            before = before or self.ask.prompt(chat[:spoken])
            said = before.text + str(self._reply)
        now = self.ask.prompt(chat)
        if now.text.startswith(said):
            place = len(said)
        elif history == "keep":
            place = self._behind(now, chat, spoken)
        else:
            before = before or self.ask.prompt(chat[:spoken])
            raise unstable(before, now, said, (*head, *range(edge, len(grown))), spoken)
        ids = self._following(now, chat, spoken, place)
        return Step(now.text[place:], ids, now, not now.text.startswith(said))

    def _behind(self, now: Rendering, chat: Messages, spoken: int) -> int:
        """Where the template's text goes on behind the reply: behind its stop, if the model wrote one."""
        region = regions_of(now.piece_table).get(spoken)
        if region is None:
            raise Unstable(
                "the template leaves the reply out, so there is no place behind it",
                before=str(self._reply)[-60:],
                now=now.text[-60:],
                message_index=self._prompted,
                hint='history="rewrite" encodes the conversation anew',
            )
        hits = self._hits(now, chat)[1]
        places, stops = [hit.start for hit in hits], self.ask.stops.union(self.stops)
        stop, end = ending(now.piece_table, now.text, region[0], region, hits, places, stops)
        return end if str(self._reply).endswith(self.stops) else stop

    def _following(self, now: Rendering, chat: Messages, spoken: int, place: int) -> list[int]:
        """The ids of the text behind this place."""
        worker, last = encoder(self.tokenizer), self.ids[-1] if self.ids else None
        found = (
            None
            if self.ask.trust
            else template_hits(worker.scanner, now.text, *now.tail(place), place)
        )
        begin, hits = place, []
        for start, end, token, at in self._hits(now, chat)[0] if found is None else found:
            if at >= place:
                hits.append(Hit(max(start, place), end, token, at))
            elif end > place and token.id == last:
                begin = end  # the last token takes the white space behind it
        seams: list[int] = []
        if any(message.get("role") in SPEAKERS for message in chat[spoken + 1 :]):
            own, prompt = self._hits(now, chat)[1], lambda index: self.ask.prompt(chat[:index])
            turns, _ = self.ask.boundaries.find(now, chat, own, self.ask.stops, prompt)
            seams = [turn.start - begin for turn in turns if turn.start > begin]
        moved = [
            Hit(start - begin, end - begin, token, at - begin) for start, end, token, at in hits
        ]
        at = START if last is None else AFTER if last in self._added else WITHIN
        return worker.segments(now.text[begin:], moved, seams, at=at)[0]

    def _hits(self, now: Rendering, chat: Messages) -> tuple[list[Hit], list[Hit]]:
        """The tokens of a rendering; and those of them that the template itself wrote."""
        voices, found = trusted(self.ask, now, chat)
        return found, voices.own(found)

    # ---- replies ----

    def checked(self, ids: Sequence[int]) -> list[int]:
        """The ids, if they are this tokenizer's."""
        found = whole_numbers(ids, "a reply is text or a list of ids")
        new = set(found) - self._known
        for id in new:
            if id < 0 or self.tokenizer.token(id) is None:
                raise TokenizerError(
                    f"ids[{found.index(id)}] is {id}, which {self.tokenizer.name} does not have",
                    hint="were they sampled with another tokenizer?",
                )
        self._known |= new
        return found

    def _decoded(self, ids: list[int]) -> str:
        """The text of ids behind others: some decoders drop a space at the start of a text."""
        if not self.ids:
            return self.tokenizer.decode(ids)
        last = self.ids[-1]
        width = self._widths.get(last)
        if width is None:
            width = self._widths[last] = len(self.tokenizer.decode([last]))
        return self.tokenizer.decode([last, *ids])[width:]

    def _encoded(self, text: str) -> list[int]:
        """The ids of a reply that is given as text: its stop is a token, and so is what assistants may write."""
        worker = encoder(self.tokenizer)
        level = (levels(self.ask.trust) if self.ask.trust else TRUST).get(
            ("role", "assistant"), NONE
        )

        def allowed(token: Added, start: int, end: int) -> bool:
            if level == ALL or not token.control or text[start:] in self.stops:
                return True
            return (
                level == WORDS and not token.special and token.text not in marking(self.ask, worker)
            )

        return worker.segments(text, worker.scanner.hits(text, allowed), at=WITHIN)[0]

    def _message(
        self, text: str, ids: list[int], reply: str | Sequence[int]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """The reply as a message; and as content and nothing else, if it was read as more than that."""
        if self.read is not None:
            try:
                found = self.read(text)
            except TurnwiseError:
                raise
            except Exception as error:  # the caller's code
                raise MessageError(
                    f"the reply could not be read: {error!r:.200}", path="read"
                ) from error
            return mapped(InputReader().to_plain(found, "read"), found), None
        stop = next((stop for stop in self.stops if text.endswith(stop)), "")
        words = {"role": "assistant", "content": text.removesuffix(stop)}
        given = text if isinstance(reply, str) else ids
        read = None if self._parse is None else self._parse(given, words["content"], self._before)
        return (words, None) if read is None else (read, words)


def listed(messages: Any) -> list[Mapping[str, Any]]:
    """The messages, or what stands for them in objects, as plain data of our own."""
    reader = InputReader()
    chat = messages if isinstance(messages, (list, tuple)) else reader.read_messages(messages)
    return [reader.read_message(message, index) for index, message in enumerate(chat)]


def mapped(plain: Any, given: Any) -> Mapping[str, Any]:
    """A message, if that is what was given."""
    if not isinstance(plain, dict):
        raise MessageError(
            f"a message is a mapping, not {type(given).__name__}: {short_repr(given)}",
            path="message",
        )
    return plain


def whole_numbers(ids: Any, wanted: str) -> list[int]:
    """Ids from a list, an array or a tensor of them."""
    try:
        if isinstance(ids, (str, bytes, bytearray, memoryview, Mapping, Set)):
            raise TypeError
        found = list(ids)
        if bool in set(map(type, found)):
            raise TypeError
        return list(map(as_int, found))
    except (TypeError, ValueError):
        raise TokenizerError(
            f"{wanted}, not {short_repr(ids)}", hint="ids are whole numbers, in order"
        ) from None


def kinds(messages: Messages) -> frozenset[Kind]:
    """What sorts of messages there are: their roles, and the fields that say something."""
    return frozenset(
        (str(message.get("role")), frozenset(str(name) for name, value in message.items() if value))
        for message in messages
    )


# ---- what changed ----


def unstable(
    before: Rendering, now: Rendering, said: str, window: Sequence[int], spoken: int
) -> Unstable:
    """The error for a rendering that does not begin with what was said; `spoken` is the reply's place in the window."""
    at = parting(said, now.text)
    changed = changed_message(before, now, at, spoken)
    who = "text outside of the messages" if changed is None else f"messages[{window[changed]}]"
    start, piece = 0, None
    for piece in now.pieces:
        start += len(piece.text)
        if start > at:
            break
    return Unstable(
        f"{'the reply' if changed == spoken else who} would now be written in another way: "
        f"{short_repr(said[at : at + 60])} became {short_repr(now.text[at : at + 60])}",
        before=said[at:],
        now=now.text[at:],
        piece=piece,
        message_index=None if changed is None else window[changed],
        hint='history="keep" goes on with the sampled ids as they are, "rewrite" encodes the conversation anew',
    )


def changed_message(before: Rendering, now: Rendering, at: int, spoken: int) -> int | None:
    """The message in which the earlier text changed; None where it belongs to no message."""
    if at >= last_end(before.piece_table):
        return spoken  # its opening, or what it says
    changed = message_at(before.piece_table, at)
    opening = changed == spoken - 1 and at >= last_word(before.piece_table, (0, len(before.text)))
    return spoken if opening and message_at(now.piece_table, at) == spoken else changed


def message_at(table: PieceTable, at: int) -> int | None:
    return table.message_of(table.index_at(at)) if at < table.starts[-1] else None


def parting(a: str, b: str) -> int:
    """The first character at which two texts differ."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[low:middle] == b[low:middle] else (low, middle - 1)
    return low

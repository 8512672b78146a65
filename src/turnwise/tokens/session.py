"""Session: a conversation that only grows, for serving and reinforcement learning.

The ids that a model sampled are kept as they are, never decoded and encoded again. What the template writes around
them is added: `extend` renders the conversation with the new messages, checks that it still begins with the prompt
and the reply of before, and encodes what follows. If it does not, the model would now read something else than it
read and wrote; that is `Unstable`, with the first difference, unless the caller says what to do about it.

To check everything each time would cost the whole history at every step. Templates look at the start of a
conversation and at its end, so the step is worked out on a window: the system messages and the last rounds. The first
steps, and then every step at which the conversation has doubled, are worked out on all of it as well; should the two
ever disagree (`[Round 3]`), the session works on all of it from then on. So a step costs the same however long the
conversation is, and a template that changes what the window does not show is found at the next doubling: `verify`
looks at once, and `exact=True` always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnwise.engine.rendering import Rendering
from turnwise.errors import MessageError, TokenizerError, Unstable, shown, suggestion
from turnwise.tokens.boundaries import SPEAKERS
from turnwise.tokens.encode import SYSTEMS, Ask, encoded
from turnwise.tokens.runs import encoder
from turnwise.tokens.scan import Hit
from turnwise.tokens.tokenizers.protocol import AFTER, WITHIN
from turnwise.tokens.trust import Voices

CHECKED = 4  # steps at the start that are worked out on everything
ROUNDS = 2  # rounds before the prompt that the window holds
HISTORY = {
    "same": "the earlier text must not change, or Unstable is raised",
    "keep": "the earlier ids stay as they are, whatever the template would now write",
    "rewrite": "the conversation is encoded anew, sampled ids and all",
}

Messages = Sequence[Mapping[str, Any]]


class Session:
    """`prompt`, `add_reply`, `extend`, `add_reply`, ...; `ids` holds everything so far."""

    def __init__(
        self, ask: Ask, stops: Sequence[str], exact: bool = False, read: Callable[..., Any] | None = None
    ) -> None:
        self.ask = ask
        self.tokenizer = ask.tokenizer
        self.stops = tuple(stops)
        self.exact = exact
        self.read = read
        self.messages: list[Mapping[str, Any]] = []
        self.ids: list[int] = []
        self.steps = 0
        self._texts: list[str] = []  # that the ids stand for
        self._reply: str | None = None  # the text of a reply that nothing follows yet
        self._prompted = 0  # messages that the last prompt was made of

    # ---- what callers say ----

    def prompt(self, messages: Messages) -> list[int]:
        """The ids to send to the model; starts the conversation, anew if there was one."""
        self.messages = list(messages)
        self.steps, self._prompted, self._reply = 0, len(self.messages), None
        found = encoded(replace(self.ask, messages=self.messages, render=self.ask.prompt))
        self.ids, self._texts = list(found.input_ids), [found.text]
        return list(self.ids)

    def add_reply(self, reply: str | Sequence[int], message: Mapping[str, Any] | None = None) -> None:
        """What the model wrote, as ids (kept as they are) or text; `message` is what it means, if the caller knows."""
        if self._reply is not None or not self._texts:
            raise MessageError("a reply follows a prompt: call prompt or extend first")
        ids = self._encoded(reply) if isinstance(reply, str) else self._known(reply)
        text = reply if isinstance(reply, str) else self._decoded(ids)
        self.messages.append(dict(message) if message is not None else self._message(text))
        self.ids += ids
        self._reply = text

    def extend(self, messages: Messages, history: str = "same") -> list[int]:
        """The ids to send to the model next: everything so far, the messages, and the opening."""
        if history not in HISTORY:
            raise MessageError(
                f"there is no history {history!r}", path="history", hint=suggestion(history, HISTORY, "One of")
            )
        if self._reply is None:
            raise MessageError("messages follow a reply: call add_reply first")
        grown = [*self.messages, *messages]
        if history == "rewrite":
            return self.prompt(grown)
        self.steps += 1
        start = 0 if self.exact else self._window()
        text, ids = self._step(grown, start, history)
        if start and (self.steps <= CHECKED or not self.steps & (self.steps - 1)):
            whole = self._step(grown, 0, history)
            if whole != (text, ids):
                self.exact = True
                text, ids = whole
            elif history == "same":
                self._whole(grown)
        self._texts += [self._reply, text]
        self.ids += ids
        self.messages, self._prompted, self._reply = grown, len(grown), None
        return list(self.ids)

    def verify(self) -> None:
        """Check everything that was said so far against the template; raises Unstable."""
        self._whole(self.messages)

    @property
    def stop_token_ids(self) -> list[int]:
        """The ids that end a reply."""
        found = [self.tokenizer.added[text].id for text in self.stops if text in self.tokenizer.added]
        return list(dict.fromkeys(found))

    @property
    def text(self) -> str:
        """The text that the ids stand for."""
        return "".join(self._texts) + (self._reply or "")

    def fork(self) -> Session:
        """A second session that goes on from here; the two share nothing that changes."""
        other = Session(self.ask, self.stops, self.exact, self.read)
        other.messages, other.ids, other._texts = list(self.messages), list(self.ids), list(self._texts)
        other.steps, other._reply, other._prompted = self.steps, self._reply, self._prompted
        return other

    # ---- one step ----

    def _window(self) -> int:
        """The message from which the window shows everything: a user's, some rounds before the last prompt."""
        rounds = 0
        for index in range(self._prompted - 1, 0, -1):
            if self.messages[index].get("role") == "user" and self.messages[index - 1].get("role") in SPEAKERS:
                rounds += 1
                if rounds == ROUNDS:
                    return index
        return 0

    def _step(self, grown: list[Mapping[str, Any]], start: int, history: str) -> tuple[str, list[int]]:
        """What the template writes behind the reply, as text and as ids, seen from this message on."""
        systems = [message for message in self.messages[:start] if message.get("role") in SYSTEMS] if start else []
        chat = [*systems, *grown[start:]]
        spoken = self._prompted - start + len(systems)  # where the reply stands in the window
        before = self.ask.prompt(chat[:spoken]).text
        now = self.ask.prompt(chat)
        said = before + str(self._reply)
        if now.text.startswith(said):
            place = len(said)
        elif history == "keep":
            place = self._behind(now, chat, spoken)
        else:
            raise self._unstable(now, said, spoken, start - len(systems))
        return now.text[place:], self._following(now, chat, place)

    def _behind(self, now: Rendering, chat: Messages, spoken: int) -> int:
        """Where the template's text goes on behind the reply: behind its stop, if the model wrote one."""
        turns = self.ask.boundaries.find(now, chat, self._hits(now, chat, 0), self.ask.stops, self._prompt_of(chat))[0]
        turn = next((turn for turn in turns if turn.message == spoken), None)
        if turn is None:
            raise Unstable(
                "the place where the reply ends cannot be found in the rendering",
                before=str(self._reply)[-60:],
                now=now.text[-60:],
                message_index=self._prompted,
                hint='history="rewrite" encodes the conversation anew',
            )
        stopped = any(str(self._reply).endswith(stop) for stop in self.stops if stop)
        return turn.end if stopped else turn.stop

    def _following(self, now: Rendering, chat: Messages, place: int) -> list[int]:
        """The ids of the text behind this place."""
        hits = [hit for hit in self._hits(now, chat, place) if hit.start >= place]
        turns = []
        if any(message.get("role") in SPEAKERS for message in chat[-2:]) or len(chat) > 2:
            turns = self.ask.boundaries.find(now, chat, hits, self.ask.stops, self._prompt_of(chat))[0]
        moved = [Hit(hit.start - place, hit.end - place, hit.token, hit.at - place) for hit in hits]
        seams = [turn.start - place for turn in turns if turn.start > place]
        last = self.ids[-1] if self.ids else None
        after = any(token.id == last for token in self.tokenizer.added.values())
        return encoder(self.tokenizer).segments(now.text[place:], moved, seams, at=AFTER if after else WITHIN)[0]

    def _hits(self, now: Rendering, chat: Messages, place: int) -> list[Hit]:
        voices = Voices(now.outline, chat, self.ask.trust)
        return voices.hits(encoder(self.tokenizer).scanner, now.text)

    def _prompt_of(self, chat: Messages) -> Callable[[int], Rendering]:
        return lambda index: self.ask.prompt(chat[:index])

    # ---- proof ----

    def _whole(self, grown: Messages) -> None:
        """The whole conversation begins with everything that was said."""
        now = self.ask.prompt(grown)
        if not now.text.startswith(self.text):
            raise self._unstable(now, self.text, self._prompted, 0)

    def _unstable(self, now: Rendering, said: str, spoken: int, shift: int) -> Unstable:
        pairs = enumerate(zip(said, now.text, strict=False))
        at = next((index for index, (a, b) in pairs if a != b), min(len(said), len(now.text)))
        start, piece = 0, None
        for piece in now.pieces:
            start += len(piece.text)
            if start > at:
                break
        index = piece.origin.message if piece is not None else None
        index = spoken if index is None else index
        who = "the reply" if index == spoken else f"messages[{index + shift}]"
        return Unstable(
            f"{who} would now be written in another way: "
            f"{shown(said[at : at + 60])} became {shown(now.text[at : at + 60])}",
            before=said[at:],
            now=now.text[at:],
            piece=piece,
            message_index=index + shift,
            hint='history="keep" goes on with the sampled ids as they are, "rewrite" encodes the conversation anew',
        )

    # ---- replies ----

    def _known(self, ids: Sequence[int]) -> list[int]:
        """The ids, if they are this tokenizer's."""
        found = list(ids)
        for index, id in enumerate(found):
            if type(id) is not int and not hasattr(id, "__index__"):
                raise TokenizerError(f"a reply is text or ids, and ids[{index}] is {type(id).__name__}")
            if self.tokenizer.token(int(id)) is None:
                raise TokenizerError(
                    f"ids[{index}] is {int(id)}, which {self.tokenizer.name} does not have",
                    hint="were they sampled with another tokenizer?",
                )
        return [int(id) for id in found]

    def _decoded(self, ids: list[int]) -> str:
        """The text of ids behind others: some decoders drop a space at the start of a text."""
        before = self.ids[-1:]
        return self.tokenizer.decode([*before, *ids])[len(self.tokenizer.decode(before)) :]

    def _encoded(self, text: str) -> list[int]:
        """The ids of a reply that is given as text: its stop is a token, and so is what assistants may write."""
        worker = encoder(self.tokenizer)
        hits = worker.scanner.hits(text, lambda token, start, end: not token.special or text[start:] in self.stops)
        return worker.segments(text, hits, at=WITHIN)[0]

    def _message(self, text: str) -> Mapping[str, Any]:
        """The reply as a message."""
        if self.read is not None:
            found: Mapping[str, Any] = self.read(text)
            return found
        for stop in sorted(self.stops, key=len, reverse=True):
            if stop and text.endswith(stop):
                text = text.removesuffix(stop)
                break
        return {"role": "assistant", "content": text}

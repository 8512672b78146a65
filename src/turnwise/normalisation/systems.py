"""System texts where a template writes them, without a change of what comes before them.

A server reuses what it computed for a prompt as far as the next prompt begins alike. So a system text that comes after
other messages (a reminder, a change of rules) is placed by a policy, `late_system`:

    in_place   the message stays where it is; the default where the template writes it there
    user       marked, in a turn that the model has not answered yet; the default elsewhere:
               before the text of a user that follows; else after the text of the user or the result before it;
               else in a user's message of its own
    front      joined to the first system text; every prompt then differs from the one before near its beginning

System texts at the front belong to every prompt of the conversation. They are joined where the template writes one
only, and put before the first user's text where it has no system role, as makers of such templates do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from turnwise.analysis.conversations import make_message
from turnwise.messages.roles import RESULT_ROLES
from turnwise.normalisation.calls import MessageDict, Note
from turnwise.normalisation.capabilities import Capabilities
from turnwise.normalisation.content import part_text
from turnwise.normalisation.normalised import LateSystem

PARAGRAPH = "\n\n"  # between a system text and the text that it is joined to
# Models that agents are used with have seen reminders in such a tag; without one, some answer them.
OPEN_MARK, CLOSE_MARK = "<system-reminder>", "</system-reminder>"

Numbered = tuple[int, MessageDict]  # a message, after its index in the caller's list


class SystemTexts:
    """Places the system texts of one conversation.

    Args:
        capabilities: what the template takes.
        messages: the messages, each with its index in the caller's list.
        note: called once for each change.

    Attributes:
        hoisted: the indices in the caller's list of texts that were moved to before earlier messages.
        lost: the paths of parts of moved messages that are no text, and were left out.
    """

    def __init__(self, capabilities: Capabilities, messages: list[Numbered], note: Note) -> None:
        self._capabilities = capabilities
        self.messages = messages
        self._note = note
        self.hoisted: list[int] = []
        self.lost: list[str] = []

    def place(self, places: Sequence[int], follows: bool, policy: LateSystem | None = None) -> None:
        """Put every system text where the template writes it.

        Args:
            places: those of the system messages.
            follows: whether the model has read other messages, which cannot be changed any more.
            policy: where late texts are put; None for the first place that leaves earlier text as it is.
        """
        messages = self.messages
        if not any(messages[place][1].get("content") for place in places):
            return
        front = [
            place for number, place in enumerate(places) if policy == "front" or place == number
        ]
        if follows:
            front = []
        roles = [messages[place][1]["role"] for place in front]
        self.hoisted = [messages[place][0] for number, place in enumerate(front) if place != number]
        self._place_late(places[len(front) :], policy)
        if not all(map(self._capabilities.writes_role, roles)):
            self._move_to_user(front)
        elif self.hoisted or not self._capabilities.takes_systems(roles):
            self._join_systems(front)

    def _place_late(self, places: Sequence[int], policy: LateSystem | None) -> None:
        """Put late system texts where a policy wants them, if they do not stay where they are."""
        why = 'late_system="user"'
        if policy is None:
            writes_late = self._capabilities.writes_late
            places = [place for place in places if not writes_late(self.messages[place][1]["role"])]
            why = "the template does not write a system message there"
        if places and policy != "in_place":
            self._move_late(places, why)

    def _join_systems(self, places: Sequence[int]) -> None:
        """Join system texts to one message at the front."""
        index, first = self.messages[places[0]]
        late = [place for place in places if place]
        why = 'late_system="front"' if self.hoisted else "the template takes one, at the front"
        text, rest = self._take_out(places, late, "the system text was joined to the first", why)
        joined = {**first, "content": self._as_content("system", text)}
        self.messages = [(index, joined), *rest]

    def _move_to_user(self, places: Sequence[int]) -> None:
        """Put system texts before the text of the first user."""
        first = self.messages[places[0]][0]
        what = "the system text was put before the first user's"
        text, rest = self._take_out(places, places, what, "the template has no system role")
        if rest and rest[0][1].get("role") == "user":
            index, message = rest[0]
            self.messages = [(index, _join_text(text, message)), *rest[1:]]
        else:
            user = make_message("user", self._as_content("user", text))
            self.messages = [(first, user), *rest]

    def _take_out(
        self, places: Sequence[int], moved: Sequence[int], what: str, why: str
    ) -> tuple[str, list[Numbered]]:
        """Return the text of system messages, and all other messages; note the change of those that are moved."""
        for place in moved:
            self._note(f"messages[{self.messages[place][0]}]", what, why)
        rest = [entry for place, entry in enumerate(self.messages) if place not in places]
        texts = [self._take_text(self.messages[place]) for place in places]
        return PARAGRAPH.join(filter(None, texts)), rest

    def _move_late(self, places: Collection[int], why: str) -> None:
        """Put system texts, marked, into the messages next to them, or into messages of users."""
        placed: list[Numbered] = []
        waiting: list[Numbered] = []
        for place, entry in enumerate(self.messages):
            if place in places:
                waiting.append(entry)
                continue
            placed.append(self._give_texts(waiting, placed, entry, why) or entry)
            waiting = []
        self._give_texts(waiting, placed, None, why)
        self.messages = placed

    def _give_texts(
        self, waiting: Sequence[Numbered], before: list[Numbered], after: Numbered | None, why: str
    ) -> Numbered | None:
        """Put system texts into the message before them, or return that after them with the texts.

        What is chosen depends on nothing after the next message, so it stays as it is when the conversation grows.
        """
        text = PARAGRAPH.join(filter(None, map(_mark, map(self._take_text, waiting))))
        if not text:
            return after
        last, following = (entry[1] if entry else {} for entry in (before and before[-1], after))
        is_asked_next = following.get("role") == "user"
        if after and (is_asked_next or (self._can_hold(following) and not self._can_hold(last))):
            where = "before the text of the next message"
            after = (after[0], _join_text(text, following))
        elif self._can_hold(last):
            where = "after the text of the message before"
            before[-1] = (before[-1][0], _join_text(text, last, is_first=False))
        else:
            where = "into a user's message of its own"
            user = make_message("user", self._as_content("user", text))
            before.append((waiting[-1][0], user))
        for index, _ in waiting:
            self._note(f"messages[{index}]", f"the system text was put, marked, {where}", why)
        return after

    def _can_hold(self, message: MessageDict) -> bool:
        """Whether a system text may be joined to a message: it is a user's, or a result that the template writes."""
        role = message.get("role")
        return role == "user" or (role in RESULT_ROLES and self._capabilities.writes_role(role))

    def _take_text(self, entry: Numbered) -> str:
        index, message = entry
        content = message.get("content")
        if isinstance(content, str):
            return content
        texts = list(map(part_text, content or []))
        path = f"messages[{index}].content"
        self.lost += [f"{path}[{number}]" for number, text in enumerate(texts) if text is None]
        return "\n".join(filter(None, texts))

    def _as_content(self, role: str, text: str) -> Any:
        if self._capabilities.takes_text(role):
            return text
        return [{"type": "text", "text": text}]


def _mark(text: str) -> str:
    """Return a system text in a tag, unless its sender wrote the tag."""
    is_marked = not text or text.lstrip().startswith(OPEN_MARK)
    return text if is_marked else f"{OPEN_MARK}\n{text}\n{CLOSE_MARK}"


def _join_text(text: str, message: MessageDict, is_first: bool = True) -> MessageDict:
    """Return a message with a text before its own, or after it."""

    def join(own: Any) -> str:
        return PARAGRAPH.join(filter(None, (text, own) if is_first else (own, text)))

    content = message.get("content")
    if not isinstance(content, (list, tuple)):
        return {**message, "content": join(content)}
    parts = list(content)
    place = 0 if is_first else len(parts) - 1
    own = part_text(parts[place]) if parts else None
    if own is None:  # a media part is next to the text
        parts.insert(place if is_first else place + 1, {"type": "text", "text": text})
    else:
        parts[place] = {"type": "text", "text": join(own)}
    return {**message, "content": parts}

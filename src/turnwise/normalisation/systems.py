"""System texts where a template writes them.

Some templates have no system role, some refuse or drop a system message that is not the first. Every text stays in the
prompt:

    no system role            before the first user's text, with an empty line between
    late, or a second one     joined to the first, with an empty line between
    late in a session         before the next user's text: the model has read the first
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnwise.analysis.conversations import make_message
from turnwise.normalisation.calls import MessageDict, Note
from turnwise.normalisation.capabilities import Capabilities
from turnwise.normalisation.content import part_text

PARAGRAPH = "\n\n"  # between a system text and the text that it is joined to


class SystemTexts:
    """Moves the system texts of one conversation.

    Args:
        capabilities: what the template takes.
        messages: the messages, each with its index in the caller's list.
        note: called once for each change.
    """

    def __init__(
        self, capabilities: Capabilities, messages: list[tuple[int, MessageDict]], note: Note
    ) -> None:
        self._capabilities = capabilities
        self.messages = messages
        self._note = note

    def place(self, follows: bool) -> None:
        """Put every system text where the template writes it; `follows` if the model has read other messages."""
        systems = [
            place
            for place, (_, message) in enumerate(self.messages)
            if message.get("role") == "system"
        ]
        if not systems or all(not self.messages[place][1].get("content") for place in systems):
            return
        capabilities = self._capabilities
        if follows:
            if not capabilities.takes_late_system:
                self._move_to_next_users(systems)
            return
        late = [place for number, place in enumerate(systems) if place != number]
        twice = len(systems) - len(late) > 1
        if not capabilities.writes_role("system"):
            self._move_to_user(systems)
        elif (late and not capabilities.takes_late_system) or (
            twice and not capabilities.takes_two_systems
        ):
            self._join_systems(systems)

    def _join_systems(self, systems: Sequence[int]) -> None:
        """Join all system texts to one message at the front."""
        index, first = self.messages[systems[0]]
        late = [place for place in systems if place]
        what = "the system text was joined to the first"
        text, rest = self._take_out(systems, late, what, "the template takes one, at the front")
        joined = {**first, "content": self._as_content("system", text)}
        self.messages = [(index, joined), *rest]

    def _move_to_user(self, systems: Sequence[int]) -> None:
        """Put all system texts before the text of the first user."""
        first = self.messages[systems[0]][0]
        what = "the system text was put before the first user's"
        text, rest = self._take_out(systems, systems, what, "the template has no system role")
        if rest and rest[0][1].get("role") == "user":
            index, message = rest[0]
            self.messages = [(index, _prepend_text(message, text)), *rest[1:]]
        else:
            user = {"role": "user", "content": self._as_content("user", text)}
            self.messages = [(first, user), *rest]

    def _take_out(
        self, systems: Sequence[int], moved: Sequence[int], what: str, why: str
    ) -> tuple[str, list[tuple[int, MessageDict]]]:
        """Return the text of all system messages, and the other messages; note the change of those that are moved."""
        for place in moved:
            self._note(f"messages[{self.messages[place][0]}]", what, why)
        rest = [entry for place, entry in enumerate(self.messages) if place not in systems]
        return PARAGRAPH.join(filter(None, map(self._take_text, systems))), rest

    def _move_to_next_users(self, systems: Sequence[int]) -> None:
        """Put each system text before the next user's text, or in a user's message of its own where none follows."""
        merged: list[tuple[int, MessageDict]] = []
        waiting: list[str] = []
        for place, (index, message) in enumerate(self.messages):
            if place in systems:
                waiting.append(self._take_text(place))
                why = "the template does not write a system message there"
                self._note(f"messages[{index}]", "the system text was given to the user", why)
                continue
            if waiting and message.get("role") == "user":
                message = _prepend_text(message, PARAGRAPH.join(filter(None, waiting)))
                waiting = []
            merged.append((index, message))
        text = PARAGRAPH.join(filter(None, waiting))
        if text:
            index = self.messages[systems[-1]][0]
            merged.append((index, make_message("user", self._as_content("user", text))))
        self.messages = merged

    def _take_text(self, place: int) -> str:
        content = self.messages[place][1].get("content")
        if isinstance(content, str):
            return content
        return "\n".join(filter(None, map(part_text, content or [])))

    def _as_content(self, role: str, text: str) -> Any:
        if self._capabilities.takes_text(role):
            return text
        return [{"type": "text", "text": text}]


def _prepend_text(message: MessageDict, text: str) -> MessageDict:
    """Return a message with a text before its own."""
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        return {**message, "content": _put_before(text, list(content))}
    return {**message, "content": f"{text}{PARAGRAPH}{content}" if content else text}


def _put_before(text: str, parts: list[Any]) -> list[Any]:
    """Return parts with a text before that of the first, or before all of them if the first is no text."""
    first = part_text(parts[0]) if parts else None
    if first is None:
        return [{"type": "text", "text": text}, *parts]
    return [{"type": "text", "text": f"{text}{PARAGRAPH}{first}"}, *parts[1:]]

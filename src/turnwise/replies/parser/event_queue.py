"""The events of a reply that have not been handed out yet.

Text that follows text of the same kind is part of the same event, as long as that has not been handed out.
"""

from __future__ import annotations

from turnwise.replies.events import TEXT, Event, Kind


class EventQueue:
    """Events in the order of the reply; the last one may still grow."""

    __slots__ = ("_call", "_events", "_kind", "_texts")

    def __init__(self) -> None:
        self._events: list[Event] = []
        # The event that may grow: its texts, its kind and its call.
        self._texts: list[str] = []
        self._kind: Kind = TEXT
        self._call: int | None = None

    def add(self, event: Event) -> None:
        """Add a whole event."""
        if self._texts:
            self._end_text()
        self._events.append(event)

    def add_text(self, kind: Kind, text: str, call: int | None = None) -> None:
        """Add text to the last event if it is of the same kind and call, else to a new one."""
        if kind != self._kind or call != self._call:
            if self._texts:
                self._end_text()
            self._kind, self._call = kind, call
        self._texts.append(text)

    def take(self) -> list[Event]:
        """Return the events since the last time."""
        if self._texts:
            self._end_text()
        events = self._events
        if not events:
            return []
        self._events = []
        return events

    def _end_text(self) -> None:
        texts, self._texts = self._texts, []
        text = texts[0] if len(texts) == 1 else "".join(texts)
        self._events.append(new_text_event(self._kind, text, self._call))


def new_text_event(kind: Kind, text: str, call: int | None) -> Event:
    """Return an event, as its constructor does, which is twice as slow: there may be one for each character."""
    return tuple.__new__(Event, (kind, text, call, None, None))

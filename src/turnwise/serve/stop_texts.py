"""Stop texts of a request: a reply is cut at the first, whatever the chunks in which it comes."""

from __future__ import annotations


class StopText:
    """A stop text, and how much of it the text so far ends with, counted as Knuth, Morris and Pratt do.

    Args:
        text: the stop, which is not empty.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._begun = 0
        # For each beginning of the text, how long the next shorter one is with which it ends.
        self._shorter = [0] * len(text)
        for index in range(1, len(text)):
            self._shorter[index] = self._add(self._shorter[index - 1], text[index])

    def _add(self, length: int, character: str) -> int:
        while length and self.text[length] != character:
            length = self._shorter[length - 1]
        return length + (self.text[length] == character)

    def follow(self, text: str) -> int:
        """Return how many characters may begin the stop after more text, in which it is not found."""
        if len(text) >= len(self.text):
            self._begun = 0
            text = text[len(text) - len(self.text) + 1 :]
        for character in text:
            self._begun = self._add(self._begun, character)
        return self._begun


class StopFilter:
    """Cuts a text at the first of some stop texts, and holds back what may become one.

    Args:
        stops: the texts.
    """

    def __init__(self, stops: list[str]) -> None:
        self._stops = [StopText(stop) for stop in stops]
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """Return what is certainly before a stop."""
        if not self._stops or self.found is not None:
            return "" if self.found is not None else text
        new, text = text, self._held + text
        found = [(text.find(stop.text), stop.text) for stop in self._stops]
        places = [one for one in found if one[0] >= 0]
        if places:
            place, self.found = min(places)
            self._held = ""
            return text[:place]
        keep = max(stop.follow(new) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def close(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return held

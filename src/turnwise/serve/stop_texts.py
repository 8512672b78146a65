"""Stop texts of a request: a reply is cut at the first, whatever the chunks in which it comes."""

from __future__ import annotations


class StopFilter:
    """Cuts a text at the first of some stop texts, and holds back what may become one.

    Args:
        stops: the texts.
    """

    def __init__(self, stops: list[str]) -> None:
        self._stops = stops
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """Return what is certainly before a stop."""
        if self.found is not None:
            return ""
        text = self._held + text
        places = [(text.find(stop), stop) for stop in self._stops if stop in text]
        if places:
            place, self.found = min(places)
            self._held = ""
            return text[:place]
        certain = len(text) - max((_count_begun(text, stop) for stop in self._stops), default=0)
        self._held = text[certain:]
        return text[:certain]

    def close(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return held


def _count_begun(text: str, stop: str) -> int:
    """Return how many characters at the end of a text may begin a stop: not many, since stops are short."""
    sizes = range(min(len(text), len(stop) - 1), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)

"""Questions about a whole input, answered without recursion: it may be nested hundreds deep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnwise.errors import MessageError
from turnwise.messages.paths import Path, format_path

NUMBER_LENGTH = 4  # characters that a number, boolean or null is taken for


def measure_input(value: Any) -> tuple[int, int]:
    """Return how many containers and how many characters an input has; a number counts as a short text."""
    containers, characters = -1, 0  # the list in which the value waits is not counted
    waiting: list[Any] = [[value]]
    while waiting:
        container = waiting.pop()
        containers += 1
        if isinstance(container, dict):
            container = [*container, *container.values()]
        for item in container:
            if isinstance(item, str):
                characters += len(item)
            elif isinstance(item, (dict, list, tuple)):
                waiting.append(item)
            else:
                characters += NUMBER_LENGTH
    return containers, characters


def iterate_texts(value: Any) -> Iterator[str]:
    """Yield the texts of an input; keys are not among them."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, (list, tuple)):
            waiting += item
        elif isinstance(item, Mapping):
            waiting += item.values()


def contains_text(value: Any, substring: str) -> bool:
    """Return whether some text of an input contains `substring`; keys are not searched."""
    return any(substring in text for text in iterate_texts(value))


def find_lone_surrogate(value: Any, path: Path) -> MessageError | None:
    """Return an error that names the first text or key which cannot be written as UTF-8, if any."""
    waiting: list[tuple[Any, Path]] = [(value, path)]
    while waiting:
        item, where = waiting.pop()
        if isinstance(item, dict):
            # the last one added is looked at first, so both are added from the end
            waiting += [(entry, (*where, str(key))) for key, entry in reversed(item.items())]
            waiting += [(key, (*where, str(key))) for key in reversed(item)]
        elif isinstance(item, (list, tuple)):
            waiting += reversed([(entry, (*where, index)) for index, entry in enumerate(item)])
        elif isinstance(item, str) and not item.isascii():
            try:
                item.encode()
            except UnicodeEncodeError as error:
                code = f"U+{ord(item[error.start]):04X}"
                return MessageError(
                    f"half of a surrogate pair ({code}) at character {error.start} "
                    "cannot be written as UTF-8",
                    path=format_path(where),
                    hint="decode the text with errors='replace'",
                )
    return None

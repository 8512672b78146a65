"""Input text that a rendering does not contain.

A template may drop what it has no use for: a system message, a tool list, the text beside a tool call, the second of
two calls. The pieces know which field each character came from, so a field without any piece was dropped. Trimmed,
escaped or computed text counts as written: its origin names the field. An image is written if it has a placeholder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.engine.provenance.rendering import Rendering
from turnwise.messages import REASONING_KEYS, Path, format_path
from turnwise.messages.media import media_kind

TOP_FIELDS = ("tools", "documents")
MESSAGE_FIELDS = ("content", "tool_calls", "function_call")


def find_lost_fields(
    rendering: Rendering,
    messages: Sequence[Any],
    tools: Any = None,
    documents: Any = None,
    positions: Sequence[int] | None = None,
) -> list[str]:
    """Return the paths of what has text and of which nothing was written, in order.

    A path is that of a whole field (`messages[2].content`, `tools`), of one item of a list of which others are written
    (`messages[3].tool_calls[1]`, `tools[0]`), or of a media part without a placeholder (`messages[0].content[1]`).
    `positions` are the indices by which the paths name the messages; the rendering counts them from 0.
    """
    written = _written_paths(rendering)
    lost: list[Path] = []
    for name, value in zip(TOP_FIELDS, (tools, documents), strict=True):
        lost += _find_lost((name,), value, written)
    for index, message in enumerate(messages):
        for name in MESSAGE_FIELDS:
            lost += _find_lost(("messages", index, name), message.get(name), written)
        reasoning = [name for name in REASONING_KEYS if _has_text(message.get(name))]
        if reasoning and not any(("messages", index, name) in written for name in REASONING_KEYS):
            lost.append(("messages", index, reasoning[0]))
    names = [_name_as_given(path, positions) for path in lost]
    for part in rendering.media:
        path = _name_as_given(part.path, positions)
        if not part.written and not any(path.startswith(name) for name in names):
            names.append(path)
    return names


def _find_lost(path: Path, value: Any, written: set[Path]) -> Iterator[Path]:
    """Yield the path of a value with text that was not written, or those of the items of a list that were not."""
    if not _has_text(value):
        return
    if path not in written:
        yield path
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            if media_kind(item) is None and _has_text(item) and (*path, number) not in written:
                yield (*path, number)


def _name_as_given(path: Path | str, positions: Sequence[int] | None) -> str:
    """Return a path as text, with the message numbered as the caller does."""
    if isinstance(path, str):
        index = int(path.partition("[")[2].partition("]")[0])
        return path.replace(f"[{index}]", f"[{positions[index]}]", 1) if positions else path
    if positions is not None and path[0] == "messages":
        path = ("messages", positions[int(path[1])], *path[2:])
    return format_path(path)


def _written_paths(rendering: Rendering) -> set[Path]:
    """Return the beginnings of all paths that some piece came from, as far as items of a field."""
    written: set[Path] = set()
    for piece in rendering.pieces:
        origin = piece.origin
        paths = [origin.path] if origin.path else [*origin.sources]
        if origin.part and not piece.text.isspace():
            paths.append(origin.part)
        for path in paths:
            written.update(tuple(path[:length]) for length in (1, 2, 3, 4))
    return written


def _has_text(value: Any) -> bool:
    """Return True if some text in a value is more than white space."""
    waiting = [value]
    while waiting:  # not by recursion: schemas may be nested hundreds deep
        found = waiting.pop()
        if isinstance(found, str):
            if found.strip():
                return True
        elif isinstance(found, Mapping):
            waiting += [item for key, item in found.items() if key != "type"]
        elif isinstance(found, (list, tuple)):
            waiting += found
    return False

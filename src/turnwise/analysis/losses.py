"""Input text that a rendering does not contain.

A template may drop what it has no use for: a system message, a tool list, the text beside a tool call, the second of
two calls. Trails tell which field each character came from, so a field that no trail leads to was dropped. Trimmed,
escaped or computed text counts as written: its origin names the field. An image is written if it has a placeholder.

Text that was made in more steps than are followed may be from any field. Then nothing is called lost; another warning
tells that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.provenance.trails import Computed, Field
from turnwise.messages import REASONING_KEYS, Path, format_path
from turnwise.messages.media import media_kind

TOP_FIELDS = ("tools", "documents")
MIN_UNTRACED = 500  # characters of a text without a known origin
MESSAGE_FIELDS = ("content", "tool_calls", "function_call", "refusal", "audio")


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
    needs_pieces = rendering.has_pieces or any(
        isinstance(message.get("content"), (list, tuple)) for message in messages
    )
    written = _paths_of_pieces(rendering) if needs_pieces else _paths_of_leaves(rendering)
    if written is None:
        return []
    lost: list[Path] = []
    # A tool of a server (`{"type": "web_search"}`) has no other text than its type.
    named_tools = [_without_type_key(tool) for tool in tools or ()]
    for name, value in zip(TOP_FIELDS, (named_tools, documents), strict=True):
        lost += _find_lost((name,), value, written)
    for index, message in enumerate(messages):
        for name in filter(message.__contains__, MESSAGE_FIELDS):
            if not _repeats_content(message, name):
                lost += _find_lost(("messages", index, name), message[name], written)
        lost += _find_lost_reasoning(message, index, written, lost)
    names = [_name_as_given(path, positions) for path in lost]
    for part in rendering.media:
        path = _name_as_given(part.path, positions)
        if not part.written and not any(path.startswith(name) for name in names):
            names.append(path)
    return names


def _find_lost(path: Path, value: Any, written: set[Path]) -> Iterator[Path]:
    """Yield the path of a value with text that was not written, or those of the items of a list that were not."""
    if not _has_text(value) and not isinstance(value, (int, float)):
        return
    if path not in written:
        yield path
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            if media_kind(item) is None and _has_text(item) and (*path, number) not in written:
                yield (*path, number)


def _repeats_content(message: Mapping[str, Any], name: str) -> bool:
    """Whether a refusal, or what was said aloud, is the content as well."""
    said = message[name].get("transcript") if isinstance(message[name], Mapping) else message[name]
    return name != "content" and said is not None and said == message.get("content")


def _name_as_given(path: Path | str, positions: Sequence[int] | None) -> str:
    """Return a path as text, with the message numbered as the caller does."""
    if isinstance(path, str):
        index = int(path.partition("[")[2].partition("]")[0])
        return path.replace(f"[{index}]", f"[{positions[index]}]", 1) if positions else path
    if positions is not None and path[0] == "messages":
        path = ("messages", positions[int(path[1])], *path[2:])
    return format_path(path)


def _find_lost_reasoning(
    message: Mapping[str, Any], index: int, written: set[Path], lost: list[Path]
) -> Iterator[Path]:
    """Yield the path of reasoning that was not written under any of its keys, nor as a part of the content.

    Such a part is taken from `lost`: it is no text beside the reasoning.
    """
    names = [name for name in REASONING_KEYS if _has_text(message.get(name))]
    if not names:
        return
    text = message[names[0]]
    keys = {*REASONING_KEYS, *(key for key, value in message.items() if value == text)}
    paths: list[Path] = [("messages", index, key) for key in keys]
    content = message.get("content")
    for number, part in enumerate(content if isinstance(content, (list, tuple)) else ()):
        if isinstance(part, Mapping) and text in part.values():
            path: Path = ("messages", index, "content", number)
            paths.append(path)
            if path in lost:
                lost.remove(path)
    if written.isdisjoint(paths):
        yield ("messages", index, names[0])


def _without_type_key(tool: Any) -> Any:
    """Return a tool that is no function with its type as a text that may be lost."""
    if isinstance(tool, Mapping) and "function" not in tool and isinstance(tool.get("type"), str):
        return {**tool, "kind": tool["type"]}
    return tool


def _paths_of_leaves(rendering: Rendering) -> set[Path] | None:
    """Return the beginnings of all paths that some text came from, as far as items of a field; None if unknown."""
    paths: set[Path] = set()
    for text, leaf in rendering.list_leaves():
        if isinstance(leaf, Field):
            paths.add(leaf.path)
        elif isinstance(leaf, Computed):
            if not leaf.sources and len(text) >= MIN_UNTRACED:
                return None
            paths.update(leaf.sources)
    return _list_beginnings(paths)


def _paths_of_pieces(rendering: Rendering) -> set[Path] | None:
    """Return the same, and the content parts for which the template wrote something of its own."""
    paths: set[Path] = set()
    for text, origin in rendering.pieces:
        if origin.kind == "computed" and not origin.sources and len(text) >= MIN_UNTRACED:
            return None
        paths.update([origin.path] if origin.path else origin.sources)
        if origin.part and not text.isspace():
            paths.add(origin.part)
    return _list_beginnings(paths)


def _list_beginnings(paths: set[Path]) -> set[Path]:
    return {path[:length] for path in paths for length in (1, 2, 3, 4)}


def _has_text(value: Any) -> bool:
    """Return True if some text in a value is more than white space."""
    if isinstance(value, str):
        return not value.isspace() and value != ""
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

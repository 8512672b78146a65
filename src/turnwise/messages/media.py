"""Which parts of a content are media: images, videos, audio, files.

A part is told by its `type`, or, where it has none that is known, by the key of its payload, as templates do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.messages.paths import Path

KINDS = {
    "image": ("image", "image_url", "input_image", "image_file", "image_pil", "image_embeds"),
    "video": ("video", "video_url", "input_video"),
    "audio": ("audio", "audio_url", "input_audio", "audio_embeds"),
    "file": ("file", "input_file", "document"),
}
KIND_OF_TYPE = {name: kind for kind, names in KINDS.items() for name in names}
TEXT_TYPES = ("text", "input_text", "output_text", "refusal", "thinking", "reasoning")


def media_kind(part: Any) -> str | None:
    """Return "image", "video", "audio" or "file", None for a part that is no media."""
    if not isinstance(part, Mapping):
        return None
    name = part.get("type")
    if isinstance(name, str) and name in KIND_OF_TYPE:
        return KIND_OF_TYPE[name]
    if name in TEXT_TYPES:
        return None
    for key, kind in KIND_OF_TYPE.items():
        if kind != "file" and part.get(key) is not None:
            return kind
    return None


def find_media_parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Path, str]]:
    """Yield path and kind of every media part, also of those within other parts (tool results)."""
    for index, message in enumerate(messages):
        yield from _find_in(message.get("content"), ("messages", index, "content"))


def _find_in(content: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if not isinstance(content, (list, tuple)):
        return
    for index, part in enumerate(content):
        kind = media_kind(part)
        if kind is not None:
            yield (*path, index), kind
        elif isinstance(part, Mapping):
            yield from _find_in(part.get("content"), (*path, index, "content"))

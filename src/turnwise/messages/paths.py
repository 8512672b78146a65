"""Where a value is in the input: `("messages", 3, "content")`, shown as `messages[3].content`."""

from __future__ import annotations

Path = tuple[str | int, ...]


def format_path(path: Path) -> str:
    """Write a path as in Python: `("tools", 0, "x y")` becomes `tools[0]['x y']`."""
    text = ""
    for step in path:
        if isinstance(step, str) and (not text or step.isidentifier()):
            text += f".{step}" if text else step
        else:
            text += f"[{step!r}]"  # keys of arguments are of any type
    return text

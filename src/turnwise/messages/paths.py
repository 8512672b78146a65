"""Where a value is in the input: `("messages", 3, "content")`, shown as `messages[3].content`."""

from __future__ import annotations

Path = tuple[str | int, ...]


def format_path(path: Path) -> str:
    """Write a path as in Python: `("tools", 0, "x y")` becomes `tools[0]['x y']`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif not text:
            text = step
        elif step.isidentifier():
            text += f".{step}"
        else:
            text += f"[{step!r}]"
    return text

"""Roles that are probably misspelt: `usr`, `Assistant`, `bot`.

Most templates drop a message whose role they do not know, or write it under a name that no model has seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from turnwise.errors import short_repr
from turnwise.messages.roles import RESULT_ROLES

ROLES = ("system", "developer", "user", "assistant", *RESULT_ROLES)
OTHER_NAMES = {
    "human": "user",
    "prompter": "user",
    "customer": "user",
    "bot": "assistant",
    "gpt": "assistant",
    "ai": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "tool_result": "tool",
    "tool_response": "tool",
}
CLOSE = 0.7


def describe_role(message: Mapping[str, Any], index: int, texts: Collection[str]) -> str | None:
    """Return what is wrong with the role of a message; None if it is one that people use or the template names.

    Args:
        message: the message.
        index: its place.
        texts: the source texts of the template.
    """
    path = f"messages[{index}]"
    role = message.get("role")
    if role in ROLES:
        return None
    if role is None:
        found = [key for key in message if isinstance(key, str) and key.lower() in ("role", "from")]
        if found:
            return f"{path} has no role; did you mean 'role' where it has {found[0]!r}?"
        roles = ", ".join(map(repr, ROLES[:5]))
        return f"{path} has no role, so templates leave it out; give it one of {roles}"
    if not isinstance(role, str):
        return f"{path}.role is {short_repr(role)}, and a role is a text"
    if any(f"'{role}'" in text or f'"{role}"' in text for text in texts):
        return None
    name = role.lower()
    close = [OTHER_NAMES[name]] if name in OTHER_NAMES else get_close_matches(name, ROLES, 1, CLOSE)
    if not close:
        return None
    return f"{path} has the role {short_repr(role)}; did you mean {close[0]!r}?"

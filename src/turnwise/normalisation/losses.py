"""Find text that was given and is not in the rendering, at a cost that is small beside that of rendering.

The pieces of a rendering tell exactly which fields were written (`analysis/losses.py`), but they cost more than the
rendering itself. So they are asked only where cheaper ways leave a doubt:

    1. most templates write a text as it was given: it is among the texts that were written
    2. a text that is long enough to be met nowhere else is looked for, behind the one before it

Content that is written, but as Python prints a list, a mapping or None, is found by its text (`find_misprints`).

Templates that write the reasoning of the last reply and remove it from earlier ones do so on purpose. That is no loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from turnwise.analysis.losses import find_lost_fields
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.messages import REASONING_KEYS
from turnwise.normalisation.capabilities import Capabilities

START = 20  # characters of a text that are looked for first
MIN_UNTRACED = 500  # characters of a piece without a known origin


def find_losses(
    rendering: Rendering,
    messages: Sequence[Mapping[str, Any]],
    tools: Any,
    documents: Any,
    positions: Sequence[int] | None,
    capabilities: Callable[[], Capabilities],
) -> list[str]:
    """Return the paths of the fields that have text and of which nothing was written.

    Args:
        rendering: the rendering, which numbers these messages from 0.
        messages: the messages that were rendered.
        tools: the tools that were rendered.
        documents: the documents that were rendered.
        positions: the indices of the messages in the caller's list, for the paths; None if they are the same.
        capabilities: returns what the template does with reasoning, which is asked only where some is lost.
    """
    if not documents and writes_all(rendering, messages, tools, capabilities):
        return []
    if any(map(_is_untraced, rendering.pieces)):
        return []  # the budget for origins was too small, which another warning says
    positions = positions or range(len(messages))
    lost = find_lost_fields(rendering, messages, tools, documents, positions)
    if not any(path.endswith(REASONING_KEYS) for path in lost):
        return lost
    removed = set(_removed_on_purpose(messages, positions, capabilities()))
    return [path for path in lost if path not in removed]


def find_misprints(
    rendering: Rendering, messages: Sequence[Any], positions: Sequence[int] | None
) -> list[str]:
    """Return the paths of contents that a template wrote as Python prints them: a list, a mapping or None.

    Args:
        rendering: the rendering, which numbers these messages from 0.
        messages: the messages that were rendered.
        positions: the indices of the messages in the caller's list, for the paths; None if they are the same.
    """
    found = []
    for index, message in enumerate(messages):
        content = message.get("content") if isinstance(message, Mapping) else ""
        if isinstance(content, str) or ("content" not in message and content is None):
            continue
        if content is None:
            field = f"messages[{index}].content"
            is_printed = "None" in rendering.text and any(
                rendering.text[start:end] == "None" for start, end in rendering.spans(field=field)
            )
        else:
            parts = content if isinstance(content, (list, tuple)) else ()
            containers = (content, *(part for part in parts if isinstance(part, Mapping)))
            is_printed = any(str(one) in rendering.text for one in containers if one)
        if is_printed:
            found.append(f"messages[{positions[index] if positions else index}].content")
    return found


def _is_untraced(piece: Piece) -> bool:
    origin = piece.origin
    return origin.kind == "computed" and not origin.sources and len(piece.text) >= MIN_UNTRACED


def writes_all(
    rendering: Rendering,
    messages: Sequence[Mapping[str, Any]],
    tools: Any,
    capabilities: Callable[[], Capabilities],
) -> bool:
    """Whether all texts are found in a rendering; False if that is not certain."""
    texts: list[Any] = []
    calls = 0  # the most in one message
    for message in messages:
        content = message.get("content")
        if type(content) is str:
            if content:
                texts.append(content)
            if len(message) == 2:
                continue
        elif content is not None and not isinstance(content, (list, tuple)):
            return False
        more = _list_texts(message)
        if None in more:
            return False
        texts += more
        if "tool_calls" in message:
            given = message["tool_calls"]
            calls = max(calls, len(given) if isinstance(given, (list, tuple)) else 0)
    if calls and not capabilities().writes_calls(min(calls, 2)):
        return False
    missing = _find_missing(rendering, texts)
    if missing and not rendering.has_texts(missing):
        return False
    return not tools or all(name in rendering.text for name in _tool_names(tools))


def _find_missing(rendering: Rendering, texts: Sequence[Any]) -> list[Any]:
    """Return the texts that were not written as they were given, or not as often, in their order."""
    missing: set[Any] = set(texts)
    for inside_joined in (False, True):
        written = rendering.list_texts(inside_joined)
        missing.difference_update(written)
        if not missing:
            break
    if len(set(texts)) < len(texts):
        times = Counter(written)
        given = Counter(texts)
        missing.update(text for text, count in given.items() if times[text] < count)
    return [text for text in texts if text in missing] if missing else []


def _list_texts(message: Mapping[str, Any]) -> list[Any]:
    """Return the texts of a message besides a content that is a text; None for what the pieces must tell."""
    texts: list[Any] = []
    for key in REASONING_KEYS:
        if message.get(key):
            texts.append(message[key] if type(message[key]) is str else None)
            break
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        for part in content:
            text = part.get("text") if isinstance(part, Mapping) else None
            texts.append(text if type(text) is str else None)
    if message.get("function_call"):
        texts.append(None)
    return [text for text in texts if text != ""]


def _tool_names(tools: Any) -> Iterator[str]:
    for tool in tools:
        function = tool.get("function", tool) if isinstance(tool, Mapping) else {}
        name = function.get("name") if isinstance(function, Mapping) else None
        yield name if isinstance(name, str) else "\0"  # not found: the pieces tell


def _removed_on_purpose(
    messages: Sequence[Mapping[str, Any]], positions: Sequence[int], capabilities: Capabilities
) -> Iterator[str]:
    """Yield the paths of reasoning in replies before the last user, if the template writes that of a last reply."""
    roles = [message.get("role") for message in messages]
    last_user = max((place for place, role in enumerate(roles) if role == "user"), default=0)
    for place, message in enumerate(messages[:last_user]):
        if message.get("role") != "assistant":
            continue
        has_calls = bool(message.get("tool_calls"))
        is_written = (
            capabilities.writes_reasoning_with_calls if has_calls else capabilities.writes_reasoning
        )
        if is_written:
            yield from (f"messages[{positions[place]}].{key}" for key in REASONING_KEYS)

"""Find text that was given and is not in the rendering, at a cost that is small beside that of rendering.

Following the trails of a rendering tells exactly which fields were written (`analysis/losses.py`), but costs more than
the rendering itself. So they are followed only where cheaper ways leave a doubt:

    1. most templates write a text as it was given: it is among the texts that were written
    2. a text that is long enough to be met nowhere else is looked for, behind the one before it

Content that is written, but as Python prints a list, a mapping or None, is found by its text (`find_misprints`).

Templates that write the reasoning of the last reply and remove it from earlier ones do so on purpose. That is no loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from turnwise.analysis.losses import find_lost_fields
from turnwise.engine.provenance.rendering import Rendering
from turnwise.messages import REASONING_KEYS
from turnwise.normalisation.capabilities import Capabilities
from turnwise.normalisation.tools import NOT_FOUND, normalise_tools

MIN_DOCUMENT = 12  # characters; a shorter text may be found by chance


def find_losses(
    rendering: Rendering,
    messages: Sequence[Mapping[str, Any]],
    tools: Any,
    documents: Any,
    positions: Sequence[int] | None,
    capabilities: Capabilities,
) -> list[str]:
    """Return the paths of the fields that have text and of which nothing was written.

    Args:
        rendering: the rendering, which numbers these messages from 0.
        messages: the messages that were rendered.
        tools: the tools that were rendered.
        documents: the documents that were rendered.
        positions: the indices of the messages in the caller's list, for the paths; None if they are the same.
        capabilities: what the template does with calls and reasoning.
    """
    if not tools and not documents and rendering.writes_turns(messages):
        return []  # the fast path
    texts = _list_texts(messages, capabilities)
    if texts is not None:
        most_calls = max(map(_count_calls, messages), default=0)
        if writes_all(rendering, texts, most_calls, tools, documents, capabilities):
            return []
    return find_exact_losses(rendering, messages, tools, documents, positions, capabilities)


def find_exact_losses(
    rendering: Rendering,
    messages: Sequence[Mapping[str, Any]],
    tools: Any,
    documents: Any,
    positions: Sequence[int] | None,
    capabilities: Capabilities,
) -> list[str]:
    """Return what `find_losses` returns, by following the trails of the rendering."""
    positions = positions or range(len(messages))
    lost = find_lost_fields(rendering, messages, tools, documents, positions)
    if not any(path.endswith(REASONING_KEYS) for path in lost):
        return lost
    last_user = _find_last_user(messages)
    removed = {
        f"messages[{positions[place]}].{key}"
        for place, message in enumerate(messages[:last_user])
        if _is_removed_on_purpose(message, capabilities)
        for key in REASONING_KEYS
    }
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
        if isinstance(content, (str, int, float)):
            continue
        if "content" not in message:
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


def _list_texts(
    messages: Sequence[Mapping[str, Any]], capabilities: Capabilities
) -> list[str] | None:
    """Return the texts that a template should write; None if only the trails can tell."""
    texts: list[Any] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, (list, tuple)):
            texts += [part.get("text") if isinstance(part, Mapping) else part for part in content]
        elif content is not None:
            texts.append(content)
        if message.get("function_call") or message.get("refusal") or message.get("audio"):
            return None
    texts += list_reasoning(messages, capabilities)
    if not all(type(text) is str for text in texts):
        return None
    return [text for text in texts if text]


def list_reasoning(
    messages: Sequence[Mapping[str, Any]], capabilities: Capabilities
) -> Iterator[Any]:
    """Yield the reasoning that a template should write, which is not that of all replies."""
    last_user = _find_last_user(messages)
    for index, message in enumerate(messages):
        if len(message) == 2:
            continue
        first, second, third = REASONING_KEYS
        reasoning = message.get(first) or message.get(second) or message.get(third)
        if not reasoning:
            continue
        if index >= last_user or not _is_removed_on_purpose(message, capabilities):
            yield reasoning


def _count_calls(message: Mapping[str, Any]) -> int:
    calls = message.get("tool_calls")
    return len(calls) if isinstance(calls, (list, tuple)) else 0


def writes_all(
    rendering: Rendering,
    texts: Sequence[str],
    most_calls: int,
    tools: Any,
    documents: Any,
    capabilities: Capabilities,
) -> bool:
    """Whether all that was given is found in a rendering; False if that is not certain.

    Args:
        rendering: the rendering.
        texts: contents and reasoning.
        most_calls: how many calls the message with the most has.
        tools: the tools, or what was prepared of them.
        documents: the documents.
        capabilities: what the template does with calls.
    """
    if most_calls and not capabilities.writes_calls(min(most_calls, 2)):
        return False
    if not rendering.writes_texts(texts):
        return False
    text = rendering.text
    if tools and not all(map(text.__contains__, normalise_tools(tools).names)):
        return False
    return not documents or all(one in text for one in _texts_of(documents))


def _texts_of(documents: Any) -> Iterator[str]:
    """Yield the longest text of each document."""
    for document in documents:
        values = document.values() if isinstance(document, Mapping) else ()
        texts = [value.strip() for value in values if isinstance(value, str)]
        longest = max(texts, key=len, default="")
        yield longest if len(longest) >= MIN_DOCUMENT else NOT_FOUND


def _find_last_user(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the index of the last user's message, 0 if there is none."""
    for index in range(len(messages) - 1, 0, -1):
        if messages[index].get("role") == "user":
            return index
    return 0


def _is_removed_on_purpose(message: Mapping[str, Any], capabilities: Capabilities) -> bool:
    """Whether a template leaves out the reasoning of an earlier reply, though it writes that of a last one."""
    if message.get("role") != "assistant":
        return False
    if message.get("tool_calls"):
        return capabilities.writes_reasoning_with_calls
    return capabilities.writes_reasoning

"""Find text that was given and is not in the rendering, at a cost that is small beside that of rendering.

The pieces of a rendering tell exactly which fields were written (`analysis/losses.py`), but they cost more than the
rendering itself. So they are asked only where cheaper ways leave a doubt:

    1. most templates write the very object that was given: its identity is among the texts that were written
    2. a text that is long enough to be met nowhere else is looked for, behind the one before it

Templates that write the reasoning of the last reply and remove it from earlier ones do so on purpose. That is no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from turnwise.analysis.losses import find_lost_fields
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.messages import REASONING_KEYS
from turnwise.normalisation.capabilities import Capabilities

MIN_SEARCHED = 12  # characters; a shorter text may be found by chance
START = 20  # characters of a text that are looked for first
MIN_UNTRACED = 500  # characters of a piece without a known origin
MAX_RETURNS = 3  # searches from the start of the text


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
    if not documents and writes_all(rendering, messages, tools):
        return []
    if any(map(_is_untraced, rendering.pieces)):
        return []  # the budget for origins was too small, which another warning says
    positions = positions or range(len(messages))
    lost = find_lost_fields(rendering, messages, tools, documents, positions)
    if not any(path.endswith(REASONING_KEYS) for path in lost):
        return lost
    removed = set(_removed_on_purpose(messages, positions, capabilities()))
    return [path for path in lost if path not in removed]


def _is_untraced(piece: Piece) -> bool:
    origin = piece.origin
    return origin.kind == "computed" and not origin.sources and len(piece.text) >= MIN_UNTRACED


def writes_all(rendering: Rendering, messages: Sequence[Mapping[str, Any]], tools: Any) -> bool:
    """Whether all texts are found in a rendering; False if that is not certain."""
    texts: list[Any] = []
    for message in messages:
        if len(message) == 2:
            texts.append(message.get("content"))
        else:
            texts += _list_texts(message)
    missing = _find_missing(rendering, texts)
    if missing and not _is_found(rendering.text, missing):
        return False
    return not tools or all(name in rendering.text for name in _tool_names(tools))


def _find_missing(rendering: Rendering, texts: Sequence[Any]) -> list[Any]:
    """Return the texts whose objects were not written, in their order."""
    for inside_joined in (False, True):
        written = rendering.written_ids(inside_joined)
        known = set(written)
        missing = [text for text in texts if id(text) not in known and text != ""]
        if not missing:
            break
    if len(set(map(id, texts))) == len(texts):
        return missing
    # An object that was given several times must have been written as often.
    given = list(map(id, texts))
    return missing + [
        text for text in texts if text and 0 < written.count(id(text)) < given.count(id(text))
    ]


def _is_found(text: str, wanted: Sequence[Any]) -> bool:
    """Whether texts are found, each behind the one before; False if that is not certain."""
    position, returns = 0, MAX_RETURNS
    for given in wanted:
        if type(given) is not str:
            return False
        part = given.strip()
        if len(part) < MIN_SEARCHED:
            if part:
                return False
            continue
        # A short text is found ten times as fast, and the long one is mostly there where it begins.
        place = text.find(part[:START], position)
        if place < 0 or not text.startswith(part, place):
            place = text.find(part, position)
        if place < 0 and returns:  # written before its turn, as Mistral's system text is after it
            returns -= 1
            place = text.find(part)
        if place < 0:
            return False
        position = place + len(part)
    return True


def _list_texts(message: Mapping[str, Any]) -> list[Any]:
    """Return the texts of a message in the order in which templates write them; None for what is no text."""
    texts = [next((message[key] for key in REASONING_KEYS if message.get(key)), "")]
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        texts += [part.get("text") if isinstance(part, Mapping) else None for part in content]
    elif content is not None:
        texts.append(content)
    for call in message.get("tool_calls") or ():
        function = call.get("function", call) if isinstance(call, Mapping) else {}
        texts.append(function.get("name") if isinstance(function, Mapping) else None)
    if message.get("function_call"):
        texts.append(None)  # the pieces tell
    return texts


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

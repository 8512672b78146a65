"""Text that was given and is not written: the one finder for all that guard data.

A template may drop what it has no use for: a system message, a tool list, the text beside a tool call, the second of
two calls, everything before `</think>`. Trails tell which field each character came from, so a field that no trail
leads to was dropped, whatever other text is equal to it. Of a field that was written in part, or that other text was
computed from, the characters are compared (`text_coverage.py`), in any script.

    find_losses      of a whole rendering: the warning of `render`, `strict`, `scan`, `check`
    find_missing     of an assistant's turn: what a model that is trained on it would learn to leave out

A tool or a document counts as written if anything of it is; an image, if it has a placeholder. Of a call, its name or
its id is wanted, and all of its arguments with their names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from turnwise.analysis.text_coverage import ComputedText, is_covered
from turnwise.engine.provenance.piece_table import PieceTable
from turnwise.engine.provenance.rendering import Rendering, Suspects
from turnwise.engine.provenance.written_fields import WrittenFields, read_output
from turnwise.messages import REASONING_KEYS, JsonMapping, Path, format_path
from turnwise.messages.media import media_kind

CONTENT, REASONING, CALLS = "content", "reasoning", "calls"
MORE_FIELDS = ("function_call", "refusal", "audio")
NAMED_RESULT_ROLES = ("tool", "function")  # whose `name` is that of their call
NUMBERS = (int, float)
# The first is the name of `LOST_TOOLS`, which no field of a message has.
COUNTED = {
    "all tools": dict,
    "content": str,
    **dict.fromkeys(REASONING_KEYS, str),
    "tool_calls": dict,
}
ORDER = list(COUNTED)
TOOLS: Path = ("tools",)
MAX_SEARCHES = 200  # for names of arguments in what the template wrote; others count as not there

_CLOSER = re.compile(r"</[^<>\s]{1,60}>|\[/[A-Z_]{1,30}\]")
LostPlace = tuple[Path, bool]  # the path of a lost text, and whether a part of it is there
LostPlaces = Iterator[LostPlace]


class Loss(NamedTuple):
    """A field that was given and is not written, or with `is_part` not all of it."""

    path: str
    is_part: bool = False


def find_losses(
    rendering: Rendering,
    messages: Sequence[JsonMapping],
    tools: Any = None,
    documents: Any = None,
    positions: Sequence[int] | None = None,
    removed: Container[int] = (),
    names: bool = False,
) -> list[Loss]:
    """Return what was given and is not written, in order.

    A path is that of a whole field (`messages[2].content`, `tools`), of one item of a list of which others are written
    (`messages[3].tool_calls[1]`, `tools[0]`), of an argument, or of a media part without a placeholder.

    Args:
        rendering: the rendering, which numbers these messages from 0.
        messages: the messages that were rendered.
        tools: the tools that were rendered.
        documents: the documents that were rendered.
        positions: the indices of the messages in the caller's list, for the paths; None if they are the same.
        removed: the messages whose reasoning the template removes on purpose.
        names: whether the name of a message counts, which most models were not trained on.
    """
    named = [index for index, message in enumerate(messages) if _has_name(message)] if names else []
    unwritten = None if documents or named else rendering.unwritten
    if unwritten == ():
        return []  # segments prove it
    found = _name_unwritten(unwritten, messages, tools, removed) if unwritten else None
    if found is None:
        suspects = range(-1, len(messages)) if unwritten is None else dict(unwritten)
        numbered = [one for one in enumerate(messages) if one[0] in suspects]
        offered = tools if -1 in suspects else None
        written = read_output(rendering.output, rendering.make_follower(), len(tools or ()))
        finder = LossFinder(written, rendering)
        found = [*finder.find(numbered, offered, documents, removed), *finder.find_names(named)]
    losses = [
        Loss(_name_as_given(format_path(path), positions), is_part) for path, is_part in found
    ]
    # The media parts without a placeholder, but for those in what is known to be lost.
    known = tuple(loss.path for loss in losses)
    paths = [_name_as_given(part.path, positions) for part in rendering.media if not part.written]
    return losses + [Loss(path) for path in paths if not path.startswith(known)]


def _name_unwritten(
    unwritten: Suspects, messages: Sequence[JsonMapping], tools: Any, removed: Container[int]
) -> list[LostPlace] | None:
    """Return what is lost if nothing of these fields is written; None if more than that decides."""
    found = []
    for index, key in unwritten:
        message = messages[index] if index >= 0 else {key: _name_types(tools)}
        if key in REASONING_KEYS:
            if index in removed:
                continue
            key = _find_reasoning_key(message)
        value = message.get(key)
        if [*message.values()].count(value) > 1 or type(message.get("content")) is list:
            return None  # it may be written as another field, or as a part
        kind, items = (dict, value) if type(value) is list else (str, [value])
        is_text = {type(item) is kind and _has_text(item) for item in items} == {True}
        if COUNTED.get(key) is not kind or not is_text or (key == "content" and index in removed):
            return None
        found.append((index, ORDER.index(key), key))
    return [
        (("messages", index, key) if index >= 0 else TOOLS, False)
        for index, _, key in sorted(found)
    ]


def find_missing(
    table: PieceTable, index: int, message: JsonMapping, spans: Sequence[tuple[int, int]]
) -> tuple[str, ...]:
    """Return which of "content", "reasoning" and "calls" have text that is not in the turn of a message.

    Args:
        table: the rendering.
        index: the message in it.
        message: the message.
        spans: the characters of the turn.
    """
    written = WrittenFields(table.follower)
    for start, end in spans:
        if start < end:
            _read_span(table, written, start, end)
    written.read_everything()
    finder = LossFinder(written)
    found = {
        CONTENT: finder.find_content(message, index),
        REASONING: finder.find_reasoning(message, index),
        CALLS: finder.find_calls(message, index),
    }
    return tuple(name for name, losses in found.items() if any(losses))


def has_other_text(message: JsonMapping, missing: Collection[str]) -> bool:
    """Return whether a message has a field with text that is not missing, or no text at all."""
    fields = {
        CONTENT: _has_text(message.get("content")),
        REASONING: _find_reasoning_key(message),
        CALLS: message.get("tool_calls"),
    }
    present = {name for name, has_text in fields.items() if has_text}
    return not present or not present.issubset(missing)


def _read_span(table: PieceTable, written: WrittenFields, start: int, end: int) -> None:
    """Read the texts within some characters; of one that reaches beyond them, the fragments, and these cut."""
    first, last = table.index_at(start), table.index_at(end - 1) + 1
    for row in range(first, last):
        place, row_end = table.starts[row], table.starts[row + 1]
        if start <= place and row_end <= end:
            written.read([(table.texts[row], table.trails[row])])
            continue
        for text, leaf in table.split(row):
            part = text[max(start - place, 0) : max(end - place, 0)]
            if part:
                written.add(part, leaf)
            place += len(text)


class LossFinder:
    """Looks for what was given among the fields that were written.

    Args:
        written: the fields that were written.
        rendering: their rendering, for what the template wrote for content parts; None if that does not count.
    """

    def __init__(self, written: WrittenFields, rendering: Rendering | None = None) -> None:
        self._written = written
        self._rendering = rendering
        self._searches = MAX_SEARCHES

    def find(
        self,
        numbered: Sequence[tuple[int, JsonMapping]],
        tools: Any,
        documents: Any,
        removed: Container[int],
    ) -> LostPlaces:
        """Yield the paths of what is lost, and whether a part of it is written."""
        # A tool of a server (`{"type": "web_search"}`) has no other text than its type.
        yield from self._find_items(("tools",), _name_types(tools))
        yield from self._find_items(("documents",), documents)
        for index, message in numbered:
            yield from self.find_content(message, index, removed)
            if message.keys() == {"role", "content"}:
                continue
            for loss in self.find_reasoning(message, index):
                if index not in removed:
                    yield loss
            yield from self.find_calls(message, index)
            for name in MORE_FIELDS[1:]:
                path: Path = ("messages", index, name)
                is_given = _has_text(message.get(name)) and not _repeats_content(message, name)
                if is_given and not self._has_some(path):
                    yield path, False

    def find_names(self, indices: Iterable[int]) -> LostPlaces:
        """Yield the names of these messages that are not written."""
        for index in indices:
            path: Path = ("messages", index, "name")
            if not self._has_some(path):
                yield path, False

    def find_content(
        self, message: JsonMapping, index: int, removed: Container[int] = ()
    ) -> LostPlaces:
        """Yield what is lost of the content of a message."""
        path: Path = ("messages", index, "content")
        content = message.get("content")
        if isinstance(content, str):
            is_lost = not self._has_all(path, content)
            if is_lost and index in removed:
                answer = _CLOSER.split(content)[-1]
                is_lost = answer == content or not self._has_all(path, answer)
            if is_lost:
                yield path, self._has_some(path)
        elif isinstance(content, (list, tuple)):
            yield from self._find_parts(path, content, message.get(_find_reasoning_key(message)))
        elif not self._has_some(path) and (_has_text(content) or isinstance(content, NUMBERS)):
            yield path, False

    def _find_parts(self, path: Path, parts: Sequence[Any], reasoning: Any) -> LostPlaces:
        """Yield the parts of a content that are lost, or the content if all are; what is reasoning is none of them."""
        lost: list[tuple[Path, bool]] = []
        present = 0
        for number, part in enumerate(parts):
            is_reasoning = reasoning and isinstance(part, Mapping) and reasoning in part.values()
            if media_kind(part) is not None or is_reasoning or not _has_text(part):
                continue
            present += 1
            place: Path = (*path, number)
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                text_path = (*place, "text") if isinstance(part, Mapping) else place
                if not self._has_all(text_path, text):
                    lost.append((place, self._has_some(place)))
            elif not self._has_some(place) and place not in self._own_parts:
                lost.append((place, False))
        if lost and len(lost) == present and not self._has_some(path):
            yield path, False
        else:
            yield from lost

    def find_reasoning(self, message: JsonMapping, index: int) -> LostPlaces:
        """Yield reasoning that is lost under each of its keys, and as a part of the content."""
        given = _find_reasoning_key(message)
        text = message.get(given)
        if not isinstance(text, str) or not text.strip():
            return
        # A template may read another key than the usual ones; the content is not one of them, if it is equal.
        keys = {*REASONING_KEYS, *(key for key, value in message.items() if value == text)}
        paths: list[Path] = [("messages", index, key) for key in keys - {"content"}]
        content = message.get("content")
        for number, part in enumerate(content if isinstance(content, (list, tuple)) else ()):
            if isinstance(part, Mapping):
                whole: Path = ("messages", index, "content", number)
                paths += [(*whole, key) for key, value in part.items() if value == text]
        if not any(self._has_all(path, text) for path in paths):
            yield ("messages", index, given), any(map(self._has_some, paths))

    def find_calls(self, message: JsonMapping, index: int) -> LostPlaces:
        """Yield the calls of a message that are lost, or what is lost of them."""
        call = message.get("function_call")
        if call:
            yield from self._find_call(("messages", index, "function_call"), call, call)
        calls = message.get("tool_calls")
        if not calls:
            return
        path: Path = ("messages", index, "tool_calls")
        if self._written.is_whole(path):
            return
        if not isinstance(calls, (list, tuple)):  # the template may take anything
            if not self._has_some(path):
                yield path, False
            return
        lost: list[tuple[Path, bool]] = []
        for number, call in enumerate(calls):
            function = call.get("function", call) if isinstance(call, Mapping) else None
            lost += self._find_call((*path, number), call, function)
        if len(lost) >= len(calls) and not self._has_some(path):
            lost = [(path, False)]
        yield from lost

    def _find_call(self, path: Path, call: Any, function: Any) -> LostPlaces:
        """Yield a call of which nothing is written; or its name, if its id is not written either, and its arguments.

        Some templates write only the id, which may hold the name.
        """
        if not isinstance(function, Mapping):
            if _has_text(call) and not self._has_some(path):
                yield path, False
            return
        inner = path if function is call else (*path, "function")
        names = [((*inner, "name"), function.get("name")), ((*path, "id"), call.get("id"))]
        given = [(place, name) for place, name in names if isinstance(name, str) and name]
        lost: list[Path] = []
        if given and not any(self._has_all(place, name) for place, name in given):
            lost.append(given[0][0])
        path_of_arguments: Path = (*inner, "arguments")
        arguments = None
        if not self._written.is_whole(path_of_arguments):
            arguments = function.get("arguments")
        lost += [
            place
            for place, value in list_scalars(arguments, path_of_arguments)
            if not (
                self._has_all(place, value) if isinstance(value, str) else self._has_some(place)
            )
        ]
        if lost and not self._has_some(path):
            yield path, False
            return
        for place in dict.fromkeys([*lost, *self._find_keys(path_of_arguments, arguments)]):
            yield place, self._has_some(place)

    def _find_keys(self, path: Path, given: Any) -> Iterator[Path]:
        """Yield arguments whose names are not written: a value alone says little, and a boolean may be lost, too."""
        for key, value in given.items() if isinstance(given, Mapping) else ():
            place = (*path, key)
            if not (
                value is None
                or place in self._written.keys
                or self._is_named(path[1], str(key))
                or any(text.claim(str(key)) for text in self._find_computed(place))
            ):
                yield place

    def _is_named(self, index: Any, key: str) -> bool:
        """Whether the template may have written a name of its own, or that of a tool's schema, in a message."""
        if self._rendering is None:
            return True
        self._searches -= 1
        return self._searches >= 0 and key in self._own_texts.get(index, "")

    @cached_property
    def _own_texts(self) -> dict[Any, str]:
        """What the template and tools wrote in each message."""
        assert self._rendering is not None
        texts: dict[Any, list[str]] = {}
        for text, origin in self._rendering.pieces:
            if origin.kind == "template" or (origin.path or ())[:1] == TOOLS:
                texts.setdefault(origin.message, []).append(text)
        return {index: "\0".join(parts) for index, parts in texts.items()}

    def _find_items(self, path: Path, items: Any) -> LostPlaces:
        """Yield a list of which nothing is written, or the items of it."""
        if not items or self._written.is_whole(path):
            return
        wanted = [(*path, number) for number, item in enumerate(items) if _has_text(item)]
        lost = [place for place in wanted if not self._has_some(place)]
        if len(lost) == len(items):
            lost = [path]
        yield from [(place, False) for place in lost]

    def _has_all(self, path: Path, given: str) -> bool:
        """Whether all of a text is written."""
        texts = self._written.texts.get(path)
        if texts is not None and (given in texts or is_covered(given, texts)):
            return True
        if not given or given.isspace() or self._written.is_whole(path):
            return True
        return any(text.claim(given) for text in self._find_computed(path))

    def _has_some(self, path: Path) -> bool:
        """Whether anything of a field is written."""
        return path in self._written.paths or self._written.is_whole(path)

    def _find_computed(self, path: Path) -> Iterator[ComputedText]:
        """Yield the texts that were made of a field, of a part of it, of what it is a part of, or of who knows what."""
        for length in range(len(path) + 1) if self._written.computed else ():
            yield from self._computed.get((path[:length], length == len(path)), ())

    @cached_property
    def _computed(self) -> dict[tuple[Path, bool], list[ComputedText]]:
        """Computed texts by the paths of their sources, and with True by all beginnings of these."""
        found: dict[tuple[Path, bool], list[ComputedText]] = {}
        for sources, texts in self._written.computed.items():
            text = ComputedText("\n".join(texts))
            keys = {(path, False) for path in sources or [()]}
            for path in sources:
                keys |= {(path[:length], True) for length in range(1, len(path) + 1)}
            for key in keys:
                found.setdefault(key, []).append(text)
        return found

    @cached_property
    def _own_parts(self) -> set[Path]:
        """The content parts for which the template wrote something of its own."""
        pieces = () if self._rendering is None else self._rendering.pieces
        return {origin.part for text, origin in pieces if origin.part and not text.isspace()}


def _has_name(message: JsonMapping) -> bool:
    return bool(message.get("name")) and message.get("role") not in NAMED_RESULT_ROLES


def _find_reasoning_key(message: JsonMapping) -> str:
    """Return the first of the keys of reasoning that has some; "" if none has."""
    return next((key for key in REASONING_KEYS if message.get(key)), "")


def list_scalars(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the texts and numbers in a value, with their paths; not by recursion, which may be too deep."""
    waiting = [(path, value)]
    while waiting:
        place, found = waiting.pop()
        if isinstance(found, Mapping):
            waiting += [((*place, key), item) for key, item in found.items()][::-1]
        elif isinstance(found, (list, tuple)):
            waiting += [((*place, number), item) for number, item in enumerate(found)][::-1]
        elif isinstance(found, str) or type(found) in NUMBERS:
            yield place, found


def _repeats_content(message: JsonMapping, name: str) -> bool:
    """Whether a refusal, or what was said aloud, is the content as well."""
    said = message[name].get("transcript") if isinstance(message[name], Mapping) else message[name]
    return said is not None and said == message.get("content")


def _name_as_given(path: str, positions: Sequence[int] | None) -> str:
    """Return a path with the message numbered as the caller does."""
    if positions is None or not path.startswith("messages["):
        return path
    index, rest = path.removeprefix("messages[").split("]", 1)
    return f"messages[{positions[int(index)]}]{rest}"


def _name_types(tools: Any) -> list[Any]:
    """Return tools; those that are no functions have their type as a text that may be lost."""
    return [
        {"kind": tool.get("type"), **tool}
        if isinstance(tool, dict) and "function" not in tool
        else tool
        for tool in tools or ()
    ]


def _has_text(value: Any) -> bool:
    """Return True if some text in a value is more than white space."""
    waiting = [value]
    for found in waiting:  # which becomes longer: schemas may be nested too deeply for recursion
        if isinstance(found, str):
            if found.strip():
                return True
        elif isinstance(found, dict):
            waiting += [item for key, item in found.items() if key != "type"]
        elif isinstance(found, (list, tuple)):
            waiting += found
    return False

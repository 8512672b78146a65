"""Ids for the calls that a model wrote without one.

    CallIds()                                call00000, call00001, ...
    CallIds(prompt)                          5f1c9a000, 5f1c9a001, ...       the first six depend on the prompt
    CallIds(prompt, prefix="call_")          call_5f1c9a000, ...
    CallIds(used=collect_call_ids(chat))     the first numbers that the conversation does not use

Nine letters and digits, as some templates demand. The same reply to the same prompt gives the same ids, and calls of
two turns differ, for their prompts do. An id that the model wrote itself is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from zlib import crc32

from turnwise.errors import TurnwiseError, short_repr

IdMaker = Callable[[str, int], str]
"""Returns an id for a call, of the name of its tool and its number in the reply."""

_CHECKSUMS = 0x1000000  # as many as six hexadecimal digits can tell apart


class CallIds:
    """Makes ids that are unique in a conversation.

    One object may serve all replies of a conversation: then its ids are unique even if no prompt is given.

    Args:
        prompt: The text that was sent.
        used: Ids that the conversation has already.
        prefix: The text before each id.
        make: Makes the ids in place of all this.

    Example:
        >>> ids = CallIds(used=["call00000"])
        >>> ids.make("tide", 0), ids.make("tide", 1)
        ('call00001', 'call00002')
    """

    __slots__ = ("_given", "_make", "_next", "_prefix", "_prompt", "_start", "_used")

    def __init__(
        self,
        prompt: str = "",
        used: Iterable[str] = (),
        prefix: str = "",
        make: IdMaker | None = None,
    ) -> None:
        self._prompt = prompt
        # The beginning of each id; after a prompt it is looked for when the first is made.
        self._start = "" if prompt or prefix else "call"
        self._given = used  # looked through when the first id is made
        self._used = set[str]()
        self._prefix = prefix
        self._make = make
        self._next = 0

    def make(self, name: str, index: int, written: str | None = None) -> str:
        """Return the id of the call `index` of a reply: the one that the model wrote, else a new one.

        Raises:
            TurnwiseError: if the caller's own function returned no text.
        """
        if written:
            self._used.add(written)
            return written
        if self._make is not None:
            return _check_id(self._call_maker(self._make, name, index))
        self._used.update(self._given)
        # Numbers start with that of the call, and go on after those that are in use.
        self._next = max(self._next, index)
        while (id := self._numbered(self._next)) in self._used:
            self._next += 1
        self._used.add(id)
        return id

    def _call_maker(self, make: IdMaker, name: str, index: int) -> Any:
        try:
            return make(name, index)
        except TurnwiseError:
            raise
        except Exception as error:  # the caller's code may raise anything
            raise TurnwiseError(
                f"the function given as call_ids failed: {error!r:.200}",
                hint="it is called with the name of a tool and the number of the call",
            ) from error

    def _numbered(self, number: int) -> str:
        if self._prompt and not self._start:
            self._start = _start_after(self._prompt)
        width = 9 - len(self._start)
        return f"{self._prefix}{self._start}{number:0{width}}"


def to_call_ids(given: str | IdMaker | CallIds | None, prompt: str) -> CallIds:
    """Return the maker of ids that a caller asks for: by a prefix, a function, or one that it keeps itself."""
    if isinstance(given, CallIds):
        return given
    if given is None or isinstance(given, str):
        return CallIds(prompt, prefix=given or "")
    if not callable(given):
        raise TurnwiseError(
            f"call_ids is none of the things that make ids: {short_repr(given)}",
            hint="give the text before each id, a function of a name and a number, or a CallIds",
        )
    return CallIds(make=given)


def find_call_ids(messages: Iterable[Any]) -> Iterator[str]:
    """Yield the ids of all calls in a conversation in OpenAI's shape."""
    for message in messages:
        if type(message) is dict and "tool_calls" not in message:
            continue  # most messages, and to ask whether it is a Mapping takes longer
        calls = message.get("tool_calls") if isinstance(message, Mapping) else None
        for call in calls if isinstance(calls, list | tuple) else ():
            id = call.get("id") if isinstance(call, Mapping) else None
            if isinstance(id, str):
                yield id


def _start_after(prompt: str) -> str:
    """Return the beginning of all ids after a prompt: a text that does not occur in it."""
    checksum = crc32(prompt.encode("utf-8", "surrogatepass")) % _CHECKSUMS
    while (start := f"{checksum:06x}") in prompt:
        checksum = (checksum + 1) % _CHECKSUMS
    return start


def _check_id(id: Any) -> str:
    if not isinstance(id, str) or not id:
        raise TurnwiseError(
            f"the id of a call must be a text, not {short_repr(id)}",
            hint="the function given as call_ids returns the id",
        )
    return id


def name_in_id(id: str) -> str:
    """Return the name of the tool in an id such as `functions.NAME:0`."""
    name = id.rpartition(":")[0] or id
    return name.rpartition(".")[2]

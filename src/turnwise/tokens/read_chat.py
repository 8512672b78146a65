"""A conversation that was read and written, for one that begins with it: only what is new is read.

Whether it does is decided by what `marshal` writes: equal bytes are equal values of equal types, and a template may
write 1, 1.0 and True in different ways. The caller may have changed his messages since; then they have other bytes.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from typing import Any, NamedTuple

from turnwise.messages import InputReader, ReadMessages
from turnwise.sized_cache import MARSHAL_VERSION

LIST_HEADER = 5  # bytes before the first element


class ReadChat(NamedTuple):
    """A conversation as it was given, and as a renderer takes it.

    Attributes:
        given: what `marshal` writes of its messages; empty if it cannot.
        read: the messages, with what writing them left.
    """

    given: bytes = b""
    read: ReadMessages | None = None

    def recognise(self, messages: Any) -> ReadChat:
        """Return another conversation as it is given, with what was read of this one if it begins with that."""
        try:
            given = marshal.dumps(messages, MARSHAL_VERSION)[LIST_HEADER:]
        except ValueError:  # a type that is not built in, or nested too deeply
            return ReadChat()
        return ReadChat(given, self.read if self.given and given.startswith(self.given) else None)


def read_more(messages: Sequence[Any], earlier: ReadMessages | None) -> ReadMessages:
    """Return a conversation as a renderer takes it, whose first messages were read already."""
    reader, known = InputReader(), earlier or ReadMessages([], {})
    reader.aliases |= known.aliases
    first = len(known.messages)
    rest = reader.read_messages(messages[first:], first)
    has_parts = known.has_parts or list in [type(one.get("content")) for one in rest]
    memory = dict(known.memory or {})
    return ReadMessages(known.messages + rest, reader.aliases, "", has_parts, memory)

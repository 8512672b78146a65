"""Find where rows end in a stream of JSON text, without parsing it.

Both scanners take a text block by block and tell at which offsets a new row may begin. So a file of any size is cut
into chunks in one pass, with the memory of one block, and a chunk is read again by the same scanner. What is inside of
a row is not looked at: a row that is not JSON is cut out as it is, and rejected later by whoever parses it.

    LineScanner       JSON Lines: a row ends with a line feed
    ElementScanner    a JSON list: a row ends with a comma that is in no string and in no bracket

In a list with a bracket or quote too few, everything behind the mistake is one row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

QUOTE, COMMA = b'",'
OPENING, CLOSING = b"[{", b"]}"
STRUCTURE = re.compile(rb'["\[\]{},]')
STRING_BODY = re.compile(rb'(?:[^"\\]+|\\.)*+', re.DOTALL)


class LineScanner:
    """Tells where lines end."""

    is_closed = False  # lines have no end but that of the file
    is_open_list = False

    def feed(self, block: bytes) -> Iterator[int]:
        """Yield the offsets in `block` behind each line feed."""
        end = block.find(b"\n") + 1
        while end:
            yield end
            end = block.find(b"\n", end) + 1


class ElementScanner:
    """Tells where the elements of a JSON list end, given the text behind its opening bracket.

    Attributes:
        is_closed: whether the bracket that closes the list was seen.
    """

    def __init__(self) -> None:
        self.is_closed = False
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    @property
    def is_open_list(self) -> bool:
        """Whether the text so far ends between two elements; one that ends within an element has a broken row."""
        return not self.is_closed and not self._depth and not self._in_string

    def feed(self, block: bytes) -> Iterator[int]:
        """Yield the offsets in `block` behind each comma between two elements, and behind the closing bracket."""
        position = 0
        while position < len(block) and not self.is_closed:
            if self._in_string:
                position = self._skip_string(block, position)
                continue
            found = STRUCTURE.search(block, position)
            if found is None:
                return
            position = found.end()
            if self._step(block[found.start()]):
                yield position

    def _step(self, character: int) -> bool:
        """Take one structural character; return whether an element ends with it."""
        if character == QUOTE:
            self._in_string = True
        elif character in OPENING:
            self._depth += 1
        elif character in CLOSING:
            self._depth -= 1
            self.is_closed = self._depth < 0
            return self.is_closed
        return character == COMMA and self._depth == 0

    def _skip_string(self, block: bytes, position: int) -> int:
        if self._is_escaped:  # the block before ended between a backslash and this character
            self._is_escaped = False
            return position + 1
        found = STRING_BODY.match(block, position)
        assert found is not None  # it matches the empty text
        position = found.end()
        if position == len(block):
            return position
        if block[position] == QUOTE:
            self._in_string = False
        else:
            self._is_escaped = True
        return position + 1


RowScanner = LineScanner | ElementScanner

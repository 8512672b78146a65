"""The rendered text as a table of texts, before anybody asks where each character came from.

A program writes one flat list, `text, trail, text, trail, ...`. An empty text is a *mark*: it adds
nothing to the result, its trail says what goes on from here. So for

    {% for m in messages %}<{{ m.content }}>{% generation %}!{% endgeneration %}{% endfor %}

and one message the list is

    "", LOOP                                    a loop that may be over messages starts
    "", ((ROOT, "messages"), 0)                 it takes message 0
    "<", 3                                      text of template node 3
    "Hi", (((ROOT, "messages"), 0), "content")
    ">", 5
    "", BEGIN, "!", 6, "", END                  a generation block
    "", DONE                                    the loop ends

A block or a macro writes a list of its own; where its result is put out, it is one text with the
trail `(JOINED, list)`, and the marks inside count too.

A loop over the parts of a message's content writes the same marks. The piece table takes the marks
out: it says for each text which message and which content part was being written, and whether a
generation block was open. Trails are not followed, so a table costs little; `split`
follows one.

The texts of a table join to the rendered text. If they do not, which is a defect, the table is one
text that nobody trusts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

from turnwise.engine.provenance.container_rules import ITEMS
from turnwise.engine.provenance.media import Span
from turnwise.engine.provenance.splitting import LOST, Follower, OutOfBudget, pairs_of
from turnwise.engine.provenance.text_rules import JOINED, PART, is_joined
from turnwise.engine.provenance.trails import (
    ANY,
    BEGIN,
    BOUND,
    DONE,
    END,
    LOOP,
    MESSAGES,
    NEXT,
    NOWHERE,
    Field,
    Fragment,
    Fragments,
    Leaf,
    Output,
    TracedText,
    Trail,
)
from turnwise.messages import Path

MARK_COST = 2  # steps of the budget for a mark whose trail is followed
new_tuple = tuple.__new__  # in half of the time of calling a named tuple
BLOCK_COST = 2  # steps of the budget for a block within a block, beside those for its texts


Where = tuple[int | None, bool, Path | None]
"""The message that is being written, whether in a generation block, and the content part."""
OUTSIDE: Where = (None, False, None)


class MessageTracker:
    """Reads what a program wrote, and keeps count of loops and generation blocks."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.texts: list[str] = []
        self.trails: list[Trail] = []
        self.message_starts = [0]
        self.messages: list[int | None] = [None]
        self.generation_switches = [0]  # outside from here on, then inside, outside, ...
        self._open_generations = 0
        self.part_starts = [0]
        self.parts: list[Path | None] = [None]
        self._loops: list[int | None] = []  # the message that each open loop is at
        self._part_loops: list[Path | None] = []  # the content part that each open loop is at
        self._message: int | None = None
        self._unassigned: int | None = None  # the text where a round of unknown message began

    def read(self, out: Sequence[Any]) -> None:
        """Separate texts and marks, also those of blocks and macros.

        This is hot: one pass for every rendering.
        """
        texts, trails = self.texts, self.trails
        waiting = [pairs_of(out)]
        while waiting:
            for text, trail in waiting[-1]:
                if text:
                    if type(trail) is tuple and trail[0] is JOINED:
                        block = self._open_block(text, trail[1])
                        if block is not None:
                            waiting.append(block)
                            break
                    texts.append(text)
                    trails.append(trail)
                elif type(trail) is tuple:
                    if len(self._loops) == len(self.parts) == 1 and is_message(trail):
                        # the common case: the only loop takes the next message
                        self._loops[0] = self._message = trail[1]
                        self.message_starts.append(len(texts))
                        self.messages.append(trail[1])
                    else:
                        self._read_mark(trail)
            else:
                waiting.pop()

    def _open_block(self, text: str, out: Sequence[Any]) -> Iterator[TracedText] | None:
        """Return what a block wrote, and pay for it; None if it cannot be read.

        A block beyond the budget is one text, whose trail is followed by nobody either.
        """
        cost = BLOCK_COST + len(out) // 2
        if self.follower.take(cost) < cost or not is_joined(text, out):
            return None
        return pairs_of(out)

    def _read_mark(self, trail: Trail) -> None:
        if trail is BEGIN or trail is END:
            was_open = self._open_generations > 0
            self._open_generations += 1 if trail is BEGIN else -1
            if was_open != (self._open_generations > 0):
                self.generation_switches.append(len(self.texts))
            return
        if trail is LOOP:
            self._loops.append(None)
            self._part_loops.append(None)
        elif trail is DONE:
            self._loops.pop()
            self._part_loops.pop()
        elif trail is NEXT:
            self._loops[-1] = self._part_loops[-1] = None
            self._unassigned = len(self.texts)
        elif not self._loops:
            return
        elif trail[0] is BOUND:
            self._move_to_part(trail)
            if self._message is None:
                self._loops[-1] = self._message_of_trail(trail[1])
                self._assign_round(self._loops[-1])
        else:
            message = self._message_of_trail(trail)
            if message is not None:
                self._loops[-1], self._part_loops[-1] = message, None
            else:
                self._move_to_part(trail)
        self._enter_innermost_message()
        if len(self.parts) > 1 or (self._part_loops and self._part_loops[-1]):
            part = next(filter(None, reversed(self._part_loops)), None)
            if part != self.parts[-1]:
                self.part_starts.append(len(self.texts))
                self.parts.append(part)

    def _move_to_part(self, trail: Trail) -> None:
        part = self._part_loops[-1]
        self._part_loops[-1] = self._follow(self.follower.part_of_mark, trail, part)

    def _follow(self, find: Callable[..., Any], *arguments: Any) -> Any:
        """Return what is found by following the trail of a mark; None if the budget is spent."""
        if self.follower.is_spent:
            return None
        try:
            self.follower.charge(MARK_COST)
            return find(*arguments)
        except OutOfBudget:
            return None

    def _message_of_trail(self, trail: Trail) -> int | None:
        """Return the index of the message that a trail leads to, or that a dict was made of."""
        if trail is None:  # of a value that is not there
            return None
        if is_message(trail):
            return int(trail[1])
        resolved = self._follow(self.follower.resolve, trail)
        if isinstance(resolved, Field):
            return message_index(resolved.path) if len(resolved.path) == 2 else None
        if type(resolved) is not tuple or resolved[0] is not ITEMS:
            return None
        trails = resolved[1]
        if not isinstance(trails, dict) or "role" not in trails:
            return None
        for key in ("content", "role"):
            for _, leaf in self.follower.split(ANY, trails.get(key)):
                found = message_index(leaf.path) if isinstance(leaf, Field) else None
                if found is not None:
                    return found
        return None

    def _enter_innermost_message(self) -> None:
        message = next((one for one in reversed(self._loops) if one is not None), None)
        if message != self._message:
            self._message = message
            self._start_message(message, len(self.texts))

    def _start_message(self, message: int | None, index: int) -> None:
        """Record that from the text `index` on this message is written."""
        if self.message_starts[-1] == index:
            self.messages[-1] = message
        else:
            self.message_starts.append(index)
            self.messages.append(message)

    def _assign_round(self, message: int | None) -> None:
        """Give the texts of this round to its message, which is known only now."""
        start = self._unassigned
        if message is None or start is None:
            return
        self._unassigned = None
        if self.messages[-1] is None and self.message_starts[-1] < start:
            self._start_message(message, start)
        for index in range(len(self.message_starts) - 1, -1, -1):
            if self.message_starts[index] < start:
                break
            if self.messages[index] is None:
                self.messages[index] = message


class PieceTable(MessageTracker):
    """The texts of a rendering with their trails, start offsets and messages.

    `starts` has one offset more than there are texts: the end. From the text number
    `message_starts[i]` on, the message `messages[i]` was being written. The same with `part_starts` and
    `parts` for the parts of contents, by their paths.
    """

    def __init__(self, out: Sequence[Any], text: str, follower: Follower) -> None:
        self._read_all(out, follower)
        if self.starts[-1] > len(text):
            self._truncate(len(text))
        if "".join(self.texts) != text:
            follower.report_defect("the texts of a rendering do not join to it")
            self._read_all([text, LOST], follower)
        self._fragments: dict[int, Fragments] = {}
        self._fragment_starts: dict[int, list[int]] = {}

    def _read_all(self, out: Sequence[Any], follower: Follower) -> None:
        marks = out[::2].count("")  # a step of the budget for each
        if follower.take(marks) < marks:
            out = ["".join(out[::2]), LOST]
        super().__init__(follower)
        self.read(out)
        self.starts = list(accumulate(map(len, self.texts), initial=0))

    def message_of(self, index: int) -> int | None:
        """Return the message that was being written at the text with this index."""
        return self.messages[bisect_right(self.message_starts, index) - 1]

    def where(self, index: int) -> Where:
        """Return where the text with this index was written."""
        is_generated = bisect_right(self.generation_switches, index) % 2 == 0
        part = self.parts[bisect_right(self.part_starts, index) - 1]
        return self.message_of(index), is_generated, part

    def find_rows(self, count: int) -> list[tuple[str, tuple[Leaf, Where]]]:
        """Return the fragments of the first texts: each with its leaf, and where it was written."""
        switches = {*self.message_starts, *self.part_starts, *self.generation_switches, count}
        rows = []
        for start, end in pairwise(sorted(switches)):
            where = self.where(start)
            fragments = chain.from_iterable(map(self.split, range(start, min(end, count))))
            rows += [(text, (leaf, where)) for text, leaf in fragments]
        return rows

    def index_at(self, character: int) -> int:
        """Return the index of the text that holds this character."""
        return bisect_right(self.starts, character) - 1

    def generation_spans(self) -> list[Span]:
        """Return the character ranges in generation blocks, without empty ones."""
        switches = [*self.generation_switches[1:], len(self.texts)]
        spans: list[Span] = []
        for first, last in zip(switches[::2], switches[1::2], strict=False):
            start, end = self.starts[first], self.starts[last]
            if spans and spans[-1][1] == start:
                start = spans.pop()[0]
            if start < end:
                spans.append((start, end))
        return spans

    def split(self, index: int) -> Fragments:
        """Return the fragments of the text with this index."""
        fragments = self._fragments.get(index)
        if fragments is None:
            text, trail = self.texts[index], self.trails[index]
            if type(trail) is int:
                fragments = [(text, trail)]
            elif trail is None:
                fragments = [(text, NOWHERE)]
            elif len(trail) == 2 and type(trail[0]) is tuple and is_message(trail[0]):
                # the common case: a field of a message
                path = ("messages", trail[0][1], trail[1])
                fragments = [(text, new_tuple(Field, (path, False)))]
            else:
                fragments = self.follower.split(text, trail)
            self._fragments[index] = fragments
        return fragments

    def split_between(self, start: int, end: int) -> Iterator[Fragment]:
        """Return the fragments that hold the characters from `start` to `end`, whole.

        A text of many fragments is asked once for each special token in it, so they are bisected.
        """
        for index in range(self.index_at(start), self.index_at(end - 1) + 1):
            fragments = self.split(index)
            if len(fragments) == 1:
                yield fragments[0]
                continue
            starts = self._fragment_starts.get(index)
            if starts is None:
                lengths = (len(part) for part, _ in fragments)
                starts = list(accumulate(lengths, initial=self.starts[index]))
                self._fragment_starts[index] = starts
            first = max(bisect_right(starts, start) - 1, 0)
            yield from fragments[first : bisect_left(starts, end)]

    def _truncate(self, size: int) -> None:
        """Keep the first `size` characters: a continued message ends before its rendering did."""
        count = bisect_right(self.starts, size - 1) if size else 0
        del self.texts[count:], self.trails[count:]
        if count:
            text, trail = self.texts[-1], self.trails[-1]
            self.texts[-1] = text[: size - self.starts[count - 1]]
            if type(trail) is tuple:
                self.trails[-1] = (PART, text, trail, 0)
        self.starts = [*self.starts[:count], size]
        for starts, found in (
            (self.message_starts, self.messages),
            (self.part_starts, self.parts),
        ):
            last = max(bisect_left(starts, count), 1)
            del starts[last:], found[last:]
        self.generation_switches = [at for at in self.generation_switches if at <= count]


def is_message(trail: Trail) -> bool:
    """Whether a trail leads to a message."""
    return trail[0] == MESSAGES and len(trail) == 2 and type(trail[1]) is int


def message_index(path: Path) -> int | None:
    """Return the index of the message that a path leads into."""
    if len(path) < 2 or path[0] != "messages":
        return None
    return path[1] if isinstance(path[1], int) else None


def read_texts_after(output: Output, text: str, character: int) -> tuple[list[int], list[Trail]]:
    """Return the starts and the trails of the texts of an output that reach beyond this character.

    The list of starts has one entry more: the end. The texts are read from the end and nothing
    is followed, so this costs no more than there is after the character.
    """
    starts, trails, start = [len(text)], [], len(text)
    texts = []
    for index in range(len(output) - 2, -1, -2):
        if start <= character:
            break
        block, trail = output[index : index + 2], output[index + 1]
        if type(trail) is tuple and trail[0] is JOINED and is_joined(block[0], trail[1]):
            block = trail[1]
        for part in range(len(block) - 2, -1, -2):
            start -= len(block[part])
            starts.append(start)
            texts.append(block[part])
            trails.append(block[part + 1])
    if start < 0 or "".join(texts[::-1]) != text[start:]:
        return [0, len(text)], [LOST]
    return starts[::-1], trails[::-1]

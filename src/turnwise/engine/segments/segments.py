"""Write a conversation from segments that are known, or learn those that are not.

`Segments` is what is known of one template with the same tools and options. `write` returns the text that the program
would write, or None; then the program runs, and `learn` may record it. The two give the same text by construction.
Budgets need no look: what a leaf paid is added up, and each character of a text adds to the budgets what operations on
it may cost.
"""

from __future__ import annotations

import sys
from codecs import utf_32_le_encode
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from threading import RLock
from typing import Any

from turnwise.engine.program import Program
from turnwise.engine.provenance.piece_table import PieceTable
from turnwise.engine.provenance.rendering import CHECKED_TEXT, Rendering, Suspects, find_pieces
from turnwise.engine.provenance.splitting import QuietFollower
from turnwise.engine.provenance.trails import Output
from turnwise.engine.runtime.limits import (
    MAX_CHARACTER_SIZE,
    MAX_SEGMENTED_LENGTH,
    MAX_SEGMENTED_MESSAGES,
    Limits,
    Runtime,
)
from turnwise.engine.segments.code import UNCOUNTED, Unwritten, Walk, compile_walk
from turnwise.engine.segments.facts import Constants, FactTree, FieldPlace
from turnwise.engine.segments.functions import instrument
from turnwise.engine.segments.recorder import MAX_SECTIONS, Recorder
from turnwise.engine.segments.symbols import SOME_FIELD
from turnwise.messages import REASONING_KEYS, JsonMapping, JsonObject

MAX_SIZE = 2 << 20  # bytes, of which those for a hundred tools take most
MAX_LEAVES = 100
MAX_QUESTIONS = 1_500  # on the paths to all leaves: all of them become one function, which takes time to compile
FREELY_LEARNED = 16  # recordings; then they become rarer
MAX_DOUBLINGS = 16  # of the misses between two recordings that failed
MAX_LEARNED = 256  # messages of a conversation that are recorded
FEW_LEARNED = 48  # if those are too many rounds
CHECKED_ORIGINS = 10_000  # steps of following trails, when segments are compared with the program
LEAF_BYTES = 4_000
CONTAINER_BYTES = 400
LOST_TOOLS = ((-1, "all tools"),)
# What the walk over a conversation may raise: the program then raises an error with its place, or not.
UNWRITABLE = (TypeError, ValueError, LookupError, RecursionError, MemoryError)


SegmentedText = tuple[str, Output, Suspects | None, int, int]
"""A text that was written from segments:

* the text;
* its parts; with their trails, as the program writes them, if these were asked for;
* see `Rendering.unwritten`;
* steps that the program pays for it, or some more;
* the bytes that it pays for.
"""


class Segments:
    """The segments of a template with the same tools and options.

    Args:
        limits: the budgets of a rendering.
        tools: the tools.
    """

    def __init__(self, limits: Limits, tools: object = None) -> None:
        self._limits = limits
        self._tools = tools  # kept, so that no others have their identity
        self._tools_size = getattr(tools, "size", (0, 0))
        self._constants = Constants()
        self._entry = FactTree()
        self._walks: dict[tuple[bool, bool], Walk] = {}  # by variant, see `compile_walk`
        self._lock = RLock()  # of all above: no thread compiles a walk while another records
        self._misses = 0
        self._failures = 0
        self._recordings = 0
        self._next = 0  # misses until the next is recorded
        self._leaves = 0
        self._questions = 0
        self._has_origins = True
        self._most = MAX_LEARNED

    @property
    def size(self) -> int:
        """The estimated bytes."""
        containers, characters = self._tools_size
        tools = CONTAINER_BYTES * containers + 4 * characters
        return tools + self._constants.size + LEAF_BYTES * (1 + self._leaves)

    def write(
        self,
        messages: list[JsonObject],
        now: Any,
        has_tools: bool,
        with_trails: bool = False,
        memory: dict[Any, Any] | None = None,
        text: str = "",
    ) -> SegmentedText | None:
        """Return the text of a conversation, in which no character is half of a pair; None if the program has to run.

        Args:
            messages: the conversation.
            now: the clock.
            has_tools: whether there are tools to write.
            with_trails: whether the output is wanted too.
            memory: what was kept of other beginnings of the same conversation; see `ReadMessages`.
            text: the text, if it is known, and that it can be paid.
        """
        if len(messages) > MAX_SEGMENTED_MESSAGES or (with_trails and not self._has_origins):
            return None
        variant = (with_trails, memory is not None)
        walk = self._walks.get(variant)
        if walk is None:
            if not (lock := self._lock).acquire(blocking=False):
                return None
            try:
                walk = self._walks[variant] = compile_walk(self._entry, self._constants, *variant)
            finally:
                lock.release()
        known = {} if memory is None else memory
        try:
            walked = walk(messages, len(messages), {"now": now}, has_tools, known)
            if walked is None:
                return None
            out, missing, others, carried, lost_tools, price, cost, steps, size = walked
            if text:
                return text, out, None, 0, 0
            text = "".join(out[::2] if with_trails else out)
            if not text.isascii():
                _refuse_half_pairs(text, known)
        except UNWRITABLE:
            return None
        length = len(text)
        if length > MAX_SEGMENTED_LENGTH or not self._can_pay(messages, text, price, cost):
            return None
        unwritten: Suspects | None = None
        if lost_tools is not None:
            unwritten = LOST_TOOLS * lost_tools  # once, or never
            if missing != []:
                unwritten += _find_unwritten(messages, missing, {*others, *carried})
        return text, out, unwritten, steps, size + cost * length

    def _can_pay(self, messages: list[JsonObject], text: str, price: float, cost: int) -> bool:
        """Whether a text is surely within the budgets of bytes and of output."""
        limits, length = self._limits, len(text)
        # Each character adds to the budget of bytes; operations may take more than that.
        if cost > limits.bytes_per_character:
            price += (cost - limits.bytes_per_character) * length / limits.bytes
        most = length if text.isascii() else MAX_CHARACTER_SIZE * length
        if price > 1 or most <= limits.output:
            return price <= 1
        containers, characters = self._tools_size
        shares = limits.share_of(len(messages) + containers, characters)
        missing, each = most - limits.output - shares["output"], limits.output_per_character
        for message in messages:  # mostly some of them are enough
            if missing <= 0:
                break
            for value in message.values():
                if type(value) is str:
                    missing -= each * len(value)
        # To encode a long text takes longer than to write it: only if its size decides.
        return missing <= 0 or missing <= most - len(text.encode())

    def learn(
        self,
        program: Program,
        runtime: Runtime,
        context: JsonMapping,
        rendering: Rendering,
    ) -> None:
        """Record a conversation, unless that failed often.

        Args:
            program: the program.
            runtime: the budgets for running it.
            context: its inputs.
            rendering: what it writes.
        """
        messages = context["messages"]
        self._misses += 1
        is_full = self._leaves >= MAX_LEAVES or self._questions > MAX_QUESTIONS
        is_due = messages and self._misses >= self._next
        if is_full or not is_due or not (lock := self._lock).acquire(blocking=False):
            return
        try:
            recorder = Recorder(self._entry, self._constants)
            call = (messages, runtime.now, context.get("tools") is not None)
            count = len(messages)
            half = min(count, self._most) // 2
            some = messages[:half] + messages[count - half - count % 2 :]  # in turn, as they were
            # Mostly the tree has a path then that says so. Nothing that the recorder cannot do is the caller's concern.
            with suppress(Exception):
                instrument(recorder, program).run(runtime, {**context, "messages": some})
            if recorder.serial > MAX_SECTIONS:
                self._most = FEW_LEARNED
            self._leaves += recorder.learned
            self._questions += recorder.questions
            trial = copy(self)
            trial._walks = {}  # no other thread has them before they are compared
            written = trial.write(*call)
            traced = trial.write(*call, with_trails=True)
            if written is None:
                self._failures += 1
                self._next = self._misses + 2 ** min(self._failures, MAX_DOUBLINGS)
            if traced is not None:
                follower = QuietFollower(2 * min(self._limits.origins, CHECKED_ORIGINS))
                ours, theirs = [
                    find_pieces(rendering, PieceTable(output, rendering.text, follower))
                    for output in (traced[1], rendering.output)
                ]
                joined = Rendering(rendering.text, rendering._source, traced[1])._join_sections()
                self._has_origins &= not follower.problems and ours == theirs == (joined or ours)
            self._recordings += 1
            if self._recordings > FREELY_LEARNED:
                self._next = max(self._next, self._misses + self._recordings)
            # If another text is written, that is a defect of the recorder; nothing that it recorded is trusted.
            if self.size > MAX_SIZE or (written is not None and written[0] != rendering.text):
                Segments.__init__(self, self._limits)
                self._next = sys.maxsize
            else:
                self._walks = trial._walks
        finally:
            lock.release()


def _refuse_half_pairs(text: str, memory: dict[Any, Any]) -> None:
    """Raise a ValueError if a character is half of a surrogate pair; what was checked before is not checked again."""
    checked = memory.get(CHECKED_TEXT, "")
    if checked.startswith(text):
        return
    utf_32_le_encode(text.removeprefix(checked))  # three times as fast as UTF-8
    memory[CHECKED_TEXT] = text


def _find_unwritten(
    messages: list[JsonObject], missing: list[Unwritten] | None, others: set[FieldPlace]
) -> Suspects:
    """Return the fields of which nothing is written; if that is in doubt, the messages of which some may not be."""
    found: dict[FieldPlace, None] = {}
    is_known = SOME_FIELD not in others
    if missing is None:  # no loop is over all of them
        missing = [(index, UNCOUNTED) for index in range(len(messages))]
    for index, keys in missing:
        for key, value in messages[index].items():
            if (value or value == 0) and key not in keys and (index, key) not in others:
                names = _list_names(messages[index], key, value)
                if not any([name in keys or (index, name) in others for name in names]):
                    is_known &= bool(names) and keys.isdisjoint(zip(names))
                    found[index, min(names, default=key)] = None
    return tuple(found if is_known else [(index, "") for index, _ in found])


def _list_names(message: JsonObject, key: str, value: Any) -> Sequence[str]:
    """Return the names under which a text is there; none if it is not the only reasoning of the message."""
    if key not in REASONING_KEYS:
        return (key,)
    if any([message.get(name) not in (None, value) for name in REASONING_KEYS]):
        return ()
    return REASONING_KEYS

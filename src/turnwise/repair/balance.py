"""Markers that are opened and not closed: `<|im_start|>` without `<|im_end|>`, in some conversations and not in most.

Which markers belong together is told by their names (`PAIRS`). A pair is judged if nearly all conversations have as
many of the one as of the other; those that have not are broken. Two mistakes are known that a small change repairs:

* a loop over a part of the messages (`messages[1:]`) that looks at neighbours by the index of the whole list; the
  neighbours are then those of the loop (`loop.nextitem`);
* a branch that writes no closing marker; it is written behind what that branch writes last.

A change is right if every balanced conversation is written as before, and the others are balanced, with the contents
of all their messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from turnwise.analysis.conversations import Probe
from turnwise.engine.renderer import Renderer
from turnwise.repair.candidates import OTHERS_CHANGE
from turnwise.repair.edits import Edit, apply_edits
from turnwise.repair.observation import NotingTemplate, walk_direct
from turnwise.repair.output_split import quote
from turnwise.repair.proof import Workbench, WrittenSet, write
from turnwise.repair.source_tree import Data, Output, SourceTree, find_leaves

UNBALANCED = "unbalanced-markers"
MIN_BALANCED = 20  # conversations that must have a pair as often as it is closed
RATIO = 5  # times as many as those that have not
MAX_TRIES = 8  # places at which a closing marker is tried
PAIRS: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    (re.compile(r"<\|(?=\w*?start)\w++\|>"), lambda opening: opening.replace("start", "end")),
    (re.compile(r"<\|START_\w+\|>"), lambda opening: opening.replace("START", "END")),
    (re.compile(r"<[｜|](?=\w*?begin)\w++[｜|]>"), lambda opening: opening.replace("begin", "end")),
    (re.compile(r"<start_of_\w+>"), lambda opening: opening.replace("start", "end")),
    (re.compile(r"<[a-z_]+>"), lambda opening: f"</{opening[1:]}"),
    (re.compile(r"\[[A-Z_]+\]"), lambda opening: f"[/{opening[1:]}"),
)
"""How the marker is called that closes another one."""
NEIGHBOURS = (
    (re.compile(r"\bmessages\[\s*(?:loop\.index0\s*\+\s*1|loop\.index)\s*\]"), "loop.nextitem"),
    (re.compile(r"\bmessages\[\s*loop\.index0\s*-\s*1\s*\]"), "loop.previtem"),
)


def find_pairs(text: str) -> list[tuple[str, str]]:
    """Return the markers in a template that others in it close."""
    found = {
        (opening, close(opening))
        for pattern, close in PAIRS
        for opening in pattern.findall(text)
        if close(opening) in text
    }
    return sorted(found)


class BalanceRepair:
    """Finds unbalanced conversations of a template, and the change that balances them.

    Args:
        bench: Renders changed templates.
        written: The template as it is.
    """

    name = UNBALANCED
    what = "every marker that is opened is closed"

    def __init__(self, bench: Workbench, written: WrittenSet) -> None:
        self.bench = bench
        self.renderer = written.renderer
        self.text = written.text
        texts = [(probe, text) for probe, text in written.pairs() if text]
        sent = [(probe, text) for probe, text in texts if _is_sent(probe)]
        self.pairs = [pair for pair in find_pairs(self.text) if _is_judged(pair, sent)]
        self.broken = [one for one in sent if not self._is_balanced(*one)]
        self.working = [one for one in texts if self._works(*one)]

    @property
    def count(self) -> int:
        """The number of conversations that are not balanced."""
        return len(self.broken)

    def _works(self, probe: Probe, text: str) -> bool:
        """Whether a conversation is balanced, apart from its generation prompt."""
        if not self.pairs:
            return True
        if probe.add_generation_prompt:
            closed = write(self.renderer, replace(probe, add_generation_prompt=False))
            return closed is None or self._is_balanced(probe, closed)
        return self._is_balanced(probe, text)

    def _is_balanced(self, probe: Probe, text: str) -> bool:
        return all(_count(pair, probe, text) in (0, None) for pair in self.pairs)

    def find_edits(self) -> tuple[list[Edit], str]:
        """Return the edits that balance every conversation, if they are proved, or why there are none."""
        for edits in self._propose():
            changed = self.bench.change(apply_edits(self.text, edits))
            if changed is not None and self._is_proved(changed):
                return edits, ""
        return [], OTHERS_CHANGE

    def _is_proved(self, changed: Renderer) -> bool:
        for probe, before in self.broken:
            text = write(changed, probe)
            if text is None or not self._is_balanced(probe, text):
                return False
            contents = [str(message.get("content") or "") for message in probe.messages]
            if any(content in before and content not in text for content in contents):
                return False
        return all(write(changed, probe) == text for probe, text in self.working)

    def _propose(self) -> Iterator[list[Edit]]:
        neighbours = [
            Edit(found.start(), found.end(), name)
            for pattern, name in NEIGHBOURS
            for found in pattern.finditer(self.text)
        ]
        if neighbours:
            yield neighbours
        for number, edit in enumerate(self._closing_edits()):
            if number == MAX_TRIES:
                return
            yield [edit]

    def _closing_edits(self) -> Iterator[Edit]:
        """Yield insertions of a closing marker behind the item that wrote last before the next opening."""
        tree = SourceTree(self.text)
        noting = NotingTemplate.make(tree)
        noted = self.bench.change(noting.text)
        if noted is None:
            return
        items: dict[object, Data | Output] = {}  # by their atoms
        for item in walk_direct(tree.body):
            if isinstance(item, Data):
                items[item] = item
            elif isinstance(item, Output):
                items |= dict.fromkeys(find_leaves(item.expression), item)
        seen = set()
        for probe, text in self.broken:
            written = noting.find_writers(noted, probe, text)
            if written is None:
                continue
            for place, closing in self._find_unclosed(text):
                atom = next((one.atom for one in reversed(written) if one.start < place), None)
                if atom is None:
                    continue
                last = items[noting.atoms[atom]]
                if (last.end, closing) not in seen:
                    seen.add((last.end, closing))
                    yield self._insert_behind(last, closing)

    def _find_unclosed(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the places at which a marker opens again, or the text ends, before the first was closed."""
        for opening, closing in self.pairs:
            place = text.find(opening)
            while place >= 0:
                following = text.find(opening, place + 1)
                end = following if following >= 0 else len(text)
                if text.find(closing, place, end) < 0:
                    yield end, closing + self._space_behind(closing, text)
                place = following

    def _space_behind(self, closing: str, text: str) -> str:
        """Return the white space that follows a closing marker elsewhere."""
        found = re.search(re.escape(closing) + r"(\s*)", text)
        return found[1] if found is not None else ""

    def _insert_behind(self, item: Data | Output, closing: str) -> Edit:
        after = self.text[item.end :]
        is_stripped = self.text[: item.end].endswith("-}}")
        blank = after[: len(after) - len(after.lstrip())]
        if isinstance(item, Data) and blank and after.lstrip().startswith("{%"):
            is_stripped = True
        sign = "-" if is_stripped else ""
        return Edit(item.end, item.end, f"{{{{ {quote(closing)} {sign}}}}}")


def _is_sent(probe: Probe) -> bool:
    """Whether people send such a conversation: each message says something, and results follow calls."""
    before = ""
    for message in probe.messages:
        role = message.get("role")
        if message.get("content") is None and not message.get("tool_calls"):
            return False
        if role == "tool" and before not in ("assistant", "tool"):
            return False
        before = str(role)
    return not probe.add_generation_prompt


def _count(pair: tuple[str, str], probe: Probe, text: str) -> int | None:
    """Return how many more markers are opened than closed; None if there are none, or a message spells them."""
    given = str((probe.messages, probe.tools, probe.documents))
    opened, closed = (text.count(marker) for marker in pair)
    if any(marker in given for marker in pair) or not (opened or closed):
        return None
    return opened - closed


def _is_judged(pair: tuple[str, str], written: Sequence[tuple[Probe, str]]) -> bool:
    """Whether a pair is balanced in nearly all conversations that have it, and not in all."""
    counts = [_count(pair, probe, text) for probe, text in written]
    balanced = counts.count(0)
    others = len(counts) - balanced - counts.count(None)
    return bool(others) and balanced >= max(MIN_BALANCED, RATIO * others)

"""Where our labels differ from the `{% generation %}` blocks of TRL's training templates, and why.

TRL marks in its templates what is trained. We train what a served model samples: from the end of the prompt to the
stop. Both are encoded for the three chats of `label_law.py` and compared token by token; each run of tokens that only
one of the two trains is one difference, and its place says the reason.

Read from the files of the package `trl`, which is not imported.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import label_law
import turnwise
from turnwise.errors import TurnwiseWarning
from turnwise.tokens.encoded import Encoded

OPENING = "a served prompt ends with it, so no model samples it"
AFTER_STOP = "behind the stop: a server has stopped"
STOP = "a server stops at it, so the model must write it"
NOT_OPENED = "the served prompt does not write it, so the model must"
DIVERGES = "the finished turn does not continue the served prompt; `examples` writes the reply after that prompt"
NOT_WRITTEN = "the template leaves the text of the message out; an empty reply is not trained"
UNKNOWN = "no reason is known"
TURN = "the whole turn"


class Difference(NamedTuple):
    """A text that only one of the two trains."""

    side: str  # "TRL" or "turnwise"
    text: str
    reason: str


def templates() -> dict[str, str]:
    """The training templates of the installed `trl` by name."""
    found = find_spec("trl")
    if found is None or not found.submodule_search_locations:
        return {}
    folder = Path(found.submodule_search_locations[0]) / "chat_templates"
    paths = sorted(folder.glob("*_training.jinja"))
    return {path.stem.removesuffix("_training"): path.read_text("utf-8") for path in paths}


def find_differences(template: turnwise.Template) -> set[Difference] | None:
    """The differences in all chats that the template takes; None if it takes none."""
    found: set[Difference] | None = None
    for name in label_law.CHATS:
        chat = label_law.find_form(template, name)
        if chat is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TurnwiseWarning)
            used = label_law.full_tokenizer()
            ours, theirs = (
                template.encode(chat.messages, used, policy, tools=chat.tools)
                for policy in ("assistant", "marked")
            )
        found = (found or set()) | set(_compare(ours, theirs))
    return found


def _compare(ours: Encoded, theirs: Encoded) -> Iterator[Difference]:
    """The runs of tokens that only one of the two trains; both have the same text but for an added stop."""
    count = min(len(ours), len(theirs))
    masks = zip(ours.mask[:count], theirs.mask[:count], strict=True)
    ends, start = [0, *ours.ends], 0
    for (mine, other), run in groupby(masks):
        stop = start + len(list(run))
        if mine != other:
            yield explain(ours, ends[start], ends[stop], bool(mine))
        start = stop
    if ours.added_stop:
        yield Difference("turnwise", repr(ours.added_stop), STOP)


def explain(ours: Encoded, start: int, end: int, is_mine: bool) -> Difference:
    """Return why only one of the two trains characters `start` to `end`, from their place among the trained turns."""
    text = repr(ours.text[start:end])
    if is_mine:
        reason = UNKNOWN
        for turn in ours.turns:
            if turn.stop <= start and end <= turn.end:
                reason = STOP
            elif turn.start == start and end <= turn.end:
                reason = NOT_OPENED
        return Difference("turnwise", text, reason)
    owner = ours.owners[ours.token_offsets.last_at(end) - 1].message
    # a turn begins where the served prompt ends, so what its message has before is the prompt's
    if any(
        turn.start == end or (end < turn.start and turn.message == owner) for turn in ours.turns
    ):
        return Difference("TRL", text, OPENING)
    if any(turn.end == start for turn in ours.turns):
        return Difference("TRL", text, AFTER_STOP)
    for turn in ours.untrained:
        if turn.message == owner:
            return Difference("TRL", TURN, DIVERGES if turn.diverges else NOT_WRITTEN)
    return Difference("TRL", text, UNKNOWN)


def write_table() -> str:
    """The table of the documentation: differences, with the templates that have them."""
    by_difference: dict[Difference, list[str]] = defaultdict(list)
    same, refused = [], []
    for name, text in templates().items():
        differences = find_differences(label_law.compile_text(text))
        if differences is None:
            refused.append(name)
        elif not differences:
            same.append(name)
        for difference in differences or ():
            by_difference[difference].append(name)
    lines = ["| trained by | text | why | templates |", "|---|---|---|---|"]
    for difference, names in sorted(by_difference.items(), key=lambda row: (row[0].reason, row)):
        text = difference.text.replace("|", "\\|")
        shown = text if difference.text == TURN else f"`{text}`"
        lines.append(f"| {difference.side} | {shown} | {difference.reason} | {', '.join(names)} |")
    lines.append(f"| both | | the same labels | {', '.join(same)} |")
    if refused:
        lines.append(f"| neither | | the chats are refused | {', '.join(refused)} |")
    return "\n".join(lines) + "\n"

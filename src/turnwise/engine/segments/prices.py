"""What a section costs: as much as the program pays for it, or some more.

Most of it is known when the section is recorded. What depends on the length of a text is paid for each character. The
text of the message at hand adds to the budgets what it may cost; any other is measured when the section is written.
"""

from __future__ import annotations

import re
from typing import Any

from turnwise.engine.runtime.access import LOOP_START_COST
from turnwise.engine.runtime.limits import MAX_CHARACTER_SIZE
from turnwise.engine.segments.sources import write_value
from turnwise.engine.segments.symbols import OPERATION_BYTES, NotRecordable, TextSlot, UnknownText

MESSAGE_SHARE = 0.5  # of what a message adds to the budgets, for one round of one loop
OF_CHAT = re.compile(r"\b[MS]\[|\bselect\(|\bBr*\d")  # in the source of a text of other messages


def pay(recorder: Any, text: UnknownText, each: int = MAX_CHARACTER_SIZE) -> None:
    """Pay for an operation on a text: for itself, and for each of its characters."""
    recorder.runtime.charge_bytes(OPERATION_BYTES)
    paths = []
    for part in text.parts:
        if not isinstance(part, TextSlot):
            recorder.runtime.charge_bytes(each * len(part))
        elif _pays_alone(recorder) or OF_CHAT.search(part.source):
            charge_each(recorder, part.source, each)
        else:
            paths.append(part.field.path if part.field else "")
    if not recorder.depth:
        recorder.total_cost += each
        return
    for path in paths or [""]:
        recorder.costs[path] = recorder.costs.get(path, 0) + each


def check_size(recorder: Any, value: Any) -> str:
    """Return the source of a value that is small; one that the template made may hold the same texts many times."""
    source = write_value(recorder, value)
    if recorder.is_made or "B" in source:
        recorder.reads_contents = True
        if not recorder.ask(f"is_small({source})"):
            raise NotRecordable
    return source


def charge_each(recorder: Any, source: str, size: int, steps: int = 0) -> None:
    """Pay bytes and steps for each character of a text, or for each element of a list."""
    limits, charged = recorder.runtime.limits, recorder.per_character
    share = max(size / max(limits.bytes, 1), steps / max(limits.steps, 1))
    charged[source] = charged.get(source, 0) + share


def _pays_alone(recorder: Any) -> Any:
    """Whether no message pays for this round in part: there may be more rounds than messages."""
    return recorder.depth > 1 or recorder.is_made


def find_price(recorder: Any, loop: Any) -> Any:
    """Return the share of the budgets that this section takes; for a round its message pays in part.

    `loop` begins after it, if it is one.
    """
    limits, tools = recorder.runtime.limits, recorder.runtime.tools
    written = len(recorder.constant.encode())
    if not recorder.depth:
        written -= limits.share_of(*tools.size)["output"]  # tools pay for their text
    amounts = (
        (recorder.paid[0] + bool(loop) * LOOP_START_COST, limits.steps_per_value, limits.steps),
        (recorder.paid[1], limits.bytes_per_value, limits.bytes),
        (written, limits.output_per_value, limits.output),
    )
    added = MESSAGE_SHARE if recorder.depth and not _pays_alone(recorder) else 0
    return max(max(amount - added * share, 0) / max(most, 1) for amount, share, most in amounts)

"""Lists that a template makes: of messages, of dicts with what is in them, of texts.

Templates that merge messages of the same role keep those they made in a namespace. Such a list is not known, only how
it is made: adding to it gives another one, its elements are read as those of messages are (`symbols.py`). With the list
goes one of the fields that are in it (`write_fields`), so that what is written of an element counts as written.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any

from turnwise.engine.runtime.measures import ELEMENT_BYTES
from turnwise.engine.runtime.values import Pair
from turnwise.engine.segments.prices import charge_each, check_size, pay
from turnwise.engine.segments.recorder import Recorder
from turnwise.engine.segments.sources import COMPUTED, are_marked, write_fields, write_value
from turnwise.engine.segments.symbols import (
    OPERATION_BYTES,
    InTrail,
    MessageField,
    NotRecordable,
    UnknownList,
    UnknownNumber,
)


def add_lists(recorder: Recorder, parts: Sequence[Any]) -> Pair:
    """Return the concatenation of lists, which are given with their trails."""
    value, trail = parts[:2]
    for right, right_trail in zip(parts[2::2], parts[3::2], strict=True):
        recorder.runtime.charge_bytes(3 * OPERATION_BYTES)  # also for some elements
        pairs = (value, trail), (right, right_trail)
        sources = " + ".join([write_value(recorder, one) for one, _ in pairs])
        fields = " + ".join([write_fields(recorder, one) for one, _ in pairs])
        lengths = [_pay_length(recorder, one) for one, _ in pairs]
        marks = all(starmap(are_marked, pairs))
        value = UnknownList(recorder, f"({sources})", f"({fields})", marks)
        trail = (*COMPUTED, "chain_trails", lengths[0], trail, lengths[1], right_trail)
    return value, trail


def _pay_length(recorder: Recorder, value: Any) -> Any:
    """Return the length of a list that is copied, for a trail, and pay for it."""
    if type(value) is list:
        return len(value)
    source = write_value(recorder, value)
    charge_each(recorder, source, 8)  # for a reference
    return InTrail(UnknownNumber(recorder, f"len({source})"))


def join_list(
    recorder: Recorder, value: UnknownList, trail: Any, between: Pair = ("", None)
) -> Pair:
    """Return the texts of a list as one."""
    separator, separator_trail = between
    if type(separator) is not str:
        raise NotRecordable
    texts = check_size(recorder, value)
    charge_each(recorder, texts, 2 * ELEMENT_BYTES, 8)
    source = f"{recorder.name(separator)}.join({texts})"
    field = MessageField("", "", value.fields)
    text = recorder.make_text((recorder.make_slot(source, field),))
    pay(recorder, text)
    origins = (InTrail(value), trail, separator, separator_trail)
    return text, (*COMPUTED, "trace_joined", *origins)

"""The sources of what a section wrote: its texts, and the trail of each.

While a program is recorded it makes trails as always, with unknown values in them: `((MESSAGES, i), "content")`.
Functions pass them on and look at none (`InTrail`). Such a trail becomes an expression that makes the same one for
another message; one without unknown values is a constant. Where a function cannot say what its trail would be, it is
`UNTRACED`: then the text of a section is known, and its origins are not, so whoever reads those has the program run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from turnwise.engine.provenance.text_rules import JOINED
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.segments.symbols import (
    MAX_PARTS,
    MAX_VISITS,
    InTrail,
    NotRecordable,
    Sourced,
    UnknownMessages,
    UnknownText,
    check_length,
)

UNTRACED = (object(),)
"""The trail of a text whose origins are not recorded."""


class StateTrail(NamedTuple):
    """The trail of a text that a namespace has had since an earlier section."""

    key: str


def write_origins(
    recorder: Any, items: Sequence[Any], trails: Mapping[str, Trail]
) -> tuple[list[str] | None, dict[str, str]]:
    """Return the sources of texts and trails, alternately, and of other trails; None if one cannot be written.

    Args:
        recorder: names constants.
        items: what the program wrote.
        trails: of texts that namespaces got, by their keys.
    """
    sources: list[str] = []
    try:
        for is_constant, pairs in groupby(
            _flatten(items),
            lambda pair: type(pair[0]) is str and _write(recorder, pair[1]) is None,
        ):
            if is_constant:  # one list for all messages
                sources.append(f"*{recorder.constants.keep([*chain(*pairs)])}")
                continue
            for text, trail in pairs:
                name = text.source if type(text) is UnknownText else recorder.constants.name(text)
                sources += (name, _write_trail(recorder, trail))
        state = {key: _write_trail(recorder, trail) for key, trail in trails.items()}
    except (NotRecordable, RecursionError):
        return None, {}
    return (sources, state) if len(sources) <= 2 * MAX_PARTS else (None, {})


def _write_trail(recorder: Any, trail: Trail) -> str:
    return check_length(_write(recorder, trail) or recorder.constants.keep(trail))


def _flatten(items: Sequence[Any]) -> Iterable[tuple[Any, Trail]]:
    """Yield texts with their trails, those of a text that was joined one by one: its slots are read once then."""
    for text, trail in zip(items[::2], items[1::2], strict=True):
        if type(text) in (UnknownText, InTrail) and type(trail) is tuple and trail[0] is JOINED:
            yield from _flatten(trail[1])
        else:
            yield text.value if type(text) is InTrail else text, trail


def _write(recorder: Any, value: Any) -> str | None:
    """Return the source of a value in a trail; None for a constant."""
    if type(value) is InTrail:
        value = value.value
    kind = type(value)
    if id(value) in recorder.constant_trails:
        return None
    recorder.visits += 1
    if value is UNTRACED or kind is UnknownMessages or recorder.visits > MAX_VISITS:
        raise NotRecordable
    if kind is UnknownText or isinstance(value, Sourced):
        return str(value.source)
    if kind is StateTrail:
        return f"S[{value.key!r}]"
    if id(value) in recorder.sources:
        return str(recorder.write_part(recorder.sources[id(value)][1]))
    if kind is dict:
        source = _write_sequence(recorder, list(value.values()))
        return source and f"dict(zip({recorder.constants.keep(list(value))}, {source}))"
    if kind is list or kind is tuple:
        return _write_sequence(recorder, value)
    return None


def _write_sequence(recorder: Any, values: Sequence[Any]) -> str | None:
    sources = [_write(recorder, value) for value in values]
    if not any(sources):
        recorder.constant_trails[id(values)] = values
        return None
    written = [
        source or recorder.constants.keep(value)
        for source, value in zip(sources, values, strict=True)
    ]
    return f"[{', '.join(written)}]" if type(values) is list else f"({', '.join(written)},)"

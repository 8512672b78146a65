"""The sources of what a section wrote: its texts, and the trail of each.

While a program is recorded it makes trails as always, with unknown values in them: `((MESSAGES, i), "content")`.
Functions pass them on and look at none (`InTrail`). Such a trail becomes an expression that makes the same one for
another message; one without unknown values is a constant. Where a function cannot say what its trail would be, it is
`UNTRACED`: then the text of a section is known, and its origins are not, so whoever reads those has the program run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from typing import Any

from turnwise.engine.provenance.container_rules import CHAIN, ITEMS
from turnwise.engine.provenance.text_rules import JOINED
from turnwise.engine.provenance.trails import Trail
from turnwise.engine.segments.symbols import (
    MAX_PARTS,
    MAX_VISITS,
    SOME_FIELD,
    InTrail,
    MessageField,
    NotRecordable,
    SafeText,
    Sourced,
    StateTrail,
    TextSlot,
    UnknownList,
    UnknownMapping,
    UnknownMessages,
    UnknownText,
    check_length,
)

# In the source of what stands for a message that the template made, and where such lists are read.
HAS_WORDS = "(c := {}).__class__ is str and c != '' and not c.isspace()"
IS_MADE = re.compile(r"_fields\[|\balign\(|f := S")
KEY_PATH = re.compile(r"\['\w+'\]")

UNTRACED = (object(),)
"""The trail of a text whose origins are not recorded."""


COMPUTED = (object(),)
"""The head of a trail that a helper makes: its name and its arguments follow."""


def write_value(recorder: Any, value: Any) -> str:
    """Return the source of a value with unknown ones in it."""
    if isinstance(value, (UnknownText, Sourced)):
        return str(value.source)
    if type(value) is UnknownMessages and value.skipped is not None:
        return f"M[{value.skipped}:]"
    if id(value) in recorder.sources:
        return str(recorder.write_part(recorder.sources[id(value)][1]))
    if type(value) in (list, dict):
        recorder.visits += len(value)
        if len(value) > MAX_PARTS or recorder.visits > MAX_VISITS:
            raise NotRecordable
    if type(value) is list:
        return check_length(f"[{', '.join([write_value(recorder, one) for one in value])}]")
    if type(value) is dict and all(type(key) is str for key in value):
        items = [
            f"{recorder.name(key)}: {write_value(recorder, one)}" for key, one in value.items()
        ]
        return check_length(f"{{{', '.join(items)}}}")
    if value is None or type(value) in (str, bool, int):
        return str(recorder.name(value))
    raise NotRecordable


def write_fields(recorder: Any, value: Any) -> str:
    """Return the source of the fields of messages that are in a value, in its form.

    A message is its index; a field, the index or what else stands for its message, and the key; a text or a list, a
    tuple; a dict, one of these. `SOME_FIELD` stands for others.
    """
    if type(value) is UnknownList:
        return value.fields
    if type(value) is UnknownMessages:
        return f"(*range({value.skipped}, n),)"
    if type(value) is UnknownMapping:
        return value.field.message if not value.field.path else f"{SOME_FIELD}"
    if type(value) is UnknownText:
        return " + ".join(["()", *map(_write_field, value.parts)])
    if type(value) is SafeText:
        raise NotRecordable
    if id(value) in recorder.sources:  # a list that is whole counts as one, however long it is
        return _write_field(recorder.sources[id(value)][1]) if value else "()"
    if type(value) is dict:
        items = [f"{key!r}: {write_fields(recorder, one)}, " for key, one in value.items()]
        return check_length(f"{{{''.join(items)}}}")
    if type(value) is list:
        return check_length(f"({''.join([f'{write_fields(recorder, one)}, ' for one in value])})")
    return "()"


def write_lists(recorder: Any) -> None:
    """Note the lists that namespaces have after this section."""
    for key, (value, trail) in recorder.lists.items():
        with suppress(NotRecordable):
            source, fields = write_value(recorder, value), write_fields(recorder, value)
            marks = repr(are_marked(value, trail))
            recorder.state |= {key: source, f"{key}#": fields, f"{key}!": marks}
            recorder.trails[f"{key}@"] = trail
            recorder.new_parts[f"S[{key + '#'!r}]"] = [None]


def are_marked(value: Any, trail: Trail) -> bool:
    """Whether a loop over a list surely marks its elements (`start_loop`)."""
    if type(value) is not list:
        return type(value) is UnknownMessages or value.are_marked
    return not value or (type(trail) is tuple and trail[0] is ITEMS)


def _write_field(part: str | TextSlot) -> str:
    if isinstance(part, str):
        return "()"
    field = part.field or MessageField("", "")
    if field.state:
        return field.state
    if KEY_PATH.fullmatch(field.path):
        return f"(({field.message}, {field.path[2:-2]!r}),)"
    return f"({SOME_FIELD},)"


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
                is_unknown = isinstance(text, UnknownText)
                name = text.source if is_unknown else recorder.constants.name(text)
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
        # Elements of lists that the template made: they are mostly joined texts.
        while type(trail) is tuple and type(trail[0]) is tuple and type(trail[1]) is int:
            (rule, *inputs), index = trail
            if rule is not ITEMS and rule is not CHAIN:
                break
            trail = rule.child(None, index, *inputs)  # type: ignore[misc]  # it has children
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
    if kind is UnknownText or isinstance(value, (Sourced, StateTrail)):
        return str(value.source)
    if kind is tuple and value[:1] == COMPUTED:
        arguments = [_write(recorder, one) or recorder.constants.keep(one) for one in value[2:]]
        return f"{value[1]}({', '.join(arguments)})"
    if id(value) in recorder.sources:
        return str(recorder.write_part(recorder.sources[id(value)][1]))
    if kind is dict:
        source = _write_sequence(recorder, list(value.values()))
        return source and f"dict(zip({recorder.constants.keep(list(value))}, {source}))"
    if kind in (list, tuple):
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

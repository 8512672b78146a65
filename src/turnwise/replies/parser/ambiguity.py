"""Openers without a letter (`((`, `<`, `>>>`), which may stand in any text: is it a call that follows?

A call is likely if the next opener follows and has letters; or if a name follows and the sign that is due behind it,
and the name is one of the tools or the arguments are JSON and begin. Of a call that is a JSON object the first key must
be one that calls have. All of this stands within a few characters, and nothing is read before it is decided.

Where calls are JSON without any opener, a brace behind content is one if it says a name, and arguments right behind it.

The limit: `<f><x>1</x></f>` is a call only where the tools are given. Without them nobody could tell it from markup.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from turnwise.replies.grammar import JsonCall
from turnwise.replies.parser.compiled_grammar import ARGUMENT_KEYS, NAME_KEYS, Layout

WINDOW = 320  # characters that are looked at
NAME = re.compile(r"[\w.\-]+")
KEY = re.compile(r'\{\s*"(\w+)"\s*:')


# An object that says a name first, and arguments next, piece by piece.
PIECES = tuple(
    map(
        re.compile,
        (
            r"\{\s*",
            r'"(\w*)"',
            r"\s*:\s*",
            r'"([\w.\-]*)"',
            r"\s*,\s*",
            r'"(\w*)"',
            r"\s*:\s*",
            r"\{",
        ),
    )
)
BEGUN = re.compile(r'\s*|"[\w.\-]*')  # of a piece that is not over


def weak(opener: str) -> bool:
    """Whether an opener alone does not tell that a call follows."""
    return not any(map(str.isalnum, opener))


def likely(
    text: str, layout: Layout, offered: Collection[str], last: bool, openers: Sequence[str] = ()
) -> bool | None:
    """Whether this text behind an opener goes on as a call; None if it cannot be told yet. `openers` come first."""
    verdict = starts(text.lstrip(), layout, offered, openers)
    return bool(verdict) if last or len(text) >= WINDOW else verdict


def starts(
    body: str, layout: Layout, offered: Collection[str], openers: Sequence[str]
) -> bool | None:
    for opener in map(str.strip, openers):
        if not body.startswith(opener):
            return None if opener.startswith(body) else False
        if not weak(opener):
            return True
        body = body[len(opener) :].lstrip()
    call = layout.calls.call
    return (
        object_starts(body, call, offered)
        if isinstance(call, JsonCall)
        else name_starts(body, layout, offered)
    )


def object_starts(body: str, call: JsonCall, offered: Collection[str]) -> bool | None:
    match = KEY.match(body)
    if match is None:
        return (
            None
            if "{".startswith(body[:1]) and not body[1:].strip().strip('"').count('"')
            else False
        )
    if call.name is None:
        return match.group(1) in offered
    return match.group(1) in (
        call.name,
        call.arguments,
        call.id,
        "type",
        *NAME_KEYS,
        *ARGUMENT_KEYS,
    )


def says_call(text: str, call: JsonCall, offered: Collection[str], last: bool) -> bool | None:
    """Whether a text is an object that says a name, an offered one where tools are given, and then its arguments."""
    at, said = 0, list[str]()
    for piece in PIECES:
        match = piece.match(text, at)
        if match is None:
            return (
                None
                if not last and at + WINDOW > len(text) and BEGUN.fullmatch(text, at)
                else False
            )
        said += match.groups()
        at = match.end()
        wanted = ((call.name,), offered, (call.arguments, *ARGUMENT_KEYS))[: len(said)]
        if any(known and word not in known for word, known in zip(said, wanted, strict=True)):
            return False
    return True


def name_starts(body: str, layout: Layout, offered: Collection[str]) -> bool | None:
    match = NAME.match(body)
    if match is None or layout.items[0].slot != "name":
        return False if body else None
    if match.end() == len(body):
        return None
    due = layout.items[1].text.strip() if len(layout.items) > 1 else ""
    rest = body[match.end() :].lstrip()
    if not rest.startswith(due):
        return None if due.startswith(rest) else False
    behind = rest[len(due) :].lstrip()
    known = bool(due) and match.group() in offered
    if known or layout.pairs is not None:
        return known
    return behind.startswith("{") if behind else None

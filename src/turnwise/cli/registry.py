"""`turnwise list` and `turnwise match`: what is in the registry, and which of it a model has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter

from turnwise.cli import output
from turnwise.cli.options import check_choice
from turnwise.errors import printable
from turnwise.messages import JsonObject
from turnwise.registry import Entry, entries
from turnwise.registry.entry import SEPARATOR
from turnwise.registry.match import SOURCES as SOURCES
from turnwise.registry.match import match as match_model


def list_entries(
    words: list[str] | None = None,
    dialect: str | None = None,
    family: str | None = None,
    as_json: bool = False,
) -> None:
    """List the templates that have a name, by family; with words or a filter, what is known of each.

    Verified ones write the same text as the published template on every conversation of the corpus. Which one a
    model has: turnwise match MODEL

    Example: turnwise list qwen thinking

    Arguments:
        words WORD...: Only those with these words in their names, models or notes.

    Options:
        dialect DIALECT: Only those of a dialect.
        family FAMILY: Only those of a family of models.
    """
    known = entries().values()
    check_choice(dialect, sorted({entry.dialect for entry in known}), "--dialect")
    check_choice(family, sorted({entry.family for entry in known}), "--family")
    wanted = [word.lower() for word in words or ()]
    found = [entry for entry in entries(dialect, family).values() if _has_words(entry, wanted)]
    if as_json:
        output.write_json([_as_data(entry) for entry in found])
    elif wanted or dialect or family:
        width = max((len(entry.name) for entry in found if entry.notes), default=0)
        output.write_lines(_entry_line(entry, width) for entry in found)
    else:
        output.write_lines(_family_lines(found))
        output.note("turnwise list WORD tells more of entries, --dialect NAME of other software's")
    if not found:
        output.note("there is none; turnwise match MODEL finds the entry of a model")


def _has_words(entry: Entry, words: list[str]) -> bool:
    text = " ".join((entry.name, entry.family, entry.notes, *entry.aliases, *entry.models)).lower()
    return all(word in text for word in words)


def _family_lines(found: list[Entry]) -> Iterator[output.Line]:
    """Yield a line for each family, the names beside it; of other software's entries only how many there are."""
    by_family = sorted(found, key=lambda entry: (SEPARATOR in entry.name, entry.family))
    for name, group in groupby(by_family, attrgetter("family")):
        names = [entry.name for entry in group]
        is_imported = SEPARATOR in names[0]
        shown = f"{len(names)} entries" if is_imported else ", ".join(names)
        yield (f"{printable(name):<16}", "bold"), printable(shown, 10**6)


CHATS = {("bare",): "without a system message", ("system",): "with a system message"}
UNVERIFIED = " (reconstruction, not verified)"


def match(
    model: str,
    source: str | None = None,
    as_json: bool = False,
) -> None:
    """Show which template a model has, and why.

    Example: turnwise match Qwen/Qwen2.5-7B-Instruct

    Arguments:
        model MODEL: The id of a model, such as Qwen/Qwen2.5-7B-Instruct.

    Options:
        source: Whose answer: [SOURCES].
    """
    found = match_model(model, source)
    if as_json:
        more = output.select_fields(found, "name", "is_verified")
        contradictions = dict(found.contradictions)
        output.write_json({**asdict(found), **more, "contradictions": contradictions})
    else:
        star = "*" if found.star else ""
        facts = {
            "entry": found.name + star + ("" if found.is_verified else UNVERIFIED),
            "kind": found.kind,
            "source": found.source,
            "reason": found.reason,
        }
        if found.contradictions:
            others = [
                f"{name} ({CHATS[chats]})" if chats in CHATS else name
                for name, chats in found.contradictions.items()
            ]
            facts["others"] = f"another text for this model: {', '.join(others)}"
        lines = [((f"{key:<8}", "dim"), printable(value)) for key, value in facts.items()]
        output.write_lines(lines)
    if found.warning:
        output.warn(found.warning)


def _entry_line(entry: Entry, width: int) -> output.Line:
    if not entry.notes and not entry.verified:  # imported: there is only a name
        return [(printable(entry.name), "bold")]
    evidence = "verified" if entry.is_verified else "not verified"
    about = (
        f"  {printable(entry.family):<9} {evidence:<12}  {output.localise(printable(entry.notes))}"
    )
    return (f"{printable(entry.name):<{width}}", "bold"), (about, "dim")


def _as_data(entry: Entry) -> JsonObject:
    keys = (key for key in entry.__slots__ if key not in ("load_source", "override", "defaults"))
    return {**{key: getattr(entry, key) for key in keys}, "options": dict(entry.options)}

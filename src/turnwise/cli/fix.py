"""`turnwise fix`: repair a template with small, proved changes of its text."""

from __future__ import annotations

from pathlib import Path

import click

from turnwise.cli import inputs, output
from turnwise.errors import SourceError
from turnwise.messages import JsonObject
from turnwise.repair import NAMES as NAMES
from turnwise.repair import Repair
from turnwise.repair import fix as repair_template


def fix(
    template: str,
    only: list[str] | None = None,
    generation: bool = False,
    write: bool = False,
    target: Path | None = None,
    diff: bool = False,
    pick: str | None = None,
    as_json: bool = False,
) -> None:
    """Repair a template: null content, parts, arguments as text, late system texts, a missing generation prompt.

    Each change is proved on a generated set of conversations: those that worked are written as before, byte by byte,
    and the broken ones as their plain form.

    Exits with 0 if there is nothing to do or all is written, with 1 if a diff is shown or something could not be fixed.

    Example: turnwise fix llama-2 --diff

    Options:
        only NAME: Repair this alone: [NAMES].
        generation: Put {% generation %} blocks around what is trained, too.
        write: Write the repaired text to the file TEMPLATE.
        target --output -o FILE: Write the repaired text to FILE.
        diff: Print the diff alone, for `patch`.
    """
    inputs.check_stdin(template)
    found = inputs.load_template(template, pick)
    if write and target is not None:
        raise click.BadParameter("it is either --write or --output FILE", param_hint="--output")
    path = _find_file(template, found.text) if write else target
    repair = repair_template(found, only or (), generation=generation)
    if path is not None and (repair.changed or path == target):
        output.write_file(path, repair.text)
    if as_json:
        output.write_json(_as_data(repair, path is not None))
    elif diff:
        output.write_report(repair.diff)
    else:
        shown = repair.diff if path is None else ""
        output.write_report(f"{repair}\n" + (f"\n{shown}" if shown else ""))
    if repair.unfixed or (repair.changed and path is None):
        raise click.exceptions.Exit(output.FOUND)


def _find_file(place: str, text: str) -> Path:
    """Return the file of a template; only a file that holds nothing else can be written."""
    path = Path(place)
    try:
        is_same = path.is_file() and path.read_bytes().decode() == text
    except (OSError, UnicodeDecodeError):
        is_same = False
    if not is_same:
        raise SourceError(
            f"{place} is not a file with the text of a Jinja template",
            hint="without --write the diff is shown; `patch` or an editor can apply it",
        )
    return path


def _as_data(repair: Repair, is_written: bool) -> JsonObject:
    return {
        **output.select_fields(repair, "changed", "notes", "tried", "diff", "text"),
        "written": is_written and repair.changed,
        **output.select_fields(repair, "patches", "unfixed", "unrepairable"),
    }

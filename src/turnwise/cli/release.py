"""`turnwise release`: complete a model folder, or compare it with its goldens."""

from __future__ import annotations

from pathlib import Path

import click

from turnwise.cli import output
from turnwise.messages import JsonObject
from turnwise.publishing import Release, release, verify_release

PROFILES = ("serving", "transformers")


def release_folder(
    folder: Path,
    dry_run: bool = False,
    overwrite: bool = False,
    verify: bool = False,
    profile: str = PROFILES[0],
    as_json: bool = False,
) -> None:
    """Write what a model folder lacks: response template, training template, stops, a card, a file of expected outputs.

    Each part is proved first, the response template by transformers, which must be installed for it. What is there is
    not overwritten. Exits with 1 if something is missing, differs or is not proved.

    Example: turnwise release ./my-model --dry-run

    Arguments:
        folder DIR: A model folder.

    Options:
        dry_run: Write nothing: show the differences.
        overwrite: Also write what is there and differs.
        verify: Only compare the folder with its file of expected outputs.
        profile: Of the response template: {PROFILES}.
    """
    if verify:
        differences = verify_release(folder)
        if as_json:
            output.write_json({"differences": list(map(str, differences))})
        else:
            output.write("".join(f"{one}\n" for one in differences) or "no differences\n")
        if differences:
            raise click.exceptions.Exit(output.FOUND)
        return
    found = release(
        folder,
        dry_run=dry_run,
        overwrite=overwrite,
        profile="serving" if profile == "serving" else "transformers",
    )
    shown = f"{found}\n\n{found.diff}".removesuffix("\n") if dry_run and found.diff else found
    output.finish(shown, _as_data(found), as_json, found.is_complete)


def _as_data(found: Release) -> JsonObject:
    keys = ("name", "file", "status", "detail")
    return {
        **output.select_fields(found, "written", "diff"),
        "folder": str(found.folder),
        "complete": found.is_complete,
        "parts": [output.select_fields(part, *keys) for part in found.parts],
        "findings": found.findings.to_data()["findings"] if found.findings is not None else [],
        "verdicts": list(map(str, found.verdicts)),
    }

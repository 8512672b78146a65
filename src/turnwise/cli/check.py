"""`turnwise check`: what is wrong with a template, before people find out.

A report is text, JSON, Markdown, GitHub's annotations or SARIF. Exit codes: 0 if there is no error, 1 if there is one
(`--fail-on` names another severity), 2 if the call is wrong or a template cannot be read.

Settings are read from `turnwise.toml`, or from the table `tool.turnwise` of `pyproject.toml`:

    [tool.turnwise]
    ignore = ["T106", "two-users"]
    baseline = "turnwise-baseline.json"

The files are looked for in the current folder and in those above it; the nearest that has something counts, and in one
folder `turnwise.toml` counts before `pyproject.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from turnwise.analysis.profiles import PROFILES as PROFILES
from turnwise.analysis.profiles import SEVERITIES, Severity
from turnwise.cli import inputs, output
from turnwise.errors import SourceError, short_repr
from turnwise.evidence.checks import CHECKS, CheckReport, find_check
from turnwise.evidence.checks import check as check_template
from turnwise.evidence.checks.baseline import dump_baseline, parse_baseline, remove_known
from turnwise.evidence.checks.catalogue import Check
from turnwise.evidence.checks.formats import to_github, to_markdown, to_sarif
from turnwise.evidence.compare import diff
from turnwise.local_files import is_present
from turnwise.messages import JsonObject
from turnwise.registry import load, match
from turnwise.registry.match import OFFICIAL
from turnwise.schema import STRING, check_table, list_of
from turnwise.template import Template

VERSION = "1"  # of the findings: it changes with the meaning of a code
STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
OWN_FILE, PROJECT_FILE = "turnwise.toml", "pyproject.toml"
SETTINGS_HINT = "It should be TOML with the settings of turnwise check."
SETTINGS = {
    "ignore": list_of(STRING, 'a list of codes, such as ["T106"]'),
    "baseline": STRING,
}
BASELINE = "turnwise-baseline.json"


LINES = {"markdown": to_markdown, "github": to_github}
FORMATS = ("text", "json", *LINES, "sarif")


def check(
    templates: list[str] | None = None,
    tokenizer: str | None = None,
    reference: str | None = None,
    ignore: list[str] | None = None,
    select: list[str] | None = None,
    baseline: str | None = None,
    write_baseline: bool = False,
    fail_on: str = "error",
    profile: str | None = None,
    form: str = "text",
    explain: str | None = None,
    list_checks: bool = False,
    as_json: bool = False,
    pick: str | None = None,
) -> None:
    """Check templates against what users send to them; exit with 1 if there is an error.

    The first line is what the template is for; without --for, that decides what is reported.

    Of a model's folder, the first line says if its template is not the one that is known of that model. Checks are
    left out with --ignore, or with `ignore` in turnwise.toml or under tool.turnwise in pyproject.toml. To start green
    and stay green: --write-baseline once, commit the file, and check with --baseline, or `baseline` in the settings.

    Example: turnwise check qwen3 -k turnwise

    Arguments:
        templates TEMPLATE...: Files, model folders, built-in names, or - for stdin.

    Options:
        tokenizer -k PATH: Check its tokens, too.
        reference NAME: A template it should be equal to.
        ignore CODE: Leave a check out; may be repeated.
        select CODE: Run this check alone; may be repeated.
        baseline FILE: Report only what this file has not.
        write_baseline: Write all findings to FILE, or turnwise-baseline.json.
        fail_on SEVERITY: Exit with 1 from this severity on: {SEVERITIES}.
        profile --for PROFILE: What users send: {PROFILES}.
        form --format NAME: {FORMATS}.
        explain CODE: Print the page of a check.
        list_checks --list: List all checks.
        as_json --json: Print JSON: --format json.
    """
    form = "json" if as_json else form
    if explain is not None or list_checks:
        wanted = CHECKS if explain is None else [find_check(explain)]
        _describe_checks(wanted, form, is_list=explain is None)
        return
    if not templates:
        raise click.BadParameter("give a TEMPLATE, or --explain CODE", param_hint="TEMPLATE")
    inputs.check_stdin(*templates)
    settings = read_settings()
    place = baseline or settings.get("baseline")
    other = None if reference is None else inputs.load_template(reference, None)
    run = partial(
        check_template,
        tokenizer=tokenizer,
        reference=other,
        ignore=(*(ignore or ()), *settings.get("ignore", ())),
        select=select or (),
        profile=profile,
    )
    reports = [_check_place(one, pick, run) for one in templates]
    if write_baseline:
        _write_baseline(place or BASELINE, reports)
        return
    if place is not None:
        reports = _remove_known(reports, place)
    _write(reports, form)
    if any(_has_finding(report, fail_on) for report in reports):
        raise click.exceptions.Exit(output.FOUND)


def _write(reports: Sequence[CheckReport], form: str) -> None:
    if form == "json":
        output.write_json([report.to_data() for report in reports])
    elif form == "sarif":
        output.write_json(to_sarif(reports, CHECKS, VERSION))
    elif form in LINES:
        output.write("".join(f"{line}\n" for line in LINES[form](reports)))
    else:
        output.write_lines(line for report in reports for line in format_report(report))


def _has_finding(report: CheckReport, severity: str) -> bool:
    """Whether a report has a finding that is as bad, or worse."""
    return any(map(report.count, SEVERITIES[: SEVERITIES.index(severity) + 1]))


def _remove_known(reports: Sequence[CheckReport], place: str) -> list[CheckReport]:
    hint = f"Write it with: turnwise check ... --write-baseline --baseline {place}"
    known = parse_baseline(inputs.read_text(place, hint), place)
    return [remove_known(report, known) for report in reports]


def _write_baseline(place: str, reports: Sequence[CheckReport]) -> None:
    output.write_file(Path(place), dump_baseline(reports))
    count = sum(len(report.findings) for report in reports)
    output.note(f"{place} has {count} findings; they are not reported with --baseline {place}")


def _check_place(place: str, pick: str | None, run: Callable[..., CheckReport]) -> CheckReport:
    found = inputs.load_template(place, pick)
    if found.dialect != "jinja":
        output.note(f"{place} is written in {found.dialect}: lines are those of its text in Jinja")
    return replace(run(found), about_model=_compare_with_entry(place, pick, found))


def _describe_checks(checks: Sequence[Check], form: str, is_list: bool) -> None:
    if form == "json":
        keys = ("code", "severity", "name", "title", *(() if is_list else ("page",)))
        output.write_json([{key: getattr(one, key) for key in keys} for one in checks])
    elif is_list:
        for one in checks:
            title = output.localise(one.title)
            output.write(f"{one.code} {one.severity:<8} {one.name:<22} {title}\n")
    else:
        output.write("".join(one.page for one in checks))


def format_report(report: CheckReport) -> Iterator[output.Line]:
    """Yield the lines of a report; codes are coloured by their severity."""
    starts: dict[str, Severity] = {f"{one.code} {one.severity}:": one.severity for one in report}
    for line in str(report).split("\n"):
        start = next((start for start in starts if line.startswith(start)), None)
        shown = output.localise(line)
        if start is None:
            yield [(shown, "dim" if line.startswith("not run") else "")]
        else:
            end = len(output.localise(start))
            yield (shown[:end], STYLES[starts[start]]), shown[end:]


def _compare_with_entry(place: str, pick: str | None, template: Template) -> str:
    """Return a sentence if the template of a model's folder is not that of the model; nothing if none is known.

    A cached model has been compared by `load`. A base model has no template of its own.
    """
    folder = Path(place)
    if pick is not None or not folder.is_dir():
        return ""
    try:
        matched = match(folder.resolve().name, OFFICIAL)
    except SourceError:
        return ""
    entry = load(matched.name)
    if matched.kind == "base" or diff(entry, template, masks=False).equal:
        return ""
    about = f"not the template that is known of {matched.model} (the entry {entry.name})"
    return f"{about}: turnwise diff {entry.name} {folder} shows where they differ"


def read_settings() -> JsonObject:
    """Return the settings of the nearest configuration.

    Raises:
        SourceError: the file is not TOML, or says something that is not known.
    """
    start = Path().resolve()
    for place in (start, *start.parents):
        for name in (OWN_FILE, PROJECT_FILE):
            path = place / name
            data = inputs.read_toml(str(path), SETTINGS_HINT) if is_present(path) else {}
            table = data if name == OWN_FILE else data.get("tool", {}).get("turnwise")
            if table is None or not is_present(path):
                continue
            if not isinstance(table, dict):
                raise SourceError(f"{path}: tool.turnwise is {short_repr(table)}, not a table")
            with inputs.name_file(str(path)):
                found = check_table(table, SETTINGS)
            if "baseline" in found:
                found["baseline"] = str(place / found["baseline"])
            return found
    return {}

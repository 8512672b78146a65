"""`turnwise scan`: what is wrong with the rows of a dataset."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from turnwise.cli import inputs, output
from turnwise.cli.json_lines import read_json_lines, size_of
from turnwise.cli.render import JsonOption, PickOption
from turnwise.errors import SourceError
from turnwise.evidence.scan import (
    ROW_PROBLEMS,
    UNREADABLE,
    RowProblem,
    RowScanner,
    ScanReport,
    UnreadableRow,
)


def scan_dataset(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="JSON Lines, one row a line, or -.")
    ],
    template: Annotated[
        str | None,
        typer.Option("--template", "-t", help="The template that the rows are for."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", "-k", metavar="PATH", help="Its tokenizer, for tokens and labels."
        ),
    ] = None,
    pick: PickOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find rows with control tokens, bad roles, lost turns, broken arguments, null padding or no labels.

    Lines that cannot be read are counted, too, and do not stop it. Exits with 1 if a row has a problem, and with 2 if
    there is no row that can be read.

    Example: turnwise scan train.jsonl -t qwen3 -k turnwise
    """
    inputs.check_stdin(dataset, template)
    found = None if template is None else inputs.load_template(template, pick)
    scanner = RowScanner(tokenizer, found)
    report = ScanReport()
    with output.show_progress("scanning", size_of(dataset)) as show:
        for line in read_json_lines(dataset):
            row = line.value if line.problem is None else UnreadableRow(line.problem)
            # People count the lines of a file from 1.
            report.add(RowProblem(line.number, *problem) for problem in scanner.scan(row))
            show(line.bytes_read)
    if not report.rows:
        raise SourceError(f"{dataset} is empty", hint="a dataset has one row or more")
    if report.counts[UNREADABLE] == report.rows:
        hint = str(report.first[UNREADABLE][0])
        raise SourceError(f"no row of {dataset} can be read", hint=hint)
    if as_json:
        output.write_json(_as_data(report))
    else:
        output.write_report(f"{report}\n")
    if report.affected:
        raise typer.Exit(output.FOUND)


def _as_data(report: ScanReport) -> dict[str, Any]:
    return {
        "rows": report.rows,
        "affected": report.affected,
        "problems": [
            {
                "kind": kind,
                "count": report.counts[kind],
                "first": [
                    {"line": problem.row, "field": problem.field, "text": problem.text}
                    for problem in report.first[kind]
                ],
            }
            for kind in ROW_PROBLEMS
            if report.counts[kind]
        ],
    }

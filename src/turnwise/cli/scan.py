"""`turnwise scan`: what is wrong with the rows of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from turnwise.cli import inputs, output
from turnwise.cli.json_lines import JsonLine, read_json_lines, size_of
from turnwise.cli.prepare import (
    CarryOption,
    ColumnsOption,
    DropOption,
    PreferencesOption,
    SamplesOption,
    ShapeOption,
    check_recipe_choices,
    keep_given,
    parse_columns,
)
from turnwise.cli.render import JsonOption, PickOption
from turnwise.errors import SourceError
from turnwise.evidence.scan import ROW_PROBLEMS, RowScanner, ScanReport, UnreadableRow


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
    shape: ShapeOption = None,
    columns: ColumnsOption = None,
    carry_columns: CarryOption = None,
    drop_columns: DropOption = None,
    samples: SamplesOption = None,
    preferences: PreferencesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find rows that prepare would reject, control tokens, bad roles, broken arguments and null padding.

    Lines that cannot be read are counted, too, and do not stop it. Exits with 1 if a row has a problem, and with 2 if
    there is no row that can be read. Columns that were not read are listed.

    Example: turnwise scan train.jsonl -t qwen3 -k turnwise
    """
    inputs.check_stdin(dataset, template)
    found = None if template is None else inputs.load_template(template, pick)
    settings = keep_given(
        {
            "shape": shape,
            "columns": parse_columns(columns or []),
            "carry_columns": carry_columns,
            "drop_columns": drop_columns,
            "samples": samples,
            "preferences": preferences,
        }
    )
    check_recipe_choices(settings)
    scanner = RowScanner(tokenizer, found, **settings)
    report = ScanReport()
    with output.show_progress("scanning", size_of(dataset)) as show:
        for row in scanner.scan(_read_rows(dataset, show)):
            report.add(row)
    if not report.rows:
        raise SourceError(f"{dataset} is empty", hint="a dataset has one row or more")
    if report.unreadable == report.rows:
        hint = str(next(iter(report.first.values()))[0])
        raise SourceError(f"no row of {dataset} can be read", hint=hint)
    output.finish(report, _as_data(report), as_json, not report.affected)


def _read_rows(dataset: str, show: Callable[[int], object]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each line, as people count them, and its row."""
    for line in read_json_lines(dataset):
        yield line.number, _choose_row(line)
        show(line.bytes_read)


def _choose_row(line: JsonLine) -> Any:
    """Return the text of a row, which `prepare` reads; its value if it is a part of a document."""
    if line.raw is not None:
        return line.raw
    return line.value if line.problem is None else UnreadableRow(line.problem)


def _as_data(report: ScanReport) -> dict[str, Any]:
    return {
        **output.select_fields(report, "rows", "affected", "rejected"),
        "problems": [
            {
                "kind": kind,
                "count": report.counts[kind],
                "rejects": report.first[kind][0].rejects,
                "first": [
                    {"line": problem.row, "field": problem.field, "text": problem.text}
                    for problem in report.first[kind]
                ],
            }
            for kind in ROW_PROBLEMS
            if report.counts[kind]
        ],
        "unread": dict(report.unread.most_common()),
    }

"""`turnwise scan`: what is wrong with the rows of a dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from turnwise.cli import inputs, output
from turnwise.cli.json_lines import read_json_lines, size_of
from turnwise.cli.prepare import COLUMNS, keep_given
from turnwise.data import recipe as recipes  # noqa: F401  # the docstring has its choices
from turnwise.errors import SourceError
from turnwise.evidence.row_repeats import REPEATS
from turnwise.evidence.scan import ROW_PROBLEMS, RowScanner, ScannedRow, ScanReport
from turnwise.local_files import error_reason
from turnwise.messages import JsonObject


def scan_dataset(
    dataset: str,
    template: str | None = None,
    tokenizer: str | None = None,
    pick: str | None = None,
    repeats: str = REPEATS[0],
    fix: Path | None = None,
    as_json: bool = False,
    **settings: Any,
) -> None:
    """Find rows that prepare would reject, control tokens, bad roles, broken arguments and null padding.

    Rows that repeat an earlier one are found, too. Lines that cannot be read are counted and do not stop it. Exits with
    1 if a row has a problem, and with 2 if there is no row that can be read. Columns that were not read are listed.

    Example: turnwise scan train.jsonl -t qwen3 -k turnwise

    Arguments:
        dataset DATASET: JSON Lines, one row a line, or -.

    Options:
        template -t: The template that the rows are for.
        tokenizer -k PATH: Its tokenizer, for tokens and labels.
        repeats NAME: Report rows that repeat an earlier one, exactly or nearly: {REPEATS}.
        fix FILE: A file for the rows that can be repaired, with their changes.
        shape NAME: The shape of the rows: {recipes.SHAPE_NAMES}.
        columns list NAME=COLUMN: What the data calls a column.
        carry_columns list COLUMN: A column that is written to the shards as it is.
        drop_columns list COLUMN: A column that is left out, whatever it says.
        samples NAME: Samples of a row, one or by turns: {recipes.SAMPLES}.
        preferences NAME: How chosen, rejected and label are used: {recipes.PREFERENCES}.
    """
    inputs.check_stdin(dataset, template)
    found = None if template is None else inputs.load_template(template, pick)
    settings["columns"] = inputs.split_pairs(settings["columns"], *COLUMNS)
    given = {"repeats": repeats, "repair": fix is not None, **keep_given(settings)}
    scanner = RowScanner(tokenizer, found, **given)
    report = ScanReport(repaired=None if fix is None else 0)
    with output.show_progress() as show:
        rows = scanner.scan(_read_rows(dataset, show))
        for row in rows if fix is None else _write_repaired(rows, fix, dataset):
            report.add(row)
    if not report.rows:
        raise SourceError(f"{dataset} is empty", hint="a dataset has one row or more")
    if report.unreadable == report.rows:
        raise SourceError(
            f"no row of {dataset} can be read", hint=str(next(iter(report.first.values()))[0])
        )
    output.finish(report, _as_data(report), as_json, not report.affected)


def _read_rows(dataset: str, show: Callable[..., object]) -> Iterator[tuple[int, Any]]:
    size = size_of(dataset)
    for line in read_json_lines(dataset):
        yield line.number, line.row
        show(line.bytes_read, size, "scanning")


def _write_repaired(rows: Iterator[ScannedRow], fix: Path, dataset: str) -> Iterator[ScannedRow]:
    if Path(dataset).exists() and fix.exists() and fix.samefile(dataset):
        raise SourceError(f"{fix} is the dataset itself", hint="name another file for --fix")
    try:
        with fix.open("w", encoding="utf-8", errors="backslashreplace") as file:
            for row in rows:
                if row.repaired is not None:
                    file.write(f"{json.dumps(row.repaired, ensure_ascii=False)}\n")
                yield row
    except OSError as error:
        raise SourceError(f"{fix} cannot be written: {error_reason(error)}") from error


def _as_data(report: ScanReport) -> JsonObject:
    more = () if report.repaired is None else ("repaired", "unrepaired")
    return {
        **output.select_fields(report, "rows", "affected", "rejected", *more),
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

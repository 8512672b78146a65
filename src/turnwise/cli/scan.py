"""`turnwise scan`: what is wrong with the rows of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from turnwise.cli import inputs, output
from turnwise.cli.json_lines import read_json_lines, size_of
from turnwise.cli.prepare import COLUMNS, keep_given
from turnwise.data import recipe as recipes  # noqa: F401  # the docstring has its choices
from turnwise.errors import SourceError
from turnwise.evidence.scan import ROW_PROBLEMS, RowScanner, ScanReport


def scan_dataset(
    dataset: str,
    template: str | None = None,
    tokenizer: str | None = None,
    pick: str | None = None,
    as_json: bool = False,
    **settings: Any,
) -> None:
    """Find rows that prepare would reject, control tokens, bad roles, broken arguments and null padding.

    Lines that cannot be read are counted, too, and do not stop it. Exits with 1 if a row has a problem, and with 2 if
    there is no row that can be read. Columns that were not read are listed.

    Example: turnwise scan train.jsonl -t qwen3 -k turnwise

    Arguments:
        dataset DATASET: JSON Lines, one row a line, or -.

    Options:
        template -t: The template that the rows are for.
        tokenizer -k PATH: Its tokenizer, for tokens and labels.
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
    scanner = RowScanner(tokenizer, found, **keep_given(settings))
    report = ScanReport()
    with output.show_progress() as show:
        for row in scanner.scan(_read_rows(dataset, show)):
            report.add(row)
    if not report.rows:
        raise SourceError(f"{dataset} is empty", hint="a dataset has one row or more")
    if report.unreadable == report.rows:
        hint = str(next(iter(report.first.values()))[0])
        raise SourceError(f"no row of {dataset} can be read", hint=hint)
    output.finish(report, _as_data(report), as_json, not report.affected)


def _read_rows(dataset: str, show: Callable[..., object]) -> Iterator[tuple[int, Any]]:
    """Yield the number of each line, from 1, and its row."""
    size = size_of(dataset)
    for line in read_json_lines(dataset):
        yield line.number, line.row
        show(line.bytes_read, size, "scanning")


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

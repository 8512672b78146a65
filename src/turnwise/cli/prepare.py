"""`turnwise prepare`: data sets of conversations become shards that trainers load.

Every value of a recipe has a flag of the same name, and a flag comes before the same value of `--recipe`. The run is
shown on stderr while it works, if that is a terminal; the summary, or the manifest as JSON, is the result.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from turnwise.cli import inputs, output
from turnwise.cli.extras import import_extra
from turnwise.cli.options import to_flag
from turnwise.data import recipe as recipes  # noqa: F401  # the docstring has its choices
from turnwise.data.pages import LABEL_WIDTH, count_of, short_number, write_dry_run, write_summary
from turnwise.data.reasons import REJECTED_FILE
from turnwise.data.recipe import RULES, Recipe
from turnwise.errors import DataError, SourceError
from turnwise.messages import JsonMapping, JsonObject

if TYPE_CHECKING:
    from turnwise.data.dry_run import DryRun
    from turnwise.data.run import Progress

NOTES_IN_HINT = 3
TOO_LONG = "too-long"
COLUMNS = ("NAME=COLUMN", "([^=]+)=(.+)", "--columns")
# A key that an error begins with, or that is no word of a sentence; `key = "value"` in a hint.
RECIPE_KEY = re.compile(
    rf"^(?:{'|'.join(RULES)})(?=[ :])|\b(?:{'|'.join(name for name in RULES if '_' in name)})\b"
)
RECIPE_VALUE = re.compile(r'^(\w+) = "(\w+)"')
SHORTEN = "Raise --max-length, or shorten conversations with --overlong truncate or split."


def prepare(
    data: list[str] | None = None,
    recipe: str | None = None,
    engine: str = "local",
    workers: int | None = None,
    dry_run: bool = False,
    as_json: bool = False,
    **values: Any,
) -> None:
    """Make training shards of ids and labels from conversations: JSON Lines, JSON, Parquet, Arrow.

    A second run of the same call resumes where the first one was stopped. Bad rows are written to rejected.jsonl with
    their file, line and reason. Exits with 1 if there are such rows, and with 2 if nothing was written.

    Example: turnwise prepare chats.jsonl -t qwen3 -k turnwise -o out --max-length 4096 --packing best-fit

    Arguments:
        data DATA: Files, folders or patterns with *.

    Options:
        template -t: The template: a name, file or folder.
        tokenizer -k: Its tokenizer: a file or folder.
        output -o DIR: Where the shards go.
        recipe FILE: A recipe as TOML; flags come before its values.
        shape NAME: The shape of the rows: {recipes.SHAPE_NAMES}.
        columns list NAME=COLUMN: What the data calls a column.
        carry_columns list COLUMN: A column that is written to the shards as it is.
        drop_columns list COLUMN: A column that is left out, whatever it says.
        train_on NAME: What is trained: {recipes.POLICIES}.
        samples NAME: Samples of a row, one or by turns: {recipes.SAMPLES}.
        preferences NAME: How chosen, rejected and label are used: {recipes.PREFERENCES}.
        max_length int min=1: The most tokens of a sample.
        overlong NAME: How longer conversations are handled: {recipes.OVERLONG}.
        packing NAME: Several samples in one row: {recipes.PACKING}.
        validation float SHARE: The share of the validation split.
        deduplicate bool --deduplicate/--no-deduplicate: Keep one of several equal samples.
        shuffle int SEED: Shuffle all rows with this seed.
        group_by_length bool --group-by-length/--no-group-by-length: Sort each shard by length.
        on_bad_row NAME: How bad rows are handled: {recipes.ON_BAD_ROW}.
        on_flaw NAME: Rows that lose text or labels: {recipes.ON_FLAW}.
        shard_format NAME: The format of the shards: {recipes.SHARD_FORMATS}.
        chunk_bytes int: Bytes of input for one shard, about.
        late_system NAME: Where late system texts are put: {recipes.LATE_SYSTEM}.
        now ISO: The time, for templates that ask for it.
        options list --options --option KEY=VALUE: A variable of the template; the value as JSON.
        engine NAME: What does the work: processes here, or a cluster: {recipes.ENGINE_NAMES}.
        workers min=1: How many workers; as many as cores if not given.
        dry_run: Read a sample and say what would come of the data.
    """
    options = inputs.parse_options(values["options"] or [], "--options")
    read = {
        "columns": inputs.split_pairs(values["columns"], *COLUMNS),
        "now": inputs.parse_time(values["now"]),
    }
    made = make_recipe(recipe, keep_given({**values, **read, "inputs": data, "options": options}))
    if options:
        inputs.check_options(options, inputs.load_template(made.template, None), "--options")
    if dry_run:
        _try(made, as_json)
        return
    if made.output is None:
        raise click.BadParameter("name the folder of the shards", param_hint="--output")
    manifest = _run(made, engine, workers)
    failure = None if manifest["rows"]["out"] else explain_nothing(manifest, made.output)
    if not as_json:
        output.write_lines(label_lines(write_summary(manifest, made.output)))
    elif failure is None:  # the error is the one document otherwise
        output.write_json(manifest)
    if failure is not None:
        raise failure
    if manifest["rows"]["rejected"]:
        raise click.exceptions.Exit(output.FOUND)


def explain_nothing(manifest: JsonMapping, folder: str) -> DataError:
    """Return the error of a run that wrote no sample: what became of the rows, and what to do."""
    rows = manifest["rows"]
    if not rows["in"]:
        known = [f"{text}." for text in manifest["notes"][:NOTES_IN_HINT]]
        return DataError(
            "there is no row in the inputs", hint=" ".join([*known, "Name files that have rows."])
        )
    hints = []
    if rows["rejected"]:
        where = os.path.join(folder, REJECTED_FILE)
        hints += [*_read_first_reason(where), f"All reasons are in {where}."]
    if manifest["reasons"].get(TOO_LONG):
        hints.append(SHORTEN)
    if rows["rejected"] == rows["in"]:
        return DataError("every row was rejected", hint=" ".join(hints))
    parts = [f"{rows[key]:,} {key}" for key in ("rejected", "filtered") if rows[key]]
    return DataError(
        f"nothing was written: of {count_of(rows['in'], 'row')}, {' and '.join(parts)}",
        hint=" ".join(hints) or None,
    )


def _read_first_reason(path: str) -> Iterator[str]:
    """Yield why the first row was rejected, unless somebody has removed or changed the file since."""
    try:
        with open(path, "rb") as file:
            first = json.loads(file.readline())
        yield f"{first['file']}:{first['row']}: {first['reason'].rstrip('.')}."
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return


def _try(recipe: Recipe, as_json: bool) -> None:
    found: DryRun = import_extra("turnwise.data.dry_run", "prepare").try_recipe(recipe)
    failure = None if found.lengths else _explain_no_sample(found)
    if not as_json:
        output.write_lines(label_lines(write_dry_run(found)))
    elif failure is None:
        counts = {one.name: getattr(found, one.name) for one in fields(found)}
        output.write_json({**counts, "tokens_estimated": found.tokens_estimated})
    if failure is not None:
        raise failure
    if found.rejected:
        raise click.exceptions.Exit(output.FOUND)


def _explain_no_sample(found: DryRun) -> DataError:
    if not found.rows_read:
        return DataError("there is no row in the inputs", hint="Name files that have rows.")
    if found.rejected.total() == found.rows_read:
        return DataError("every row that was read would be rejected", hint=found.reasons[0])
    problem = f"of {count_of(found.rows_read, 'row')} that were read, {found.filtered:,} would be filtered"
    return DataError(
        f"{problem}, and none would be written", hint=" ".join([*found.reasons[:1], SHORTEN])
    )


def make_recipe(file: str | None, given: JsonMapping) -> Recipe:
    """Return the recipe of a file, if one is named, and the flags."""
    if file is not None:
        return Recipe.from_toml(file, **given)
    for name, flag in (
        ("inputs", "DATA"),
        ("template", "--template"),
        ("tokenizer", "--tokenizer"),
    ):
        if name not in given:
            raise click.BadParameter(
                "it is missing; a file of --recipe may have it, too", param_hint=flag
            )
    try:
        return Recipe.from_mapping(given)
    except SourceError as error:
        error.message = RECIPE_KEY.sub(lambda found: to_flag(found[0]), error.message)
        error.hint = error.hint and RECIPE_VALUE.sub(r"--\1 \2", error.hint)
        raise


def keep_given(values: JsonMapping) -> JsonObject:
    """Return the values of flags that were given."""
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def _run(recipe: Recipe, engine: str, workers: int | None) -> JsonMapping:
    data = import_extra("turnwise.data.run", "prepare")
    try:
        with show_run() as show:
            report = data.prepare(recipe, engine=engine, workers=workers, on_progress=show)
    except KeyboardInterrupt:
        output.note("stopped; the same command resumes where it was")
        raise click.exceptions.Exit(output.INTERRUPTED) from None
    if report.was_finished:
        output.note(f"{recipe.output} was complete: nothing was done")
    for restart in report.restarts:
        output.warn(restart)
    manifest: JsonMapping = report.manifest
    return manifest


# -- what is shown ---------------------------------------------------------------------------------------------------


@contextmanager
def show_run() -> Iterator[Callable[[Progress], None]]:
    """Show bytes done, rows and tokens in a second, rejected rows and the time left, if stderr is a terminal."""
    with output.show_progress() as update:
        begun: list[tuple[Progress, float]] = []

        def show(progress: Progress) -> None:
            if not begun:  # neither the start nor what an earlier run did counts for the speed
                begun.append((progress, monotonic()))
            first, start = begun[0]
            figures = progress_figures(first, progress, monotonic() - start)
            done, total = progress.bytes_done, progress.bytes_total
            if progress.stage == "assemble":
                done, total = progress.shards_done, progress.shards_total
                figures = f"writing {count_of(total, 'shard')}"
            update(done, total, figures)

        yield show


def progress_figures(first: Progress, now: Progress, seconds: float) -> str:
    """Return the figures beside the bar.

    Args:
        first: the progress when the run began.
        now: the progress now.
        seconds: the time between the two.
    """
    rates = ((now.rows - first.rows, "rows/s"), (now.tokens - first.tokens, "tokens/s"))
    shown = [f"{short_number(count / seconds)} {unit}" for count, unit in rates if seconds > 0]
    return "  ".join([count_of(now.rows, "row"), *shown, f"{now.rejected:,} rejected"])


def label_lines(text: str) -> Iterator[output.Line]:
    """Yield the lines of a summary, with their labels dim."""
    for line in text.rstrip("\n").split("\n"):
        yield (line[:LABEL_WIDTH], "dim"), output.localise(line[LABEL_WIDTH:])

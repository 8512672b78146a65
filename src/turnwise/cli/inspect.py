"""`turnwise inspect`: samples of prepared shards with their trained tokens, and how long the samples are.

Tokens are shown as by `turnwise encode`: trained ones green, control tokens reversed; without colour, signs tell the
same. The text comes from the data, so control characters in it are escaped before a terminal sees them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.cli import output
from turnwise.cli.encode import LEGEND, load_tokenizer, token_lines
from turnwise.cli.extras import import_extra
from turnwise.cli.options import check_choice
from turnwise.cli.prepare import label_lines
from turnwise.data.pages import write_report, write_summary
from turnwise.errors import SourceError, printable
from turnwise.messages import JsonMapping, JsonObject
from turnwise.tokens.loss import IGNORED

if TYPE_CHECKING:
    from turnwise.data.prepared_folder import PreparedFolder, ShardRow

BAR_WIDTH = 40
PREFERENCE_COLUMNS = ("prompt_ids", "completion_ids", "chosen_ids", "rejected_ids")


def inspect(
    folder: str,
    samples: int = 3,
    skip: int = 0,
    split: str | None = None,
    tokenizer: str | None = None,
    report: str | None = None,
    as_json: bool = False,
) -> None:
    """Show samples of prepared shards with their trained tokens, and a histogram of lengths.

    Example: turnwise inspect out --samples 5

    Arguments:
        folder DIR: A folder that `turnwise prepare` wrote.

    Options:
        samples -n min=0: How many rows to show.
        skip min=0: Pass over so many rows first.
        split NAME: Rows of this split only.
        tokenizer -k: A tokenizer, if not that of the recipe.
        report FILE: Write the report page to this file.
    """
    data = import_extra("turnwise.data.prepared_folder", "inspect")
    found: PreparedFolder = data.PreparedFolder(folder)
    check_choice(split, found.splits, "--split")
    rows = found.read_rows(split, skip, samples)
    known = _find_tokenizer(tokenizer, found.manifest) if rows else None
    if report is not None:
        output.write_file(Path(report), write_report(found.manifest))
    if as_json:
        samples_data = [_as_data(row, known) for row in rows]
        output.write_json({"manifest": found.manifest, "samples": samples_data})
        return
    output.write_lines(label_lines(write_summary(found.manifest, folder)))
    output.write_lines(histogram_lines(found.manifest["lengths"]))
    for row in rows:
        output.write_lines(sample_lines(row, known))
    if rows and not output.use_colour():
        output.note(LEGEND)


def _find_tokenizer(given: str | None, manifest: JsonMapping) -> Any:
    place = given or manifest["recipe"].get("tokenizer")
    try:
        return load_tokenizer(str(place))
    except SourceError as error:
        raise SourceError(
            f"no tokenizer to show samples with: {error.message}",
            hint="name it with --tokenizer; without samples (-n 0) none is needed",
        ) from None


def histogram_lines(pairs: Sequence[Sequence[int]]) -> Iterator[output.Line]:
    """Yield a bar for each bin of lengths."""
    most = max((count for _, count in pairs), default=0)
    if not most:
        return
    yield []
    yield [("tokens       samples", "dim")]
    for bound, count in pairs:
        bar = "█" * round(count / most * BAR_WIDTH) or ("▏" if count else "")
        yield (f"<= {bound:<8,} ", "dim"), f"{count:>8,} ", (bar, "blue")


def sample_lines(row: ShardRow, tokenizer: Any) -> Iterator[output.Line]:
    """Yield the tokens of a row, under a line that says where it is from."""
    columns = row.columns
    place = f"{row.shard} row {row.number + 1}"
    for name, ids, labels in _token_columns(columns):
        trained = sum(label != IGNORED for label in labels)
        title = f"{place}{name}: {len(ids):,} tokens, {trained:,} trained{_source(columns)}"
        yield []
        yield [(printable(title), "bold")]
        mask = [label != IGNORED for label in labels]
        texts = [tokenizer.decode([id]) for id in ids]
        kinds = _token_kinds(ids, texts, mask, tokenizer)
        # A packed row has several samples.
        bounds = accumulate(columns.get("seq_lengths") or [len(ids)], initial=0)
        for first, last in pairwise(bounds):
            if first:
                yield [(f"-- the next sample of this row, {last - first:,} tokens", "dim")]
            yield from token_lines(texts[first:last], kinds[first:last], mask[first:last])


def _token_columns(columns: JsonMapping) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield the name, ids and labels of what a row holds: one sample, or the parts of a preference."""
    if "input_ids" in columns:
        yield "", columns["input_ids"], columns["labels"]
        return
    label = f", label {str(columns['label']).lower()}" if "label" in columns else ""
    for name in filter(columns.__contains__, PREFERENCE_COLUMNS):
        ids = columns[name] or []
        is_trained = name != "prompt_ids"
        yield f", {name}{label}", ids, ids if is_trained else [IGNORED] * len(ids)


def _token_kinds(
    ids: Sequence[int], texts: Sequence[str], mask: Sequence[bool], tokenizer: Any
) -> list[str]:
    """Return how each token is shown; ordinary tokens that spell a control token together are defused."""
    special = {token.id: token.text for token in tokenizer.added.values() if token.special}
    found = [
        "control" if id in special else ("plain", "trained")[is_trained]
        for id, is_trained in zip(ids, mask, strict=True)
    ]
    starts = list(accumulate(map(len, texts), initial=0))
    spelled = re.compile("|".join(map(re.escape, sorted(special.values(), key=len, reverse=True))))
    for match in spelled.finditer("".join(texts)) if special else ():
        first, end = bisect_right(starts, match.start()) - 1, bisect_left(starts, match.end())
        if "control" not in found[first:end]:
            found[first:end] = ["defused"] * (end - first)
    return found


def _source(columns: JsonMapping) -> str:
    """Return where the row is from; of a packed row, its first sample."""
    files, rows = columns.get("source_file"), columns.get("source_row")
    if isinstance(files, list) and isinstance(rows, list):
        if not files or not rows:
            return ""
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        return f"; {files[0]}:{rows[0]}{more}"
    return f"; {files}:{rows}" if files is not None else ""


def _as_data(row: ShardRow, tokenizer: Any) -> JsonObject:
    texts = {
        f"{name.removeprefix(', ')}_text".lstrip("_"): tokenizer.decode(ids)
        for name, ids, _ in _token_columns(row.columns)
    }
    return {"shard": row.shard, "split": row.split, "row": row.number, **row.columns, **texts}

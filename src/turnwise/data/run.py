"""Prepare a data set: read, encode and write it, so that a run can be killed at any time and resumed.

    find files -> survey -> compare with what the folder has -> encode chunks -> (second stage) -> publish -> manifest

While a run works, everything is in the hidden folder `.turnwise` of the output folder: nothing that looks like a shard
can be seen before all of them are whole. What a killed run has done is kept there, and the next run with the same
recipe, template, tokenizer and inputs goes on with it; a run with others is refused. Publishing renames the shards, and
can be repeated; the manifest is last.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import count, repeat
from pathlib import Path
from typing import IO

from turnwise.data import exchange, manifest, ray
from turnwise.data.chunks import InputChunk, Survey, choose_chunk_bytes, survey_file, unpack_file
from turnwise.data.files import FoundFiles, find_files
from turnwise.data.job import (
    DONE,
    DROPS,
    FOLDERS,
    UNPACKED,
    Job,
    Outcome,
    Partition,
    Task,
    digest_inputs,
    list_encoded,
)
from turnwise.data.local import TaskEngine, start_local
from turnwise.data.manifest import MANIFEST, Identity
from turnwise.data.pages import PAGE, REPORT, write_page, write_report
from turnwise.data.reasons import REJECTED_FILE
from turnwise.data.recipe import Recipe
from turnwise.data.shards import (
    SUFFIXES,
    Shard,
    cannot_write,
    is_whole,
    make_folder,
    remove_temporaries,
    sync_folder,
    write_file,
)
from turnwise.data.tally import Tally
from turnwise.errors import DataError, short_repr
from turnwise.messages import JsonMapping, JsonObject
from turnwise.registry import load
from turnwise.schema import check_name

__all__ = ["Progress", "Report", "prepare"]

WORK = ".turnwise"
PLAN, PUBLISHING = "plan.json", "publishing.json"
UNPACKED_RATIO = (
    4  # of the text in a compressed file to its size, about; decides the number of shards only
)
SURVEY_THREADS = 4
COPY_BYTES = 1 << 20
# Each starts an engine for a job, a number of workers (None: as many as make sense) and an amount of input.
ENGINES: dict[str, Callable[[Job, int | None, int], TaskEngine]] = {
    "local": start_local,
    "ray": ray.start_ray,
}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        rows, samples, tokens, rejected: what is done so far, by earlier runs too.
        bytes_done, bytes_total: of the input files.
        stage: "encode", or "assemble" while the shards of a shuffled or deduplicated run are made.
        shards_done, shards_total: of the stage "assemble".
    """

    rows: int = 0
    samples: int = 0
    tokens: int = 0
    rejected: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    stage: str = "encode"
    shards_done: int = 0
    shards_total: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What a run has done.

    Attributes:
        folder: the output folder.
        manifest: the content of its `manifest.json`.
        was_finished: whether the folder was complete before, so that nothing was done.
        kept: chunks that an earlier, interrupted run had done.
        restarts: tasks that were done again since a worker died, each with the reason.
    """

    folder: Path
    manifest: JsonMapping
    was_finished: bool = False
    kept: int = 0
    restarts: tuple[str, ...] = ()

    @property
    def rows(self) -> Mapping[str, int]:
        """Rows `in`, `out`, `rejected` and `filtered`."""
        rows: Mapping[str, int] = self.manifest["rows"]
        return rows

    @property
    def shards(self) -> list[Path]:
        """The shards."""
        return [self.folder / shard["path"] for shard in self.manifest["shards"]]

    @property
    def rejected(self) -> Path:
        """The file of rejected rows, with reasons."""
        return self.folder / REJECTED_FILE


def prepare(
    recipe: Recipe,
    engine: str = "local",
    workers: int | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> Report:
    """Prepare a data set as a recipe says.

    A second call with the same recipe resumes what was interrupted; on a complete folder it does nothing.

    Args:
        recipe: the recipe; its `output` is the folder to write to.
        engine: "local" for processes on this machine, or "ray" for a cluster; the shards are the same.
        workers: how many workers; by default one for each processor.
        on_progress: called after each chunk.

    Returns:
        The accounts of the run, and where its files are.

    Raises:
        TurnwiseError: the recipe, an input or the folder cannot be used; or, with `on_bad_row="fail"`, a row is bad.

    Example:
        >>> import json, tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> row = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
        >>> _ = (folder / "data.jsonl").write_text(json.dumps(row))
        >>> recipe = Recipe(folder / "data.jsonl", "chatml", "turnwise", folder / "out")
        >>> report = prepare(recipe)
        >>> report.rows["out"], [path.name for path in report.shards]
        (1, ['train-00000-of-00001.parquet'])
    """
    if recipe.output is None:
        raise DataError("the recipe has no output", hint="Name the folder for the shards.")
    check_name(engine, ENGINES, "there is no engine", "Engines", DataError)
    if workers is not None and (type(workers) is not int or workers < 1):
        raise DataError(f"workers is {short_repr(workers)}; it must be a whole number from 1 up")
    folder = Path(recipe.output)
    found = find_files(recipe.inputs)
    with _open_work_folder(folder) as work:
        chunk_bytes = choose_chunk_bytes(found.files, recipe.chunk_bytes)
        job = Job(_for_workers(recipe), work.absolute(), _count_partitions(found, chunk_bytes))
        started = ENGINES[engine](job, workers, sum(file.size for file in found.files))
        try:
            run = _Run(recipe, folder, work, job, started, found, chunk_bytes, on_progress)
            return run.execute()
        except OSError as error:
            raise cannot_write(folder, error) from error
        finally:
            started.close()


def _for_workers(recipe: Recipe) -> Recipe:
    """Return the recipe as workers understand it, who have another working directory, and no entries of the caller."""
    found: JsonObject = {}
    if isinstance(recipe.template, str):
        found["template"] = load(recipe.template)
    name = recipe.tokenizer
    if isinstance(name, str) and os.sep in name and Path(name).exists():
        found["tokenizer"] = os.path.abspath(name)
    return replace(recipe, **found)


def _count_partitions(found: FoundFiles, chunk_bytes: int) -> int:
    """Return the number of shards of a shuffled run: about one for each chunk."""
    total = sum(file.size * (UNPACKED_RATIO if file.compression else 1) for file in found.files)
    return max(1, round(total / chunk_bytes))


@contextlib.contextmanager
def _open_work_folder(folder: Path) -> Iterator[Path]:
    """Make the work folder, and keep other runs out of it; remove it again if nothing came of it."""
    if folder.exists() and not folder.is_dir():
        raise DataError(
            f"{short_repr(str(folder), 200)} is a file, not a folder",
            hint=f"Shards and their manifest need a folder: give {short_repr(f'{folder}-shards', 200)}, for example.",
        )
    work = folder / WORK
    if folder.is_dir() and not work.exists() and not (folder / MANIFEST).exists():
        others = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
        if others:
            raise DataError(
                f"{short_repr(str(folder), 200)} has other files in it: {', '.join(others[:3])}",
                hint="Choose a new or an empty folder for the shards.",
            )
    was_there = folder.exists()
    make_folder(work)
    lock = _lock(work, folder)
    try:
        yield work
    finally:
        _unlock(lock)
        if not (work / PLAN).exists():
            shutil.rmtree(work, ignore_errors=True)
            if not was_there:
                with contextlib.suppress(OSError):
                    folder.rmdir()  # unless the run has filled it


def _lock(work: Path, folder: Path) -> IO[bytes]:
    """Lock the work folder until the file is closed, or the process ends."""
    try:
        lock = open(work / "lock", "ab")  # noqa: SIM115  # it stays open
    except OSError as error:
        raise cannot_write(work, error) from error
    try:
        import fcntl  # Windows has none
    except ImportError:
        return lock
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise DataError(
            f"another run works in {short_repr(str(folder), 200)}",
            hint="Wait for it, or choose another output folder.",
        ) from None
    except OSError:
        pass  # a file system without locks
    return lock


def _unlock(lock: IO[bytes]) -> None:
    """Close the file of a lock, and unlock it also for a process that the caller has forked, which has the file too."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_UN)
    lock.close()


@dataclass
class _Run:
    """One run: what it was given, and what it has counted so far."""

    recipe: Recipe
    folder: Path
    work: Path
    job: Job
    engine: TaskEngine
    found: FoundFiles
    chunk_bytes: int
    on_progress: Callable[[Progress], object] | None
    kept: int = 0

    def execute(self) -> Report:
        """Do what is left to do."""
        surveys = self._survey()
        digests = {**self.engine.describe(), "inputs": digest_inputs(surveys)}
        identity = manifest.make_identity(self.recipe, digests, surveys)
        finished = manifest.read_json(self.folder / MANIFEST, manifest.COMPLETE)
        if finished is not None and finished["shards"]:  # what wrote nothing may be repaired
            manifest.refuse_other_run(self.folder, identity, finished)
            manifest.check_shards(self.folder, finished)
            shutil.rmtree(self.work, ignore_errors=True)
            return Report(self.folder, finished, was_finished=True)
        self._begin(identity)
        publication = manifest.read_json(self.work / PUBLISHING, manifest.PUBLICATION)
        if publication is not None:
            manifest.refuse_other_run(self.folder, identity, publication["manifest"])
        else:
            publication = self._encode_all(surveys, identity)
            data = manifest.dump_json(publication)
            write_file(self.work / PUBLISHING, data)
            sync_folder(self.work)
        self._publish(publication)
        restarts = tuple(self.engine.restarts)
        return Report(self.folder, publication["manifest"], kept=self.kept, restarts=restarts)

    def _survey(self) -> list[Survey]:
        """Read all inputs once; workers start meanwhile."""
        with ThreadPoolExecutor(SURVEY_THREADS) as threads:
            sizes = repeat(self.chunk_bytes)
            return list(threads.map(survey_file, self.found.files, count(), sizes))

    def _begin(self, identity: Identity) -> None:
        """Compare with what an earlier run has left, and clean up after it."""
        plan = manifest.read_json(self.work / PLAN, manifest.IDENTITY)
        if plan is not None:
            manifest.refuse_other_run(self.folder, identity, plan)
        for name in FOLDERS:
            make_folder(self.work / name)
            remove_temporaries(self.work / name)
        remove_temporaries(self.work)
        remove_temporaries(self.folder)
        for unpacked in (self.work / UNPACKED).iterdir():
            unpacked.unlink()
        if plan is None:
            write_file(self.work / PLAN, manifest.dump_json(asdict(identity)))
            sync_folder(self.work)
            sync_folder(self.folder)

    # -- stages ----------------------------------------------------------------------------------------------------

    def _encode_all(self, surveys: Sequence[Survey], identity: Identity) -> JsonObject:
        """Do all tasks, and return what is to be published."""
        done = self._read_outcomes()
        self.kept = len(done)
        chunks = self._list_chunks(surveys, done)
        size = sum(file.size for file in self.found.files)
        total = Tally()
        outcomes, progress = self._run_stage(chunks, done, Progress(bytes_total=size), total)
        rejected = [file for one in outcomes for file in one.files if "rejected" in file]
        if self.job.has_two_stages:
            if self.job.recipe.deduplicate:
                self._drop_duplicates(total)
            names = [outcome.name for outcome in outcomes]
            outcomes = self._assemble(names, done, total, progress)
        shards = [shard for outcome in outcomes for shard in outcome.shards]
        total.check("the whole run")
        moves = _name_shards(shards, self.job.recipe.shard_format)
        published = [replace(shard, path=name) for shard, name in moves]
        notes = list(self.found.notes)
        return {
            "manifest": manifest.make_manifest(identity, total, published, notes),
            "moves": [[shard.path, name] for shard, name in moves],
            "rejected": rejected,
        }

    def _read_outcomes(self) -> dict[str, Outcome]:
        """Return the outcomes of tasks that an earlier run has done, and whose files are whole."""
        outcomes = {}
        for path in sorted((self.work / DONE).glob("*.json")):
            try:
                outcome = Outcome.from_json(manifest.read_json(path, {"shards": [manifest.SHARD]}))
            except (DataError, LookupError, TypeError, ValueError, AttributeError):
                path.unlink()  # damaged: the task is done again
                continue
            shards = {f"{DONE}/{one.path}": (one.size, one.sha256) for one in outcome.shards}
            files = {**shards, **outcome.files}
            if all(is_whole(self.work / name, *file) for name, file in files.items()):
                outcomes[outcome.name] = outcome
            else:
                path.unlink()
        return outcomes

    def _list_chunks(
        self, surveys: Sequence[Survey], done: Mapping[str, Outcome]
    ) -> Iterator[Task]:
        for survey in surveys:
            chunks: Iterable[InputChunk] | None = survey.chunks
            if chunks is None:
                unpacked = self.job.work / UNPACKED
                chunks = unpack_file(survey.file, survey.number, self.chunk_bytes, unpacked)
            for chunk in chunks:
                if chunk.name not in done:
                    yield chunk
                elif chunk.is_unpacked:
                    Path(chunk.path).unlink()

    def _run_stage(
        self, tasks: Iterator[Task], done: Mapping[str, Outcome], progress: Progress, total: Tally
    ) -> tuple[list[Outcome], Progress]:
        """Let the engine do the tasks of one stage, and count what is in them.

        Returns:
            The outcomes, with those of before, in the order of their names; and how far the run is.
        """
        is_encoding = progress.stage == "encode"
        outcomes = {
            name: one for name, one in done.items() if name.startswith("shard") != is_encoding
        }
        for outcome in outcomes.values():
            progress = _advance(progress, outcome)
        report = self.on_progress or (lambda progress: None)
        report(progress)
        for outcome in self.engine.run(tasks):
            outcomes[outcome.name] = outcome
            progress = _advance(progress, outcome)
            report(progress)
        ordered = [outcomes[name] for name in sorted(outcomes)]
        for outcome in ordered:
            total.add(outcome.tally)
        return ordered, progress

    def _drop_duplicates(self, total: Tally) -> None:
        """Find duplicates among all samples: the same as an earlier run has found, if there was one.

        Rows that lose all of their samples are no longer out; they were filtered.
        """
        drops = self.work / DROPS
        shutil.rmtree(drops, ignore_errors=True)
        make_folder(drops)
        found = exchange.find_duplicates(list_encoded(self.work), drops)
        total.duplicates += found.samples
        total.rows_out -= found.rows
        total.filtered += found.rows
        if found.rows:
            total.reasons["duplicate"] += found.rows

    def _assemble(
        self,
        names: Sequence[str],
        done: Mapping[str, Outcome],
        total: Tally,
        progress: Progress,
    ) -> list[Outcome]:
        """Make the shards of the second stage, and add what is in them to the tally."""
        if self.job.recipe.shuffle is not None:
            partitions = [Partition(number) for number in range(self.job.partitions)]
        else:
            partitions = [Partition(number, name) for number, name in enumerate(names)]
        tasks: Iterator[Task] = (one for one in partitions if one.name not in done)
        progress = replace(
            progress,
            bytes_done=progress.bytes_total,
            stage="assemble",
            shards_total=len(partitions),
        )
        return self._run_stage(tasks, done, progress, total)[0]

    # -- the end ---------------------------------------------------------------------------------------------------

    def _publish(self, publication: JsonMapping) -> None:
        """Give everything its final name and place; a publication that was interrupted is repeated."""
        for before, after in publication["moves"]:
            source = self.work / DONE / before
            if source.exists():
                os.replace(source, self.folder / after)
        parts = (self.work / name for name in publication["rejected"])
        write_file(self.folder / REJECTED_FILE, _join_files(parts))
        found = publication["manifest"]
        write_file(self.folder / PAGE, write_page(found).encode("utf-8", "surrogatepass"))
        write_file(self.folder / REPORT, write_report(found).encode("utf-8", "backslashreplace"))
        manifest.check_shards(self.folder, found)
        sync_folder(self.folder)
        write_file(self.folder / MANIFEST, manifest.dump_json(found))
        sync_folder(self.folder)
        shutil.rmtree(self.work, ignore_errors=True)


def _advance(progress: Progress, outcome: Outcome) -> Progress:
    return replace(
        progress,
        rows=progress.rows + outcome.tally.rows_in,
        samples=progress.samples + outcome.samples,
        tokens=progress.tokens + outcome.tokens,
        rejected=progress.rejected + outcome.tally.rejected,
        bytes_done=min(progress.bytes_done + outcome.size, progress.bytes_total),
        shards_done=progress.shards_done + (progress.stage == "assemble"),
    )


def _name_shards(shards: Sequence[Shard], format: str) -> list[tuple[Shard, str]]:
    """Return the shards with their final names, numbered within their split."""
    named = []
    for split in sorted({shard.split for shard in shards}):
        chosen = [shard for shard in shards if shard.split == split]
        for number, shard in enumerate(chosen):
            named.append((shard, f"{split}-{number:05d}-of-{len(chosen):05d}{SUFFIXES[format]}"))
    return named


def _join_files(paths: Iterator[Path]) -> Iterator[bytes]:
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(COPY_BYTES):
                yield block

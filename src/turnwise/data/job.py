"""The work that engines hand out: what becomes of one chunk, and how one shard of a shuffled run is made.

A `Job` is all that a worker needs to know; it is pickled once per worker. `Job.perform` does one task, writes its files
to the work folder, and writes a record of them last of all. A task whose record exists is done; a task without a record
is done again from the beginning, whatever else is there. Since every task is a pure function of the input and writes
files of fixed names, doing one twice changes nothing.

    one stage     InputChunk -> shards                      without shuffle and deduplication
    two stages    InputChunk -> encoded samples on disk     sorted by their place in the shuffled order
                  Partition -> shards                  each collects its samples from all chunks
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import turnwise.batch  # noqa: F401  # which a template imports when it encodes: here before workers are forked
from turnwise.data import exchange
from turnwise.data.chunks import InputChunk, Survey
from turnwise.data.finish import finish
from turnwise.data.kernel import Kernel
from turnwise.data.readers import read_chunk
from turnwise.data.recipe import TRAIN, VALIDATION, Recipe
from turnwise.data.schemas import ENCODED_SCHEMA, SAMPLE
from turnwise.data.shards import SUFFIXES, Shard, sync_folder, write_file, write_shard
from turnwise.data.tally import Tally
from turnwise.errors import DataError, TurnwiseError
from turnwise.messages import JsonMapping, JsonObject
from turnwise.tokens.tokenizers import files
from turnwise.tokens.tokenizers.pickling import compute_fingerprint
from turnwise.tokens.tokenizers.protocol import Tokenizer

DONE, ENCODED, UNPACKED, DROPS = "done", "encoded", "unpacked", "drops"
FOLDERS = (DONE, ENCODED, UNPACKED)


@dataclass(frozen=True, slots=True)
class Partition:
    """One shard of the second stage: a range of the shuffled order, or the samples of one chunk.

    Attributes:
        number: its place among the shards.
        chunk: the name of the chunk; None if the run is shuffled.
    """

    number: int
    chunk: str | None = None

    @property
    def name(self) -> str:
        """The name of the partition in file names."""
        return f"shard-{self.number:06d}"

    def describe(self) -> str:
        """Return what this is, for a sentence."""
        return f"output shard {self.number}"


Task = InputChunk | Partition


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task wrote.

    Attributes:
        name: the name of the task.
        tally: what became of its rows and samples.
        shards: the shards, under their names in the work folder.
        files: the other files: path in the work folder -> (size, SHA-256).
        samples, tokens: how many samples were encoded, for progress.
        size: the bytes of input that it read.
    """

    name: str
    tally: Tally
    shards: tuple[Shard, ...] = ()
    files: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    samples: int = 0
    tokens: int = 0
    size: int = 0

    def to_json(self) -> JsonObject:
        """Return the fields as a JSON object."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        shards = [asdict(shard) for shard in self.shards]
        return {**values, "tally": self.tally.to_json(), "shards": shards}

    @classmethod
    def from_json(cls, values: JsonMapping) -> Outcome:
        """Return the outcome that `to_json` wrote."""
        shards = tuple(Shard(**shard) for shard in values["shards"])
        return cls(**{**values, "tally": Tally.from_json(values["tally"]), "shards": shards})


@dataclass
class Job:
    """Everything that a worker must know.

    Args:
        recipe: the recipe.
        work: the work folder.
        partitions: the number of shards of a shuffled run.
    """

    recipe: Recipe
    work: Path
    partitions: int

    def __reduce__(self) -> tuple[Any, ...]:
        return Job, (self.recipe, self.work, self.partitions)

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel, with template and tokenizer loaded."""
        return Kernel(self.recipe).load()

    def load(self, load_tokenizer: Callable[[], Tokenizer]) -> Job:
        """Return the job with its template loaded, and then its tokenizer.

        Raises:
            TurnwiseError: one of them cannot be loaded.
        """
        template = Kernel(self.recipe).template
        with suppress(TurnwiseError):  # comes again when the kernel is loaded
            template.grammar  # noqa: B018  # is derived while the tokenizer loads
        recipe = replace(self.recipe, template=template, tokenizer=load_tokenizer())
        return replace(self, recipe=recipe)

    @property
    def has_two_stages(self) -> bool:
        """Whether samples of different chunks meet: to be shuffled, or to be compared."""
        return self.recipe.shuffle is not None or self.recipe.deduplicate

    def describe(self) -> dict[str, str]:
        """Return the digests of template and tokenizer."""
        return {
            "template": _digest([self.kernel.template.source]),
            "tokenizer": digest_tokenizer(self.kernel.tokenizer),
        }

    def perform(self, task: Task) -> Outcome:
        """Do a task, and write its record.

        Raises:
            TurnwiseError: it cannot be done; nothing of it counts then.
        """
        try:
            outcome = self._encode(task) if isinstance(task, InputChunk) else self._assemble(task)
        except (TurnwiseError, MemoryError):
            raise
        except Exception as error:  # a defect: it is named with the rows that show it
            raise DataError(
                f"{task.describe()}: unexpected {type(error).__name__}: {error}",
                hint="This is a defect of turnwise; please report it with these rows.",
            ) from error
        done = self.work / DONE
        # One sync for the names of all files: should a name be lost with the power, the record does not match.
        write_file(done / f"{task.name}.json", json.dumps(outcome.to_json()).encode())
        sync_folder(done)
        if isinstance(task, InputChunk) and task.is_unpacked:
            Path(task.path).unlink(missing_ok=True)
        return outcome

    # -- a chunk ---------------------------------------------------------------------------------------------------

    def _encode(self, chunk: InputChunk) -> Outcome:
        tally = Tally()
        rejected: list[bytes] = []
        batches = list(self._encode_rows(chunk, tally, rejected))
        tally.check(chunk.describe())
        samples = pa.Table.from_batches(batches, schema=ENCODED_SCHEMA)
        files: dict[str, Sequence[Any]] = {}
        shards: tuple[Shard, ...] = ()
        if rejected:
            name = f"{DONE}/{chunk.name}.rejected"
            data = b"".join(rejected)
            files[name] = (len(data), write_file(self.work / name, data))
        tokens = sum(len(batch["input_ids"].flatten()) for batch in batches)
        if self.has_two_stages:
            name = f"{ENCODED}/{chunk.name}"
            files[name] = exchange.write_encoded(samples, self.work / name, self.recipe.shuffle)
            sync_folder(self.work / ENCODED)
        else:
            shards = self._write_shards(samples, chunk.name, tally)
        return Outcome(chunk.name, tally, shards, files, len(samples), tokens, chunk.size)

    def _encode_rows(
        self, chunk: InputChunk, tally: Tally, rejected: list[bytes]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the samples of a chunk; count rows that give none, and collect the bad ones as JSON Lines."""
        for rows in read_chunk(chunk, self.recipe.columns):
            encoded = self.kernel(rows)
            for record in tally.count_batch(encoded):
                self._refuse(record)
                rejected.append(_write_rejected(record))
            is_sample = pc.equal(encoded["status"], SAMPLE)
            # A filter copies all ids, which is for nothing where all rows are good.
            yield encoded if is_sample.true_count == len(encoded) else encoded.filter(is_sample)

    def _refuse(self, record: JsonMapping) -> None:
        if self.recipe.on_bad_row == "fail":
            at = f", byte {record['offset']}" if record["offset"] >= 0 else ""
            raise DataError(
                f"{record['file']}, row {record['row']}{at}: {record['reason']}",
                hint='on_bad_row="quarantine" leaves such rows out and lists them.',
            )

    # -- shards ----------------------------------------------------------------------------------------------------

    def _assemble(self, partition: Partition) -> Outcome:
        """Make one shard of the second stage."""
        encoded, drops = self.work / ENCODED, self.work / DROPS
        if partition.chunk is None:
            paths = list_encoded(self.work)
            samples = exchange.collect_partition(paths, drops, partition.number, self.partitions)
        else:
            samples = exchange.read_survivors(encoded / partition.chunk, drops)
        tally = Tally()
        shards = self._write_shards(samples, partition.name, tally)
        return Outcome(partition.name, tally, shards)

    def _write_shards(self, samples: pa.Table, name: str, tally: Tally) -> tuple[Shard, ...]:
        shards = []
        row_length = self.recipe.max_length if self.recipe.packing != "none" else None
        chosen = {TRAIN: samples}
        if self.recipe.validation:
            chosen = {
                split: samples.filter(pc.equal(samples["split"], split))
                for split in (TRAIN, VALIDATION)
            }
        for split, part in chosen.items():
            if not len(part):
                continue
            table = finish(part, self.recipe)
            tokens = tally.count_samples(part, len(table), row_length)
            suffix = SUFFIXES[self.recipe.shard_format]
            path = self.work / DONE / f"{name}.{split}{suffix}"
            shards.append(write_shard(table, tokens, path, split, self.recipe.shard_format))
        return tuple(shards)


def list_encoded(work: Path) -> list[Path]:
    """Return the files of encoded samples in the order of their chunks."""
    return sorted(path for path in (work / ENCODED).iterdir() if not path.name.startswith("."))


def _write_rejected(record: JsonMapping) -> bytes:
    """Return a line of `rejected.jsonl`."""
    line = {name: record[name] for name in ("file", "row", "offset", "kind", "reason")}
    try:
        line["raw"] = record["raw"].decode("utf-8")
    except UnicodeDecodeError:
        line["raw_base64"] = base64.b64encode(record["raw"]).decode("ascii")
    return json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


# -- digests: they tell whether two runs would write the same shards ---------------------------------------------


def digest_tokenizer(tokenizer: Tokenizer) -> str:
    """Return a digest of the files of a tokenizer; for one given as an object, of its ids for some texts."""
    name = getattr(getattr(tokenizer, "source", None), "name", None)
    if not isinstance(name, str):
        return _digest([compute_fingerprint(tokenizer)])
    path = files.SHIPPED if name == "turnwise" else files.resolve(name)
    contents = []
    for file in _list_tokenizer_files(path):
        with open(file, "rb") as stream:
            contents.append([file.name, hashlib.file_digest(stream, "sha256").hexdigest()])
    return _digest(contents)


def _list_tokenizer_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.iterdir() if file.is_file() and "token" in file.name)


def digest_inputs(surveys: Iterable[Survey]) -> str:
    """Return a digest of names and contents of the input files, in their order."""
    return _digest([survey.file.path, survey.sha256] for survey in surveys)


def _digest(values: Iterable[Any]) -> str:
    text = json.dumps(list(values))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

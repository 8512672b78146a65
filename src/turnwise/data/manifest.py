"""The manifest of an output folder: what is in it, what it was made from, and what became of every row.

`manifest.json` is written last of all. A folder that has one is complete; one without is not, whatever else is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa

from turnwise.data.chunks import Survey
from turnwise.data.recipe import Recipe
from turnwise.data.shards import Shard, is_whole
from turnwise.data.tally import LENGTH_BOUNDS, SHARE_BUCKETS, Tally
from turnwise.errors import DataError, short_repr
from turnwise.local_files import error_reason

MANIFEST = "manifest.json"
VERSION = 1
MAX_COLUMNS = 1000  # that are listed as not read
MAX_DIFFERENCES = 5  # that an error lists
WITHOUT_EFFECT = ("output", "on_bad_row")


@dataclass(frozen=True, slots=True)
class Identity:
    """What decides about every byte of the shards.

    Attributes:
        recipe: the values of the recipe.
        digests: of recipe, template, tokenizer and inputs.
        inputs: path, size and SHA-256 of each input file.
        versions: of turnwise, and of what encodes and writes.
    """

    recipe: Mapping[str, Any]
    digests: Mapping[str, str]
    inputs: Sequence[Mapping[str, Any]]
    versions: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return {
            "recipe": dict(self.recipe),
            "digests": dict(self.digests),
            "inputs": [dict(file) for file in self.inputs],
            "versions": dict(self.versions),
        }

    def list_differences(self, other: Mapping[str, Any]) -> list[str]:
        """Return what differs from the identity that a folder has: sentences' parts, the most telling first."""
        found = []
        before = other.get("recipe", {})
        for name, value in self.recipe.items():
            if before.get(name) != value:
                found.append(f"{name} was {short_repr(before.get(name))}, now {short_repr(value)}")
        for name in ("template", "tokenizer", "recipe"):
            if not found and other.get("digests", {}).get(name) != self.digests[name]:
                found.append(f"the content of the {name} has changed")
        files = {file["path"]: file["sha256"] for file in other.get("inputs", ())}
        for file in self.inputs:
            if files.pop(file["path"], file["sha256"]) != file["sha256"]:
                found.append(f"{file['path']} has changed")
        if other.get("digests", {}).get("inputs") != self.digests["inputs"] and not found:
            found.append("other input files, or in another order")
        for name, version in self.versions.items():
            if other.get("versions", {}).get(name) != version:
                found.append(f"{name} was {other.get('versions', {}).get(name)}, now {version}")
        return found


def make_identity(
    recipe: Recipe, digests: Mapping[str, str], surveys: Sequence[Survey]
) -> Identity:
    """Return the identity of a run; `digests` has those of template, tokenizer and inputs."""
    values = {
        name: value for name, value in recipe.to_mapping().items() if name not in WITHOUT_EFFECT
    }
    return Identity(
        recipe=values,
        digests={"recipe": recipe.digest, **digests},
        inputs=[
            {"path": survey.file.path, "size": survey.file.size, "sha256": survey.sha256}
            for survey in surveys
        ],
        versions=list_versions(),
    )


def list_versions() -> dict[str, str]:
    """Return the versions of the packages that decide about bytes."""
    versions = {"pyarrow": pa.__version__}
    for name in ("turnwise", "fastokens", "tokenizers"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "unknown"
    return versions


def make_manifest(
    identity: Identity, tally: Tally, shards: Sequence[Shard], notes: Sequence[str]
) -> dict[str, Any]:
    """Return the manifest of a complete run."""
    efficiency = None
    if identity.recipe["packing"] != "none" and tally.shard_rows:
        efficiency = round(tally.tokens / (tally.tokens + tally.padding), 4)
    return {
        "version": VERSION,
        "turnwise": identity.versions["turnwise"],
        **identity.to_json(),
        "rows": {
            "in": tally.rows_in,
            "out": tally.rows_out,
            "rejected": tally.rejected,
            "filtered": tally.filtered,
        },
        "samples": tally.samples,
        "tokens": {
            "all": tally.tokens,
            "trained": tally.trained,
            "lost": tally.lost,
            "padding": tally.padding,
        },
        "duplicates": tally.duplicates,
        "nulls_removed": tally.nulls_removed,
        "unread": dict(tally.unread.most_common(MAX_COLUMNS)),
        "carried": dict(tally.carried.most_common(MAX_COLUMNS)),
        "reasons": dict(sorted(tally.reasons.items())),
        "flaws": dict(sorted(tally.flaws.items())),
        "lengths": _list_lengths(tally),
        "trained_share": [
            [(bucket + 1) / SHARE_BUCKETS, tally.shares[bucket]] for bucket in range(SHARE_BUCKETS)
        ],
        "packing": {"rows": tally.shard_rows, "efficiency": efficiency},
        "shards": [shard.to_json() for shard in shards],
        "notes": list(notes),
    }


def _list_lengths(tally: Tally) -> list[list[int]]:
    """Return the histogram of lengths, from the first bucket that has samples to the last."""
    if not tally.lengths:
        return []
    buckets = range(min(tally.lengths), max(tally.lengths) + 1)
    last = len(LENGTH_BOUNDS) - 1
    return [[LENGTH_BOUNDS[min(bucket, last)], tally.lengths[bucket]] for bucket in buckets]


def dump_json(value: Any) -> bytes:
    """Return a JSON document for people to read."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass") + b"\n"


def read_json(path: Path) -> Any:
    """Read a JSON file that a run has written; None if there is none.

    Raises:
        DataError: it cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{short_repr(str(path), 200)} cannot be read: {error_reason(error)}",
            hint="Remove the folder, and run it again.",
        ) from error


def refuse_other_run(folder: Path, identity: Identity, other: Mapping[str, Any]) -> None:
    """Refuse a folder that another run has begun or finished.

    Raises:
        DataError: it is another one, with what differs.
    """
    differences = identity.list_differences(other)
    if differences:
        listed = "; ".join(differences[:MAX_DIFFERENCES])
        more = len(differences) - MAX_DIFFERENCES
        raise DataError(
            f"{short_repr(str(folder), 200)} belongs to another run: {listed}"
            + (f"; and {more} more" if more > 0 else ""),
            hint="Choose another output folder, or remove this one.",
        )


def check_shards(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check that the shards of a complete folder are there, and unchanged.

    Raises:
        DataError: one is missing or damaged.
    """
    for shard in manifest["shards"]:
        if not is_whole(folder / shard["path"], shard["size"], shard["sha256"]):
            raise DataError(
                f"{shard['path']} in {short_repr(str(folder), 200)} is missing or was changed",
                hint="Remove the folder, and run it again.",
            )

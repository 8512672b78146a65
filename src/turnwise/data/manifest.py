"""The manifest of an output folder: what is in it, what it was made from, and what became of every row.

`manifest.json` is written last of all. A folder that has one is complete; one without is not, whatever else is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa

from turnwise.data.chunks import Survey
from turnwise.data.recipe import Recipe
from turnwise.data.shards import Shard, is_whole
from turnwise.data.tally import LENGTH_BOUNDS, SHARE_BUCKETS, Tally
from turnwise.errors import DataError, short_repr
from turnwise.local_files import error_reason, read_table
from turnwise.messages import JsonMapping, JsonObject

MANIFEST = "manifest.json"
MAX_MANIFEST = 64 * 2**20  # bytes
VERSION = 1
MAX_COLUMNS = 1000  # that are listed as not read
MAX_DIFFERENCES = 5  # that an error lists
NOT_COMPARED = ("output", "on_bad_row")


def is_text(value: Any) -> bool:
    """Return whether a value of a manifest is a text."""
    return isinstance(value, str)


def is_count(value: Any) -> bool:
    """Return whether a value of a manifest is a number of things."""
    return type(value) is int and 0 <= value < 1 << 63


def is_share(value: Any) -> bool:
    """Return whether a value of a manifest is a part of a whole."""
    return type(value) in (int, float) and 0 <= value <= 1


def is_place(value: Any) -> bool:
    """Return whether a value of a manifest is a path that does not leave its folder."""
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    path = PurePath(value)
    return not path.is_absolute() and ".." not in path.parts


# A shape is a function that knows a value, {name: shape} for the members that an object must have, {"*": shape} for all
# of its members, [shape] for the elements of a list, or (shape, shape) for a list of two.
Shape = Any
IDENTITY: Shape = {
    "recipe": {},
    "digests": {"*": is_text},
    "inputs": [{"path": is_text, "size": is_count, "sha256": is_text}],
    "versions": {"*": is_text},
}
SHARD: Shape = {"path": is_place, "split": is_text, "sha256": is_text} | dict.fromkeys(
    ("rows", "tokens", "size"), is_count
)
COMPLETE: Shape = {
    **IDENTITY,
    "turnwise": is_text,
    "rows": dict.fromkeys(("in", "out", "rejected", "filtered"), is_count),
    "samples": is_count,
    "tokens": dict.fromkeys(("all", "trained", "lost", "padding"), is_count),
    "nulls_removed": is_count,
    "rewritten": is_count,
    "unread": {"*": is_count},
    "carried": {"*": is_count},
    "reasons": {"*": is_count},
    "flaws": {"*": is_count},
    "duplicates": is_count,
    "lengths": [(is_count, is_count)],
    "trained_share": [(is_share, is_count)],
    "packing": {"rows": is_count, "efficiency": lambda value: value is None or is_share(value)},
    "shards": [SHARD],
    "notes": [is_text],
}
PUBLICATION: Shape = {"manifest": COMPLETE, "moves": [(is_place, is_place)], "rejected": [is_place]}


def find_misfit(value: Any, shape: Shape, path: str = "") -> str | None:
    """Return the path of the first value of a manifest that is missing or of another kind; None if there is none."""
    if isinstance(shape, list | tuple):
        if not isinstance(value, list) or isinstance(shape, tuple) and len(value) != len(shape):
            return path
        inners = shape * len(value) if isinstance(shape, list) else shape
        members = [(f"{path}[]", *both) for both in zip(value, inners, strict=True)]
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            return path
        shapes = dict.fromkeys(value, shape["*"]) if "*" in shape else shape
        missing = shapes.keys() - value.keys()
        if missing:
            return f"{path}.{min(missing)}"
        members = [(f"{path}.{name}", value[name], inner) for name, inner in shapes.items()]
    else:
        return None if shape(value) else path
    found = (find_misfit(item, inner, place) for place, item, inner in members)
    return next((one for one in found if one is not None), None)


@dataclass(frozen=True, slots=True)
class Identity:
    """What decides about every byte of the shards.

    Attributes:
        recipe: the values of the recipe.
        digests: of recipe, template, tokenizer and inputs.
        inputs: path, size and SHA-256 of each input file.
        versions: of turnwise, and of what encodes and writes.
    """

    recipe: JsonMapping
    digests: Mapping[str, str]
    inputs: Sequence[JsonMapping]
    versions: Mapping[str, str]

    def list_differences(self, other: JsonMapping) -> list[str]:
        """Return what differs from the identity that a folder has: sentences' parts, the most telling first."""
        found = []
        before = other["recipe"]
        for name, value in self.recipe.items():
            if name not in before or before[name] != value:
                found.append(f"{name} was {short_repr(before.get(name))}, now {short_repr(value)}")
        for name in ("template", "tokenizer", "recipe"):
            if not found and other["digests"].get(name) != self.digests[name]:
                found.append(f"the content of the {name} has changed")
        files = {file["path"]: file["sha256"] for file in other["inputs"]}
        for file in self.inputs:
            if files.pop(file["path"], file["sha256"]) != file["sha256"]:
                found.append(f"{file['path']} has changed")
        if other["digests"].get("inputs") != self.digests["inputs"] and not found:
            found.append("other input files, or in another order")
        for name, version in self.versions.items():
            if other["versions"].get(name) != version:
                known = other["versions"].get(name, "unknown")
                found.append(f"{name} was {known:.80}, now {version}")
        return found


def make_identity(
    recipe: Recipe, digests: Mapping[str, str], surveys: Sequence[Survey]
) -> Identity:
    """Return the identity of a run; `digests` has those of template, tokenizer and inputs."""
    values = {
        name: value for name, value in recipe.to_mapping().items() if name not in NOT_COMPARED
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
) -> JsonObject:
    """Return the manifest of a complete run."""
    efficiency = None
    if identity.recipe["packing"] != "none" and tally.shard_rows:
        efficiency = round(tally.tokens / (tally.tokens + tally.padding), 4)
    return {
        "version": VERSION,
        "turnwise": identity.versions["turnwise"],
        **asdict(identity),
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
        "rewritten": tally.rewritten,
        "reasons": dict(sorted(tally.reasons.items())),
        "flaws": dict(sorted(tally.flaws.items())),
        "lengths": _list_lengths(tally),
        "trained_share": [
            [(bucket + 1) / SHARE_BUCKETS, tally.shares[bucket]] for bucket in range(SHARE_BUCKETS)
        ],
        "packing": {"rows": tally.shard_rows, "efficiency": efficiency},
        "shards": [asdict(shard) for shard in shards],
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


def read_json(path: Path, shape: Shape, folder: Path | None = None) -> Any:
    """Read a JSON file that a run has written, and that is not a link out of `folder`; None if there is none.

    Raises:
        DataError: it cannot be read, is not JSON, or has another shape than what a run writes.
    """
    try:
        value = read_table(path, MAX_MANIFEST, folder)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{short_repr(str(path), 200)} cannot be read: {error_reason(error)}",
            hint="Remove the folder, and run it again.",
        ) from error
    misfit = find_misfit(value, shape)
    if misfit is not None:
        raise DataError(
            f"{short_repr(str(path), 200)} is not what `turnwise prepare` writes: "
            f"{short_repr(misfit.lstrip('.')) if misfit else 'it'} is missing, of another kind, or outside its folder",
            hint="Remove the folder, and run it again.",
        )
    return value


def refuse_other_run(folder: Path, identity: Identity, other: JsonMapping) -> None:
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


def check_shards(folder: Path, manifest: JsonMapping) -> None:
    """Check that the shards of a complete folder are there, unchanged, and all that the accounts speak of.

    Raises:
        DataError: one is missing or damaged, or the sums of the manifest are wrong.
    """
    rows = manifest["rows"]
    written = sum(shard["rows"] for shard in manifest["shards"])
    are_counted = rows["in"] == rows["out"] + rows["rejected"] + rows["filtered"]
    if not are_counted or written != manifest["packing"]["rows"]:
        raise DataError(
            f"the sums of {MANIFEST} in {short_repr(str(folder), 200)} are wrong: rows or shards are missing",
            hint="Remove the folder, and run it again.",
        )
    for shard in manifest["shards"]:
        if not is_whole(folder / shard["path"], shard["size"], shard["sha256"]):
            raise DataError(
                f"{shard['path']} in {short_repr(str(folder), 200)} is missing or was changed",
                hint="Remove the folder, and run it again.",
            )

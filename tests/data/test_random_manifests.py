"""A folder with any `manifest.json` is refused by a clear error, or is what `prepare` wrote; nothing else leaves."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from prepared_folders import make_folder_recipe, make_rows, write_jsonl
from turnwise.data import prepare
from turnwise.data.manifest import (
    COMPLETE,
    IDENTITY,
    MANIFEST,
    PUBLICATION,
    Identity,
    check_shards,
    read_json,
    refuse_other_run,
)
from turnwise.data.pages import write_page, write_report, write_summary
from turnwise.data.prepared_folder import PreparedFolder
from turnwise.errors import DataError, TurnwiseError

COUNT = 1_000
SCALARS = (
    None,
    True,
    -1,
    0,
    1.5,
    1 << 70,
    "",
    "x",
    "../x",
    "/etc/passwd",
    "\0",
    "\ud800",
    [],
    {},
    [[]],
)
DEEP = (
    "[" * 100_000,
    "[" * 100_000 + "]" * 100_000,
    '{"shards":' * 100_000,
    '{"a":' * 50_000 + "1" + "}" * 50_000,
)
BROKEN = (
    b"",
    b"\xff",
    b"[]",
    b"null",
    b"1",
    b'"a"',
    b"{}",
    b"{",
    b'{"shards": []}',
    b"NaN",
    b"1" * 5_000,
)


def list_places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    members = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, member in members:
        yield from list_places(member, (*place, key))


def mutate(value: Any, chance: random.Random) -> Any:
    """Change one to three places: another value, a value of elsewhere, or nothing at all."""
    value = copy.deepcopy(value)
    for _ in range(chance.randint(1, 3)):
        places = list(list_places(value))
        place = chance.choice(places)
        if not place:
            return chance.choice(SCALARS)
        owner = value
        for key in place[:-1]:
            owner = owner[key]
        kind = chance.random()
        if kind < 0.25:
            del owner[place[-1]]
        elif kind < 0.5:
            other = value
            for key in chance.choice(places[: places.index(place) + 1]):
                other = other[key]
            owner[place[-1]] = copy.deepcopy(other)
        else:
            owner[place[-1]] = chance.choice(SCALARS)
    return value


def make_json(chance: random.Random, depth: int = 0) -> Any:
    names = ["recipe", "digests", "inputs", "shards", "versions", "rows", "path", "a"]
    kind = chance.random()
    if depth > 4 or kind < 0.4:
        return chance.choice(SCALARS)
    count = chance.randint(0, 5)
    if kind < 0.6:
        return [make_json(chance, depth + 1) for _ in range(count)]
    return {chance.choice(names): make_json(chance, depth + 1) for _ in range(count)}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A data set, and the folder that was made of it."""
    folder = tmp_path_factory.mktemp("manifests")
    data = write_jsonl(folder / "data.jsonl", make_rows(3))
    prepare(make_folder_recipe(data, folder / "out"), workers=1)
    return data, folder / "out"


def list_manifests(whole: Any, count: int) -> Iterator[bytes]:
    chance = random.Random(5)
    yield from BROKEN
    yield from (text.encode() for text in DEEP)
    for number in range(count):
        value = mutate(whole, chance) if number % 4 else make_json(chance)
        yield json.dumps(value).encode()


def resume(folder: Path, identity: Identity) -> None:
    """Do with a manifest what a run does that finds one."""
    found = read_json(folder / MANIFEST, COMPLETE)
    refuse_other_run(folder, identity, found)
    check_shards(folder, found)
    write_summary(found, str(folder))
    write_page(found)
    write_report(found)


def test_random_manifests_are_refused_or_right(finished_run: tuple[Path, Path]) -> None:
    folder = finished_run[1]
    path = folder / MANIFEST
    whole = path.read_bytes()
    value = json.loads(whole)
    identity = Identity(*(value[name] for name in IDENTITY))
    resume(folder, identity)
    tried = refused = 0
    for text in list_manifests(value, COUNT):
        path.write_bytes(text)
        for use in (
            lambda: resume(folder, identity),
            lambda: read_json(path, PUBLICATION),
            lambda: PreparedFolder(folder).read_rows(),
        ):
            tried += 1
            try:
                use()
            except TurnwiseError:  # any other fails the test
                refused += 1
    path.write_bytes(whole)
    assert refused > 0.7 * tried


@pytest.mark.slow
def test_a_run_over_random_manifests_ends_or_is_refused(finished_run: tuple[Path, Path]) -> None:
    data, folder = finished_run
    path = folder / MANIFEST
    whole = path.read_bytes()
    recipe = make_folder_recipe(data, folder)
    for text in list_manifests(json.loads(whole), 25):
        path.write_bytes(text)
        with suppress(TurnwiseError):
            prepare(recipe, workers=1)
    path.write_bytes(whole)
    assert prepare(recipe, workers=1).was_finished


@pytest.mark.parametrize("change", ["a count", "a shard"])
def test_a_manifest_whose_sums_are_wrong_is_refused(
    change: str, finished_run: tuple[Path, Path]
) -> None:
    folder = finished_run[1]
    path = folder / MANIFEST
    whole = path.read_bytes()
    value = json.loads(whole)
    identity = Identity(*(value[name] for name in IDENTITY))
    if change == "a shard":
        del value["shards"][-1]
    else:
        value["rows"]["out"] -= 1
    path.write_text(json.dumps(value))
    with pytest.raises(DataError, match="sums"):
        resume(folder, identity)
    path.write_bytes(whole)

"""Ray writes the bytes of local workers, `datasets.map` gives the same samples, and loaders read the shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prepared_folders import make_folder_recipe, make_rows, read_folder, write_jsonl
from turnwise.data import Report, prepare
from turnwise.data.ray import pass_environment
from turnwise.errors import DataError

ROWS = make_rows(60)
BAD = {"messages": [{"role": "user", "content": "nobody answers"}]}
EVERYTHING = {
    "shuffle": 1,
    "deduplicate": True,
    "validation": 0.2,
    "packing": "best-fit",
    "max_length": 256,
}

pytestmark = pytest.mark.filterwarnings("ignore")  # of other packages


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "data.jsonl", [*ROWS[:40], b"{", BAD, *ROWS[30:]])


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    """A cluster of two processors on this machine."""
    ray = pytest.importorskip("ray")
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        "RAY_worker_niceness": "0",  # or its workers wait for everything else on this machine
    }
    with pytest.MonkeyPatch.context() as patch, pass_environment():
        for name, value in settings.items():
            patch.setenv(name, value)
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 << 20,
            logging_level="error",
            log_to_driver=False,
        )
        try:
            yield ray
        finally:
            ray.shutdown()


def check_ray(data: Path, tmp_path: Path, values: dict[str, Any]) -> Report:
    expected = prepare(make_folder_recipe(data, tmp_path / "local", **values), workers=1)
    recipe = make_folder_recipe(data, tmp_path / "ray", **values)
    report = prepare(recipe, engine="ray", workers=2)
    assert report.manifest == expected.manifest
    assert read_folder(tmp_path / "ray") == read_folder(tmp_path / "local")
    return report


@pytest.mark.law
@pytest.mark.once
def test_ray_writes_the_same_bytes_and_reads_them(
    data: Path, tmp_path: Path, ray_cluster: Any
) -> None:
    report = check_ray(data, tmp_path, {"validation": 0.2})
    pytest.importorskip("aiohttp", reason="without it fsspec breaks Ray's reader of Parquet")
    rows = ray_cluster.data.read_parquet([str(path) for path in report.shards]).count()
    assert rows == report.manifest["samples"]


@pytest.mark.slow
def test_ray_in_two_stages_writes_the_same_bytes(
    data: Path, tmp_path: Path, ray_cluster: Any
) -> None:
    check_ray(data, tmp_path, EVERYTHING)
    failing = make_folder_recipe(data, tmp_path / "fails", on_bad_row="fail")
    with pytest.raises(DataError, match=r"data\.jsonl, row 4[12]"):
        prepare(failing, engine="ray", workers=1)


# -- loaders ---------------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_shards_load_with_datasets_and_torch(data: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "out"
    report = prepare(make_folder_recipe(data, folder, validation=0.2), workers=1)
    cache = str(tmp_path / "cache")
    by_pattern = datasets.load_dataset(
        "parquet", data_files=str(folder / "train-*"), split="train", cache_dir=cache
    )
    whole = datasets.load_dataset(str(folder), cache_dir=cache)  # the page names the splits
    assert set(whole) == {"train", "validation"}
    assert whole["train"]["source_row"][:] == by_pattern["source_row"][:]
    assert len(whole["train"]) + len(whole["validation"]) == report.manifest["samples"]
    try:
        import torch  # noqa: F401

        kind = "torch"
    except ImportError:
        kind = "numpy"
    row = by_pattern.with_format(kind)[0]
    assert row["input_ids"].shape == row["labels"].shape == row["attention_mask"].shape


@pytest.mark.once
def test_arrow_shards_load_with_datasets(data: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    report = prepare(make_folder_recipe(data, tmp_path / "out", shard_format="arrow"), workers=1)
    files = [str(path) for path in report.shards]
    loaded = datasets.load_dataset("arrow", data_files=files, cache_dir=str(tmp_path / "cache"))
    assert len(loaded["train"]) == report.manifest["samples"]

"""Training shards on a cluster of 1, 2 and 4 nodes of Ray: `python benchmarks/ray_nodes.py`.

The rows are those of `prepare.py`. Ray simulates the nodes on this machine, each with one processor and an actor that
loads the tokenizer by itself, so more nodes than processors cannot be faster: the table says how many there are. Time
counts from the call of `prepare` to the last file, with the cluster running; beside it that of local workers, which
share one tokenizer. All must write the same shards.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import measure
from prepare import ROWS, Data, write_data

NODES = (1, 2, 4)
QUICK_ROWS = 2_000
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}


def run(data: Data, count: int, place: Path, **engine: Any) -> tuple[float, list[str]]:
    """Prepare the rows; return the seconds, and the hashes of the shards."""
    from turnwise.data import Recipe, prepare

    recipe = Recipe((str(data.rows(count)),), str(data.template), str(data.tokenizer), str(place))
    start = perf_counter()
    report = prepare(recipe, **engine)
    return perf_counter() - start, [shard["sha256"] for shard in report.manifest["shards"]]


def run_on_nodes(data: Data, count: int, place: Path, nodes: int) -> tuple[float, list[str]]:
    """Start so many nodes, and prepare the rows on them."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    for _ in range(nodes):
        cluster.add_node(num_cpus=1, object_store_memory=100 << 20, include_dashboard=False)
    ray.init(address=cluster.address, logging_level=logging.ERROR, log_to_driver=False)
    try:
        return run(data, count, place, engine="ray", workers=nodes)
    finally:
        ray.shutdown()
        cluster.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description="Shards on simulated nodes of Ray.")
    parser.add_argument("--quick", action="store_true", help="fewer rows, noisier figures")
    asked = parser.parse_args()
    os.environ.update(SETTINGS)
    count = QUICK_ROWS if asked.quick else ROWS
    with tempfile.TemporaryDirectory() as folder:
        data = write_data(Path(folder), {count})
        found = {
            f"{number} local": run(data, count, Path(folder) / f"local{number}", workers=number)
            for number in NODES[:2]
        }
        for number in NODES:
            found[f"{number} of Ray"] = run_on_nodes(
                data, count, Path(folder) / f"{number}", number
            )
    if len({tuple(hashes) for _, hashes in found.values()}) > 1:
        raise SystemExit("the shards differ")
    print(f"{count:,} rows, {os.cpu_count()} processors")
    rows = [[name, f"{time:.1f}", f"{count / time:,.0f}"] for name, (time, _) in found.items()]
    print(measure.table(["workers", "seconds", "rows/s"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

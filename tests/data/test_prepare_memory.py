"""The memory of a run does not grow with the number of rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prepared_folders import make_rows, write_jsonl

CODE = """
import resource, sys
sys.path[:] = {path!r}
from prepared_folders import make_folder_recipe
from turnwise.data import prepare
recipe = make_folder_recipe({data!r}, {output!r}, chunk_bytes=250_000, **{values!r})
report = prepare(recipe, workers=1)
print(report.rows["in"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def measure_peak(data: Path, output: Path, values: dict[str, Any]) -> tuple[int, int]:
    """Return the rows of a run in a process of its own, and its peak of memory."""
    code = CODE.format(path=sys.path, data=str(data), output=str(output), values=values)
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    rows, peak = map(int, process.stdout.split())
    return rows, peak


@pytest.mark.slow
@pytest.mark.parametrize(
    "values", [{}, {"shuffle": 1, "deduplicate": True, "packing": "best-fit", "max_length": 512}]
)
def test_memory_does_not_grow_with_rows(values: dict[str, Any], tmp_path: Path) -> None:
    rows = make_rows(1_500)
    peaks = []
    for copies in (4, 12):
        many = ({**row, "id": number} for number in range(copies) for row in rows)
        data = write_jsonl(tmp_path / f"{copies}.jsonl", many)
        found, peak = measure_peak(data, tmp_path / f"out{copies}", values)
        assert found == copies * len(rows)
        peaks.append(peak)
    assert peaks[1] < 1.1 * peaks[0], peaks

"""A worker process starts without packages that it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import turnwise

CODE = """
import sys
import pyarrow as pa
from turnwise.data.fork_server import keep_pandas_out
keep_pandas_out()
pa.array([b"a"], pa.binary())
pa.table({"a": [[1], None]}).to_pylist()
print("pandas" in sys.modules)
import pandas
print("pandas" in sys.modules)
"""


def test_pandas_is_not_imported_by_pyarrow() -> None:
    pytest.importorskip("pandas")
    source = str(Path(turnwise.__file__).parents[1])
    call = [sys.executable, "-c", f"import sys; sys.path.insert(0, {source!r}){CODE}"]
    found = subprocess.run(call, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]

"""What all tests share: the `--accept` switch, the corpus fixture, and a machine that is offline and repeatable."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import corpus as corpus_files
from turnwise.tokens.tokenizers import Tokenizer, tokenizer

# Reference software must not look for the network, whatever a test asks of it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

# Time limits are asserted where they are meant; a slow machine is no reason for a property to fail.
settings.register_profile("turnwise", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("turnwise")


# How many rows of a law the quick run takes: some that never change, and some that change from day to day. The day is
# kept in the environment, so that worker processes collect the same tests as the process that started them.
FIXED_ROWS, ROWS_OF_THE_DAY = 10, 4
DAY = os.environ.setdefault("TURNWISE_TEST_DAY", date.today().isoformat())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--laws",
        action="store_true",
        help="run tests marked `law` on all of their rows, not on a sample",
    )
    parser.addoption(
        "--accept",
        action="store_true",
        help="rewrite tests/cases/*.case with what turnwise says now",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test marked `law` a sample of its rows, unless all are asked for.

    A slow test that this run leaves out gets one row: to collect thousands takes seconds.
    """
    config, marks = metafunc.config, {mark.name for mark in metafunc.definition.iter_markers()}
    is_left_out = "slow" in marks and "not slow" in config.getoption("-m")
    is_sampled = "law" in marks and not config.getoption("--laws")
    if not is_left_out and not is_sampled:
        return
    parametrize = metafunc.parametrize

    def parametrize_sample(names: Any, rows: Any, *args: Any, **more: Any) -> None:
        rows = list(rows)
        chosen = [0] if is_left_out and rows else choose_rows(len(rows), metafunc.definition.nodeid)
        if isinstance(more.get("ids"), list | tuple):
            more["ids"] = [more["ids"][index] for index in chosen]
        parametrize(names, [rows[index] for index in chosen], *args, **more)

    metafunc.parametrize = parametrize_sample  # type: ignore[method-assign]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a law without rows, which is a long search, to the run that takes all rows."""
    if config.getoption("--laws"):
        return
    left = [item for item in items if "law" in item.keywords and not hasattr(item, "callspec")]
    if left:
        config.hook.pytest_deselected(items=left)
        found = set(left)
        items[:] = [item for item in items if item not in found]


def choose_rows(count: int, test: str) -> list[int]:
    """Return the rows that the quick run takes: evenly spread ones, and others by the day and the test's name."""
    if count <= FIXED_ROWS + ROWS_OF_THE_DAY:
        return list(range(count))
    fixed = {index * count // FIXED_ROWS for index in range(FIXED_ROWS)}
    others = [index for index in range(count) if index not in fixed]
    return sorted(fixed.union(random.Random(f"{DAY} {test}").sample(others, ROWS_OF_THE_DAY)))


@pytest.fixture
def accept(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--accept"))


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of the corpus; the test is skipped where there is none."""
    folder = corpus_files.folder()
    if folder is None:
        pytest.skip(corpus_files.ABSENT)
    return folder


@pytest.fixture(scope="session")
def tokenizers(corpus: Path) -> Callable[[str], Tokenizer]:
    """The corpus tokenizers by name. Each takes seconds to load, so it is loaded once, when it is asked for."""
    loaded: dict[str, Tokenizer] = {}

    def load_named(name: str) -> Tokenizer:
        if name not in loaded:
            loaded[name] = tokenizer(corpus_files.tokenizer_folder(name))
        return loaded[name]

    return load_named

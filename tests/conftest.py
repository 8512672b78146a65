"""What all tests share: the `--accept` switch, the corpus fixture, and a machine that is offline and repeatable."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

import corpus as corpus_files
from turnwise.engine import renderer
from turnwise.tokens.tokenizers import Tokenizer, tokenizer

# Reference software must not look for the network, whatever a test asks of it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
# The words that tests compare are English, whatever the language of the machine is.
os.environ.setdefault("TURNWISE_LANG", "en")

# Laws render few times with the same tools; they are about what is written from segments.
renderer.LEARNT_AFTER = 1

# Time limits are asserted where they are meant; a slow machine is no reason for a property to fail.
settings.register_profile("turnwise", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("turnwise")


# How many rows of a law the quick run takes: some that never change, and some that change from day to day; fewer of a
# law with costly rows, as in `law(2)`. The day is kept in the environment, so that worker processes collect the same
# tests as the process that started them.
FIXED_ROWS, ROWS_OF_THE_DAY = 10, 2
MANY_ROWS = 20
# Of a property's examples the quick run takes a quarter, which are always the same; the laws take all.
ALL_ROWS = 1_000_000
LEAST_EXAMPLES = 10
GOLDEN_RATIO = (1 + 5**0.5) / 2
DAY = os.environ.setdefault("TURNWISE_TEST_DAY", date.today().isoformat())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--laws",
        action="store_true",
        help="run tests marked `law` on all of their rows, not on a sample",
    )
    parser.addoption(
        "--parts",
        type=int,
        default=1,
        help="with --laws: of a law with many rows, run one of so many parts, another each day",
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
    config, law = metafunc.config, metafunc.definition.get_closest_marker("law")
    is_slow = metafunc.definition.get_closest_marker("slow") is not None
    is_left_out = is_slow and config.getoption("-m").startswith("not slow")
    if not is_left_out and (law is None or config.getoption("--laws")):
        return
    parametrize = metafunc.parametrize

    def parametrize_sample(names: Any, rows: Any, *args: Any, **more: Any) -> None:
        rows = list(rows)
        chosen = [0] if is_left_out and rows else choose_rows(len(rows), *getattr(law, "args", ()))
        if more.get("ids") is not None and not callable(more["ids"]):
            ids = list(more["ids"])
            more["ids"] = [ids[index] for index in chosen]
            more["_param_mark"] = None  # which would give them to other tests that it marks
        parametrize(names, [rows[index] for index in chosen], *args, **more)

    metafunc.parametrize = parametrize_sample  # type: ignore[method-assign]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Make a law of each property of hypothesis: all of its rows, and in the quick run fewer examples."""
    if not is_property(item):
        return
    if item.get_closest_marker("law") is None:
        item.add_marker(pytest.mark.law(ALL_ROWS))
    if not item.config.getoption("--laws") and item.get_closest_marker("slow") is None:
        shorten_property(item.obj)  # type: ignore[attr-defined]


def is_property(item: pytest.Item) -> bool:
    return is_hypothesis_test(getattr(item, "obj", None))


def shorten_property(test: Any) -> None:
    if hasattr(test, "all_examples"):  # another row of the same function
        return
    given = test._hypothesis_internal_use_settings
    test.all_examples = given.max_examples
    count = min(given.max_examples, max(LEAST_EXAMPLES, given.max_examples // 4))
    test._hypothesis_internal_use_settings = settings(given, max_examples=count)


@pytest.hookimpl(trylast=True)  # after what `-m` leaves out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is too much for this run to another.

    For the quick run that is a law without rows, which is a long search, unless it takes the fixture `sample` or is a
    property; and most rows of a law that is parametrised more than once. With `--laws` it is the other parts of laws
    with many rows.
    """
    parts, takes_all = config.getoption("--parts"), config.getoption("--laws")
    if takes_all and parts <= 1:
        return
    laws: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "law" in item.keywords:
            laws.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: set[pytest.Item] = set()
    for rows in laws.values():
        chosen: Sequence[int] = []
        if takes_all:
            step = parts if len(rows) >= MANY_ROWS else 1
            chosen = range(date.fromisoformat(DAY).toordinal() % step, len(rows), step)
        elif (
            hasattr(rows[0], "callspec") or is_property(rows[0]) or "sample" in rows[0].fixturenames  # type: ignore[attr-defined]
        ):
            chosen = choose_rows(len(rows), *rows[0].get_closest_marker("law").args)  # type: ignore[union-attr]
        left.update(set(rows) - {rows[index] for index in chosen})
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]


def choose_rows(count: int, fixed: int = FIXED_ROWS) -> list[int]:
    """Return the rows that the quick run takes: spread ones that never change, and fewer others by the day.

    They are spread by the golden ratio: equal steps would meet one value only of what is repeated in the rows. Tests
    over the same rows take the same ones, so that what is compiled or loaded for one serves the others.
    """
    of_the_day = min(ROWS_OF_THE_DAY, fixed // 2)
    if count <= fixed + of_the_day:
        return list(range(count))
    always = {int(index * GOLDEN_RATIO % 1 * count) for index in range(fixed)}
    others = [index for index in range(count) if index not in always]
    return sorted(always.union(random.Random(f"{DAY} {count}").sample(others, of_the_day)))


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Callable[..., list[Any]]:
    """Chooses among the rows that a law goes through by itself: all of them, or some in the quick run.

    `sample(rows)` takes ten fixed rows and two by the day, `sample(rows, 30)` thirty fixed ones. For a number of
    random examples: `len(sample(range(100)))`.
    """

    def choose(rows: Iterable[Any], fixed: int = FIXED_ROWS) -> list[Any]:
        rows = list(rows)
        if request.config.getoption("--laws"):
            return rows
        return [rows[index] for index in choose_rows(len(rows), fixed)]

    return choose


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

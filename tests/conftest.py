"""What all tests share: the `--accept` switch, the corpus fixture, and a machine that is offline and repeatable."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept",
        action="store_true",
        help="rewrite tests/cases/*.case with what turnwise says now",
    )


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

    def named(name: str) -> Tokenizer:
        if name not in loaded:
            loaded[name] = tokenizer(corpus_files.tokenizer_folder(name))
        return loaded[name]

    return named

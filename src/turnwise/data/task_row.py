"""Tasks and their outcomes as bytes, for engines that move rows of tables.

A task that fails answers with its error as data: what a cluster does with exceptions of its workers (retry, wrap,
print) would hide the one sentence that the user needs.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnwise.data.job import Job, Outcome
from turnwise.data.worker_processes import SETTINGS
from turnwise.errors import TurnwiseError


def perform_row(job: Job, task: bytes) -> bytes:
    """Do a pickled task, and return its outcome or its error, pickled."""
    try:
        return pickle.dumps(job.perform(pickle.loads(task)))
    except TurnwiseError as error:
        return pickle.dumps(error)


def read_answer(answer: bytes) -> Outcome:
    """Return the outcome of an answer.

    Raises:
        TurnwiseError: the task has failed.
    """
    found: Any = pickle.loads(answer)
    if isinstance(found, TurnwiseError):
        raise found
    outcome: Outcome = found
    return outcome


@contextmanager
def pass_environment() -> Iterator[None]:
    """Let processes that another library starts find the modules of this one, and use one thread each."""
    variables = {**SETTINGS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

"""Run the command line inside of the test process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner

from turnwise import cli


def run(*arguments: str | Path, stdin: str | bytes = "") -> Any:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], input=stdin)


def good(*arguments: str | Path, stdin: str | bytes = "") -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def bad(*arguments: str | Path, stdin: str | bytes = "") -> str:
    """The stderr of a call that failed."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 2, result.output
    assert result.stdout == "" and "Traceback" not in result.stderr
    assert isinstance(result.exception, SystemExit)
    return result.stderr

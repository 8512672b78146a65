"""Commands as click calls them, made of `commands.json`.

That file has the help and the options of all commands. `scripts/commands.py` writes it from the docstrings and
signatures of the functions, so that help, completion and the errors of a call need neither the functions nor the
engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

from turnwise.cli.completion import complete_value
from turnwise.cli.help import HelpCommand
from turnwise.errors import did_you_mean, short_repr
from turnwise.messages import JsonMapping

TYPES = {"text": str, "int": int, "float": float, "bool": bool, "path": Path}
RANGES: dict[str, Any] = {"int": click.IntRange, "float": click.FloatRange}


@cache
def read_table() -> JsonMapping:
    """Return the help and the parameters of all commands."""
    text = Path(__file__).with_name("commands.json").read_text(encoding="utf-8")
    table: JsonMapping = json.loads(text)
    return table


def make_command(name: str, run: Callable[..., None]) -> click.Command:
    """Return a command of the table."""
    row = read_table()[name]

    def call(colour: bool | None, **values: Any) -> None:  # --color is in the environment already
        run(**{key: _to_list(value) for key, value in values.items()})

    params = [make_param(**param) for param in row["params"]]
    return HelpCommand(name, callback=call, params=params, help="\n\n".join(row["help"]))


def _to_list(value: Any) -> Any:
    """Return the values of an option that may be repeated as a list, None if it was not given."""
    return (list(value) or None) if isinstance(value, tuple) else value


def make_param(
    names: list[str],
    help: str,
    type: str = "text",
    bounds: Mapping[str, float] | None = None,
    choices: Iterable[str] = (),
    **settings: Any,
) -> click.Parameter:
    """Return a parameter; `settings` are click's own."""
    kind: Any = RANGES[type](**bounds) if bounds else TYPES[type]
    if choices:
        kind = Names(choices)
    settings |= {"type": kind, "shell_complete": complete_value}
    if len(names) > 1:
        return click.Option(names, help=help, show_default=True, **settings)
    argument = click.Argument(names, **settings)
    argument.help = help  # which the constructor has since click 8.5
    return argument


class Names(click.types.StringParamType):
    """The type of a value that must be one of some names."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)

    def convert(self, value: str, param: click.Parameter | None, ctx: Any) -> str:
        """Return the value if it is known."""
        check_choice(value, self.names, param.opts[0] if param else "")
        return value


def check_choice(value: str | None, known: Iterable[str], flag: str) -> None:
    """Refuse a value of a flag that is not one of the known ones; None is a flag that was not given."""
    names = list(known)
    if value is not None and value not in names:
        hint = did_you_mean(value, names, "One of")
        raise click.BadParameter(f"{short_repr(value)} is not known. {hint}", param_hint=flag)


def to_flag(name: str) -> str:
    """Return the flag of a parameter."""
    return f"--{name.replace('_', '-')}"

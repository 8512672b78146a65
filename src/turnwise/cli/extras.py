"""Modules that need packages of an extra: imported when a command runs, since its help works without them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from turnwise.errors import SourceError


class MissingPackage(SourceError):
    """A package that a command needs is not installed."""


def import_extra(module: str, command: str) -> Any:
    """Return a module of a room whose extra has the room's name.

    Args:
        module: the module: `turnwise.data.run` needs `turnwise[data]`.
        command: the command, for the error.

    Raises:
        MissingPackage: the extra is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "turnwise").startswith("turnwise"):
            raise
        extra = module.split(".")[1]
        raise MissingPackage(
            f"turnwise {command} needs the package {error.name}",
            hint=f"pip install 'turnwise[{extra}]'",
        ) from error

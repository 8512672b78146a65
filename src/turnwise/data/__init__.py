"""Data sets of conversations become shards of ids and labels that trainers load as they are.

Each name is loaded when it is first used, so that a program can start a `ForkServer` before it waits for the rest.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("pyarrow") is None:
    raise ImportError("turnwise.data needs pyarrow: pip install 'turnwise[data]'")

if TYPE_CHECKING:
    from turnwise.data.recipe import Recipe
    from turnwise.data.run import Progress, Report, prepare
    from turnwise.data.worker_processes import ForkServer

__all__ = ["ForkServer", "Progress", "Recipe", "Report", "prepare"]

_MODULES = {"Recipe": "recipe", "ForkServer": "worker_processes"}  # the others are in `run`


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'run')}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

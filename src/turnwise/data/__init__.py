"""Data sets of conversations become shards of ids and labels that trainers load as they are.

Each name is loaded when it is first used: a worker begins with the tokenizer, and imports the rest meanwhile; and a
recipe needs no pyarrow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnwise.data.recipe import Recipe
    from turnwise.data.run import Progress, Report, prepare

__all__ = ["Progress", "Recipe", "Report", "prepare"]

_MODULES = {"Progress": "run", "Recipe": "recipe", "Report": "run", "prepare": "run"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        problem = f"{__name__}.{name} needs pyarrow: pip install 'turnwise[data]'"
        raise ImportError(problem, name="pyarrow") from error
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return __all__

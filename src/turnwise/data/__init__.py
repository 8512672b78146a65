"""Data sets of conversations become shards of ids and labels that trainers load as they are.

Each name is loaded when it is first used: a worker begins with the tokenizer, and imports the rest meanwhile.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("pyarrow") is None:
    raise ImportError("turnwise.data needs pyarrow: pip install 'turnwise[data]'")

if TYPE_CHECKING:
    from turnwise.data.recipe import Recipe
    from turnwise.data.run import Progress, Report, prepare

__all__ = ["Progress", "Recipe", "Report", "prepare"]

_MODULES = {"Progress": "run", "Recipe": "recipe", "Report": "run", "prepare": "run"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Data sets of conversations become shards of ids and labels that trainers load as they are."""

try:
    import pyarrow  # noqa: F401  # only to say what is missing
except ImportError as error:
    raise ImportError("turnwise.data needs pyarrow: pip install 'turnwise[data]'") from error

from turnwise.data.recipe import Recipe
from turnwise.data.run import Progress, Report, prepare

__all__ = ["Progress", "Recipe", "Report", "prepare"]

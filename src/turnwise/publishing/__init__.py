"""Complete a model folder: what serving and training need beside the chat template, each part proved."""

from turnwise.publishing.golden import GoldenDifference, verify_release
from turnwise.publishing.release_parts import Release, ReleasePart, release

__all__ = ["GoldenDifference", "Release", "ReleasePart", "release", "verify_release"]

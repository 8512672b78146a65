"""XTuner's tables of prompt templates and system texts, and its constants."""

from __future__ import annotations

import json

from turnwise.compat.batches import AttributeDict
from turnwise.registry.entry import ENTRIES

IGNORE_INDEX = -100
DEFAULT_PAD_TOKEN_INDEX = 0
IMAGE_TOKEN_INDEX = -200
DEFAULT_IMAGE_TOKEN = "<image>"


class ConfigDict(AttributeDict):
    """A dict whose keys are attributes too, as in mmengine."""


_DATA = json.loads((ENTRIES / "xtuner.json").read_text(encoding="utf-8"))
PROMPT_TEMPLATE = ConfigDict(
    {name: ConfigDict(fields) for name, fields in _DATA["entries"].items()}
)
SYSTEM_TEMPLATE = ConfigDict(_DATA["systems"])

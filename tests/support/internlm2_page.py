"""The examples of InternLM2's page on its chat format."""

from __future__ import annotations

import re
from functools import cache

import corpus


@cache
def blocks() -> tuple[str, ...]:
    """The fenced blocks of the fourth seed that hold a conversation."""
    folder = corpus.folder()
    assert folder is not None
    (file,) = (folder.parent / "seeds").glob("003_*.txt")
    text = file.read_text(encoding="utf-8")
    return tuple(re.findall(r"^```\n(\[UNUSED.*?)^```$", text, re.DOTALL | re.MULTILINE))

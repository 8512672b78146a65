"""Digests that tell whether two runs would write the same shards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from turnwise.data.chunks import Survey
from turnwise.template import Template
from turnwise.tokens.tokenizers import files
from turnwise.tokens.tokenizers.pickling import compute_fingerprint
from turnwise.tokens.tokenizers.protocol import Tokenizer


def digest_template(template: Template) -> str:
    """Return a digest of the text of a template."""
    return _digest([template.source])


def digest_tokenizer(tokenizer: Tokenizer) -> str:
    """Return a digest of the files of a tokenizer; for one given as an object, of its ids for some texts."""
    source = getattr(tokenizer, "source", None)
    name = getattr(source, "name", None)
    if not isinstance(name, str):
        return _digest([compute_fingerprint(tokenizer)])
    path = files.SHIPPED if name == "turnwise" else files.resolve(name)
    contents = []
    for file in _list_tokenizer_files(path):
        with open(file, "rb") as stream:
            contents.append([file.name, hashlib.file_digest(stream, "sha256").hexdigest()])
    return _digest(contents)


def _list_tokenizer_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(file for file in path.iterdir() if file.is_file() and "token" in file.name)


def digest_inputs(surveys: Iterable[Survey]) -> str:
    """Return a digest of names and contents of the input files, in their order."""
    return _digest([survey.file.path, survey.sha256] for survey in surveys)


def _digest(values: Iterable[Any]) -> str:
    text = json.dumps(list(values))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

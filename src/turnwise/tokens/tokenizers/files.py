"""Tokenizers in files: which file of a folder it is, and which adapter reads it.

A folder may hold the same tokenizer in several formats; the table says which is read first. A name alone does not tell
`tokenizer.model` apart: it is SentencePiece's binary model, or tiktoken's list of ranks, and its first bytes say which.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from fnmatch import fnmatch
from pathlib import Path

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers import special_tokens_config as declared
from turnwise.tokens.tokenizers.lazy import adapter
from turnwise.tokens.tokenizers.protocol import Tokenizer

SHIPPED = Path(__file__).resolve().parent.parent / "data"


def load(path: Path, name: str, backend: str | None) -> Tokenizer:
    file = located(path, name)
    for pattern, reader in FORMATS:
        if fnmatch(file.name, pattern):
            return reader(file, name, backend)
    raise TokenizerError(
        f"{file} is not a tokenizer file by its name", hint=f"Known names: {PATTERNS}."
    )


def located(path: Path, name: str) -> Path:
    """The tokenizer file at this path: the file itself, or the first known one of a folder."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise TokenizerError(
            f"there is no file or folder {name!r} to read a tokenizer from",
            hint="Give the path of a tokenizer.json or of a model folder; models are not downloaded.",
        )
    present = sorted(entry.name for entry in path.iterdir())
    for pattern, _ in FORMATS[:-1]:
        for entry in present:
            if fnmatch(entry, pattern):
                return path / entry
    listed = ", ".join(present[:8]) + (", …" if len(present) > 8 else "")
    raise TokenizerError(
        f"the folder {name!r} has no tokenizer in it"
        + (f" (it has {listed})" if listed else " (it is empty)"),
        hint=f"Looked for: {PATTERNS}.",
    )


def key(path: Path, backend: str | None) -> Hashable:
    """Changes when any file changes from which the tokenizer was read."""
    folder = path if path.is_dir() else path.parent
    looked = [folder / name for name in declared.FILES]
    looked += (
        sorted(folder.glob("*token*")) + sorted(folder.glob("tekken*")) if path.is_dir() else [path]
    )
    stamps = tuple(
        (file.name, stat.st_mtime_ns, stat.st_size) for file in looked for stat in stats(file)
    )
    return str(path.absolute()), stamps, backend


def stats(file: Path) -> list[os.stat_result]:
    try:
        return [file.stat()]
    except OSError:
        return []


def text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as problem:
        raise TokenizerError(f"{file} cannot be read: {problem}") from None


def huggingface(file: Path, name: str, backend: str | None) -> Tokenizer:
    read = adapter("huggingface").HuggingFace
    found: Tokenizer = read(
        text_of(file), name=name, declared=declared.declarations(file.parent), backend=backend
    )
    return found


def tekken(file: Path, name: str, backend: str | None) -> Tokenizer:
    found: Tokenizer = adapter("mistral").read(file, name)
    return found


def model(file: Path, name: str, backend: str | None) -> Tokenizer:
    try:
        with file.open("rb") as opened:
            start = opened.read(1)
    except OSError as problem:
        raise TokenizerError(f"{file} cannot be read: {problem}") from None
    if start != b"\n":  # field 1 of the protocol buffer, the pieces
        return ranks(file, name, backend)
    found: Tokenizer = adapter("sentencepiece").read(file, name)
    return found


def ranks(file: Path, name: str, backend: str | None) -> Tokenizer:
    """A file of ranks is half a tokenizer: how text is cut and which tokens are special stand in the model's code."""
    raise TokenizerError(
        f"{name} has only the ranks of a vocabulary: neither the pattern that cuts text nor the special tokens",
        hint="Make a tiktoken.Encoding with the model's pattern and special tokens, and give that.",
    )


FORMATS: tuple[tuple[str, Callable[[Path, str, str | None], Tokenizer]], ...] = (
    ("tokenizer.json", huggingface),
    ("tekken*.json", tekken),
    ("*.model", model),
    ("*.model.v*", model),
    ("*.tiktoken", ranks),
    ("*.json", huggingface),
)
"""By name, the first that fits; the last is for files only, as a folder has many of those."""
PATTERNS = ", ".join(pattern for pattern, _ in FORMATS)

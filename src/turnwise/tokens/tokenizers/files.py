"""Read a tokenizer from a file or a folder.

A folder may hold the same tokenizer in several formats; the table `FORMATS` says which is read first. The name
`tokenizer.model` is not enough: it is SentencePiece's binary model or tiktoken's list of ranks, which the first byte
tells.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

from turnwise.errors import TokenizerError
from turnwise.hub_cache import find_cached_model
from turnwise.local_files import error_reason, is_present, read_file
from turnwise.tokens.tokenizers.lazy import import_adapter
from turnwise.tokens.tokenizers.protocol import Tokenizer
from turnwise.tokens.tokenizers.special_tokens_config import CONFIG_FILES, read_declarations

SHIPPED = Path(__file__).resolve().parent.parent / "data"
MAX_SHOWN_FILES = 8
MAX_FILE = 512 * 2**20  # bytes; the largest known has 35 MB
SENTENCEPIECE_START = b"\n"  # field 1 of the protocol buffer: the pieces


def resolve(source: str | Path) -> Path:
    """Return the path that a user means: a file, a folder, or the id of a model in the Hugging Face cache."""
    path = Path(source).expanduser()
    if isinstance(source, str) and not path.exists():
        return find_cached_model(source) or path
    return path


def load(path: Path, name: str, backend: str | None) -> Tokenizer:
    """Read the tokenizer at a path; `name` is what errors call it."""
    file = _find_file(path, name)
    for pattern, reader in FORMATS:
        if fnmatch(file.name, pattern):
            try:
                data = read_file(file, MAX_FILE, None if file == path else path)
                return reader(file, data, name, backend)
            except (OSError, UnicodeDecodeError) as problem:
                raise TokenizerError(f"{file} cannot be read: {error_reason(problem)}") from None
    raise TokenizerError(
        f"{file} is not a tokenizer file by its name", hint=f"Known names: {PATTERNS}."
    )


def _find_file(path: Path, name: str) -> Path:
    """Return the tokenizer file at this path: the file itself, or the first known one of a folder."""
    if is_present(path):
        return path
    if not path.is_dir():
        raise TokenizerError(
            f"there is no file or folder {name!r} to read a tokenizer from, and no such model in the local "
            "Hugging Face cache",
            hint="Give the path of a tokenizer.json or of a model folder; models are not downloaded.",
        )
    present = sorted(entry.name for entry in path.iterdir())
    for pattern, _ in FORMATS[:-1]:
        for entry in present:
            if fnmatch(entry, pattern):
                return path / entry
    contents = "it is empty"
    if present:
        more = ", …" if len(present) > MAX_SHOWN_FILES else ""
        contents = f"it has {', '.join(present[:MAX_SHOWN_FILES])}{more}"
    raise TokenizerError(
        f"the folder {name!r} has no tokenizer in it ({contents})", hint=f"Looked for: {PATTERNS}."
    )


def cache_key(path: Path, backend: str | None) -> Hashable:
    """Return a value that changes when any file changes from which the tokenizer was read."""
    # plain texts instead of `Path`s: this runs in every call that names its tokenizer
    place = os.path.abspath(path)
    folder, name = os.path.split(place)
    names = [*CONFIG_FILES, name]
    if os.path.isdir(place):
        folder = place
        names = sorted({*CONFIG_FILES, *filter(_is_token_file, os.listdir(place))})
    stamps = []
    for name in names:
        try:
            stat = os.stat(os.path.join(folder, name))
        except OSError:
            continue
        stamps.append((name, stat.st_mtime_ns, stat.st_size))
    return place, tuple(stamps), backend


def _is_token_file(name: str) -> bool:
    return "token" in name or name.startswith("tekken")


def _read_huggingface(file: Path, data: bytes, name: str, backend: str | None) -> Tokenizer:
    text = data.decode("utf-8")
    declared = read_declarations(file.parent)
    made: Tokenizer
    is_alone = backend != "tokenizers" and find_spec("tokenizers") is None
    if is_alone and file.parent == SHIPPED:
        made = import_adapter("fastokens").read_shipped(text, name, declared.named)
    else:
        made = import_adapter("huggingface").HuggingFace(
            text, name=name, declared=declared, backend=backend
        )
    return made


def _read_model(file: Path, data: bytes, name: str, backend: str | None) -> Tokenizer:
    is_tekken, is_pieces = file.suffix == ".json", data.startswith(SENTENCEPIECE_START)
    adapter = "mistral" if is_tekken else "sentencepiece" if is_pieces else "tiktoken"
    made: Tokenizer = import_adapter(adapter).read(file, name, data)
    return made


# By name, the first that fits; the last row is for files only, since folders have many other JSON files.
FORMATS: tuple[tuple[str, Callable[[Path, bytes, str, str | None], Tokenizer]], ...] = (
    ("tokenizer.json", _read_huggingface),
    ("tekken*.json", _read_model),
    ("*.model", _read_model),
    ("*.model.v*", _read_model),
    ("*.tiktoken", _read_model),
    ("*.json", _read_huggingface),
)
PATTERNS = ", ".join(pattern for pattern, _ in FORMATS)

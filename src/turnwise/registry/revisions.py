"""A template as it was at a revision: in a git repository, or among the cached files of a model."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from turnwise.errors import SourceError, short_repr
from turnwise.registry import load
from turnwise.template import Template

REVISION = re.compile(r"\w[\w.~^/@{}-]*", re.ASCII)  # no option of git
FOLDER_FILES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
SECONDS = 30


def load_revision(place: str, revision: str) -> Template:
    """Return a template as it was at a revision.

    Args:
        place: a file or a model folder in a git repository, or the id of a model in the local cache of the hub.
        revision: what git calls a revision (`HEAD~1`, a branch, a commit); of a model, one that is cached.

    Raises:
        SourceError: there is no such revision, or it has no template.
    """
    if not REVISION.fullmatch(revision):
        raise SourceError(f"{short_repr(revision)} is no revision", hint="One is HEAD, or v1.0.")
    path = Path(place)
    if not path.exists():
        return load(f"{place}@{revision}")
    names = FOLDER_FILES if path.is_dir() else (path.name,)
    folder = path if path.is_dir() else path.parent
    with TemporaryDirectory() as copied:
        errors = [_copy_file(folder, name, revision, Path(copied)) for name in names]
        if all(errors):
            raise SourceError(f"{place} is not in the revision {revision}: {errors[0]}")
        return load(str(Path(copied) if path.is_dir() else Path(copied, path.name)))


def _copy_file(folder: Path, name: str, revision: str, target: Path) -> str:
    """Copy a file as it was; return why not if it was not there."""
    command = ["git", "-C", str(folder), "show", f"{revision}:./{name}"]
    try:
        found = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"git does not run: {error}"
    if found.returncode:
        is_outside = b"not a git repository" in found.stderr
        return "it is in no git repository" if is_outside else "git has no such revision of it"
    (target / name).write_bytes(found.stdout)
    return ""

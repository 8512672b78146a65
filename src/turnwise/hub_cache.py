"""Find a model's files in the local Hugging Face cache. Nothing is downloaded.

The cache keeps a model as

    models--Qwen--Qwen3-8B/refs/main              the commit that `main` was last seen at
    models--Qwen--Qwen3-8B/snapshots/<commit>/    its files

Its place is `$HF_HUB_CACHE`, else `$HF_HOME/hub`, else `~/.cache/huggingface/hub`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from turnwise.local_files import read_file

MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
COMMIT = re.compile(r"\w[\w.-]*", re.ASCII)  # the name of a folder, not a path
REVISION = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*", re.ASCII)  # not upwards out of `refs/`
MAX_REFERENCE = 1000  # bytes


def split_revision(place: str) -> tuple[str, str | None]:
    """Return the id and the revision of "Qwen/Qwen3-8B@main"; None if it names no revision."""
    model_id, _, revision = place.partition("@")
    return model_id, revision or None


def find_cached_model(place: str, revision: str | None = None) -> Path | None:
    """Return the folder with the cached files of a model; None if it is not cached.

    Args:
        place: the id of a model such as "Qwen/Qwen3-8B", or with a revision, "Qwen/Qwen3-8B@v1.0".
        revision: a branch, a tag or a commit; by default `main`, else whatever is there.
    """
    model_id, named_revision = split_revision(place)
    revision = revision or named_revision
    if not MODEL_ID.fullmatch(model_id):
        return None
    folder = f"{_cache_folder()}/models--{model_id.replace('/', '--')}"
    if not os.path.isdir(folder):  # of most ids there is nothing: that must be quick to find
        return None
    model = Path(folder)
    snapshots = model / "snapshots"
    commit = _read_reference(model, revision or "main")
    if COMMIT.fullmatch(commit) and (snapshots / commit).is_dir():
        return snapshots / commit
    if revision is not None:
        is_commit = COMMIT.fullmatch(revision) is not None
        return snapshots / revision if is_commit and (snapshots / revision).is_dir() else None
    try:
        folders = [folder for folder in snapshots.iterdir() if folder.is_dir()]
    except OSError:
        return None
    # Downloaded by commit or tag, so there is no `main`: take the newest.
    return max(folders, key=lambda folder: folder.stat().st_mtime, default=None)


def _read_reference(model: Path, revision: str) -> str:
    """Return the commit of a branch or tag, also of one such as `refs/pr/1`; empty if it is not known."""
    if not REVISION.fullmatch(revision):
        return ""
    try:
        return read_file(model / "refs" / revision, MAX_REFERENCE, model).decode("ascii").strip()
    except (OSError, ValueError):
        return ""


def _cache_folder() -> str:
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{caches}/huggingface"
    hub = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return os.path.expanduser(hub or f"{home}/hub")

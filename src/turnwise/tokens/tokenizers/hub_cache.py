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
MAX_REFERENCE = 1000  # bytes


def find_cached_model(model_id: str) -> Path | None:
    """Return the folder with the cached files of a model such as "Qwen/Qwen3-8B"; None if it is not cached."""
    if not MODEL_ID.fullmatch(model_id):
        return None
    model = _cache_folder() / f"models--{model_id.replace('/', '--')}"
    if not os.path.isdir(model):  # of most ids there is nothing: that must be quick to find
        return None
    snapshots = model / "snapshots"
    try:
        reference = model / "refs" / "main"
        commit = read_file(reference, MAX_REFERENCE, model).decode("ascii").strip()
    except (OSError, ValueError):
        commit = ""
    if COMMIT.fullmatch(commit) and (snapshots / commit).is_dir():
        return snapshots / commit
    try:
        folders = [folder for folder in snapshots.iterdir() if folder.is_dir()]
    except OSError:
        return None
    # Downloaded by commit or tag, so there is no `main`: take the newest.
    return max(folders, key=lambda folder: folder.stat().st_mtime, default=None)


def _cache_folder() -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser()
    home = os.environ.get("HF_HOME")
    if not home:
        caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        home = f"{caches}/huggingface"
    return Path(home).expanduser() / "hub"

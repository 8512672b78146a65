"""Download the templates and the tokenizer of a model from the Hugging Face hub, for `load(..., download=True)` only.

The library huggingface_hub does it (the extra `hub`), with its own cache, endpoint and token; weights are not fetched.
Afterwards the model is in the local cache, where `load` and `encode` find it without a network.
"""

from __future__ import annotations

from pathlib import Path

from turnwise.errors import SourceError, short_repr

PATTERNS = [
    "*.jinja",
    "*.tiktoken",
    "added_tokens.json",
    "chat_template.json",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer*",
    "vocab.*",
]
"""The files of a model that are fetched; `*` stands for folders, too."""


def download_model(model: str, revision: str | None) -> Path:
    """Return the folder with the files of a model, after fetching those that are not in the cache."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        hint = "Install it: pip install 'turnwise[hub]'"
        raise SourceError("download=True needs huggingface_hub", hint=hint) from None
    try:
        folder = snapshot_download(model, revision=revision, allow_patterns=PATTERNS)
    except (
        Exception
    ) as error:  # its own errors, those of its HTTP library, of the system: none is ours
        reason = f"{type(error).__name__}: {short_repr(str(error).strip(), 300)}"
        place = f"{model} at {revision}" if revision else model
        hint = "A private or gated model needs a token: `hf auth login`."
        raise SourceError(f"{place} cannot be downloaded: {reason}", hint=hint) from error
    return Path(folder)

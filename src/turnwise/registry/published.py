"""Recognise published chat templates by the hash of their text: whose template is this, and which of several?

`published.json` holds, for some 750 templates of the hub, a hash, the entries of the registry that are for it, those
that write the same, and the models that have it. It is written by `scripts/published_hashes.py` and holds no text.
A model that changed its template has several hashes; they are numbered in the order of the file, which is not that of
time: nobody dates them.

A hash is of the text with `\\n` as line end and without one newline at its end, which Jinja drops: the same template is
stored with it in a file and without it in a JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from turnwise.registry.model_table import normal_form

FILE = Path(__file__).with_name("published.json")
HASH_LENGTH = 16  # hexadecimal digits: 64 bits
MAX_SHOWN = 2  # models that are named in a sentence


@dataclass(frozen=True, slots=True)
class PublishedText:
    """A chat template that is known by its hash.

    Attributes:
        hash: The first digits of the SHA-256 of its text.
        entries: Names of the built-in entries that are for its models, the one for most of them first.
        equal: Names of the built-in entries that write the same in all conversations that were tried.
        models: Ids of the models that have it.
    """

    hash: str
    entries: tuple[str, ...]
    equal: tuple[str, ...]
    models: tuple[str, ...]

    def describe(self, model: str | None = None) -> str:
        """Return a sentence part about whose template it is, for one of its models if it has that one."""
        known = {name.lower(): name for name in self.models}
        name = known.get(model.lower()) if model else None
        if name is None:
            shown = ", ".join(self.models[:MAX_SHOWN])
            more = len(self.models) - MAX_SHOWN
            return f"the published template of {shown}" + (
                f" and {more} more models" if more > 0 else ""
            )
        texts = texts_of(name)
        if len(texts) == 1:
            return f"the published template of {name}"
        return f"revision {texts.index(self) + 1} of {len(texts)} known of the template of {name}"


def hash_text(text: str) -> str:
    """Return the hash by which a template is known."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    return sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_LENGTH]


def identify(text: str) -> PublishedText | None:
    """Return what is known of a template by its text; None if it is not a known one."""
    return _texts_by_hash().get(hash_text(text))


def texts_of(model: str) -> tuple[PublishedText, ...]:
    """Return the known templates of a model by its id, in whatever case."""
    return _texts_by_model().get(model.lower(), ())


def texts_of_namesakes(model: str) -> tuple[PublishedText, ...]:
    """Return the known templates of the models that an id is a copy of by its name, quantised or not."""
    return _texts_by_normal_form().get(normal_form(model), ())


@cache
def _texts_by_hash() -> Mapping[str, PublishedText]:
    rows = json.loads(FILE.read_text(encoding="utf-8"))["texts"]
    return {
        digest: PublishedText(digest, tuple(entries), tuple(equal), tuple(models))
        for digest, entries, equal, models in rows
    }


@cache
def _texts_by_model() -> Mapping[str, tuple[PublishedText, ...]]:
    return _index_texts(str.lower)


@cache
def _texts_by_normal_form() -> Mapping[str, tuple[PublishedText, ...]]:
    return _index_texts(normal_form)


def _index_texts(key_of: Callable[[str], str]) -> dict[str, tuple[PublishedText, ...]]:
    """Return the texts by a key of their models' ids, each text once for a key."""
    found: dict[str, tuple[PublishedText, ...]] = {}
    for text in _texts_by_hash().values():
        for key in dict.fromkeys(key_of(model) for model in text.models):
            found[key] = (*found.get(key, ()), text)
    return found

"""Recognise published chat templates by the hash of their text: is this one, and which of several of its model?

`published.json` holds, for some 750 templates of the hub, a hash, the entries of the registry that are for it, those
that write the same, and hashes of the ids and of the normal forms of the ids of the models that have it. It is written
by `scripts/published_hashes.py` and holds neither text nor ids. A model that changed its template has several hashes;
they are numbered in the order of the file, which is not that of time: their dates are not known.

A hash is of the text with `\\n` as line end and without one newline at its end, which Jinja drops: the same template is
stored with it in a file and without it in a JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Literal, NamedTuple

from turnwise.registry.model_table import normal_form

FILE = Path(__file__).with_name("published.json")
HASH_LENGTH = 16  # hexadecimal digits: 64 bits
NAME_HASH_LENGTH = (
    10  # of an id: 40 bits, so that one in a hundred million unknown ids is taken for a known one
)


class PublishedText(NamedTuple):
    """A chat template that is known by its hash.

    Attributes:
        hash: The first digits of the SHA-256 of its text.
        entries: Names of the built-in entries that are for its models, the one for most of them first.
        equal: Names of the built-in entries that write the same in all conversations that were tried.
        models: Hashes of the ids of the models that have it.
        names: Hashes of the normal forms of those ids.
    """

    hash: str
    entries: tuple[str, ...]
    equal: tuple[str, ...]
    models: tuple[str, ...]
    names: tuple[str, ...]

    def describe(self, model: str | None = None) -> str:
        """Return a sentence part about whose template it is, for one of its models if it has that one."""
        if model is None or hash_name(model) not in self.models:
            count = len(self.models)
            about = f"a published template of {count} model{'s' if count != 1 else ''}"
            return f"{about}, for which the entry {self.entries[0]} is" if self.entries else about
        texts = texts_of(model)
        if len(texts) == 1:
            return f"the published template of {model}"
        return f"revision {texts.index(self) + 1} of {len(texts)} known of the template of {model}"


def hash_text(text: str) -> str:
    """Return the hash by which a template is known."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    return sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_LENGTH]


def hash_name(name: str) -> str:
    """Return the hash by which a model is known: of its id, in whatever case, or of the normal form of that."""
    return sha256(name.lower().encode("utf-8", "surrogatepass")).hexdigest()[:NAME_HASH_LENGTH]


def identify(text: str) -> PublishedText | None:
    """Return what is known of a template by its text; None if it is not a known one."""
    return _texts_by_hash().get(hash_text(text))


def texts_of(model: str) -> tuple[PublishedText, ...]:
    """Return the known templates of a model by its id, in whatever case."""
    return _index_texts("models").get(hash_name(model), ())


def texts_of_namesakes(model: str) -> tuple[PublishedText, ...]:
    """Return the known templates of the models that an id is a copy of by its name, quantised or not."""
    return _index_texts("names").get(hash_name(normal_form(model)), ())


@cache
def _texts_by_hash() -> Mapping[str, PublishedText]:
    rows = json.loads(FILE.read_text(encoding="utf-8"))["texts"]
    return {
        digest: PublishedText(digest, tuple(entries), tuple(equal), *map(_split_hashes, hashes))
        for digest, entries, equal, *hashes in rows
    }


def _split_hashes(joined: str) -> tuple[str, ...]:
    starts = range(0, len(joined), NAME_HASH_LENGTH)
    return tuple(joined[start : start + NAME_HASH_LENGTH] for start in starts)


@cache
def _index_texts(hashes: Literal["models", "names"]) -> Mapping[str, tuple[PublishedText, ...]]:
    found: dict[str, tuple[PublishedText, ...]] = {}
    for text in _texts_by_hash().values():
        for name in getattr(text, hashes):
            found[name] = (*found.get(name, ()), text)
    return found

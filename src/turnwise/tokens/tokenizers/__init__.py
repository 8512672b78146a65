"""Any tokenizer, as one protocol: `tokenizer(given)`.

`given` is a file, a folder, the name of the tokenizer that ships with the package, or an object of a tokenizer library.
One adapter per library stands beside this file, imported when something of its library is given, never before.
Loading takes a second or more, so results are kept: for files by path and time of change, for objects by the object.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any
from weakref import ref

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers import files, lazy
from turnwise.tokens.tokenizers.backends import chosen
from turnwise.tokens.tokenizers.protocol import AFTER, START, WITHIN, Added, Tokenizer

__all__ = ["AFTER", "START", "WITHIN", "Added", "Tokenizer", "tokenizer"]

SHIPPED = "turnwise"
KEPT = 16
"""How many loaded tokenizers are kept; the one unused for longest goes first."""

ADAPTERS = {
    "tokenizers": "huggingface",
    "fastokens": "fastokens",
    "transformers": "transformers",
    "tiktoken": "tiktoken",
    "sentencepiece": "sentencepiece",
    "mistral_common": "mistral",
}
"""Library to the adapter beside this file, whose `adapt(object, backend)` makes a tokenizer or gives None."""

ACCEPTED = (
    "Accepted: a tokenizer.json, a model folder, a tokenizer.model, a tekken.json, the name 'turnwise' for the small "
    "tokenizer that ships with the package, or a tokenizer object of transformers, tokenizers, fastokens, tiktoken, "
    "sentencepiece or mistral-common."
)

_kept: OrderedDict[Hashable, tuple[Callable[[], Any], Tokenizer]] = OrderedDict()
_lock = threading.RLock()


def tokenizer(given: Any, *, backend: str | None = None) -> Tokenizer:
    """The tokenizer in a file, folder or object. `backend`: "fastokens" or "tokenizers", to have no other."""
    if type(given).__module__.startswith(__name__):
        checked: Tokenizer = given  # one of ours, made before
        return checked
    backend = chosen(backend)
    if isinstance(given, (str, Path)):
        path = files.SHIPPED if given == SHIPPED else Path(given).expanduser()
        name = SHIPPED if given == SHIPPED else str(given)
        return kept(files.key(path, backend), None, lambda: files.load(path, name, backend))
    adapter = ADAPTERS.get(origin(given))
    if adapter is None:
        if isinstance(given, Tokenizer):
            return given
        raise TokenizerError(f"{article(given)} is not a tokenizer", hint=ACCEPTED)
    return kept((id(given), stamp(given), backend), given, lambda: adapted(given, adapter, backend))


def adapted(given: Any, adapter: str, backend: str | None) -> Tokenizer:
    made: Tokenizer | None = lazy.adapter(adapter).adapt(given, backend)
    if made is None:
        raise TokenizerError(f"{article(given)} is not a tokenizer", hint=ACCEPTED)
    return made


def origin(given: object) -> str:
    """The library that an object comes from, by its classes' modules. Nothing is imported to find out."""
    for kind in type(given).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ADAPTERS:
            return root
    fastokens = sys.modules.get("fastokens")  # its classes say that they are builtins
    return "fastokens" if fastokens and isinstance(given, fastokens.Tokenizer) else ""


def article(given: object) -> str:
    kind = type(given).__name__
    return f"{'an' if kind[:1] in 'AEIOUaeiou' else 'a'} {kind}"


def stamp(given: object) -> Hashable:
    """Something that changes when tokens are added to an object, or get another name."""
    count: Callable[[], int] | None = getattr(given, "get_vocab_size", None) or getattr(
        given, "__len__", None
    )
    return count() if count else None, str(getattr(given, "special_tokens_map", None))


def kept(key: Hashable, given: object, make: Callable[[], Tokenizer]) -> Tokenizer:
    """What was made for this key before, from this very object, else what `make` makes."""
    with _lock:
        holder, found = _kept.get(key, (None, None))
        if holder is not None and found is not None and holder() is given:
            _kept.move_to_end(key)
            return found
    made = make()
    with _lock:
        _kept[key] = held(given), made
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return made


def held(given: object) -> Callable[[], Any]:
    """A way back to the object, which does not keep it alive where that can be helped."""
    try:
        return ref(given)
    except TypeError:
        return lambda: given

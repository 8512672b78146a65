"""Load any tokenizer behind one protocol: `tokenizer(source)`.

`source` is a file, a folder, the id of a model in the local Hugging Face cache, the name of the tokenizer that ships
with the package, or an object of a tokenizer library. There is one adapter per library in this folder, imported only
when an object or a file of its library is given. Loading takes a second or more, so tokenizers are cached: those from
files by path and time of change, those from objects by the object.

    tokenizer("turnwise").encode("hello")
    tokenizer("path/to/model")
    tokenizer(transformers.AutoTokenizer.from_pretrained(...))
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers import files
from turnwise.tokens.tokenizers.backends import choose_backend
from turnwise.tokens.tokenizers.lazy import import_adapter
from turnwise.tokens.tokenizers.protocol import AFTER, START, WITHIN, Added, Tokenizer

__all__ = ["AFTER", "SHIPPED", "START", "WITHIN", "Added", "Tokenizer", "library_of", "tokenizer"]

SHIPPED = "turnwise"
CACHE_SIZE = 16  # loaded tokenizers; the least recently used one is dropped first

# Library to the adapter module beside this file, whose `adapt(object, backend)` returns a tokenizer or None.
ADAPTERS = {
    "tokenizers": "huggingface",
    "fastokens": "fastokens",
    "transformers": "transformers",
    "tiktoken": "tiktoken",
    "sentencepiece": "sentencepiece",
    "mistral_common": "mistral",
}
ACCEPTED = (
    "Accepted: a tokenizer.json, a model folder, a tokenizer.model, a tiktoken.model, a tekken.json, the id of a model "
    "in the local Hugging Face cache, the name 'turnwise' for the small tokenizer that ships with the package, or a "
    "tokenizer object of transformers, tokenizers, fastokens, tiktoken, sentencepiece or mistral-common."
)

_cache: OrderedDict[Hashable, tuple[Callable[[], Any], Tokenizer]] = OrderedDict()
_lock = threading.RLock()


def tokenizer(source: Any, *, backend: str | None = None) -> Tokenizer:
    """Return the tokenizer of a file, folder, model id or object.

    Args:
        source: a path, a model id, "turnwise", or an object of a tokenizer library.
        backend: "fastokens" or "tokenizers", to use no other for a `tokenizer.json`; "eager" for one that
            will encode much text: fastokens is loaded at once, instead of when it pays.

    Raises:
        TokenizerError: it is not a tokenizer, or cannot be read.
    """
    if type(source).__module__.startswith(__name__):
        adapted: Tokenizer = source  # one of ours
        return adapted
    backend = choose_backend(backend)
    if isinstance(source, (str, Path)):
        path = files.SHIPPED if source == SHIPPED else files.resolve(source)
        key = files.cache_key(path, backend)
        return _get_or_make(key, None, lambda: _load_file(path, str(source), backend))
    adapter = ADAPTERS.get(library_of(source))
    if adapter is None:
        if isinstance(source, Tokenizer):
            return source
        raise _not_a_tokenizer(source)
    key = (id(source), _state_of(source), backend)
    return _get_or_make(key, source, lambda: _adapt(source, adapter, backend))


def _load_file(path: Path, name: str, backend: str | None) -> Tokenizer:
    """Load a tokenizer that knows its source, so that it can be pickled."""
    made: Any = files.load(path, name, backend)
    is_path = name != SHIPPED and Path(name).expanduser().exists()
    source = str(path.absolute()) if is_path else name
    made.load_source = partial(tokenizer, source, backend=backend)
    loaded: Tokenizer = made
    return loaded


def _adapt(source: Any, adapter: str, backend: str | None) -> Tokenizer:
    """Wrap an object of a tokenizer library, or the tokenizer that it holds: processors of transformers do."""
    made: Tokenizer | None = import_adapter(adapter).adapt(source, backend)
    if made is not None:
        return made
    inner = getattr(source, "tokenizer", None)
    library = library_of(inner)
    if not library:
        raise _not_a_tokenizer(source)
    return _adapt(inner, ADAPTERS[library], backend)


def library_of(source: object) -> str:
    """Return the tokenizer library that an object comes from, by the modules of its classes; empty if none.

    Nothing is imported to find out.
    """
    for kind in type(source).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ADAPTERS:
            return root
    # The classes of fastokens claim to be builtins; a thread may be importing it just now.
    fast = getattr(sys.modules.get("fastokens"), "Tokenizer", None)
    return "fastokens" if fast is not None and isinstance(source, fast) else ""


def _not_a_tokenizer(source: object) -> TokenizerError:
    kind = type(source).__name__
    article = "an" if kind[:1] in "AEIOUaeiou" else "a"
    return TokenizerError(f"{article} {kind} is not a tokenizer", hint=ACCEPTED)


def _state_of(source: object) -> Hashable:
    """Return a value that changes when tokens are added to an object, or get another name."""
    count = getattr(source, "get_vocab_size", None) or getattr(source, "__len__", None)
    return count() if count else None, str(getattr(source, "special_tokens_map", None))


def _get_or_make(key: Hashable, source: object, make: Callable[[], Tokenizer]) -> Tokenizer:
    """Return the cached tokenizer that was made from this very object, else make it."""
    with _lock:
        get_source, cached = _cache.get(key, (None, None))
        if get_source and cached and get_source() is source:
            _cache.move_to_end(key)
            return cached
    made = make()
    with _lock:
        _cache[key] = _reference_to(source), made
        while len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return made


def _reference_to(source: object) -> Callable[[], Any]:
    """Return a weak reference to the object, or a strong one where its class allows no weak one."""
    try:
        return ref(source)
    except TypeError:
        return lambda: source

"""Conversations of earlier requests, kept by prefix: what they have proven of the next one.

A conversation comes again with every turn, a little longer. The memory is a table from every beginning of a
conversation to the last prompt that began so:

    digest of nothing + model, tools, options        d0
    digest of d0 and messages[0]                     d1   -> the prompt of the request that had it
    digest of d1 and messages[1]                     d2   -> ...

So the longest beginning that is known is found from the end, in as many steps as there are new messages. Only what
follows it is analysed and encoded (`tokens/growing.py`). The ids of the two requests are compared, and the number of
equal ids at the front is what an answer reports: it is proven, not estimated from the messages, since a template may
write the same message differently the next time. It is what a router can expect in the cache of the engine that
answered before, so a prompt is kept only when a request for an engine was made of it: `/tokenize` and chats that are
refused are encoded with the memory, and not kept.

The text of these ids in JSON is kept as well: writing ten thousand numbers takes longer than encoding a turn.

Digests are those of bytes, so that two conversations share nothing unless they are equal; a request with a `cache_salt`
shares only with others of that salt. The memory is bounded by bytes and drops the least recently used first. What
requests leave in the caches of the package (tools, traces of prompts, programs) counts as well: each of these is
bounded by itself, and conversations get what is left.
"""

from __future__ import annotations

import marshal
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from turnwise.analysis.rewrites import common_length
from turnwise.sized_cache import DIGEST_SIZE, MARSHAL_VERSION, count_cached_bytes
from turnwise.tokens.encoded import Encoded
from turnwise.tokens.growing import ID_SIZE, EncodedPrefix, GrowingPrompt

ENTRY_BYTES = 400  # an entry without its ids and digests
DIGEST_BYTES = 150  # a digest in the table and in its entry
JOINED_IDS = 20_000


@dataclass(eq=False)
class RememberedPrompt:
    """The ids of one request. It never changes, so requests that share a beginning do not disturb one another."""

    ids: list[int]
    text: str  # of the ids in JSON, without brackets
    digests: list[bytes] = field(default_factory=list)
    prefix: EncodedPrefix | None = None

    @property
    def size(self) -> int:
        """The memory that it takes, in bytes, about."""
        length = len(self.ids) * ID_SIZE if self.prefix is None else self.prefix.size
        return length + len(self.text) + DIGEST_BYTES * len(self.digests) + ENTRY_BYTES


class KnownIds(NamedTuple):
    """The ids of a prompt as an answer has them."""

    common: int  # how many ids at the front are those of an earlier request
    text: str  # the ids in JSON, without brackets
    prompt: RememberedPrompt | None = None  # what the memory may keep


class ConversationMemory:
    """Remembers prompts. Threads may share it.

    Args:
        max_bytes: the memory that it may take; 0 remembers nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._kept = 0  # bytes of prompts
        self._cached_before = count_cached_bytes()  # of the templates that are served
        self._lock = threading.Lock()
        self._by_digest: dict[bytes, RememberedPrompt] = {}
        self._order: OrderedDict[int, RememberedPrompt] = OrderedDict()  # by identity

    def __len__(self) -> int:
        return len(self._order)

    @property
    def size(self) -> int:
        """The memory that requests have taken, in bytes, about."""
        return self._kept + max(0, count_cached_bytes() - self._cached_before)

    def encode(
        self, key: Any, messages: Sequence[Any], encode: Callable[[GrowingPrompt | None], Encoded]
    ) -> tuple[Encoded, KnownIds]:
        """Encode a prompt after the conversation so far, and compare their ids; `keep` keeps them.

        Args:
            key: everything but the messages that the ids depend on: plain data.
            messages: the conversation as it was sent: plain data.
            encode: encodes it.
        """
        if not self.max_bytes:
            encoded = encode(None)
            return encoded, KnownIds(0, join_ids(encoded.input_ids))
        digests = make_digests(key, messages)
        with self._lock:
            known = self._find(digests)
        growing = GrowingPrompt(None if known is None else known.prefix)
        encoded = encode(growing)
        prefix, ids = growing.prefix, encoded.input_ids
        if known is None:
            common, text = 0, join_ids(ids)
        else:
            common = common_length(known.ids, ids)
            text = extend_text(known, common, ids)
        return encoded, KnownIds(common, text, RememberedPrompt(ids, text, digests, prefix))

    def keep(self, known: KnownIds) -> None:
        """Remember a prompt that an engine will see."""
        if known.prompt is not None:
            with self._lock:
                self._add(known.prompt)

    def _find(self, digests: Sequence[bytes]) -> RememberedPrompt | None:
        """Return the prompt with the longest common beginning of at least one message."""
        for digest in reversed(digests):
            known = self._by_digest.get(digest)
            if known is not None:
                self._order.move_to_end(id(known))
                return known
        return None

    def _add(self, made: RememberedPrompt) -> None:
        """Add a prompt. It takes over all beginnings that it has; one that has none left is dropped."""
        if made.size > self.max_bytes:
            return
        for digest in made.digests:
            replaced = self._by_digest.get(digest)
            self._by_digest[digest] = made
            if replaced is not None and replaced is not made and replaced.digests[-1] == digest:
                self._drop(replaced)
        self._order[id(made)] = made
        self._kept += made.size
        excess = self.size - self.max_bytes
        while excess > 0 and self._order:
            oldest = next(iter(self._order.values()))
            excess -= oldest.size
            self._drop(oldest)

    def _drop(self, old: RememberedPrompt) -> None:
        if self._order.pop(id(old), None) is None:
            return
        self._kept -= old.size
        for digest in old.digests:
            if self._by_digest.get(digest) is old:
                del self._by_digest[digest]


def make_digests(key: Any, messages: Sequence[Any]) -> list[bytes]:
    """Return the digest of each beginning of a conversation, the shortest first."""
    running = blake2b(marshal.dumps(key, MARSHAL_VERSION), digest_size=DIGEST_SIZE)
    digests = []
    for message in messages:
        data = marshal.dumps(message, MARSHAL_VERSION)
        running.update(len(data).to_bytes(8, "little"))
        running.update(data)
        digests.append(running.digest())
    return digests


def join_ids(ids: Sequence[int]) -> str:
    """Return ids as they are written in a list of JSON.

    Parts are joined, so that other threads get their turn: of millions of ids, one call would take a second.
    """
    parts = (ids[start : start + JOINED_IDS] for start in range(0, len(ids), JOINED_IDS))
    return ",".join([",".join(map(str, part)) for part in parts])


def extend_text(known: RememberedPrompt, common: int, ids: Sequence[int]) -> str:
    """Return the text of ids of which the first ones are those of a prompt whose text is known."""
    dropped = join_ids(known.ids[common:])
    head = known.text[: len(known.text) - len(dropped)].removesuffix(",")
    rest = join_ids(ids[common:])
    return f"{head},{rest}" if head and rest else head or rest

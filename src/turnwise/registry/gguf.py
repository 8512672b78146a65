"""The chat templates and special tokens in a GGUF file, read from its header alone.

A GGUF file is a magic word, a version, two counts, then keys with typed values, then tensors. Only keys and values are
walked, and only the few that matter here are kept: everything else is stepped over, so a file of many gigabytes costs
what its header costs (a vocabulary of 150,000 words and its merges: 0.2 s).

Why not the `gguf` package: it builds several numpy objects for each word of the vocabulary, and a slice past the end
of a cut file is silently short there. Here a length is believed only after it was compared with what is left of the
file, and the number of strings walked is bounded, so that a forged header ends in an error and not in a wait.

Not covered: version 1, whose lengths are 32 bits wide (no tool has written it since 2023), and values in tensors.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from turnwise.errors import SourceError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
TEMPLATE = "tokenizer.chat_template"
TOKENS = "tokenizer.ggml.tokens"
TOKEN_IDS = {
    "tokenizer.ggml.bos_token_id": "bos_token",
    "tokenizer.ggml.eos_token_id": "eos_token",
    "tokenizer.ggml.unknown_token_id": "unk_token",
    "tokenizer.ggml.seperator_token_id": "sep_token",  # spelled so in the format
    "tokenizer.ggml.padding_token_id": "pad_token",
    "tokenizer.ggml.cls_token_id": "cls_token",
    "tokenizer.ggml.mask_token_id": "mask_token",
}
NO_TOKEN = 0xFFFFFFFF

# Type numbers of the format: scalars as struct codes, then the two that have a length.
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
STRING, ARRAY = 8, 9

MAX_KEYS = 2**16
MAX_KEY = 2**16 - 1
MAX_TEMPLATE = 4 * 2**20
MAX_STRINGS = (
    2**22
)  # over all arrays of a file; the largest vocabularies have some 2**19 words and merges
MAX_DEPTH = 4
MAX_TOKEN = 2**12


def read(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Templates by name (the plain one is `default`), and special tokens as options."""
    try:
        with path.open("rb", buffering=2**18) as file:
            return _Header(file, str(path)).read()
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}"
        ) from error
    except struct.error as error:  # fewer bytes than were there when it was opened
        raise SourceError(f"{path} changed while it was read") from error


class _Header:
    """A cursor over the header that knows how much of the file is left."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file = file
        self.name = name
        self.left = os.fstat(file.fileno()).st_size
        self.order = "<"
        self.strings = 0

    def read(self) -> tuple[dict[str, str], dict[str, str]]:
        keys = self.opening()
        templates: dict[str, str] = {}
        ids: dict[str, int] = {}
        vocabulary: tuple[int, int] | None = None
        seen = set()
        for _ in range(keys):
            key = self.text(MAX_KEY, "a key")
            if key in seen:
                raise self.broken(f"has the key {key!r} twice")
            seen.add(key)
            kind = self.number("I")
            if key == TEMPLATE or key.startswith(TEMPLATE + "."):
                templates[key[len(TEMPLATE) + 1 :] or "default"] = self.template(key, kind)
            elif key in TOKEN_IDS:
                ids[TOKEN_IDS[key]] = self.token_id(key, kind)
            else:
                if key == TOKENS:
                    vocabulary = self.file.tell(), self.left
                self.skip(kind)
        return templates, self.token_texts(ids, vocabulary) if templates else {}

    def opening(self) -> int:
        """Check magic and version, find the byte order, and return the number of keys."""
        if self.take(4) != MAGIC:
            raise self.broken("does not begin with GGUF")
        version = self.number("I")
        if version & 0xFFFF == 0:  # a small number read the wrong way round
            self.order = ">"
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in VERSIONS:
            raise self.broken(
                f"is of version {version}; versions {' and '.join(map(str, VERSIONS))} are read"
            )
        self.number("Q")  # the count of tensors
        keys = self.number("Q")
        if keys > MAX_KEYS:
            raise self.broken(f"claims {keys:,} keys; at most {MAX_KEYS:,} are read")
        return keys

    # -- values ------------------------------------------------------------------------------------------------------

    def template(self, key: str, kind: int) -> str:
        if kind != STRING:
            raise self.broken(f"has a {key} that is not a string")
        return self.text(MAX_TEMPLATE, key)

    def token_id(self, key: str, kind: int) -> int:
        code = SCALARS.get(kind, "")
        if code not in tuple("BbHhIiQq"):
            raise self.broken(f"has a {key} that is not a whole number")
        return self.number(code)

    def token_texts(
        self, ids: dict[str, int], vocabulary: tuple[int, int] | None
    ) -> dict[str, str]:
        """The words that the ids stand for, by a second walk over the vocabulary as far as needed."""
        wanted = {token: i for token, i in ids.items() if i >= 0 and i != NO_TOKEN}
        if vocabulary is None or not wanted:
            return {}
        self.file.seek(vocabulary[0])
        self.left = vocabulary[1]
        if self.number("I") != STRING:
            raise self.broken(f"has a {TOKENS} that is not a list of strings")
        count = self.number("Q")
        for token, i in wanted.items():
            if i >= count:
                raise self.broken(
                    f"says that its {token} has the id {i:,}, in a vocabulary of {count:,}"
                )
        words = {}
        passed = 0
        for i in sorted(set(wanted.values())):
            self.skip_strings(i - passed)
            words[i] = self.text(MAX_TOKEN, f"token {i}")
            passed = i + 1
        return {token: words[i] for token, i in wanted.items()}

    def skip(self, kind: int, depth: int = 0) -> None:
        if kind in SCALARS:
            self.pass_over(struct.calcsize("=" + SCALARS[kind]))
        elif kind == STRING:
            self.pass_over(self.number("Q"))
        elif kind == ARRAY and depth < MAX_DEPTH:
            self.skip_array(depth)
        else:
            raise self.broken(
                f"has a value of unknown type {kind}"
                if kind != ARRAY
                else "nests arrays too deeply"
            )

    def skip_array(self, depth: int) -> None:
        kind, count = self.number("I"), self.number("Q")
        if kind in SCALARS:
            self.pass_over(count * struct.calcsize("=" + SCALARS[kind]))
            return
        self.strings += count
        if self.strings > MAX_STRINGS:
            raise self.broken(
                f"claims lists of {self.strings:,} elements; at most {MAX_STRINGS:,} are read"
            )
        if kind == STRING:
            self.skip_strings(count)
        else:
            for _ in range(count):
                self.skip(kind, depth + 1)

    def skip_strings(self, count: int) -> None:
        """What `skip` does for each string; spelled out, as a vocabulary has hundreds of thousands."""
        read, unpack, left = self.file.read, struct.Struct(self.order + "Q").unpack, self.left
        for _ in range(count):
            left -= 8
            if left < 0:
                raise self.cut()
            (length,) = unpack(read(8))
            left -= length
            if left < 0:
                raise self.cut()
            # Words are short and already in the buffer, where reading is cheaper than seeking.
            if length < 2**12:
                read(length)
            else:
                self.file.seek(length, os.SEEK_CUR)
        self.left = left

    # -- bytes -------------------------------------------------------------------------------------------------------

    def number(self, code: str) -> int:
        value: int = struct.unpack(self.order + code, self.take(struct.calcsize("=" + code)))[0]
        return value

    def text(self, limit: int, what: str) -> str:
        length = self.number("Q")
        if length > limit:
            raise self.broken(f"claims {length:,} bytes for {what}; at most {limit:,} are read")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.broken(f"has {what} in another encoding than UTF-8") from error

    def take(self, length: int) -> bytes:
        self.spend(length)
        data = self.file.read(length)
        if len(data) != length:
            raise self.cut()
        return data

    def pass_over(self, length: int) -> None:
        self.spend(length)
        self.file.seek(length, os.SEEK_CUR)

    def spend(self, length: int) -> None:
        self.left -= length
        if self.left < 0:
            raise self.cut()

    def cut(self) -> SourceError:
        return self.broken(
            "ends in the middle of its header", "The file is damaged, or its download was cut."
        )

    def broken(self, what: str, hint: str | None = None) -> SourceError:
        return SourceError(f"{self.name} is not a GGUF file that can be read: it {what}", hint=hint)

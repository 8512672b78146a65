"""Read the chat templates and special tokens of a GGUF file from its header.

A GGUF file is a magic word, a version, two counts, then keys with typed values, then tensors. Only the keys and values
are walked and only the few that matter are kept; the rest is skipped, so a file of many gigabytes costs as much as its
header (0.2 s for a vocabulary of 150,000 words and its merges).

Why not the `gguf` package: it builds several numpy objects for each word of the vocabulary, and slices past the end of
a truncated file without an error. Here every length is compared with the rest of the file before it is used, and the
number of strings is limited, so a forged header ends in an error and not in a long wait.

Not covered: version 1, whose lengths have 32 bits (no tool has written it since 2023), and values in tensors.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from turnwise.errors import SourceError, short_repr
from turnwise.local_files import error_reason, open_file

MAGIC = b"GGUF"
VERSIONS = (2, 3)
TEMPLATE_KEY = "tokenizer.chat_template"
TOKENS_KEY = "tokenizer.ggml.tokens"
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
MAX_KEY_BYTES = 2**20  # of all keys together: they are kept, to find one that is there twice
MAX_TEMPLATE = 4 * 2**20  # of all templates together
MAX_TEMPLATES = 100
MAX_STRINGS = 2**22  # in all arrays of a file; the largest have some 2**19 words and merges
MAX_NESTED = 2**12  # arrays in arrays; files that people use have none
MAX_DEPTH = 4
MAX_TOKEN = 2**12


def read_gguf(path: Path, folder: Path | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the templates by name (`default` for the plain one), and the special tokens as options.

    A file that was found in a `folder` must not be a link out of it.
    """
    try:
        with open_file(path, folder) as file:
            return _Header(file, str(path), os.fstat(file.fileno()).st_size).read()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error_reason(error)}") from error
    except struct.error as error:  # fewer bytes than were there when it was opened
        raise SourceError(f"{path} changed while it was read") from error


@dataclass
class _Header:
    """A cursor over the header that checks each length against the rest of the file."""

    file: BinaryIO
    name: str
    left: int
    order: str = "<"
    strings: int = 0
    nested: int = 0

    def read(self) -> tuple[dict[str, str], dict[str, str]]:
        keys = self.read_prologue()
        templates: dict[str, str] = {}
        ids: dict[str, int] = {}
        vocabulary: tuple[int, int] | None = None
        seen = set()
        key_room, template_room = MAX_KEY_BYTES, MAX_TEMPLATE
        for _ in range(keys):
            key = self.read_text(min(MAX_KEY, key_room), "a key")
            key_room -= len(key)
            if key in seen:
                raise self.format_error(f"has the key {short_repr(key)} twice")
            seen.add(key)
            kind = self.read_number("I")
            if key == TEMPLATE_KEY or key.startswith(TEMPLATE_KEY + "."):
                text = self.read_template(key, kind, template_room)
                template_room -= len(text)
                templates[key[len(TEMPLATE_KEY) + 1 :] or "default"] = text
                if len(templates) > MAX_TEMPLATES:
                    raise self.format_error(f"has more than {MAX_TEMPLATES} templates")
            elif key in TOKEN_IDS:
                ids[TOKEN_IDS[key]] = self.read_token_id(key, kind)
            else:
                if key == TOKENS_KEY:
                    vocabulary = self.file.tell(), self.left
                self.skip_value(kind)
        return templates, self.read_token_texts(ids, vocabulary) if templates else {}

    def read_prologue(self) -> int:
        """Check magic and version, find the byte order, and return the number of keys."""
        if self.read_bytes(4) != MAGIC:
            raise self.format_error("does not begin with GGUF")
        version = self.read_number("I")
        if version & 0xFFFF == 0:  # a small number read the wrong way round
            self.order = ">"
            version = int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in VERSIONS:
            raise self.format_error(
                f"is of version {version}; versions {' and '.join(map(str, VERSIONS))} are read"
            )
        self.read_number("Q")  # the count of tensors
        keys = self.read_number("Q")
        if keys > MAX_KEYS:
            raise self.format_error(f"claims {keys:,} keys; at most {MAX_KEYS:,} are read")
        return keys

    # -- values ------------------------------------------------------------------------------------------------------

    def read_template(self, key: str, kind: int, limit: int) -> str:
        if kind != STRING:
            raise self.format_error(f"has a {short_repr(key)} that is not a string")
        return self.read_text(limit, short_repr(key))

    def read_token_id(self, key: str, kind: int) -> int:
        code = SCALARS.get(kind, "")
        if code not in tuple("BbHhIiQq"):
            raise self.format_error(f"has a {key} that is not a whole number")
        return self.read_number(code)

    def read_token_texts(
        self, ids: dict[str, int], vocabulary: tuple[int, int] | None
    ) -> dict[str, str]:
        """Return the words of the ids, found by a second walk over the vocabulary."""
        wanted = {token: i for token, i in ids.items() if i >= 0 and i != NO_TOKEN}
        if vocabulary is None or not wanted:
            return {}
        self.file.seek(vocabulary[0])
        self.left = vocabulary[1]
        if self.read_number("I") != STRING:
            raise self.format_error(f"has a {TOKENS_KEY} that is not a list of strings")
        count = self.read_number("Q")
        for token, i in wanted.items():
            if i >= count:
                raise self.format_error(
                    f"declares the id {i:,} for {token}, in a vocabulary of {count:,}"
                )
        words = {}
        passed = 0
        for i in sorted(set(wanted.values())):
            self.skip_strings(i - passed)
            words[i] = self.read_text(MAX_TOKEN, f"token {i}")
            passed = i + 1
        return {token: words[i] for token, i in wanted.items()}

    def skip_value(self, kind: int, depth: int = 0) -> None:
        if kind in SCALARS:
            self.skip_bytes(struct.calcsize("=" + SCALARS[kind]))
        elif kind == STRING:
            self.skip_bytes(self.read_number("Q"))
        elif kind == ARRAY and depth < MAX_DEPTH:
            self.skip_array(depth)
        else:
            unknown = f"has a value of unknown type {kind}"
            raise self.format_error("nests arrays too deeply" if kind == ARRAY else unknown)

    def skip_array(self, depth: int) -> None:
        kind, count = self.read_number("I"), self.read_number("Q")
        if kind in SCALARS:
            self.skip_bytes(count * struct.calcsize("=" + SCALARS[kind]))
            return
        self.strings += count
        if self.strings > MAX_STRINGS:
            raise self.format_error(
                f"claims lists of {self.strings:,} elements; at most {MAX_STRINGS:,} are read"
            )
        if kind == STRING:
            self.skip_strings(count)
        else:
            self.nested += count
            if self.nested > MAX_NESTED:
                raise self.format_error(
                    f"has {self.nested:,} arrays in arrays; at most {MAX_NESTED:,} are read"
                )
            for _ in range(count):
                self.skip_value(kind, depth + 1)

    def skip_strings(self, count: int) -> None:
        """Skip strings: `skip_value` inlined, since a vocabulary has hundreds of thousands of them."""
        read, unpack, left = self.file.read, struct.Struct(self.order + "Q").unpack, self.left
        for _ in range(count):
            left -= 8
            if left < 0:
                raise self.truncated_error()
            (length,) = unpack(read(8))
            left -= length
            if left < 0:
                raise self.truncated_error()
            # Words are short and already in the buffer, where reading is cheaper than seeking.
            if length < 2**12:
                read(length)
            else:
                self.file.seek(length, os.SEEK_CUR)
        self.left = left

    # -- bytes -------------------------------------------------------------------------------------------------------

    def read_number(self, code: str) -> int:
        value: int = struct.unpack(self.order + code, self.read_bytes(struct.calcsize("=" + code)))[
            0
        ]
        return value

    def read_text(self, limit: int, what: str) -> str:
        length = self.read_number("Q")
        if length > limit:
            raise self.format_error(
                f"claims {length:,} bytes for {what}; at most {limit:,} are read"
            )
        try:
            return self.read_bytes(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.format_error(f"has {what} in another encoding than UTF-8") from error

    def read_bytes(self, length: int) -> bytes:
        self.use_up(length)
        data = self.file.read(length)
        if len(data) != length:
            raise self.truncated_error()
        return data

    def skip_bytes(self, length: int) -> None:
        self.use_up(length)
        self.file.seek(length, os.SEEK_CUR)

    def use_up(self, length: int) -> None:
        self.left -= length
        if self.left < 0:
            raise self.truncated_error()

    def truncated_error(self) -> SourceError:
        return self.format_error(
            "ends in the middle of its header", "The file is damaged, or its download was cut."
        )

    def format_error(self, what: str, hint: str | None = None) -> SourceError:
        return SourceError(f"{self.name} is not a GGUF file that can be read: it {what}", hint=hint)

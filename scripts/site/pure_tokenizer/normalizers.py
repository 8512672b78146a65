"""The normalizers of a `tokenizer.json`: functions from a text to the text that is split into words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from pure_tokenizer.components import read_field, read_parts, refuse
from pure_tokenizer.regex import (
    WHITE_SPACE,
    compile_pattern,
    find_matches,
)
from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.normalization import UNICODE_FORMS, Component
from turnwise.tokens.tokenizers.offsets import BYTE_ALPHABET

Normalize = Callable[[str], str]

SPACES = "".join(chr(code) for first, last in WHITE_SPACE for code in range(first, last + 1))
CHARACTER_OF_BYTE = {byte: character for character, byte in BYTE_ALPHABET.items()}


def read_normalizer(component: Component | None) -> Normalize:
    """Return the function that a normalizer describes.

    Raises:
        TokenizerError: a part of it is not known here.
    """
    steps = [_read_step(part) for part in read_parts(component, "normalizers")]

    def normalize(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return normalize


def _read_step(component: Component) -> Normalize:
    kind = component["type"]
    if kind in UNICODE_FORMS:
        return lambda text: unicodedata.normalize(kind, text)
    reader = READERS.get(kind)
    if reader is None:
        raise refuse(f"the normalizer {kind}")
    return reader(component)


def _read_prepend(component: Component) -> Normalize:
    prefix: str = read_field(component, "prepend", str)
    return lambda text: prefix + text if text else text


def _read_strip(component: Component) -> Normalize:
    left = read_field(component, "strip_left", bool)
    right = read_field(component, "strip_right", bool)

    def strip(text: str) -> str:
        text = text.lstrip(SPACES) if left else text
        return text.rstrip(SPACES) if right else text

    return strip


def read_replace(component: Component) -> Normalize:
    """Return the function of a Replace, which is a normalizer and a decoder."""
    pattern = read_pattern(component)
    content: str = read_field(component, "content", str)

    def replace(text: str) -> str:
        parts, done = [], 0
        for start, end in find_matches(pattern, text):
            parts += [text[done:start], content]
            done = end
        return "".join(parts) + text[done:]

    return replace


def read_pattern(component: Component) -> re.Pattern[str]:
    """Return the pattern of a component: a text as it is, or a regular expression."""
    pattern = read_field(component, "pattern", dict)
    text, regex = pattern.get("String"), pattern.get("Regex")
    if isinstance(text, str) and text:
        return re.compile(re.escape(text))
    if isinstance(regex, str):
        return compile_pattern(regex)
    raise TokenizerError(f"the {component['type']} of the tokenizer has no pattern")


def spell_bytes(text: str) -> str:
    """Return a text in the byte alphabet: one printable character for each byte."""
    return "".join([CHARACTER_OF_BYTE[byte] for byte in text.encode("utf-8")])


def _lower(text: str) -> str:
    # character by character: a final sigma is like any other
    return "".join(map(str.lower, text))


def _strip_accents(text: str) -> str:
    return "".join([char for char in text if not unicodedata.category(char).startswith("M")])


READERS: dict[str, Callable[[Component], Normalize]] = {
    "ByteLevel": lambda component: spell_bytes,
    "Lowercase": lambda component: _lower,
    "Prepend": _read_prepend,
    "Replace": read_replace,
    "Strip": _read_strip,
    "StripAccents": lambda component: _strip_accents,
}

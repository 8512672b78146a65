"""What happens to a text on its way through a `tokenizer.json`, read off its normalizer and its pre-tokenizer.

Three questions decide how the rest of the package treats a tokenizer:

* Is something put before the text, and where? SentencePiece's heirs write a space first: before every text that stands
  between two added tokens, or before the very first only. A text that was cut must not get it.
* Does each character of the text become one character of a token? Then the places where tokens end follow from
  the tokens' own spelling, and no offsets are needed.
* Are tokens spelled in the byte alphabet (one printable character for each byte of UTF-8), or in characters?

A shape is only what the two JSON values say; a component that is not in the tables below is *opaque*: correct, slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unicodedata import is_normalized

from turnwise.tokens.tokenizers.protocol import AFTER, START

Component = dict[str, Any]

FORMS = frozenset({"NFC", "NFD", "NFKC", "NFKD"})
EVERYWHERE = frozenset({START, AFTER})
SCHEMES = {"always": EVERYWHERE, "first": frozenset({START}), "never": frozenset[int]()}


@dataclass(frozen=True, slots=True)
class Shape:
    prefixed: frozenset[int]  # the positions at which something is put before the text
    prefix: str  # what it is
    unless: tuple[str, ...]  # a text that starts with one of these gets none
    faithful: bool  # one character of the text, one character of a token; the Unicode forms apart
    forms: tuple[Any, ...]  # the Unicode forms it is brought into
    bytelevel: bool  # tokens are spelled in the byte alphabet

    def keeps(self, text: str) -> bool:
        """Whether the tokens of `text` spell exactly its characters, a prefix apart."""
        return self.faithful and (
            text.isascii() or all(is_normalized(form, text) for form in self.forms)
        )

    def put(self, text: str) -> str:
        """The text with the prefix before it."""
        return text if not text or text.startswith(self.unless) else self.prefix + text


def shape(normalizer: Component | None, pre_tokenizer: Component | None) -> Shape:
    before, cuts = list(leaves(normalizer)), list(leaves(pre_tokenizer))
    prepended = [leaf for leaf in before if leaf["type"] == "Prepend"]
    first = cuts[0] if cuts else {"type": ""}
    replacement = first.get("replacement", " ")  # ByteLevel says none
    repeated = any(
        positions(leaf) for leaf in cuts[1:]
    )  # once per word: not a prefix of the text any more
    return Shape(
        prefixed=EVERYWHERE if prepended else positions(first),
        prefix=prepended[0]["prepend"] if prepended else replacement,
        unless=() if prepended else (" ", replacement),
        faithful=not repeated and all(map(one_to_one, before)) and all(map(keeping, cuts)),
        forms=tuple(leaf["type"] for leaf in before if leaf["type"] in FORMS),
        bytelevel=any(leaf["type"] == "ByteLevel" for leaf in before + cuts),
    )


def leaves(component: Component | None) -> Iterator[Component]:
    """The parts of a component, in order; sequences are opened."""
    if not component:
        return
    if component.get("type") != "Sequence":
        yield component
        return
    for part in component.get("normalizers") or component.get("pretokenizers") or ():
        yield from leaves(part)


def positions(leaf: Component) -> frozenset[int]:
    """Where this pre-tokenizer puts a space before the text."""
    if leaf["type"] == "Metaspace":
        # files from before there were schemes say add_prefix_space only
        scheme = leaf.get("prepend_scheme") or (
            "always" if leaf.get("add_prefix_space", True) else "never"
        )
        return SCHEMES.get(scheme, EVERYWHERE)
    return (
        EVERYWHERE
        if leaf["type"] == "ByteLevel" and leaf.get("add_prefix_space", True)
        else frozenset()
    )


def one_to_one(leaf: Component) -> bool:
    """Whether this normalizer turns each character into one character (or is a form, or a prefix)."""
    if leaf["type"] == "Replace":
        return len(leaf["pattern"].get("String", "")) == len(leaf["content"]) == 1
    return leaf["type"] in FORMS or leaf["type"] in ("Prepend", "ByteLevel")


def keeping(leaf: Component) -> bool:
    """Whether this pre-tokenizer only cuts, and drops nothing."""
    if leaf["type"] in ("Split", "Punctuation"):
        return leaf.get("behavior") != "Removed"
    return leaf["type"] in ("ByteLevel", "Metaspace", "Digits", "UnicodeScripts", "FixedLength")


def unprefixed(component: Component | None) -> Component | None:
    """The same component, but nothing is put before the text; None where nothing is left of it."""
    if not component:
        return None
    if component["type"] == "Sequence":
        key = "normalizers" if "normalizers" in component else "pretokenizers"
        parts = [part for part in map(unprefixed, component[key]) if part]
        return {**component, key: parts}
    change = UNPREFIXED.get(component["type"])
    return change(component) if change else component


def respelled(
    normalizer: Component | None, pre_tokenizer: Component | None
) -> tuple[Component | None, ...]:
    """Both without the prefix and without Metaspace: its replacing goes to the normalizer, its cutting becomes a Split.

    They are what they were where there is neither, or where another cut stands before a Metaspace."""
    found = shape(normalizer, pre_tokenizer)
    first = next(leaves(pre_tokenizer), None)
    metaspace = first if first and first["type"] == "Metaspace" else None
    if not metaspace and not found.prefixed:
        return normalizer, pre_tokenizer
    before, cuts = list(leaves(unprefixed(normalizer))), list(leaves(unprefixed(pre_tokenizer)))
    if metaspace:
        sign = metaspace["replacement"]
        before.append({"type": "Replace", "pattern": {"String": " "}, "content": sign})
        split = {
            "type": "Split",
            "pattern": {"String": sign},
            "behavior": "MergedWithNext",
            "invert": False,
        }
        cuts[:1] = [split] if metaspace.get("split", True) else []
    return sequence("normalizers", before), sequence("pretokenizers", cuts)


def sequence(key: str, parts: list[Component]) -> Component | None:
    return {"type": "Sequence", key: parts} if len(parts) > 1 else parts[0] if parts else None


UNPREFIXED: dict[str, Callable[[Component], Component | None]] = {
    "Prepend": lambda leaf: None,
    "Metaspace": lambda leaf: {**leaf, "prepend_scheme": "never", "add_prefix_space": False},
    "ByteLevel": lambda leaf: (
        {**leaf, "add_prefix_space": False} if "add_prefix_space" in leaf else leaf
    ),
}

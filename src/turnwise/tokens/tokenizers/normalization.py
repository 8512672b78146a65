"""What happens to a text on its way through a `tokenizer.json`, as its normalizer and pre-tokenizer declare.

Three questions decide how the rest of the package treats a tokenizer:

* Is a prefix put before the text, and where? Tokenizers in the SentencePiece tradition put a space before every text
  between two added tokens, or before the very first only. A text that was split must not get one.
* Does each character of the text become one character of a token? Then the offsets of tokens follow from the tokens'
  own spelling, and the library need not be asked for them.
* Are tokens spelled in the byte alphabet (one printable character for each byte of UTF-8), or in characters?

A component that is not in the tables below counts as one that changes text: still correct, but slower.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from unicodedata import is_normalized

from turnwise.tokens.tokenizers.protocol import AFTER, START

Component = dict[str, Any]

UNICODE_FORMS = frozenset({"NFC", "NFD", "NFKC", "NFKD"})
NOWHERE: frozenset[int] = frozenset()
EVERYWHERE = frozenset({START, AFTER})
PREFIX_SCHEMES = {"always": EVERYWHERE, "first": frozenset({START}), "never": NOWHERE}
# Normalizers; forms and prefixes are separate.
ONE_TO_ONE = UNICODE_FORMS | {"Prepend", "ByteLevel"}
LOSSLESS = ("ByteLevel", "Metaspace", "Digits", "UnicodeScripts", "FixedLength")  # pre-tokenizers


class Pipeline(NamedTuple):
    """What the normalizer and the pre-tokenizer do to a text."""

    prefixed: frozenset[int]  # the positions at which a prefix is put before the text
    prefix: str
    unless: tuple[str, ...]  # a text that starts with one of these gets no prefix
    is_one_to_one: bool  # one character of the text is one of a token, Unicode forms apart
    forms: tuple[Any, ...]  # the Unicode forms that the text is brought into
    is_bytelevel: bool  # tokens are spelled in the byte alphabet

    def keeps(self, text: str) -> bool:
        """Return whether the tokens of `text` spell exactly its characters, a prefix apart."""
        if not self.is_one_to_one:
            return False
        return text.isascii() or all(is_normalized(form, text) for form in self.forms)

    def add_prefix(self, text: str) -> str:
        """Return the text with the prefix before it."""
        return text if not text or text.startswith(self.unless) else self.prefix + text


def analyse_pipeline(normalizer: Component | None, pre_tokenizer: Component | None) -> Pipeline:
    """Read the two JSON values of a `tokenizer.json`."""
    normalizers, splits = flatten_component(normalizer), flatten_component(pre_tokenizer)
    first_split = splits[0] if splits else {"type": ""}
    replacement = first_split.get("replacement", " ")  # ByteLevel declares none
    prefixed, prefix = _prefix_positions(first_split), replacement
    unless: tuple[str, ...] = (" ", replacement)
    for part in normalizers:
        if part["type"] == "Prepend":
            prefixed, prefix, unless = EVERYWHERE, part["prepend"], ()
            break
    # A later pre-tokenizer with a prefix puts it before every word: not a prefix of the text any more.
    is_repeated = any(_prefix_positions(part) for part in splits[1:])
    is_one_to_one = all(map(_is_one_to_one, normalizers)) and all(map(_is_lossless, splits))
    return Pipeline(
        prefixed=prefixed,
        prefix=prefix,
        unless=unless,
        is_one_to_one=is_one_to_one and not is_repeated,
        forms=tuple(part["type"] for part in normalizers if part["type"] in UNICODE_FORMS),
        is_bytelevel=any(part["type"] == "ByteLevel" for part in normalizers + splits),
    )


def flatten_component(component: Component | None) -> list[Component]:
    """Return the parts of a normalizer or pre-tokenizer in order, sequences opened; an empty one has none."""
    if not component:
        return []
    if component.get("type") != "Sequence":
        return [component]
    parts = component.get("normalizers") or component.get("pretokenizers") or ()
    return [one for part in parts for one in flatten_component(part)]


def _prefix_positions(part: Component) -> frozenset[int]:
    """Return where this pre-tokenizer puts a space before the text."""
    has_space = part.get("add_prefix_space", True)
    if part["type"] == "Metaspace":
        # Older files have no scheme, only add_prefix_space.
        scheme = part.get("prepend_scheme") or ("always" if has_space else "never")
        return PREFIX_SCHEMES.get(scheme, EVERYWHERE)
    if part["type"] == "ByteLevel" and has_space:
        return EVERYWHERE
    return NOWHERE


def _is_one_to_one(part: Component) -> bool:
    """Return whether this normalizer turns each character into one character."""
    if part["type"] == "Replace":
        return len(part["pattern"].get("String", "")) == len(part["content"]) == 1
    return part["type"] in ONE_TO_ONE


def _is_lossless(part: Component) -> bool:
    """Return whether this pre-tokenizer only splits, and drops nothing."""
    if part["type"] in ("Split", "Punctuation"):
        return part.get("behavior") != "Removed"
    return part["type"] in LOSSLESS


def remove_prefix(component: Component | None) -> Component | None:
    """Return a component that puts nothing before the text and is otherwise the same; None if nothing is left."""
    if not component:
        return None
    kind = component["type"]
    if kind == "Sequence":
        key = "normalizers" if "normalizers" in component else "pretokenizers"
        return {**component, key: [part for part in map(remove_prefix, component[key]) if part]}
    if kind == "Prepend":
        return None
    if kind == "Metaspace":
        return {**component, "prepend_scheme": "never", "add_prefix_space": False}
    if kind == "ByteLevel" and "add_prefix_space" in component:
        return {**component, "add_prefix_space": False}
    return component


def rewrite_without_prefix(
    normalizer: Component | None, pre_tokenizer: Component | None
) -> tuple[Component | None, ...]:
    """Return both without the prefix and without Metaspace.

    The replacing of a Metaspace goes to the normalizer, its splitting becomes a Split. Both are returned unchanged
    where there is neither, or where another split comes before a Metaspace.
    """
    splits = flatten_component(remove_prefix(pre_tokenizer))
    metaspace = splits[0] if splits and splits[0]["type"] == "Metaspace" else None
    if not metaspace and not analyse_pipeline(normalizer, pre_tokenizer).prefixed:
        return normalizer, pre_tokenizer
    normalizers = flatten_component(remove_prefix(normalizer))
    if metaspace:
        sign = metaspace["replacement"]
        normalizers.append({"type": "Replace", "pattern": {"String": " "}, "content": sign})
        split = {
            "type": "Split",
            "pattern": {"String": sign},
            "behavior": "MergedWithNext",
            "invert": False,
        }
        splits[:1] = [split] if metaspace.get("split", True) else []
    return _to_component("normalizers", normalizers), _to_component("pretokenizers", splits)


def _to_component(key: str, parts: list[Component]) -> Component | None:
    """Return one component for these parts; None if there are none."""
    if len(parts) > 1:
        return {"type": "Sequence", key: parts}
    return parts[0] if parts else None

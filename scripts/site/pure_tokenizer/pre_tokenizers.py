r"""The pre-tokenizers of a `tokenizer.json`: they split a text into the words that the model encodes one by one.

Words come out as the vocabulary spells them: in the byte alphabet after `ByteLevel`, with `▁` for a space after
`Metaspace`. Where a space belongs before a text depends on its position, so a split is told whether its text is the
first one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pure_tokenizer.components import read_field, read_parts, refuse
from pure_tokenizer.normalizers import read_pattern, spell_bytes
from pure_tokenizer.regex import compile_pattern, find_matches
from turnwise.errors import TokenizerError
from turnwise.tokens.tokenizers.normalization import Component

Split = Callable[[str, bool], list[str]]  # a text, and whether nothing is before it, to its words
Marked = list[tuple[str, bool]]  # parts of a text in order, and whether the pattern matched them

GPT2_PATTERN = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # of ByteLevel
)
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
NUMBER = r"\p{N}"


def read_pre_tokenizer(component: Component | None) -> Split:
    """Return the function that a pre-tokenizer describes.

    Raises:
        TokenizerError: a part of it is not known here.
    """
    steps = [_read_step(part) for part in read_parts(component, "pretokenizers")]

    def split(text: str, is_first: bool) -> list[str]:
        words = [text] if text else []
        for step in steps:
            words = [
                part
                for index, word in enumerate(words)
                for part in step(word, is_first and index == 0)
                if part
            ]
        return words

    return split


def _read_step(component: Component) -> Split:
    reader = READERS.get(component["type"])
    if reader is None:
        raise refuse(f"the pre-tokenizer {component['type']}")
    return reader(component)


def _read_byte_level(component: Component) -> Split:
    has_prefix = read_field(component, "add_prefix_space", bool, True)
    pattern = compile_pattern(GPT2_PATTERN)
    uses_pattern = read_field(component, "use_regex", bool, True)

    def split(text: str, is_first: bool) -> list[str]:
        if has_prefix and not text.startswith(" "):
            text = " " + text
        words = [part for part, _ in mark_matches(pattern, text)] if uses_pattern else [text]
        return [spell_bytes(word) for word in words]

    return split


def _read_metaspace(component: Component) -> Split:
    sign: str = read_field(component, "replacement", str)
    # Older files have no scheme, only add_prefix_space.
    has_prefix = read_field(component, "add_prefix_space", bool, True)
    scheme = read_field(component, "prepend_scheme", str, "always" if has_prefix else "never")
    if scheme not in ("always", "first", "never"):
        raise refuse(f"the prepend_scheme {scheme!r} of Metaspace")
    is_split = read_field(component, "split", bool, True)
    pattern = re.compile(re.escape(sign))

    def split(text: str, is_first: bool) -> list[str]:
        text = text.replace(" ", sign)
        is_prefixed = scheme == "always" or (scheme == "first" and is_first)
        if is_prefixed and not text.startswith(sign):
            text = sign + text
        return _merge_with_next(mark_matches(pattern, text)) if is_split else [text]

    return split


def _read_split(component: Component) -> Split:
    is_inverted = read_field(component, "invert", bool, False)
    return _split_by(read_pattern(component), component, is_inverted)


def _read_digits(component: Component) -> Split:
    is_individual = read_field(component, "individual_digits", bool, False)
    behaviour = "Isolated" if is_individual else "Contiguous"
    return _split_by(compile_pattern(NUMBER), {**component, "behavior": behaviour})


def _read_punctuation(component: Component) -> Split:
    return _split_by(compile_pattern(PUNCTUATION), {"behavior": "Isolated", **component})


def _split_by(pattern: re.Pattern[str], component: Component, is_inverted: bool = False) -> Split:
    behaviour = read_field(component, "behavior", str)
    join = BEHAVIOURS.get(behaviour)
    if join is None:
        raise TokenizerError(
            f"the {component['type']} of the tokenizer has an unknown behaviour {behaviour!r}"
        )

    def split(text: str, is_first: bool) -> list[str]:
        marked = mark_matches(pattern, text)
        if is_inverted:
            marked = [(part, not is_match) for part, is_match in marked]
        return join(marked)

    return split


def mark_matches(pattern: re.Pattern[str], text: str) -> Marked:
    """Return the text in parts: what the pattern matches, and what is between."""
    marked: Marked = []
    done = 0
    for start, end in find_matches(pattern, text):
        if start > done:
            marked.append((text[done:start], False))
        marked.append((text[start:end], True))
        done = end
    if done < len(text):
        marked.append((text[done:], False))
    return marked


def _remove(marked: Marked) -> list[str]:
    return [part for part, is_match in marked if not is_match]


def _isolate(marked: Marked) -> list[str]:
    return [part for part, _ in marked]


def _merge_with_previous(marked: Marked) -> list[str]:
    """Return the parts, each match at the end of what is before it; of several in a row only the first."""
    words: list[str] = []
    was_match = False
    for part, is_match in marked:
        if is_match and not was_match and words:
            words[-1] += part
        else:
            words.append(part)
        was_match = is_match
    return words


def _merge_with_next(marked: Marked) -> list[str]:
    """Return the parts, each match at the start of what is behind it; of several in a row only the last."""
    words: list[str] = []
    was_match = False
    for part, is_match in reversed(marked):
        if is_match and not was_match and words:
            words[-1] = part + words[-1]
        else:
            words.append(part)
        was_match = is_match
    return words[::-1]


def _join_contiguous(marked: Marked) -> list[str]:
    """Return the parts, matches in a row as one."""
    words: list[str] = []
    was_match = False
    for part, is_match in marked:
        if is_match == was_match and words:
            words[-1] += part
        else:
            words.append(part)
        was_match = is_match
    return words


BEHAVIOURS: dict[str, Callable[[Marked], list[str]]] = {
    "Removed": _remove,
    "Isolated": _isolate,
    "MergedWithPrevious": _merge_with_previous,
    "MergedWithNext": _merge_with_next,
    "Contiguous": _join_contiguous,
}
READERS: dict[str, Callable[[Component], Split]] = {
    "ByteLevel": _read_byte_level,
    "Digits": _read_digits,
    "Metaspace": _read_metaspace,
    "Punctuation": _read_punctuation,
    "Split": _read_split,
}

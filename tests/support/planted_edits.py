"""Random edits of a template's syntax, for asking whether what they change is found."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

LETTERS = "abX1 \n<|\"'é"
TAG = re.compile(r"\{%.*?%\}|\{\{.*?\}\}", re.S)
TEST = re.compile(r"\{%-?\s*(?:if|elif)\s+(.*?)-?%\}", re.S)
QUOTED = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
FIELD = re.compile(r"\.([a-z_]+)\b|\[['\"]([a-z_]+)['\"]\]")

Edit = Callable[[str, random.Random], str]


def insert_letter(text: str, dice: random.Random) -> str:
    at = dice.randrange(len(text) + 1)
    return text[:at] + dice.choice(LETTERS) + text[at:]


def delete_letter(text: str, dice: random.Random) -> str:
    at = dice.randrange(len(text))
    return text[:at] + text[at + 1 :]


def double_letter(text: str, dice: random.Random) -> str:
    at = dice.randrange(len(text))
    return text[:at] + text[at] + text[at:]


def negate_test(text: str, dice: random.Random) -> str:
    tests = list(TEST.finditer(text))
    if not tests:
        return text
    found = dice.choice(tests)
    return f"{text[: found.start(1)]}not ({found[1]}) {text[found.end(1) :]}"


def fix_test(text: str, dice: random.Random) -> str:
    tests = list(TEST.finditer(text))
    if not tests:
        return text
    found = dice.choice(tests)
    return f"{text[: found.start(1)]}{dice.choice(('true', 'false'))} {text[found.end(1) :]}"


def swap_word(text: str, dice: random.Random) -> str:
    """Replace one of the words of the language by another inside of a tag."""
    words = [
        match
        for tag in TAG.finditer(text)
        for match in re.compile(SWAPPED).finditer(text, tag.start(), tag.end())
    ]
    if not words:
        return text
    found = dice.choice(words)
    return text[: found.start()] + dice.choice(SWAPS[found[0]]) + text[found.end() :]


SWAPS = {
    "==": ("!=",),
    "!=": ("==",),
    " and ": (" or ",),
    " or ": (" and ",),
    "not ": ("",),
    " is not ": (" is ",),
    " is ": (" is not ",),
    "loop.first": ("loop.last", "true"),
    "loop.last": ("loop.first", "false"),
    "loop.index0": ("loop.index", "loop.revindex0"),
    "loop.index": ("loop.index0",),
    "| trim": ("",),
    "|trim": ("",),
    ".strip()": ("", ".lstrip()", ".rstrip()"),
    ".strip(": (".rstrip(", ".lstrip("),
    ".lstrip(": (".strip(", ".rstrip("),
    ".rstrip(": (".strip(", ".lstrip("),
    "| tojson": ("", "| string"),
    "|tojson": ("|string",),
    "true": ("false",),
    "false": ("true",),
    "True": ("False",),
    "False": ("True",),
    "[-1]": ("[0]", "[1]"),
    "[0]": ("[-1]", "[1]"),
    "> ": (">= ", "< "),
    "< ": ("<= ", "> "),
    "+ 1": ("+ 2", "- 1"),
    "- 1": ("- 2", "+ 1"),
    "[1:]": ("[2:]", "[:]"),
    "is string": ("is mapping",),
    "is defined": ("is none",),
    "is mapping": ("is string",),
    "elif": ("endif %}{% if",),
    "indent=4": ("indent=2", ""),
    "ensure_ascii=False": ("ensure_ascii=True", ""),
    "{%-": ("{%",),
    "-%}": ("%}",),
    "{{-": ("{{",),
    "-}}": ("}}",),
    "%Y": ("%G", "%y"),
    "%d": ("%e", "%m"),
}
SWAPPED = "|".join(map(re.escape, sorted(SWAPS, key=len, reverse=True)))


def edit_literal(text: str, dice: random.Random) -> str:
    found = [match for tag in TAG.finditer(text) for match in QUOTED.finditer(tag[0])]
    texts = [match[0][1:-1] for match in found if match[0][1:-1]]
    if not texts:
        return text
    old = dice.choice(texts)
    at = dice.randrange(len(old))
    new = dice.choice((old[:at] + old[at + 1 :], old[:at] + "x" + old[at:], old.upper(), old + " "))
    places = [match.start() for match in re.finditer(re.escape(old), text)]
    place = dice.choice(places)
    return text[:place] + new + text[place + len(old) :]


def rename_field(text: str, dice: random.Random) -> str:
    found = list(FIELD.finditer(text))
    if not found:
        return text
    one, other = dice.choice(found), dice.choice(found)
    group = 1 if one[1] else 2
    return text[: one.start(group)] + (other[1] or other[2]) + text[one.end(group) :]


def drop_tag(text: str, dice: random.Random) -> str:
    outputs = [match for match in TAG.finditer(text) if match[0].startswith("{{")]
    if not outputs:
        return text
    found = dice.choice(outputs)
    return text[: found.start()] + text[found.end() :]


RANDOM_EDITS: tuple[Edit, ...] = (
    insert_letter,
    delete_letter,
    double_letter,
    negate_test,
    fix_test,
    swap_word,
    swap_word,
    swap_word,
    edit_literal,
    edit_literal,
    rename_field,
    drop_tag,
)


def edit_at_random(text: str, dice: random.Random) -> str:
    """Return a text with one edit; it may not compile, and it may be the same."""
    return dice.choice(RANDOM_EDITS)(text, dice)

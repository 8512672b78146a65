"""Edits of a template's text: replacements at places, and tags that are put between its parts.

A tag changes the text around it: `trim_blocks` drops the line break after it, `lstrip_blocks` the indentation before
it, and a sign that stood next to white space now stands next to the tag. `open_tag` and `close_tag` choose the signs of
the new tag so that what is written stays the same. Where the neighbour removes white space anyway, the tag gets a line
of its own.

White space beside a tag is kept by an empty output between them (`{% generation %}{{ '' }}`), and not by Jinja's `+`:
transformers and TRL do not recognise `{% generation +%}`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

INDENTATION = re.compile(r"(?:^|\n)([ \t]*)\Z")
KEEP = "{{ '' }}"  # between a tag and white space that Jinja would drop
CONTEXT = 3  # lines around a change in a diff


class Edit(NamedTuple):
    """Characters `start` to `end` of a text become `text`; an insertion has both at one place."""

    start: int
    end: int
    text: str

    @property
    def growth(self) -> int:
        """By how many characters the text gets longer."""
        return len(self.text) - (self.end - self.start)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with edits that do not overlap; those at one place keep their order."""
    parts, place = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [text[place : edit.start], edit.text]
        place = edit.end
    return "".join([*parts, text[place:]])


def restore_newlines(patched: str, source: str) -> str:
    """Return a text with the line ends of the source it was made of, and with its last one."""
    if source.endswith(("\n", "\r")):
        patched += "\n"
    if "\r\n" in source:
        patched = patched.replace("\n", "\r\n")
    return patched


def unified_diff(before: str, after: str, name: str) -> str:
    """Return the difference of two texts as `diff -u` shows it."""
    name = name.lstrip("/")  # as git writes the path of a file
    lines = difflib.unified_diff(
        *(before.splitlines(keepends=True), after.splitlines(keepends=True)),
        *(f"a/{name}", f"b/{name}"),
        n=CONTEXT,
    )
    shown = [
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    ]
    return "".join(shown)


def list_changed_lines(before: str, after: str) -> tuple[int, ...]:
    """Return the lines of a text, counted from 1, that another one has in another way."""
    pair = before.split("\n"), after.split("\n")
    changes = difflib.SequenceMatcher(None, *pair, autojunk=False).get_opcodes()
    parts = [range(a, max(b, a + 1)) for kind, a, b, *_ in changes if kind != "equal"]
    return tuple(line + 1 for part in parts for line in part)


def write_tag(tag: str, left: str = "", right: str = "") -> str:
    """Return a tag that removes (`-`), keeps (`+`) or leaves to Jinja's settings ("") the white space on each side."""
    before, after = (KEEP if sign == "+" else "" for sign in (left, right))
    first, last = ("-" if sign == "-" else "" for sign in (left, right))
    return f"{before}{{%{first} {tag} {last}%}}{after}"


def open_tag(text: str, place: int, tag: str, within: bool = False) -> Edit:
    """Return the insertion of a tag before what begins at `place`: a tag or the template's text.

    Args:
        text: The template.
        place: Where the tag is put.
        tag: What stands in it.
        within: The place is inside of the template's text, which goes on after it.
    """
    following = text[place : place + 3]
    if following.startswith(("{%-", "{{-")):
        indentation = INDENTATION.search(text[:place])
        line = f"\n{indentation[1]}" if indentation is not None else ""
        return Edit(place, place, f"{write_tag(tag, '-')}{line}")
    is_kept = within or following.startswith(("{%+", "{{"))  # what `lstrip_blocks` would drop
    left = "+" if is_kept and _is_indentation(text[:place]) else ""
    right = "+" if following.startswith("\n") else ""  # what `trim_blocks` would drop
    return Edit(place, place, write_tag(tag, left, right))


def close_tag(text: str, place: int, tag: str, within: bool = False) -> Edit:
    """Return the insertion of a tag after what ends at `place`; the arguments are those of `open_tag`."""
    before, after = text[:place], text[place:]
    blank = after[: len(after) - len(after.lstrip())]
    following = after[len(blank) :]
    is_tag = before.endswith(("%}", "}}"))
    is_stripping = before.endswith(("-%}", "-}}"))
    # `lstrip_blocks` would drop the template's own indentation.
    left = "+" if not is_tag and _is_indentation(before) else ""
    right = ""
    if within:
        right = "+" if after.startswith("\n") else ""
    elif is_stripping or following.startswith(("{%-", "{{-")):
        if is_tag and "\n" in blank:  # it is removed, so there is room for a line
            right = "-" if is_stripping else ""
            line = f"\n{find_indentation(text, place)}"
            return Edit(place, place, f"{line}{write_tag(tag, '-', right)}")
        right = "-"
    elif before.endswith("+%}") or (before.endswith("}}") and after.startswith("\n")):
        right = "+"  # `trim_blocks` would drop a line break that was written
    elif not is_tag and blank and following.startswith("{%"):
        right = "-"  # what `lstrip_blocks` removed before the next tag, which is no longer the first on its line
    return Edit(place, place, write_tag(tag, left, right))


def _is_indentation(before: str) -> bool:
    """Whether a line begins with white space, and nothing else is before this place."""
    found = INDENTATION.search(before)
    return found is not None and bool(found[1])


def find_indentation(text: str, place: int) -> str:
    """Return the white space with which the line of a place begins."""
    start = text.rfind("\n", 0, place) + 1
    line = text[start:place]
    return line[: len(line) - len(line.lstrip())]

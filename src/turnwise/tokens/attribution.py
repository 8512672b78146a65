"""Who may write control tokens: one table, asked for every token that a rendered text seems to hold.

A prompt is one text, but not one voice: the template's author wrote some characters of it, users, tools and web pages
the others. Each character has a *voice*, read off its origin, and each voice a level:

    ALL      may write any added token
    WORDS    may write added tokens that are not marked special (`<think>`), unless the template itself uses them to
             mark turns
    NONE     may write none: what looks like one is encoded as ordinary text

A token counts only if one field or the template alone wrote all of it. The name of a role stands between the two: it
is a field, but templates build markers from it (`'<|' + role + '|>'`), so a role that is known by name has the
template's voice, and any other is a field like all the rest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from turnwise.engine.provenance.piece_table import PieceTable
from turnwise.engine.provenance.trails import NOWHERE, Field, Leaf
from turnwise.errors import MessageError, did_you_mean
from turnwise.messages import REASONING_KEYS
from turnwise.tokens.token_matcher import Hit, Scanner, hit
from turnwise.tokens.tokenizers.protocol import Added

NONE, WORDS, ALL = range(3)
LEVELS = {"none": NONE, "words": WORDS, "all": ALL}
TEMPLATE = (
    "the template"  # the author's text, special tokens passed as options, roles known by name
)
INPUTS = ("tools", "documents")
OPTION = "option "
TRUST: Mapping[
    tuple[str, str], int
] = {  # what speaks, and its name; whatever is not listed may write none
    ("voice", TEMPLATE): ALL,
    ("role", "assistant"): WORDS,  # content and reasoning of these messages
    ("role", "model"): WORDS,
}
ROLES = frozenset(
    (
        "system",
        "developer",
        "user",
        "assistant",
        "tool",
        "function",
        "environment",
        "ipython",
        "observation",
        "model",
    )
)
TOKEN_OPTIONS = (
    "bos_token",
    "eos_token",
    "pad_token",
    "unk_token",
    "sep_token",
    "cls_token",
    "mask_token",
)
SPOKEN = ("content", *REASONING_KEYS)
SPEAKERS = ("assistant", "model")


class Voices:
    """The voice of every character of a rendering, found where it is asked for."""

    def __init__(
        self,
        table: PieceTable,
        messages: Sequence[Mapping[str, Any]],
        trust: Mapping[str, Any] | None = None,
        known: Callable[[], Container[str]] = tuple,
    ) -> None:
        self.piece_table = table
        self.known = known  # the tokens by which the template marks turns, in any conversation
        self.chat = messages
        self.levels = levels(trust) if trust else TRUST
        self.suspect = False  # somebody spelled a token who may not write it
        self.words: set[int] = set()  # where assistants wrote tokens that are allowed to them

    def hits(self, scanner: Scanner, text: str) -> list[Hit]:
        """The added tokens of the text that were written by somebody who may."""
        found = self.plain_hits(scanner, text)
        return self.judged_hits(scanner, text) if found is None else found

    def plain_hits(self, scanner: Scanner, text: str) -> list[Hit] | None:
        """The same if the template wrote every one of them, as it does in most conversations; else None."""
        return template_hits(scanner, text, self.piece_table.starts, self.piece_table.trails)

    def judged_hits(self, scanner: Scanner, text: str) -> list[Hit]:

        def allowed(token: Added, start: int, end: int) -> bool:
            if not token.control:
                return True
            level = self.level(start, end)
            if level == WORDS and not token.special:
                self.words.add(start)
                return True
            self.suspect = self.suspect or level != ALL
            return level == ALL

        hits = scanner.hits(text, allowed)
        if self.words:
            marking = self.known()
            kept = [
                one for one in hits if one.at not in self.words or one.token.text not in marking
            ]
            self.suspect, hits = self.suspect or len(kept) < len(hits), kept
        return hits

    def own(self, hits: list[Hit]) -> list[Hit]:
        """Those that the template wrote, or whoever is trusted like it."""
        return [one for one in hits if one.at not in self.words] if self.words else hits

    def marking(self, hits: list[Hit]) -> set[str]:
        """The tokens by which the template marks turns: the first of every turn, and all of those that are not spoken
        by the assistant or made of tools."""
        found: set[str] = set()
        seen: set[int | None] = {None}
        for one in hits:
            message = self.piece_table.message_of(self.piece_table.index_at(one.at))
            role = self.role(message)
            if one.at not in self.words and (message not in seen or role in ("user", "tool")):
                found.add(one.token.text)
            seen.add(message)
        return found

    def level(self, start: int, end: int) -> int:
        """What the text between these characters may hold."""
        table = self.piece_table
        index = table.index_at(start)
        if end <= table.starts[index + 1]:
            if type(table.trails[index]) is int:
                return ALL
            return self.common(self.leaves(index, start, end))
        found: list[Leaf] = []
        while index < len(table.texts) and table.starts[index] < end:
            found += self.leaves(index, start, end)
            index += 1
        return self.common(found)

    def leaves(self, index: int, start: int, end: int) -> list[Leaf]:
        """Where the characters came from, as far as they stand in the text of this index."""
        found, at = [], self.piece_table.starts[index]
        for part, leaf in self.piece_table.split(index):
            if at < end and start < at + len(part):
                found.append(
                    0 if leaf == NOWHERE and part.isdigit() else leaf
                )  # a number that the template counts
            at += len(part)
        return found

    def common(self, leaves: list[Leaf]) -> int:
        """The level of a text with these leaves: one voice, or none."""
        voices = {self.voice(leaf) for leaf in leaves}
        if len(voices) != 1:
            return NONE
        (voice,) = voices
        return self.levels.get(
            ("voice", voice) if isinstance(voice, str) else self.named(voice), NONE
        )

    def voice(self, leaf: Leaf) -> str | Field:
        """The template, or the field that speaks; text that came from nowhere has no voice to trust."""
        if type(leaf) is int:
            return TEMPLATE
        if not isinstance(leaf, Field):
            return ""
        path = leaf.path
        if len(path) == 1 and path[0] in TOKEN_OPTIONS and not leaf.key:
            return TEMPLATE
        if len(path) == 3 and path[2] == "role" and path[0] == "messages" and not leaf.key:
            return TEMPLATE if self.role(path[1]) in ROLES else leaf
        return leaf

    def named(self, leaf: Field) -> tuple[str, str]:
        """The row of the table in which a field stands: the role of its message, or the input that it is in."""
        path = leaf.path
        if path[0] != "messages" or len(path) < 3:
            return "input", str(path[0])
        role = self.role(path[1])
        spoken = path[2] in SPOKEN and not leaf.key
        return ("role", role) if spoken or role not in SPEAKERS else ("field", f"{role}.{path[2]}")

    def role(self, index: Any) -> str:
        return (
            str(self.chat[index].get("role", ""))
            if isinstance(index, int) and index < len(self.chat)
            else ""
        )


def template_hits(
    scanner: Scanner, text: str, starts: Sequence[int], trails: Sequence[Any], begin: int = 0
) -> list[Hit] | None:
    """The added tokens of a text from `begin` on if the template wrote every one of them, else None.

    `starts` and `trails` say where each part of the text begins and came from; the last start is the text's end.
    """
    if not scanner.plain:
        return None
    added, index = scanner.added, 0
    found: list[Hit] = []
    for match in scanner.pattern.finditer(text, begin):
        start, end = match.span()
        index = bisect_right(starts, start, index)
        if type(trails[index - 1]) is not int or end > starts[index]:
            return None
        found.append(hit((start, end, added[text[start:end]], start)))
    return found


def levels(trust: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """The table with what the caller says of roles, inputs and options."""
    if not isinstance(trust, Mapping):
        raise MessageError(
            f"trust is a mapping from roles or inputs to levels, not {type(trust).__name__}",
            path="trust",
        )
    found = dict(TRUST)
    for name, level in trust.items():
        if not isinstance(level, str) or level not in LEVELS:
            hint = did_you_mean(str(level), LEVELS, "Levels")
            raise MessageError(
                f"there is no level of trust {level!r}", path=f"trust[{name!r}]", hint=hint
            )
        found[row(name)] = LEVELS[level]
    return found


def row(name: Any) -> tuple[str, str]:
    """What the caller means: a role, an input, or `option NAME`."""
    if isinstance(name, str) and name.startswith(OPTION):
        return "input", name.removeprefix(OPTION)
    if name in INPUTS:
        return "input", name
    if name in ROLES:
        return "role", name
    hint = did_you_mean(
        str(name), (*sorted(ROLES), *INPUTS, f"{OPTION}NAME"), "Roles, inputs and options"
    )
    raise MessageError(f"trust knows no {name!r}", path="trust", hint=hint)

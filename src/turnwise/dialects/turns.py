r"""What the declarative dialects share: texts with slots, turns made of them, and both as Jinja.

A declarative dialect gives texts (before a turn, after a turn) and rules for placing them. `Turns`
is the most that such dialects can express:

    Turns(
        user=("<|im_start|>user\n", Slot("text"), "<|im_end|>\n"),
        generation_prompt="<|im_start|>assistant\n",
        reply_suffix="<|im_end|>",
        separator="\n",
    )

The texts are other people's and may hold anything, so they enter a template only through `literal`:
quoted, never as raw template text, where `{{`, a newline after a tag or a trailing newline would
change them.

XTuner does not tell the end of a user turn from the generation prompt; there `generation_prompt` is
empty and its text is the end of `user`. Not expressible: tools, reasoning, several kinds of system
turn, anything that depends on another message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from string import Formatter
from typing import Any

from turnwise.errors import SourceError, did_you_mean, short_repr

TOKEN_MARKS = {"bos_token": "⟪bos⟫", "eos_token": "⟪eos⟫"}
"""Placeholders for special tokens inside the texts of turns; no template writes them by itself."""
MARKS = TOKEN_MARKS | {"date": "⟪date⟫"}
"""The same, with one for the date of the day, written 2025-01-15."""
MARK = re.compile(r"@(\w+)@")  # a part of a template that is not written yet
MAX_SLOTS = 100  # of one text; templates that people use have three
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


@dataclass(frozen=True, slots=True)
class Slot:
    """A hole in a text, where the user's text, the number of the round and the like are put."""

    name: str


Text = tuple[str | Slot, ...]


@dataclass(frozen=True, slots=True)
class Turns:
    """A conversation of rounds.

    In `system` and `user`, `Slot("text")` is the message; `Slot("round")` is the number of the round,
    counted from 1, and `Slot("index")` the same counted from 0.
    """

    user: Text
    prefix: str = ""  # before everything: a fixed text, a bos token
    generation_prompt: str = ""
    # Before a reply in the history, where that differs from the generation prompt.
    reply_prefix: str | None = None
    reply_suffix: str = ""  # ends a reply; the model writes it
    eos: bool = False  # eos_token follows `reply_suffix`, and the model writes it too
    separator: str = ""  # between a reply and the next turn; the model does not write it
    # Before the final reply, where that differs from what is before earlier ones.
    last_prefix: str | None = None
    last_suffix: str = ""  # after the final reply, beyond what ends earlier ones
    system: Text | None = None
    system_in_user: bool = (
        False  # the system text is in the first user turn, before the user's text
    )
    system_in_last_user: bool = False  # the same in the last user turn
    default_system: str | None = None  # the system text of a conversation that has none
    trimmed_roles: tuple[str, ...] = ()  # roles whose texts lose the white space around them
    stops: tuple[str, ...] = ()
    # The bos token that conversations start with, if the software of the dialect inserts it by
    # itself: a writer leaves out the first one.
    bos: str = ""

    @property
    def has_bos_in_user(self) -> bool:
        """True if the `bos` that is to be left out is at the start of the first user turn."""
        start = fill_slots(self.user, 0)
        return bool(self.bos) and not self.prefix and start.startswith(self.bos)

    @property
    def before_reply(self) -> str:
        """The text before a reply in the history."""
        return self.generation_prompt if self.reply_prefix is None else self.reply_prefix


def replace_token_marks(
    turns: Turns, texts: Mapping[str, str], named: Collection[str] = ()
) -> Turns:
    """Replace the marks of special tokens by the tokens' texts, or by nothing where none is known.

    Marks of tokens that are `named` are kept, except in the default system text and the stops, which
    every dialect holds as plain text; the mark of a date is kept in the former.
    """

    def fill(text: str, keep: Collection[str] = named) -> str:
        for name, mark in MARKS.items():
            if name not in keep:
                text = text.replace(mark, texts.get(name) or "")
        return text

    def is_known(stop: str) -> bool:
        marked = [name for name, mark in MARKS.items() if mark in stop]
        return not marked or any(texts.get(name) for name in marked)

    default = turns.default_system
    if default is not None:
        default = fill(default, keep={"date"}.intersection(named))
    return replace(
        _map_texts(turns, fill),
        default_system=default,
        stops=tuple(fill(stop, keep=()) for stop in turns.stops if is_known(stop)),
    )


def replace_texts(turns: Turns, old: str, new: str) -> Turns:
    """Replace a text wherever the turns write it; the stops stay."""

    def change(text: str) -> str:
        return text.replace(old, new)

    return _map_texts(turns, change)


def _map_texts(turns: Turns, change: Callable[[str], str]) -> Turns:
    """Return the turns with every text changed, except the stops, the names of roles and the bos token."""

    def change_value(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(change_value, value))
        return change(value) if isinstance(value, str) else value

    names = (field.name for field in fields(turns))
    kept = ("stops", "trimmed_roles", "bos")
    changed: dict[str, Any] = {
        name: change_value(getattr(turns, name)) for name in names if name not in kept
    }
    return replace(turns, **changed)


def literal(text: str) -> str:
    """Return a Jinja string literal for any text.

    Single quotes, unless only they occur in the text. Line breaks are escaped: Jinja reads a bare carriage
    return as a newline. A lone surrogate is kept; no template can hold it.
    """
    quote = '"' if "'" in text and '"' not in text else "'"
    return quote + text.translate(_ESCAPES).replace(quote, "\\" + quote) + quote


def fill_marks(text: str, parts: Mapping[str, str], blocks: Mapping[str, str]) -> str:
    """Return a template with each `@name@` replaced by its block or its part; empty lines are left out.

    Blocks come first, and have marks of their own. Parts are not looked into: they may hold texts with such marks.
    """
    for name, block in blocks.items():
        text = text.replace(f"@{name}@", block)
    lines = [MARK.sub(lambda found: parts[found[1]], line) for line in text.split("\n")]
    return "\n".join(filter(None, lines))


def concatenate(text: Text, values: Mapping[str, str]) -> str:
    """Return a Jinja expression that adds up the text; `values` gives the expression for each slot."""
    parts = [literal(part) if isinstance(part, str) else values[part.name] for part in text]
    return " + ".join(parts) or "''"


def check_slots(count: int, where: str, what: str = "placeholders") -> None:
    """Refuse a text of so many placeholders that translating and compiling them would take long."""
    if count > MAX_SLOTS:
        raise SourceError(f"{where} has {count:,} {what}; at most {MAX_SLOTS} are read")


def parse_format_string(text: str, names: Collection[str], where: str) -> Text:
    """Cut a Python format string at its `{name}` placeholders; `where` names it in errors."""
    try:
        fields = list(Formatter().parse(text))
    except ValueError as error:
        known = ", ".join(f"{{{name}}}" for name in names)
        hint = f"Placeholders: {known}. Write {{{{ and }}}} for braces that are text."
        problem = f"{where} is not a format string: {error}, in {short_repr(text)}"
        raise SourceError(problem, hint=hint) from None
    check_slots(sum(name is not None for _, name, _, _ in fields), where)
    parts: list[str | Slot] = []
    plain_texts: list[str] = []  # the parser starts a new field after every escaped brace
    for plain, name, form, conversion in fields:
        plain_texts.append(plain)
        if name is None:
            continue
        if name not in names:
            problem = f"{where} has the unknown placeholder {{{name}}}, in {short_repr(text)}"
            raise SourceError(problem, hint=did_you_mean(name, names, "Placeholders"))
        if form or conversion:
            problem = f"{where} formats {{{name}}}, which is not supported"
            raise SourceError(f"{problem}: write {{{name}}}, in {short_repr(text)}")
        parts += ("".join(plain_texts), Slot(name))
        plain_texts = []
    return tuple(part for part in (*parts, "".join(plain_texts)) if part)


def to_format_string(text: Text, names: Mapping[str, str]) -> str:
    """The inverse of `parse_format_string`; `names` gives the placeholder for each slot."""
    parts = []
    for part in text:
        if isinstance(part, str):
            parts.append(part.replace("{", "{{").replace("}", "}}"))
        else:
            parts.append(f"{{{names[part.name]}}}")
    return "".join(parts)


def fill_slots(text: Text, index: int, content: str = "") -> str:
    """Return the text in the round of this index, counted from 0."""
    values = {"text": content, "index": str(index), "round": str(index + 1)}
    return "".join(part if isinstance(part, str) else values.get(part.name, "") for part in text)


def split_at_text(text: Text) -> tuple[Text, Text]:
    """Return what is before and after the message of a turn."""
    at = text.index(Slot("text"))
    return text[:at], text[at + 1 :]

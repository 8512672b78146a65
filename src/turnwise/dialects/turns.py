"""What the declarative dialects share: texts with holes, turns made of them, and both put into Jinja.

A declarative dialect gives texts (before a turn, after it) and rules for placing them. The texts are other people's
and may hold anything, so they enter the template through `literal` alone: quoted, never as raw template text, where
`{{`, a newline after a tag or a trailing newline would change them.

`Turns` is what such dialects can say at most. Where the user's turn ends and the assistant's opening begins, XTuner
does not say; then `opening` is empty and its text stands at the end of `user`. Not here: tools, reasoning, several
kinds of system turn, anything that looks at another message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from string import Formatter

from turnwise.errors import SourceError, did_you_mean, short_repr

MARKS = {"bos_token": "⟪bos⟫", "eos_token": "⟪eos⟫"}
"""What stands for a special token inside of the texts of turns; no template writes it by itself."""
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


@dataclass(frozen=True, slots=True)
class Slot:
    """A hole in a text: where the user's text, the number of the round and the like come in."""

    name: str


Text = tuple[str | Slot, ...]


@dataclass(frozen=True, slots=True)
class Turns:
    """A conversation of rounds. In `system` and `user`, `Slot("text")` is the message.

    `Slot("round")` is the number of the round, from 1; `Slot("index")` is the same from 0.
    """

    user: Text
    start: str = ""  # before everything: a fixed text, a bos token
    opening: str = ""  # what a prompt ends with, so that the model speaks
    answer: str | None = (
        None  # what stands before a reply that is there, where that is not the opening
    )
    closing: str = ""  # ends a reply; the model writes it
    eos: bool = False  # eos_token follows `closing`, and the model writes it too
    between: str = ""  # after a reply that another turn follows; the model does not write it
    system: Text | None = None
    inside: bool = (
        False  # the system text stands in the first user's turn, right before the user's own text
    )
    default_system: str | None = None  # the system text of a conversation that brings none
    trims: tuple[str, ...] = ()  # roles whose texts lose the white space around them
    stops: tuple[str, ...] = ()

    @property
    def before_reply(self) -> str:
        return self.opening if self.answer is None else self.answer


def marked(text: str) -> bool:
    """Whether a special token stands in this text."""
    return any(mark in text for mark in MARKS.values())


def with_tokens(turns: Turns, texts: Mapping[str, str], named: Collection[str] = ()) -> Turns:
    """The turns with the tokens' own texts, or nothing, where they stand inside of a turn.

    Those that are `named` stay as they are, but for a system text and the stops, which are words.
    """

    def words(text: str, kept: Collection[str] = ()) -> str:
        for name, mark in MARKS.items():
            text = text if name in kept else text.replace(mark, texts.get(name) or "")
        return text

    def said(text: Text) -> Text:
        return tuple(words(part, named) if isinstance(part, str) else part for part in text)

    known = {mark for name, mark in MARKS.items() if texts.get(name)}
    return replace(
        turns,
        user=said(turns.user),
        start=words(turns.start, named),
        opening=words(turns.opening, named),
        answer=None if turns.answer is None else words(turns.answer, named),
        closing=words(turns.closing, named),
        between=words(turns.between, named),
        system=None if turns.system is None else said(turns.system),
        default_system=None if turns.default_system is None else words(turns.default_system),
        stops=tuple(
            words(stop)
            for stop in turns.stops
            if not marked(stop) or any(mark in stop for mark in known)
        ),
    )


def literal(text: str) -> str:
    """A Jinja string literal for this text, whatever it holds.

    Single quotes unless only they occur in the text. Line breaks are escaped: Jinja reads a bare carriage return as a
    newline. Half of a surrogate pair stays what it is, which no template can hold.
    """
    quote = '"' if "'" in text and '"' not in text else "'"
    return quote + text.translate(_ESCAPES).replace(quote, "\\" + quote) + quote


def sum_of(text: Text, values: Mapping[str, str]) -> str:
    """A Jinja expression that adds up the text; `values` gives the expression for each slot."""
    parts = [literal(part) if isinstance(part, str) else values[part.name] for part in text]
    return " + ".join(parts) or "''"


def with_slots(text: str, names: Collection[str], where: str) -> Text:
    """The text of a Python format string, cut at its `{name}` holes; `where` names it in errors."""
    parts: list[str | Slot] = []
    known = ", ".join(f"{{{name}}}" for name in names)
    try:
        pieces = list(Formatter().parse(text))
    except ValueError as error:
        hint = f"Placeholders: {known}. Write {{{{ and }}}} for braces that are text."
        raise SourceError(
            f"{where} is not a format string: {error}, in {short_repr(text)}", hint=hint
        ) from None
    for plain, name, form, conversion in pieces:
        if plain and parts and isinstance(before := parts[-1], str):
            parts[-1] = before + plain  # behind an escaped brace the parser starts anew
        elif plain:
            parts.append(plain)
        if name is None:
            continue
        if name not in names:
            near = did_you_mean(name, names, "Placeholders")
            raise SourceError(
                f"{where} has the unknown placeholder {{{name}}}, in {short_repr(text)}", hint=near
            )
        if form or conversion:
            raise SourceError(
                f"{where} formats {{{name}}}, which is not supported: write {{{name}}}, in {short_repr(text)}"
            )
        parts.append(Slot(name))
    return tuple(parts)


def format_string(text: Text, names: Mapping[str, str]) -> str:
    """The inverse of `with_slots`; `names` gives the placeholder for each slot."""
    return "".join(
        part.replace("{", "{{").replace("}", "}}")
        if isinstance(part, str)
        else f"{{{names[part.name]}}}"
        for part in text
    )


def filled(text: Text, number: int, content: str = "") -> str:
    """The text in the round of this number, from 0."""
    values = {"text": content, "index": str(number), "round": str(number + 1)}
    return "".join(part if isinstance(part, str) else values.get(part.name, "") for part in text)


def halves(text: Text) -> tuple[Text, Text]:
    """What stands before the message, and behind it."""
    at = text.index(Slot("text"))
    return text[:at], text[at + 1 :]


def renamed(text: Text, names: Mapping[str, str]) -> Text:
    """The same text, its slots called otherwise."""
    return tuple(
        part if isinstance(part, str) else Slot(names.get(part.name, part.name)) for part in text
    )

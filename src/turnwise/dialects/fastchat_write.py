"""Turns as a FastChat Conversation: which row of the table says them, and with what in its fields.

A row is asked what it writes around known texts while its fields hold marks: letters that stand for a text that is not
known yet. That is a pattern. Where it fits what the turns write around the same texts, the fit says what each field
must hold. Every row that fits gives a source, in the order of the table; that the text of a message is changed by a
row (LLAMA3 trims it) is not seen here, so whoever wants one has to try them.

If no row fits, less is asked for: first the end of the last reply, then a conversation without a system text, then
one with it, and so on down to what opens a reply. What was not asked for is then not said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from turnwise.dialects.fastchat import FastChatSpec, JinjaExpression, system_terms
from turnwise.dialects.fastchat_styles import NEVER, STYLES, SeparatorStyle, TurnPosition
from turnwise.dialects.turns import Slot, Turns, filled, halves

MARKS = {
    "roles0": "\ue000",
    "roles1": "\ue001",
    "sep": "\ue002",
    "sep2": "\ue003",
    "head": "\ue004",
    "tail": "\ue005",
    "system_message": "\ue006",
}
MARK = re.compile("([\ue000-\ue006])")
CUT = "\ue010"  # where a message's text stands
ROLES = (MARKS["roles0"], MARKS["roles1"])
SEAM = re.compile(r"(?<=\s)(?=\S)|(?<=[\]>)}#])(?=.)|(?<=.)(?=[\[<({#])", re.DOTALL)
SEAMS = 16
SYSTEMS = (
    ("{system_message}", ""),
    ("{system_message}", MARKS["system_message"]),
    (MARKS["head"] + "{system_message}" + MARKS["tail"], ""),
    (MARKS["head"] + "{system_message}" + MARKS["tail"], MARKS["system_message"]),
    (MARKS["head"], ""),  # the system text is left out
)
"""`system_template` and `system_message`, from the simplest on."""


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around the texts of conversations; a system text only where it is given."""

    end: str  # behind a last reply, as if a turn followed
    closing: str  # behind a last reply
    middle: str  # between a user and a reply
    after: str  # between a reply and a user
    opened: str  # behind the last user of a prompt
    before: str  # before the first user
    first: str  # before a system text
    second: str  # between it and the first user


LESS: tuple[tuple[str, ...], ...] = (
    ("end", "middle", "after", "opened", "first", "second", "before"),
    ("closing", "middle", "after", "opened", "first", "second", "before"),
    ("middle", "after", "opened", "first", "second", "before"),
    ("end", "middle", "after", "opened", "first", "second"),
    ("closing", "middle", "after", "opened", "first", "second"),
    ("end", "middle", "after", "opened", "before"),
    ("closing", "middle", "after", "opened", "before"),
    ("middle", "after", "opened", "before"),
    ("end", "after", "opened", "before"),
    ("after", "opened", "before"),
    ("after", "opened"),
    ("opened",),
)
"""What is asked of a row, less and less. Within a line, what settles most comes first."""


def write(
    turns: Turns, name: str = "template", eos_token: str | None = None
) -> list[dict[str, Any]]:
    """The Conversations that say these turns, as dicts of their fields; or what comes nearest."""
    wanted = of_turns(turns, eos_token or "")
    stop: dict[str, Any] = {
        "stop_str": turns.stops[0] if len(turns.stops) == 1 else list(turns.stops) or None
    }
    for asked in LESS if turns.system is not None else LESS[5:]:
        found = dict.fromkeys(filter(None, (fitted(form, wanted, asked) for form in forms(name))))
        if found:
            return [source(form) | stop for form in sorted(found, key=oddity)]
    return [source(FastChatSpec(name, sep="", sep_style=SeparatorStyle.NO_COLON_SINGLE)) | stop]


def forms(name: str) -> Iterator[FastChatSpec]:
    """Every row with marks for its fields."""
    for style, row in STYLES.items():
        for called in (name, *row.names):
            for template, message in SYSTEMS:
                yield FastChatSpec(
                    called,
                    system_template=template,
                    system_message=message,
                    roles=(MARKS["roles0"], MARKS["roles1"]),
                    sep_style=style,
                    sep=MARKS["sep"],
                    sep2=MARKS["sep2"],
                )


def oddity(form: FastChatSpec) -> tuple[bool, int, int]:
    """The natural one is least: it has a place for a system text, fills its separators, and has most in the row."""
    empty = sum(not getattr(form, key) for key in form.style.needs)
    said = (form.system_template, form.system_message, *form.roles, form.one, form.two)
    return "{system_message}" not in form.system_template, empty, sum(map(len, said))


def fitted(form: FastChatSpec, wanted: Around, asked: Sequence[str]) -> FastChatSpec | None:
    """The row with texts for its marks."""
    given = of_form(form)
    parts = tuple(
        (tuple(filter(None, MARK.split(getattr(given, part)))), getattr(wanted, part))
        for part in asked
    )
    texts = next((found for words in (True, False) for found in solutions(parts, {}, words)), None)
    if texts is None:
        return None
    return replace(
        form,
        system_template=MARK.sub(
            lambda mark: escaped(texts.get(mark[0], "")), form.system_template
        ),
        system_message=texts.get(MARKS["system_message"], ""),
        roles=(texts.get(MARKS["roles0"], "USER"), texts.get(MARKS["roles1"], "ASSISTANT")),
        sep=texts.get(MARKS["sep"], ""),
        sep2=texts.get(MARKS["sep2"], "") if "sep2" in form.style.needs else None,
    )


# -- texts for marks -------------------------------------------------------------------------------------------------

Tokens = tuple[str, ...]  # texts and marks
Known = Mapping[str, str]  # marks and their texts


def solutions(parts: Sequence[tuple[Tokens, str]], known: Known, words: bool) -> Iterator[Known]:
    """Texts for the marks with which every part is its text; `words`: no role begins with white space."""
    if not parts:
        yield known
        return
    tokens, text = parts[0]
    for found in fits(tokens, text, known, words):
        yield from solutions(parts[1:], found, words)


def fits(tokens: Tokens, text: str, known: Known, words: bool) -> Iterator[Known]:
    """The same for one part."""
    if not tokens:
        if not text:
            yield known
        return
    mark, rest = tokens[0], tokens[1:]
    value = known.get(mark) if MARK.fullmatch(mark) else mark
    if value is not None:
        if text.startswith(value):
            yield from fits(rest, text[len(value) :], known, words)
        return
    for end in ends(tokens, text, known):
        if not (words and mark in ROLES and text[:end][:1].isspace()):
            yield from fits(rest, text[end:], {**known, mark: text[:end]}, words)


def ends(tokens: Tokens, text: str, known: Known) -> Iterable[int]:
    """Where the first mark may end: it is known if no other mark is open; else before the next text, or at a seam."""
    unknown = [token for token in tokens if MARK.fullmatch(token) and token not in known]
    if len(set(unknown)) > 1:
        text_next = len(tokens) > 1 and not MARK.fullmatch(tokens[1])
        return (
            few([match.start() for match in re.finditer(re.escape(tokens[1]), text)])
            if text_next
            else seams(text)
        )
    left = len(text) - sum(len(known.get(token, token)) for token in tokens if token not in unknown)
    return [left // len(unknown)] if left >= 0 and left % len(unknown) == 0 else []


@lru_cache(256)
def seams(text: str) -> list[int]:
    """Where one thing may end and the next begin: its own ends, behind white space and brackets, before brackets."""
    return few([0, *(match.start() for match in SEAM.finditer(text)), len(text)])


def few(found: list[int]) -> list[int]:
    """The first and the last of them: a long text has many, and pairs of them are tried."""
    return found if len(found) <= SEAMS else found[: SEAMS // 2] + found[-SEAMS // 2 :]


def escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def source(form: FastChatSpec) -> dict[str, Any]:
    """The thirteen fields."""
    return asdict(form) | {
        "sep_style": form.sep_style.name,
        "roles": list(form.roles),
        "messages": [],
    }


# -- what stands around texts ----------------------------------------------------------------------------------------


def of_turns(turns: Turns, eos: str) -> Around:
    lead, tail = halves(turns.user)
    first, again, behind = filled(lead, 0), filled(lead, 1), filled(tail, 0)
    head, foot = (filled(half, 0) for half in halves(turns.system or (Slot("text"),)))
    default = "" if turns.default_system is None else head + turns.default_system + foot
    closing = turns.closing + (eos if turns.eos else "")
    return Around(
        end=closing + turns.between,
        closing=closing,
        middle=behind + turns.before_reply,
        after=closing + turns.between + again,
        opened=behind + turns.opening,
        before=turns.start + default + first,
        first=turns.start + (first if turns.inside else "") + head,
        second=foot + ("" if turns.inside else first),
    )


@lru_cache(512)
def of_form(form: FastChatSpec) -> Around:
    """What the row writes; a law holds it to what its Jinja writes."""
    bare, full = (
        said(form, ["user", "assistant", "user"], system).split(CUT) for system in (False, True)
    )
    end = said(form, ["user", "assistant"], False, opening=False).split(CUT)[2]
    return Around(
        end=end,
        closing=end,
        middle=bare[1],
        after=bare[2],
        opened=bare[3],
        before=bare[0],
        first=full[0],
        second=full[1],
    )


def said(form: FastChatSpec, speakers: Sequence[str], system: bool, opening: bool = True) -> str:
    """A conversation of which every text is `CUT`, as the row writes it."""
    style = form.style
    message = CUT if system else form.system_message
    parts = [
        message if isinstance(term, JinjaExpression) else term
        for term in system_terms(form, bool(message))
    ]
    round_, waiting = (
        style.rounds(form) if style.rounds else 0,
        message if style.system == NEVER else "",
    )
    for at, speaker in enumerate(speakers):
        user = speaker == "user"
        place = TurnPosition(
            form.roles[0 if user else 1], even=user, first=at == 0, last=at + 1 == len(speakers)
        )
        if style.rounds and user:
            parts.append(f"[Round {round_}]{form.one}")
            round_ += 1
        parts += [style.before(form, place), waiting + "\n\n" if waiting else "", CUT]
        parts += [style.after(form, place), style.gap(form, place)]
        waiting = ""
    if opening:
        parts.append((style.pending or style.before)(form, TurnPosition(form.roles[1], even=False)))
    return "".join([*parts, style.end(form)])

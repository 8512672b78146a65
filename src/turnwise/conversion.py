"""From a template back to a declarative dialect: ask it, read the answer off the pieces, write it, then verify.

`turns_of` renders two rounds whose every text is known. The pieces say where each message's text stands, so what stands
between two of them *is* what the template writes there: before a user, after it, before a reply, after it. Nothing is
guessed from the text of the template.

A declarative dialect can say little, so its writer says what it can and leaves the rest. What was written is read again
and compared with the template on the conversations that such a dialect is for (`PLAIN`), and on tools or reasoning if
the template has a use for them. White space at the very end is not compared: behind the last reply it is never sent to
a model. On a difference, both are asked once more for their turns: the first of `FEATURES` in which these differ is
what the dialect cannot say, and the error shows the smallest conversation that shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from inspect import signature
from itertools import pairwise
from typing import Any

from turnwise.dialects.reading import Dialect
from turnwise.dialects.turns import Slot, Text, Turns, filled, halves
from turnwise.errors import SourceError, TurnwiseError, shown, suggestion
from turnwise.probes import NOW, TOKENS, Message, Probe, calling, contents, said, thinking, turns
from turnwise.witness import Renders, Witness, outcome, shrunk

# Whoever encodes the text adds the first, so a declarative dialect leaves it out.
ASKED = {"bos_token": "", "eos_token": TOKENS["eos_token"]}
EOS = "⟪eos⟫"  # a text that no template writes by itself
CHAT = [
    said("system", "Xsystem"),
    said("user", "Xfirst"),
    said("assistant", "Xone"),
    said("user", "Xsecond"),
    said("assistant", "Xtwo"),
]
NUMBERS = (("index", "0", "1"), ("round", "1", "2"))  # a slot, and what it is in the first two rounds
EOS_WORDS = ("eos_token", "eos")  # what `write` calls the text that ends a reply
PROMPTS_ONLY = ("ollama",)  # its templates are for a reply that is still to come
COMMENT = re.compile(r"\{#.*?#\}", re.S)
PLAIN = (
    "a user",
    "a user and an assistant",
    "system and user",
    "system, user, assistant",
    "two rounds",
    "two rounds, answered",
    "system and two rounds",
    "system and three rounds",
)
BEYOND: dict[str, tuple[tuple[str, ...], Callable[[], Iterator[Probe]]]] = {
    "tools": (("tool",), calling),
    "reasoning": (("think", "reasoning"), thinking),
}
"""What a template may have a use for: the words that it has then, and the conversations to ask it with."""


# ---- asking ----


@dataclass(frozen=True, slots=True)
class Answers:
    """The turns that a template writes, eos_token as `EOS`; and what no turns can say."""

    turns: Turns
    last: str  # what stands before the last reply
    end: str  # and behind it


def turns_of(template: Renders, eos_token: str | None = None) -> Turns:
    """What the template writes around a system text, users and replies; `eos_token` is its text, where one is used."""
    return with_eos(answers(template).turns, eos_token or "")


def answers(template: Renders, eos: str = EOS) -> Answers:
    """The template, asked, with this for eos_token."""
    full, bare = between(template, CHAT, eos=eos), between(template, CHAT[1:], eos=eos)
    opened, asked = between(template, CHAT[1:2], opening=True, eos=eos), between(template, CHAT[1:2], eos=eos)
    if bare is None or opened is None or asked is None:
        raise unreadable(template)
    before, middle, after, again, end = bare
    tail, opening, answer = opening_of(opened[1], asked[1], middle)
    lead = counted(before, after) or (lead_of(before, after, end),)
    closing, sep = closed(after.removesuffix(filled(lead, 1)), end)
    start, system, inside, default = system_of(before.removesuffix(filled(lead, 0)), full, filled(lead, 0))
    words = closing.removesuffix(EOS)
    found = Turns(
        user=solid(*lead, Slot("text"), tail),
        start=start,
        opening=opening,
        answer=None if answer == opening else answer,
        closing=words,
        eos=closing.endswith(EOS),
        between=sep,
        system=system,
        inside=inside,
        default_system=default,
        trims=trimmed(template),
        stops=(words.strip(),) if words.strip() else (),
    )
    return Answers(found, last="" if again == middle else again.removeprefix(tail), end=end.removeprefix(closing))


def with_eos(found: Turns, eos_token: str) -> Turns:
    """The turns with the token's own text where it stands inside a turn."""

    def known(text: Any) -> Any:
        return text.replace(EOS, eos_token) if isinstance(text, str) else text

    return replace(
        found,
        user=tuple(map(known, found.user)),
        start=known(found.start),
        opening=known(found.opening),
        answer=known(found.answer),
        closing=known(found.closing),
        between=known(found.between),
        system=found.system and tuple(map(known, found.system)),
        default_system=known(found.default_system),
        stops=tuple(known(stop) for stop in found.stops if eos_token or EOS not in stop),
    )


def between(template: Renders, chat: list[Message], opening: bool = False, eos: str = EOS) -> list[str] | None:
    """The texts around the contents of these messages; None if one does not come out exactly once, in its order."""
    try:
        rendering = template.render(chat, add_generation_prompt=opening, now=NOW, **(ASKED | {"eos_token": eos}))
    except TurnwiseError:
        return None
    found, at = [], 0
    for index in range(len(chat)):
        spans = rendering.spans(field=f"messages[{index}].content")
        if len(spans) != 1 or spans[0][0] < at:
            return None
        found.append(rendering.text[at : spans[0][0]])
        at = spans[0][1]
    return [*found, rendering.text[at:]]


def trimmed(template: Renders) -> tuple[str, ...]:
    """The roles whose texts lose the white space around them."""
    chat = [message | {"content": f" {message['content']} "} for message in CHAT]
    made = outcome(template, Probe("white space", chat, options=dict(ASKED)))
    if isinstance(made, TurnwiseError):
        made = outcome(template, Probe("white space", chat[1:], options=dict(ASKED)))
    if isinstance(made, TurnwiseError):
        return ()
    kept = {message["role"] for message in chat if message["content"] in made.text}
    return tuple(role for role in ("system", "user", "assistant") if role not in kept)


def opening_of(opened: str, asked: str, middle: str) -> tuple[str, str, str]:
    """What ends a user's turn, what then opens a reply, and what stands there before a reply that has been given."""
    opening = opened.removeprefix(asked)
    tail = opened.removesuffix(opening)
    if not middle.startswith(tail):
        tail = common_start(opened, middle)
        opening = opened.removeprefix(tail)
    return tail, opening, middle.removeprefix(tail)


def lead_of(before: str, after: str, end: str) -> str:
    """What begins a user's turn: a reply ends the same way whether or not a turn follows it."""
    user = after.removeprefix(end)
    return user if after.startswith(end) and before.endswith(user) else common_end(before, after)


def counted(before: str, after: str) -> Text | None:
    """What begins a user's turn, if the number of the round is in it."""
    rest = common_end(before, after)
    first, second = before.removesuffix(rest), after.removesuffix(rest)
    for slot, one, two in NUMBERS:
        if first.endswith(one) and second.endswith(two):
            return solid(common_end(first[:-1], second[:-1]), Slot(slot), rest)
    return None


def system_of(start: str, full: list[str] | None, user: str) -> tuple[str, Text | None, bool, str | None]:
    """What stands before everything, the system turn, whether it is in the user's, and what it says if none is given.

    `user` is what begins a user's turn.
    """
    if full is None:
        return start, None, False, None
    head, tail = full[0], full[1]
    if not tail.endswith(user):
        inside = head.startswith(start + user)
        return start, solid(head.removeprefix(start + user), Slot("text"), tail) if inside else None, inside, None
    tail = tail.removesuffix(user)
    if head.startswith(start):
        return start, solid(head.removeprefix(start), Slot("text"), tail), False, None
    system = solid(head, Slot("text"), tail)
    if start.startswith(head) and start.endswith(tail) and len(start) >= len(head) + len(tail):
        return "", system, False, start.removeprefix(head).removesuffix(tail)
    return start, system, False, None


def closed(after: str, end: str) -> tuple[str, str]:
    """What ends a reply, and what stands between it and the next turn."""
    closing = end.rstrip() if after.startswith(end.rstrip()) else after.rstrip()
    return closing, after.removeprefix(closing)


def solid(*parts: str | Slot) -> Text:
    return tuple(part for part in parts if part)


def common_start(a: str, b: str) -> str:
    return a[: next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))]


def common_end(a: str, b: str) -> str:
    return common_start(a[::-1], b[::-1])[::-1]


def unreadable(template: Renders) -> SourceError:
    """The template refuses rounds, or does not write each text of theirs once."""
    for length in range(2, len(CHAT) + 1):
        chat = CHAT[1:length]
        if between(template, chat, opening=length == 2) is None:
            break
    probe = Probe("rounds", chat, opening=length == 2, options=dict(ASKED))
    made = outcome(template, probe)
    if isinstance(made, TurnwiseError):
        what, then = "it refuses users and assistants in turn", f"it says: {made.message}"
    else:
        what, then = "it does not write the text of every message once, in order", f"it writes: {shown(made.text, 200)}"
    told = "\n".join(["the conversation:", *(f"  {message!r}" for message in chat), then])
    return SourceError(f"this template cannot be said in turns: {what}", hint=told)


# ---- naming ----


COUNTS: dict[str | Slot, str] = {Slot("index"): "0, 1, 2", Slot("round"): "1, 2, 3"}
TOKEN = "eos_token, whose text is not known (pass eos_token=...)"
FEATURES: tuple[tuple[str, str, Callable[[Answers], str | bool | None]], ...] = (
    ("user", "a text that every conversation starts with", lambda a: a.turns.start or None),
    ("system", "a system text in the first user's turn", lambda a: a.turns.inside),
    ("no system", "a system turn where no system text is given", lambda a: a.turns.default_system),
    ("user", "the number of the round", lambda a: next((COUNTS[p] for p in a.turns.user if p in COUNTS), None)),
    ("user", "what begins a user's turn", lambda a: filled(halves(a.turns.user)[0], 0)),
    ("user", "what opens a reply", lambda a: behind(a.turns) + a.turns.opening),
    ("assistant", "what stands before a reply in the history", lambda a: behind(a.turns) + a.turns.before_reply),
    ("assistant", "a last reply that begins unlike earlier ones", lambda a: a.last or None),
    ("assistant", "what ends a reply", lambda a: a.turns.closing + (EOS if a.turns.eos else "")),
    ("assistant", "a last reply that ends unlike earlier ones", lambda a: a.end.strip() or None),
    ("assistant", "what stands between a reply and the next turn", lambda a: a.turns.between),
    ("system", "what stands around a system text", lambda a: filled(a.turns.system or (), 0, "…")),
)
"""What dialects differ in, by names that people know; and who must speak in a conversation that shows it."""

TOUCHED: tuple[tuple[str, Callable[[Probe], Any]], ...] = (
    ("tools", lambda probe: probe.tools),
    ("calls of tools", lambda probe: any(message.get("tool_calls") for message in probe.messages)),
    ("results of tools", lambda probe: any(message["role"] == "tool" for message in probe.messages)),
    ("reasoning", lambda probe: any({"reasoning_content", "thinking"} & set(message) for message in probe.messages)),
    ("reasoning", lambda probe: any("think" in message["content"] for message in probe.messages)),
    ("white space around a message, which the template changes", lambda probe: any(map(spacious, probe.messages))),
    ("an empty message", lambda probe: any(not message["content"] for message in probe.messages)),
)
"""What a conversation has in it that plain rounds have not."""

ELSEWHERE = "a system text that is left out, or stands elsewhere than first"


def spacious(message: Message) -> bool:
    text: str = message["content"]
    return text != text.strip()


def behind(found: Turns) -> str:
    """What ends the first user's turn."""
    return filled(halves(found.user)[1], 0)


def feature(template: Renders, written: Renders, probe: Probe, smallest: Probe, eos: str) -> str:
    """What the two differ in, in words."""
    for words, touches in TOUCHED:
        if touches(smallest):
            return words
    try:
        wanted, got = answers(template, eos), answers(written, eos)
    except SourceError:
        return f"what the template makes of {probe.covers}"
    speakers = {message["role"] for message in smallest.messages}
    if wanted.turns.system is None and "system" in speakers:
        return ELSEWHERE
    for speaker, words, value in FEATURES:
        seen = "system" not in speakers if speaker == "no system" else speaker in speakers
        if seen and value(wanted) != value(got):
            return described(words, value(wanted))
    return f"what the template makes of {probe.covers}"


def described(words: str, wanted: str | bool | None) -> str:
    if wanted is None or wanted is False:
        return f"no {words.removeprefix('a ').removeprefix('the ')}"
    if wanted is True or (not wanted and words.startswith("a ")):
        return words
    return f"{words}: {TOKEN if EOS in wanted else shown(wanted)}"


# ---- writing and verifying ----


class Conversion:
    """One template on its way into one dialect; `without` names what of `BEYOND` may be lost."""

    def __init__(
        self, template: Renders, text: str, dialect: Dialect, eos_token: str | None, without: Collection[str] = ()
    ) -> None:
        without = (without,) if isinstance(without, str) else tuple(without)
        self.template, self.dialect, self.eos_token, self.without = template, dialect, eos_token, without
        self.text = COMMENT.sub("", text)
        self.tokens = ASKED | ({"eos_token": eos_token} if eos_token else {})
        for name in without:
            if name not in BEYOND:
                raise SourceError(f"without={name!r} means nothing", hint=suggestion(str(name), BEYOND, "It can be"))

    def source(self, read: Callable[[Any], Renders], details: dict[str, Any]) -> Any:
        """The first source that says the template, or the obstacle of the first that was tried.

        `read` makes a template of a source; `details` are for the dialect's writer.
        """
        write = self.dialect.write
        if write is None:
            raise SourceError(f"{self.dialect.name} sources can be read, not written")
        accepted = signature(write).parameters
        turns = turns_of(self.template, self.eos_token)
        if turns.eos and self.eos_token:
            details |= {word: self.eos_token for word in EOS_WORDS if word in accepted}
        for word in details:
            if word not in accepted:
                hint = suggestion(word, accepted, "It takes")
                raise SourceError(f"{self.dialect.name} takes no {word!r}", hint=hint)
        written = write(turns, **details)
        obstacle = None
        for source in written if isinstance(written, list) else [written]:
            found = self.obstacle(read(source))
            if found is None:
                return source
            obstacle = obstacle or found
        raise obstacle or SourceError(f"{self.dialect.name} has no words for this template")

    def obstacle(self, written: Renders) -> SourceError | None:
        """What cannot be said, if the two differ on a conversation that matters to the template."""
        for probe in self.mattering():
            kind = self.difference(self.template, written, probe)
            if kind:
                smallest = self.asked(shrunk(self.template, written, probe, kind, self.difference))
                shown = Witness(smallest, outcome(self.template, smallest), outcome(written, smallest))
                what = feature(self.template, written, probe, smallest, self.eos_token or EOS)
                losing = [f"without=[{name!r}] leaves that out." for name in BEYOND if name in what.split()]
                message = f"{self.dialect.name} cannot say this template: {what}"
                return SourceError(message, hint="\n".join([str(shown), *losing]))
        return None

    def mattering(self) -> Iterator[Probe]:
        """Plain conversations; and what the template reads beyond them."""
        for probe in (*turns(), *contents()):
            if probe.covers in PLAIN or " of a user" in probe.covers or " of an assistant" in probe.covers:
                yield probe
        for name, (words, probes) in BEYOND.items():
            if name not in self.without and any(word in self.text for word in words):
                yield from (probe for probe in probes() if not (probe.tools and "tools" in self.without))

    def asked(self, probe: Probe) -> Probe:
        """As it is sent to a model: a conversation that a user ends, with the opening; any other as it is."""
        last = probe.messages[-1]["role"] if probe.messages else ""
        return replace(probe, opening=last in ("user", "tool"), options=dict(self.tokens))

    def difference(self, a: Renders, b: Renders, probe: Probe) -> str:
        """As `witness.difference`, but for white space at the very end, and for what is no conversation."""
        probe = self.asked(probe)
        if not proper(probe.messages) or (self.dialect.name in PROMPTS_ONLY and not probe.opening):
            return ""
        first, second = outcome(a, probe), outcome(b, probe)
        if isinstance(first, TurnwiseError):
            return ""  # what the template refuses, nobody asks of its translation
        if isinstance(second, TurnwiseError):
            return "refusal"
        return "text" if first.text.rstrip() != second.text.rstrip() else ""


def proper(messages: list[Message]) -> bool:
    """Whether these are rounds, with a system text before them or not, in which everybody says something."""
    roles = [message["role"] for message in messages]
    rounds = roles[1:] if roles[:1] == ["system"] else roles
    turned = all(a != b or a == "tool" for a, b in pairwise(rounds))
    spoken = all(isinstance(message.get("content"), str) for message in messages)
    return rounds[:1] == ["user"] and turned and spoken

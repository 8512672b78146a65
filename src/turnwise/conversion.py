"""From a template back to a declarative dialect: ask it, read the answer off the pieces, write it, then verify.

`turns_of` renders two rounds whose every text is known. The pieces say where each message's text stands, so what stands
between two of them *is* what the template writes there: before a user, after it, before a reply, after it. Nothing is
guessed from the text of the template.

A declarative dialect can say little, so what was written is read again and compared with the template on the
conversations that such a dialect is for (`PLAIN`), and on tools or reasoning if the template has a use for them. White
space at the very end is not compared: behind the last reply it is never sent to a model. A difference is an error that
names what the dialect cannot say and shows the smallest conversation on which it would differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from turnwise.dialects.turns import Slot, Turns
from turnwise.errors import SourceError, TurnwiseError
from turnwise.probes import NOW, TOKENS, Probe, calling, contents, said, thinking, turns
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


def turns_of(template: Renders, eos_token: str | None = None) -> Turns:
    """What the template writes around a system text, users and replies; `eos_token` is its text, where one is used."""
    bare, full = between(template, CHAT[1:]), between(template, CHAT)
    opened, asked = between(template, CHAT[1:2], opening=True), between(template, CHAT[1:2])
    if bare is None or opened is None or asked is None:
        raise cannot("a conversation of users and replies: the template refuses it, or rewrites it")
    before, middle, after, again, end = bare
    if again != middle:
        raise cannot("a second round that is not written like the first")
    user = after.removeprefix(end)  # a reply ends the same way whether or not a turn follows it
    if not after.startswith(end) or not before.endswith(user):
        user = common_end(before, after)
    opening = opened[1].removeprefix(asked[1])
    closing, sep = closed(after.removesuffix(user), end)
    start, system, default = system_of(before.removesuffix(user), full, user)
    found = Turns(
        user=tuple(part for part in (user, Slot("text"), middle.removesuffix(opening)) if part),
        start=start,
        opening=opening,
        closing=closing.removesuffix(EOS),
        eos=closing.endswith(EOS),
        between=sep,
        system=system,
        default_system=default,
        stops=(closing.strip(),) if closing.removesuffix(EOS).strip() else (),
    )
    return with_eos(found, eos_token)


def with_eos(found: Turns, eos_token: str | None) -> Turns:
    """The turns with the token's own text where it stands inside a turn."""

    def known(text: Any) -> Any:
        if not isinstance(text, str) or EOS not in text:
            return text
        if not eos_token:
            raise cannot("eos_token stands inside a turn, and its text is not known: pass eos_token=...")
        return text.replace(EOS, eos_token)

    return replace(
        found,
        user=tuple(map(known, found.user)),
        start=known(found.start),
        opening=known(found.opening),
        closing=known(found.closing),
        between=known(found.between),
        system=found.system and tuple(map(known, found.system)),
        stops=tuple(map(known, found.stops)),
    )


def between(template: Renders, chat: list[dict[str, Any]], opening: bool = False) -> list[str] | None:
    """The texts around the contents of these messages; None if one does not come out exactly once, in its order."""
    try:
        rendering = template.render(chat, add_generation_prompt=opening, now=NOW, **(ASKED | {"eos_token": EOS}))
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


def system_of(start: str, full: list[str] | None, user: str) -> tuple[str, Any, str | None]:
    """What stands before everything, the system turn, and the system text of a conversation that has none."""
    if full is None or not full[1].endswith(user):
        return start, None, None
    head, tail = full[0], full[1].removesuffix(user)
    if head.startswith(start):
        return start, tuple(part for part in (head.removeprefix(start), Slot("text"), tail) if part), None
    system = tuple(part for part in (head, Slot("text"), tail) if part)
    if start.startswith(head) and start.endswith(tail):
        return "", system, start.removeprefix(head).removesuffix(tail)
    return start, system, None


def closed(after: str, end: str) -> tuple[str, str]:
    """What ends a reply, and what stands between it and the next turn."""
    closing = end.rstrip() if after.startswith(end.rstrip()) else after.rstrip()
    return closing, after.removeprefix(closing)


def common_end(a: str, b: str) -> str:
    count = 0
    while count < min(len(a), len(b)) and a[-1 - count] == b[-1 - count]:
        count += 1
    return a[len(a) - count :]


def cannot(what: str) -> SourceError:
    return SourceError(f"this template cannot be said in turns: {what}")


# ---- verifying ----


class Verification:
    """A template and what was written for it, side by side."""

    def __init__(self, template: Renders, text: str, written: Renders, eos_token: str | None) -> None:
        self.template = template
        self.text = COMMENT.sub("", text)
        self.written = written
        self.tokens = ASKED | ({"eos_token": eos_token} if eos_token else {})

    def run(self, dialect: str) -> None:
        """An error that names the obstacle if the two differ on a conversation that matters to the template."""
        for probe in self.mattering():
            if dialect in PROMPTS_ONLY and not probe.opening:
                continue
            kind = self.difference(self.template, self.written, probe)
            if kind:
                smallest = self.asked(shrunk(self.template, self.written, probe, kind, self.difference))
                shown = Witness(smallest, outcome(self.template, smallest), outcome(self.written, smallest))
                raise SourceError(f"{dialect} cannot say this template: {probe.covers}", hint=str(shown))

    def mattering(self) -> Iterator[Probe]:
        """Plain conversations; and what the template reads beyond them."""
        for probe in (*turns(), *contents()):
            if probe.covers in PLAIN or " of a user" in probe.covers or " of an assistant" in probe.covers:
                yield self.asked(probe)
        if "tool" in self.text:
            yield from map(self.asked, calling())
        if "think" in self.text or "reasoning" in self.text:
            yield from map(self.asked, thinking())

    def asked(self, probe: Probe) -> Probe:
        """As it is sent to a model: a conversation that a user ends, with the opening; any other as it is."""
        last = probe.messages[-1]["role"] if probe.messages else ""
        return replace(probe, opening=last in ("user", "tool"), options=dict(self.tokens))

    def difference(self, a: Renders, b: Renders, probe: Probe) -> str:
        """As `witness.difference`, but for white space at the very end, and for what is no conversation."""
        probe = self.asked(probe)
        first, second = outcome(a, probe), outcome(b, probe)
        spoken = probe.messages and all(isinstance(message.get("content"), str) for message in probe.messages)
        if not spoken or isinstance(first, TurnwiseError):
            return ""  # what the template refuses, nobody asks of its translation
        if isinstance(second, TurnwiseError):
            return "refusal"
        return "text" if first.text.rstrip() != second.text.rstrip() else ""

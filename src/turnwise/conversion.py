"""From a template back to a declarative dialect: ask it, read the answer off the pieces, write it, then verify.

`turns_of` renders two rounds whose every text is known. The pieces say where each message's text stands, so what stands
between two of them *is* what the template writes there: before a user, after it, before a reply, after it. Nothing is
guessed from the text of the template.

A declarative dialect can say little, so its writer says what it can and leaves the rest. What was written is read again
and compared with the template on every probe that such a dialect is for (rounds in which everybody says something, see
`proper`); on what the template has a use for beyond them (`BEYOND`: tools, reasoning, images); on each option that it
reads; and, if it reads the clock, on another day. White space at the very end is not compared: behind the last reply
it is never sent to a model. On a difference, both are asked once more for their turns: the first of `FEATURES` in which
these differ is what the dialect cannot say, and the error shows the smallest conversation that shows it.

What may be lost has a name, which `without` takes: those of `BEYOND`, `WHITE`, the options and each of them. It is then
not asked for. An option that the template has been given a value for is decided, and so not lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

from turnwise.analysis.conversations import (
    LATER,
    NOW,
    SPECIAL_TOKENS,
    MessageDict,
    Probe,
    conversations,
    make_message,
    option_names,
    vary_options,
)
from turnwise.analysis.counterexample import Counterexample, Renders, shrink, try_render
from turnwise.dialects.translation import Dialect, Translation
from turnwise.dialects.turns import (
    TOKEN_MARKS,
    Slot,
    Text,
    Turns,
    fill_slots,
    replace_token_marks,
    split_at_text,
)
from turnwise.errors import SourceError, TurnwiseError, did_you_mean, short_repr

EOS = TOKEN_MARKS["eos_token"]
ASKED = {
    "bos_token": "",
    "eos_token": EOS,
}  # whoever encodes the text adds the first, if the dialect does not say it
CHAT = [
    make_message("system", "Xsystem"),
    make_message("user", "Xfirst"),
    make_message("assistant", "Xone"),
    make_message("user", "Xsecond"),
    make_message("assistant", "Xtwo"),
]
NUMBERS = (
    ("index", "0", "1"),
    ("round", "1", "2"),
)  # a slot, and what it is in the first two rounds
COMMENT = re.compile(r"\{#.*?#\}", re.S)
CLOCK = "strftime_now"
WHITE, OPTIONS = "white space", "options"
SPEAKERS = {"user", "assistant", "tool"}


class Source(Renders, Protocol):
    """The part of a template that is converted."""

    @property
    def text(self) -> str: ...

    @property
    def variables(self) -> tuple[str, ...]: ...

    @property
    def options(self) -> Mapping[str, Any]: ...

    @property
    def translation(self) -> Translation: ...


def parts(probe: Probe, kind: str) -> bool:
    """Whether a message has a part of this kind."""
    listed = (
        message["content"] for message in probe.messages if isinstance(message.get("content"), list)
    )
    return any(
        isinstance(part, dict) and kind in part.get("type", "")
        for content in listed
        for part in content
    )


def calls(probe: Probe) -> bool:
    return any(message.get("tool_calls") for message in probe.messages)


def results(probe: Probe) -> bool:
    return any(message["role"] == "tool" for message in probe.messages)


BEYOND: dict[str, tuple[tuple[str, ...], Callable[[Probe], Any]]] = {
    "tools": (("tool",), lambda probe: probe.tools is not None or calls(probe) or results(probe)),
    "reasoning": (("think", "reasoning"), lambda probe: probe.about == "reasoning"),
    "images": (("image",), lambda probe: parts(probe, "image")),
    "audio": (("audio",), lambda probe: parts(probe, "audio")),
    "documents": (("documents",), lambda probe: probe.documents),
    "names": (
        ("name",),
        lambda probe: any("name" in m for m in probe.messages if m["role"] != "tool"),
    ),
}
"""What a template may have a use for: the words that it has then, and the conversations that are about it."""


# ---- asking ----


@dataclass(frozen=True, slots=True)
class ObservedTurns:
    """The turns that a template writes, special tokens as marks; and what no turns can say."""

    turns: Turns
    last: str  # what stands before the last reply
    end: str  # and behind it


def turns_of(template: Renders, eos_token: str | None = None) -> Turns:
    """What the template writes around a system text, users and replies; `eos_token` is its text, where one is used."""
    return replace_token_marks(answers(template).turns, {"eos_token": eos_token or ""})


def answers(template: Renders, tokens: Mapping[str, str] = ASKED) -> ObservedTurns:
    """The template, asked, with these for the special tokens."""
    full, bare = between(template, CHAT, tokens), between(template, CHAT[1:], tokens)
    opened, asked = (
        between(template, CHAT[1:2], tokens, opening=True),
        between(template, CHAT[1:2], tokens),
    )
    if bare is None or opened is None or asked is None:
        raise unreadable(template, tokens)
    before, middle, after, again, end = bare
    tail, opening, answer = opening_of(opened[1], asked[1], middle)
    lead = counted(before, after) or (lead_of(before, after, end),)
    closing, sep = closed(after.removesuffix(fill_slots(lead, 1)), end)
    start, system, inside, default = system_of(
        before.removesuffix(fill_slots(lead, 0)), full, fill_slots(lead, 0), tokens["bos_token"]
    )
    words = closing.removesuffix(EOS)
    found = Turns(
        user=solid(*lead, Slot("text"), tail),
        prefix=start,
        generation_prompt=opening,
        reply_prefix=None if answer == opening else answer,
        reply_suffix=words,
        eos=closing.endswith(EOS),
        separator=sep,
        system=system,
        system_in_user=inside,
        default_system=default,
        trimmed_roles=trimmed(template, tokens),
        stops=(words.strip(),) if words.strip() else (),
    )
    return ObservedTurns(
        found,
        last="" if again == middle else again.removeprefix(tail),
        end=end.removeprefix(closing),
    )


def between(
    template: Renders, chat: list[MessageDict], tokens: Mapping[str, str], opening: bool = False
) -> list[str] | None:
    """The texts around the contents of these messages; None if one does not come out exactly once, in its order."""
    try:
        rendering = template.render(chat, add_generation_prompt=opening, now=NOW, **tokens)
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


def trimmed(template: Renders, tokens: Mapping[str, str]) -> tuple[str, ...]:
    """The roles whose texts lose the white space around them."""
    chat = [message | {"content": f" {message['content']} "} for message in CHAT]
    made = try_render(template, Probe(WHITE, chat, options=dict(tokens)))
    if isinstance(made, TurnwiseError):
        made = try_render(template, Probe(WHITE, chat[1:], options=dict(tokens)))
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


def system_of(
    start: str, full: list[str] | None, user: str, bos: str
) -> tuple[str, Text | None, bool, str | None]:
    """What stands before everything, the system turn, whether it is in the user's, and what it says if none is given.

    `user` is what begins a user's turn; `bos`, what stands before everything if it stands first.
    """
    if full is None:
        return start, None, False, None
    head, tail = full[0], full[1]
    if bos and start.startswith(bos) and head.startswith(bos):
        rest = [head.removeprefix(bos), *full[1:]]
        found, system, inside, default = system_of(start.removeprefix(bos), rest, user, "")
        return bos + found, system, inside, default
    if not tail.endswith(user):
        inside = head.startswith(start + user)
        return (
            start,
            solid(head.removeprefix(start + user), Slot("text"), tail) if inside else None,
            inside,
            None,
        )
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
    return a[
        : next(
            (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
        )
    ]


def common_end(a: str, b: str) -> str:
    return common_start(a[::-1], b[::-1])[::-1]


def unreadable(template: Renders, tokens: Mapping[str, str]) -> SourceError:
    """The template refuses rounds, or does not write each text of theirs once."""
    for length in range(2, len(CHAT) + 1):
        chat = CHAT[1:length]
        if between(template, chat, tokens, opening=length == 2) is None:
            break
    probe = Probe("rounds", chat, opening=length == 2, options=dict(tokens))
    made = try_render(template, probe)
    if isinstance(made, TurnwiseError):
        what, then = "it refuses users and assistants in turn", f"it says: {made.message}"
    else:
        what, then = (
            "it does not write the text of every message once, in order",
            f"it writes: {short_repr(made.text, 200)}",
        )
    told = "\n".join(["the conversation:", *(f"  {message!r}" for message in chat), then])
    return SourceError(f"this template cannot be said in turns: {what}", hint=told)


# ---- naming ----


COUNTS: dict[str | Slot, str] = {Slot("index"): "0, 1, 2", Slot("round"): "1, 2, 3"}
Value = Callable[["ObservedTurns"], str | bool | None]


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that dialects differ in."""

    speaker: str  # who must speak in a conversation that shows it
    there: str  # in words, where the template has it
    value: Value
    absent: str = ""  # and where it has not
    finished: bool = False  # it shows in a reply that is the last


FEATURES = (
    Feature(
        "user",
        "a text that every conversation starts with",
        lambda a: a.turns.prefix or None,
        "a conversation that starts with no text of the template's own",
    ),
    Feature(
        "system",
        "a system text in the first user's turn",
        lambda a: a.turns.system_in_user,
        "a system text in a turn of its own",
    ),
    Feature(
        "no system",
        "a system turn where no system text is given",
        lambda a: a.turns.default_system,
        "leaving out the system turn where no system text is given",
    ),
    Feature(
        "user",
        "the number of the round",
        lambda a: next((COUNTS[p] for p in a.turns.user if p in COUNTS), None),
        "rounds without a number",
    ),
    Feature(
        "user", "what begins a user's turn", lambda a: fill_slots(split_at_text(a.turns.user)[0], 0)
    ),
    Feature("user", "what opens a reply", lambda a: behind(a.turns) + a.turns.generation_prompt),
    Feature(
        "assistant",
        "what stands before a reply in the history",
        lambda a: behind(a.turns) + a.turns.before_reply,
    ),
    Feature(
        "assistant",
        "a last reply that begins unlike earlier ones",
        lambda a: a.last or None,
        "a last reply that begins as earlier ones do",
        finished=True,
    ),
    Feature("assistant", "what ends a reply", lambda a: ending(a.turns), finished=True),
    Feature(
        "assistant",
        "a last reply that ends unlike earlier ones",
        lambda a: a.end.strip() or None,
        "a last reply that ends as earlier ones do",
        finished=True,
    ),
    Feature(
        "assistant",
        "what stands between a reply and the next turn",
        lambda a: a.turns.separator,
        finished=True,
    ),
    Feature(
        "assistant",
        "what follows a reply in the history",
        lambda a: ending(a.turns) + a.turns.separator,
    ),
    Feature(
        "system",
        "what stands around a system text",
        lambda a: fill_slots(a.turns.system or (), 0, "…"),
    ),
)
"""What dialects differ in, by names that people know."""

TOUCHED: tuple[tuple[str, Callable[[Probe], Any]], ...] = (
    ("tools", lambda probe: probe.tools),
    ("calls of tools", calls),
    ("results of tools", results),
    (
        "reasoning",
        lambda probe: any(
            {"reasoning_content", "thinking"} & set(message) for message in probe.messages
        ),
    ),
    (
        "reasoning",
        lambda probe: probe.about == "reasoning" and any("think" in said for said in texts(probe)),
    ),
    ("images", BEYOND["images"][1]),
    ("audio", BEYOND["audio"][1]),
    ("documents", BEYOND["documents"][1]),
    ("names of those who speak", BEYOND["names"][1]),
    (
        "white space around a message, which the template changes",
        lambda probe: any(map(padded, texts(probe))),
    ),
    ("an empty message", lambda probe: any(not said for said in texts(probe))),
)
"""What a conversation has in it that plain rounds have not."""

ELSEWHERE = "a system text that is left out, or stands elsewhere than first"
OPTION = "the option "
DATE = "the date, which it writes anew every day"


def texts(probe: Probe) -> list[str]:
    return [
        message["content"] for message in probe.messages if isinstance(message.get("content"), str)
    ]


def padded(text: str) -> bool:
    return text != text.strip()


def behind(found: Turns) -> str:
    """What ends the first user's turn."""
    return fill_slots(split_at_text(found.user)[1], 0)


def ending(found: Turns) -> str:
    return found.reply_suffix + (EOS if found.eos else "")


def described(feature: Feature, wanted: str | bool | None, named: Collection[str]) -> str:
    """The feature in words; the tokens that are `named` need no text."""
    if wanted is None or wanted is False:
        return feature.absent
    if wanted is True or (not wanted and feature.absent):
        return feature.there
    for name, mark in TOKEN_MARKS.items():
        if mark in wanted and name not in named:
            return f"{feature.there}: {name}, whose text is not known (pass {name}=...)"
        wanted = wanted.replace(mark, f"{{{name}}}")
    return f"{feature.there}: {short_repr(wanted) if wanted else 'nothing'}"


# ---- writing and verifying ----


class Conversion:
    """One template on its way into one dialect; `tokens` are the special tokens whose text is known, "" if none."""

    def __init__(
        self,
        template: Source,
        dialect: Dialect,
        tokens: Mapping[str, str | None],
        without: Collection[str] = (),
    ) -> None:
        self.template, self.dialect = template, dialect
        self.known = {name: text for name, text in tokens.items() if text is not None}
        self.without = (without,) if isinstance(without, str) else tuple(without or ())
        self.text = COMMENT.sub("", template.text)
        told = (*dialect.texts, *dialect.names, "eos_token")
        # with which it is asked for its turns, and with which both sides are compared
        used = [name for name in told if self.known.get(name) != ""]
        self.marks = {name: mark if name in used else "" for name, mark in TOKEN_MARKS.items()}
        self.tokens = {
            name: self.known.get(name, SPECIAL_TOKENS[name]) if name in used else ""
            for name in TOKEN_MARKS
        }
        self.check()

    def check(self) -> None:
        names = [*BEYOND, WHITE, OPTIONS, *option_names(self.template.variables)]
        for name in self.without:
            if name not in names:
                raise SourceError(
                    f"without={short_repr(name)} means nothing",
                    hint=did_you_mean(str(name), names, "It can be"),
                )

    def source(self, read: Callable[[Any], Source], details: Mapping[str, Any]) -> Any:
        """The first source that says the template, or the obstacle of the first that was tried.

        `read` makes a template of a source; `details` are for the dialect's writer.
        """
        write = self.dialect.write
        if write is None:
            raise SourceError(f"{self.dialect.name} sources can be read, not written")
        for word in details:
            if word not in self.dialect.details:
                hint = (
                    did_you_mean(word, self.dialect.details, "It takes")
                    or "It takes nothing of its own."
                )
                raise SourceError(f"{self.dialect.name} takes no {word!r}", hint=hint)
        turns = self.turns()
        named = (
            {"eos_token": self.known.get("eos_token")} if "eos_token" in self.dialect.texts else {}
        )
        written = write(turns, **named, **details)
        obstacle = None
        for source in written if isinstance(written, list) else [written]:
            found = self.obstacle(read(source), turns)
            if found is None:
                return source
            obstacle = obstacle or found
        raise obstacle or SourceError(f"{self.dialect.name} has no words for this template")

    def own(self, source: Any, details: Mapping[str, Any]) -> Any:
        """A source that is there already."""
        for word in details:
            raise SourceError(
                f"{self.dialect.name} takes no {word!r} for a template that it has said already"
            )
        return source

    def turns(self) -> Turns:
        """What the template writes, and the stops that its source names."""
        found = replace_token_marks(
            answers(self.template, self.marks).turns, self.known, self.dialect.names
        )
        declared = (
            stop for stop in self.template.translation.stops if stop != self.known.get("eos_token")
        )
        return replace(found, stops=tuple(dict.fromkeys((*declared, *found.stops))))

    def obstacle(self, written: Source, turns: Turns) -> SourceError | None:
        """What cannot be said, if the two differ on a conversation that matters to the template."""
        for probe in self.mattering():
            kind = self.difference(self.template, written, probe)
            if kind:
                smallest = self.asked(shrink(self.template, written, probe, kind, self.difference))
                return self.named(
                    self.feature(written, probe, smallest), self.witness(written, smallest)
                )
        lost = [
            stop
            for stop in turns.stops
            if self.dialect.stops and stop not in written.translation.stops
        ]
        return self.named(f"the stop {short_repr(lost[0])}", None) if lost else None

    def named(self, what: str, witness: Counterexample | None) -> SourceError:
        words = what.partition(":")[0]
        losing = [name for name in (*BEYOND, WHITE) if name in words]
        losing += [words.removeprefix(OPTION)] if words.startswith(OPTION) else []
        hints = [f"without=[{name!r}] leaves that out." for name in losing[-1:]]
        message = f"{self.dialect.name} cannot say this template: {what}"
        return SourceError(
            message, hint="\n".join([*([str(witness)] if witness else []), *hints]) or None
        )

    def witness(self, written: Renders, probe: Probe) -> Counterexample:
        read = {
            name: value
            for name, value in probe.options.items()
            if name not in SPECIAL_TOKENS or self.reads(name)
        }
        names = ("the template", f"in {self.dialect.name}")
        return Counterexample(
            replace(probe, options=read),
            try_render(self.template, probe),
            try_render(written, probe),
            names,
        )

    def reads(self, name: str) -> bool:
        return name in self.template.variables

    @cached_property
    def options(self) -> list[str]:
        """The options that are not decided, and that must not be lost."""
        decided = (*self.template.options, *self.without)
        return (
            []
            if OPTIONS in self.without
            else [n for n in option_names(self.template.variables) if n not in decided]
        )

    def mattering(self) -> Iterator[Probe]:
        """Every conversation that the dialect is for; then on another day, and with every option."""
        plain = [probe for probe in conversations() if self.matters(probe)]
        yield from plain
        if CLOCK in self.text:
            yield from (replace(probe, now=LATER) for probe in plain)
        asked = [name for name in self.options if re.search(rf"\b{name}\b", self.text)]
        yield from (prompt(probe) for probe in vary_options(asked) if self.matters(prompt(probe)))

    def matters(self, probe: Probe) -> bool:
        """Whether the conversation is about nothing that the template has no use for, or that may be lost."""
        return not any(about(probe) for about in self.unasked) and (
            WHITE not in self.without or evenly(probe)
        )

    @cached_property
    def unasked(self) -> list[Callable[[Probe], Any]]:
        return [
            about
            for name, (words, about) in BEYOND.items()
            if name in self.without or not any(word in self.text for word in words)
        ]

    def asked(self, probe: Probe) -> Probe:
        """As it is sent to a model: a conversation that a user ends, with the opening; any other as it is."""
        last = probe.messages[-1]["role"] if probe.messages else ""
        return replace(probe, opening=last in ("user", "tool"), options=probe.options | self.tokens)

    def difference(self, a: Renders, b: Renders, probe: Probe) -> str:
        """As `compare_outcomes`, but for white space at the very end, and for what is no conversation."""
        probe = self.asked(probe)
        if (
            not proper(probe.messages)
            or (self.dialect.prompts_only and not probe.opening)
            or not self.matters(probe)
        ):
            return ""
        first, second = try_render(a, probe), try_render(b, probe)
        if isinstance(first, TurnwiseError):
            return ""  # what the template refuses, nobody asks of its translation
        if isinstance(second, TurnwiseError):
            return "refusal"
        return "text" if first.text.rstrip() != second.text.rstrip() else ""

    def feature(self, written: Renders, probe: Probe, smallest: Probe) -> str:
        """What the two differ in, in words."""
        if smallest.now != NOW and not self.difference(
            self.template, written, replace(smallest, now=NOW)
        ):
            return DATE
        for name in option_names(smallest.options):
            return OPTION + name
        for words, touches in TOUCHED:
            if touches(smallest):
                return words
        plain = [message | {"content": "1"} for message in smallest.messages]
        if not self.difference(self.template, written, replace(smallest, messages=plain)):
            changed = max(texts(smallest), key=oddness, default="")
            return f"the text of a message, which the template changes: {short_repr(changed)}"
        try:
            tokens = self.marks | {
                name: text for name, text in self.known.items() if self.marks.get(name)
            }
            wanted, got = answers(self.template, tokens), answers(written, tokens)
        except SourceError:
            return f"what it writes for {probe.covers}"
        return self.compared(wanted, got, smallest) or f"what it writes for {probe.covers}"

    def compared(self, wanted: ObservedTurns, got: ObservedTurns, smallest: Probe) -> str:
        """The first feature in which two answers differ, of those that this conversation shows."""
        speakers = {message["role"] for message in smallest.messages}
        if wanted.turns.system is None and "system" in speakers:
            return ELSEWHERE
        for feature in FEATURES:
            speaker = feature.speaker
            seen = "system" not in speakers if speaker == "no system" else speaker in speakers
            told = seen and not (feature.finished and self.dialect.prompts_only)
            if told and feature.value(wanted) != feature.value(got):
                return described(feature, feature.value(wanted), self.dialect.names)
        return ""


def prompt(probe: Probe) -> Probe:
    """The conversation up to its last reply, which an option may change."""
    messages = probe.messages
    return replace(
        probe, messages=messages[:-1] if messages[-1]["role"] == "assistant" else messages
    )


def evenly(probe: Probe) -> bool:
    """Whether words have one space between them, and nothing around them."""
    return all(text == " ".join(text.split()) for text in texts(probe))


def oddness(text: str) -> tuple[bool, int]:
    return not text.isalnum(), len(text)


def proper(messages: list[MessageDict]) -> bool:
    """Whether these are rounds, with a system text before them or not, in which everybody says something.

    An empty system text is none: dialects have no other way to say that there is none.
    """
    roles = [message["role"] for message in messages]
    system = roles[:1] == ["system"]
    rounds = roles[1:] if system else roles
    turned = all(a != b or a == "tool" for a, b in pairwise(rounds)) and set(rounds) <= SPEAKERS
    spoken = all(
        isinstance(message.get("content"), str) or pictured(message) for message in messages
    )
    return (
        rounds[:1] == ["user"]
        and turned
        and spoken
        and not (system and not str(messages[0]["content"]).strip())
    )


def pictured(message: MessageDict) -> bool:
    """Whether the message is a user's, made of parts that are not text alone."""
    content = message.get("content")
    listed = content if message["role"] == "user" and isinstance(content, list) else []
    return any(
        isinstance(part, dict) and re.search("image|audio", part.get("type", "")) for part in listed
    )

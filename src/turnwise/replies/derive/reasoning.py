"""Where a template writes reasoning.

It may take it from one of several keys of the message, or from a part of its content; beside content or only beside a
call; always or when an option says so. Some templates never write it, because they leave it out of history: then what
they look for tells its end (`content.split('</think>')`), and the opening may show its beginning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.analysis.prober import (
    ARGUMENTS,
    CONTENT,
    NAMES,
    REASONING,
    SETTINGS,
    THOUGHTS,
    Prober,
)
from turnwise.analysis.segment import WHOLE, Stretch, last_tag
from turnwise.replies.derive.calls import Written
from turnwise.replies.grammar import Marker, Region

WORD = re.compile(r"[^\W\d_]{4,}")  # in texts of templates
LOOK = 200  # characters before reasoning in which its opener is looked for


@dataclass(frozen=True)
class Thought:
    """A turn with reasoning in it."""

    turn: Stretch
    before_content: bool  # else only a call follows
    call_starts: int = 0
    message: Mapping[str, Any] = field(
        default_factory=dict
    )  # what was asked, and with which options
    options: Mapping[str, Any] = field(default_factory=dict)

    def markers(self, header: Stretch) -> tuple[Stretch, Stretch]:
        """What stands before reasoning and behind it; if all of the first is header, the last tag or text of it."""
        at = self.turn.text.find(REASONING)
        end = at + len(REASONING)
        before = self.turn.part(0, at)
        close = self.turn.part(
            end, self.turn.text.find(CONTENT) if self.before_content else self.call_starts
        )
        opener = before.part(len(header)) if len(header) < at else before
        if not opener.core or opener is before:
            opener = before.part(
                last_tag(before) if (place := mirrored(before.text, close.text)) is None else place
            )
        return opener, close


def mirrored(before: str, close: str) -> int | None:
    """Where the opener begins of which a closer is the mirror: `<think>`, `</think>`; `**think**`, `**/think**`."""
    core, size = close.strip(), len(before.rstrip())
    for at in range(size - 1, max(size - LOOK, 0) - 1, -1):
        text = before[at:size]
        signs = next((i for i, char in enumerate(text) if char.isalnum()), len(text))
        if 0 < signs < len(text) and core.startswith(f"{text[:signs]}/{text[signs:]}"):
            return at
    return None


def find_thought(prober: Prober, one: Written | None) -> Thought | None:
    """The first way of giving reasoning that comes out."""
    for options in ({}, *prober.switches(SETTINGS)):
        for message in messages(prober):
            turn = prober.turn(message, **options)
            if (
                turn is not None
                and 0 <= turn.text.find(REASONING) < turn.text.find(CONTENT)
                and not listed(turn)
            ):
                return Thought(turn, True, 0, message, options)
        if one is not None:
            found = beside_call(prober, one, options)
            if found is not None:
                return found
    return None


def messages(prober: Prober) -> Iterator[dict[str, Any]]:
    for key in keys(prober):
        yield {"content": prober.said(CONTENT), key: REASONING}
    if prober.mentions("thinking"):
        yield {
            "content": [
                {"type": "thinking", "thinking": REASONING},
                {"type": "text", "text": CONTENT},
            ]
        }


def keys(prober: Prober) -> Iterator[str]:
    """The keys under which the template may look for reasoning. Rendering gives the first three for each other."""
    if any(map(prober.mentions, THOUGHTS[:3])):
        yield THOUGHTS[0]
    yield from filter(prober.mentions, THOUGHTS[3:])


def listed(turn: Stretch) -> bool:
    """The parts came out as a list: the template does not know them."""
    return "'thinking'" in turn.text or '"thinking"' in turn.text


def beside_call(prober: Prober, one: Written, options: dict[str, Any]) -> Thought | None:
    for key in keys(prober):
        message = prober.calls(one.shape, ARGUMENTS[0], **{key: REASONING})
        turn = prober.turn(message, **options)
        at = turn.text.find(REASONING) if turn is not None else -1
        if turn is None or not 0 <= at < turn.text.find(NAMES[0]):
            continue
        before = one.turn.part(0, one.spans[0][0]).text
        first = turn.text.find(NAMES[0]) - (one.turn.text.find(NAMES[0]) - one.spans[0][0])
        gap = turn.text[at + len(REASONING) : first]
        size = next((len(before) - i for i in range(len(before)) if gap.endswith(before[i:])), 0)
        tags = Stretch(gap).tags
        if tags and size > len(gap) - tags[0][1]:  # the end of reasoning is a tag of its own
            size = len(gap) - tags[0][1]
        return Thought(turn, False, first - size, message, options)
    return None


def verbatim(prober: Prober, thought: Thought, texts: Iterable[str]) -> bool:
    """Whether these texts come out as they are where reasoning does."""
    for text in texts:
        message = json.loads(json.dumps(thought.message).replace(REASONING, json.dumps(text)[1:-1]))
        turn = prober.turn(message, **thought.options)
        if turn is not None and text not in turn.text:
            return False
    return True


def whereabouts(prober: Prober, one: Written | None) -> str:
    """What becomes of reasoning that stands neither before content nor before a call."""
    asked = [
        (turn, CONTENT, "content")
        for turn in map(prober.turn, messages(prober))
        if turn and not listed(turn)
    ]
    called = (
        [prober.calls(one.shape, ARGUMENTS[0], **{key: REASONING}) for key in keys(prober)]
        if one
        else []
    )
    asked += [(turn, NAMES[0], "the calls") for turn in map(prober.turn, called) if turn]
    for turn, word, name in reversed(asked):
        if 0 <= turn.text.find(word) < turn.text.find(REASONING):
            return f"it stands behind {name}, and is not read there"
    return "no rendering shows it"


def sought_region(
    texts: Sequence[str], prompts: Sequence[Stretch], plain: Stretch, opened: Stretch
) -> Region | None:
    """The markers of reasoning that a template looks for, or opens without ever showing its end.

    `prompts` are the openings that it writes with one option or another, `plain` is what content alone begins with.
    `opened` is what only prompts end with, and no message begins with: if the template looks for a tag, that ends it.
    """
    closers = [text.strip() for text in texts if closes(text.strip())]
    written = [
        *(prompt.text for prompt in prompts[:1]),
        plain.text,
        *(prompt.text for prompt in prompts[1:]),
    ]
    closers += [closer for text in written for closer in map(closed, WHOLE.findall(text)) if closer]
    for closer in closers:
        opener = "".join(closer.split("/", 1))
        shown = next((text for text in written if opener in text or closer in text), None)
        if shown is None and closer not in texts:
            continue
        gap, end = space(shown or "", opener), space(shown or "", closer)
        lead = gap if closer not in (shown or "") else ""
        return Region(
            Marker(opener + ("\n" if "\n" in gap else ""), "searched"),
            Marker(
                ("\n" if "\n" in gap or lead else "")
                + closer
                + (end or ("\n\n" if "\n" in gap else "")),
                "searched",
            ),
        )
    if opened.core:
        return next(
            (
                Region(opened.marker(), Marker(text, "searched"))
                for text in texts
                if WHOLE.fullmatch(text)
            ),
            None,
        )
    return None


def kindred(texts: Sequence[str], opened: Iterable[Stretch]) -> Region | None:
    """Reasoning that a prompt opens in some place, if the template looks for a tag with a word of the opener in it."""
    for opener in opened:
        words = {word for word in WORD.findall(opener.text) if opener.tags}
        for text in texts:
            if (
                WHOLE.fullmatch(text)
                and text not in opener.text
                and words & set(WORD.findall(text))
            ):
                return Region(opener.marker(), Marker(text, "searched"))
    return None


def closes(text: str) -> bool:
    return bool(WHOLE.fullmatch(text)) and text[1:2] == "/" and "think" in text.lower()


def closed(tag: str) -> str:
    """The end of a tag that opens reasoning."""
    return (
        f"{tag[0]}/{tag[1:]}"
        if tag[1:2] != "/" and "think" in tag.lower() and "_" not in tag
        else ""
    )


def space(text: str, word: str) -> str:
    """The white space behind a word."""
    if word not in text:
        return ""
    rest = text[text.index(word) + len(word) :]
    return rest[: len(rest) - len(rest.lstrip())]

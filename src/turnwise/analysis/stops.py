"""What ends a reply, as texts and as ids, read off what the template writes behind one.

Behind the last word of a plain reply stands what ends it: its first marker, or the whole text if it has none and stands
there in every round. A turn that calls tools may end otherwise (`<|call|>`, `<|eom_id|>`): its last marker counts, if
it does not merely close a call. Some templates end a turn by beginning the next (`<|user|>`): then that is the stop.
Declared stop words come first, the tokenizer's eos last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

from turnwise.analysis.asked import REPLY, UNKNOWN, USER, Answer, Asking
from turnwise.tokens.tokenizers.protocol import Tokenizer

CONTROL = (
    r"<\|[^\s|<>]{1,60}\|?>|<[\w.-]{1,60}\|>|<｜[^\s<>]{1,60}｜>|\[\|[^\s|\[\]]{1,60}\|\]|⟪[a-z_]+⟫"
)
TAG = r"<{1,2}/?[A-Za-z][\w.:-]{0,60}>{1,2}"
BRACKET = r"\[/?[A-Za-z_]{0,20}[A-Z]{3}[A-Z_]{0,20}\]"
MARKER = re.compile(f"{CONTROL}|{TAG}|{BRACKET}")
"""What looks like a control token: `<|...|>`, `<...>`, `[INST]`, `<<SYS>>`."""
CERTAIN, BRACKETED = re.compile(CONTROL), re.compile(BRACKET)
LONGEST = 40  # characters of a stop that is no marker
SPEAKER = "assistant"


class Stops(tuple[str, ...]):
    """The texts that end generation; `ids` are those of them that are one token of the tokenizer."""

    ids: tuple[int, ...]

    def __new__(cls, texts: Iterable[str] = (), ids: Iterable[int] = ()) -> Stops:
        made = super().__new__(cls, texts)
        made.ids = tuple(ids)
        return made


def stops(declared: Sequence[str], ends: Ends, tokenizer: Tokenizer | None = None) -> Stops:
    """All of them, with their ids."""
    eos = tokenizer.named.get("eos_token") if tokenizer else None
    texts = list(dict.fromkeys(filter(None, (*declared, *named_ends(ends.texts), eos))))
    found = [id_of(text, tokenizer) for text in texts] if tokenizer else []
    return Stops(texts, [id for id in found if id is not None])


def id_of(text: str, tokenizer: Tokenizer) -> int | None:
    """The id of a text that is one token."""
    added = tokenizer.added.get(text)
    if added is not None:
        return added.id
    ids = tokenizer.whole(text)
    return ids[0] if len(ids) == 1 and tokenizer.token(ids[0]) == text else None


def named_ends(texts: Iterable[str]) -> tuple[str, ...]:
    """Those that are known by their text: a special token that nobody named is not."""
    return tuple(text for text in texts if not text.startswith(UNKNOWN[0]))


class Ends:
    """The texts that end replies in what a template answered; unknown special tokens stand for themselves."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self.rounds = list(asking.rounds())

    @cached_property
    def plain(self) -> tuple[str, ...]:
        """Those of plain replies."""
        sources: tuple[Callable[[], Iterable[str]], ...] = (
            self.of_rounds,
            self.words,
            self.openings,
        )
        return next((found for source in sources if (found := tuple(dict.fromkeys(source())))), ())

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """All: those of calls too, and under any option."""
        found = dict.fromkeys(self.plain)
        for answer in (*self.calls, *self.asking.varied()):
            found |= dict.fromkeys(self.of_replies([answer], tuple(found)))
            found |= dict.fromkeys(self.of_calls(answer, tuple(found)))
        return tuple(text for text in found if text not in self.inside) or tuple(found)

    @cached_property
    def inside(self) -> str:
        """What stands before the words of a reply that was thought about: what ends a thought does not end the turn."""
        thought = self.asking.answer([USER, {**REPLY, "reasoning_content": "Xthought"}])
        return thought.turn(1).partition(REPLY["content"])[0] if thought else ""

    @cached_property
    def calls(self) -> list[Answer]:
        return list(self.asking.calls())

    def of_rounds(self) -> Iterator[str]:
        return self.of_replies(self.rounds, ())

    def of_replies(self, answers: Sequence[Answer], usual: Iterable[str]) -> Iterator[str]:
        """The last marker of replies that something follows; before it the first of others that end unlike those."""
        found = [
            (MARKER.findall(closing), last, before)
            for answer in answers
            for closing, last, before in replies(answer)
        ]
        usual = dict.fromkeys(
            [*usual, *(markers[-1] for markers, last, _ in found if markers and not last)]
        )
        for markers, last, before in found:
            known = not last or any(text in markers for text in usual)
            if markers and not known and markers[0] not in before:
                yield markers[0]
        yield from usual

    def words(self) -> Iterator[str]:
        """What stands behind every reply and is no marker."""
        closings = [closing.strip() for answer in self.rounds for closing, _, _ in replies(answer)]
        shortest = min(closings, key=len, default="")
        if 0 < len(shortest) <= LONGEST and all(text.startswith(shortest) for text in closings):
            yield shortest

    def openings(self) -> Iterator[str]:
        """The marker that begins whatever follows a reply, or a call."""
        for answer in (*self.rounds, *self.calls):
            for index, message in enumerate(answer.messages[:-1]):
                closing = answer.closing(index) if message["role"] == SPEAKER else None
                following = (closing[1].removeprefix(closing[0]) or closing[1]) if closing else ""
                found = CERTAIN.match(following.strip())
                yield from [found.group()] if found else []

    def of_calls(self, answer: Answer, known: Sequence[str]) -> Iterator[str]:
        """The last marker behind a final call, unless the turn ends as others do, or the marker closes a call."""
        index = len(answer.messages) - 1
        closing = answer.closing(index) if answer.messages[index].get("tool_calls") else None
        found = MARKER.findall(closing[0]) if closing else []
        if not found or any(text in found for text in known):
            return
        last, turn = found[-1], answer.turn(index)
        repeated = any(other.rendering.text.count(last) > 1 for other in self.calls)
        if (
            not repeated
            and turn.count(last) <= 1
            and not (last.startswith("</") and f"<{last[2:-1]}" in turn)
        ):
            yield last


def replies(answer: Answer) -> Iterator[tuple[str, bool, str]]:
    """What stands behind each plain reply, whether it is the end of the conversation, and how the turn begins."""
    for index, message in enumerate(answer.messages):
        if message["role"] == SPEAKER and not message.get("tool_calls"):
            closing = answer.closing(index)
            before = answer.turn(index).partition(message["content"])[0]
            yield from [(closing[0], index == len(answer.messages) - 1, before)] if closing else []

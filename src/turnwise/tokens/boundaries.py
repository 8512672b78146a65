"""Where an assistant's turn begins and ends in a rendered conversation.

A model speaks after the prompt that it was served: the conversation before the turn, with the opening. So a turn
begins where `render(messages[:i], add_generation_prompt=True)` ends, and this is not guessed: that prompt is
rendered, and must be what the conversation starts with. Rendering it for every turn would cost the square of the
conversation, so what was learned of one turn (the text between the start of its message and the end of its opening)
is kept with the template, and for turns of the same kind only compared with what is there.

A turn ends behind the token that ends it: the last of the template's own tokens in the message that is known to end
turns, or else the last one that nothing but white space follows. Where a turn has none, it ends with its last word.

Some turns have no such place. A template may write a finished turn in another way than it opens one (DeepSeek-R1
opens with `<think>`, and leaves the thinking out of history). Such a turn is reported with the reason and not
trained.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from turnwise.engine.outline import Outline
from turnwise.engine.rendering import Rendering
from turnwise.engine.trails import Field
from turnwise.errors import TurnwiseError, shown
from turnwise.tokens.scan import Hit

SPEAKERS = ("assistant", "model")
SPACE = " \t\r\n"

Prompt = Callable[[int], Rendering]  # what serving would send before message i: the messages before it, and the opening


class Turn(NamedTuple):
    """What an assistant says: characters `start` to `end`. From `stop` on they are its stop token, if it has one."""

    message: int
    start: int
    end: int
    stop: int


class Untrained(NamedTuple):
    """A turn whose place in the text could not be established."""

    message: int
    reason: str

    def __str__(self) -> str:
        return f"messages[{self.message}]: {self.reason}"


class Opening(NamedTuple):
    """The text between the start of a message and the place where the model begins; `shift` is where that is."""

    text: str
    shift: int
    reason: str = ""  # why turns of this kind have no such place


class Boundaries:
    """What was learned of one template under one set of options; `sought` are the texts that it looks for."""

    def __init__(self, sought: Sequence[str] = ()) -> None:
        self.sought = sought
        self.openings: dict[tuple[Any, ...], Opening] = {}
        self.stops: set[str] = set()
        self.stops_known = False
        self.marking: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()  # by tokenizer

    def find(
        self,
        rendering: Rendering,
        messages: Sequence[Mapping[str, Any]],
        hits: Sequence[Hit],
        declared: Sequence[str],
        prompt: Prompt,
    ) -> tuple[list[Turn], list[Untrained]]:
        """The assistant's turns in this rendering; `hits` are the tokens that the template itself wrote."""
        spoken = [index for index, message in enumerate(messages) if message.get("role") in SPEAKERS]
        if not spoken:
            return [], []
        text, regions = rendering.text, regions_of(rendering.outline)
        users, switches = last_user(messages), self.switches(messages) if self.sought else ()
        stops, places = self.stops.union(declared), [hit[0] for hit in hits]
        turns: list[Turn] = []
        untrained: list[Untrained] = []
        for index in spoken:
            region = regions.get(index)
            if region is None:
                untrained.append(Untrained(index, "the template leaves the message out, or hides where it writes it"))
                continue
            start = self.start(text, index, region[0], (switches, kind(messages, index, index < users)), prompt)
            if isinstance(start, str):
                untrained.append(Untrained(index, start))
                continue
            if not self.stops_known:
                stops |= self.learn_stops(rendering.outline, messages[index], region, hits)
            stop, end = self.end(text, start, region, hits, places, stops)
            turns.append(Turn(index, start, max(start, end), max(start, stop)))
        return turns, untrained

    def switches(self, messages: Sequence[Mapping[str, Any]]) -> tuple[bool, ...]:
        """Which of the sought texts stand in what the assistant did not say."""
        said = [message.get("content") for message in messages if message.get("role") not in SPEAKERS]
        texts = "\0".join(text for text in said if isinstance(text, str))
        return tuple(text in texts for text in self.sought)

    def start(self, text: str, index: int, region: int, key: tuple[Any, ...], prompt: Prompt) -> int | str:
        """Where the model begins to speak, or why nobody can say."""
        known = self.openings.get(key)
        if known is None or bool(known.reason) == fits(text, region, known):  # not like the one it was learned from
            known = self.learned(text, region, index, prompt)
            if known.reason and index == 0:  # nothing to serve before it: any opening will do that is known
                known = next((one for one in self.openings.values() if one.text and fits(text, region, one)), known)
            self.openings[key] = known
        return known.reason or region + known.shift

    def learned(self, text: str, region: int, index: int, prompt: Prompt) -> Opening:
        """Compare the conversation with the prompt that serving would have sent."""
        try:
            served = prompt(index)
        except TurnwiseError as error:
            return Opening("", 0, f"the template refuses the prompt before it: {error.message}")
        if text.startswith(served.text):
            return opening_at(text, region, len(served.text))
        opening = served.text[last_end(served.outline) :]
        closing = served.text[last_word(served.outline, (0, len(served.text))) :]  # the template's words at the end
        place = region + len(opening)
        if closing and text.endswith(closing, 0, place):
            return opening_at(text, region, place)  # earlier messages differ, the opening does not
        found = text[region : region + len(opening) + 20]
        return Opening(
            opening,
            0,
            f"a prompt ends with {shown(closing[-60:])}, but the finished turn begins {shown(found[:60])}: "
            "it does not continue its own opening",
        )

    def learn_stops(
        self, outline: Outline, message: Mapping[str, Any], region: tuple[int, int], hits: Sequence[Hit]
    ) -> set[str]:
        """The first special token behind the words of a plain message is one that ends turns."""
        if message.get("tool_calls") or not message.get("content"):
            return self.stops
        said = last_word(outline, region)
        for hit in hits:
            if said <= hit.start < region[1] and hit.token.special:
                self.stops.add(hit.token.text)
                break
        self.stops_known = True
        return self.stops

    def end(
        self,
        text: str,
        start: int,
        region: tuple[int, int],
        hits: Sequence[Hit],
        places: Sequence[int],
        stops: set[str],
    ) -> tuple[int, int]:
        """Where the token that ends the turn stands; where the last word ends, twice, if there is none."""
        behind = bisect_left(places, region[1])
        first = bisect_left(places, start, hi=behind)
        for index in range(behind - 1, first - 1, -1):
            if hits[index].token.text in stops:
                return place(text, hits[index])
        if first < behind and not text[hits[behind - 1].end : region[1]].strip(SPACE):
            return place(text, hits[behind - 1])
        following = hits[behind] if behind < len(hits) else None
        if following and following.token.text in stops and not text[region[1] : following.start].strip(SPACE):
            return place(text, following)
        end = start + len(text[start : region[1]].rstrip(SPACE))
        said = max((len(stop) for stop in stops if stop and text.endswith(stop, start, end)), default=0)
        return end - said, end


def place(text: str, hit: Hit) -> tuple[int, int]:
    """A token without the white space that it takes along."""
    if not (hit.token.lstrip or hit.token.rstrip):
        return hit.start, hit.end
    found = text[hit.start : hit.end]
    return hit.start + len(found) - len(found.lstrip(SPACE)), hit.start + len(found.rstrip(SPACE))


def kind(messages: Sequence[Mapping[str, Any]], index: int, history: bool) -> tuple[Any, ...]:
    """What templates look at when they write a turn."""
    has = messages[index].get
    before = messages[index - 1].get("role") if index else None
    thinks = bool(has("reasoning_content") or has("reasoning") or has("thinking"))
    return before, history, bool(has("content")), bool(has("tool_calls")), thinks


def last_user(messages: Sequence[Mapping[str, Any]]) -> int:
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user":
            return index
    return -1


def fits(text: str, region: int, opening: Opening) -> bool:
    at = region + min(opening.shift, 0)
    return at >= 0 and text.startswith(opening.text, at)


def opening_at(text: str, region: int, place: int) -> Opening:
    return Opening(text[min(region, place) : max(region, place)], place - region)


def regions_of(outline: Outline) -> dict[int, tuple[int, int]]:
    """From where to where each message is written."""
    found: dict[int, tuple[int, int]] = {}
    starts, ends = outline.starts, [*outline.begins[1:], len(outline.texts)]
    for begin, end, message in zip(outline.begins, ends, outline.placed, strict=True):
        if message is not None and begin < end:
            first = found.get(message)
            found[message] = (first[0] if first else starts[begin], starts[end])
    return found


def last_end(outline: Outline) -> int:
    """Where the last message ends."""
    return max((end for _, end in regions_of(outline).values()), default=0)


def last_word(outline: Outline, region: tuple[int, int]) -> int:
    """Where the last character that came from a field ends."""
    for index in range(outline.at(region[1] - 1), -1, -1):
        if outline.starts[index] < region[0]:
            break
        if type(outline.trails[index]) is int:
            continue
        at = outline.starts[index + 1]
        for part, leaf in reversed(outline.runs(index)):
            if isinstance(leaf, Field):
                return at
            at -= len(part)
    return region[0]

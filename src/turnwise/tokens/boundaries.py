"""Where an assistant's turn begins and ends in a rendered conversation.

A model speaks after the prompt that it was served: the conversation before the turn, with the opening. So a turn
begins where `render(messages[:i], add_generation_prompt=True)` ends, and this is not guessed: that prompt is
rendered, and must be what the conversation starts with. Rendering it for every turn would cost the square of the
conversation, so what was learned of one turn (the text between the start of its message and the end of its opening)
is kept with the template, and for turns of the same kind only compared with what is there.

A turn ends behind the token that ends it: the first of the template's own tokens behind its last word that is known to
end turns, or else the last one that nothing but white space follows. Where a turn has none, it ends with its last word.

Some turns have no such place. A template may write a finished turn in another way than it opens one (DeepSeek-R1
opens with `<think>`, and leaves the thinking out of history). Such a turn is reported with the reason and not
trained.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from turnwise.engine.provenance.piece_table import PieceTable, message_index
from turnwise.engine.provenance.rendering import Rendering
from turnwise.engine.provenance.trails import Field
from turnwise.errors import TurnwiseError, short_repr
from turnwise.tokens.attribution import SPEAKERS
from turnwise.tokens.token_matcher import Hit

SPACE = " \t\r\n"
RESULTS = ("tool", "function", "ipython", "observation", "environment")

Prompt = Callable[
    [int], Rendering
]  # what serving would send before message i: the messages before it, and the opening


class Turn(NamedTuple):
    """What an assistant says: characters `start` to `end`. From `stop` on they are its stop token, if it has one."""

    message: int
    start: int
    end: int
    stop: int


class Untrained(NamedTuple):
    """A turn whose place in the text could not be established; it may be one that `departs` from its opening."""

    message: int
    reason: str
    departs: bool = False

    def __str__(self) -> str:
        return f"messages[{self.message}]: {self.reason}"


class Opening(NamedTuple):
    """The text between the start of a message and the place where the model begins; `shift` is where that is.

    Turns that do not continue their opening have no such place: then `closing` is what their prompts end with.
    """

    text: str
    shift: int
    closing: str = ""
    refusal: str = ""  # why there is no prompt at all


class Boundaries:
    """What was learned of one template under one set of options.

    `sought` are the texts that it looks for. A template that weighs texts in other ways (`content|length > 100`) is
    `fickle`: nothing that was learned of one conversation holds for another, and every prompt is rendered.
    """

    def __init__(self, sought: Sequence[str] = (), fickle: bool = False) -> None:
        self.sought = sought
        self.fickle = fickle
        self.openings: dict[tuple[Any, ...], Opening] = {}
        self.marking: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()  # by tokenizer

    def find(
        self,
        rendering: Rendering,
        messages: Sequence[Mapping[str, Any]],
        hits: Sequence[Hit],
        stops: Container[str],
        prompt: Prompt,
    ) -> tuple[list[Turn], list[Untrained]]:
        """The assistant's turns in this rendering; `hits` are the tokens that the template itself wrote."""
        spoken = [
            index for index, message in enumerate(messages) if message.get("role") in SPEAKERS
        ]
        if not spoken:
            return [], []
        text, table = rendering.text, rendering.piece_table
        regions, places = regions_of(table), [hit[0] for hit in hits]
        users, switches = last_user(messages), self.switches(messages) if self.sought else ()
        turns: list[Turn] = []
        untrained: list[Untrained] = []
        for index in spoken:
            region = regions.get(index)
            if region is None:
                untrained.append(
                    Untrained(
                        index, "the template leaves the message out, or hides where it writes it"
                    )
                )
                continue
            if not all(
                regions.get(other) for other in range(index + 1, following(messages, index))
            ):
                region = region[0], own_end(table, index, region)  # others may stand in its place
            start = self.start(
                text, index, region[0], (switches, kind(messages, index, index < users)), prompt
            )
            if isinstance(start, Opening):
                untrained.append(
                    Untrained(index, reason(start, text, region[0]), not start.refusal)
                )
                continue
            stop, end = ending(table, text, start, region, hits, places, stops)
            if end <= start or not calls_written(messages[index], text, region):
                lost = "does not write its calls" if end > start else "writes nothing of it"
                untrained.append(Untrained(index, f"the template {lost}"))
                continue
            turns.append(Turn(index, start, end, max(start, stop)))
        return turns, untrained

    def switches(self, messages: Sequence[Mapping[str, Any]]) -> tuple[bool, ...]:
        """Which of the sought texts stand in what the assistant did not say."""
        said = [
            message.get("content") for message in messages if message.get("role") not in SPEAKERS
        ]
        texts = "\0".join(text for text in said if isinstance(text, str))
        return tuple(text in texts for text in self.sought)

    def start(
        self, text: str, index: int, region: int, key: tuple[Any, ...], prompt: Prompt
    ) -> int | Opening:
        """Where the model begins to speak, or the opening that the turn does not continue."""
        known = None if self.fickle else self.openings.get(key)
        if known is None or bool(known.closing or known.refusal) == fits(text, region, known):
            known = learned(
                text, region, index, prompt
            )  # none yet, or not like the one it was learned from
            if (
                known.refusal and index == 0
            ):  # nothing to serve before it: any opening will do that is known
                known = next(
                    (one for one in self.openings.values() if one.text and fits(text, region, one)),
                    known,
                )
            self.openings[key] = known
        if known.refusal or known.closing:
            return known
        return region + known.shift


def reason(opening: Opening, text: str, region: int) -> str:
    """Why the turn that begins here has no place where the model begins."""
    if opening.refusal:
        return f"the template refuses the prompt before it: {opening.refusal}"
    found = text[region : region + len(opening.text) + 20]
    return (
        f"a prompt ends with {short_repr(opening.closing[-60:])}, "
        f"but the finished turn begins {short_repr(found[:60])}: "
        "it does not continue its own opening"
    )


def learned(text: str, region: int, index: int, prompt: Prompt) -> Opening:
    """Compare the conversation with the prompt that serving would have sent."""
    try:
        served = prompt(index)
    except TurnwiseError as error:
        return Opening("", 0, refusal=error.message)
    if text.startswith(served.text):
        return opening_at(text, region, len(served.text))
    opening = served.text[last_end(served.piece_table) :]
    closing = served.text[
        last_word(served.piece_table, (0, len(served.text))) :
    ]  # the template's words at the end
    place = region + len(opening)
    if closing and text.endswith(closing, 0, place):
        return opening_at(text, region, place)  # earlier messages differ, the opening does not
    return Opening(opening, 0, closing=closing or served.text[-20:] or " ")


def ending(
    table: PieceTable,
    text: str,
    start: int,
    region: tuple[int, int],
    hits: Sequence[Hit],
    places: Sequence[int],
    stops: Container[str],
) -> tuple[int, int]:
    """Where the token that ends the turn stands; where the last word ends, twice, if there is none."""
    behind = bisect_left(places, region[1])
    first = bisect_left(places, start, hi=behind)
    ends = [index for index in range(first, behind) if hits[index].token.text in stops]
    if len(ends) > 1:  # the first one behind the last word
        said = last_word(table, (start, region[1]))
        ends = [index for index in ends if hits[index].start >= said] or ends[-1:]
    if ends:
        return place(text, hits[ends[0]])
    if first < behind and not text[hits[behind - 1].end : region[1]].strip(SPACE):
        return place(text, hits[behind - 1])
    next_hit = hits[behind] if behind < len(hits) else None
    if (
        next_hit
        and next_hit.token.text in stops
        and not text[region[1] : next_hit.start].strip(SPACE)
    ):
        return place(text, next_hit)
    end = start + len(text[start : region[1]].rstrip(SPACE))
    end = max(end, last_word(table, (start, region[1])))
    said = max((len(stop) for stop in spelled(stops) if text.endswith(stop, start, end)), default=0)
    return end - said, end


def spelled(stops: Container[str]) -> Iterator[str]:
    return (stop for stop in stops if stop) if isinstance(stops, Iterable) else iter(())


def following(messages: Sequence[Mapping[str, Any]], index: int) -> int:
    """The index of the next message that is not a result: a tool's belong to the turn before them."""
    index += 1
    while index < len(messages) and messages[index].get("role") in RESULTS:
        index += 1
    return index


def own_end(table: PieceTable, index: int, region: tuple[int, int]) -> int:
    """Where the first field of another message stands in the region of this one; its end, if there is none."""
    for at in range(table.index_at(region[0]), table.index_at(region[1] - 1) + 1):
        place = table.starts[at]
        for part, leaf in table.split(at):
            if isinstance(leaf, Field) and message_index(leaf.path) not in (None, index) and part:
                return place
            place += len(part)
    return region[1]


def calls_written(message: Mapping[str, Any], text: str, region: tuple[int, int]) -> bool:
    """Whether the names of the message's calls stand in its region."""
    for call in message.get("tool_calls") or ():
        function = call.get("function", call) if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str) and text.find(name, region[0], region[1]) < 0:
            return False
    return True


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


def regions_of(table: PieceTable) -> dict[int, tuple[int, int]]:
    """From where to where each message is written, until another one is."""
    found: dict[int, tuple[int, int]] = {}
    starts, ends = table.starts, [*table.message_starts[1:], len(table.texts)]
    current = None
    for begin, end, message in zip(table.message_starts, ends, table.messages, strict=True):
        if message is None or begin == end:
            continue
        if message == current:
            found[message] = (found[message][0], starts[end])
        elif message not in found:
            found[message] = (starts[begin], starts[end])
            current = message
        else:
            current = None  # it was written before, and others since
    return found


def last_end(table: PieceTable) -> int:
    """Where the last message ends."""
    return max((end for _, end in regions_of(table).values()), default=0)


def last_word(table: PieceTable, region: tuple[int, int]) -> int:
    """Where the last character that came from a field ends."""
    for index in range(table.index_at(region[1] - 1), -1, -1):
        if table.starts[index] < region[0]:
            break
        if type(table.trails[index]) is int:
            continue
        at = table.starts[index + 1]
        for part, leaf in reversed(table.split(index)):
            if isinstance(leaf, Field):
                return at
            at -= len(part)
    return region[0]

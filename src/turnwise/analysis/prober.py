"""Probing: what a template makes of one assistant message, from the start of that message on.

Every field of a probe is a word of its own that no template writes, so a field is found by its word wherever it comes
out. Templates are particular about what they take (arguments as a mapping or as text, content that is empty or null,
text in parts), so a question is asked in several shapes and the first that is answered counts. A template that refuses
all of them cannot write the thing. Some want a system's message first, some write a message only when another follows.
An answer that is far longer than any that is known counts as none: to take it apart would cost more than it tells.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import unescape
from typing import Any, NamedTuple, Protocol

from turnwise.analysis.conversations import NOW, SPECIAL_TOKENS, STANDARD_VARIABLES, make_tool
from turnwise.analysis.segment import NONE, Stretch, shared_start
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.errors import TurnwiseError
from turnwise.messages import REASONING_KEYS

SYSTEM, USER, AGAIN, RESULT = "Zsystemq", "Zuserq", "Zagainq", "Zresultq"
CONTENT, REASONING = "Zcontentq", "Zreasonq"
NAMES = ("zfuna", "zfunb")
IDS = ("zid0aaaa1", "zid0bbbb2")  # nine letters and digits, as some templates demand
# A text, a number, a text: only then do the end of a text, the end of a number and what separates two show apart.
ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"zkeya": "zvala", "zkeyb": 90417, "zkeyc": "zvalc"},
    {"zkeyd": "zvald", "zkeye": 80351, "zkeyf": "zvalf"},
)
RESULTS = [
    {"role": "tool", "content": RESULT, "tool_call_id": IDS[at], "name": NAMES[at]} for at in (0, 1)
]
KINDS = {
    "zkeya": "string",
    "zkeyb": "integer",
    "zkeyc": "string",
    "zkeyd": "string",
    "zkeye": "integer",
}
TOOLS = [
    make_tool(name, **{key: {"type": KINDS.get(key, "string")} for key in ARGUMENTS[i]})
    for i, name in enumerate(NAMES)
]
DOCUMENTS = [{"title": "Ztitleq", "text": "Ztextq"}]
WORDS = (SYSTEM, USER, AGAIN, RESULT, CONTENT, REASONING, *NAMES, *IDS, *DOCUMENTS[0].values())
RENDERING, TURN = (
    120_000,
    4_500,
)  # characters; many times what the longest answer of 265 published templates has
THOUGHTS = (*REASONING_KEYS, "tool_plan", "thought")  # where templates look for reasoning
SWITCHES = ("think", "thought", "reason")  # what options that turn reasoning on have in their names
SETTINGS: tuple[Any, ...] = (True, False, "thinking", "high")
GIVEN = ("strftime_now", "raise_exception")  # names that every rendering has
ABSENT = object()
CONTENTS = ("", None, ABSENT)  # of a message that only calls


class Template(Protocol):
    """What is asked of a template here."""

    @property
    def text(self) -> str: ...
    @property
    def variables(self) -> tuple[str, ...]: ...
    @property
    def render(self) -> Callable[..., Rendering]: ...


class Shape(NamedTuple):
    """In which form a question is put."""

    content: Any = ""  # of a message that only calls
    as_text: bool = False  # arguments are JSON text
    bare: bool = False  # name and arguments stand in the call itself, not under `function`
    single: bool = False  # the message has one call, under `function_call`


class Prober:
    """Asks one template; `tokens` are texts that a tokenizer never cuts."""

    def __init__(self, template: Template, tokens: Iterable[str] = ()) -> None:
        self.template = template
        named = getattr(
            template, "named", {}
        )  # other templates of the model, such as the one that is taken with tools
        self.texts = (template.text, *(other.text for other in named.values()))
        self.variables = tuple(
            dict.fromkeys(
                (*template.variables, *(v for other in named.values() for v in other.reads))
            )
        )
        self.tokens = tuple(token for token in tokens if token.strip())
        self.parts = False
        self.first: list[dict[str, Any]] = []  # what the template wants before a user's message
        self.followed = False  # a message comes out only if another one follows it
        self.answered = False  # a call comes out only if its result follows it
        self.exceeded = False  # an answer was too long to be looked at
        self.trimmed = False  # white space before a turn is no part of it
        self.given: dict[str, Any] = {"tools": TOOLS}
        self.asked: dict[str, Stretch | None] = {}
        self.begun: dict[str, str | None] = {}
        self.escaped = not self.mentions(
            "&#34;"
        )  # `|safe` escapes what is added to it, and no model writes that

    def mentions(self, word: str) -> bool:
        """Whether the word stands anywhere in the source."""
        return any(word in text for text in self.texts)

    def settle(self, parts: bool) -> bool:
        """Find what the template can be asked with: with tools if it takes them, and with the variables it demands."""
        self.parts = parts
        demanded = {
            name: ""
            for name in self.variables
            if name not in STANDARD_VARIABLES and name not in GIVEN
        }
        for first in ([], [{"role": "system", "content": self.said(SYSTEM)}]):
            for given in ({"tools": TOOLS}, {"tools": TOOLS, **demanded}, {}, demanded):
                self.first = first
                self.give(given)
                if self.rendering([self.user()], add_generation_prompt=True) is not None:
                    return True
        return False

    def give(self, given: dict[str, Any]) -> None:
        """From now on, ask with these."""
        self.given = given
        self.asked.clear()
        self.begun.clear()

    def widened(self) -> Iterator[dict[str, Any]]:
        """What is given, and more that may be needed for a call to come out."""
        given = self.given
        yield given
        if "documents" in self.variables and self.mentions("tool_calls"):
            yield {**given, "documents": DOCUMENTS}

    def switches(self, settings: tuple[Any, ...] = (True, False)) -> Iterator[dict[str, Any]]:
        """Settings of the options that may turn reasoning on or off."""
        for name in self.variables:
            if (
                name not in STANDARD_VARIABLES
                and name not in SPECIAL_TOKENS
                and any(word in name for word in SWITCHES)
            ):
                yield from ({name: value} for value in settings)

    def said(self, text: str) -> Any:
        return [{"type": "text", "text": text}] if self.parts else text

    def user(self, text: str = USER) -> dict[str, Any]:
        return {"role": "user", "content": self.said(text)}

    def follows(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What stands behind a message so that it comes out."""
        if self.answered and "tool_calls" in message:
            return [
                {**RESULTS[at], "content": self.said(RESULT)}
                for at in range(len(message["tool_calls"]))
            ]
        return [self.user(AGAIN)] if self.followed else []

    def rendering(self, messages: list[dict[str, Any]], **options: Any) -> Rendering | None:
        try:
            found = self.template.render(
                [*self.first, *messages], **{**self.given, "now": NOW, **options}
            )
        except TurnwiseError:
            return None
        self.exceeded = self.exceeded or len(found.text) > RENDERING
        return found if len(found.text) <= RENDERING else None

    def prompt(self, **options: Any) -> Stretch | None:
        """The opening alone: what a prompt adds to the conversation."""
        closed = self.rendering([self.user()], **options)
        opened = self.rendering([self.user()], add_generation_prompt=True, **options)
        if opened is None:
            return None
        if closed is not None and closed.text == opened.text:
            return self.trim(self.unasked(opened, **options))
        if closed is not None and opened.text.startswith(closed.text):
            return self.trim(self.stretch(opened, len(closed.text)))
        if USER not in opened.text:
            return None
        tail = self.stretch(opened, after(opened.text, USER))
        ended = self.stretch(closed, after(closed.text, USER)) if closed is not None else NONE
        return self.trim(tail.part(shared_start(tail, ended)))  # without what ends the user's turn

    def unasked(self, opened: Rendering, **options: Any) -> Stretch:
        """The opening that stands behind every last message, asked for or not; no part of the user's turn."""
        message = {"role": "assistant", "content": self.said(CONTENT)}
        turn = self.rendering([self.user(), message, *self.follows(message)], **options)
        if turn is None or USER not in turn.text or USER not in opened.text:
            return NONE
        tail, whole = (
            self.stretch(opened, after(opened.text, USER)),
            self.stretch(turn, after(turn.text, USER)),
        )
        if turn.text.startswith(opened.text):  # it goes on there, and the opening may come again
            opening = tail.part(
                max(
                    (end for _, end, origin in tail.pieces if origin.message is not None), default=0
                )
            )
            return opening if opening.core and turn.text.endswith(opening.text) else NONE
        shared = whole.text[: self.place_of(whole, len(self.first) + 1)].strip()
        at = tail.text.find(shared)
        return tail.part(at + len(shared)) if not tail.text[: max(at, 0)].strip() else NONE

    def turn(
        self, message: Mapping[str, Any], *behind: Mapping[str, Any], **options: Any
    ) -> Stretch | None:
        """What the template makes of this message after a user's, and of those behind it."""
        key = json.dumps(
            [message, behind, options, self.followed, self.answered], sort_keys=True, default=str
        )
        if key not in self.asked:
            self.asked[key] = self._turn(message, behind, options)
        found = self.asked[key]
        return self.trim(found) if found is not None else None

    def trim(self, stretch: Stretch) -> Stretch:
        return stretch.part(len(stretch) - len(stretch.text.lstrip())) if self.trimmed else stretch

    def _turn(
        self, message: Mapping[str, Any], behind: Any, options: dict[str, Any]
    ) -> Stretch | None:
        follows = self.follows(message) if not behind else []
        rendering = self.rendering(
            [self.user(), {"role": "assistant", **message}, *behind, *follows], **options
        )
        if rendering is None:
            return None
        place, before = len(self.first) + 1, self.before(**options)
        if before is not None and rendering.text.startswith(before):
            turn = self.stretch(rendering, len(before))
        elif USER not in rendering.text:
            return None
        else:
            whole = self.stretch(rendering, after(rendering.text, USER))
            turn = whole.part(self.place_of(whole, place))
        turn = turn.part(0, self.place_of(turn, place + 1) or None) if follows else turn
        self.exceeded = self.exceeded or len(turn) > TURN
        return turn if len(turn) <= TURN else None

    def place_of(self, stretch: Stretch, message: int) -> int:
        """Where the message with this number begins, 0 if it does not show."""
        return next((start for start, _, origin in stretch.pieces if origin.message == message), 0)

    def before(self, **options: Any) -> str | None:
        """The conversation up to the message."""
        key = f"{options}"
        if key not in self.begun:
            rendering = self.rendering([self.user()], **options)
            self.begun[key] = rendering.text if rendering is not None else None
        return self.begun[key]

    def stretch(self, rendering: Rendering, start: int) -> Stretch:
        """The rendering from a character on. Its pieces before that are not made: tools are long."""
        pieces: list[Piece] = []
        table = rendering.piece_table
        for index, (text, trail, message, generation) in enumerate(table.rows()):
            at = table.starts[index]
            if table.starts[index + 1] <= start:
                continue
            for part, leaf in [(text, trail)] if type(trail) is int else table.split(index):
                kept = part[max(start - at, 0) :]
                at += len(part)
                origin = rendering.origin(leaf, message, generation)
                if kept and pieces and pieces[-1].origin == origin:
                    pieces[-1] = Piece(pieces[-1].text + kept, origin)
                elif kept:
                    pieces.append(Piece(kept, origin))
        if self.escaped and "&#34;" in rendering.text:
            pieces = [Piece(unescape(text), origin) for text, origin in pieces]
        return Stretch.of(pieces, self.tokens)

    def calls(
        self, shape: Shape, *arguments: Any, content: str | None = None, **more: Any
    ) -> dict[str, Any]:
        """A message with one call for each of the arguments."""
        said = shape.content if content is None else self.said(content)
        spoken = {**({} if said is ABSENT else {"content": said}), **more}
        listed = []
        for name, identity, given in zip(NAMES, IDS, arguments, strict=False):
            taken = json.dumps(given, ensure_ascii=False) if shape.as_text else given
            function = {"name": name, "arguments": taken}
            if shape.single:
                return {**spoken, "function_call": function}
            listed.append(
                {
                    "id": identity,
                    **(function if shape.bare else {"type": "function", "function": function}),
                }
            )
        return {**spoken, "tool_calls": listed}


def after(text: str, word: str) -> int:
    """Where the last of these words ends."""
    return text.rfind(word) + len(word)

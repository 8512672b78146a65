"""What a template writes around replies: the renderings that stops and markers are read off.

A few conversations whose every text is known are rendered: plain rounds, calls of tools in the shapes that templates
accept, and both again with each option that the template reads. A template that refuses one of them is not asked
again. Special tokens that nobody has named are given a text that no template writes (`UNKNOWN`), so that the places
where they stand are seen all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from turnwise.analysis.conversations import (
    NOW,
    OSLO,
    SPECIAL_TOKENS,
    STANDARD_VARIABLES,
    WEATHER,
    MessageDict,
    make_call_message,
    make_message,
    make_tool_result,
)
from turnwise.engine.provenance.rendering import Origin, Rendering
from turnwise.errors import TurnwiseError

UNKNOWN = "⟪{name}⟫"
USER, AGAIN = make_message("user", "Xfirst"), make_message("user", "Xsecond")
REPLY = make_message("assistant", "Xone")
CALLS = tuple(
    (arguments, content)
    for arguments in (OSLO, '{"city": "Oslo"}')
    for content in ("", None, "Xcall")
)
"""How calls are written: arguments as a mapping or as text, beside an empty, null or given content."""
CALLED = "Oslo"
VALUES: tuple[Any, ...] = (True, False, ["weather"])
OPTIONS = 12  # that are tried; a template that reads more is not about them


class Asks(Protocol):
    """The part of a template that is asked."""

    @property
    def variables(self) -> tuple[str, ...]: ...

    @property
    def options(self) -> Mapping[str, Any]: ...

    def render(self, messages: Any, **arguments: Any) -> Rendering: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A conversation as the template writes it."""

    messages: list[MessageDict]
    rendering: Rendering
    plain: bool = True  # no tools, no options

    def closing(self, index: int) -> tuple[str, str] | None:
        """What stands behind the last word of a message: in its own turn, and from there to the next field."""
        at, end, stop, behind = 0, None, None, None
        for piece in self.rendering.pieces:
            if spoken(piece.origin, index):
                end, stop, behind = at + len(piece.text), None, None
            elif end is not None and stop is None and piece.origin.message not in (None, index):
                stop = at
            if end is not None and behind is None and others(piece.origin, index):
                behind = at
            at += len(piece.text)
        if end is None:
            return None
        return self.rendering.text[end:stop], self.rendering.text[end:behind]

    def turn(self, index: int) -> str:
        """The text that was written for a message."""
        return "".join(
            piece.text for piece in self.rendering.pieces if piece.origin.message == index
        )


def spoken(origin: Origin, index: int) -> bool:
    """Whether this came from what the message says."""
    paths = [origin.path] if origin.path else origin.sources
    return any(
        len(path) > 2 and path[:2] == ("messages", index) and path[2] != "role" for path in paths
    )


def others(origin: Origin, index: int) -> bool:
    path = origin.path
    return (
        path is not None
        and len(path) > 2
        and path[0] == "messages"
        and path[1] != index
        and path[2] != "role"
    )


def tokens_of(template: Asks, named: Mapping[str, str]) -> dict[str, str]:
    """The special tokens that the template reads: the tokenizer's, else its own, else a text that stands for them."""
    own = {
        name: template.options[name] for name in template.variables if template.options.get(name)
    }
    read = [name for name in template.variables if name in SPECIAL_TOKENS]
    return {name: named.get(name) or own.get(name) or UNKNOWN.format(name=name) for name in read}


class Asking:
    """Renders for one template with one set of special tokens."""

    def __init__(self, template: Asks, named: Mapping[str, str]) -> None:
        self.template = template
        self.tokens = tokens_of(template, named)

    def answer(
        self, messages: list[MessageDict], plain: bool = True, **arguments: Any
    ) -> Answer | None:
        try:
            rendering = self.template.render(messages, now=NOW, **{**self.tokens, **arguments})
        except TurnwiseError:
            return None
        return Answer(messages, rendering, plain)

    def rounds(self) -> Iterator[Answer]:
        """Plain conversations that end with a reply."""
        chats = (
            [USER, REPLY],
            [USER, REPLY, AGAIN, REPLY],
            [make_message("system", "Xsystem"), USER, REPLY],
        )
        yield from filter(None, map(self.answer, chats))

    def calls(self, **options: Any) -> Iterator[Answer]:
        """Conversations that end with a call, with two, and with its result, in the first shape that it takes."""
        for arguments, content in CALLS:
            call = ("weather", arguments)
            chats = [
                [USER, make_call_message(call, content=content)],
                [USER, make_call_message(call, call, content=content)],
            ]
            chats.append(
                [USER, make_call_message(call, content=content), make_tool_result("Xresult"), REPLY]
            )
            found = [self.answer(chat, False, tools=[WEATHER], **options) for chat in chats]
            if found[0] is not None and CALLED in found[0].rendering.text:
                yield from filter(None, found)
                return

    def varied(self) -> Iterator[Answer]:
        """Rounds and calls with each option that the template reads."""
        names = [
            name
            for name in self.template.variables
            if name not in STANDARD_VARIABLES and name not in SPECIAL_TOKENS
        ]
        for name in names[:OPTIONS]:
            for value in VALUES:
                found = self.answer([USER, REPLY, AGAIN, REPLY], False, **{name: value})
                yield from [found] if found else []
                yield from self.calls(**{name: value})

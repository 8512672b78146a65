"""Where two renderers part: the smallest conversation on which they write different things.

A conversation that one refuses and the other renders is a difference; two refusals agree. A difference is shrunk:
messages, tools, fields and letters are taken away as long as the two still differ in the same way, so what is left is
the reason.
The pieces of both sides then say which node or field the first differing character came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from turnwise.analysis.conversations import NOW, Probe
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.errors import TurnwiseError
from turnwise.errors import short_repr as brief

SHRINKS = 400  # attempts to make a witness smaller

Outcome = Rendering | TurnwiseError


class Renders(Protocol):
    """Whatever renders a conversation: a template."""

    def render(self, messages: Any, **arguments: Any) -> Rendering: ...


@dataclass(frozen=True)
class Witness:
    """A conversation on which two templates differ, and what each makes of it."""

    probe: Probe
    a: Outcome
    b: Outcome
    names: tuple[str, str] = ("a", "b")  # what the two sides are called

    @property
    def at(self) -> int:
        """The first character that differs."""
        first, second = text_of(self.a), text_of(self.b)
        pairs = enumerate(zip(first, second, strict=False))
        return next((i for i, (x, y) in pairs if x != y), min(len(first), len(second)))

    @property
    def pieces(self) -> tuple[Piece | None, Piece | None]:
        """The piece of each side in which the difference lies."""
        return piece_at(self.a, self.at), piece_at(self.b, self.at)

    def __str__(self) -> str:
        lines = ["they differ on:"]
        lines += [f"  {message!r}" for message in self.probe.messages] or ["  no messages at all"]
        lines += [f"  {name}={value!r}" for name, value in given(self.probe).items()]
        for name, side, piece in zip(self.names, (self.a, self.b), self.pieces, strict=True):
            lines.append(f"{name}: {shown(side, self.at)}")
            if piece is not None:
                lines.append(f"   from {piece.origin}: {brief(piece.text)}")
        return "\n".join(lines)


def witness(a: Renders, b: Renders, probe: Probe) -> Witness | None:
    """The smallest conversation near this one that tells the two apart, if this one does."""
    kind = difference(a, b, probe)
    if not kind:
        return None
    smallest = shrunk(a, b, probe, kind)
    return Witness(smallest, outcome(a, smallest), outcome(b, smallest))


def outcome(template: Renders, probe: Probe) -> Outcome:
    try:
        return template.render(probe.messages, **probe.arguments())
    except TurnwiseError as error:
        return error


def difference(a: Renders, b: Renders, probe: Probe) -> str:
    """How the two differ on this conversation: in their text, in that one refuses it, or not at all."""
    first, second = outcome(a, probe), outcome(b, probe)
    if isinstance(first, TurnwiseError) or isinstance(second, TurnwiseError):
        return "" if type(first) is not Rendering and type(second) is not Rendering else "refusal"
    return "text" if first.text != second.text else ""


def shrunk(
    a: Renders,
    b: Renders,
    probe: Probe,
    kind: str,
    difference: Callable[[Renders, Renders, Probe], str] = difference,
) -> Probe:
    """The smallest conversation near this one that still tells the two apart, in the same way."""
    left = SHRINKS
    smaller = True
    while smaller and left > 0:
        smaller = False
        for candidate in reductions(probe):
            left -= 1
            if difference(a, b, candidate) == kind:
                probe, smaller = candidate, True
                break
            if left <= 0:
                break
    return probe


def reductions(probe: Probe) -> Iterator[Probe]:
    """Everything that is one step smaller."""
    for index in range(
        len(probe.messages) if len(probe.messages) > 1 else 0
    ):  # no message at all says little
        yield replace(probe, messages=without(probe.messages, index))
    if probe.opening:
        yield replace(probe, opening=False)
    for fewer in fewer_values(probe.tools):
        yield replace(probe, tools=fewer)
    for fewer in fewer_values(probe.documents):
        yield replace(probe, documents=fewer)
    for name in probe.options:
        yield replace(
            probe, options={key: value for key, value in probe.options.items() if key != name}
        )
    for index, message in enumerate(probe.messages):
        for smaller in smaller_messages(message):
            yield replace(
                probe, messages=[*probe.messages[:index], smaller, *probe.messages[index + 1 :]]
            )


def fewer_values(values: list[Any] | None) -> Iterator[list[Any] | None]:
    """None of them, one less, and smaller ones."""
    if values is not None:
        yield None
        for index in range(len(values) if len(values) > 1 else 0):
            yield without(values, index)
        for index, value in enumerate(values):
            for smaller in smaller_values(value):
                yield [*values[:index], smaller, *values[index + 1 :]]


def smaller_messages(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in message:
        if key != "role":
            yield {name: value for name, value in message.items() if name != key}
    for key, value in message.items():
        for smaller in smaller_values(value) if key != "role" else ():
            yield {**message, key: smaller}


def smaller_values(value: Any) -> Iterator[Any]:
    """Shorter texts, shorter lists, fewer entries."""
    if isinstance(value, str) and len(value) > 1:
        yield value[: len(value) // 2]
        yield value[len(value) // 2 :]
        yield value[1:]
        yield value[:-1]
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield without(value, index)
            for smaller in smaller_values(item):
                yield [*value[:index], smaller, *value[index + 1 :]]
    elif isinstance(value, dict):
        for key, item in value.items():
            yield {name: entry for name, entry in value.items() if name != key}
            for smaller in smaller_values(item):
                yield {**value, key: smaller}


def without(values: list[Any], index: int) -> list[Any]:
    return [*values[:index], *values[index + 1 :]]


# ---- showing ----


def text_of(side: Outcome) -> str:
    return side.text if isinstance(side, Rendering) else ""


def piece_at(side: Outcome, at: int) -> Piece | None:
    if not isinstance(side, Rendering):
        return None
    start = 0
    for piece in side.pieces:
        if start <= at < start + len(piece.text):
            return piece
        start += len(piece.text)
    return None


def given(probe: Probe) -> dict[str, Any]:
    """The arguments that matter, as they were passed."""
    arguments = {"tools": probe.tools, "documents": probe.documents, **probe.options}
    if probe.opening:
        arguments["add_generation_prompt"] = True
    if probe.now != NOW:
        arguments["now"] = probe.now
    return {name: value for name, value in arguments.items() if value is not None}


def shown(side: Outcome, at: int) -> str:
    if isinstance(side, TurnwiseError):
        return f"refuses: {side.message}"
    before, after = side.text[max(at - 30, 0) : at], side.text[at : at + 40]
    return (
        f"{'…' if at > 30 else ''}{before}⟪{after}⟫"
        if after
        else f"{'…' if at > 30 else ''}{before}⟪end⟫"
    )

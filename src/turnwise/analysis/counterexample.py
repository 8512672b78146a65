"""Find the smallest conversation on which two templates write different things.

Both templates render the same probe. A probe that one refuses and the other renders counts as a difference; two
refusals agree. A difference is then *shrunk*: messages, tools, fields and letters are removed one at a time, as long
as the two still differ in the same way, so that what is left shows the reason:

    they differ on:
      {'role': 'user', 'content': ''}
    a: <|im_start|>⟪user\\n⟫
    b: <|im_start|>⟪ user\\n⟫

The pieces of both renderings tell which template node or message field wrote the first different character.
Shrinking is greedy and bounded (`MAX_SHRINK_STEPS`): the result is small, not always the smallest there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from turnwise.analysis.conversations import NOW, Probe
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import TurnwiseError, short_repr

MAX_SHRINK_STEPS = 400
CONTEXT_BEFORE, CONTEXT_AFTER = 30, 40  # characters shown around the first difference

RenderOutcome = Rendering | TurnwiseError


@dataclass(frozen=True)
class Counterexample:
    """A conversation on which two templates differ, and what each makes of it."""

    probe: Probe
    a: RenderOutcome
    b: RenderOutcome
    names: tuple[str, str] = ("a", "b")  # how the two sides are called in the report

    @property
    def at(self) -> int:
        """The index of the first character that differs."""
        first, second = rendered_text(self.a), rendered_text(self.b)
        pairs = enumerate(zip(first, second, strict=False))
        return next((i for i, (x, y) in pairs if x != y), min(len(first), len(second)))

    @property
    def pieces(self) -> tuple[Piece | None, Piece | None]:
        """The piece of each side in which the difference lies."""
        return _piece_at(self.a, self.at), _piece_at(self.b, self.at)

    def __str__(self) -> str:
        lines = ["they differ on:"]
        lines += [f"  {message!r}" for message in self.probe.messages] or ["  no messages at all"]
        lines += [f"  {name}={value!r}" for name, value in passed_arguments(self.probe).items()]
        for name, side, piece in zip(self.names, (self.a, self.b), self.pieces, strict=True):
            lines.append(f"{name}: {_excerpt(side, self.at)}")
            if piece is not None:
                lines.append(f"   from {piece.origin}: {short_repr(piece.text)}")
        return "\n".join(lines)


def find_counterexample(a: Renderer, b: Renderer, probe: Probe) -> Counterexample | None:
    """Return the smallest conversation near `probe` on which the two differ; None if they agree on `probe`."""
    kind = compare_outcomes(a, b, probe)
    if not kind:
        return None
    smallest = shrink(a, b, probe, kind)
    return Counterexample(smallest, try_render(a, smallest), try_render(b, smallest))


def try_render(renderer: Renderer, probe: Probe) -> RenderOutcome:
    """Render a probe; an error is returned, not raised."""
    try:
        return renderer.render(probe.messages, **probe.arguments())
    except TurnwiseError as error:
        raise_if_call_ended(error)
        return error


def compare_outcomes(a: Renderer, b: Renderer, probe: Probe) -> str:
    """Return how the two differ on a probe: "text", "refusal" (of one of them), or "" if they agree."""
    first, second = try_render(a, probe), try_render(b, probe)
    if isinstance(first, Rendering) and isinstance(second, Rendering):
        return "text" if first.text != second.text else ""
    both_refuse = not isinstance(first, Rendering) and not isinstance(second, Rendering)
    return "" if both_refuse else "refusal"


def shrink(
    a: Renderer,
    b: Renderer,
    probe: Probe,
    kind: str,
    compare: Callable[[Renderer, Renderer, Probe], str] = compare_outcomes,
) -> Probe:
    """Return a smaller probe on which the two still differ in the same way."""
    steps = 0
    candidates = smaller_probes(probe)
    while steps < MAX_SHRINK_STEPS and (candidate := next(candidates, None)) is not None:
        steps += 1
        if compare(a, b, candidate) == kind:
            probe = candidate
            candidates = smaller_probes(probe)
    return probe


def smaller_probes(probe: Probe) -> Iterator[Probe]:
    """Every probe that is one step smaller; at least one message stays."""
    if len(probe.messages) > 1:
        for index in range(len(probe.messages)):
            yield replace(probe, messages=_without(probe.messages, index))
    if probe.add_generation_prompt:
        yield replace(probe, add_generation_prompt=False)
    for name in ("tools", "documents"):
        values = getattr(probe, name)
        if values is not None:
            for fewer in (None, *_smaller_values(values)):
                yield replace(probe, **{name: fewer})
    for name in probe.options:
        yield replace(probe, options=_without_key(probe.options, name))
    for index, message in enumerate(probe.messages):
        for smaller in _smaller_values(message):
            if smaller.get("role") == message.get("role"):
                yield replace(probe, messages=_with_item(probe.messages, index, smaller))


def _smaller_values(value: Any) -> Iterator[Any]:
    """Shorter texts; lists and mappings with one entry less, then with a smaller entry."""
    if isinstance(value, str) and len(value) > 1:
        half = len(value) // 2
        yield from (value[:half], value[half:], value[1:], value[:-1])
    elif isinstance(value, list):
        for index in range(len(value)):
            yield _without(value, index)
        for index, item in enumerate(value):
            for smaller in _smaller_values(item):
                yield _with_item(value, index, smaller)
    elif isinstance(value, dict):
        for key in value:
            yield _without_key(value, key)
        for key, item in value.items():
            for smaller in _smaller_values(item):
                yield {**value, key: smaller}


def _without(values: list[Any], index: int) -> list[Any]:
    return [*values[:index], *values[index + 1 :]]


def _with_item(values: list[Any], index: int, item: Any) -> list[Any]:
    return [*values[:index], item, *values[index + 1 :]]


def _without_key(values: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def rendered_text(side: RenderOutcome) -> str:
    """Return the text of an outcome, "" for a refusal."""
    return side.text if isinstance(side, Rendering) else ""


def _piece_at(side: RenderOutcome, at: int) -> Piece | None:
    if not isinstance(side, Rendering):
        return None
    start = 0
    for piece in side.pieces:
        if start <= at < start + len(piece.text):
            return piece
        start += len(piece.text)
    return None


def passed_arguments(probe: Probe) -> dict[str, Any]:
    """Return the arguments of `render` that are not defaults."""
    arguments = {"tools": probe.tools, "documents": probe.documents, **probe.options}
    if probe.add_generation_prompt:
        arguments["add_generation_prompt"] = True
    if probe.now != NOW:
        arguments["now"] = probe.now
    return {name: value for name, value in arguments.items() if value is not None}


def _excerpt(side: RenderOutcome, at: int) -> str:
    """Return the text around a character, which is marked, or the refusal."""
    if isinstance(side, TurnwiseError):
        return f"refuses: {side.message}"
    ellipsis = "…" if at > CONTEXT_BEFORE else ""
    before = side.text[max(at - CONTEXT_BEFORE, 0) : at]
    after = side.text[at : at + CONTEXT_AFTER] or "end"
    return f"{ellipsis}{before}⟪{after}⟫"

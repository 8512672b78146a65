"""Find the smallest conversation on which two templates write different things.

Both templates render the same probe. A probe that one refuses and the other renders counts as a difference; two
refusals agree. The text may be the same and what is trained of it not: `{% generation %}` blocks, or labels. A
difference is then *shrunk*: messages, tools, fields and letters are removed one at a time, as long as the two still
differ in the same way, so that what is left shows the reason:

    they differ on:
      {'role': 'user', 'content': ''}
    a: <|im_start|>⟪user\\n⟫
    b: <|im_start|>⟪ user\\n⟫

The pieces of both renderings tell which template node or message field wrote the first different character.
Shrinking is greedy and bounded (`MAX_SHRINK_STEPS`): the result is small, not always the smallest there is. It never
makes a conversation odd (`is_well_formed`) that was not: `tool_calls: [{}]`, or a result without a call. Types
of values are not looked at: templates get what their callers have.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from turnwise.analysis.conversations import NOW, Probe
from turnwise.analysis.decisions import Decision
from turnwise.analysis.rewrites import common_length, pieces_from
from turnwise.engine.provenance.rendering import Piece, Rendering
from turnwise.engine.renderer import Renderer
from turnwise.engine.runtime.limits import raise_if_call_ended
from turnwise.errors import TemplateLimitError, TurnwiseError, short_repr
from turnwise.messages import JsonMapping, JsonObject
from turnwise.shapes.row import drop_nulls

MAX_SHRINK_STEPS = 400
CONTEXT_BEFORE, CONTEXT_AFTER = 30, 40  # characters shown around the first difference

RenderOutcome = Rendering | TurnwiseError
Spans = tuple[tuple[int, int], ...]
TEXT, REFUSAL, MASK, LABELS = "text", "refusal", "mask", "labels"
TRAINED = {MASK: "in {% generation %} blocks", LABELS: "trained"}
"""How two templates differ, and what else is different where the text is not."""


@dataclass(frozen=True)
class Counterexample:
    """A conversation on which two templates differ, and what each makes of it.

    Attributes:
        probe: The conversation, with its arguments.
        a: What one template writes, or its refusal.
        b: The same of the other.
        names: How the two sides are called in the report.
        kind: How they differ: "text", "refusal", "mask" or "labels".
        trained: Where the text is the same: the character ranges in `{% generation %}` blocks, or that are trained.
        decision: The line to look at: where a side refuses, else the condition around what `a` writes there.
    """

    probe: Probe
    a: RenderOutcome
    b: RenderOutcome
    names: tuple[str, str] = ("a", "b")
    kind: str = TEXT
    trained: tuple[Spans, Spans] = ((), ())
    decision: Decision | None = None

    @property
    def at(self) -> int:
        """The index of the first character that differs, or that only one side trains."""
        if self.kind in TRAINED:
            return min(set(self.trained[0]) ^ set(self.trained[1]), default=(0, 0))[0]
        return common_length(rendered_text(self.a), rendered_text(self.b))

    @property
    def pieces(self) -> tuple[Piece | None, Piece | None]:
        """The piece of each side in which the difference lies."""
        return piece_at(self.a, self.at), piece_at(self.b, self.at)

    def __str__(self) -> str:
        lines = list(describe_probe(self.probe))
        if self.kind in TRAINED:
            return "\n".join([*lines, *self._describe_training()])
        for name, side, piece in zip(self.names, (self.a, self.b), self.pieces, strict=True):
            shown = "" if isinstance(side, Rendering) else f"refuses: {side.message}"
            lines.append(f"{name}: {shown or excerpt(rendered_text(side), self.at)}")
            if piece is not None:
                lines.append(f"   from {_describe_origin(piece)}: {short_repr(piece.text)}")
        if self.decision is not None:
            lines.append(f"  {self.decision}")
        return "\n".join(lines)

    def _describe_training(self) -> Iterator[str]:
        """Yield what each side trains, where the text is the same."""
        text = rendered_text(self.a)
        yield f"the text is the same, but not what is {TRAINED[self.kind]}:"
        for name, spans in zip(self.names, self.trained, strict=True):
            shown = ", ".join(short_repr(text[start:end]) for start, end in spans)
            yield f"{name}: {shown or 'nothing'}"


def find_counterexample(
    a: Renderer, b: Renderer, probe: Probe, masks: bool = False
) -> Counterexample | None:
    """Return the smallest conversation near `probe` on which the two differ; None if they agree on `probe`.

    With `masks`, the text in `{% generation %}` blocks counts too.
    """
    first, second = try_render(a, probe), try_render(b, probe)
    kind = classify_outcomes(first, second, masks)
    if not kind:
        return None
    smallest = shrink(
        probe,
        lambda one: classify_outcomes(try_render(a, one), try_render(b, one), masks) == kind,
    )
    try:
        first, second = try_render(a, smallest), try_render(b, smallest)
    except TemplateLimitError:  # the call may not spend more: show what was found at first
        smallest = probe
    trained = (mask_of(first), mask_of(second)) if kind == MASK else ((), ())
    return Counterexample(smallest, first, second, kind=kind, trained=trained)


def try_render(renderer: Renderer, probe: Probe) -> RenderOutcome:
    """Render a probe; an error is returned, not raised."""
    try:
        return renderer.render(probe.messages, **probe.arguments())
    except TurnwiseError as error:
        raise_if_call_ended(error)
        return error


def classify_outcomes(first: RenderOutcome, second: RenderOutcome, masks: bool) -> str:
    """Return how two outcomes differ: "text", "refusal", "mask" (if asked for), or "" if they agree."""
    if isinstance(first, Rendering) != isinstance(second, Rendering):
        return REFUSAL
    if rendered_text(first) != rendered_text(second):
        return TEXT
    return MASK if masks and mask_of(first) != mask_of(second) else ""


def mask_of(side: RenderOutcome) -> Spans:
    """Return the character ranges in `{% generation %}` blocks."""
    return tuple(side.piece_table.generation_spans()) if isinstance(side, Rendering) else ()


def shrink(probe: Probe, shows: Callable[[Probe], bool], most: int = MAX_SHRINK_STEPS) -> Probe:
    """Return a smaller probe that still shows what the given one does, after at most so many tries.

    If the call may not spend more, the smallest so far is returned: a difference that was found is not lost.
    """
    steps = 0
    must_be_well_formed = is_well_formed(probe)
    candidates = smaller_probes(probe)
    while steps < most and (candidate := next(candidates, None)) is not None:
        if must_be_well_formed and not is_well_formed(candidate):
            continue
        steps += 1
        try:
            if shows(candidate):
                probe, candidates = candidate, smaller_probes(candidate)
        except TemplateLimitError:
            return probe
    return probe


def smaller_probes(probe: Probe) -> Iterator[Probe]:
    """Every probe that is one step smaller; at least one message stays."""
    messages = probe.messages
    for count in (1, 2):  # a call goes with its result: one without the other is odd
        for index in range(len(messages) - count + 1 if len(messages) > count else 0):
            yield replace(probe, messages=[*messages[:index], *messages[index + count :]])
    if probe.add_generation_prompt:
        yield replace(probe, add_generation_prompt=False)
    for name in ("tools", "documents"):
        values = getattr(probe, name)
        if values is not None:
            for fewer in (None, *_smaller_values(values)):
                yield replace(probe, **{name: fewer})
    for name in probe.options:
        yield replace(probe, options=_without_key(probe.options, name))
    for index, message in enumerate(messages):
        for smaller in _smaller_values(message):
            if smaller.get("role") == message.get("role"):
                yield replace(probe, messages=_replace_item(messages, index, smaller))


def _smaller_values(value: Any) -> Iterator[Any]:
    """Shorter texts; lists and mappings with one entry less, then with a smaller entry."""
    if isinstance(value, str) and len(value) > 1:
        half = len(value) // 2
        yield from (value[:half], value[half:], value[1:], value[:-1])
    elif isinstance(value, list):
        for index in range(len(value)):
            yield _replace_item(value, index)
        for index, item in enumerate(value):
            for smaller in _smaller_values(item):
                yield _replace_item(value, index, smaller)
    elif isinstance(value, dict):
        for key in value:
            yield _without_key(value, key)
        for key, item in value.items():
            if key == "type" and isinstance(item, str):
                continue  # a word with a meaning, of which a part means nothing
            is_json = key == "arguments" and isinstance(item, str)
            for smaller in _smaller_json(item) if is_json else _smaller_values(item):
                yield {**value, key: smaller}


def _smaller_json(text: str) -> Iterator[str]:
    """Texts of smaller values; shorter texts of what is no JSON."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        yield from _smaller_values(text)
    else:
        yield from (json.dumps(smaller, ensure_ascii=False) for smaller in _smaller_values(value))


def _replace_item(values: list[Any], index: int, *items: Any) -> list[Any]:
    return [*values[:index], *items, *values[index + 1 :]]


def _without_key(values: JsonObject, key: str) -> JsonObject:
    return {name: value for name, value in values.items() if name != key}


def rendered_text(side: RenderOutcome) -> str:
    """Return the text of an outcome, "" for a refusal."""
    return side.text if isinstance(side, Rendering) else ""


def _describe_origin(piece: Piece) -> str:
    if piece.expression is None or piece.origin.kind == "template":
        return str(piece.origin)
    line, column = piece.expression
    return f"{piece.origin} at {line}:{column}"


def piece_at(side: RenderOutcome, at: int) -> Piece | None:
    """Return the piece in which a character is; None after the end, and for a refusal."""
    return next(iter(pieces_from(side, at)), None) if isinstance(side, Rendering) else None


def describe_probe(probe: Probe) -> Iterator[str]:
    """Yield the lines that show a conversation on which two differ."""
    yield "they differ on:"
    yield from [f"  {message!r}" for message in probe.messages] or ["  no messages at all"]
    yield from (f"  {name}={value!r}" for name, value in passed_arguments(probe).items())


def passed_arguments(probe: Probe) -> JsonObject:
    """Return the arguments of `render` that are not defaults."""
    arguments = {"tools": probe.tools, "documents": probe.documents, **probe.options}
    if probe.add_generation_prompt:
        arguments["add_generation_prompt"] = True
    if probe.now != NOW:
        arguments["now"] = probe.now
    return drop_nulls(arguments)


def excerpt(text: str, at: int) -> str:
    """Return the text around a character, from which on it is marked."""
    ellipsis = "…" if at > CONTEXT_BEFORE else ""
    before, after = text[max(at - CONTEXT_BEFORE, 0) : at], text[at : at + CONTEXT_AFTER]
    return f"{ellipsis}{before}⟪{after or 'end'}⟫"


def is_well_formed(probe: Probe) -> bool:
    """Return whether every message, part, call, tool and document has what such a thing is made of."""
    if not all(map(_is_message, probe.messages)) or not _answers_calls(probe.messages):
        return False
    if probe.tools is not None and not (probe.tools and all(map(_is_tool, probe.tools))):
        return False
    return probe.documents is None or all(map(bool, probe.documents or [None]))


def _is_message(message: JsonMapping) -> bool:
    calls = message.get("tool_calls", [{"name": "any", "arguments": {}}])
    if not calls or any("arguments" not in _find_function(call) for call in calls):
        return False
    content = message.get("content")
    if isinstance(content, list):
        return bool(content) and all(map(_is_part, content))
    return "role" in message and (content is not None or "tool_calls" in message)


def _is_part(part: Any) -> bool:
    return not isinstance(part, Mapping) or ("type" in part and len(part) > 1)


def _find_function(value: Any) -> JsonMapping:
    """Return what a tool or a call has with its name, in a wrapper or without; empty if it has no name."""
    function = value.get("function", value) if isinstance(value, Mapping) else None
    return function if isinstance(function, Mapping) and function.get("name") else {}


def _is_tool(tool: Any) -> bool:
    function = _find_function(tool)
    return bool(function) and (function is tool or "type" in tool)


def _answers_calls(messages: Iterable[JsonMapping]) -> bool:
    """Return whether every result follows a message with calls, or another result."""
    may_answer = False
    for message in messages:
        is_result = message.get("role") == "tool"
        if is_result and not may_answer:
            return False
        may_answer = is_result or bool(message.get("tool_calls"))
    return True

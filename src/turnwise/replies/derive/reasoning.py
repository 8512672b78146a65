"""Where a template writes reasoning, and the markers around it.

A template may take reasoning from one of several fields of the message, or from a part of its content; beside content
or only beside a call; always or with an option. `find_reasoning_turn` tries these in turn.

Some templates never write reasoning, since they remove it from history. Then the strings that they search for show
its end (`content.split('</think>')`), and the generation prompt may show its beginning. Such markers are "searched".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnwise.analysis.prober import (
    ARGUMENTS,
    CONTENT,
    NAMES,
    REASONING,
    REASONING_FIELDS,
    REASONING_VALUES,
    CallShape,
    Prober,
    mentions,
)
from turnwise.analysis.segment import WHOLE_TAG, Segment, last_tag_start, leading_space
from turnwise.messages import JsonMapping, JsonObject
from turnwise.replies.derive.calls import WrittenCalls
from turnwise.replies.derive.markers import to_marker
from turnwise.replies.grammar_parts import Marker, Region

SEARCHED = "searched"
MAX_OPENER_LENGTH = 200  # characters before reasoning in which its opener is looked for
_WORD = re.compile(r"[^\W\d_]{4,}")  # in texts of templates


@dataclass(frozen=True)
class ReasoningTurn:
    """A turn with reasoning in it."""

    segment: Segment
    before_content: bool  # else only a call follows
    call_start: int = 0
    message: JsonMapping = field(default_factory=dict)  # the probe, and its options
    options: JsonMapping = field(default_factory=dict)

    def markers(self, header: Segment) -> tuple[Segment, Segment]:
        """Return what precedes and follows reasoning.

        If everything before reasoning is header, the opener is the part of it that the closer mirrors, or its last
        tag or text.
        """
        start = self.segment.text.find(REASONING)
        prefix = self.segment.slice(0, start)
        next_field = self.segment.text.find(CONTENT) if self.before_content else self.call_start
        closer = self.segment.slice(start + len(REASONING), next_field)
        opener = prefix.slice(len(header))
        if len(header) < start and opener.core:
            return opener, closer
        opener_start = find_opener(prefix.text, closer.text)
        if opener_start is None:
            opener_start = last_tag_start(prefix)
        return prefix.slice(opener_start), closer


def find_opener(prefix: str, closer: str) -> int | None:
    """Return where the opener begins that the closer mirrors: `<think>`, `</think>`; `**think**`, `**/think**`."""
    core, end = closer.strip(), len(prefix.rstrip())
    for start in range(end - 1, max(end - MAX_OPENER_LENGTH, 0) - 1, -1):
        text = prefix[start:end]
        signs = next((i for i, char in enumerate(text) if char.isalnum()), len(text))
        if 0 < signs < len(text) and core.startswith(f"{text[:signs]}/{text[signs:]}"):
            return start
    return None


def find_reasoning_turn(prober: Prober, one_call: WrittenCalls | None) -> ReasoningTurn | None:
    """Return the turn of the first way of giving reasoning that is rendered."""
    for options in ({}, *prober.reasoning_options(REASONING_VALUES)):
        for message, turn in render_reasoning(prober, reasoning_messages(prober), **options):
            if _follows(turn, REASONING, CONTENT):
                return ReasoningTurn(turn, True, 0, message, options)
        if one_call is not None:
            found = _find_reasoning_before_call(prober, one_call, options)
            if found is not None:
                return found
    return None


def reasoning_messages(prober: Prober) -> Iterator[JsonObject]:
    """Messages with reasoning and content, in the forms that the template may accept."""
    for key in reasoning_keys(prober):
        yield {"content": prober.as_content(CONTENT), key: REASONING}
    if mentions(prober.renderer, "thinking"):
        thinking = {"type": "thinking", "thinking": REASONING}
        yield {"content": [thinking, {"type": "text", "text": CONTENT}]}


def reasoning_calls(prober: Prober, shape: CallShape) -> Iterator[JsonObject]:
    """Messages with reasoning and a call."""
    for key in reasoning_keys(prober):
        yield prober.call(shape, ARGUMENTS[0], **{key: REASONING})


def reasoning_keys(prober: Prober) -> Iterator[str]:
    """The fields in which the template may look for reasoning. Rendering gives the first three for each other."""
    aliases, others = REASONING_FIELDS[:3], REASONING_FIELDS[3:]
    if any(mentions(prober.renderer, key) for key in aliases):
        yield aliases[0]
    yield from (key for key in others if mentions(prober.renderer, key))


def render_reasoning(
    prober: Prober, messages: Iterable[JsonObject], **options: Any
) -> Iterator[tuple[JsonObject, Segment]]:
    """Yield the messages that are rendered, and their turns; not where parts of content are rendered as a list."""
    for message in messages:
        turn = prober.turn(message, **options)
        if turn is not None and "'thinking'" not in turn.text and '"thinking"' not in turn.text:
            yield message, turn


def _find_reasoning_before_call(
    prober: Prober, one_call: WrittenCalls, options: JsonObject
) -> ReasoningTurn | None:
    calls = reasoning_calls(prober, one_call.shape)
    for message, turn in render_reasoning(prober, calls, **options):
        if not _follows(turn, REASONING, NAMES[0]):
            continue
        # The same distance between the start of the call and the name as in a turn without reasoning.
        prefix_length = len(one_call.before)
        call_start = turn.text.find(NAMES[0]) - one_call.turn.text.find(NAMES[0]) + prefix_length
        reasoning_end = turn.text.find(REASONING) + len(REASONING)
        gap = Segment(turn.text[reasoning_end:call_start])
        before = one_call.before.text
        # The longest end of the gap that is also the end of what comes before a call.
        starts = range(len(before) + 1)
        start = next(start for start in starts if gap.text.endswith(before[start:]))
        opener_size = len(before) - start
        if gap.tags:
            # The end of reasoning is a tag of its own.
            opener_size = min(opener_size, len(gap) - gap.tags[0][1])
        return ReasoningTurn(turn, False, call_start - opener_size, message, options)
    return None


def explain_missing(prober: Prober, one_call: WrittenCalls | None) -> str:
    """Return why no reasoning was found before content or a call."""
    reason = "no rendering shows it"
    for _, turn in render_reasoning(prober, reasoning_messages(prober)):
        if _follows(turn, CONTENT, REASONING):
            reason = "the template writes it after the content, where it is not parsed"
    calls = reasoning_calls(prober, one_call.shape) if one_call else ()
    for _, turn in render_reasoning(prober, calls):
        if _follows(turn, NAMES[0], REASONING):
            reason = "the template writes it after the calls, where it is not parsed"
    return reason


def _follows(turn: Segment, first: str, second: str) -> bool:
    return 0 <= turn.text.find(first) < turn.text.find(second)


# Reasoning that the template only searches for


def find_searched_region(
    searched: Sequence[str],
    prompts: Sequence[Segment],
    before_content: Segment,
    prompt_tail: Segment,
) -> Region | None:
    """Return the markers of reasoning that a template searches for, or opens without ever showing its end.

    Args:
        searched: the strings that the template searches for.
        prompts: the generation prompts, with one option or another.
        before_content: the text before content in a message without reasoning.
        prompt_tail: the text that only prompts end with. If there is one, and the template searches for a tag, the
            tag ends what the tail opens.
    """
    written = [prompts[0].text, before_content.text, *(prompt.text for prompt in prompts[1:])]
    for closer in _closing_tags(searched, written):
        opener = closer.replace("/", "", 1)
        example = next((text for text in written if opener in text or closer in text), "")
        if example or closer in searched:
            return _tag_region(opener, closer, example)
    if prompt_tail.core:
        for text in searched:
            if WHOLE_TAG.fullmatch(text):
                return Region(to_marker(prompt_tail), Marker(text, SEARCHED))
    return None


def _closing_tags(searched: Sequence[str], written: Sequence[str]) -> Iterator[str]:
    for text in searched:
        tag = text.strip()
        if WHOLE_TAG.fullmatch(tag) and tag[1:2] == "/" and "think" in tag.lower():
            yield tag
    for text in written:
        for tag in WHOLE_TAG.findall(text):
            if tag[1:2] != "/" and "think" in tag.lower() and "_" not in tag:
                yield f"{tag[0]}/{tag[1:]}"


def _tag_region(opener: str, closer: str, example: str) -> Region:
    """Return the tags with the white space that a text shows after them."""
    after_opener, after_closer = _space_after(example, opener), _space_after(example, closer)
    on_lines = "\n" in after_opener
    if not after_closer and on_lines:
        after_closer = "\n\n"
    separated = on_lines or (after_opener and closer not in example)
    return Region(
        Marker(opener + ("\n" if on_lines else ""), SEARCHED),
        Marker(("\n" if separated else "") + closer + after_closer, SEARCHED),
    )


def _space_after(text: str, word: str) -> str:
    rest = text.partition(word)[2]
    return rest[: leading_space(rest)]


def matching_tag(searched: Sequence[str], openers: Iterable[Segment]) -> Region | None:
    """Return reasoning that some prompt opens, if the template searches for a tag with a word of the opener in it."""
    for opener in openers:
        words = set(_WORD.findall(opener.text)) if opener.tags else set()
        for text in searched:
            is_new_tag = WHOLE_TAG.fullmatch(text) and text not in opener.text
            if is_new_tag and words & set(_WORD.findall(text)):
                return Region(to_marker(opener), Marker(text, SEARCHED))
    return None

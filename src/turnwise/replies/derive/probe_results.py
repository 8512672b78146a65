"""ProbeResults: the turns that a template writes for the probes, and the header that all of them begin with.

The probes are few: a message with content only, one with a tool call only, one with reasoning, and generation prompts
with and without the options that turn reasoning on. The *header* is the prefix that all of them share:

    <|im_start|>assistant\\n         Zcontentq<|im_end|>
    <|im_start|>assistant\\n         <think>\\nZreasonq\\n</think>\\n\\nZcontentq<|im_end|>
    <|im_start|>assistant\\n         <tool_call>...

White space before the header may differ from one turn to the next; if the turns share nothing else, it is left out.
Calls may be messages of another kind, with a header of their own: then theirs does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from turnwise.analysis.prober import (
    ARGUMENTS,
    CONTENT,
    NAMES,
    NEXT_USER,
    REASONING,
    Prober,
)
from turnwise.analysis.segment import (
    EMPTY,
    Segment,
    after,
    before,
    common_prefix,
    common_suffix,
    leading_space,
)
from turnwise.replies.derive.calls import WrittenCalls, find_one_call, has_call
from turnwise.replies.derive.reasoning import ReasoningTurn, find_opener, find_reasoning_turn


@dataclass(frozen=True)
class ProbeResults:
    """What one template wrote for the probes."""

    prober: Prober  # with the settings under which a call is rendered
    content_turn: Segment | None  # a message with content only
    prompts: tuple[Segment, ...]  # generation prompts; the first is the one without options
    one_call: WrittenCalls | None
    reasoning_turn: ReasoningTurn | None
    header: Segment = EMPTY

    @property
    def generation_prompt(self) -> Segment:
        """What `add_generation_prompt` adds."""
        return self.prompts[0]

    def text_before_content(self, header: Segment) -> Segment:
        """Return the text between a header and the content of a message without reasoning."""
        if self.content_turn is None:
            return EMPTY
        return before(self.content_turn, CONTENT).slice(len(header))

    @property
    def after_content(self) -> Segment:
        """The text after the content of a message."""
        return after(self.content_turn, CONTENT) if self.content_turn is not None else EMPTY

    @property
    def before_call(self) -> Segment:
        """The text between the header and a tool call."""
        if self.one_call is None:
            return EMPTY
        return self.without_header(self.one_call.before)

    @property
    def prompt_tail(self) -> Segment:
        """The text that the generation prompt has after the header."""
        prompt = self.generation_prompt
        if not prompt.text.startswith(self.header.text):
            return EMPTY
        return prompt.slice(len(self.header))

    def without_header(self, segment: Segment) -> Segment:
        """Return a segment without the header at its start."""
        if not segment.text.startswith(self.header.text):
            return segment
        return segment.slice(len(self.header))

    def lacks_opener(self, turn: ReasoningTurn) -> bool:
        """Whether reasoning directly follows the header, as content does: no marker opens it."""
        if self.content_turn is None:
            return False
        before_reasoning = before(turn.segment, REASONING)
        cores = {before_reasoning.core, self.header.core, before(self.content_turn, CONTENT).core}
        if len(cores) > 1:
            return False
        _, closer = turn.markers(self.header)
        return find_opener(before_reasoning.text, closer.text) is None

    def resumed_prompts(self) -> Iterator[Segment]:
        """What an option adds to a prompt that ends with a tool result."""
        if self.one_call is None:
            return
        shape = self.one_call.shape
        usual = self.prober.after_result(shape)
        for options in self.prober.reasoning_options():
            other = self.prober.after_result(shape, **options)
            if other.text.startswith(usual.text):
                yield other.slice(len(usual))

    def content_and_call(self) -> Segment | None:
        """Return the turn of a message with content and a call; None if only one of them is rendered."""
        if self.one_call is None:
            return None
        message = self.prober.call(self.one_call.shape, ARGUMENTS[0], content=CONTENT)
        turn = self.prober.turn(message)
        if turn is None or CONTENT not in turn.text or not has_call(turn.text):
            return None
        return turn


def collect_results(prober: Prober) -> ProbeResults:
    """Ask all questions; `prober` has settings that the template accepts."""
    results = _ask(prober)
    if not results.header.core:
        # The white space before a turn may not be the same everywhere.
        trimmed = _ask(results.prober.with_settings(trimmed=True))
        results = trimmed if trimmed.header.core else _ask(results.prober)
    turn = results.reasoning_turn
    if turn is None or results.lacks_opener(turn):
        return results
    # The opener of reasoning may be part of all turns (`<think>` in prompts, `<think></think>` in messages).
    opener, _ = turn.markers(results.header)
    size = len(before(turn.segment, REASONING)) - len(opener)
    return replace(results, header=results.header.slice(0, min(len(results.header), size)))


def _ask(prober: Prober) -> ProbeResults:
    turn = prober.turn({"content": prober.as_content(CONTENT)})
    content_turn = turn if turn is not None and CONTENT in turn.text else None
    prompts = [prober.generation_prompt() or EMPTY]
    for options in prober.reasoning_options():
        prompt = prober.generation_prompt(**options)
        prompts += [prompt] if prompt else []
    prober, one_call = find_one_call(prober)
    reasoning_turn = find_reasoning_turn(prober, one_call)
    results = ProbeResults(prober, content_turn, tuple(prompts), one_call, reasoning_turn)
    return replace(results, header=_find_header(results))


def _find_header(results: ProbeResults) -> Segment:
    turns = [*results.prompts]
    prober = results.prober
    if results.content_turn is not None:
        turns.append(before(results.content_turn, CONTENT))
        content = {"content": prober.as_content(CONTENT)}
        earlier = prober.turn(content, prober.user(NEXT_USER))
        turns += [before(earlier, CONTENT)] if earlier is not None else []
    if results.reasoning_turn is not None:
        turns.append(before(results.reasoning_turn.segment, REASONING))
    header = turns[0]
    for turn in turns[1:]:
        header = turn.slice(0, common_prefix(header, turn))
    if results.one_call is None:
        return header
    call_start = results.one_call.before
    shared = call_start.slice(0, common_prefix(header, call_start))
    tail = results.after_content
    content_closer = tail.slice(0, len(tail) - common_suffix(tail, results.one_call.after))
    # If the two share nothing, calls are messages of their own.
    return shared if shared.core or content_closer.core else header


# ---- content ----
#
# Where content begins and ends in a turn.
#
#     <think>R</think>  <answer>  CONTENT  </answer>  <|im_end|>\n
#     reasoning close   open               close      end of the turn
#
# Between reasoning and content are the end of the one and the beginning of the other, and only a turn that has one
# without the other tells them apart (`split_reasoning_close`). After content are its closing marker and the end of the
# turn; a turn with a call tells those apart, since it ends as well and has no content (`find_content_layout`).


class ContentLayout(NamedTuple):
    """The text around content."""

    open: Segment = EMPTY
    close: Segment = EMPTY
    turn_end: Segment = EMPTY


def split_reasoning_close(
    opener: Segment, closer: Segment, before_content: Segment, before_call: Segment
) -> tuple[Segment, Segment]:
    """Split the text between reasoning and content into the end of the one and the beginning of the other.

    Args:
        opener: the marker that opens reasoning.
        closer: the text between reasoning and content.
        before_content: the text before content without reasoning: the beginning of content alone, or after the markers
            of empty reasoning, or after the end of reasoning alone.
        before_call: the text before a call: it has the end of empty reasoning too, but not the beginning of content.
    """
    cut = len(closer) - len(before_content)
    ends_with_opener = before_content.text and closer.text.endswith(before_content.text)
    if ends_with_opener and closer.slice(0, cut).core:
        return closer.slice(0, cut), closer.slice(cut)
    if not opener.core or not before_content.core.startswith(opener.core):
        return closer, EMPTY
    empty_reasoning = EMPTY
    if before_call.text.startswith(opener.text):
        empty_reasoning = before_call.slice(len(opener))
    cut = common_prefix(closer, empty_reasoning)
    if closer.slice(0, cut).core and closer.slice(cut).core:
        return closer.slice(0, cut), closer.slice(cut)
    count = max(len(opener.tags), 1)  # a marker is closed by as many tags as it was opened with
    if len(closer.tags) > count:
        cut = closer.tags[count][0]
        return closer.slice(0, cut), closer.slice(cut)
    return closer, EMPTY


def find_content_layout(
    results: ProbeResults, opener: Segment, stops: tuple[str, ...]
) -> ContentLayout:
    """Find the closing marker of content and the end of the turn; `stops` are those of replies without calls."""
    if results.content_turn is None:
        return ContentLayout(opener)
    tail = results.after_content
    end = _find_turn_end(results, tail, stops)
    space = tail.text[end : end + leading_space(tail.text[end:])]
    if space and _closes_content(results, space):
        end += len(space)
    return ContentLayout(opener, tail.slice(0, end), tail.slice(end))


def _find_turn_end(results: ProbeResults, tail: Segment, stops: tuple[str, ...]) -> int:
    if results.one_call is None:
        return min((tail.text.find(stop) for stop in stops if stop in tail.text), default=0)
    shared = common_suffix(tail, results.one_call.after)
    if shared:
        return len(tail) - shared
    # What is written before a call too, and does not end a message, belongs to content.
    turn = results.content_and_call()
    rest = after(turn, CONTENT) if turn is not None else EMPTY
    size = common_prefix(tail, rest)
    header = results.header.core
    begins_message = bool(header) and rest.text[size:].lstrip().startswith(header)
    closes = has_call(rest.text) and bool(tail.slice(0, size).core) and not begins_message
    return size if closes else 0


def _closes_content(results: ProbeResults, space: str) -> bool:
    """Whether white space before the end of a turn belongs to content: then it is written before a call too."""
    if results.one_call is None:
        return True
    if not results.after_content.core:
        return False
    turn = results.content_and_call()
    if turn is None:
        return True
    rest = after(turn, CONTENT).text
    if NAMES[0] not in rest:  # the call precedes content
        return True
    if not rest.startswith(space) or rest[len(space) : len(space) + 1].isspace():
        return False
    return not rest.startswith(results.before_call.text or space)

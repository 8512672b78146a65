"""A marker is never deleted without a trace.

    closer of reasoning, not opened   whole: what is before it is reasoning; streamed: it stays in the content
    opener without its label          opens reasoning
    any other marker                  has its meaning, is in a field of the message, or in `attempts`

The law inserts every marker of a grammar at every place of a plain reply.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from loaded import load_entry
from reply_messages import UNREADABLE
from reply_vectors import template
from timing import assert_linear
from turnwise import TurnwiseError
from turnwise.replies.events import STATUSES, Message
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.markers import is_tag_like, split_tags

PLAIN = "Plan it. Then answer"
PLACES = (0, 4, 9, 13, len(PLAIN))
ORPHANS = "deepseek-r1-0528 glm-4.5 hunyuan-a13b nemotron-3 qwen3 qwq smollm3 gemma-4 command-a exaone-4 granite-3.1"


def stream(chosen: Any, reply: str, prompt: Any = None, **more: Any) -> Message:
    parser = chosen.parser(prompt, **more)
    for letter in reply:
        parser.feed(letter)
    message: Message = parser.close()
    return message


def traces(message: Message) -> list[tuple[str, str]]:
    return [(one.status, one.raw) for one in message.attempts]


# -- closers of reasoning


@pytest.mark.parametrize("name", ORPHANS.split())
def test_text_before_an_unopened_closer_is_reasoning(name: str) -> None:
    chosen = load_entry(name)
    closer = chosen.grammar.reasoning.close.core
    reply = f"Plan it.{closer}Answer."
    whole, streamed = chosen.parse(reply, ""), stream(chosen, reply, "")
    assert (whole["reasoning_content"], whole["content"]) == ("Plan it.", "Answer.")
    assert traces(whole) == traces(streamed) == [("unopened", closer)]
    assert streamed["content"] == reply and "reasoning_content" not in streamed
    assert whole.attempts[0].start == len("Plan it.")


@pytest.mark.parametrize("name", ORPHANS.split())
def test_a_prompt_may_be_assumed_to_open_reasoning(name: str) -> None:
    chosen = load_entry(name)
    region = chosen.grammar.reasoning
    reply = f"Plan it.{region.close.text}Answer."
    for prompt in (None, ""):
        whole = chosen.parse(reply, prompt, reasoning="assume")
        assert (whole["reasoning_content"], whole["content"]) == ("Plan it.", "Answer.")
        assert whole.attempts == ()
        assert stream(chosen, reply, prompt, reasoning="assume") == whole
    assert chosen.parser("", reasoning="assume").in_reasoning


def test_the_white_space_is_that_of_the_section() -> None:
    qwen = load_entry("qwen3")
    whole = qwen.parse("\nPlan it.\n</think>\n\nAnswer.")
    assert whole == qwen.parse("<think>\nPlan it.\n</think>\n\nAnswer.")


def test_a_closer_with_nothing_before_it_is_the_same_in_streams() -> None:
    qwen = load_entry("qwen3")
    reply = "\n</think>\n\nAnswer."
    assert qwen.parse(reply) == stream(qwen, reply) == {"role": "assistant", "content": "Answer."}
    assert traces(stream(qwen, reply)) == [("unopened", "</think>")]


def test_a_bracket_before_an_unopened_closer_is_text() -> None:
    lfm, reply = load_entry("lfm2"), "See [1]<|tool_call_end|> and [2]."
    assert lfm.grammar.calls.section.close.core.startswith("]")
    for message in (lfm.parse(reply), stream(lfm, reply)):
        assert message["content"] == "See [1] and [2]."
        assert traces(message) == [("unopened", "<|tool_call_end|>")]


def test_the_first_of_several_closers_ends_the_reasoning() -> None:
    qwen, reply = load_entry("qwen3"), "One.</think>Two.</think>Three."
    whole, streamed = qwen.parse(reply), stream(qwen, reply)
    assert (whole["reasoning_content"], whole["content"]) == ("One.", "Two.Three.")
    assert streamed["content"] == "One.</think>Two.Three."
    assert [one.start for one in whole.attempts] == [4, 16]
    assert streamed.attempts == whole.attempts


CALL = '<tool_call>\n{"name": "tide", "arguments": {}}\n</tool_call>'


@pytest.mark.parametrize(
    "reply, prompt, content",
    [
        (f"One.{CALL}\nTwo.</think>Three.", "", "One.\nTwo.</think>Three."),
        ("<think>\nHm.\n</think>\n\nTwo.</think>Three.", "", "Two.Three."),
        (
            "Two.</think>Three.",
            "<|im_start|>assistant\n<think>\n\n</think>\n\n",
            "Two.</think>Three.",
        ),
    ],
)
def test_a_closer_after_calls_or_reasoning_opens_nothing(
    reply: str, prompt: str, content: str
) -> None:
    qwen = load_entry("qwen3")
    whole, streamed = qwen.parse(reply, prompt), stream(qwen, reply, prompt)
    assert whole["content"] == content and whole == streamed
    assert ("unopened", "</think>") in traces(whole) and traces(whole) == traces(streamed)


def test_a_call_that_is_only_mentioned_does_not_end_the_reasoning() -> None:
    whole = load_entry("qwen3").parse(f"I use <tool_call> here.</think>Aye.{CALL}")
    assert whole["reasoning_content"] == "I use <tool_call> here." and whole["content"] == "Aye."
    assert len(whole["tool_calls"]) == 1


def test_a_prompt_that_closed_the_reasoning_counts_more_than_assuming() -> None:
    qwen = load_entry("qwen3")
    closed = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert qwen.parse("Answer.", closed, reasoning="assume")["content"] == "Answer."


@pytest.mark.parametrize("value", ["asume", "", None, True, 3, ["assume"]])
def test_another_value_is_refused(value: Any) -> None:
    with pytest.raises(TurnwiseError) as raised:
        load_entry("qwen3").parser(reasoning=value)
    assert "assume" in str(raised.value)


def test_reasoning_that_no_grammar_has_cannot_be_assumed() -> None:
    with pytest.raises(TurnwiseError, match="has none"):
        load_entry("chatml").parse("Hi", reasoning="assume")


# -- openers


@pytest.mark.parametrize("name", ["gemma-4", "llamafactory:gemma4"])
def test_an_opener_without_its_label_opens_reasoning(name: str) -> None:
    chosen = load_entry(name)
    reply = "<|channel>Plan it.<channel|>Answer."
    whole = chosen.parse(reply, "")
    assert (whole["reasoning_content"], whole["content"]) == ("Plan it.", "Answer.")
    assert traces(whole) == [("unlabelled", "<|channel>")]
    assert stream(chosen, reply, "") == whole


@pytest.mark.parametrize("label", ["", "musing"])
def test_the_end_of_a_message_shows_what_its_header_does_not(label: str) -> None:
    chosen = load_entry("gpt-oss")
    thought = f"<|channel|>{label}<|message|>Plan it.<|end|>"
    reply = thought + "<|start|>assistant<|channel|>final<|message|>Answer.<|return|>"
    whole = chosen.parse(reply)
    assert (whole["reasoning_content"], whole["content"]) == ("Plan it.", "Answer.")
    assert stream(chosen, reply) == whole
    assert traces(whole) == [("unlabelled", f"<|channel|>{label}<|message|>")]
    answer = chosen.parse(f"<|channel|>{label}<|message|>Answer.<|return|>")
    assert answer["content"] == "Answer." and "reasoning_content" not in answer


def test_a_message_of_another_channel_ends_with_the_same_marker() -> None:
    spoken = "<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant"
    whole = load_entry("gpt-oss").parse(spoken + "<|channel|>final<|message|>Answer.<|return|>")
    assert whole["content"] == "One moment.Answer." and whole.attempts == ()


# -- the law


def markers(grammar: Grammar) -> set[str]:
    """The markers around regions, calls and turns."""
    regions = [grammar.content, *filter(None, [grammar.reasoning])]
    for calls in filter(None, (grammar.calls, *grammar.more)):
        regions += [calls.section, calls.each]
    texts = [side.core for region in regions for side in (region.open, region.close)]
    texts += [*grammar.stops, *map(str.strip, grammar.starts)]
    found: set[str] = set()
    for text in texts:
        tags = split_tags(text)
        found.update([text] if all(map(is_tag_like, tags)) else map(str.strip, tags))
    return found - {""}


def has_meaning(chosen: Any, message: Message, marker: str, place: int, prompt: Any) -> bool:
    """Whether the text around a marker shows that it was read as what it is."""
    grammar = chosen.grammar
    before, after = PLAIN[:place].strip(), PLAIN[place:].strip()
    content, thought = message["content"] or "", message.get("reasoning_content") or ""
    if message.stop and (message.stop in marker or marker in message.stop):
        return after not in content + thought or not after
    region = grammar.reasoning
    if region is not None and marker == region.open.core:
        return after in thought and before in content
    if region is not None and marker == region.close.core:
        return before in thought and after in content
    if marker in (grammar.content.open.core, *map(str.strip, grammar.starts)):
        return after in content and (not before or before in thought)
    opener = grammar.content.open.core
    return marker == grammar.content.close.core and opener in chosen.parser(prompt).prefill_text


def check_markers(chosen: Any) -> None:
    grammar = chosen.grammar
    for marker in markers(grammar):
        for place in PLACES:
            reply = PLAIN[:place] + marker + PLAIN[place:]
            for prompt in (None, ""):
                whole = chosen.parse(reply, prompt)
                for message in (whole, stream(chosen, reply, prompt)):
                    fields = [message["content"] or "", message.get("reasoning_content") or ""]
                    fields += [str(message.get("tool_calls", ""))]
                    fields += [one.raw for one in message.attempts]
                    is_kept = any(marker in text for text in fields)
                    context = (marker, reply, prompt, dict(message), message.attempts)
                    assert is_kept or has_meaning(chosen, message, marker, place, prompt), context
                    assert all(one.status in STATUSES for one in message.attempts)


@cache
def entry_names() -> tuple[str, ...]:
    return tuple(name for name in turnwise.entries() if ":" not in name)


NAMES = sorted(name for name in corpus.load_published() if name not in UNREADABLE)


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_marker_of_the_corpus_is_deleted(name: str) -> None:
    check_markers(template(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", entry_names())
def test_no_marker_of_an_entry_is_deleted(name: str) -> None:
    check_markers(load_entry(name))


@pytest.mark.parametrize("name", ["qwen3", "gpt-oss", "granite-3.3", "hunyuan-a13b", "kimi-k2"])
def test_no_marker_is_deleted(name: str) -> None:
    check_markers(load_entry(name))


@needs_corpus
@pytest.mark.parametrize("name", NAMES[::12])
def test_no_marker_of_a_sample_is_deleted(name: str) -> None:
    check_markers(template(name))


@pytest.mark.parametrize("unit", ["</think>", "Plan it.</think>", "<think>", "</tool_call>"])
def test_many_markers_take_linear_time(unit: str) -> None:
    qwen = load_entry("qwen3")
    assert_linear(lambda size: qwen.parse(unit * size), 400)

"""The fast path for replies that are content only gives the message that the parser gives, for every template."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from published_templates import template_of
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.marker_text import collect_texts
from turnwise.replies.parser.parser import parse, parse_plain

ASKED = [{"role": "user", "content": "Q?"}]
PLAIN = (
    *("It rains.", " It\n\nrains. \n", "1 < 2 > 1", '{"name": "f", "arguments": {}}', "f(a=1)"),
    *("to=user x", "[TOOL", "<", "", " \n", "1", "name\n{}"),
)


def replies(grammar: Grammar) -> Iterator[str]:
    """Plain texts, with each text of the grammar before, within and after some of them."""
    for text in PLAIN:
        yield text
        yield from (text + stop for stop in grammar.stops)
    for marker in dict.fromkeys(collect_texts(grammar)):
        for form in (marker, marker.strip(), marker[:-1]):
            yield from (form + "It rains.", f"It {form} rains.", f"It rains.{form}", form)


@needs_corpus
def test_the_fast_path_agrees_with_the_parser() -> None:
    used = 0
    for name in corpus.published():
        template = template_of(name)
        grammar = template.grammar
        try:
            prompts = [None, template.render(ASKED, add_generation_prompt=True).text]
        except turnwise.TurnwiseError:
            prompts = [None]
        for prompt in prompts:
            for reply in replies(grammar):
                plain = parse_plain(grammar, reply, prompt)
                if plain is not None:
                    assert plain == parse(grammar, reply, prompt), (name, prompt, reply)
            used += parse_plain(grammar, "It rains.", prompt) is not None
    assert used > 250


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("qwen3", "Aye.<tool_call>"),
        ("qwen3", "<think>\nHm\n</think>\n\nAye."),
        ("qwen3", "Aye.<|im_end|>\n"),
        ("llama-3.1", '{"name": "f", "parameters": {}}'),
    ],
)
def test_other_replies_are_left_to_the_parser(name: str, reply: str) -> None:
    assert parse_plain(turnwise.load(name).grammar, reply, None) is None


def test_a_prompt_that_opens_reasoning() -> None:
    template = turnwise.load("qwen3")
    prompt = template.render(ASKED, add_generation_prompt=True).text
    assert parse_plain(template.grammar, "Aye.", prompt) == {"role": "assistant", "content": "Aye."}
    assert parse_plain(template.grammar, "Aye.", prompt + "<think>\n") is None

"""Invented templates: what they write is read back with the grammar derived from them.

The law, for every template that `invented.py` draws and messages drawn for it: the reply that stands after the prompt
is read as the message, whole, letter by letter and in random pieces; spans cover it; the events say the same. The tools
are given; where texts have quotes it holds without them. Where a template breaks it, its grammar must say so in
`unreached`: silence is a failure. `SHARE` of all templates hold.

The others, six of the first 2,000, say so: their markers are words or look like no tags, and five of them open the
reasoning in the prompt. Then what closes the reasoning cannot be distinguished from what opens content or calls.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest

import turnwise
from invented_templates import LAYOUTS, LOOKS, TOOLS, Invented, invent, messages
from parsing import parse
from turnwise.replies.derive import derive
from turnwise.replies.events import Message
from turnwise.replies.grammar import Grammar
from turnwise.replies.parser.parser import Parser

# Tools are given to templates of all kinds.
pytestmark = pytest.mark.filterwarnings("ignore:.*no calls are read")

COUNT, MANY = 70, 2000
SHARE = 0.99
MESSAGES = 6
ASK = {"role": "user", "content": "Ask"}


def to_comparable(message: Any, ids: bool) -> tuple[Any, ...]:
    """A message in comparable words: 1, 1.0 and true are three things."""
    calls = []
    for number, call in enumerate(message.get("tool_calls") or ()):
        given = call["function"]["arguments"]
        arguments = json.dumps(
            json.loads(given) if isinstance(given, str) else given, sort_keys=True
        )
        calls.append((call["function"]["name"], arguments, call["id"] if ids else number))
    return message.get("content") or "", message.get("reasoning_content") or "", calls


def facts(message: Message) -> tuple[Any, ...]:
    return dict(message), message.attempts, message.spans, message.stop


def join_events(parser: Parser, chunks: Any) -> tuple[str, str, list[str], Message]:
    """What the events say: content, reasoning and the arguments of each call; and the message."""
    events = [*parser.prefill, *(event for chunk in chunks for event in parser.feed(chunk))]
    message = parser.close()
    texts = Counter[Any]()
    parts: dict[Any, list[str]] = {}
    for event in (*events, *message.events):
        texts[event.kind] += 1
        parts.setdefault((event.kind, event.call), []).append(event.text)
    joined = {key: "".join(value) for key, value in parts.items()}
    arguments = [joined.get(("arguments", number), "") for number in range(texts["start"])]
    return joined.get(("text", None), ""), joined.get(("reasoning", None), ""), arguments, message


def wrong(made: Invented, grammar: Grammar, message: Any, reply: str, prompt: str) -> str:
    """What is wrong with the reading of a reply; empty if nothing is."""
    content, thought, arguments, whole = join_events(Parser(grammar, prompt, TOOLS), [reply])
    if any(attempt.status != "complete" for attempt in whole.attempts):
        return f"status {[attempt.status for attempt in whole.attempts]}"
    if to_comparable(whole, "ids" in made.traits) != to_comparable(message, "ids" in made.traits):
        return f"read as {to_comparable(whole, True)}"
    if "".join(reply[span.start : span.end] for span in whole.spans) != reply:
        return f"spans {whole.spans}"
    if (content, thought) != to_comparable(whole, False)[:2] or arguments != [
        call["function"]["arguments"] for call in whole.get("tool_calls", ())
    ]:
        return f"events {content, thought, arguments}"
    if not made.raw and to_comparable(parse(grammar, reply, prompt), False) != to_comparable(
        message, False
    ):
        return "read differently without tools"
    random = Random(made.seed)
    cuts = [0, *sorted(random.randint(0, len(reply)) for _ in range(8)), len(reply)]
    for chunks in (list(reply), [reply[a:b] for a, b in zip(cuts, cuts[1:], strict=False)]):
        again = join_events(Parser(grammar, prompt, TOOLS), chunks)
        if again[:3] != (content, thought, arguments) or facts(again[3]) != facts(whole):
            return f"chunks {chunks}"
    return ""


def broken(made: Invented) -> tuple[str, Grammar]:
    """The first message that is not read back, and what went wrong; empty if all are."""
    template = turnwise.compile(made.text, dialect="jinja")
    grammar = derive(template.facts)
    prompt = str(template.render([ASK], tools=TOOLS, add_generation_prompt=True))
    for message in messages(made, MESSAGES):
        turn = str(template.render([ASK, message], tools=TOOLS))
        assert turn.startswith(prompt)
        reply = turn[len(prompt) :]
        if why := wrong(made, grammar, message, reply, prompt):
            return (
                f"{made.layout}, seed {made.seed}: {reply!r}\n  meant {to_comparable(message, True)}\n  {why}",
                grammar,
            )
    return "", grammar


def reports_unreached(grammar: Grammar) -> bool:
    """Whether a grammar reports that calls, or content, are not read back."""
    return any(not note.startswith("reasoning") for note in grammar.unreached)


def measure(seeds: Iterable[int]) -> tuple[Counter[str], Counter[str], list[str]]:
    """By layout: how many templates there are and how many hold; and those that break the law in silence."""
    total, held, silent = Counter[str](), Counter[str](), list[str]()
    for seed in seeds:
        made = invent(seed)
        why, grammar = broken(made)
        total[made.layout] += 1
        held[made.layout] += not why
        if why and not reports_unreached(grammar):
            silent.append(why)
    return total, held, silent


def table(total: Counter[str], held: Counter[str]) -> str:
    lines = [f"{held[layout]:5} of {total[layout]:5}  {layout}" for layout in sorted(total)]
    return "\n".join(["", *lines, f"{held.total():5} of {total.total():5}"])


@pytest.mark.law
def test_invented_templates_are_read_back(sample: Any) -> None:
    seeds = sample(range(COUNT), 16)
    total, held, silent = measure(seeds)
    print(table(total, held))
    assert not silent, "\n".join(silent[:5])
    assert held.total() >= SHARE * len(seeds), table(total, held)
    if len(seeds) == COUNT:
        assert set(total) == set(LAYOUTS), "every layout is drawn"


@pytest.mark.slow
def test_many_invented_templates_are_read_back() -> None:
    total, held, silent = measure(range(MANY))
    print(table(total, held))
    assert not silent, "\n".join(silent[:5])
    assert held.total() >= SHARE * MANY, table(total, held)


def test_a_seed_is_a_template() -> None:
    """The same one each time, and many different ones."""
    assert [invent(seed).text for seed in range(20)] == [invent(seed).text for seed in range(20)]
    assert len({invent(seed).text for seed in range(COUNT)}) == COUNT
    texts = [invent(seed).text for seed in range(MANY)]
    for look in LOOKS.values():
        assert any(
            json.dumps(look("start")[0], ensure_ascii=False).strip('"') in text for text in texts
        )

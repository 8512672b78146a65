"""Damage to replies, and the law of loss.

Every character of a reply is in the content, the reasoning, the name, the id or the arguments of a call; or it is a
marker, or white space; or it is within an attempt that is not `complete`, which keeps its text. A member of a JSON call
that calls do not have is the one exception: it is `raw` and does no harm. A marker is one if the grammar has its words;
the words of a header count as markers whatever they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from random import Random

from reply_grammars import EXAMPLES
from turnwise.replies.events import SPANS, STATUSES, Message
from turnwise.replies.grammar import Grammar
from turnwise.replies.grammar_parts import JsonCall
from turnwise.replies.parser.compiled_grammar import ARGUMENT_KEYS, NAME_KEYS, CompiledGrammar
from turnwise.replies.parser.markers import collect_texts

WORD = re.compile(r"\w+")
MARKERS = sorted(
    {piece for one in EXAMPLES for piece in re.findall(r"<[^<>\s]+>|\[[A-Z/_]+\]", one.reply)}
)
STRAY = ("stray", "{", "}", '"', "\n\n", "[", "))", "null", "\\", ",", "é☀", "</", "<|")


# -- damage


def delete_run(random: Random, text: str) -> str:
    start, end = places(random, text, 2)
    return text[:start] + text[end:]


def double_run(random: Random, text: str) -> str:
    start, end = places(random, text, 2)
    return text[:end] + text[start:]


def swap_runs(random: Random, text: str) -> str:
    a, b, c = places(random, text, 3)
    return text[:a] + text[b:c] + text[a:b] + text[c:]


def cut_off(random: Random, text: str) -> str:
    return text[: places(random, text, 1)[0]]


def foreign(random: Random, text: str) -> str:
    return insert_text(random, text, random.choice(MARKERS))


def insert_stray(random: Random, text: str) -> str:
    return insert_text(random, text, random.choice(STRAY))


def insert_brackets(random: Random, text: str) -> str:
    return insert_text(random, text, random.choice("[{(<") * 300)


def insert_text(random: Random, text: str, more: str) -> str:
    (at,) = places(random, text, 1)
    return text[:at] + more + text[at:]


def places(random: Random, text: str, count: int) -> list[int]:
    return sorted(random.randint(0, len(text)) for _ in range(count))


DAMAGE = (
    delete_run,
    double_run,
    swap_runs,
    cut_off,
    foreign,
    foreign,
    insert_stray,
    insert_stray,
    insert_brackets,
)


def damage(seed: int, text: str) -> str:
    random = Random(seed)
    for _ in range(random.choice((1, 1, 2, 3))):
        text = random.choice(DAMAGE)(random, text)
    return text


# -- loss


def tiles(message: Message, text: str) -> None:
    assert "".join(text[span.start : span.end] for span in message.spans) == text
    assert {span.kind for span in message.spans} <= set(SPANS)
    for attempt in message.attempts:
        assert attempt.raw == text[attempt.start : attempt.end]
        assert attempt.status in STATUSES


def find_lost(grammar: Grammar, message: Message, text: str) -> list[str]:
    """What of a reply is nowhere."""
    excused = [
        range(one.start, one.end)
        for one in message.attempts
        if one.status not in ("complete", "unknown")
    ]
    found: list[str] = []
    for span in message.spans:
        for at in range(span.start, span.end):
            if any(at in place for place in excused):
                continue
            if span.kind == "space" and not text[at].isspace():
                found.append(f"space {text[span.start : span.end]!r}")
                break
            if span.kind == "raw" and not json_calls(grammar):
                found.append(f"raw {text[span.start : span.end]!r}")
                break
    kept = [
        span
        for span in message.spans
        if span.kind == "marker" and not any(span.start in one for one in excused)
    ]
    return found + strange(grammar, message, [text[span.start : span.end] for span in kept])


def json_calls(grammar: Grammar) -> bool:
    return any(
        isinstance(calls.call, JsonCall)
        for calls in (grammar.calls, *grammar.more)
        if calls is not None
    )


def strange(grammar: Grammar, message: Message, texts: list[str]) -> list[str]:
    """Words within markers that no marker has."""
    keys = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    known = "".join("\0".join([*words(grammar), *keys]).split())
    if CompiledGrammar(grammar).channel_header_format is not None:
        return []
    found = [word for text in texts for word in WORD.findall(text)]
    return [f"marker {word!r}" for word in found if not any(halves(known, word))]


def halves(known: str, word: str) -> Iterator[bool]:
    """Whether a word is known, or made of two that are, where one marker stands after another."""
    return (word[:at] in known and word[at:] in known for at in range(len(word)))


@cache
def words_of(texts: tuple[str, ...]) -> list[str]:
    return [*texts, *NAME_KEYS, *ARGUMENT_KEYS, "type", "function", "id", "true", "null"]


def words(grammar: Grammar) -> list[str]:
    return words_of(tuple(collect_texts(grammar)))

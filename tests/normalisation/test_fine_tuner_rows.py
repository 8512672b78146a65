"""No row of a fine-tuner trains nonsense, or loses text, silently.

A row may be refused with an error, and text may be left out; then a warning says so, and it names the message.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter

import pytest

import turnwise
from fine_tuner_rows import FineTunerRow, read, rows
from loaded import load_entry
from turnwise.errors import TurnwiseError, TurnwiseWarning

TEMPLATES = ("qwen3", "llama-3.1", "gemma-2", "mistral-v3", "hermes-3")
NEVER = ("None", "{'type'", "'text':", '"type": "text"', '\\"harbour', "null")


def find_problem(template: turnwise.Template, row: FineTunerRow, verdicts: Counter[str]) -> str:
    """Return what is wrong with the encoding of a row and was not reported; empty if nothing is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TurnwiseWarning)
        try:
            arguments = read(row)
            messages = arguments.pop("messages")
            encoded = template.encode(messages, "turnwise", **arguments)
        except TurnwiseError:
            verdicts["refused"] += 1
            return ""
    warned = " ".join(str(one.message) for one in caught)
    text = encoded.text
    trained = "".join(token for token, on in zip(encoded.tokens, encoded.mask, strict=True) if on)
    for bad in NEVER:
        if bad in trained:
            return f"trains {bad!r}"
    lost = [word for word in row.words if word not in text]
    for word in lost:
        index = next(i for i, message in enumerate(messages) if word in json.dumps(message))
        if f"messages[{index}]" not in warned:
            return f"loses {word} of message {index} silently"
    verdicts["warned" if lost else "right"] += 1
    return ""


def check(name: str, count: int) -> Counter[str]:
    template = load_entry(name)
    verdicts: Counter[str] = Counter()
    problems = []
    for number, row in enumerate(rows(count)):
        problem = find_problem(template, row, verdicts)
        if problem:
            problems.append(f"row {number}: {problem}")
    assert not problems, (len(problems), problems[:5])
    return verdicts


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_sample_of_mixed_rows(name: str) -> None:
    verdicts = check(name, 45)
    assert verdicts["right"] >= 15, verdicts


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_two_thousand_mixed_rows(name: str) -> None:
    check(name, 2000)

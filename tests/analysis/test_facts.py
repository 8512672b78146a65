"""Facts: one answer per question. The stops of a template, of its grammar and of labels are the same texts."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator

import pytest

import corpus
import turnwise
from corpus import needs_corpus
from loaded import load_entry
from turnwise.analysis.prober import (
    ARGUMENTS,
    PLACEHOLDER_PATTERN,
    SENTINELS,
    Prober,
    replace_placeholders,
)

SPECIAL = {"bos_token", "eos_token", "pad_token", "unk_token"}
UNNAMED = (
    "{% for m in messages %}{{ bos_token }}{{ m.role }}\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant\n{% endif %}"
)
WORD = re.compile(r"[\w\s]*")


def with_and_without_tokens(name: str) -> Iterator[turnwise.Template]:
    published = corpus.load_published()[name]
    options = dict(published.options)
    bare = {key: value for key, value in options.items() if key not in SPECIAL}
    for given in (options, bare):
        yield turnwise.compile(published.text, "jinja", name=name, options=given)


def check_stops(template: turnwise.Template) -> None:
    facts, stops = template.facts, template.stops()
    assert set(stops) == set(template.grammar.stops) == set(facts.stops)
    for named in ({}, {"eos_token": "<eos!>", "bos_token": "<bos!>"}):
        declared = {*facts.declared_stops, *facts.model_stops, *named.values()}
        words = [*SENTINELS, *ARGUMENTS[0], *ARGUMENTS[1]]
        for stop in set(facts.stops_for(named)) - declared:
            assert not WORD.fullmatch(stop), stop
            assert not any(word in stop for word in words), stop
            assert not PLACEHOLDER_PATTERN.search(stop), stop


@pytest.mark.law
@needs_corpus
@pytest.mark.parametrize("name", corpus.load_published())
def test_published_templates_have_one_set_of_stops(name: str) -> None:
    for template in with_and_without_tokens(name):
        check_stops(template)
        assert not PLACEHOLDER_PATTERN.search(repr(template.grammar))
        assert not PLACEHOLDER_PATTERN.search(str(template.facts))


@pytest.mark.law
@pytest.mark.parametrize("name", [name for name in turnwise.entries() if ":" not in name])
def test_entries_have_one_set_of_stops(name: str) -> None:
    check_stops(load_entry(name))


def test_a_role_word_does_not_end_a_reply() -> None:
    """The special tokens of a bare template file have no text; the role after them is not a stop."""
    template = turnwise.compile(UNNAMED)
    reply = "Ask the user first, then go on."
    assert template.parse(reply)["content"] == reply
    assert template.stops() == () and template.grammar.opening == "assistant\n"


def test_a_special_token_gets_its_text_later() -> None:
    facts = turnwise.compile(UNNAMED).facts
    assert facts.stops_for({"eos_token": "</s>"}) == ("</s>",)
    assert facts.markers == ()
    assert [marker.text for marker in facts.markers_for({"bos_token": "<s>"})] == ["<s>"]
    named = turnwise.compile(UNNAMED, options={"eos_token": "<|im_end|>"})
    assert named.stops() == named.grammar.stops == ("<|im_end|>",)


def test_every_special_token_may_end_a_turn() -> None:
    template = turnwise.compile(
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ sep_token }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    assert template.facts.stops_for({"sep_token": "<sep>"}) == ("<sep>",)


def test_placeholders_are_replaced_or_left_out() -> None:
    prober = Prober(turnwise.compile(UNNAMED).renderer)
    text = f"a{prober.placeholders['eos_token']}b"
    assert replace_placeholders(text) == "ab"
    assert replace_placeholders(text, {"eos_token": "</s>"}) == "a</s>b"


@needs_corpus
@pytest.mark.parametrize(
    ("name", "stops"),
    [
        ("lcpptest-GLMEdge", ("<|user|>",)),
        ("ollama-llama-guard3-8b", ("<|eot_id|>",)),
        ("trl-cohere2_training", ("<|END_OF_TURN_TOKEN|>",)),
        ("llamacpp-unsloth-Apriel-1.5", ("<|end|>", "<|endoftext|>")),
        ("trl-llava_next", ("</s>",)),
        ("llamacpp-Apertus-8B-Instruct", ("<|assistant_end|>", "<|tools_suffix|>")),
        ("lcpptest-MiniCPM-3B-OpenHermes-2.5-v2-GGUF", ("<用户>",)),
    ],
)
def test_stops_of_published_templates(name: str, stops: tuple[str, ...]) -> None:
    template = next(with_and_without_tokens(name))
    assert template.stops() == template.grammar.stops == stops


@needs_corpus
@pytest.mark.parametrize(
    "name",
    [
        "lcpptest-mlabonne--AlphaMonarch-7B",
        "lcpptest-ByteDance-Seed--Seed-OSS-36B-Instruct",
        "mistralcommon-v7_spm",
        "mistralcommon-v11_image",
    ],
)
def test_unnamed_tokens_leave_no_stop(name: str) -> None:
    *_, bare = with_and_without_tokens(name)
    assert bare.stops() == () and bare.stops(type("Named", (), {"eos_token": "</s>"})()) == (
        "</s>",
    )


def test_facts_are_printed_and_pickled() -> None:
    facts = load_entry("qwen2.5").facts
    lines = str(facts).splitlines()
    assert lines[0] == r"generation prompt  '<|im_start|>assistant\n'"
    assert any(line.startswith("marker") and "<|im_start|>" in line for line in lines)
    assert pickle.loads(pickle.dumps(facts)).stops == facts.stops


def test_facts_say_why_there_is_no_stop() -> None:
    assert "whose text is not known" in turnwise.compile(UNNAMED).facts.notes[0]
    words = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    assert "no control token" in turnwise.compile(words).facts.notes[0]
    assert "no reply" in turnwise.compile("{{ raise_exception('never') }}").facts.notes[0]


ROUND = "{% for m in messages %}(START)END{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"


@pytest.mark.parametrize(
    "end",
    [".", ")", ";", "!!!", '"}', "\n---\n", "END.", "Is that right?", "{{ m.content | length }}"],
)
@pytest.mark.parametrize("before", ["", "<|", "["])
def test_punctuation_words_and_computed_text_are_no_stops(end: str, before: str) -> None:
    after = {"<|": "|>", "[": "]", "": ""}[before] if "{{" in end else ""
    end = f"{before}{end}{after}" if "{{" in end else end
    text = ROUND.replace("(START)", "{{ m.role }}: {{ m.content }}").replace("END", end + "\n", 1)
    template = turnwise.compile(text, dialect="jinja")
    assert template.stops() == template.grammar.stops == ()


def test_dates_are_no_stops() -> None:
    text = ROUND.replace(
        "(START)END", "{{ m.role }}: {{ m.content }}<|{{ strftime_now('%Y') }}|>\n"
    )
    assert turnwise.compile(text, dialect="jinja").stops() == ()


def test_a_tokenizer_names_the_stop_of_a_parser() -> None:
    template = turnwise.compile(UNNAMED)
    (stop,) = template.stops("turnwise")
    ids = template.encode([{"role": "assistant", "content": "Hello!"}], "turnwise").input_ids
    message = template.parse(ids, tokenizer="turnwise")
    assert message.stop == stop and message["content"].endswith("Hello!")

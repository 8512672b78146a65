"""Checks that need more than a template: a tokenizer, a reference, a declaration, another engine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import corpus
import turnwise
from loaded import load_entry
from turnwise.evidence.checks import CheckFinding

GOOD = (Path(__file__).parent / "good.jinja").read_text(encoding="utf-8")


def compile_text(text: str = GOOD, **options: Any) -> turnwise.Template:
    return turnwise.compile(text, "jinja", name="case.jinja", options=options)


def find(code: str, template: turnwise.Template, *given: Any, **more: Any) -> list[CheckFinding]:
    return [one for one in turnwise.check(template, *given, **more) if one.code == code]


def test_calls_without_markers_are_not_parsed() -> None:
    bare = "{{- call.function.name + ' ' + call.function.arguments | tojson }}"
    text = re.sub(
        r"\{\{-? '\\n<tool_call>.*?</tool_call>' \}\}", lambda _: bare, GOOD, flags=re.DOTALL
    )
    assert bare in text
    assert find("T304", compile_text(text))
    assert not find("T304", compile_text())


def test_a_stop_that_is_not_declared(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(GOOD, encoding="utf-8")
    rows = {"1": {"content": "<|endoftext|>"}, "2": {"content": "<|im_end|>"}}
    config = {"added_tokens_decoder": rows}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    for ids, is_wrong in ((1, True), ([1, 2], False)):
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
        found = find("T502", turnwise.load(tmp_path))
        assert bool(found) == is_wrong
        assert not found or found[0].place is not None


def test_markers_that_are_not_tokens() -> None:
    other = compile_text(GOOD.replace("<|im_end|>", "<|finish|>").replace("<|im_start|>", "<|go|>"))
    assert find("T503", other, "turnwise") and find("T504", other, "turnwise")
    assert not find("T503", compile_text(), "turnwise")
    assert not find("T504", compile_text(), "turnwise")


def test_a_reference() -> None:
    (found,) = find("T606", compile_text(), None, "chatml")
    assert found.severity == "error" and found.probe is not None
    assert not find("T606", load_entry("chatml"), None, "chatml")


HOSTILE = {
    "many rounds": "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "much text": "{% for m in messages %}{{ 'x' * 90000 }}{{ m.content }}{% endfor %}",
    "deep": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "marks": "{% for m in messages %}{{ m.content | replace('a', '\U000f5a01') }}\U000f5a03{% endfor %}",
    "names of arguments": "{% for m in messages %}{% if prompt or now or text or options or name %}x{% endif %}"
    "{{ m.content }}{{ self_ }}{% endfor %}",
    "raises": "{{ raise_exception('\x1b[2J no') }}",
    "empty": "{% if false %}{% endif %}",
    "unsafe": "{{ messages.__class__.__mro__ }}",
    "many options": "".join(f"{{% if o{i} %}}{i}{{% endif %}}" for i in range(300))
    + "{{ messages }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_with_a_report(name: str) -> None:
    report = turnwise.check(turnwise.compile(HOSTILE[name], "jinja"))
    assert len(report.findings) < 100 and "\x1b" not in str(report)


@pytest.mark.slow
@corpus.needs_corpus
def test_hostile_templates_of_the_corpus() -> None:
    for hostile in (*corpus.hostile(), *corpus.more_hostile()):
        try:
            template = turnwise.compile(hostile.text, "jinja")
        except turnwise.TurnwiseError:
            continue
        assert str(turnwise.check(template))

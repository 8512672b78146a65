"""Options are the names that a template reads from its caller, and none that it assigns itself."""

from __future__ import annotations

import pytest
from jinja2 import meta

import turnwise
from turnwise.analysis.conversations import conversations
from turnwise.engine.compiler.syntax import ENVIRONMENT
from turnwise.engine.program import Program
from turnwise.engine.runtime.functions import FUNCTIONS

pytestmark = pytest.mark.once

READS = {
    "{{ x }}": {"x"},
    "{% set x = 1 %}{{ x }}": set(),
    "{{ x }}{% set x = 1 %}": {"x"},
    "{% set x = x if x is defined else 1 %}{{ x }}": {"x"},
    "{% if x is not defined %}{% set x = 1 %}{% endif %}{{ x }}": {"x"},
    "{% if a %}{% set x = 1 %}{% endif %}{{ x }}": {"a", "x"},
    "{% if a %}{% set x = 1 %}{{ x }}{% endif %}": {"a"},
    "{% if a %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}": {"a"},
    "{% if a %}{% set x = 1 %}{% elif b %}{% else %}{% set x = 2 %}{% endif %}{{ x }}": set("abx"),
    "{% for x in a %}{{ x }}{{ loop.index }}{% endfor %}": {"a"},
    "{% for x in a if x %}{{ x }}{% endfor %}{{ x }}": {"a", "x"},
    "{% for x in a %}{% set b = x %}{% endfor %}{{ b }}": {"a", "b"},
    "{% for i in a %}{% if i %}{% set x = i %}{{ x }}{% endif %}{% endfor %}": {"a"},
    "{% for k, v in a.items() %}{{ k }}{{ v }}{% endfor %}": {"a"},
    "{% macro f(x, y=z) %}{{ x }}{{ y }}{{ w }}{% endmacro %}{{ f(1) }}": {"w", "z"},
    "{% set w = 1 %}{% macro f() %}{{ w }}{{ caller() }}{% endmacro %}{{ f() }}": set(),
    "{% macro f(x) %}{% if x %}{% set y = x %}{{ y }}{% endif %}{% endmacro %}{{ f(1) }}": set(),
    "{% macro f() %}{{ caller(1) }}{% endmacro %}{% call(x) f() %}{{ x }}{{ a }}{% endcall %}": {
        "a"
    },
    "{% set x %}{{ y }}{% endset %}{{ x }}": {"y"},
    "{% with x = x %}{{ x }}{% endwith %}": {"x"},
    "{% with x = 1 %}{{ x }}{% endwith %}": set(),
    "{% filter upper %}{% set x = 1 %}{{ x }}{% endfilter %}{{ x }}": {"x"},
    "{% set n = namespace(x=a) %}{% set n.x = b %}{{ n.x }}": {"a", "b"},
    "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}": set(),
}


@pytest.mark.parametrize("text", READS)
def test_names_that_are_read_before_they_are_assigned(text: str) -> None:
    assert set(Program(text).reads) == READS[text]


@pytest.mark.law
@pytest.mark.parametrize("entry", turnwise.entries(dialect="jinja"))
def test_entries_list_no_names_of_their_own(entry: str) -> None:
    """What is left out of jinja2's list changes no rendering."""
    template = turnwise.load(entry)
    loaded = set[str]()
    for text in template.renderer.texts:
        loaded |= meta.find_undeclared_variables(ENVIRONMENT.parse(text)) - set(FUNCTIONS)
    listed = set(template.variables)
    assert listed <= loaded
    given = {name: "given" for name in loaded - listed}
    if not given:
        return
    for probe in conversations()[::25]:
        arguments = probe.arguments() | {"normalise": False}
        try:
            expected = str(template.render(probe.messages, **arguments))
        except turnwise.TurnwiseError:
            continue
        assert str(template.render(probe.messages, **arguments, **given)) == expected


@pytest.mark.parametrize(
    ("entry", "options"),
    [
        ("qwen3", {"enable_thinking"}),
        ("gpt-oss", {"builtin_tools", "model_identity", "reasoning_effort"}),
    ],
)
def test_options_of_entries(entry: str, options: set[str]) -> None:
    standard = {"messages", "tools", "add_generation_prompt"}
    assert set(turnwise.load(entry).variables) == options | standard

"""No operation of a template gives a user's text to the template: random expressions, and those that once did."""

from __future__ import annotations

import re
from itertools import chain

import pytest

import turnwise
from laundering import (
    LEFT_OUT,
    QUESTIONS,
    RULES,
    STATEMENTS,
    USER_LETTERS,
    choose_texts,
    make_template,
)
from turnwise.engine.runtime.filters import FILTERS
from turnwise.engine.runtime.functions import FUNCTIONS
from turnwise.engine.runtime.jinja_tests import TESTS
from turnwise.engine.runtime.methods import METHODS

# What is too long to be followed is not trusted; that is what is tested here.
pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore:the template makes its text in more steps"),
]
QUICK = 750
MANY = 100_000
LAUNDERED = {
    "reversed": "{{ ('0123456789' ~ m.content)[::-1] }}",
    "numbered": "{{ ('' ~ m.content[:3] ~ '')|int }}-----------------------{{ m.content[3:] }}",
    "a key that was cut": "{{ {('a' ~ m.content)[0:]: 1}|tojson }}",
    "a key that was trimmed": "{{ {('a' ~ m.content)|trim: 1}|tojson }}",
    "a key of fromkeys": "{{ dict.fromkeys([('a' ~ m.content)[0:]])|tojson }}",
    "a key that begins with a space": "{{ {(' ' ~ m.content)[0:]: 1}|tojson }}",
    "JSON that was cut": "{{ (' \"' ~ m.content ~ '\"')[1:]|from_json }}",
    "lines": "{{ ('a\\n' ~ m.content)|indent(3)|trim }}",
    "a separator of JSON": "{{ [1, 2]|tojson(separators=(m.content, ':')) }}",
    "an indent of JSON": "{{ [1, 2]|tojson(indent=m.content) }}",
    "what a number is padded with": "{{ ('{:' ~ m.content[3] ~ '>9}').format(7) }}",
    "a margin of lines": "{{ ({m.content: 1}.values()|join)|indent(m.content, true, true) }}",
    "a letter of a text that was trimmed": "{{ '-'.join((' 用户'~ m.content)|trim) }}",
}


def assert_attributed(template: turnwise.Template, content: str) -> bool:
    """Assert that pieces join to the text and that the template wrote no letter of the user's."""
    try:
        rendering = template.render([{"role": "user", "content": content}], normalise=False)
    except turnwise.TemplateError:
        return False
    pieces = rendering.pieces
    assert "".join(piece.text for piece in pieces) == str(rendering)
    for piece in pieces:
        if piece.origin.kind == "template":
            assert not USER_LETTERS.search(piece.text), (piece, template.source)
    return bool(USER_LETTERS.search(str(rendering)))


@pytest.mark.parametrize("name", LAUNDERED)
def test_what_was_once_laundered(name: str) -> None:
    template = turnwise.compile("{% for m in messages %}" + LAUNDERED[name] + "{% endfor %}")
    assert assert_attributed(template, "007用户")


def test_every_operation_is_tried() -> None:
    text = "\n".join([*chain(*RULES.values()), *STATEMENTS])
    tried = {
        "filter": set(re.findall(r"(?:\||filter |(?:map|select|reject)\(')\s*([a-z_]+)", text)),
        "method": set(re.findall(r"\.([a-z_]+)\(", text)),
        "function": set(re.findall(r"(?<![.\w])([a-z_]+)[.(]", text)),
        "test": set(QUESTIONS),
    }
    known = {
        "filter": set(FILTERS),
        "method": set(chain(*METHODS.values())),
        "function": set(FUNCTIONS),
        "test": set(TESTS),
    }
    for kind, names in known.items():
        untried = sorted(names - tried[kind] - set(LEFT_OUT))
        assert not untried, (
            f"in tests/support/laundering.py, add an expression with the {kind} {untried} to RULES, or the name to "
            "LEFT_OUT with the reason"
        )
    for sign in ("-", "*", "/", "//", "%", "**", "+", "~", "==", "!=", "<", "<=", ">", ">="):
        assert f" {sign} " in text


@pytest.mark.law
def test_random_expressions() -> None:
    assert sum(map(written_by_user, range(QUICK))) > QUICK


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_random_expressions(part: int) -> None:
    seeds = range(part * MANY // 10, (part + 1) * MANY // 10)
    assert sum(map(written_by_user, seeds)) > len(seeds)


def written_by_user(seed: int) -> int:
    """Return for how many texts of the user the template wrote some of it."""
    try:
        template = turnwise.compile(make_template(seed))
    except turnwise.TemplateError:
        return 0
    return sum(assert_attributed(template, content) for content in choose_texts(seed))


def test_an_empty_text_that_was_repeated() -> None:
    template = turnwise.compile("{{ {'' * 1: 1}|tojson }}")
    assert [piece.text for piece in template.render([]).pieces] == ['{"": ', "1", "}"]

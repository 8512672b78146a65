"""Filters and tests that do not exist: where a template may name one, and when that fails.

As in jinja2, code under an `if` or a ternary, conditions included, fails only when it is reached, unless a scope of
its own (a loop, a macro, a block) is in between. Everywhere else the template does not compile. Each template is
rendered by transformers too: both give the same text, or both fail.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import oracle
import turnwise

CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ["part"]}]

# `@` is replaced by an expression with an unknown filter or test.
UNREACHED = {
    "if body": "{% if false %}{{ @ }}{% endif %}a",
    "else body": "{% if true %}a{% else %}{{ @ }}{% endif %}",
    "elif body": "{% if true %}a{% elif true %}{{ @ }}{% endif %}",
    "elif condition": "{% if true %}a{% elif @ %}b{% endif %}",
    "second elif condition": "{% if false %}{% elif true %}a{% elif @ %}b{% else %}c{% endif %}",
    "right of and in if": "{% if false and @ %}b{% endif %}a",
    "right of or in if": "{% if true or @ %}a{% endif %}",
    "negated right of and": "{% for m in messages %}{% if m.role is none and not @ %}b{% endif %}{% endfor %}a",
    "comparison in a chain": "{% if 1 > 2 > (@) %}b{% endif %}a",
    "nested ternary in if": "{% if (true if true else @) %}a{% endif %}",
    "ternary branch": "{{ 'a' if true else @ }}",
    "other ternary branch": "{{ @ if false else 'a' }}",
    "ternary without else": "{{ @ if false }}a",
    "right of and in ternary condition": "{{ 'b' if false and @ else 'a' }}",
    "ternary in set": "{% set x = 'a' if true else @ %}{{ x }}",
    "ternary in loop iterator": "{% for x in (['a'] if true else @) %}{{ x }}{% endfor %}",
    "ternary in arguments": "{{ 'a'|default('b' if true else @) }}",
    "set in if": "{% if false %}{% set x = @ %}{% endif %}a",
    "loop iterator in if": "{% if false %}{% for x in @ %}{% endfor %}{% endif %}a",
    "if in loop": "{% for m in messages %}{% if m.role == 'x' %}{{ @ }}{% endif %}{{ m.role }}{% endfor %}",
    "if in macro": "{% macro f(x) %}{% if x %}{{ @ }}{% endif %}a{% endmacro %}{{ f(false) }}",
    "left of and after a false if": "{% if false %}{% if @ and true %}b{% endif %}{% endif %}a",
    "argument of an unknown filter": "{% if false %}{{ @|default(1) }}{% endif %}a",
}
REFUSED = {
    "output": "{{ @ }}",
    "right of and": "{{ tools and @ }}",
    "right of or": "{{ messages or @ }}",
    "right of or in set": "{% set x = messages or @ %}a",
    "loop condition": "{% for x in [] if @ %}b{% endfor %}a",
    "loop condition in if": "{% if false %}{% for x in [] if @ %}b{% endfor %}{% endif %}a",
    "loop body": "{% for x in [] %}{{ @ }}{% endfor %}a",
    "loop body in if": "{% if false %}{% for x in [] %}{{ @ }}{% endfor %}{% endif %}a",
    "loop else in if": "{% if false %}{% for x in [] %}{% else %}{{ @ }}{% endfor %}{% endif %}a",
    "macro": "{% macro f() %}{{ @ }}{% endmacro %}a",
    "macro in if": "{% if false %}{% macro f() %}{{ @ }}{% endmacro %}{% endif %}a",
    "macro default": "{% macro f(x=@) %}{% endmacro %}a",
    "set block in if": "{% if false %}{% set x %}{{ @ }}{% endset %}{% endif %}a",
    "with body in if": "{% if false %}{% with x = 1 %}{{ @ }}{% endwith %}{% endif %}a",
    "filter block in if": "{% if false %}{% filter upper %}{{ @ }}{% endfilter %}{% endif %}a",
    "generation block in if": "{% if false %}{% generation %}{{ @ }}{% endgeneration %}{% endif %}a",
    "call block in if": "{% macro f() %}{% endmacro %}{% if false %}{% call f() %}{{ @ }}{% endcall %}{% endif %}a",
}
REACHED = {
    "if condition": "{% if @ %}b{% endif %}a",
    "elif condition": "{% if false %}{% elif @ %}b{% endif %}a",
    "left of and": "{% if @ and false %}b{% endif %}a",
    "right of and": "{% if true and @ %}b{% endif %}a",
    "right of or": "{% if false or @ %}b{% endif %}a",
    "ternary condition": "{{ 'a' if @ else 'b' }}",
    "ternary branch": "{{ @ if true else 'b' }}",
    "second message": "{% for m in messages %}{% if m.role == 'assistant' and @ %}b{% endif %}{% endfor %}a",
}
UNKNOWN = ["messages is startingwith('x')", "messages|shout", "messages[0].content is not nope"]


def outcome(render: Any) -> str | None:
    """The text, or None for any error."""
    try:
        return str(render())
    except Exception:  # anything at all may leave the reference
        return None


def cases(templates: dict[str, str]) -> list[Any]:
    return [
        pytest.param(template.replace("@", f"({unknown})"), id=f"{title}: {unknown}")
        for title, template in templates.items()
        for unknown in UNKNOWN
    ]


@pytest.mark.parametrize("text", cases(UNREACHED))
def test_unreached_names_do_not_fail(text: str) -> None:
    rendered = str(turnwise.compile(text).render(CHAT, normalise=False))
    assert rendered == oracle.render(text, CHAT)


@pytest.mark.parametrize("text", cases(REFUSED))
def test_names_outside_of_conditions_do_not_compile(text: str) -> None:
    assert outcome(lambda: oracle.render(text, CHAT)) is None
    with pytest.raises(turnwise.TemplateSyntaxError, match="No (filter|test) named"):
        turnwise.compile(text)


@pytest.mark.parametrize("text", cases(REACHED))
def test_reached_names_fail_while_rendering(text: str) -> None:
    assert outcome(lambda: oracle.render(text, CHAT)) is None
    with pytest.raises(turnwise.TemplateRuntimeError, match="No (filter|test) named"):
        turnwise.compile(text).render(CHAT, normalise=False)


@pytest.mark.parametrize(
    "use", ["@[0]", "@[-1]", "@['a']", "@.a.b", "@[1:2]", "@()", "@ + 1", "-(@)"]
)
@pytest.mark.parametrize("unknown", ["(x|unknown)", "(x is unknown)"])
def test_python_does_not_warn_of_code_that_is_never_reached(use: str, unknown: str) -> None:
    """With warnings as errors, as in these tests, the template would be refused."""
    text = "{% if false %}{{ @ }}{% elif @ is none and false %}{% endif %}a"
    text = text.replace("@", use.replace("@", unknown))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        template = turnwise.compile(text + f"{{# {use} #}}")  # never compiled before
    with pytest.raises(turnwise.TurnwiseError, match="No (filter|test) named 'unknown'"):
        template.render(CHAT, normalise=False)

"""The project's scanner against jinja2's own lexer, token by token.

The scanner only changes how tokens are found, never which: line, type and value have to be jinja2's for any text, and
where jinja2 finds no token neither do we. Its columns have no reference, but a token's value stands in the text
where its line and column say.
"""

from __future__ import annotations

import jinja2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2.lexer import Lexer

import corpus
from turnwise.engine.compiler.syntax import (
    ENVIRONMENT,
    TemplateTooLarge,
    normalise_newlines,
    unpack_position,
)

pytestmark = pytest.mark.once

REFERENCE = Lexer(jinja2.Environment(trim_blocks=True, lstrip_blocks=True))

FRAGMENTS = [
    *("{{", "}}", "{%", "%}", "{#", "#}", "{{-", "-}}", "{%-", "-%}", "{%+", "+%}"),
    *("{#-", "-#}", "{#+", "+#}", "{{+", "+}}"),
    *(
        "{% raw %}",
        "{%- raw -%}",
        "{% raw",
        "{% endraw %}",
        "{%- endraw -%}",
        "{%+ endraw +%}",
        "endraw",
        "raw",
    ),
    *(" ", "  ", "\n", "\n\n", "\r\n", "\r", "\t", "\v", "\f", "\u2028", "\xa0", "\x1c"),
    *("'", '"', "\\", "'a'", '"b\\"c"', "'\\n'", "'un"),
    *("{", "}", "(", ")", "[", "]", "-", "+", "%", "#", "|", "~", ".", ","),
    *(
        "**",
        "//",
        "==",
        "!=",
        "<=",
        ">=",
        "<",
        ">",
        "=",
        ":",
        ";",
        "!",
        "@",
        "$",
        "&",
        "?",
        "`",
        "^",
    ),
    *("name", "_x", "é", "名", "x1", "x·y"),
    *("1", "0x1F", "0b1", "0o7", "1_000", "1.5", "1e9", "1.", ".5", "1__0", "1e", "٣"),
    *("if", "for x in y", "endif", "text", "<|im_start|>"),
]
SOUP = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
# Half of the time inside a tag, where most of the rules are.
BEFORE, AFTER = (
    st.sampled_from(["{{ ", "{% ", "a\n  {%- ", "{% raw %} "]),
    st.sampled_from([" }}", " %}\nb", ""]),
)
TAGGED = st.tuples(BEFORE, SOUP, AFTER)

Token = tuple[int, str, str]


def scan_with_jinja(text: str) -> list[Token] | None:
    """jinja2's tokens, or None where there are none."""
    try:
        return list(REFERENCE.tokeniter(text, None))
    except jinja2.TemplateSyntaxError:
        return None


def scan_tokens(text: str) -> list[tuple[int, int, str, str]] | None:
    """Ours, with columns."""
    try:
        return [
            (*unpack_position(where), kind, value)
            for where, kind, value in ENVIRONMENT.lexer.tokeniter(text, None)
        ]
    except jinja2.TemplateSyntaxError:
        return None


def check(text: str) -> None:
    tokens = scan_tokens(text)
    assert (tokens and [(line, kind, value) for line, _, kind, value in tokens]) == scan_with_jinja(
        text
    )
    lines = normalise_newlines(text).split("\n")
    for line, column, kind, value in tokens or ():
        first = value.split("\n")[0]
        found = lines[line - 1][column - 1 : column - 1 + len(first)]
        assert found == first, f"{kind} {value!r} is not at {line}:{column}"


@pytest.mark.law
@pytest.mark.parametrize(
    "name", sorted(corpus.load_published()) or [pytest.param("", marks=corpus.needs_corpus)]
)
def test_corpus_templates(name: str) -> None:
    check(corpus.load_published()[name].text)


@given(st.one_of(SOUP, TAGGED.map("".join)))
@settings(max_examples=1000)
@example("")
@example("\n")
@example("{{ 'a\nb' }}")
@example("{#")
@example("{% raw %}")
@example("  {% raw -%}\n x {%- endraw %}\n")
def test_soup(text: str) -> None:
    check(text)


@pytest.mark.slow
@given(st.one_of(SOUP, TAGGED.map("".join)))
@settings(max_examples=60_000)
def test_soup_at_length(text: str) -> None:
    check(text)


def test_brackets_have_a_limit() -> None:
    with pytest.raises(TemplateTooLarge):
        list(ENVIRONMENT.lexer.tokeniter("{{ " + "(" * 1000, None))

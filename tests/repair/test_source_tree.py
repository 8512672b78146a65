"""The tree of a template's text: every part knows its place, and tags are put between parts without changing a text."""

from __future__ import annotations

import pytest

import turnwise
from turnwise.analysis.conversations import Probe
from turnwise.repair.edits import apply_edits, close_tag, open_tag, restore_newlines, unified_diff
from turnwise.repair.output_split import cut_literal, find_written, quote
from turnwise.repair.source_tree import (
    Block,
    Choice,
    Data,
    Leaf,
    Output,
    ReadFinder,
    SourceTree,
    Sum,
    read_expression,
    walk_direct,
)

pytestmark = pytest.mark.once

TEMPLATE = """{%- for m in messages %}
    {%- if m.role == 'user' -%}
        [{{ m.content }}]
    {% else %}
  <{{- m.content + '|' if m.content else '-' }}>
    {%- endif %}
{% endfor %}{# end #}"""
CHAT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def test_items_know_their_places() -> None:
    tree = SourceTree(TEMPLATE)
    (loop, comment) = tree.body
    assert isinstance(loop, Block) and loop.name == "for" and loop.end == TEMPLATE.index("{# end")
    (choice,) = loop.sections[0].body
    assert isinstance(choice, Block) and [s.tag.name for s in choice.sections] == ["if", "else"]
    data = [item for item in walk_direct(tree.body) if isinstance(item, Data)]
    assert [tree.show(item.start, item.end) for item in data] == ["[", "]\n", "  <", ">"]
    outputs = [item for item in walk_direct(tree.body) if isinstance(item, Output)]
    assert tree.show(outputs[0].start, outputs[0].end) == "{{ m.content }}"
    assert isinstance(outputs[1].expression, Choice) and outputs[1].signs == ("-", "")
    assert comment.start == loop.end


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("a", Leaf),
        ("a + b ~ c", Sum),
        ("(a + b)", Sum),
        ("a + b == c", Leaf),
        ("a and b + c", Leaf),
        ("a | f + b", Sum),
        ("a - b", Leaf),
        ("x(a + b)", Leaf),
        ("a if b else c", Choice),
    ],
)
def test_expressions(expression: str, kind: type) -> None:
    tokens = SourceTree(f"{{{{ {expression} }}}}").tags[0].tokens
    assert isinstance(read_expression(tokens[1:-1]), kind)


def test_each_text_has_the_operand_that_wrote_it() -> None:
    text = turnwise.compile(TEMPLATE).render(CHAT).text
    renderer = turnwise.compile(TEMPLATE).renderer
    written = find_written(SourceTree(TEMPLATE), renderer, Probe("a chat", CHAT), text)
    found = [(text[start:end], TEMPLATE[atom.start : atom.end]) for atom, start, end in written]
    assert found == [
        ("[", "["),
        ("a", "m.content"),
        ("]\n", "]\n"),
        ("  <", "  <"),
        ("b", "m.content"),
        ("|", "'|'"),
        (">", ">"),
    ]


@pytest.mark.parametrize("tag", ["if true", "generation"])
def test_tags_between_parts_change_no_text(tag: str) -> None:
    wanted = turnwise.compile(TEMPLATE).render(CHAT).text
    for item in walk_direct(SourceTree(TEMPLATE).body):
        if isinstance(item, Data | Output):
            edits = [
                open_tag(TEMPLATE, item.start, tag),
                close_tag(TEMPLATE, item.end, f"end{tag.split()[0]}"),
            ]
            found = apply_edits(TEMPLATE, edits)
            assert turnwise.compile(found).render(CHAT).text == wanted, found


def test_reads() -> None:
    text = "{% set ns.content = m['content'] %}{{ x(m.tool_calls[0].content | trim) }}{{ m.content is none }}content"
    finder = ReadFinder(SourceTree(text))
    reads = finder.find_key("content")
    assert [text[read.start : read.end] for read in reads] == [
        "m['content']",
        "m.tool_calls[0].content",
        "m.content",
    ]
    assert [read.is_tested for read in reads] == [False, False, True]
    assert reads[1].filter == "trim"
    (filtered,) = ReadFinder(SourceTree("{{ f(a.b | tojson(indent=2)) }}")).find_filtered("tojson")
    assert filtered.filter == "tojson(indent=2)"


def test_literals() -> None:
    assert cut_literal("'a\\nb\\'c'", 1, 4) == "'\\nb\\''"
    assert cut_literal('"a\\u00e9b"', 1, None) == '"\\u00e9b"'
    assert (
        turnwise.compile(f"{{{{ {quote(chr(10) + chr(39) + chr(92))} }}}}").render([]).text
        == "\n'\\"
    )


def test_line_ends_and_diffs() -> None:
    assert restore_newlines("a\nb", "x\r\ny\r\n") == "a\r\nb\r\n"
    assert "\\ No newline at end of file" in unified_diff("a\n", "b", "t")
    assert unified_diff("a", "a", "t") == ""

"""Sources of other dialects made to stall their reader: refused with a reason, and soon."""

from __future__ import annotations

from typing import Any

import pytest

import turnwise
from timing import assert_quick

HUGE: dict[str, tuple[str, Any]] = {
    "functions": ("ollama", "{{ .Prompt" + " | json" * 50_000 + " }}"),
    "parentheses": ("ollama", "{{ " + "(" * 100_000 + ".Prompt" + ")" * 100_000 + " }}"),
    "arguments": ("ollama", "{{ json" + " .Prompt" * 50_000 + " }}"),
    "actions": ("ollama", "\n".join(f"{{{{ $a{i} := 1 }}}}" for i in range(20_000))),
    "branches": ("ollama", "{{ if .A }}" + "{{ else if .B }}x" * 3_000 + "{{ end }}"),
}


@pytest.mark.parametrize("name", HUGE)
def test_too_much_is_refused_soon(name: str) -> None:
    dialect, source = HUGE[name]

    def refuse() -> None:
        with pytest.raises(turnwise.SourceError, match="line "):
            turnwise.compile(source, dialect=dialect)

    assert_quick(refuse, 2)


MANY: dict[str, tuple[str, Any, str]] = {
    "xtuner": ("xtuner", {"INSTRUCTION": "{input}" * 2_000}, "INSTRUCTION has 2,000 placeholders"),
    "xtuner_v1": (
        "xtuner_v1",
        {"user": "{user}" * 300, "assistant": "{assistant}"},
        "user has 300 placeholders; at most 100 are read",
    ),
    "dates": (
        "xtuner_v1",
        {
            "user": "{user}",
            "assistant": "{assistant}",
            "system": "{system}",
            "default_system": "{date}" * 101,
        },
        "default_system has 101 placeholders",
    ),
    "doubling": (
        "xtuner_v1",
        {
            "user": "{user}",
            "assistant": "{assistant}a",
            "loss_assistant_format_mapping": {chr(97 + i): chr(98 + i) * 2 for i in range(40)},
        },
        "loss_assistant_format_mapping makes more than 100,000 characters",
    ),
    "replacements": (
        "xtuner_v1",
        {
            "user": "{user}",
            "assistant": "{assistant}",
            "loss_assistant_format_mapping": {str(i): "" for i in range(101)},
        },
        "loss_assistant_format_mapping has 101 replacements",
    ),
    "paddlenlp": (
        "paddlenlp",
        {"conversation": ["{{user}}", "{{bot}}"], "query": "{{query}}" * 1_000},
        "query has 1,000 tags; at most 100 are read",
    ),
    "llamafactory": (
        "llamafactory",
        {"format_user": ["{{content}}" * 1_000]},
        "format_user has 1,000 slots; at most 100 are read",
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_a_thousand_placeholders(name: str) -> None:
    """Each would be compiled: a template of a few kilobytes would take longer than one of a megabyte."""
    dialect, source, message = MANY[name]

    def refuse() -> None:
        with pytest.raises(turnwise.SourceError) as caught:
            turnwise.compile(source, dialect=dialect)
        assert message in str(caught.value)

    assert_quick(refuse, 1)


@pytest.mark.parametrize("key", ["plugin", "interpreter", "environment", "meta_instruction"])
@pytest.mark.parametrize("exact", [False, True])
def test_fields_that_are_null(key: str, exact: bool) -> None:
    try:
        template = turnwise.compile({key: None}, dialect="internlm2", exact=exact)
    except turnwise.SourceError as error:
        assert f"'{key}'" in str(error)
    else:
        assert "hi" in str(template.render([{"role": "user", "content": "hi"}]))


def test_a_million_braces() -> None:
    source = {"INSTRUCTION": "{input}" + "{" * 1_000_000}
    assert_quick(lambda: turnwise.compile(source, dialect="xtuner"), 2)
    template = turnwise.compile(source, dialect="xtuner")
    wide = template.with_limits(turnwise.Limits(output=1_000_000))
    assert str(wide.render([{"role": "user", "content": "a"}])) == "a" + "{" * 500_000
    with pytest.raises(turnwise.TemplateLimitError):
        template.render([{"role": "user", "content": "a"}])

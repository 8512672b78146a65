"""Sources of other dialects that somebody made to stall their reader: refused with a reason, and soon."""

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


def test_a_million_braces() -> None:
    source = {"INSTRUCTION": "{input}" + "{" * 1_000_000}
    assert_quick(lambda: turnwise.compile(source, dialect="xtuner"), 2)
    text = str(
        turnwise.compile(source, dialect="xtuner").render([{"role": "user", "content": "a"}])
    )
    assert text == "a" + "{" * 500_000

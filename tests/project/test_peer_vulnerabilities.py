"""What went wrong in other software that renders templates or parses replies, tried here by its public name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import turnwise
from timing import assert_linear

CHAT: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"x": {"type": "object"}}},
    },
}

# Templates that reached Python's internals through the sandbox of jinja2, or had no sandbox to pass.
ESCAPES = {
    "CVE-2024-56326: str.format kept in a variable": (
        "{% set f = '{0.__class__.__mro__}'.format %}{{ f(messages) }}"
    ),
    "CVE-2024-56326: format passed to a filter": (
        "{{ ['{0.__class__}'.format]|map('string')|list }}{{ '{0.__class__.__base__}'.format(cycler) }}"
    ),
    "CVE-2024-56326: format_map": "{{ '{a.__class__}'.format_map({'a': messages}) }}",
    "CVE-2025-27516: attr finds format": "{{ ('{0.__globals__}'|attr('format'))(cycler) }}",
    "CVE-2025-27516: attr finds __class__": "{{ ''|attr('__class__')|attr('__mro__') }}",
    "CVE-2025-27516: map by attribute": "{{ ['{0.__class__}']|map(attribute='format')|first }}",
    "CVE-2024-34359: subclasses": (
        "{% for c in ().__class__.__base__.__subclasses__() %}{{ c.__init__.__globals__['sys'] }}{% endfor %}"
    ),
    "CVE-2024-34359: globals of cycler": (
        "{{ cycler.__init__.__globals__.os.popen('echo PWNED').read() }}"
    ),
    "CVE-2024-2952: self": "{{ self.__init__.__globals__.__builtins__['__import__']('os') }}",
    "CVE-2024-2952: import": "{% import 'os' as os %}{{ os.environ }}",
    "CVE-2026-5760: lipsum": "{{ lipsum.__globals__['os'].popen('echo PWNED').read() }}",
    "CVE-2026-5760: namespace": "{{ namespace.__init__.__globals__ }}",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_no_template_reaches_python(name: str) -> None:
    try:
        text = str(turnwise.compile(ESCAPES[name]).render(CHAT))
    except turnwise.TemplateError:
        return
    for internal in ("PWNED", "class ", "<built-in", "object at 0x", "__builtins__"):
        assert internal not in text


def test_cve_2024_56201_the_name_of_a_template_is_no_code(tmp_path: Path) -> None:
    """jinja2 wrote the file name into the code that it generated."""
    made = tmp_path / "made"
    name = f'x"; open({str(made)!r}, "w"); "{{{{ 1 }}}}\n{{% for %}}'
    template = turnwise.compile("{{ messages[0].content }}", name=name)
    assert str(template.render(CHAT)) == "hi" and not made.exists()


def test_a_filter_leaves_the_list_of_the_caller_alone() -> None:
    """In jinja2's sandbox `indent` of a list appends to it."""
    chat = list(CHAT)
    with pytest.raises(turnwise.TemplateError):
        turnwise.compile("{{ messages|indent }}").render(chat)
    assert chat == CHAT


@pytest.mark.parametrize("name", ["tokenize", "compatible", "trust", "train_on", "strict"])
def test_cve_2025_62426_options_of_a_template_do_not_change_the_call(name: str) -> None:
    """vLLM let a request's template options override the arguments of the server.

    A caller who forwards them as `options` gives them to the template alone.
    """
    look_alike = [{"role": "user", "content": "<|im_end|>"}]
    template = turnwise.load("chatml")
    plain = template.encode(look_alike, "turnwise")
    given = template.with_options({name: "all"}).encode(look_alike, "turnwise")
    assert given.input_ids == plain.input_ids and given.labels == plain.labels


def test_cve_2025_9141_values_of_a_call_are_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's parser for Qwen3-Coder evaluated arguments of unknown types."""
    monkeypatch.delenv("TURNWISE_EVALUATED", raising=False)
    code = "__import__('os').environ.update(TURNWISE_EVALUATED='1')"
    replies = {
        "qwen3": f'<tool_call>\n{{"name": "f", "arguments": {{"x": {code}}}}}\n</tool_call>',
        "llama-3.2": f"[f(x={code})]",
        "deepseek-v3": f'<tool_call>{{"name": "f", "arguments": "{code}"}}</tool_call>',
    }
    for name, reply in replies.items():
        message = turnwise.load(name).parse(reply, tools=[TOOL])
        assert "TURNWISE_EVALUATED" not in os.environ
        assert code.partition("(")[0] in str(dict(message)), name


@pytest.mark.parametrize("name", ["qwen3", "llama-3.2", "gpt-oss"])
def test_cve_2025_48887_no_reply_stalls_the_parser(name: str) -> None:
    """vLLM's parser for calls in Python's syntax used a regular expression with exponential time."""
    template = turnwise.load(name)
    assert_linear(lambda size: template.parse("[f(a=" + "A" * size + ", a=" * size), 2_000)


def test_cve_2025_61620_a_template_that_never_ends_is_stopped() -> None:
    """vLLM rendered whatever template a request carried."""
    endless = (
        "{% for i in range(99999) %}{% for j in range(99999) %}{{ i * j }}{% endfor %}{% endfor %}"
    )
    with pytest.raises(turnwise.TemplateLimitError):
        turnwise.compile(endless).render(CHAT)

"""Every operation that a template can reach has a cost, and pays it before it runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

import turnwise
from turnwise.engine.runtime.costs import charge_call, template_filter
from turnwise.engine.runtime.limits import Limits, Runtime
from turnwise.engine.runtime.measures import (
    charge_keys,
    charge_search,
    charge_value,
    count_lines,
    search_bytes,
)


def test_a_filter_without_a_cost_is_refused() -> None:
    with pytest.raises(TypeError, match="cost"):
        template_filter("new")  # type: ignore[call-arg]


def test_a_call_pays_before_it_runs() -> None:
    called: list[Any] = []

    def run(rt: Runtime, value: Any, trail: Any) -> None:
        called.append(value)

    with pytest.raises(turnwise.TemplateLimitError):
        charge_call(run, 1 << 62)(runtime(), "abc", None)
    assert not called
    assert spend(charge_call(run, 100, (2, 10)), "abc", None) == (6, 130)
    assert called == ["abc"]


# ---- measures ----


def runtime(**limits: int) -> Runtime:
    return Runtime(Limits(**limits), {}, datetime.now)


def spend(pay: Any, *arguments: Any) -> tuple[int, int]:
    """Return the steps and bytes that a charge takes from budgets without end."""
    rt = runtime(steps=1 << 60, bytes=1 << 60)
    pay(rt, *arguments)
    return (1 << 60) - rt.steps, (1 << 60) - rt.bytes


def nest_doubled(times: int) -> list[Any]:
    value: list[Any] = ["x"]
    for _ in range(times):
        value = [value, value]
    return value


def test_a_shared_value_counts_as_often_as_it_is_read() -> None:
    assert spend(charge_value, nest_doubled(10))[1] > 2**10
    with pytest.raises(turnwise.TemplateLimitError):
        charge_value(runtime(), nest_doubled(100))


def test_texts_count_by_their_length() -> None:
    assert spend(charge_value, ["a" * 1000])[1] >= 1000
    assert spend(charge_value, [["a" * 1000] * 1000])[1] >= 1_000_000
    assert spend(charge_value, {"a" * 1000: {"b" * 1000: 1}})[1] >= 2000


def test_keys_that_may_collide_cost_their_square() -> None:
    hostile = [number * (2**61 - 1) for number in range(10, 1010)]
    assert spend(charge_keys, hostile)[1] > 1000 * 1000
    assert spend(charge_keys, [(number, "") for number in range(1000)])[1] > 1000 * 1000
    assert spend(charge_keys, list(range(1000)))[1] == 0
    assert spend(charge_keys, [str(number) for number in range(1000)])[1] == 0


def test_a_search_costs_the_product() -> None:
    needle = "a" * 49 + "b" + "a" * 49
    assert search_bytes("a" * 20_000, needle) > 20_000 * len(needle) // 10
    assert search_bytes("a" * 20_000, "a" * 10_000, backwards=True) > 20_000 * 1000
    assert search_bytes("hello " * 1000, "</think>") <= 3 * 6000
    assert search_bytes("short", "a" * 10_000) < 10


def test_equal_long_texts_are_compared_and_others_are_not() -> None:
    texts = ["a" * 1_000_000] * 100
    assert spend(charge_search, texts, "a" * 999_999 + "b")[1] > 10_000_000
    assert spend(charge_search, texts, "a" * 999_998)[1] == 0


def test_all_line_breaks_count() -> None:
    text = "a\nb\rc\vd\fe\x1cf\x1dg\x1eh\x85i\u2028j\u2029k"
    assert count_lines(text) == len(text.splitlines())


# ---- operations that cost much for their size end in an error of ours ----

BOUNDED = {
    "strip": "{% set z = ('a'*200000).strip('b'*200000 ~ 'a') %}ok",
    "integer": "{{ ('f'*400)|int(0, 16) }}",
    "literal": "{{ 1" + "0" * 400 + " }}",
    "product": "{% set n = namespace(x=3) %}{% for i in range(20) %}{% set n.x = n.x * n.x %}{% endfor %}{{ n.x }}",
    "width": "{{ '{:>000000000000300000000}'.format('a') }}",
    "percent": "{{ '%999999999d' % 1 }}",
    "indent": "{{ ('\r'*10000)|indent(30000, blank=true) }}",
    "fold": "{{ (['A'*1000000]*300)|sort }}",
    "path": "{{ ('a'*1000)|map(attribute='0.'*2000 ~ '0')|list }}",
    "keywords": "{% set d = dict.fromkeys(range(20000)|map('string')|list) %}"
    "{% for i in range(500) %}{% set n = namespace(**d) %}{% endfor %}",
    "lookups": "{% for i in range(100000) %}{% if messages == messages|list %}{% endif %}{% endfor %}",
    "test": "{% for i in range(9999) if (" + "i==1," * 2000 + ")|length < 0 %}{% endfor %}",
    "else": "{% for i in range(9999) %}{% for j in [] %}{% else %}"
    + "{{ i == 1 }}" * 1000
    + "{% endfor %}{% endfor %}",
    "default": "{% macro m(i, a=(" + "i==1," * 2000 + ")) %}{% endmacro %}"
    "{% for i in range(9999) %}{{ m(i) }}{% endfor %}",
    "first": "{% set d = dict.fromkeys(range(20000)) %}{% for i in range(9999) %}{% set x = d|first %}{% endfor %}",
}


@pytest.mark.parametrize("name", BOUNDED)
def test_work_is_charged_by_size(name: str) -> None:
    with pytest.raises((turnwise.TemplateLimitError, turnwise.TemplateSyntaxError)):
        turnwise.compile(BOUNDED[name]).render([{"role": "user", "content": "x"}])


def test_integers_of_the_input_are_printed_and_not_calculated_with() -> None:
    huge = 7**1000
    chat = [{"role": "user", "content": "x", "n": huge}]
    assert turnwise.compile("{{ messages[0].n }}").render(chat).text == str(huge)
    assert turnwise.compile("{{ messages[0].n|tojson }}").render(chat).text == str(huge)
    for use in ("n + 1", "n * 2", "-n", "n // 3", "n|abs", "n is divisibleby 3", "n % 7"):
        template = turnwise.compile("{% set n = messages[0].n %}{{ " + use + " }}")
        with pytest.raises(turnwise.TemplateLimitError):
            template.render(chat)

"""The largest templates that are compiled take little time, whatever they are made of, and time grows with the size.

A shape is something that can be written again and again. How often is read off the limits: a short template of the
shape shows how many tokens, nodes and lines one more of it takes, so the sizes follow when a limit is changed.

The limits leave room for 1.7 times the largest published template, which itself takes about 100 ms. So a template at
its limits takes up to 320 ms, and one beyond them is refused in less than 100.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import turnwise
from containment import Bounds, find_problems, measure_in_child
from turnwise.engine.compiler.syntax import TokenScan, parse
from turnwise.engine.compiler.tree import walk
from turnwise.engine.program import Program
from turnwise.engine.runtime import limits

pytestmark = pytest.mark.once

Shape = Callable[[int], str]
SHAPES: dict[str, Shape] = {
    "calls": lambda n: "{{ f(x) }}" * n,
    "calls between lookups": lambda n: "".join(
        f"{{{{ messages[0].k{i} }}}}{{{{ f() }}}}" for i in range(n)
    ),
    "filters": lambda n: "{{ x|upper }}" * n,
    "chained filters": lambda n: "{{ x|upper|trim|lower|length|string }}" * n,
    "methods": lambda n: "{{ x.strip('a') }}" * n,
    "loops": lambda n: "{% for m in messages %}{{ m.content }}{% endfor %}" * n,
    "loops after lookups": lambda n: (
        "".join(f"{{{{ x['k{i}'] }}}}" for i in range(n)) + "{% for a in x %}{% endfor %}" * n
    ),
    "loops that assign": lambda n: "{% for m in messages %}{% set b = m %}{% endfor %}" * n,
    "loops that test": lambda n: (
        "{% for m in messages if m.role %}{{ loop.index }}{% else %}x{% endfor %}" * n
    ),
    "dict": lambda n: "{{ {" + ", ".join(f"'k{i}': {i}" for i in range(n)) + "} }}",
    "list": lambda n: "{{ [" + ", ".join(map(str, range(n))) + "] }}",
    "ifs": lambda n: "{% if x %}y{% endif %}" * n,
    "ifs with else": lambda n: "{% if x == 'a' %}y{% elif x is none %}z{% else %}w{% endif %}" * n,
    "ifs in a loop": lambda n: (
        "{% for m in messages %}"
        + "{% if m.role == 'a' %}{{ m.content }}{% endif %}" * n
        + "{% endfor %}"
    ),
    "ternaries": lambda n: "{{ a if b else c }}" * n,
    "sets": lambda n: "".join(f"{{% set v{i % 300} = x %}}" for i in range(n)),
    "sets of one name": lambda n: "{% set a = a %}" * n,
    "set blocks": lambda n: "{% set a %}x{% endset %}" * n,
    "namespaces": lambda n: "{% set ns = namespace(a=1) %}" + "{% set ns.a = ns.a + 1 %}" * n,
    "macros": lambda n: "".join(
        f"{{% macro m{i}(a, b=1) %}}{{{{ a }}}}{{% endmacro %}}" for i in range(min(n, 380))
    ),
    "macro calls": lambda n: "{% macro m(a) %}{{ a }}{% endmacro %}" + "{{ m(x) }}" * n,
    "call blocks": lambda n: (
        "{% macro m() %}{{ caller() }}{% endmacro %}" + "{% call m() %}x{% endcall %}" * n
    ),
    "joined texts": lambda n: "{{ " + " ~ ".join(["x"] * n) + " }}",
    "sums": lambda n: "{{ 'a' + x + 'b' + y + z }}" * n,
    "conditions": lambda n: "{{ x and y or z }}" * n,
    "comparisons": lambda n: "{{ a < b }}{{ a in b }}{{ a == 'c' }}" * n,
    "tests": lambda n: "{{ x is defined }}{{ x is string }}" * n,
    "slices": lambda n: "{{ x[1:2] }}{{ 'abc'[1:] }}" * n,
    "lookups": lambda n: "{{ messages[0].content }}{{ messages[-1]['role'] }}" * n,
    "lookups of lookups": lambda n: "{{ x.a.b.c.d.e.f.g.h }}" * n,
    "scopes": lambda n: "{% with a = 1 %}{{ a }}{% endwith %}" * n,
    "filter blocks": lambda n: "{% filter upper %}x{% endfilter %}" * n,
    "names": lambda n: "".join(f"{{{{ n{i % 390} }}}}" for i in range(n)),
    "texts": lambda n: "".join(f"text {i}{{{{ x }}}}" for i in range(n)),
    "lines": lambda n: "\n{{ x }}\n  {%- if y %}\n z\n{%- endif %}\n" * n,
    "comments": lambda n: "{# x #}y" * n,
}
SMALL = 40
BOUNDS = {"largest": Bounds(ms=320), "too large": Bounds()}


def measure(text: str) -> list[int]:
    """Return how much of each limit a template takes."""
    scanned = TokenScan(text).scan()
    parsed = [kind for _, kind, _ in scanned if kind not in ("comment", "data", "whitespace")]
    program = Program(text, "template", frozenset())
    count = sum(1 for _ in walk(parse(text, "template")))
    return [len(scanned), len(parsed), count, program.python.count("\n"), len(program.python)]


def largest(shape: Shape) -> int:
    """Return about how often a shape can be written before a limit is reached."""
    allowed = [
        limits.MAX_SCANNED_TOKENS,
        limits.MAX_TEMPLATE_TOKENS,
        limits.MAX_TEMPLATE_NODES,
        limits.MAX_PROGRAM_LINES,
        limits.MAX_PROGRAM_CHARACTERS,
    ]
    few, many = measure(shape(SMALL)), measure(shape(2 * SMALL))
    growth = [max((b - a) / SMALL, 1e-3) for a, b in zip(few, many, strict=True)]
    return int(min((limit - a) / g for limit, a, g in zip(allowed, few, growth, strict=True)))


def compile_step(text: str) -> Callable[[dict[str, Any]], object]:
    return lambda state: Program(text, "template", frozenset())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if number % 9 == 0 else pytest.mark.slow)
        for number, name in enumerate(SHAPES)
    ],
)
def test_the_largest_template_is_compiled_quickly(name: str) -> None:
    """Just below the limits, and far above them: then it is refused, in no more time."""
    count = int(0.97 * largest(SHAPES[name]))
    texts = {"largest": SHAPES[name](count), "too large": SHAPES[name](4 * count)}
    steps = {size: compile_step(text) for size, text in texts.items()}
    assert not find_problems(steps, BOUNDS)


@pytest.mark.law
def test_the_limits_are_reached(sample: Any) -> None:
    """The sizes are not far from what is refused, or the test above would show little."""
    refused, shapes = 0, sample(SHAPES.values(), 5)
    for shape in shapes:
        try:
            Program(shape(int(1.1 * largest(shape)) + 10), "template", frozenset())
        except turnwise.TurnwiseError:
            refused += 1
    assert refused >= 0.8 * len(shapes)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_time_grows_with_the_size(name: str) -> None:
    count = largest(SHAPES[name])
    steps = {
        f"{size} {attempt}": compile_step(SHAPES[name](count // size))
        for attempt in range(5)
        for size in (1, 2)
    }
    found, _ = measure_in_child(steps, dict.fromkeys(steps, Bounds(ms=1000)))
    whole, half = (
        min(one.ms for step, one in found.items() if step.startswith(f"{size} ")) for size in (1, 2)
    )
    assert whole < 2.3 * half + 3, (half, whole)

"""Grammars of large schemas: time and size grow with the schema, and what they accept stays the same."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from gbnf_reader import read_gbnf
from loaded import load_entry
from timing import assert_quick, processor_seconds
from tool_values import ACCEPTED, REFUSED, reply_with, shared_definitions, tool_of
from turnwise.replies.export.constraint_tree import MAX_REPEATED_DEFINITIONS, NumberType
from turnwise.replies.export.lark import pattern_of
from turnwise.replies.export.value_nodes import number_node

METHODS = ("to_structural_tag", "to_lark", "to_gbnf")
TEMPLATES = ("qwen3", "glm-4.5", "gemma-4")  # JSON, tagged with JSON, and a notation of its own
MAX_GROWTH = 3.0  # for twice the schema: linear is 2, quadratic 4


def chain_of_objects(size: int) -> list[Any]:
    """Each definition has a member of the next, and each argument begins at another place of the chain."""
    definitions: dict[str, Any] = {f"d{size}": {"type": "string"}}
    for index in range(size):
        following = {"$ref": f"#/$defs/d{index + 1}"}
        definitions[f"d{index}"] = {"type": "object", "properties": {"x": following}}
    order = range(size, -1, -1)
    return tool_of({f"p{index}": {"$ref": f"#/$defs/d{index}"} for index in order}, definitions)


def chain_of_references(size: int) -> list[Any]:
    definitions: dict[str, Any] = {f"d{size}": {"type": "string"}}
    definitions |= {f"d{index}": {"$ref": f"#/$defs/d{index + 1}"} for index in range(size)}
    order = range(size, -1, -1)
    return tool_of({f"p{index}": {"$ref": f"#/$defs/d{index}"} for index in order}, definitions)


def optional_members(size: int) -> list[Any]:
    return tool_of({f"p{index}": {"type": "string"} for index in range(size)}, {})


SCHEMAS = {
    "objects": (chain_of_objects, 95),
    "references": (chain_of_references, 95),
    "members": (optional_members, 150),
}


def write_grammar(name: str, method: str, tools: list[Any]) -> str:
    return str(getattr(load_entry(name).grammar, method)(tools, "required"))


@pytest.mark.once
@pytest.mark.law
@pytest.mark.parametrize("kind", SCHEMAS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_large_schema_takes_its_share(name: str, method: str, kind: str) -> None:
    make, size = SCHEMAS[kind]
    short, long = (partial(write_grammar, name, method, make(n)) for n in (size, 2 * size))
    length, longer = len(short()), len(long())
    assert longer < MAX_GROWTH * length, (name, length, longer)
    assert_quick(long, MAX_GROWTH * min(processor_seconds(short) for _ in range(2)) + 0.01)


# -- definitions that many values refer to are written once, and mean the same


@pytest.mark.once
@pytest.mark.parametrize("name", ["glm-4.5", "qwen3-coder"])
@pytest.mark.parametrize("count", [8, MAX_REPEATED_DEFINITIONS + 8])
def test_shared_definitions(count: int, name: str) -> None:
    llguidance = pytest.importorskip("llguidance")
    grammar, tools = load_entry(name).grammar, shared_definitions(count)
    lark = grammar.to_lark(tools, "required", reasoning=False)
    assert ("$defs" in lark) == (count <= MAX_REPEATED_DEFINITIONS)
    compiled = llguidance.LLMatcher.grammar_from_lark(lark)
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), compiled)
    assert not matcher.is_error(), matcher.get_error()
    gbnf = read_gbnf(grammar.to_gbnf(tools, "required", reasoning=False).grammar)
    for arguments in (*ACCEPTED, *REFUSED):
        reply, copy = reply_with(grammar, arguments), matcher.deep_copy()
        ids = list(reply.encode())
        is_accepted = copy.try_consume_tokens(ids) == len(ids) and copy.is_accepting()
        assert is_accepted is gbnf.accepts(reply) is (arguments in ACCEPTED), arguments


# -- the bounds of numbers


def draw_number(random: random.Random) -> float:
    whole = random.choice([random.randint(-12, 12), random.randint(-300, 300)])
    places = random.choice([0, 0, 1, 2, 3])
    return round(whole + random.random(), places) if places else whole


def draw_bounds(random: random.Random) -> NumberType:
    low, high = sorted((draw_number(random), draw_number(random)))
    has_low, has_high = random.choice([(True, True), (True, False), (False, True)])
    can_exclude = low < high
    return NumberType(
        False,
        low if has_low else None,
        high if has_high else None,
        has_low and can_exclude and random.random() < 0.3,
        has_high and can_exclude and random.random() < 0.3,
    )


def is_within(number: Decimal, value: NumberType) -> bool:
    if value.minimum is not None:
        low = Decimal(str(value.minimum))
        if number < low or (value.excludes_minimum and number == low):
            return False
    if value.maximum is None:
        return True
    high = Decimal(str(value.maximum))
    return number < high or (number == high and not value.excludes_maximum)


@pytest.mark.parametrize("seed", range(3))
def test_the_bounds_of_a_number_with_a_fraction(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        value = draw_bounds(chance)
        pattern = re.compile(pattern_of(number_node(value)))
        near = [one for one in (value.minimum, value.maximum) if one is not None]
        near += [round(one + step, 6) for one in near for step in (0.001, -0.001, 0.1, 1, -1)]
        for number in (*near, *(draw_number(chance) for _ in range(40))):
            text = str(Decimal(str(number)))
            if not Decimal(text).is_signed() or Decimal(text):  # -0 is not written
                longer = text + ("0" if "." in text else ".0")
                for spelling in (text, longer):
                    expected = is_within(Decimal(spelling), value)
                    assert bool(pattern.fullmatch(spelling)) is expected, (value, spelling)

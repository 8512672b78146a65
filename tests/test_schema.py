"""The schema checker: errors name the path, what was found and what is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.errors import SourceError
from turnwise.schema import (
    BOOLEAN,
    COUNT,
    NUMBER,
    STRING,
    STRINGS,
    TABLE,
    ValueRule,
    check,
    check_table,
    list_of,
    one_of,
    or_null,
)

RULES = {
    "name": STRING,
    "stops": STRINGS,
    "sep": or_null(STRING),
    "style": one_of(["plain", "chatml"]),
    "pair": list_of(STRING, "a list of two strings", length=2),
}


@pytest.mark.parametrize(
    ("value", "rule", "problem"),
    [
        (5, STRING, "x must be a string, not 5"),
        (None, STRING, "x must be a string, not None"),
        (5, or_null(STRING), "x must be a string or null, not 5"),
        (1, BOOLEAN, "x must be true or false, not 1"),
        (True, COUNT, "x must be a whole number from 0 up, not True"),
        (-1, COUNT, "x must be a whole number from 0 up, not -1"),
        (True, NUMBER, "x must be a number, not True"),
        ([], TABLE, "x must be a mapping, not []"),
        ("ab", STRINGS, "x must be a list of strings, not 'ab'"),
        (["a", 1], STRINGS, "x[1] must be a string, not 1"),
        (["a", None], or_null(STRINGS), "x[1] must be a string, not None"),
        (["a"], RULES["pair"], "x must be a list of two strings, not ['a']"),
        ("chatlm", RULES["style"], "x must be one of plain, chatml, not 'chatlm'"),
        ([["a"], [2]], list_of(STRINGS, "a list of lists"), "x[1][0] must be a string, not 2"),
    ],
)
def test_a_value_that_is_refused(value: Any, rule: ValueRule, problem: str) -> None:
    with pytest.raises(SourceError) as caught:
        check(value, rule, "x")
    assert caught.value.message == problem


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("", STRING),
        (None, or_null(STRING)),
        (None, or_null(STRINGS)),
        (0, COUNT),
        (0.5, NUMBER),
        (("a", "b"), STRINGS),
        (("a", "b"), RULES["pair"]),
        ("plain", RULES["style"]),
    ],
)
def test_a_value_that_is_accepted(value: Any, rule: ValueRule) -> None:
    assert check(value, rule, "x") is value


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (5, "the source must be a mapping, not 5", ""),
        ({"nmae": "x"}, "unknown key 'nmae'", "Did you mean 'name'?"),
        ({5: "x"}, "unknown key 5", "Keys: name"),
        ({"name": 5}, "name must be a string, not 5", ""),
        ({"sep": "x"}, "the key 'name' is missing", "Keys: name"),
        ({"name": "x", "style": "plane"}, "style must be", "Did you mean 'plain'?"),
    ],
)
def test_a_table_that_is_refused(data: Any, message: str, hint: str) -> None:
    with pytest.raises(SourceError) as caught:
        check_table(data, RULES, required=["name"])
    assert caught.value.message.startswith(message)
    assert hint in (caught.value.hint or "")


def test_nulls_are_missing_keys_only_where_they_are_skipped() -> None:
    data = {"name": "x", "stops": None, "sep": None}
    assert check_table(data, RULES, skip_nulls=True) == {"name": "x"}
    with pytest.raises(SourceError, match="stops must be a list of strings, not None"):
        check_table(data, RULES)
    with pytest.raises(SourceError, match="the key 'name' is missing"):
        check_table({"name": None}, RULES, required=["name"], skip_nulls=True)

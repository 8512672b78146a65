"""Check data that people wrote by hand (TOML, JSON, a dict in their code) against rules.

A `ValueRule` is a test with the words for the error. A table of rules checks a mapping:

    RULES = {"name": STRING, "stops": STRINGS, "sep": or_null(STRING), "style": one_of(["a", "b"])}
    check_table({"name": "x", "stops": 5}, RULES, required=["name"])

    SourceError: stops must be a list of strings, not 5

The error names the path, what was found and what is accepted; a misspelt key or choice gets a "did
you mean". A rule looks at one value: what must hold between several values is up to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from turnwise.errors import MessageError, SourceError, did_you_mean, short_repr

MAX_CHOICES_IN_MESSAGE = 5  # more are listed in the hint only


class ValueRule(NamedTuple):
    """What a value must be."""

    expected: str  # completes "must be ..."
    accepts: Callable[[Any], bool]
    item: ValueRule | None = None  # holds for every item of a list
    choices: tuple[str, ...] = ()  # all accepted values, where they can be listed


ANYTHING = ValueRule("anything", lambda value: True)
STRING = ValueRule("a string", lambda value: isinstance(value, str))
NON_EMPTY_STRING = ValueRule(
    "a string that is not empty", lambda value: isinstance(value, str) and value != ""
)
BOOLEAN = ValueRule("true or false", lambda value: isinstance(value, bool))
NUMBER = ValueRule("a number", lambda value: type(value) in (int, float))
COUNT = ValueRule("a whole number from 0 up", lambda value: type(value) is int and value >= 0)
TABLE = ValueRule("a mapping", lambda value: isinstance(value, Mapping))


def list_of(item: ValueRule, expected: str, length: int | None = None) -> ValueRule:
    """Return the rule for a list (or tuple) of `item`; of exactly `length` items, if given."""

    def accepts(value: Any) -> bool:
        return isinstance(value, list | tuple) and length in (None, len(value))

    return ValueRule(expected, accepts, item)


STRINGS = list_of(STRING, "a list of strings")


def or_null(rule: ValueRule) -> ValueRule:
    """Return the rule that also accepts null."""
    return rule._replace(
        expected=f"{rule.expected} or null",
        accepts=lambda value: value is None or rule.accepts(value),
    )


def one_of(choices: Iterable[str]) -> ValueRule:
    """Return the rule for a string out of a list."""
    known = tuple(choices)
    is_short = len(known) <= MAX_CHOICES_IN_MESSAGE
    return ValueRule(
        f"one of {', '.join(known)}" if is_short else "one of the accepted names",
        lambda value: isinstance(value, str) and value in known,
        choices=known,
    )


def check(value: Any, rule: ValueRule, path: str) -> Any:
    """Return `value` if `rule` accepts it and its items.

    Raises:
        SourceError: names `path`, the value and what is accepted.
    """
    if not rule.accepts(value):
        hint = did_you_mean(value if isinstance(value, str) else "", rule.choices, "Accepted")
        raise SourceError(f"{path} must be {rule.expected}, not {short_repr(value)}", hint=hint)
    if rule.item is not None and value is not None:
        for index, item in enumerate(value):
            check(item, rule.item, f"{path}[{index}]")
    return value


def check_name(
    name: Any,
    known: Collection[str],
    problem: str,
    listed: str,
    error: Any = MessageError,
    **place: str,
) -> None:
    """Raise an error of a class for a name that is not `known`.

    Args:
        name: the name.
        known: the names that are accepted.
        problem: comes before the name in the error.
        listed: comes before the known names in the hint.
        error: the class of the error.
        place: other arguments of that class, such as `path`.
    """
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(str(name), known, listed)
        raise error(f"{problem} {short_repr(name)}", hint=hint, **place)


def check_keys(keys: Iterable[Any], known: Collection[str], problem: str = "unknown key") -> None:
    """Raise a SourceError for the first of `keys` that is not `known`."""
    for key in keys:
        check_name(key, known, problem, "Keys", SourceError)


def check_table(
    data: Any,
    rules: Mapping[str, ValueRule],
    required: Iterable[str] = (),
    skip_nulls: bool = False,
) -> dict[str, Any]:
    """Check every key and value of a mapping.

    Args:
        data: the mapping.
        rules: a rule for each key that it may have.
        required: keys that it must have.
        skip_nulls: take a null for a missing key.

    Returns:
        A new dict of the same keys and values, without nulls if they are skipped.
    """
    check(data, TABLE, "the source")
    check_keys(data, rules)
    given = {key: value for key, value in data.items() if not (skip_nulls and value is None)}
    for key, value in given.items():
        check(value, rules[key], key)
    for key in required:
        if key not in given:
            hint = f"Keys: {', '.join(rules)}."
            raise SourceError(f"the key {key!r} is missing", hint=hint)
    return given

"""The cost of every operation that a template can reach, in one table.

An entry says what an operation costs before it runs:

    CONSTANT          no more than its node in the program is charged for (`compiler/cost.py`)
    COMPOSED          it consists of operations with entries of their own, which pay
    Cost(steps)       constant, but much: setting up a regular expression, a call per element
    Cost(steps, pay)  `pay` measures the arguments and charges by their sizes

`pay` (in `charges.py`) takes the same arguments as the operation. `attach_costs` puts both together; an operation
without an entry, or an entry without an operation, is an error when the package is imported.

Units: a step is at most 100 ns, a byte at most 5 ns and at least one byte of memory. What depends on
an intermediate result (the printed parts of a format) is paid where that result is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any, NamedTuple, TypeVar

from turnwise.engine.runtime.charges import (
    pay_affix,
    pay_arithmetic,
    pay_batch,
    pay_call,
    pay_case,
    pay_change,
    pay_dict,
    pay_division,
    pay_elements,
    pay_entries,
    pay_equality,
    pay_escape,
    pay_expandtabs,
    pay_find,
    pay_find_backwards,
    pay_format,
    pay_format_map,
    pay_from_json,
    pay_from_keys,
    pay_indent,
    pay_join_method,
    pay_key,
    pay_modulo,
    pay_new_elements,
    pay_number,
    pay_padding,
    pay_partition,
    pay_percent_filter,
    pay_power,
    pay_printed,
    pay_printed_test,
    pay_product,
    pay_references,
    pay_replace,
    pay_rpartition,
    pay_rsplit,
    pay_search,
    pay_slice,
    pay_split,
    pay_splitlines,
    pay_strftime,
    pay_strip,
    pay_striptags,
    pay_title,
    pay_truncate,
    pay_urlencode,
    pay_whole,
    pay_wordcount,
    pay_wordwrap,
)
from turnwise.engine.runtime.limits import Runtime
from turnwise.engine.runtime.values import Cycler, Loop


class Cost(NamedTuple):
    """What an operation costs: a number of steps, and a function that charges by size."""

    steps: int
    pay: Callable[..., None] | None = None


CONSTANT = Cost(0)
COMPOSED = Cost(0)
Operation = TypeVar("Operation", bound=Callable[..., Any])


def attach_costs(
    costs: Mapping[str, Cost], operations: Mapping[str, Operation]
) -> dict[str, Operation]:
    """Return the operations, each charging its cost before it runs.

    Raises:
        TypeError: an operation has no entry, an entry no operation, or both take other arguments.
    """
    unmatched = costs.keys() ^ operations.keys()
    if unmatched:
        raise TypeError(f"not both an operation and a cost: {sorted(unmatched)}")
    return {name: attach_cost(name, costs[name], run) for name, run in operations.items()}


def attach_cost(name: str, cost: Cost, run: Any) -> Any:
    """Return an operation that charges its cost before it runs."""
    steps, pay = cost
    if pay is None and not steps:
        return run
    if pay is None:
        pay = _pay_nothing
    elif not _takes_arguments_of(pay, run):
        raise TypeError(f"{name}: the cost takes other arguments than the operation")

    @wraps(run)
    def charged(rt: Runtime, /, *args: Any, **kwargs: Any) -> Any:
        rt.steps -= steps
        if rt.steps < 0:
            rt.charge_steps(0)
        pay(rt, *args, **kwargs)
        return run(rt, *args, **kwargs)

    return charged


def _pay_nothing(rt: Runtime, *_: Any, **__: Any) -> None:
    pass


def _takes_arguments_of(pay: Callable[..., None], run: Callable[..., Any]) -> bool:
    """Return whether a cost can be called with whatever its operation can be called with."""
    parameters = list(signature(pay).parameters.values())
    if parameters[-1].kind is Parameter.VAR_KEYWORD:
        return True
    return [parameter.name for parameter in parameters] == list(signature(run).parameters)


STRING_COSTS: dict[str, Cost] = {
    "capitalize": Cost(4, pay_case),
    "casefold": Cost(4, pay_case),
    "center": Cost(4, pay_padding),
    "count": Cost(4, pay_find),
    "endswith": Cost(4, pay_affix),
    "expandtabs": Cost(4, pay_expandtabs),
    "find": Cost(4, pay_find),
    "format": Cost(20, pay_format),
    "format_map": Cost(20, pay_format_map),
    "index": Cost(4, pay_find),
    "isalnum": Cost(4, pay_whole),
    "isalpha": Cost(4, pay_whole),
    "isascii": CONSTANT,
    "isdecimal": Cost(4, pay_whole),
    "isdigit": Cost(4, pay_whole),
    "isidentifier": Cost(4, pay_whole),
    "islower": Cost(4, pay_whole),
    "isnumeric": Cost(4, pay_whole),
    "isprintable": Cost(4, pay_whole),
    "isspace": Cost(4, pay_whole),
    "istitle": Cost(4, pay_whole),
    "isupper": Cost(4, pay_whole),
    "join": Cost(8, pay_join_method),
    "ljust": Cost(4, pay_padding),
    "lower": Cost(4, pay_case),
    "lstrip": Cost(2, pay_strip),
    "partition": Cost(4, pay_partition),
    "removeprefix": Cost(4, pay_whole),
    "removesuffix": Cost(4, pay_whole),
    "replace": Cost(4, pay_replace),
    "rfind": Cost(4, pay_find_backwards),
    "rindex": Cost(4, pay_find_backwards),
    "rjust": Cost(4, pay_padding),
    "rpartition": Cost(4, pay_rpartition),
    "rsplit": Cost(4, pay_rsplit),
    "rstrip": Cost(2, pay_strip),
    "split": Cost(4, pay_split),
    "splitlines": Cost(8, pay_splitlines),
    "startswith": Cost(4, pay_affix),
    "strip": Cost(2, pay_strip),
    "swapcase": Cost(4, pay_case),
    "title": Cost(4, pay_case),
    "upper": Cost(4, pay_case),
    "zfill": Cost(4, pay_padding),
}

DICT_COSTS: dict[str, Cost] = {
    "copy": Cost(4, pay_entries),
    "get": Cost(0, pay_key),
    "items": Cost(8, pay_entries),
    "keys": Cost(8, pay_entries),
    "values": Cost(8, pay_entries),
    **dict.fromkeys(["clear", "pop", "popitem", "setdefault", "update"], CONSTANT),  # refused
}

TUPLE_COSTS: dict[str, Cost] = {
    "count": Cost(4, pay_search),
    "index": Cost(4, pay_search),
}

LIST_COSTS: dict[str, Cost] = {
    **TUPLE_COSTS,
    "copy": Cost(4, pay_references),
    **dict.fromkeys(["append", "clear", "extend", "insert"], CONSTANT),  # refused
    **dict.fromkeys(["pop", "remove", "reverse", "sort"], CONSTANT),
}

METHOD_COSTS: dict[type, dict[str, Cost]] = {
    str: STRING_COSTS,
    dict: DICT_COSTS,
    list: LIST_COSTS,
    tuple: TUPLE_COSTS,
    Loop: {"cycle": CONSTANT, "changed": Cost(4, pay_change)},
    Cycler: {"next": CONSTANT, "reset": CONSTANT},
}

FILTER_COSTS: dict[str, Cost] = {
    "abs": CONSTANT,
    "attr": COMPOSED,
    "batch": Cost(20, pay_batch),
    "capitalize": COMPOSED,
    "center": COMPOSED,
    "count": CONSTANT,
    "d": CONSTANT,
    "default": CONSTANT,
    "dictsort": Cost(30, pay_new_elements),
    "e": Cost(10, pay_escape),
    "escape": Cost(10, pay_escape),
    "filesizeformat": Cost(20, pay_number),
    "first": COMPOSED,
    "float": Cost(8, pay_number),
    "forceescape": Cost(10, pay_escape),
    "format": Cost(20, pay_percent_filter),
    "from_json": Cost(30, pay_from_json),
    "fromjson": Cost(30, pay_from_json),
    "groupby": Cost(30, pay_new_elements),
    "indent": Cost(10, pay_indent),
    "int": Cost(8, pay_number),
    "items": Cost(4, pay_entries),
    "join": Cost(10, pay_elements),
    "last": COMPOSED,
    "length": CONSTANT,
    "list": Cost(4, pay_references),
    "lower": COMPOSED,
    "map": Cost(10, pay_new_elements),
    "max": Cost(20, pay_elements),
    "min": Cost(20, pay_elements),
    "reject": Cost(10, pay_elements),
    "rejectattr": Cost(10, pay_elements),
    "replace": COMPOSED,
    "reverse": Cost(8, pay_references),
    "round": Cost(10),
    "safe": Cost(4, pay_printed),
    "select": Cost(10, pay_elements),
    "selectattr": Cost(10, pay_elements),
    "slice": Cost(20, pay_slice),
    "sort": Cost(20, pay_elements),
    "string": COMPOSED,
    "striptags": Cost(40, pay_striptags),
    "sum": Cost(10, pay_new_elements),
    "title": Cost(20, pay_title),
    "tojson": COMPOSED,  # `to_json` pays, and less for tools that were written before
    "trim": COMPOSED,
    "truncate": Cost(20, pay_truncate),
    "unique": Cost(10, pay_elements),
    "upper": COMPOSED,
    "urlencode": Cost(40, pay_urlencode),
    "wordcount": Cost(10, pay_wordcount),
    "wordwrap": Cost(200, pay_wordwrap),
}

COMPARISON_COST = Cost(2, pay_equality)
TEST_COSTS: dict[str, Cost] = {
    **dict.fromkeys(["defined", "undefined", "none", "string", "mapping"], CONSTANT),
    **dict.fromkeys(["boolean", "true", "false", "callable", "escaped"], CONSTANT),
    **dict.fromkeys(["integer", "float", "number", "iterable", "sequence"], CONSTANT),
    "sameas": CONSTANT,
    **dict.fromkeys(["divisibleby", "even", "odd"], Cost(2, pay_division)),
    **dict.fromkeys(["eq", "==", "equalto", "ne", "!=", "in"], COMPOSED),
    **dict.fromkeys(["lt", "<", "lessthan", "le", "<="], COMPOSED),
    **dict.fromkeys(["gt", ">", "greaterthan", "ge", ">="], COMPOSED),
    **dict.fromkeys(["lower", "upper"], Cost(4, pay_printed_test)),
}

OPERATOR_COSTS: dict[str, Cost] = {
    "Sub": Cost(2, pay_arithmetic),
    "Mul": Cost(2, pay_product),
    "Div": Cost(2, pay_arithmetic),
    "FloorDiv": Cost(2, pay_arithmetic),
    "Mod": Cost(2, pay_modulo),
    "Pow": Cost(4, pay_power),
}

FUNCTION_COSTS: dict[str, Cost] = {
    "cycler": Cost(4, pay_call),
    "dict": Cost(10, pay_dict),
    "joiner": Cost(8),
    "namespace": Cost(8, pay_dict),
    "raise_exception": CONSTANT,  # printing the message is paid for
    "range": Cost(8),
    "strftime_now": Cost(40, pay_strftime),
}
FROM_KEYS_COST = Cost(10, pay_from_keys)  # of `dict.fromkeys`

# The other names that generated code can use. What is COMPOSED charges in its own body.
NAME_COSTS: dict[str, Cost] = {
    **dict.fromkeys(
        ["get_attribute", "get_neighbour", "limit_error", "check_call_budget"], CONSTANT
    ),
    **dict.fromkeys(["apply_sign", "assign_attribute", "require_text"], CONSTANT),
    **dict.fromkeys(["unpack_values"], CONSTANT),  # as many as the template writes names for
    **dict.fromkeys(["get_item", "get_slice", "get_constant_slice", "charge_key"], COMPOSED),
    **dict.fromkeys(["start_loop", "start_message_loop", "pick_elements"], COMPOSED),
    **dict.fromkeys(["to_text", "to_texts", "concatenate", "add_values"], COMPOSED),
    **dict.fromkeys(["call_method", "call_value", "capture_output"], COMPOSED),
    **dict.fromkeys(["spread_arguments", "spread_keywords"], COMPOSED),
    **dict.fromkeys(["compare", "is_equal", "contains"], COMPOSED),
}

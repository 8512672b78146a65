"""The cost of every operation that a template can reach, in one table.

An entry says what an operation costs before it runs:

    CONSTANT          no more than its node in the program is charged for (`compiler/cost.py`)
    COMPOSED          it consists of operations with entries of their own, which pay
    Cost(fixed)       constant: the call, its result and trail, setting up a regular expression
    Cost(fixed, pay)  the same, and `pay` measures the arguments and charges by their sizes

`pay` (in `charges.py`) takes the same arguments as the operation. `attach_costs` puts both together; an operation
without an entry, or an entry without an operation, is an error when the package is imported.

Units: a step is at most 100 ns, a byte at most 5 ns and at least one byte of memory. What depends on
an intermediate result (the printed parts of a format) is paid where that result is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
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
    pay_keys,
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
    """What an operation costs: bytes for its call, result and trail, and a function for its sizes.

    The call is paid in bytes, not in steps, because only what is executed pays them: the steps of a
    loop are those of its most expensive round.
    """

    fixed: int
    pay: Callable[..., None] | None = None


CONSTANT = Cost(0)
COMPOSED = Cost(0)
Operation = TypeVar("Operation", bound=Callable[..., Any])


def attach_costs(
    costs: Mapping[str, Cost], operations: Mapping[str, Operation]
) -> dict[str, Operation]:
    """Return the operations, each charging its cost before it runs.

    Raises:
        TypeError: an operation has no entry, or an entry no operation.
    """
    unmatched = costs.keys() ^ operations.keys()
    if unmatched:
        raise TypeError(f"not both an operation and a cost: {sorted(unmatched)}")
    return {name: attach_cost(costs[name], run) for name, run in operations.items()}


def attach_cost(cost: Cost, run: Any) -> Any:
    """Return an operation that charges its cost before it runs."""
    fixed, pay = cost
    if pay is None and not fixed:
        return run
    if pay is None:
        pay = _pay_nothing

    @wraps(run)
    def charged(rt: Runtime, /, *args: Any, **kwargs: Any) -> Any:
        rt.bytes -= fixed
        if rt.bytes < 0:
            rt.charge_bytes(0)
        pay(rt, *args, **kwargs)
        return run(rt, *args, **kwargs)

    return charged


def _pay_nothing(rt: Runtime, *_: Any, **__: Any) -> None:
    pass


STRING_COSTS: dict[str, Cost] = {
    "capitalize": Cost(100, pay_case),
    "casefold": Cost(100, pay_case),
    "center": Cost(100, pay_padding),
    "count": Cost(100, pay_find),
    "endswith": Cost(100, pay_affix),
    "expandtabs": Cost(100, pay_expandtabs),
    "find": Cost(100, pay_find),
    "format": Cost(500, pay_format),
    "format_map": Cost(500, pay_format_map),
    "index": Cost(100, pay_find),
    "isalnum": Cost(100, pay_whole),
    "isalpha": Cost(100, pay_whole),
    "isascii": CONSTANT,
    "isdecimal": Cost(100, pay_whole),
    "isdigit": Cost(100, pay_whole),
    "isidentifier": Cost(100, pay_whole),
    "islower": Cost(100, pay_whole),
    "isnumeric": Cost(100, pay_whole),
    "isprintable": Cost(100, pay_whole),
    "isspace": Cost(100, pay_whole),
    "istitle": Cost(100, pay_whole),
    "isupper": Cost(100, pay_whole),
    "join": Cost(200, pay_join_method),
    "ljust": Cost(100, pay_padding),
    "lower": Cost(100, pay_case),
    "lstrip": Cost(50, pay_strip),
    "partition": Cost(100, pay_partition),
    "removeprefix": Cost(100, pay_whole),
    "removesuffix": Cost(100, pay_whole),
    "replace": Cost(100, pay_replace),
    "rfind": Cost(100, pay_find_backwards),
    "rindex": Cost(100, pay_find_backwards),
    "rjust": Cost(100, pay_padding),
    "rpartition": Cost(100, pay_rpartition),
    "rsplit": Cost(100, pay_rsplit),
    "rstrip": Cost(50, pay_strip),
    "split": Cost(100, pay_split),
    "splitlines": Cost(200, pay_splitlines),
    "startswith": Cost(100, pay_affix),
    "strip": Cost(50, pay_strip),
    "swapcase": Cost(100, pay_case),
    "title": Cost(100, pay_case),
    "upper": Cost(100, pay_case),
    "zfill": Cost(100, pay_padding),
}

DICT_COSTS: dict[str, Cost] = {
    "copy": Cost(100, pay_entries),
    "get": Cost(0, pay_key),
    "items": Cost(200, pay_entries),
    "keys": Cost(200, pay_entries),
    "values": Cost(200, pay_entries),
    **dict.fromkeys(["clear", "pop", "popitem", "setdefault", "update"], CONSTANT),  # refused
}

TUPLE_COSTS: dict[str, Cost] = {
    "count": Cost(100, pay_search),
    "index": Cost(100, pay_search),
}

LIST_COSTS: dict[str, Cost] = {
    **TUPLE_COSTS,
    "copy": Cost(100, pay_references),
    **dict.fromkeys(["append", "clear", "extend", "insert"], CONSTANT),  # refused
    **dict.fromkeys(["pop", "remove", "reverse", "sort"], CONSTANT),
}

METHOD_COSTS: dict[type, dict[str, Cost]] = {
    str: STRING_COSTS,
    dict: DICT_COSTS,
    list: LIST_COSTS,
    tuple: TUPLE_COSTS,
    Loop: {"cycle": CONSTANT, "changed": Cost(100, pay_change)},
    Cycler: {"next": CONSTANT, "reset": CONSTANT},
}

FILTER_COSTS: dict[str, Cost] = {
    "abs": CONSTANT,
    "attr": COMPOSED,
    "batch": Cost(500, pay_batch),
    "capitalize": COMPOSED,
    "center": COMPOSED,
    "count": CONSTANT,
    "d": CONSTANT,
    "default": CONSTANT,
    "dictsort": Cost(750, pay_keys),
    "e": Cost(250, pay_escape),
    "escape": Cost(250, pay_escape),
    "filesizeformat": Cost(500, pay_number),
    "first": COMPOSED,
    "float": Cost(300, pay_number),
    "forceescape": Cost(250, pay_escape),
    "format": Cost(500, pay_percent_filter),
    "from_json": Cost(750, pay_from_json),
    "fromjson": Cost(750, pay_from_json),
    "groupby": Cost(750, pay_keys),
    "indent": Cost(250, pay_indent),
    "int": Cost(300, pay_number),
    "items": Cost(100, pay_entries),
    "join": Cost(250, pay_elements),
    "last": COMPOSED,
    "length": CONSTANT,
    "list": Cost(100, pay_references),
    "lower": COMPOSED,
    "map": Cost(250, pay_new_elements),
    "max": Cost(500, pay_keys),
    "min": Cost(500, pay_keys),
    "reject": Cost(250, pay_elements),
    "rejectattr": Cost(250, pay_elements),
    "replace": COMPOSED,
    "reverse": Cost(200, pay_references),
    "round": Cost(250),
    "safe": Cost(100, pay_printed),
    "select": Cost(250, pay_elements),
    "selectattr": Cost(250, pay_elements),
    "slice": Cost(500, pay_slice),
    "sort": Cost(500, pay_keys),
    "string": COMPOSED,
    "striptags": Cost(1000, pay_striptags),
    "sum": Cost(250, pay_new_elements),
    "title": Cost(500, pay_title),
    "tojson": COMPOSED,  # `to_json` pays, and less for tools that were written before
    "trim": COMPOSED,
    "truncate": Cost(500, pay_truncate),
    "unique": Cost(250, pay_keys),
    "upper": COMPOSED,
    "urlencode": Cost(1000, pay_urlencode),
    "wordcount": Cost(250, pay_wordcount),
    "wordwrap": Cost(5000, pay_wordwrap),
}

TEST_COSTS: dict[str, Cost] = {
    **dict.fromkeys(["defined", "undefined", "none", "string", "mapping"], CONSTANT),
    **dict.fromkeys(["boolean", "true", "false", "callable", "escaped"], CONSTANT),
    **dict.fromkeys(["integer", "float", "number", "iterable", "sequence"], CONSTANT),
    "sameas": CONSTANT,
    "divisibleby": Cost(50, pay_division),
    **dict.fromkeys(["even", "odd"], CONSTANT),
    **dict.fromkeys(["eq", "==", "equalto", "ne", "!=", "in"], COMPOSED),
    **dict.fromkeys(["lt", "<", "lessthan", "le", "<="], COMPOSED),
    **dict.fromkeys(["gt", ">", "greaterthan", "ge", ">="], COMPOSED),
    **dict.fromkeys(["lower", "upper"], Cost(100, pay_printed_test)),
}

OPERATOR_COSTS: dict[str, Cost] = {
    "Sub": Cost(50, pay_arithmetic),
    "Mul": Cost(50, pay_product),
    "Div": Cost(50, pay_arithmetic),
    "FloorDiv": Cost(50, pay_arithmetic),
    "Mod": Cost(50, pay_modulo),
    "Pow": Cost(100, pay_power),
}

FUNCTION_COSTS: dict[str, Cost] = {
    "cycler": Cost(100, pay_call),
    "dict": Cost(250, pay_dict),
    "joiner": Cost(200),
    "namespace": COMPOSED,  # of the keywords that the template writes, or of a dict
    "raise_exception": CONSTANT,  # printing the message is paid for
    "range": Cost(200),
    "strftime_now": Cost(1000, pay_strftime),
}
FROM_KEYS_COST = Cost(250, pay_from_keys)  # of `dict.fromkeys`

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

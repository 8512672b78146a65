"""How much a function does, counted in operations of Python: the same on every machine, busy or not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def count_operations(run: Callable[[], object]) -> int:
    """Return how many operations of Python a function takes."""
    count = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)
    return count

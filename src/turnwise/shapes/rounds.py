"""Shapes made of rounds, a question and its answer: XTuner's, Alpaca's and PaddleNLP's.

They can hold texts of system, user and assistant in this order, and nothing else; XTuner's also tells whether an answer
is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.errors import MessageError, short_repr
from turnwise.messages import JsonMapping, Path, format_path
from turnwise.schema import check_name
from turnwise.shapes.row import (
    EXAMPLES,
    ParsedRow,
    Row,
    as_json,
    build_row,
    check_options,
    check_text,
    describe,
    extra_columns,
    find_turns,
    is_list,
    make_message,
    optional_text,
    require_mapping,
    require_text,
    require_text_content,
)

NEXT_ROLES = {
    None: ("system", "user"),
    "system": ("user",),
    "user": ("assistant",),
    "assistant": ("system", "user"),
}
XTUNER_KEYS = ("system", "input", "output", "output_with_loss")


def _split_rounds(messages: Sequence[Row], shape: str) -> list[dict[str, Row]]:
    """Return rounds `{"system": message, "user": message, "assistant": message}`; only the last may lack an answer."""
    rounds: list[dict[str, Row]] = []
    previous: str | None = None
    for index, message in enumerate(messages):
        role = message.get("role")
        accepted = NEXT_ROLES[previous]
        if role not in accepted:
            raise MessageError(
                f"{shape} data has {' or '.join(accepted)} here, not {short_repr(role)}",
                path=f"messages[{index}].role",
                hint=f"An example: {EXAMPLES[shape]}.",
            )
        require_text_content(message, index, shape)
        if role == "system" or (role == "user" and previous != "system"):
            rounds.append({})
        rounds[-1][role] = message
        previous = role
    if previous is None or previous == "system":
        raise MessageError(f"{shape} data has at least one question", path="messages")
    return rounds


# -- XTuner -----------------------------------------------------------------------------------------------------------


def read_xtuner(row: Any) -> ParsedRow:
    """Read XTuner's rounds of system, input and output."""
    column, turns = find_turns(row, "xtuner", "XTuner data")
    messages: list[Row] = []
    for index, turn in enumerate(turns):
        path = (column, index)
        if not isinstance(turn, Mapping):
            raise MessageError(
                f"a turn is a mapping, not {describe(turn)}",
                path=format_path(path),
                hint=f"Its keys: {', '.join(XTUNER_KEYS)}.",
            )
        for key in turn:
            check_name(key, XTUNER_KEYS, "unknown key", "Accepted", path=format_path(path))
        if system := optional_text(turn, "system", *path):
            messages.append(make_message("system", system))
        # XTuner writes the user's part of every round, even without input.
        messages.append(make_message("user", optional_text(turn, "input", *path) or ""))
        output = optional_text(turn, "output", *path)
        if output is not None:
            messages.append(make_message("assistant", output))
            messages[-1].update(_read_weight(turn.get("output_with_loss"), path))
        elif index < len(turns) - 1:
            raise MessageError(
                "only the last turn may lack its output", path=format_path((*path, "output"))
            )
    return build_row("xtuner", row, (column,), messages)


def _read_weight(value: Any, path: Path) -> Row:
    """Return `output_with_loss` as the `weight` of OpenAI's fine-tuning format."""
    if value is None:
        return {}
    if value not in (True, False):
        raise MessageError(
            f"must be true or false, not {short_repr(value)}",
            path=format_path((*path, "output_with_loss")),
        )
    return {"weight": int(value)}


def write_xtuner(row: ParsedRow) -> Row:
    """Write XTuner's rounds."""
    turns = []
    for found in _split_rounds(row.messages, "xtuner"):
        turn: Row = {}
        if "system" in found:
            turn["system"] = found["system"]["content"]
        turn["input"] = found["user"]["content"]
        if "assistant" in found:
            turn["output"] = found["assistant"]["content"]
            weight = found["assistant"].get("weight")
            if weight in (0, 1):
                turn["output_with_loss"] = bool(weight)
        turns.append(turn)
    return {**extra_columns(row), "conversation": turns}


# -- Alpaca -----------------------------------------------------------------------------------------------------------


def is_alpaca_row(row: Any) -> bool:
    """Return True for a mapping with an instruction and an input or output."""
    return isinstance(row, Mapping) and "instruction" in row and ("output" in row or "input" in row)


def read_alpaca(row: Any) -> ParsedRow:
    """Read Alpaca's columns; `input` follows `instruction` on a new line, as in LLaMA-Factory and XTuner."""
    row = require_mapping(row, "alpaca")
    messages = []
    if system := optional_text(row, "system"):
        messages.append(make_message("system", system))
    history = row.get("history")
    if history is not None:
        if not is_list(history):
            raise MessageError(
                f"must be a list of [question, answer], not {short_repr(history)}", path="history"
            )
        messages += _read_pairs(history, "history", open_end=False)
    question = [require_text(row, "instruction", ()), optional_text(row, "input")]
    messages.append(make_message("user", "\n".join(filter(None, question))))
    output = optional_text(row, "output")
    if output is not None:
        messages.append(make_message("assistant", output))
    used = ("instruction", "input", "output", "system", "history")
    return build_row("alpaca", row, used, messages)


def write_alpaca(row: ParsedRow) -> Row:
    """Write Alpaca's columns; rounds before the last become the history."""
    rounds = _split_rounds(row.messages, "alpaca")
    *history, last = rounds
    columns = {**extra_columns(row), "instruction": last["user"]["content"], "input": ""}
    if "assistant" in last:
        columns["output"] = last["assistant"]["content"]
    if "system" in rounds[0]:
        columns["system"] = rounds[0]["system"]["content"]
    if history:
        columns["history"] = [
            [found["user"]["content"], found["assistant"]["content"]] for found in history
        ]
    if row.tools is not None:
        columns["tools"] = as_json(row.tools, "tools")
    return columns


def _read_pairs(pairs: Sequence[Any], path: str, open_end: bool) -> list[Row]:
    """Return the messages of `[[question, answer], ...]`; with an open end the last pair may be `[question]`."""
    messages = []
    for index, pair in enumerate(pairs):
        is_open = open_end and index == len(pairs) - 1
        sizes = (1, 2) if is_open else (2,)
        if not is_list(pair) or len(pair) not in sizes:
            accepted = "[question, answer] or [question]" if is_open else "[question, answer]"
            raise MessageError(
                f"must be {accepted}, not {short_repr(pair)}", path=f"{path}[{index}]"
            )
        for number, text in enumerate(pair):
            role = "assistant" if number else "user"
            messages.append(make_message(role, check_text(text, (path, index, number))))
    return messages


# -- PaddleNLP --------------------------------------------------------------------------------------------------------


def is_paddlenlp_row(row: Any) -> bool:
    """Return True for a text, a list, or a mapping with `src`."""
    return isinstance(row, str) or is_list(row) or (isinstance(row, Mapping) and "src" in row)


def read_paddlenlp(row: Any) -> ParsedRow:
    """Read a question, rounds, or `src` and `tgt`; the `context` holds the system text and options."""
    if isinstance(row, str):
        return ParsedRow([make_message("user", row)], shape="paddlenlp")
    if is_list(row):
        return ParsedRow(_read_pairs(row, "rounds", open_end=True), shape="paddlenlp")
    row = require_mapping(row, "paddlenlp")
    questions = _read_side(row, "src")
    answers = _read_side(row, "tgt") if row.get("tgt") is not None else []
    counts = len(questions), len(answers)
    if not questions or counts[0] - counts[1] not in (0, 1):
        raise MessageError(
            f"there are {counts[0]} src and {counts[1]} tgt",
            path="src",
            hint="Accepted: as many of both, or one src more than tgt.",
        )
    context = dict(check_options(row.get("context") or {}, "context"))
    messages = []
    if system := optional_text(context, "system", "context"):
        del context["system"]
        messages.append(make_message("system", system))
    for index, question in enumerate(questions):
        messages.append(make_message("user", question))
        if index < len(answers):
            messages.append(make_message("assistant", answers[index]))
    return build_row("paddlenlp", row, ("src", "tgt", "context"), messages, context)


def _read_side(row: JsonMapping, key: str) -> list[str]:
    if not is_list(row.get(key)):
        return [require_text(row, key, ())]
    return [check_text(text, (key, index)) for index, text in enumerate(row[key])]


def write_paddlenlp(row: ParsedRow) -> Row:
    """Write `src`, `tgt` and, for a system text or options, `context`."""
    rounds = _split_rounds(row.messages, "paddlenlp")
    columns = extra_columns(row)
    context = columns.pop("chat_template_kwargs", {})
    if "system" in rounds[0]:
        context = {**context, "system": rounds[0]["system"]["content"]}
    columns["src"] = [found["user"]["content"] for found in rounds]
    columns["tgt"] = [found["assistant"]["content"] for found in rounds if "assistant" in found]
    if context:
        columns["context"] = context
    return columns

"""Shapes made of rounds, a question and its answer: XTuner's, Alpaca's and PaddleNLP's.

They can say nothing but texts of system, user and assistant in this order, and XTuner's whether an answer is learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import Path
from turnwise.messages import format_path as spelt
from turnwise.shapes.row import (
    LOOKS,
    Conversation,
    Row,
    as_json,
    beside,
    is_list,
    made,
    mapping_of,
    maybe,
    option_table,
    plain_text,
    said,
    text_of,
    turns_of,
    words,
)

AFTER = {
    None: ("system", "user"),
    "system": ("user",),
    "user": ("assistant",),
    "assistant": ("system", "user"),
}


def _rounds(messages: Sequence[Row], shape: str) -> list[dict[str, Row]]:
    """The messages as rounds `{"system": ..., "user": ..., "assistant": ...}`; only the last may lack its answer."""
    rounds: list[dict[str, Row]] = []
    before: str | None = None
    for index, message in enumerate(messages):
        role = message.get("role")
        if role not in AFTER[before]:
            hint = f"Its rows are: {LOOKS[shape]}."
            problem = f"{shape} data has {' or '.join(AFTER[before])} here, not {short_repr(role)}"
            raise MessageError(problem, path=f"messages[{index}].role", hint=hint)
        plain_text(message, index, shape)
        if role == "system" or role == "user" and before != "system":
            rounds.append({})
        rounds[-1][role] = message
        before = role
    if before is None or before == "system":
        raise MessageError(f"{shape} data has at least one question", path="messages")
    return rounds


def read_xtuner(row: Any) -> Conversation:
    column, turns = turns_of(row, "xtuner", "XTuner data")
    messages: list[Row] = []
    accepted = ("system", "input", "output", "output_with_loss")
    for index, turn in enumerate(turns):
        path = (column, index)
        if not isinstance(turn, Mapping):
            problem = f"a turn is a mapping, not {type(turn).__name__}: {short_repr(turn)}"
            raise MessageError(problem, path=spelt(path), hint=f"Its keys: {', '.join(accepted)}.")
        if unknown := [str(key) for key in turn if key not in accepted]:
            hint = did_you_mean(unknown[0], accepted, "Accepted")
            raise MessageError(f"unknown key {unknown[0]!r}", path=spelt(path), hint=hint)
        if system := maybe(turn, "system", *path):
            messages.append(said("system", system))
        # XTuner writes the user's part of every round, also of one without input
        messages.append(said("user", maybe(turn, "input", *path) or ""))
        output = maybe(turn, "output", *path)
        if output is None and index < len(turns) - 1:
            raise MessageError(
                "only the last turn may lack its output", path=spelt((*path, "output"))
            )
        if output is not None:
            messages.append(
                {**said("assistant", output), **_weight(turn.get("output_with_loss"), path)}
            )
    return made("xtuner", row, (column,), messages)


def _weight(said: Any, path: Path) -> Row:
    """`output_with_loss` as OpenAI's fine-tuning says it."""
    if said is None:
        return {}
    if said not in (True, False):
        raise MessageError(
            f"is true or false, not {short_repr(said)}", path=spelt((*path, "output_with_loss"))
        )
    return {"weight": int(said)}


def write_xtuner(conversation: Conversation) -> Row:
    turns = []
    for found in _rounds(conversation.messages, "xtuner"):
        turn: Row = {"system": found["system"]["content"]} if "system" in found else {}
        turn["input"] = found["user"]["content"]
        if "assistant" in found:
            turn["output"] = found["assistant"]["content"]
            if found["assistant"].get("weight") in (0, 1):
                turn["output_with_loss"] = bool(found["assistant"]["weight"])
        turns.append(turn)
    return {**beside(conversation), "conversation": turns}


def read_alpaca(row: Any) -> Conversation:
    """`input` goes below `instruction`, as LLaMA-Factory and XTuner join them."""
    row = mapping_of(row, "alpaca")
    system, history = maybe(row, "system"), row.get("history")
    messages = [said("system", system)] if system else []
    if history is not None:
        if not is_list(history):
            raise MessageError(
                f"is a list of [question, answer], not {short_repr(history)}", path="history"
            )
        messages += _paired(history, "history", open_end=False)
    question = [text_of(row, "instruction", ()), maybe(row, "input") or ""]
    messages.append(said("user", "\n".join(part for part in question if part)))
    output = maybe(row, "output")
    if output is not None:
        messages.append(said("assistant", output))
    return made("alpaca", row, ("instruction", "input", "output", "system", "history"), messages)


def write_alpaca(conversation: Conversation) -> Row:
    *before, last = _rounds(conversation.messages, "alpaca")
    first = (before or [last])[0]
    row = {**beside(conversation), "instruction": last["user"]["content"], "input": ""}
    if "assistant" in last:
        row["output"] = last["assistant"]["content"]
    if "system" in first:
        row["system"] = first["system"]["content"]
    if before:
        row["history"] = [
            [found["user"]["content"], found["assistant"]["content"]] for found in before
        ]
    if conversation.tools is not None:
        row["tools"] = as_json(conversation.tools, "tools")
    return row


def _paired(rounds: Sequence[Any], path: str, open_end: bool) -> list[Row]:
    """`[[question, answer], ...]`; the last may be `[question]` where the end is open."""
    messages = []
    for index, pair in enumerate(rounds):
        sizes = (1, 2) if open_end and index == len(rounds) - 1 else (2,)
        if not is_list(pair) or len(pair) not in sizes:
            accepted = "[question, answer]" + (" or [question]" if 1 in sizes else "")
            raise MessageError(f"is {accepted}, not {short_repr(pair)}", path=f"{path}[{index}]")
        for number, role in enumerate(("user", "assistant")[: len(pair)]):
            messages.append(said(role, words(pair[number], (path, index, number))))
    return messages


def read_paddlenlp(row: Any) -> Conversation:
    """A question, rounds, or `src` and `tgt`; of the `context`, `system` is the system message, the rest options."""
    if isinstance(row, str):
        return Conversation([said("user", row)], shape="paddlenlp")
    if is_list(row):
        return Conversation(_paired(row, "rounds", open_end=True), shape="paddlenlp")
    row = mapping_of(row, "paddlenlp")
    src, tgt = _side(row, "src"), _side(row, "tgt") if row.get("tgt") is not None else []
    if not src or len(src) - len(tgt) not in (0, 1):
        hint = "Accepted: as many of both, or one src more than tgt."
        raise MessageError(f"there are {len(src)} src and {len(tgt)} tgt", path="src", hint=hint)
    context = dict(option_table(row.get("context") or {}, "context"))
    system = maybe(context, "system", "context")
    pairs = [
        [question, *answer]
        for question, answer in zip(src, [*([text] for text in tgt), []], strict=False)
    ]
    messages = _paired(pairs, "rounds", open_end=True)
    if system:
        del context["system"]
        messages.insert(0, said("system", system))
    return made("paddlenlp", row, ("src", "tgt", "context"), messages, context)


def _side(row: Mapping[str, Any], key: str) -> list[str]:
    if not is_list(row.get(key)):
        return [text_of(row, key, ())]
    return [words(text, (key, index)) for index, text in enumerate(row[key])]


def write_paddlenlp(conversation: Conversation) -> Row:
    rounds = _rounds(conversation.messages, "paddlenlp")
    row = beside(conversation)
    context = row.pop("chat_template_kwargs", {})
    if "system" in rounds[0]:
        context = {**context, "system": rounds[0]["system"]["content"]}
    row["src"] = [found["user"]["content"] for found in rounds]
    row["tgt"] = [found["assistant"]["content"] for found in rounds if "assistant" in found]
    return {**row, "context": context} if context else row


def knows_alpaca(row: Any) -> bool:
    return isinstance(row, Mapping) and "instruction" in row and ("output" in row or "input" in row)


def knows_paddlenlp(row: Any) -> bool:
    return isinstance(row, str) or is_list(row) or (isinstance(row, Mapping) and "src" in row)

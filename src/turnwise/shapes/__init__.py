"""People's data shapes, read as one: OpenAI's messages. And written back, where the shape can say it.

`SHAPES` has a row for each: a cheap look that recognises it, a reader, a writer. `conversation(row)` asks the rows in
order, so a shape is guessed by what the data looks like and never by its values; `shape=` says it when two would do.

Nothing is lost on the way in. Keys of a ShareGPT turn that the shape does not know stay fields of the message; where a
turn gives several messages (XTuner) an unknown key is an error; columns that are no part of the conversation (`id`,
`source`, `images`) are in `.rest`. Nothing is lost on the way out either: `write` reads back what it wrote, and refuses
with the path of the first value that did not survive.

What is spelling and does not come back: the names of roles (`human`, `USER`), whether tools were text or a list,
Alpaca's border between `instruction` and `input`, the name of the column. Two shapes are ambiguous: pairs of texts are
PaddleNLP's rounds unless one's first text is a role's name, which makes them FastChat's. Not read: preferences, where
one of two conversations must be chosen, and rendered text (for InternLM2's there is
`turnwise.dialects.internlm2_transcript`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import Path
from turnwise.messages import format_path as spelt
from turnwise.shapes import fastchat, plain, rounds, sharegpt
from turnwise.shapes.row import COLUMNS, LOOKS, Conversation, Row, is_list, kind_of, listed

TRANSCRIPT_MARKS = ("<|im_start|>", "[UNUSED_TOKEN_146]")
ABSENT = object()


class Shape(NamedTuple):
    knows: Callable[[Any], bool]
    read: Callable[[Any], Conversation]
    write: Callable[[Conversation], Any]


def _turns_are(kind: str) -> Callable[[Any], bool]:
    return lambda row: kind_of(row) == kind


# Asked in this order; the last takes all lists of lists that no one before it wants.
SHAPES: dict[str, Shape] = {
    "openai": Shape(_turns_are("openai"), plain.read_openai, plain.write_openai),
    "list": Shape(plain.knows_list, plain.read_list, plain.write_list),
    "sharegpt": Shape(_turns_are("sharegpt"), sharegpt.read, sharegpt.write),
    "xtuner": Shape(_turns_are("xtuner"), rounds.read_xtuner, rounds.write_xtuner),
    "alpaca": Shape(rounds.knows_alpaca, rounds.read_alpaca, rounds.write_alpaca),
    "prompt": Shape(plain.knows_prompt, plain.read_prompt, plain.write_prompt),
    "fastchat": Shape(fastchat.knows, fastchat.read, fastchat.write),
    "paddlenlp": Shape(rounds.knows_paddlenlp, rounds.read_paddlenlp, rounds.write_paddlenlp),
}


def conversation(row: Any, shape: str | None = None) -> Conversation:
    """The conversation of a row of data, in the shape that is said, or else guessed from what the row looks like."""
    if shape is not None:
        return named(shape).read(row)
    if isinstance(row, Mapping) and ("chosen" in row or "rejected" in row):
        hint = "Choose: {'messages': row['chosen']}, or {'prompt': row['prompt'], 'completion': row['chosen']}."
        raise MessageError(
            "a preference holds two conversations, `chosen` and `rejected`", hint=hint
        )
    if isinstance(row, str) and any(mark in row for mark in TRANSCRIPT_MARKS):
        hint = "turnwise.dialects.internlm2_transcript reads InternLM2's. As a question: shape='paddlenlp'."
        raise MessageError(
            f"this is rendered text, not a conversation: {short_repr(row)}", hint=hint
        )
    if are_rows(row):
        raise MessageError(
            f"this is a list of {len(row)} conversations, not one", hint="Give one of its rows."
        )
    for known in SHAPES.values():
        if known.knows(row):
            return known.read(row)
    if not isinstance(row, Mapping):
        hint = "; ".join(f"{name}: {looks}" for name, looks in LOOKS.items())
        raise MessageError(
            f"a conversation is not {type(row).__name__}: {short_repr(row)}",
            hint=f"Accepted: {hint}.",
        )
    raise MessageError("there is no conversation in this row", hint=_no_shape(row))


def write(conversation: Any, shape: str) -> Any:
    """The conversation as a row of a shape. It reads back as the same; MessageError where the shape cannot say it."""
    known = named(shape)
    if not isinstance(conversation, Conversation):
        hint = "Read it first: turnwise.shapes.conversation(row)."
        raise MessageError(
            f"write takes a Conversation, not {type(conversation).__name__}", hint=hint
        )
    row = known.write(conversation)
    lost = _difference(_essence(conversation), _essence(known.read(row)), ())
    if lost is not None:
        hint = f"Its rows are: {LOOKS[shape]}."
        raise MessageError(f"{shape} data cannot say this", path=spelt(lost), hint=hint)
    return row


def are_rows(value: Any) -> bool:
    """Whether this is a list of conversations, not one: many data files are."""
    if not is_list(value) or not all(
        isinstance(row, Mapping) and "role" not in row for row in value
    ):
        return False
    return bool(value) and any(shape.knows(value[0]) for shape in SHAPES.values())


def named(shape: str) -> Shape:
    if not isinstance(shape, str) or shape not in SHAPES:
        raise MessageError(
            f"there is no shape {short_repr(shape)}",
            hint=did_you_mean(str(shape), SHAPES, "Shapes"),
        )
    return SHAPES[shape]


def _no_shape(row: Mapping[str, Any]) -> str:
    if not row:
        return "It is empty."
    if "role" in row:
        return "It is a single message; a conversation is a list of them."
    if "chat_template" in row:
        return "It looks like a template; the template comes first, then the conversation."
    columns = [*COLUMNS, "instruction", "prompt", *plain.COMPLETIONS, "src", "tgt"]
    advice = [did_you_mean(str(key), columns, "Accepted") or "" for key in list(row)[:10]]
    near = next((text for text in advice if text.endswith("?")), advice[0])
    rendered = " Its `text` is rendered already." if "text" in row else ""
    return f"It has: {listed(row)}.{rendered} {near}"


def _essence(conversation: Conversation) -> Row:
    """What must survive. A null says as much as nothing, and so does empty content beside a call."""
    messages = []
    for message in conversation.messages:
        empty = {"content"} if message.get("tool_calls") and not message.get("content") else set()
        empty |= {"tool_calls"} if message.get("tool_calls") == [] else set()
        messages.append(
            {key: value for key, value in message.items() if value is not None and key not in empty}
        )
    found: Row = {"messages": messages, "options": conversation.options, "rest": conversation.rest}
    given = {"tools": conversation.tools, "documents": conversation.documents}
    return {**found, **{key: value for key, value in given.items() if value is not None}}


def _difference(ours: Any, theirs: Any, path: Path) -> Path | None:
    """The path of the first value that is not the same; where something is more or less, that is it."""
    if ours is theirs:
        return None
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        steps: Iterable[tuple[Any, Any, Any]] = (
            (str(key), ours.get(key, ABSENT), theirs.get(key, ABSENT)) for key in {**ours, **theirs}
        )
    elif is_list(ours) and is_list(theirs):
        steps = (
            (index, *pair) for index, pair in enumerate(zip_longest(ours, theirs, fillvalue=ABSENT))
        )
    else:
        return None if type(ours) is type(theirs) and ours == theirs else path
    found = (_difference(mine, other, (*path, step)) for step, mine, other in steps)
    return next((lost for lost in found if lost is not None), None)

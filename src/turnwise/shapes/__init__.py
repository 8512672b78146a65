"""Rows of other people's data become OpenAI messages, and back.

    >>> from turnwise import shapes
    >>> row = shapes.conversation({"conversations": [{"from": "human", "value": "hi"}]})
    >>> row.shape, row.messages
    ('sharegpt', [{'role': 'user', 'content': 'hi'}])

`SHAPES` has one row for each shape: a test that recognises it by its structure, a reader and a writer. `conversation`
tries them in order; `shape=` chooses one where two would fit.

Nothing is lost when reading: unknown keys of a ShareGPT turn stay fields of the message, unknown keys of an XTuner
turn, which becomes several messages, are an error, and columns that are not part of the conversation (`id`, `source`,
`images`) are kept in `.rest`. Nothing is lost when writing either: `write` reads its result back, and names the path of
the first value that the shape cannot hold.

Requests and replies of Anthropic, Responses and Gemini are shapes, too. Their parts become those of Chat Completions by
a table for each API (`part_forms.py`); a part of another type is an error.

Not kept: the names of roles (`human`, `USER`), whether tools were text or a list, Alpaca's split into `instruction` and
`input`, and the name of the column. Ambiguous: pairs of texts are PaddleNLP's rounds, unless the first text of one pair
is the name of a role, which makes them FastChat's. Not read: preference data, which holds two conversations, and
rendered text, except InternLM2's: `parse_transcript` reads it, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

from turnwise.errors import MessageError, did_you_mean, short_repr
from turnwise.messages import JsonMapping, Path, format_path
from turnwise.schema import check_name
from turnwise.shapes import anthropic, fastchat, gemini, plain, responses, rounds, sharegpt
from turnwise.shapes.part_forms import simplify_messages
from turnwise.shapes.row import (
    EXAMPLES,
    TURN_COLUMNS,
    ParsedRow,
    Row,
    describe,
    drop_nulls,
    guess_turn_shape,
    is_list,
    join_names,
    tools_and_documents,
)
from turnwise.shapes.transcript import Transcript, parse_transcript

__all__ = [
    "SHAPES",
    "DataShape",
    "ParsedRow",
    "Transcript",
    "are_rows",
    "conversation",
    "parse_transcript",
    "write",
    "write_reply",
]

API_SHAPES = ("anthropic", "responses", "gemini")
"""Shapes of requests and replies whose parts have other types than those of Chat Completions."""

TRANSCRIPT_MARKERS = ("<|im_start|>", "[UNUSED_TOKEN_146]")
MISSING = object()
MAX_COLUMNS = 10  # for which a similar accepted column is searched


class DataShape(NamedTuple):
    """How to recognise, read and write the rows of one shape."""

    knows: Callable[[Any], bool]
    read: Callable[[Any], ParsedRow]
    write: Callable[[ParsedRow], Any]


def _has_turns(shape: str, row: Any) -> bool:
    return guess_turn_shape(row) == shape


def _is_openai(row: Any) -> bool:
    return _has_turns("openai", row) or plain.is_reply(row)


# In the order in which they are tried; the last takes every text and every list of lists that is left.
SHAPES: dict[str, DataShape] = {
    "anthropic": DataShape(anthropic.is_anthropic, anthropic.read, anthropic.write),
    "responses": DataShape(responses.is_responses, responses.read, responses.write),
    "gemini": DataShape(gemini.is_gemini, gemini.read, gemini.write),
    "openai": DataShape(_is_openai, plain.read_openai, plain.write_openai),
    "list": DataShape(plain.is_message_list, plain.read_list, plain.write_list),
    "sharegpt": DataShape(partial(_has_turns, "sharegpt"), sharegpt.read, sharegpt.write),
    "xtuner": DataShape(partial(_has_turns, "xtuner"), rounds.read_xtuner, rounds.write_xtuner),
    "alpaca": DataShape(rounds.is_alpaca_row, rounds.read_alpaca, rounds.write_alpaca),
    "prompt": DataShape(plain.is_prompt_row, plain.read_prompt, plain.write_prompt),
    "fastchat": DataShape(fastchat.is_fastchat_row, fastchat.read, fastchat.write),
    "paddlenlp": DataShape(rounds.is_paddlenlp_row, rounds.read_paddlenlp, rounds.write_paddlenlp),
}


REPLY_WRITERS: dict[str, Callable[..., Row]] = {
    "openai": plain.write_reply,
    "anthropic": anthropic.write_reply,
    "responses": responses.write_reply,
    "gemini": gemini.write_reply,
}


def conversation(row: JsonMapping | Sequence[Any] | str, shape: str | None = None) -> ParsedRow:
    """Read one row of data as a conversation.

    Args:
        row: One row: a mapping, a list of messages, a list of pairs, or a question.
        shape: A name of `SHAPES`; guessed from the structure of the row if not given.

    Returns:
        The messages, the tools, the options and the other columns; `.arguments` are those of `render`.

    Raises:
        MessageError: If the row has no known shape, or a value in it is wrong; `.path` names the value.

    Example:
        >>> row = conversation({"instruction": "Say hi.", "output": "hi"})
        >>> row.shape, row.arguments["messages"][1]
        ('alpaca', {'role': 'assistant', 'content': 'hi'})
    """
    if shape is not None:
        return _get_shape(shape).read(row)
    _refuse_other_data(row)
    for candidate in SHAPES.values():
        if candidate.knows(row):
            return candidate.read(row)
    if isinstance(row, Mapping):
        empty = [column for column in TURN_COLUMNS if column in row and row[column] is None]
        if empty:
            raise MessageError(
                f"{empty[0]!r} is null, so there is no conversation in this row",
                path=empty[0],
                hint="leave such rows out, or fill them",
            )
        raise MessageError("there is no conversation in this row", hint=_explain_columns(row))
    accepted = "; ".join(f"{name}: {example}" for name, example in EXAMPLES.items())
    raise MessageError(f"a conversation is not {describe(row)}", hint=f"Accepted: {accepted}.")


def write(conversation: ParsedRow, shape: str) -> Any:
    """Write a conversation as a row of a shape.

    Args:
        conversation: What the function `conversation` returned.
        shape: A name of `SHAPES`.

    Returns:
        The row; reading it gives an equal conversation.

    Raises:
        MessageError: If the shape cannot hold a value; `.path` names the first one.

    Example:
        >>> row = conversation([{"role": "user", "content": "hi"}])
        >>> write(row, "sharegpt")
        {'conversations': [{'from': 'human', 'value': 'hi'}]}
    """
    target = _get_shape(shape)
    given: object = conversation
    if not isinstance(given, ParsedRow):
        raise MessageError(
            f"write takes a ParsedRow, not {type(given).__name__}",
            hint="Read it first: turnwise.shapes.conversation(row).",
        )
    row = target.write(conversation)
    ours, theirs = (_essential(one, shape) for one in (conversation, target.read(row)))
    lost = _find_difference(ours, theirs, ())
    if lost is not None:
        raise MessageError(
            f"{shape} data cannot hold this",
            path=format_path(lost),
            hint=f"An example of its rows: {EXAMPLES[shape]}.",
        )
    return row


def write_reply(
    message: JsonMapping, shape: str, finish_reason: str = "stop", **fields: Any
) -> Row:
    """Write a message of an assistant as the answer of an API; `conversation` reads it.

    Args:
        message: What a parser returned, or a message in OpenAI's shape.
        shape: "openai", "anthropic", "responses" or "gemini".
        finish_reason: Why it ended: "stop", "length" or "tool_calls".
        fields: Other fields of the answer, such as `id`, `model` and `usage`.

    Raises:
        MessageError: If the API cannot hold a value; `.path` names it.

    Example:
        >>> write_reply({"role": "assistant", "content": "Noon."}, "anthropic")["content"]
        [{'type': 'text', 'text': 'Noon.'}]
    """
    check_name(shape, REPLY_WRITERS, "there are no replies of the shape", "One of")
    return REPLY_WRITERS[shape](dict(message), finish_reason, **fields)


def are_rows(value: Any) -> bool:
    """Tell a list of conversations, as in many data files, from one conversation.

    Example:
        >>> are_rows([{"prompt": "a"}, {"prompt": "b"}]), are_rows([{"role": "user", "content": "a"}])
        (True, False)
    """
    if not is_list(value) or not value:
        return False
    if not all(isinstance(row, Mapping) and "role" not in row for row in value):
        return False
    return any(shape.knows(value[0]) for shape in SHAPES.values())


def _get_shape(shape: str) -> DataShape:
    check_name(shape, SHAPES, "there is no shape", "Shapes")
    return SHAPES[shape]


def _refuse_other_data(row: Any) -> None:
    if isinstance(row, Mapping) and ("chosen" in row or "rejected" in row):
        raise MessageError(
            "a preference holds two conversations, `chosen` and `rejected`",
            hint="Choose: {'messages': row['chosen']}, or {'prompt': row['prompt'], 'completion': row['chosen']}.",
        )
    if isinstance(row, str) and any(marker in row for marker in TRANSCRIPT_MARKERS):
        raise MessageError(
            f"this is rendered text, not a conversation: {short_repr(row)}",
            hint="turnwise.shapes.parse_transcript reads InternLM2's. As a question: shape='paddlenlp'.",
        )
    if are_rows(row):
        raise MessageError(
            f"this is a list of {len(row)} conversations, not one", hint="Give one of its rows."
        )


def _explain_columns(row: JsonMapping) -> str:
    if not row:
        return "It is empty."
    if "role" in row:
        return "It is a single message; a conversation is a list of them."
    if "chat_template" in row:
        return "It looks like a template; the template comes first, then the conversation."
    accepted = [*TURN_COLUMNS, "instruction", "prompt", *plain.COMPLETION_COLUMNS, "src", "tgt"]
    # A name that is accepted is no typing error: something else is missing.
    names = [str(key) for key in list(row)[:MAX_COLUMNS] if key not in accepted] or [""]
    hints = [did_you_mean(name, accepted, "Accepted") or "" for name in names]
    best = next((hint for hint in hints if hint.endswith("?")), hints[0])
    rendered = " Its `text` is rendered already." if "text" in row else ""
    return f"It has: {join_names(row)}.{rendered} {best}"


def _essential(row: ParsedRow, shape: str) -> Row:
    """Return what writing must keep: null equals absence, and so does empty content beside a call."""
    others = {"options": row.options, "rest": row.rest, **tools_and_documents(row)}
    if shape in API_SHAPES:
        return {"messages": simplify_messages(row.messages), **others}
    messages = []
    for message in row.messages:
        kept = drop_nulls(message)
        if message.get("tool_calls") and not message.get("content"):
            kept.pop("content", None)
        if message.get("tool_calls") == []:
            del kept["tool_calls"]
        messages.append(kept)
    return {"messages": messages, **others}


def _find_difference(ours: Any, theirs: Any, path: Path) -> Path | None:
    """Return the path of the first value that differs, is missing or was added; None if all are equal."""
    if ours is theirs:
        return None
    steps: Iterable[tuple[Any, Any, Any]]
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        keys = {**ours, **theirs}
        steps = ((str(key), ours.get(key, MISSING), theirs.get(key, MISSING)) for key in keys)
    elif is_list(ours) and is_list(theirs):
        pairs = zip_longest(ours, theirs, fillvalue=MISSING)
        steps = ((index, *pair) for index, pair in enumerate(pairs))
    else:
        return None if type(ours) is type(theirs) and ours == theirs else path
    for step, our_value, their_value in steps:
        lost = _find_difference(our_value, their_value, (*path, step))
        if lost is not None:
            return lost
    return None

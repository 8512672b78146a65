"""SkyRL: response ids and loss masks of a conversation, for every template.

    from turnwise.integrations.skyrl import get_response_ids_and_loss_mask_from_messages

SkyRL encodes each message alone behind a made-up conversation and searches the generation prompt and the eos token in
the ids. That fails for templates that end a turn otherwise, or write a message differently when more follows. Here the
messages go through a session behind the same made-up conversation: replies are written as the model writes them and
kept, and the template writes what stands between. The arguments and results are those of SkyRL's function.

Difference: the ids end with the last reply's stop; SkyRL also gives what its template writes behind it, untrained.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from turnwise.errors import MessageError, short_repr
from turnwise.integrations.tokenizer_template import template_of
from turnwise.integrations.transformers import raise_expected_errors
from turnwise.messages import JsonMapping, JsonObject
from turnwise.replies.write import write
from turnwise.template import Template
from turnwise.tokens.loss import train_nothing
from turnwise.tokens.session import Session

__all__ = [
    "encode_messages_subset",
    "get_response_ids_and_loss_mask_from_messages",
    "install",
]

BASE = (
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "I am a user."},
)
"""The conversation before the messages, as in SkyRL; what is encoded of it is cut off."""
Logprobs = Sequence[Sequence[float]] | None  # of each reply, those of its ids
ROLES = ("user", "assistant", "tool")
USERS = ("skyrl.train.generators.utils", "skyrl.train.sft_trainer")
"""Modules of SkyRL that have the functions by name."""


def get_response_ids_and_loss_mask_from_messages(
    messages: Sequence[JsonMapping],
    tokenizer: Any,
    assistant_logprobs: Logprobs = None,
    tokenizer_kwargs: JsonMapping | None = None,
) -> tuple[list[int], list[int], list[float] | None]:
    """Return the ids of messages after a prompt, 1 for each id that the model samples, and log-probabilities.

    Args:
        messages: Messages of the roles user, assistant and tool.
        tokenizer: A tokenizer with a chat template.
        assistant_logprobs: The log-probabilities of each reply, one for each of its ids.
        tokenizer_kwargs: Variables of the template, and `chat_template` for another one.

    Raises:
        ValueError: A role is another, or log-probabilities do not fit; it is a TurnwiseError, too.
    """
    with raise_expected_errors():
        return _encode(messages, tokenizer, assistant_logprobs, dict(tokenizer_kwargs or {}))


def encode_messages_subset(
    messages: Sequence[JsonMapping],
    tokenizer: Any,
    tokenizer_kwargs: JsonMapping | None = None,
) -> list[int]:
    """Return the ids of messages that follow others; the arguments are those of SkyRL's function."""
    return get_response_ids_and_loss_mask_from_messages(
        messages, tokenizer, tokenizer_kwargs=tokenizer_kwargs
    )[0]


def install() -> None:
    """Put the functions in the place of SkyRL's, in those of its modules that are imported."""
    own = (encode_messages_subset, get_response_ids_and_loss_mask_from_messages)
    for module in filter(None, map(sys.modules.get, USERS)):
        for function in own:
            if hasattr(module, function.__name__):
                setattr(module, function.__name__, function)


def _encode(
    messages: Sequence[JsonMapping],
    tokenizer: Any,
    logprobs: Logprobs,
    options: JsonObject,
) -> tuple[list[int], list[int], list[float] | None]:
    if not messages:
        raise MessageError("there are no messages", path="messages")
    for index, message in enumerate(messages):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in ROLES:
            problem = f"the role is user, assistant or tool, not {role!r}"
            raise MessageError(problem, path=f"messages[{index}].role")
    template = template_of(tokenizer, options.pop("chat_template", None))
    session = template.session(tokenizer, **options)
    opening, rounds = _split_at_replies(messages)
    session.prompt([*BASE, *opening])
    for index, (reply, following) in enumerate(rounds):
        session.add_reply(_write_reply(template, reply, session), reply)
        if following or index + 1 < len(rounds):
            session.extend(following, history="keep")
    start = len(template.encode(BASE, tokenizer, train_nothing, **options))
    end = len(session.ids)
    if messages[-1]["role"] != "assistant":
        # A session ends with a generation prompt; SkyRL counts it to the reply that follows.
        chat = [*BASE, *messages]
        prompted = {**options, "add_generation_prompt": True}
        end -= len(template.encode(chat, tokenizer, train_nothing, **prompted))
        end += len(template.encode(chat, tokenizer, train_nothing, **options))
    placed = _place_logprobs(logprobs, session)
    return (
        session.ids[start:end],
        session.mask[start:end],
        None if placed is None else placed[start:end],
    )


Message = JsonMapping


def _split_at_replies(
    messages: Sequence[Message],
) -> tuple[list[Message], list[tuple[Message, list[Message]]]]:
    """Return the messages before the first reply, and each reply with those that follow it."""
    opening: list[Message] = []
    rounds: list[tuple[Message, list[Message]]] = []
    for message in messages:
        if message["role"] == "assistant":
            rounds.append((message, []))
        elif rounds:
            rounds[-1][1].append(message)
        else:
            opening.append(message)
    return opening, rounds


def _write_reply(template: Template, message: Message, session: Session) -> str:
    """Return a reply as the model writes it; content alone is what it wrote, without the stop."""
    if message.get("tool_calls") or message.get("reasoning_content"):
        return write(template.grammar, message, session.text)
    content = message.get("content")
    if not isinstance(content, str):
        raise MessageError(f"content is text here, not {short_repr(content)}", path="content")
    is_finished = any(content.endswith(stop) for stop in session.stops)
    stops = template.stops()
    return content if is_finished or not stops else content + stops[0]


def _place_logprobs(given: Logprobs, session: Session) -> list[float] | None:
    """Return a log-probability for each id of the session: 0.0 where it was not sampled."""
    if given is None:
        return None
    spans = session.sampled
    if len(given) < len(spans):
        problem = f"{len(given)} lists of log-probabilities for {len(spans)} replies"
        raise MessageError(problem, path="assistant_logprobs")
    placed = [0.0] * len(session.ids)
    for index, (span, numbers) in enumerate(zip(spans, given, strict=False)):
        if len(numbers) != span.end - span.start:
            problem = f"{len(numbers)} log-probabilities for {span.end - span.start} ids"
            raise MessageError(problem, path=f"assistant_logprobs[{index}]")
        placed[span.start : span.end] = numbers
    return placed

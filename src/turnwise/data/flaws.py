"""What is wrong with the messages of a row, whatever its template writes: one check for `prepare` and `scan`.

    empty-reply            a trained reply without text, calls and reasoning: the model would learn to stop at once
    orphan-result          a result for a call that the row does not have
    unbalanced-reasoning   a marker of the template's reasoning in a reply, without its counterpart
    nothing-trained        no reply at all

The first three are flaws: a recipe may keep such rows. Not seen: a result without an id, whose call may be written in
the text of a reply; a reply that says nothing in many words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from turnwise.data.recipe import Recipe
from turnwise.data.records import Record, RecordReader, UnusableRow
from turnwise.messages import REASONING_KEYS
from turnwise.messages.roles import ASSISTANT_ROLES
from turnwise.template import Template
from turnwise.tokens.attribution import ROLES

INPUT_ROLES = ROLES.difference(ASSISTANT_ROLES)
"""Roles of messages that are no replies in any template."""
TRAINED_CONTENT = ("assistant", "last", "content")
"""Policies that train the content of replies."""


class RowChecker:
    """Reads rows, and finds what is wrong with them before anything is encoded.

    Args:
        recipe: the recipe; of its template and tokenizer nothing is read.
        template: the template; None if there is none.
    """

    def __init__(self, recipe: Recipe, template: Template | None) -> None:
        self._reader = RecordReader(recipe)
        self._flaws = FlawFinder(recipe.train_on, template)

    def check(self, row: Any) -> tuple[Record | None, UnusableRow | None]:
        """Return the conversation of a row, None if there is none, and what is wrong with it.

        Args:
            row: its JSON text, the value of that, or why there is none.
        """
        if isinstance(row, UnusableRow):
            return None, row
        try:
            is_text = isinstance(row, bytes)
            record = self._reader.read(row) if is_text else self._reader.read_value(row)
        except UnusableRow as problem:
            return None, problem
        return record, self._flaws.find(record)


class FlawFinder:
    """Finds what is wrong with conversations.

    Args:
        train_on: the loss policy.
        template: the template whose markers of reasoning are looked for; None if there is none.
    """

    def __init__(self, train_on: str, template: Template | None) -> None:
        self._train_on = train_on
        region = template.grammar.reasoning if template is not None else None
        self._open = region.open.core if region is not None else ""
        self._close = region.close.core if region is not None else ""
        self._markers: re.Pattern[str] | None = None
        self._is_opened = False
        if template is not None and self._open and self._close:
            self._markers = re.compile(f"{re.escape(self._open)}|{re.escape(self._close)}")
            # The prompt opens the reasoning, so a reply as the model wrote it begins inside of it.
            self._is_opened = template.grammar.opening.rstrip().endswith(self._open)

    def find(self, record: Record) -> UnusableRow | None:
        """Return the first thing that is wrong with a row; a bad reply may be an empty one."""
        messages = record.messages
        if record.label is False or self._are_plain(messages):
            return None
        if self._train_on != "all" and all(one["role"] in INPUT_ROLES for one in messages):
            reason = (
                "there is no reply of the assistant in the row, so nothing of it can be trained"
            )
            return UnusableRow("nothing-trained", reason)
        return next(self._find_all(messages), None)

    def _are_plain(self, messages: list[Any]) -> bool:
        """Fast path: return whether there are replies, all of them texts without markers, and nothing else to check."""
        has_reply = False
        for message in messages:
            if len(message) > 2:
                return False
            if message["role"] == "assistant":
                content = message.get("content")
                if type(content) is not str or not content or content.isspace():
                    return False
                if self._markers and (self._open in content or self._close in content):
                    return False
                has_reply = True
        return has_reply

    def _find_all(self, messages: list[Any]) -> Iterator[UnusableRow]:
        last = max(
            (index for index, one in enumerate(messages) if one["role"] == "assistant"), default=-1
        )
        calls: list[Any] = []
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                calls += _find_calls(message)
                if message.get("weight") != 0 and (self._train_on != "last" or index == last):
                    yield from self._check_reply(message, f"messages[{index}]")
            elif message.get("tool_call_id") is not None:
                yield from _check_result(message["tool_call_id"], calls, f"messages[{index}]")

    def _check_reply(self, message: Any, path: str) -> Iterator[UnusableRow]:
        content = message.get("content")
        has_text = type(content) is str and content.strip()
        if not has_text and self._train_on in TRAINED_CONTENT and _is_empty(message):
            reason = (
                f"{path}: the reply is empty, so the model would learn to say nothing. "
                "Fill it, leave it out, or give it a weight of 0"
            )
            yield UnusableRow("empty-reply", reason, path)
        if self._markers is None:
            return
        for key in ("content", *REASONING_KEYS):
            text = message.get(key)
            for part in text if isinstance(text, list) else [text]:
                written = part.get("text") if isinstance(part, dict) else part
                if isinstance(written, str) and (lacking := self._find_lacking(written)):
                    reason = f"{path}.{key}: there is {lacking[0]!r} without {lacking[1]!r}. Write both, or none"
                    yield UnusableRow("unbalanced-reasoning", reason, f"{path}.{key}")

    def _find_lacking(self, text: str) -> tuple[str, str] | None:
        assert self._markers is not None
        is_open, is_first = False, True
        for match in self._markers.finditer(text):
            if match[0] == self._close and not is_open and not (is_first and self._is_opened):
                return self._close, self._open
            is_open, is_first = match[0] == self._open, False
        return (self._open, self._close) if is_open else None


def _is_empty(message: Any) -> bool:
    """Return whether a message has no text, call, reasoning or other part."""
    values = [
        message.get(key) for key in ("content", "tool_calls", "function_call", *REASONING_KEYS)
    ]
    parts = [part for value in values for part in (value if isinstance(value, list) else [value])]
    for part in parts:
        text = part.get("text", part) if isinstance(part, dict) else part
        if text.strip() if isinstance(text, str) else text:
            return False
    return True


def _find_calls(message: Any) -> Iterator[Any]:
    """Yield the id of each call of a reply; None for one without an id."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        yield call.get("id") if isinstance(call, dict) else None
    if message.get("function_call") is not None:
        yield None


def _check_result(name: Any, calls: list[Any], path: str) -> Iterator[UnusableRow]:
    # Calls without ids are matched by their order, so their results may have any.
    if name in calls or None in calls:
        return
    known = ", ".join(map(repr, calls)) or "none"
    reason = (
        f"{path}.tool_call_id: no call before it has the id {name!r}; those that there are: {known}"
    )
    yield UnusableRow("orphan-result", reason, f"{path}.tool_call_id")

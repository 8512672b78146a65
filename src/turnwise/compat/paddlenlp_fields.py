"""PaddleNLP's ChatTemplate: the three fields of a `chat_template.json`, each rendered by itself.

Also the shapes of a conversation in PaddleNLP: a question, rounds `[user, bot]` of which the last may be `[user]`, or
messages. `compat/paddlenlp.py` lists the differences from PaddleNLP.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from warnings import warn

from turnwise.compat.batches import are_texts
from turnwise.compat.jinja_errors import raise_jinja_errors
from turnwise.dialects import paddlenlp
from turnwise.errors import MessageError, SourceError, TurnwiseWarning, did_you_mean, short_repr
from turnwise.local_files import error_reason, read_file
from turnwise.messages import JsonMapping, JsonObject
from turnwise.shapes.row import ARGUMENT_NAMES, drop_nulls
from turnwise.template import Template, compile_jinja

FILE_NAME = "chat_template.json"
MAX_FILE = 4 * 2**20  # bytes
MESSAGE_VARIABLES = ("user", "bot", "query", "index")
"""Variables that the messages set."""

Rounds = Sequence[Sequence[str]]
Context = JsonMapping | None


class InvalidRounds(MessageError, AssertionError, ValueError):
    """Rounds that are not rounds; PaddleNLP raises AssertionError or ValueError."""


@dataclass
class ChatTemplate:
    """The fields of a `chat_template.json`. All are optional; a query without a template stays as it is.

    Example:
        >>> template = ChatTemplate(system="Be brief.", query=" Q: {{query}} A:")
        >>> template("hi")
        'Be brief. Q: hi A:'
    """

    conversation: list[str] | None = None
    system: str | None = None
    query: str | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        paddlenlp.check_fields(self.to_dict())

    @classmethod
    def from_dict(cls, config: JsonMapping, exact: bool = False) -> ChatTemplate:
        """Return the template of the content of a file."""
        return cls(**paddlenlp.check_fields(config), exact=exact)

    @classmethod
    def from_file(cls, file: str | os.PathLike[str], exact: bool = False) -> ChatTemplate:
        """Return the template of a file, or of the `chat_template.json` in a folder."""
        path, folder = Path(file), None
        if path.is_dir():
            path, folder = path / FILE_NAME, path
        try:
            text = read_file(path, MAX_FILE, folder).decode("utf-8")
            return cls(**paddlenlp.check_fields(text), exact=exact)
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{path} cannot be read: {error_reason(error)}") from None
        except SourceError as error:
            raise error.within(str(path)) from None

    def to_dict(self) -> JsonObject:
        """Return the fields that are set."""
        fields = {"system": self.system, "conversation": self.conversation, "query": self.query}
        return drop_nulls(fields)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the file where `from_file(folder)` finds it, and return its path."""
        path = Path(folder) / FILE_NAME
        text = json.dumps(self.to_dict(), ensure_ascii=False, indent=4)
        path.write_text(f"{text}\n", encoding="utf-8")
        return path

    def render_system(self, context_data: Context = None) -> str:
        """Return the system text; "" without one."""
        if self.system is None:
            return ""
        return self._render_field(self.system, "system", self._check_context(context_data))

    def render_conversation(
        self, conversation_data: Any, index: int = 0, context_data: Context = None
    ) -> list[str]:
        """Return the user's and the bot's part of one finished round, `[user, bot]` or `{"user": ..., "bot": ...}`."""
        if self.conversation is None:
            raise InvalidRounds(
                "this chat template has no `conversation`, which writes the rounds before the last"
            )
        data = conversation_data
        if isinstance(data, list | tuple) and len(data) == 2:
            data = {"user": data[0], "bot": data[1], "index": index}
        if not isinstance(data, Mapping) or not {"user", "bot"} <= data.keys():
            raise InvalidRounds(
                f"a finished round is [user, bot], not {short_repr(data)}", path=f"rounds[{index}]"
            )
        values = {**data, **self._check_context(context_data)}
        return [
            self._render_field(text, f"conversation[{number}]", values)
            for number, text in enumerate(self.conversation)
        ]

    def render_query(self, query: str, index: int = 0, context_data: Context = None) -> str:
        """Return the last question, as the template writes it."""
        if self.query is None:
            return query
        values = self._check_context(context_data)
        for name in ("query", "index"):
            if name in values:
                raise MessageError(
                    f"the context may not give {name!r}: it is an argument",
                    path=f"context_data.{name}",
                )
        return self._render_field(self.query, "query", {**values, "query": query, "index": index})

    def __call__(self, conversations: str | Rounds, context_data: Context = None) -> str:
        """Return the prompt: the system text, the finished rounds, and the last question."""
        rounds = as_rounds(conversations)
        context = self._check_context(context_data)
        *history, last = rounds
        if len(last) != 1 and not self.exact:
            raise InvalidRounds(
                f"the last round is one question, [user]; found {len(last)} texts",
                path=f"rounds[{len(history)}]",
                hint="Leave the answer out, or use encode_chat_inputs for training.",
            )
        with_length = {**context, "length": len(rounds)}
        text = self.render_system(context if self.exact else with_length)
        flags: dict[str, bool] = {}
        for index, turn in enumerate(history):
            flags = {"is_first": index == 0, "is_last": False}
            text += "".join(self.render_conversation(turn, index, {**with_length, **flags}))
        if not self.exact:  # PaddleNLP keeps the flags of the round before
            flags = {"is_first": not history, "is_last": True}
        return text + self.render_query(last[0], len(history), {**with_length, **flags})

    def render_parts(self, conversations: Rounds, context_data: Context = None) -> JsonObject:
        """Return the system text and the `[user, bot]` of each finished round; the bot's part is trained."""
        if not isinstance(conversations, list | tuple):
            raise InvalidRounds(
                f"finished rounds are a list of [user, bot], not {short_repr(conversations)}",
                path="rounds",
            )
        context = self._check_context(context_data)
        last = len(conversations) - 1
        if not self.exact:
            context["length"] = len(conversations)
        system = self.render_system(context) if self.system else None
        rounds = []
        for index, turn in enumerate(conversations):
            flags = {"is_first": index == 0, "is_last": index == last}
            rounds.append(self.render_conversation(turn, index, {**context, **flags}))
        return {"system": system, "conversations": rounds}

    def _render_field(self, text: str, where: str, values: JsonMapping) -> str:
        with raise_jinja_errors():
            template, written_names = _compile_field(text, where, self.exact)
            rendered = template.render([], **values).text
        if not self.exact:
            _warn_of_unknown_names(written_names, where, values)
        return rendered

    def _check_context(self, given: Any) -> JsonObject:
        """Return a copy of the context with the default of `is_training`; refuse names that mean something else."""
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            problem = f"must be a mapping of names to values, not {short_repr(given)}"
            raise MessageError(problem, path="context_data")
        for name in given:
            problem = f"the context may not give {short_repr(name)}"
            if not isinstance(name, str):
                raise MessageError(problem, path="context_data", hint="Names are texts.")
            if name in ARGUMENT_NAMES:
                raise MessageError(
                    problem, path="context_data", hint="It is an argument of the renderer."
                )
            if name in MESSAGE_VARIABLES and not self.exact:
                raise MessageError(
                    problem,
                    path=f"context_data.{name}",
                    hint="It would hide what the messages say.",
                )
        return {"is_training": False, **given}


@cache
def _compile_field(text: str, where: str, exact: bool) -> tuple[Template, frozenset[str]]:
    parse = paddlenlp.PaddleNLPField.of if exact else paddlenlp.parse_field
    field = parse(text, where)
    return compile_jinja(field.tags, name=where), field.written_names


def _warn_of_unknown_names(names: frozenset[str], where: str, values: JsonMapping) -> None:
    """Tell of variables that a field writes and nobody gives: a misspelt one would lose its text silently."""
    # The flags are known, and have no value in some calls.
    unknown = sorted(names - values.keys() - set(paddlenlp.FLAGS))
    if not unknown:
        return
    hint = did_you_mean(unknown[0], values, "Given are") or ""
    listed = ", ".join(f"{{{{{name}}}}}" for name in unknown)
    message = f"{where} writes {listed}, which has no value here, so nothing is written. {hint}"
    warn(message.rstrip(), TurnwiseWarning, stacklevel=5)


def as_rounds(conversation: Any) -> list[Sequence[str]]:
    """Return a question as a round, and rounds as they are; a list of questions is a batch, which is refused."""
    if isinstance(conversation, str):
        return [[conversation]]
    if not isinstance(conversation, list | tuple) or not conversation:
        raise InvalidRounds(
            f"a conversation is a text or a list of rounds, not {short_repr(conversation)}"
        )
    for index, turn in enumerate(conversation):
        path = f"rounds[{index}]"
        if isinstance(turn, str):
            raise InvalidRounds(
                "a list of texts is a batch of conversations",
                path=path,
                hint='One conversation at a time: a text, or [["question", "answer"], ["question"]].',
            )
        if not are_texts(turn) or not 1 <= len(turn) <= 2:
            raise InvalidRounds(
                f"a round is [user, bot] or [user], not {short_repr(turn)}", path=path
            )
    return list(conversation)


def as_messages(conversation: Any) -> list[dict[str, str]]:
    """Return a question or rounds as OpenAI messages; messages stay as they are.

    Raises:
        MessageError: If it is none of these, or a round before the last has no answer.

    Example:
        >>> as_messages([["hi", "yes"]])
        [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'yes'}]
    """
    is_list = isinstance(conversation, list | tuple) and conversation
    if is_list and all(isinstance(item, Mapping) for item in conversation):
        return list(conversation)
    messages = []
    rounds = as_rounds(conversation)
    for index, turn in enumerate(rounds):
        if len(turn) == 1 and index < len(rounds) - 1:
            raise InvalidRounds(
                f"a finished round is [user, bot], not {short_repr(turn)}",
                path=f"rounds[{index}]",
                hint="Only the last round may lack an answer.",
            )
        for role, text in zip(("user", "assistant"), turn, strict=False):
            messages.append({"role": role, "content": text})
    return messages

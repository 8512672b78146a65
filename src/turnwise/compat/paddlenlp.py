"""PaddleNLP's own names: ChatTemplate, and the chat calls of its tokenizers.

`PaddleChat` replaces a PaddleNLP tokenizer in `init_chat_template`, `apply_chat_template` and `encode_chat_inputs`.
Without a tokenizer it returns texts (`tokenize=False`), with one, ids. Each field of a template is rendered by the
engine, by the rules of `dialects.paddlenlp`. Differences from PaddleNLP, which `exact=True` removes:

* a last round with an answer is refused, not cut to its question;
* `is_first`, `is_last` and `length` have the same meaning in every field, not the values of the round before;
* context named `user`, `bot`, `query` or `index` is refused, and does not replace the messages;
* truncated rounds are never longer than `max_length`: PaddleNLP counts from the end of a text (a negative slice) if the
  system part is longer than `src_length`, or the question longer than what is left.

With and without `exact`, a context is never modified: PaddleNLP's flags leak from call to call through a shared
default. Paddle is needed only for its tensors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turnwise.compat import MissingKey
from turnwise.compat.batches import check_length
from turnwise.compat.tokenizer_shim import call_tokenizer, encode_text, with_calls
from turnwise.dialects import paddlenlp
from turnwise.errors import MessageError, SourceError, short_repr
from turnwise.local_files import error_reason, read_file
from turnwise.shapes.row import ARGUMENT_NAMES
from turnwise.template import Template, compile_jinja

__all__ = [
    "Chat",
    "ChatTemplate",
    "ChatTemplateMixin",
    "PaddleChat",
    "as_messages",
    "tokenize_rounds_example",
    "training_rounds",
    "truncate_rounds",
]

FILE_NAME = "chat_template.json"
MAX_FILE = 4 * 2**20  # bytes
MESSAGE_VARIABLES = ("user", "bot", "query", "index")
"""Variables that the messages set."""

Rounds = Sequence[Sequence[str]]
Context = Mapping[str, Any] | None


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
    def from_dict(cls, config: Mapping[str, Any], exact: bool = False) -> ChatTemplate:
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

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set."""
        fields = {"system": self.system, "conversation": self.conversation, "query": self.query}
        return {key: value for key, value in fields.items() if value is not None}

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
        return _render_field(self.system, "system", self._check_context(context_data))

    def render_conversation(
        self, conversation_data: Any, index: int = 0, context_data: Context = None
    ) -> list[str]:
        """Return the user's and the bot's part of one finished round, `[user, bot]` or `{"user": ..., "bot": ...}`."""
        if self.conversation is None:
            problem = (
                "this chat template has no `conversation`, which writes the rounds before the last"
            )
            raise MessageError(problem)
        data = conversation_data
        if isinstance(data, list | tuple) and len(data) == 2:
            data = {"user": data[0], "bot": data[1], "index": index}
        if not isinstance(data, Mapping) or not {"user", "bot"} <= data.keys():
            problem = f"a finished round is [user, bot], not {short_repr(data)}"
            raise MessageError(problem, path=f"rounds[{index}]")
        values = {**data, **self._check_context(context_data)}
        return [
            _render_field(text, f"conversation[{number}]", values)
            for number, text in enumerate(self.conversation)
        ]

    def render_query(self, query: str, index: int = 0, context_data: Context = None) -> str:
        """Return the last question, as the template writes it."""
        if self.query is None:
            return query
        values = self._check_context(context_data)
        for name in ("query", "index"):
            if name in values:
                problem = f"the context may not give {name!r}: it is an argument"
                raise MessageError(problem, path=f"context_data.{name}")
        return _render_field(self.query, "query", {**values, "query": query, "index": index})

    def __call__(self, conversations: str | Rounds, context_data: Context = None) -> str:
        """Return the prompt: the system text, the finished rounds, and the last question."""
        rounds = _as_rounds(conversations)
        context = self._check_context(context_data)
        *history, last = rounds
        if len(last) != 1 and not self.exact:
            hint = "Leave the answer out, or use encode_chat_inputs for training."
            problem = f"the last round is one question, [user]; found {len(last)} texts"
            raise MessageError(problem, path=f"rounds[{len(history)}]", hint=hint)
        with_length = {**context, "length": len(rounds)}
        text = self.render_system(context if self.exact else with_length)
        flags: dict[str, bool] = {}
        for index, turn in enumerate(history):
            flags = {"is_first": index == 0, "is_last": False}
            text += "".join(self.render_conversation(turn, index, {**with_length, **flags}))
        if not self.exact:  # PaddleNLP keeps the flags of the round before
            flags = {"is_first": not history, "is_last": True}
        return text + self.render_query(last[0], len(history), {**with_length, **flags})

    def render_parts(self, conversations: Rounds, context_data: Context = None) -> dict[str, Any]:
        """Return the system text and the `[user, bot]` of each finished round; the bot's part is trained."""
        if not isinstance(conversations, list | tuple):
            problem = f"finished rounds are a list of [user, bot], not {short_repr(conversations)}"
            raise MessageError(problem, path="rounds")
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

    def _check_context(self, given: Any) -> dict[str, Any]:
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
                hint = "It is an argument of the renderer."
                raise MessageError(problem, path="context_data", hint=hint)
            if name in MESSAGE_VARIABLES and not self.exact:
                hint = "It would hide what the messages say."
                raise MessageError(problem, path=f"context_data.{name}", hint=hint)
        return {"is_training": False, **given}


@cache
def _compile_field(text: str, where: str) -> Template:
    return compile_jinja(paddlenlp.parse_field(text, where).tags, name=where)


def _render_field(text: str, where: str, values: Mapping[str, Any]) -> str:
    return _compile_field(text, where).render([], **values).text


def _as_rounds(conversation: Any) -> list[Sequence[str]]:
    """Return a question as a round, and rounds as they are; a list of questions is a batch, which is refused."""
    if isinstance(conversation, str):
        return [[conversation]]
    if not isinstance(conversation, list | tuple) or not conversation:
        problem = f"a conversation is a text or a list of rounds, not {short_repr(conversation)}"
        raise MessageError(problem)
    for index, turn in enumerate(conversation):
        path = f"rounds[{index}]"
        if isinstance(turn, str):
            hint = 'One conversation at a time: a text, or [["question", "answer"], ["question"]].'
            problem = "a list of texts is a batch of conversations"
            raise MessageError(problem, path=path, hint=hint)
        if not _are_texts(turn) or not 1 <= len(turn) <= 2:
            problem = f"a round is [user, bot] or [user], not {short_repr(turn)}"
            raise MessageError(problem, path=path)
    return list(conversation)


def _are_texts(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(value, str) for value in values)


class ChatTemplateMixin:
    """The chat calls of a tokenizer, for a class that has `__call__` and `encode`; `PaddleChat` is for other cases."""

    chat_template: ChatTemplate | Template | None = None
    special_tokens_map: Mapping[str, Any] = {}
    exact = False

    def init_chat_template(self, chat_template: Any) -> None:
        """Set the template.

        Args:
            chat_template: A file or its folder, the content of the file, a template, or Jinja text over messages.

        Raises:
            SourceError: If it is none of these.
        """
        if isinstance(chat_template, ChatTemplate | Template):
            self.chat_template = chat_template
        elif isinstance(chat_template, Mapping):
            self.chat_template = ChatTemplate.from_dict(chat_template, self.exact)
        elif _is_path(chat_template):
            self.chat_template = ChatTemplate.from_file(chat_template, self.exact)
        elif isinstance(chat_template, str) and ("{{" in chat_template or "{%" in chat_template):
            self.chat_template = compile_jinja(chat_template, name="chat_template")
        else:
            hint = "Accepted: a path, the dict that the file holds, or Jinja text."
            problem = f"this is not a chat template: {short_repr(chat_template)}"
            raise SourceError(problem, hint=hint)

    def apply_chat_template(
        self,
        conversation: Any,
        tokenize: bool = True,
        context_data: Context = None,
        **tokenizer_kwargs: Any,
    ) -> Any:
        """Render the prompt for a question or for rounds.

        Args:
            conversation: A question, rounds, or messages for a Jinja template.
            tokenize: Return what the tokenizer makes of the text, not the text.
            context_data: Further variables of the template.
            **tokenizer_kwargs: Arguments of the tokenizer's call.

        Raises:
            SourceError: If there is no chat template.
            MessageError: If the conversation does not fit, or a tokenizer is missing.
        """
        template = self._require_template()
        if isinstance(template, ChatTemplate):
            text = template(conversation, context_data)
        else:
            prompt = tokenizer_kwargs.pop("add_generation_prompt", True)
            text = self._render(template, as_messages(conversation), prompt)
        if not tokenize:
            return text
        tokenizer = self._require_tokenizer("apply_chat_template")
        if tokenizer_kwargs.get("return_tensors") == "pd":
            _require_paddle()
        # The template has written the special tokens already.
        tokenizer_kwargs["add_special_tokens"] = False
        return call_tokenizer(tokenizer, text, **tokenizer_kwargs)

    def encode_chat_inputs(
        self,
        conversations: Rounds,
        context_data: Context = None,
        tokenize: bool = True,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Render finished rounds for training.

        Args:
            conversations: Rounds `[user, bot]`.
            context_data: Further variables of the template.
            tokenize: Return ids, not texts.
            **kwargs: `add_generation_prompt`, for a Jinja template.

        Returns:
            `{"system": ..., "conversations": [[user, bot], ...]}`.

        Raises:
            MessageError: If a round is not finished, or a tokenizer is missing.
        """
        template = self._require_template()
        if isinstance(template, ChatTemplate):
            parts = template.render_parts(conversations, context_data)
        else:
            prompt = kwargs.pop("add_generation_prompt", True)
            parts = {"conversations": self._split_rendering(template, conversations, prompt)}
        if not tokenize:
            return parts
        tokenizer = self._require_tokenizer("encode_chat_inputs")
        result: dict[str, Any] = {}
        if parts.get("system") is not None:
            result["system"] = encode_text(tokenizer, parts["system"])
        result["conversations"] = [
            [encode_text(tokenizer, part) for part in turn] for turn in parts["conversations"]
        ]
        return result

    def _split_rendering(
        self, template: Template, conversations: Rounds, prompt: bool
    ) -> list[list[str]]:
        """Return for each round of a Jinja template what its prompt adds to the text, and what its answer adds."""
        messages = as_messages(conversations)
        if len(messages) != 2 * len(conversations):
            raise MessageError("for training every round is [user, bot]", path="rounds")
        parts = []
        before = ""
        for index in range(len(conversations)):
            answer = 2 * index + 1
            asked = self._render(template, messages[:answer], prompt)
            answered = self._render(template, messages[: answer + 1], False)
            if not asked.startswith(before) or not answered.startswith(asked):
                problem = "with this template an answer does not continue its prompt"
                raise MessageError(problem, path=f"rounds[{index}]")
            parts.append([asked.removeprefix(before), answered.removeprefix(asked)])
            before = answered
        return parts

    def _render(self, template: Template, messages: list[dict[str, str]], prompt: bool) -> str:
        tokens = self.special_tokens_map
        return template.render(messages, add_generation_prompt=prompt, **tokens).text

    def _require_template(self) -> ChatTemplate | Template:
        if self.chat_template is None:
            raise SourceError("there is no chat template", hint="Call init_chat_template first.")
        return self.chat_template

    def _require_tokenizer(self, call: str) -> Any:
        """Return the tokenizer: this object, unless a subclass has another."""
        if not callable(self):
            hint = "Say tokenize=False for the text, or give PaddleChat a tokenizer."
            raise MessageError(f"{call} makes ids with a tokenizer, and there is none", hint=hint)
        return self


class PaddleChat(ChatTemplateMixin):
    """The chat calls with the tokenizer of another library, or without one for texts only.

    Example:
        >>> chat = PaddleChat({"query": "Q: {{query}}"})
        >>> chat.apply_chat_template("hi", tokenize=False)
        'Q: hi'
    """

    def __init__(
        self, chat_template: Any = None, tokenizer: Any = None, exact: bool = False
    ) -> None:
        self.tokenizer = with_calls(tokenizer)
        self.exact = exact
        self.special_tokens_map = getattr(self.tokenizer, "special_tokens_map", {})
        if chat_template is not None:
            self.init_chat_template(chat_template)

    def _require_tokenizer(self, call: str) -> Any:
        return super()._require_tokenizer(call) if self.tokenizer is None else self.tokenizer


Chat = PaddleChat


def _require_paddle() -> None:
    if find_spec("paddle") is None:
        problem = "return_tensors='pd' needs Paddle, which is not installed"
        raise MessageError(problem, hint="Others: 'np', 'pt', None.")


def _is_path(place: Any) -> bool:
    """Return True for a path object, and for a text that names an existing file or folder."""
    if not isinstance(place, str):
        return isinstance(place, os.PathLike)
    try:
        return os.path.exists(place)
    except ValueError:  # a text with a null character is not a path
        return False


def as_messages(conversation: Any) -> list[dict[str, str]]:
    """Return a question or rounds as OpenAI messages; messages stay as they are.

    Example:
        >>> as_messages([["hi", "yes"]])
        [{'role': 'user', 'content': 'hi'}, {'role': 'assistant', 'content': 'yes'}]
    """
    is_list = isinstance(conversation, list | tuple) and conversation
    if is_list and all(isinstance(item, Mapping) for item in conversation):
        return list(conversation)
    messages = []
    for turn in _as_rounds(conversation):
        for role, text in zip(("user", "assistant"), turn, strict=False):
            messages.append({"role": role, "content": text})
    return messages


def truncate_rounds(
    parts: Mapping[str, Any], max_length: int, src_length: int, exact: bool = False
) -> list[tuple[Any, bool]]:
    """Keep the system part, which is never cut, and as many of the newest rounds as fit.

    A last round that alone is too long is cut: its user part to `src_length` (system included), then its bot part to
    what is left.

    Args:
        parts: What `encode_chat_inputs` returned, in texts or ids.
        max_length: The length of the result; with `exact` it may be longer, as in PaddleNLP.
        src_length: The length of the system part and a user part that is cut.

    Returns:
        The parts in order, as `(part, learnt)`.

    Raises:
        MessageError: If the system part alone is too long.
    """
    max_length = check_length(max_length, "max_length")
    src_length = check_length(src_length, "src_length")
    rounds = _finished_rounds(parts)
    system = parts.get("system") or rounds[0][0][:0]
    if len(system) >= max_length:
        problem = f"the system part has length {len(system)}, which must be under max_length, {max_length}"
        raise MessageError(problem)
    room = max_length - len(system)
    kept: list[tuple[Any, bool]] = []
    for user, bot in reversed(rounds):
        if len(user) + len(bot) > room:
            if not kept:  # the last round
                user_length = src_length - len(system)
                if not exact:
                    user_length = max(0, min(user_length, room))
                user = user[:user_length]
                kept = [(user, False), (bot[: room - len(user)], True)]
            break
        room -= len(user) + len(bot)
        kept = [(user, False), (bot, True), *kept]
    return [part for part in [(system, False), *kept] if len(part[0])]


def _finished_rounds(parts: Any) -> Sequence[Any]:
    """Return the rounds of what `encode_chat_inputs` returned."""
    if not isinstance(parts, Mapping) or "conversations" not in parts:
        problem = (
            f"there are no conversations, as encode_chat_inputs returns them: {short_repr(parts)}"
        )
        raise MissingKey(problem)
    rounds = parts["conversations"]
    if not isinstance(rounds, list | tuple) or not rounds:
        raise MessageError("there are no rounds", path="conversations")
    for index, turn in enumerate(rounds):
        if not isinstance(turn, list | tuple) or len(turn) != 2:
            problem = f"a round is [user, bot], not {short_repr(turn)}"
            raise MessageError(problem, path=f"conversations[{index}]")
    return rounds


def tokenize_rounds_example(
    chat: ChatTemplateMixin, example: Mapping[str, Any], data_args: Any
) -> tuple[dict[str, Any], list[int]]:
    """Encode a row of training data, truncated by `truncate_rounds`.

    Args:
        chat: A tokenizer with a chat template.
        example: `{"src": ..., "tgt": ..., "context": ...}`.
        data_args: An object with `max_length` and `src_length`.

    Returns:
        `{"input_ids": [...]}` and the labels.

    Raises:
        MessageError: If the row is not of this shape.
    """
    context = {**_context_of(example), "is_training": True}
    parts = chat.encode_chat_inputs(training_rounds(example), context)
    max_length: Any = getattr(data_args, "max_length", None)
    src_length: Any = getattr(data_args, "src_length", None)
    ids: list[int] = []
    labels: list[int] = []
    for part, learnt in truncate_rounds(parts, max_length, src_length, chat.exact):
        ids += part
        labels += part if learnt else [-100] * len(part)
    return {"input_ids": ids}, labels


def _context_of(example: Mapping[str, Any]) -> Mapping[str, Any]:
    context = example.get("context") if isinstance(example, Mapping) else None
    if context is not None and not isinstance(context, Mapping):
        problem = f"must be a mapping of names to values, not {short_repr(context)}"
        raise MessageError(problem, path="context")
    return context or {}


def training_rounds(example: Mapping[str, Any]) -> list[list[str]]:
    """Return the rounds of `src` and `tgt`, each a text or a list of texts.

    Raises:
        MessageError: If one is missing, or there are more of one than of the other.

    Example:
        >>> training_rounds({"src": "hi", "tgt": "yes"})
        [['hi', 'yes']]
    """
    sides = []
    for key in ("src", "tgt"):
        if not isinstance(example, Mapping) or key not in example:
            problem = f"a row of PaddleNLP's data has src and tgt: {short_repr(example)}"
            raise MissingKey(problem, path=key)
        side = [example[key]] if isinstance(example[key], str) else example[key]
        if not _are_texts(side):
            problem = f"must be a text or a list of texts, not {short_repr(side)}"
            raise MessageError(problem, path=key)
        sides.append(side)
    src, tgt = sides
    if len(src) != len(tgt):
        problem = f"src and tgt have the same number of texts; found {len(src)} and {len(tgt)}"
        raise MessageError(problem, path="src")
    return [list(pair) for pair in zip(src, tgt, strict=True)]

"""PaddleNLP's own names: ChatTemplate, and the calls that its tokenizers have for it.

`Chat` stands where a PaddleNLP tokenizer stood: `init_chat_template`, `apply_chat_template`, `encode_chat_inputs`.
Without a tokenizer it gives texts (`tokenize=False`); with one, ids. Each field is rendered by the engine, by the
rules of `dialects.paddlenlp`. Better than the original by default, and as the original with `exact=True`:

* a last round with an answer is refused, not cut to its question;
* `is_first`, `is_last` and `length` mean the same in every field, not what the round before left behind;
* context named `user`, `bot`, `query` or `index` is refused, not put over the messages;
* rounds that are cut to `max_length` are never longer: the original counts from the end of a text (a negative slice)
  where the system part is longer than `src_length`, or the question than what is left.

In both, a context is never written to: the original's flags leak from call to call through a shared default, and that
is not reproduced. Paddle itself is not needed unless its tensors are asked for.
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
from turnwise.compat.batches import whole
from turnwise.compat.tokenizer_shim import called, ids_of, speaker
from turnwise.dialects import paddlenlp
from turnwise.errors import MessageError, SourceError, short_repr
from turnwise.shapes.row import ARGUMENT_NAMES
from turnwise.template import Template

FILE_NAME = "chat_template.json"
OWN = ("user", "bot", "query", "index")
NO_ROUNDS = "this chat template has no `conversation`, which writes the rounds before the last"

MISSING = object()

Rounds = Sequence[Sequence[str]]


@dataclass
class ChatTemplate:
    """The three fields. All are optional: a query without template is written as it is."""

    conversation: list[str] | None = None
    system: str | None = None
    query: str | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        paddlenlp.check_fields(self.to_dict())

    @classmethod
    def from_dict(cls, config: Mapping[str, Any], exact: bool = False) -> ChatTemplate:
        return cls(**paddlenlp.check_fields(config), exact=exact)

    @classmethod
    def from_file(cls, file: str | os.PathLike[str], exact: bool = False) -> ChatTemplate:
        path = Path(file) / FILE_NAME if Path(file).is_dir() else Path(file)
        try:
            return cls(**paddlenlp.check_fields(path.read_text(encoding="utf-8")), exact=exact)
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{path} cannot be read: {error}") from None
        except SourceError as error:
            raise error.within(str(path)) from None

    def to_dict(self) -> dict[str, Any]:
        fields = {"system": self.system, "conversation": self.conversation, "query": self.query}
        return {key: value for key, value in fields.items() if value is not None}

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the file where `from_file(folder)` finds it."""
        path = Path(folder) / FILE_NAME
        path.write_text(
            json.dumps(self.to_dict(), ensure_ascii=False, indent=4) + "\n", encoding="utf-8"
        )
        return path

    def render_system(self, context_data: Mapping[str, Any] | None = None) -> str:
        return (
            field_text(self.system, "system", self.context(context_data))
            if self.system is not None
            else ""
        )

    def render_conversation(
        self, conversation_data: Any, index: int = 0, context_data: Mapping[str, Any] | None = None
    ) -> list[str]:
        """The user's and the bot's part of one finished round, `[user, bot]` or `{"user": ..., "bot": ...}`."""
        if self.conversation is None:
            raise MessageError(NO_ROUNDS)
        data = conversation_data
        pair = isinstance(data, list | tuple) and len(data) == 2
        if not pair and not (isinstance(data, Mapping) and {"user", "bot"} <= data.keys()):
            raise MessageError(
                f"a finished round is [user, bot], not {short_repr(data)}", path=f"rounds[{index}]"
            )
        if pair:
            data = {"user": data[0], "bot": data[1], "index": index}
        values = {**data, **self.context(context_data)}
        return [
            field_text(text, f"conversation[{i}]", values)
            for i, text in enumerate(self.conversation)
        ]

    def render_query(
        self, query: str, index: int = 0, context_data: Mapping[str, Any] | None = None
    ) -> str:
        if self.query is None:
            return query
        values = self.context(context_data)
        for name in ("query", "index"):
            if name in values:
                raise MessageError(
                    f"the context may not give {name!r}: it is an argument",
                    path=f"context_data.{name}",
                )
        return field_text(self.query, "query", {**values, "query": query, "index": index})

    def __call__(
        self, conversations: str | Rounds, context_data: Mapping[str, Any] | None = None
    ) -> str:
        """The prompt: system text, finished rounds, and the last question."""
        rounds = as_rounds(conversations)
        context = self.context(context_data)
        *history, last = rounds
        if len(last) != 1 and not self.exact:
            hint = "Leave the answer out, or use encode_chat_inputs for training."
            raise MessageError(
                f"the last round is one question, [user]; found {len(last)} texts",
                path=f"rounds[{len(history)}]",
                hint=hint,
            )
        every = {"length": len(rounds)}
        text = self.render_system(context if self.exact else {**context, **every})
        flags: dict[str, bool] = {}
        for index, turn in enumerate(history):
            flags = {"is_first": index == 0, "is_last": False}
            text += "".join(self.render_conversation(turn, index, {**context, **every, **flags}))
        if not self.exact:
            flags = {"is_first": not history, "is_last": True}
        return text + self.render_query(last[0], len(history), {**context, **every, **flags})

    def parts(
        self, conversations: Rounds, context_data: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Finished rounds as training sees them: the system text, and `[user, bot]` for each; the bot's is learnt."""
        if not isinstance(conversations, list | tuple):
            raise MessageError(
                f"finished rounds are a list of [user, bot], not {short_repr(conversations)}",
                path="rounds",
            )
        context = self.context(context_data)
        every = {} if self.exact else {"length": len(conversations)}
        system = self.render_system({**context, **every}) if self.system else None
        rounds = [
            self.render_conversation(
                turn,
                index,
                {
                    **context,
                    **every,
                    "is_first": index == 0,
                    "is_last": index == len(conversations) - 1,
                },
            )
            for index, turn in enumerate(conversations)
        ]
        return {"system": system, "conversations": rounds}

    def context(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        if given is not None and not isinstance(given, Mapping):
            raise MessageError(
                f"is a mapping of names to values, not {short_repr(given)}", path="context_data"
            )
        for name in given or ():
            if not isinstance(name, str) or name in ARGUMENT_NAMES:
                hint = (
                    "It is an argument of the renderer."
                    if isinstance(name, str)
                    else "Names are texts."
                )
                raise MessageError(
                    f"the context may not give {short_repr(name)}", path="context_data", hint=hint
                )
        for name in OWN:
            if not self.exact and name in (given or {}):
                hint = "It would hide what the messages say."
                raise MessageError(
                    f"the context may not give {name!r}", path=f"context_data.{name}", hint=hint
                )
        return {"is_training": False, **(given or {})}


@cache
def compiled(text: str, where: str) -> Template:
    return Template.from_jinja(paddlenlp.parse_field(text, where).tags, name=where)


def field_text(text: str, where: str, values: Mapping[str, Any]) -> str:
    return compiled(text, where).render([], **values).text


def as_rounds(conversation: Any) -> list[Sequence[str]]:
    """A question, or rounds; a list of questions is a batch, which is not accepted."""
    if isinstance(conversation, str):
        return [[conversation]]
    if not isinstance(conversation, list | tuple) or not conversation:
        raise MessageError(
            f"a conversation is a text or a list of rounds, not {short_repr(conversation)}"
        )
    for index, turn in enumerate(conversation):
        if isinstance(turn, str):
            hint = 'One conversation at a time: a text, or [["question", "answer"], ["question"]].'
            raise MessageError(
                "a list of texts is a batch of conversations", path=f"rounds[{index}]", hint=hint
            )
        if (
            not isinstance(turn, list | tuple)
            or not 1 <= len(turn) <= 2
            or not all(isinstance(part, str) for part in turn)
        ):
            raise MessageError(
                f"a round is [user, bot] or [user], not {short_repr(turn)}", path=f"rounds[{index}]"
            )
    return list(conversation)


class ChatTemplateMixin:
    """The chat calls of a tokenizer, for a class that has `__call__` and `encode`; see `Chat` for one without."""

    chat_template: ChatTemplate | Template | None = None
    special_tokens_map: Mapping[str, Any] = {}
    exact = False

    def init_chat_template(self, chat_template: Any) -> None:
        """Take a file or its folder, the content of the file, or the text of a Jinja template over messages."""
        if isinstance(chat_template, ChatTemplate | Template):
            self.chat_template = chat_template
        elif isinstance(chat_template, Mapping):
            self.chat_template = ChatTemplate.from_dict(chat_template, self.exact)
        elif isinstance(chat_template, os.PathLike) or (
            isinstance(chat_template, str) and exists(chat_template)
        ):
            self.chat_template = ChatTemplate.from_file(chat_template, self.exact)
        elif isinstance(chat_template, str) and ("{{" in chat_template or "{%" in chat_template):
            self.chat_template = Template.from_jinja(chat_template, name="chat_template")
        else:
            hint = "Accepted: a path, the dict that the file holds, or Jinja text."
            raise SourceError(f"this is no chat template: {short_repr(chat_template)}", hint=hint)

    def apply_chat_template(
        self,
        conversation: Any,
        tokenize: bool = True,
        context_data: Mapping[str, Any] | None = None,
        **tokenizer_kwargs: Any,
    ) -> Any:
        """The prompt for a question or for rounds: its text, or what the tokenizer makes of it."""
        template = self.template()
        if isinstance(template, ChatTemplate):
            text = template(conversation, context_data)
        else:
            prompt = tokenizer_kwargs.pop("add_generation_prompt", True)
            text = self.rendered(template, as_messages(conversation), prompt)
        if not tokenize:
            return text
        # the template has written whatever special tokens there are
        tokenizer = self.bound("apply_chat_template")
        if tokenizer_kwargs.get("return_tensors") == "pd":
            require_paddle()
        return called(tokenizer, text, **{**tokenizer_kwargs, "add_special_tokens": False})

    def encode_chat_inputs(
        self,
        conversations: Rounds,
        context_data: Mapping[str, Any] | None = None,
        tokenize: bool = True,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Finished rounds for training: `{"system": ..., "conversations": [[user, bot], ...]}` in ids, or in text."""
        template = self.template()
        if isinstance(template, ChatTemplate):
            parts = template.parts(conversations, context_data)
        else:
            parts = {
                "conversations": self.cut(
                    template, conversations, kwargs.pop("add_generation_prompt", True)
                )
            }
        if not tokenize:
            return parts
        tokenizer = self.bound("encode_chat_inputs")
        result: dict[str, Any] = {}
        if parts.get("system") is not None:
            result["system"] = ids_of(tokenizer, parts["system"])
        result["conversations"] = [
            [ids_of(tokenizer, part) for part in turn] for turn in parts["conversations"]
        ]
        return result

    def cut(self, template: Template, conversations: Rounds, prompt: bool) -> list[list[str]]:
        """Rounds of a Jinja template: what each prompt adds to the text before it, and each answer to that."""
        messages = as_messages(conversations)
        if len(messages) != 2 * len(conversations):
            raise MessageError("for training every round is [user, bot]", path="rounds")
        found, done = [], ""
        for at in range(1, len(messages), 2):
            asked = self.rendered(template, messages[:at], prompt)
            told = self.rendered(template, messages[: at + 1], False)
            if not asked.startswith(done) or not told.startswith(asked):
                raise MessageError(
                    "with this template an answer does not continue its prompt",
                    path=f"rounds[{at // 2}]",
                )
            found.append([asked[len(done) :], told[len(asked) :]])
            done = told
        return found

    def rendered(self, template: Template, messages: list[dict[str, str]], prompt: bool) -> str:
        return template.render(
            messages, add_generation_prompt=prompt, **self.special_tokens_map
        ).text

    def template(self) -> ChatTemplate | Template:
        if self.chat_template is None:
            raise SourceError("there is no chat template", hint="Call init_chat_template first.")
        return self.chat_template

    def bound(self, call: str) -> Any:
        """What makes ids here."""
        if not callable(self):
            hint = "Say tokenize=False for the text, or give Chat a tokenizer."
            raise MessageError(f"{call} makes ids with a tokenizer, and there is none", hint=hint)
        return self


class Chat(ChatTemplateMixin):
    """The calls without a PaddleNLP tokenizer: with another library's, or with none and texts only."""

    def __init__(
        self, chat_template: Any = None, tokenizer: Any = None, exact: bool = False
    ) -> None:
        self.tokenizer, self.exact = speaker(tokenizer), exact
        self.special_tokens_map = getattr(self.tokenizer, "special_tokens_map", {})
        if chat_template is not None:
            self.init_chat_template(chat_template)

    def bound(self, call: str) -> Any:
        return super().bound(call) if self.tokenizer is None else self.tokenizer


def require_paddle() -> None:
    if find_spec("paddle") is None:
        raise MessageError(
            "return_tensors='pd' needs Paddle, which is not installed",
            hint="Others: 'np', 'pt', None.",
        ) from None


def exists(place: str) -> bool:
    try:
        return os.path.exists(place)
    except ValueError:  # a text with a null character is no path
        return False


def as_messages(conversation: Any) -> list[dict[str, str]]:
    if (
        isinstance(conversation, list | tuple)
        and conversation
        and all(isinstance(item, Mapping) for item in conversation)
    ):
        return list(conversation)
    roles = ("user", "assistant")
    return [
        {"role": role, "content": text}
        for turn in as_rounds(conversation)
        for role, text in zip(roles, turn, strict=False)
    ]


def truncated(
    parts: Mapping[str, Any], max_length: int, src_length: int, exact: bool = False
) -> list[tuple[Any, bool]]:
    """As many whole rounds as fit, the newest first to stay, behind the system part, which is never cut.

    `parts` are texts or lists of ids. A last round that alone is too long is cut: its user part to `src_length`
    (system included), then its bot part to what is left. The result is `(part, learnt)` in order, and no longer than
    `max_length`; with `exact`, it may be, as the original's.
    """
    max_length, src_length = whole(max_length, "max_length"), whole(src_length, "src_length")
    rounds = finished(parts)
    system = parts.get("system") or rounds[0][0][:0]
    if len(system) >= max_length:
        raise MessageError(
            f"the system part has length {len(system)}, which must be under max_length, {max_length}"
        )
    room = max_length - len(system)
    kept: list[tuple[Any, bool]] = []
    for index, (user, bot) in reversed(list(enumerate(rounds))):
        if len(user) + len(bot) > room:
            if index < len(rounds) - 1:
                break
            asked = src_length - len(system)
            user = user[: asked if exact else max(0, min(asked, room))]
            bot = bot[: room - len(user)]
            kept = [(user, False), (bot, True)]
            break
        room -= len(user) + len(bot)
        kept = [(user, False), (bot, True), *kept]
    return [part for part in [(system, False), *kept] if len(part[0])]


def finished(parts: Any) -> Sequence[Any]:
    """The rounds of what `encode_chat_inputs` gives."""
    if not isinstance(parts, Mapping) or "conversations" not in parts:
        raise MissingKey(
            f"what is cut has conversations, as encode_chat_inputs gives it; not {short_repr(parts)}"
        )
    rounds = parts["conversations"]
    if not isinstance(rounds, list | tuple) or not rounds:
        raise MessageError("there are no rounds", path="conversations")
    for index, turn in enumerate(rounds):
        if not isinstance(turn, list | tuple) or len(turn) != 2:
            raise MessageError(
                f"a round is [user, bot], not {short_repr(turn)}", path=f"conversations[{index}]"
            )
    return rounds


def tokenize_rounds_example(
    chat: ChatTemplateMixin, example: Mapping[str, Any], data_args: Any
) -> tuple[dict[str, Any], list[int]]:
    """`input_ids` and labels of `{"src": ..., "tgt": ..., "context": ...}`, cut as `truncated` does."""
    parts = chat.encode_chat_inputs(
        training_rounds(example), {**context_of(example), "is_training": True}
    )
    max_length, src_length = (
        whole(getattr(data_args, name, None), name) for name in ("max_length", "src_length")
    )
    segments = truncated(parts, max_length, src_length, chat.exact)
    ids = [token for part, _ in segments for token in part]
    labels = [token if learnt else -100 for part, learnt in segments for token in part]
    return {"input_ids": ids}, labels


def context_of(example: Mapping[str, Any]) -> Mapping[str, Any]:
    found = example.get("context")
    if found is not None and not isinstance(found, Mapping):
        raise MessageError(
            f"is a mapping of names to values, not {short_repr(found)}", path="context"
        )
    return found or {}


def training_rounds(example: Mapping[str, Any]) -> list[list[str]]:
    """The rounds of `src` and `tgt`, each a text or a list of texts."""
    for key in ("src", "tgt"):
        side = example.get(key, MISSING) if isinstance(example, Mapping) else MISSING
        if side is MISSING:
            raise MissingKey(
                f"a row of PaddleNLP's data has src and tgt: {short_repr(example)}", path=key
            )
        if not isinstance(side, str) and not (
            isinstance(side, list | tuple) and all(isinstance(text, str) for text in side)
        ):
            raise MessageError(f"is a text or a list of texts, not {short_repr(side)}", path=key)
    src, tgt = (
        [side] if isinstance(side, str) else list(side) for side in (example["src"], example["tgt"])
    )
    if len(src) != len(tgt):
        raise MessageError(
            f"src and tgt have the same number of texts; found {len(src)} and {len(tgt)}",
            path="src",
        )
    return [list(pair) for pair in zip(src, tgt, strict=True)]

"""PaddleNLP's own names: ChatTemplate, and the chat calls of its tokenizers.

    from turnwise.compat.paddlenlp import AutoTokenizer, ChatTemplate      # was: paddlenlp.transformers

`PaddleChat` replaces a PaddleNLP tokenizer in `init_chat_template`, `apply_chat_template` and `encode_chat_inputs`, and
passes everything else on to the tokenizer that it was given, so PaddleNLP's training code runs with it. Without a
tokenizer it returns texts (`tokenize=False`). Each field of a template is rendered by the engine, by the rules of
`dialects.paddlenlp`. Differences from PaddleNLP, which `exact=True` removes:

* a last round with an answer is refused, not cut to its question;
* `is_first`, `is_last` and `length` have the same meaning in every field, not the values of the round before;
* context named `user`, `bot`, `query` or `index` is refused, and does not replace the messages;
* truncated rounds are never longer than `max_length`: PaddleNLP counts from the end of a text (a negative slice) if the
  system part is longer than `src_length`, or the question longer than what is left;
* a field that does not write the message it is for is refused: its text would be lost;
* a variable that a field writes, `{{qurey}}`, and nobody gives is told by a warning;
* a text without a Jinja tag that is no file is refused: PaddleNLP takes it for a template.

With and without `exact`, a context is never modified: PaddleNLP's flags leak from call to call through a shared
default. And the answers of a Jinja template are found by their places: PaddleNLP searches for their texts, which fails
where a question ends as an answer does, or an answer is empty. Errors are turnwise's and also of the type that
PaddleNLP would raise (AssertionError, ValueError, jinja2's).
Paddle is needed only for its tensors.

All files about PaddleNLP's calls: this one, `paddlenlp_fields.py` (ChatTemplate) and `paddlenlp_training.py` (rows of
training data).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from warnings import warn

from turnwise.compat.batches import Encoding
from turnwise.compat.jinja_errors import raise_jinja_errors
from turnwise.compat.paddlenlp_fields import (
    FILE_NAME,
    ChatTemplate,
    Context,
    InvalidRounds,
    Rounds,
    as_messages,
)
from turnwise.compat.paddlenlp_training import (
    tokenize_rounds_example,
    training_rounds,
    truncate_rounds,
)
from turnwise.compat.tokenizer_shim import call_tokenizer, encode_text, with_calls
from turnwise.errors import MessageError, SourceError, TurnwiseWarning, short_repr
from turnwise.hub_cache import find_cached_model
from turnwise.local_files import error_reason, is_present, read_table
from turnwise.messages import JsonMapping, JsonObject
from turnwise.registry import load
from turnwise.template import Template, compile_jinja

__all__ = [
    "AutoTokenizer",
    "Chat",
    "ChatTemplate",
    "ChatTemplateMixin",
    "InvalidRounds",
    "PaddleChat",
    "as_messages",
    "tokenize_rounds_example",
    "training_rounds",
    "truncate_rounds",
]

CONFIG_NAME = "tokenizer_config.json"
JINJA_NAME = "chat_template.jinja"
MAX_CONFIG = 64 * 2**20  # bytes; some files have a whole vocabulary of added tokens


class InvalidTemplate(SourceError, ValueError):
    """There is no template, or this is none; PaddleNLP raises ValueError."""


class ChatTemplateMixin:
    """The chat calls of a tokenizer, for a class that has `__call__` and `encode`; `PaddleChat` is for other cases."""

    chat_template: ChatTemplate | Template | None = None
    exact = False

    def init_chat_template(self, chat_template: Any) -> None:
        """Set the template.

        Args:
            chat_template: A file or its folder, the content of the file, a template, or Jinja text over messages.

        Raises:
            SourceError: If it is none of these; also a ValueError.
            TemplateSyntaxError: If it is not Jinja; also jinja2's error of this name.
        """
        if chat_template is None or isinstance(chat_template, ChatTemplate | Template):
            self.chat_template = chat_template
        elif isinstance(chat_template, Mapping):
            self.chat_template = ChatTemplate.from_dict(chat_template, self.exact)
        elif _is_path(chat_template):
            self.chat_template = ChatTemplate.from_file(chat_template, self.exact)
        elif isinstance(chat_template, str) and (self.exact or re.search(r"{[{%]", chat_template)):
            self.chat_template = _compile_text(chat_template)
        else:
            raise InvalidTemplate(
                f"this is not a chat template: {short_repr(chat_template)}",
                hint="Accepted: a path, the dict that the file holds, or Jinja text.",
            )

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
            **tokenizer_kwargs: Arguments of the tokenizer's call, and `add_generation_prompt` for a Jinja template.

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
    ) -> JsonObject:
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
            messages = as_messages(conversations)
            if len(messages) != 2 * len(conversations):
                raise InvalidRounds("for training every round is [user, bot]", path="rounds")
            prompt = kwargs.pop("add_generation_prompt", True)
            parts = {"conversations": self._split_by_prefix(template, messages, prompt)}
        if not tokenize:
            return parts
        tokenizer = self._require_tokenizer("encode_chat_inputs")
        result: JsonObject = {}
        if parts.get("system") is not None:
            result["system"] = encode_text(tokenizer, parts["system"])
        result["conversations"] = [
            [encode_text(tokenizer, part) for part in turn] for turn in parts["conversations"]
        ]
        return result

    def _split_by_prefix(
        self, template: Template, messages: list[dict[str, str]], prompt: bool
    ) -> list[list[str]]:
        """Return for each round of a Jinja template what its prompt adds to the text, and what its answer adds."""
        parts = []
        before = ""
        for answer in range(1, len(messages), 2):
            asked = self._render(template, messages[:answer], prompt)
            answered = self._render(template, messages[: answer + 1], False)
            if not asked.startswith(before) or not answered.startswith(asked):
                raise MessageError(
                    "with this template an answer does not continue its prompt",
                    path=f"rounds[{answer // 2}]",
                )
            parts.append([asked.removeprefix(before), answered.removeprefix(asked)])
            before = answered
        return parts

    def _extract_non_learnable_parts(
        self, origin_msg: list[dict[str, str]], split_s: Sequence[str]
    ) -> list[str]:
        """Return what a Jinja template writes between the texts of `split_s`; a private method of PaddleNLP."""
        template = self._require_template()
        if isinstance(template, ChatTemplate):
            raise InvalidTemplate("only the text of a Jinja template is split at its answers")
        text = self._render(template, origin_msg, False)
        parts = re.split("|".join(map(re.escape, split_s)), text)
        return parts[:-1] if parts[-1] == "" else parts

    def _render(self, template: Template, messages: list[dict[str, str]], prompt: bool) -> str:
        tokens = getattr(self, "special_tokens_map", {})
        with raise_jinja_errors():
            return template.render(
                messages, add_generation_prompt=prompt, normalise=False, **tokens
            ).text

    def _require_template(self) -> ChatTemplate | Template:
        if self.chat_template is None:
            raise InvalidTemplate(
                "there is no chat template", hint="Call init_chat_template first."
            )
        return self.chat_template

    def _require_tokenizer(self, call: str) -> Any:
        """Return the tokenizer: this object, unless a subclass has another."""
        if not callable(self):
            raise _no_tokenizer(call)
        return self


class PaddleChat(ChatTemplateMixin):
    """The chat calls with the tokenizer of another library, or without one for texts only.

    All other attributes are the tokenizer's, in reading and in writing.

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
        if chat_template is not None:
            self.init_chat_template(chat_template)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        tokenizer: Any = None,
        exact: bool = False,
    ) -> PaddleChat:
        """Return the tokenizer of a model with its chat template.

        As in PaddleNLP, a `chat_template.json` counts before the template of the `tokenizer_config.json`.

        Args:
            pretrained_model_name_or_path: A folder, or a model id: then its folder in the Hugging Face cache, else the
                template that `turnwise.load` finds, without a tokenizer. Nothing is downloaded.
            tokenizer: The tokenizer, if it is not that of the folder.
            exact: Behave as PaddleNLP does, with its known defects.

        Raises:
            SourceError: If there is no such model, or a template in its folder cannot be read.
            TokenizerError: If the folder has no tokenizer.
        """
        place = pretrained_model_name_or_path
        if not isinstance(place, str | os.PathLike):
            raise SourceError(f"a model is a folder or a model id, not {short_repr(place)}")
        folder = Path(place) if os.path.isdir(place) else find_cached_model(os.fspath(place))
        if folder is None:
            chat = cls(tokenizer=tokenizer, exact=exact)
            chat.chat_template = load(os.fspath(place), exact=exact)
            return chat
        chat = cls(tokenizer=folder if tokenizer is None else tokenizer, exact=exact)
        text = _config_of(folder).get("chat_template")
        if is_present(folder / FILE_NAME):
            if text is not None:
                message = f"{folder / FILE_NAME} is used, not the chat_template of {CONFIG_NAME}"
                warn(message, TurnwiseWarning, stacklevel=2)
            chat.init_chat_template(folder)
        elif text is not None:
            chat.chat_template = _compile_text(text)
        return chat

    def save_pretrained(self, save_directory: str | os.PathLike[str], **kwargs: Any) -> Any:
        """Save the tokenizer, and the chat template where `from_pretrained` finds it.

        Fields go to `chat_template.json`, Jinja text to the `tokenizer_config.json`.
        """
        folder = Path(save_directory)
        tokenizer = self._require_tokenizer("save_pretrained")
        folder.mkdir(parents=True, exist_ok=True)
        result = call_tokenizer(tokenizer.save_pretrained, str(folder), **kwargs)
        if isinstance(self.chat_template, ChatTemplate):
            self.chat_template.save(folder)
        elif self.chat_template is not None:
            config = {**_config_of(folder), "chat_template": _text_of(self.chat_template)}
            text = json.dumps(config, ensure_ascii=False, indent=2)
            (folder / CONFIG_NAME).write_text(f"{text}\n", encoding="utf-8")
            # The tokenizer's own, which would hide it.
            (folder / JINJA_NAME).unlink(missing_ok=True)
        return result

    def __call__(self, text: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return what the tokenizer makes of a text."""
        tokenizer = self._require_tokenizer("the call")
        if not hasattr(tokenizer, "truncation_side"):
            return call_tokenizer(tokenizer, text, *args, **kwargs)
        # An argument of PaddleNLP's call is an attribute in transformers.
        usual = tokenizer.truncation_side
        tokenizer.truncation_side = kwargs.pop("truncation_side", usual)
        try:
            return call_tokenizer(tokenizer, text, *args, **kwargs)
        finally:
            tokenizer.truncation_side = usual

    def encode(self, text: Any, *args: Any, **kwargs: Any) -> JsonMapping:
        """Return the ids of a text under `input_ids`, as PaddleNLP does, where transformers returns the list."""
        encode = self._require_tokenizer("encode").encode
        result = call_tokenizer(encode, text, *args, **kwargs)
        return result if isinstance(result, Mapping) else Encoding({"input_ids": result})

    def _require_tokenizer(self, call: str) -> Any:
        if self.tokenizer is None:
            raise _no_tokenizer(call)
        return self.tokenizer

    def __getattr__(self, name: str) -> Any:
        tokenizer = vars(self).get("tokenizer")
        if tokenizer is None or name.startswith("__"):
            hint = "" if tokenizer is not None else "; it has no tokenizer that could have it"
            raise AttributeError(f"this chat has no {name!r}{hint}")
        return getattr(tokenizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        tokenizer = vars(self).get("tokenizer")
        is_own = name in vars(self) or hasattr(type(self), name)
        if tokenizer is not None and not is_own and hasattr(tokenizer, name):
            setattr(tokenizer, name, value)
        else:
            super().__setattr__(name, value)


Chat = PaddleChat
AutoTokenizer = PaddleChat


def _no_tokenizer(call: str) -> MessageError:
    return MessageError(
        f"{call} needs a tokenizer, and there is none",
        hint="Say tokenize=False for the text, give one with from_pretrained(id, tokenizer=...), "
        "or put the model's tokenizer into the Hugging Face cache.",
    )


def _compile_text(text: Any) -> Template:
    """Compile Jinja text; PaddleNLP keeps the line break at its end, which Jinja and transformers remove."""
    if not isinstance(text, str):
        raise InvalidTemplate(f"a chat template is a text here, not {short_repr(text)}")
    if text.endswith("\r"):
        text = text[:-1] + "\n"
    if text.endswith("\n"):
        text += "\n"  # the one that Jinja removes
    with raise_jinja_errors():
        return compile_jinja(text, name="chat_template")


def _text_of(template: Template) -> str:
    """Return the Jinja text of which `_compile_text` makes this template."""
    return template.text.removesuffix("\n").removesuffix("\r")


def _config_of(folder: Path) -> JsonObject:
    """Return the content of the `tokenizer_config.json` of a folder; {} without one."""
    path = folder / CONFIG_NAME
    try:
        return read_table(path, MAX_CONFIG, folder) if is_present(path) else {}
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read: {error_reason(error)}") from None


def _require_paddle() -> None:
    if find_spec("paddle") is None:
        raise MessageError(
            "return_tensors='pd' needs Paddle, which is not installed",
            hint="Others: 'np', 'pt', None.",
        )


def _is_path(place: Any) -> bool:
    """Return True for a path object, and for a text that names an existing file or folder."""
    if not isinstance(place, str):
        return isinstance(place, os.PathLike)
    try:
        return os.path.exists(place)
    except ValueError:  # a text with a null character is not a path
        return False

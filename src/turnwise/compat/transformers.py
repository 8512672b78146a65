"""transformers' own call: `apply_chat_template`, with its arguments and what it returns, over any template.

`Chat(template, tokenizer)` stands where a transformers tokenizer stood; the function of the same name takes what the
caller has: such a pair, a tokenizer with a chat template (an object, or a model folder), or a template alone, which
gives texts (`tokenize=False`). Neither transformers nor torch is needed.

The ids are transformers', forged control tokens included, since that is what the call promises.
`sanitize_control_tokens=True` gives ours: no text of a message becomes a control token, in any field. Arguments that
the call does not know are variables of the template, whatever they are called, so none of them can switch that off;
a special token among them (`bos_token`) is then one token.

Unlike the original: errors are of this library; with `truncation_side="left"` assistant masks are cut like the ids (the
original loses them); the mask can be had together with `sanitize_control_tokens`; functions as tools are refused
with a sentence, pass their JSON schema.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache, wraps
from typing import Any
from warnings import warn

from turnwise.compat.batches import Encoding, Layout, Row
from turnwise.engine.option_names import ENCODE_ARGUMENTS
from turnwise.errors import MessageError, SourceError, TurnwiseWarning, did_you_mean, short_repr
from turnwise.registry import load
from turnwise.shapes.row import ARGUMENT_NAMES as RESERVED_BY_RENDER
from turnwise.template import Template
from turnwise.tokens.attribution import TOKEN_OPTIONS
from turnwise.tokens.loss import GENERATION_TAG
from turnwise.tokens.tokenizers import Tokenizer
from turnwise.tokens.tokenizers import tokenizer as known_tokenizer

__all__ = ["Chat", "Encoding", "apply_chat_template"]

# Names that mean a variable of the template here, as in transformers, and an argument of ours elsewhere.
ARGUMENT_NAMES = {*RESERVED_BY_RENDER, *ENCODE_ARGUMENTS, "messages", "tokenizer"}
SIDES = ("padding_side", "truncation_side")
SAID = ("padding_side", "truncation_side", "pad_to_multiple_of")
"""What `tokenizer_kwargs` may say, besides `return_attention_mask` and `verbose`."""


class Chat:
    """A template and a tokenizer with transformers' call; either may be missing, as long as it is not needed."""

    def __init__(self, template: Any = None, tokenizer: Any = None) -> None:
        self.tokenizer: Tokenizer | None = (
            known_tokenizer(tokenizer) if tokenizer is not None else None
        )
        self.given = tokenizer
        self.chat_template = template

    def apply_chat_template(
        self,
        /,
        conversation: Any,
        tools: list[Any] | None = None,
        documents: list[dict[str, str]] | None = None,
        chat_template: Any = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        tokenize: bool = True,
        sanitize_control_tokens: bool = False,
        padding: Any = False,
        truncation: Any = False,
        max_length: int | None = None,
        return_tensors: Any = None,
        return_dict: bool = True,
        return_assistant_tokens_mask: bool = False,
        tokenizer_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """The conversation, or each of several, as ids in a mapping; as a list of ids, or as text, if asked for."""
        chats, single = conversations(conversation)
        if return_assistant_tokens_mask and not (tokenize and return_dict):
            raise MessageError(
                "the mask comes with ids in a dict", path="return_assistant_tokens_mask"
            )
        if return_assistant_tokens_mask and continue_final_message:
            raise MessageError(
                "a message that is continued has no mask", path="return_assistant_tokens_mask"
            )
        if sanitize_control_tokens and not tokenize:
            raise MessageError(
                "control tokens are kept out of ids; a text has none",
                path="sanitize_control_tokens",
            )
        template = reading(self.template(chat_template, tools), kwargs)
        arguments = {
            **self.tokens(template),
            **{name: value for name, value in kwargs.items() if name not in ARGUMENT_NAMES},
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "normalise": False,
        }
        if not tokenize:
            texts = [template.render(chat, **arguments).text for chat in chats]
            return texts[0] if single else texts
        layout, attention = self.layout(
            padding, truncation, max_length, return_tensors, tokenizer_kwargs or {}
        )
        extra = {"attention_mask": 1} if attention else {}
        rows = [
            self.row(
                template,
                chat,
                arguments,
                sanitize_control_tokens,
                return_assistant_tokens_mask,
                extra,
            )
            for chat in chats
        ]
        found = layout.batch(rows, single)
        return found if return_dict else found["input_ids"]

    def row(
        self,
        template: Template,
        chat: Any,
        arguments: dict[str, Any],
        safe: bool,
        mask: bool,
        extra: dict[str, int],
    ) -> Row:
        """One conversation in ids, and what goes with them."""
        known = self.known()
        masks = {}
        if safe or mask:
            for name in TOKEN_OPTIONS if safe else ():
                one_token(arguments.get(name), name, known)
            marked = mask and GENERATION_TAG.search(template.text) is not None
            train_on = "marked" if marked else "assistant"
            encoded = template.encode(chat, known, train_on, compatible=not safe, **arguments)
            ids = encoded.input_ids
            masks = {"assistant_masks": encoded.mask if marked else [0] * len(ids)} if mask else {}
            if mask and not marked:
                warn(
                    "the mask is empty: the template has no {% generation %} blocks",
                    TurnwiseWarning,
                    stacklevel=4,
                )
        else:
            ids = known.whole(template.render(chat, **arguments).text)
        return {
            "input_ids": ids,
            **{name: [value] * len(ids) for name, value in extra.items()},
            **masks,
        }

    def tokens(self, template: Template) -> dict[str, Any]:
        """The special tokens that a template may read."""
        named = self.tokenizer.named if self.tokenizer else {}
        return {name: text for name, text in named.items() if name in template.variables}

    def known(self) -> Tokenizer:
        if self.tokenizer is None:
            hint = "Say tokenize=False for the text, or give Chat(template, tokenizer)."
            raise MessageError("ids are made with a tokenizer, and there is none", hint=hint)
        return self.tokenizer

    def layout(
        self,
        padding: Any,
        truncation: Any,
        max_length: int | None,
        return_tensors: Any,
        said: Mapping[str, Any],
    ) -> tuple[Layout, bool]:
        """How the ids are laid out: what the tokenizer says, and over it what `tokenizer_kwargs` say."""
        known = self.known()
        if not isinstance(said, Mapping):
            raise MessageError(
                f"is a mapping of names to values, not {short_repr(said)}", path="tokenizer_kwargs"
            )
        said = dict(said)
        said.pop("verbose", None)
        names = getattr(self.given, "model_input_names", ("input_ids", "attention_mask"))
        attention = said.pop("return_attention_mask", None)
        for name in said:
            if name not in SAID:
                hint = did_you_mean(name, (*SAID, "return_attention_mask"), "Accepted")
                raise MessageError(
                    f"{name!r} is not known here", path="tokenizer_kwargs", hint=hint
                )
        sides = {
            name: getattr(self.given, name)
            for name in SIDES
            if isinstance(getattr(self.given, name, None), str)
        }
        longest = getattr(self.given, "model_max_length", None)
        layout = Layout(
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            return_tensors=return_tensors,
            pad_id=known.id(known.named.get("pad_token", "")),
            longest=longest if isinstance(longest, int) else None,
            **{**sides, **{name: value for name, value in said.items() if value is not None}},
        )
        return layout, "attention_mask" in names if attention is None else bool(attention)

    def template(self, chosen: Any, tools: Any) -> Template:
        """The template of this call: a text, the name of one of several, or the chat's own."""
        own = (
            self.chat_template
            if self.chat_template is not None
            else getattr(self.given, "chat_template", None)
        )
        if isinstance(own, Mapping):
            named = isinstance(chosen, str) and chosen in own
            name = (
                chosen
                if named
                else "tool_use"
                if tools is not None and "tool_use" in own
                else "default"
            )
            if chosen is None or named:
                chosen, own = None, own.get(name)
                if own is None:
                    raise SourceError(
                        "several templates and none is called default", hint="Say chat_template=..."
                    )
        chosen = own if chosen is None else chosen
        if isinstance(chosen, Template):
            return chosen
        if isinstance(chosen, str):
            return compiled(chosen)
        if chosen is None:
            hint = "Say chat_template=..., or Chat(template, tokenizer)."
            raise SourceError("there is no chat template", hint=hint)
        raise SourceError(f"a chat template is a Template or Jinja text, not {short_repr(chosen)}")


@wraps(Chat.apply_chat_template, assigned=())
def apply_chat_template(given: Any, /, *arguments: Any, **named: Any) -> Any:
    """`Chat.apply_chat_template` of what is given: `(template, tokenizer)`, a template, a tokenizer, a model folder."""
    return chat_of(given).apply_chat_template(*arguments, **named)


def chat_of(given: Any) -> Chat:
    if isinstance(given, Chat):
        return given
    if isinstance(given, Template):
        return Chat(given)
    if isinstance(given, tuple) and len(given) == 2:
        return Chat(*given)
    if isinstance(given, str | os.PathLike) and os.path.isdir(given):
        return Chat(load(given), given)
    return Chat(None, given)


def reading(template: Template, given: Mapping[str, Any]) -> Template:
    """The template with those variables that have the names of our own arguments."""
    named = {name: value for name, value in given.items() if name in ARGUMENT_NAMES}
    if not named:
        return template
    return template.with_options(named)


def one_token(text: Any, name: str, known: Tokenizer) -> None:
    """Refuse a special token that is none: the template may write it, so whoever says what it is writes tokens."""
    if isinstance(text, str) and text and text not in known.added:
        hint = "Without sanitize_control_tokens it may be any text."
        raise MessageError(
            f"{short_repr(text)} is not one token of {known.name}", path=name, hint=hint
        )


@lru_cache(64)
def compiled(text: str) -> Template:
    return Template.from_jinja(text, name="chat_template")


def conversations(given: Any) -> tuple[list[Any], bool]:
    """The conversations, and whether it is just one."""
    if isinstance(given, list | tuple) and not given:
        raise MessageError("there is no message", path="conversation", hint="Give at least one.")
    several = isinstance(given, list | tuple) and (
        isinstance(given[0], list | tuple) or hasattr(given[0], "messages")
    )
    chats = list(given) if several else [given]
    return [getattr(chat, "messages", chat) for chat in chats], not several

"""transformers' own call: `apply_chat_template`, with its arguments and results, for any template.

    from turnwise.compat.transformers import apply_chat_template

    ids = apply_chat_template((template, tokenizer), messages, add_generation_prompt=True)

`TransformersChat(template, tokenizer)` replaces a transformers tokenizer; the function takes such a pair, a tokenizer
with a chat template (an object, or a model folder), or a template alone, which gives texts (`tokenize=False`). Neither
transformers nor torch is needed.

The ids are those of transformers, forged control tokens included, since that is what the call promises. With
`sanitize_control_tokens=True` no text of a message becomes a control token. Arguments that the call does not know are
variables of the template, whatever their names, so none of them can switch that off; a special token among them
(`bos_token`) must then be one token of the tokenizer.

Differences from transformers: errors are those of turnwise; with `truncation_side="left"` assistant masks are truncated
like the ids (transformers loses them); the mask works together with `sanitize_control_tokens`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import wraps
from typing import Any
from warnings import warn

from turnwise.compat.batches import BatchLayout, Encoding, TokenRow
from turnwise.engine.option_names import ENCODE_ARGUMENTS
from turnwise.errors import MessageError, SourceError, TurnwiseWarning, short_repr
from turnwise.messages import JsonMapping, JsonObject
from turnwise.registry import load
from turnwise.schema import check_name
from turnwise.shapes.row import ARGUMENT_NAMES
from turnwise.sized_cache import SizedCache
from turnwise.template import Template, compile_jinja
from turnwise.tokens.loss import GENERATION_TAG, TrainOn, train_nothing
from turnwise.tokens.tokenizers import Tokenizer
from turnwise.tokens.tokenizers import tokenizer as known_tokenizer

__all__ = ["Chat", "Encoding", "TransformersChat", "apply_chat_template"]

VARIABLE_NAMES = {*ARGUMENT_NAMES, *ENCODE_ARGUMENTS, "messages", "tokenizer"}
"""Names that mean a variable of the template here, as in transformers, and an argument of ours elsewhere."""

SIDES = ("padding_side", "truncation_side")
LAYOUT_KWARGS = (*SIDES, "pad_to_multiple_of")
"""What `tokenizer_kwargs` may set, besides `return_attention_mask` and `verbose`."""


class TransformersChat:
    """A template and a tokenizer with transformers' call; one may be missing if it is not needed.

    Args:
        template: A Template, Jinja text, a mapping of named texts, or None for the tokenizer's own.
        tokenizer: Any tokenizer that turnwise can read, or None for texts only.

    Example:
        >>> chat = TransformersChat("{{ messages[0].content }}")
        >>> chat.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False)
        'hi'
    """

    def __init__(self, template: Any = None, tokenizer: Any = None) -> None:
        self.tokenizer: Tokenizer | None = None
        if tokenizer is not None:
            self.tokenizer = known_tokenizer(tokenizer)
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
        tokenizer_kwargs: JsonObject | None = None,
        **kwargs: Any,
    ) -> Any:
        """Render and encode one conversation, or each of several; the arguments are those of transformers.

        Returns:
            An `Encoding`; a list of ids with `return_dict=False`; text with `tokenize=False`.

        Raises:
            MessageError: If the conversation or an argument is wrong.
            SourceError: If there is no chat template.
            TokenizerError: If the tokenizer cannot do what is asked.
        """
        chats, single = _split_conversations(conversation)
        wants_mask = return_assistant_tokens_mask
        if wants_mask and not (tokenize and return_dict):
            raise MessageError(
                "the mask comes with ids in a dict", path="return_assistant_tokens_mask"
            )
        if wants_mask and continue_final_message:
            raise MessageError(
                "a message that is continued has no mask", path="return_assistant_tokens_mask"
            )
        if sanitize_control_tokens and not tokenize:
            raise MessageError(
                "control tokens are kept out of ids; a text has none",
                path="sanitize_control_tokens",
            )
        template = _with_variables(self._find_template(chat_template, tools), kwargs)
        arguments = {
            **self._special_tokens(template),
            **{name: value for name, value in kwargs.items() if name not in VARIABLE_NAMES},
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
            "continue_final_message": continue_final_message,
            "normalise": False,
        }
        if not tokenize:
            texts = [template.render(chat, **arguments).text for chat in chats]
            return texts[0] if single else texts
        settings = dict(self._check_tokenizer_kwargs(tokenizer_kwargs))
        wants_attention = settings.pop("return_attention_mask", None)
        layout = self._make_layout(
            settings,
            padding=padding,
            truncation=truncation,
            max_length=max_length,
            return_tensors=return_tensors,
        )
        if wants_attention is None:
            names = getattr(self.given, "model_input_names", ("attention_mask",))
            wants_attention = "attention_mask" in names
        rows = []
        for chat in chats:
            row = self._encode(template, chat, arguments, sanitize_control_tokens, wants_mask)
            if wants_attention:
                ids = row.pop("input_ids")
                row = {"input_ids": ids, "attention_mask": [1] * len(ids), **row}
            rows.append(row)
        batch = layout.make_batch(rows, single)
        return batch if return_dict else batch["input_ids"]

    def _encode(
        self, template: Template, chat: Any, arguments: JsonObject, safe: bool, wants_mask: bool
    ) -> TokenRow:
        tokenizer = self.require_tokenizer()
        if not safe and not wants_mask:
            return {"input_ids": tokenizer.whole(template.render(chat, **arguments).text)}
        train_on = self._choose_loss(template) if wants_mask else train_nothing
        encoded = template.encode(
            chat, tokenizer, train_on, compatible=not safe, add_stop=False, **arguments
        )
        row = {"input_ids": encoded.input_ids}
        if wants_mask:
            row["assistant_masks"] = encoded.mask
        return row

    def _choose_loss(self, template: Template) -> TrainOn:
        """Return what the mask marks; a subclass may mark what has no `{% generation %}` blocks."""
        if GENERATION_TAG.search(template.text) is not None:
            return "marked"
        problem = "the mask is empty: the template has no {% generation %} blocks"
        warn(problem, TurnwiseWarning, stacklevel=5)
        return train_nothing

    def _special_tokens(self, template: Template) -> JsonObject:
        named = self.tokenizer.named if self.tokenizer else {}
        return {name: text for name, text in named.items() if name in template.variables}

    def require_tokenizer(self) -> Tokenizer:
        """Return the tokenizer; MessageError if there is none."""
        if self.tokenizer is None:
            raise MessageError(
                "ids are made with a tokenizer, and there is none",
                hint="Say tokenize=False for the text, or give TransformersChat(template, tokenizer).",
            )
        return self.tokenizer

    def _check_tokenizer_kwargs(self, given: Any) -> JsonMapping:
        given = given or {}
        if not isinstance(given, Mapping):
            raise MessageError(
                f"must be a mapping of names to values, not {short_repr(given)}",
                path="tokenizer_kwargs",
            )
        accepted = (*LAYOUT_KWARGS, "return_attention_mask", "verbose")
        for name in given:
            check_name(name, accepted, "unknown argument", "Accepted", path="tokenizer_kwargs")
        return {name: value for name, value in given.items() if name != "verbose"}

    def _make_layout(self, settings: JsonMapping, **call: Any) -> BatchLayout:
        """Return the layout of the ids: the tokenizer's attributes, overridden by `tokenizer_kwargs`."""
        tokenizer = self.require_tokenizer()
        layout: JsonObject = {}
        for name in SIDES:
            if isinstance(getattr(self.given, name, None), str):
                layout[name] = getattr(self.given, name)
        for name, value in settings.items():
            if value is not None:
                layout[name] = value
        limit = getattr(self.given, "model_max_length", None)
        return BatchLayout(
            pad_id=tokenizer.id(tokenizer.named.get("pad_token", "")),
            model_max_length=limit if isinstance(limit, int) else None,
            **layout,
            **call,
        )

    def _find_template(self, chosen: Any, tools: Any) -> Template:
        """Return the template of a call: a text, the name of one of several, or for None the chat's own."""
        own = self.chat_template
        if own is None:
            own = getattr(self.given, "chat_template", None)
        if isinstance(own, Mapping) and (chosen is None or _is_key(chosen, own)):
            default = "tool_use" if tools is not None and "tool_use" in own else "default"
            chosen = own.get(chosen or default)
            if chosen is None:
                raise SourceError(
                    "several templates and none is called default", hint="Say chat_template=..."
                )
        elif chosen is None:
            chosen = own
        if isinstance(chosen, Template):
            return chosen
        if isinstance(chosen, str):
            return TEMPLATES.get(chosen)
        if chosen is None:
            raise SourceError(
                "there is no chat template",
                hint="Say chat_template=..., or TransformersChat(template, tokenizer).",
            )
        raise SourceError(f"a chat template is a Template or Jinja text, not {short_repr(chosen)}")


Chat = TransformersChat


@wraps(TransformersChat.apply_chat_template, assigned=())
def apply_chat_template(given: Any, /, *arguments: Any, **named: Any) -> Any:
    """Render and encode a conversation as transformers does.

    Args:
        given: `(template, tokenizer)`, a Template, a tokenizer with a chat template, or a model folder.
        *arguments: The conversation, and the other arguments of transformers' method.
        **named: The same by name, and variables of the template.

    Returns:
        What `TransformersChat.apply_chat_template` returns.

    Raises:
        TurnwiseError: As `TransformersChat.apply_chat_template`.

    Example:
        >>> import turnwise
        >>> chat = [{"role": "user", "content": "hi"}]
        >>> apply_chat_template(turnwise.load("chatml"), chat, tokenize=False)
        '<|im_start|>user\\nhi<|im_end|>\\n'
    """
    return _to_chat(given).apply_chat_template(*arguments, **named)


def _to_chat(given: Any) -> TransformersChat:
    if isinstance(given, TransformersChat):
        return given
    if isinstance(given, Template):
        return TransformersChat(given)
    if isinstance(given, tuple) and len(given) == 2:
        return TransformersChat(*given)
    if isinstance(given, str | os.PathLike) and os.path.isdir(given):
        return TransformersChat(load(given), given)
    return TransformersChat(None, given)


def _is_key(name: Any, templates: JsonMapping) -> bool:
    return isinstance(name, str) and name in templates


def _with_variables(template: Template, given: JsonMapping) -> Template:
    """Return the template with the variables that have the names of our own arguments set as options."""
    named = {name: value for name, value in given.items() if name in VARIABLE_NAMES}
    return template.with_options(named) if named else template


def _compile_text(text: str) -> Template:
    return compile_jinja(text, name="chat_template")


TEMPLATES = SizedCache(_compile_text, lambda template: template.program.measure_size())


def _split_conversations(given: Any) -> tuple[list[Any], bool]:
    single = True
    if isinstance(given, list | tuple):
        if not given:
            raise MessageError(
                "there is no message", path="conversation", hint="Give at least one."
            )
        single = not isinstance(given[0], list | tuple) and not hasattr(given[0], "messages")
    chats = [given] if single else list(given)
    return [getattr(chat, "messages", chat) for chat in chats], single

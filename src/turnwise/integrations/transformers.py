"""transformers: a tokenizer object whose chat methods are turnwise's, for every program that is given the object.

    from turnwise.integrations.transformers import bind

    tokenizer = bind(AutoTokenizer.from_pretrained("..."))

`bind` changes the class of the object to a subclass with the same name, so copies, pickles and worker processes have
the methods too, `isinstance` and `save_pretrained` work as before, and `unbind` takes them away. The text is always
what transformers renders. What changes:

* ids: control tokens that a message spells are encoded as ordinary text, unless `sanitize_control_tokens=False`;
* `return_assistant_tokens_mask`: works for templates without `{% generation %}` blocks;
* `parse_response`: works without a `response_template`, by the grammar that is derived from the template.

Errors are turnwise's, and also those that transformers raises in the same place: jinja2's for templates, ValueError
for arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from turnwise.compat.jinja_errors import raise_jinja_errors
from turnwise.compat.transformers import TransformersChat
from turnwise.errors import MessageError, TokenizerError, short_repr
from turnwise.integrations.tokenizer_template import template_of
from turnwise.template import Template
from turnwise.token_ids import to_token_ids
from turnwise.tokens.loss import GENERATION_TAG, TrainOn
from turnwise.tokens.tokenizers import library_of

__all__ = ["bind", "raise_expected_errors", "unbind"]

SIGNATURE = inspect.signature(TransformersChat.apply_chat_template)


def bind(tokenizer: Any) -> Any:
    """Give a tokenizer object turnwise's `apply_chat_template` and `parse_response`.

    Args:
        tokenizer: A tokenizer object of transformers; its `chat_template` is read at every call.

    Returns:
        The same object.

    Raises:
        TokenizerError: It is not a tokenizer of transformers.
    """
    kind = type(tokenizer)
    if issubclass(kind, BoundTokenizer):
        return tokenizer
    is_tokenizer = library_of(tokenizer) == "transformers" and hasattr(kind, "special_tokens_map")
    if not is_tokenizer:
        hint = "Of a processor, bind its `tokenizer`."
        problem = f"bind takes a tokenizer of transformers, not {short_repr(tokenizer)}"
        raise TokenizerError(problem, hint=hint)
    tokenizer.__class__ = _bound_class(kind)
    return tokenizer


def unbind(tokenizer: Any) -> Any:
    """Give a tokenizer object its own methods back; the same object is returned, bound before or not."""
    if isinstance(tokenizer, BoundTokenizer):
        tokenizer.__class__ = tokenizer._own_class
    return tokenizer


class BoundChat(TransformersChat):
    """transformers' call with masks for every template, and functions as tools."""

    def _find_template(self, chosen: Any, tools: Any) -> Template:
        if chosen is None:
            return template_of(self.given)
        return super()._find_template(chosen, tools)

    def _choose_loss(self, template: Template) -> TrainOn:
        return "marked" if GENERATION_TAG.search(template.text) else "assistant"


class BoundTokenizer:
    """The methods that `bind` puts before those of a tokenizer's own class."""

    _own_class: type

    def apply_chat_template(self, *arguments: Any, **named: Any) -> Any:
        """Render and encode a conversation, or each of several; the arguments are those of transformers."""
        bound = SIGNATURE.bind(BoundChat(None, self), *arguments, **named)
        given = bound.arguments
        given.setdefault("sanitize_control_tokens", given.get("tokenize", True))
        with raise_expected_errors():
            made = BoundChat.apply_chat_template(*bound.args, **bound.kwargs)
        if isinstance(made, dict):
            return import_module("transformers").BatchEncoding(dict(made))
        return made

    # `inspect.signature` reads this attribute of any function; its type has none.
    apply_chat_template.__signature__ = SIGNATURE  # type: ignore[attr-defined]

    def parse_response(
        self, response: Any, schema: Any = None, *, prefix: Any = None, tools: Any = None
    ) -> Any:
        """Parse what the model wrote after `prefix` to a message, or each of several.

        Args:
            response: A text or ids; or a list of texts or of ids.
            schema: A response template, which is then read by transformers.
            prefix: The prompt, as text or ids; for several responses one for all, or one for each.
            tools: The tools that were offered.

        Returns:
            A message that `apply_chat_template` takes, or a list of them. A call that cannot be parsed is content.
        """
        if schema is not None:
            own: Any = super()
            return own.parse_response(response, schema, prefix=prefix, tools=tools)
        with raise_expected_errors():
            template = template_of(self)
            replies, is_batch = _split_batch(response)
            prompts, many = _split_batch(prefix if prefix is not None else "")
            if not many or not prompts:
                prompts = (prompts or [""]) * len(replies)
            if len(prompts) != len(replies):
                problem = f"{len(prompts)} prefixes for {len(replies)} responses"
                raise MessageError(problem, path="prefix", hint="Give one, or one for each.")
            turns = []
            for reply, prompt in zip(replies, prompts, strict=True):
                # An empty prefix means that the prompt is not known.
                known = prompt if len(prompt) else None
                turns.append(template.parse(reply, known, tools, self).as_turn())
        return turns if is_batch else turns[0]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _make_unpickled, (self._own_class,), self.__getstate__()


def _bound_class(kind: type) -> Any:
    """Return the subclass of a tokenizer class; it has the name of that class, which `save_pretrained` writes."""
    if kind not in _BOUND_CLASSES:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        _BOUND_CLASSES[kind] = type(
            kind.__name__, (BoundTokenizer, kind), {**names, "_own_class": kind}
        )
    return _BOUND_CLASSES[kind]


_BOUND_CLASSES: dict[type, type] = {}


def _make_unpickled(kind: type) -> Any:
    bound = _bound_class(kind)
    return bound.__new__(bound)


def _split_batch(given: Any) -> tuple[list[Any], bool]:
    """Return texts or lists of ids, and whether there was more than one sequence."""
    if isinstance(given, str):
        return [given], False
    if hasattr(given, "tolist"):
        given = given.tolist()
    if not isinstance(given, Sequence):
        raise MessageError(f"must be texts or token ids, not {short_repr(given)}", path="response")
    if not given or isinstance(given[0], str):
        return list(given), True
    if isinstance(given[0], int):
        return [to_token_ids(given, "a response is a text or a list of ids")], False
    return [to_token_ids(ids, "a response is a text or a list of ids") for ids in given], True


class InvalidChat(MessageError, ValueError):
    """A wrong argument: ValueError is what transformers raises for one."""


class UnusableTokenizer(TokenizerError, ValueError):
    """Something that the tokenizer cannot do."""


@contextmanager
def raise_expected_errors() -> Iterator[None]:
    """Raise errors as types that callers of transformers expect, too."""
    try:
        with raise_jinja_errors():
            yield
    except (MessageError, TokenizerError) as error:
        kind = InvalidChat if isinstance(error, MessageError) else UnusableTokenizer
        made = kind.__new__(kind, *error.args)
        made.__dict__.update(error.__dict__)
        raise made from error

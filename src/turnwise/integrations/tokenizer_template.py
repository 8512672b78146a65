"""The template of a tokenizer object, compiled once for all calls that its host makes.

Hosts hand over a tokenizer again and again, copied and pickled on the way, so its template is found by what it says
and not by the object: the text of `chat_template` and the special tokens.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from turnwise.errors import SourceError
from turnwise.registry import load
from turnwise.sized_cache import SizedCache
from turnwise.template import Template

__all__ = ["template_of"]


def template_of(tokenizer: Any, chat_template: Any = None) -> Template:
    """Return the template of a tokenizer object of transformers, with its special tokens as options.

    Args:
        tokenizer: The object.
        chat_template: Jinja text to use instead of the tokenizer's own.

    Raises:
        SourceError: It has no chat template.
        TemplateSyntaxError: The template cannot be compiled.
    """
    if chat_template is None:
        chat_template = getattr(tokenizer, "chat_template", None)
    if chat_template is None:
        hint = "Base models have none; set tokenizer.chat_template to the text of one."
        raise SourceError("the tokenizer has no chat template", hint=hint)
    tokens = getattr(tokenizer, "special_tokens_map", {})
    name = getattr(tokenizer, "name_or_path", None)
    return _CACHE.get(
        json.dumps(chat_template),
        json.dumps(dict(tokens), default=str),
        str(name or type(tokenizer).__name__),
    )


def _compile(chat_template: str, tokens: str, name: str) -> Template:
    like_a_tokenizer: Any = SimpleNamespace(
        chat_template=json.loads(chat_template),
        special_tokens_map=json.loads(tokens),
        name_or_path=name,
    )
    return load(like_a_tokenizer)


_CACHE = SizedCache(_compile, lambda template: template.program.measure_size())

"""vLLM's renderer, for `--tokenizer-mode turnwise`: prompts in which a message cannot forge control tokens.

vLLM's own renderer calls `apply_chat_template` of its copy of the tokenizer, which here is turnwise's: the text is
what transformers renders, and a control token that a message spells is ordinary text. Its servers ask for the text
and encode that, so a request for text is answered with ids; only where a message has other parts than text (images)
the processor of the model needs the text, and control tokens are what they look like.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from vllm.renderers.hf import HfRenderer

from turnwise.errors import TurnwiseError
from turnwise.integrations.transformers import bind

__all__ = ["TurnwiseRenderer"]

TEXT_PARTS = ("text", "input_text", "output_text", "refusal", "thinking")


class TurnwiseRenderer(HfRenderer):
    """Renders conversations with turnwise."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        if self.tokenizer is None:
            raise TurnwiseError(
                "there is no tokenizer to render with", hint="Serve without --skip-tokenizer-init."
            )
        bind(self.tokenizer)

    def render_messages(self, messages: Any, params: Any) -> Any:
        """Render a conversation, to ids."""
        return super().render_messages(messages, _ask_for_ids(messages, params))

    async def render_messages_async(self, messages: Any, params: Any) -> Any:
        """Render a conversation, to ids."""
        return await super().render_messages_async(messages, _ask_for_ids(messages, params))


def _ask_for_ids(messages: Iterable[Any], params: Any) -> Any:
    """Return the parameters of a request with `tokenize`, unless a message has media."""
    if any(_has_media(message) for message in messages):
        return params
    return replace(params, chat_template_kwargs={**params.chat_template_kwargs, "tokenize": True})


def _has_media(message: Any) -> bool:
    parts = message.get("content") if isinstance(message, dict) else None
    if not isinstance(parts, list):
        return False
    return any(
        isinstance(part, dict) and part.get("type", "text") not in TEXT_PARTS for part in parts
    )

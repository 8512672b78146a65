"""vLLM's renderer, for `--tokenizer-mode turnwise`: prompts in which a message cannot forge control tokens.

vLLM's own renderer calls `apply_chat_template` of its copy of the tokenizer, which here is turnwise's: the text is
what transformers renders, and a control token that a message spells is ordinary text.
"""

from __future__ import annotations

from typing import Any

from vllm.renderers.hf import HfRenderer

from turnwise.errors import TurnwiseError
from turnwise.integrations.transformers import bind

__all__ = ["TurnwiseRenderer"]


class TurnwiseRenderer(HfRenderer):
    """Renders conversations with turnwise."""

    def __init__(self, config: Any, tokenizer: Any) -> None:
        super().__init__(config, tokenizer)
        if self.tokenizer is None:
            raise TurnwiseError(
                "there is no tokenizer to render with", hint="Serve without --skip-tokenizer-init."
            )
        bind(self.tokenizer)

"""vLLM: replies are read, calls constrained and prompts rendered as the model's own template says.

    vllm serve MODEL --enable-auto-tool-choice --tool-call-parser turnwise --reasoning-parser turnwise

vLLM calls `register` in each of its processes, through the entry point group `vllm.general_plugins`. It registers by
name, so nothing changes for a model that does not ask for it. The classes are in `vllm_parsers` and `vllm_renderer`;
they extend classes of vLLM, so vLLM imports them when they are asked for.
"""

from __future__ import annotations

__all__ = ["NAME", "register"]

NAME = "turnwise"
"""The name of the parsers, and of the tokenizer mode that renders prompts."""
PARSERS = "turnwise.integrations.vllm_parsers"
RENDERER = "turnwise.integrations.vllm_renderer"


def register() -> None:
    """Register the tool parser, the reasoning parser and the renderer."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.renderers.registry import RENDERER_REGISTRY
    from vllm.tokenizers.registry import TokenizerRegistry
    from vllm.tool_parsers import ToolParserManager

    ToolParserManager.register_lazy_module(NAME, PARSERS, "TurnwiseToolParser")
    ReasoningParserManager.register_lazy_module(NAME, PARSERS, "TurnwiseReasoningParser")
    # vLLM may call this twice, and warns of another one.
    if NAME not in RENDERER_REGISTRY.renderers:
        TokenizerRegistry.register(NAME, "vllm.tokenizers.hf", "CachedHfTokenizer")
        RENDERER_REGISTRY.register(NAME, RENDERER, "TurnwiseRenderer")
